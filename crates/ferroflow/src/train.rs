//! Training: checkpoints, the start-up protocol of a cluster, and training loops with hooks.
//!
//! [`MonitoredTrainingSession`] is the place to start. It initializes or restores the model, runs hooks, writes checkpoints
//! and summaries, and recovers from lost tasks:
//!
//! ```
//! use ferroflow::train::{Every, LogTensors, MonitoredTrainingSession, StopAtStep};
//! # use ferroflow::optimizers::{GradientDescent, Optimizer};
//! # use ferroflow::{Graph, Variable, global_step, initializers, ops};
//! # let directory = std::env::temp_dir().join(format!("train-{}", std::process::id()));
//! # let graph = Graph::new();
//! # let s = graph.scope();
//! # let w = Variable::new(&s, "w", [2], initializers::ones())?;
//! # let loss = ops::sum(&s, ops::square(&s, &w), [0])?;
//! # let step = global_step(&s)?;
//! # let train = GradientDescent::new(0.1).minimize(&s, &loss, Some(&step))?;
//!
//! MonitoredTrainingSession::new(&graph)
//!     .checkpoint_dir(&directory)
//!     .hook(StopAtStep::last(100))
//!     .hook(LogTensors::new([("loss", &loss)], Every::Steps(20)))
//!     .build()?
//!     .run_loop(|session| session.execute(&train))?;
//! # std::fs::remove_dir_all(directory).unwrap();
//! # Ok::<(), ferroflow::Status>(())
//! ```

mod checkpoint_reader;
mod checkpoint_state;
mod checkpoints;
mod hooks;
mod monitored_session;
mod saver;
mod saver_nodes;
mod scaffold;
mod session_manager;

pub use checkpoint_reader::CheckpointReader;
pub use checkpoint_state::{
    CheckpointState, checkpoint_exists, latest_checkpoint, read_checkpoint_state, write_checkpoint_state,
};
pub use checkpoints::Checkpoints;
pub use ferroflow_io::bundle::StoredTensor;
pub use hooks::{
    CheckpointSaver, Every, FeedHook, FinalOps, FinalValues, LogTensors, NanGuard, Profiler, RunArgs,
    RunContext, RunValues, SessionHook, StepCounter, StopAtStep, SummarySaver, SyncReplicasHook, WaitForStep,
};
pub use monitored_session::{MonitoredSession, MonitoredTrainingSession};
pub use saver::{Saver, SaverBuilder};
pub use scaffold::{InitFn, Scaffold, report_uninitialized_variables};
pub(crate) use session_manager::is_lost;

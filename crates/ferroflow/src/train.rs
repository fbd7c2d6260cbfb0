//! Training: checkpoints, the start-up protocol of a cluster, and loops with hooks.

mod checkpoint_state;
mod checkpoints;
mod hooks;
mod monitored_session;
mod saver;
mod saver_nodes;
mod scaffold;
mod session_manager;

pub use checkpoint_state::{
    CheckpointState, checkpoint_exists, latest_checkpoint, read_checkpoint_state, write_checkpoint_state,
};
pub use checkpoints::Checkpoints;
pub use hooks::{
    CheckpointSaver, Every, FeedHook, FinalOps, LogTensors, NanGuard, Profiler, RunArgs, RunContext,
    RunValues, SessionHook, StepCounter, StopAtStep, SummarySaver, SyncReplicasHook, Values, WaitForStep,
};
pub use monitored_session::{MonitoredSession, MonitoredTrainingSession};
pub use saver::{Saver, SaverBuilder};
pub use scaffold::{InitFn, Scaffold, report_uninitialized_variables};
pub(crate) use session_manager::is_lost;

//! The hook of synchronous training, which runs the operations that are not part of the workers' steps.

use super::super::session_manager::is_lost;
use super::SessionHook;
use crate::optimizers::SyncTrainOp;
use crate::session::Session;
use bytes::Bytes;
use ferroflow_core::{Code, Result, ensure, status};
use std::thread::JoinHandle;

/// Hook that prepares a task for synchronous training. The chief's also applies the collected gradients, on a background
/// thread.
///
/// ```
/// use ferroflow::optimizers::{GradientDescent, SyncReplicas};
/// use ferroflow::train::{MonitoredTrainingSession, StopAtStep, SyncReplicasHook};
/// use ferroflow::{Graph, Variable, global_step, initializers, ops};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let w = Variable::new(&s, "w", [2], initializers::ones())?;
/// let loss = ops::sum(&s, ops::square(&s, &w), [0])?;
/// // With one replica, this program is the whole cluster.
/// let sync = SyncReplicas::new(GradientDescent::new(0.1), 1).minimize(&s, &loss, &global_step(&s)?)?;
/// let session = MonitoredTrainingSession::new(&graph)
///     .hook(SyncReplicasHook::new(&sync, true))
///     .hook(StopAtStep::last(3))
///     .build()?;
/// session.run_loop(|session| session.execute(&sync.train))?;
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct SyncReplicasHook {
    train: SyncTrainOp,
    chief: bool,
    applying: Option<(Session, JoinHandle<()>)>,
}

impl SyncReplicasHook {
    /// Creates the hook of the chief or of another worker.
    pub fn new(train: &SyncTrainOp, chief: bool) -> SyncReplicasHook {
        SyncReplicasHook { train: train.clone(), chief, applying: None }
    }

    fn stop(&mut self) {
        let Some((session, thread)) = self.applying.take() else { return };
        // Cancels the step that waits for gradients. A session that is closed or lost has canceled it already.
        let _ = session.close();
        if thread.join().is_err() {
            tracing::error!("The thread that applies gradients panicked.");
        }
    }
}

impl SessionHook for SyncReplicasHook {
    fn after_create_session(&mut self, session: &Session) -> Result<()> {
        self.stop();
        let missing = session.eval(&self.train.ready_for_local_init)?;
        let missing: Vec<String> =
            missing.flat::<Bytes>()?.iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
        ensure!(
            missing.is_empty(),
            FailedPrecondition,
            "Init operations did not make model ready for SyncReplicas local_init. Variables not initialized: {}",
            missing.join(", ")
        );
        if !self.chief {
            return session.execute(&self.train.local_step_init);
        }
        session.execute(&self.train.chief_init)?;
        session.execute(&self.train.init_tokens)?;
        let (steps, apply) = (session.clone(), self.train.chief_queue.clone());
        let thread = std::thread::Builder::new().name("sync-replicas".to_owned()).spawn(move || {
            loop {
                match steps.execute(&apply) {
                    Ok(()) => {}
                    // The session was closed, or its tasks were lost, which the program's own steps notice as well.
                    Err(error) if is_lost(&error) || is_end(error.code()) => return,
                    Err(error) => {
                        tracing::error!(%error, "Gradients cannot be applied; training stops.");
                        let _ = steps.close();
                        return;
                    }
                }
            }
        });
        let thread = thread
            .map_err(|error| status!(Internal, "cannot start the thread that applies gradients: {error}"))?;
        self.applying = Some((session.clone(), thread));
        Ok(())
    }

    /// Closes the queue of tokens, so that workers that wait for the next one end without an error.
    fn end(&mut self, session: &Session) -> Result<()> {
        if !self.chief {
            return Ok(());
        }
        session.execute(&self.train.close).or_else(|error| is_lost(&error).then_some(()).ok_or(error))
    }
}

fn is_end(code: Code) -> bool {
    matches!(code, Code::Cancelled | Code::FailedPrecondition | Code::OutOfRange)
}

impl Drop for SyncReplicasHook {
    fn drop(&mut self) {
        self.stop();
    }
}

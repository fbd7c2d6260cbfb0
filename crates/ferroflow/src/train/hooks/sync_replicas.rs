//! The hook of synchronous training: what a task does besides its own steps.

use super::super::session_manager::is_lost;
use super::SessionHook;
use crate::optimizers::SyncTrainOp;
use crate::session::Session;
use bytes::Bytes;
use ferroflow_core::{Code, Result, ensure, status};
use std::thread::JoinHandle;

/// Starts synchronous training on a task. The chief's also applies the gradients that workers have gathered, on a thread
/// of its own.
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
/// // Of one replica only, so that this program is the whole cluster.
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
    /// For the chief or for another worker.
    pub fn new(train: &SyncTrainOp, chief: bool) -> SyncReplicasHook {
        SyncReplicasHook { train: train.clone(), chief, applying: None }
    }

    fn stop(&mut self) {
        let Some((session, thread)) = self.applying.take() else { return };
        // Ends the step that waits for gradients; a session that is closed or lost has ended it.
        let _ = session.close();
        if thread.join().is_err() {
            tracing::error!("The thread that applies gradients ended with a panic.");
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
                    // The session was closed, or its tasks were lost, which the steps of the program notice as well.
                    Err(error) if is_lost(&error) || is_end(error.code()) => return,
                    Err(error) => {
                        tracing::error!(%error, "Gradients cannot be applied; training stops.");
                        let _ = steps.close();
                        return;
                    }
                }
            }
        });
        let thread = thread.map_err(|error| status!(Internal, "cannot start a thread: {error}"))?;
        self.applying = Some((session.clone(), thread));
        Ok(())
    }

    /// Workers that wait for the chief's next token end well: there will be none.
    fn end(&mut self, session: &Session) -> Result<()> {
        match self.chief {
            true => {
                session.execute(&self.train.close).or_else(|error| is_lost(&error).then_some(()).ok_or(error))
            }
            false => Ok(()),
        }
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

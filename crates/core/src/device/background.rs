//! Work that outlives the step that starts it, such as filling the buffer of an input pipeline. The runtime's compute
//! threads implement it.

use crate::BoxFuture;
use std::any::Any;

/// Threads that run futures between the steps.
pub trait Background: Send + Sync {
    /// Starts a future. Dropping the task cancels it.
    fn spawn(&self, work: BoxFuture<()>) -> BackgroundTask;

    /// The number of futures that can run at a time.
    fn parallelism(&self) -> usize;
}

/// A running future; cancelled when dropped.
pub struct BackgroundTask {
    _task: Box<dyn Any + Send + Sync>,
}

impl BackgroundTask {
    /// Wraps the value whose drop cancels the future.
    pub fn new(task: impl Any + Send + Sync) -> BackgroundTask {
        BackgroundTask { _task: Box::new(task) }
    }
}

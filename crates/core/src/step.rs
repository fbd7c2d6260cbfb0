//! The state that everything running in one step shares. Dropping the last reference releases what the step holds.

use crate::cancel::Cancellation;
use crate::device::Device;
use crate::rendezvous::Rendezvous;
use crate::resource::ResourceManager;
use crate::{Result, status};
use std::sync::Arc;

/// The step that a kernel runs in.
pub struct StepCx {
    /// The id of the step, the same in every task.
    pub step_id: i64,
    /// The device that runs these nodes.
    pub device: Arc<Device>,
    /// State that outlives the step, as the session sees it.
    pub resources: Arc<ResourceManager>,
    /// State that ends with the step: tensor arrays, stacks.
    pub step_resources: Arc<ResourceManager>,
    /// The exchange for tensors that cross devices.
    pub rendezvous: Arc<dyn Rendezvous>,
    /// Cancels the step.
    pub cancellation: Cancellation,
    /// The depth of function calls that these nodes are in.
    pub depth: usize,
}

impl StepCx {
    /// Returns an error if the step is cancelled. Kernels that run long call it now and then.
    pub fn check_cancelled(&self) -> Result<()> {
        if !self.cancellation.is_cancelled() {
            return Ok(());
        }
        let reason = self.cancellation.reason();
        let reason = reason.unwrap_or_else(|| status!(Cancelled, "Step {} was cancelled.", self.step_id));
        Err(reason.derived())
    }

    /// The same step as seen by a function called in it: one call deeper.
    pub fn nested(&self) -> Arc<StepCx> {
        Arc::new(StepCx {
            step_id: self.step_id,
            device: self.device.clone(),
            resources: self.resources.clone(),
            step_resources: self.step_resources.clone(),
            rendezvous: self.rendezvous.clone(),
            cancellation: self.cancellation.clone(),
            depth: self.depth + 1,
        })
    }
}

//! What everything that runs in one step shares. Dropping the last reference releases what the step holds.

use crate::cancel::Cancellation;
use crate::device::Device;
use crate::rendezvous::Rendezvous;
use crate::resource::ResourceManager;
use std::sync::Arc;

/// The step that a kernel runs in.
pub struct StepCx {
    /// Identifies the step to every task.
    pub step_id: i64,
    /// The device that runs these nodes.
    pub device: Arc<Device>,
    /// State that outlives the step, as the session sees it.
    pub resources: Arc<ResourceManager>,
    /// State that ends with the step: tensor arrays, stacks.
    pub step_resources: Arc<ResourceManager>,
    /// Where tensors meet that cross devices.
    pub rendezvous: Arc<dyn Rendezvous>,
    /// Ends the step early.
    pub cancellation: Cancellation,
}

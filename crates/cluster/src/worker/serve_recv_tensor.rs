//! Answers `RecvTensor` calls of other tasks: the sending half of a transfer.
//!
//! A request may arrive before its step does, and a tensor before its request; whichever is first waits in the step's
//! rendezvous. The other half, which makes such calls, is in [`super::step_rendezvous`].

use super::steps::{Steps, WorkerStep};
use super::{RESTARTED, Worker};
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::{Result, bail, status};
use std::sync::Arc;
use std::time::Duration;

/// The time that a peer may wait for a tensor of a step that is otherwise unknown here.
const UNKNOWN_STEP_WAIT: Duration = Duration::from_secs(600);

impl Worker {
    /// Waits for a tensor that a node of this task sends. The request may arrive before the step does.
    pub(crate) async fn serve_recv_tensor(&self, step_id: i64, key: &str, request_id: i64) -> Result<Parcel> {
        self.requests.track(request_id, "RecvTensor (GrpcWorker)")?;
        let key = RendezvousKey::parse(key)?;
        self.check_source(&key)?;
        let pending = PendingRecv { steps: &self.steps, step: self.step(step_id) };
        if let Some(parcel) = pending.step.local().try_recv(&key) {
            return parcel;
        }
        let mut receiving = pending.step.local().recv(&key);
        loop {
            match tokio::time::timeout(UNKNOWN_STEP_WAIT, &mut receiving).await {
                Ok(parcel) => return parcel,
                Err(_) if pending.step.has_run() => {}
                Err(_) => bail!(
                    Aborted,
                    "Step {step_id} has not begun here {} s after {key} was requested.",
                    UNKNOWN_STEP_WAIT.as_secs()
                ),
            }
        }
    }

    /// Checks that a tensor comes from a device of this process.
    fn check_source(&self, key: &RendezvousKey) -> Result<()> {
        let local = key.source().find("/device:").map_or(key.source(), |at| &key.source()[at..]);
        let device = self.devices().find(|device| device.name().ends_with(local) && !local.is_empty());
        let Some(device) = device else { bail!(InvalidArgument, "{local} unknown device.") };
        let (expected, found) = (key.source_incarnation(), device.incarnation());
        if expected != found {
            let restarted = status!(
                Aborted,
                "RecvTensor expects a different device incarnation: {expected} vs. {found}. Your worker job \
                 (\"{}\") was probably restarted. Check your worker job for the reason why it was restarted.",
                self.task
            );
            return Err(restarted.with_payload(RESTARTED, []));
        }
        Ok(())
    }
}

/// A `RecvTensor` call in progress. A step that only such calls have touched is forgotten with the last of them.
struct PendingRecv<'a> {
    steps: &'a Steps,
    step: Arc<WorkerStep>,
}

impl Drop for PendingRecv<'_> {
    fn drop(&mut self) {
        if !self.step.has_run() {
            self.steps.forget_if_idle(&self.step);
        }
    }
}

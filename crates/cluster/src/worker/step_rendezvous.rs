//! Sends and receives of the nodes that run on this task in a step: the receiving half of a transfer.
//!
//! A tensor from a task with a direct connection arrives by itself, one from any other task is requested with a
//! `RecvTensor` call. The other half, which answers such calls, is in [`super::serve_recv_tensor`].

use super::sessions::WorkerSession;
use super::since_epoch;
use super::steps::WorkerStep;
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::{BoxFuture, Result, Status, status};
use futures_util::FutureExt;
use std::sync::Arc;

/// The rendezvous of one step for the nodes that run on this task in one session.
pub(crate) struct StepRendezvous {
    step: Arc<WorkerStep>,
    session: Arc<WorkerSession>,
}

impl StepRendezvous {
    /// The rendezvous of `step` for the nodes of `session`, whose peers are asked for the tensors of other tasks.
    pub(super) fn new(step: Arc<WorkerStep>, session: Arc<WorkerSession>) -> StepRendezvous {
        StepRendezvous { step, session }
    }
}

impl Rendezvous for StepRendezvous {
    fn send(&self, key: &RendezvousKey, parcel: Parcel) -> Result<()> {
        match self.step.link(key.target()) {
            Some(link) => link.push(self.step.id(), key, parcel),
            None => self.step.local().send(key, parcel),
        }
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        let source = key.source();
        if self.session.env_on(source).is_some() || self.step.link(source).is_some() {
            return self.step.local().recv(key);
        }
        let Some(peer) = self.session.peers().of_device(source).cloned() else {
            let unknown = status!(InvalidArgument, "the task of {source} is not in the cluster");
            return std::future::ready(Err(unknown)).boxed();
        };
        let (step, key) = (self.step.clone(), key.clone());
        let receiving = async move {
            let requested = step.transfers.are_wanted().then(since_epoch);
            // The peer reports the cause itself, so the failure here is derived.
            let received = peer.recv_tensor(step.id(), &key).await.map_err(Status::derived)?;
            if let Some(requested) = requested {
                let bytes = received.parcel.tensor.byte_size();
                step.transfers.record(step.id(), &key, bytes, (requested, received.sent_micros));
            }
            Ok(received.parcel)
        };
        receiving.boxed()
    }

    fn abort(&self, reason: Status) {
        self.step.abort(reason);
    }
}

//! The steps that touch this worker, by id. A step is first touched by whoever comes first: a request to run a graph in
//! it, a peer that wants a tensor of it, or the master of this task.

use super::WorkerSession;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::{BoxFuture, Result, Status, status};
use ferroflow_runtime::LocalRendezvous;
use futures_util::FutureExt;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

/// A step as this worker sees it.
pub(crate) struct WorkerStep {
    id: i64,
    /// What its nodes here leave for others, and for each other.
    local: LocalRendezvous,
    cancellation: Cancellation,
    /// Whether a graph of this worker runs or ran in it.
    ran: AtomicBool,
}

impl WorkerStep {
    fn new(id: i64) -> WorkerStep {
        WorkerStep {
            id,
            local: LocalRendezvous::default(),
            cancellation: Cancellation::new(),
            ran: AtomicBool::new(false),
        }
    }

    /// Identifies the step to every task.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Ends what runs here in the step.
    pub(crate) fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// What the step's nodes here have sent and wait for.
    pub(crate) fn local(&self) -> &LocalRendezvous {
        &self.local
    }

    /// Where the step's nodes here send and receive in a session, whose peers send what other tasks produce.
    pub(crate) fn rendezvous(self: &Arc<Self>, session: &Arc<WorkerSession>) -> Arc<StepRendezvous> {
        self.ran.store(true, Ordering::Relaxed);
        Arc::new(StepRendezvous { step: self.clone(), session: session.clone() })
    }

    /// Ends the step here: its nodes, and every present and later wait for its tensors. The cause of a failure replaces
    /// its consequences.
    pub(crate) fn abort(&self, reason: Status) {
        self.local.abort(reason.clone());
        self.cancellation.cancel(reason);
    }
}

/// The rendezvous of one step: tensors of this task are kept here, those of other tasks are asked for.
pub(crate) struct StepRendezvous {
    step: Arc<WorkerStep>,
    session: Arc<WorkerSession>,
}

impl Rendezvous for StepRendezvous {
    fn send(&self, key: &RendezvousKey, parcel: Parcel) -> Result<()> {
        self.step.local.send(key, parcel)
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        let source = key.source();
        if source == self.session.env().device.name() {
            return self.step.local.recv(key);
        }
        let Some(peer) = self.session.peers().of_device(source).cloned() else {
            let unknown = status!(InvalidArgument, "the task of {source} is not in the cluster");
            return std::future::ready(Err(unknown)).boxed();
        };
        let (step_id, key) = (self.step.id, key.clone());
        // The peer's own report tells why its part failed; this is a consequence.
        async move { peer.recv_tensor(step_id, &key).await.map_err(Status::derived) }.boxed()
    }

    fn abort(&self, reason: Status) {
        self.step.abort(reason);
    }
}

/// Steps by id.
#[derive(Default)]
pub(super) struct Steps {
    steps: Mutex<HashMap<i64, Arc<WorkerStep>>>,
}

const UNPOISONED: &str = "no panic while steps are locked";

impl Steps {
    /// The step with this id; new if nobody has touched it yet.
    pub(super) fn get(&self, id: i64) -> Arc<WorkerStep> {
        let mut steps = self.steps.lock().expect(UNPOISONED);
        steps.entry(id).or_insert_with(|| Arc::new(WorkerStep::new(id))).clone()
    }

    /// Ends and forgets a step; one that is not known is fine.
    pub(super) fn cleanup(&self, id: i64) {
        let removed = self.steps.lock().expect(UNPOISONED).remove(&id);
        if let Some(step) = removed {
            step.abort(status!(Cancelled, "Step {id} is over.").derived());
        }
    }

    /// Forgets a step that was only asked about, once nobody asks any more.
    pub(super) fn forget_if_idle(&self, step: Arc<WorkerStep>) {
        let mut steps = self.steps.lock().expect(UNPOISONED);
        if let Entry::Occupied(entry) = steps.entry(step.id)
            && Arc::ptr_eq(entry.get(), &step)
            && !step.ran.load(Ordering::Relaxed)
            && step.local.pending() == (0, 0)
        {
            entry.remove();
        }
    }

    /// How many are known.
    pub(super) fn len(&self) -> usize {
        self.steps.lock().expect(UNPOISONED).len()
    }
}

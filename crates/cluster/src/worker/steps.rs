//! The steps that touch this worker, by id. A step is first touched by whoever comes first: a request to run a graph in
//! it, a peer that wants a tensor of it, or the master of this task.

use super::WorkerSession;
use super::run_graph::Ending;
use super::since_epoch;
use super::transfers::Transfers;
use crate::transport::direct::Link;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::{BoxFuture, Code, Result, Status, status};
use ferroflow_runtime::LocalRendezvous;
use futures_util::FutureExt;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// How long a step that failed here is remembered for peers that ask late, should its master never say that it is over.
const REMEMBERED: Duration = Duration::from_secs(600);
/// A look for steps that nobody will end is taken whenever so many new ones have come.
const SWEEP_EVERY: usize = 1024;

/// A step as this worker sees it.
pub(crate) struct WorkerStep {
    id: i64,
    transfers: Arc<Transfers>,
    /// What its nodes here leave for others, and for each other.
    local: LocalRendezvous,
    cancellation: Cancellation,
    /// Whether a graph of this worker runs or ran in it.
    ran: AtomicBool,
    /// Calls under way that run it.
    calls: AtomicUsize,
    /// The session that runs it, unless that is the master of this task.
    session: OnceLock<Weak<WorkerSession>>,
    partial: Mutex<Option<Ending>>,
    /// Tasks with which the step's tensors are exchanged over direct connections.
    links: OnceLock<Vec<(String, Arc<Link>)>>,
    since: Instant,
}

impl WorkerStep {
    fn new(id: i64, transfers: Arc<Transfers>) -> WorkerStep {
        WorkerStep {
            id,
            transfers,
            local: LocalRendezvous::default(),
            cancellation: Cancellation::new(),
            ran: AtomicBool::new(false),
            calls: AtomicUsize::new(0),
            session: OnceLock::new(),
            partial: Mutex::default(),
            links: OnceLock::new(),
            since: Instant::now(),
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
    pub(super) fn local(&self) -> &LocalRendezvous {
        &self.local
    }

    /// Where the step's nodes here send and receive in a session, whose peers send what other tasks produce.
    pub(crate) fn rendezvous(self: &Arc<Self>, session: &Arc<WorkerSession>) -> Arc<StepRendezvous> {
        self.ran.store(true, Ordering::Relaxed);
        Arc::new(StepRendezvous { step: self.clone(), session: session.clone() })
    }

    /// Tensors for these tasks are pushed, and theirs come by themselves. To be said before the step runs here.
    pub(crate) fn connect(&self, links: Vec<(String, Arc<Link>)>) {
        self.links.get_or_init(|| links);
    }

    /// The direct connection to a device's task.
    fn link(&self, device: &str) -> Option<&Arc<Link>> {
        let of = |task: &str| device.strip_prefix(task).is_some_and(|rest| rest.starts_with("/device:"));
        self.links.get()?.iter().find(|(task, _)| of(task)).map(|(_, link)| link)
    }

    /// Whether a graph of this worker runs or ran in the step.
    pub(super) fn has_run(&self) -> bool {
        self.ran.load(Ordering::Relaxed)
    }

    /// Ends the step here: its nodes, and every present and later wait for its tensors. The cause of a failure replaces
    /// its consequences.
    pub(crate) fn abort(&self, reason: Status) {
        // As in stock, a cancellation that reaches others through here is a consequence for them, whoever cancelled.
        let derived = matches!(reason.code(), Code::Cancelled | Code::Aborted);
        self.local.abort(if derived { reason.clone().derived() } else { reason.clone() });
        self.cancellation.cancel(reason);
    }

    /// The step ends with this session at the latest.
    pub(crate) fn belongs_to(&self, session: &Arc<WorkerSession>) {
        self.session.get_or_init(|| Arc::downgrade(session));
    }

    pub(super) fn call_began(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn call_ended(&self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }

    /// The partial run of this step, started if this is its first call.
    pub(super) fn partial_run(&self, start: impl FnOnce() -> Result<Ending>) -> Result<Ending> {
        let mut partial = self.partial.lock().expect(UNPOISONED);
        match &*partial {
            Some(ending) => Ok(ending.clone()),
            None => Ok(partial.insert(start()?).clone()),
        }
    }

    /// Whether nobody will ever end the step.
    fn is_abandoned(&self) -> bool {
        let orphaned = self.session.get().is_some_and(|session| session.strong_count() == 0);
        let failed = || self.since.elapsed() > REMEMBERED && self.local.aborted().is_some();
        self.calls.load(Ordering::Relaxed) == 0 && (orphaned || failed()) && self.local.pending().1 == 0
    }
}

/// The rendezvous of one step: tensors of this task are kept here, those of other tasks are asked for.
pub(crate) struct StepRendezvous {
    step: Arc<WorkerStep>,
    session: Arc<WorkerSession>,
}

impl Rendezvous for StepRendezvous {
    fn send(&self, key: &RendezvousKey, parcel: Parcel) -> Result<()> {
        match self.step.link(key.target()) {
            Some(link) => link.push(self.step.id, key, parcel),
            None => self.step.local.send(key, parcel),
        }
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        let source = key.source();
        if self.session.env_on(source).is_some() || self.step.link(source).is_some() {
            return self.step.local.recv(key);
        }
        let Some(peer) = self.session.peers().of_device(source).cloned() else {
            let unknown = status!(InvalidArgument, "the task of {source} is not in the cluster");
            return std::future::ready(Err(unknown)).boxed();
        };
        let (step, key) = (self.step.clone(), key.clone());
        let receiving = async move {
            let asked = step.transfers.are_wanted().then(since_epoch);
            // The peer's own report tells why its part failed; this is a consequence.
            let received = peer.recv_tensor(step.id, &key).await.map_err(Status::derived)?;
            if let Some(asked) = asked {
                let bytes = received.parcel.tensor.byte_size();
                step.transfers.record(step.id, &key, bytes, (asked, received.sent_micros));
            }
            Ok(received.parcel)
        };
        receiving.boxed()
    }

    fn abort(&self, reason: Status) {
        self.step.abort(reason);
    }
}

/// Steps by id.
pub(super) struct Steps {
    transfers: Arc<Transfers>,
    table: Mutex<Table>,
}

#[derive(Default)]
struct Table {
    steps: HashMap<i64, Arc<WorkerStep>>,
    /// New ones since the last sweep.
    new: usize,
}

const UNPOISONED: &str = "no panic while steps are locked";

impl Steps {
    /// No steps yet; what they receive is noted in `transfers`.
    pub(super) fn new(transfers: Arc<Transfers>) -> Steps {
        Steps { transfers, table: Mutex::default() }
    }

    /// The step with this id; new if nobody has touched it yet.
    pub(super) fn get(&self, id: i64) -> Arc<WorkerStep> {
        let mut table = self.table.lock().expect(UNPOISONED);
        if let Some(step) = table.steps.get(&id) {
            return step.clone();
        }
        let step = Arc::new(WorkerStep::new(id, self.transfers.clone()));
        table.steps.insert(id, step.clone());
        table.new += 1;
        if table.new >= SWEEP_EVERY {
            drop(table);
            self.sweep();
        }
        step
    }

    /// The step with this id if it is known.
    pub(super) fn find(&self, id: i64) -> Option<Arc<WorkerStep>> {
        self.table.lock().expect(UNPOISONED).steps.get(&id).cloned()
    }

    /// Ends and forgets a step; one that is not known is fine.
    pub(super) fn cleanup(&self, id: i64) {
        let removed = self.table.lock().expect(UNPOISONED).steps.remove(&id);
        removed.into_iter().for_each(|step| end(&step));
    }

    /// Forgets a step that was only asked about, once nobody asks any more.
    pub(super) fn forget_if_idle(&self, step: &Arc<WorkerStep>) {
        let mut table = self.table.lock().expect(UNPOISONED);
        if let Entry::Occupied(entry) = table.steps.entry(step.id)
            && Arc::ptr_eq(entry.get(), step)
            && !step.has_run()
            && step.local.pending() == (0, 0)
        {
            entry.remove();
        }
    }

    /// Ends the steps that belong to a session.
    pub(super) fn cleanup_of(&self, session: &Arc<WorkerSession>) {
        let belongs = |step: &WorkerStep| {
            step.session.get().is_some_and(|owner| std::ptr::eq(owner.as_ptr(), Arc::as_ptr(session)))
        };
        let ended: Vec<_> = {
            let mut table = self.table.lock().expect(UNPOISONED);
            table.steps.extract_if(|_, step| belongs(step)).collect()
        };
        ended.iter().for_each(|(_, step)| end(step));
    }

    /// Ends and forgets the steps that nobody will end: their session is gone, or they failed long ago.
    pub(super) fn sweep(&self) {
        let abandoned: Vec<_> = {
            let mut table = self.table.lock().expect(UNPOISONED);
            table.new = 0;
            table.steps.extract_if(|_, step| step.is_abandoned()).collect()
        };
        abandoned.iter().for_each(|(_, step)| end(step));
    }

    /// How many calls are under way that run steps here.
    pub(super) fn calls(&self) -> usize {
        let table = self.table.lock().expect(UNPOISONED);
        table.steps.values().map(|step| step.calls.load(Ordering::Relaxed)).sum()
    }

    /// Tensors that somebody waits for, with their steps.
    pub(super) fn awaited(&self) -> Vec<(i64, RendezvousKey)> {
        let table = self.table.lock().expect(UNPOISONED);
        let keys = |step: &Arc<WorkerStep>| {
            let id = step.id;
            step.local.awaited().into_iter().map(move |key| (id, key))
        };
        table.steps.values().flat_map(keys).collect()
    }

    /// How many are known, and how many parcels and receivers wait in them.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let table = self.table.lock().expect(UNPOISONED);
        let pending = table.steps.values().map(|step| step.local.pending());
        let (parcels, receivers) = pending.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        (table.steps.len(), parcels, receivers)
    }
}

fn end(step: &WorkerStep) {
    step.abort(status!(Aborted, "Cleanup {}", step.id));
    // A partial run that still runs ends with the last reference to it, and it holds the step.
    let partial = step.partial.lock().expect(UNPOISONED).take();
    drop(partial);
}

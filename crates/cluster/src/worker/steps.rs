//! The steps that involve this worker, by id.
//!
//! A step is created by the first of a request to run a graph in it, a peer that wants a tensor of it, and the master
//! of this task.

use super::WorkerSession;
use super::run_graph::PartialRunEnd;
use super::step_rendezvous::StepRendezvous;
use super::transfers::Transfers;
use crate::transport::direct::Link;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::rendezvous::{Rendezvous, RendezvousKey};
use ferroflow_core::{Code, Result, Status, status};
use ferroflow_runtime::LocalRendezvous;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;
use tokio::time::Instant;

/// The time for which a failed step is remembered for peers that ask late, in case its master never ends it.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The number of failed steps that are remembered; of more, the oldest are forgotten. Anybody can send step ids.
pub(super) const MAX_FAILED: usize = 16_384;
/// The number of new steps after which abandoned ones are swept.
pub(super) const SWEEP_EVERY: usize = 1024;

/// A step on this worker.
pub(crate) struct WorkerStep {
    id: i64,
    pub(super) transfers: Arc<Transfers>,
    /// The tensors that its nodes here send to other tasks and to each other.
    local: LocalRendezvous,
    cancellation: Cancellation,
    /// True if a graph of this worker runs or ran in it.
    ran: AtomicBool,
    /// The number of calls in progress that run it.
    calls: AtomicUsize,
    /// The session that runs it, unless that is the master of this task.
    session: OnceLock<Weak<WorkerSession>>,
    partial: Mutex<Option<PartialRunEnd>>,
    /// Tasks that exchange the step's tensors over direct connections.
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

    /// Returns the id that all tasks use for the step.
    pub(crate) fn id(&self) -> i64 {
        self.id
    }

    /// Returns the cancellation of everything that runs here in the step.
    pub(crate) fn cancellation(&self) -> &Cancellation {
        &self.cancellation
    }

    /// Returns the rendezvous of tensors that are sent and received here.
    pub(super) fn local(&self) -> &LocalRendezvous {
        &self.local
    }

    /// Returns the rendezvous for the step's nodes in a session, whose peers provide the tensors of other tasks.
    pub(crate) fn rendezvous(self: &Arc<Self>, session: &Arc<WorkerSession>) -> Arc<StepRendezvous> {
        self.ran.store(true, Ordering::Relaxed);
        Arc::new(StepRendezvous::new(self.clone(), session.clone()))
    }

    /// Sets the tasks to which tensors are pushed and which push theirs. Must be called before the step runs here.
    pub(crate) fn connect(&self, links: Vec<(String, Arc<Link>)>) {
        self.links.get_or_init(|| links);
    }

    /// Returns the direct connection to a device's task.
    pub(super) fn link(&self, device: &str) -> Option<&Arc<Link>> {
        let of = |task: &str| device.strip_prefix(task).is_some_and(|rest| rest.starts_with("/device:"));
        self.links.get()?.iter().find(|(task, _)| of(task)).map(|(_, link)| link)
    }

    /// Returns whether a graph of this worker runs or ran in the step.
    pub(super) fn has_run(&self) -> bool {
        self.ran.load(Ordering::Relaxed)
    }

    /// Ends the step here: its nodes, and all present and future waits for its tensors. The cause of a failure replaces
    /// its consequences.
    pub(crate) fn abort(&self, reason: Status) {
        // As in stock, a cancellation that reaches other tasks this way is derived for them, whatever its origin.
        let derived = matches!(reason.code(), Code::Cancelled | Code::Aborted);
        self.local.abort(if derived { reason.clone().derived() } else { reason.clone() });
        self.cancellation.cancel(reason);
    }

    /// Ties the step to a session: it ends with the session at the latest.
    pub(crate) fn belongs_to(&self, session: &Arc<WorkerSession>) {
        self.session.get_or_init(|| Arc::downgrade(session));
    }

    pub(super) fn call_began(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn call_ended(&self) {
        self.calls.fetch_sub(1, Ordering::Relaxed);
    }

    /// Returns the step's partial run, starting it on the first call.
    pub(super) fn partial_run(&self, start: impl FnOnce() -> Result<PartialRunEnd>) -> Result<PartialRunEnd> {
        let mut partial = self.partial.lock().expect(UNPOISONED);
        match &*partial {
            Some(ending) => Ok(ending.clone()),
            None => Ok(partial.insert(start()?).clone()),
        }
    }

    /// Returns whether no call runs the step and nothing waits for its tensors.
    fn is_idle(&self) -> bool {
        self.calls.load(Ordering::Relaxed) == 0 && self.local.pending().1 == 0
    }

    /// Returns whether nothing will ever end the step.
    fn is_abandoned(&self) -> bool {
        let orphaned = self.session.get().is_some_and(|session| session.strong_count() == 0);
        let failed = || self.since.elapsed() > REMEMBERED && self.local.aborted().is_some();
        self.is_idle() && (orphaned || failed())
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
    /// The number of new steps since the last sweep.
    new: usize,
}

impl Table {
    /// Removes the oldest failed steps if there are more than are remembered.
    fn take_oldest_failed(&mut self) -> Vec<Arc<WorkerStep>> {
        if self.steps.len() <= MAX_FAILED {
            return Vec::new();
        }
        let failed = self.steps.values().filter(|step| step.is_idle() && step.local.aborted().is_some());
        let mut failed: Vec<_> = failed.map(|step| (step.since, step.id)).collect();
        failed.sort_unstable();
        failed.truncate(failed.len().saturating_sub(MAX_FAILED));
        failed.iter().filter_map(|(_, id)| self.steps.remove(id)).collect()
    }
}

const UNPOISONED: &str = "no panic while steps are locked";

impl Steps {
    /// Creates an empty table; received tensors are recorded in `transfers`.
    pub(super) fn new(transfers: Arc<Transfers>) -> Steps {
        Steps { transfers, table: Mutex::default() }
    }

    /// Returns the step with this id, creating it if needed.
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

    /// Returns the step with this id if it is known.
    pub(super) fn find(&self, id: i64) -> Option<Arc<WorkerStep>> {
        self.table.lock().expect(UNPOISONED).steps.get(&id).cloned()
    }

    /// Ends and forgets a step; an unknown id is ignored.
    pub(super) fn cleanup(&self, id: i64) {
        let removed = self.table.lock().expect(UNPOISONED).steps.remove(&id);
        removed.into_iter().for_each(|step| end(&step));
    }

    /// Forgets a step that was only asked about, once no call asks any more.
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

    /// Ends and forgets the steps of a session.
    pub(super) fn cleanup_session(&self, session: &Arc<WorkerSession>) {
        let ended: Vec<_> = {
            let mut table = self.table.lock().expect(UNPOISONED);
            let belongs = |step: &WorkerStep| {
                step.session.get().is_some_and(|of| std::ptr::eq(of.as_ptr(), Arc::as_ptr(session)))
            };
            table.steps.extract_if(|_, step| belongs(step)).collect()
        };
        ended.iter().for_each(|(_, step)| end(step));
    }

    /// Ends and forgets abandoned steps: their session is gone, or they failed long ago.
    pub(super) fn sweep(&self) {
        let abandoned: Vec<_> = {
            let mut table = self.table.lock().expect(UNPOISONED);
            table.new = 0;
            let abandoned = table.steps.extract_if(|_, step| step.is_abandoned());
            let mut abandoned: Vec<_> = abandoned.map(|(_, step)| step).collect();
            abandoned.extend(table.take_oldest_failed());
            abandoned
        };
        abandoned.iter().for_each(|step| end(step));
    }

    /// Returns the number of calls in progress that run steps here.
    pub(super) fn calls(&self) -> usize {
        let table = self.table.lock().expect(UNPOISONED);
        table.steps.values().map(|step| step.calls.load(Ordering::Relaxed)).sum()
    }

    /// Returns the tensors that receivers are waiting for, with their steps.
    pub(super) fn awaited(&self) -> Vec<(i64, RendezvousKey)> {
        let table = self.table.lock().expect(UNPOISONED);
        let keys = |step: &Arc<WorkerStep>| {
            let id = step.id;
            step.local.awaited().into_iter().map(move |key| (id, key))
        };
        table.steps.values().flat_map(keys).collect()
    }

    /// Returns the numbers of steps, and of parcels and receivers that wait in them.
    pub(super) fn count(&self) -> (usize, usize, usize) {
        let table = self.table.lock().expect(UNPOISONED);
        let pending = table.steps.values().map(|step| step.local.pending());
        let (parcels, receivers) = pending.fold((0, 0), |sum, next| (sum.0 + next.0, sum.1 + next.1));
        (table.steps.len(), parcels, receivers)
    }
}

fn end(step: &WorkerStep) {
    step.abort(status!(Aborted, "Cleanup {}", step.id));
    // A partial run that is still running ends with its last reference, and it holds the step.
    let partial = step.partial.lock().expect(UNPOISONED).take();
    drop(partial);
}

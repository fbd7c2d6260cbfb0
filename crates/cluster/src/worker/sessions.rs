//! The sessions that masters have open on a worker.

use super::graphs::Graphs;
use super::rivals::KnownMaster;
use crate::spec::TaskName;
use crate::transport::client::Peers;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::graph::Library;
use ferroflow_core::memory::Charge;
use ferroflow_core::rendezvous::Rendezvous;
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::{Result, ensure};
use ferroflow_runtime::RuntimeEnv;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A master's session on one worker.
pub(crate) struct WorkerSession {
    /// What this task is called in the session.
    own: TaskName,
    /// One for each device of the task.
    envs: Vec<Arc<RuntimeEnv>>,
    isolated: bool,
    peers: Arc<Peers>,
    /// Numbers the edges that the session's graphs have between devices of this task.
    pub(super) next_edge: AtomicU64,
    pub(super) graphs: Graphs,
    /// Held while the functions of a new graph join the session's.
    pub(super) extending_library: Mutex<()>,
}

impl WorkerSession {
    /// A session on devices of which there is at least one; the first takes whatever is not placed explicitly.
    pub(crate) fn new(
        own: TaskName,
        envs: Vec<Arc<RuntimeEnv>>,
        isolated: bool,
        peers: Arc<Peers>,
    ) -> WorkerSession {
        let (graphs, extending_library, next_edge) = (Graphs::default(), Mutex::default(), AtomicU64::new(0));
        WorkerSession { own, envs, isolated, peers, next_edge, graphs, extending_library }
    }

    /// The same session among other peers.
    pub(crate) fn among(&self, peers: Arc<Peers>) -> WorkerSession {
        WorkerSession::new(self.own.clone(), self.envs.clone(), false, peers)
    }

    /// What this task is called in the session.
    pub(crate) fn task(&self) -> &TaskName {
        &self.own
    }

    /// The other tasks, as the session sees them.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// What everything that runs on a device in a step shares.
    pub(crate) fn step_cx(
        env: &RuntimeEnv,
        step_id: i64,
        rendezvous: Arc<dyn Rendezvous>,
        cancellation: Cancellation,
    ) -> Arc<StepCx> {
        Arc::new(StepCx {
            step_id,
            device: env.device.clone(),
            resources: env.resources.clone(),
            step_resources: ResourceManager::new("step"),
            rendezvous,
            cancellation,
            depth: 0,
        })
    }

    /// The surroundings of the session's plans on the first device, which feeds and fetches.
    pub(crate) fn env(&self) -> &Arc<RuntimeEnv> {
        self.envs.first().expect("a session has a device")
    }

    /// The same for every device.
    pub(crate) fn envs(&self) -> &[Arc<RuntimeEnv>] {
        &self.envs
    }

    /// The surroundings of plans on a device, given by its full name, if that is one of this task.
    pub(crate) fn env_on(&self, device: &str) -> Option<&Arc<RuntimeEnv>> {
        self.envs.iter().find(|env| env.device.name() == device)
    }

    /// Makes the functions of a graph that has grown known on every device.
    pub(crate) fn set_library(&self, library: &Arc<Library>) {
        self.envs.iter().for_each(|env| env.set_library(library.clone()));
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        if self.isolated {
            // Whoever still waits in the session's own queues must not keep them alive.
            self.envs.iter().for_each(|env| env.resources.clear_all());
        }
    }
}

struct Entry {
    /// What the session takes, graphs apart.
    _charge: Charge,
    session: Arc<WorkerSession>,
    master_task: String,
    master_incarnation: i64,
    /// Where the master's server is, as it said; empty if it did not.
    master_address: String,
}

/// Sessions by handle.
#[derive(Default)]
pub(super) struct WorkerSessions {
    open: Mutex<HashMap<String, Entry>>,
    /// Masters that have closed one, and when they did so last.
    closed: Mutex<HashMap<String, Instant>>,
    /// Masters that have opened one, ever.
    seen: Mutex<HashSet<String>>,
}

const UNPOISONED: &str = "no panic while sessions are locked";

/// The longest name of a task that is remembered.
pub(super) const MAX_NAME: usize = 256;
/// How many masters are remembered: more than any cluster has tasks.
const MAX_SEEN: usize = 16_384;

impl WorkerSessions {
    /// The session with this handle, made if it is new. A master that comes back under another incarnation has
    /// restarted, so its older sessions go.
    pub(super) fn create(
        &self,
        handle: &str,
        master_task: &str,
        master_incarnation: i64,
        charge: Charge,
        make: impl FnOnce() -> WorkerSession,
    ) -> Result<Arc<WorkerSession>> {
        ensure!(!handle.is_empty(), InvalidArgument, "Session must be non-empty.");
        self.see(master_task);
        let mut sessions = self.open.lock().expect(UNPOISONED);
        let outdated: Vec<Entry> = sessions
            .extract_if(|_, entry| {
                !master_task.is_empty()
                    && entry.master_task == master_task
                    && entry.master_incarnation != master_incarnation
            })
            .map(|(_, entry)| entry)
            .collect();
        let entry = sessions.entry(handle.to_owned()).or_insert_with(|| Entry {
            _charge: charge,
            session: Arc::new(make()),
            master_task: master_task.to_owned(),
            master_incarnation,
            master_address: String::new(),
        });
        let session = entry.session.clone();
        drop(sessions);
        if !outdated.is_empty() {
            tracing::info!(master_task, sessions = outdated.len(), "A master restarted; its sessions end.");
        }
        Ok(session)
    }

    /// Remembers a master. Names come from outside, so that only so many of them are.
    fn see(&self, master_task: &str) {
        let mut seen = self.seen.lock().expect(UNPOISONED);
        if master_task.len() <= MAX_NAME && seen.len() < MAX_SEEN && !seen.contains(master_task) {
            seen.insert(master_task.to_owned());
        }
    }

    /// Notes where the server of a session's master is.
    pub(super) fn set_address(&self, handle: &str, address: &str) {
        if let Some(entry) = self.open.lock().expect(UNPOISONED).get_mut(handle) {
            entry.master_address = address.to_owned();
        }
    }

    /// A master of this name with sessions here that has another incarnation.
    pub(super) fn other_incarnation(&self, master_task: &str, incarnation: i64) -> Option<KnownMaster> {
        let sessions = self.open.lock().expect(UNPOISONED);
        let other = |entry: &&Entry| {
            !master_task.is_empty()
                && entry.master_task == master_task
                && entry.master_incarnation != incarnation
        };
        let entry = sessions.values().find(other)?;
        Some(KnownMaster { incarnation: entry.master_incarnation, address: entry.master_address.clone() })
    }

    /// The session with this handle.
    pub(super) fn get(&self, handle: &str) -> Option<Arc<WorkerSession>> {
        self.open.lock().expect(UNPOISONED).get(handle).map(|entry| entry.session.clone())
    }

    /// How many are open, and how many graphs they have.
    pub(super) fn count(&self) -> (usize, usize) {
        let sessions = self.open.lock().expect(UNPOISONED);
        (sessions.len(), sessions.values().map(|entry| entry.session.graphs.len()).sum())
    }

    /// The tasks whose masters have sessions open here.
    pub(super) fn masters(&self) -> BTreeSet<String> {
        let sessions = self.open.lock().expect(UNPOISONED);
        sessions.values().map(|entry| entry.master_task.clone()).collect()
    }

    /// The tasks whose masters have closed what they opened here.
    pub(super) fn done_with(&self) -> Vec<String> {
        let open = self.masters();
        let seen = self.seen.lock().expect(UNPOISONED);
        seen.iter().filter(|master| !master.is_empty() && !open.contains(*master)).cloned().collect()
    }

    /// Whether the master of this task has ever opened a session here.
    pub(super) fn has_seen(&self, master_task: &str) -> bool {
        self.seen.lock().expect(UNPOISONED).contains(master_task)
    }

    /// How long ago a master closed the last session that it had here; `None` if it never had one or has one open.
    pub(super) fn closed_for(&self, master_task: &str) -> Option<Duration> {
        let open = self.masters().contains(master_task);
        let closed = self.closed.lock().expect(UNPOISONED);
        closed.get(master_task).filter(|_| !open).map(Instant::elapsed)
    }

    /// Forgets a session; one that is not known is fine.
    pub(super) fn delete(&self, handle: &str) {
        let removed = self.open.lock().expect(UNPOISONED).remove(handle);
        if let Some(entry) = &removed {
            let mut closed = self.closed.lock().expect(UNPOISONED);
            if entry.master_task.len() <= MAX_NAME
                && (closed.len() < MAX_SEEN || closed.contains_key(&entry.master_task))
            {
                closed.insert(entry.master_task.clone(), Instant::now());
            }
        }
        drop(removed);
    }
}

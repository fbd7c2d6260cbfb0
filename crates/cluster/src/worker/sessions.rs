//! The sessions that masters have opened on a worker.

use super::graphs::Graphs;
use super::rivals::KnownMaster;
use crate::presence::{Presence, Users};
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
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// A master's session on one worker.
pub(crate) struct WorkerSession {
    /// The name of this task in the session.
    own: TaskName,
    /// The runtime environment of each device of the task.
    envs: Vec<Arc<RuntimeEnv>>,
    isolated: bool,
    peers: Arc<Peers>,
    /// Numbers the edges between devices of this task in the session's graphs.
    pub(super) next_edge: AtomicU64,
    pub(super) graphs: Graphs,
    /// Held while the functions of a new graph are added to the session's.
    pub(super) extending_library: Mutex<()>,
}

impl WorkerSession {
    /// Creates a session on at least one device; the first takes nodes without an explicit device.
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

    /// Returns the name of this task in the session.
    pub(crate) fn task(&self) -> &TaskName {
        &self.own
    }

    /// Returns the other tasks, as the session sees them.
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// Creates the context that everything running on a device in a step shares.
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

    /// Returns the runtime environment of the first device, which feeds and fetches.
    pub(crate) fn env(&self) -> &Arc<RuntimeEnv> {
        self.envs.first().expect("a session has a device")
    }

    /// Returns the runtime environments of all devices.
    pub(crate) fn envs(&self) -> &[Arc<RuntimeEnv>] {
        &self.envs
    }

    /// Returns the runtime environment of a device, given by its full name, if it belongs to this task.
    pub(crate) fn env_on(&self, device: &str) -> Option<&Arc<RuntimeEnv>> {
        self.envs.iter().find(|env| env.device.name() == device)
    }

    /// Sets the function library on every device.
    pub(crate) fn set_library(&self, library: &Arc<Library>) {
        self.envs.iter().for_each(|env| env.set_library(library.clone()));
    }
}

impl Drop for WorkerSession {
    fn drop(&mut self) {
        if self.isolated {
            // Waiters in the session's own queues must not keep them alive.
            self.envs.iter().for_each(|env| env.resources.clear_all());
        }
    }
}

struct Entry {
    /// The memory charged for the session, not counting graphs.
    _charge: Charge,
    session: Arc<WorkerSession>,
    master_task: String,
    master_incarnation: i64,
    /// The address of the master's server, as the master reported it; empty if it did not.
    master_address: String,
    /// Connections on which the session was used, if sessions are reclaimed.
    users: Users,
}

/// A session that no open connection uses.
pub(super) struct UnusedSession {
    pub(super) handle: String,
    /// The task of the master that opened it; empty if the master did not say.
    pub(super) master_task: String,
    pub(super) master: KnownMaster,
}

/// Sessions by handle.
#[derive(Default)]
pub(super) struct WorkerSessions {
    open: Mutex<HashMap<String, Entry>>,
    /// Masters that have closed a session, and when they last did.
    closed: Mutex<HashMap<String, Instant>>,
    /// Masters that have ever opened a session.
    seen: Mutex<HashSet<String>>,
    /// Masters whose sessions were reclaimed, and that have opened none since.
    lost: Mutex<HashSet<String>>,
    /// True if the connections on which sessions are used are recorded.
    tracks_users: AtomicBool,
}

const UNPOISONED: &str = "no panic while sessions are locked";

/// The longest task name that is remembered.
pub(super) const MAX_NAME: usize = 256;
/// The number of remembered masters: more than any cluster has tasks.
const MAX_SEEN: usize = 16_384;

impl WorkerSessions {
    /// Returns the session with this handle, creating it if it is new. A master that comes back with another
    /// incarnation has restarted, so its older sessions end.
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
        self.lost.lock().expect(UNPOISONED).remove(master_task);
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
            users: Users::default(),
        });
        let session = entry.session.clone();
        drop(sessions);
        if !outdated.is_empty() {
            tracing::info!(
                master_task,
                sessions = outdated.len(),
                "A master has restarted; its old sessions end."
            );
        }
        Ok(session)
    }

    /// Remembers a master. Names come from outside, so their number is limited.
    fn see(&self, master_task: &str) {
        let mut seen = self.seen.lock().expect(UNPOISONED);
        if master_task.len() <= MAX_NAME && seen.len() < MAX_SEEN && !seen.contains(master_task) {
            seen.insert(master_task.to_owned());
        }
    }

    /// Records the address of the server of a session's master.
    pub(super) fn set_address(&self, handle: &str, address: &str) {
        if let Some(entry) = self.open.lock().expect(UNPOISONED).get_mut(handle) {
            entry.master_address = address.to_owned();
        }
    }

    /// Returns a master of this name with sessions here and another incarnation.
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

    /// Starts recording who uses sessions.
    pub(super) fn track_users(&self) {
        self.tracks_users.store(true, Ordering::Relaxed);
    }

    /// Records that a session is used on a connection, if that is tracked.
    #[inline]
    pub(super) fn used_by(&self, handle: &str, presence: &Presence) {
        if self.tracks_users.load(Ordering::Relaxed)
            && let Some(entry) = self.open.lock().expect(UNPOISONED).get(handle)
        {
            entry.users.add(presence);
        }
    }

    /// The sessions whose connections are all closed, and with them every call that ran something in the session.
    pub(super) fn unused(&self) -> Vec<UnusedSession> {
        let sessions = self.open.lock().expect(UNPOISONED);
        let unused = sessions.iter().filter(|(_, entry)| entry.users.are_gone());
        let unused = unused.map(|(handle, entry)| UnusedSession {
            handle: handle.clone(),
            master_task: entry.master_task.clone(),
            master: KnownMaster {
                incarnation: entry.master_incarnation,
                address: entry.master_address.clone(),
            },
        });
        unused.collect()
    }

    /// Removes a session whose connections are all closed. Its master has not closed it, which is remembered.
    pub(super) fn take_unused(&self, handle: &str) -> Option<Arc<WorkerSession>> {
        let mut sessions = self.open.lock().expect(UNPOISONED);
        if !sessions.get(handle)?.users.are_gone() {
            return None;
        }
        let entry = sessions.remove(handle)?;
        drop(sessions);
        let mut lost = self.lost.lock().expect(UNPOISONED);
        if entry.master_task.len() <= MAX_NAME && lost.len() < MAX_SEEN {
            lost.insert(entry.master_task);
        }
        Some(entry.session)
    }

    /// Returns the session with this handle.
    pub(super) fn get(&self, handle: &str) -> Option<Arc<WorkerSession>> {
        self.open.lock().expect(UNPOISONED).get(handle).map(|entry| entry.session.clone())
    }

    /// Returns the number of open sessions and of their graphs.
    pub(super) fn count(&self) -> (usize, usize) {
        let sessions = self.open.lock().expect(UNPOISONED);
        (sessions.len(), sessions.values().map(|entry| entry.session.graphs.len()).sum())
    }

    /// Returns the tasks whose masters have sessions open here.
    pub(super) fn masters(&self) -> BTreeSet<String> {
        let sessions = self.open.lock().expect(UNPOISONED);
        sessions.values().map(|entry| entry.master_task.clone()).collect()
    }

    /// Returns the tasks whose masters have closed all sessions that they opened here.
    pub(super) fn done_with(&self) -> Vec<String> {
        let open = self.masters();
        let lost = self.lost.lock().expect(UNPOISONED).clone();
        let seen = self.seen.lock().expect(UNPOISONED);
        let done =
            |master: &&String| !master.is_empty() && !open.contains(*master) && !lost.contains(*master);
        seen.iter().filter(done).cloned().collect()
    }

    /// Returns whether the master of this task has ever opened a session here.
    pub(super) fn has_seen(&self, master_task: &str) -> bool {
        self.seen.lock().expect(UNPOISONED).contains(master_task)
    }

    /// Returns the time since a master closed its last session here; `None` if it has one open or never had one.
    pub(super) fn closed_for(&self, master_task: &str) -> Option<Duration> {
        let open =
            self.masters().contains(master_task) || self.lost.lock().expect(UNPOISONED).contains(master_task);
        let closed = self.closed.lock().expect(UNPOISONED);
        closed.get(master_task).filter(|_| !open).map(Instant::elapsed)
    }

    /// Deletes a session; an unknown handle is ignored.
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

//! Detection of stock's masters that wait for missing tasks.
//!
//! Such a master asks every task for its devices once and opens its session when the last one has answered; meanwhile
//! it tells its program nothing. A task that has answered and then hears nothing more can log the reason.

use super::Worker;
use crate::spec::{ClusterSpec, TaskName};
use futures_util::future::join_all;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::Instant;

/// The time that a master may take between asking for devices and opening a session before it counts as stalled.
const STALLED_AFTER: Duration = Duration::from_secs(10);
/// The interval between checks for stalled masters.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// The time for which a master that never opens a session is remembered.
const REMEMBERED: Duration = Duration::from_secs(600);
/// The largest number of remembered masters. Anybody can ask.
const MAX_PENDING: usize = 256;

/// Masters that have asked for devices and have not opened a session yet, by the address they called from.
#[derive(Default)]
pub(super) struct PendingMasters(Mutex<HashMap<SocketAddr, PendingMaster>>);

struct PendingMaster {
    since: Instant,
    /// The last message about it.
    last_message: Option<String>,
}

const UNPOISONED: &str = "no panic while pending masters are locked";

impl PendingMasters {
    /// Records a request for devices.
    pub(super) fn add(&self, peer: SocketAddr) {
        let mut pending = self.0.lock().expect(UNPOISONED);
        pending.retain(|_, master| master.since.elapsed() < REMEMBERED);
        if pending.len() < MAX_PENDING {
            pending
                .entry(peer)
                .or_insert_with(|| PendingMaster { since: Instant::now(), last_message: None });
        }
    }

    /// Records that a master has opened a session.
    pub(super) fn remove(&self, peer: SocketAddr) {
        self.0.lock().expect(UNPOISONED).remove(&peer);
    }

    /// Returns the masters that have waited for at least `after`, with their waits.
    fn stalled(&self, after: Duration) -> Vec<(SocketAddr, Duration)> {
        let pending = self.0.lock().expect(UNPOISONED);
        let waits = pending.iter().map(|(peer, master)| (*peer, master.since.elapsed()));
        waits.filter(|(_, since)| *since >= after).collect()
    }

    fn is_new(&self, peer: SocketAddr, message: &str) -> bool {
        let mut pending = self.0.lock().expect(UNPOISONED);
        let Some(master) = pending.get_mut(&peer) else { return false };
        master.last_message.replace(message.to_owned()).as_deref() != Some(message)
    }
}

impl Worker {
    /// Checks for stalled masters periodically and logs what they wait for; never returns.
    pub(crate) async fn watch_for_stalled_masters(&self) {
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            for message in self.stalled_masters(STALLED_AFTER).await {
                tracing::info!("{message}");
            }
        }
    }

    /// Returns the messages about masters that have waited for at least `after` and were not reported yet.
    pub(super) async fn stalled_masters(&self, after: Duration) -> Vec<String> {
        let stalled = self.pending_masters.stalled(after);
        let cluster = self.known.borrow().cluster.clone();
        if stalled.is_empty() || cluster.is_empty() {
            return Vec::new();
        }
        let (reachable, missing) = self.reachable_tasks(&cluster).await;
        if missing.is_empty() {
            return Vec::new();
        }
        let messages = stalled.into_iter().filter_map(|(peer, since)| {
            let who = self.name_caller(&reachable, peer);
            let message = explain(&who, &missing);
            let seconds = since.as_secs();
            self.pending_masters.is_new(peer, &message).then(|| format!("For {seconds} s, {message}"))
        });
        messages.collect()
    }

    /// Returns the other tasks that accept connections, and those that do not.
    async fn reachable_tasks(
        &self,
        cluster: &ClusterSpec,
    ) -> (Vec<(TaskName, String)>, Vec<(TaskName, String)>) {
        let others = cluster.tasks().filter(|(task, _)| *task != self.task);
        let tried = others.map(|(task, address)| async move {
            let connected = tokio::time::timeout(Duration::from_secs(2), TcpStream::connect(address)).await;
            (matches!(connected, Ok(Ok(_))), (task, address.to_owned()))
        });
        let (reachable, missing): (Vec<_>, Vec<_>) =
            join_all(tried).await.into_iter().partition(|(connected, _)| *connected);
        let tasks =
            |tried: Vec<(bool, (TaskName, String))>| tried.into_iter().map(|(_, task)| task).collect();
        (tasks(reachable), tasks(missing))
    }

    /// Names the caller for a person: the task on that machine without a session here, if there is exactly one.
    fn name_caller(&self, reachable: &[(TaskName, String)], peer: SocketAddr) -> String {
        let masters = self.masters();
        let mut idle = reachable.iter().filter(|(task, address)| {
            let host = address.rsplit_once(':').map_or(address.as_str(), |(host, _)| host);
            let host = host.trim_matches(['[', ']']);
            let same = host
                .parse()
                .map_or(peer.ip().is_loopback() && host == "localhost", |ip: std::net::IpAddr| {
                    ip == peer.ip()
                });
            same && task.job != "ps" && !masters.contains(&task.to_string())
        });
        match (idle.next(), idle.next()) {
            (Some((task, address)), None) => format!("{task} at {address}"),
            _ => format!("a process that calls from {peer}"),
        }
    }
}

fn explain(who: &str, missing: &[(TaskName, String)]) -> String {
    let missing: Vec<String> = missing.iter().map(|(task, address)| format!("{task} at {address}")).collect();
    let verb = if missing.len() == 1 { "does" } else { "do" };
    format!(
        "{who} has wanted to open a session, but {} {verb} not answer. A session of stock TensorFlow waits for every task of \
         the cluster, and logs nothing meanwhile. Start what is missing, or give the session device filters that leave it out, such as \
         tf.compat.v1.ConfigProto(device_filters=[\"/job:ps\", \"/job:worker/task:0\"]) in worker 0.",
        missing.join(" and ")
    )
}

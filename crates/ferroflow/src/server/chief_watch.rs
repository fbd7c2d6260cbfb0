//! The end of training, as a task sees it that nobody tells.
//!
//! Chiefs of stock know nothing of an end that others could follow. But their masters open a session on the tasks that
//! they use and delete it when the program closes its own, and then their process ends, so that nobody listens at their
//! address any more. A chief that goes without deleting its sessions has crashed and is waited for; a task that it never
//! used cannot tell the two, and need not.

use ferroflow_cluster::server::Server as Task;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, status};
use ferroflow_discovery::is_chief;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How often a task looks at the chief.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long the chief may take to accept a connection.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);
/// A wait is told after the first of these, and again whenever the second has passed.
const FIRST_WORD: Duration = Duration::from_secs(5);
const NEXT_WORD: Duration = Duration::from_secs(60);

/// Ends when training is over.
pub(super) async fn until_done(task: &Task, cluster: &ClusterSpec, grace: Duration) -> Result<()> {
    let chief = cluster.tasks().map(|(task, _)| task).find(|task| is_chief(task, cluster));
    let chief = chief.ok_or_else(|| {
        status!(InvalidArgument, "no task ends the training: the cluster has neither a chief nor a worker 0")
    })?;
    let (mut state, began) = (Watch::default(), Instant::now());
    loop {
        let masters = task.masters();
        let here = is_there(task, cluster, &chief).await;
        state.seen |= task.has_seen(&chief) || (here && chief != *task.task());
        if !state.seen && began.elapsed() >= FIRST_WORD && state.is_time() {
            let seconds = began.elapsed().as_secs();
            tracing::info!(%chief, "The chief has not come in {seconds} s; waiting for its end.");
        }
        let closed = !masters.contains(&chief.to_string());
        // The own task is there until it ends here, so that only its sessions can tell.
        let gone = state.seen && closed && (!here || chief == *task.task());
        if !gone {
            state.gone = None;
            if state.seen {
                state.crashed(!closed && !here, &chief);
            }
        } else if state.gone.get_or_insert_with(Instant::now).elapsed() >= grace {
            let busy = still_there(task, cluster, &masters).await;
            if busy.is_empty() {
                tracing::info!(%chief, "The chief is done; ending.");
                return Ok(());
            }
            state.wait_for(&chief, &busy);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What has been seen so far.
#[derive(Default)]
struct Watch {
    /// The chief was there.
    seen: bool,
    /// Since when it is done.
    gone: Option<Instant>,
    /// Since when it is waited for after a crash.
    lost: Option<Instant>,
    told: Option<Instant>,
}

impl Watch {
    fn crashed(&mut self, crashed: bool, chief: &TaskName) {
        if !crashed {
            (self.lost, self.told) = (None, None);
            return;
        }
        let since = self.lost.get_or_insert_with(Instant::now).elapsed();
        if since >= FIRST_WORD && self.is_time() {
            let seconds = since.as_secs();
            tracing::warn!(%chief, "The chief went {seconds} s ago without closing its session; waiting for it.");
        }
    }

    fn wait_for(&mut self, chief: &TaskName, busy: &[&String]) {
        let since = self.gone.map_or(Duration::ZERO, |gone| gone.elapsed());
        if since >= FIRST_WORD && self.is_time() {
            let seconds = since.as_secs();
            tracing::info!(%chief, ?busy, "The chief is done since {seconds} s; others still have sessions open here.");
        }
    }

    fn is_time(&mut self) -> bool {
        let due = self.told.is_none_or(|told| told.elapsed() >= NEXT_WORD);
        if due {
            self.told = Some(Instant::now());
        }
        due
    }
}

/// Masters with sessions here whose processes are there. Sessions of dead ones stay open, but nobody will use them.
async fn still_there<'a>(
    task: &Task,
    cluster: &ClusterSpec,
    masters: &'a BTreeSet<String>,
) -> Vec<&'a String> {
    let mut there = Vec::new();
    for master in masters {
        let known = cluster.tasks().map(|(name, _)| name).find(|name| name.to_string() == *master);
        match known {
            Some(name) if !is_there(task, cluster, &name).await => {}
            // One that the cluster does not name cannot be asked.
            _ => there.push(master),
        }
    }
    there
}

/// Whether somebody listens at a task's address.
async fn is_there(task: &Task, cluster: &ClusterSpec, name: &TaskName) -> bool {
    if name == task.task() {
        return true;
    }
    let Some(address) = cluster.address(name) else { return false };
    let connected = tokio::time::timeout(ANSWER_WITHIN, TcpStream::connect(address)).await;
    matches!(connected, Ok(Ok(_)))
}

//! The worker's side of `GetStatus`: tasks describe themselves and compare the clusters that they were started with.

use super::sessions::MAX_NAME;
use super::{Worker, since_epoch};
use crate::spec::{ClusterSpec, Difference};
use crate::transport::caller;
use crate::transport::task_status::{Reachability, TaskStatusRequest, TaskStatusResponse, is_settling};
use ferroflow_core::{Result, bail, ensure};
use futures_util::future::join_all;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Mutex;
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::net::TcpStream;

/// The time limit for connecting to another task.
const CONNECT_WAIT: Duration = Duration::from_secs(2);

/// The number of tasks outside the cluster whose differences are logged. Anybody can send names, in any number.
const MAX_STRANGERS: usize = 64;

/// The number of differences between two clusters that are logged.
const MAX_LOGGED: usize = 8;

/// The differences that were logged, as a hash per task, so that each is logged once.
#[derive(Default)]
pub(super) struct LoggedDifferences(Mutex<HashMap<String, u64>>);

impl LoggedDifferences {
    /// Records the differences of a task; returns whether they are new. `known` tells whether the task is in this
    /// task's cluster; only a few others are remembered, and the rest are never new.
    fn is_new(&self, task: &str, known: bool, differences: &[Difference]) -> bool {
        if task.len() > MAX_NAME {
            return false;
        }
        let digest = match differences {
            [] => 0,
            some => {
                let mut hasher = DefaultHasher::new();
                some.iter().for_each(|difference| difference.to_string().hash(&mut hasher));
                hasher.finish().max(1)
            }
        };
        let mut logged = self.0.lock().expect("no panic while differences are noted");
        if !known && logged.len() >= MAX_STRANGERS && !logged.contains_key(task) {
            return false;
        }
        logged.insert(task.to_owned(), digest).unwrap_or_default() != digest
    }
}

impl Worker {
    /// Builds the request by which this task asks others for their status.
    pub(crate) fn status_request(&self) -> TaskStatusRequest {
        let known = self.known.borrow();
        let cluster = (!known.cluster.is_empty()).then(|| known.cluster.to_def());
        TaskStatusRequest { task: self.task.to_string(), cluster, try_others: false, epoch: known.epoch }
    }

    /// Answers a `GetStatus` call. Stock's tasks get stock's response.
    pub(crate) async fn task_status(&self, request: &TaskStatusRequest) -> TaskStatusResponse {
        let device_attributes = self.device_attributes();
        if request.task.is_empty() {
            if let Some(peer) = caller::peer() {
                self.pending_masters.add(peer);
            }
            return TaskStatusResponse { device_attributes, ..TaskStatusResponse::default() };
        }
        if let Some(theirs) = request.cluster.as_ref().and_then(|def| ClusterSpec::from_def(def).ok()) {
            self.compare(&request.task, &theirs, request.epoch);
        }
        let reached = if request.try_others { self.try_others().await } else { Vec::new() };
        let known = self.known.borrow();
        TaskStatusResponse {
            device_attributes,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            cluster: (!known.cluster.is_empty()).then(|| known.cluster.to_def()),
            clock: since_epoch(),
            reached,
            epoch: known.epoch,
            done_with: self.sessions.done_with(),
            serves_only: self.serves_only.load(Ordering::Relaxed),
        }
    }

    /// Compares another task's cluster with this one's and logs new differences.
    fn compare(&self, task: &str, theirs: &ClusterSpec, epoch: u64) -> Vec<Difference> {
        let known = self.known.borrow();
        let differences = known.cluster.differences(theirs);
        // Tasks that meet at a rendezvous learn of changes at different times.
        let is_known = known.cluster.tasks().any(|(name, _)| name.to_string() == task);
        if !is_settling(known.epoch, epoch) && self.logged_differences.is_new(task, is_known, &differences) {
            for difference in differences.iter().take(MAX_LOGGED) {
                tracing::warn!(
                    task,
                    "Another task was started with another cluster: {difference}. Start all tasks with the same one."
                );
            }
        }
        differences
    }

    /// Fails if a member of a session has another address for a third member than this task has. How the two address
    /// each other does not matter, because they have already met.
    pub(crate) async fn check_agreement(
        &self,
        with: &str,
        response: &TaskStatusResponse,
        is_member: impl Fn(&str) -> bool,
    ) -> Result<()> {
        let Some(theirs) = response.cluster.as_ref().and_then(|def| ClusterSpec::from_def(def).ok()) else {
            return Ok(());
        };
        let mut disputed = self.compare(with, &theirs, response.epoch);
        disputed.retain(|difference| {
            let name = difference.task.to_string();
            name != with && difference.task != self.task && is_member(&name)
        });
        if disputed.is_empty() {
            return Ok(());
        }
        // Resolving names may take a while, so it must not happen on an I/O thread.
        let real =
            self.pool.complete(async move { Ok(disputed.into_iter().find(Difference::matters)) }).await?;
        let epoch = self.known.borrow().epoch;
        if let Some(difference) = real {
            ensure!(
                !is_settling(epoch, response.epoch),
                Unavailable,
                "{difference}; {with} is at epoch {} of the cluster, {} at {epoch}",
                response.epoch,
                self.task
            );
            bail!(
                InvalidArgument,
                "{} and {with} were started with different clusters: {difference}. Start all tasks with the same one",
                self.task
            );
        }
        Ok(())
    }

    async fn try_others(&self) -> Vec<Reachability> {
        let cluster = self.known.borrow().cluster.clone();
        let others = cluster.tasks().filter(|(task, _)| *task != self.task);
        let tried = others.map(|(task, address)| async move {
            let failure = match tokio::time::timeout(CONNECT_WAIT, TcpStream::connect(address)).await {
                Ok(Ok(_)) => String::new(),
                Ok(Err(error)) => error.to_string(),
                Err(_) => format!("no answer within {} s", CONNECT_WAIT.as_secs()),
            };
            Reachability { task: task.to_string(), address: address.to_owned(), failure }
        });
        join_all(tried).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_from_outside_are_not_collected() {
        let cluster = |address: &str| {
            let mut cluster = ClusterSpec::new();
            cluster.add_hosts("ps", address).unwrap();
            cluster
        };
        let differences = cluster("a:1").differences(&cluster("b:1"));
        assert!(!differences.is_empty());
        let logged = LoggedDifferences::default();
        assert!(!logged.is_new(&"x".repeat(1 << 20), false, &differences), "a long name is not remembered");
        for stranger in 0..10_000 {
            logged.is_new(&format!("/job:stranger/replica:0/task:{stranger}"), false, &differences);
        }
        assert_eq!(logged.0.lock().unwrap().len(), MAX_STRANGERS);
        let ps = "/job:ps/replica:0/task:0";
        assert!(logged.is_new(ps, true, &differences), "tasks of the cluster are always heard");
        assert!(!logged.is_new(ps, true, &differences), "and answered once");
        assert!(logged.is_new(ps, true, &[]) && !logged.is_new(ps, true, &[]));
    }
}

//! The coordination service, which a client turns on with its contexts: one task of the cluster, the *leader*, knows which
//! others live and keeps values for all.
//!
//! The others register with the leader when they open the client's context, and tell it that they live until the context
//! ends. The leader forgets everything with its last context that has the service.

use super::account::{Account, Share};
use super::api::ClientCluster;
use super::barriers::{Barrier, LOOK, RollCall};
use super::context::Context;
use crate::random;
use crate::spec::TaskName;
use crate::transport::client::RemoteWorker;
use bytes::Bytes;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::memory::MemoryBudget;
use ferroflow_core::{Code, Result, Status, ensure, status};
use ferroflow_proto::tensorflow::{
    CoordinatedTask, CoordinatedTaskState, CoordinatedTaskStateInfo, CoordinationServiceConfig,
    CoordinationServiceError, DeviceInfo, KeyValueEntry,
};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

/// Time without a heartbeat after which a task is taken for lost, unless the client says otherwise.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);

/// Time that tasks try to reach their leader, unless the client says otherwise.
const DEFAULT_REGISTRATION: Duration = Duration::from_secs(3600);

/// Time between tries to reach the leader.
const RETRY: Duration = Duration::from_millis(100);

/// Growth of the version of the tasks' states when a task registers, as in stock.
const REGISTRATION: i64 = 2;

/// Memory charged for a value beside its bytes.
pub(super) const VALUE_BYTES: usize = 256;

/// Marks a status of the service.
const PAYLOAD: &str = "type.googleapis.com/tensorflow.CoordinationServiceError";

const UNPOISONED: &str = "no panic while the coordination service is locked";

/// The coordination service of a task, which answers if the task is a leader.
pub(crate) struct Coordination {
    pub(super) incarnation: u64,
    pub(super) account: Arc<Account>,
    state: Mutex<State>,
    /// Told whenever a value is kept or a task comes to a barrier or goes, and when the service ends.
    pub(super) changed: Notify,
}

#[derive(Default)]
pub(super) struct State {
    /// Contexts that have the service.
    contexts: usize,
    /// Grows with every context that turns the service on.
    generation: u64,
    timeout: Duration,
    allows_restarts: bool,
    /// Grows with every change of a task's state, by as much as in stock.
    version: i64,
    pub(super) tasks: BTreeMap<TaskName, Member>,
    values: BTreeMap<String, (Bytes, Share)>,
    pub(super) barriers: BTreeMap<String, Barrier>,
    pub(super) roll_calls: Vec<RollCall>,
}

/// A task as its leader knows it.
#[derive(Default)]
pub(super) struct Member {
    pub(super) state: CoordinatedTaskState,
    pub(super) incarnation: u64,
    /// The generation in which it registered.
    generation: u64,
    /// Of the last sign of life; none for the leader itself.
    heard: Option<Instant>,
    error: Option<Status>,
    /// Its devices, as far as it has told of them.
    pub(super) devices: Option<(DeviceInfo, Share)>,
}

impl Coordination {
    /// A service that no client has turned on.
    pub(super) fn new(budget: MemoryBudget) -> Result<Arc<Coordination>> {
        Ok(Arc::new(Coordination {
            incarnation: random()?.max(1),
            account: Account::new(budget),
            state: Mutex::default(),
            changed: Notify::new(),
        }))
    }

    /// Runs `action` if a client has turned the service on.
    pub(super) fn with<T>(&self, action: impl FnOnce(&mut State) -> Result<T>) -> Result<T> {
        let mut state = self.state.lock().expect(UNPOISONED);
        let done = if state.contexts == 0 {
            Err(status!(Internal, "Coordination service is not enabled."))
        } else {
            action(&mut state)
        };
        done.map_err(|error| error.with_payload(PAYLOAD, Vec::new()))
    }

    /// Turns the service on for the tasks of a cluster.
    fn lead(self: &Arc<Self>, own: &TaskName, cluster: &ClientCluster, config: &CoordinationServiceConfig) {
        let mut state = self.state.lock().expect(UNPOISONED);
        state.contexts += 1;
        state.generation += 1;
        // Another client begins anew, and its cluster may have other processes.
        state.values.clear();
        state.barriers.clear();
        state.roll_calls.clear();
        state.timeout = millis(config.heartbeat_timeout_in_ms).unwrap_or(DEFAULT_TIMEOUT);
        state.allows_restarts = config.allow_new_incarnation_to_reconnect;
        for (task, _) in cluster.cluster.tasks() {
            state.tasks.entry(task.clone()).or_insert_with(|| Member {
                state: CoordinatedTaskState::TaskstateDisconnected,
                ..Member::default()
            });
        }
        // As in stock, the leader joins its own cluster only to watch it.
        if config.enable_health_check {
            let (connected, incarnation) = (CoordinatedTaskState::TaskstateConnected, self.incarnation);
            let member = Member { state: connected, incarnation, ..Member::default() };
            state.tasks.insert(own.clone(), member);
            state.version += REGISTRATION;
        }
    }

    fn leave(&self) {
        let ended = {
            let mut state = self.state.lock().expect(UNPOISONED);
            state.contexts -= 1;
            if state.contexts == 0 { std::mem::take(&mut *state) } else { State::default() }
        };
        drop(ended);
        self.changed.notify_waiters();
    }

    /// Takes a task in; returns the leader's incarnation.
    pub(crate) fn register(&self, task: &CoordinatedTask, incarnation: u64) -> Result<u64> {
        self.with(|state| {
            state.expire();
            let (restarts, generation) = (state.allows_restarts, state.generation);
            let member = state.member(task)?;
            let restarts = restarts || member.generation < generation;
            let connected = member.state == CoordinatedTaskState::TaskstateConnected;
            ensure!(
                !connected || member.incarnation == incarnation || restarts,
                Aborted,
                "{} unexpectedly tried to connect with a different incarnation. It has likely restarted.",
                name(task)
            );
            let (connected, heard) = (CoordinatedTaskState::TaskstateConnected, Some(Instant::now()));
            let is_new = member.state != connected || member.incarnation != incarnation;
            *member = Member { state: connected, incarnation, generation, heard, ..Member::default() };
            state.version += if is_new { REGISTRATION } else { 0 };
            Ok(self.incarnation)
        })
        .inspect(|_| self.changed.notify_waiters())
    }

    /// Notes that a task lives; returns the leader's incarnation.
    pub(crate) fn heartbeat(&self, task: &CoordinatedTask, incarnation: u64) -> Result<u64> {
        self.with(|state| {
            state.expire();
            let member = state.member(task)?;
            if let Some(error) = &member.error {
                return Err(error.clone());
            }
            ensure!(
                member.state == CoordinatedTaskState::TaskstateConnected,
                InvalidArgument,
                "Task with task_name={} must be registered before sending heartbeat messages",
                name(task)
            );
            ensure!(
                member.incarnation == incarnation,
                Aborted,
                "Incarnation ID mismatch: expecting {} but got {incarnation}. The remote task has likely restarted.",
                member.incarnation
            );
            member.heard = Some(Instant::now());
            Ok(self.incarnation)
        })
    }

    /// The states of tasks.
    pub(crate) fn states(&self, tasks: &[CoordinatedTask]) -> Result<Vec<CoordinatedTaskStateInfo>> {
        self.with(|state| {
            state.expire();
            tasks.iter().map(|task| Ok(state.member(task)?.info(task.clone()))).collect()
        })
    }

    /// Waits until tasks have other states than in a version, if one is given; returns the states of a job's tasks and
    /// their version.
    pub(crate) async fn watch(
        &self,
        job: &str,
        version: Option<i64>,
    ) -> Result<(Vec<CoordinatedTaskStateInfo>, i64)> {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on, no change is missed.
            changed.as_mut().enable();
            let now = self.with(|state| {
                state.expire();
                let now = state.version;
                ensure!(
                    version.is_none_or(|version| version <= now),
                    InvalidArgument,
                    "Version {} of the tasks' states has not been reached, the current one is {now}",
                    version.unwrap_or_default()
                );
                if version == Some(now) {
                    return Ok(None);
                }
                let of_job = state.tasks.iter().filter(|(task, _)| task.job == job);
                Ok(Some((of_job.map(|(task, member)| member.info(coordinated(task))).collect(), now)))
            })?;
            match now {
                Some(now) => return Ok(now),
                None => drop(timeout(LOOK, changed).await),
            }
        }
    }

    /// Notes that a task has failed.
    pub(crate) fn report(&self, task: &CoordinatedTask, error: Status) -> Result<()> {
        self.with(|state| {
            state.member(task)?.fail(error);
            state.version += 1;
            Ok(())
        })
        .inspect(|()| self.changed.notify_waiters())
    }

    /// Forgets that a task was there, or failed.
    pub(crate) fn disconnect(&self, task: &CoordinatedTask) -> Result<()> {
        self.with(|state| {
            let disconnected = CoordinatedTaskState::TaskstateDisconnected;
            let member = state.member(task)?;
            let incarnation = member.incarnation;
            *member = Member { state: disconnected, incarnation, ..Member::default() };
            state.version += 1;
            state.leave_barriers(&named(task));
            Ok(())
        })
        .inspect(|()| self.changed.notify_waiters())
    }

    /// Keeps a value.
    pub(crate) fn insert(&self, key: &str, value: &[u8], replace: bool) -> Result<()> {
        let key = plain(key);
        let share = self.account.charge(VALUE_BYTES + key.len() + value.len())?;
        let replaced = self.with(|state| {
            ensure!(replace || !state.values.contains_key(&key), AlreadyExists, "key {key} already exists.");
            // A copy, because the value's own bytes are a piece of its message.
            Ok(state.values.insert(key, (Bytes::copy_from_slice(value), share)))
        });
        self.changed.notify_waiters();
        replaced.map(drop)
    }

    /// Adds to a value that is a number.
    pub(crate) fn increment(&self, key: &str, by: i64) -> Result<Bytes> {
        let now = match self.get(key) {
            Ok(value) => {
                let number = std::str::from_utf8(&value).ok().and_then(|text| text.parse::<i64>().ok());
                let number = number.and_then(|number| number.checked_add(by));
                number.ok_or_else(|| status!(FailedPrecondition, "key {key} is not a number to add to"))?
            }
            Err(error) if error.code() == Code::NotFound => by,
            Err(error) => return Err(error),
        };
        let value = Bytes::from(now.to_string());
        self.insert(key, &value, true).map(|()| value)
    }

    /// A value.
    pub(crate) fn get(&self, key: &str) -> Result<Bytes> {
        let key = plain(key);
        self.with(|state| match state.values.get(&key) {
            Some((value, _)) => Ok(value.clone()),
            None => Err(status!(NotFound, "Config key {key} not found.")),
        })
    }

    /// A value, which may have to be waited for.
    pub(crate) async fn wait_for(&self, key: &str) -> Result<Bytes> {
        loop {
            let changed = self.changed.notified();
            let mut changed = std::pin::pin!(changed);
            // From here on, no change is missed.
            changed.as_mut().enable();
            match self.get(key) {
                Err(error) if error.code() == Code::NotFound => changed.await,
                got => return got,
            }
        }
    }

    /// All values whose keys begin with a directory's.
    pub(crate) fn directory(&self, key: &str) -> Result<Vec<KeyValueEntry>> {
        let key = plain(key);
        self.with(|state| {
            let below = |(key, (value, _)): (&String, &(Bytes, Share))| KeyValueEntry {
                key: key.clone(),
                value: value.clone(),
            };
            Ok(state.below(&key).map(below).collect())
        })
    }

    /// Forgets a value, and with it what is below, if it is a directory.
    pub(crate) fn delete(&self, key: &str, is_directory: bool) -> Result<()> {
        let key = plain(key);
        let deleted = self.with(|state| {
            let mut keys: BTreeSet<String> = BTreeSet::new();
            if is_directory {
                keys.extend(state.below(&key).map(|(key, _)| key.clone()));
            }
            keys.insert(key);
            Ok(keys.iter().filter_map(|key| state.values.remove(key)).collect::<Vec<_>>())
        });
        deleted.map(drop)
    }
}

impl State {
    pub(super) fn member(&mut self, task: &CoordinatedTask) -> Result<&mut Member> {
        let member = self.tasks.get_mut(&named(task));
        member
            .ok_or_else(|| status!(InvalidArgument, "Unexpected task request with task_name={}", name(task)))
    }

    fn below(&self, directory: &str) -> impl Iterator<Item = (&String, &(Bytes, Share))> {
        let prefix = format!("{directory}/");
        let from = (Bound::Included(prefix.clone()), Bound::Unbounded);
        self.values.range(from).take_while(move |(key, _)| key.starts_with(&prefix))
    }
}

impl State {
    /// Takes tasks for lost that have been silent for too long.
    pub(super) fn expire(&mut self) {
        for (task, member) in &mut self.tasks {
            self.version += i64::from(member.expire(task, self.timeout));
        }
    }
}

impl Member {
    fn fail(&mut self, error: Status) {
        (self.state, self.error) = (CoordinatedTaskState::TaskstateError, Some(error));
    }

    fn info(&self, task: CoordinatedTask) -> CoordinatedTaskStateInfo {
        let error = self.error.as_ref();
        let source =
            |_: &Status| CoordinationServiceError { source_task: Some(task.clone()), ..Default::default() };
        CoordinatedTaskStateInfo {
            incarnation: self.incarnation,
            state: self.state as i32,
            error_code: error.map_or(0, |error| error.code() as i32),
            error_message: error.map_or_else(String::new, |error| error.message().to_owned()),
            error_payload: error.map(source),
            task: Some(task),
        }
    }

    /// Takes the task for lost if it has been silent for too long; whether it has.
    fn expire(&mut self, task: &TaskName, timeout: Duration) -> bool {
        let is_lost = self.state == CoordinatedTaskState::TaskstateConnected
            && self.heard.is_some_and(|heard| heard.elapsed() > timeout);
        if is_lost {
            self.fail(status!(
                Unavailable,
                "Task {task} heartbeat timeout. This indicates that the remote task has failed, got preempted, or \
                 crashed unexpectedly."
            ));
        }
        is_lost
    }
}

/// The membership of a context in a cluster with the service; ends when it is dropped.
pub(super) struct Membership {
    led: Option<Arc<Coordination>>,
    _heartbeats: JoinSet<()>,
}

impl Drop for Membership {
    fn drop(&mut self) {
        self.led.iter().for_each(|coordination| coordination.leave());
    }
}

impl Membership {
    /// Turns the service on, or registers this task with the leader, as the client's configuration says.
    pub(super) async fn join(
        own: &Arc<Coordination>,
        context: &Context,
        cluster: &ClientCluster,
        config: &CoordinationServiceConfig,
    ) -> Result<Option<Membership>> {
        if config.service_type.is_empty() {
            return Ok(None);
        }
        let leader = DeviceSpec::parse(&config.service_leader).ok();
        let leader = leader.and_then(|leader| TaskName::of_device(&leader));
        if leader.as_ref() == Some(&cluster.own) {
            own.lead(&cluster.own, cluster, config);
            return Ok(Some(Membership { led: Some(own.clone()), _heartbeats: JoinSet::new() }));
        }
        let mut heartbeats = JoinSet::new();
        let view = context.view();
        if config.enable_health_check
            && let Some(leader) = leader.and_then(|leader| view.session.peers().worker(&leader).cloned())
        {
            let (job_name, task_id) = (cluster.own.job.clone(), cluster.own.task as i32);
            let task = CoordinatedTask { job_name, task_id, recoverable: false };
            let incarnation = own.incarnation;
            let limit = millis(config.cluster_register_timeout_in_ms).unwrap_or(DEFAULT_REGISTRATION);
            let until = Instant::now() + limit;
            while let Err(error) = leader.coordination().register(&task, incarnation).await {
                // The leader's own context may not be open yet.
                if Instant::now() > until || error.code() == Code::Aborted {
                    return Err(error);
                }
                tokio::time::sleep(RETRY).await;
            }
            let interval = millis(config.heartbeat_timeout_in_ms).unwrap_or(DEFAULT_TIMEOUT) / 2;
            heartbeats.spawn(beat(leader, task, incarnation, interval));
        }
        Ok(Some(Membership { led: None, _heartbeats: heartbeats }))
    }
}

/// Tells the leader that this task lives, for as long as it is polled. A leader that has lost it is asked again.
async fn beat(leader: Arc<RemoteWorker>, task: CoordinatedTask, incarnation: u64, interval: Duration) {
    loop {
        tokio::time::sleep(interval).await;
        if let Err(error) = leader.coordination().heartbeat(&task, incarnation).await {
            tracing::debug!(leader = %leader.task(), %error, "A leader does not hear this task; it registers again.");
            if let Err(error) = leader.coordination().register(&task, incarnation).await {
                tracing::debug!(leader = %leader.task(), %error, "A leader does not take this task in.");
            }
        }
    }
}

fn millis(length: i64) -> Option<Duration> {
    u64::try_from(length).ok().filter(|length| *length > 0).map(Duration::from_millis)
}

/// The name of a task in a message.
pub(super) fn named(task: &CoordinatedTask) -> TaskName {
    TaskName::new(&task.job_name, u32::try_from(task.task_id).unwrap_or(u32::MAX))
}

/// A task in a message.
pub(crate) fn coordinated(task: &TaskName) -> CoordinatedTask {
    let task_id = i32::try_from(task.task).unwrap_or(i32::MAX);
    CoordinatedTask { job_name: task.job.clone(), task_id, recoverable: false }
}

fn name(task: &CoordinatedTask) -> String {
    format!("/job:{}/replica:0/task:{}", task.job_name, task.task_id)
}

/// A key without empty parts, as stock keeps it.
fn plain(key: &str) -> String {
    key.split('/').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("/")
}

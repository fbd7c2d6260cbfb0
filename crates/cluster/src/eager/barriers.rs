//! Barriers of the coordination service: places at which tasks wait for each other.

use super::account::Share;
use super::coordination::{Coordination, State, VALUE_BYTES, named};
use crate::spec::TaskName;
use ferroflow_core::{Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::{BarrierError, CoordinatedTask, CoordinatedTaskState, DeviceInfo};
use prost::Message;
use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// The barrier at which tasks exchange their devices, and how long they wait there.
const DEVICES: &str = "WaitForAllTasks";
const DEVICES_WAIT: Duration = Duration::from_secs(3600);

/// The time between looks for tasks that have been lost while others wait for them.
pub(super) const LOOK: Duration = Duration::from_secs(1);

/// Marks the status of a barrier.
const PAYLOAD: &str = "type.googleapis.com/tensorflow.BarrierError";

/// A barrier that a task has come to.
pub(crate) struct Arrival<'a> {
    pub(crate) barrier: &'a str,
    /// Its number among the barriers of this name, counted from 0.
    pub(crate) counter: i64,
    pub(crate) limit: Duration,
    pub(crate) task: &'a CoordinatedTask,
    /// The tasks that wait for each other; all if empty.
    pub(crate) tasks: &'a [CoordinatedTask],
}

/// The latest barrier of one name.
pub(super) struct Barrier {
    counter: i64,
    tasks: BTreeSet<TaskName>,
    reached: BTreeSet<TaskName>,
    first: TaskName,
    deadline: Instant,
    /// Its end; none while tasks are missing.
    result: Option<Result<()>>,
    /// The end of the one before it.
    previous: Option<Result<()>>,
    _share: Share,
}

/// Tasks that ask which of them live, all of them or those that are left.
pub(super) struct RollCall {
    tasks: BTreeSet<TaskName>,
    present: BTreeSet<TaskName>,
    /// Those that live, with their incarnations, once all of them have asked.
    answer: Arc<OnceLock<Vec<(TaskName, u64)>>>,
    _share: Share,
}

impl Coordination {
    /// Waits until all tasks of a barrier have come to it; returns its number.
    pub(crate) async fn barrier(&self, arrival: Arrival<'_>) -> Result<i64> {
        let (id, counter) = (arrival.barrier, arrival.counter);
        let arrived = self.with(|state| self.arrive(state, &arrival));
        self.changed.notify_waiters();
        arrived.map_err(|error| marked(error, id, counter))?;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on, no change is missed.
            changed.as_mut().enable();
            let now = self.with(|state| Ok(state.end_of(id, counter)));
            match now? {
                Ok(result) => return result.map(|()| counter).map_err(|error| marked(error, id, counter)),
                Err(deadline) => {
                    let until = deadline.min(Instant::now() + LOOK);
                    let _ = timeout(until.saturating_duration_since(Instant::now()), changed).await;
                }
            }
        }
    }

    fn arrive(&self, state: &mut State, arrival: &Arrival<'_>) -> Result<()> {
        let (id, counter, task) = (arrival.barrier, arrival.counter, named(arrival.task));
        let is_next = match state.barriers.get(id) {
            None => counter == 0,
            Some(known) => known.result.is_some() && counter == known.counter + 1,
        };
        if is_next {
            let previous = state.barriers.remove(id);
            let tasks: BTreeSet<TaskName> = match (&previous, arrival.tasks) {
                // All barriers of a name are for the same tasks.
                (Some(previous), _) => previous.tasks.clone(),
                (None, []) => state.tasks.keys().cloned().collect(),
                (None, tasks) => tasks.iter().map(named).collect(),
            };
            if let Some(stranger) = tasks.iter().find(|task| !state.tasks.contains_key(*task)) {
                bail!(
                    InvalidArgument,
                    "Unexpected task ({stranger}) that is not in the cluster called the barrier. Barrier Id: {id}"
                );
            }
            let share = self.account.charge(VALUE_BYTES + id.len() + tasks.len() * 64)?;
            let barrier = Barrier {
                counter,
                tasks,
                reached: BTreeSet::new(),
                first: task.clone(),
                deadline: Instant::now() + arrival.limit.min(DEVICES_WAIT),
                result: None,
                previous: previous.and_then(|previous| previous.result),
                _share: share,
            };
            state.barriers.insert(id.to_owned(), barrier);
        }
        let all = state.tasks.len();
        let Some(barrier) = state.barriers.get_mut(id) else {
            bail!(
                Internal,
                "Barrier ({id}::{counter}) is invoked by the task, but the service knows none before it. The service or \
                 task probably restarted."
            )
        };
        if counter != barrier.counter {
            let error = status!(
                Internal,
                "Barrier ({id}::{counter}) is invoked by the task, but the service thinks it is the {}-th instance.",
                barrier.counter
            );
            barrier.result.get_or_insert(Err(error.clone()));
            return Err(error);
        }
        let agrees = match arrival.tasks {
            [] => barrier.tasks.len() == all,
            tasks => {
                tasks.len() == barrier.tasks.len()
                    && tasks.iter().all(|task| barrier.tasks.contains(&named(task)))
            }
        };
        if !agrees || !barrier.tasks.contains(&task) {
            let error = if agrees {
                status!(InvalidArgument, "A non-participating task ({task}) called the barrier: {id}")
            } else {
                status!(
                    InvalidArgument,
                    "Conflicting tasks specified by different processes for the same barrier: {id}. Check that the \
                     callers are invoking the barrier with the same arguments."
                )
            };
            barrier.result.get_or_insert(Err(error.clone()));
            return Err(error);
        }
        barrier.reached.insert(task);
        if barrier.reached == barrier.tasks {
            barrier.result.get_or_insert(Ok(()));
        }
        Ok(())
    }

    /// Ends a barrier for all that wait there.
    pub(crate) fn cancel_barrier(&self, id: &str, counter: i64, task: &CoordinatedTask) -> Result<()> {
        let cancelled = self.with(|state| {
            let Some(barrier) = state.barriers.get_mut(id).filter(|barrier| barrier.counter == counter)
            else {
                bail!(
                    FailedPrecondition,
                    "Barrier ({id}::{counter}) is cancelled by task, but nobody has come to it."
                )
            };
            ensure!(
                barrier.result.is_none(),
                FailedPrecondition,
                "Barrier ({id}::{counter}) has already been passed."
            );
            let task = named(task);
            barrier.result =
                Some(Err(status!(Cancelled, "Barrier ({id}::{counter}) is cancelled by task: {task}")));
            Ok(())
        });
        self.changed.notify_waiters();
        cancelled.map_err(|error| marked(error, id, counter))
    }

    /// Waits until all tasks have told their devices; returns the devices of all.
    pub(crate) async fn wait_for_all(
        &self,
        task: &CoordinatedTask,
        devices: DeviceInfo,
    ) -> Result<DeviceInfo> {
        let share = self.account.charge(VALUE_BYTES + devices.encoded_len())?;
        self.with(|state| {
            state.member(task)?.devices.get_or_insert((devices, share));
            Ok(())
        })?;
        let arrival = Arrival { barrier: DEVICES, counter: 0, limit: DEVICES_WAIT, task, tasks: &[] };
        self.barrier(arrival).await?;
        let all = self.with(|state| {
            let told = state.tasks.values().filter_map(|member| member.devices.as_ref());
            Ok(told.flat_map(|(devices, _)| devices.device.iter().cloned()).collect())
        })?;
        Ok(DeviceInfo { device: all })
    }

    /// Waits until all of these tasks that live have asked; returns them with their incarnations.
    pub(crate) async fn alive(
        &self,
        task: &CoordinatedTask,
        tasks: &[CoordinatedTask],
    ) -> Result<Vec<(TaskName, u64)>> {
        let (task, tasks): (_, BTreeSet<TaskName>) = (named(task), tasks.iter().map(named).collect());
        ensure!(
            tasks.contains(&task),
            InvalidArgument,
            "Requesting task {task} is not one of the tasks specified in a GetAliveTasks request."
        );
        let answer = self.with(|state| {
            if !state.roll_calls.iter().any(|call| call.tasks == tasks) {
                let share = self.account.charge(VALUE_BYTES + tasks.len() * 128)?;
                let (present, answer) = (BTreeSet::new(), Arc::default());
                state.roll_calls.push(RollCall { tasks: tasks.clone(), present, answer, _share: share });
            }
            let call = state.roll_calls.iter_mut().find(|call| call.tasks == tasks);
            let call = call.ok_or_else(|| status!(Internal, "a roll call is gone"))?;
            call.present.insert(task);
            Ok(call.answer.clone())
        })?;
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // From here on, no change is missed.
            changed.as_mut().enable();
            if let Some(answer) = answer.get() {
                return Ok(answer.clone());
            }
            let answered = self.with(|state| Ok(state.answer_roll_calls()))?;
            if answered {
                self.changed.notify_waiters();
            } else {
                let _ = timeout(LOOK, changed).await;
            }
        }
    }
}

impl State {
    /// The end of a barrier, or the time at which it ends at the latest.
    fn end_of(&mut self, id: &str, counter: i64) -> Result<Result<()>, Instant> {
        self.expire();
        let lost = status!(Internal, "Barrier ({id}::{counter}) is gone: the service has started anew.");
        let Some(barrier) = self.barriers.get_mut(id) else { return Ok(Err(lost)) };
        if barrier.counter != counter {
            return Ok(barrier.previous.clone().unwrap_or(Err(lost)));
        }
        if barrier.result.is_none() {
            let failed = |task: &&TaskName| {
                let member = self.tasks.get(*task);
                member.is_some_and(|member| member.state == CoordinatedTaskState::TaskstateError)
            };
            if let Some(task) = barrier.tasks.iter().find(failed) {
                barrier.result = Some(Err(failure(id, task, "a task has failed")));
            } else if Instant::now() >= barrier.deadline {
                barrier.result = Some(Err(barrier.timed_out(id)));
            }
        }
        barrier.result.clone().ok_or(barrier.deadline)
    }

    /// Fails the barriers at which others wait for a task that has gone.
    pub(super) fn leave_barriers(&mut self, task: &TaskName) {
        for (id, barrier) in &mut self.barriers {
            if barrier.tasks.contains(task) && barrier.result.is_none() {
                barrier.result = Some(Err(failure(id, task, "a task has disconnected")));
            }
        }
    }

    /// Answers the calls to which all tasks that live have come; whether there were any.
    fn answer_roll_calls(&mut self) -> bool {
        self.expire();
        let before = self.roll_calls.len();
        let tasks = &self.tasks;
        self.roll_calls.retain(|call| {
            let connected = |task: &&TaskName| {
                let member = tasks.get(*task);
                member.is_some_and(|member| member.state == CoordinatedTaskState::TaskstateConnected)
            };
            let alive: Vec<&TaskName> = call.tasks.iter().filter(connected).collect();
            let complete = alive.iter().all(|task| call.present.contains(*task));
            if complete {
                let with_incarnation = |task: &TaskName| (task.clone(), tasks[task].incarnation);
                let _ = call.answer.set(alive.into_iter().map(with_incarnation).collect());
            }
            !complete
        });
        self.roll_calls.len() < before
    }
}

impl Barrier {
    fn timed_out(&self, id: &str) -> Status {
        let missing: Vec<String> = self.tasks.difference(&self.reached).map(TaskName::to_string).collect();
        status!(
            DeadlineExceeded,
            "Barrier timed out. Id: {id}::{}. This usually happens because a task triggered the barrier too early or too \
             slowly.\n# of tasks that reached the barrier: {}/{}.\nThe first task at the barrier: {}. Missing: {}",
            self.counter,
            self.reached.len(),
            self.tasks.len(),
            self.first,
            missing.join(", ")
        )
    }
}

fn failure(id: &str, task: &TaskName, why: &str) -> Status {
    status!(Internal, "Barrier failed because: {why}. Barrier Id: {id}, Task: {task}")
}

fn marked(error: Status, id: &str, counter: i64) -> Status {
    let barrier = BarrierError { barrier_id: id.to_owned(), counter };
    error.with_payload(PAYLOAD, barrier.encode_to_vec())
}

//! Pending calls of a coordinator, and their results.

use super::function::{PerWorkerDataset, WorkerFunction};
use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_core::{Result, Status, Tensor, status};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// Limit of pending calls, which is that of TensorFlow's coordinator.
const MAX_PENDING: usize = 256 * 1024;

/// Arguments of a call.
#[derive(Clone)]
pub(super) enum Arguments {
    Given(Vec<Tensor>),
    NextOf(PerWorkerDataset),
}

/// A call that a worker makes.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) function: WorkerFunction,
    pub(super) arguments: Arguments,
    pub(super) result: RemoteValue,
    /// Number of times that a worker canceled it.
    pub(super) cancelled: u32,
}

/// Future result of a scheduled call. Cloning shares the result.
///
/// ```no_run
/// use ferroflow::Result;
/// use ferroflow::strategy::{ClusterCoordinator, WorkerFunction};
///
/// fn largest(coordinator: &ClusterCoordinator, loss: &WorkerFunction) -> Result<f32> {
///     let values = [0.1f32, 0.2].map(|rate| coordinator.schedule(loss, [rate]));
///     let mut largest = f32::MIN;
///     for value in values {
///         largest = largest.max(coordinator.fetch(&value?)?[0].to_scalar()?);
///     }
///     Ok(largest)
/// }
/// ```
#[derive(Clone, Default)]
pub struct RemoteValue(Arc<Slot>);

#[derive(Default)]
struct Slot {
    value: Mutex<Option<Result<Vec<Tensor>>>>,
    ready: Condvar,
}

impl RemoteValue {
    /// Waits for the call and returns its outputs.
    ///
    /// # Errors
    ///
    /// The error of the call; `Cancelled` if an earlier call failed or the coordinator was dropped.
    pub fn fetch(&self) -> Result<Vec<Tensor>> {
        let mut value = self.0.value.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = LoggedWait::for_work();
        loop {
            if let Some(value) = &*value {
                return value.clone();
            }
            waiting.log("a scheduled call", "no worker has finished it");
            let ready = self.0.ready.wait_timeout(value, waiting.until_next());
            value = ready.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns `true` if the call has ended.
    pub fn is_ready(&self) -> bool {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn set(&self, result: Result<Vec<Tensor>>) {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        self.0.ready.notify_all();
    }
}

/// Queue of the calls of a coordinator.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Notified of every change of `state`.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Call>,
    running: usize,
    /// First failure; reported once.
    error: Option<Status>,
    /// Failure after which no call can run.
    fatal: Option<Status>,
    stopped: bool,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&'a self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for a change, and logs a long wait.
    fn wait_for_workers<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        waiting: &mut LoggedWait,
    ) -> MutexGuard<'a, State> {
        let (pending, running) = (state.pending.len(), state.running);
        waiting.log("the workers", format_args!("{running} calls are running, {pending} are pending"));
        let changed = self.changed.wait_timeout(state, waiting.until_next());
        changed.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Adds a call. Fails if an earlier one failed.
    pub(super) fn push(&self, call: Call) -> Result<()> {
        let (mut state, mut waiting) = (self.lock(), LoggedWait::for_work());
        while state.pending.len() >= MAX_PENDING && state.error.is_none() && state.fatal.is_none() {
            state = self.wait_for_workers(state, &mut waiting);
        }
        state.take_error()?;
        state.pending.push_back(call);
        self.changed.notify_all();
        Ok(())
    }

    /// Waits for the next call; `None` when the coordinator ends.
    pub(super) fn pop(&self) -> Option<Call> {
        let mut state = self.lock();
        loop {
            if state.stopped || state.fatal.is_some() {
                return None;
            }
            if let Some(call) = state.pending.pop_front() {
                state.running += 1;
                self.changed.notify_all();
                return Some(call);
            }
            state = self.wait(state);
        }
    }

    /// Records the result of a call. A failure cancels the pending calls.
    pub(super) fn done(&self, call: &Call, result: Result<Vec<Tensor>>) {
        let mut state = self.lock();
        state.running -= 1;
        if let Err(error) = &result {
            state.error.get_or_insert_with(|| error.clone());
            state.cancel_pending(&status!(Cancelled, "an earlier call failed: {}", error.message()));
        }
        call.result.set(result);
        self.changed.notify_all();
    }

    /// Returns a call of a lost worker to the queue.
    pub(super) fn give_back(&self, call: Call) {
        let mut state = self.lock();
        state.running -= 1;
        match state.fatal.clone() {
            _ if state.stopped => call.result.set(Err(ended())),
            Some(fatal) => call.result.set(Err(fatal)),
            None => state.pending.push_front(call),
        }
        self.changed.notify_all();
    }

    /// Records a failure after which no call can run.
    pub(super) fn fail(&self, error: Status) {
        let mut state = self.lock();
        let fatal = state.fatal.get_or_insert(error).clone();
        state.cancel_pending(&fatal);
        self.changed.notify_all();
    }

    /// Stops the queue: workers get no more calls.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.cancel_pending(&ended());
        self.changed.notify_all();
    }

    /// Waits up to `pause` for the queue to stop, and returns `true` if it has.
    pub(super) fn stopped_within(&self, pause: Duration) -> bool {
        let (mut state, end) = (self.lock(), Instant::now() + pause);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if state.stopped || state.fatal.is_some() || left.is_zero() {
                return state.stopped || state.fatal.is_some();
            }
            state = self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Returns `true` if no call is pending or running.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.pending.is_empty() && state.running == 0
    }

    /// Waits until no call is pending or running; returns the first failure since the last time.
    pub(super) fn join(&self) -> Result<()> {
        let (mut state, mut waiting) = (self.lock(), LoggedWait::for_work());
        while state.fatal.is_none() && !(state.pending.is_empty() && state.running == 0) {
            state = self.wait_for_workers(state, &mut waiting);
        }
        state.take_error()
    }
}

fn ended() -> Status {
    status!(Cancelled, "the call was not made, because its coordinator was dropped")
}

impl State {
    fn take_error(&mut self) -> Result<()> {
        match self.fatal.clone().or_else(|| self.error.take()) {
            Some(error) => Err(error),
            None => Ok(()),
        }
    }

    fn cancel_pending(&mut self, reason: &Status) {
        for call in self.pending.drain(..) {
            call.result.set(Err(reason.clone()));
        }
    }
}

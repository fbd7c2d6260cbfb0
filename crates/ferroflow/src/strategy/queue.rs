//! The calls that wait for a worker, and their results.

use super::function::{PerWorkerDataset, WorkerFunction};
use ferroflow_cluster::waiting::Waiting;
use ferroflow_core::{Result, Status, Tensor, status};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// As many calls as stock's coordinator lets wait.
const MAX_PENDING: usize = 256 * 1024;

/// What a call gets.
#[derive(Clone)]
pub(super) enum Arguments {
    Given(Vec<Tensor>),
    NextOf(PerWorkerDataset),
}

/// A call that some worker is to make.
#[derive(Clone)]
pub(super) struct Call {
    pub(super) function: WorkerFunction,
    pub(super) arguments: Arguments,
    pub(super) result: RemoteValue,
    /// How often a worker cancelled it.
    pub(super) cancelled: u32,
}

/// What a scheduled call will give. Cloning shares.
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
    there: Condvar,
}

impl RemoteValue {
    /// Waits for the call and returns its outputs.
    pub fn fetch(&self) -> Result<Vec<Tensor>> {
        let mut value = self.0.value.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = Waiting::for_work();
        loop {
            if let Some(value) = &*value {
                return value.clone();
            }
            waiting.speak("a scheduled call", "no worker has made it yet");
            let there = self.0.there.wait_timeout(value, waiting.next_word());
            value = there.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Whether the call has ended.
    pub fn is_ready(&self) -> bool {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    pub(super) fn set(&self, result: Result<Vec<Tensor>>) {
        self.0.value.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(result);
        self.0.there.notify_all();
    }
}

/// The calls of a coordinator.
#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    /// Told of every change.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    pending: VecDeque<Call>,
    running: usize,
    /// The first failure; told once.
    error: Option<Status>,
    /// A failure after which nothing can run.
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

    /// Waits for a change, and says for whom if that takes long.
    fn wait_for_workers<'a>(
        &'a self,
        state: MutexGuard<'a, State>,
        waiting: &mut Waiting,
    ) -> MutexGuard<'a, State> {
        let (pending, running) = (state.pending.len(), state.running);
        waiting.speak("the workers", format_args!("{running} calls are under way, {pending} wait"));
        let changed = self.changed.wait_timeout(state, waiting.next_word());
        changed.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Adds a call; an error if an earlier one failed.
    pub(super) fn push(&self, call: Call) -> Result<()> {
        let (mut state, mut waiting) = (self.lock(), Waiting::for_work());
        while state.pending.len() >= MAX_PENDING && state.error.is_none() && state.fatal.is_none() {
            state = self.wait_for_workers(state, &mut waiting);
        }
        state.take_error()?;
        state.pending.push_back(call);
        self.changed.notify_all();
        Ok(())
    }

    /// The next call; `None` when the coordinator ends.
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

    /// A call has ended. A failure cancels those that wait.
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

    /// A worker was lost during a call: another one makes it.
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

    /// Nothing can run any more.
    pub(super) fn fail(&self, error: Status) {
        let mut state = self.lock();
        let fatal = state.fatal.get_or_insert(error).clone();
        state.cancel_pending(&fatal);
        self.changed.notify_all();
    }

    /// Ends the queue: workers get nothing more.
    pub(super) fn stop(&self) {
        let mut state = self.lock();
        state.stopped = true;
        state.cancel_pending(&ended());
        self.changed.notify_all();
    }

    /// Whether the queue has ended; waits for that as long as `pause`.
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

    /// Whether nothing waits or runs.
    pub(super) fn is_idle(&self) -> bool {
        let state = self.lock();
        state.pending.is_empty() && state.running == 0
    }

    /// Waits until nothing waits or runs; tells the first failure since the last time.
    pub(super) fn join(&self) -> Result<()> {
        let (mut state, mut waiting) = (self.lock(), Waiting::for_work());
        while state.fatal.is_none() && !(state.pending.is_empty() && state.running == 0) {
            state = self.wait_for_workers(state, &mut waiting);
        }
        state.take_error()
    }
}

fn ended() -> Status {
    status!(Cancelled, "the coordinator has ended")
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

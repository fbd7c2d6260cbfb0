//! Accumulators: where replicas leave gradients until enough are there for one update.
//!
//! A gradient computed from an older step than the accumulator's is dropped. A step that takes the reduced gradient
//! waits in a line until enough were added; a wait that is dropped leaves the line and takes nothing.

mod gradient;

pub(crate) use gradient::{Arithmetic, Gradient, Kind};

use ferroflow_core::device::Device;
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure, status};
use gradient::Sum;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

/// The declared properties of an accumulator.
#[derive(Clone)]
pub(crate) struct AccumulatorSpec {
    pub(crate) name: String,
    pub(crate) kind: Kind,
    pub(crate) dtype: DType,
    pub(crate) shape: PartialShape,
    /// Whether the result is the mean of the gradients; their sum otherwise.
    pub(crate) mean: bool,
    pub(crate) arithmetic: Arithmetic,
}

/// Adds up gradients until somebody takes them.
pub(crate) struct Accumulator {
    pub(crate) spec: AccumulatorSpec,
    /// Guards the sum and the line; held while a gradient is added.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Gradients from before this step are dropped.
    global_step: i64,
    /// The number of gradients in `sum`.
    count: usize,
    /// Kept if and only if `count` is positive.
    sum: Option<Sum>,
    line: VecDeque<Waiter>,
    next_ticket: u64,
    /// Set when the container that keeps the accumulator is cleared.
    gone: bool,
}

struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
}

impl Resource for Accumulator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow26ConditionalAccumulatorBaseE"
    }

    fn cancel_waiters(&self) {
        let mut state = self.lock();
        state.gone = true;
        state.line.iter_mut().filter_map(|waiting| waiting.waker.take()).for_each(Waker::wake);
    }
}

impl Accumulator {
    pub(crate) fn new(spec: AccumulatorSpec) -> Accumulator {
        Accumulator { spec, state: Mutex::default() }
    }

    /// The number of gradients added since the last were taken.
    pub(crate) fn count(&self) -> usize {
        self.lock().count
    }

    /// Sets the step that gradients must not be older than.
    pub(crate) fn set_global_step(&self, step: i64) {
        self.lock().global_step = step;
    }

    /// Adds a gradient computed at `local_step`, unless that is too old: then nothing of it is even checked.
    pub(crate) fn apply(&self, device: &Device, local_step: i64, gradient: Gradient) -> Result<()> {
        let mut state = self.lock();
        if local_step < state.global_step {
            return Ok(());
        }
        gradient.check(&self.spec, state.sum.as_ref())?;
        state.sum = Some(match state.sum.take() {
            None => Sum::new(gradient),
            Some(sum) => sum.plus(device, &self.spec, gradient)?,
        });
        state.count += 1;
        state.wake_first();
        Ok(())
    }

    /// Waits until `required` gradients are there, and takes their mean or sum. The global step moves on by one.
    pub(crate) async fn take(self: &Arc<Self>, device: &Device, required: i32) -> Result<Vec<Tensor>> {
        if required <= 0 {
            bail!(InvalidArgument, "Argument num_required must be positive, but was {required}");
        }
        let place = Place::new(self);
        let (sum, count) = poll_fn(|context| place.poll(context, required as usize)).await?;
        sum.reduced(device, &self.spec, count)
    }

    /// Refuses values of another type than the accumulator's.
    pub(crate) fn check_type(&self, dtype: DType) -> Result<()> {
        ensure!(
            dtype == self.spec.dtype,
            InvalidArgument,
            "accumulator '{}' holds {} gradients, not {dtype}",
            self.spec.name,
            self.spec.dtype
        );
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panic while a gradient is added leaves no sum, which counts as nothing below.
        self.state.lock().unwrap_or_else(|poisoned| {
            let mut state = poisoned.into_inner();
            if state.sum.is_none() {
                state.count = 0;
            }
            state
        })
    }
}

impl State {
    fn wake_first(&mut self) {
        if let Some(waker) = self.line.front_mut().and_then(|waiting| waiting.waker.take()) {
            waker.wake();
        }
    }
}

/// A place in the line of those who take, left when dropped.
struct Place<'a> {
    accumulator: &'a Accumulator,
    ticket: u64,
}

impl Place<'_> {
    fn new(accumulator: &Accumulator) -> Place<'_> {
        let mut state = accumulator.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line.push_back(Waiter { ticket, waker: None });
        Place { accumulator, ticket }
    }

    fn poll(&self, context: &mut Context<'_>, required: usize) -> Poll<Result<(Sum, usize)>> {
        let mut state = self.accumulator.lock();
        if state.gone {
            let name = &self.accumulator.spec.name;
            return Poll::Ready(Err(status!(
                Cancelled,
                "accumulator '{name}' was deleted while a step waited for it."
            )));
        }
        let at = state.line.iter().position(|waiting| waiting.ticket == self.ticket);
        let at = at.expect("a place stays in its line until it is dropped");
        if at == 0
            && state.count >= required
            && let Some(sum) = state.sum.take()
        {
            state.global_step += 1;
            return Poll::Ready(Ok((sum, std::mem::take(&mut state.count))));
        }
        state.line[at].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut state = self.accumulator.lock();
        let ticket = self.ticket;
        state.line.retain(|waiting| waiting.ticket != ticket);
        state.wake_first();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;
    use ferroflow_core::tensor::BufferPool;
    use futures_util::FutureExt;

    fn device() -> Device {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let name = "/job:localhost/replica:0/task:0/device:CPU:0";
        Device::new(name, 1, BufferPool::new(1 << 20), usize::MAX, Arc::new(threads)).unwrap()
    }

    fn accumulator() -> Arc<Accumulator> {
        Arc::new(Accumulator::new(AccumulatorSpec {
            name: "a".to_owned(),
            kind: Kind::Dense,
            dtype: DType::Float,
            shape: PartialShape::scalar(),
            mean: true,
            arithmetic: Arithmetic::of::<f32>(),
        }))
    }

    fn add(accumulator: &Accumulator, device: &Device, step: i64, value: f32) {
        accumulator.apply(device, step, Gradient::Dense(Tensor::scalar(value))).unwrap();
    }

    fn value(tensors: Vec<Tensor>) -> f32 {
        tensors[0].to_scalar().unwrap()
    }

    #[test]
    fn taking_waits_until_enough_are_there() {
        let (accumulator, device) = (accumulator(), device());
        let mut first = Box::pin(accumulator.take(&device, 2));
        let mut second = Box::pin(accumulator.take(&device, 1));
        assert!(first.as_mut().now_or_never().is_none());
        assert!(second.as_mut().now_or_never().is_none());
        add(&accumulator, &device, 0, 1.0);
        assert!(second.as_mut().now_or_never().is_none(), "the first in line is served first");
        assert!(first.as_mut().now_or_never().is_none());
        add(&accumulator, &device, 0, 4.0);
        assert_eq!(value(first.now_or_never().unwrap().unwrap()), 2.5);
        add(&accumulator, &device, 0, 9.0);
        assert!(second.as_mut().now_or_never().is_none(), "the gradient was too old");
        add(&accumulator, &device, 1, 7.0);
        assert_eq!(value(second.now_or_never().unwrap().unwrap()), 7.0);
    }

    #[test]
    fn a_dropped_wait_takes_nothing() {
        let (accumulator, device) = (accumulator(), device());
        let mut first = Box::pin(accumulator.take(&device, 1));
        assert!(first.as_mut().now_or_never().is_none());
        drop(first);
        add(&accumulator, &device, 0, 3.0);
        assert_eq!(accumulator.count(), 1);
        assert_eq!(value(accumulator.take(&device, 1).now_or_never().unwrap().unwrap()), 3.0);
    }

    #[test]
    fn clearing_the_container_releases_those_who_wait() {
        let (accumulator, device) = (accumulator(), device());
        let mut wait = Box::pin(accumulator.take(&device, 1));
        assert!(wait.as_mut().now_or_never().is_none());
        accumulator.cancel_waiters();
        assert_eq!(wait.now_or_never().unwrap().unwrap_err().code(), Code::Cancelled);
    }

    #[test]
    fn the_first_gradient_is_not_changed_by_those_added_to_it() {
        let (accumulator, device) = (accumulator(), device());
        let first = Tensor::scalar(1.0f32);
        accumulator.apply(&device, 0, Gradient::Dense(first.clone())).unwrap();
        add(&accumulator, &device, 0, 2.0);
        assert_eq!(first.to_scalar::<f32>().unwrap(), 1.0);
    }
}

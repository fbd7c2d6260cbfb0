//! Queues of tuples that steps wait at: first in, first out; shuffled; by priority.
//!
//! Waiters stand in a line, for room or for elements, and only the first in line moves. A wait that is
//! dropped leaves its line and gives back what it had taken, so that a cancelled step loses nothing.

mod heap;
mod store;
mod wait;

pub(crate) use store::{Order, Tuple};

use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, status};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::task::Waker;
use store::Store;

/// The declared properties of a queue.
pub(crate) struct QueueSpec {
    pub(crate) name: String,
    pub(crate) order: Order,
    pub(crate) types: Vec<DType>,
    /// A shape per component, or none if they are not specified.
    pub(crate) shapes: Vec<PartialShape>,
    pub(crate) capacity: usize,
    /// The most bytes that elements may take together.
    pub(crate) memory_limit: usize,
    /// Whether components may differ in size and are padded when batched.
    pub(crate) padding: bool,
}

impl QueueSpec {
    fn kind(&self) -> &'static str {
        match (&self.order, self.padding) {
            (Order::First, false) => "FIFOQueue",
            (Order::First, true) => "PaddingFIFOQueue",
            (Order::Shuffled { .. }, _) => "RandomShuffleQueue",
            (Order::Priority, _) => "PriorityQueue",
        }
    }
}

/// A queue of tuples.
pub(crate) struct Queue {
    pub(crate) spec: QueueSpec,
    /// Guards elements and lines; held for moments only.
    state: Mutex<State>,
}

struct State {
    store: Store,
    closed: bool,
    /// Set when the container that keeps the queue is cleared.
    gone: bool,
    next_ticket: u64,
    /// Those who bring elements or close the queue.
    producers: VecDeque<Waiter>,
    consumers: VecDeque<Waiter>,
    /// Those who only look; they do not stand in each other's way.
    observers: VecDeque<Waiter>,
}

struct Waiter {
    ticket: u64,
    waker: Option<Waker>,
    /// Whether the closing of the queue cancelled the wait.
    cancelled: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Line {
    Producers,
    Consumers,
    Observers,
}

impl Resource for Queue {
    fn type_name(&self) -> &'static str {
        "N10tensorflow14QueueInterfaceE"
    }

    fn cancel_waiters(&self) {
        let mut state = self.lock();
        state.gone = true;
        state.wake_all();
    }
}

impl Queue {
    pub(crate) fn new(spec: QueueSpec) -> Queue {
        let store = Store::new(&spec.order);
        Queue {
            spec,
            state: Mutex::new(State {
                store,
                closed: false,
                gone: false,
                next_ticket: 0,
                producers: VecDeque::new(),
                consumers: VecDeque::new(),
                observers: VecDeque::new(),
            }),
        }
    }

    /// The kind of queue, as error texts name it.
    pub(crate) fn kind(&self) -> &'static str {
        self.spec.kind()
    }

    pub(crate) fn size(&self) -> usize {
        self.lock().store.len()
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Refuses to share the queue with a node of another op, or one that asks for another queue.
    pub(crate) fn check_same(&self, op: &str, asked: &QueueSpec) -> Result<()> {
        let (name, have) = (&self.spec.name, &self.spec);
        ensure!(self.kind() == asked.kind(), InvalidArgument, "Expected {}, found {op}", self.kind());
        ensure!(
            have.capacity == asked.capacity,
            InvalidArgument,
            "Shared queue '{name}' has capacity {} but requested capacity was {}",
            shown_capacity(have.capacity),
            shown_capacity(asked.capacity)
        );
        if let (Order::Shuffled { keep, seeds }, Order::Shuffled { keep: other, seeds: wanted }) =
            (&have.order, &asked.order)
        {
            ensure!(
                keep == other,
                InvalidArgument,
                "Shared queue '{name}' has min_after_dequeue {keep} but requested min_after_dequeue was {other}."
            );
            ensure!(
                *wanted == (0, 0) || wanted == seeds,
                InvalidArgument,
                "Shared queue '{name}' has random seeds {seeds:?} but requested seeds are {wanted:?}."
            );
        }
        ensure!(
            have.types == asked.types,
            InvalidArgument,
            "Shared queue '{name}' has component types {} but requested component types were {}",
            list(&have.types),
            list(&asked.types)
        );
        // Queues that pad take shapes that may be the same.
        let fits =
            |a: &PartialShape, b: &PartialShape| if have.padding { a.is_compatible_with(b) } else { a == b };
        ensure!(
            have.shapes.len() == asked.shapes.len()
                && have.shapes.iter().zip(&asked.shapes).all(|(a, b)| fits(a, b)),
            InvalidArgument,
            "Shared queue '{name}' has component shapes [{}] but requested component shapes were [{}]",
            list(&have.shapes),
            list(&asked.shapes)
        );
        Ok(())
    }

    /// Refuses a tuple that does not fit. `batch` is the number of elements if the tuple holds several.
    pub(crate) fn check_tuple(&self, tuple: &[Tensor], batch: Option<i64>) -> Result<()> {
        for (i, (tensor, shape)) in tuple.iter().zip(&self.spec.shapes).enumerate() {
            let expected = match (batch, shape.dims()) {
                (Some(batch), Some(dims)) => {
                    PartialShape::new(std::iter::once(batch).chain(dims.iter().copied()))?
                }
                _ => shape.clone(),
            };
            ensure!(
                expected.admits(tensor.shape()),
                InvalidArgument,
                "Shape mismatch in tuple component {i}. Expected {expected}, got {}",
                tensor.shape()
            );
        }
        let Some(batch) = batch else { return Ok(()) };
        for (i, tensor) in tuple.iter().enumerate() {
            ensure!(
                tensor.shape().first() == Some(&batch),
                InvalidArgument,
                "All input tensors must have the same size in the 0th dimension. Component {i} has {}, and should \
                 have {batch}",
                tensor.shape().first().map_or("no dimension".to_owned(), |size| size.to_string())
            );
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Elements and lines are whole at every point where a panic could happen.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn closed(&self) -> ferroflow_core::Status {
        status!(Cancelled, "{} '{}' is closed.", self.kind(), self.spec.name)
    }

    fn insufficient(&self, requested: usize, size: usize) -> ferroflow_core::Status {
        status!(
            OutOfRange,
            "{} '{}' is closed and has insufficient elements (requested {requested}, current size {size})",
            self.kind(),
            self.spec.name
        )
    }
}

impl State {
    fn line(&mut self, line: Line) -> &mut VecDeque<Waiter> {
        match line {
            Line::Producers => &mut self.producers,
            Line::Consumers => &mut self.consumers,
            Line::Observers => &mut self.observers,
        }
    }

    /// Wakes the waiters that may go on after a change: the first producer, the first consumer, and all observers.
    fn wake_first(&mut self) {
        let first = self.producers.front_mut().into_iter().chain(self.consumers.front_mut());
        first.chain(&mut self.observers).filter_map(|waiting| waiting.waker.take()).for_each(Waker::wake);
    }

    fn wake_all(&mut self) {
        let all = self.producers.iter_mut().chain(&mut self.consumers).chain(&mut self.observers);
        all.filter_map(|waiting| waiting.waker.take()).for_each(Waker::wake);
    }
}

/// The capacity as stock counts: an unbounded queue holds the largest number.
fn shown_capacity(capacity: usize) -> i32 {
    i32::try_from(capacity).unwrap_or(i32::MAX)
}

/// The items, separated by commas.
pub(crate) fn list(items: &[impl std::fmt::Display]) -> String {
    items.iter().map(|item| item.to_string()).collect::<Vec<_>>().join(", ")
}

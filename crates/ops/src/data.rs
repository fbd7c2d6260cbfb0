//! The engine of input pipelines. Ops of `families/dataset` describe datasets with it; iterators run them.
//!
//! - A [`Dataset`] is a description: element types, cardinality, its input datasets, and a function that opens it. It is
//!   the value of a variant tensor and immutable, so any number of iterators may run it.
//! - A [`Source`] is a running pipeline: opening a dataset opens its inputs, so sources form a tree. A source is polled
//!   like a future, once per element. **All state lives in the source, none in the caller's future**: a step that is
//!   cancelled stops polling and loses nothing, and the next step goes on where it stopped. `Pending` has therefore to
//!   leave the source such that polling again continues; `Ready(None)` is the end and stays the end.
//! - An [`IteratorCx`] belongs to one iterator. It has the instances of captured functions (with their state, such as
//!   random streams), the device, and the cancellation that ends with the iterator. A captured function is found when the
//!   op's kernel is made and does not depend on the plan ([`CapturedFunction`]), so it outlives the session's graph.
//! - A source calls functions through a [`Caller`]: on the polling thread, without a hop.
//! - Work ahead of the consumer ([`background`]) runs on the compute threads, is bounded by its buffer, and is dropped
//!   with the source. A consumer that finds an empty buffer does the work itself when nobody else has started it.
//! - Every opened dataset is a stage, which notes when it is pending and for what ([`waits`]), for those who ask.
//! - Sources yield: loops that may take long call [`SourceCx::tick`], readers of files [`SourceCx::leave_io_thread`].
//!
//! [`CapturedFunction`]: ferroflow_core::kernel::CapturedFunction

pub(crate) mod auto_shard;
pub(crate) mod background;
mod caller;
pub(crate) mod compressed;
mod context;
mod dataset;
pub(crate) mod file_cache;
pub(crate) mod files;
pub(crate) mod fingerprint;
pub(crate) mod graph;
pub(crate) mod iterator;
pub(crate) mod memory;
pub(crate) mod random_access;
pub(crate) mod seeds;
pub(crate) mod snapshot;
pub(crate) mod stack;
pub(crate) mod stats;
mod waits;

pub(crate) use caller::{Caller, Function, PendingCall};
pub(crate) use context::IteratorCx;
pub(crate) use dataset::{Dataset, INFINITE, Spec, UNKNOWN, kernel, kernel_of, scalar};
pub(crate) use waits::{Activity, Note};

use ferroflow_core::turn::{self, Turn};
use ferroflow_core::{Result, Tensor};
use std::task::{Context, Poll};

/// The components of one element.
pub(crate) type Element = Vec<Tensor>;

/// The outcome of polling a source: an element, or `None` at the end.
pub(crate) type Next = Poll<Result<Option<Element>>>;

/// A running pipeline.
pub(crate) trait Source: Send {
    /// The next element.
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next;
}

/// The number of elements between looks at the clock.
const TICKS: u32 = 64;

/// The context that sources are polled in.
pub(crate) struct SourceCx<'a, 'b> {
    /// The task of the consumer, which a pending source wakes.
    pub(crate) task: &'a mut Context<'b>,
    ticks: u32,
    /// The time, once a stage has noted that it is pending.
    now: Option<u64>,
}

impl<'a, 'b> SourceCx<'a, 'b> {
    pub(crate) fn new(task: &'a mut Context<'b>) -> SourceCx<'a, 'b> {
        SourceCx { task, ticks: TICKS, now: None }
    }

    /// Counts an element in a loop that produces nothing for a while; pending when the step's turn is over.
    #[inline]
    pub(crate) fn tick(&mut self) -> Poll<()> {
        self.ticks -= 1;
        if self.ticks > 0 {
            return Poll::Ready(());
        }
        self.ticks = TICKS;
        if Turn::current().is_over() {
            self.task.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }

    /// Pending on threads that serve requests: for work that waits for disks.
    #[inline]
    pub(crate) fn leave_io_thread(&mut self) -> Poll<()> {
        if turn::is_inline() {
            self.task.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    }
}

/// The end of a sequence, as an outcome.
pub(crate) const END: Next = Poll::Ready(Ok(None));

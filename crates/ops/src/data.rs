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
pub(crate) mod state;
pub(crate) mod stats;
mod waits;

pub(crate) use caller::{Caller, Function, PendingCall};
pub(crate) use context::IteratorCx;
pub(crate) use dataset::{Dataset, INFINITE, Spec, UNKNOWN, kernel, kernel_of, scalar};
pub(crate) use waits::{Activity, Note};

use self::state::{Restorer, Saver};
use ferroflow_core::turn::{self, Turn};
use ferroflow_core::{Result, Status, Tensor, status};
use std::task::{Context, Poll};

/// The components of one element.
pub(crate) type Element = Vec<Tensor>;

/// The outcome of polling a source: an element, or `None` at the end.
pub(crate) type Next = Poll<Result<Option<Element>>>;

/// A running pipeline.
pub(crate) trait Source: Send {
    /// The next element.
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next;

    /// Writes the state in stock's format. Called between elements; pending while calls of functions are under way, and
    /// then called again with an empty state. Fails with `Unimplemented` where there is no such state.
    fn poll_save(&mut self, _to: &mut Saver<'_>, _cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        Poll::Ready(Err(stateless()))
    }

    /// Goes on from a state. Called before the first element.
    fn restore(&mut self, _from: &Restorer) -> Result<()> {
        Err(stateless())
    }

    /// Returns whether stock's stage works ahead of its consumer, so that stock adds no prefetch after it.
    fn works_ahead(&mut self) -> bool {
        false
    }

    /// Returns whether the stage is a prefetch in stock, too.
    fn is_prefetch(&self) -> bool {
        false
    }

    /// The stage as one that stock fuses with a batch.
    fn as_map(&mut self) -> Option<&mut dyn MapStage> {
        None
    }

    /// The stage as one that stock fuses with a repeat.
    fn as_shuffle(&mut self) -> Option<&mut dyn ShuffleStage> {
        None
    }
}

/// A stage that calls a function for each element of its input.
pub(crate) trait MapStage {
    /// The results that are there, in their order; pending while there are calls under way.
    fn poll_results(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<Vec<Element>>>;

    /// The stage that feeds it.
    fn input(&mut self) -> &mut Box<dyn Source>;
}

/// A stage that shuffles the elements of its input.
pub(crate) trait ShuffleStage {
    /// Writes the state as that of a repeated shuffle, of which this many runs have ended.
    fn poll_save_repeated(
        &mut self,
        ended: u64,
        to: &mut Saver<'_>,
        cx: &mut SourceCx<'_, '_>,
    ) -> Poll<Result<()>>;
}

/// A source that has ended.
pub(crate) struct Ended;

impl Source for Ended {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        END
    }
}

/// The error of stages without a state in stock's format; [`waits::StageSource`] names the stage.
fn stateless() -> Status {
    status!(Unimplemented, "")
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

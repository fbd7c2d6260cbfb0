//! Turns: the time that a step may use a thread before the thread does something else.
//!
//! A step has one turn per poll. The functions that it calls share the turn, however deeply nested, so that a loop of
//! many short calls yields like a loop of many nodes. They find the turn in a thread-local, because the kernels between
//! them know nothing of turns.

use crate::trace::StepTrace;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The time that a step may use the thread that took the request before it moves to the compute threads.
const INLINE_TURN: Duration = Duration::from_micros(500);
/// The time that a step may use a compute thread before it goes back to the queue.
const COMPUTE_TURN: Duration = Duration::from_millis(5);

thread_local! {
    static CURRENT: Cell<Option<Turn>> = const { Cell::new(None) };
    static TRACE: RefCell<Option<Arc<StepTrace>>> = const { RefCell::new(None) };
}

/// A step's turn on a thread.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// True on the thread that took the request, which also serves other requests.
    pub(crate) inline: bool,
    until: Instant,
}

impl Turn {
    /// A turn that starts now.
    pub(crate) fn new(inline: bool) -> Turn {
        let length = if inline { INLINE_TURN } else { COMPUTE_TURN };
        Turn { inline, until: Instant::now() + length }
    }

    /// The turn of the step that this thread is polling, or a new one.
    pub(crate) fn current() -> Turn {
        CURRENT.get().unwrap_or_else(|| Turn::new(false))
    }

    /// Returns whether the thread should do something else.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        Instant::now() > self.until
    }

    /// Makes this the thread's current turn until the guard is dropped.
    pub(crate) fn begin(self, trace: &Option<Arc<StepTrace>>) -> TurnGuard {
        let traced = trace.is_some();
        if traced {
            TRACE.set(trace.clone());
        }
        TurnGuard { outer: CURRENT.replace(Some(self)), traced }
    }
}

/// The trace of the step that this thread is polling.
pub(crate) fn current_trace() -> Option<Arc<StepTrace>> {
    TRACE.with_borrow(Option::clone)
}

/// Resolves when polled by a compute thread: for long work that cannot be interrupted.
pub(crate) async fn on_compute_thread() {
    poll_fn(|context| match CURRENT.get() {
        Some(Turn { inline: true, .. }) => {
            context.waker().wake_by_ref();
            Poll::Pending
        }
        _ => Poll::Ready(()),
    })
    .await;
}

/// Restores the thread's outer turn when dropped.
pub(crate) struct TurnGuard {
    outer: Option<Turn>,
    traced: bool,
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
        if self.traced {
            TRACE.set(None);
        }
    }
}

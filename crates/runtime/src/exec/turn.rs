//! Turns: how long a thread goes on with a step before it does something else.
//!
//! A step has one turn per poll. The runs of functions that the step calls share it, however deep they are, so that a loop
//! of many short calls ends its turn like one of many nodes. They find it by the thread, since kernels between them know
//! nothing of turns.

use crate::trace::StepTrace;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// How long a step may use the thread that took the request before it moves to the compute threads.
const INLINE_TURN: Duration = Duration::from_micros(500);
/// How long a step may use a compute thread while others wait for one.
const COMPUTE_TURN: Duration = Duration::from_millis(5);

thread_local! {
    static CURRENT: Cell<Option<Turn>> = const { Cell::new(None) };
    static TRACE: RefCell<Option<Arc<StepTrace>>> = const { RefCell::new(None) };
}

/// A step's turn on a thread.
#[derive(Clone, Copy)]
pub(crate) struct Turn {
    /// Whether this is the thread that took the request, which has other things to do as well.
    pub(crate) inline: bool,
    until: Instant,
}

impl Turn {
    /// A turn that begins now.
    pub(crate) fn new(inline: bool) -> Turn {
        let length = if inline { INLINE_TURN } else { COMPUTE_TURN };
        Turn { inline, until: Instant::now() + length }
    }

    /// The turn of the step that this thread polls; a new one if it polls none.
    pub(crate) fn current() -> Turn {
        CURRENT.get().unwrap_or_else(|| Turn::new(false))
    }

    /// Whether the thread should do something else.
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

/// The trace of the step that this thread polls.
pub(crate) fn current_trace() -> Option<Arc<StepTrace>> {
    TRACE.with_borrow(Option::clone)
}

/// Ends when a compute thread polls it: for work that takes long and cannot be interrupted.
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

/// Gives the thread back when a turn is over.
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

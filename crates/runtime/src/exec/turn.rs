//! The turn of a step that the executor drives, with the trace that functions called in it record to.
//!
//! A step has one turn per poll. The functions that it calls share the turn, however deeply nested, so that a loop of
//! many short calls yields like a loop of many nodes.

use crate::trace::StepTrace;
use ferroflow_core::turn::{self, Turn, TurnGuard};
use std::cell::RefCell;
use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

thread_local! {
    static TRACE: RefCell<Option<Arc<StepTrace>>> = const { RefCell::new(None) };
}

/// Makes this the thread's current turn, and its trace the current one, until the guard is dropped.
pub(crate) fn begin(turn: Turn, trace: &Option<Arc<StepTrace>>) -> TracedTurn {
    let traced = trace.is_some();
    if traced {
        TRACE.set(trace.clone());
    }
    TracedTurn { _turn: turn.begin(), traced }
}

/// The trace of the step that this thread is polling.
pub(crate) fn current_trace() -> Option<Arc<StepTrace>> {
    TRACE.with_borrow(Option::clone)
}

/// Resolves when polled by a compute thread: for long work that cannot be interrupted.
pub(crate) async fn on_compute_thread() {
    poll_fn(|context| {
        if turn::is_inline() {
            context.waker().wake_by_ref();
            return Poll::Pending;
        }
        Poll::Ready(())
    })
    .await;
}

/// Restores the thread's outer turn when dropped.
pub(crate) struct TracedTurn {
    _turn: TurnGuard,
    traced: bool,
}

impl Drop for TracedTurn {
    fn drop(&mut self) {
        if self.traced {
            TRACE.set(None);
        }
    }
}

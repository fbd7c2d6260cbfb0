//! Turns: the time that a step may use a thread before the thread does something else.
//!
//! The executor begins a turn whenever it polls a step. Whatever the step drives within, called functions and input
//! pipelines, finds the turn in a thread-local and yields when it is over.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// The time that a step may use the thread that took the request before it moves to the compute threads.
const INLINE_TURN: Duration = Duration::from_micros(500);
/// The time that a step may use a compute thread before it goes back to the queue.
const COMPUTE_TURN: Duration = Duration::from_millis(5);

thread_local! {
    static CURRENT: Cell<Option<Turn>> = const { Cell::new(None) };
}

/// A step's turn on a thread.
#[derive(Clone, Copy)]
pub struct Turn {
    /// True on the thread that took the request, which also serves other requests.
    pub inline: bool,
    until: Instant,
}

impl Turn {
    /// A turn that starts now.
    pub fn new(inline: bool) -> Turn {
        let length = if inline { INLINE_TURN } else { COMPUTE_TURN };
        Turn { inline, until: Instant::now() + length }
    }

    /// The turn of the step that this thread is polling, or a new one.
    pub fn current() -> Turn {
        CURRENT.get().unwrap_or_else(|| Turn::new(false))
    }

    /// Returns whether the thread should do something else.
    #[inline]
    pub fn is_over(&self) -> bool {
        Instant::now() > self.until
    }

    /// Makes this the thread's current turn until the guard is dropped.
    pub fn begin(self) -> TurnGuard {
        TurnGuard { outer: CURRENT.replace(Some(self)) }
    }
}

/// Returns whether this thread also serves requests, so that it must not wait for a disk or compute for long.
pub fn is_inline() -> bool {
    CURRENT.get().is_some_and(|turn| turn.inline)
}

/// Restores the thread's outer turn when dropped.
pub struct TurnGuard {
    outer: Option<Turn>,
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        CURRENT.set(self.outer);
    }
}

//! The inbox of a step: events from other threads for the owner that drives it.

use super::frames::Token;
use ferroflow_core::Result;
use ferroflow_core::kernel::Outputs;
use futures_util::task::AtomicWaker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Instant;

/// An event for the owner of a step.
pub(crate) enum Event {
    /// A kernel on another thread has completed. The time is its start, if the step is traced.
    Done(Token, Result<Outputs>, Option<Instant>),
    /// A pending kernel, by index, wants to be polled.
    Poll(u32),
}

/// The inbox of one step.
#[derive(Default)]
pub(crate) struct Inbox {
    events: Mutex<Vec<Event>>,
    owner: AtomicWaker,
    /// True after the step has ended.
    closed: AtomicBool,
}

const UNPOISONED: &str = "no panic while the inbox is locked";

impl Inbox {
    /// Adds an event and wakes the step's owner.
    pub(crate) fn push(&self, event: Event) {
        self.events.lock().expect(UNPOISONED).push(event);
        self.owner.wake();
    }

    /// Sets the waker of the step's owner.
    pub(crate) fn register(&self, waker: &Waker) {
        self.owner.register(waker);
    }

    /// Takes all events.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().expect(UNPOISONED))
    }

    /// Marks the step as ended: queued work for it need not run.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Returns whether the step has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Returns whether there are no events.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.lock().expect(UNPOISONED).is_empty()
    }
}

/// Wakes the owner of a step on behalf of one pending kernel.
pub(crate) struct KernelWaker {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) kernel: u32,
}

impl Wake for KernelWaker {
    fn wake(self: Arc<Self>) {
        self.inbox.push(Event::Poll(self.kernel));
    }
}

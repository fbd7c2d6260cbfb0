//! How other threads tell the owner of a step that something has happened.

use super::frames::Token;
use ferroflow_core::Result;
use ferroflow_core::kernel::Outputs;
use futures_util::task::AtomicWaker;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::Instant;

/// What happened elsewhere.
pub(crate) enum Event {
    /// A kernel that ran on another thread is done; with when it began, if the step is traced.
    Done(Token, Result<Outputs>, Option<Instant>),
    /// A waiting kernel wants to be polled.
    Poll(u32),
}

/// The inbox of one step.
#[derive(Default)]
pub(crate) struct Inbox {
    events: Mutex<Vec<Event>>,
    owner: AtomicWaker,
    /// Whether nobody waits for events any more.
    closed: AtomicBool,
}

const UNPOISONED: &str = "no panic while the inbox is locked";

impl Inbox {
    /// Adds an event and wakes the step's owner.
    pub(crate) fn push(&self, event: Event) {
        self.events.lock().expect(UNPOISONED).push(event);
        self.owner.wake();
    }

    /// Says whom to wake.
    pub(crate) fn register(&self, waker: &Waker) {
        self.owner.register(waker);
    }

    /// Takes every event.
    pub(crate) fn take(&self) -> Vec<Event> {
        std::mem::take(&mut self.events.lock().expect(UNPOISONED))
    }

    /// Says that the step has ended: work that waits for a thread need not be done.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    /// Whether the step has ended.
    pub(crate) fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    /// Whether nothing has happened.
    pub(crate) fn is_empty(&self) -> bool {
        self.events.lock().expect(UNPOISONED).is_empty()
    }
}

/// Wakes the owner of a step on behalf of one waiting kernel.
pub(crate) struct KernelWaker {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) waiting: u32,
}

impl Wake for KernelWaker {
    fn wake(self: Arc<Self>) {
        self.inbox.push(Event::Poll(self.waiting));
    }
}

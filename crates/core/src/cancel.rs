//! Cancellation of a step: a flag that loops check and a future that waits race against.
//!
//! The runtime and the cluster decide when to cancel: a client asks for it, a deadline passes, or another part of the
//! step fails.

use crate::Status;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// The cancellation of one step, shared by everything that works for it. Cloning shares.
#[derive(Clone, Default)]
pub struct Cancellation(Arc<Inner>);

#[derive(Default)]
struct Inner {
    flag: AtomicBool,
    /// The reason, and the wakers to wake.
    state: Mutex<(Option<Status>, Vec<Waker>)>,
}

impl Cancellation {
    /// A cancellation that has not happened.
    pub fn new() -> Cancellation {
        Cancellation::default()
    }

    /// Cancels the step; the first reason is kept.
    pub fn cancel(&self, reason: Status) {
        let wakers = {
            let mut state = self.0.state.lock().expect("no panic while cancelling");
            if state.0.is_some() {
                return;
            }
            state.0 = Some(reason);
            self.0.flag.store(true, Ordering::Release);
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Returns whether [`Cancellation::cancel`] was called. Cheap enough to call for every node.
    #[inline]
    pub fn is_cancelled(&self) -> bool {
        self.0.flag.load(Ordering::Relaxed)
    }

    /// The reason, once cancelled.
    pub fn reason(&self) -> Option<Status> {
        self.0.state.lock().expect("no panic while cancelling").0.clone()
    }

    /// A future that resolves to the reason when the step is cancelled.
    pub fn cancelled(&self) -> Cancelled {
        Cancelled(self.clone())
    }

    /// Registers a waker for cancellation; returns true if the step is cancelled already.
    pub fn wake_on_cancel(&self, waker: &Waker) -> bool {
        let mut state = self.0.state.lock().expect("no panic while cancelling");
        if state.0.is_some() {
            return true;
        }
        if !state.1.iter().any(|known| known.will_wake(waker)) {
            state.1.push(waker.clone());
        }
        false
    }
}

/// The future of [`Cancellation::cancelled`].
pub struct Cancelled(Cancellation);

impl Future for Cancelled {
    type Output = Status;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Status> {
        if self.0.wake_on_cancel(context.waker()) {
            return Poll::Ready(self.0.reason().expect("a reason is set before the flag"));
        }
        Poll::Pending
    }
}

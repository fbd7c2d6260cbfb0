//! A value that steps wait for: each change wakes all of them.

use ferroflow_core::{Result, status};
use std::future::poll_fn;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Waker};

/// A value behind a lock, and those who wait for it to change.
pub(crate) struct Watched<T>(Mutex<State<T>>);

struct State<T> {
    value: T,
    /// Set when the container that keeps the value is cleared.
    gone: bool,
    next_ticket: u64,
    waiters: Vec<(u64, Waker)>,
}

impl<T> State<T> {
    fn wake_all(&mut self) {
        self.waiters.drain(..).for_each(|(_, waker)| waker.wake());
    }
}

/// Forgets a wait that is dropped.
struct Waiting<'a, T>(&'a Watched<T>, u64);

impl<T> Drop for Waiting<'_, T> {
    fn drop(&mut self) {
        self.0.lock().waiters.retain(|(ticket, _)| *ticket != self.1);
    }
}

impl<T> Watched<T> {
    pub(crate) fn new(value: T) -> Watched<T> {
        Watched(Mutex::new(State { value, gone: false, next_ticket: 0, waiters: Vec::new() }))
    }

    /// Looks at the value.
    pub(crate) fn look<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&self.lock().value)
    }

    /// Changes the value and wakes those who wait.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut state = self.lock();
        let outcome = change(&mut state.value);
        state.wake_all();
        outcome
    }

    /// Attempts something now and after each change, until it is ready. An attempt that is not ready changes nothing.
    pub(crate) async fn until<R>(
        &self,
        what: &str,
        mut attempt: impl FnMut(&mut T) -> Poll<Result<R>>,
    ) -> Result<R> {
        let waiting = Waiting(self, self.ticket());
        poll_fn(|context| {
            let mut state = self.lock();
            if state.gone {
                return Poll::Ready(Err(status!(
                    Cancelled,
                    "{what} was deleted while a step waited for it."
                )));
            }
            let outcome = attempt(&mut state.value);
            if outcome.is_ready() {
                state.wake_all();
                return outcome;
            }
            let ticket = waiting.1;
            match state.waiters.iter_mut().find(|(known, _)| *known == ticket) {
                Some((_, waker)) => waker.clone_from(context.waker()),
                None => state.waiters.push((ticket, context.waker().clone())),
            }
            Poll::Pending
        })
        .await
    }

    fn ticket(&self) -> u64 {
        let mut state = self.lock();
        state.next_ticket += 1;
        state.next_ticket
    }

    /// Ends every wait.
    pub(crate) fn abandon(&self) {
        let mut state = self.lock();
        state.gone = true;
        state.wake_all();
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        // Values are whole at every point where a panic could happen.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;
    use futures_util::FutureExt;

    #[test]
    fn waits_end_with_a_change_or_with_the_value() {
        let watched = Watched::new(0);
        let two = |value: &mut i32| if *value == 2 { Poll::Ready(Ok(())) } else { Poll::Pending };
        let mut first = Box::pin(watched.until("it", two));
        let mut second = Box::pin(watched.until("it", two));
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(second);
        assert_eq!(watched.lock().waiters.len(), 1);
        watched.change(|value| *value = 2);
        assert!(first.now_or_never().unwrap().is_ok());
        watched.change(|value| *value = 0);
        let mut third = Box::pin(watched.until("it", two));
        assert!((&mut third).now_or_never().is_none());
        watched.abandon();
        assert_eq!(third.now_or_never().unwrap().unwrap_err().code(), Code::Cancelled);
    }
}

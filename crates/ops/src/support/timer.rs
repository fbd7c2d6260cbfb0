//! Waits for a moment, on one thread for the whole process, which starts with the first wait.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Poll, Waker};
use std::time::Instant;

/// Waits by their moments; the number tells those of one moment apart.
type Key = (Instant, u64);

#[derive(Default)]
struct Timer {
    waits: Mutex<(BTreeMap<Key, Option<Waker>>, u64)>,
    changed: Condvar,
}

impl Timer {
    fn lock(&self) -> MutexGuard<'_, (BTreeMap<Key, Option<Waker>>, u64)> {
        self.waits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes whose moment has come, for ever.
    fn run(&self) {
        let mut waits = self.lock();
        loop {
            let now = Instant::now();
            for (_, waker) in waits.0.range_mut(..=(now, u64::MAX)) {
                if let Some(waker) = waker.take() {
                    waker.wake();
                }
            }
            let next = waits.0.iter().find(|(_, waker)| waker.is_some()).map(|((moment, _), _)| *moment);
            waits = match next {
                Some(next) => {
                    let pause = next.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(waits, pause).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(waits).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }
}

fn timer() -> &'static Timer {
    static TIMER: OnceLock<Timer> = OnceLock::new();
    static THREAD: OnceLock<()> = OnceLock::new();
    let timer = TIMER.get_or_init(Timer::default);
    THREAD.get_or_init(|| {
        // Without the thread, waits end when something else wakes them.
        let _ = std::thread::Builder::new().name("timer".to_owned()).spawn(|| timer.run());
    });
    timer
}

/// Forgets a wait that is over.
struct Wait(Key);

impl Drop for Wait {
    fn drop(&mut self) {
        timer().lock().0.remove(&self.0);
    }
}

/// Waits until a moment.
pub(crate) async fn sleep_until(moment: Instant) {
    let wait = Wait(enter(moment));
    poll_fn(|context| {
        if Instant::now() >= moment {
            return Poll::Ready(());
        }
        timer().lock().0.insert(wait.0, Some(context.waker().clone()));
        timer().changed.notify_one();
        Poll::Pending
    })
    .await;
}

fn enter(moment: Instant) -> Key {
    let mut waits = timer().lock();
    waits.1 += 1;
    (moment, waits.1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait;
    use std::time::Duration;

    #[test]
    fn waits_end_at_their_moments() {
        let start = Instant::now();
        wait(sleep_until(start + Duration::from_millis(3)));
        assert!(start.elapsed() >= Duration::from_millis(3));
        wait(sleep_until(start));
        assert!(timer().lock().0.is_empty());
    }
}

//! Waits of whatever runs on a device beside the nodes of steps, such as iterators: they are asked when somebody wants
//! to know why nothing goes on, so that nothing has to be measured before.

use std::sync::{Arc, Mutex, Weak};
use std::time::Instant;

const UNPOISONED: &str = "no panic while waits are listed";

/// A wait that has not ended.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The thing waited for, as a noun phrase.
    pub whom: String,
    /// The reason why it has not come, as a sentence without a period.
    pub why: String,
    /// The beginning of the wait.
    pub since: Instant,
}

/// Something that others may wait for.
pub trait Waiter: Send + Sync {
    /// Returns the wait; `None` if nobody waits.
    fn wait(&self) -> Option<Wait>;
}

/// The waiters of a device.
#[derive(Default)]
pub struct Waits(Mutex<Waiters>);

#[derive(Default)]
struct Waiters {
    known: Vec<Weak<dyn Waiter>>,
    /// The number of waiters at which those that have ended are forgotten.
    crowded: usize,
}

impl Waits {
    /// Adds a waiter, for as long as it lives.
    pub fn register(&self, waiter: Weak<dyn Waiter>) {
        let mut waiters = self.0.lock().expect(UNPOISONED);
        if waiters.known.len() >= waiters.crowded {
            waiters.known.retain(|waiter| waiter.strong_count() > 0);
            waiters.crowded = 2 * waiters.known.len() + 16;
        }
        waiters.known.push(waiter);
    }

    /// Returns the waits that have not ended.
    pub fn now(&self) -> Vec<Wait> {
        let known: Vec<Arc<dyn Waiter>> = {
            let waiters = self.0.lock().expect(UNPOISONED);
            waiters.known.iter().filter_map(Weak::upgrade).collect()
        };
        known.iter().filter_map(|waiter| waiter.wait()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Idle;

    impl Waiter for Idle {
        fn wait(&self) -> Option<Wait> {
            Some(Wait { whom: "work".to_owned(), why: "there is none".to_owned(), since: Instant::now() })
        }
    }

    #[test]
    fn waiters_that_have_ended_are_forgotten() {
        let waits = Waits::default();
        let idle: Arc<dyn Waiter> = Arc::new(Idle);
        waits.register(Arc::downgrade(&idle));
        for _ in 0..1000 {
            let ended: Arc<dyn Waiter> = Arc::new(Idle);
            waits.register(Arc::downgrade(&ended));
        }
        assert_eq!(waits.now().len(), 1);
        assert!(waits.0.lock().unwrap().known.len() < 40);
    }
}

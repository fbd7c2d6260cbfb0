//! Connections as evidence that somebody may still use a session.
//!
//! A handle may be known to several programs, so a session is in use as long as one of the connections on which it was
//! used is open. [`crate::master`] and [`crate::worker`] reclaim sessions by this rule if the server is configured to.

use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// A token that lives as long as a connection does.
#[derive(Clone, Default)]
pub(crate) struct Presence(Arc<()>);

/// The connections on which a session was used.
#[derive(Default)]
pub(crate) struct Users(Mutex<Vec<Weak<()>>>);

const UNPOISONED: &str = "no panic while users are locked";

impl Users {
    /// Adds a connection.
    pub(crate) fn add(&self, presence: &Presence) {
        let mut users = self.0.lock().expect(UNPOISONED);
        if !users.iter().any(|user| std::ptr::eq(user.as_ptr(), Arc::as_ptr(&presence.0))) {
            users.retain(|user| user.strong_count() > 0);
            users.push(Arc::downgrade(&presence.0));
        }
    }

    /// Returns whether there were connections and all of them are closed. A session that was never used over a connection
    /// belongs to a program of this process.
    pub(crate) fn are_gone(&self) -> bool {
        let users = self.0.lock().expect(UNPOISONED);
        !users.is_empty() && users.iter().all(|user| user.strong_count() == 0)
    }
}

/// The interval at which to look for unused sessions that are reclaimed after `after`.
pub(crate) fn look_interval(after: Duration) -> Duration {
    (after / 4).clamp(Duration::from_millis(10), Duration::from_secs(5))
}

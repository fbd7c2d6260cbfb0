//! Detection of repeated requests: clients retry a call whose response was lost, and a step must not run twice.

use ferroflow_core::{Result, ensure};
use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

/// The ids of the most recent requests.
pub(crate) struct RecentRequests {
    remembered: usize,
    recent: Mutex<Recent>,
}

#[derive(Default)]
struct Recent {
    known: HashSet<i64>,
    /// The same ids, oldest first.
    order: VecDeque<i64>,
}

impl RecentRequests {
    /// Creates a set that remembers this many requests.
    pub(crate) fn new(remembered: usize) -> RecentRequests {
        RecentRequests { remembered, recent: Mutex::default() }
    }

    /// Records a request; fails if it was received before. Requests with id 0 are not recorded.
    pub(crate) fn track(&self, id: i64, method: &str) -> Result<()> {
        if id == 0 {
            return Ok(());
        }
        let mut recent = self.recent.lock().expect("no panic while ids are locked");
        ensure!(recent.known.insert(id), Aborted, "The same {method} request was received twice.");
        recent.order.push_back(id);
        if recent.order.len() > self.remembered
            && let Some(oldest) = recent.order.pop_front()
        {
            recent.known.remove(&oldest);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_are_found_until_they_are_old() {
        let requests = RecentRequests::new(1000);
        assert!(requests.track(0, "M").is_ok() && requests.track(0, "M").is_ok());
        assert!(requests.track(7, "M").is_ok());
        assert!(requests.track(7, "M").is_err());
        for id in 100..1100 {
            requests.track(id, "M").unwrap();
        }
        assert!(requests.track(7, "M").is_ok());
    }
}

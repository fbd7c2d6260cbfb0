//! Finds repetitions of a request: clients send a call again when its answer was lost, and a step must not run twice.

use ferroflow_core::{Result, ensure};
use std::collections::{HashSet, VecDeque};
use std::sync::Mutex;

/// How many requests are remembered, as in stock's master.
const REMEMBERED: usize = 10_000;

/// The ids of the latest requests.
#[derive(Default)]
pub(crate) struct RecentRequests(Mutex<Recent>);

#[derive(Default)]
struct Recent {
    known: HashSet<i64>,
    /// The same ids, oldest first.
    order: VecDeque<i64>,
}

impl RecentRequests {
    /// Remembers a request; refuses it if it was received before. The id 0 asks not to be remembered.
    pub(crate) fn track(&self, id: i64, method: &str) -> Result<()> {
        if id == 0 {
            return Ok(());
        }
        let mut recent = self.0.lock().expect("no panic while ids are locked");
        ensure!(recent.known.insert(id), Aborted, "The same {method} request was received twice.");
        recent.order.push_back(id);
        if recent.order.len() > REMEMBERED
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
        let requests = RecentRequests::default();
        assert!(requests.track(0, "M").is_ok() && requests.track(0, "M").is_ok());
        assert!(requests.track(7, "M").is_ok());
        assert!(requests.track(7, "M").is_err());
        for id in 100..100 + REMEMBERED as i64 {
            requests.track(id, "M").unwrap();
        }
        assert!(requests.track(7, "M").is_ok());
    }
}

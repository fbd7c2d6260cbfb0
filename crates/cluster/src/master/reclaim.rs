//! Reclaims sessions whose programs ended without closing them.
//!
//! Stock keeps such a session forever, because another program may know its handle, and so does a master by default. A
//! master that is configured to reclaim closes a session some time after the last connection on which it was used has
//! ended. [`crate::worker`] does the same for the sessions that masters of other tasks leave behind.

use super::{Master, MasterSession, UNPOISONED};
use crate::presence::{Presence, look_interval};
use ferroflow_core::status;
use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

impl Master {
    /// Records that a session is used on a connection, if sessions are reclaimed.
    #[inline]
    pub(crate) fn used_by(&self, handle: &str, presence: &Presence) {
        if self.reclaim_after.is_some()
            && let Ok(session) = self.session(handle)
        {
            session.users.add(presence);
        }
    }

    /// The time after which abandoned sessions are closed; `None` keeps them.
    pub(crate) fn reclaim_after(&self) -> Option<Duration> {
        self.reclaim_after
    }

    /// Returns the handles of the sessions whose connections are closed and in which nothing runs but partial runs: other
    /// steps end with their calls, but a partial run waits for calls that cannot come any more.
    fn unused_sessions(&self) -> HashSet<String> {
        let unused = |session: &MasterSession| {
            session.users.are_gone() && session.steps.count() <= session.partial_runs.count()
        };
        let sessions = self.sessions.read().expect(UNPOISONED);
        let unused = sessions.iter().filter(|(_, session)| unused(session));
        unused.map(|(handle, _)| handle.clone()).collect()
    }

    /// Closes abandoned sessions as they appear; never returns.
    pub(crate) async fn reclaim_sessions(&self) {
        let Some(after) = self.reclaim_after else { return std::future::pending().await };
        let mut gone: HashMap<String, Instant> = HashMap::new();
        loop {
            tokio::time::sleep(look_interval(after)).await;
            let unused = self.unused_sessions();
            gone.retain(|handle, _| unused.contains(handle));
            for handle in unused {
                let since = *gone.entry(handle.clone()).or_insert_with(Instant::now);
                if since.elapsed() >= after
                    && let Ok(session) = self.remove(&handle)
                {
                    let seconds = since.elapsed().as_secs();
                    tracing::info!(session = handle, seconds, "Closing a session whose program is gone.");
                    session
                        .close(status!(Aborted, "Session {handle} was closed: its program is gone."))
                        .await;
                }
            }
        }
    }
}

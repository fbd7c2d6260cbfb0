//! Reclaims the sessions of masters that ended without deleting them.
//!
//! Stock's workers keep such a session until a master of the same task opens one under another incarnation, and so does
//! this one by default. A worker that is configured to reclaim deletes a session some time after the last connection on
//! which it was used has ended, unless its master still answers: an idle master may close its connections and come back.
//! [`crate::master`] does the same for the sessions of programs.

use super::Worker;
use super::sessions::UnusedSession;
use crate::presence::{Presence, look_interval};
use futures_util::future::join_all;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The number of masters that are asked at the same time whether they are alive.
const ASKED_AT_ONCE: usize = 64;

impl Worker {
    /// Records that a session is used on a connection, if sessions are reclaimed.
    #[inline]
    pub(crate) fn session_used_by(&self, handle: &str, presence: &Presence) {
        self.sessions.used_by(handle, presence);
    }

    /// Turns on what [`Worker::reclaim_sessions`] needs to know.
    pub(crate) fn track_session_users(&self) {
        self.sessions.track_users();
    }

    /// Deletes abandoned sessions as they appear; never returns. `after` is the time for which no connection may have
    /// used a session; `None` keeps all of them.
    pub(crate) async fn reclaim_sessions(&self, after: Option<Duration>) {
        let Some(after) = after else { return std::future::pending().await };
        let mut unused_since: HashMap<String, Instant> = HashMap::new();
        loop {
            tokio::time::sleep(look_interval(after)).await;
            let unused = self.sessions.unused();
            let now = Instant::now();
            let seen_before = |handle: &String| unused_since.get(handle).copied().unwrap_or(now);
            let mut since: HashMap<String, Instant> =
                unused.iter().map(|session| (session.handle.clone(), seen_before(&session.handle))).collect();
            let mut due = unused;
            due.retain(|session| now - since[&session.handle] >= after);
            for sessions in due.chunks(ASKED_AT_ONCE) {
                join_all(sessions.iter().map(|session| self.reclaim(session, now - since[&session.handle])))
                    .await;
            }
            // A master that is alive is asked again after another such time.
            for session in &due {
                since.remove(&session.handle);
            }
            unused_since = since;
            self.steps.sweep();
        }
    }

    async fn reclaim(&self, session: &UnusedSession, unused: Duration) {
        let UnusedSession { handle, master_task, master } = session;
        if !master_task.is_empty() && self.find_master(master_task, master).await.is_some() {
            return;
        }
        let Some(session) = self.sessions.take_unused(handle) else { return };
        let seconds = unused.as_secs();
        tracing::info!(
            session = handle,
            master = master_task,
            seconds,
            "Deleting a session whose master is gone."
        );
        // A partial run holds its session, so the session does not end it.
        self.steps.cleanup_session(&session);
    }
}

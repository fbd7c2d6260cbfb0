//! Sessions whose programs are gone without closing them. Stock keeps such a session for ever, for whoever knows its
//! handle, and so does a master that was not told otherwise; one that was closes it some time after the last connection
//! on which it was used has ended.

use super::{Master, MasterSession, UNPOISONED};
use ferroflow_core::status;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

/// A connection as long as it lasts.
#[derive(Clone, Default)]
pub(crate) struct Presence(Arc<()>);

/// The connections on which a session was used.
#[derive(Default)]
pub(super) struct Users(Mutex<Vec<Weak<()>>>);

impl Users {
    fn add(&self, presence: &Presence) {
        let mut users = self.0.lock().expect(UNPOISONED);
        if !users.iter().any(|user| std::ptr::eq(user.as_ptr(), Arc::as_ptr(&presence.0))) {
            users.retain(|user| user.strong_count() > 0);
            users.push(Arc::downgrade(&presence.0));
        }
    }

    /// Whether all of them are gone. A session that nobody has used over a connection belongs to a program of this
    /// process.
    fn are_gone(&self) -> bool {
        let users = self.0.lock().expect(UNPOISONED);
        !users.is_empty() && users.iter().all(|user| user.strong_count() == 0)
    }
}

impl Master {
    /// Notes that a session is used on this connection, if anybody wants to know.
    #[inline]
    pub(crate) fn used_by(&self, handle: &str, presence: &Presence) {
        if self.reclaim_after.is_some()
            && let Ok(session) = self.session(handle)
        {
            session.users.add(presence);
        }
    }

    /// The handles of sessions whose connections are gone, and in which nothing runs.
    fn unused_sessions(&self) -> Vec<String> {
        let unused = |session: &MasterSession| session.users.are_gone() && session.steps.count() == 0;
        let sessions = self.sessions.read().expect(UNPOISONED);
        let unused = sessions.iter().filter(|(_, session)| unused(session));
        unused.map(|(handle, _)| handle.clone()).collect()
    }

    /// Closes sessions that nobody can use any more, again and again; never ends.
    pub(crate) async fn reclaim_sessions(&self) {
        let Some(after) = self.reclaim_after else { return std::future::pending().await };
        let look_every = (after / 4).clamp(Duration::from_millis(10), Duration::from_secs(5));
        let mut gone: HashMap<String, Instant> = HashMap::new();
        loop {
            tokio::time::sleep(look_every).await;
            let unused = self.unused_sessions();
            gone.retain(|handle, _| unused.contains(handle));
            for handle in unused {
                let since = *gone.entry(handle.clone()).or_insert_with(Instant::now);
                if since.elapsed() >= after
                    && let Ok(session) = self.remove(&handle)
                {
                    let seconds = since.elapsed().as_secs();
                    tracing::info!(session = handle, seconds, "A session is closed whose program is gone.");
                    session
                        .close(status!(Aborted, "Session {handle} was closed: its program is gone."))
                        .await;
                }
            }
        }
    }
}

//! Events that cut a wait short: news, or the wish to stop.

use super::record::Note;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Events since the board was last looked at.
#[derive(Default)]
pub(super) struct Wake {
    news: Mutex<News>,
    changed: Condvar,
}

#[derive(Default)]
struct News {
    look: bool,
    stop: bool,
    notes: Vec<Note>,
}

impl Wake {
    /// Ends waits because there is something new on the board.
    pub(super) fn look(&self) {
        self.change(|news| news.look = true);
    }

    /// Ends this wait and all later ones.
    pub(super) fn stop(&self) {
        self.change(|news| news.stop = true);
    }

    /// Adds the note of a task that ended. Notes of strangers do no harm, but do not pile up either.
    pub(super) fn tell(&self, note: Note) {
        self.change(|news| {
            if news.notes.len() < 10_000 && !news.notes.contains(&note) {
                news.notes.push(note);
            }
            news.look = true;
        });
    }

    pub(super) fn notes(&self) -> Vec<Note> {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).notes.clone()
    }

    pub(super) fn stopped(&self) -> bool {
        self.news.lock().unwrap_or_else(PoisonError::into_inner).stop
    }

    /// Waits for news, but not longer than this.
    pub(super) fn wait(&self, longest: Duration) {
        let end = Instant::now() + longest;
        let mut news = self.news.lock().unwrap_or_else(PoisonError::into_inner);
        while !news.look && !news.stop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            news = self.changed.wait_timeout(news, left).unwrap_or_else(PoisonError::into_inner).0;
        }
        news.look = false;
    }

    fn change(&self, change: impl FnOnce(&mut News)) {
        change(&mut self.news.lock().unwrap_or_else(PoisonError::into_inner));
        self.changed.notify_all();
    }
}

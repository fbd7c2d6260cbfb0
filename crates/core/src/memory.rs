//! How much memory there is to be had: a request for more is refused with a word, where the kernel would end the process.

use std::fs::read_to_string;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes of all blocks that are worth asking about and live in this process. The kernel gives a page when it is first
/// written, so that what it calls available includes what was promised a moment ago; there is one such promise for all
/// servers of a process, as there is one memory.
static PROMISED: AtomicUsize = AtomicUsize::new(0);

/// After how many bytes it is worth asking the system, which takes some ten microseconds.
const WORTH_ASKING: usize = 64 << 20;

/// Requests of fewer bytes are not even counted.
const COUNTED: usize = 16 << 10;

/// What is left to everybody else, and for what is handed out before the system is asked again.
const LEFT: usize = 2 * WORTH_ASKING;

/// Counts a block that comes to life.
#[inline]
pub(crate) fn promise(bytes: usize) {
    if bytes >= WORTH_ASKING {
        PROMISED.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Counts a block, given to [`promise`] before, that comes to its end.
#[inline]
pub(crate) fn give_back(bytes: usize) {
    if bytes >= WORTH_ASKING {
        PROMISED.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Whether the machine can give this many bytes now.
pub(crate) fn is_available(bytes: usize) -> bool {
    bytes < WORTH_ASKING || has_room(bytes, 0)
}

/// Asks the system now and then on behalf of somebody who makes many requests, so that neither a large one nor many
/// others together take more than there is.
#[derive(Debug, Default)]
pub(crate) struct Watch {
    /// Bytes that were handed out since the system was asked.
    unasked: AtomicUsize,
}

impl Watch {
    /// Whether a request can be met, if need be after `give_up`, which returns how many bytes it has set free.
    #[inline]
    pub(crate) fn admits(&self, bytes: usize, give_up: impl FnOnce() -> usize) -> bool {
        if bytes < COUNTED {
            return true;
        }
        let unasked = self.unasked.fetch_add(bytes, Ordering::Relaxed).saturating_add(bytes);
        unasked < WORTH_ASKING || self.asks(bytes, give_up)
    }

    #[cold]
    fn asks(&self, bytes: usize, give_up: impl FnOnce() -> usize) -> bool {
        self.unasked.store(0, Ordering::Relaxed);
        // The system hears later of what is set free; it can be had at once.
        has_room(bytes, 0) || has_room(bytes, give_up())
    }
}

fn has_room(bytes: usize, free: usize) -> bool {
    let wanted = bytes.saturating_add(LEFT);
    available().is_none_or(|available| wanted <= available.saturating_add(free))
}

/// The bytes that can be had without taking anybody else's; none where the system does not tell.
#[cold]
fn available() -> Option<usize> {
    let on_machine = machine_room(&read_to_string("/proc/meminfo").ok()?);
    let group = |name: &str| read_to_string(format!("/sys/fs/cgroup/memory.{name}")).unwrap_or_default();
    let in_container = container_room(&group("max"), &group("current"), &group("stat"));
    let room = on_machine.into_iter().chain(in_container).min()?;
    Some(room.saturating_sub(PROMISED.load(Ordering::Relaxed).saturating_sub(resident().unwrap_or(0))))
}

/// The bytes that this process has written to or read.
fn resident() -> Option<usize> {
    let pages: usize = read_to_string("/proc/self/statm").ok()?.split(' ').nth(1)?.parse().ok()?;
    pages.checked_mul(rustix::param::page_size())
}

fn machine_room(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

/// What the limit of a container leaves; there need not be one. Pages of files are given back before it is enforced.
fn container_room(limit: &str, current: &str, statistics: &str) -> Option<usize> {
    let limit: usize = limit.trim().parse().ok()?;
    let current: usize = current.trim().parse().ok()?;
    let files = statistics.lines().find_map(|line| line.strip_prefix("file ")?.trim().parse().ok());
    Some(limit.saturating_sub(current.saturating_sub(files.unwrap_or(0))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_machine_has_everything() {
        assert!(is_available(WORTH_ASKING - 1));
        assert!(!is_available(usize::MAX / 2));
        let watch = Watch::default();
        assert!(!watch.admits(usize::MAX / 2, || 0));
        assert!(watch.admits(usize::MAX / 2, || usize::MAX));
    }

    #[test]
    fn a_promise_counts_before_it_is_kept() {
        let most = available().unwrap_or(0) / 8 * 5;
        assert!(is_available(most));
        promise(most);
        assert!(!is_available(most));
        give_back(most);
        assert!(is_available(most));
    }

    #[test]
    fn many_requests_are_asked_for_like_a_large_one() {
        let watch = Watch::default();
        for _ in 0..8 {
            for _ in 1..128 {
                watch.admits(WORTH_ASKING / 128, || unreachable!("nobody is asked yet"));
                assert_ne!(watch.unasked.load(Ordering::Relaxed), 0);
            }
            watch.admits(WORTH_ASKING / 128, || 0);
            assert_eq!(watch.unasked.load(Ordering::Relaxed), 0);
        }
    }

    #[test]
    fn the_rooms_of_machines_and_containers_are_read() {
        assert_eq!(machine_room("MemTotal: 9 kB\nMemAvailable:    7 kB\n"), Some(7 << 10));
        assert_eq!(machine_room("MemTotal: 9 kB\n"), None);
        assert_eq!(container_room("", "", ""), None);
        assert_eq!(container_room("max\n", "600\n", ""), None);
        assert_eq!(container_room("1000\n", "600\n", ""), Some(400));
        assert_eq!(container_room("1000\n", "600\n", "anon 350\nfile 250\n"), Some(650));
    }
}

//! How much memory there is to be had: a request for more is refused with a word, where the kernel would end the process.

use std::fs::read_to_string;

/// Smaller requests are not worth the question, which takes some ten microseconds.
const WORTH_ASKING: usize = 1 << 30;

/// Whether the machine can give this many bytes now, `kept` of which the process holds for such requests already.
#[inline]
pub(crate) fn is_available(bytes: usize, kept: usize) -> bool {
    bytes < WORTH_ASKING || available().is_none_or(|available| bytes <= available.saturating_add(kept))
}

/// The bytes that can be had without taking anybody else's; none where the system does not tell.
#[cold]
fn available() -> Option<usize> {
    let on_machine = machine_room(&read_to_string("/proc/meminfo").ok()?);
    let group = |name: &str| read_to_string(format!("/sys/fs/cgroup/memory.{name}")).unwrap_or_default();
    let in_container = container_room(&group("max"), &group("current"), &group("stat"));
    on_machine.into_iter().chain(in_container).min()
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
        assert!(is_available(WORTH_ASKING - 1, 0));
        assert!(!is_available(usize::MAX / 2, 0));
        assert!(is_available(usize::MAX / 2, usize::MAX));
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

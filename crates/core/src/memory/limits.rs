//! Memory limits set by the system: the machine's memory, control groups, and resource limits of the process.

use super::cgroup;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs::read_to_string;

/// The reserve for other processes, for memory that is never charged, and for memory handed out before the system is
/// asked again. Smaller where limits are small.
const RESERVE: usize = 128 << 20;

/// The memory usage of this process, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Its address space.
    pub mapped: usize,
    /// Pages in physical memory.
    pub resident: usize,
    /// The private, writable part of its address space.
    pub data: usize,
}

impl Usage {
    /// The current usage; `None` where the system does not report it.
    pub fn now() -> Option<Usage> {
        Usage::parse(&read_to_string("/proc/self/statm").ok()?)
    }

    fn parse(statm: &str) -> Option<Usage> {
        let pages: Vec<usize> = statm.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let bytes = |field: usize| pages.get(field)?.checked_mul(rustix::param::page_size());
        Some(Usage { mapped: bytes(0)?, resident: bytes(1)?, data: bytes(5)? })
    }
}

/// A memory limit that applies to this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The bytes that may be used.
    pub bytes: usize,
    /// The origin of the limit.
    pub source: LimitSource,
}

/// The origin of a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LimitSource {
    /// The machine's physical memory.
    Machine,
    /// A control group that the process is in.
    ControlGroup(String),
    /// `RLIMIT_AS`.
    AddressSpace,
    /// `RLIMIT_DATA`.
    Data,
}

impl fmt::Display for LimitSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LimitSource::Machine => f.write_str("the machine"),
            LimitSource::ControlGroup(name) => write!(f, "control group {name}"),
            LimitSource::AddressSpace => f.write_str("RLIMIT_AS"),
            LimitSource::Data => f.write_str("RLIMIT_DATA"),
        }
    }
}

/// The smallest limit that applies to this process; `None` where the system does not report any.
pub fn least() -> Option<Limit> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| field_of(&text, "MemTotal:"));
    let machine = machine.map(|bytes| Limit { bytes, source: LimitSource::Machine });
    let groups = cgroup::levels().iter().filter_map(|level| {
        let (bytes, _) = level.limit_and_use()?;
        Some(Limit { bytes, source: LimitSource::ControlGroup(level.name().to_owned()) })
    });
    let own = [(Resource::As, LimitSource::AddressSpace), (Resource::Data, LimitSource::Data)];
    let own =
        own.into_iter().filter_map(|(resource, source)| Some(Limit { bytes: current(resource)?, source }));
    machine.into_iter().chain(groups).chain(own).min_by_key(|limit| limit.bytes)
}

/// The result of [`check_room`].
pub(super) struct RoomCheck {
    pub(super) has_room: bool,
    /// The number of bytes after which the system should be asked again.
    pub(super) ask_every: usize,
}

/// Requests smaller than this may use half of the reserve, so that small ones succeed where large ones are refused.
const SMALL: usize = 1 << 20;

/// Checks for every limit whether there is room for `bytes`, assuming that `untouched` bytes were handed out and are
/// not resident yet. `own` is a limit set by an operator, with its usage.
pub(super) fn check_room(
    bytes: usize,
    untouched: usize,
    own: Option<(usize, usize)>,
    usage: &Usage,
) -> RoomCheck {
    let mut check = RoomCheck { has_room: true, ask_every: RESERVE / 2 };
    let needed = |reserve: usize| bytes.saturating_add(if bytes < SMALL { reserve / 2 } else { reserve });
    let mut consider = |room: usize, reserve: usize| {
        check.has_room &= needed(reserve) <= room;
        check.ask_every = check.ask_every.min(reserve / 4);
    };
    if let Some((limit, used)) = own {
        consider(limit.saturating_sub(used), reserve_of(limit));
    }
    if let Some(available) =
        read_to_string("/proc/meminfo").ok().and_then(|text| field_of(&text, "MemAvailable:"))
    {
        consider(available.saturating_sub(untouched), RESERVE);
    }
    for (limit, used) in cgroup::levels().iter().filter_map(cgroup::Level::limit_and_use) {
        consider(limit.saturating_sub(used).saturating_sub(untouched), reserve_of(limit));
    }
    for (resource, used) in [(Resource::As, usage.mapped), (Resource::Data, usage.data)] {
        if let Some(limit) = current(resource) {
            let (room, reserve) = (limit.saturating_sub(used), reserve_of(limit));
            // Mapped memory may be free: then the allocator can reuse it without asking the system.
            let free = needed(reserve) > room && Vec::<u8>::new().try_reserve_exact(needed(reserve)).is_ok();
            consider(if free { usize::MAX } else { room }, reserve);
        }
    }
    check
}

/// Returns whether `RLIMIT_DATA` is set. (Freed memory that the allocator keeps can be reused under `RLIMIT_AS`.)
pub(super) fn is_data_limited() -> bool {
    current(Resource::Data).is_some()
}

fn reserve_of(limit: usize) -> usize {
    RESERVE.min(limit / 8)
}

fn current(resource: Resource) -> Option<usize> {
    usize::try_from(getrlimit(resource).current?).ok()
}

/// The value of a line of `/proc/meminfo`, in bytes.
fn field_of(meminfo: &str, name: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_the_system_are_parsed() {
        assert_eq!(field_of("MemTotal: 9 kB\nMemAvailable:    7 kB\n", "MemAvailable:"), Some(7 << 10));
        assert_eq!(field_of("MemTotal: 9 kB\n", "MemAvailable:"), None);
        let page = rustix::param::page_size();
        let usage = Usage::parse("7 5 3 1 0 4 0\n").unwrap();
        assert_eq!((usage.mapped, usage.resident, usage.data), (7 * page, 5 * page, 4 * page));
        assert!(Usage::parse("7 5\n").is_none());
    }

    #[test]
    fn memory_handed_out_is_not_handed_out_again() {
        let Some(usage) = Usage::now() else { return };
        let least = least().unwrap().bytes;
        assert!(!check_room(least, 0, None, &usage).has_room, "something is in use");
        assert!(check_room(1, 0, None, &usage).has_room, "the test itself runs");
        assert!(!check_room(1, usize::MAX, None, &usage).has_room);
        let own = |used| Some((1000, used));
        assert!(check_room(1, 0, own(0), &usage).has_room);
        assert!(!check_room(1, 0, own(940), &usage).has_room, "a reserve is left to others");
    }
}

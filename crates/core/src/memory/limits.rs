//! The limits that the system sets: the machine's memory, control groups, and the limits of the process.

use super::cgroup;
use rustix::process::{Resource, getrlimit};
use std::fmt;
use std::fs::read_to_string;

/// What is left to everybody else, for what is never charged, and for what is handed out before the system is asked
/// again; less of it where limits are small.
const LEFT: usize = 128 << 20;

/// What this process uses, in bytes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Usage {
    /// Its address space.
    pub mapped: usize,
    /// The pages that it has written to or read.
    pub resident: usize,
    /// The part of its address space that is writable and its own.
    pub data: usize,
}

impl Usage {
    /// What is used now; none where the system does not tell.
    pub fn now() -> Option<Usage> {
        Usage::parse(&read_to_string("/proc/self/statm").ok()?)
    }

    fn parse(statm: &str) -> Option<Usage> {
        let pages: Vec<usize> = statm.split_whitespace().map_while(|field| field.parse().ok()).collect();
        let bytes = |field: usize| pages.get(field)?.checked_mul(rustix::param::page_size());
        Some(Usage { mapped: bytes(0)?, resident: bytes(1)?, data: bytes(5)? })
    }
}

/// A limit of the system that holds for this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limit {
    /// The bytes that may be used.
    pub bytes: usize,
    /// Who sets it.
    pub source: Source,
}

/// Whoever sets a limit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The machine has no more memory.
    Machine,
    /// A control group that the process is in.
    ControlGroup(String),
    /// `RLIMIT_AS`.
    AddressSpace,
    /// `RLIMIT_DATA`.
    Data,
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Machine => f.write_str("the machine"),
            Source::ControlGroup(name) => write!(f, "control group {name}"),
            Source::AddressSpace => f.write_str("RLIMIT_AS"),
            Source::Data => f.write_str("RLIMIT_DATA"),
        }
    }
}

/// The least limit that holds for this process; none where the system does not tell.
pub fn least() -> Option<Limit> {
    let machine = read_to_string("/proc/meminfo").ok().and_then(|text| field_of(&text, "MemTotal:"));
    let machine = machine.map(|bytes| Limit { bytes, source: Source::Machine });
    let groups = cgroup::levels().iter().filter_map(|level| {
        let (bytes, _) = level.limit_and_use()?;
        Some(Limit { bytes, source: Source::ControlGroup(level.name().to_owned()) })
    });
    let own = [(Resource::As, Source::AddressSpace), (Resource::Data, Source::Data)];
    let own =
        own.into_iter().filter_map(|(resource, source)| Some(Limit { bytes: current(resource)?, source }));
    machine.into_iter().chain(groups).chain(own).min_by_key(|limit| limit.bytes)
}

/// Whether the system can give something now.
pub(super) struct Verdict {
    pub(super) is_admitted: bool,
    /// After how many more bytes it should be asked again.
    pub(super) ask_every: usize,
}

/// Requests of fewer bytes may use half of what is left, so that small ones pass where large ones are refused.
const SMALL: usize = 1 << 20;

/// Asks every limit whether it leaves room for `bytes`, when `untouched` bytes that were handed out are not in use yet.
/// `own` is a limit that an operator has set, with what is used of it.
pub(super) fn admit(bytes: usize, untouched: usize, own: Option<(usize, usize)>, usage: &Usage) -> Verdict {
    let mut verdict = Verdict { is_admitted: true, ask_every: LEFT / 2 };
    let needed = |left: usize| bytes.saturating_add(if bytes < SMALL { left / 2 } else { left });
    let mut consider = |room: usize, left: usize| {
        verdict.is_admitted &= needed(left) <= room;
        verdict.ask_every = verdict.ask_every.min(left / 4);
    };
    if let Some((limit, used)) = own {
        consider(limit.saturating_sub(used), left_of(limit));
    }
    if let Some(available) =
        read_to_string("/proc/meminfo").ok().and_then(|text| field_of(&text, "MemAvailable:"))
    {
        consider(available.saturating_sub(untouched), LEFT);
    }
    for (limit, used) in cgroup::levels().iter().filter_map(cgroup::Level::limit_and_use) {
        consider(limit.saturating_sub(used).saturating_sub(untouched), left_of(limit));
    }
    for (resource, used) in [(Resource::As, usage.mapped), (Resource::Data, usage.data)] {
        if let Some(limit) = current(resource) {
            let (room, left) = (limit.saturating_sub(used), left_of(limit));
            // What is mapped may be free: then the allocator can give it without asking the system.
            let free = needed(left) > room && Vec::<u8>::new().try_reserve_exact(needed(left)).is_ok();
            consider(if free { usize::MAX } else { room }, left);
        }
    }
    verdict
}

/// Whether the data of this process is limited. (What the allocator keeps of an address space it can also use.)
pub(super) fn limits_data() -> bool {
    current(Resource::Data).is_some()
}

fn left_of(limit: usize) -> usize {
    LEFT.min(limit / 8)
}

fn current(resource: Resource) -> Option<usize> {
    usize::try_from(getrlimit(resource).current?).ok()
}

/// A line of `/proc/meminfo`, in bytes.
fn field_of(meminfo: &str, name: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(name))?;
    let kibibytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_tells_is_read() {
        assert_eq!(field_of("MemTotal: 9 kB\nMemAvailable:    7 kB\n", "MemAvailable:"), Some(7 << 10));
        assert_eq!(field_of("MemTotal: 9 kB\n", "MemAvailable:"), None);
        let page = rustix::param::page_size();
        let usage = Usage::parse("7 5 3 1 0 4 0\n").unwrap();
        assert_eq!((usage.mapped, usage.resident, usage.data), (7 * page, 5 * page, 4 * page));
        assert!(Usage::parse("7 5\n").is_none());
    }

    #[test]
    fn what_was_handed_out_is_not_handed_out_again() {
        let Some(usage) = Usage::now() else { return };
        let least = least().unwrap().bytes;
        assert!(!admit(least, 0, None, &usage).is_admitted, "something is in use");
        assert!(admit(1, 0, None, &usage).is_admitted, "the test itself runs");
        assert!(!admit(1, usize::MAX, None, &usage).is_admitted);
        let own = |used| Some((1000, used));
        assert!(admit(1, 0, own(0), &usage).is_admitted);
        assert!(!admit(1, 0, own(940), &usage).is_admitted, "some of it is left to others");
    }
}

//! Memory accounting: memory that a request can make the process hold is charged before it is allocated, and refused
//! with a status where the kernel would otherwise kill the process.
//!
//! A [`MemoryBudget`] is a limit and the count of bytes held under it. Budgets form a tree: a connection's budget lies
//! within its server's, which lies within the process's. The process's budget has the limit that operators set, and
//! asks the system now and then how much is left ([`limits`]), which is why this module reads `/proc`: the allocator of
//! tensors needs the answer, and there is nothing to configure. Charges of a few bytes are not counted, so that small
//! tensors stay cheap; the reserve left to the system covers them.

mod cgroup;
pub mod limits;

use crate::{Result, status};
use limits::Usage;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The size below which charges are not counted.
pub const COUNTED_BYTES: usize = 16 << 10;

/// The number of bytes charged between two questions to the system, each of which takes some ten microseconds.
const ASK_EVERY: usize = 64 << 20;

/// A limit on memory, and the count of bytes held under it. Clones share both.
#[derive(Clone, Debug)]
pub struct MemoryBudget(Arc<Account>);

#[derive(Debug)]
struct Account {
    parent: Option<MemoryBudget>,
    limit: AtomicUsize,
    kind: BudgetKind,
    held: AtomicUsize,
    /// Bytes charged since the system was last asked.
    unasked: AtomicUsize,
    /// The value of `unasked` at which the system is asked again.
    ask_every: AtomicUsize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum BudgetKind {
    /// The whole process: limits of the system apply, and resident memory counts, because much of it is never charged.
    Process,
    /// A server's share, which limits the whole process while the server lives.
    Share,
    /// A part of another budget, limited by its own count alone.
    Part,
}

/// The limits of the servers in this process.
static SHARES: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// Adds or removes a limit; the process's limit is the smallest of them.
fn change_shares(change: impl FnOnce(&mut Vec<usize>)) {
    let mut shares = SHARES.lock().unwrap_or_else(PoisonError::into_inner);
    change(&mut shares);
    let least = shares.iter().copied().min().unwrap_or(usize::MAX);
    MemoryBudget::process().0.limit.store(least, Ordering::Relaxed);
}

impl Drop for Account {
    fn drop(&mut self) {
        if self.kind == BudgetKind::Share {
            let limit = *self.limit.get_mut();
            change_shares(|shares| {
                if let Some(at) = shares.iter().position(|share| *share == limit) {
                    shares.swap_remove(at);
                }
            });
        }
    }
}

impl MemoryBudget {
    /// The budget of this process, shared by all servers in it.
    pub fn process() -> &'static MemoryBudget {
        static PROCESS: OnceLock<MemoryBudget> = OnceLock::new();
        PROCESS.get_or_init(|| MemoryBudget::new(None, usize::MAX, BudgetKind::Process))
    }

    /// The budget of a server, which lets the process grow to `limit` bytes. While it lives, the limit applies to the
    /// whole process, because servers of a process share its memory.
    pub fn share(limit: usize) -> MemoryBudget {
        change_shares(|shares| shares.push(limit));
        MemoryBudget::new(Some(MemoryBudget::process().clone()), limit, BudgetKind::Share)
    }

    /// A budget within this one, e.g. for one connection.
    pub fn part(&self, limit: usize) -> MemoryBudget {
        MemoryBudget::new(Some(self.clone()), limit, BudgetKind::Part)
    }

    fn new(parent: Option<MemoryBudget>, limit: usize, kind: BudgetKind) -> MemoryBudget {
        MemoryBudget(Arc::new(Account {
            parent,
            limit: AtomicUsize::new(limit),
            kind,
            held: AtomicUsize::new(0),
            unasked: AtomicUsize::new(0),
            ask_every: AtomicUsize::new(0),
        }))
    }

    /// The limit of this budget; `usize::MAX` without one.
    pub fn limit(&self) -> usize {
        self.0.limit.load(Ordering::Relaxed)
    }

    /// The bytes that are held under it.
    pub fn held(&self) -> usize {
        self.0.held.load(Ordering::Relaxed)
    }

    /// Charges bytes that are about to be held, until the charge is dropped.
    pub fn charge(&self, bytes: usize) -> Result<Charge> {
        let mut charge = Charge { budget: self.clone(), bytes: 0, waiting: 0, whole_path: true };
        charge.add(bytes)?;
        Ok(charge)
    }

    /// Charges this budget alone, for bytes that are charged to its ancestors elsewhere.
    pub fn charge_part(&self, bytes: usize) -> Result<Charge> {
        let mut charge = Charge { budget: self.clone(), bytes: 0, waiting: 0, whole_path: false };
        charge.add(bytes)?;
        Ok(charge)
    }

    /// Returns whether this many bytes could be held now.
    pub fn has_room_for(&self, bytes: usize) -> bool {
        self.has_room_after(bytes, 0)
    }

    /// Returns whether this many bytes could be held, given that `freed` bytes were just freed and the system may still
    /// count them.
    pub(crate) fn has_room_after(&self, bytes: usize, freed: usize) -> bool {
        bytes < COUNTED_BYTES
            || self.path().all(|budget| budget.0.has_room(Request { bytes, freed, counted: 0 }))
    }

    /// Counts a block that is about to be allocated; returns false if there is no room for it. `freed` bytes were just
    /// freed, and the system may still count them.
    #[inline]
    pub(crate) fn hold(&self, bytes: usize, freed: usize) -> bool {
        bytes < COUNTED_BYTES || self.hold_counted(bytes, freed)
    }

    fn hold_counted(&self, bytes: usize, freed: usize) -> bool {
        for budget in self.path() {
            if !budget.0.hold(bytes, freed) {
                // Undo: the budgets before this one have counted the block.
                self.path().take_while(|before| !Arc::ptr_eq(&before.0, &budget.0)).for_each(|before| {
                    before.0.held.fetch_sub(bytes, Ordering::Relaxed);
                });
                return false;
            }
        }
        true
    }

    /// Releases a block that [`MemoryBudget::hold`] has counted.
    pub(crate) fn release(&self, bytes: usize) {
        if bytes >= COUNTED_BYTES {
            self.path().for_each(|budget| {
                budget.0.held.fetch_sub(bytes, Ordering::Relaxed);
            });
        }
    }

    /// This budget and its ancestors, up to the process's.
    fn path(&self) -> impl Iterator<Item = &MemoryBudget> {
        std::iter::successors(Some(self), |budget| budget.0.parent.as_ref())
    }
}

/// A request for memory.
#[derive(Clone, Copy)]
struct Request {
    bytes: usize,
    /// Bytes that were just freed and that the system may still count.
    freed: usize,
    /// The part of `bytes` that is counted as held already.
    counted: usize,
}

/// More than any machine has; sums of a few of these do not overflow.
const TOO_MUCH: usize = 1 << 48;

impl Account {
    fn hold(&self, bytes: usize, freed: usize) -> bool {
        if bytes >= TOO_MUCH {
            return false;
        }
        self.held.fetch_add(bytes, Ordering::Relaxed);
        let has_room = self.has_room(Request { bytes, freed, counted: bytes });
        if !has_room {
            self.held.fetch_sub(bytes, Ordering::Relaxed);
        }
        has_room
    }

    fn has_room(&self, request: Request) -> bool {
        let held = self.held.load(Ordering::Relaxed).saturating_sub(request.counted);
        if request.bytes >= TOO_MUCH
            || held.saturating_add(request.bytes) > self.limit.load(Ordering::Relaxed)
        {
            return false;
        }
        if self.kind != BudgetKind::Process {
            return true;
        }
        let unasked = self.unasked.fetch_add(request.bytes, Ordering::Relaxed).saturating_add(request.bytes);
        unasked < self.ask_every.load(Ordering::Relaxed) || self.ask_system(held, request)
    }

    /// Asks the system. After a refusal, the next request asks again, however small it is.
    #[cold]
    fn ask_system(&self, held: usize, request: Request) -> bool {
        self.unasked.store(0, Ordering::Relaxed);
        let has_room = self.system_has_room(held, request);
        if !has_room {
            self.unasked.store(self.ask_every.load(Ordering::Relaxed), Ordering::Relaxed);
        }
        has_room
    }

    /// Returns whether the system has room now, and sets when to ask again.
    fn system_has_room(&self, held: usize, request: Request) -> bool {
        let Some(usage) = Usage::now() else { return true };
        let wanted = request.bytes.saturating_sub(request.freed);
        // The kernel provides a page when it is first written, so "available" still includes blocks handed out a moment
        // ago.
        let untouched = held.saturating_sub(usage.resident);
        let limit = self.limit.load(Ordering::Relaxed);
        let own = (limit < usize::MAX).then(|| (limit, held.max(usage.resident)));
        let limits::RoomCheck { has_room, ask_every } = limits::check_room(wanted, untouched, own, &usage);
        self.ask_every.store(ask_every.min(ASK_EVERY), Ordering::Relaxed);
        has_room
    }
}

/// Returns whether an operator or the system limits this process in particular.
pub(crate) fn is_limited() -> bool {
    static BY_SYSTEM: OnceLock<bool> = OnceLock::new();
    MemoryBudget::process().limit() < usize::MAX || *BY_SYSTEM.get_or_init(limits::is_data_limited)
}

/// Bytes charged to a budget, released when this is dropped.
#[derive(Debug)]
pub struct Charge {
    budget: MemoryBudget,
    bytes: usize,
    /// Bytes that are too few to be counted yet.
    waiting: usize,
    /// True if the budget's ancestors are charged as well.
    whole_path: bool,
}

impl Charge {
    /// Charges more bytes; on an error, none of them.
    #[inline]
    pub fn add(&mut self, bytes: usize) -> Result<()> {
        self.waiting = self.waiting.saturating_add(bytes);
        if self.waiting < COUNTED_BYTES { Ok(()) } else { self.settle() }
    }

    #[cold]
    fn settle(&mut self) -> Result<()> {
        let bytes = std::mem::take(&mut self.waiting);
        let has_room =
            if self.whole_path { self.budget.hold(bytes, 0) } else { self.budget.0.hold(bytes, 0) };
        if !has_room {
            return Err(self.refusal(bytes));
        }
        self.bytes += bytes;
        Ok(())
    }

    /// Takes over the bytes of another charge of the same budget.
    pub fn absorb(&mut self, mut other: Charge) {
        debug_assert!(Arc::ptr_eq(&self.budget.0, &other.budget.0) && self.whole_path == other.whole_path);
        self.bytes += std::mem::take(&mut other.bytes);
        self.waiting += std::mem::take(&mut other.waiting);
    }

    /// Releases all bytes.
    pub fn clear(&mut self) {
        if self.whole_path {
            self.budget.release(self.bytes);
        } else {
            self.budget.0.held.fetch_sub(self.bytes, Ordering::Relaxed);
        }
        (self.bytes, self.waiting) = (0, 0);
    }

    /// The bytes that are charged.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    fn refusal(&self, bytes: usize) -> crate::Status {
        let (held, limit) = (self.budget.held(), self.budget.limit());
        if held.saturating_add(bytes) > limit {
            status!(
                ResourceExhausted,
                "no memory for {bytes} more bytes: {held} of the {limit} bytes that are allowed here are in use"
            )
        } else {
            status!(ResourceExhausted, "no memory for {bytes} more bytes: this process is at its limit")
        }
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.clear();
    }
}

/// The prefix of the panic message for an allocation that cannot return an error.
const OUT_OF_MEMORY: &str = "out of memory";

/// Panics because there is no memory for a block.
#[cold]
pub(crate) fn panic_out_of_memory(bytes: usize) -> ! {
    panic!("{OUT_OF_MEMORY}: cannot allocate a block of {bytes} bytes")
}

/// Returns whether a panic message reports a lack of memory, which is not a bug.
pub fn is_out_of_memory(panic: &str) -> bool {
    panic.starts_with(OUT_OF_MEMORY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn charges_count_in_every_budget_around_them() {
        let server = MemoryBudget::share(usize::MAX);
        let (one, other) = (server.part(1 << 20), server.part(1 << 20));
        let charge = one.charge(1 << 20).unwrap();
        assert_eq!((one.held(), other.held(), server.held()), (1 << 20, 0, 1 << 20));
        let refused = one.charge(COUNTED_BYTES).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        assert_eq!((one.held(), server.held()), (1 << 20, 1 << 20), "what is refused is not counted");
        let mut second = other.charge(1 << 19).unwrap();
        assert!(second.add(1 << 20).is_err());
        assert_eq!(server.held(), (1 << 20) + (1 << 19));
        drop((charge, second));
        assert_eq!((one.held(), other.held(), server.held()), (0, 0, 0));
    }

    #[test]
    fn a_part_can_be_charged_alone() {
        let server = MemoryBudget::share(usize::MAX);
        let part = server.part(1 << 20);
        let charge = part.charge_part(1 << 20).unwrap();
        assert_eq!((part.held(), server.held()), (1 << 20, 0));
        assert!(part.charge_part(1 << 20).is_err());
        let mut another = part.charge_part(0).unwrap();
        another.absorb(charge);
        assert_eq!((part.held(), another.bytes()), (1 << 20, 1 << 20));
        drop(another);
        assert_eq!(part.held(), 0);
    }

    #[test]
    fn a_few_bytes_are_counted_together() {
        let budget = MemoryBudget::process().part(1 << 20);
        let mut charge = budget.charge(1).unwrap();
        assert_eq!(budget.held(), 0);
        (1..COUNTED_BYTES).for_each(|_| charge.add(1).unwrap());
        assert_eq!((budget.held(), charge.bytes()), (COUNTED_BYTES, COUNTED_BYTES));
        drop(charge);
        assert_eq!(budget.held(), 0);
    }

    #[test]
    fn resident_memory_counts() {
        let Some(usage) = Usage::now() else { return };
        let tight = MemoryBudget::new(None, usage.resident / 2, BudgetKind::Process);
        assert!(!tight.has_room_for(COUNTED_BYTES), "the process is larger than that already");
    }

    #[test]
    fn shares_limit_the_process_as_long_as_they_live() {
        // Large enough not to affect tests that run at the same time.
        let (large, larger) = (TOO_MUCH - 2, TOO_MUCH - 1);
        let first = MemoryBudget::share(larger);
        let second = MemoryBudget::share(large);
        assert_eq!(MemoryBudget::process().limit(), large);
        drop(second);
        assert_eq!(MemoryBudget::process().limit(), larger);
        drop(first);
        assert!(MemoryBudget::process().limit() > larger);
    }

    #[test]
    fn no_machine_has_everything() {
        let process = MemoryBudget::process();
        assert!(process.has_room_for(COUNTED_BYTES - 1));
        assert!(!process.has_room_for(usize::MAX / 2));
        assert!(!process.hold(usize::MAX / 2, 0));
    }

    #[test]
    fn after_a_refusal_the_system_is_asked_again() {
        let budget = MemoryBudget::new(None, usize::MAX, BudgetKind::Process);
        let (large, small) = (1 << 47, 1 << 20);
        assert!(!budget.hold(large, 0));
        assert!(budget.0.unasked.load(Ordering::Relaxed) >= budget.0.ask_every.load(Ordering::Relaxed));
        assert!(budget.hold(small, 0), "there is room for this");
        assert!(budget.0.unasked.load(Ordering::Relaxed) <= small, "somebody was asked");
        assert!(budget.hold(large, large), "what was set free can be had at once");
    }

    #[test]
    fn many_requests_are_asked_for_like_a_large_one() {
        let budget = MemoryBudget::new(None, usize::MAX, BudgetKind::Process);
        let (mut asked, part) = (0, ASK_EVERY / 128);
        for _ in 0..512 {
            let before = budget.0.unasked.load(Ordering::Relaxed);
            budget.has_room_for(part);
            asked += usize::from(budget.0.unasked.load(Ordering::Relaxed) < before);
        }
        assert!((3..=64).contains(&asked), "asked {asked} times");
    }
}

//! Reference-counted, aligned memory for plain elements, and the pool that recycles it.
//!
//! A buffer of a few bytes, which is what scalars have, is stored in place; any other is one allocation: a small header,
//! then the data. Memory is always initialized: fresh blocks are zeroed, recycled ones hold their former contents, so
//! handing out `&mut [T]` of plain types is sound without a clearing pass. This file and `ops/src/linalg` are the only
//! places with `unsafe` code.
#![allow(unsafe_code)]

use crate::memory::{self, MemoryBudget};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// Blocks at least this large are cache-line aligned and recycled; smaller ones go straight to the allocator.
const POOLED_BYTES: usize = 1024;
/// Enough for the header, and keeps large blocks' data aligned.
const HEADER_BYTES: usize = 64;
const SMALL_HEADER_BYTES: usize = 32;
const SMALL_ALIGN: usize = 16;
const LARGE_ALIGN: usize = 64;
/// Blocks at least this large ask for huge pages, of which each then holds at least one.
const HUGE_PAGES_BYTES: usize = 4 << 20;
/// No block is larger, whatever is asked for.
const MAX_CAPACITY: usize = 1 << 48;
/// Marks the capacity of blocks that come from the system and go back to it at once: where there is a limit, what the
/// allocator would keep of freed blocks is missed.
const MAPPED: usize = 1 << 63;

#[repr(C)]
struct Header {
    references: AtomicUsize,
    /// Bytes in use.
    length: usize,
    /// Bytes that may be used, and [`MAPPED`] for blocks that are the system's.
    capacity: usize,
    /// Where the block goes when the last reference is dropped.
    pool: Option<Arc<BufferPool>>,
}

const _: () = assert!(size_of::<Header>() <= SMALL_HEADER_BYTES);

/// Aligned bytes. Cloning shares, or copies if they are few; writing needs to be the only owner.
#[derive(Clone)]
pub struct Buffer(Repr);

#[derive(Clone)]
enum Repr {
    /// The first so many bytes of a word.
    Small(u8, u64),
    Large(Heap),
}

/// Bytes that are stored in place.
const SMALL_BYTES: usize = 8;

/// A counted reference to a header and the data behind it.
struct Heap(NonNull<Header>);

// SAFETY: the header's count is atomic, and data is only written through `&mut Heap` by a sole owner.
unsafe impl Send for Heap {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Heap {}

/// Where the data starts in a block of this capacity.
#[inline]
fn data_offset(capacity: usize) -> usize {
    if capacity >= POOLED_BYTES { HEADER_BYTES } else { SMALL_HEADER_BYTES }
}

#[inline]
fn layout(capacity: usize) -> Layout {
    let align = if capacity >= POOLED_BYTES { LARGE_ALIGN } else { SMALL_ALIGN };
    Layout::from_size_align(data_offset(capacity) + capacity, align)
        .expect("capacities are far below isize::MAX")
}

impl Buffer {
    /// A zeroed buffer outside any pool. Panics if there is no memory for it.
    #[inline]
    pub fn zeroed(length: usize) -> Buffer {
        Buffer::try_zeroed(length).unwrap_or_else(|| memory::give_up(length))
    }

    /// A zeroed buffer outside any pool, if there is memory for it.
    #[inline]
    pub fn try_zeroed(length: usize) -> Option<Buffer> {
        // Empty buffers have an address that is aligned for every type, hence memory of their own.
        if (1..=SMALL_BYTES).contains(&length) {
            return Some(Buffer(Repr::Small(length as u8, 0)));
        }
        Heap::zeroed(length).map(|heap| Buffer(Repr::Large(heap)))
    }

    /// The number of bytes.
    #[inline]
    pub fn len(&self) -> usize {
        match &self.0 {
            Repr::Small(length, _) => *length as usize,
            Repr::Large(heap) => heap.header().length,
        }
    }

    /// Whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether nobody else holds these bytes.
    #[inline]
    pub fn is_unique(&self) -> bool {
        match &self.0 {
            Repr::Small(..) => true,
            Repr::Large(heap) => heap.is_unique(),
        }
    }

    /// The bytes.
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match &self.0 {
            Repr::Small(length, word) => &bytemuck::bytes_of(word)[..*length as usize],
            // SAFETY: `length` initialized bytes follow the header; writers need sole ownership.
            Repr::Large(heap) => unsafe { std::slice::from_raw_parts(heap.data(), heap.header().length) },
        }
    }

    /// The bytes for writing, if nobody else holds them.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Repr::Small(length, word) => Some(&mut bytemuck::bytes_of_mut(word)[..*length as usize]),
            // SAFETY: we are the only owner and hold `&mut self`.
            Repr::Large(heap) if heap.is_unique() => {
                Some(unsafe { std::slice::from_raw_parts_mut(heap.data(), heap.header().length) })
            }
            Repr::Large(_) => None,
        }
    }

    /// The bytes for writing; copies them first if somebody else holds them.
    #[inline]
    pub fn make_mut(&mut self) -> &mut [u8] {
        if !self.is_unique() {
            *self = self.copied();
        }
        self.get_mut().expect("made unique above")
    }

    /// A copy with memory of its own.
    #[cold]
    fn copied(&self) -> Buffer {
        let pool = match &self.0 {
            Repr::Large(heap) => heap.header().pool.as_ref(),
            Repr::Small(..) => None,
        };
        let mut copy = match pool {
            Some(pool) => pool.allocate(self.len()),
            None => Buffer::zeroed(self.len()),
        };
        copy.get_mut().expect("a new buffer has one owner").copy_from_slice(self.as_slice());
        copy
    }

    /// The bytes as booleans, which every way of filling a boolean tensor keeps to 0 and 1.
    pub(crate) fn as_bools(&self) -> &[bool] {
        let bytes = self.as_slice();
        debug_assert!(bytes.iter().all(|byte| *byte < 2));
        // SAFETY: boolean tensors hold only the bytes 0 and 1 (see `Tensor::from_buffer`).
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<bool>(), bytes.len()) }
    }

    /// The bytes as booleans for writing, if nobody else holds them.
    pub(crate) fn as_bools_mut(&mut self) -> Option<&mut [bool]> {
        // Recycled memory may hold anything; booleans must not.
        let bytes = self.get_mut()?;
        if bytes.iter().any(|byte| *byte > 1) {
            bytes.fill(0);
        }
        // SAFETY: unique, and every byte is 0 or 1.
        Some(unsafe { std::slice::from_raw_parts_mut(bytes.as_mut_ptr().cast::<bool>(), bytes.len()) })
    }
}

impl Heap {
    fn zeroed(length: usize) -> Option<Heap> {
        if length >= POOLED_BYTES {
            return Heap::allocate(length, length.checked_next_multiple_of(LARGE_ALIGN)?, None);
        }
        // Allocators are fastest at powers of two.
        let block = (SMALL_HEADER_BYTES + length.max(1)).next_power_of_two();
        Heap::allocate(length, (block - SMALL_HEADER_BYTES).min(POOLED_BYTES - 1), None)
    }

    /// A new block, charged to the pool's budget, or to the process's; none if there is no memory for it.
    fn allocate(length: usize, capacity: usize, pool: Option<Arc<BufferPool>>) -> Option<Heap> {
        if capacity > MAX_CAPACITY {
            return None;
        }
        let layout = layout(capacity);
        let hold = |freed| match &pool {
            Some(pool) => pool.budget.hold(layout.size(), freed),
            None => {
                layout.size() < memory::COUNTED_BYTES || MemoryBudget::process().hold(layout.size(), freed)
            }
        };
        let trim = || pool.as_ref().map_or(0, |pool| pool.trim());
        if !hold(0) && !hold(trim()) {
            return None;
        }
        let wants_map = layout.size() >= HUGE_PAGES_BYTES && memory::is_limited();
        // SAFETY: the layout has a non-zero size, and what is zeroed neither by the system nor by the allocator is zeroed
        // here.
        let claim = || unsafe {
            if wants_map {
                let block = map(layout.size());
                if !block.is_null() {
                    return (block, MAPPED);
                }
            }
            if capacity >= POOLED_BYTES {
                return (alloc_zeroed(layout), 0);
            }
            let block = alloc(layout);
            if !block.is_null() {
                block.write_bytes(0, layout.size());
            }
            (block, 0)
        };
        let (mut block, mut mapped) = claim();
        if block.is_null() && trim() > 0 {
            (block, mapped) = claim();
        }
        let Some(header) = NonNull::new(block.cast::<Header>()) else {
            release_charge(layout.size(), pool.as_deref());
            return None;
        };
        if layout.size() >= HUGE_PAGES_BYTES {
            ask_for_huge_pages(block, layout.size());
        }
        // SAFETY: the block is large enough and aligned for a header.
        unsafe {
            header.write(Header {
                references: AtomicUsize::new(1),
                length,
                capacity: capacity | mapped,
                pool,
            })
        };
        Some(Heap(header))
    }

    #[inline]
    fn header(&self) -> &Header {
        // SAFETY: the header lives as long as any reference.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    fn data(&self) -> *mut u8 {
        // SAFETY: the data follows the header within the same allocation.
        unsafe { self.0.as_ptr().cast::<u8>().add(data_offset(self.header().capacity)) }
    }

    #[inline]
    fn is_unique(&self) -> bool {
        self.header().references.load(Ordering::Acquire) == 1
    }
}

/// Tells the budget that charged a block that it is no more.
#[inline]
fn release_charge(bytes: usize, pool: Option<&BufferPool>) {
    if bytes >= memory::COUNTED_BYTES {
        pool.map_or(MemoryBudget::process(), |pool| &pool.budget).release(bytes);
    }
}

impl Clone for Heap {
    #[inline]
    fn clone(&self) -> Heap {
        self.header().references.fetch_add(1, Ordering::Relaxed);
        Heap(self.0)
    }
}

impl Drop for Heap {
    #[inline]
    fn drop(&mut self) {
        if !release(&self.header().references) {
            return;
        }
        // SAFETY: this was the last reference, so the header may be taken apart.
        let pool = unsafe { (*self.0.as_ptr()).pool.take() };
        match pool {
            Some(pool) => pool.recycle(Block(self.0)),
            None => Block(self.0).free(None),
        }
    }
}

/// Zeroed pages of the system for a block of this size; null if it has none.
fn map(size: usize) -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the pages are new, so that nobody else uses them.
    unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, flags) }
        .map_or(std::ptr::null_mut(), |p| p.cast())
}

/// Gives pages back to the system.
///
/// # Safety
///
/// They come from [`map`] with this size, and nobody uses them any more.
unsafe fn unmap(block: *mut u8, size: usize) {
    // SAFETY: as the caller says. It cannot fail for pages that were mapped so.
    let _ = unsafe { rustix::mm::munmap(block.cast(), size) };
}

/// Asks the kernel to back a new block with huge pages: first touching a large tensor then costs one page fault where it
/// would cost 512. Everything else the process allocates stays on small pages, of which an idle server needs few.
fn ask_for_huge_pages(block: *mut u8, size: usize) {
    #[cfg(target_os = "linux")]
    {
        let page = rustix::param::page_size();
        let start = block.align_offset(page);
        let length = (size - start) / page * page;
        // SAFETY: the pages lie within the block, and the advice changes no contents. Where the kernel has no huge pages
        // it answers with an error that changes nothing either.
        let _ = unsafe {
            rustix::mm::madvise(block.add(start).cast(), length, rustix::mm::Advice::LinuxHugepage)
        };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (block, size);
}

/// Gives up one reference; returns whether it was the last. The holder of the only reference need not count it down:
/// nobody is left to copy it.
#[inline]
fn release(references: &AtomicUsize) -> bool {
    if references.load(Ordering::Acquire) == 1 {
        return true;
    }
    if references.fetch_sub(1, Ordering::Release) != 1 {
        return false;
    }
    fence(Ordering::Acquire);
    true
}

/// A counted reference without weak ones: whether it is the only one is a plain load, so that in-place work costs
/// nothing to find out about.
pub(super) struct Shared<T>(NonNull<Counted<T>>);

struct Counted<T> {
    references: AtomicUsize,
    value: T,
}

// SAFETY: the count is atomic; values are shared between threads and dropped on any of them.
unsafe impl<T: Send + Sync> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}

impl<T> Shared<T> {
    #[inline]
    pub(super) fn new(value: T) -> Shared<T> {
        let counted = Box::new(Counted { references: AtomicUsize::new(1), value });
        Shared(NonNull::from(Box::leak(counted)))
    }

    #[inline]
    fn counted(&self) -> &Counted<T> {
        // SAFETY: the value lives as long as any reference.
        unsafe { self.0.as_ref() }
    }

    /// Whether this is the only reference.
    #[inline]
    pub(super) fn is_unique(&self) -> bool {
        self.counted().references.load(Ordering::Acquire) == 1
    }

    /// The value for writing; copied first if there are other references.
    #[inline]
    pub(super) fn make_mut(&mut self) -> &mut T
    where
        T: Clone,
    {
        if !self.is_unique() {
            *self = Shared::new(T::clone(self));
        }
        // SAFETY: this is the only reference, and it is borrowed for writing.
        unsafe { &mut self.0.as_mut().value }
    }
}

impl<T> std::ops::Deref for Shared<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.counted().value
    }
}

impl<T> Clone for Shared<T> {
    #[inline]
    fn clone(&self) -> Shared<T> {
        self.counted().references.fetch_add(1, Ordering::Relaxed);
        Shared(self.0)
    }
}

impl<T> Drop for Shared<T> {
    #[inline]
    fn drop(&mut self) {
        if release(&self.counted().references) {
            // SAFETY: the value came from a box, and this was the last reference.
            drop(unsafe { Box::from_raw(self.0.as_ptr()) });
        }
    }
}

/// An allocation without owners: on its way to the pool or to the allocator.
struct Block(NonNull<Header>);

// SAFETY: a block has no other owner.
unsafe impl Send for Block {}

impl Block {
    fn capacity(&self) -> usize {
        self.marked_capacity() & !MAPPED
    }

    fn marked_capacity(&self) -> usize {
        // SAFETY: the header stays valid until the block is freed.
        unsafe { self.0.as_ref().capacity }
    }

    /// Gives the block back to the allocator, and its bytes to the budget of its pool.
    #[inline]
    fn free(self, pool: Option<&BufferPool>) {
        let layout = layout(self.capacity());
        let is_mapped = self.marked_capacity() & MAPPED != 0;
        // SAFETY: the block was mapped with this length, or allocated with this layout, and has no owners left.
        unsafe {
            match is_mapped {
                true => unmap(self.0.as_ptr().cast::<u8>(), layout.size()),
                false => dealloc(self.0.as_ptr().cast::<u8>(), layout),
            }
        }
        release_charge(layout.size(), pool);
    }
}

/// Free blocks by size class, so that a step's large tensors reuse pages that are already mapped and warm.
pub struct BufferPool {
    classes: Vec<Mutex<Vec<Block>>>,
    /// Bytes now kept in `classes`.
    kept: AtomicUsize,
    /// Bytes that may be kept.
    limit: usize,
    /// Where blocks are charged, those that are kept included.
    budget: MemoryBudget,
}

/// Four classes per power of two, from 1 KiB to 64 GiB.
const CLASSES: usize = 4 * 27;

fn class_of(length: usize) -> (usize, usize) {
    let length = length.max(POOLED_BYTES);
    let exponent = usize::BITS as usize - 1 - (length - 1).leading_zeros() as usize;
    let exponent = if length.is_power_of_two() { length.trailing_zeros() as usize } else { exponent };
    let base = 1usize << exponent;
    let quarter = (length - base).div_ceil(base / 4);
    let class = (exponent - 10) * 4 + quarter;
    (class, base + quarter * (base / 4))
}

impl BufferPool {
    /// A pool that keeps at most `limit` bytes of free blocks, charged to the process.
    pub fn new(limit: usize) -> Arc<BufferPool> {
        BufferPool::within(limit, MemoryBudget::process().clone())
    }

    /// A pool that keeps at most `limit` bytes of free blocks, charged to this budget.
    pub fn within(limit: usize, budget: MemoryBudget) -> Arc<BufferPool> {
        let classes = (0..CLASSES + 4).map(|_| Mutex::default()).collect();
        Arc::new(BufferPool { classes, kept: AtomicUsize::new(0), limit, budget })
    }

    /// Where its blocks are charged.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Whether there would be memory for so many bytes, if need be after what is kept is given back.
    pub(crate) fn admits(&self, bytes: usize) -> bool {
        self.budget.admits(bytes) || self.budget.admits_after(bytes, self.trim())
    }

    /// A buffer of `length` bytes whose contents are initialized but unspecified. Panics if there is no memory for it.
    pub fn allocate(self: &Arc<Self>, length: usize) -> Buffer {
        self.try_allocate(length).unwrap_or_else(|| memory::give_up(length))
    }

    /// A buffer of `length` bytes whose contents are initialized but unspecified, if there is memory for it.
    pub fn try_allocate(self: &Arc<Self>, length: usize) -> Option<Buffer> {
        if length < POOLED_BYTES {
            return Buffer::try_zeroed(length);
        }
        if length > MAX_CAPACITY / 2 {
            return None;
        }
        let (class, capacity) = class_of(length);
        let Some(list) = self.classes.get(class) else { return Buffer::try_zeroed(length) };
        let block = list.lock().expect("no panic while a list is locked").pop();
        match block {
            Some(block) => {
                self.kept.fetch_sub(block.capacity(), Ordering::Relaxed);
                let (header, capacity) = (block.0, block.marked_capacity());
                // SAFETY: the block has no owners; its header is rewritten for the new one.
                unsafe {
                    header.write(Header {
                        references: AtomicUsize::new(1),
                        length,
                        capacity,
                        pool: Some(self.clone()),
                    })
                };
                Some(Buffer(Repr::Large(Heap(header))))
            }
            None => {
                Heap::allocate(length, capacity, Some(self.clone())).map(|heap| Buffer(Repr::Large(heap)))
            }
        }
    }

    fn recycle(&self, block: Block) {
        let capacity = block.capacity();
        if self.kept.load(Ordering::Relaxed) + capacity > self.limit {
            return block.free(Some(self));
        }
        self.kept.fetch_add(capacity, Ordering::Relaxed);
        let (class, _) = class_of(capacity);
        self.classes[class].lock().expect("no panic while a list is locked").push(block);
    }

    /// Bytes of free blocks that the pool holds.
    pub fn kept_bytes(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Gives every free block back to the allocator; returns how many bytes that were.
    pub fn trim(&self) -> usize {
        let mut bytes = 0;
        for class in &self.classes {
            for block in class.lock().expect("no panic while a list is locked").drain(..) {
                self.kept.fetch_sub(block.capacity(), Ordering::Relaxed);
                bytes += block.capacity();
                block.free(Some(self));
            }
        }
        bytes
    }
}

impl Drop for BufferPool {
    fn drop(&mut self) {
        self.trim();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_their_lengths_and_map_back_to_themselves() {
        for length in (1024..1 << 20).step_by(997) {
            let (class, capacity) = class_of(length);
            assert!(capacity >= length && capacity < length + length / 2);
            assert_eq!(class_of(capacity), (class, capacity));
        }
    }

    #[test]
    fn writing_a_shared_buffer_copies_it() {
        let mut a = Buffer::zeroed(9);
        let b = a.clone();
        assert!(a.get_mut().is_none());
        a.make_mut()[0] = 7;
        assert_eq!((a.as_slice()[0], b.as_slice()[0]), (7, 0));
    }

    #[test]
    fn a_few_bytes_are_never_shared() {
        let mut a = Buffer::zeroed(8);
        let b = a.clone();
        assert!(a.is_unique() && b.is_unique());
        a.make_mut()[7] = 7;
        assert_eq!((a.as_slice()[7], b.as_slice()[7]), (7, 0));
        assert_eq!((a.len(), Buffer::zeroed(3).as_slice().len(), Buffer::zeroed(0).len()), (8, 3, 0));
    }

    #[test]
    fn shared_values_are_copied_for_writing_and_dropped_once() {
        let value = Arc::new(());
        let mut a = Shared::new((value.clone(), 1));
        let b = a.clone();
        assert!(!a.is_unique());
        a.make_mut().1 = 2;
        assert_eq!((a.1, b.1, Arc::strong_count(&value)), (2, 1, 3));
        assert!(a.is_unique() && b.is_unique());
        drop((a, b));
        assert_eq!(Arc::strong_count(&value), 1);
    }

    #[test]
    fn blocks_of_limited_processes_come_from_the_system() {
        // Far beyond what tests need.
        let share = MemoryBudget::share(1 << 47);
        let pool = BufferPool::within(64 << 20, share.part(usize::MAX));
        let mut buffer = pool.try_allocate(5 << 20).expect("there is room");
        assert!(
            buffer.as_slice().iter().all(|byte| *byte == 0)
                && buffer.as_slice().as_ptr().align_offset(64) == 0
        );
        buffer.make_mut().fill(7);
        let address = buffer.as_slice().as_ptr();
        drop(buffer);
        drop(share);
        // It stays what it is, whatever holds for blocks that follow.
        let again = pool.try_allocate(5 << 20).expect("there is room");
        assert_eq!(again.as_slice().as_ptr(), address);
        drop(again);
        assert!(pool.trim() >= 5 << 20);
        assert_eq!(pool.budget().held(), 0);
    }

    #[test]
    fn the_pool_recycles_blocks_up_to_its_limit() {
        let pool = BufferPool::new(10_000);
        let address = pool.allocate(5000).as_slice().as_ptr();
        assert_eq!(pool.allocate(4999).as_slice().as_ptr(), address);
        drop((pool.allocate(5000), pool.allocate(5000)));
        assert!(pool.kept_bytes() <= 10_000);
        pool.trim();
        assert_eq!(pool.kept_bytes(), 0);
    }

    #[test]
    fn blocks_are_charged_as_long_as_anybody_keeps_them() {
        let budget = MemoryBudget::process().part(1 << 20);
        let pool = BufferPool::within(1 << 20, budget.clone());
        let buffer = pool.try_allocate(600_000).expect("there is room");
        let held = budget.held();
        assert!(held >= 600_000);
        drop(buffer);
        assert_eq!(budget.held(), held, "the pool keeps the block");
        assert!(pool.try_allocate(900_000).is_some(), "what is kept makes room");
        assert!(pool.try_allocate(2 << 20).is_none() && pool.try_allocate(usize::MAX).is_none());
        let buffer = pool.try_allocate(500_000);
        drop(pool);
        assert!(budget.held() > 0, "a buffer outlives its pool");
        drop(buffer);
        assert_eq!(budget.held(), 0);
        assert!(Buffer::try_zeroed(usize::MAX).is_none() && Buffer::try_zeroed(1 << 47).is_none());
    }
}

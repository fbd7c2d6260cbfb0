//! Reference-counted, aligned memory for plain elements, and the pool that recycles it.
//!
//! A buffer of a few bytes, such as a scalar's, is stored inline; any other is one allocation: a small header, then the
//! data. Memory is always initialized: fresh blocks are zeroed, recycled ones hold their former contents, so handing
//! out `&mut [T]` of plain types is sound without clearing. This file and `ops/src/linalg` are the only places with
//! `unsafe` code.
#![allow(unsafe_code)]

use crate::memory::{self, MemoryBudget};
use std::alloc::{Layout, alloc, alloc_zeroed, dealloc};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex};

/// Blocks at least this large are cache-line aligned and recycled; smaller ones go straight to the allocator.
const POOLED_BYTES: usize = 1024;
/// Holds the header and keeps the data of large blocks aligned.
const HEADER_BYTES: usize = 64;
const SMALL_HEADER_BYTES: usize = 32;
const SMALL_ALIGN: usize = 16;
const LARGE_ALIGN: usize = 64;
/// Blocks of at least this size ask for huge pages; each contains at least one whole huge page.
const HUGE_PAGES_BYTES: usize = 4 << 20;
/// The largest block that can be requested.
const MAX_CAPACITY: usize = 1 << 48;
/// Marks the capacity of blocks that are mapped directly from the system and unmapped when freed. Used where memory is
/// limited: freed blocks that the allocator keeps would count against the limit.
const MAPPED: usize = 1 << 63;

#[repr(C)]
struct Header {
    references: AtomicUsize,
    /// Bytes in use.
    length: usize,
    /// Bytes that may be used, with [`MAPPED`] set for blocks mapped from the system.
    capacity: usize,
    /// The pool that the block returns to when the last reference is dropped.
    pool: Option<Arc<BufferPool>>,
}

const _: () = assert!(size_of::<Header>() <= SMALL_HEADER_BYTES);

/// Aligned bytes. Cloning shares them, or copies them if they are few; writing requires sole ownership.
#[derive(Clone)]
pub struct Buffer(Repr);

#[derive(Clone)]
enum Repr {
    /// The number of bytes in use, and the bytes.
    Small(u8, u64),
    Large(Heap),
}

/// The size up to which bytes are stored inline.
const SMALL_BYTES: usize = 8;

/// A counted reference to a header and the data behind it.
struct Heap(NonNull<Header>);

// SAFETY: the header's count is atomic, and data is only written through `&mut Heap` by a sole owner.
unsafe impl Send for Heap {}
// SAFETY: as above; shared access only reads.
unsafe impl Sync for Heap {}

/// The offset of the data in a block of this capacity.
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
        Buffer::try_zeroed(length).unwrap_or_else(|| memory::panic_out_of_memory(length))
    }

    /// A zeroed buffer outside any pool; `None` if there is no memory for it.
    #[inline]
    pub fn try_zeroed(length: usize) -> Option<Buffer> {
        // An empty buffer needs an address that is aligned for every type, so it is allocated.
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

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns whether these bytes have no other owner.
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

    /// The bytes for writing, if there is no other owner.
    #[inline]
    pub fn get_mut(&mut self) -> Option<&mut [u8]> {
        match &mut self.0 {
            Repr::Small(length, word) => Some(&mut bytemuck::bytes_of_mut(word)[..*length as usize]),
            // SAFETY: `heap` is the only reference, and `self` is borrowed mutably.
            Repr::Large(heap) if heap.is_unique() => {
                Some(unsafe { std::slice::from_raw_parts_mut(heap.data(), heap.header().length) })
            }
            Repr::Large(_) => None,
        }
    }

    /// The bytes for writing; copied first if there is another owner.
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

    /// The bytes as booleans. Every way to fill a boolean tensor stores only 0 and 1.
    pub(crate) fn as_bools(&self) -> &[bool] {
        let bytes = self.as_slice();
        debug_assert!(bytes.iter().all(|byte| *byte < 2));
        // SAFETY: boolean tensors hold only the bytes 0 and 1 (see `Tensor::from_buffer`).
        unsafe { std::slice::from_raw_parts(bytes.as_ptr().cast::<bool>(), bytes.len()) }
    }

    /// The bytes as booleans for writing, if there is no other owner.
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

    /// Allocates a block charged to the pool's budget, or to the process's; `None` if there is no memory for it.
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
        // SAFETY: the layout has a non-zero size. Memory that neither the system nor the allocator has zeroed is zeroed
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

/// Releases the charge of a block that is freed.
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

/// Maps zeroed pages for a block of this size; null if the system refuses.
fn map(size: usize) -> *mut u8 {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: the pages are new, so nothing else uses them.
    unsafe { mmap_anonymous(std::ptr::null_mut(), size, protection, flags) }
        .map_or(std::ptr::null_mut(), |p| p.cast())
}

/// Unmaps pages.
///
/// # Safety
///
/// The pages come from [`map`] with this size and are no longer used.
unsafe fn unmap(block: *mut u8, size: usize) {
    // SAFETY: guaranteed by the caller. Unmapping a whole mapping cannot fail.
    let _ = unsafe { rustix::mm::munmap(block.cast(), size) };
}

/// Asks the kernel to back a new block with huge pages: first use of a large tensor then costs one page fault instead
/// of 512. Other allocations stay on small pages, which keeps an idle server small.
fn ask_for_huge_pages(block: *mut u8, size: usize) {
    #[cfg(target_os = "linux")]
    {
        let page = rustix::param::page_size();
        let start = block.align_offset(page);
        let length = (size - start) / page * page;
        // SAFETY: the pages lie within the block, and the advice changes no contents. A kernel without huge pages
        // returns an error and does nothing.
        let _ = unsafe {
            rustix::mm::madvise(block.add(start).cast(), length, rustix::mm::Advice::LinuxHugepage)
        };
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (block, size);
}

/// Drops one reference; returns whether it was the last. A sole owner need not decrement the count: there is no other
/// reference to be cloned.
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

/// A reference-counted pointer without weak references: checking for sole ownership is a plain load.
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

    /// Returns whether this is the only reference.
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

/// An allocation without owners, about to be pooled or freed.
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

    /// Frees the block and releases its charge.
    #[inline]
    fn free(self, pool: Option<&BufferPool>) {
        let layout = layout(self.capacity());
        let is_mapped = self.marked_capacity() & MAPPED != 0;
        // SAFETY: the block was mapped with this length, or allocated with this layout, and has no owners left.
        unsafe {
            if is_mapped {
                unmap(self.0.as_ptr().cast::<u8>(), layout.size());
            } else {
                dealloc(self.0.as_ptr().cast::<u8>(), layout);
            }
        }
        release_charge(layout.size(), pool);
    }
}

/// Free blocks by size class, so that large tensors of a step reuse pages that are mapped and warm.
pub struct BufferPool {
    classes: Vec<Mutex<Vec<Block>>>,
    /// Bytes in `classes`.
    kept: AtomicUsize,
    /// The maximum of `kept`.
    limit: usize,
    /// The budget that blocks are charged to, free ones included.
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

    /// The budget that blocks are charged to.
    pub fn budget(&self) -> &MemoryBudget {
        &self.budget
    }

    /// Returns whether there is memory for this many bytes, if necessary after freeing the pool's free blocks.
    pub(crate) fn has_room_for(&self, bytes: usize) -> bool {
        self.budget.has_room_for(bytes) || self.budget.has_room_after(bytes, self.trim())
    }

    /// A buffer of `length` bytes, initialized but with unspecified contents. Panics if there is no memory for it.
    pub fn allocate(self: &Arc<Self>, length: usize) -> Buffer {
        self.try_allocate(length).unwrap_or_else(|| memory::panic_out_of_memory(length))
    }

    /// A buffer of `length` bytes, initialized but with unspecified contents; `None` if there is no memory for it.
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

    /// Bytes of free blocks in the pool.
    pub fn kept_bytes(&self) -> usize {
        self.kept.load(Ordering::Relaxed)
    }

    /// Frees all free blocks; returns their size in bytes.
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
        // A limit far beyond what the test needs.
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
        // A block stays mapped, whatever applies to later blocks.
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

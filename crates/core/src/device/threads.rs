//! Threads for the loops of one kernel.
//!
//! A loop is cut into parts here, once for all of them: what is generic ends at a `&dyn Fn` that runs a part, so that no
//! kernel brings its own copy of a scheduler. Long loops have many parts. Parts that have not begun are left out once
//! the step is cancelled.

use super::Device;
use crate::cancel::Cancellation;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// Loops with less work than this, in simple operations on elements, are not worth a second thread.
const PARALLEL_WORK: usize = 512 * 1024;

/// The work of a part of a long loop: a few milliseconds, after which the loop may end early.
const PART_WORK: usize = 16 * 1024 * 1024;

/// The parts of a loop per thread, at most.
const MAX_ROUNDS: usize = 1024;

/// The body of a loop over rows of two outputs: takes the first row's index and the rows of both.
type RowPairBody<'a, A, B> = dyn Fn(usize, &mut [A], &mut [B]) + Sync + 'a;

/// The threads of a device as one kernel uses them.
#[derive(Clone, Copy)]
pub struct Threads<'a> {
    device: &'a Device,
    interrupt: Option<Interrupt<'a>>,
}

/// The end of a loop before its last part.
#[derive(Clone, Copy)]
struct Interrupt<'a> {
    cancellation: &'a Cancellation,
    /// Set where a part is left out.
    incomplete: &'a AtomicBool,
}

impl<'a> Threads<'a> {
    /// Threads whose loops run to their end.
    pub(super) fn new(device: &'a Device) -> Threads<'a> {
        Threads { device, interrupt: None }
    }

    /// The same threads for loops that end early, and set `incomplete`, once `cancellation` comes. Only for loops whose
    /// results nobody sees in that case: never for an update of a variable.
    #[must_use]
    pub fn until(self, cancellation: &'a Cancellation, incomplete: &'a AtomicBool) -> Threads<'a> {
        Threads { interrupt: Some(Interrupt { cancellation, incomplete }), ..self }
    }

    /// The device whose threads they are.
    pub fn device(self) -> &'a Device {
        self.device
    }

    /// The number of threads.
    pub fn count(self) -> usize {
        self.pool().current_num_threads()
    }

    /// The pool, for crates that want one.
    pub fn pool(self) -> &'a rayon::ThreadPool {
        &self.device.threads
    }

    /// Runs `body` over `0..total`, in parts on several threads if `total * cost` is large enough. `cost` is the work
    /// per index in units of one simple element operation. `body` must not take locks, and its results must not depend
    /// on where the parts are cut.
    #[inline]
    pub fn parallel_for(self, total: usize, cost: usize, body: impl Fn(Range<usize>) + Sync) {
        self.run_range(total, cost, &body);
    }

    fn run_range(self, total: usize, cost: usize, body: &(dyn Fn(Range<usize>) + Sync)) {
        let length = self.part_length(total, cost);
        if length >= total {
            return body(0..total);
        }
        let part = |part: usize| body(part * length..((part + 1) * length).min(total));
        self.run_parts(total.div_ceil(length), &part);
    }

    /// Like [`Threads::parallel_for`] over rows of `out`: `body(first_row, rows)` fills whole rows of `width` elements.
    #[inline]
    pub fn parallel_rows<T: Send>(
        self,
        out: &mut [T],
        width: usize,
        cost: usize,
        body: impl Fn(usize, &mut [T]) + Sync,
    ) {
        self.run_rows(out, width, cost, &body);
    }

    fn run_rows<T: Send>(
        self,
        out: &mut [T],
        width: usize,
        cost: usize,
        body: &(dyn Fn(usize, &mut [T]) + Sync),
    ) {
        if width == 0 || out.is_empty() {
            return;
        }
        let rows = out.len() / width;
        let length = self.part_length(rows, cost.saturating_mul(width));
        if length >= rows {
            return body(0, out);
        }
        self.run_each(out.chunks_mut(length * width).collect(), &|part, rows| body(part * length, rows));
    }

    /// Like [`Threads::parallel_rows`] over two outputs with as many rows, each given with its width; `cost` is the work
    /// per row.
    #[inline]
    pub fn parallel_row_pairs<A: Send, B: Send>(
        self,
        left: (&mut [A], usize),
        right: (&mut [B], usize),
        cost: usize,
        body: impl Fn(usize, &mut [A], &mut [B]) + Sync,
    ) {
        self.run_row_pairs(left, right, cost, &body);
    }

    fn run_row_pairs<A: Send, B: Send>(
        self,
        (left, left_width): (&mut [A], usize),
        (right, right_width): (&mut [B], usize),
        cost: usize,
        body: &RowPairBody<'_, A, B>,
    ) {
        if left_width == 0 || right_width == 0 || left.is_empty() {
            return;
        }
        let rows = left.len() / left_width;
        assert_eq!(rows, right.len() / right_width, "both outputs have as many rows");
        let length = self.part_length(rows, cost);
        if length >= rows {
            return body(0, left, right);
        }
        let parts = left.chunks_mut(length * left_width).zip(right.chunks_mut(length * right_width));
        self.run_each(parts.collect(), &|part, (left, right)| body(part * length, left, right));
    }

    /// The length of the parts that a loop over `total` indices of this cost is cut into; at least one.
    pub fn part_length(self, total: usize, cost: usize) -> usize {
        let work = total.saturating_mul(cost);
        let threads = if work < PARALLEL_WORK { 1 } else { self.count() };
        // As many for every thread, so that all of them end at about the same time.
        let rounds = (work / PART_WORK / threads).clamp(1, MAX_ROUNDS);
        total.div_ceil(threads * rounds).max(1)
    }

    /// Runs `body(i, parts[i])` for every part, on several threads if there are several parts.
    pub fn run_each<P: Send>(self, parts: Vec<P>, body: &(dyn Fn(usize, P) + Sync)) {
        let parts: Vec<Mutex<Option<P>>> = parts.into_iter().map(|part| Mutex::new(Some(part))).collect();
        self.run_parts(parts.len(), &|part| {
            let taken = parts[part].lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(taken) = taken {
                body(part, taken);
            }
        });
    }

    /// Runs `part(0)` to `part(parts - 1)`, each once, in about this order.
    fn run_parts(self, parts: usize, part: &(dyn Fn(usize) + Sync)) {
        let next = AtomicUsize::new(0);
        let run = || {
            loop {
                let at = next.fetch_add(1, Ordering::Relaxed);
                if at >= parts || self.is_interrupted() {
                    return;
                }
                part(at);
            }
        };
        let threads = self.count().min(parts);
        if threads < 2 {
            return run();
        }
        self.pool().scope(|scope| (0..threads).for_each(|_| scope.spawn(|_| run())));
    }

    /// Whether the rest of a loop is left out.
    fn is_interrupted(self) -> bool {
        let Some(interrupt) = self.interrupt else { return false };
        let cancelled = interrupt.cancellation.is_cancelled();
        if cancelled {
            interrupt.incomplete.store(true, Ordering::Relaxed);
        }
        cancelled
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status;
    use crate::tensor::BufferPool;
    use std::sync::Arc;

    fn device(threads: usize) -> Device {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        let name = "/job:localhost/replica:0/task:0/device:CPU:0";
        Device::new(name, 1, BufferPool::new(1 << 20), 1 << 20, Arc::new(pool)).unwrap()
    }

    #[test]
    fn every_index_and_row_is_visited_once() {
        for threads in [1, 2, 3] {
            let device = device(threads);
            let threads = device.threads();
            for (total, cost) in [(0, 1), (1, usize::MAX), (7, PART_WORK), (1000, 1), (1000, PART_WORK)] {
                let visits: Vec<AtomicUsize> = (0..total).map(|_| AtomicUsize::new(0)).collect();
                threads.parallel_for(total, cost, |part| {
                    part.for_each(|i| _ = visits[i].fetch_add(1, Ordering::Relaxed));
                });
                assert!(visits.iter().all(|count| count.load(Ordering::Relaxed) == 1), "{total} × {cost}");
                let (mut rows, mut ends) = (vec![0; total * 3], vec![0; total]);
                threads.parallel_rows(&mut rows, 3, cost, |first, rows| {
                    rows.iter_mut().enumerate().for_each(|(i, x)| *x += first * 3 + i);
                });
                assert!(rows.iter().enumerate().all(|(i, x)| i == *x));
                threads.parallel_row_pairs((&mut rows, 3), (&mut ends, 1), cost, |_, rows, ends| {
                    ends.iter_mut().zip(rows.chunks(3)).for_each(|(end, row)| *end += row[2]);
                });
                assert!(ends.iter().enumerate().all(|(i, end)| i * 3 + 2 == *end));
            }
        }
    }

    #[test]
    fn a_long_loop_ends_early_once_cancelled() {
        for threads in [1, 2] {
            let (device, cancellation) = (device(threads), Cancellation::new());
            let incomplete = AtomicBool::new(false);
            let threads = device.threads().until(&cancellation, &incomplete);
            let done = AtomicUsize::new(0);
            let cancel = |part: Range<usize>| {
                done.fetch_add(part.len(), Ordering::Relaxed);
                cancellation.cancel(status!(Cancelled, "enough"));
            };
            threads.parallel_for(1, usize::MAX, cancel);
            assert!(!incomplete.load(Ordering::Relaxed), "a part that has begun runs to its end");
            done.store(0, Ordering::Relaxed);
            threads.parallel_for(1000, PART_WORK, cancel);
            assert!(done.load(Ordering::Relaxed) < 1000);
            assert!(incomplete.load(Ordering::Relaxed));
        }
    }
}

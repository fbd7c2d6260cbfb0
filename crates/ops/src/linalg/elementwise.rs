//! The loops of element-wise functions of one, two or three operands.
//!
//! A loop fills a small block on the stack before it stores it, so that the compiler needs no proof that the output
//! does not overlap an operand: the same code serves results that replace an operand in place. Functions are inlined
//! into two versions of each loop, one for AVX2 and one for any processor.
#![allow(unsafe_code)]

use super::broadcast::Broadcast;
use ferroflow_core::device::Device;
use multiversion::multiversion;
use std::mem::MaybeUninit;
use std::ops::Range;

/// Elements per block: two AVX registers of `f32`, small enough to stay in registers.
const BLOCK: usize = 16;

/// Where a loop reads and writes. Copied into the threads that share the work.
struct Pointers<T, U, const N: usize> {
    out: *mut U,
    operands: [*const T; N],
}

impl<T, U, const N: usize> Clone for Pointers<T, U, N> {
    fn clone(&self) -> Self {
        *self
    }
}
impl<T, U, const N: usize> Copy for Pointers<T, U, N> {}

// SAFETY: parts of a loop write disjoint ranges of `out` and otherwise only read; the callers below hold the borrows.
unsafe impl<T: Sync, U: Send, const N: usize> Send for Pointers<T, U, N> {}
// SAFETY: as above.
unsafe impl<T: Sync, U: Send, const N: usize> Sync for Pointers<T, U, N> {}

/// Writes `f(x)` for each `x` of `input`.
pub fn map<T, U, F>(device: &Device, cost: usize, input: &[T], out: &mut [U], f: F)
where
    T: Copy + Sync,
    U: Copy + Send,
    F: Fn(T) -> U + Copy + Sync,
{
    assert_eq!(input.len(), out.len(), "one result per element");
    let pointers = Pointers { out: out.as_mut_ptr(), operands: [input.as_ptr()] };
    // SAFETY: both slices have `len` elements, are borrowed until the loop ends, and parts are disjoint.
    device.parallel_for(input.len(), cost, |part| unsafe { map_part(pointers, part, f) });
}

/// Replaces each `x` by `f(x)`.
pub fn map_in_place<T, F>(device: &Device, cost: usize, data: &mut [T], f: F)
where
    T: Copy + Send + Sync,
    F: Fn(T) -> T + Copy + Sync,
{
    let out = data.as_mut_ptr();
    let pointers = Pointers { out, operands: [out.cast_const()] };
    // SAFETY: as in `map`; each element is read before it is written.
    device.parallel_for(data.len(), cost, |part| unsafe { map_part(pointers, part, f) });
}

#[multiversion(targets("x86_64+avx+avx2+f16c"))]
unsafe fn map_part<T, U, F>(pointers: Pointers<T, U, 1>, part: Range<usize>, f: F)
where
    T: Copy,
    U: Copy,
    F: Fn(T) -> U,
{
    // SAFETY: the caller vouches for the pointers over this part.
    unsafe {
        let (out, x) = (pointers.out.add(part.start), pointers.operands[0].add(part.start));
        blocks(out, part.len(), |i| f(*x.add(i)));
    }
}

/// Where the result of [`zip`] goes.
pub enum Target<'a, T, U> {
    /// Into memory of its own; both operands are given.
    Separate(&'a [T], &'a [T], &'a mut [U]),
    /// Over the left operand; the right one is given.
    Left(&'a mut [U], &'a [T]),
    /// Over the right operand; the left one is given.
    Right(&'a [T], &'a mut [U]),
}

/// Computes `f(x, y)` over the broadcast of two operands. A result may replace an operand only if it has the same
/// type and the operand is not repeated.
pub fn zip<T, U, F>(device: &Device, cost: usize, plan: &Broadcast<2>, target: Target<'_, T, U>, f: F)
where
    T: Copy + Sync + 'static,
    U: Copy + Send + 'static,
    F: Fn(T, T) -> U + Copy + Sync,
{
    let same_type = std::any::TypeId::of::<T>() == std::any::TypeId::of::<U>();
    let (out, lengths, operands) = match target {
        Target::Separate(a, b, out) => {
            assert_eq!(out.len(), plan.elements(), "the output has the broadcast's size");
            (out.as_mut_ptr(), [a.len(), b.len()], [a.as_ptr(), b.as_ptr()])
        }
        Target::Left(out, b) => {
            assert!(
                same_type && out.len() == plan.elements(),
                "the left operand has the result's type and size"
            );
            let pointer = out.as_mut_ptr();
            (pointer, [out.len(), b.len()], [pointer.cast_const().cast(), b.as_ptr()])
        }
        Target::Right(a, out) => {
            assert!(
                same_type && out.len() == plan.elements(),
                "the right operand has the result's type and size"
            );
            let pointer = out.as_mut_ptr();
            (pointer, [a.len(), out.len()], [a.as_ptr(), pointer.cast_const().cast()])
        }
    };
    if plan.elements() == 0 {
        return;
    }
    assert_eq!(
        lengths,
        [plan.operand_elements(0), plan.operand_elements(1)],
        "operands have the plan's sizes"
    );
    let pointers = Pointers { out, operands };
    let (rows, columns) = (plan.rows(), plan.columns());
    if rows == 1 {
        // SAFETY: lengths were checked above; parts are disjoint; an operand that is also the output moves with it, so
        // each of its elements is read before it is written.
        device.parallel_for(columns, cost, |part| unsafe { zip_part(pointers, plan, 0..1, part, f) });
    } else {
        let cost = cost.saturating_mul(columns);
        // SAFETY: as above.
        device.parallel_for(rows, cost, |part| unsafe { zip_part(pointers, plan, part, 0..columns, f) });
    }
}

#[multiversion(targets("x86_64+avx+avx2+f16c"))]
unsafe fn zip_part<T, U, F>(
    pointers: Pointers<T, U, 2>,
    plan: &Broadcast<2>,
    rows: Range<usize>,
    columns: Range<usize>,
    f: F,
) where
    T: Copy,
    U: Copy,
    F: Fn(T, T) -> U,
{
    let (width, length) = (plan.columns(), columns.len());
    let [x, y] = pointers.operands;
    match plan.moves() {
        [true, false] => plan.for_rows(rows, |row, [i, j]| {
            // SAFETY: the plan's offsets stay within operands of the sizes that `zip` checked.
            unsafe {
                let (out, x, y) =
                    (pointers.out.add(row * width + columns.start), x.add(i + columns.start), *y.add(j));
                blocks(out, length, |i| f(*x.add(i), y));
            }
        }),
        [false, true] => plan.for_rows(rows, |row, [i, j]| {
            // SAFETY: as above.
            unsafe {
                let (out, x, y) =
                    (pointers.out.add(row * width + columns.start), *x.add(i), y.add(j + columns.start));
                blocks(out, length, |i| f(x, *y.add(i)));
            }
        }),
        _ => plan.for_rows(rows, |row, [i, j]| {
            // SAFETY: as above.
            unsafe {
                let start = columns.start;
                let (out, x, y) = (pointers.out.add(row * width + start), x.add(i + start), y.add(j + start));
                blocks(out, length, |i| f(*x.add(i), *y.add(i)));
            }
        }),
    }
}

/// Computes `f(x, y, z)` over the broadcast of three operands.
pub fn zip3<T, F>(device: &Device, cost: usize, plan: &Broadcast<3>, operands: [&[T]; 3], out: &mut [T], f: F)
where
    T: Copy + Send + Sync,
    F: Fn(T, T, T) -> T + Copy + Sync,
{
    assert_eq!(out.len(), plan.elements(), "the output has the broadcast's size");
    if plan.elements() == 0 {
        return;
    }
    for (i, operand) in operands.iter().enumerate() {
        assert_eq!(operand.len(), plan.operand_elements(i), "operands have the plan's sizes");
    }
    let steps = plan.moves().map(usize::from);
    let width = plan.columns();
    device.parallel_rows(out, width, cost, |first, part| {
        plan.for_rows(first..first + part.len() / width, |row, offsets| {
            let out = &mut part[(row - first) * width..][..width];
            let [x, y, z] = [0, 1, 2].map(|i| &operands[i][offsets[i]..]);
            for (i, out) in out.iter_mut().enumerate() {
                *out = f(x[i * steps[0]], y[i * steps[1]], z[i * steps[2]]);
            }
        });
    });
}

/// Writes `f(i)` to `out[i]` for `i` below `length`, a block at a time. `f(i)` reads nothing that a lower index wrote.
#[inline(always)]
unsafe fn blocks<U: Copy>(out: *mut U, length: usize, f: impl Fn(usize) -> U) {
    let mut done = 0;
    while done + BLOCK <= length {
        let mut block = [MaybeUninit::<U>::uninit(); BLOCK];
        for (i, slot) in block.iter_mut().enumerate() {
            slot.write(f(done + i));
        }
        // SAFETY: the caller vouches for `length` elements; every slot was written.
        unsafe { out.add(done).cast::<[MaybeUninit<U>; BLOCK]>().write(block) };
        done += BLOCK;
    }
    while done < length {
        // SAFETY: as above.
        unsafe { out.add(done).write(f(done)) };
        done += 1;
    }
}

//! The loops of element-wise functions of one, two or three operands.
//!
//! A [`Loop`] knows its element types only inside: what surrounds it (broadcasting, memory, threads) is compiled once
//! for all of them. A loop fills a small block on the stack before it stores it, so that the compiler needs no proof
//! that the output does not overlap an operand: the same code serves results that replace an operand in place. Wide
//! loops of the types that models compute with are compiled for AVX2, too, without fused products: every machine computes
//! the same bits. Functions that are slow by themselves take one element after another, which is the least code.
#![allow(unsafe_code)]

use super::broadcast::Broadcast;
use crate::numeric::Float;
use ferroflow_core::device::Threads;
use ferroflow_core::{DType, Element, Result, Tensor, ensure};
use multiversion::multiversion;
use std::mem::MaybeUninit;

/// Elements per block: four registers of `f32`, small enough to stay in registers.
const BLOCK: usize = 16;
/// Elements of at most four bytes per block of a wide loop: four AVX registers of `f32`.
const WIDE_BLOCK: usize = 32;
/// Elements that are widened at a time.
const WIDENED: usize = 256;

/// The addresses that a run reads and writes.
#[derive(Clone, Copy)]
struct Pointers<const N: usize> {
    out: *mut u8,
    operands: [*const u8; N],
}

impl<const N: usize> Pointers<N> {
    /// The pointers moved by these numbers of bytes, which must stay within the memory.
    unsafe fn at(&self, out: usize, operands: [usize; N]) -> Pointers<N> {
        // SAFETY: the caller vouches for the distances.
        unsafe {
            Pointers {
                out: self.out.add(out),
                operands: std::array::from_fn(|i| self.operands[i].add(operands[i])),
            }
        }
    }
}

// SAFETY: parts of a loop write disjoint ranges of `out` and otherwise only read; `Loop::run` holds the borrows.
unsafe impl<const N: usize> Send for Pointers<N> {}
// SAFETY: as above.
unsafe impl<const N: usize> Sync for Pointers<N> {}

/// Runs over `length` elements; operands that do not move are read at one element. The caller vouches for the
/// pointers.
type Run<const N: usize> = dyn Fn(&Pointers<N>, usize, [bool; N]) + Send + Sync;

/// An element-wise function of `N` operands of one type.
pub(crate) struct Loop<const N: usize> {
    input: DType,
    output: DType,
    run: Box<Run<N>>,
}

impl Loop<1> {
    /// Computes `f(x)`.
    pub(crate) fn map<T, U, F>(f: F) -> Loop<1>
    where
        T: Element + Copy,
        U: Element + Copy,
        F: Fn(T) -> U + Send + Sync + 'static,
    {
        let run = move |pointers: &Pointers<1>, length: usize, _: [bool; 1]| {
            let x = pointers.operands[0].cast::<T>();
            // SAFETY: the caller vouches for `length` elements of these types.
            unsafe { blocks(pointers.out.cast::<U>(), length, |i| f(*x.add(i))) }
        };
        Loop { input: T::DTYPE, output: U::DTYPE, run: Box::new(run) }
    }

    /// Computes `f(x)` one element at a time, for functions that vectors do not make faster.
    pub(crate) fn map_each<T, U, F>(f: F) -> Loop<1>
    where
        T: Element + Copy,
        U: Element + Copy,
        F: Fn(T) -> U + Send + Sync + 'static,
    {
        let run = move |pointers: &Pointers<1>, length: usize, _: [bool; 1]| {
            let (out, x) = (pointers.out.cast::<U>(), pointers.operands[0].cast::<T>());
            for i in 0..length {
                // SAFETY: the caller vouches for `length` elements of these types.
                unsafe { out.add(i).write(f(*x.add(i))) };
            }
        };
        Loop { input: T::DTYPE, output: U::DTYPE, run: Box::new(run) }
    }

    /// Computes `f(x)` for a function that most models use: compiled for wide registers, too. `f` must be a function
    /// that is always inlined.
    pub(crate) fn wide_map<T, F>(f: F) -> Loop<1>
    where
        T: Element + Copy,
        F: Fn(T) -> T + Copy + Send + Sync + 'static,
    {
        let run = move |pointers: &Pointers<1>, length: usize, _: [bool; 1]| {
            let (out, x) = (pointers.out.cast::<T>(), pointers.operands[0].cast::<T>());
            // SAFETY: the caller vouches for `length` elements of this type.
            unsafe { wide_blocks(out, length, |i| f(*x.add(i))) }
        };
        Loop { input: T::DTYPE, output: T::DTYPE, run: Box::new(run) }
    }
}

impl Loop<2> {
    /// Computes `f(x, y)`.
    pub(crate) fn zip<T, U, F>(f: F) -> Loop<2>
    where
        T: Element + Copy,
        U: Element + Copy,
        F: Fn(T, T) -> U + Send + Sync + 'static,
    {
        let run = move |pointers: &Pointers<2>, length: usize, moves: [bool; 2]| {
            let (x, y) = (pointers.operands[0].cast::<T>(), pointers.operands[1].cast::<T>());
            let out = pointers.out.cast::<U>();
            // SAFETY: the caller vouches for `length` elements of these types, or one where an operand does not move.
            unsafe {
                match moves {
                    [true, false] if const { gains_from_vectors(T::DTYPE) } => {
                        let y = *y;
                        blocks(out, length, |i| f(*x.add(i), y))
                    }
                    [false, true] if const { gains_from_vectors(T::DTYPE) } => {
                        let x = *x;
                        blocks(out, length, |i| f(x, *y.add(i)))
                    }
                    [true, true] => blocks(out, length, |i| f(*x.add(i), *y.add(i))),
                    _ => each_pair(out, x, y, length, moves, &f),
                }
            }
        };
        Loop { input: T::DTYPE, output: U::DTYPE, run: Box::new(run) }
    }

    /// Computes `f(x, y)` one element at a time, for functions that vectors do not make faster.
    pub(crate) fn zip_each<T, U, F>(f: F) -> Loop<2>
    where
        T: Element + Copy,
        U: Element + Copy,
        F: Fn(T, T) -> U + Send + Sync + 'static,
    {
        let run = move |pointers: &Pointers<2>, length: usize, moves: [bool; 2]| {
            let (x, y) = (pointers.operands[0].cast::<T>(), pointers.operands[1].cast::<T>());
            // SAFETY: the caller vouches for `length` elements of these types, or one where an operand does not move.
            unsafe { each_pair(pointers.out.cast::<U>(), x, y, length, moves, &f) }
        };
        Loop { input: T::DTYPE, output: U::DTYPE, run: Box::new(run) }
    }

    /// Computes `f(x, y)` for a function that most models use: compiled for wide registers, too. `f` must be a function
    /// that is always inlined.
    pub(crate) fn wide_zip<T, F>(f: F) -> Loop<2>
    where
        T: Element + Copy,
        F: Fn(T, T) -> T + Copy + Send + Sync + 'static,
    {
        let run = move |pointers: &Pointers<2>, length: usize, moves: [bool; 2]| {
            let (x, y) = (pointers.operands[0].cast::<T>(), pointers.operands[1].cast::<T>());
            let out = pointers.out.cast::<T>();
            // SAFETY: the caller vouches for `length` elements of this type, or one where an operand does not move.
            unsafe {
                match moves {
                    [true, false] if const { gains_from_vectors(T::DTYPE) } => {
                        let y = *y;
                        wide_blocks(out, length, |i| f(*x.add(i), y))
                    }
                    [false, true] if const { gains_from_vectors(T::DTYPE) } => {
                        let x = *x;
                        wide_blocks(out, length, |i| f(x, *y.add(i)))
                    }
                    [true, true] => wide_blocks(out, length, |i| f(*x.add(i), *y.add(i))),
                    _ => each_pair(out, x, y, length, moves, &f),
                }
            }
        };
        Loop { input: T::DTYPE, output: T::DTYPE, run: Box::new(run) }
    }
}

impl Loop<3> {
    /// Computes `f(x, y, z)`.
    pub(crate) fn zip3<T, F>(f: F) -> Loop<3>
    where
        T: Element + Copy,
        F: Fn(T, T, T) -> T + Send + Sync + 'static,
    {
        let run = move |pointers: &Pointers<3>, length: usize, moves: [bool; 3]| {
            let [x, y, z] = pointers.operands.map(|operand| operand.cast::<T>());
            let out = pointers.out.cast::<T>();
            // SAFETY: the caller vouches for `length` elements of this type, or one where an operand does not move.
            unsafe {
                if moves == [true, false, false] {
                    let (y, z) = (*y, *z);
                    return blocks(out, length, |i| f(*x.add(i), y, z));
                }
                let [a, b, c] = moves.map(usize::from);
                blocks(out, length, |i| f(*x.add(i * a), *y.add(i * b), *z.add(i * c)))
            }
        };
        Loop { input: T::DTYPE, output: T::DTYPE, run: Box::new(run) }
    }
}

impl<const N: usize> Loop<N> {
    /// The same function of a 16-bit float: operands are widened to `f32`, and a result of that type is rounded.
    pub(crate) fn widened<H: Float<Math = f32>>(self) -> Loop<N> {
        assert_eq!(self.input, DType::Float, "only single precision is what 16-bit floats widen to");
        let rounded = self.output == DType::Float;
        let inner = self.run;
        let run = move |pointers: &Pointers<N>, length: usize, moves: [bool; N]| {
            let mut operands = [[0.0f32; WIDENED]; N];
            let mut results = [0.0f32; WIDENED];
            let mut done = 0;
            while done < length {
                let count = WIDENED.min(length - done);
                for (i, buffer) in operands.iter_mut().enumerate() {
                    let (start, used) = if moves[i] { (done, count) } else { (0, 1) };
                    // SAFETY: the caller vouches for these elements; every bit pattern is a number.
                    let source = unsafe {
                        std::slice::from_raw_parts(pointers.operands[i].cast::<H>().add(start), used)
                    };
                    for (wide, x) in buffer.iter_mut().zip(source) {
                        *wide = x.to_math();
                    }
                }
                let sources = operands.each_ref().map(|buffer| buffer.as_ptr().cast::<u8>());
                if rounded {
                    let block = Pointers { out: results.as_mut_ptr().cast(), operands: sources };
                    inner(&block, count, moves);
                    for (i, result) in results[..count].iter().enumerate() {
                        // SAFETY: the caller vouches for `length` elements of the output.
                        unsafe { pointers.out.cast::<H>().add(done + i).write(H::from_math(*result)) };
                    }
                } else {
                    // Results of other types (answers) are one byte each.
                    // SAFETY: as above.
                    let out = unsafe { pointers.out.add(done) };
                    inner(&Pointers { out, operands: sources }, count, moves);
                }
                done += count;
            }
        };
        let output = if rounded { H::DTYPE } else { self.output };
        assert!(rounded || output.size() == 1, "answers are one byte each");
        Loop { input: H::DTYPE, output, run: Box::new(run) }
    }

    /// Runs over the broadcast of the operands. An operand that is `None` is the output itself, which must then have
    /// that operand's type and not repeat it. Tensors of other types with the same width and bits are accepted.
    pub(crate) fn run(
        &self,
        threads: Threads<'_>,
        cost: usize,
        plan: &Broadcast<N>,
        out: &mut Tensor,
        operands: [Option<&Tensor>; N],
    ) -> Result<()> {
        let elements = plan.elements();
        if elements == 0 {
            return Ok(());
        }
        let expected: [usize; N] = std::array::from_fn(|i| plan.operand_elements(i));
        let mut pointers = Pointers { out: std::ptr::null_mut(), operands: [std::ptr::null(); N] };
        self.check(elements, expected, out, operands, &mut pointers)?;
        let (rows, columns, moves) = (plan.rows(), plan.columns(), plan.moves());
        let (input, output) = (self.input.size(), self.output.size());
        if rows == 1 {
            threads.parallel_for(columns, cost, |part| {
                let offsets = moves.map(|moves| if moves { part.start } else { 0 });
                // SAFETY: offsets stay within the sizes checked above, here and below.
                let part_pointers = unsafe { pointers.at(part.start * output, offsets.map(|i| i * input)) };
                (self.run)(&part_pointers, part.len(), moves);
            });
        } else {
            threads.parallel_for(rows, cost.saturating_mul(columns), |part| {
                plan.for_rows(part, |row, offsets| {
                    // SAFETY: as above.
                    let row = unsafe { pointers.at(row * columns * output, offsets.map(|i| i * input)) };
                    (self.run)(&row, columns, moves);
                });
            });
        }
        Ok(())
    }

    /// Runs over one element of each operand.
    #[inline]
    pub(crate) fn run_one(&self, out: &mut Tensor, operands: [Option<&Tensor>; N]) -> Result<()> {
        let mut pointers = Pointers { out: std::ptr::null_mut(), operands: [std::ptr::null(); N] };
        self.check(1, [1; N], out, operands, &mut pointers)?;
        (self.run)(&pointers, 1, [true; N]);
        Ok(())
    }

    /// Checks that the tensors are what the loop will read and write, and takes their addresses.
    #[inline]
    fn check(
        &self,
        elements: usize,
        expected: [usize; N],
        out: &mut Tensor,
        operands: [Option<&Tensor>; N],
        pointers: &mut Pointers<N>,
    ) -> Result<()> {
        let fits = |have: DType, want: DType| {
            have == want || (have.size() == want.size() && have != DType::Bool && want != DType::Bool)
        };
        ensure!(
            fits(out.dtype(), self.output) && out.elements() == elements,
            Internal,
            "an element-wise loop writes {elements} elements of {}, not {out:?}",
            self.output
        );
        for (i, operand) in operands.iter().enumerate() {
            let Some(tensor) = operand else {
                let in_place = fits(out.dtype(), self.input) && expected[i] == elements;
                ensure!(in_place, Internal, "the result cannot replace operand {i}");
                continue;
            };
            ensure!(
                fits(tensor.dtype(), self.input) && tensor.elements() == expected[i],
                Internal,
                "an element-wise loop reads {} elements of {}, not {tensor:?}",
                expected[i],
                self.input
            );
            pointers.operands[i] = tensor.bytes()?.as_ptr();
        }
        pointers.out = match self.output.size() {
            1 => out.units_mut::<u8>()?.as_mut_ptr(),
            2 => out.units_mut::<u16>()?.as_mut_ptr().cast(),
            4 => out.units_mut::<u32>()?.as_mut_ptr().cast(),
            8 => out.units_mut::<u64>()?.as_mut_ptr().cast(),
            _ => out.units_mut::<u128>()?.as_mut_ptr().cast(),
        };
        for (address, operand) in pointers.operands.iter_mut().zip(operands) {
            if operand.is_none() {
                *address = pointers.out;
            }
        }
        Ok(())
    }
}

/// Writes `f(x[i], y[i])` to `out[i]`, one element after another; operands that do not move are read at one element.
#[inline(always)]
unsafe fn each_pair<T: Copy, U>(
    out: *mut U,
    x: *const T,
    y: *const T,
    length: usize,
    moves: [bool; 2],
    f: &impl Fn(T, T) -> U,
) {
    let (step_x, step_y) = (usize::from(moves[0]), usize::from(moves[1]));
    for i in 0..length {
        // SAFETY: the caller vouches for `length` elements, or one where an operand does not move.
        unsafe { out.add(i).write(f(*x.add(i * step_x), *y.add(i * step_y))) };
    }
}

/// Like [`blocks`], with wide registers where the machine has them and there is enough for them to do.
#[inline(always)]
unsafe fn wide_blocks<U: Element + Copy>(out: *mut U, length: usize, f: impl Fn(usize) -> U + Copy) {
    // SAFETY: the caller vouches for `length` elements.
    unsafe {
        if const { !gains_from_vectors(U::DTYPE) } {
            blocks(out, length, f);
        } else if length < BLOCK {
            for i in 0..length {
                out.add(i).write(f(i));
            }
        } else {
            dispatched_blocks(out, length, f);
        }
    }
}

#[multiversion(targets("x86_64+avx+avx2"))]
unsafe fn dispatched_blocks<U: Copy, F: Fn(usize) -> U>(out: *mut U, length: usize, f: F) {
    // SAFETY: the caller vouches for `length` elements.
    unsafe {
        if size_of::<U>() <= 4 {
            blocks_of::<WIDE_BLOCK, U>(out, length, f);
        } else {
            blocks_of::<BLOCK, U>(out, length, f);
        }
    }
}

/// Whether loops over a type are compiled for wide registers: models compute with these. Other types are there for
/// completeness, and small integers fill narrow registers well.
const fn gains_from_vectors(dtype: DType) -> bool {
    matches!(dtype, DType::Float | DType::Double | DType::Int32 | DType::Int64)
}

/// Writes `f(i)` to `out[i]` for `i` below `length`, a block at a time. `f(i)` reads nothing that a lower index wrote.
#[inline(always)]
unsafe fn blocks<U: Copy>(out: *mut U, length: usize, f: impl Fn(usize) -> U) {
    // SAFETY: the caller vouches for `length` elements.
    unsafe { blocks_of::<BLOCK, U>(out, length, f) }
}

#[inline(always)]
unsafe fn blocks_of<const SIZE: usize, U: Copy>(out: *mut U, length: usize, f: impl Fn(usize) -> U) {
    let mut done = 0;
    while done + SIZE <= length {
        let mut block = [const { MaybeUninit::<U>::uninit() }; SIZE];
        for (i, slot) in block.iter_mut().enumerate() {
            slot.write(f(done + i));
        }
        // SAFETY: the caller vouches for `length` elements; every slot was written.
        unsafe { out.add(done).cast::<[MaybeUninit<U>; SIZE]>().write(block) };
        done += SIZE;
    }
    for i in done..length {
        // SAFETY: as above.
        unsafe { out.add(i).write(f(i)) };
    }
}

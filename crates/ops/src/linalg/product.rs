//! Matrix products over `gemm`, for every element type that has a `MatMul`.
#![allow(unsafe_code)]

use super::plain_product::{gemm_runs, multiply_rows};
use crate::numeric::Num;
use ferroflow_core::device::Threads;
use ferroflow_core::{C64, C128, Element, bf16, f16};
use std::ops::Range;

/// A matrix inside a flat slice: how to step through rows and columns.
#[derive(Clone, Copy)]
pub(crate) struct MatrixView<'a, T> {
    data: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
    conjugate: bool,
}

impl<'a, T> MatrixView<'a, T> {
    /// The row-major matrix `stored_rows × stored_columns` in `data`, transposed if asked to.
    pub(crate) fn new(
        data: &'a [T],
        stored_rows: usize,
        stored_columns: usize,
        transpose: bool,
    ) -> MatrixView<'a, T> {
        assert_eq!(data.len(), stored_rows * stored_columns, "the slice is the matrix");
        if transpose {
            return MatrixView {
                data,
                rows: stored_columns,
                columns: stored_rows,
                row_stride: 1,
                column_stride: stored_columns,
                conjugate: false,
            };
        }
        MatrixView {
            data,
            rows: stored_rows,
            columns: stored_columns,
            row_stride: stored_columns,
            column_stride: 1,
            conjugate: false,
        }
    }

    /// The conjugate transpose instead of the plain one, if the matrix is transposed at all.
    pub(crate) fn adjoint(
        data: &'a [T],
        stored_rows: usize,
        stored_columns: usize,
        adjoint: bool,
    ) -> MatrixView<'a, T> {
        let view = MatrixView::new(data, stored_rows, stored_columns, adjoint);
        MatrixView { conjugate: adjoint, ..view }
    }

    /// Rows after transposition.
    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    /// Columns after transposition.
    pub(crate) fn columns(&self) -> usize {
        self.columns
    }

    /// Some of the rows.
    #[must_use]
    pub(crate) fn band(&self, rows: Range<usize>) -> MatrixView<'a, T> {
        assert!(rows.start <= rows.end && rows.end <= self.rows, "the band lies in the matrix");
        let start = (rows.start * self.row_stride).min(self.data.len());
        MatrixView { data: &self.data[start..], rows: rows.len(), ..*self }
    }

    /// A matrix of which rows, and elements of rows, are some elements of `data` apart.
    pub(crate) fn strided(
        data: &'a [T],
        (rows, columns): (usize, usize),
        (row_stride, column_stride): (usize, usize),
        conjugate: bool,
    ) -> MatrixView<'a, T> {
        let last = rows.saturating_sub(1) * row_stride + columns.saturating_sub(1) * column_stride;
        assert!(rows == 0 || columns == 0 || last < data.len(), "the matrix lies in the slice");
        MatrixView { data, rows, columns, row_stride, column_stride, conjugate }
    }

    /// A block of the matrix.
    #[must_use]
    pub(crate) fn block(&self, rows: Range<usize>, columns: Range<usize>) -> MatrixView<'a, T> {
        assert!(columns.start <= columns.end && columns.end <= self.columns, "the block lies in the matrix");
        let band = self.band(rows);
        let start = (columns.start * self.column_stride).min(band.data.len());
        MatrixView { data: &band.data[start..], columns: columns.len(), ..band }
    }

    /// The element there, after transposition, as it is stored.
    pub(crate) fn at(&self, row: usize, column: usize) -> &T {
        &self.data[row * self.row_stride + column * self.column_stride]
    }
}

impl<T: Num> MatrixView<'_, T> {
    /// The element there, after transposition and conjugation.
    #[inline(always)]
    pub(crate) fn value(&self, row: usize, column: usize) -> T {
        let value = *self.at(row, column);
        if self.conjugate { value.conj() } else { value }
    }
}

/// An element type with a matrix product.
pub(crate) trait Gemm: Element {
    /// Writes `a · b` into the row-major `out`.
    fn multiply(threads: Threads<'_>, a: MatrixView<'_, Self>, b: MatrixView<'_, Self>, out: &mut [Self]);
}

/// Products with fewer multiplications than this run on one thread, which takes less time than waking another one: a
/// layer of 64 by 128 with 64 examples has a quarter of it.
const PARALLEL_WORK: usize = 1 << 21;

macro_rules! by_gemm {
    ($($type:ty => $inner:ty, $zero:expr, $one:expr);+ $(;)?) => {$(
        impl Gemm for $type {
            fn multiply(threads: Threads<'_>, a: MatrixView<'_, $type>, b: MatrixView<'_, $type>, out: &mut [$type]) {
                let (m, k, n) = (a.rows, a.columns, b.columns);
                assert_eq!(b.rows, k, "inner dimensions agree");
                assert_eq!(out.len(), m * n, "the output has the product's size");
                if m == 0 || n == 0 {
                    return;
                }
                if k == 0 {
                    return out.fill($zero);
                }
                if !gemm_runs() {
                    return threads.parallel_rows(out, n, k, |first, rows| multiply_rows(a, b, first, rows, false));
                }
                let work = m * k * n;
                let count = if work < PARALLEL_WORK { 1 } else { threads.count() };
                let parallelism =
                    if count > 1 { gemm::Parallelism::Rayon(count) } else { gemm::Parallelism::None };
                let mut run = || {
                    // SAFETY: the views and the output cover exactly the elements that these strides reach, the
                    // output does not overlap them (it is borrowed mutably), and with `read_dst` false it is only
                    // written.
                    unsafe {
                        gemm::gemm::<$inner>(
                            m, n, k,
                            out.as_mut_ptr().cast(), 1, n as isize, false,
                            a.data.as_ptr().cast(), a.column_stride as isize, a.row_stride as isize,
                            b.data.as_ptr().cast(), b.column_stride as isize, b.row_stride as isize,
                            $zero, $one, false, a.conjugate, b.conjugate, parallelism,
                        )
                    }
                };
                if count > 1 { threads.pool().install(run) } else { run() }
            }
        }
    )+};
}

by_gemm! {
    f32 => f32, 0.0, 1.0;
    f64 => f64, 0.0, 1.0;
    f16 => gemm::f16, f16::ZERO, f16::ONE;
    C64 => gemm::c32, C64::new(0.0, 0.0), C64::new(1.0, 0.0);
    C128 => gemm::c64, C128::new(0.0, 0.0), C128::new(1.0, 0.0);
}

/// Products that are subtracted run on one thread if they have fewer multiplications than this: decompositions make
/// many of them one after the other, and wait for the last thread of each.
const SHARED_WORK: usize = 1 << 23;

/// An element type whose products are subtracted from parts of matrices.
pub(crate) trait Subtract: Gemm {
    /// Subtracts `a · b` from the matrix whose rows lie `stride` elements apart in `out`; by several threads if given.
    fn subtract_product(
        threads: Option<Threads<'_>>,
        a: MatrixView<'_, Self>,
        b: MatrixView<'_, Self>,
        out: &mut [Self],
        stride: usize,
    );
}

macro_rules! subtract_by_gemm {
    ($($type:ty => $inner:ty, $one:expr);+ $(;)?) => {$(
        impl Subtract for $type {
            fn subtract_product(
                threads: Option<Threads<'_>>,
                a: MatrixView<'_, $type>,
                b: MatrixView<'_, $type>,
                out: &mut [$type],
                stride: usize,
            ) {
                let (m, k, n) = (a.rows, a.columns, b.columns);
                assert_eq!(b.rows, k, "inner dimensions agree");
                if m == 0 || n == 0 || k == 0 {
                    return;
                }
                assert!(n <= stride && (m - 1) * stride + n <= out.len(), "the product fits into the output");
                if !gemm_runs() {
                    for (i, row) in out.chunks_mut(stride).take(m).enumerate() {
                        for (j, x) in row[..n].iter_mut().enumerate() {
                            *x = (0..k).fold(*x, |sum, at| sum - a.value(i, at) * b.value(at, j));
                        }
                    }
                    return;
                }
                let threads = threads.filter(|threads| m * k * n >= SHARED_WORK && threads.count() > 1);
                let parallelism = match threads {
                    Some(threads) => gemm::Parallelism::Rayon(threads.count()),
                    None => gemm::Parallelism::None,
                };
                let mut run = || {
                    // SAFETY: the views cover the elements that their strides reach, the output was checked to above,
                    // and it does not overlap them (it is borrowed mutably).
                    unsafe {
                        gemm::gemm::<$inner>(
                            m, n, k,
                            out.as_mut_ptr().cast(), 1, stride as isize, true,
                            a.data.as_ptr().cast(), a.column_stride as isize, a.row_stride as isize,
                            b.data.as_ptr().cast(), b.column_stride as isize, b.row_stride as isize,
                            $one, -$one, false, a.conjugate, b.conjugate, parallelism,
                        )
                    }
                };
                match threads {
                    Some(threads) => threads.pool().install(run),
                    None => run(),
                }
            }
        }
    )+};
}

subtract_by_gemm! {
    f32 => f32, 1.0;
    f64 => f64, 1.0;
    C64 => gemm::c32, C64::new(1.0, 0.0);
    C128 => gemm::c64, C128::new(1.0, 0.0);
}

impl Gemm for bf16 {
    fn multiply(threads: Threads<'_>, a: MatrixView<'_, bf16>, b: MatrixView<'_, bf16>, out: &mut [bf16]) {
        // Widened, as stock accumulates in single precision.
        let widen = |view: MatrixView<'_, bf16>| view.data.iter().map(|x| x.to_f32()).collect::<Vec<f32>>();
        let (a_data, b_data) = (widen(a), widen(b));
        let mut product = vec![0.0f32; out.len()];
        let a = MatrixView {
            data: &a_data,
            rows: a.rows,
            columns: a.columns,
            row_stride: a.row_stride,
            column_stride: a.column_stride,
            conjugate: false,
        };
        let b = MatrixView {
            data: &b_data,
            rows: b.rows,
            columns: b.columns,
            row_stride: b.row_stride,
            column_stride: b.column_stride,
            conjugate: false,
        };
        f32::multiply(threads, a, b, &mut product);
        for (out, value) in out.iter_mut().zip(product) {
            *out = bf16::from_f32(value);
        }
    }
}

/// An element type whose products are also made piece by piece, each on the thread that wants it.
pub(crate) trait Tile: Gemm {
    /// Writes `a · b` into the row-major `out`, or adds it.
    fn multiply_tile(a: MatrixView<'_, Self>, b: MatrixView<'_, Self>, out: &mut [Self], add: bool);
}

macro_rules! tiles_by_gemm {
    ($($type:ty),+) => {$(
        impl Tile for $type {
            fn multiply_tile(a: MatrixView<'_, $type>, b: MatrixView<'_, $type>, out: &mut [$type], add: bool) {
                let (m, k, n) = (a.rows, a.columns, b.columns);
                assert_eq!(b.rows, k, "inner dimensions agree");
                assert_eq!(out.len(), m * n, "the output has the product's size");
                if m == 0 || n == 0 {
                    return;
                }
                if k == 0 {
                    if !add {
                        out.fill(0.0);
                    }
                    return;
                }
                if !gemm_runs() {
                    return multiply_rows(a, b, 0, out, add);
                }
                // SAFETY: the views and the output cover exactly the elements that these strides reach, and the output
                // does not overlap them (it is borrowed mutably).
                unsafe {
                    gemm::gemm::<$type>(
                        m, n, k,
                        out.as_mut_ptr(), 1, n as isize, add,
                        a.data.as_ptr(), a.column_stride as isize, a.row_stride as isize,
                        b.data.as_ptr(), b.column_stride as isize, b.row_stride as isize,
                        if add { 1.0 } else { 0.0 }, 1.0, false, a.conjugate, b.conjugate, gemm::Parallelism::None,
                    )
                }
            }
        }
    )+};
}
tiles_by_gemm!(f32, f64);

impl Tile for i32 {
    fn multiply_tile(a: MatrixView<'_, i32>, b: MatrixView<'_, i32>, out: &mut [i32], add: bool) {
        let (k, n) = (a.columns, b.columns);
        if n == 0 {
            return;
        }
        for (i, row) in out.chunks_mut(n).enumerate() {
            if !add {
                row.fill(0);
            }
            for inner in 0..k {
                let left = *a.at(i, inner);
                for (j, out) in row.iter_mut().enumerate() {
                    *out = out.wrapping_add(left.wrapping_mul(*b.at(inner, j)));
                }
            }
        }
    }
}

macro_rules! by_loops {
    ($($type:ty),+) => {$(
        impl Gemm for $type {
            fn multiply(threads: Threads<'_>, a: MatrixView<'_, $type>, b: MatrixView<'_, $type>, out: &mut [$type]) {
                let (k, n) = (a.columns, b.columns);
                let transposed;
                let b = if b.column_stride == 1 {
                    b
                } else {
                    transposed = (0..k * n).map(|at| *b.at(at / n, at % n)).collect::<Vec<$type>>();
                    MatrixView::new(&transposed, k, n, false)
                };
                threads.parallel_rows(out, n, k, |first, rows| {
                    for (i, row) in rows.chunks_mut(n).enumerate() {
                        row.fill(0);
                        for (inner, right) in b.data.chunks_exact(n).enumerate() {
                            let left = *a.at(first + i, inner);
                            for (out, right) in row.iter_mut().zip(right) {
                                *out = out.wrapping_add(left.wrapping_mul(*right));
                            }
                        }
                    }
                });
            }
        }
    )+};
}
by_loops!(i8, i16, i32, i64, u8, u16, u32, u64);

/// The positions of the matrices of a batch: the matrix at a batch position starts at the sum of position times stride.
#[derive(Clone, Copy)]
pub(crate) struct Batch<'a> {
    /// The batch's dimensions.
    pub(crate) dims: &'a [usize],
    /// Matrices to step over per dimension of the left operand; 0 repeats a matrix.
    pub(crate) left: &'a [usize],
    /// The same for the right operand.
    pub(crate) right: &'a [usize],
}

impl Batch<'_> {
    /// The numbers of the left and the right matrix of a position.
    pub(crate) fn find(&self, mut position: usize) -> (usize, usize) {
        let (mut at_left, mut at_right) = (0, 0);
        for axis in (0..self.dims.len()).rev() {
            let step = position % self.dims[axis];
            position /= self.dims[axis];
            at_left += step * self.left[axis];
            at_right += step * self.right[axis];
        }
        (at_left, at_right)
    }
}

/// Writes the product of each pair of matrices of a batch into `out`. `left` and `right` make a view of the matrix
/// with a given number.
pub(crate) fn multiply_batch<'a, T: Gemm>(
    threads: Threads<'_>,
    batch: Batch<'_>,
    left: impl Fn(usize) -> MatrixView<'a, T> + Sync,
    right: impl Fn(usize) -> MatrixView<'a, T> + Sync,
    out: &mut [T],
) {
    let count: usize = batch.dims.iter().product();
    if count == 0 || out.is_empty() {
        return;
    }
    let size = out.len() / count;
    let depth = left(0).columns();
    // Few large products are cut by rows inside each; many small ones are shared out.
    if count < 2 * threads.count() && size * depth >= PARALLEL_WORK {
        for (position, out) in out.chunks_mut(size).enumerate() {
            let (a, b) = batch.find(position);
            T::multiply(threads, left(a), right(b), out);
        }
        return;
    }
    threads.parallel_rows(out, size, depth.max(1), |first, part| {
        for (position, out) in part.chunks_mut(size).enumerate() {
            let (a, b) = batch.find(first + position);
            T::multiply(threads, left(a), right(b), out);
        }
    });
}

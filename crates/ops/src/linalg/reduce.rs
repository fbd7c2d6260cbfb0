//! Folding a tensor along axes: the loops behind sums, means, products, extremes and norms.
//!
//! Every reduction is brought to one shape, `outer × n × inner` folded along `n`; several separate axes are folded one
//! after another, innermost first. Long folds are joined as a balanced tree of short ones, so that rounding errors grow
//! with the logarithm of the length.

use super::SUM_PARTS;
use crate::numeric::{Int, Num, Real};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::KernelCx;
use ferroflow_core::{DType, Element, Result, Tensor};
use multiversion::multiversion;
use smallvec::SmallVec;
use std::marker::PhantomData;

/// A way to fold elements into one.
pub(crate) trait Fold: Send + Sync + 'static {
    /// The elements folded.
    type In: Element + Copy;
    /// The type that gathers them, at least as wide.
    type Acc: Element + Copy;
    /// The same fold over what this one gathered.
    type Again: Fold<In = Self::Acc, Acc = Self::Acc>;
    /// The result of folding nothing.
    fn identity() -> Self::Acc;
    /// An element as the fold gathers it.
    fn lift(element: Self::In) -> Self::Acc;
    /// Two partial results as one.
    fn join(a: Self::Acc, b: Self::Acc) -> Self::Acc;
    /// A result as an element.
    fn narrow(acc: Self::Acc) -> Self::In;
}

/// Turns folds of a number of elements into results, e.g. sums into means.
pub(crate) type Finish<A> = fn(&mut [A], usize);

/// One fold of `outer × n × inner` along `n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Axis {
    /// Elements before the folded axis.
    pub(crate) outer: usize,
    /// The folded length.
    pub(crate) n: usize,
    /// Elements after the folded axis.
    pub(crate) inner: usize,
}

/// The folds that reduce the marked axes of a tensor, in order; each works on the result of the one before.
pub(crate) fn plan(dims: &[i64], reduced: &dyn Fn(usize) -> bool) -> SmallVec<[Axis; 2]> {
    let mut groups: SmallVec<[(usize, bool); 8]> = SmallVec::new();
    for (axis, dim) in dims.iter().enumerate() {
        match groups.last_mut() {
            _ if *dim == 1 => {}
            Some((size, folded)) if *folded == reduced(axis) => *size *= *dim as usize,
            _ => groups.push((*dim as usize, reduced(axis))),
        }
    }
    let mut axes = SmallVec::new();
    while let Some(at) = groups.iter().rposition(|(_, folded)| *folded) {
        let product = |part: &[(usize, bool)]| part.iter().map(|(size, _)| size).product();
        axes.push(Axis { outer: product(&groups[..at]), n: groups[at].0, inner: product(&groups[at + 1..]) });
        groups.remove(at);
    }
    axes
}

/// The loops of a fold. What is around them is compiled once per pair of types, not once per fold.
pub(crate) struct Loops<I: 'static, A: 'static> {
    /// The fold of elements.
    first: Pass<I, A>,
    /// The same fold over what was gathered.
    again: Pass<A, A>,
    /// Folds rows of a width into results that their ids name; negative ids drop theirs.
    scatter: fn(&[I], &[i64], usize, &mut [A]),
    /// Results as elements.
    narrow: fn(&[A], &mut [I]),
}

/// A fold from elements to results.
struct Pass<I: 'static, A: 'static> {
    identity: A,
    /// Folds contiguous elements.
    row: fn(&[I]) -> A,
    /// Folds as many rows of a width, no longer than a leaf, as there are results.
    rows: fn(&[I], usize, &mut [A]),
    /// Folds columns of a few rows.
    columns: fn(&[I], Columns, &mut [A]),
    /// Joins results that come before those that are there.
    join: fn(&mut [A], &[A]),
}

/// Some columns of rows: as many as there are results.
#[derive(Clone, Copy)]
struct Columns {
    /// Elements of a row.
    width: usize,
    /// The first column.
    from: usize,
    /// Whether the first row replaces what is in the results, rather than join it.
    starts: bool,
}

/// Folds `input` by a plan; `out` receives what the last fold gathered.
pub(crate) fn fold_planned<F: Fold>(
    threads: Threads<'_>,
    input: &[F::In],
    axes: &[Axis],
    out: &mut [F::Acc],
) {
    Loops::of::<F>().fold_planned(threads, input, axes, out);
}

/// Folds `input`, of shape `outer × n × inner`, along `n` into `out`, of shape `outer × inner`.
pub(crate) fn fold<F: Fold>(threads: Threads<'_>, input: &[F::In], axis: Axis, out: &mut [F::Acc]) {
    Loops::of::<F>().fold(threads, input, axis, out);
}

impl<I: Element + Copy, A: Element + Copy> Loops<I, A> {
    /// The loops of `F`.
    pub(crate) fn of<F: Fold<In = I, Acc = A>>() -> Self {
        Loops {
            first: Pass::of::<F>(),
            again: Pass::of::<F::Again>(),
            scatter: scatter::<F>,
            narrow: narrow::<F>,
        }
    }

    /// Folds `input` by a plan; `out` receives what the last fold gathered.
    pub(crate) fn fold_planned(&self, threads: Threads<'_>, input: &[I], axes: &[Axis], out: &mut [A]) {
        let Some((first, rest)) = axes.split_first() else {
            let columns = Columns { width: input.len().max(1), from: 0, starts: true };
            return (self.first.columns)(input, columns, out);
        };
        let Some((last, middle)) = rest.split_last() else {
            return self.fold(threads, input, *first, out);
        };
        let identity = self.first.identity;
        let mut gathered = vec![identity; first.outer * first.inner];
        self.fold(threads, input, *first, &mut gathered);
        for axis in middle {
            let mut next = vec![identity; axis.outer * axis.inner];
            self.again.fold(threads, &gathered, *axis, &mut next, &self.again);
            gathered = next;
        }
        self.again.fold(threads, &gathered, *last, out, &self.again);
    }

    /// Folds `input`, of shape `outer × n × inner`, along `n` into `out`, of shape `outer × inner`.
    pub(crate) fn fold(&self, threads: Threads<'_>, input: &[I], axis: Axis, out: &mut [A]) {
        self.first.fold(threads, input, axis, out, &self.again);
    }

    /// Folds rows, at least one, into a single one on this thread.
    pub(crate) fn fold_rows(&self, input: &[I], out: &mut [A]) {
        self.first.fold_one(input, out.len(), out, &self.again);
    }

    /// Joins each row of `width` elements with the result that its id names; negative ids drop theirs.
    pub(crate) fn scatter(&self, input: &[I], ids: &[i64], width: usize, out: &mut [A]) {
        (self.scatter)(input, ids, width, out);
    }

    /// Results as a tensor of elements.
    pub(crate) fn narrowed(&self, cx: &KernelCx<'_>, gathered: Tensor) -> Result<Tensor> {
        if A::DTYPE == I::DTYPE {
            return Ok(gathered);
        }
        let mut output = cx.alloc::<I>(gathered.shape().clone())?;
        (self.narrow)(gathered.flat::<A>()?, output.flat_mut::<I>()?);
        Ok(output)
    }
}

/// Folds at least this long are cut for several threads.
pub(crate) const SPLIT_ELEMENTS: usize = 512 * 1024;

/// Elements that are folded without a tree.
const LEAF: usize = 1024;
/// Partial results kept side by side in a leaf, enough for four vector registers of floats.
const LANES: usize = 32;
/// Rows that are folded without a tree.
const LEAF_ROWS: usize = 32;
/// Columns folded at a time, so that partial results stay in the nearest cache.
const TILE: usize = 512;

impl<I: Element + Copy, A: Element + Copy> Pass<I, A> {
    fn of<F: Fold<In = I, Acc = A>>() -> Self {
        Pass {
            identity: F::identity(),
            row: fold_row::<F>,
            rows: fold_rows::<F>,
            columns: add_rows::<F>,
            join: join_into::<F>,
        }
    }

    /// Folds `input`, of shape `outer × n × inner`, along `n` into `out`, of shape `outer × inner`.
    fn fold(&self, threads: Threads<'_>, input: &[I], axis: Axis, out: &mut [A], again: &Pass<A, A>) {
        let Axis { outer, n, inner } = axis;
        assert_eq!(input.len(), outer * n * inner, "the slice is the tensor");
        assert_eq!(out.len(), outer * inner, "the output is the folded tensor");
        if out.is_empty() {
            return;
        }
        if n == 0 {
            return out.fill(self.identity);
        }
        // Too few outer parts to keep all threads busy: the folded axis itself is cut.
        if outer == 1 && n >= 2 * SUM_PARTS && input.len() >= SPLIT_ELEMENTS {
            let part = n.div_ceil(SUM_PARTS);
            let parts = n.div_ceil(part);
            let mut gathered = vec![self.identity; parts * inner];
            threads.parallel_rows(&mut gathered, inner, part, |first, rows| {
                for (row, gathered) in rows.chunks_mut(inner).enumerate() {
                    let from = (first + row) * part;
                    self.fold_one(
                        &input[from * inner..((from + part).min(n)) * inner],
                        inner,
                        gathered,
                        again,
                    );
                }
            });
            return again.fold_one(&gathered, inner, out, again);
        }
        if inner == 1 && n <= LEAF {
            let rows = |first: usize, out: &mut [A]| (self.rows)(&input[first * n..], n, out);
            return threads.parallel_rows(out, 1, n, rows);
        }
        threads.parallel_rows(out, inner, n, |first, rows| {
            for (row, out) in rows.chunks_mut(inner).enumerate() {
                let from = (first + row) * n * inner;
                self.fold_one(&input[from..from + n * inner], inner, out, again);
            }
        });
    }

    fn fold_one(&self, input: &[I], inner: usize, out: &mut [A], again: &Pass<A, A>) {
        match inner {
            1 => out[0] = (self.row)(input),
            _ if inner < LANES && input.len() >= 4 * LANES * inner => {
                self.fold_narrow(input, inner, out, again)
            }
            _ => self.fold_tiles(input, inner, out),
        }
    }

    fn fold_tiles(&self, input: &[I], inner: usize, out: &mut [A]) {
        for from in (0..inner).step_by(TILE) {
            let to = (from + TILE).min(inner);
            self.fold_columns(input, inner, from, &mut out[from..to]);
        }
    }

    /// Folds few columns as many: several rows are taken side by side, then folded into one.
    #[inline(never)]
    fn fold_narrow(&self, input: &[I], inner: usize, out: &mut [A], again: &Pass<A, A>) {
        let side_by_side = 2 * LANES;
        let wide = side_by_side * inner;
        let whole = input.len() / wide * wide;
        let mut gathered = vec![self.identity; wide];
        self.fold_tiles(&input[..whole], wide, &mut gathered);
        again.fold_columns(&gathered, inner, 0, out);
        (self.columns)(&input[whole..], Columns { width: inner, from: 0, starts: false }, out);
    }

    /// Folds the columns `from..from + out.len()` of rows of `width` elements.
    #[inline(never)]
    fn fold_columns(&self, input: &[I], width: usize, from: usize, out: &mut [A]) {
        let rows = input.len() / width;
        let columns = Columns { width, from, starts: true };
        if rows <= LEAF_ROWS {
            return (self.columns)(input, columns, out);
        }
        // A binary counter of partial results: level `k` holds the fold of `2^k` leaves.
        let mut levels: Vec<Vec<A>> = Vec::new();
        let leaves = input.chunks(LEAF_ROWS * width);
        for (leaf, rows) in leaves.enumerate() {
            (self.columns)(rows, columns, out);
            let level = leaf.trailing_ones() as usize;
            for lower in &levels[..level] {
                (self.join)(out, lower);
            }
            match levels.get_mut(level) {
                Some(slot) => slot.copy_from_slice(out),
                None => levels.push(out.to_vec()),
            }
        }
        let leaves = rows.div_ceil(LEAF_ROWS);
        let mut started = false;
        for (level, partial) in levels.iter().enumerate().filter(|(level, _)| leaves >> level & 1 == 1) {
            debug_assert!(level < usize::BITS as usize && partial.len() == out.len());
            if started {
                (self.join)(out, partial);
            } else {
                out.copy_from_slice(partial);
                started = true;
            }
        }
    }
}

/// Folds contiguous elements.
pub(crate) fn fold_row<F: Fold>(input: &[F::In]) -> F::Acc {
    if input.len() < LANES {
        return input.iter().fold(F::identity(), |acc, x| F::join(acc, F::lift(*x)));
    }
    if input.len() <= LEAF {
        return fold_leaf::<F>(input);
    }
    let half = (input.len() / 2).next_multiple_of(LANES);
    F::join(fold_row::<F>(&input[..half]), fold_row::<F>(&input[half..]))
}

/// Whether a fold is compiled for wide registers, too: those that models spend time in are of floats, and the oldest
/// processors have no instruction for the greater of two 32-bit integers.
const fn is_wide<F: Fold>() -> bool {
    matches!(F::In::DTYPE, DType::Float | DType::Double | DType::Int32)
}

fn fold_leaf<F: Fold>(input: &[F::In]) -> F::Acc {
    if const { is_wide::<F>() } { fold_wide_leaf::<F>(input) } else { leaf::<F>(input) }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn fold_wide_leaf<F: Fold>(input: &[F::In]) -> F::Acc {
    leaf::<F>(input)
}

/// Folds as many rows of `n` elements, no longer than a leaf, as there are results.
fn fold_rows<F: Fold>(input: &[F::In], n: usize, out: &mut [F::Acc]) {
    if const { is_wide::<F>() } && n >= LANES {
        return fold_wide_rows::<F>(input, n, out);
    }
    for (out, row) in out.iter_mut().zip(input.chunks_exact(n)) {
        *out = fold_row::<F>(row);
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn fold_wide_rows<F: Fold>(input: &[F::In], n: usize, out: &mut [F::Acc]) {
    for (out, row) in out.iter_mut().zip(input.chunks_exact(n)) {
        *out = leaf::<F>(row);
    }
}

/// Always inlined, so that it uses the instructions that the caller may.
#[inline(always)]
fn leaf<F: Fold>(input: &[F::In]) -> F::Acc {
    let mut lanes = [F::identity(); LANES];
    let mut chunks = input.chunks_exact(LANES);
    for chunk in &mut chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = F::join(*lane, F::lift(*x));
        }
    }
    for (lane, x) in lanes.iter_mut().zip(chunks.remainder()) {
        *lane = F::join(*lane, F::lift(*x));
    }
    let mut width = LANES / 2;
    while width > 0 {
        for lane in 0..width {
            lanes[lane] = F::join(lanes[lane], lanes[lane + width]);
        }
        width /= 2;
    }
    lanes[0]
}

fn join_into<F: Fold>(out: &mut [F::Acc], other: &[F::Acc]) {
    for (out, x) in out.iter_mut().zip(other) {
        *out = F::join(*x, *out);
    }
}

fn scatter<F: Fold>(input: &[F::In], ids: &[i64], width: usize, out: &mut [F::Acc]) {
    for (row, id) in input.chunks_exact(width).zip(ids) {
        let Ok(id) = usize::try_from(*id) else { continue };
        let out = &mut out[id * width..][..width];
        for (out, x) in out.iter_mut().zip(row) {
            *out = F::join(*out, F::lift(*x));
        }
    }
}

fn narrow<F: Fold>(gathered: &[F::Acc], out: &mut [F::In]) {
    for (out, acc) in out.iter_mut().zip(gathered) {
        *out = F::narrow(*acc);
    }
}

fn add_rows<F: Fold>(input: &[F::In], columns: Columns, out: &mut [F::Acc]) {
    if const { is_wide::<F>() } {
        add_wide_rows::<F>(input, columns, out);
    } else {
        add_row_by_row::<F>(input, columns, out);
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn add_wide_rows<F: Fold>(input: &[F::In], columns: Columns, out: &mut [F::Acc]) {
    add_row_by_row::<F>(input, columns, out);
}

/// Always inlined, so that it uses the instructions that the caller may.
#[inline(always)]
fn add_row_by_row<F: Fold>(input: &[F::In], columns: Columns, out: &mut [F::Acc]) {
    let Columns { width, from, starts } = columns;
    for (row, elements) in input.chunks_exact(width).enumerate() {
        let elements = &elements[from..from + out.len()];
        if starts && row == 0 {
            for (out, x) in out.iter_mut().zip(elements) {
                *out = F::lift(*x);
            }
        } else {
            for (out, x) in out.iter_mut().zip(elements) {
                *out = F::join(*out, F::lift(*x));
            }
        }
    }
}

macro_rules! folds {
    ($($name:ident<$bound:ident>, $doc:literal, $again:ident: $acc:ty, $identity:expr,
        |$x:ident| $lift:expr, |$a:ident, $b:ident| $join:expr, |$acc_value:ident| $narrow:expr;)+) => {$(
        #[doc = $doc]
        pub(crate) struct $name<T>(PhantomData<T>);
        impl<T: $bound> Fold for $name<T> {
            type In = T;
            type Acc = $acc;
            type Again = $again<$acc>;
            #[inline(always)]
            fn identity() -> $acc {
                $identity
            }
            #[inline(always)]
            fn lift($x: T) -> $acc {
                $lift
            }
            #[inline(always)]
            fn join($a: $acc, $b: $acc) -> $acc {
                $join
            }
            #[inline(always)]
            fn narrow($acc_value: $acc) -> T {
                $narrow
            }
        }
    )+};
}

folds! {
    Sum<Num>, "Adds elements; half precision in single, integers wrap.", Sum:
        T::Wide, T::Wide::ZERO, |x| x.widen(), |a, b| a.add(b), |acc| T::narrow(acc);
    SumOfSquares<Num>, "Adds squared magnitudes.", Sum:
        T::Wide, T::Wide::ZERO, |x| x.widen().mul(x.widen().conj()), |a, b| a.add(b), |acc| T::narrow(acc);
    Product<Num>, "Multiplies elements; half precision in single, integers wrap.", Product:
        T::Wide, T::Wide::ONE, |x| x.widen(), |a, b| a.mul(b), |acc| T::narrow(acc);
    Greatest<Real>, "Keeps the greatest element; not-a-number wins.", Greatest:
        T, T::LOWEST, |x| x, |a, b| a.maximum(b), |acc| acc;
    Least<Real>, "Keeps the least element; not-a-number wins.", Least:
        T, T::HIGHEST, |x| x, |a, b| a.minimum(b), |acc| acc;
    LateGreatest<Real>, "Keeps the greatest element since the last not-a-number.", LateGreatest:
        T, T::LOWEST, |x| x, |a, b| if a > b { a } else { b }, |acc| acc;
    LateLeast<Real>, "Keeps the least element since the last not-a-number.", LateLeast:
        T, T::HIGHEST, |x| x, |a, b| if a < b { a } else { b }, |acc| acc;
    RoundedSquares<Num>, "Adds squared magnitudes, each rounded to the element type.", Sum:
        T::Wide, T::Wide::ZERO, |x| x.mul(x.conj()).widen(), |a, b| a.add(b), |acc| T::narrow(acc);
    IntSum<Int>, "Adds integers in 64 bits, for means.", Sum:
        i64, 0, |x| x.to_i64(), |a, b| a.wrapping_add(b), |acc| T::from_i64(acc);
}

/// Whether all elements hold.
pub(crate) struct Every;

impl Fold for Every {
    type In = bool;
    type Acc = bool;
    type Again = Every;
    #[inline(always)]
    fn identity() -> bool {
        true
    }
    #[inline(always)]
    fn lift(x: bool) -> bool {
        x
    }
    #[inline(always)]
    fn join(a: bool, b: bool) -> bool {
        a & b
    }
    #[inline(always)]
    fn narrow(acc: bool) -> bool {
        acc
    }
}

/// Whether some element holds.
pub(crate) struct AtLeastOne;

impl Fold for AtLeastOne {
    type In = bool;
    type Acc = bool;
    type Again = AtLeastOne;
    #[inline(always)]
    fn identity() -> bool {
        false
    }
    #[inline(always)]
    fn lift(x: bool) -> bool {
        x
    }
    #[inline(always)]
    fn join(a: bool, b: bool) -> bool {
        a | b
    }
    #[inline(always)]
    fn narrow(acc: bool) -> bool {
        acc
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighboring_axes_are_merged_and_units_dropped() {
        let axis = |outer, n, inner| Axis { outer, n, inner };
        let plan = |dims: &[i64], reduced: &[usize]| plan(dims, &|axis| reduced.contains(&axis)).to_vec();
        assert_eq!(plan(&[2, 3, 1, 4], &[1, 3]), [axis(2, 12, 1)]);
        assert_eq!(plan(&[2, 3, 4], &[0, 2]), [axis(6, 4, 1), axis(1, 2, 3)]);
        assert_eq!(plan(&[2, 3, 4], &[]), []);
        assert_eq!(plan(&[0, 3], &[0]), [axis(1, 0, 3)]);
    }

    #[test]
    fn folds_of_every_length_and_width_see_each_element_once() {
        for (rows, columns) in [(1, 1), (33, 1), (5000, 1), (3, 7), (300, 7), (1000, 40), (100, 700)] {
            let input: Vec<i64> = (0..rows * columns).map(|x| (x * x) as i64).collect();
            let mut want = vec![0; columns];
            input.iter().enumerate().for_each(|(at, x)| want[at % columns] += x);
            let mut out = vec![7; columns];
            let sum = Pass::of::<Sum<i64>>();
            sum.fold_one(&input, columns, &mut out, &sum);
            assert_eq!(out, want, "{rows} × {columns}");
        }
    }

    #[test]
    fn long_sums_keep_their_precision() {
        let sum = fold_row::<Sum<f32>>(&vec![0.1; 1 << 20]) as f64;
        assert!((sum / (0.1f32 as f64 * (1 << 20) as f64) - 1.0).abs() < 1e-6);
    }
}

//! Fourier transforms over the last dimensions of a tensor, by `rustfft`.
//!
//! Rows are transformed where they are; columns are laid out as rows first, a few at a time.

use ferroflow_core::device::Threads;
use ferroflow_core::{Element, Result, status};
use num_complex::Complex;
use realfft::{ComplexToReal, RealFftPlanner, RealToComplex};
use rustfft::{Fft, FftDirection, FftNum, FftPlanner};
use std::sync::{Arc, Mutex, PoisonError};

/// A real number whose transforms are known.
pub(crate) trait Sample: FftNum + Element + num_traits::Float {
    /// The elements of a transform.
    type Complex: Element;
    /// The planner's view of elements.
    fn complex_mut(elements: &mut [Self::Complex]) -> &mut [Complex<Self>];
}

macro_rules! samples {
    ($($real:ty),+) => {$(
        impl Sample for $real {
            type Complex = Complex<$real>;
            fn complex_mut(elements: &mut [Complex<$real>]) -> &mut [Complex<$real>] { elements }
        }
    )+};
}

samples!(f32, f64);

/// The kind of a transform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// From complex numbers to complex numbers.
    Complex,
    /// The last dimension has real numbers on one side, and half of their symmetric transform on the other.
    Real,
}

/// A transform over some dimensions, as a kernel keeps it: plans of the lengths that came last.
pub(crate) struct Transform<R: Sample> {
    pub(crate) kind: Kind,
    pub(crate) forward: bool,
    plans: Mutex<Option<Arc<Plans<R>>>>,
}

/// Plans for lengths, the last of which may be one of real numbers.
struct Plans<R: Sample> {
    lengths: Vec<usize>,
    /// One per dimension that is transformed as complex numbers.
    complex: Vec<Arc<dyn Fft<R>>>,
    to_complex: Option<Arc<dyn RealToComplex<R>>>,
    to_real: Option<Arc<dyn ComplexToReal<R>>>,
}

/// Columns that are laid out as rows together: they share lines of a cache.
const TILE: usize = 8;

impl<R: Sample> Transform<R> {
    pub(crate) fn new(kind: Kind, forward: bool) -> Transform<R> {
        Transform { kind, forward, plans: Mutex::new(None) }
    }

    fn plans(&self, lengths: &[usize]) -> Arc<Plans<R>> {
        let mut kept = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(plans) = kept.as_ref().filter(|plans| plans.lengths == lengths) {
            return plans.clone();
        }
        let direction = if self.forward { FftDirection::Forward } else { FftDirection::Inverse };
        let (mut planner, mut real) = (FftPlanner::new(), RealFftPlanner::new());
        let mut plans =
            Plans { lengths: lengths.to_vec(), complex: Vec::new(), to_complex: None, to_real: None };
        let (last, others) = lengths.split_last().map_or((0, &[][..]), |(last, others)| (*last, others));
        plans.complex.extend(others.iter().map(|length| planner.plan_fft(*length, direction)));
        match (self.kind, self.forward) {
            (Kind::Complex, _) => plans.complex.push(planner.plan_fft(last, direction)),
            (Kind::Real, true) => plans.to_complex = Some(real.plan_fft_forward(last)),
            (Kind::Real, false) => plans.to_real = Some(real.plan_fft_inverse(last)),
        }
        let plans = Arc::new(plans);
        *kept = Some(plans.clone());
        plans
    }

    /// Transforms `data` in place over its last dimensions, which have these lengths; none is zero.
    pub(crate) fn complex(&self, threads: Threads<'_>, lengths: &[usize], data: &mut [R::Complex]) {
        let data = R::complex_mut(data);
        let plans = self.plans(lengths);
        let scale = if self.forward { R::one() } else { inverse_of::<R>(lengths) };
        let mut inner = 1;
        for (plan, length) in plans.complex.iter().zip(lengths).rev() {
            let last = std::ptr::eq(length, &raw const lengths[0]);
            transform_axis(threads, &**plan, data, inner, if last { scale } else { R::one() });
            inner *= length;
        }
    }

    /// Writes the transform of real rows into `out`. `rows` finds the row of `lengths.last()` numbers with a number.
    pub(crate) fn real_to_complex<'a>(
        &self,
        threads: Threads<'_>,
        lengths: &[usize],
        rows: &(dyn Fn(usize) -> &'a [R] + Sync),
        out: &mut [R::Complex],
    ) -> Result<()> {
        let out = R::complex_mut(out);
        let plans = self.plans(lengths);
        let plan = plans.to_complex.as_ref().ok_or_else(|| status!(Internal, "no plan of real numbers"))?;
        let (length, half) = (plan.len(), plan.len() / 2 + 1);
        threads.parallel_rows(out, half, work(length), |first, part| {
            let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
            for (number, out) in part.chunks_exact_mut(half).enumerate() {
                row.copy_from_slice(rows(first + number));
                // Sizes are the plan's own.
                let _ = plan.process_with_scratch(&mut row, out, &mut scratch);
            }
        });
        let mut inner = half;
        for (plan, length) in plans.complex.iter().zip(lengths).rev() {
            transform_axis(threads, &**plan, out, inner, R::one());
            inner *= length;
        }
        Ok(())
    }

    /// Writes the real numbers whose transform is in `data`, half of it in the last dimension.
    pub(crate) fn complex_to_real(
        &self,
        threads: Threads<'_>,
        lengths: &[usize],
        data: &mut [R::Complex],
        out: &mut [R],
    ) -> Result<()> {
        let data = R::complex_mut(data);
        let plans = self.plans(lengths);
        let plan = plans.to_real.as_ref().ok_or_else(|| status!(Internal, "no plan of real numbers"))?;
        let (length, half) = (plan.len(), plan.len() / 2 + 1);
        let mut inner = half;
        for (plan, length) in plans.complex.iter().zip(lengths).rev() {
            transform_axis(threads, &**plan, data, inner, R::one());
            inner *= length;
        }
        let (data, scale) = (&*data, inverse_of::<R>(lengths));
        threads.parallel_rows(out, length, work(length), |first, part| {
            let (mut row, mut scratch) = (plan.make_input_vec(), plan.make_scratch_vec());
            for (number, out) in part.chunks_exact_mut(length).enumerate() {
                row.copy_from_slice(&data[(first + number) * half..][..half]);
                // What a symmetric transform cannot have is left out, as in stock.
                row[0].im = R::zero();
                if length % 2 == 0 {
                    row[half - 1].im = R::zero();
                }
                let _ = plan.process_with_scratch(&mut row, out, &mut scratch);
                for x in out.iter_mut() {
                    *x = *x * scale;
                }
            }
        });
        Ok(())
    }
}

fn inverse_of<R: Sample>(lengths: &[usize]) -> R {
    let count: f64 = lengths.iter().map(|length| *length as f64).product();
    R::from_f64(1.0 / count).unwrap_or_else(R::one)
}

/// Operations per element of a row of this length, of which a processor does several at a time.
fn work(length: usize) -> usize {
    1 + (usize::BITS - length.leading_zeros()) as usize / 4
}

/// Transforms one dimension, the elements of which lie `inner` apart.
fn transform_axis<R: Sample>(
    threads: Threads<'_>,
    plan: &dyn Fft<R>,
    data: &mut [Complex<R>],
    inner: usize,
    scale: R,
) {
    let length = plan.len();
    let scaled = |row: &mut [Complex<R>]| {
        if scale != R::one() {
            for x in row.iter_mut() {
                *x = Complex::new(x.re * scale, x.im * scale);
            }
        }
    };
    let zero = Complex::new(R::zero(), R::zero());
    if inner == 1 {
        threads.parallel_rows(data, length, work(length), |_, part| {
            let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
            plan.process_with_scratch(part, &mut scratch);
            scaled(part);
        });
        return;
    }
    // Each column of a block of `length × inner` elements becomes a row.
    let mut columns = vec![zero; data.len()];
    {
        let data = &*data;
        threads.parallel_rows(&mut columns, length, work(length), |first, part| {
            let mut scratch = vec![zero; plan.get_inplace_scratch_len()];
            for (tile, rows) in part.chunks_mut(length * TILE).enumerate() {
                let starts: [usize; TILE] = std::array::from_fn(|offset| {
                    let number = first + tile * TILE + offset;
                    number / inner * length * inner + number % inner
                });
                for at in 0..length {
                    for (row, start) in rows.chunks_exact_mut(length).zip(starts) {
                        row[at] = data[start + at * inner];
                    }
                }
                plan.process_with_scratch(rows, &mut scratch);
                scaled(rows);
            }
        });
    }
    let columns = &columns;
    threads.parallel_rows(data, inner, 2, |first, part| {
        for (tile, rows) in part.chunks_mut(inner * TILE).enumerate() {
            let starts: [usize; TILE] = std::array::from_fn(|offset| {
                let number = first + tile * TILE + offset;
                number / length * inner * length + number % length
            });
            for column in 0..inner {
                for (row, start) in rows.chunks_exact_mut(inner).zip(starts) {
                    row[column] = columns[start + column * length];
                }
            }
        }
    });
}

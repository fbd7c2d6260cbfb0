//! Matrices as products of an orthogonal and a triangular one, by Householder's reflections with Eigen's signs.

use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, Element, Result, Shape, Tensor, bail, f16, kernels};
use num_complex::Complex;
use std::ops::{Add, AddAssign, Div, Mul, Sub, SubAssign};

pub(crate) const OPS: &[&Op] = &[&QR];

static QR: Op = Op {
    name: "Qr",
    inputs: &["input: T"],
    outputs: &["q: T", "r: T"],
    attrs: &["full_matrices: bool = false", "T: {double, float, half, complex64, complex128}"],
    shape: qr_shape,
    kernels: kernels![qr_kernel: f64, f32, f16, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn qr_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let full: bool = s.attr("full_matrices")?;
    let input = s.rank_at_least(0, 2)?;
    let Some(dims) = input.dims() else { return Ok(()) };
    let (outer, matrix) = dims.split_at(dims.len() - 2);
    let (rows, columns) = (matrix[0], matrix[1]);
    let inner = match (full, matrix.contains(&UNKNOWN_DIM)) {
        (true, _) => rows,
        (false, true) => UNKNOWN_DIM,
        (false, false) => rows.min(columns),
    };
    s.output(0, outer.iter().copied().chain([rows, inner]))?;
    s.output(1, outer.iter().copied().chain([inner, columns]))
}

/// A number that reflections are computed with.
trait Field:
    Copy
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + AddAssign
    + SubAssign
{
    const ZERO: Self;
    const ONE: Self;
    fn conj(self) -> Self;
    /// The real part.
    fn real(self) -> f64;
    /// The square of the imaginary part.
    fn imaginary_square(self) -> f64;
    fn norm_square(self) -> f64;
    fn from_real(value: f64) -> Self;
    /// Below this a square counts as zero.
    fn tiny() -> f64;
}

macro_rules! fields {
    ($($real:ty),*) => {$(
        impl Field for $real {
            const ZERO: $real = 0.0;
            const ONE: $real = 1.0;
            fn conj(self) -> $real { self }
            fn real(self) -> f64 { self as f64 }
            fn imaginary_square(self) -> f64 { 0.0 }
            fn norm_square(self) -> f64 { (self * self) as f64 }
            fn from_real(value: f64) -> $real { value as $real }
            fn tiny() -> f64 { <$real>::MIN_POSITIVE as f64 }
        }

        impl Field for Complex<$real> {
            const ZERO: Complex<$real> = Complex::new(0.0, 0.0);
            const ONE: Complex<$real> = Complex::new(1.0, 0.0);
            fn conj(self) -> Complex<$real> { Complex::conj(&self) }
            fn real(self) -> f64 { self.re as f64 }
            fn imaginary_square(self) -> f64 { (self.im * self.im) as f64 }
            fn norm_square(self) -> f64 { self.norm_sqr() as f64 }
            fn from_real(value: f64) -> Complex<$real> { Complex::new(value as $real, 0.0) }
            fn tiny() -> f64 { <$real>::MIN_POSITIVE as f64 }
        }
    )*};
}

fields!(f32, f64);

/// An element and the numbers it is computed with.
trait Entry: Element + Copy {
    type Field: Field;
    fn field(self) -> Self::Field;
    fn entry(field: Self::Field) -> Self;
}

macro_rules! entries {
    ($($type:ty),*) => {$(
        impl Entry for $type {
            type Field = $type;
            fn field(self) -> $type { self }
            fn entry(field: $type) -> $type { field }
        }
    )*};
}

entries!(f32, f64, C64, C128);

impl Entry for f16 {
    type Field = f32;

    fn field(self) -> f32 {
        self.to_f32()
    }

    fn entry(field: f32) -> f16 {
        f16::from_f32(field)
    }
}

fn qr_kernel<T: Entry>(init: &Init<'_>) -> Result<Kernel> {
    let full: bool = init.attr("full_matrices")?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let [outer @ .., rows, columns] = input.shape().dims() else {
            bail!(InvalidArgument, "Input must have rank >= 2, got {}", input.rank());
        };
        let inner = if full { *rows } else { *rows.min(columns) };
        let q_shape = Shape::new(outer.iter().copied().chain([*rows, inner]))?;
        let r_shape = Shape::new(outer.iter().copied().chain([inner, *columns]))?;
        let (rows, columns, inner) = (*rows as usize, *columns as usize, inner as usize);
        let (mut q, mut r) = (Vec::with_capacity(q_shape.elements()), Vec::with_capacity(r_shape.elements()));
        let count: usize = outer.iter().product::<i64>() as usize;
        let values = input.flat::<T>()?;
        for number in 0..count {
            let matrix = &values[number * rows * columns..(number + 1) * rows * columns];
            let mut matrix: Vec<T::Field> = matrix.iter().map(|value| value.field()).collect();
            let orthogonal = factor(&mut matrix, rows, columns, inner, full);
            q.extend(orthogonal.into_iter().map(T::entry));
            r.extend(matrix[..inner * columns].iter().map(|value| T::entry(*value)));
        }
        Ok([Tensor::new(q_shape, q)?, Tensor::new(r_shape, r)?].into())
    })
}

/// A reflection `1 - scale · v · v*`, where `v` starts with a one at row `start`.
struct Reflection<F> {
    start: usize,
    rest: Vec<F>,
    scale: F,
}

impl<F: Field> Reflection<F> {
    /// Reflects the columns from `first` on.
    fn apply(&self, scale: F, matrix: &mut [F], columns: usize, first: usize) {
        let (top, below) = matrix[self.start * columns..].split_at_mut(columns);
        let mut sums = top[first..].to_vec();
        for (v, row) in self.rest.iter().zip(below.chunks(columns)) {
            let v = v.conj();
            sums.iter_mut().zip(&row[first..]).for_each(|(sum, x)| *sum += v * *x);
        }
        sums.iter_mut().for_each(|sum| *sum = scale * *sum);
        top[first..].iter_mut().zip(&sums).for_each(|(x, sum)| *x -= *sum);
        for (v, row) in self.rest.iter().zip(below.chunks_mut(columns)) {
            row[first..].iter_mut().zip(&sums).for_each(|(x, sum)| *x -= *v * *sum);
        }
    }
}

/// Leaves the triangular factor in `matrix`, and returns the first `inner` columns of the orthogonal one.
fn factor<F: Field>(matrix: &mut [F], rows: usize, columns: usize, inner: usize, full: bool) -> Vec<F> {
    let mut reflections = Vec::new();
    for k in 0..rows.min(columns) {
        let head = matrix[k * columns + k];
        let tail: Vec<F> = (k + 1..rows).map(|row| matrix[row * columns + k]).collect();
        let length: f64 = tail.iter().map(|x| x.norm_square()).sum();
        let (beta, reflection) = if length <= F::tiny() && head.imaginary_square() <= F::tiny() {
            (
                F::from_real(head.real()),
                Reflection { start: k, rest: vec![F::ZERO; tail.len()], scale: F::ZERO },
            )
        } else {
            let beta = (head.norm_square() + length).sqrt();
            let beta = F::from_real(if head.real() >= 0.0 { -beta } else { beta });
            let rest = tail.iter().map(|x| *x / (head - beta)).collect();
            (beta, Reflection { start: k, rest, scale: ((beta - head) / beta).conj() })
        };
        reflection.apply(reflection.scale, matrix, columns, k + 1);
        matrix[k * columns + k] = beta;
        (k + 1..rows).for_each(|row| matrix[row * columns + k] = F::ZERO);
        reflections.push(reflection);
    }
    let mut orthogonal = vec![F::ZERO; rows * inner];
    (0..inner).for_each(|i| orthogonal[i * inner + i] = F::ONE);
    if inner > 0 {
        for reflection in reflections.iter().rev() {
            // Columns before its own are those of the unit matrix, which a reflection leaves alone unless it holds no
            // numbers; stock leaves them out of the full factor only.
            let first = if full { reflection.start } else { 0 };
            reflection.apply(reflection.scale.conj(), &mut orthogonal, inner, first);
        }
    }
    orthogonal
}

//! Matrices as products of an orthogonal and a triangular one, by Householder's reflections with Eigen's signs.

use crate::builders as ops;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{C64, C128, DType, Element, Result, Shape, Tensor, bail, ensure, f16, kernels, status};
use num_complex::Complex;
use std::ops::{Add, AddAssign, Div, Mul, Range, Sub, SubAssign};

pub(crate) const OPS: &[&Op] = &[&QR];

static QR: Op = Op {
    name: "Qr",
    gradient: Gradient::Fn(qr_grad),
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

/// The number of products of halves that Eigen makes at once.
const VECTOR: usize = 8;

/// A number that reflections are computed with. Every operation rounds, as in stock: halves are computed in halves.
trait Field:
    Element
    + Copy
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
    fn norm_square(self) -> Self;
    /// This plus a product that is not rounded by itself, if the type is one that stock computes in wider registers.
    fn add_product(self, x: Self, y: Self) -> Self {
        self + x * y
    }
    /// The sum of a vector's elements.
    fn sum(vector: [Self; VECTOR]) -> Self {
        vector.into_iter().fold(Self::ZERO, |sum, x| sum + x)
    }
    fn from_real(value: f64) -> Self;
    /// Below this a square counts as zero.
    fn tiny() -> f64;
}

macro_rules! real_fields {
    ($($real:ty: $zero:expr, $one:expr, $from:path $(, $add_product:path, $sum:path)?;)*) => {$(
        impl Field for $real {
            const ZERO: $real = $zero;
            const ONE: $real = $one;
            fn conj(self) -> $real { self }
            fn real(self) -> f64 { self.into() }
            fn imaginary_square(self) -> f64 { 0.0 }
            fn norm_square(self) -> $real { self * self }
            $(
                fn add_product(self, x: $real, y: $real) -> $real { $add_product(self, x, y) }
                fn sum(vector: [$real; VECTOR]) -> $real { $sum(vector) }
            )?
            fn from_real(value: f64) -> $real { $from(value) }
            fn tiny() -> f64 { <$real>::MIN_POSITIVE.into() }
        }
    )*};
}

real_fields! {
    f16: f16::ZERO, f16::ONE, f16::from_f64, half_add_product, half_sum;
    f32: 0.0, 1.0, single;
    f64: 0.0, 1.0, std::convert::identity;
}

fn single(value: f64) -> f32 {
    value as f32
}

fn half_add_product(sum: f16, x: f16, y: f16) -> f16 {
    f16::from_f32(sum.to_f32() + x.to_f32() * y.to_f32())
}

fn half_sum(vector: [f16; VECTOR]) -> f16 {
    let x = vector.map(f16::to_f32);
    f16::from_f32(((x[0] + x[4]) + (x[2] + x[6])) + ((x[1] + x[5]) + (x[3] + x[7])))
}

macro_rules! complex_fields {
    ($($real:ty),*) => {$(
        impl Field for Complex<$real> {
            const ZERO: Complex<$real> = Complex::new(0.0, 0.0);
            const ONE: Complex<$real> = Complex::new(1.0, 0.0);
            fn conj(self) -> Complex<$real> { Complex::conj(&self) }
            fn real(self) -> f64 { self.re.into() }
            fn imaginary_square(self) -> f64 { (self.im * self.im).into() }
            fn norm_square(self) -> Complex<$real> { Complex::new(self.norm_sqr(), 0.0) }
            fn from_real(value: f64) -> Complex<$real> { Complex::new(value as $real, 0.0) }
            fn tiny() -> f64 { <$real>::MIN_POSITIVE.into() }
        }
    )*};
}

complex_fields!(f32, f64);

fn qr_kernel<T: Field>(init: &Init<'_>) -> Result<Kernel> {
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
            let mut matrix = values[number * rows * columns..(number + 1) * rows * columns].to_vec();
            q.extend(factor(&mut matrix, rows, columns, inner, full));
            r.extend_from_slice(&matrix[..inner * columns]);
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
    /// Reflects some of the `columns` of a matrix, which Eigen stores row by row or column by column.
    fn apply(&self, scale: F, matrix: &mut [F], columns: usize, which: Range<usize>, along_columns: bool) {
        let (top, below) = matrix[self.start * columns..].split_at_mut(columns);
        let top = &mut top[which.clone()];
        if self.rest.is_empty() {
            for x in top.iter_mut() {
                *x = *x * (F::ONE - scale);
            }
            return;
        }
        // Zero times what is no number would be none.
        if scale == F::ZERO {
            return;
        }
        let mut sums = if along_columns && top.len() > 1 {
            which.clone().map(|column| self.product_along(below, columns, column)).collect()
        } else {
            self.products(below, columns, which.clone())
        };
        for (sum, x) in sums.iter_mut().zip(&*top) {
            *sum += *x;
        }
        for (x, sum) in top.iter_mut().zip(&sums) {
            *x -= scale * *sum;
        }
        for (v, row) in self.rest.iter().zip(below.chunks_mut(columns)) {
            let v = scale * *v;
            for (x, sum) in row[which.clone()].iter_mut().zip(&sums) {
                *x -= v * *sum;
            }
        }
    }

    /// The products of the reflection with columns, row by row.
    fn products(&self, below: &[F], columns: usize, which: Range<usize>) -> Vec<F> {
        let mut sums = vec![F::ZERO; which.len()];
        // In Eigen a single column is an inner product, and many are multiplied in vectors with a rest of single ones,
        // of which only the last round their products.
        let at_once = if sums.len() == 1 { 1 } else { sums.len() / VECTOR * VECTOR };
        for (v, row) in self.rest.iter().zip(below.chunks(columns)) {
            let v = v.conj();
            let (vectors, rest) = sums.split_at_mut(at_once);
            let (row, row_rest) = row[which.clone()].split_at(at_once);
            for (sum, x) in vectors.iter_mut().zip(row) {
                *sum = sum.add_product(v, *x);
            }
            for (sum, x) in rest.iter_mut().zip(row_rest) {
                *sum += v * *x;
            }
        }
        sums
    }

    /// The product with one of several columns, in vectors along it.
    fn product_along(&self, below: &[F], columns: usize, column: usize) -> F {
        let at_once = self.rest.len() / VECTOR * VECTOR;
        let mut sums = [F::ZERO; VECTOR];
        for (at, v) in self.rest[..at_once].iter().enumerate() {
            sums[at % VECTOR] = sums[at % VECTOR].add_product(v.conj(), below[at * columns + column]);
        }
        let sum = F::sum(sums);
        let rest = self.rest[at_once..].iter().zip(at_once..);
        rest.fold(sum, |sum, (v, at)| sum + v.conj() * below[at * columns + column])
    }
}

/// Leaves the triangular factor in `matrix`, and returns the first `inner` columns of the orthogonal one.
fn factor<F: Field>(matrix: &mut [F], rows: usize, columns: usize, inner: usize, full: bool) -> Vec<F> {
    let mut reflections = Vec::new();
    let square = rows.min(columns);
    for k in 0..square {
        let head = matrix[k * columns + k];
        let tail: Vec<F> = (k + 1..rows).map(|row| matrix[row * columns + k]).collect();
        let length = tail.iter().fold(F::ZERO, |sum, x| sum + x.norm_square());
        let (beta, reflection) = if length.real() <= F::tiny() && head.imaginary_square() <= F::tiny() {
            (
                F::from_real(head.real()),
                Reflection { start: k, rest: vec![F::ZERO; tail.len()], scale: F::ZERO },
            )
        } else {
            let beta = (head.norm_square() + length).real().sqrt();
            let beta = F::from_real(if head.real() >= 0.0 { -beta } else { beta });
            let rest = tail.iter().map(|x| *x / (head - beta)).collect();
            (beta, Reflection { start: k, rest, scale: ((beta - head) / beta).conj() })
        };
        reflection.apply(reflection.scale, matrix, columns, k + 1..square, false);
        reflection.apply(reflection.scale, matrix, columns, square..columns, false);
        matrix[k * columns + k] = beta;
        for row in k + 1..rows {
            matrix[row * columns + k] = F::ZERO;
        }
        reflections.push(reflection);
    }
    let mut orthogonal = vec![F::ZERO; rows * inner];
    for i in 0..inner {
        orthogonal[i * inner + i] = F::ONE;
    }
    if inner > 0 {
        for reflection in reflections.iter().rev() {
            // Columns before its own are those of the unit matrix, which a reflection leaves alone unless it holds no
            // numbers; stock leaves them out of the full factor only.
            let first = if full { reflection.start } else { 0 };
            // Only the full factor is stored row by row.
            reflection.apply(reflection.scale.conj(), &mut orthogonal, inner, first..inner, !full);
        }
    }
    orthogonal
}

/// Roberts and Roberts, "QR and LQ Decomposition Matrix Backpropagation Algorithms for Square, Wide, and Deep Matrices".
fn qr_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let factors = Factors { q: g.output(0)?, r: g.output(1)?, dq: g.dy(0)?, dr: g.dy(1)? };
    let (q_shape, r_shape) = (factors.q.shape(), factors.r.shape());
    let (Some([.., rows, q_columns]), Some([.., r_rows, columns])) = (q_shape.dims(), r_shape.dims()) else {
        bail!(Unimplemented, "the gradient of Qr needs matrices of known shape");
    };
    ensure!(
        ![rows, r_rows, columns].contains(&&UNKNOWN_DIM),
        Unimplemented,
        "the gradient of Qr needs matrices of known shape, not {q_shape} and {r_shape}"
    );
    ensure!(
        r_rows <= columns || rows != q_columns,
        Unimplemented,
        "the gradient of Qr with full_matrices needs as many columns as rows, not {columns} of {rows}"
    );
    if rows >= columns {
        return Ok([factors.gradient(s)?].into());
    }
    // The columns that make the matrix square decide on q; the others are multiplied by it.
    let split = |x: &Output| -> Result<[Output; 2]> {
        let size = [*rows, columns - rows];
        let parts = ops::split_v(s, x, size, -1, 2)?;
        <[Output; 2]>::try_from(parts).map_err(|_| status!(Internal, "a split in two has two parts"))
    };
    let [_, right] = split(g.input(0))?;
    let ([r, _], [dr, dr_right]) = (split(&factors.r)?, split(&factors.dr)?);
    let dq = ops::add_v2(s, &factors.dq, product(s, &right, &dr_right, (false, true)))?;
    let right_grad = product(s, &factors.q, &dr_right, (false, false))?;
    let left_grad = Factors { q: factors.q, r, dq, dr }.gradient(s)?;
    Ok([ops::concat_v2(s, [&left_grad, &right_grad], -1)?].into())
}

/// The factors of a matrix with at least as many rows as columns, and their gradients.
struct Factors {
    q: Output,
    r: Output,
    dq: Output,
    dr: Output,
}

impl Factors {
    fn gradient(&self, s: &Scope) -> Result<Output> {
        let Factors { q, r, dq, dr } = self;
        let (qdq, rdr) = (product(s, q, dq, (true, false))?, product(s, r, dr, (false, true))?);
        let turning = |x: &Output| ops::sub(s, x, adjoint(s, x)?);
        let below = ops::matrix_band_part(s, ops::add_v2(s, turning(&qdq), turning(&rdr)), -1, 0)?;
        let within = product(s, q, &ops::add_v2(s, dr, over(s, &below, r)?)?, (false, false))?;
        let without = over(s, &ops::sub(s, dq, product(s, q, &qdq, (false, false)))?, r)?;
        let sum = ops::add_v2(s, within, without)?;
        if !q.dtype().is_complex() {
            return Ok(sum);
        }
        // The diagonal of r is real, so that the imaginary part of its gradient turns the columns of q.
        let diagonal = ops::matrix_band_part(s, ops::sub(s, rdr, adjoint(s, &qdq)?), 0, 0)?;
        let part = if q.dtype() == DType::Complex64 { DType::Float } else { DType::Double };
        let real = ops::cast(s, ops::Real::new().tout(part).build(s, &diagonal), q.dtype());
        let imaginary = ops::sub(s, &diagonal, real)?;
        ops::add_v2(s, sum, over(s, &product(s, q, &adjoint(s, &imaginary)?, (false, false))?, r)?)
    }
}

fn product(s: &Scope, x: &Output, y: &Output, (adj_x, adj_y): (bool, bool)) -> Result<Output> {
    ops::BatchMatMulV2::new().adj_x(adj_x).adj_y(adj_y).build(s, x, y)
}

/// `x` times the adjoint of the inverse of an upper triangular `r`.
fn over(s: &Scope, x: &Output, r: &Output) -> Result<Output> {
    adjoint(s, &ops::MatrixTriangularSolve::new().lower(false).build(s, r, adjoint(s, x)?)?)
}

/// The conjugate transpose of matrices of known rank.
fn adjoint(s: &Scope, x: &Output) -> Result<Output> {
    let rank = x.shape().rank().unwrap_or(2) as i32;
    let order: Vec<i32> = (0..rank - 2).chain([rank - 1, rank - 2]).collect();
    if x.dtype().is_complex() { ops::conjugate_transpose(s, x, order) } else { ops::transpose(s, x, order) }
}

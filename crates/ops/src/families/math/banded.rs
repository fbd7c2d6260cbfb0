//! Matrices with few diagonals: products and equations of tridiagonal ones, equations of triangular bands.

use crate::builders as ops;
use crate::linalg::dense::scalar::Scalar;
use crate::numeric::Num;
use crate::support::batches::{Batches, leading, unbroadcast};
use crate::support::gradient::conj;
use crate::support::matrices::{Matrices, absent, adjoint, for_each_matrix, product};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, Dim, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{C64, C128, PartialShape, Result, ensure, kernels, status};
use num_traits::Float as _;

pub(crate) const OPS: &[&Op] = &[&TRIDIAGONAL_MAT_MUL, &TRIDIAGONAL_SOLVE, &BANDED_TRIANGULAR_SOLVE];

static TRIDIAGONAL_MAT_MUL: Op = Op {
    name: "TridiagonalMatMul",
    inputs: &["superdiag: T", "maindiag: T", "subdiag: T", "rhs: T"],
    outputs: &["output: T"],
    attrs: &["T: {double, float, complex64, complex128}"],
    shape: product_shape,
    gradient: Gradient::Fn(product_gradient),
    kernels: kernels![product_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static TRIDIAGONAL_SOLVE: Op = Op {
    name: "TridiagonalSolve",
    inputs: &["diagonals: T", "rhs: T"],
    outputs: &["output: T"],
    attrs: &[
        "partial_pivoting: bool = true",
        "perturb_singular: bool = false",
        "T: {double, float, complex64, complex128}",
    ],
    shape: tridiagonal_shape,
    gradient: Gradient::Fn(tridiagonal_gradient),
    kernels: kernels![tridiagonal_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static BANDED_TRIANGULAR_SOLVE: Op = Op {
    name: "BandedTriangularSolve",
    inputs: &["matrix: T", "rhs: T"],
    outputs: &["output: T"],
    attrs: &[
        "lower: bool = true",
        "adjoint: bool = false",
        "T: {double, float, half, complex64, complex128}",
    ],
    shape: banded_shape,
    gradient: Gradient::Fn(banded_gradient),
    kernels: kernels![banded_kernel: f64, f32, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn batch_of(shape: &PartialShape) -> Result<PartialShape> {
    shape.dims().map_or(Ok(PartialShape::unknown()), leading)
}

fn product_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rhs = s.rank_at_least(3, 2)?;
    let mut diagonal = s.rank_at_least(0, 2)?;
    for input in 1..3 {
        diagonal = s.merge(&diagonal, &s.rank_at_least(input, 2)?)?;
    }
    s.merge(&batch_of(&diagonal)?, &batch_of(&rhs)?)?;
    if let (Some([.., one, order]), Some([.., rows, _])) = (diagonal.dims(), rhs.dims()) {
        s.merge_dims(*order, *rows)?;
        s.merge_dims(*one, 1)?;
    }
    s.set(0, rhs);
    Ok(())
}

fn product_kernel<T: Scalar>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let diagonals = Matrices::of(cx, 0)?;
        for input in 1..4 {
            let (first, other) = (cx.input(0)?.shape().dims(), cx.input(input)?.shape().dims());
            ensure!(
                first.len() == other.len(),
                InvalidArgument,
                "All input tensors must have the same rank."
            );
            ensure!(
                first[..first.len() - 2] == other[..other.len() - 2],
                InvalidArgument,
                "All input tensors must have the same outer dimensions."
            );
        }
        let rhs = Matrices::of(cx, 3)?;
        for (input, name) in ["superdiagonal", "main diagonal", "subdiagonal"].into_iter().enumerate() {
            let own = Matrices::of(cx, input)?;
            ensure!((own.rows, own.columns) == (1, rhs.rows), InvalidArgument, "Invalid {name} shape.");
        }
        let (order, width) = (rhs.rows, rhs.columns);
        let mut output = cx.alloc::<T>(cx.input(3)?.shape().clone())?;
        let [above, main, below, right] =
            [cx.flat::<T>(0)?, cx.flat::<T>(1)?, cx.flat::<T>(2)?, cx.flat::<T>(3)?];
        let size = order * width;
        let out = (output.flat_mut::<T>()?, size);
        for_each_matrix(
            cx.threads(),
            (diagonals.count, 3 * size),
            (out, absent(), absent()),
            &|at, _, out, _, _| {
                if size == 0 {
                    return Ok(());
                }
                let right = &right[at * size..][..size];
                let diagonal = |of: &[T], row: usize| of[at * order + row];
                let row_of = |row: usize| &right[row * width..][..width];
                for (row, out) in out.chunks_exact_mut(width).enumerate() {
                    let factor = diagonal(main, row);
                    for (x, y) in out.iter_mut().zip(row_of(row)) {
                        *x = *y * factor;
                    }
                    if row > 0 {
                        let factor = diagonal(below, row);
                        for (x, y) in out.iter_mut().zip(row_of(row - 1)) {
                            *x += *y * factor;
                        }
                    }
                    if row + 1 < order {
                        let factor = diagonal(above, row);
                        for (x, y) in out.iter_mut().zip(row_of(row + 1)) {
                            *x += *y * factor;
                        }
                    }
                }
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

fn tridiagonal_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (diagonals, rhs) = (s.rank_at_least(0, 2)?, s.rank_at_least(1, 2)?);
    s.merge(&batch_of(&diagonals)?, &batch_of(&rhs)?)?;
    if let (Some([.., three, order]), Some([.., rows, _])) = (diagonals.dims(), rhs.dims()) {
        s.merge_dims(*order, *rows)?;
        s.merge_dims(*three, 3)?;
    }
    s.set(0, rhs);
    Ok(())
}

fn tridiagonal_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let (pivoting, perturb): (bool, bool) = (init.attr("partial_pivoting")?, init.attr("perturb_singular")?);
    ensure!(pivoting || !perturb, InvalidArgument, "Setting perturb_singular requires pivoting.");
    Kernel::sync(move |cx| {
        let diagonals = Matrices::of(cx, 0)?;
        let rhs = diagonals.beside(cx)?;
        ensure!(
            diagonals.rows == 3,
            InvalidArgument,
            "Expected diagonals to be provided as a matrix with 3 rows, got {} rows.",
            diagonals.rows
        );
        ensure!(
            diagonals.columns == rhs.rows,
            InvalidArgument,
            "Expected the same number of left-hand sides and right-hand sides, got {} and {}.",
            diagonals.columns,
            rhs.rows
        );
        let (order, width) = (rhs.rows, rhs.columns);
        let mut output = cx.alloc::<T>(cx.input(1)?.shape().clone())?;
        let (matrix, right) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?);
        let size = order * width;
        let out = (output.flat_mut::<T>()?, size);
        for_each_matrix(
            cx.threads(),
            (diagonals.count, 8 * size + 8 * order),
            (out, absent(), absent()),
            &|at, _, out, _, _| {
                if order == 0 {
                    return Ok(());
                }
                let equations = Tridiagonal {
                    above: &matrix[at * 3 * order..][..order],
                    main: &matrix[(at * 3 + 1) * order..][..order],
                    below: &matrix[(at * 3 + 2) * order..][..order],
                    width,
                };
                let right = &right[at * size..][..size];
                let solved = match (pivoting, perturb) {
                    (_, true) => equations.solve_perturbed(right, out),
                    (true, false) => equations.solve_pivoting(right, out),
                    (false, false) => equations.solve_plain(right, out),
                };
                if !solved {
                    // A failure shows in the values, as in stock.
                    out.fill(T::failure());
                }
                Ok(())
            },
        )?;
        Ok(output.into())
    })
}

/// Equations of three diagonals. The last element of `above` and the first of `below` count for nothing.
struct Tridiagonal<'a, T> {
    above: &'a [T],
    main: &'a [T],
    below: &'a [T],
    width: usize,
}

impl<T: Scalar> Tridiagonal<'_, T> {
    fn order(&self) -> usize {
        self.main.len()
    }

    /// Without exchanges of rows; false if a pivot is zero.
    fn solve_plain(&self, right: &[T], x: &mut [T]) -> bool {
        let (order, width) = (self.order(), self.width);
        let mut above = vec![T::ZERO; order];
        for row in 0..order {
            let factor = if row > 0 { self.below[row] } else { T::ZERO };
            let pivot = if row > 0 { self.main[row] - factor * above[row - 1] } else { self.main[0] };
            if pivot == T::ZERO {
                return false;
            }
            above[row] = self.above[row] / pivot;
            let (known, rest) = x.split_at_mut(row * width);
            for column in 0..width {
                let mut value = right[row * width + column];
                if row > 0 {
                    value -= factor * known[(row - 1) * width + column];
                }
                rest[column] = value / pivot;
            }
        }
        for row in (0..order - 1).rev() {
            let (own, known) = x[row * width..].split_at_mut(width);
            for (x, known) in own.iter_mut().zip(known) {
                *x -= above[row] * *known;
            }
        }
        true
    }

    /// With exchanges of neighboring rows; false if a pivot is zero.
    fn solve_pivoting(&self, right: &[T], x: &mut [T]) -> bool {
        let (order, width) = (self.order(), self.width);
        // The rows of the triangular factor: the diagonal and two elements beside it.
        let mut u = vec![[T::ZERO; 3]; order];
        u[0] = [self.main[0], self.above[0], T::ZERO];
        x[..width].copy_from_slice(&right[..width]);
        for row in 0..order - 1 {
            let (own, next) = x[row * width..].split_at_mut(width);
            let right = &right[(row + 1) * width..][..width];
            let beyond = if row + 2 < order { self.above[row + 1] } else { T::ZERO };
            if u[row][0].modulus() >= self.below[row + 1].modulus() {
                if u[row][0] == T::ZERO {
                    return false;
                }
                let factor = self.below[row + 1] / u[row][0];
                u[row + 1] = [self.main[row + 1] - factor * u[row][1], beyond, T::ZERO];
                for ((next, own), right) in next.iter_mut().zip(own).zip(right) {
                    *next = *right - factor * *own;
                }
            } else {
                let factor = u[row][0] / self.below[row + 1];
                u[row + 1] = [u[row][1] - factor * self.main[row + 1], -factor * beyond, T::ZERO];
                u[row] = [self.below[row + 1], self.main[row + 1], beyond];
                for ((next, own), right) in next.iter_mut().zip(own).zip(right) {
                    (*next, *own) = (*own - factor * *right, *right);
                }
            }
        }
        if u[order - 1][0] == T::ZERO {
            return false;
        }
        for row in (0..order).rev() {
            let (own, known) = x[row * width..].split_at_mut(width);
            for (column, x) in own.iter_mut().enumerate() {
                for (beside, factor) in u[row][1..].iter().enumerate() {
                    if row + 1 + beside < order {
                        *x -= *factor * known[beside * width + column];
                    }
                }
                *x = *x / u[row][0];
            }
        }
        true
    }

    /// With exchanges of rows, by pivots relative to their rows; pivots near zero are moved away from it, as LAPACK's
    /// `lagtf` and `lagts` do for the vectors of eigenvalues that are known.
    fn solve_perturbed(&self, right: &[T], x: &mut [T]) -> bool {
        let (order, width) = (self.order(), self.width);
        let mut u = vec![[T::ZERO; 3]; order];
        u[0] = [self.main[0], if order > 1 { self.above[0] } else { T::ZERO }, T::ZERO];
        let mut largest = u[0][0].modulus().max(u[0][1].modulus());
        let mut scale = u[0][0].modulus() + u[0][1].modulus();
        x[..width].copy_from_slice(&right[..width]);
        for row in 0..order - 1 {
            let (own, next) = x[row * width..].split_at_mut(width);
            let right = &right[(row + 1) * width..][..width];
            let (below, main) = (self.below[row + 1], self.main[row + 1]);
            let beyond = if row + 2 < order { self.above[row + 1] } else { T::ZERO };
            let next_scale = below.modulus() + main.modulus() + beyond.modulus();
            let pivot = if u[row][0] == T::ZERO { T::Real::ZERO } else { u[row][0].modulus() / scale };
            if below == T::ZERO {
                scale = next_scale;
                u[row + 1] = [main, beyond, T::ZERO];
                next[..width].copy_from_slice(right);
            } else if below.modulus() / next_scale <= pivot {
                scale = next_scale;
                let factor = below / u[row][0];
                u[row + 1] = [main - factor * u[row][1], beyond, T::ZERO];
                for ((next, own), right) in next.iter_mut().zip(own).zip(right) {
                    *next = *right - factor * *own;
                }
            } else {
                let factor = u[row][0] / below;
                u[row + 1] = [u[row][1] - factor * main, -factor * beyond, T::ZERO];
                u[row] = [below, main, beyond];
                for ((next, own), right) in next.iter_mut().zip(own).zip(right) {
                    (*next, *own) = (*own - factor * *right, *right);
                }
            }
            if row + 2 < order {
                largest = u[row].iter().fold(largest, |most, x| most.max(x.modulus()));
            }
        }
        largest = largest.max(u[order - 1][0].modulus());
        let least = T::Real::epsilon() * largest;
        for row in (0..order).rev() {
            let (own, known) = x[row * width..].split_at_mut(width);
            for (column, x) in own.iter_mut().enumerate() {
                for (beside, factor) in u[row][1..].iter().enumerate() {
                    if row + 1 + beside < order {
                        *x -= *factor * known[beside * width + column];
                    }
                }
            }
            let pivot = moved_from_zero(u[row][0], least, own);
            let inverse = T::ONE / pivot;
            for x in own.iter_mut() {
                *x = *x * inverse;
            }
        }
        true
    }
}

/// A pivot that rows can be divided by without overflow; both are scaled if the pivot is tiny.
fn moved_from_zero<T: Scalar>(mut pivot: T, least: T::Real, row: &mut [T]) -> T {
    let one = T::Real::ONE;
    let tiny = T::Real::min_positive_value();
    let huge = one / tiny;
    let mut step = least.abs().max(tiny);
    if pivot.real().is_sign_negative() {
        step = -step;
    }
    let most = row.iter().fold(T::Real::ZERO, |most, x| most.max(x.modulus()));
    let two = one + one;
    while pivot.modulus() < one {
        let size = pivot.modulus();
        let too_small =
            if size < tiny { size == T::Real::ZERO || most * tiny > size } else { most > size * huge };
        if too_small {
            pivot += T::from_real(step);
            step = step * two;
            continue;
        }
        if size < tiny {
            pivot = pivot.scaled(huge);
            for x in row.iter_mut() {
                *x = x.scaled(huge);
            }
        }
        break;
    }
    pivot
}

fn banded_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (matrix, rhs) = (s.rank_at_least(0, 2)?, s.rank_at_least(1, 2)?);
    let (Some(matrix), Some(rhs)) = (matrix.dims(), rhs.dims()) else { return Ok(()) };
    let (bands, order) = (matrix[matrix.len() - 2], matrix[matrix.len() - 1]);
    ensure!(
        bands == UNKNOWN_DIM || bands > 0,
        InvalidArgument,
        "Number of bands must be positive, but is {bands}"
    );
    ensure!(
        [bands, order].contains(&UNKNOWN_DIM) || bands <= order,
        InvalidArgument,
        "Number of bands {bands} cannot exceed the size of the matrix {order}"
    );
    let batch = shapes::broadcast(&leading(matrix)?, &leading(rhs)?)?;
    let rows = s.merge_dims(order, rhs[rhs.len() - 2])?;
    let Some(batch) = batch.dims() else { return Ok(()) };
    s.output(0, batch.iter().copied().chain([rows, rhs[rhs.len() - 1]]).collect::<Vec<Dim>>())
}

fn banded_kernel<T: Scalar>(init: &Init<'_>) -> Result<Kernel> {
    let (lower, adjoint): (bool, bool) = (init.attr("lower")?, init.attr("adjoint")?);
    Kernel::sync(move |cx| {
        let (matrix, rhs) = (cx.input(0)?, cx.input(1)?);
        for (input, tensor) in [matrix, rhs].into_iter().enumerate() {
            ensure!(tensor.rank() >= 2, InvalidArgument, "In[{input}] ndims must be >= 2: {}", tensor.rank());
        }
        for (input, tensor) in [matrix, rhs].into_iter().enumerate() {
            ensure!(
                tensor.elements() > 0,
                InvalidArgument,
                "In[{input}] must not be an empty tensor: {}",
                tensor.shape()
            );
        }
        let batches = Batches::new(matrix.shape(), rhs.shape())?;
        let (matrix_dims, rhs_dims) = (matrix.shape().dims(), rhs.shape().dims());
        let (bands, order) = (matrix_dims[matrix.rank() - 2], matrix_dims[matrix.rank() - 1]);
        let (rhs_rows, width) = (rhs_dims[rhs.rank() - 2], rhs_dims[rhs.rank() - 1]);
        ensure!(
            order == rhs_rows,
            InvalidArgument,
            "In[0] mismatch In[1] shape: {order} vs. {rhs_rows}: {} {} {} {}",
            matrix.shape(),
            rhs.shape(),
            lower as u8,
            adjoint as u8
        );
        let mut output = cx.alloc::<T>(batches.shape_of(order, width)?)?;
        let (bands, order, width) = (bands as usize, order as usize, width as usize);
        let (matrices, right, layout) = (matrix.flat::<T>()?, rhs.flat::<T>()?, batches.layout());
        let diagonal = if lower { 0 } else { bands - 1 };
        // Only the first matrix is looked at, as in stock.
        ensure!(
            matrices[diagonal * order..][..order].iter().all(|x| *x != T::ZERO),
            InvalidArgument,
            "Input matrix is not invertible."
        );
        let size = order * width;
        cx.threads().parallel_rows(output.flat_mut::<T>()?, size, bands, |first, part| {
            for (number, x) in part.chunks_exact_mut(size).enumerate() {
                let (a, b) = layout.find(first + number);
                x.copy_from_slice(&right[b * size..][..size]);
                let band = &matrices[a * bands * order..][..bands * order];
                solve_banded(band, bands, order, (lower, adjoint), x, width);
            }
        });
        Ok(output.into())
    })
}

/// Solves in place. Row `k` of the bands has the elements `k` below, or `bands - 1 - k` above, the diagonal by the row
/// of the matrix that they are in.
fn solve_banded<T: Scalar>(
    band: &[T],
    bands: usize,
    order: usize,
    (lower, adjoint): (bool, bool),
    x: &mut [T],
    width: usize,
) {
    let entry = |row: usize, column: usize| {
        let (row, column) = if adjoint { (column, row) } else { (row, column) };
        let at = if lower { row - column } else { bands - 1 - (column - row) };
        let value = band[at * order + row];
        if adjoint { value.conj() } else { value }
    };
    let is_forward = lower != adjoint;
    for step in 0..order {
        let row = if is_forward { step } else { order - 1 - step };
        let known =
            if is_forward { row.saturating_sub(bands - 1)..row } else { row + 1..(row + bands).min(order) };
        for other in known {
            let factor = entry(row, other);
            for column in 0..width {
                let value = x[other * width + column];
                x[row * width + column] -= factor * value;
            }
        }
        let pivot = entry(row, row);
        for x in x[row * width..][..width].iter_mut() {
            *x = *x / pivot;
        }
    }
}

fn banded_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, matrix, solution) = (g.scope(), g.input(0), g.output(0)?);
    let (lower, adjoint): (bool, bool) = (g.attr("lower")?, g.attr("adjoint")?);
    let solve = ops::BandedTriangularSolve::new().lower(lower).adjoint(!adjoint);
    let rhs_grad = solve.build(s, matrix, g.dy(0)?)?;
    let (left, right) = if adjoint { (&solution, &rhs_grad) } else { (&rhs_grad, &solution) };
    let grad = ops::neg(s, product(s, left, right, (false, true)))?;
    let bands = crate::support::gradient::element(s, &ops::shape(s, matrix)?, -2)?;
    let beside = ops::sub(s, bands, 1)?;
    let zero = s.constant(0i32)?;
    let k =
        if lower { ops::pack(s, [&ops::neg(s, beside)?, &zero])? } else { ops::pack(s, [&zero, &beside])? };
    let padding = ops::cast(s, s.constant(0.0f32)?, grad.dtype())?;
    let band = ops::MatrixDiagPartV3::new().align("LEFT_RIGHT").build(s, grad, k, padding)?;
    unbroadcast(g, band, rhs_grad)
}

/// Rows moved by one, with zeros where none came from: up if `up`, else down. The rows are those of a matrix, or the
/// elements of a vector, before `behind` more dimensions.
fn moved(s: &Scope, x: &Output, up: bool, behind: i32) -> Result<Output> {
    let rank = ops::rank(s, x)?;
    let axis = ops::sub(s, &rank, 1 + behind)?;
    let ahead = ops::one_hot(s, &axis, &rank, 1, 0)?;
    let (before, after) = if up { (None, Some(ahead)) } else { (Some(ahead), None) };
    let zeros = ops::fill(s, ops::reshape(s, &rank, [1])?, 0i32)?;
    let padding = ops::Pack::new()
        .axis(1)
        .build(s, [before.as_ref().unwrap_or(&zeros), after.as_ref().unwrap_or(&zeros)])?;
    let padded = ops::pad(s, x, padding)?;
    let begin = if up { after.as_ref() } else { None };
    ops::slice(s, padded, begin.unwrap_or(&zeros), ops::shape(s, x))
}

fn product_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let [above, main, below] = [adjoint(s, g.input(0))?, adjoint(s, g.input(1))?, adjoint(s, g.input(2))?];
    let rhs = conj(s, g.input(3))?;
    let summed = |x: &Output| ops::expand_dims(s, ops::sum(s, ops::mul(s, x, &dy), [-1]), -2);
    let grads = [summed(&moved(s, &rhs, true, 1)?)?, summed(&rhs)?, summed(&moved(s, &rhs, false, 1)?)?];
    let [d_above, d_main, d_below] = grads;
    let down = moved(s, &ops::mul(s, above, &dy)?, false, 1)?;
    let up = moved(s, &ops::mul(s, below, &dy)?, true, 1)?;
    let d_rhs = ops::add_v2(s, ops::add_v2(s, down, ops::mul(s, main, &dy)), up)?;
    Ok([d_above, d_main, d_below, d_rhs].into())
}

fn tridiagonal_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x) = (g.scope(), g.output(0)?);
    let rows = ops::Unpack::new(3).axis(-2).build(s, g.input(0))?;
    let [above, main, below] =
        <[Output; 3]>::try_from(rows).map_err(|_| status!(Internal, "three rows are unpacked"))?;
    let transposed = ops::Pack::new()
        .axis(-2)
        .build(s, [&moved(s, &below, true, 0)?, &main, &moved(s, &above, false, 0)?])?;
    let solve = ops::TridiagonalSolve::new()
        .partial_pivoting(g.attr("partial_pivoting")?)
        .perturb_singular(g.attr("perturb_singular")?);
    let d_rhs = solve.build(s, transposed, g.dy(0)?)?;
    let summed = |y: &Output| ops::sum(s, ops::mul(s, &d_rhs, y), [-1]);
    let rows = [summed(&moved(s, &x, true, 1)?)?, summed(&x)?, summed(&moved(s, &x, false, 1)?)?];
    let [above, main, below] = rows;
    let diagonals = ops::Pack::new().axis(-2).build(s, [&above, &main, &below])?;
    Ok([ops::neg(s, diagonals)?, d_rhs].into())
}

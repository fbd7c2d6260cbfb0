//! Diagonals and bands of matrices.

use crate::builders as ops;
use crate::linalg::strided_copy::{Layout, copy};
use crate::support::index::{constant_int, constant_ints, input_ints};
use crate::support::units::by_unit;
use ferroflow_core::attr::Attrs;
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &MATRIX_DIAG,
    &MATRIX_DIAG_V2,
    &MATRIX_DIAG_V3,
    &BATCH_MATRIX_DIAG,
    &MATRIX_DIAG_PART,
    &MATRIX_DIAG_PART_V2,
    &MATRIX_DIAG_PART_V3,
    &BATCH_MATRIX_DIAG_PART,
    &MATRIX_SET_DIAG,
    &MATRIX_SET_DIAG_V2,
    &MATRIX_SET_DIAG_V3,
    &BATCH_MATRIX_SET_DIAG,
    &MATRIX_BAND_PART,
    &BATCH_MATRIX_BAND_PART,
    &DIAG,
    &DIAG_PART,
];

const ALIGN: &str = "align: {'LEFT_RIGHT', 'RIGHT_LEFT', 'LEFT_LEFT', 'RIGHT_RIGHT'} = 'RIGHT_LEFT'";

static MATRIX_DIAG: Op = Op {
    name: "MatrixDiag",
    gradient: Gradient::Fn(matrix_diag_grad),
    inputs: &["diagonal: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: matrix_diag_shape,
    kernels: kernels![any matrix_diag_kernel],
    ..Op::PURE
};
static MATRIX_DIAG_V2: Op = Op {
    name: "MatrixDiagV2",
    gradient: Gradient::Fn(matrix_diag_v2_grad),
    inputs: &["diagonal: T", "k: int32", "num_rows: int32", "num_cols: int32", "padding_value: T"],
    ..MATRIX_DIAG
};
static MATRIX_DIAG_V3: Op = Op {
    name: "MatrixDiagV3",
    gradient: Gradient::Fn(matrix_diag_v2_grad),
    attrs: &["T: type", ALIGN],
    ..MATRIX_DIAG_V2
};
static BATCH_MATRIX_DIAG: Op = Op { name: "BatchMatrixDiag", deprecated_at: Some(14), ..MATRIX_DIAG };

static MATRIX_DIAG_PART: Op = Op {
    name: "MatrixDiagPart",
    gradient: Gradient::Fn(matrix_diag_part_grad),
    inputs: &["input: T"],
    outputs: &["diagonal: T"],
    attrs: &["T: type"],
    shape: matrix_diag_part_shape,
    kernels: kernels![any matrix_diag_part_kernel],
    ..Op::PURE
};
static MATRIX_DIAG_PART_V2: Op = Op {
    name: "MatrixDiagPartV2",
    gradient: Gradient::Fn(matrix_diag_part_v2_grad),
    inputs: &["input: T", "k: int32", "padding_value: T"],
    ..MATRIX_DIAG_PART
};
static MATRIX_DIAG_PART_V3: Op = Op {
    name: "MatrixDiagPartV3",
    gradient: Gradient::Fn(matrix_diag_part_v2_grad),
    attrs: &["T: type", ALIGN],
    ..MATRIX_DIAG_PART_V2
};
static BATCH_MATRIX_DIAG_PART: Op =
    Op { name: "BatchMatrixDiagPart", deprecated_at: Some(14), ..MATRIX_DIAG_PART };

static MATRIX_SET_DIAG: Op = Op {
    name: "MatrixSetDiag",
    gradient: Gradient::Fn(matrix_set_diag_grad),
    inputs: &["input: T", "diagonal: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: matrix_set_diag_shape,
    kernels: kernels![any matrix_set_diag_kernel],
    ..Op::PURE
};
static MATRIX_SET_DIAG_V2: Op = Op {
    name: "MatrixSetDiagV2",
    gradient: Gradient::Fn(matrix_set_diag_v2_grad),
    inputs: &["input: T", "diagonal: T", "k: int32"],
    ..MATRIX_SET_DIAG
};
static MATRIX_SET_DIAG_V3: Op = Op {
    name: "MatrixSetDiagV3",
    gradient: Gradient::Fn(matrix_set_diag_v2_grad),
    attrs: &["T: type", ALIGN],
    ..MATRIX_SET_DIAG_V2
};
static BATCH_MATRIX_SET_DIAG: Op =
    Op { name: "BatchMatrixSetDiag", deprecated_at: Some(14), ..MATRIX_SET_DIAG };

static MATRIX_BAND_PART: Op = Op {
    name: "MatrixBandPart",
    gradient: Gradient::Fn(matrix_band_part_grad),
    inputs: &["input: T", "num_lower: Tindex", "num_upper: Tindex"],
    outputs: &["band: T"],
    attrs: &["T: type", "Tindex: {int32, int64} = DT_INT64"],
    shape: shapes::unchanged,
    kernels: kernels![any matrix_band_part_kernel],
    ..Op::PURE
};
static BATCH_MATRIX_BAND_PART: Op = Op {
    name: "BatchMatrixBandPart",
    inputs: &["input: T", "num_lower: int64", "num_upper: int64"],
    attrs: &["T: type"],
    deprecated_at: Some(14),
    ..MATRIX_BAND_PART
};

static DIAG: Op = Op {
    name: "Diag",
    gradient: Gradient::Fn(diag_grad),
    inputs: &["diagonal: T"],
    outputs: &["output: T"],
    attrs: &["T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"],
    shape: diag_shape,
    kernels: kernels![any diag_kernel],
    ..Op::PURE
};
static DIAG_PART: Op = Op {
    name: "DiagPart",
    gradient: Gradient::Fn(diag_part_grad),
    inputs: &["input: T"],
    outputs: &["diagonal: T"],
    attrs: &["T: {bfloat16, half, float, double, int32, int64, complex64, complex128}"],
    shape: diag_part_shape,
    kernels: kernels![any diag_part_kernel],
    ..Op::PURE
};

/// To which end of its row in a tensor of diagonals a short diagonal is moved.
#[derive(Clone, Copy)]
struct Align {
    super_left: bool,
    sub_left: bool,
}

impl Align {
    fn new(attrs: &Attrs) -> Result<Align> {
        // Before version 3 everything stood at the left.
        let align = if attrs.has("align") { attrs.get::<String>("align")? } else { "LEFT_LEFT".to_owned() };
        Ok(Align { super_left: align.starts_with("LEFT"), sub_left: align.ends_with("LEFT") })
    }
}

/// Neighboring diagonals of matrices with this many rows and columns.
#[derive(Clone, Copy)]
struct Band {
    lower: i64,
    upper: i64,
    rows: i64,
    columns: i64,
}

impl Band {
    fn count(self) -> i64 {
        self.upper - self.lower + 1
    }

    fn length(self, diagonal: i64) -> i64 {
        (self.rows + diagonal.min(0)).min(self.columns - diagonal.max(0)).max(0)
    }

    fn longest(self) -> i64 {
        (self.rows + self.upper.min(0)).min(self.columns - self.lower.max(0)).max(0)
    }

    /// For each diagonal from the top: where it begins in its matrix and in the tensor of diagonals, and its length.
    fn lines(self, align: Align) -> impl Iterator<Item = (isize, isize, usize)> {
        (self.lower..=self.upper).rev().map(move |diagonal| {
            let length = self.length(diagonal);
            let left = (diagonal >= 0 && align.super_left) || (diagonal <= 0 && align.sub_left);
            let shift = if left { 0 } else { self.longest() - length };
            let matrix = (-diagonal).max(0) * self.columns + diagonal.max(0);
            let packed = (self.upper - diagonal) * self.longest() + shift;
            (matrix as isize, packed as isize, length as usize)
        })
    }

    /// Refuses diagonals that the matrix does not have; `stop` ends the first half of the sentence.
    fn check(self, stop: &str) -> Result<()> {
        let inside = |diagonal: i64| diagonal == 0 || (-self.rows < diagonal && diagonal < self.columns);
        ensure!(
            inside(self.lower),
            InvalidArgument,
            "lower_diag_index is out of bound: {}{stop} It must be between {} and {}",
            self.lower,
            -self.rows,
            self.columns
        );
        ensure!(
            inside(self.upper),
            InvalidArgument,
            "upper_diag_index is out of bound: {} It must be between {} and {}",
            self.upper,
            -self.rows,
            self.columns
        );
        check_order(self.lower, self.upper)
    }

    /// Copies diagonals between matrices and the tensor of diagonals.
    fn copy(
        self,
        threads: Threads<'_>,
        align: Align,
        batch: usize,
        to_matrix: bool,
        from: &Tensor,
        to: &mut Tensor,
    ) -> Result<()> {
        let area = (self.rows * self.columns) as isize;
        let packed_area = (self.count() * self.longest()) as isize;
        let step = self.columns as isize + 1;
        for (matrix, packed, length) in self.lines(align) {
            let mut layout = if to_matrix { Layout::at(packed, matrix) } else { Layout::at(matrix, packed) };
            if to_matrix {
                layout.push(batch, packed_area, area);
                layout.push(length, 1, step);
            } else {
                layout.push(batch, area, packed_area);
                layout.push(length, step, 1);
            }
            copy(threads, &layout, from, to)?;
        }
        Ok(())
    }
}

fn check_order(lower: i64, upper: i64) -> Result<()> {
    ensure!(
        lower <= upper,
        InvalidArgument,
        "lower_diag_index must not be larger than upper_diag_index: {lower} > {upper}"
    );
    Ok(())
}

fn two_ends(values: &[i64]) -> Result<(i64, i64)> {
    match values {
        [both] => Ok((*both, *both)),
        [lower, upper] => Ok((*lower, *upper)),
        _ => bail!(
            InvalidArgument,
            "diag_index must have only one or two elements, received {} elements.",
            values.len()
        ),
    }
}

/// The diagonals that an input names; the main one if there is no such input.
fn diagonals(cx: &KernelCx<'_>, input: usize) -> Result<(i64, i64)> {
    if cx.num_inputs() <= input {
        return Ok((0, 0));
    }
    let tensor = cx.input(input)?;
    ensure!(
        tensor.rank() <= 1,
        InvalidArgument,
        "diag_index must be a scalar or vector, received shape: {}",
        tensor.shape()
    );
    if tensor.elements() == 0 && input == 2 {
        bail!(InvalidArgument, "diag_index must have at least one element");
    }
    ensure!(tensor.elements() > 0, InvalidArgument, "Expected diag_index to have at least 1 element");
    two_ends(&input_ints(cx, input)?)
}

fn known_diagonals(s: &ShapeCx<'_>, input: usize) -> Result<Option<(i64, i64)>> {
    if s.num_inputs() <= input {
        return Ok(Some((0, 0)));
    }
    constant_ints(s, input)?.as_deref().map(two_ends).transpose()
}

/// An empty result with every element set to the padding value, or to zero.
/// A padding value of one element passes for a scalar unless `strict`.
fn padded(cx: &KernelCx<'_>, like: &Tensor, shape: Shape, padding: usize, strict: bool) -> Result<Tensor> {
    if cx.num_inputs() <= padding {
        return cx.zeros(like.dtype(), shape);
    }
    let value = cx.input(padding)?;
    ensure!(
        value.rank() == 0 || (value.elements() == 1 && !strict),
        InvalidArgument,
        "padding_value must be a scalar, received shape: {}",
        value.shape()
    );
    let mut out = cx.alloc_dtype(like.dtype(), shape)?;
    copy(cx.threads(), &Layout::reading(0, [(out.elements(), 0)]), value, &mut out)?;
    Ok(out)
}

/// The rows and columns of a matrix made of diagonals of this length, where −1 leaves a size open.
fn fitted(lower: i64, upper: i64, longest: i64, rows: i64, columns: i64) -> Result<(i64, i64)> {
    let (least_rows, least_columns) = (longest - upper.min(0), longest + lower.max(0));
    ensure!(rows == -1 || rows >= least_rows, InvalidArgument, "The number of rows is too small.");
    ensure!(
        columns == -1 || columns >= least_columns,
        InvalidArgument,
        "The number of columns is too small."
    );
    let (rows, columns) = match (rows, columns) {
        (-1, -1) => (least_rows.max(least_columns), least_rows.max(least_columns)),
        (-1, columns) => (least_rows, columns),
        (rows, -1) => (rows, least_columns),
        both => both,
    };
    ensure!(
        rows == least_rows || columns == least_columns,
        InvalidArgument,
        "The number of rows or columns is not consistent with the specified d_lower, d_upper, and diagonal."
    );
    Ok((rows, columns))
}

fn matrix_diag_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_least(0, 1)?;
    let Some(dims) = input.dims() else { return Ok(()) };
    let Some((lower, upper)) = known_diagonals(s, 1)? else { return Ok(()) };
    check_order(lower, upper)?;
    let single = lower == upper;
    ensure!(
        single || dims.len() >= 2,
        InvalidArgument,
        "diagonal must be at least 2-dim for several diagonals"
    );
    let batch = &dims[..dims.len() - if single { 1 } else { 2 }];
    let longest = dims[dims.len() - 1];
    let asked = |input: usize| -> Result<Option<i64>> {
        if s.num_inputs() <= input { Ok(Some(-1)) } else { constant_int(s, input) }
    };
    let (rows, columns) = match (longest, asked(2)?, asked(3)?) {
        (UNKNOWN_DIM, ..) | (_, None, _) | (_, _, None) => (UNKNOWN_DIM, UNKNOWN_DIM),
        (longest, Some(rows), Some(columns)) => fitted(lower, upper, longest, rows, columns)?,
    };
    s.output(0, batch.iter().copied().chain([rows, columns]))
}

fn matrix_diag_kernel(init: &Init<'_>) -> Result<Kernel> {
    let align = Align::new(init.attrs)?;
    Kernel::sync(move |cx| {
        let diagonal = cx.input(0)?;
        let dims = diagonal.shape().dims();
        ensure!(
            !dims.is_empty(),
            InvalidArgument,
            "diagonal must be at least 1-dim, received shape: {}",
            diagonal.shape()
        );
        let (lower, upper) = diagonals(cx, 1)?;
        check_order(lower, upper)?;
        let size = |input: usize, name: &str| {
            if cx.num_inputs() <= input {
                return Ok(-1);
            }
            ensure!(cx.input(input)?.rank() == 0, InvalidArgument, "{name} must be a scalar");
            cx.scalar_i64(input)
        };
        let outer = if lower == upper {
            &dims[..dims.len() - 1]
        } else {
            ensure!(
                dims.len() >= 2 && dims[dims.len() - 2] == upper - lower + 1,
                InvalidArgument,
                "The number of diagonals provided in the input does not match the lower_diag_index and upper_diag_index range."
            );
            &dims[..dims.len() - 2]
        };
        let longest = dims[dims.len() - 1];
        let (rows, columns) = fitted(lower, upper, longest, size(2, "num_rows")?, size(3, "num_cols")?)?;
        let band = Band { lower, upper, rows, columns };
        let batch = outer.iter().product::<i64>() as usize;
        let shape = Shape::new(outer.iter().copied().chain([rows, columns]))?;
        let mut out = padded(cx, diagonal, shape, 4, true)?;
        if band.longest() == longest {
            band.copy(cx.threads(), align, batch, true, diagonal, &mut out)?;
        }
        Ok(out.into())
    })
}

fn matrix_diag_part_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_least(0, 2)?;
    let Some(dims) = input.dims() else { return Ok(()) };
    let (outer, matrix) = dims.split_at(dims.len() - 2);
    let Some((lower, upper)) = known_diagonals(s, 1)? else { return Ok(()) };
    check_order(lower, upper)?;
    let count = (lower != upper).then_some(upper - lower + 1);
    let longest = if matrix.contains(&UNKNOWN_DIM) {
        UNKNOWN_DIM
    } else {
        let band = Band { lower, upper, rows: matrix[0], columns: matrix[1] };
        band.check(".")?;
        band.longest()
    };
    s.output(0, outer.iter().copied().chain(count).chain([longest]))
}

/// The batch dimensions, rows and columns of a stack of matrices.
fn matrices(shape: &Shape) -> Result<(&[i64], i64, i64)> {
    match shape.dims() {
        [outer @ .., rows, columns] => Ok((outer, *rows, *columns)),
        _ => bail!(InvalidArgument, "input must be at least 2-dim, received shape: {shape}"),
    }
}

fn matrix_diag_part_kernel(init: &Init<'_>) -> Result<Kernel> {
    let align = Align::new(init.attrs)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let (outer, rows, columns) = matrices(input.shape())?;
        let (lower, upper) = diagonals(cx, 1)?;
        let band = Band { lower, upper, rows, columns };
        band.check(".")?;
        let count = (lower != upper).then_some(band.count());
        let shape = Shape::new(outer.iter().copied().chain(count).chain([band.longest()]))?;
        let mut out = padded(cx, input, shape, 2, false)?;
        let batch = outer.iter().product::<i64>() as usize;
        band.copy(cx.threads(), align, batch, false, input, &mut out)?;
        Ok(out.into())
    })
}

fn matrix_set_diag_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_least(0, 2)?;
    s.rank_at_least(1, 1)?;
    s.set(0, input);
    Ok(())
}

fn matrix_set_diag_kernel(init: &Init<'_>) -> Result<Kernel> {
    let align = Align::new(init.attrs)?;
    Kernel::sync(move |cx| {
        let (shape, diagonal) = (cx.input(0)?.shape().clone(), cx.input(1)?);
        let (outer, rows, columns) = matrices(&shape)?;
        ensure!(
            diagonal.rank() >= 1,
            InvalidArgument,
            "diagonal must be at least 1-dim, received shape: {}",
            diagonal.shape()
        );
        let (lower, upper) = diagonals(cx, 2)?;
        let band = Band { lower, upper, rows, columns };
        band.check("")?;
        let count = (lower != upper).then_some(band.count());
        if let Some(count) = count {
            let dims = diagonal.shape().dims();
            ensure!(
                dims.len() >= shape.rank() - 1,
                InvalidArgument,
                "Diagonal tensor rank must be large enough to contain a diagonal-count dimension. Input rank: {}, \
                 Expected diagonal rank >= {}, Received diagonal rank: {}",
                shape.rank(),
                shape.rank() - 1,
                dims.len()
            );
            ensure!(
                dims.len() == shape.rank() && dims[dims.len() - 2] == count,
                InvalidArgument,
                "The number of diagonals provided in `diag` is not consistent with `lower_diag_index` and `upper_diag_index`"
            );
        }
        let want = Shape::new(outer.iter().copied().chain(count).chain([band.longest()]))?;
        ensure!(
            diagonal.shape() == &want,
            InvalidArgument,
            "Either first dimensions of diagonal don't match input.shape[:-2], or diagonal.shape[:-1] is not equal to the longests diagonal in range [lower_diag_index:upper_diag_index].\nInput shape: {shape}\nDiagonal shape: {}\nExpected diagonal shape: {want}",
            diagonal.shape()
        );
        let batch = outer.iter().product::<i64>() as usize;
        let mut out = cx.take(0)?;
        band.copy(cx.threads(), align, batch, true, cx.input(1)?, &mut out)?;
        Ok(out.into())
    })
}

fn matrix_band_part_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (_, rows, columns) = matrices(cx.input(0)?.shape())?;
        let reach = |input: usize, name: &str, what: &str, limit: i64| -> Result<i64> {
            let shape = cx.input(input)?.shape();
            ensure!(shape.is_scalar(), InvalidArgument, "{name} must be scalar, got shape {shape}");
            let value = cx.scalar_i64(input)?;
            ensure!(
                value <= limit,
                InvalidArgument,
                "{name} must be negative or less or equal to number of {what} ({limit}) got: {value}"
            );
            Ok(if value < 0 { limit } else { value })
        };
        let lower = reach(1, "num_lower", "rows", rows)?;
        let upper = reach(2, "num_upper", "columns", columns)?;
        let mut out = cx.take(0)?;
        if out.elements() == 0 || (lower >= rows - 1 && upper >= columns - 1) {
            return Ok(out.into());
        }
        by_unit!(out.dtype(), U => {
            let width = columns as usize;
            for (i, row) in out.units_mut::<U>()?.chunks_exact_mut(width).enumerate() {
                let i = i as i64 % rows;
                row[..(i - lower).clamp(0, columns) as usize].fill(U::default());
                row[(i + upper + 1).clamp(0, columns) as usize..].fill(U::default());
            }
        });
        Ok(out.into())
    })
}

fn diag_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_least(0, 1)?;
    let Some(dims) = input.dims() else { return Ok(()) };
    s.output(0, dims.iter().chain(dims).copied())
}

fn diag_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        ensure!(input.rank() >= 1, InvalidArgument, "Input must be at least rank 1, got 0");
        let (dims, count) = (input.shape().dims(), input.elements());
        let mut out = cx.zeros(input.dtype(), Shape::new(dims.iter().chain(dims).copied())?)?;
        copy(cx.threads(), &Layout::writing(0, [(count, count as isize + 1)]), input, &mut out)?;
        Ok(out.into())
    })
}

fn diag_part_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    // Stock's function refuses scalars, too, but its servers do not ask it, and its kernel takes them.
    ensure!(
        dims.len().is_multiple_of(2),
        InvalidArgument,
        "Input must have even and non-zero rank, input rank is {}",
        dims.len()
    );
    let (left, right) = dims.split_at(dims.len() / 2);
    let dims: Result<Vec<i64>> = left.iter().zip(right).map(|(a, b)| s.merge_dims(*a, *b)).collect();
    s.output(0, dims?)
}

fn diag_part_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        let dims = input.shape().dims();
        ensure!(
            dims.len().is_multiple_of(2),
            InvalidArgument,
            "The rank of the tensor should be even and positive, got shape {}",
            input.shape()
        );
        // A scalar has rank 0, which counts as positive here.
        let half = dims.len() / 2;
        for i in 0..half {
            ensure!(
                dims[i] == dims[half + i],
                InvalidArgument,
                "Invalid shape {}: dimensions {i} and {} do not match.",
                input.shape(),
                half + i
            );
        }
        let mut out = cx.alloc_dtype(input.dtype(), Shape::new(dims[..half].iter().copied())?)?;
        let count = out.elements();
        copy(cx.threads(), &Layout::reading(0, [(count, count as isize + 1)]), input, &mut out)?;
        Ok(out.into())
    })
}

fn diag_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::diag_part(g.scope(), g.dy(0)?)?].into())
}

fn diag_part_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::diag(g.scope(), g.dy(0)?)?].into())
}

fn matrix_band_part_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(ops::matrix_band_part(g.scope(), g.dy(0)?, g.input(1), g.input(2))?), None, None].into())
}

/// The alignment of short diagonals: as the operation says, or, where it says nothing, as stock's gradients assume.
fn alignment(g: &GradCx<'_>) -> String {
    g.attr("align").unwrap_or_else(|_| "RIGHT_LEFT".to_owned())
}

fn matrix_diag_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::matrix_diag_part(g.scope(), g.dy(0)?)?].into())
}

fn matrix_diag_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let part = ops::MatrixDiagPartV3::new().align(&alignment(g));
    Ok([Some(part.build(g.scope(), g.dy(0)?, g.input(1), 0)?), None, None, None, None].into())
}

/// Rows and columns of the matrices in an output, if both are known.
fn matrix_size(x: &Output) -> Option<(i32, i32)> {
    let shape = x.shape();
    let [.., rows, columns] = shape.dims()? else { return None };
    Some((u32::try_from(*rows).ok()? as i32, u32::try_from(*columns).ok()? as i32))
}

fn matrix_diag_part_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x) = (g.scope(), g.input(0));
    let dx = match matrix_size(x) {
        Some((rows, columns)) if rows == columns => ops::matrix_diag(s, g.dy(0)?)?,
        _ => ops::matrix_set_diag(s, ops::zeros_like(s, x), g.dy(0)?)?,
    };
    Ok([dx].into())
}

fn matrix_diag_part_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, k, align) = (g.scope(), g.input(0), g.input(1), alignment(g));
    let dx = match matrix_size(x) {
        Some((rows, columns)) => {
            ops::MatrixDiagV3::new().align(&align).build(s, g.dy(0)?, k, rows, columns, 0)?
        }
        None => ops::MatrixSetDiagV3::new().align(&align).build(s, ops::zeros_like(s, x), g.dy(0)?, k)?,
    };
    Ok([Some(dx), None, None].into())
}

fn matrix_set_diag_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let dx = ops::matrix_set_diag(s, &dy, ops::zeros_like(s, g.input(1)))?;
    Ok([dx, ops::matrix_diag_part(s, &dy)?].into())
}

fn matrix_set_diag_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, k, align) = (g.scope(), g.dy(0)?, g.input(2), alignment(g));
    let zeros = ops::zeros_like(s, g.input(1));
    let dx = ops::MatrixSetDiagV3::new().align(&align).build(s, &dy, zeros, k)?;
    let diagonal = ops::MatrixDiagPartV3::new().align(&align).build(s, &dy, k, 0)?;
    Ok([Some(dx), Some(diagonal), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn shapes_follow_the_diagonals() {
        infer("MatrixDiag", "[2,3]", "[2,3,3]");
        infer("MatrixDiagPart", "[2,3,4]", "[2,3]");
        let ends = Tensor::vector(vec![-1i32, 1]);
        Node::new("MatrixDiagPartV3").constant(1, ends).infer("[3,4];[2];[]", "[3,3]");
        infer("DiagPart", "[2,3,2,?]", "[2,3]");
        infer_err("DiagPart", "[2,3,2]", Code::InvalidArgument);
    }
}

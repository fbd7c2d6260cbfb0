//! Arithmetic on sparse tensors: sums and extremes of two of them, and of one with a dense tensor.

use crate::builders as ops;
use crate::numeric::{Num, Real};
use crate::support::gradient::shape_as;
use crate::support::sparse::{Sparse, joined, length, sparse_outputs, sparse_ranks, wide};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, DType, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};
use std::cmp::Ordering;

pub(crate) const OPS: &[&Op] = &[
    &SPARSE_ADD,
    &SPARSE_ADD_GRAD,
    &SPARSE_SPARSE_MAXIMUM,
    &SPARSE_SPARSE_MINIMUM,
    &SPARSE_DENSE_CWISE_ADD,
    &SPARSE_DENSE_CWISE_MUL,
    &SPARSE_DENSE_CWISE_DIV,
    &SPARSE_TENSOR_DENSE_ADD,
];

static SPARSE_ADD: Op = Op {
    name: "SparseAdd",
    gradient: Gradient::Fn(sparse_add_grad),
    inputs: &[
        "a_indices: int64",
        "a_values: T",
        "a_shape: int64",
        "b_indices: int64",
        "b_values: T",
        "b_shape: int64",
        "thresh: Treal",
    ],
    outputs: &["sum_indices: int64", "sum_values: T", "sum_shape: int64"],
    attrs: &["T: numbertype", "Treal: realnumbertype"],
    shape: sparse_add_shape,
    kernels: kernels![sparse_add_kernel: f32, f64, i8, i16, i32, i64, C64, C128],
    ..Op::PURE
};

static SPARSE_ADD_GRAD: Op = Op {
    name: "SparseAddGrad",
    gradient: Gradient::Stop,
    inputs: &["backprop_val_grad: T", "a_indices: int64", "b_indices: int64", "sum_indices: int64"],
    outputs: &["a_val_grad: T", "b_val_grad: T"],
    attrs: &["T: numbertype"],
    shape: sparse_add_grad_shape,
    kernels: kernels![add_grad_kernel: f32, f64, i8, i16, i32, i64, C64, C128],
    ..Op::PURE
};

static SPARSE_SPARSE_MAXIMUM: Op = Op {
    name: "SparseSparseMaximum",
    gradient: Gradient::Fn(no_grad),
    inputs: &[
        "a_indices: int64",
        "a_values: T",
        "a_shape: int64",
        "b_indices: int64",
        "b_values: T",
        "b_shape: int64",
    ],
    outputs: &["output_indices: int64", "output_values: T"],
    attrs: &["T: realnumbertype"],
    shape: extreme_shape,
    kernels: kernels![maximum_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..Op::PURE
};

static SPARSE_SPARSE_MINIMUM: Op = Op {
    name: "SparseSparseMinimum",
    attrs: &["T: numbertype"],
    kernels: kernels![minimum_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..SPARSE_SPARSE_MAXIMUM
};

static SPARSE_DENSE_CWISE_ADD: Op = Op {
    name: "SparseDenseCwiseAdd",
    gradient: Gradient::Fn(no_grad),
    inputs: &["sp_indices: int64", "sp_values: T", "sp_shape: int64", "dense: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype"],
    shape: dense_cwise_shape,
    kernels: kernels![dense_cwise_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..Op::PURE
};

static SPARSE_DENSE_CWISE_MUL: Op =
    Op { name: "SparseDenseCwiseMul", gradient: Gradient::Fn(dense_cwise_grad), ..SPARSE_DENSE_CWISE_ADD };

static SPARSE_DENSE_CWISE_DIV: Op =
    Op { name: "SparseDenseCwiseDiv", gradient: Gradient::Fn(dense_cwise_grad), ..SPARSE_DENSE_CWISE_ADD };

static SPARSE_TENSOR_DENSE_ADD: Op = Op {
    name: "SparseTensorDenseAdd",
    gradient: Gradient::Fn(tensor_dense_add_grad),
    inputs: &["a_indices: Tindices", "a_values: T", "a_shape: Tindices", "b: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype", "Tindices: {int32, int64}"],
    shape: tensor_dense_add_shape,
    kernels: kernels![
        tensor_dense_add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    ..Op::PURE
};

fn sparse_add_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(2, 1)?;
    let rank = length(s, 2);
    sparse_outputs(s, 0, rank)
}

fn sparse_add_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for (output, input) in [(0, 1), (1, 2)] {
        let indices = s.rank(input, 2)?;
        s.output(output, [indices.dims().map_or(UNKNOWN_DIM, |dims| dims[0])])?;
    }
    Ok(())
}

fn extreme_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    sparse_ranks(s, 0)?;
    sparse_ranks(s, 3)?;
    s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM])?;
    s.output(1, [UNKNOWN_DIM])
}

fn dense_cwise_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let indices = s.rank(0, 2)?;
    s.output(0, [indices.dims().map_or(UNKNOWN_DIM, |dims| dims[0])])
}

fn tensor_dense_add_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(3));
    Ok(())
}

/// Numbers that a threshold may be compared with.
trait Magnitude: Num {
    type Size: Real;

    /// Returns whether the absolute value reaches the threshold.
    fn reaches(self, threshold: Self::Size) -> bool;
}

macro_rules! magnitudes {
    ($($type:ty, $size:ty, |$x:ident| $abs:expr;)+) => {$(
        impl Magnitude for $type {
            type Size = $size;
            fn reaches(self, threshold: $size) -> bool {
                let $x = self;
                threshold.to_f64() <= $abs as f64
            }
        }
    )+};
}
magnitudes! {
    f32, f32, |x| x.abs();
    f64, f64, |x| x.abs();
    C64, f32, |x| x.norm();
    C128, f64, |x| x.norm();
    i8, i8, |x| x.unsigned_abs();
    i16, i16, |x| x.unsigned_abs();
    i32, i32, |x| x.unsigned_abs();
}

impl Magnitude for i64 {
    type Size = i64;
    fn reaches(self, threshold: i64) -> bool {
        threshold < 0 || threshold as u64 <= self.unsigned_abs()
    }
}

/// The entries of two sparse tensors that meet at one place.
#[derive(Clone, Copy)]
enum Place {
    Left(usize),
    Right(usize),
    Both(usize, usize),
}

/// Two sparse tensors of one shape.
struct Pair<'a> {
    a: Sparse<'a>,
    b: Sparse<'a>,
}

impl<'a> Pair<'a> {
    fn inputs(cx: &'a KernelCx<'_>) -> Result<Pair<'a>> {
        let (a, b) = (Sparse::input(cx, 0)?, Sparse::input(cx, 3)?);
        ensure!(a.rank() > 0, InvalidArgument, "Tensors must not be empty");
        ensure!(
            a.rank() == b.rank(),
            InvalidArgument,
            "Operands do not have the same ranks; got shapes: [{}] and [{}]",
            joined(a.shape, " "),
            joined(b.shape, " ")
        );
        for (axis, (x, y)) in a.shape.iter().zip(b.shape).enumerate() {
            ensure!(
                x == y,
                InvalidArgument,
                "Operands' shapes do not match: got {x} and {y} for dimension {axis}"
            );
        }
        Ok(Pair { a, b })
    }

    /// The places at which either has an entry. Both are taken to be sorted, as in stock.
    fn places(&self) -> Vec<Place> {
        let (a, b) = (&self.a, &self.b);
        let mut places = Vec::with_capacity(a.entries() + b.entries());
        let (mut i, mut j) = (0, 0);
        while i < a.entries() && j < b.entries() {
            let order = a.row(i).cmp(b.row(j));
            places.push(match order {
                Ordering::Less => Place::Left(i),
                Ordering::Equal => Place::Both(i, j),
                Ordering::Greater => Place::Right(j),
            });
            i += order.is_le() as usize;
            j += order.is_ge() as usize;
        }
        places.extend((i..a.entries()).map(Place::Left));
        places.extend((j..b.entries()).map(Place::Right));
        places
    }

    /// The coordinates of places.
    fn rows(&self, cx: &KernelCx<'_>, places: &[Place]) -> Result<Tensor> {
        let rank = self.a.rank();
        let mut out = cx.alloc::<i64>(Shape::matrix(places.len(), rank))?;
        for (out, place) in out.flat_mut::<i64>()?.chunks_exact_mut(rank).zip(places) {
            out.copy_from_slice(match *place {
                Place::Left(i) | Place::Both(i, _) => self.a.row(i),
                Place::Right(j) => self.b.row(j),
            });
        }
        Ok(out)
    }
}

fn sparse_add_kernel<T: Magnitude>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let thresh = cx.input(6)?;
        ensure!(
            thresh.rank() == 0,
            InvalidArgument,
            "The magnitude threshold must be a scalar: got shape {}",
            thresh.shape()
        );
        let thresh = thresh.flat::<T::Size>()?[0];
        let pair = Pair::inputs(cx)?;
        let (a, b) = (pair.a.values.flat::<T>()?, pair.b.values.flat::<T>()?);
        let mut places = pair.places();
        places.retain(|place| match place {
            Place::Both(i, j) => a[*i].add(b[*j]).reaches(thresh),
            _ => true,
        });
        let mut values = cx.alloc::<T>(Shape::vector(places.len()))?;
        for (out, place) in values.flat_mut::<T>()?.iter_mut().zip(&places) {
            *out = match *place {
                Place::Left(i) => a[i],
                Place::Right(j) => b[j],
                Place::Both(i, j) => a[i].add(b[j]),
            };
        }
        Ok([pair.rows(cx, &places)?, values, cx.input(2)?.clone()].into())
    })
}

fn maximum_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| extreme::<T>(cx, T::maximum))
}

fn minimum_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| extreme::<T>(cx, T::minimum))
}

/// The larger or smaller at every place; missing entries are zeros.
fn extreme<T: Real>(cx: &KernelCx<'_>, choose: fn(T, T) -> T) -> Result<Outputs> {
    let pair = Pair::inputs(cx)?;
    pair.a.check_bounds()?;
    pair.b.check_bounds()?;
    let (a, b) = (pair.a.values.flat::<T>()?, pair.b.values.flat::<T>()?);
    let places = pair.places();
    let mut values = cx.alloc::<T>(Shape::vector(places.len()))?;
    for (out, place) in values.flat_mut::<T>()?.iter_mut().zip(&places) {
        *out = match *place {
            Place::Left(i) => choose(a[i], T::ZERO),
            Place::Right(j) => choose(T::ZERO, b[j]),
            Place::Both(i, j) => choose(a[i], b[j]),
        };
    }
    Ok([pair.rows(cx, &places)?, values].into())
}

fn add_grad_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (arriving, sums) = (cx.input(0)?, cx.input(3)?);
        let operands = [cx.input(1)?, cx.input(2)?];
        ensure!(
            operands.iter().chain([&sums]).all(|indices| indices.rank() == 2),
            InvalidArgument,
            "Input indices should be matrices but received shapes: {} and {} and {}",
            operands[0].shape(),
            operands[1].shape(),
            sums.shape()
        );
        ensure!(
            arriving.rank() == 1,
            InvalidArgument,
            "Input backprop_val_grad should be a vector but received shape: {}",
            arriving.shape()
        );
        let rank = sums.shape().dim(1);
        ensure!(
            operands.iter().all(|indices| indices.shape().dim(1) == rank),
            InvalidArgument,
            "The densified operands should have the same ndims; for A, B, sum got: {}, {}, {rank}",
            operands[0].shape().dim(1),
            operands[1].shape().dim(1)
        );
        ensure!(
            arriving.elements() == sums.shape().dim(0),
            InvalidArgument,
            "# elements of backprop_val_grad and # rows of sum_indices should match (#nnz of sum): got {} and {}",
            arriving.elements(),
            sums.shape().dim(0)
        );
        let mut grads = Vec::with_capacity(2);
        for indices in operands {
            let mut grad = cx.zeros(T::DTYPE, Shape::vector(indices.shape().dim(0)))?;
            let places =
                matching_rows(indices.flat()?, grad.elements(), sums.flat()?, arriving.elements(), rank);
            let (out, arriving) = (grad.flat_mut::<T>()?, arriving.flat::<T>()?);
            for (entry, sum) in places.into_iter() {
                out[entry] = arriving[sum];
            }
            grads.push(grad);
        }
        Ok(grads.into())
    })
}

/// The rows that occur in both of two sorted matrices of coordinates, by their places in either.
fn matching_rows(a: &[i64], rows: usize, b: &[i64], others: usize, rank: usize) -> Vec<(usize, usize)> {
    let (mut i, mut j) = (0, 0);
    let mut places = Vec::with_capacity(rows.min(others));
    while i < rows && j < others {
        let order = a[i * rank..(i + 1) * rank].cmp(&b[j * rank..(j + 1) * rank]);
        if order.is_eq() {
            places.push((i, j));
        }
        i += order.is_le() as usize;
        j += order.is_ge() as usize;
    }
    places
}

fn dense_cwise_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let combine: fn(T, T) -> T = match init.op {
        "SparseDenseCwiseAdd" => T::add,
        "SparseDenseCwiseMul" => T::mul,
        _ => T::div,
    };
    let divides = init.op == "SparseDenseCwiseDiv";
    Kernel::sync(move |cx| {
        let sparse = Sparse::input(cx, 0)?;
        let dense = cx.input(3)?;
        let places = broadcast_places(&sparse, dense.shape())?;
        let (values, dense) = (sparse.values.flat::<T>()?, dense.flat::<T>()?);
        ensure!(
            !divides || places.iter().all(|place| !dense[*place].is_zero()),
            InvalidArgument,
            "SparseDenseCwiseDiv cannot divide by zero,but input dense tensor contains zero "
        );
        let mut out = cx.alloc::<T>(Shape::vector(values.len()))?;
        for ((out, value), place) in out.flat_mut::<T>()?.iter_mut().zip(values).zip(places) {
            *out = combine(*value, dense[place]);
        }
        Ok(out.into())
    })
}

/// The element of a dense tensor of this shape that each entry meets when the dense tensor is repeated to the sparse
/// one's shape.
fn broadcast_places(sparse: &Sparse<'_>, dense: &Shape) -> Result<Vec<usize>> {
    ensure!(sparse.rank() > 0, InvalidArgument, "The shape argument requires at least one element.");
    sparse.dense_shape()?;
    let missing = sparse.rank().checked_sub(dense.rank());
    let fits = |missing: usize| {
        sparse.shape[missing..].iter().zip(dense.iter()).all(|(x, y)| x == y || (*y == 1 && *x >= 1))
    };
    let Some(missing) = missing.filter(|missing| fits(*missing)) else {
        bail!(
            InvalidArgument,
            "SparseDenseBinaryOpShared broadcasts dense to sparse only; got incompatible shapes: [{}] vs. [{}]",
            joined(sparse.shape, ","),
            joined(dense, ",")
        )
    };
    ensure!(
        sparse.rank() <= 5,
        InvalidArgument,
        "Only tensors with ranks between 1 and 5 are currently supported.  Tensor rank: {}",
        sparse.rank()
    );
    let mut places = Vec::with_capacity(sparse.entries());
    for entry in 0..sparse.entries() {
        let row = sparse.row(entry);
        ensure!(
            row.iter().zip(sparse.shape).all(|(at, dim)| (0..*dim).contains(at)),
            InvalidArgument,
            "Provided indices are out-of-bounds w.r.t. dense side with broadcasted shape"
        );
        let place = row[missing..].iter().zip(dense.iter());
        places.push(place.fold(0, |place, (at, dim)| place * dim + if *dim == 1 { 0 } else { *at }) as usize);
    }
    Ok(places)
}

fn tensor_dense_add_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let places = dense_add_places(cx)?;
        let mut out = cx.take(3)?;
        let sums = out.flat_mut::<T>()?;
        for (place, value) in places.into_iter().zip(cx.flat::<T>(1)?) {
            sums[place] = sums[place].add(*value);
        }
        Ok(out.into())
    })
}

fn dense_add_places(cx: &KernelCx<'_>) -> Result<Vec<usize>> {
    let (indices, values, shape, dense) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?.shape());
    ensure!(
        indices.rank() == 2,
        InvalidArgument,
        "Input a_indices should be a matrix but received shape: {}",
        indices.shape()
    );
    ensure!(
        values.rank() == 1 && shape.rank() == 1,
        InvalidArgument,
        "Inputs a_values and a_shape should be vectors but received shapes: {} and {}",
        values.shape(),
        shape.shape()
    );
    for (want, have) in
        [(indices.shape().dim(0), values.elements()), (indices.shape().dim(1), shape.elements())]
    {
        ensure!(want == have, InvalidArgument, "Dimensions {want} and {have} are not compatible");
    }
    ensure!(
        shape.elements() == dense.rank(),
        InvalidArgument,
        "Two operands have different ranks; received: {} and {}",
        shape.elements(),
        dense.rank()
    );
    for (axis, (x, y)) in wide(shape)?.iter().zip(dense.iter()).enumerate() {
        ensure!(
            x == y,
            InvalidArgument,
            "Dimension {axis} does not equal (no broadcasting is supported): sparse side {x} vs dense side {y}"
        );
    }
    let rank = dense.rank();
    let rows = wide(indices)?;
    let mut places = Vec::with_capacity(values.elements());
    for entry in 0..values.elements() {
        let mut place = 0;
        for (axis, (at, dim)) in rows[entry * rank..(entry + 1) * rank].iter().zip(dense.iter()).enumerate() {
            ensure!(
                (0..*dim).contains(at),
                InvalidArgument,
                "Sparse tensor has an invalid index on dimension {axis}: a_indices({entry},{axis}) = {at}, dense tensor shape: {dense}"
            );
            place = place * dim + at;
        }
        places.push(place as usize);
    }
    ensure!(
        (1..=5).contains(&rank),
        InvalidArgument,
        "Only tensors with ranks between 1 and 5 are currently supported.  Tensor rank: {rank}"
    );
    Ok(places)
}

fn sparse_add_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let grads = ops::sparse_add_grad(g.scope(), g.dy(1)?, g.input(0), g.input(3), g.output(0)?)?;
    Ok([None, Some(grads.a_val_grad), None, None, Some(grads.b_val_grad), None, None].into())
}

fn tensor_dense_add_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let dy = g.dy(0)?;
    Ok([None, Some(ops::gather_nd(g.scope(), &dy, g.input(0))?), None, Some(dy)].into())
}

/// Stock knows these ops to have gradients, but has none either.
fn no_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    bail!(Unimplemented, "Gradient for {} is not implemented.", g.op().op_type())
}

/// The dense side gets the sum of what arrives at the entries that its elements met.
fn dense_cwise_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let (indices, values, shape, dense) = (g.input(0), g.input(1), g.input(2), g.input(3));
    let dense_shape = shape_as(s, dense, DType::Int64)?;
    let added = ops::expand_dims(s, ops::sub(s, ops::size(s, shape), ops::size(s, &dense_shape)), 0)?;
    let ones = ops::fill(s, &added, 1i64)?;
    let padded = ops::concat_v2(s, [&ones, &dense_shape], 0)?;
    let scaling = ops::floor_div(s, shape, padded)?;
    let scaled = ops::floor_div(s, indices, scaling)?;
    let zero = s.constant(vec![0i32])?;
    let begin = ops::concat_v2(s, [&zero, &added], 0)?;
    let scaled = ops::slice(s, scaled, begin, [-1, -1])?;
    let met = ops::gather_nd(s, dense, &scaled)?;
    let (dx, terms) = if g.op().op_type() == "SparseDenseCwiseMul" {
        (ops::mul(s, &dy, &met)?, ops::mul(s, &dy, values)?)
    } else {
        let slope = ops::real_div(s, ops::neg(s, values), ops::square(s, &met))?;
        (ops::real_div(s, &dy, &met)?, ops::mul(s, &dy, slope)?)
    };
    let zeros = ops::zeros_like(s, dense)?;
    let ddense = ops::sparse_tensor_dense_add(s, scaled, terms, dense_shape, zeros)?;
    Ok([None, Some(dx), None, Some(ddense)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn sums_below_the_threshold_vanish() {
        infer("SparseAdd", "[3,2];[3];[2];?;?;?;[]", "[?,2];[?];[2]");
        let indices = || Tensor::new(Shape::matrix(2, 1), vec![0i64, 2]).unwrap();
        let parts = |values: Vec<f32>| [indices(), Tensor::vector(values), Tensor::vector(vec![3i64])];
        let inputs = parts(vec![1.0, 2.0]).into_iter().chain(parts(vec![-1.0, 3.0]));
        let out = Node::new("SparseAdd").run(inputs.chain([Tensor::scalar(0.5f32)])).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [2]);
        assert_eq!(out[1].flat::<f32>().unwrap(), [5.0]);
    }
}

//! Writing elements by index into a new tensor, or into a copy of one.

use crate::builders as ops;
use crate::linalg::scatter_nd::{BadIndices, Places};
use crate::linalg::strided_copy::{Layout, copy};
use crate::numeric::{Num, Real};
use crate::support::gradient::{shape_as, sum_of_all};
use crate::support::index::{input_ints, ints};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{C64, C128, DType, Element, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SCATTER_ND,
    &TENSOR_SCATTER_UPDATE,
    &TENSOR_SCATTER_ADD,
    &TENSOR_SCATTER_SUB,
    &TENSOR_SCATTER_MAX,
    &TENSOR_SCATTER_MIN,
    &SCATTER_ND_NON_ALIASING_ADD,
    &SPARSE_TO_DENSE,
];

static SCATTER_ND: Op = Op {
    name: "ScatterNd",
    gradient: Gradient::Fn(scatter_nd_grad),
    inputs: &["indices: Tindices", "updates: T", "shape: Tindices"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tindices: {int16, int32, int64}", "bad_indices_policy: string = ''"],
    shape: scatter_nd_shape,
    kernels: kernels![
        scatter_nd_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128, bool, Str
    ],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

const TENSOR_SCATTER: Op = Op {
    inputs: &["tensor: T", "indices: Tindices", "updates: T"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tindices: {int32, int64}", "bad_indices_policy: string = ''"],
    shape: shapes::unchanged,
    ..Op::PURE
};

static TENSOR_SCATTER_UPDATE: Op = Op {
    name: "TensorScatterUpdate",
    gradient: Gradient::Fn(update_grad),
    attrs: &["T: type", "Tindices: {int16, int32, int64, uint16}", "bad_indices_policy: string = ''"],
    kernels: kernels![any tensor_scatter_update_kernel],
    ..TENSOR_SCATTER
};

static TENSOR_SCATTER_ADD: Op = Op {
    name: "TensorScatterAdd",
    gradient: Gradient::Fn(add_grad),
    kernels: kernels![
        tensor_scatter_add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    accuracy: Accuracy::Rounding,
    ..TENSOR_SCATTER
};

static TENSOR_SCATTER_SUB: Op = Op {
    name: "TensorScatterSub",
    gradient: Gradient::Fn(sub_grad),
    kernels: kernels![
        tensor_scatter_sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    accuracy: Accuracy::Rounding,
    ..TENSOR_SCATTER
};

static TENSOR_SCATTER_MAX: Op = Op {
    name: "TensorScatterMax",
    gradient: Gradient::Fn(extreme_grad),
    kernels: kernels![tensor_scatter_max_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..TENSOR_SCATTER
};

static TENSOR_SCATTER_MIN: Op = Op {
    name: "TensorScatterMin",
    gradient: Gradient::Fn(extreme_grad),
    kernels: kernels![tensor_scatter_min_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..TENSOR_SCATTER
};

static SCATTER_ND_NON_ALIASING_ADD: Op = Op {
    name: "ScatterNdNonAliasingAdd",
    gradient: Gradient::Fn(add_grad),
    inputs: &["input: T", "indices: Tindices", "updates: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool}",
        "Tindices: {int32, int64}",
        "bad_indices_policy: string = ''",
    ],
    shape: shapes::unchanged,
    kernels: kernels![
        non_aliasing_add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128, bool
    ],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SPARSE_TO_DENSE: Op = Op {
    name: "SparseToDense",
    gradient: Gradient::Fn(sparse_to_dense_grad),
    inputs: &["sparse_indices: Tindices", "output_shape: Tindices", "sparse_values: T", "default_value: T"],
    outputs: &["dense: T"],
    attrs: &["validate_indices: bool = true", "T: type", "Tindices: {int32, int64}"],
    shape: sparse_to_dense_shape,
    kernels: kernels![any sparse_to_dense_kernel],
    ..Op::PURE
};

/// The elements that scattering adds up: numbers by their sum, truth values by "or", strings by joining, as in stock.
pub(crate) trait Accumulate: Element {
    fn accumulate(&mut self, update: &Self);
}

macro_rules! accumulate_numbers {
    ($($type:ty),+) => {$(
        impl Accumulate for $type {
            #[inline(always)]
            fn accumulate(&mut self, update: &$type) {
                *self = Num::add(*self, *update);
            }
        }
    )+};
}
accumulate_numbers!(bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128);

impl Accumulate for bool {
    fn accumulate(&mut self, update: &bool) {
        *self |= *update;
    }
}

impl Accumulate for Str {
    fn accumulate(&mut self, update: &Str) {
        *self = if self.is_empty() { update.clone() } else { [&self[..], &update[..]].concat().into() };
    }
}

pub(crate) fn add_up<T: Accumulate>(target: &mut [T], update: &[T]) {
    for (target, update) in target.iter_mut().zip(update) {
        target.accumulate(update);
    }
}

/// Whether indices and updates fit a tensor of this shape.
pub(crate) fn check_scatter(indices: &Shape, updates: &Shape, shape: &Shape) -> Result<()> {
    let (depth, batch) = match indices.split_last() {
        Some((depth, outer)) if indices.rank() > 1 => (*depth as usize, outer.len()),
        // A vector of indices stands for tuples of one.
        _ => (1, 1),
    };
    // A single index counts as a vector of one.
    let places = if indices.rank() == 0 { &[1] } else { &indices[..batch] };
    ensure!(
        updates.rank() >= batch && updates[..batch] == *places,
        InvalidArgument,
        "Dimensions [0,{batch}) of indices[shape={indices}] = {} must match dimensions [0,{batch}) of updates[shape={updates}] = {}",
        places[0],
        updates.first().copied().unwrap_or(1)
    );
    ensure!(
        depth <= shape.rank() && updates[batch..] == shape[depth..],
        InvalidArgument,
        "Dimensions [{depth},{}) of input[shape={shape}] must match dimensions [{batch},{}) of updates[shape={updates}]",
        shape.rank(),
        updates.rank()
    );
    Ok(())
}

fn scatter_nd_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank_at_least(0, 1)?;
    s.rank_at_least(1, 1)?;
    let shape = s.constant_shape(2)?;
    s.set(0, shape);
    Ok(())
}

pub(crate) fn policy(init: &Init<'_>) -> Result<BadIndices> {
    BadIndices::from_policy(&init.attr::<String>("bad_indices_policy")?)
}

/// Index tuples along the last dimension. Of a vector stock checks that it names as many places as there are updates,
/// and then reads its first element only.
pub(crate) fn tuples(indices: &Tensor) -> Result<Tensor> {
    if indices.rank() > 1 {
        return Ok(indices.clone());
    }
    let first: Vec<i64> = ints(indices)?.into_iter().take(1).collect();
    Tensor::new(Shape::matrix(first.len(), 1), first)
}

/// Indices, updates and what they change must be all empty or all not, but for a target without changes.
pub(crate) fn check_emptiness(indices: &Tensor, updates: &Shape, target: usize, what: &str) -> Result<()> {
    let (count, changes) = (indices.elements(), updates.elements());
    ensure!(
        (count == 0 && changes == 0) || (count > 0 && changes > 0 && target > 0),
        InvalidArgument,
        "Indices and updates specified for empty output{what}.  indices shape: {}",
        indices.shape()
    );
    Ok(())
}

fn scatter_nd_kernel<T: Accumulate>(init: &Init<'_>) -> Result<Kernel> {
    let bad = policy(init)?;
    Kernel::sync(move |cx| {
        let (indices, updates, shape) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        ensure!(shape.rank() == 1, InvalidArgument, "Shape must be a vector");
        ensure!(
            indices.rank() >= 1,
            InvalidArgument,
            "Indices shape must have rank at least one. Found:{}",
            indices.shape()
        );
        ensure!(
            updates.rank() >= 1,
            InvalidArgument,
            "Updates shape must have rank at least one. Found:{}",
            updates.shape()
        );
        check_emptiness(indices, updates.shape(), shape.elements(), " shape")?;
        let shape = Shape::new(input_ints(cx, 2)?)?;
        let places = places(indices, updates.shape(), &shape, Target::Zeros, bad)?;
        let mut out = cx.zeros(T::DTYPE, shape)?;
        places.apply(out.flat_mut::<T>()?, updates.flat()?, add_up);
        Ok(out.into())
    })
}

/// Checks the inputs of a tensor scatter and says where updates go.
fn tensor_scatter_places(cx: &KernelCx<'_>, bad: BadIndices) -> Result<Places> {
    let (tensor, indices, updates) = (cx.input(0)?.shape(), cx.input(1)?, cx.input(2)?.shape());
    ensure!(
        indices.rank() >= 1,
        InvalidArgument,
        "Indices shape must have rank at least one. Found:{}",
        indices.shape()
    );
    ensure!(
        updates.rank() >= 1,
        InvalidArgument,
        "Updates shape must have rank at least one. Found:{updates}"
    );
    check_emptiness(indices, updates, tensor.elements(), " shape")?;
    places(indices, updates, tensor, Target::Copy, bad)
}

/// The result of a scatter: stock has other words for the same mistakes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Target {
    /// Zeros of a given shape.
    Zeros,
    /// A copy of a tensor.
    Copy,
}

/// The destinations of updates in a new tensor of this shape. Stock reads a vector as one tuple first and as many
/// tuples of one
/// then; no vector passes both checks unless there is nothing to write.
fn places(
    indices: &Tensor,
    updates: &Shape,
    shape: &Shape,
    target: Target,
    bad: BadIndices,
) -> Result<Places> {
    let Some((&depth, outer)) = indices.shape().split_last() else {
        bail!(InvalidArgument, "Indices shape must have rank at least one. Found:{}", indices.shape())
    };
    let (batch, depth) = (outer.len(), depth as usize);
    if updates.rank() < batch || updates[..batch] != *outer {
        let indices = indices.shape();
        match target {
            Target::Zeros => bail!(
                InvalidArgument,
                "Dimensions [0,{batch}) of indices[shape={indices}] must match dimensions [0,{batch}) of updates[shape={updates}]"
            ),
            Target::Copy => bail!(
                InvalidArgument,
                "Outer dimensions of indices and update must match. Indices shape: {indices}, updates shape:{updates}"
            ),
        }
    }
    if depth > shape.rank() || updates[batch..] != shape[depth..] {
        let (rank, inner) = (shape.rank(), updates.rank() - batch);
        match target {
            Target::Zeros => bail!(
                InvalidArgument,
                "Dimensions [{depth},{rank}) of input[shape={shape}] must match dimensions [{batch},{}) of updates[shape={updates}]",
                updates.rank()
            ),
            Target::Copy if depth > rank => bail!(
                InvalidArgument,
                "Inner dimensions of output shape must match inner dimensions of updates shape. Output: {shape} updates: {updates}"
            ),
            Target::Copy => bail!(
                InvalidArgument,
                "The inner {inner} dimensions of output.shape={shape} must match the inner {inner} dimensions of updates.shape={updates}"
            ),
        }
    }
    check_emptiness(indices, updates, shape.elements(), "")?;
    check_scatter(indices.shape(), updates, shape)?;
    Places::new(&tuples(indices)?, shape, bad)
}

/// A tensor scatter whose updates change elements by `combine`.
fn tensor_scatter<T: Element>(
    init: &Init<'_>,
    combine: impl Fn(&mut T, &T) + Send + Sync + 'static,
) -> Result<Kernel> {
    let bad = policy(init)?;
    Kernel::sync(move |cx| {
        let places = tensor_scatter_places(cx, bad)?;
        let mut out = cx.take(0)?;
        places.apply(out.flat_mut::<T>()?, cx.flat(2)?, |target, update| {
            for (target, update) in target.iter_mut().zip(update) {
                combine(target, update);
            }
        });
        Ok(out.into())
    })
}

fn tensor_scatter_update_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (bad, dtype) = (policy(init)?, init.attr::<DType>("T")?);
    Kernel::sync(move |cx| {
        let places = tensor_scatter_places(cx, bad)?;
        let mut out = cx.take(0)?;
        by_unit!(dtype, U => {
            places.apply(out.units_mut::<U>()?, cx.input(2)?.units::<U>()?, |target, update| {
                target.clone_from_slice(update);
            });
        });
        Ok(out.into())
    })
}

fn tensor_scatter_add_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    tensor_scatter(init, |target: &mut T, update| *target = target.add(*update))
}

fn tensor_scatter_sub_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    tensor_scatter(init, |target: &mut T, update| *target = target.sub(*update))
}

fn tensor_scatter_max_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    tensor_scatter(init, |target: &mut T, update| *target = target.raised(*update))
}

fn tensor_scatter_min_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    tensor_scatter(init, |target: &mut T, update| *target = target.lowered(*update))
}

fn non_aliasing_add_kernel<T: Accumulate>(init: &Init<'_>) -> Result<Kernel> {
    let bad = policy(init)?;
    Kernel::sync(move |cx| {
        let (shape, indices, updates) = (cx.input(0)?.shape(), cx.input(1)?, cx.input(2)?.shape());
        ensure!(shape.rank() > 0, InvalidArgument, "Output must be at least 1-D, got shape: {shape}");
        check_emptiness(indices, updates, shape.elements(), "")?;
        check_scatter(indices.shape(), updates, shape)?;
        let places = Places::new(&tuples(indices)?, shape, bad)?;
        let mut out = cx.take(0)?;
        places.apply(out.flat_mut::<T>()?, cx.flat(2)?, add_up);
        Ok(out.into())
    })
}

fn sparse_to_dense_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(1)?;
    s.set(0, shape);
    Ok(())
}

fn sparse_to_dense_kernel(init: &Init<'_>) -> Result<Kernel> {
    let validate: bool = init.attr("validate_indices")?;
    Kernel::sync(move |cx| sparse_to_dense(cx, validate))
}

fn sparse_to_dense(cx: &mut KernelCx<'_>, validate: bool) -> Result<Outputs> {
    let (indices, dims, values, default) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
    ensure!(
        indices.rank() <= 2,
        InvalidArgument,
        "sparse_indices should be a scalar, vector, or matrix, got shape {}",
        indices.shape()
    );
    let count = if indices.rank() > 0 { indices.shape().dim(0) } else { 1 };
    let depth = if indices.rank() > 1 { indices.shape().dim(1) } else { 1 };
    ensure!(dims.rank() == 1, InvalidArgument, "output_shape must be rank 1, got shape {}", dims.shape());
    ensure!(
        dims.elements() == depth,
        InvalidArgument,
        "output_shape has incorrect number of elements: {} should be: {depth}",
        dims.elements()
    );
    ensure!(
        values.rank() == 0 || (values.rank() == 1 && values.elements() == count),
        InvalidArgument,
        "sparse_values has incorrect shape {}, should be [] or [{count}]",
        values.shape()
    );
    ensure!(default.rank() == 0, InvalidArgument, "default_value should be a scalar.");
    let shape = Shape::new(input_ints(cx, 1)?)?;
    let all = ints(indices)?;
    let mut places = Vec::with_capacity(count);
    for (number, tuple) in all.chunks_exact(depth.max(1)).enumerate() {
        let inside = tuple.iter().zip(shape.iter()).all(|(value, dim)| (0..*dim).contains(value));
        let text = || tuple.iter().map(i64::to_string).collect::<Vec<_>>().join(",");
        if !inside && !validate {
            bail!(InvalidArgument, "Indices are not valid (out of bounds).  Shape: {shape}");
        }
        ensure!(
            inside,
            InvalidArgument,
            "indices[{number}] = [{}] is out of bounds: need 0 <= index < {shape}",
            text()
        );
        let place =
            tuple.iter().zip(shape.iter()).fold(0, |place, (value, dim)| place * dim + value) as usize;
        if let (true, Some(&before)) = (validate, places.last()) {
            ensure!(place != before, InvalidArgument, "indices[{number}] = [{}] is repeated", text());
            ensure!(
                place > before,
                InvalidArgument,
                "indices[{number}] = [{}] is out of order. Many sparse ops require sorted indices.\n    Use `tf.sparse.reorder` to create a correctly ordered copy.\n\n",
                text()
            );
        }
        places.push(place);
    }
    let mut out = cx.alloc_dtype(default.dtype(), shape)?;
    copy(cx.threads(), &Layout::reading(0, [(out.elements(), 0)]), default, &mut out)?;
    by_unit!(default.dtype(), U => {
        let (units, values) = (out.units_mut::<U>()?, values.units::<U>()?);
        for (i, place) in places.into_iter().enumerate() {
            units[place].clone_from(&values[if values.len() == 1 { 0 } else { i }]);
        }
    });
    Ok(out.into())
}

fn scatter_nd_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([None, Some(ops::gather_nd(g.scope(), g.dy(0)?, g.input(0))?), None].into())
}

fn update_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, indices) = (g.scope(), g.dy(0)?, g.input(1));
    let dx = ops::tensor_scatter_update(s, &dy, indices, ops::zeros_like(s, g.input(2)))?;
    Ok([Some(dx), None, Some(ops::gather_nd(s, &dy, indices)?)].into())
}

fn add_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let updates = ops::gather_nd(s, &dy, g.input(1))?;
    Ok([Some(ops::identity(s, dy)?), None, Some(updates)].into())
}

fn sub_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let updates = ops::neg(s, ops::gather_nd(s, &dy, g.input(1)))?;
    Ok([Some(ops::identity(s, dy)?), None, Some(updates)].into())
}

/// Elements that are equally extreme share what arrives.
fn extreme_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, indices, updates) = (g.scope(), g.input(0), g.input(1), g.input(2));
    let (output, dy, policy) = (g.output(0)?, g.dy(0)?, g.attr::<String>("bad_indices_policy")?);
    let gather = |from: &Output| ops::GatherNd::new().bad_indices_policy(&policy).build(s, from, indices);
    let chosen = ops::cast(s, ops::equal(s, x, &output), dy.dtype())?;
    let chosen_updates = ops::cast(s, ops::equal(s, updates, gather(&output)?), dy.dtype())?;
    let shape = shape_as(s, x, indices.dtype())?;
    let scatter = ops::ScatterNd::new().bad_indices_policy(&policy);
    let scattered = scatter.build(s, indices, &chosen_updates, shape);
    let count = ops::add_v2(s, &chosen, scattered)?;
    let dx = ops::real_div(s, ops::mul(s, &dy, chosen), &count)?;
    let shares = gather(&ops::real_div(s, &dy, &count)?)?;
    Ok([Some(dx), None, Some(ops::mul(s, shares, chosen_updates)?)].into())
}

/// The default value gets what no scattered value did.
fn sparse_to_dense_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let values = ops::gather_nd(s, &dy, g.input(0))?;
    let default = ops::sub(s, sum_of_all(s, &dy), sum_of_all(s, &values))?;
    Ok([None, None, Some(values), Some(default)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn the_shape_is_an_input() {
        Node::new("ScatterNd").constant(2, Tensor::vector(vec![4i32])).infer("[2,1];[2];[1]", "[4]");
        infer("ScatterNd", "[2,1];[2];[1]", "[?]");
    }

    #[test]
    fn ignored_indices_leave_zeros() {
        let indices = Tensor::new(Shape::matrix(2, 1), vec![1i32, 9]).unwrap();
        let updates = Tensor::vector(vec![5.0f32, 6.0]);
        let out = Node::new("ScatterNd")
            .attr("bad_indices_policy", "IGNORE")
            .run([indices, updates, Tensor::vector(vec![3i32])])
            .unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [0.0, 5.0, 0.0]);
    }
}

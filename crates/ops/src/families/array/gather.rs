//! Reading rows and elements by index.

use crate::builders as ops;
use crate::linalg::gather::gather;
use crate::linalg::scatter_nd::{BadIndices, Places};
use crate::support::gradient::{element, part, shape_as, shape_output};
use crate::support::index::{axis, constant_int, input_ints};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Grad, GradCx, Gradient, IndexedSlices, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&GATHER, &GATHER_V2, &GATHER_ND];

static GATHER: Op = Op {
    name: "Gather",
    gradient: Gradient::Fn(gather_grad),
    inputs: &["params: Tparams", "indices: Tindices"],
    outputs: &["output: Tparams"],
    attrs: &["validate_indices: bool = true", "Tparams: type", "Tindices: {int32, int64}"],
    shape: gather_shape,
    kernels: kernels![any gather_kernel],
    ..Op::PURE
};

static GATHER_V2: Op = Op {
    name: "GatherV2",
    gradient: Gradient::Fn(gather_v2_grad),
    inputs: &["params: Tparams", "indices: Tindices", "axis: Taxis"],
    outputs: &["output: Tparams"],
    attrs: &[
        "batch_dims: int = 0",
        "Tparams: type",
        "Tindices: {int16, int32, int64}",
        "Taxis: {int32, int64}",
    ],
    shape: gather_v2_shape,
    kernels: kernels![any gather_v2_kernel],
    ..Op::PURE
};

static GATHER_ND: Op = Op {
    name: "GatherNd",
    gradient: Gradient::Fn(gather_nd_grad),
    inputs: &["params: Tparams", "indices: Tindices"],
    outputs: &["output: Tparams"],
    attrs: &["Tparams: type", "Tindices: {int16, int32, int64}", "bad_indices_policy: string = ''"],
    shape: gather_nd_shape,
    kernels: kernels![any gather_nd_kernel],
    ..Op::PURE
};

fn gather_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (params, indices) = (s.rank_at_least(0, 1)?, s.input(1));
    let (Some(params), Some(indices)) = (params.dims(), indices.dims()) else { return Ok(()) };
    s.output(0, indices.iter().chain(&params[1..]).copied())
}

fn gather_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let params = cx.input(0)?;
        ensure!(params.rank() > 0, InvalidArgument, "params must be at least 1 dimensional");
        Ok(gather(cx.threads(), params, cx.input(1)?, 0, 0)?.into())
    })
}

/// The number of batch dimensions, counted from the front.
fn batch(batch_dims: i64, params: usize, indices: usize) -> Result<usize> {
    let rank = indices as i64;
    ensure!(
        (-rank..=rank).contains(&batch_dims),
        InvalidArgument,
        "Expected batch_dims in the range [-{rank}, {rank}], but got {batch_dims}"
    );
    let batch = (if batch_dims < 0 { batch_dims + rank } else { batch_dims }) as usize;
    ensure!(
        batch < params,
        InvalidArgument,
        "batch_dims ({batch}) must be less than rank(params) ({params})."
    );
    Ok(batch)
}

fn gather_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (params, indices) = (s.rank_at_least(0, 1)?, s.input(1));
    s.rank(2, 0)?;
    let batch_dims: i64 = s.attr("batch_dims")?;
    let (Some(params), Some(indices)) = (params.dims(), indices.dims()) else { return Ok(()) };
    let batch = batch(batch_dims, params.len(), indices.len())?;
    let Some(value) = constant_int(s, 2)? else {
        return s.output(0, std::iter::repeat_n(UNKNOWN_DIM, params.len() + indices.len() - 1 - batch));
    };
    let Some(at) = axis(value, params.len()) else {
        let least = if value < 0 { -value } else { value + 1 };
        bail!(InvalidArgument, "Shape must be at least rank {least} but is rank {}", params.len())
    };
    ensure!(batch <= at, InvalidArgument, "batch_dims ({batch}) must be less than or equal to axis ({at}).");
    let mut dims = params[..at].to_vec();
    for i in 0..batch {
        // Dimensions that differ are left to the kernel, as in stock.
        dims[i] = s.merge_dims(params[i], indices[i]).unwrap_or(UNKNOWN_DIM);
    }
    s.output(0, dims.into_iter().chain(indices[batch..].iter().chain(&params[at + 1..]).copied()))
}

fn gather_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let batch_dims: i64 = init.attr("batch_dims")?;
    Kernel::sync(move |cx| {
        let (params, indices) = (cx.input(0)?, cx.input(1)?);
        let rank = params.rank();
        ensure!(rank > 0, InvalidArgument, "params must be at least 1 dimensional");
        ensure!(cx.input(2)?.rank() == 0, InvalidArgument, "axis must be scalar");
        let value = input_ints(cx, 2)?[0];
        let Some(at) = axis(value, rank) else {
            let least = if value < 0 { value.saturating_neg() } else { value.saturating_add(1) };
            bail!(InvalidArgument, "Shape must be at least rank {least} but is rank {rank}")
        };
        let batch = batch(batch_dims, rank, indices.rank())?;
        ensure!(
            batch <= at,
            InvalidArgument,
            "batch_dims ({batch}) must be less than or equal to axis ({at})."
        );
        for i in 0..batch {
            let (have, want) = (params.shape()[i], indices.shape()[i]);
            ensure!(
                have == want,
                InvalidArgument,
                "params.shape[{i}]: {have} should be equal to indices.shape[{i}]: {want}"
            );
        }
        Ok(gather(cx.threads(), params, indices, at, batch)?.into())
    })
}

fn gather_nd_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (params, indices) = (s.input(0), s.rank_at_least(1, 1)?);
    let (Some(params), Some(indices)) = (params.dims(), indices.dims()) else { return Ok(()) };
    let Some((&depth, outer)) = indices.split_last() else { return Ok(()) };
    if depth == UNKNOWN_DIM {
        return Ok(());
    }
    ensure!(
        depth <= params.len() as i64,
        InvalidArgument,
        "indices.shape[-1] must be <= params.rank, but saw indices shape: {:?} and params shape: {:?}",
        indices,
        params
    );
    s.output(0, outer.iter().chain(&params[depth as usize..]).copied())
}

fn gather_nd_kernel(init: &Init<'_>) -> Result<Kernel> {
    let bad = BadIndices::from_policy(&init.attr::<String>("bad_indices_policy")?)?;
    let node = init.node.to_owned();
    Kernel::sync(move |cx| Ok(gather_nd(cx, cx.input(0)?, cx.input(1)?, bad, &node)?.into()))
}

/// The slices of `params` that index tuples name.
pub(crate) fn gather_nd(
    cx: &KernelCx<'_>,
    params: &Tensor,
    indices: &Tensor,
    bad: BadIndices,
    node: &str,
) -> Result<Tensor> {
    ensure!(params.rank() > 0, InvalidArgument, "params must be at least a vector");
    let Some((&depth, outer)) = indices.shape().split_last() else {
        bail!(InvalidArgument, "indices must be at least a vector")
    };
    ensure!(
        depth as usize <= params.rank(),
        InvalidArgument,
        "index innermost dimension length must be <= params rank; saw: {depth} vs. {}",
        params.rank()
    );
    let shape = Shape::new(outer.iter().chain(&params.shape()[depth as usize..]).copied())?;
    ensure!(
        params.elements() > 0 || shape.elements() == 0 && outer.contains(&0),
        InvalidArgument,
        "Requested more than 0 entries, but params is empty.  Params shape: {}",
        params.shape()
    );
    let places = Places::new(indices, params.shape(), bad).map_err(|error| {
        error.map_message(|text| {
            format!("{}, node name: {node}", text.replace("into shape", "into param shape"))
        })
    })?;
    let slice = places.slice;
    let mut out = cx.alloc_dtype(params.dtype(), shape)?;
    by_unit!(params.dtype(), U => {
        let params = params.units::<U>()?;
        cx.threads().parallel_rows(out.units_mut::<U>()?, slice, 1, |first, rows| {
            for (row, place) in rows.chunks_exact_mut(slice).zip(&places.slices[first..]) {
                match place {
                    Some(place) => row.clone_from_slice(&params[place * slice..(place + 1) * slice]),
                    None => row.fill(U::default()),
                }
            }
        });
    });
    Ok(out)
}

/// The rows of `shape` that were gathered along its first axis, as the gradient of what they were gathered from.
pub(crate) fn gathered_rows(s: &Scope, dy: Output, indices: &Output, shape: Output) -> Result<IndexedSlices> {
    let count = ops::expand_dims(s, ops::size(s, indices), 0)?;
    let rows = ops::concat_v2(s, [&count, &part(s, &shape, 1, None)?], 0);
    let values = ops::reshape(s, dy, rows)?;
    Ok(IndexedSlices { values, indices: ops::reshape(s, indices, count)?, dense_shape: Some(shape) })
}

/// The gradient of what `GatherNd` reads: rows if an index is one number, whole otherwise.
pub(crate) fn gathered_nd(
    s: &Scope,
    dy: Output,
    indices: &Output,
    shape: Output,
    policy: &str,
) -> Result<Grad> {
    if matches!(indices.shape().dims(), Some([_, 1])) {
        let indices = ops::Squeeze::new().squeeze_dims([-1]).build(s, indices)?;
        return Ok(IndexedSlices { values: dy, indices, dense_shape: Some(shape) }.into());
    }
    Ok(ops::ScatterNd::new().bad_indices_policy(policy).build(s, indices, dy, shape)?.into())
}

/// The shape of a table, asked where the table is: it may be too large to be sent anywhere.
fn shape_beside(s: &Scope, params: &Output) -> Result<Output> {
    shape_output(&s.colocate_with(params), params)
}

fn gather_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, params) = (g.scope(), g.input(0));
    let rows = gathered_rows(s, g.dy(0)?, g.input(1), shape_beside(s, params)?)?;
    Ok([Some(rows), None].into())
}

fn gather_nd_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, indices) = (g.scope(), g.input(1));
    let shape = shape_as(s, g.input(0), indices.dtype())?;
    let policy: String = g.attr("bad_indices_policy")?;
    Ok([Some(gathered_nd(s, g.dy(0)?, indices, shape, &policy)?), None].into())
}

fn gather_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, params, indices, axis) = (g.scope(), g.input(0), g.input(1), g.input(2));
    let shape = shape_beside(s, params)?;
    if axis.value().is_some_and(|axis| axis.to_i64s().is_ok_and(|axis| axis == [0])) {
        return Ok([Some(Grad::from(gathered_rows(s, g.dy(0)?, indices, shape)?)), None, None].into());
    }
    let batch_dims = match (g.attr::<i64>("batch_dims")?, indices.shape().rank()) {
        (dims, _) if dims >= 0 => dims as i32,
        (dims, Some(rank)) => dims as i32 + rank as i32,
        _ => bail!(InvalidArgument, "a negative batch_dims needs indices of known rank"),
    };
    // The gathered axis moves up to the batch dimensions, rows are summed there, and it moves back.
    let axis = if axis.dtype() == DType::Int32 { axis.clone() } else { ops::cast(s, axis, DType::Int32)? };
    let axis = ops::floor_mod(s, ops::reshape(s, axis, [1]), ops::rank(s, params))?;
    let outer = ops::slice(s, &shape, [0], &axis)?;
    let inner = ops::slice(s, &shape, ops::add_v2(s, &axis, 1), [-1])?;
    let minus_one = s.constant([-1i32])?;
    let values_shape = ops::concat_v2(s, [&outer, &minus_one, &inner], 0)?;
    let axis_at = ops::reshape(s, &axis, Vec::<i32>::new())?;
    let after = ops::add_v2(s, &axis_at, 1)?;
    let before_axis = ops::range(s, 0, batch_dims, 1)?;
    let batch_axes = ops::range(s, batch_dims, &axis_at, 1)?;
    let inner_axes = ops::range(s, after, ops::size(s, &values_shape), 1)?;
    let order = ops::concat_v2(s, [&before_axis, &axis, &batch_axes, &inner_axes], 0)?;
    let values = ops::transpose(s, ops::reshape(s, g.dy(0)?, values_shape), &order)?;
    let size = ops::gather_v2(s, &shape, &axis_at, 0)?;
    let moved_shape = ops::gather_v2(s, &shape, &order, 0)?;
    let summed = sum_rows(s, &moved_shape, values, indices, batch_dims, size)?;
    let batch_at = s.constant([batch_dims])?;
    let moved_axes = ops::add_v2(s, &batch_axes, 1)?;
    let back = ops::concat_v2(s, [&before_axis, &moved_axes, &batch_at, &inner_axes], 0);
    let dx = ops::reshape(s, ops::transpose(s, summed, back), shape)?;
    Ok([Some(Grad::from(dx)), None, None].into())
}

/// Adds rows up by index, each batch by itself.
fn sum_rows(
    s: &Scope,
    shape: &Output,
    values: Output,
    indices: &Output,
    batch_dims: i32,
    size: Output,
) -> Result<Output> {
    let count = ops::expand_dims(s, ops::size(s, indices), 0)?;
    if batch_dims == 0 {
        return ops::unsorted_segment_sum(s, values, ops::reshape(s, indices, count), size);
    }
    let values_shape = ops::shape(s, &values)?;
    let batches = part(s, &values_shape, 0, Some(batch_dims))?;
    let inner = part(s, &values_shape, batch_dims + 1, None)?;
    let flat = ops::concat_v2(s, [&s.constant([-1i32])?, &inner], 0)?;
    let segments = ops::mul(s, size, ops::prod(s, &batches, [0]));
    let indices = offset_by_batch(s, shape, indices, batch_dims)?;
    let values = ops::reshape(s, values, &flat);
    let summed = ops::unsorted_segment_sum(s, values, ops::reshape(s, indices, count), segments);
    ops::reshape(s, summed, ops::concat_v2(s, [&batches, &flat], 0))
}

/// Indices into all batches laid end to end.
fn offset_by_batch(s: &Scope, shape: &Output, indices: &Output, batch_dims: i32) -> Result<Output> {
    let dtype = indices.dtype();
    let typed = if dtype == DType::Int32 { shape.clone() } else { ops::cast(s, shape, dtype)? };
    let rank = ops::rank(s, indices)?;
    let mut offset = indices.clone();
    let mut stride = ops::ones_like(s, element(s, &typed, 0)?)?;
    for dim in (1..=batch_dims).rev() {
        stride = ops::mul(s, stride, element(s, &typed, dim)?)?;
        let (zero, one) = (ops::zeros_like(s, &stride), ops::ones_like(s, &stride));
        let starts = ops::mul(s, ops::range(s, zero, element(s, &typed, dim - 1)?, one), &stride);
        let ones = |count: Output| ops::fill(s, count, 1);
        let before = ones(s.constant([dim - 1])?)?;
        let after = ones(ops::expand_dims(s, ops::sub(s, &rank, dim), 0)?)?;
        let along = ops::concat_v2(s, [&before, &part(s, shape, dim - 1, Some(dim))?, &after], 0);
        offset = ops::add_v2(s, offset, ops::reshape(s, starts, along))?;
    }
    Ok(offset)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn shapes_replace_the_axis_by_the_indices() {
        Node::new("GatherV2").constant(2, Tensor::scalar(1i32)).infer("[2,3,4];[5,6];[]", "[2,5,6,4]");
        infer("GatherV2", "[2,3,4];[5];[]", "[?,?,?]");
        infer("GatherNd", "[2,3,4];[5,2]", "[5,4]");
        infer_err("GatherNd", "[2];[5,2]", Code::InvalidArgument);
    }
}

//! Rows and elements of resource variables by index, read under the variable's lock and without copying the rest.

use crate::builders as ops;
use crate::families::array::gather::{gather_nd, gathered_nd, gathered_rows};
use crate::linalg::gather::gather;
use crate::linalg::scatter_nd::BadIndices;
use crate::state::variable::existing;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, Result, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&RESOURCE_GATHER, &RESOURCE_GATHER_ND];

static RESOURCE_GATHER: Op = Op {
    name: "ResourceGather",
    gradient: Gradient::Fn(gather_grad),
    inputs: &["resource: resource", "indices: Tindices"],
    outputs: &["output: dtype"],
    attrs: &[
        "batch_dims: int = 0",
        "validate_indices: bool = true",
        "dtype: type",
        "Tindices: {int32, int64}",
    ],
    shape: gather_shape,
    kernels: kernels![any gather_kernel],
    ..Op::STATEFUL
};

static RESOURCE_GATHER_ND: Op = Op {
    name: "ResourceGatherNd",
    gradient: Gradient::Fn(gather_nd_grad),
    inputs: &["resource: resource", "indices: Tindices"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type", "Tindices: {int32, int64}"],
    shape: gather_nd_shape,
    kernels: kernels![any gather_nd_kernel],
    ..Op::STATEFUL
};

fn gather_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let batch: usize = s.attr("batch_dims")?;
    let (Some(handle), indices) = (s.handle(0).cloned(), s.input(1)) else { return Ok(()) };
    let (Some(params), Some(indices)) = (handle.shape.dims(), indices.dims()) else { return Ok(()) };
    ensure!(
        batch < params.len() && batch <= indices.len(),
        InvalidArgument,
        "batch_dims {batch} is too large for shapes of rank {} and {}",
        params.len(),
        indices.len()
    );
    let dims = params[..batch].iter().chain(&indices[batch..]).chain(&params[batch + 1..]);
    s.output(0, dims.copied())
}

fn gather_nd_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let indices = s.rank_at_least(1, 1)?;
    let Some(handle) = s.handle(0).cloned() else { return Ok(()) };
    let (Some(params), Some(indices)) = (handle.shape.dims(), indices.dims()) else { return Ok(()) };
    let Some((&depth, outer)) = indices.split_last() else { return Ok(()) };
    if depth == UNKNOWN_DIM {
        return Ok(());
    }
    ensure!(
        depth as usize <= params.len(),
        InvalidArgument,
        "indices.shape[-1] must be <= params.rank, but saw {depth} and {}",
        params.len()
    );
    s.output(0, outer.iter().chain(&params[depth as usize..]).copied())
}

fn gather_kernel(init: &Init<'_>) -> Result<Kernel> {
    let batch: usize = init.attr("batch_dims")?;
    Kernel::sync(move |cx| {
        let indices = cx.input(1)?;
        let rows = existing(cx, 0)?.with(|params| {
            ensure!(params.rank() > 0, InvalidArgument, "params must be at least 1 dimensional");
            ensure!(
                batch < params.rank()
                    && batch <= indices.rank()
                    && params.shape()[..batch] == indices.shape()[..batch],
                InvalidArgument,
                "params.shape[:{batch}] must be equal to indices.shape[:{batch}], got {} and {}",
                params.shape(),
                indices.shape()
            );
            gather(cx.threads(), params, indices, batch, batch)
        })?;
        Ok(rows.into())
    })
}

fn gather_nd_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (dtype, node) = (init.attr::<DType>("dtype")?, init.node.to_owned());
    Kernel::sync(move |cx| {
        let indices = cx.input(1)?;
        let found = existing(cx, 0)?.with(|params| {
            ensure!(
                params.dtype() == dtype,
                InvalidArgument,
                "expected a variable of type {dtype}, got {}",
                params.dtype()
            );
            gather_nd(cx, params, indices, BadIndices::Refuse, &node)
        })?;
        Ok(found.into())
    })
}

/// The shape of a variable: a constant if it is known.
fn variable_shape(s: &Scope, handle: &Output, dtype: DType) -> Result<Output> {
    let known = handle.handle_shape().and_then(|known| known.shape.to_shape());
    match known.map(|shape| shape.dims().iter().map(|dim| i32::try_from(*dim)).collect()) {
        Some(Ok::<Vec<i32>, _>(dims)) if dtype == DType::Int32 => s.constant(dims),
        _ => ops::VariableShape::new().out_type(dtype).build(s, handle),
    }
}

fn gather_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let shape = variable_shape(s, g.input(0), DType::Int32)?;
    Ok([Some(gathered_rows(s, g.dy(0)?, g.input(1), shape)?), None].into())
}

fn gather_nd_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, indices) = (g.scope(), g.input(1));
    let shape = variable_shape(s, g.input(0), indices.dtype())?;
    Ok([Some(gathered_nd(s, g.dy(0)?, indices, shape, "")?), None].into())
}

//! Reading rows and elements by index.

use crate::index::{axis, constant_int, input_ints};
use crate::linalg::gather::gather;
use crate::linalg::scatter_nd::{BadIndices, Places};
use crate::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&GATHER, &GATHER_V2, &GATHER_ND];

static GATHER: Op = Op {
    name: "Gather",
    inputs: &["params: Tparams", "indices: Tindices"],
    outputs: &["output: Tparams"],
    attrs: &["validate_indices: bool = true", "Tparams: type", "Tindices: {int32, int64}"],
    shape: gather_shape,
    kernels: kernels![any gather_kernel],
    ..Op::PURE
};

static GATHER_V2: Op = Op {
    name: "GatherV2",
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
        Ok(gather(cx.device(), params, cx.input(1)?, 0, 0)?.into())
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
        return s.output(0, vec![UNKNOWN_DIM; params.len() + indices.len() - 1 - batch]);
    };
    let Some(at) = axis(value, params.len()) else {
        let least = if value < 0 { -value } else { value + 1 };
        bail!(InvalidArgument, "Shape must be at least rank {least} but is rank {}", params.len())
    };
    ensure!(
        batch <= at,
        InvalidArgument,
        "batch_dims ({batch}) must be less than or equal to axis ({at})."
    );
    let mut dims = params[..at].to_vec();
    for i in 0..batch {
        dims[i] = s.merge_dims(params[i], indices[i])?;
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
        Ok(gather(cx.device(), params, indices, at, batch)?.into())
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
            cx.device().parallel_rows(out.units_mut::<U>()?, slice, 1, |first, rows| {
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

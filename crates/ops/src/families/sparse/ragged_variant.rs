//! Ragged tensors as variants, one for the whole or one per row, and back.

use super::feature_cross::check_splits;
use crate::builders as ops;
use crate::state::variant_tensors::{VariantKind, VariantTensors};
use crate::support::gradient::shape_output;
use crate::support::index::int_tensor;
use crate::support::rows;
use crate::support::sparse::wide;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};

pub(crate) const OPS: &[&Op] =
    &[&RAGGED_TENSOR_TO_VARIANT, &RAGGED_TENSOR_FROM_VARIANT, &RAGGED_TENSOR_TO_VARIANT_GRADIENT];

static RAGGED_TENSOR_TO_VARIANT: Op = Op {
    name: "RaggedTensorToVariant",
    gradient: Gradient::Fn(to_variant_grad),
    inputs: &["rt_nested_splits: RAGGED_RANK * Tsplits", "rt_dense_values: Tvalues"],
    outputs: &["encoded_ragged: variant"],
    attrs: &[
        "RAGGED_RANK: int >= 0",
        "Tvalues: type",
        "Tsplits: {int32, int64} = DT_INT64",
        "batched_input: bool",
    ],
    shape: to_variant_shape,
    kernels: kernels![any to_variant_kernel],
    ..Op::PURE
};

static RAGGED_TENSOR_FROM_VARIANT: Op = Op {
    name: "RaggedTensorFromVariant",
    gradient: Gradient::Fn(from_variant_grad),
    inputs: &["encoded_ragged: variant"],
    outputs: &["output_nested_splits: output_ragged_rank * Tsplits", "output_dense_values: Tvalues"],
    attrs: &[
        "input_ragged_rank: int >= -1",
        "output_ragged_rank: int >= 0",
        "Tvalues: type",
        "Tsplits: {int32, int64} = DT_INT64",
    ],
    shape: from_variant_shape,
    kernels: kernels![any from_variant_kernel],
    ..Op::PURE
};

static RAGGED_TENSOR_TO_VARIANT_GRADIENT: Op = Op {
    name: "RaggedTensorToVariantGradient",
    inputs: &["encoded_ragged_grad: variant", "row_splits: Tsplits", "dense_values_shape: int32"],
    outputs: &["dense_values_grad: Tvalues"],
    attrs: &["Tvalues: type", "Tsplits: {int32, int64} = DT_INT64"],
    shape: gradient_shape,
    kernels: kernels![any gradient_kernel],
    ..Op::PURE
};

fn to_variant_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let ragged = s.attr::<i64>("RAGGED_RANK")? as usize;
    for input in 0..ragged {
        s.rank(input, 1)?;
    }
    s.rank_at_least(ragged, 1)?;
    if !s.attr::<bool>("batched_input")? {
        s.set(0, PartialShape::scalar());
        return Ok(());
    }
    let first = s.input(0).dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    // The first input is splits, of which there is one more than rows, unless there are none.
    s.output(0, [if ragged > 0 && first > 0 { first - 1 } else { UNKNOWN_DIM }])
}

fn from_variant_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (from, to): (i64, i64) = (s.attr("input_ragged_rank")?, s.attr("output_ragged_rank")?);
    if let (Some(rank), true) = (s.input(0).rank(), from >= 0) {
        ensure!(
            rank as i64 == to - from,
            InvalidArgument,
            "Shape must be rank {} but is rank {rank}",
            to - from
        );
    }
    for output in 0..to as usize {
        s.output(output, [UNKNOWN_DIM])?;
    }
    Ok(())
}

fn gradient_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = if s.input(2).rank() == Some(0) { PartialShape::unknown() } else { s.constant_shape(2)? };
    s.set(0, shape);
    Ok(())
}

fn to_variant_kernel(init: &Init<'_>) -> Result<Kernel> {
    let ragged = init.attr::<i64>("RAGGED_RANK")? as usize;
    let batched: bool = init.attr("batched_input")?;
    Kernel::sync(move |cx| {
        let values = cx.input(ragged)?;
        ensure!(
            values.rank() > 0 || ragged == 0,
            InvalidArgument,
            "Requires flat_values to have rank>=1 when nested_row_splits is not empty, but is 0."
        );
        for level in (0..ragged).rev() {
            let splits = cx.input(level)?;
            ensure!(
                splits.rank() == 1,
                InvalidArgument,
                "Invalid ragged splits: ragged splits must be rank 1 but is rank {}",
                splits.rank()
            );
            let next = if level + 1 == ragged {
                values.shape().dim(0)
            } else {
                cx.input(level + 1)?.elements().saturating_sub(1)
            };
            check_splits(&wide(splits)?, next)?;
        }
        let whole = (0..=ragged).map(|input| Ok(cx.input(input)?.clone())).collect::<Result<Vec<_>>>()?;
        if !batched {
            return Ok(VariantTensors::new(VariantKind::Ragged, whole).into_scalar()?.into());
        }
        let rows = unbatched(cx, &whole)?;
        let count = rows.len();
        let rows = rows.into_iter().map(|row| Variant::new(VariantTensors::new(VariantKind::Ragged, row)));
        Ok(Tensor::from_units(DType::Variant, Shape::vector(count), rows.collect())?.into())
    })
}

/// The rows of a ragged tensor, each splits and values of its own.
fn unbatched(cx: &KernelCx<'_>, whole: &[Tensor]) -> Result<Vec<Vec<Tensor>>> {
    let (values, splits) = (&whole[whole.len() - 1], &whole[..whole.len() - 1]);
    let Some((first, inner)) = splits.split_first() else {
        ensure!(values.rank() > 0, InvalidArgument, "Can't unbatch rank-0 tensor.");
        cx.device().check_allocation(DType::Variant, &Shape::vector(values.shape().dim(0)))?;
        return (0..values.shape().dim(0))
            .map(|row| Ok(vec![rows::row(cx.device(), values, row)?]))
            .collect();
    };
    let width = values.shape()[1..].iter().product::<i64>() as usize;
    let inner = inner.iter().map(wide).collect::<Result<Vec<_>>>()?;
    let mut out = Vec::new();
    for ends in wide(first)?.windows(2) {
        let (mut begin, mut end) = (ends[0] as usize, ends[1] as usize);
        let mut row = Vec::with_capacity(whole.len() - 1);
        for splits in &inner {
            let own = &splits[begin..=end];
            let shifted = own.iter().map(|split| split - own[0]);
            row.push(int_tensor(first.dtype(), Shape::vector(own.len()), shifted)?);
            (begin, end) = (own[0] as usize, own[own.len() - 1] as usize);
        }
        let shape = rows::stacked(end - begin, &values.shape()[1..])?;
        row.push(rows::slice(cx.device(), values, begin * width, shape)?);
        out.push(row);
    }
    Ok(out)
}

fn from_variant_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (from, to): (i64, i64) = (init.attr("input_ragged_rank")?, init.attr("output_ragged_rank")?);
    let (values, splits): (DType, DType) = (init.attr("Tvalues")?, init.attr("Tsplits")?);
    Kernel::sync(move |cx| {
        let encoded = cx.input(0)?;
        let rank = encoded.rank() as i64;
        let inferred = if to == 0 { (to - rank).max(0) } else { to - rank };
        let from = if from == -1 { inferred } else { from };
        ensure!(
            from >= 0,
            InvalidArgument,
            "Inferred input_ragged_rank (output_ragged_rank - encoded_variant.dims()) must be >= 0, found output_ragged_rank: {to}, encoded_variant.dims(): {rank}, inferred input_ragged_rank: {from}"
        );
        ensure!(
            (to == 0 && from == 0) || to == rank + from,
            InvalidArgument,
            "output_ragged_rank must be equal to input_ragged_rank + encoded_ragged.dims(); output_ragged_rank: {to}, input_ragged_rank: {from}, encoded_variant.dims(): {rank}."
        );
        let parts = components(encoded, from as usize, to as usize, values, splits)?;
        if rank == 0 {
            return Ok(parts.into_iter().next().unwrap_or_default().into());
        }
        stacked(cx, encoded.shape(), &parts, from as usize, to as usize, (values, splits))
    })
}

/// The ragged tensors of a variant tensor, each splits and values.
fn components(
    encoded: &Tensor,
    from: usize,
    to: usize,
    values: DType,
    splits: DType,
) -> Result<Vec<Vec<Tensor>>> {
    let mut parts = Vec::with_capacity(encoded.elements());
    for (i, variant) in encoded.units::<Variant>()?.iter().enumerate() {
        let part = VariantTensors::of(variant, VariantKind::Ragged)?.ok_or_else(|| {
            status!(
                InvalidArgument,
                "Input Variant element at index {i} doesn't hold a RaggedTensorVariant: {variant:?}"
            )
        })?;
        let Some((own, outer)) = part.tensors.split_last() else {
            bail!(InvalidArgument, "Input Variant element at index {i} holds no tensors")
        };
        ensure!(
            outer.len() == from,
            InvalidArgument,
            "Encoded input RaggedTensorVariant has ragged_rank={}.  Expected ragged_rank={from}.",
            outer.len()
        );
        ensure!(
            own.dtype() == values,
            InvalidArgument,
            "Expected values Tensor dtype: {values}, found: {}",
            own.dtype()
        );
        ensure!(
            own.rank() > 0 || to == 0,
            InvalidArgument,
            "Ragged values must have rank >= 1; encoded scalar element at index {i} has values Tensor: {own:?}"
        );
        for tensor in outer {
            ensure!(
                tensor.dtype() == splits,
                InvalidArgument,
                "Expected row_splits Tensor dtype: {splits}, found: {}",
                tensor.dtype()
            );
            ensure!(
                tensor.rank() == 1 && tensor.elements() > 0,
                InvalidArgument,
                "Ragged splits must have rank 1; encoded scalar element at index {i} has splits Tensor {tensor:?}"
            );
        }
        parts.push(part.tensors);
    }
    Ok(parts)
}

/// Ragged tensors under the outer dimensions that number them.
fn stacked(
    cx: &KernelCx<'_>,
    outer: &Shape,
    parts: &[Vec<Tensor>],
    from: usize,
    to: usize,
    (values_type, splits_type): (DType, DType),
) -> Result<Outputs> {
    let values: Vec<&Tensor> = parts.iter().filter_map(|part| part.last()).collect();
    let incompatible = |first: &[i64], i: usize, other: &[i64]| {
        let text =
            |dims: &[i64]| Shape::new(dims.iter().copied()).map_or(String::new(), |shape| shape.to_string());
        status!(
            InvalidArgument,
            "All flat_values must have compatible shapes.  Shape at index 0: {}.  Shape at index {i}: {}.  If you are using tf.map_fn, then you may need to specify an explicit fn_output_signature with appropriate ragged_rank, and/or convert output tensors to RaggedTensors.",
            text(first),
            text(other)
        )
    };
    if to == 0 {
        let Some(first) = values.first() else {
            return Ok(cx.alloc_dtype(values_type, Shape::vector(0))?.into());
        };
        if let Some(i) = values.iter().position(|other| other.shape() != first.shape()) {
            return Err(incompatible(first.shape(), i, values[i].shape()));
        }
        let shape = rows::stacked(values.len(), first.shape())?;
        return Ok(rows::join(cx.device(), values_type, shape, &values)?.into());
    }
    let mut outputs = Vec::with_capacity(to + 1);
    let splits = |lengths: &mut dyn Iterator<Item = i64>| -> Result<Tensor> {
        let mut ends = vec![0];
        for length in lengths {
            let last = ends[ends.len() - 1];
            ends.push(last + length);
        }
        int_tensor(splits_type, Shape::vector(ends.len()), ends.into_iter())
    };
    for dim in 0..outer.rank() - 1 {
        // As in stock, the splits of an inner dimension count that dimension alone.
        outputs.push(splits(&mut (0..outer[dim]).map(|_| outer[dim + 1]))?);
    }
    let length = |part: &Vec<Tensor>| match from {
        0 => part[0].shape()[0],
        _ => part[0].elements() as i64 - 1,
    };
    outputs.push(splits(&mut parts.iter().map(length))?);
    for level in 0..from {
        let mut lengths = Vec::new();
        for part in parts {
            lengths.extend(wide(&part[level])?.windows(2).map(|pair| pair[1] - pair[0]));
        }
        outputs.push(splits(&mut lengths.into_iter())?);
    }
    let inner = values.first().map_or(&[][..], |first| &first.shape()[1..]);
    if let Some(i) = values.iter().position(|other| &other.shape()[1..] != inner) {
        return Err(incompatible(inner, i, &values[i].shape()[1..]));
    }
    let count: i64 = values.iter().map(|values| values.shape()[0]).sum();
    let shape = rows::stacked(count as usize, inner)?;
    outputs.push(rows::join(cx.device(), values_type, shape, &values)?);
    Ok(outputs.into())
}

fn gradient_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("Tvalues")?;
    Kernel::sync(move |cx| {
        let (encoded, splits, shape) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        ensure!(shape.rank() == 1, InvalidArgument, "dense_values_shape must be a vector");
        let shape = Shape::new(wide(shape)?.iter().copied())?;
        let ends = wide(splits)?;
        if splits.rank() > 0 {
            check_splits(&ends, ends.last().copied().unwrap_or(0).max(0) as usize)?;
        }
        let mut pieces = Vec::with_capacity(encoded.elements());
        for (i, variant) in encoded.units::<Variant>()?.iter().enumerate() {
            match VariantTensors::of(variant, VariantKind::Ragged)?.and_then(|mut value| value.tensors.pop())
            {
                Some(values) => pieces.push(values),
                // A row that nothing depends on.
                None => {
                    ensure!(
                        ends.len() > i + 1,
                        InvalidArgument,
                        "row_splits has insufficient size: {} vs required {}",
                        ends.len(),
                        i + 2
                    );
                    ensure!(shape.rank() > 0, InvalidArgument, "dense_values_shape must not be empty");
                    let rows = rows::stacked((ends[i + 1] - ends[i]) as usize, &shape[1..])?;
                    pieces.push(cx.zeros(dtype, rows)?);
                }
            }
        }
        for piece in &pieces {
            ensure!(
                piece.dtype() == dtype,
                InvalidArgument,
                "Expected values Tensor dtype: {dtype}, found: {}",
                piece.dtype()
            );
        }
        if pieces.len() == 1 {
            return Ok(pieces.swap_remove(0).into());
        }
        let elements: usize = pieces.iter().map(Tensor::elements).sum();
        ensure!(
            elements == shape.elements(),
            InvalidArgument,
            "the gradients have {elements} elements, but dense_values_shape is {shape}"
        );
        Ok(rows::join(cx.device(), dtype, shape, &pieces.iter().collect::<Vec<_>>())?.into())
    })
}

fn to_variant_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let ragged = g.num_inputs() - 1;
    let values = g.input(ragged);
    let node = s.op("RaggedTensorToVariantGradient").input(g.dy(0)?);
    let node = if ragged == 0 { node.input(0i64) } else { node.input(g.input(0)) };
    let node = node.input(shape_output(s, values)?).attr("Tvalues", values.dtype());
    let mut grads = InputGrads::none(ragged + 1);
    grads.0[ragged] = Some(node.build()?.output(0)?.into());
    Ok(grads)
}

fn from_variant_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let outputs = g.num_outputs() - 1;
    let batched = match g.input(0).shape().rank() {
        Some(0) => false,
        Some(1) => true,
        None => g.attr::<i64>("output_ragged_rank")? > 0,
        Some(rank) => bail!(
            InvalidArgument,
            "Unable to compute gradient: RaggedTensorToVariant can currently only generate 0D or 1D output, not {rank}D"
        ),
    };
    let splits = (0..outputs).map(|output| g.output(output)).collect::<Result<Vec<_>>>()?;
    let node = ops::RaggedTensorToVariant::new(batched);
    Ok([node.build(s, &splits, g.dy(outputs)?)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{DType, Tensor};

    #[test]
    fn rows_come_back_as_one_tensor() {
        let node = || Node::new("RaggedTensorToVariant").attr("batched_input", true);
        node().attr("RAGGED_RANK", 1i64).infer("[4];[5]", "[3]");
        infer("RaggedTensorToVariantGradient", "?;[4];[1]", "[?]");
        let splits = Tensor::vector(vec![0i64, 2, 2, 3]);
        let values = Tensor::vector(vec![1.0f32, 2.0, 3.0]);
        let rows = node().attr("RAGGED_RANK", 1i64).run([splits, values]).unwrap().remove(0);
        assert_eq!(rows.shape().dims(), [3]);
        let node = Node::new("RaggedTensorFromVariant").attr("input_ragged_rank", -1i64);
        let node = node.attr("output_ragged_rank", 1i64).attr("Tvalues", DType::Float);
        let out = node.run([rows]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [0, 2, 2, 3]);
        assert_eq!(out[1].flat::<f32>().unwrap(), [1.0, 2.0, 3.0]);
    }
}

//! Strings put together: element by element, along dimensions, and by segment.

use ferroflow_core::device::Device;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&STRING_JOIN, &REDUCE_JOIN, &UNSORTED_SEGMENT_JOIN];

static STRING_JOIN: Op = Op {
    name: "StringJoin",
    gradient: Gradient::Stop,
    inputs: &["inputs: N * string"],
    outputs: &["output: string"],
    attrs: &["N: int >= 0", "separator: string = ''"],
    shape: string_join_shape,
    kernels: kernels![any string_join_kernel],
    ..Op::PURE
};

static REDUCE_JOIN: Op = Op {
    name: "ReduceJoin",
    gradient: Gradient::Stop,
    inputs: &["inputs: string", "reduction_indices: int32"],
    outputs: &["output: string"],
    attrs: &["keep_dims: bool = false", "separator: string = ''"],
    shape: reduce_join_shape,
    kernels: kernels![any reduce_join_kernel],
    ..Op::PURE
};

static UNSORTED_SEGMENT_JOIN: Op = Op {
    name: "UnsortedSegmentJoin",
    inputs: &["inputs: string", "segment_ids: Tindices", "num_segments: Tnumsegments"],
    outputs: &["output: string"],
    attrs: &["separator: string = ''", "Tindices: {int32, int64}", "Tnumsegments: {int32, int64} = DT_INT32"],
    shape: segment_join_shape,
    kernels: kernels![any segment_join_kernel],
    ..Op::PURE
};

fn string_join_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let mut shape = PartialShape::scalar();
    for input in 0..s.num_inputs() {
        let next = s.input(input);
        if next.rank() == Some(0) {
            continue;
        }
        shape = if shape.rank() == Some(0) { next } else { s.merge(&shape, &next)? };
    }
    s.set(0, shape);
    Ok(())
}

fn reduce_join_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (input, keep): (PartialShape, bool) = (s.input(0), s.attr("keep_dims")?);
    let Some(dims) = input.dims() else { return Ok(()) };
    let Some(indices) = s.constant_i64s(1)? else { return Ok(()) };
    let rank = dims.len() as i64;
    let reduced: Vec<i64> = indices.iter().map(|at| if *at < 0 { at + rank } else { *at }).collect();
    let kept = dims.iter().enumerate().filter_map(|(dim, size)| {
        if reduced.contains(&(dim as i64)) { keep.then_some(1) } else { Some(*size) }
    });
    s.output(0, kept.collect::<Vec<i64>>())
}

fn segment_join_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (input, ids) = (s.input(0), s.input(1));
    let (Some(dims), Some(rank)) = (input.dims(), ids.rank()) else { return Ok(()) };
    let segments = s.constant_i64(2)?.filter(|count| *count >= 0).unwrap_or(UNKNOWN_DIM);
    let rest = dims.get(rank..).unwrap_or_default();
    s.output(0, std::iter::once(segments).chain(rest.iter().copied()))
}

fn string_join_kernel(init: &Init<'_>) -> Result<Kernel> {
    let separator: Str = init.attr("separator")?;
    Kernel::sync(move |cx| {
        let mut shape = Shape::scalar();
        for input in 0..cx.num_inputs() {
            let next = cx.input(input)?.shape();
            if next.is_scalar() {
                continue;
            }
            ensure!(
                shape.is_scalar() || &shape == next,
                InvalidArgument,
                "Input shapes do not match: {shape} vs. {next}"
            );
            shape = next.clone();
        }
        let inputs = (0..cx.num_inputs()).map(|input| cx.flat::<Str>(input));
        let inputs = inputs.collect::<Result<Vec<&[Str]>>>()?;
        let joined = (0..shape.elements()).map(|at| {
            let parts: Vec<&[u8]> =
                inputs.iter().map(|texts| &texts[if texts.len() == 1 { 0 } else { at }][..]).collect();
            join(cx.device(), &parts, &separator)
        });
        let joined = joined.collect::<Result<Vec<Str>>>()?;
        Ok(Tensor::new(shape, joined)?.into())
    })
}

/// One string of the parts, if memory can hold it.
fn join(device: &Device, parts: &[&[u8]], separator: &[u8]) -> Result<Str> {
    let separators = separator.len() * parts.len().saturating_sub(1);
    device.check_text(parts.iter().map(|part| part.len()).sum::<usize>() + separators)?;
    Ok(Str::from(parts.join(separator)))
}

/// Joins along the given dimensions; the first one given varies fastest.
fn reduce_join_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (separator, keep): (Str, bool) = (init.attr("separator")?, init.attr("keep_dims")?);
    Kernel::sync(move |cx| {
        let (input, indices) = (cx.input(0)?, cx.i64s(1)?);
        let dims = input.shape().dims();
        let rank = dims.len() as i64;
        let mut reduced: Vec<usize> = Vec::with_capacity(indices.len());
        for index in indices {
            let dim = if index < 0 { index + rank } else { index };
            ensure!(
                (0..rank).contains(&dim),
                OutOfRange,
                "Invalid reduction dimension {index} for input with {rank} dimension(s)"
            );
            ensure!(
                !reduced.contains(&(dim as usize)),
                InvalidArgument,
                "Duplicate reduction dimension {index}"
            );
            reduced.push(dim as usize);
        }
        let mut strides = vec![1usize; dims.len()];
        for dim in (1..dims.len()).rev() {
            strides[dim - 1] = strides[dim] * dims[dim] as usize;
        }
        let kept: Vec<usize> = (0..dims.len()).filter(|dim| !reduced.contains(dim)).collect();
        let size = |dim: &usize| dims[*dim] as usize;
        let texts = input.flat::<Str>()?;
        let (outer, inner) = (kept.iter().map(size).product(), reduced.iter().map(size).product());
        let joined = (0..outer).map(|row: usize| {
            let mut rest = row;
            let mut base = 0;
            for dim in kept.iter().rev() {
                base += rest % size(dim) * strides[*dim];
                rest /= size(dim);
            }
            let part = |column: usize| {
                let (mut rest, mut at) = (column, base);
                for dim in &reduced {
                    at += rest % size(dim) * strides[*dim];
                    rest /= size(dim);
                }
                &texts[at][..]
            };
            join(cx.device(), &(0..inner).map(part).collect::<Vec<&[u8]>>(), &separator)
        });
        let joined = joined.collect::<Result<Vec<Str>>>()?;
        let shape =
            Shape::new(dims.iter().enumerate().filter_map(|(dim, size)| {
                if reduced.contains(&dim) { keep.then_some(1) } else { Some(*size) }
            }))?;
        Ok(Tensor::new(shape, joined)?.into())
    })
}

/// Joins the elements of each segment in the order in which they come.
fn segment_join_kernel(init: &Init<'_>) -> Result<Kernel> {
    let separator: Str = init.attr("separator")?;
    Kernel::sync(move |cx| {
        let (input, ids, segments) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        ensure!(
            segments.rank() == 0,
            InvalidArgument,
            "Number of segments should be a scalar, got shape {}",
            segments.shape()
        );
        let segments = segments.to_i64s()?[0];
        ensure!(segments >= 0, InvalidArgument, "Number of segments must be non-negative but got {segments}");
        ensure!(ids.rank() > 0, InvalidArgument, "Segment_id cannot have rank 0");
        ensure!(
            ids.rank() <= input.rank(),
            OutOfRange,
            "Invalid segment_id rank {} for input with {} dimension(s)",
            ids.rank(),
            input.rank()
        );
        ensure!(
            input.shape().starts_with(ids.shape()),
            InvalidArgument,
            "segment_ids' shape {} must be a prefix of inputs' shape {}",
            ids.shape(),
            input.shape()
        );
        let rest = &input.shape().dims()[ids.rank()..];
        let width: usize = rest.iter().product::<i64>() as usize;
        let shape = Shape::new(std::iter::once(segments).chain(rest.iter().copied()))?;
        cx.device().check_allocation(DType::String, &shape)?;
        let mut joined: Vec<Vec<u8>> = vec![Vec::new(); shape.elements()];
        let texts = input.flat::<Str>()?;
        for (row, id) in ids.to_i64s()?.into_iter().enumerate() {
            ensure!(
                (0..segments).contains(&id),
                InvalidArgument,
                "segment_ids are not allowed to exceed num_segments or to have negative values."
            );
            let id = id as usize;
            for (slot, text) in joined[id * width..].iter_mut().zip(&texts[row * width..][..width]) {
                // What is empty so far gets no separator, even if empty strings went into it.
                if !slot.is_empty() {
                    slot.extend_from_slice(&separator);
                }
                slot.extend_from_slice(text);
            }
        }
        let joined = joined.into_iter().map(Str::from).collect();
        Ok(Tensor::new(shape, joined)?.into())
    })
}

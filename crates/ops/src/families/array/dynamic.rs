//! Partitioning rows by number and stitching them together again.

use crate::builders as ops;
use crate::linalg::gather::position;
use crate::support::index::{Ints, constant_ints, input_ints};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&DYNAMIC_PARTITION, &DYNAMIC_STITCH, &PARALLEL_DYNAMIC_STITCH];

static DYNAMIC_PARTITION: Op = Op {
    name: "DynamicPartition",
    gradient: Gradient::Fn(dynamic_partition_grad),
    inputs: &["data: T", "partitions: int32"],
    outputs: &["outputs: num_partitions * T"],
    attrs: &["num_partitions: int >= 1", "T: type"],
    shape: dynamic_partition_shape,
    kernels: kernels![any dynamic_partition_kernel],
    ..Op::PURE
};

const STITCH: Op = Op {
    gradient: Gradient::Fn(stitch_grad),
    inputs: &["indices: N * int32", "data: N * T"],
    outputs: &["merged: T"],
    attrs: &["N: int >= 1", "T: type"],
    shape: dynamic_stitch_shape,
    kernels: kernels![any dynamic_stitch_kernel],
    ..Op::PURE
};
static DYNAMIC_STITCH: Op = Op { name: "DynamicStitch", ..STITCH };
static PARALLEL_DYNAMIC_STITCH: Op = Op { name: "ParallelDynamicStitch", ..STITCH };

fn dynamic_partition_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (data, partitions) = (s.input(0), s.input(1));
    let (Some(data), Some(partitions)) = (data.dims(), partitions.dims()) else { return Ok(()) };
    let rank = partitions.len();
    ensure!(
        data.len() >= rank,
        InvalidArgument,
        "data.shape must start with partitions.shape, got {} and {rank} dimensions",
        data.len()
    );
    for i in 0..rank {
        s.merge_dims(data[i], partitions[i])?;
    }
    for output in 0..s.num_outputs() {
        s.output(output, std::iter::once(UNKNOWN_DIM).chain(data[rank..].iter().copied()))?;
    }
    Ok(())
}

fn dynamic_partition_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count: usize = init.attr("num_partitions")?;
    Kernel::sync(move |cx| {
        let (data, partitions) = (cx.input(0)?, cx.input(1)?);
        let (shape, by) = (data.shape(), partitions.shape());
        ensure!(
            shape.rank() >= by.rank() && shape[..by.rank()] == by[..],
            InvalidArgument,
            "data.shape must start with partitions.shape, got data.shape = {shape}, partitions.shape = {by}"
        );
        let numbers = cx.flat::<i32>(1)?;
        let mut sizes = vec![0i64; count];
        for (i, number) in numbers.iter().enumerate() {
            match sizes.get_mut(*number as usize) {
                Some(size) if *number >= 0 => *size += 1,
                _ => {
                    bail!(InvalidArgument, "partitions{} = {number} is not in [0, {count})", position(by, i))
                }
            }
        }
        let inner = &shape[by.rank()..];
        let width = inner.iter().product::<i64>() as usize;
        let outputs: Result<Vec<Tensor>> = sizes
            .iter()
            .map(|size| {
                cx.alloc_dtype(data.dtype(), Shape::new(std::iter::once(*size).chain(inner.iter().copied()))?)
            })
            .collect();
        let mut outputs = outputs?;
        if width > 0 {
            by_unit!(data.dtype(), U => {
                let rows = data.units::<U>()?.chunks_exact(width);
                let mut targets = Vec::with_capacity(count);
                for output in &mut outputs {
                    targets.push(output.units_mut::<U>()?.chunks_exact_mut(width));
                }
                for (row, number) in rows.zip(numbers) {
                    if let Some(target) = targets[*number as usize].next() {
                        target.clone_from_slice(row);
                    }
                }
            });
        }
        Ok(outputs.into())
    })
}

fn dynamic_stitch_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let count = s.num_inputs() / 2;
    let mut inner = PartialShape::unknown();
    let mut largest = Some(-1);
    for i in 0..count {
        let (indices, data) = (s.input(i), s.input(count + i));
        largest = match (largest, constant_ints(s, i)?) {
            (Some(largest), Some(values)) => values.iter().copied().chain([largest]).max(),
            _ => None,
        };
        let (Some(indices), Some(data)) = (indices.dims(), data.dims()) else { continue };
        ensure!(
            data.len() >= indices.len(),
            InvalidArgument,
            "data[{i}].shape does not start with indices[{i}].shape"
        );
        for (index, dim) in indices.iter().zip(data) {
            s.merge_dims(*index, *dim)?;
        }
        inner = s.merge(&inner, &PartialShape::new(data[indices.len()..].iter().copied())?)?;
    }
    let Some(inner) = inner.dims() else { return Ok(()) };
    let rows = largest.map_or(UNKNOWN_DIM, |largest| (largest + 1).max(0));
    s.output(0, std::iter::once(rows).chain(inner.iter().copied()))
}

fn dynamic_stitch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (count, dtype): (usize, DType) = (init.attr("N")?, init.attr("T")?);
    Kernel::sync(move |cx| stitch(cx, count, dtype))
}

fn stitch(cx: &mut KernelCx<'_>, count: usize, dtype: DType) -> Result<Outputs> {
    let mut largest = -1;
    let (first_indices, first) = (cx.input(0)?.shape(), cx.input(count)?.shape());
    for i in 0..count {
        let (indices, data) = (cx.input(i)?.shape(), cx.input(count + i)?.shape());
        ensure!(
            data.rank() >= indices.rank() && data[..indices.rank()] == indices[..],
            InvalidArgument,
            "data[{i}].shape = {data} does not start with indices[{i}].shape = {indices}"
        );
        let (skip, first_skip) = (indices.rank(), first_indices.rank());
        ensure!(
            data[skip..] == first[first_skip.min(first.rank())..],
            InvalidArgument,
            "Need data[0].shape[{first_skip}:] = data[{i}].shape[{skip}:], got data[0].shape = {first}, data[{i}].shape = {data}, indices[0].shape = {first_indices}, indices[{i}].shape = {indices}"
        );
        for index in cx.flat::<i32>(i)? {
            ensure!(*index >= 0, InvalidArgument, "indices[{i}] is out of range");
            largest = largest.max(*index as i64);
        }
    }
    // Stock counts rows in 32 bits.
    ensure!(largest < i32::MAX as i64, InvalidArgument, "Expected a non-negative size, got {}", i32::MIN);
    let inner: Ints = first[first_indices.rank()..].iter().copied().collect();
    let width = inner.iter().product::<i64>() as usize;
    // Rows that no index names are zero.
    let mut out = cx.zeros(dtype, Shape::new(std::iter::once(largest + 1).chain(inner))?)?;
    if width == 0 {
        return Ok(out.into());
    }
    by_unit!(dtype, U => {
        let units = out.units_mut::<U>()?;
        for i in 0..count {
            let rows = cx.input(count + i)?.units::<U>()?.chunks_exact(width);
            for (index, row) in input_ints(cx, i)?.iter().zip(rows) {
                units[*index as usize * width..][..width].clone_from_slice(row);
            }
        }
    });
    Ok(out.into())
}

/// Stitches what arrives at the partitions together again, by where each row came from.
fn dynamic_partition_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, partitions) = (g.scope(), g.input(1));
    let shape = ops::shape(s, partitions)?;
    let places = ops::range(s, 0, ops::prod(s, &shape, [0]), 1);
    let places = ops::reshape(s, places, shape);
    let places = ops::dynamic_partition(s, places, partitions, g.attr("num_partitions")?)?;
    let dys = (0..g.num_outputs()).map(|output| g.dy(output)).collect::<Result<Vec<_>>>()?;
    let whole = ops::parallel_dynamic_stitch(s, places, dys);
    Ok([Some(ops::reshape(s, whole, ops::shape(s, g.input(0)))?), None].into())
}

fn stitch_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, values) = (g.scope(), g.dy(0)?, g.num_inputs() / 2);
    let mut grads = InputGrads::none(values);
    for indices in &g.inputs()[..values] {
        grads.0.push(Some(ops::gather_v2(s, &dy, indices, 0)?.into()));
    }
    Ok(grads)
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::Tensor;

    #[test]
    fn shapes_keep_what_indices_do_not_name() {
        Node::new("DynamicPartition").attr("num_partitions", 2).infer("[4,3];[4]", "[?,3];[?,3]");
        Node::new("DynamicStitch").attr("N", 1).infer("[2];[2,3]", "[?,3]");
        Node::new("DynamicStitch")
            .attr("N", 1)
            .constant(0, Tensor::vector(vec![0i32, 4]))
            .infer("[2];[2,3]", "[5,3]");
    }
}

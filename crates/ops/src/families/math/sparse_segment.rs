//! Segment reductions of rows picked by index, without gathering them first, and their gradients.

use crate::builders as ops;
use crate::families::math::segment::check_ids;
use crate::numeric::Num;
use crate::support::gradient::element;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{
    Accuracy, Dim, Grad, GradCx, Gradient, IndexedSlices, InputGrads, Op, ShapeCx, UNKNOWN_DIM,
};
use ferroflow_core::{DType, Element, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SPARSE_SEGMENT_SUM,
    &SPARSE_SEGMENT_MEAN,
    &SPARSE_SEGMENT_SQRT_N,
    &SPARSE_SEGMENT_SUM_WITH_NUM_SEGMENTS,
    &SPARSE_SEGMENT_MEAN_WITH_NUM_SEGMENTS,
    &SPARSE_SEGMENT_SQRT_N_WITH_NUM_SEGMENTS,
    &SPARSE_SEGMENT_SUM_GRAD,
    &SPARSE_SEGMENT_MEAN_GRAD,
    &SPARSE_SEGMENT_SQRT_N_GRAD,
    &SPARSE_SEGMENT_SUM_GRAD_V2,
    &SPARSE_SEGMENT_MEAN_GRAD_V2,
    &SPARSE_SEGMENT_SQRT_N_GRAD_V2,
];

const REAL: &str = "T: realnumbertype";
const FLOATS: &str = "T: {bfloat16, half, float, double}";
const TIDX: &str = "Tidx: {int32, int64} = DT_INT32";
const TNUM: &str = "Tnumsegments: {int32, int64} = DT_INT32";
const TIDS: &str = "Tsegmentids: {int32, int64} = DT_INT32";
const SPARSE: &str = "sparse_gradient: bool = false";

const PLAIN: Op = Op {
    inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids"],
    outputs: &["output: T"],
    attrs: &[FLOATS, TIDX, TIDS, SPARSE],
    shape: segment_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SPARSE_SEGMENT_SUM: Op = Op {
    name: "SparseSegmentSum",
    gradient: Gradient::Fn(sum_grad),
    attrs: &[REAL, TIDX, TIDS, SPARSE],
    kernels: kernels![sum_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..PLAIN
};

static SPARSE_SEGMENT_MEAN: Op = Op {
    name: "SparseSegmentMean",
    gradient: Gradient::Fn(mean_grad),
    kernels: kernels![mean_kernel: f16, bf16, f32, f64],
    ..PLAIN
};

static SPARSE_SEGMENT_SQRT_N: Op = Op {
    name: "SparseSegmentSqrtN",
    gradient: Gradient::Fn(sqrt_n_grad),
    kernels: kernels![sqrt_n_kernel: f16, bf16, f32, f64],
    ..PLAIN
};

const COUNTED: Op = Op {
    inputs: &["data: T", "indices: Tidx", "segment_ids: Tsegmentids", "num_segments: Tnumsegments"],
    attrs: &[FLOATS, TIDX, TNUM, TIDS, SPARSE],
    ..PLAIN
};

static SPARSE_SEGMENT_SUM_WITH_NUM_SEGMENTS: Op = Op {
    name: "SparseSegmentSumWithNumSegments",
    gradient: Gradient::Fn(sum_grad),
    attrs: &[REAL, TIDX, TNUM, TIDS, SPARSE],
    kernels: kernels![sum_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..COUNTED
};

static SPARSE_SEGMENT_MEAN_WITH_NUM_SEGMENTS: Op = Op {
    name: "SparseSegmentMeanWithNumSegments",
    gradient: Gradient::Fn(mean_grad),
    kernels: kernels![mean_kernel: f16, bf16, f32, f64],
    ..COUNTED
};

static SPARSE_SEGMENT_SQRT_N_WITH_NUM_SEGMENTS: Op = Op {
    name: "SparseSegmentSqrtNWithNumSegments",
    gradient: Gradient::Fn(sqrt_n_grad),
    kernels: kernels![sqrt_n_kernel: f16, bf16, f32, f64],
    ..COUNTED
};

const GRAD: Op = Op {
    inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "output_dim0: int32"],
    outputs: &["output: T"],
    attrs: &[FLOATS, TIDX, TIDS],
    shape: grad_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SPARSE_SEGMENT_SUM_GRAD: Op =
    Op { name: "SparseSegmentSumGrad", kernels: kernels![sum_grad_kernel: f16, bf16, f32, f64], ..GRAD };

static SPARSE_SEGMENT_MEAN_GRAD: Op =
    Op { name: "SparseSegmentMeanGrad", kernels: kernels![mean_grad_kernel: f16, bf16, f32, f64], ..GRAD };

static SPARSE_SEGMENT_SQRT_N_GRAD: Op =
    Op { name: "SparseSegmentSqrtNGrad", kernels: kernels![sqrt_n_grad_kernel: f16, bf16, f32, f64], ..GRAD };

const GRAD_V2: Op = Op {
    inputs: &["grad: T", "indices: Tidx", "segment_ids: Tsegmentids", "dense_output_dim0: int32"],
    outputs: &["output: T", "sorted_unique_indices: Tidx"],
    shape: grad_v2_shape,
    ..GRAD
};

static SPARSE_SEGMENT_SUM_GRAD_V2: Op =
    Op { name: "SparseSegmentSumGradV2", kernels: kernels![sum_grad_kernel: f16, bf16, f32, f64], ..GRAD_V2 };

static SPARSE_SEGMENT_MEAN_GRAD_V2: Op = Op {
    name: "SparseSegmentMeanGradV2",
    kernels: kernels![mean_grad_kernel: f16, bf16, f32, f64],
    ..GRAD_V2
};

static SPARSE_SEGMENT_SQRT_N_GRAD_V2: Op = Op {
    name: "SparseSegmentSqrtNGradV2",
    kernels: kernels![sqrt_n_grad_kernel: f16, bf16, f32, f64],
    ..GRAD_V2
};

fn segment_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let data = s.rank_at_least(0, 1)?;
    let (indices, ids) = (s.rank(1, 1)?, s.rank(2, 1)?);
    s.merge(&indices, &ids)?;
    let count = if s.num_inputs() == 4 {
        s.rank_at_most(3, 0)?;
        match s.constant_i64(3)? {
            Some(count) if count < 0 => {
                bail!(InvalidArgument, "Cannot specify a negative value for num_segments")
            }
            count => count.unwrap_or(UNKNOWN_DIM),
        }
    } else {
        UNKNOWN_DIM
    };
    match data.dims() {
        Some(dims) => {
            let rest = dims[1..].iter().copied();
            s.output(0, std::iter::once(count).chain(rest).collect::<Vec<Dim>>())
        }
        None => Ok(()),
    }
}

fn grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let grad = s.rank_at_least(0, 1)?;
    let (indices, ids) = (s.rank(1, 1)?, s.rank(2, 1)?);
    s.merge(&indices, &ids)?;
    s.rank(3, 0)?;
    let rows = s.constant_i64(3)?.unwrap_or(UNKNOWN_DIM);
    ensure!(rows >= -1, InvalidArgument, "Cannot specify a negative value for output_dim0");
    match grad.dims() {
        Some(dims) => {
            let rest = dims[1..].iter().copied();
            s.output(0, std::iter::once(rows).chain(rest).collect::<Vec<Dim>>())
        }
        None => Ok(()),
    }
}

fn grad_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let grad = s.rank_at_least(0, 1)?;
    let (indices, ids) = (s.rank(1, 1)?, s.rank(2, 1)?);
    s.merge(&indices, &ids)?;
    s.rank(3, 0)?;
    if let Some(dims) = grad.dims() {
        let rest = dims[1..].iter().copied();
        s.output(0, std::iter::once(UNKNOWN_DIM).chain(rest).collect::<Vec<Dim>>())?;
    }
    s.output(1, [UNKNOWN_DIM])
}

/// The factor of a sum of this many rows.
type Scale = fn(usize) -> f64;

fn no_scale(_: usize) -> f64 {
    1.0
}

fn mean_scale(rows: usize) -> f64 {
    1.0 / rows as f64
}

fn sqrt_n_scale(rows: usize) -> f64 {
    1.0 / (rows as f64).sqrt()
}

fn sum_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| segments::<T>(cx, no_scale))
}

fn mean_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| segments::<T>(cx, mean_scale))
}

fn sqrt_n_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| segments::<T>(cx, sqrt_n_scale))
}

/// The vectors of indices and segment ids, which must be equally long.
fn indices_and_ids(cx: &KernelCx<'_>) -> Result<(Vec<i64>, Vec<i64>)> {
    let (indices, ids) = (cx.input(1)?, cx.input(2)?);
    ensure!(indices.rank() == 1, InvalidArgument, "indices should be a vector.");
    ensure!(ids.rank() == 1, InvalidArgument, "segment_ids should be a vector.");
    ensure!(
        indices.elements() == ids.elements(),
        InvalidArgument,
        "segment_ids and indices should have same size."
    );
    Ok((indices.to_i64s()?, ids.to_i64s()?))
}

fn segments<T: Num>(cx: &mut KernelCx<'_>, scale: Scale) -> Result<Outputs> {
    let data = cx.input(0)?;
    ensure!(data.rank() >= 1, InvalidArgument, "Shape must be at least rank 1 but is rank {}", data.rank());
    let (indices, ids) = indices_and_ids(cx)?;
    let used = ids.last().map_or(0, |last| last.saturating_add(1));
    let count = if cx.num_inputs() == 4 {
        let count = cx.input(3)?;
        ensure!(
            count.rank() == 0,
            InvalidArgument,
            "num_segments should be a scalar, not shape {}",
            count.shape()
        );
        let count = cx.scalar_i64(3)?;
        ensure!(count >= 0, InvalidArgument, "segment ids must be >= 0");
        ensure!(used <= count, InvalidArgument, "segment ids must be < num_segments");
        count
    } else {
        used
    };
    ensure!(count > 0 || (count == 0 && ids.is_empty()), InvalidArgument, "segment ids must be >= 0");
    check_ids(&ids, count)?;
    let rows = data.shape().dims()[0];
    if let Some(at) = indices.iter().position(|index| !(0..rows).contains(index)) {
        bail!(InvalidArgument, "Bad: indices[{at}] == {} out of range [0, {rows})", indices[at]);
    }
    let rest = &data.shape().dims()[1..];
    let width = rest.iter().product::<i64>() as usize;
    let shape = Shape::new(std::iter::once(count).chain(rest.iter().copied()))?;
    let input = data.flat::<T>()?;
    let mut output = cx.alloc::<T>(shape)?;
    let out = output.flat_mut::<T>()?;
    let per_row = indices.len().div_ceil(count.max(1) as usize);
    cx.threads().parallel_rows(out, width, per_row, |first, part| {
        let mut at = ids.partition_point(|id| (*id as usize) < first);
        let mut sums = vec![T::Wide::ZERO; width];
        for (row, out) in part.chunks_mut(width).enumerate() {
            let start = at;
            while at < ids.len() && ids[at] as usize == first + row {
                let row = &input[indices[at] as usize * width..][..width];
                if at == start {
                    for (sum, x) in sums.iter_mut().zip(row) {
                        *sum = x.widen();
                    }
                } else {
                    for (sum, x) in sums.iter_mut().zip(row) {
                        *sum = sum.add(x.widen());
                    }
                }
                at += 1;
            }
            match at - start {
                0 => out.fill(T::ZERO),
                rows => {
                    let factor = <T::Wide as Num>::from_f64(scale(rows));
                    for (out, sum) in out.iter_mut().zip(&sums) {
                        *out = T::narrow(sum.mul(factor));
                    }
                }
            }
        }
    });
    Ok(output.into())
}

fn sum_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    grad_kernel::<T>(init, no_scale)
}

fn mean_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    grad_kernel::<T>(init, mean_scale)
}

fn sqrt_n_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    grad_kernel::<T>(init, sqrt_n_scale)
}

fn grad_kernel<T: Num>(init: &Init<'_>, scale: Scale) -> Result<Kernel> {
    let compact = init.output_types.len() == 2;
    Kernel::sync(move |cx| grad::<T>(cx, scale, compact))
}

/// Adds each segment's gradient to the rows that the segment was summed from. A compact result holds only those rows,
/// in order, and says which they are.
fn grad<T: Num>(cx: &mut KernelCx<'_>, scale: Scale, compact: bool) -> Result<Outputs> {
    let grad = cx.input(0)?;
    ensure!(grad.rank() >= 1, InvalidArgument, "Shape must be at least rank 1 but is rank {}", grad.rank());
    let (indices, ids) = indices_and_ids(cx)?;
    let rows = cx.input(3)?;
    ensure!(rows.rank() == 0, InvalidArgument, "output_dim0 should be a scalar.");
    let rows = cx.scalar_i64(3)?;
    ensure!(rows >= 0, InvalidArgument, "Expected a non-negative size, got {rows}");
    let rest = &grad.shape().dims()[1..];
    if rows == 0 {
        // Stock looks neither at indices nor at ids when there are no rows to add to.
        let output = cx.zeros(T::DTYPE, Shape::new(std::iter::once(0).chain(rest.iter().copied()))?)?;
        let unique = compact.then(|| cx.zeros(cx.input(1)?.dtype(), Shape::vector(0))).transpose()?;
        return Ok(std::iter::once(output).chain(unique).collect::<Vec<Tensor>>().into());
    }
    let segments = grad.shape().dims()[0];
    ensure!(ids.last().is_none_or(|last| *last < segments), InvalidArgument, "Invalid number of segments");
    if let Some(id) = ids.iter().find(|id| !(0..segments).contains(*id)) {
        bail!(InvalidArgument, "Segment id {id} out of range [0, {segments}).");
    }
    if let Some(index) = indices.iter().find(|index| !(0..rows).contains(*index)) {
        bail!(InvalidArgument, "Index {index} out of range [0, {rows}).");
    }
    let mut sizes = vec![0usize; segments as usize];
    for id in ids.iter() {
        sizes[*id as usize] += 1;
    }
    let unique = compact.then(|| {
        let mut unique = indices.clone();
        unique.sort_unstable();
        unique.dedup();
        unique
    });
    let row_of = |index: i64| match &unique {
        Some(unique) => unique.partition_point(|other| *other < index),
        None => index as usize,
    };
    let width = rest.iter().product::<i64>() as usize;
    let out_rows = unique.as_ref().map_or(rows, |unique| unique.len() as i64);
    let shape = Shape::new(std::iter::once(out_rows).chain(rest.iter().copied()))?;
    let input = grad.flat::<T>()?;
    let mut gathered = cx.zeros(<T::Wide as Element>::DTYPE, shape.clone())?;
    let sums = gathered.flat_mut::<T::Wide>()?;
    for (index, id) in indices.iter().zip(&ids) {
        let factor = <T::Wide as Num>::from_f64(scale(sizes[*id as usize]));
        let row = &input[*id as usize * width..][..width];
        let out = &mut sums[row_of(*index) * width..][..width];
        for (out, x) in out.iter_mut().zip(row) {
            *out = out.add(x.widen().mul(factor));
        }
    }
    let output = if <T::Wide as Element>::DTYPE == T::DTYPE {
        gathered
    } else {
        Tensor::new(shape, gathered.flat::<T::Wide>()?.iter().map(|sum| T::narrow(*sum)).collect())?
    };
    let Some(unique) = unique else { return Ok(output.into()) };
    let unique = match cx.input(1)?.dtype() {
        DType::Int32 => Tensor::vector(unique.into_iter().map(|index| index as i32).collect()),
        _ => Tensor::vector(unique),
    };
    Ok([output, unique].into())
}

fn sum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    rows_grad(g, "SparseSegmentSumGrad")
}

fn mean_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    rows_grad(g, "SparseSegmentMeanGrad")
}

fn sqrt_n_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    rows_grad(g, "SparseSegmentSqrtNGrad")
}

/// The gradient by the op that is made for it: whole, or only the rows that were used if the operation asks for that.
fn rows_grad(g: &GradCx<'_>, op: &str) -> Result<InputGrads> {
    let (s, sparse) = (g.scope(), g.attr::<bool>("sparse_gradient")?);
    let shape = ops::shape(s, g.input(0))?;
    let node = if sparse { s.op(&format!("{op}V2")) } else { s.op(op) };
    let node = node.input(g.dy(0)?).input(g.input(1)).input(g.input(2)).input(element(s, &shape, 0)?);
    let node = node.build()?;
    let values = node.output(0)?;
    let grad = if sparse {
        Grad::Sparse(IndexedSlices { values, indices: node.output(1)?, dense_shape: Some(shape) })
    } else {
        Grad::Dense(values)
    };
    let mut grads = InputGrads::none(g.num_inputs());
    grads.0[0] = Some(grad);
    Ok(grads)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn shapes_keep_all_but_the_first_dimension() {
        infer("SparseSegmentSum", "[4,2];[3];[3]", "[?,2]");
        Node::new("SparseSegmentMeanGrad")
            .constant(3, Tensor::scalar(7i32))
            .infer("[4,2];[3];[3];[]", "[7,2]");
        infer("SparseSegmentSumGradV2", "[4,2];[3];[3];[]", "[?,2];[?]");
    }

    #[test]
    fn compact_gradients_name_their_rows() {
        let grad = Tensor::new(Shape::matrix(2, 1), vec![2.0f32, 3.0]).unwrap();
        let (indices, ids) = (Tensor::vector(vec![3i64, 0, 3]), Tensor::vector(vec![0i32, 0, 1]));
        let node = Node::new("SparseSegmentMeanGradV2");
        let out = node.run([grad, indices, ids, Tensor::scalar(5i32)]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [1.0, 4.0]);
        assert_eq!(out[1].flat::<i64>().unwrap(), [0, 3]);
    }
}

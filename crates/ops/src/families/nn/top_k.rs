//! The greatest elements of rows, whether a class is among them, and order statistics.

use crate::builders as ops;
use crate::numeric::Real;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, no_kernel};
use ferroflow_core::scope::{Input, Output};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&TOP_K, &TOP_K_V2, &APPROX_TOP_K, &IN_TOP_K, &IN_TOP_K_V2, &NTH_ELEMENT];

static TOP_K: Op = Op {
    name: "TopK",
    gradient: Gradient::Fn(top_k_gradient),
    inputs: &["input: T"],
    outputs: &["values: T", "indices: int32"],
    attrs: &["k: int >= 0", "sorted: bool = true", "T: realnumbertype"],
    shape: top_k_shape,
    kernels: kernels![top_k_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    deprecated_at: Some(7),
    ..Op::PURE
};

static TOP_K_V2: Op = Op {
    name: "TopKV2",
    gradient: Gradient::Fn(top_k_gradient),
    inputs: &["input: T", "k: Tk"],
    outputs: &["values: T", "indices: index_type"],
    attrs: &[
        "sorted: bool = true",
        "T: realnumbertype",
        "Tk: {int16, int32, int64} = DT_INT32",
        "index_type: {int16, int32, int64} = DT_INT32",
    ],
    shape: top_k_shape,
    kernels: kernels![top_k_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..Op::PURE
};

/// On CPUs, stock looks for the greatest elements of the last dimension, and finds all of them.
static APPROX_TOP_K: Op = Op {
    name: "ApproxTopK",
    gradient: Gradient::Fn(top_k_gradient),
    inputs: &["input: T"],
    outputs: &["values: T", "indices: int32"],
    attrs: &[
        "k: int >= 0",
        "reduction_dimension: int = -1",
        "recall_target: float = 0.95",
        "is_max_k: bool = true",
        "reduction_input_size_override: int = -1",
        "aggregate_to_topk: bool = true",
        "T: {half, bfloat16, float}",
    ],
    shape: approx_top_k_shape,
    kernels: kernels![approx_top_k_kernel: f16, bf16, f32],
    ..Op::PURE
};

static IN_TOP_K: Op = Op {
    name: "InTopK",
    inputs: &["predictions: float", "targets: T"],
    outputs: &["precision: bool"],
    attrs: &["k: int", "T: {int32, int64} = DT_INT32"],
    shape: in_top_k_shape,
    kernels: kernels![any in_top_k_kernel],
    ..Op::PURE
};

static IN_TOP_K_V2: Op = Op {
    name: "InTopKV2",
    inputs: &["predictions: float", "targets: T", "k: T"],
    outputs: &["precision: bool"],
    attrs: &["T: {int32, int64} = DT_INT32"],
    shape: in_top_k_shape,
    kernels: kernels![any in_top_k_kernel],
    ..Op::PURE
};

static NTH_ELEMENT: Op = Op {
    name: "NthElement",
    gradient: Gradient::Fn(nth_element_gradient),
    inputs: &["input: T", "n: int32"],
    outputs: &["values: T"],
    attrs: &["reverse: bool = false", "T: realnumbertype"],
    shape: nth_element_shape,
    kernels: kernels![nth_element_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..Op::PURE
};

fn top_k_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_least(0, 1)?;
    let k = if s.num_inputs() == 2 {
        s.rank(1, 0)?;
        s.constant_i64(1)?.unwrap_or(UNKNOWN_DIM)
    } else {
        s.attr("k")?
    };
    ensure!(k >= UNKNOWN_DIM, InvalidArgument, "Need k >= 0, got {k}");
    let Some(dims) = input.dims() else { return Ok(()) };
    let last = dims[dims.len() - 1];
    ensure!(
        last == UNKNOWN_DIM || k <= last,
        InvalidArgument,
        "input must have last dimension >= k = {k} but is {last}"
    );
    let shape = PartialShape::new(dims[..dims.len() - 1].iter().copied().chain([k]))?;
    s.set(0, shape.clone());
    s.set(1, shape);
    Ok(())
}

fn approx_top_k_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    // Of other dimensions stock has no kernel here.
    if s.attr::<i64>("reduction_dimension")? == -1 { top_k_shape(s) } else { Ok(()) }
}

fn in_top_k_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (predictions, targets) = (s.rank(0, 2)?, s.rank(1, 1)?);
    let dim = |shape: &PartialShape| shape.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    let rows = s.merge_dims(dim(&predictions), dim(&targets))?;
    s.output(0, [rows])
}

fn nth_element_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_least(0, 1)?;
    s.rank(1, 0)?;
    let n = s.constant_i64(1)?;
    ensure!(n.is_none_or(|n| n >= 0), InvalidArgument, "Input n must be non-negative");
    let Some(dims) = input.dims() else { return Ok(()) };
    let last = dims[dims.len() - 1];
    ensure!(
        last == UNKNOWN_DIM || n.is_none_or(|n| n < last),
        InvalidArgument,
        "Input must have last dimension > n = {}",
        n.unwrap_or_default()
    );
    s.output(0, dims[..dims.len() - 1].to_vec())
}

/// Whether asked for sorted results or not, they come sorted: the order of unsorted ones is anyone's choice.
fn top_k_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let fixed: Option<i64> = if init.attrs.has("k") { Some(init.attr("k")?) } else { None };
    let index_type = init.output_types[1];
    Kernel::sync(move |cx| {
        let k = match fixed {
            Some(k) => k,
            None => {
                let k = cx.input(1)?;
                ensure!(k.rank() == 0, InvalidArgument, "k must be scalar, got shape {}", k.shape());
                cx.scalar_i64(1)?
            }
        };
        top_k::<T>(cx, k, index_type)
    })
}

fn approx_top_k_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let (axis, greatest): (i64, bool) = (init.attr("reduction_dimension")?, init.attr("is_max_k")?);
    if axis != -1 || !greatest {
        let attrs = format!("reduction_dimension={axis}, is_max_k={greatest}");
        return Err(no_kernel(init.op, init.node, &attrs));
    }
    top_k_kernel::<T>(init)
}

/// The columns, the shape of the results and their last dimension.
fn top_k_plan(input: &Tensor, k: i64) -> Result<(usize, Shape, usize)> {
    ensure!(k >= 0, InvalidArgument, "Need k >= 0, got {k}");
    ensure!(input.rank() >= 1, InvalidArgument, "input must be >= 1-D, got shape {}", input.shape());
    let (leading, columns) = split_last(input.shape());
    ensure!(
        columns as i64 >= k,
        InvalidArgument,
        "input must have at least k columns. Had {columns}, needed {k}"
    );
    ensure!(u32::try_from(columns).is_ok(), InvalidArgument, "rows of {columns} elements are too long");
    Ok((columns, Shape::new(leading.iter().copied().chain([k]))?, k as usize))
}

fn top_k<T: Real>(cx: &KernelCx<'_>, k: i64, index_type: DType) -> Result<Outputs> {
    let input = cx.input(0)?;
    let (columns, shape, k) = top_k_plan(input, k)?;
    let mut indices = cx.alloc::<u32>(shape.clone())?;
    let data = input.flat::<T>()?;
    let cost = (columns / k.max(1)).saturating_mul(4);
    cx.threads().parallel_rows(indices.flat_mut::<u32>()?, k, cost, |first, part| {
        let mut keys = Keys::default();
        for (row, out) in part.chunks_mut(k).enumerate() {
            let elements = &data[(first + row) * columns..][..columns];
            if k == 1 {
                out[0] = greatest(elements);
                continue;
            }
            // The greatest first; of equals the one that comes first; NaN last.
            keys.fill(elements, |x| if x.is_nan() { u64::MAX } else { !x.place() });
            keys.first(out);
        }
    });
    // Indices that were not computed are not followed.
    cx.conclude(Ok(()))?;
    let mut values = cx.alloc::<T>(shape)?;
    let found = indices.flat::<u32>()?;
    for (at, (out, index)) in values.flat_mut::<T>()?.iter_mut().zip(found).enumerate() {
        *out = data[at / k * columns + *index as usize];
    }
    Ok([values, as_type(&indices, index_type)?].into())
}

/// The elements of a row as numbers that have their order, of equal ones the first first: places in the order of their
/// type, with positions in the low 32 bits. Sorting is compiled for numbers of two sizes instead of a dozen types.
#[derive(Default)]
struct Keys {
    /// Of elements of up to 32 bits.
    short: Vec<u64>,
    /// Of others.
    long: Vec<u128>,
}

impl Keys {
    /// Takes a row whose elements are in the order of `place`, of which types of up to 32 bits keep as many.
    #[inline(always)]
    fn fill<T: Real>(&mut self, row: &[T], place: impl Fn(T) -> u64) {
        self.short.clear();
        self.long.clear();
        if const { size_of::<T>() <= 4 } {
            self.short.extend((0..).zip(row).map(|(at, x): (u64, _)| place(*x) << 32 | at));
        } else {
            self.long.extend((0..).zip(row).map(|(at, x): (u128, _)| u128::from(place(*x)) << 32 | at));
        }
    }

    /// The positions of the first elements, in order.
    fn first(&mut self, out: &mut [u32]) {
        sort_first(&mut self.short, out, |key| *key as u32);
        sort_first(&mut self.long, out, |key| *key as u32);
    }

    /// The position of the element that is `n`th.
    fn nth(&mut self, n: usize) -> usize {
        let at = match self.long.as_mut_slice() {
            [] => *self.short.select_nth_unstable(n).1 as u32,
            long => *long.select_nth_unstable(n).1 as u32,
        };
        at as usize
    }
}

fn sort_first<K: Ord>(keys: &mut [K], out: &mut [u32], position: impl Fn(&K) -> u32) {
    if out.len() < keys.len() {
        keys.select_nth_unstable(out.len() - 1);
        keys[..out.len()].sort_unstable();
    } else {
        keys.sort_unstable();
    }
    for (out, key) in out.iter_mut().zip(keys) {
        *out = position(key);
    }
}

fn as_type(indices: &Tensor, dtype: DType) -> Result<Tensor> {
    let (shape, found) = (indices.shape().clone(), indices.flat::<u32>()?);
    match dtype {
        DType::Int16 => Tensor::new(shape, found.iter().map(|index| *index as i16).collect()),
        DType::Int64 => Tensor::new(shape, found.iter().map(|index| *index as i64).collect()),
        _ => Tensor::new(shape, found.iter().map(|index| *index as i32).collect()),
    }
}

fn greatest<T: Real>(row: &[T]) -> u32 {
    let mut best = 0;
    for at in 1..row.len() {
        if row[at] > row[best] || row[best].is_nan() && !row[at].is_nan() {
            best = at;
        }
    }
    best as u32
}

/// All dimensions but the last, and the last.
fn split_last(shape: &Shape) -> (&[i64], usize) {
    match shape.dims().split_last() {
        Some((last, leading)) => (leading, *last as usize),
        None => (&[], 1),
    }
}

fn in_top_k_kernel(init: &Init<'_>) -> Result<Kernel> {
    let fixed: Option<i64> = if init.attrs.has("k") { Some(init.attr("k")?) } else { None };
    Kernel::sync(move |cx| {
        let k = match fixed {
            Some(k) => k,
            None => {
                let k = cx.input(2)?;
                ensure!(k.rank() == 0, InvalidArgument, "k must be 0-D, got shape {}", k.shape());
                cx.scalar_i64(2)?
            }
        };
        let (predictions, targets) = (cx.input(0)?, cx.input(1)?);
        ensure!(predictions.rank() == 2, InvalidArgument, "predictions must be 2-dimensional");
        ensure!(targets.rank() == 1, InvalidArgument, "targets must be 1-dimensional");
        let (rows, classes) = (predictions.shape().dim(0), predictions.shape().dim(1));
        ensure!(
            rows == targets.elements(),
            InvalidArgument,
            "First dimension of predictions {rows} must match length of targets {}",
            targets.elements()
        );
        let data = predictions.flat::<f32>()?;
        let targets = targets.to_i64s()?;
        let is_in = |(row, target): (usize, &i64)| {
            let row = &data[row * classes..][..classes];
            let target = usize::try_from(*target).ok().and_then(|target| row.get(target));
            // With anything infinite or NaN among the predictions, nothing can be said.
            target.is_some_and(|target| {
                row.iter().all(|x| x.is_finite()) && (row.iter().filter(|x| *x > target).count() as i64) < k
            })
        };
        Ok(Tensor::vector(targets.iter().enumerate().map(is_in).collect::<Vec<bool>>()).into())
    })
}

fn nth_element_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let reverse: bool = init.attr("reverse")?;
    Kernel::sync(move |cx| {
        let (columns, at, shape) = nth_element_plan(cx, reverse)?;
        let mut output = cx.alloc::<T>(shape)?;
        let data = cx.flat::<T>(0)?;
        cx.threads().parallel_rows(output.flat_mut::<T>()?, 1, 4 * columns, |first, part| {
            let mut keys = Keys::default();
            for (row, out) in part.iter_mut().enumerate() {
                let elements = &data[(first + row) * columns..][..columns];
                // NaN comes last.
                keys.fill(elements, |x| if x.is_nan() { u64::MAX } else { x.place() });
                *out = elements[keys.nth(at)];
            }
        });
        Ok(output.into())
    })
}

/// The columns, the position asked for in a sorted row, and the shape of the result.
fn nth_element_plan(cx: &KernelCx<'_>, reverse: bool) -> Result<(usize, usize, Shape)> {
    let (input, n) = (cx.input(0)?, cx.input(1)?);
    ensure!(n.rank() == 0, InvalidArgument, "N must be scalar but has rank {}", n.rank());
    let n = cx.scalar_i64(1)?;
    ensure!(n >= 0, InvalidArgument, "n must be non-negative but is {n}");
    ensure!(input.rank() >= 1, InvalidArgument, "Input must be at least rank 1 but is rank {}", input.rank());
    let (leading, columns) = split_last(input.shape());
    ensure!((n as usize) < columns, InvalidArgument, "Input must have last dimension > n = {n}");
    let at = if reverse { columns - 1 - n as usize } else { n as usize };
    Ok((columns, at, Shape::new(leading.iter().copied())?))
}

/// Each value's gradient goes to where the value was.
fn top_k_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let shape = ops::shape(s, g.input(0))?;
    let indices = ops::cast(s, g.output(1)?, DType::Int32)?;
    let last = |shape: &Output| ops::gather_v2(s, shape, ops::sub(s, ops::size(s, shape), 1), 0);
    let (columns, k) = (last(&shape)?, last(&ops::shape(s, &indices)?)?);
    let rows = ops::reshape(s, indices, ops::pack(s, [Input::from(-1), Input::from(&k)]))?;
    let count = ops::gather_v2(s, ops::shape(s, &rows), 0, 0)?;
    let starts = ops::range(s, 0, ops::mul(s, count, &columns), &columns)?;
    let flat = ops::reshape(s, ops::add_v2(s, rows, ops::expand_dims(s, starts, -1)), [-1, 1])?;
    let elements = ops::Prod::new().keep_dims(true).build(s, &shape, [0])?;
    let scattered = ops::scatter_nd(s, flat, ops::reshape(s, g.dy(0)?, [-1]), elements)?;
    let mut grads = vec![Some(ops::reshape(s, scattered, shape)?)];
    grads.resize(g.num_inputs(), None);
    Ok(grads.into())
}

/// Shared out among the elements that equal the value.
fn nth_element_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let equal = ops::equal(s, ops::expand_dims(s, g.output(0)?, -1), g.input(0))?;
    let equal = ops::cast(s, equal, dy.dtype())?;
    let count = ops::Sum::new().keep_dims(true).build(s, &equal, [-1])?;
    let dx = ops::mul(s, ops::div(s, equal, count), ops::expand_dims(s, dy, -1))?;
    Ok([Some(dx), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn k_replaces_the_last_dimension() {
        infer("TopKV2", "[2,3];[]", "[2,?];[2,?]");
        Node::new("TopKV2").constant(1, Tensor::scalar(2i32)).infer("[?,3];[]", "[?,2];[?,2]");
        infer("InTopKV2", "[?,3];[2];[]", "[2]");
        infer("NthElement", "[2,3];[]", "[2]");
        infer_err("TopKV2", "[];[]", Code::InvalidArgument);
    }

    #[test]
    fn the_first_of_equals_comes_first() {
        let input = Tensor::vector(vec![5.0f32, 7.0, 5.0, f32::NAN, 5.0]);
        let out = Node::new("TopKV2").run([input, Tensor::scalar(3i32)]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [7.0, 5.0, 5.0]);
        assert_eq!(out[1].flat::<i32>().unwrap(), [1, 0, 2]);
    }
}

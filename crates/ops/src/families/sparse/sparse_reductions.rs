//! Sums and maxima of sparse tensors over some dimensions, and softmax over the last one.

use crate::builders as ops;
use crate::numeric::{Float, Num, Real};
use crate::support::gradient::kept_shape;
use crate::support::index::constant_ints;
use crate::support::sparse::{Sparse, sparse_ranks};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{C64, C128, DType, Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SPARSE_REDUCE_SUM,
    &SPARSE_REDUCE_SUM_SPARSE,
    &SPARSE_REDUCE_MAX,
    &SPARSE_REDUCE_MAX_SPARSE,
    &SPARSE_SOFTMAX,
];

static SPARSE_REDUCE_SUM: Op = Op {
    name: "SparseReduceSum",
    gradient: Gradient::Fn(reduce_sum_grad),
    inputs: &["input_indices: int64", "input_values: T", "input_shape: int64", "reduction_axes: int32"],
    outputs: &["output: T"],
    attrs: &["keep_dims: bool = false", "T: numbertype"],
    shape: reduce_shape,
    kernels: kernels![
        sum_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SPARSE_REDUCE_SUM_SPARSE: Op = Op {
    name: "SparseReduceSumSparse",
    gradient: Gradient::Undefined,
    outputs: &["output_indices: int64", "output_values: T", "output_shape: int64"],
    shape: shapes::unknown,
    ..SPARSE_REDUCE_SUM
};

static SPARSE_REDUCE_MAX: Op = Op {
    name: "SparseReduceMax",
    gradient: Gradient::Undefined,
    attrs: &["keep_dims: bool = false", "T: realnumbertype"],
    kernels: kernels![max_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    accuracy: Accuracy::Exact,
    ..SPARSE_REDUCE_SUM
};

static SPARSE_REDUCE_MAX_SPARSE: Op = Op {
    name: "SparseReduceMaxSparse",
    outputs: &["output_indices: int64", "output_values: T", "output_shape: int64"],
    shape: shapes::unknown,
    ..SPARSE_REDUCE_MAX
};

static SPARSE_SOFTMAX: Op = Op {
    name: "SparseSoftmax",
    gradient: Gradient::Fn(softmax_grad),
    inputs: &["sp_indices: int64", "sp_values: T", "sp_shape: int64"],
    outputs: &["output: T"],
    attrs: &["T: {half, float, double}"],
    shape: softmax_shape,
    kernels: kernels![softmax_kernel: f16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn reduce_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (Some(dims), Some(axes)) = (constant_ints(s, 2)?, constant_ints(s, 3)?) else { return Ok(()) };
    let rank = dims.len() as i64;
    ensure!(rank > 0, InvalidArgument, "Number of dims in shape tensor must not be 0");
    let reduced = |axis: usize| axes.iter().any(|a| (a + rank).rem_euclid(rank) == axis as i64);
    let keep: bool = s.attr("keep_dims")?;
    let dims = dims.iter().enumerate().filter(|(axis, _)| keep || !reduced(*axis));
    s.output(0, dims.map(|(axis, dim)| if reduced(axis) { 1 } else { *dim }).collect::<Vec<_>>())
}

fn softmax_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    sparse_ranks(s, 0)?;
    let values = s.rank(1, 1)?;
    s.set(0, values);
    Ok(())
}

/// A reduction: which dimensions are kept, and the shape of the result.
struct Plan {
    kept: Vec<usize>,
    reduced: Vec<usize>,
    shape: Shape,
}

impl Plan {
    fn new(cx: &KernelCx<'_>, sparse: &Sparse<'_>, keep_dims: bool) -> Result<Plan> {
        let axes = cx.input(3)?;
        ensure!(
            axes.rank() <= 1,
            InvalidArgument,
            "Expected reduction_axes to be a scalar or a vector; got shape: {}",
            axes.shape()
        );
        let rank = sparse.rank() as i64;
        let axes = axes.flat::<i32>()?;
        for axis in axes {
            ensure!(
                (-rank..rank).contains(&(*axis as i64)),
                InvalidArgument,
                "Invalid reduction dimension {axis}, for input with {rank} dimensions."
            );
        }
        let is_reduced =
            |axis: &usize| axes.iter().any(|a| (*a as i64).rem_euclid(rank.max(1)) == *axis as i64);
        let (reduced, kept): (Vec<usize>, Vec<usize>) = (0..sparse.rank()).partition(is_reduced);
        let whole = sparse.dense_shape()?;
        let shape = Shape::new(
            whole
                .iter()
                .enumerate()
                .filter(|(axis, _)| keep_dims || !is_reduced(axis))
                .map(|(axis, dim)| if is_reduced(&axis) { 1 } else { *dim }),
        )?;
        Ok(Plan { kept, reduced, shape })
    }

    /// The element of the result that each entry goes to.
    fn places(&self, sparse: &Sparse<'_>) -> Result<Vec<usize>> {
        let elements = self.shape.elements();
        let mut places = Vec::with_capacity(sparse.entries());
        for entry in 0..sparse.entries() {
            let row = sparse.row(entry);
            let place = self
                .kept
                .iter()
                .fold(0i64, |place, axis| place.wrapping_mul(sparse.shape[*axis]).wrapping_add(row[*axis]));
            ensure!(
                (0..elements as i64).contains(&place),
                Internal,
                "Obtained a write index of {place} which is outside of bounds of [0, {elements})"
            );
            places.push(place as usize);
        }
        Ok(places)
    }
}

fn sum_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<T>(init, |sum, value| sum.add(value.widen()), T::widen)
}

fn max_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel>
where
    T::Wide: Real,
{
    reduction::<T>(init, |max, value| max.raised(value.widen()), T::widen)
}

/// A reduction whose results are zeros where there are no entries, `first` of the first entry otherwise, and then
/// `combine`d with each further one.
fn reduction<T: Num>(
    init: &Init<'_>,
    combine: fn(T::Wide, T) -> T::Wide,
    first: fn(T) -> T::Wide,
) -> Result<Kernel> {
    let keep_dims: bool = init.attr("keep_dims")?;
    if init.op.ends_with("Sparse") {
        return Kernel::sync(move |cx| {
            let sparse = Sparse::input(cx, 0)?;
            let plan = Plan::new(cx, &sparse, keep_dims)?;
            let groups = Groups::new(&sparse, &plan);
            let (values, mut out) = (sparse.values.flat::<T>()?, cx.alloc::<T>(Shape::vector(groups.len()))?);
            for (group, out) in out.flat_mut::<T>()?.iter_mut().enumerate() {
                let mut entries = groups.entries(group).iter().map(|entry| values[*entry]);
                let start = entries.next().map_or(T::Wide::ZERO, first);
                *out = T::narrow(entries.fold(start, combine));
            }
            groups.outputs(cx, &sparse, &plan, keep_dims, out)
        });
    }
    Kernel::sync(move |cx| {
        let sparse = Sparse::input(cx, 0)?;
        let plan = Plan::new(cx, &sparse, keep_dims)?;
        let places = plan.places(&sparse)?;
        let mut out = cx.zeros(T::DTYPE, plan.shape.clone())?;
        let mut wide = cx.zeros(<T::Wide as ferroflow_core::Element>::DTYPE, plan.shape)?;
        let mut seen = vec![false; out.elements()];
        let results = wide.flat_mut::<T::Wide>()?;
        for (place, value) in places.into_iter().zip(sparse.values.flat::<T>()?) {
            let result = &mut results[place];
            *result = if std::mem::replace(&mut seen[place], true) {
                combine(*result, *value)
            } else {
                first(*value)
            };
        }
        if T::DTYPE == <T::Wide as ferroflow_core::Element>::DTYPE {
            return Ok(wide.into());
        }
        for (out, wide) in out.flat_mut::<T>()?.iter_mut().zip(results) {
            *out = T::narrow(*wide);
        }
        Ok(out.into())
    })
}

/// Entries by the place in the result that they go to.
struct Groups {
    /// Entries, sorted by their kept coordinates.
    order: Vec<usize>,
    /// The beginnings of groups in `order`, and its end.
    splits: Vec<usize>,
}

impl Groups {
    fn new(sparse: &Sparse<'_>, plan: &Plan) -> Groups {
        let axes: Vec<usize> = plan.kept.iter().chain(&plan.reduced).copied().collect();
        let order = sparse.sorted(&axes).unwrap_or_else(|| (0..sparse.entries()).collect());
        let same = |a: usize, b: usize| {
            let (a, b) = (sparse.row(a), sparse.row(b));
            plan.kept.iter().all(|axis| a[*axis] == b[*axis])
        };
        let begins = (0..order.len()).filter(|i| *i == 0 || !same(order[*i - 1], order[*i]));
        let splits = begins.chain([order.len()]).collect();
        Groups { order, splits }
    }

    fn len(&self) -> usize {
        self.splits.len() - 1
    }

    fn entries(&self, group: usize) -> &[usize] {
        &self.order[self.splits[group]..self.splits[group + 1]]
    }

    fn outputs(
        &self,
        cx: &KernelCx<'_>,
        sparse: &Sparse<'_>,
        plan: &Plan,
        keep_dims: bool,
        values: Tensor,
    ) -> Result<Outputs> {
        let rank = plan.shape.rank();
        let mut indices = cx.zeros(DType::Int64, Shape::matrix(self.len(), rank))?;
        if rank > 0 {
            for (group, row) in indices.flat_mut::<i64>()?.chunks_exact_mut(rank).enumerate() {
                let from = sparse.row(self.entries(group)[0]);
                for (column, axis) in plan.kept.iter().enumerate() {
                    row[if keep_dims { *axis } else { column }] = from[*axis];
                }
            }
        }
        Ok([indices, values, Tensor::vector(plan.shape.dims().to_vec())].into())
    }
}

fn softmax_kernel<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let sparse = Sparse::input(cx, 0)?;
        ensure!(
            sparse.rank() >= 2,
            InvalidArgument,
            "Input should have rank >= 2, but received shape: {}",
            cx.input(2)?.shape()
        );
        sparse.dense_shape()?;
        let axes: Vec<usize> = (0..sparse.rank()).collect();
        let plan = Plan {
            kept: axes[..axes.len() - 1].to_vec(),
            reduced: vec![axes.len() - 1],
            shape: Shape::scalar(),
        };
        let groups = Groups::new(&sparse, &plan);
        let values = sparse.values.flat::<T>()?;
        let mut out = cx.alloc::<T>(Shape::vector(values.len()))?;
        // Results are in sorted order, as in stock, whatever the order of the entries.
        let mut rest = out.flat_mut::<T>()?;
        for group in 0..groups.len() {
            let entries = groups.entries(group);
            let (head, later) = rest.split_at_mut(entries.len());
            let max = entries.iter().map(|entry| values[*entry]).fold(T::LOWEST, T::raised).to_math();
            let exps = || entries.iter().map(|entry| num_traits::Float::exp(values[*entry].to_math() - max));
            let sum = exps().fold(<T::Math as Num>::ZERO, |sum, exp| sum + exp);
            for (out, exp) in head.iter_mut().zip(exps()) {
                *out = T::from_math(exp / sum);
            }
            rest = later;
        }
        Ok(out.into())
    })
}

/// Every entry gets what arrives at the element that it was added to.
fn reduce_sum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, indices, shape) = (g.scope(), g.input(0), g.input(2));
    let kept = kept_shape(s, &ops::cast(s, shape, DType::Int32)?, g.input(3))?;
    let dy = ops::reshape(s, g.dy(0)?, &kept)?;
    let scale = ops::floor_div(s, shape, ops::cast(s, kept, DType::Int64))?;
    let places = ops::floor_div(s, indices, scale)?;
    Ok([None, Some(ops::gather_nd(s, dy, places)?), None, None].into())
}

fn softmax_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, indices, shape) = (g.scope(), g.input(0), g.input(2));
    let (dy, output) = (g.dy(0)?, g.output(0)?);
    let product = ops::mul(s, &output, &dy)?;
    let sum = ops::SparseReduceSum::new().keep_dims(true).build(s, indices, product, shape, [-1])?;
    let shifted = ops::sparse_dense_cwise_add(s, indices, &dy, shape, ops::neg(s, sum))?;
    Ok([None, Some(ops::mul(s, shifted, output)?), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn the_shape_follows_from_constants() {
        let node = || Node::new("SparseReduceSum").constant(2, Tensor::vector(vec![2i64, 3]));
        node().constant(3, Tensor::scalar(-1i32)).infer("?;?;[2];[]", "[2]");
        node().constant(3, Tensor::scalar(0i32)).attr("keep_dims", true).infer("?;?;[2];[]", "[1,3]");
        infer("SparseReduceSum", "?;?;[2];[]", "?");
    }

    #[test]
    fn elements_without_entries_are_zero() {
        let indices = Tensor::new(Shape::matrix(3, 2), vec![0i64, 1, 2, 0, 2, 1]).unwrap();
        let values = Tensor::vector(vec![-1.0f32, -2.0, -3.0]);
        let shape = Tensor::vector(vec![3i64, 2]);
        let out = Node::new("SparseReduceMax").run([indices, values, shape, Tensor::scalar(1i32)]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [-1.0, 0.0, -2.0]);
    }
}

//! Reductions over axes: sums, means, products, extremes, norms, and logical all and any.

use crate::builders as ops;
use crate::linalg::reduce::{
    AtLeastOne, Axis, Every, Finish, Fold, Greatest, IntSum, Least, Loops, Product, RoundedSquares, Sum,
    SumOfSquares, plan,
};
use crate::numeric::{Float, Int, Num, Real};
use crate::support::gradient::{conj, shape_of, unreduced, wrapped_axes};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::Output;
use ferroflow_core::{C64, C128, DType, Element, Result, Shape, bf16, ensure, f16, kernels};
use smallvec::SmallVec;

pub(crate) const OPS: &[&Op] = &[&SUM, &MEAN, &PROD, &MAX, &MIN, &EUCLIDEAN_NORM, &ALL, &ANY];

const NUMBER_ATTRS: &[&str] =
    &["keep_dims: bool = false", "T: numbertype", "Tidx: {int32, int64} = DT_INT32"];

const ORDERED_ATTRS: &[&str] = &[
    "keep_dims: bool = false",
    "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, quint8, \
     qint32, qint16, quint16}",
    "Tidx: {int32, int64} = DT_INT32",
];

const REDUCTION: Op = Op {
    inputs: &["input: T", "reduction_indices: Tidx"],
    outputs: &["output: T"],
    attrs: NUMBER_ATTRS,
    shape: reduction_shape,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SUM: Op = Op {
    name: "Sum",
    gradient: Gradient::Fn(sum_grad),
    kernels: kernels![sum_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..REDUCTION
};

static MEAN: Op = Op {
    name: "Mean",
    gradient: Gradient::Fn(mean_grad),
    kernels: kernels![
        mean_kernel: f16, bf16, f32, f64, u64, C64, C128;
        int_mean_kernel: i8, i16, i32, i64, u8, u16, u32
    ],
    ..REDUCTION
};

static PROD: Op = Op {
    name: "Prod",
    gradient: Gradient::Fn(prod_grad),
    kernels: kernels![product_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..REDUCTION
};

static MAX: Op = Op {
    name: "Max",
    gradient: Gradient::Fn(extreme_grad),
    attrs: ORDERED_ATTRS,
    kernels: kernels![max_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    accuracy: Accuracy::Exact,
    ..REDUCTION
};

static MIN: Op = Op {
    name: "Min",
    gradient: Gradient::Fn(extreme_grad),
    attrs: ORDERED_ATTRS,
    kernels: kernels![min_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    accuracy: Accuracy::Exact,
    ..REDUCTION
};

static EUCLIDEAN_NORM: Op = Op {
    name: "EuclideanNorm",
    gradient: Gradient::Fn(euclidean_norm_grad),
    kernels: kernels![
        float_norm_kernel: f16, bf16, f32, f64;
        int_norm_kernel: i8, i16, i32, i64, u8, u16, u32, u64;
        complex_norm_kernel: C64, C128
    ],
    ..REDUCTION
};

const LOGICAL: Op = Op {
    inputs: &["input: bool", "reduction_indices: Tidx"],
    outputs: &["output: bool"],
    attrs: &["keep_dims: bool = false", "Tidx: {int32, int64} = DT_INT32"],
    shape: reduction_shape,
    ..Op::PURE
};

static ALL: Op = Op { name: "All", kernels: kernels![any all_kernel], ..LOGICAL };

static ANY: Op = Op { name: "Any", kernels: kernels![any any_kernel], ..LOGICAL };

/// The input's shape without the reduced axes, or with ones in their place.
fn reduction_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let keep_dims: bool = s.attr("keep_dims")?;
    s.rank_at_most(1, 1)?;
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let Some(axes) = s.constant_i64s(1)? else {
        if keep_dims {
            return s.output(0, vec![UNKNOWN_DIM; dims.len()]);
        }
        return Ok(());
    };
    let mut reduced = vec![false; dims.len()];
    for axis in axes {
        let rank = dims.len() as i64;
        ensure!(
            (-rank..rank).contains(&axis),
            InvalidArgument,
            "Invalid reduction dimension {axis} for input with {rank} dimensions."
        );
        reduced[axis.rem_euclid(rank) as usize] = true;
    }
    s.output(0, kept_dims(dims, &reduced, keep_dims))
}

fn kept_dims(dims: &[i64], reduced: &[bool], keep_dims: bool) -> impl Iterator<Item = i64> {
    dims.iter().zip(reduced).filter_map(move |(dim, reduced)| match (reduced, keep_dims) {
        (false, _) => Some(*dim),
        (true, true) => Some(1),
        (true, false) => None,
    })
}

/// The axes of the first input that the second one names, one flag per axis.
fn reduced_axes(cx: &KernelCx<'_>) -> Result<SmallVec<[bool; 8]>> {
    let (input, axes) = (cx.input(0)?, cx.input(1)?);
    let rank = input.rank() as i64;
    let mut reduced: SmallVec<[bool; 8]> = SmallVec::from_elem(false, input.rank());
    let mut mark = |axis: i64| {
        ensure!(
            (-rank..rank).contains(&axis),
            InvalidArgument,
            "Invalid reduction dimension ({axis} for input with {rank} dimension(s)"
        );
        let axis = axis.rem_euclid(rank) as usize;
        ensure!(
            !reduced[axis],
            InvalidArgument,
            "Invalid reduction arguments: Axes contains duplicate dimension: {axis}"
        );
        reduced[axis] = true;
        Ok(())
    };
    match axes.dtype() {
        DType::Int32 => axes.flat::<i32>()?.iter().try_for_each(|axis| mark(*axis as i64))?,
        _ => axes.flat::<i64>()?.iter().try_for_each(|axis| mark(*axis))?,
    }
    Ok(reduced)
}

/// The shape of the result, and the folds that lead to it.
fn planned(cx: &KernelCx<'_>, keep_dims: bool) -> Result<(Shape, SmallVec<[Axis; 2]>)> {
    let reduced = reduced_axes(cx)?;
    let dims = cx.input(0)?.shape().dims();
    let shape = Shape::new(kept_dims(dims, &reduced, keep_dims))?;
    Ok((shape, plan(dims, &|axis| reduced[axis])))
}

/// A kernel that folds the named axes. `finish`, if any, turns folds of a number of elements into results; without it
/// folding a single element gives that element.
fn reduction<F: Fold>(init: &Init<'_>, finish: Option<Finish<F::Acc>>) -> Result<Kernel> {
    reduction_by(init, Loops::of::<F>(), finish)
}

fn reduction_by<I: Element + Copy, A: Element + Copy>(
    init: &Init<'_>,
    loops: Loops<I, A>,
    finish: Option<Finish<A>>,
) -> Result<Kernel> {
    let keep_dims: bool = init.attr("keep_dims")?;
    Kernel::sync(move |cx| {
        let (shape, axes) = planned(cx, keep_dims)?;
        if axes.is_empty() && finish.is_none() {
            return Ok(cx.take(0)?.reshaped(shape)?.into());
        }
        let mut gathered = cx.alloc::<A>(shape)?;
        let values = gathered.flat_mut::<A>()?;
        loops.fold_planned(cx.threads(), cx.flat::<I>(0)?, &axes, values);
        if let Some(finish) = finish {
            finish(values, axes.iter().map(|axis| axis.n).product());
        }
        Ok(loops.narrowed(cx, gathered)?.into())
    })
}

fn sum_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<Sum<T>>(init, None)
}

fn product_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<Product<T>>(init, None)
}

fn max_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<Greatest<T>>(init, None)
}

fn min_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<Least<T>>(init, None)
}

fn all_kernel(init: &Init<'_>) -> Result<Kernel> {
    reduction::<Every>(init, None)
}

fn any_kernel(init: &Init<'_>) -> Result<Kernel> {
    reduction::<AtLeastOne>(init, None)
}

fn mean_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<Sum<T>>(init, Some(divide::<T::Wide>))
}

fn int_mean_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<IntSum<T>>(init, Some(divide::<i64>))
}

/// Dividing by zero gives NaN for real floats but zero for integers and, as in stock, for complex numbers.
fn divide<T: Num>(sums: &mut [T], n: usize) {
    if n == 0 && T::DTYPE.is_complex() {
        return sums.fill(T::ZERO);
    }
    let n = T::from_f64(n as f64);
    for sum in sums.iter_mut() {
        *sum = sum.div(n);
    }
}

fn float_norm_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel>
where
    T::Wide: num_traits::Float,
{
    // Stock squares half precision in half precision, and rounds the sum to it.
    reduction::<RoundedSquares<T>>(
        init,
        Some(|sums, _| {
            for sum in sums.iter_mut() {
                *sum = num_traits::Float::sqrt(T::narrow(*sum).widen());
            }
        }),
    )
}

fn int_norm_kernel<T: Int<Wide = T>>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<SumOfSquares<T>>(
        init,
        Some(|sums, _| {
            // A sum that wrapped below zero has no root; the processor's conversion makes the least integer of it.
            let none = if matches!(T::DTYPE, DType::Int32 | DType::Int64) { T::LOWEST } else { T::ZERO };
            for sum in sums.iter_mut() {
                let root = sum.to_f64().sqrt();
                *sum = if root.is_nan() { none } else { T::from_f64(root) };
            }
        }),
    )
}

fn complex_norm_kernel<T: Num<Wide = T> + num_complex::ComplexFloat>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<SumOfSquares<T>>(init, Some(|sums, _| sums.iter_mut().for_each(|sum| *sum = sum.sqrt())))
}

fn repeated(g: &GradCx<'_>) -> Result<Output> {
    let s = g.scope();
    ops::broadcast_to(s, unreduced(g, g.dy(0)?), shape_of(s, g.input(0))?)
}

fn sum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(repeated(g)?), None].into())
}

fn mean_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, dx) = (g.scope(), g.input(0), repeated(g)?);
    let dx = match (x.shape().to_shape(), g.output(0)?.shape().to_shape()) {
        (Some(from), Some(to)) => {
            let count = from.elements() / to.elements().max(1);
            ops::real_div(s, dx, count as f64)?
        }
        _ => {
            let shape = ops::shape(s, x)?;
            let axes = wrapped_axes(s, g.input(1), &ops::size(s, &shape)?)?;
            let count = ops::prod(s, ops::gather_v2(s, shape, axes, 0), [0]);
            ops::real_div(s, &dx, ops::cast(s, count, dx.dtype()))?
        }
    };
    Ok([Some(dx), None].into())
}

/// Each element's factor is the product of those before it and those after it, so that zeros need no division.
fn prod_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, dx) = (g.scope(), g.input(0), repeated(g)?);
    let (shape, rank) = (ops::shape(s, x)?, ops::rank(s, x)?);
    let reduced = wrapped_axes(s, g.input(1), &rank)?;
    let others = ops::list_diff(s, ops::range(s, 0, &rank, 1), &reduced)?.out;
    let order = ops::concat_v2(s, [&reduced, &others], 0)?;
    let size = |axes: &Output| ops::prod(s, ops::gather_v2(s, &shape, axes, 0), [0]);
    let permuted = ops::transpose(s, x, &order)?;
    let columns = ops::reshape(s, &permuted, ops::pack(s, [size(&reduced)?, size(&others)?]))?;
    let before = ops::Cumprod::new().exclusive(true).build(s, &columns, 0)?;
    let after = ops::Cumprod::new().exclusive(true).reverse(true).build(s, &columns, 0)?;
    let factors = ops::mul(s, conj(s, &before), conj(s, &after));
    let factors = ops::reshape(s, factors, ops::shape(s, &permuted));
    let factors = ops::transpose(s, factors, ops::invert_permutation(s, &order));
    let dx = ops::reshape(s, ops::mul(s, dx, factors), shape)?;
    Ok([Some(dx), None].into())
}

/// Elements that are equally extreme share what arrives.
fn extreme_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, axes) = (g.scope(), g.input(0), g.input(1));
    let (y, dy) = (unreduced(g, g.output(0)?)?, unreduced(g, g.dy(0)?)?);
    let chosen = ops::cast(s, ops::equal(s, y, x), dy.dtype())?;
    let count = ops::Sum::new().keep_dims(true).build(s, &chosen, axes);
    let dx = ops::mul(s, ops::real_div(s, &chosen, count), dy)?;
    Ok([Some(dx), None].into())
}

fn euclidean_norm_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let (y, dy) = (unreduced(g, g.output(0)?)?, unreduced(g, g.dy(0)?)?);
    let dx = ops::real_div(s, g.input(0), ops::real_div(s, y, dy))?;
    Ok([Some(dx), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn shapes_follow_known_axes() {
        let axes = |axes: Vec<i32>| Tensor::vector(axes);
        Node::new("Sum").constant(1, axes(vec![-1])).infer("[2,?,4];[1]", "[2,?]");
        Node::new("Sum").constant(1, axes(vec![0])).attr("keep_dims", true).infer("[2,3];[1]", "[1,3]");
        Node::new("Sum").attr("keep_dims", true).infer("[2,3];[1]", "[?,?]");
        infer("Sum", "[2,3];[1]", "?");
        let error = Node::new("Sum").constant(1, axes(vec![2])).infer_shapes("[2,3];[1]").unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
    }

    #[test]
    fn half_precision_sums_do_not_saturate() {
        let input = Tensor::new(Shape::matrix(5000, 3), vec![ferroflow_core::f16::ONE; 15000]).unwrap();
        let out = Node::new("Sum").run([input, Tensor::scalar(0i32)]).unwrap();
        assert_eq!(out[0].flat::<ferroflow_core::f16>().unwrap()[0].to_f32(), 5000.0);
    }
}

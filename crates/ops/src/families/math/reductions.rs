//! Reductions over axes: sums, means, products, extremes, norms, and logical all and any.

use crate::build as ops;
use crate::gradient::{shape_of, unreduced};
use crate::linalg::reduce::{AtLeastOne, Every, Finish, Fold, Greatest, IntSum, Least, Product, RoundedSquares, Sum, SumOfSquares, fold_planned, plan};
use crate::numeric::{Float, Int, Num, Real};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
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
    kernels: kernels![
        mean_kernel: f16, bf16, f32, f64, u64, C64, C128;
        int_mean_kernel: i8, i16, i32, i64, u8, u16, u32
    ],
    ..REDUCTION
};

static PROD: Op = Op {
    name: "Prod",
    kernels: kernels![product_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..REDUCTION
};

static MAX: Op = Op {
    name: "Max",
    attrs: ORDERED_ATTRS,
    kernels: kernels![max_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    accuracy: Accuracy::Exact,
    ..REDUCTION
};

static MIN: Op = Op {
    name: "Min",
    attrs: ORDERED_ATTRS,
    kernels: kernels![min_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    accuracy: Accuracy::Exact,
    ..REDUCTION
};

static EUCLIDEAN_NORM: Op = Op {
    name: "EuclideanNorm",
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

/// Which axes of the first input the second one names, one flag per axis.
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

/// A kernel that folds the named axes. `finish`, if any, turns folds of so many elements into results; without it
/// folding a single element gives that element.
fn reduction<F: Fold>(init: &Init<'_>, finish: Option<Finish<F::Acc>>) -> Result<Kernel> {
    let keep_dims: bool = init.attr("keep_dims")?;
    Kernel::sync(move |cx| {
        let reduced = reduced_axes(cx)?;
        let dims = cx.input(0)?.shape().dims();
        let shape = Shape::new(kept_dims(dims, &reduced, keep_dims))?;
        let axes = plan(dims, |axis| reduced[axis]);
        if axes.is_empty() && finish.is_none() {
            return Ok(cx.take(0)?.reshaped(shape)?.into());
        }
        let mut gathered = cx.alloc::<F::Acc>(shape.clone())?;
        let values = gathered.flat_mut::<F::Acc>()?;
        fold_planned::<F>(cx.device(), cx.flat::<F::In>(0)?, &axes, values);
        if let Some(finish) = finish {
            finish(values, axes.iter().map(|axis| axis.n).product());
        }
        if F::Acc::DTYPE == F::In::DTYPE {
            return Ok(gathered.into());
        }
        let mut output = cx.alloc::<F::In>(shape)?;
        output.flat_mut()?.iter_mut().zip(&*values).for_each(|(out, acc)| *out = F::narrow(*acc));
        Ok(output.into())
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
    sums.iter_mut().for_each(|sum| *sum = sum.div(n));
}

fn float_norm_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel>
where
    T::Wide: num_traits::Float,
{
    // Stock squares half precision in half precision, and rounds the sum to it.
    reduction::<RoundedSquares<T>>(
        init,
        Some(|sums, _| {
            sums.iter_mut().for_each(|sum| *sum = num_traits::Float::sqrt(T::narrow(*sum).widen()));
        }),
    )
}

fn int_norm_kernel<T: Int<Wide = T>>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<SumOfSquares<T>>(
        init,
        Some(|sums, _| {
            // A sum that wrapped below zero has no root; the processor's conversion makes the least integer of it.
            let none = if matches!(T::DTYPE, DType::Int32 | DType::Int64) { T::LOWEST } else { T::ZERO };
            sums.iter_mut().for_each(|sum| {
                let root = sum.to_f64().sqrt();
                *sum = if root.is_nan() { none } else { T::from_f64(root) };
            });
        }),
    )
}

fn complex_norm_kernel<T: Num<Wide = T> + num_complex::ComplexFloat>(init: &Init<'_>) -> Result<Kernel> {
    reduction::<SumOfSquares<T>>(init, Some(|sums, _| sums.iter_mut().for_each(|sum| *sum = sum.sqrt())))
}

fn sum_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let dx = ops::broadcast_to(s, unreduced(g, g.dy(0)?), shape_of(s, g.input(0))?)?;
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

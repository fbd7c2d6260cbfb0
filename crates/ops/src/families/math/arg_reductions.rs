//! The position of the greatest or least element along an axis. The first of equals wins, and NaN never does.

use crate::linalg::reduce::{Axis, Fold, fold_row};
use crate::numeric::Real;
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bf16, ensure, f16, kernels};
use std::marker::PhantomData;

pub(crate) const OPS: &[&Op] = &[&ARG_MAX, &ARG_MIN];

const T: &str = "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8, \
                 quint8, qint32, qint16, quint16, bool}";

static ARG_MAX: Op = Op {
    name: "ArgMax",
    gradient: Gradient::Stop,
    inputs: &["input: T", "dimension: Tidx"],
    outputs: &["output: output_type"],
    attrs: &[
        T,
        "Tidx: {int16, int32, int64} = DT_INT32",
        "output_type: {int16, uint16, int32, int64} = DT_INT64",
    ],
    shape: arg_shape,
    kernels: kernels![
        arg_max_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64;
        arg_max_bool_kernel: bool
    ],
    ..Op::PURE
};

static ARG_MIN: Op = Op {
    name: "ArgMin",
    gradient: Gradient::Stop,
    inputs: &["input: T", "dimension: Tidx"],
    outputs: &["output: output_type"],
    attrs: &[T, "Tidx: {int32, int64} = DT_INT32", "output_type: {int32, int64} = DT_INT64"],
    shape: arg_shape,
    kernels: kernels![
        arg_min_kernel: f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64;
        arg_min_bool_kernel: bool
    ],
    ..Op::PURE
};

fn arg_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 0)?;
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    if dims.len() <= 1 {
        s.set(0, PartialShape::scalar());
        return Ok(());
    }
    let Some(axis) = s.constant_i64(1)? else {
        return s.output(0, vec![UNKNOWN_DIM; dims.len() - 1]);
    };
    let rank = dims.len() as i64;
    ensure!(
        (-rank..rank).contains(&axis),
        InvalidArgument,
        "Dimension ({axis}) must be in the range [{}, {rank}), where {rank} is the number of dimensions in the input.",
        -rank
    );
    let axis = axis.rem_euclid(rank) as usize;
    let kept = dims.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, dim)| *dim);
    let shape = PartialShape::new(kept)?;
    s.set(0, shape);
    Ok(())
}

/// A fold that keeps the better of two elements and passes NaN over.
trait Best: Fold<In = Self::Element, Acc = Self::Element> {
    type Element: Real;
    fn is_better(new: Self::Element, old: Self::Element) -> bool;
}

macro_rules! best {
    ($($name:ident, $worst:ident, $better:tt;)+) => {$(
        struct $name<T>(PhantomData<T>);
        impl<T: Real> Fold for $name<T> {
            type In = T;
            type Acc = T;
            type Again = $name<T>;
            #[inline(always)]
            fn identity() -> T {
                T::$worst
            }
            #[inline(always)]
            fn lift(x: T) -> T {
                x
            }
            #[inline(always)]
            fn join(a: T, b: T) -> T {
                if b $better a { b } else { a }
            }
            #[inline(always)]
            fn narrow(x: T) -> T {
                x
            }
        }
        impl<T: Real> Best for $name<T> {
            type Element = T;
            #[inline(always)]
            fn is_better(new: T, old: T) -> bool {
                new $better old
            }
        }
    )+};
}
// Stock's search begins at the first place with the worst finite value, so that nothing worse is ever found.
best! {
    Peak, LEAST, >;
    Pit, GREATEST, <;
}

fn arg_max_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, axis, out| positions::<Peak<T>>(cx.threads(), cx.flat::<T>(0)?, axis, out))
}

fn arg_min_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, axis, out| positions::<Pit<T>>(cx.threads(), cx.flat::<T>(0)?, axis, out))
}

#[expect(clippy::extra_unused_type_parameters, reason = "kernel tables name a type for every row")]
fn arg_max_bool_kernel<T>(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, axis, out| positions::<Peak<u8>>(cx.threads(), cx.input(0)?.units::<u8>()?, axis, out))
}

#[expect(clippy::extra_unused_type_parameters, reason = "kernel tables name a type for every row")]
fn arg_min_bool_kernel<T>(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, axis, out| positions::<Pit<u8>>(cx.threads(), cx.input(0)?.units::<u8>()?, axis, out))
}

type Find = fn(&KernelCx<'_>, Axis, &mut [i64]) -> Result<()>;

fn kernel(init: &Init<'_>, find: Find) -> Result<Kernel> {
    let output_type: DType = init.attr("output_type")?;
    Kernel::sync(move |cx| run(cx, output_type, find))
}

fn run(cx: &KernelCx<'_>, output_type: DType, find: Find) -> Result<Outputs> {
    let (input, dimension) = (cx.input(0)?, cx.input(1)?);
    ensure!(
        dimension.rank() == 0,
        InvalidArgument,
        "dim must be a scalar, but received tensor of shape: {}",
        dimension.shape()
    );
    let (axis, rank) = (cx.scalar_i64(1)?, input.rank() as i64);
    ensure!(
        (-rank..rank).contains(&axis),
        InvalidArgument,
        "Expected dimension in the range [{}, {rank}), but got {axis}",
        -rank
    );
    let axis = axis.rem_euclid(rank) as usize;
    let dims = input.shape().dims();
    ensure!(dims[axis] > 0, InvalidArgument, "Reduction axis {axis} is empty in shape {}", input.shape());
    let shape = Shape::new(dims.iter().enumerate().filter(|(at, _)| *at != axis).map(|(_, dim)| *dim))?;
    let product = |dims: &[i64]| dims.iter().product::<i64>() as usize;
    let axis =
        Axis { outer: product(&dims[..axis]), n: dims[axis] as usize, inner: product(&dims[axis + 1..]) };
    let mut found = cx.alloc::<i64>(shape.clone())?;
    find(cx, axis, found.flat_mut()?)?;
    let found_values = found.flat::<i64>()?;
    Ok(match output_type {
        DType::Int32 => Tensor::new(shape, found_values.iter().map(|at| *at as i32).collect())?,
        DType::Int16 => Tensor::new(shape, found_values.iter().map(|at| *at as i16).collect())?,
        DType::Uint16 => Tensor::new(shape, found_values.iter().map(|at| *at as u16).collect())?,
        _ => found,
    }
    .into())
}

fn positions<B: Best>(threads: Threads<'_>, input: &[B::Element], axis: Axis, out: &mut [i64]) -> Result<()> {
    let Axis { n, inner, .. } = axis;
    threads.parallel_rows(out, inner, n, |first, rows| {
        let mut best = vec![B::identity(); if inner == 1 { 0 } else { inner }];
        for (row, out) in rows.chunks_mut(inner).enumerate() {
            let from = (first + row) * n * inner;
            let block = &input[from..from + n * inner];
            if inner == 1 {
                let best = fold_row::<B>(block);
                let is_found = B::is_better(best, B::identity());
                let at = if is_found { block.iter().position(|x| *x == best) } else { None };
                out[0] = at.unwrap_or(0) as i64;
                continue;
            }
            best.fill(B::identity());
            out.fill(0);
            for (at, elements) in block.chunks_exact(inner).enumerate() {
                for ((best, out), x) in best.iter_mut().zip(out.iter_mut()).zip(elements) {
                    let better = B::is_better(*x, *best);
                    *best = if better { *x } else { *best };
                    *out = if better { at as i64 } else { *out };
                }
            }
        }
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::Tensor;

    #[test]
    fn the_axis_disappears() {
        infer("ArgMax", "[2,3];[]", "[?]");
        infer("ArgMax", "[2];[]", "[]");
        Node::new("ArgMin").constant(1, Tensor::scalar(-1i32)).infer("[2,3];[]", "[2]");
    }

    #[test]
    fn nothing_but_nan_gives_the_first_position() {
        let input = Tensor::vector(vec![f32::NAN; 40]);
        let out = Node::new("ArgMax").run([input, Tensor::scalar(0i32)]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [0]);
    }
}

//! Products of vectors in space.

use crate::builders as ops;
use crate::numeric::Num;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::{Result, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&CROSS];

static CROSS: Op = Op {
    name: "Cross",
    gradient: Gradient::Fn(cross_grad),
    inputs: &["a: T", "b: T"],
    outputs: &["product: T"],
    attrs: &["T: realnumbertype"],
    shape: cross_shape,
    kernels: kernels![cross: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

fn cross_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank_at_least(0, 1)?;
    s.rank_at_least(1, 1)?;
    let shape = s.merge(&s.input(0), &s.input(1))?;
    if let Some(last) = shape.dims().and_then(<[i64]>::last) {
        s.merge_dims(*last, 3)?;
    }
    s.set(0, shape);
    Ok(())
}

fn cross<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (a, b) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            a.shape() == b.shape(),
            InvalidArgument,
            "Both inputs must be of same shape: {} vs. {}",
            a.shape(),
            b.shape()
        );
        ensure!(a.rank() >= 1, InvalidArgument, "Input must be at least 1D{}", a.shape());
        ensure!(
            a.shape().dim(a.rank() - 1) == 3,
            FailedPrecondition,
            "Cross-products are only defined for 3-element vectors."
        );
        let mut out = cx.alloc::<T>(a.shape().clone())?;
        let vectors = a.flat::<T>()?.chunks_exact(3).zip(b.flat::<T>()?.chunks_exact(3));
        for (out, (u, v)) in out.flat_mut::<T>()?.chunks_exact_mut(3).zip(vectors) {
            for (i, out) in out.iter_mut().enumerate() {
                let (j, k) = ((i + 1) % 3, (i + 2) % 3);
                *out = u[j].mul(v[k]).sub(u[k].mul(v[j]));
            }
        }
        Ok(out.into())
    })
}

fn cross_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    Ok([ops::cross(s, g.input(1), &dy)?, ops::cross(s, &dy, g.input(0))?].into())
}

//! Plain and proximal gradient descent.

use crate::numeric::{Float, Num};
use crate::support::optimizer::{
    Layout, REF_UPDATE, RESOURCE_UPDATE, SPARSE_REF_UPDATE, SPARSE_RESOURCE_UPDATE,
};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::Op;
use ferroflow_core::{C64, C128, Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &APPLY_GRADIENT_DESCENT,
    &RESOURCE_APPLY_GRADIENT_DESCENT,
    &APPLY_PROXIMAL_GRADIENT_DESCENT,
    &RESOURCE_APPLY_PROXIMAL_GRADIENT_DESCENT,
    &SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT,
    &RESOURCE_SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT,
];

static APPLY_GRADIENT_DESCENT: Op = Op {
    name: "ApplyGradientDescent",
    inputs: &["var: Ref(T)", "alpha: T", "delta: T"],
    kernels: kernels![plain_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_GRADIENT_DESCENT: Op = Op {
    name: "ResourceApplyGradientDescent",
    inputs: &["var: resource", "alpha: T", "delta: T"],
    kernels: kernels![plain_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static APPLY_PROXIMAL_GRADIENT_DESCENT: Op = Op {
    name: "ApplyProximalGradientDescent",
    inputs: &["var: Ref(T)", "alpha: T", "l1: T", "l2: T", "delta: T"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_PROXIMAL_GRADIENT_DESCENT: Op = Op {
    name: "ResourceApplyProximalGradientDescent",
    inputs: &["var: resource", "alpha: T", "l1: T", "l2: T", "delta: T"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT: Op = Op {
    name: "SparseApplyProximalGradientDescent",
    inputs: &["var: Ref(T)", "alpha: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_PROXIMAL_GRADIENT_DESCENT: Op = Op {
    name: "ResourceSparseApplyProximalGradientDescent",
    inputs: &["var: resource", "alpha: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..SPARSE_RESOURCE_UPDATE
};

fn plain_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var"], 1).naming_gradient("delta");
    Kernel::sync(move |cx| {
        let alpha: T = layout.before(cx, 0, "alpha")?;
        layout.apply::<T>(cx, |[var], g| [var.sub(g.mul(alpha))])
    })
}

fn proximal_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var"], 3).naming_gradient("delta").refusing_empty_rows();
    Kernel::sync(move |cx| {
        let alpha: T = layout.before(cx, 0, "alpha")?;
        let l1: T = layout.before(cx, 1, "l1")?;
        let l2: T = layout.before(cx, 2, "l2")?;
        layout.apply::<T>(cx, |[var], g| [proximal(var.sub(g.mul(alpha)), alpha, l1, l2)])
    })
}

/// The proximal operator of `l1·|x| + l2/2·x²` for a step of this rate.
#[inline(always)]
pub(crate) fn proximal<T: Float>(point: T, rate: T, l1: T, l2: T) -> T {
    let shrunk =
        if l1 > T::ZERO { point.sign().mul(point.abs().sub(rate.mul(l1)).maximum(T::ZERO)) } else { point };
    shrunk.div(T::ONE.add(rate.mul(l2)))
}

//! Updates whose size depends on whether the gradient and its average agree in sign.

use crate::numeric::Float;
use crate::support::optimizer::{Layout, REF_UPDATE, RESOURCE_UPDATE, exponential};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::Op;
use ferroflow_core::{Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] =
    &[&APPLY_ADD_SIGN, &RESOURCE_APPLY_ADD_SIGN, &APPLY_POWER_SIGN, &RESOURCE_APPLY_POWER_SIGN];

static APPLY_ADD_SIGN: Op = Op {
    name: "ApplyAddSign",
    inputs: &["var: Ref(T)", "m: Ref(T)", "lr: T", "alpha: T", "sign_decay: T", "beta: T", "grad: T"],
    kernels: kernels![add_sign_kernel: bf16, f16, f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_ADD_SIGN: Op = Op {
    name: "ResourceApplyAddSign",
    inputs: &["var: resource", "m: resource", "lr: T", "alpha: T", "sign_decay: T", "beta: T", "grad: T"],
    kernels: kernels![add_sign_kernel: bf16, f16, f32, f64],
    ..RESOURCE_UPDATE
};

static APPLY_POWER_SIGN: Op = Op {
    name: "ApplyPowerSign",
    inputs: &["var: Ref(T)", "m: Ref(T)", "lr: T", "logbase: T", "sign_decay: T", "beta: T", "grad: T"],
    kernels: kernels![power_sign_kernel: bf16, f16, f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_POWER_SIGN: Op = Op {
    name: "ResourceApplyPowerSign",
    inputs: &["var: resource", "m: resource", "lr: T", "logbase: T", "sign_decay: T", "beta: T", "grad: T"],
    kernels: kernels![power_sign_kernel: bf16, f16, f32, f64],
    ..RESOURCE_UPDATE
};

fn add_sign_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    sign_kernel(init, "alpha", |alpha: T, agreement| alpha.add(agreement))
}

fn power_sign_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    sign_kernel(init, "logbase", |base: T, agreement| exponential(base.mul(agreement)))
}

fn sign_kernel<T: Float>(
    init: &Init<'_>,
    parameter: &'static str,
    factor: impl Fn(T, T) -> T + Send + Sync + 'static,
) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "m"], 4);
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let parameter: T = layout.before(cx, 1, parameter)?;
        let sign_decay: T = layout.before(cx, 2, "sign_decay")?;
        let beta: T = layout.before(cx, 3, "beta")?;
        layout.apply::<T>(cx, |[var, m], g| {
            let m = m.mul(beta).add(g.mul(T::ONE.sub(beta)));
            let agreement = sign_decay.mul(g.sign().mul(m.sign()));
            [var.sub(lr.mul(factor(parameter, agreement)).mul(g)), m]
        })
    })
}

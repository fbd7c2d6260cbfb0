//! Momentum, in TensorFlow's form and in Keras', which keeps the learning rate in the accumulator.

use crate::numeric::Num;
use crate::support::optimizer::{
    Layout, REF_UPDATE, RESOURCE_UPDATE, SPARSE_REF_UPDATE, SPARSE_RESOURCE_UPDATE,
};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::Op;
use ferroflow_core::{C64, C128, Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &APPLY_MOMENTUM,
    &RESOURCE_APPLY_MOMENTUM,
    &SPARSE_APPLY_MOMENTUM,
    &RESOURCE_SPARSE_APPLY_MOMENTUM,
    &RESOURCE_APPLY_KERAS_MOMENTUM,
    &RESOURCE_SPARSE_APPLY_KERAS_MOMENTUM,
];

static APPLY_MOMENTUM: Op = Op {
    name: "ApplyMomentum",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "momentum: T"],
    attrs: &["T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false"],
    kernels: kernels![momentum_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_MOMENTUM: Op = Op {
    name: "ResourceApplyMomentum",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "momentum: T"],
    attrs: &["T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false"],
    kernels: kernels![momentum_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_MOMENTUM: Op = Op {
    name: "SparseApplyMomentum",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "indices: Tindices", "momentum: T"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "use_nesterov: bool = false",
    ],
    kernels: kernels![momentum_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_MOMENTUM: Op = Op {
    name: "ResourceSparseApplyMomentum",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "indices: Tindices", "momentum: T"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "use_nesterov: bool = false",
    ],
    kernels: kernels![momentum_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_RESOURCE_UPDATE
};

static RESOURCE_APPLY_KERAS_MOMENTUM: Op = Op {
    name: "ResourceApplyKerasMomentum",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "momentum: T"],
    attrs: &["T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false"],
    kernels: kernels![keras_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static RESOURCE_SPARSE_APPLY_KERAS_MOMENTUM: Op = Op {
    name: "ResourceSparseApplyKerasMomentum",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "indices: Tindices", "momentum: T"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "use_nesterov: bool = false",
    ],
    kernels: kernels![keras_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_RESOURCE_UPDATE
};

fn momentum_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum"], 1);
    let nesterov: bool = init.attr("use_nesterov")?;
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let momentum: T = layout.after(cx, 0, "momentum")?;
        if nesterov {
            return layout.apply::<T>(cx, |[var, accum], g| {
                let accum = accum.mul(momentum).add(g);
                [var.sub(g.mul(lr).add(accum.mul(momentum).mul(lr))), accum]
            });
        }
        layout.apply::<T>(cx, |[var, accum], g| {
            let accum = accum.mul(momentum).add(g);
            [var.sub(accum.mul(lr)), accum]
        })
    })
}

fn keras_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum"], 1);
    let nesterov: bool = init.attr("use_nesterov")?;
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let momentum: T = layout.after(cx, 0, "momentum")?;
        if nesterov {
            return layout.apply::<T>(cx, |[var, accum], g| {
                let accum = accum.mul(momentum).sub(g.mul(lr));
                [var.add(accum.mul(momentum).sub(g.mul(lr))), accum]
            });
        }
        layout.apply::<T>(cx, |[var, accum], g| {
            let accum = accum.mul(momentum).sub(g.mul(lr));
            [var.add(accum), accum]
        })
    })
}

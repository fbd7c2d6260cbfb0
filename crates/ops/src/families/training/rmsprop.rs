//! RMSProp, plain and centered, and Adadelta.

use crate::support::optimizer::{
    Layout, REF_UPDATE, RESOURCE_UPDATE, SPARSE_REF_UPDATE, SPARSE_RESOURCE_UPDATE, Trained,
};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::Op;
use ferroflow_core::{C64, C128, Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &APPLY_RMS_PROP,
    &RESOURCE_APPLY_RMS_PROP,
    &SPARSE_APPLY_RMS_PROP,
    &RESOURCE_SPARSE_APPLY_RMS_PROP,
    &APPLY_CENTERED_RMS_PROP,
    &RESOURCE_APPLY_CENTERED_RMS_PROP,
    &SPARSE_APPLY_CENTERED_RMS_PROP,
    &RESOURCE_SPARSE_APPLY_CENTERED_RMS_PROP,
    &APPLY_ADADELTA,
    &RESOURCE_APPLY_ADADELTA,
    &SPARSE_APPLY_ADADELTA,
    &RESOURCE_SPARSE_APPLY_ADADELTA,
];

static APPLY_RMS_PROP: Op = Op {
    name: "ApplyRMSProp",
    inputs: &[
        "var: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![rms_prop_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_RMS_PROP: Op = Op {
    name: "ResourceApplyRMSProp",
    inputs: &[
        "var: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![rms_prop_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_RMS_PROP: Op = Op {
    name: "SparseApplyRMSProp",
    inputs: &[
        "var: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    kernels: kernels![rms_prop_kernel: f16, f32, f64, C64, C128],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_RMS_PROP: Op = Op {
    name: "ResourceSparseApplyRMSProp",
    inputs: &[
        "var: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    kernels: kernels![rms_prop_kernel: f16, f32, f64, C64, C128],
    ..SPARSE_RESOURCE_UPDATE
};

static APPLY_CENTERED_RMS_PROP: Op = Op {
    name: "ApplyCenteredRMSProp",
    inputs: &[
        "var: Ref(T)",
        "mg: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![centered_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_CENTERED_RMS_PROP: Op = Op {
    name: "ResourceApplyCenteredRMSProp",
    inputs: &[
        "var: resource",
        "mg: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![centered_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_CENTERED_RMS_PROP: Op = Op {
    name: "SparseApplyCenteredRMSProp",
    inputs: &[
        "var: Ref(T)",
        "mg: Ref(T)",
        "ms: Ref(T)",
        "mom: Ref(T)",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    kernels: kernels![centered_kernel: f16, f32, f64, C64, C128],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_CENTERED_RMS_PROP: Op = Op {
    name: "ResourceSparseApplyCenteredRMSProp",
    inputs: &[
        "var: resource",
        "mg: resource",
        "ms: resource",
        "mom: resource",
        "lr: T",
        "rho: T",
        "momentum: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    kernels: kernels![centered_kernel: f16, f32, f64, C64, C128],
    ..SPARSE_RESOURCE_UPDATE
};

static APPLY_ADADELTA: Op = Op {
    name: "ApplyAdadelta",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "accum_update: Ref(T)",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![adadelta_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_ADADELTA: Op = Op {
    name: "ResourceApplyAdadelta",
    inputs: &[
        "var: resource",
        "accum: resource",
        "accum_update: resource",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![adadelta_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_ADADELTA: Op = Op {
    name: "SparseApplyAdadelta",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "accum_update: Ref(T)",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    kernels: kernels![adadelta_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_ADADELTA: Op = Op {
    name: "ResourceSparseApplyAdadelta",
    inputs: &[
        "var: resource",
        "accum: resource",
        "accum_update: resource",
        "lr: T",
        "rho: T",
        "epsilon: T",
        "grad: T",
        "indices: Tindices",
    ],
    kernels: kernels![adadelta_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_RESOURCE_UPDATE
};

/// In which order the parts of an update are computed, which matters where differences are small: stock's dense and sparse
/// versions differ in it.
struct Form<T> {
    is_sparse: bool,
    rho: T,
    lr: T,
}

impl<T: Trained> Form<T> {
    #[inline(always)]
    fn average(&self, old: T, new: T) -> T {
        let rest = T::ONE.sub(self.rho);
        if self.is_sparse { old.mul(self.rho).add(new.mul(rest)) } else { old.add(new.sub(old).mul(rest)) }
    }

    #[inline(always)]
    fn step(&self, g: T, variance: T) -> T {
        if self.is_sparse {
            variance.rsqrt().mul(self.lr).mul(g)
        } else {
            g.mul(self.lr).div(variance.sqrt())
        }
    }
}

fn rms_prop_kernel<T: Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "ms", "mom"], 4);
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let rho: T = layout.before(cx, 1, "rho")?;
        let momentum: T = layout.before(cx, 2, "momentum")?;
        let epsilon: T = layout.before(cx, 3, "epsilon")?;
        let form = Form { is_sparse: layout.is_sparse(), rho, lr };
        layout.apply::<T>(cx, |[var, ms, mom], g| {
            let ms = form.average(ms, g.mul(g));
            let mom = mom.mul(momentum).add(form.step(g, ms.add(epsilon)));
            [var.sub(mom), ms, mom]
        })
    })
}

fn centered_kernel<T: Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "mg", "ms", "mom"], 4);
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let rho: T = layout.before(cx, 1, "rho")?;
        let momentum: T = layout.before(cx, 2, "momentum")?;
        let epsilon: T = layout.before(cx, 3, "epsilon")?;
        let form = Form { is_sparse: layout.is_sparse(), rho, lr };
        layout.apply::<T>(cx, |[var, mg, ms, mom], g| {
            let ms = form.average(ms, g.mul(g));
            let mg = form.average(mg, g);
            let variance = if form.is_sparse {
                ms.add(epsilon).sub(mg.mul(mg))
            } else {
                ms.sub(mg.mul(mg)).add(epsilon)
            };
            let mom = mom.mul(momentum).add(form.step(g, variance));
            [var.sub(mom), mg, ms, mom]
        })
    })
}

fn adadelta_kernel<T: Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum", "accum_update"], 3);
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let rho: T = layout.before(cx, 1, "rho")?;
        let epsilon: T = layout.before(cx, 2, "epsilon")?;
        let rest = T::ONE.sub(rho);
        layout.apply::<T>(cx, |[var, accum, updates], g| {
            let accum = accum.mul(rho).add(g.mul(g).mul(rest));
            // By the reciprocal, as in stock: the difference to a quotient adds up in 16 bits.
            let step = updates.add(epsilon).sqrt().mul(accum.add(epsilon).rsqrt()).mul(g);
            [var.sub(step.mul(lr)), accum, updates.mul(rho).add(step.mul(step).mul(rest))]
        })
    })
}

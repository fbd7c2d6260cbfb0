//! Adagrad: with and without epsilon, proximal, and by dual averaging.

use super::gradient_descent::proximal;
use crate::numeric::Float;
use crate::support::optimizer::{
    Layout, REF_UPDATE, RESOURCE_UPDATE, SPARSE_REF_UPDATE, SPARSE_RESOURCE_UPDATE, Trained,
};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::Op;
use ferroflow_core::{C64, C128, Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &APPLY_ADAGRAD,
    &RESOURCE_APPLY_ADAGRAD,
    &SPARSE_APPLY_ADAGRAD,
    &RESOURCE_SPARSE_APPLY_ADAGRAD,
    &APPLY_ADAGRAD_V2,
    &RESOURCE_APPLY_ADAGRAD_V2,
    &SPARSE_APPLY_ADAGRAD_V2,
    &RESOURCE_SPARSE_APPLY_ADAGRAD_V2,
    &APPLY_PROXIMAL_ADAGRAD,
    &RESOURCE_APPLY_PROXIMAL_ADAGRAD,
    &SPARSE_APPLY_PROXIMAL_ADAGRAD,
    &RESOURCE_SPARSE_APPLY_PROXIMAL_ADAGRAD,
    &APPLY_ADAGRAD_DA,
    &RESOURCE_APPLY_ADAGRAD_DA,
    &SPARSE_APPLY_ADAGRAD_DA,
    &RESOURCE_SPARSE_APPLY_ADAGRAD_DA,
];

static APPLY_ADAGRAD: Op = Op {
    name: "ApplyAdagrad",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T"],
    attrs: &["T: numbertype", "use_locking: bool = false", "update_slots: bool = true"],
    kernels: kernels![adagrad_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_ADAGRAD: Op = Op {
    name: "ResourceApplyAdagrad",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T"],
    attrs: &["T: numbertype", "use_locking: bool = false", "update_slots: bool = true"],
    kernels: kernels![adagrad_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_ADAGRAD: Op = Op {
    name: "SparseApplyAdagrad",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "grad: T", "indices: Tindices"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "update_slots: bool = true",
    ],
    kernels: kernels![adagrad_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_ADAGRAD: Op = Op {
    name: "ResourceSparseApplyAdagrad",
    inputs: &["var: resource", "accum: resource", "lr: T", "grad: T", "indices: Tindices"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "update_slots: bool = true",
    ],
    kernels: kernels![adagrad_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_RESOURCE_UPDATE
};

static APPLY_ADAGRAD_V2: Op = Op {
    name: "ApplyAdagradV2",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "epsilon: T", "grad: T"],
    attrs: &["T: numbertype", "use_locking: bool = false", "update_slots: bool = true"],
    kernels: kernels![adagrad_v2_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_ADAGRAD_V2: Op = Op {
    name: "ResourceApplyAdagradV2",
    inputs: &["var: resource", "accum: resource", "lr: T", "epsilon: T", "grad: T"],
    attrs: &["T: numbertype", "use_locking: bool = false", "update_slots: bool = true"],
    kernels: kernels![adagrad_v2_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_ADAGRAD_V2: Op = Op {
    name: "SparseApplyAdagradV2",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "epsilon: T", "grad: T", "indices: Tindices"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "update_slots: bool = true",
    ],
    kernels: kernels![adagrad_v2_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_ADAGRAD_V2: Op = Op {
    name: "ResourceSparseApplyAdagradV2",
    inputs: &["var: resource", "accum: resource", "lr: T", "epsilon: T", "grad: T", "indices: Tindices"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "update_slots: bool = true",
    ],
    kernels: kernels![adagrad_v2_kernel: bf16, f16, f32, f64, C64, C128],
    ..SPARSE_RESOURCE_UPDATE
};

static APPLY_PROXIMAL_ADAGRAD: Op = Op {
    name: "ApplyProximalAdagrad",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "l1: T", "l2: T", "grad: T"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_PROXIMAL_ADAGRAD: Op = Op {
    name: "ResourceApplyProximalAdagrad",
    inputs: &["var: resource", "accum: resource", "lr: T", "l1: T", "l2: T", "grad: T"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_PROXIMAL_ADAGRAD: Op = Op {
    name: "SparseApplyProximalAdagrad",
    inputs: &["var: Ref(T)", "accum: Ref(T)", "lr: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_PROXIMAL_ADAGRAD: Op = Op {
    name: "ResourceSparseApplyProximalAdagrad",
    inputs: &["var: resource", "accum: resource", "lr: T", "l1: T", "l2: T", "grad: T", "indices: Tindices"],
    kernels: kernels![proximal_kernel: f32, f64],
    ..SPARSE_RESOURCE_UPDATE
};

static APPLY_ADAGRAD_DA: Op = Op {
    name: "ApplyAdagradDA",
    inputs: &[
        "var: Ref(T)",
        "gradient_accumulator: Ref(T)",
        "gradient_squared_accumulator: Ref(T)",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    kernels: kernels![dual_averaging_kernel: f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_ADAGRAD_DA: Op = Op {
    name: "ResourceApplyAdagradDA",
    inputs: &[
        "var: resource",
        "gradient_accumulator: resource",
        "gradient_squared_accumulator: resource",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    kernels: kernels![dual_averaging_kernel: f32, f64],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_ADAGRAD_DA: Op = Op {
    name: "SparseApplyAdagradDA",
    inputs: &[
        "var: Ref(T)",
        "gradient_accumulator: Ref(T)",
        "gradient_squared_accumulator: Ref(T)",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    kernels: kernels![dual_averaging_kernel: f32, f64],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_ADAGRAD_DA: Op = Op {
    name: "ResourceSparseApplyAdagradDA",
    inputs: &[
        "var: resource",
        "gradient_accumulator: resource",
        "gradient_squared_accumulator: resource",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "global_step: int64",
    ],
    kernels: kernels![dual_averaging_kernel: f32, f64],
    ..SPARSE_RESOURCE_UPDATE
};

fn adagrad_kernel<T: Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum"], 1).refusing_empty_rows();
    let update_slots: bool = init.attr("update_slots")?;
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let new = move |accum: T, g: T| if update_slots { accum.add(g.mul(g)) } else { accum };
        // Stock divides where rows have one element, and multiplies everywhere else.
        if layout.is_sparse() && layout.row_width(cx)? == 1 {
            return layout.apply::<T>(cx, move |[var, accum], g| {
                let accum = new(accum, g);
                [var.sub(g.mul(lr).div(accum.sqrt())), accum]
            });
        }
        layout.apply::<T>(cx, move |[var, accum], g| {
            let accum = new(accum, g);
            [var.sub(g.mul(lr).mul(accum.rsqrt())), accum]
        })
    })
}

fn adagrad_v2_kernel<T: Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum"], 2).refusing_empty_rows();
    let update_slots: bool = init.attr("update_slots")?;
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let epsilon: T = layout.before(cx, 1, "epsilon")?;
        layout.apply::<T>(cx, |[var, accum], g| {
            let accum = if update_slots { accum.add(g.mul(g)) } else { accum };
            [var.sub(g.mul(lr).div(accum.sqrt().add(epsilon))), accum]
        })
    })
}

fn proximal_kernel<T: Float + Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum"], 3).refusing_empty_rows();
    Kernel::sync(move |cx| {
        let lr: T = layout.before(cx, 0, "lr")?;
        let l1: T = layout.before(cx, 1, "l1")?;
        let l2: T = layout.before(cx, 2, "l2")?;
        layout.apply::<T>(cx, |[var, accum], g| {
            let accum = accum.add(g.mul(g));
            let rate = lr.div(accum.sqrt());
            [proximal(var.sub(g.mul(rate)), rate, l1, l2), accum]
        })
    })
}

fn dual_averaging_kernel<T: Float + Trained>(init: &Init<'_>) -> Result<Kernel> {
    let roles = ["var", "gradient_accumulator", "gradient_squared_accumulator"];
    let layout = Layout::new(init, roles, 0).refusing_empty_rows();
    Kernel::sync(move |cx| {
        let lr: T = layout.after(cx, 0, "lr")?;
        let l1: T = layout.after(cx, 1, "l1")?;
        let l2: T = layout.after(cx, 2, "l2")?;
        let step = T::from_f64(layout.after::<i64>(cx, 3, "global_step")? as f64);
        // Stock squares in double precision where rows have one element.
        let is_wide = layout.is_sparse() && layout.row_width(cx)? == 1;
        let square = |squares: T, g: T| {
            if is_wide {
                T::from_f64(squares.to_f64() + g.to_f64() * g.to_f64())
            } else {
                squares.add(g.mul(g))
            }
        };
        layout.apply::<T>(cx, |[_, sum, squares], g| {
            let (sum, squares) = (sum.add(g), square(squares, g));
            let shrunk =
                if l1 > T::ZERO { sum.sign().mul(sum.abs().sub(step.mul(l1)).maximum(T::ZERO)) } else { sum };
            let scale = l2.mul(step).mul(lr).add(squares.sqrt());
            [lr.neg().mul(shrunk).div(scale), sum, squares]
        })
    })
}

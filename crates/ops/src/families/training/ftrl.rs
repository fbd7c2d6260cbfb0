//! FTRL-proximal: "follow the regularized leader".

use crate::numeric::Float;
use crate::optimizer::{
    Layout, REF_UPDATE, RESOURCE_UPDATE, SPARSE_REF_UPDATE, SPARSE_RESOURCE_UPDATE, power,
};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::Op;
use ferroflow_core::{Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &APPLY_FTRL,
    &RESOURCE_APPLY_FTRL,
    &SPARSE_APPLY_FTRL,
    &RESOURCE_SPARSE_APPLY_FTRL,
    &APPLY_FTRL_V2,
    &RESOURCE_APPLY_FTRL_V2,
    &SPARSE_APPLY_FTRL_V2,
    &RESOURCE_SPARSE_APPLY_FTRL_V2,
];

static APPLY_FTRL: Op = Op {
    name: "ApplyFtrl",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &["T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false"],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_FTRL: Op = Op {
    name: "ResourceApplyFtrl",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &["T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false"],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_FTRL: Op = Op {
    name: "SparseApplyFtrl",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "multiply_linear_by_lr: bool = false",
    ],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_FTRL: Op = Op {
    name: "ResourceSparseApplyFtrl",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "lr_power: T",
    ],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "multiply_linear_by_lr: bool = false",
    ],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..SPARSE_RESOURCE_UPDATE
};

static APPLY_FTRL_V2: Op = Op {
    name: "ApplyFtrlV2",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &["T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false"],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_FTRL_V2: Op = Op {
    name: "ResourceApplyFtrlV2",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &["T: numbertype", "use_locking: bool = false", "multiply_linear_by_lr: bool = false"],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..RESOURCE_UPDATE
};

static SPARSE_APPLY_FTRL_V2: Op = Op {
    name: "SparseApplyFtrlV2",
    inputs: &[
        "var: Ref(T)",
        "accum: Ref(T)",
        "linear: Ref(T)",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "multiply_linear_by_lr: bool = false",
    ],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..SPARSE_REF_UPDATE
};

static RESOURCE_SPARSE_APPLY_FTRL_V2: Op = Op {
    name: "ResourceSparseApplyFtrlV2",
    inputs: &[
        "var: resource",
        "accum: resource",
        "linear: resource",
        "grad: T",
        "indices: Tindices",
        "lr: T",
        "l1: T",
        "l2: T",
        "l2_shrinkage: T",
        "lr_power: T",
    ],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "multiply_linear_by_lr: bool = false",
    ],
    kernels: kernels![ftrl_kernel: bf16, f16, f32, f64],
    ..SPARSE_RESOURCE_UPDATE
};

/// The second version adds an L2 penalty to the gradient ("shrinkage"); the first is the second without it.
fn ftrl_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum", "linear"], 0).refusing_empty_rows();
    let has_shrinkage = init.op.ends_with("V2");
    let linear_times_lr: bool = init.attr("multiply_linear_by_lr")?;
    Kernel::sync(move |cx| {
        let lr: T = layout.after(cx, 0, "lr")?;
        let l1: T = layout.after(cx, 1, "l1")?;
        let l2: T = layout.after(cx, 2, "l2")?;
        let shrinkage = if has_shrinkage { layout.after(cx, 3, "l2_shrinkage")? } else { T::ZERO };
        let lr_power: T = layout.after(cx, 3 + has_shrinkage as usize, "lr_power")?;
        let two = T::from_f64(2.0);
        let exponent = lr_power.neg();
        // With `multiply_linear_by_lr` everything that is divided by the rate otherwise stays as it is, and the rest
        // is multiplied by it.
        let (scale, rate) = if linear_times_lr { (lr, T::ONE) } else { (T::ONE, lr) };
        let bound = l1.mul(scale);
        layout.apply::<T>(cx, |[var, accum, linear], g| {
            let shrunk = g.add(two.mul(shrinkage).mul(var));
            let sum = accum.add(g.mul(g));
            let (before, after) = (power(accum, exponent), power(sum, exponent));
            let linear = linear.add(shrunk.mul(scale)).sub(after.sub(before).div(rate).mul(var));
            let quadratic = after.div(rate).add(two.mul(l2).mul(scale));
            let var = if linear.abs() > bound {
                linear.sign().mul(bound).sub(linear).div(quadratic)
            } else {
                T::ZERO
            };
            [var, sum, linear]
        })
    })
}

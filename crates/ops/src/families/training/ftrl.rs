//! FTRL-proximal: "follow the regularized leader".

use crate::numeric::Float;
use crate::support::optimizer::{
    Layout, REF_UPDATE, RESOURCE_UPDATE, SPARSE_REF_UPDATE, SPARSE_RESOURCE_UPDATE, Trained, power,
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
    kernels: kernels![ftrl_v2_kernel: bf16, f16, f32, f64],
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
    kernels: kernels![ftrl_v2_kernel: bf16, f16, f32, f64],
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
    kernels: kernels![ftrl_v2_kernel: bf16, f16, f32, f64],
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
    kernels: kernels![ftrl_v2_kernel: bf16, f16, f32, f64],
    ..SPARSE_RESOURCE_UPDATE
};

/// The scalars of an update.
struct Ftrl<T> {
    /// The factor of the linear term's changes, and the divisor of the quadratic term: with
    /// `multiply_linear_by_lr` everything that is divided by the rate otherwise stays as it is, and the rest is
    /// multiplied by it.
    scale: T,
    rate: T,
    /// Twice the shrinkage: what a variable adds to its gradient. Only the second version has it.
    shrinkage: Option<T>,
    exponent: T,
    /// The linear term's size up to which a variable is zero.
    bound: T,
    /// The quadratic penalty.
    penalty: T,
}

impl<T: Float + Trained> Ftrl<T> {
    /// Stock takes roots as such.
    #[inline(always)]
    fn power(&self, base: T) -> T {
        if self.exponent == T::from_f64(0.5) { base.sqrt() } else { power(base, self.exponent) }
    }

    #[inline(always)]
    fn scaled(&self, var: T, g: T) -> T {
        let shrunk = self.shrinkage.map_or(g, |shrinkage| g.add(shrinkage.mul(var)));
        shrunk.mul(self.scale)
    }

    #[inline(always)]
    fn quadratic(&self, power: T) -> T {
        power.div(self.rate).add(self.penalty)
    }

    /// The new sum of squares, its quadratic term and the new linear term.
    #[inline(always)]
    fn terms(&self, [var, accum, linear]: [T; 3], g: T) -> (T, T, T) {
        let sum = accum.add(g.mul(g));
        let (before, after) = (self.power(accum), self.power(sum));
        let change = self.scaled(var, g).sub(after.sub(before).div(self.rate).mul(var));
        (sum, self.quadratic(after), linear.add(change))
    }

    #[inline(always)]
    fn dense(&self, old: [T; 3], g: T) -> [T; 3] {
        let (sum, quadratic, linear) = self.terms(old, g);
        // What has no order is not beyond the bound.
        let var = if linear.abs() > self.bound {
            linear.sign().mul(self.bound).sub(linear).div(quadratic)
        } else {
            T::ZERO
        };
        [var, sum, linear]
    }

    /// An element of a row.
    #[inline(always)]
    fn row(&self, old: [T; 3], g: T) -> [T; 3] {
        let (sum, quadratic, linear) = self.terms(old, g);
        [self.beyond(linear).div(quadratic), sum, linear]
    }

    /// A row of one element, for which stock has a formula of its own: it adds in another order and takes powers alone.
    #[inline(always)]
    fn element(&self, [var, accum, linear]: [T; 3], g: T) -> [T; 3] {
        let sum = accum.add(g.mul(g));
        let sigma = power(sum, self.exponent).sub(power(accum, self.exponent)).div(self.rate);
        let linear = linear.add(self.scaled(var, g)).sub(sigma.mul(var));
        [self.beyond(linear).div(self.quadratic(self.power(sum))), sum, linear]
    }

    /// From the linear term to the nearest number within the bound.
    #[inline(always)]
    fn beyond(&self, linear: T) -> T {
        linear.lowered(self.bound).raised(self.bound.neg()).sub(linear)
    }
}

fn ftrl_kernel<T: Float + Trained>(init: &Init<'_>) -> Result<Kernel> {
    kernel::<T>(init, false)
}

/// The second version, which takes a shrinkage.
fn ftrl_v2_kernel<T: Float + Trained>(init: &Init<'_>) -> Result<Kernel> {
    kernel::<T>(init, true)
}

fn kernel<T: Float + Trained>(init: &Init<'_>, has_shrinkage: bool) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "accum", "linear"], 0).refusing_empty_rows();
    let linear_times_lr: bool = init.attr("multiply_linear_by_lr")?;
    Kernel::sync(move |cx| {
        let lr: T = layout.after(cx, 0, "lr")?;
        let l1: T = layout.after(cx, 1, "l1")?;
        let l2: T = layout.after(cx, 2, "l2")?;
        let shrinkage = if has_shrinkage { Some(layout.after::<T>(cx, 3, "l2_shrinkage")?) } else { None };
        let lr_power: T = layout.after(cx, 3 + has_shrinkage as usize, "lr_power")?;
        let two = T::from_f64(2.0);
        let (scale, rate) = if linear_times_lr { (lr, T::ONE) } else { (T::ONE, lr) };
        let ftrl = Ftrl {
            scale,
            rate,
            shrinkage: shrinkage.map(|shrinkage| two.mul(shrinkage)),
            exponent: lr_power.neg(),
            bound: l1.mul(scale),
            penalty: two.mul(l2).mul(scale),
        };
        if !layout.is_sparse() {
            return layout.apply::<T>(cx, |old, g| ftrl.dense(old, g));
        }
        match layout.row_width(cx)? {
            1 => layout.apply::<T>(cx, |old, g| ftrl.element(old, g)),
            _ => layout.apply::<T>(cx, |old, g| ftrl.row(old, g)),
        }
    })
}

//! Adam and its relatives: AdaMax, and Adam with AMSGrad.

use crate::numeric::Float;
use crate::support::optimizer::{Layout, REF_UPDATE, RESOURCE_UPDATE, Trained};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::Op;
use ferroflow_core::{C64, C128, Result, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &APPLY_ADAM,
    &RESOURCE_APPLY_ADAM,
    &RESOURCE_APPLY_ADAM_WITH_AMSGRAD,
    &APPLY_ADA_MAX,
    &RESOURCE_APPLY_ADA_MAX,
];

static APPLY_ADAM: Op = Op {
    name: "ApplyAdam",
    inputs: &[
        "var: Ref(T)",
        "m: Ref(T)",
        "v: Ref(T)",
        "beta1_power: T",
        "beta2_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &["T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false"],
    kernels: kernels![adam_kernel: bf16, f16, f32, f64, C64, C128],
    ..REF_UPDATE
};

static RESOURCE_APPLY_ADAM: Op = Op {
    name: "ResourceApplyAdam",
    inputs: &[
        "var: resource",
        "m: resource",
        "v: resource",
        "beta1_power: T",
        "beta2_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    attrs: &["T: numbertype", "use_locking: bool = false", "use_nesterov: bool = false"],
    kernels: kernels![adam_kernel: bf16, f16, f32, f64, C64, C128],
    ..RESOURCE_UPDATE
};

static RESOURCE_APPLY_ADAM_WITH_AMSGRAD: Op = Op {
    name: "ResourceApplyAdamWithAmsgrad",
    inputs: &[
        "var: resource",
        "m: resource",
        "v: resource",
        "vhat: resource",
        "beta1_power: T",
        "beta2_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![amsgrad_kernel: bf16, f16, f32, f64],
    ..RESOURCE_UPDATE
};

static APPLY_ADA_MAX: Op = Op {
    name: "ApplyAdaMax",
    inputs: &[
        "var: Ref(T)",
        "m: Ref(T)",
        "v: Ref(T)",
        "beta1_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![ada_max_kernel: f16, f32, f64],
    ..REF_UPDATE
};

static RESOURCE_APPLY_ADA_MAX: Op = Op {
    name: "ResourceApplyAdaMax",
    inputs: &[
        "var: resource",
        "m: resource",
        "v: resource",
        "beta1_power: T",
        "lr: T",
        "beta1: T",
        "beta2: T",
        "epsilon: T",
        "grad: T",
    ],
    kernels: kernels![ada_max_kernel: f16, f32, f64],
    ..RESOURCE_UPDATE
};

/// The scalars of Adam, the learning rate corrected for the averages' bias.
struct Rates<T> {
    alpha: T,
    beta1: T,
    one_minus_beta1: T,
    one_minus_beta2: T,
    epsilon: T,
}

impl<T: Trained> Rates<T> {
    fn read<const N: usize>(layout: &Layout<N>, cx: &KernelCx<'_>) -> Result<Rates<T>> {
        let beta1_power: T = layout.before(cx, 0, "beta1_power")?;
        let beta2_power: T = layout.before(cx, 1, "beta2_power")?;
        let lr: T = layout.before(cx, 2, "lr")?;
        let beta1: T = layout.before(cx, 3, "beta1")?;
        let beta2: T = layout.before(cx, 4, "beta2")?;
        Ok(Rates {
            alpha: lr.mul(T::ONE.sub(beta2_power).sqrt()).div(T::ONE.sub(beta1_power)),
            beta1,
            one_minus_beta1: T::ONE.sub(beta1),
            one_minus_beta2: T::ONE.sub(beta2),
            epsilon: layout.before(cx, 5, "epsilon")?,
        })
    }

    /// The two running averages after this gradient.
    #[inline(always)]
    fn averages(&self, m: T, v: T, g: T) -> (T, T) {
        let m = m.add(g.sub(m).mul(self.one_minus_beta1));
        (m, v.add(g.mul(g).sub(v).mul(self.one_minus_beta2)))
    }
}

fn adam_kernel<T: Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "m", "v"], 6);
    let nesterov: bool = init.attr("use_nesterov")?;
    Kernel::sync(move |cx| {
        let rates = Rates::<T>::read(&layout, cx)?;
        if nesterov {
            return layout.apply::<T>(cx, |[var, m, v], g| {
                let (m, v) = rates.averages(m, v, g);
                let ahead = g.mul(rates.one_minus_beta1).add(rates.beta1.mul(m));
                [var.sub(ahead.mul(rates.alpha).div(v.sqrt().add(rates.epsilon))), m, v]
            });
        }
        layout.apply::<T>(cx, |[var, m, v], g| {
            let (m, v) = rates.averages(m, v, g);
            [var.sub(m.mul(rates.alpha).div(v.sqrt().add(rates.epsilon))), m, v]
        })
    })
}

fn amsgrad_kernel<T: Float + Trained>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "m", "v", "vhat"], 6);
    Kernel::sync(move |cx| {
        let rates = Rates::<T>::read(&layout, cx)?;
        layout.apply::<T>(cx, |[var, m, v, vhat], g| {
            let (m, v) = rates.averages(m, v, g);
            let vhat = vhat.raised(v);
            [var.sub(m.mul(rates.alpha).div(vhat.sqrt().add(rates.epsilon))), m, v, vhat]
        })
    })
}

fn ada_max_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let layout = Layout::new(init, ["var", "m", "v"], 5);
    Kernel::sync(move |cx| {
        let beta1_power: T = layout.before(cx, 0, "beta1_power")?;
        let lr: T = layout.before(cx, 1, "lr")?;
        let beta1: T = layout.before(cx, 2, "beta1")?;
        let beta2: T = layout.before(cx, 3, "beta2")?;
        let epsilon: T = layout.before(cx, 4, "epsilon")?;
        let rate = lr.div(T::ONE.sub(beta1_power));
        layout.apply::<T>(cx, |[var, m, v], g| {
            let m = m.add(g.sub(m).mul(T::ONE.sub(beta1)));
            let v = beta2.mul(v).raised(g.abs());
            [var.sub(rate.mul(m.div(v.add(epsilon)))), m, v]
        })
    })
}

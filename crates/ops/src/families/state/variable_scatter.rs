//! Updates of the rows of a variable that indices name, on ref and resource variables.

use crate::numeric::{Num, Real};
use crate::state::variable::{add_assign, existing, returned, sub_assign};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx};
use ferroflow_core::{C64, C128, DType, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SCATTER_UPDATE,
    &SCATTER_ADD,
    &SCATTER_SUB,
    &SCATTER_MUL,
    &SCATTER_DIV,
    &SCATTER_MIN,
    &SCATTER_MAX,
    &RESOURCE_SCATTER_UPDATE,
    &RESOURCE_SCATTER_ADD,
    &RESOURCE_SCATTER_SUB,
    &RESOURCE_SCATTER_MUL,
    &RESOURCE_SCATTER_DIV,
    &RESOURCE_SCATTER_MIN,
    &RESOURCE_SCATTER_MAX,
];

/// The declaration shared by updates of ref variables.
const ON_REF: Op = Op {
    inputs: &["ref: Ref(T)", "indices: Tindices", "updates: T"],
    outputs: &["output_ref: Ref(T)"],
    attrs: &["T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false"],
    shape: scatter_shape,
    ..Op::PURE
};

/// The declaration shared by updates of resource variables.
const ON_RESOURCE: Op = Op {
    inputs: &["resource: resource", "indices: Tindices", "updates: dtype"],
    attrs: &["dtype: numbertype", "Tindices: {int32, int64}"],
    shape: scatter_shape,
    ..Op::STATEFUL
};

static SCATTER_UPDATE: Op = Op {
    name: "ScatterUpdate",
    attrs: &["T: type", "Tindices: {int32, int64}", "use_locking: bool = true"],
    kernels: kernels![any update_kernel],
    ..ON_REF
};

static SCATTER_ADD: Op = Op {
    name: "ScatterAdd",
    gradient: Gradient::Stop,
    kernels: kernels![add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_REF
};

static SCATTER_SUB: Op = Op {
    name: "ScatterSub",
    gradient: Gradient::Stop,
    kernels: kernels![sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_REF
};

static SCATTER_MUL: Op = Op {
    name: "ScatterMul",
    gradient: Gradient::Stop,
    kernels: kernels![mul_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_REF
};

static SCATTER_DIV: Op = Op {
    name: "ScatterDiv",
    gradient: Gradient::Stop,
    kernels: kernels![div_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_REF
};

static SCATTER_MIN: Op = Op {
    name: "ScatterMin",
    attrs: &[
        "T: {half, bfloat16, float, double, int32, int64}",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
    ],
    kernels: kernels![min_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_REF
};

static SCATTER_MAX: Op = Op {
    name: "ScatterMax",
    attrs: &[
        "T: {half, bfloat16, float, double, int32, int64}",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
    ],
    kernels: kernels![max_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_REF
};

static RESOURCE_SCATTER_UPDATE: Op = Op {
    name: "ResourceScatterUpdate",
    attrs: &["dtype: type", "Tindices: {int32, int64}"],
    kernels: kernels![any update_kernel],
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_ADD: Op = Op {
    name: "ResourceScatterAdd",
    kernels: kernels!["dtype" => add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_SUB: Op = Op {
    name: "ResourceScatterSub",
    kernels: kernels!["dtype" => sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_MUL: Op = Op {
    name: "ResourceScatterMul",
    kernels: kernels!["dtype" => mul_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_DIV: Op = Op {
    name: "ResourceScatterDiv",
    kernels: kernels!["dtype" => div_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_MIN: Op = Op {
    name: "ResourceScatterMin",
    kernels: kernels!["dtype" => min_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_MAX: Op = Op {
    name: "ResourceScatterMax",
    kernels: kernels!["dtype" => max_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_RESOURCE
};

fn scatter_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if s.num_outputs() > 0 {
        s.set(0, s.input(0));
    }
    Ok(())
}

fn add_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, add_assign)
}

fn sub_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, sub_assign)
}

fn mul_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, |row, update| row.iter_mut().zip(update).for_each(|(r, u)| *r = r.mul(*u)))
}

fn div_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let returns_ref = !init.output_types.is_empty();
    Kernel::sync(move |cx| {
        scatter(cx, |value, places, updates| {
            let (rows, updates) = (value.flat_mut::<T>()?, updates.flat::<T>()?);
            // Stock divides what a reference reaches by zero, floats included, but not what a handle does.
            let divides = returns_ref || !updates.iter().any(|update| update.is_zero());
            ensure!(divides, InvalidArgument, "updates must not contain 0");
            places.each(rows, updates, |row, update| {
                for (r, u) in row.iter_mut().zip(update) {
                    *r = r.div(*u);
                }
            })
        })?;
        returned(cx, returns_ref)
    })
}

fn min_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, |row, update| row.iter_mut().zip(update).for_each(|(r, u)| *r = r.lowered(*u)))
}

fn max_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, |row, update| row.iter_mut().zip(update).for_each(|(r, u)| *r = r.raised(*u)))
}

fn combined<T: Num>(init: &Init<'_>, combine: fn(&mut [T], &[T])) -> Result<Kernel> {
    let returns_ref = !init.output_types.is_empty();
    Kernel::sync(move |cx| {
        scatter(cx, |value, places, updates| {
            let (rows, updates) = (value.flat_mut::<T>()?, updates.flat::<T>()?);
            places.each(rows, updates, combine)
        })?;
        returned(cx, returns_ref)
    })
}

fn update_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr(if init.attrs.has("dtype") { "dtype" } else { "T" })?;
    let returns_ref = !init.output_types.is_empty();
    Kernel::sync(move |cx| {
        scatter(cx, |value, places, updates| {
            by_unit!(dtype, U => {
                let (rows, updates) = (value.units_mut::<U>()?, updates.units::<U>()?);
                places.each(rows, updates, |row, update| row.clone_from_slice(update))
            })
        })?;
        returned(cx, returns_ref)
    })
}

fn scatter(
    cx: &KernelCx<'_>,
    apply: impl FnOnce(&mut Tensor, &Rows<'_>, &Tensor) -> Result<()>,
) -> Result<()> {
    let (indices, updates) = (cx.input(1)?, cx.input(2)?);
    let is_resource = cx.handle(0).is_ok();
    existing(cx, 0)?.update(|value| {
        let shape = value.shape().clone();
        ensure!(shape.rank() > 0, InvalidArgument, "params must be at least 1-D, got shape {shape}");
        check_updates(&shape, indices.shape(), updates.shape(), is_resource)?;
        let width = shape.elements() / shape.dim(0).max(1);
        let rows = Rows { indices: &indices.to_i64s()?, shape: indices.shape(), limit: shape[0], width };
        apply(value, &rows, updates)
    })
}

/// Updates have the shape of the indices, then of a row; or they are one scalar for every element.
fn check_updates(params: &Shape, indices: &Shape, updates: &Shape, is_resource: bool) -> Result<()> {
    if updates.is_scalar() || **updates == [indices.dims(), &params[1..]].concat()[..] {
        return Ok(());
    }
    if is_resource && !updates.starts_with(indices) {
        bail!(
            InvalidArgument,
            "The shape of indices ({indices}) must be a prefix of the shape of updates ({updates})"
        );
    }
    bail!(
        InvalidArgument,
        "Must have updates.shape = indices.shape + params.shape[1:] or updates.shape = [], got updates.shape \
         {updates}, indices.shape {indices}, params.shape {params}"
    )
}

/// The rows that indices name.
struct Rows<'a> {
    indices: &'a [i64],
    shape: &'a Shape,
    limit: i64,
    width: usize,
}

impl Rows<'_> {
    /// Combines each named row with its update, in order. A bad index ends the loop: like in stock, rows before it
    /// have changed by then.
    fn each<T: Clone>(&self, rows: &mut [T], updates: &[T], combine: impl Fn(&mut [T], &[T])) -> Result<()> {
        let one_for_all = updates.len() == 1 && self.indices.len() * self.width != 1;
        let spread = if one_for_all { vec![updates[0].clone(); self.width] } else { Vec::new() };
        for (at, index) in self.indices.iter().enumerate() {
            ensure!(
                (0..self.limit).contains(index),
                InvalidArgument,
                "indices{} = {index} is not in [0, {})",
                crate::linalg::gather::position(self.shape, at),
                self.limit
            );
            let row = &mut rows[*index as usize * self.width..][..self.width];
            combine(row, if one_for_all { &spread } else { &updates[at * self.width..][..self.width] });
        }
        Ok(())
    }
}

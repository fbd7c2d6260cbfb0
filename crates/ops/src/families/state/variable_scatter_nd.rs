//! Updates of the elements or slices of a variable that index tuples name, or that a strided slice selects.

use crate::families::array::scatter_nd::{
    Accumulate, add_up, check_emptiness, check_scatter, policy, tuples,
};
use crate::linalg::scatter_nd::{BadIndices, Places};
use crate::numeric::{Num, Real};
use crate::state::variable::{existing, returned, sub_assign};
use crate::support::strided::{Masks, StridedSlice};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx};
use ferroflow_core::{C64, C128, DType, Element, Result, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SCATTER_ND_UPDATE,
    &SCATTER_ND_ADD,
    &SCATTER_ND_SUB,
    &SCATTER_ND_MIN,
    &SCATTER_ND_MAX,
    &RESOURCE_SCATTER_ND_UPDATE,
    &RESOURCE_SCATTER_ND_ADD,
    &RESOURCE_SCATTER_ND_SUB,
    &RESOURCE_SCATTER_ND_MIN,
    &RESOURCE_SCATTER_ND_MAX,
    &STRIDED_SLICE_ASSIGN,
    &RESOURCE_STRIDED_SLICE_ASSIGN,
];

/// The declaration shared by updates of ref variables.
const ON_REF: Op = Op {
    inputs: &["ref: Ref(T)", "indices: Tindices", "updates: T"],
    outputs: &["output_ref: Ref(T)"],
    attrs: &[
        "T: numbertype",
        "Tindices: {int32, int64}",
        "use_locking: bool = false",
        "bad_indices_policy: string = ''",
    ],
    shape: update_shape,
    ..Op::PURE
};

/// The declaration shared by updates of resource variables.
const ON_RESOURCE: Op = Op {
    inputs: &["ref: resource", "indices: Tindices", "updates: T"],
    attrs: &[
        "T: type",
        "Tindices: {int32, int64}",
        "use_locking: bool = true",
        "bad_indices_policy: string = ''",
    ],
    shape: update_shape,
    ..Op::STATEFUL
};

static SCATTER_ND_UPDATE: Op = Op {
    name: "ScatterNdUpdate",
    gradient: Gradient::Stop,
    attrs: &[
        "T: type",
        "Tindices: {int32, int64}",
        "use_locking: bool = true",
        "bad_indices_policy: string = ''",
    ],
    kernels: kernels![any update_kernel],
    ..ON_REF
};

static SCATTER_ND_ADD: Op = Op {
    name: "ScatterNdAdd",
    gradient: Gradient::Stop,
    kernels: kernels![add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128, bool],
    accuracy: Accuracy::Rounding,
    ..ON_REF
};

static SCATTER_ND_SUB: Op = Op {
    name: "ScatterNdSub",
    gradient: Gradient::Stop,
    kernels: kernels![sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128; xor_kernel: bool],
    accuracy: Accuracy::Rounding,
    ..ON_REF
};

static SCATTER_ND_MIN: Op = Op {
    name: "ScatterNdMin",
    kernels: kernels![min_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_REF
};

static SCATTER_ND_MAX: Op = Op {
    name: "ScatterNdMax",
    kernels: kernels![max_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_REF
};

static RESOURCE_SCATTER_ND_UPDATE: Op =
    Op { name: "ResourceScatterNdUpdate", kernels: kernels![any update_kernel], ..ON_RESOURCE };

static RESOURCE_SCATTER_ND_ADD: Op = Op {
    name: "ResourceScatterNdAdd",
    kernels: kernels![add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128, bool],
    accuracy: Accuracy::Rounding,
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_ND_SUB: Op = Op {
    name: "ResourceScatterNdSub",
    kernels: kernels![sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128; xor_kernel: bool],
    accuracy: Accuracy::Rounding,
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_ND_MIN: Op = Op {
    name: "ResourceScatterNdMin",
    kernels: kernels![min_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_RESOURCE
};

static RESOURCE_SCATTER_ND_MAX: Op = Op {
    name: "ResourceScatterNdMax",
    kernels: kernels![max_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..ON_RESOURCE
};

static STRIDED_SLICE_ASSIGN: Op = Op {
    name: "StridedSliceAssign",
    inputs: &["ref: Ref(T)", "begin: Index", "end: Index", "strides: Index", "value: T"],
    outputs: &["output_ref: Ref(T)"],
    attrs: &[
        "T: type",
        "Index: {int32, int64}",
        "begin_mask: int = 0",
        "end_mask: int = 0",
        "ellipsis_mask: int = 0",
        "new_axis_mask: int = 0",
        "shrink_axis_mask: int = 0",
    ],
    shape: update_shape,
    kernels: kernels![any slice_kernel],
    ..Op::PURE
};

static RESOURCE_STRIDED_SLICE_ASSIGN: Op = Op {
    name: "ResourceStridedSliceAssign",
    inputs: &["ref: resource", "begin: Index", "end: Index", "strides: Index", "value: T"],
    attrs: &[
        "T: type",
        "Index: {int32, int64}",
        "begin_mask: int = 0",
        "end_mask: int = 0",
        "ellipsis_mask: int = 0",
        "new_axis_mask: int = 0",
        "shrink_axis_mask: int = 0",
    ],
    shape: update_shape,
    kernels: kernels![any slice_kernel],
    ..Op::STATEFUL
};

fn update_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if s.num_outputs() > 0 {
        s.set(0, s.input(0));
    }
    Ok(())
}

fn add_kernel<T: Accumulate>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, add_up)
}

fn sub_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, sub_assign)
}

/// The difference of truth values, as C++ computes it.
fn xor_kernel<T: Element + Copy + std::ops::BitXor<Output = T>>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, |slice, update| slice.iter_mut().zip(update).for_each(|(s, u)| *s = *s ^ *u))
}

fn min_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, |slice, update| slice.iter_mut().zip(update).for_each(|(s, u)| *s = s.lowered(*u)))
}

fn max_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    combined::<T>(init, |slice, update| slice.iter_mut().zip(update).for_each(|(s, u)| *s = s.raised(*u)))
}

fn combined<T: Element>(init: &Init<'_>, combine: fn(&mut [T], &[T])) -> Result<Kernel> {
    let (bad, returns_ref) = (policy(init)?, !init.output_types.is_empty());
    Kernel::sync(move |cx| {
        scatter(cx, bad, |value, places, updates| {
            places.apply(value.flat_mut::<T>()?, updates.flat()?, combine);
            Ok(())
        })?;
        returned(cx, returns_ref)
    })
}

fn update_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (bad, returns_ref) = (policy(init)?, !init.output_types.is_empty());
    let dtype: DType = init.attr("T")?;
    Kernel::sync(move |cx| {
        scatter(cx, bad, |value, places, updates| {
            by_unit!(dtype, U => {
                let (slices, updates) = (value.units_mut::<U>()?, updates.units::<U>()?);
                places.apply(slices, updates, |slice, update| slice.clone_from_slice(update));
            });
            Ok(())
        })?;
        returned(cx, returns_ref)
    })
}

fn scatter(
    cx: &KernelCx<'_>,
    bad: BadIndices,
    apply: impl FnOnce(&mut Tensor, &Places, &Tensor) -> Result<()>,
) -> Result<()> {
    let (indices, updates) = (cx.input(1)?, cx.input(2)?);
    existing(cx, 0)?.update(|value| {
        let shape = value.shape().clone();
        ensure!(shape.rank() > 0, InvalidArgument, "Output must be at least 1-D, got shape: {shape}");
        check_emptiness(indices, updates.shape(), shape.elements(), "")?;
        check_scatter(indices.shape(), updates.shape(), &shape)?;
        let places = Places::new(&tuples(indices)?, &shape, bad)?;
        apply(value, &places, updates)
    })
}

fn slice_kernel(init: &Init<'_>) -> Result<Kernel> {
    let masks = Masks::new(|name| init.attr(name))?;
    let returns_ref = !init.output_types.is_empty();
    Kernel::sync(move |cx| {
        let value = cx.input(4)?;
        existing(cx, 0)?.update(|target| {
            ensure!(
                target.dtype() == value.dtype(),
                InvalidArgument,
                "l-value dtype {} does not match r-value dtype {}",
                target.dtype(),
                value.dtype()
            );
            let slice = StridedSlice::from_inputs(cx, masks, &target.shape().clone(), 1)?;
            if slice.shape()?.elements() > 0 {
                slice.assign(cx.device().threads(), value, target)?;
            }
            Ok(())
        })?;
        returned(cx, returns_ref)
    })
}

//! Accumulators of gradients: synchronous replicas leave theirs, the chief takes the mean.

use crate::numeric::Num;
use crate::state::accumulator::{Accumulator, AccumulatorSpec, Arithmetic, Gradient, Kind};
use crate::state::ref_handle;
use crate::state::resource_name::ResourceName;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Value};
use ferroflow_core::op::{Op, OpClass, ShapeCx, shapes};
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, f16, kernels};
use std::sync::{Arc, OnceLock};

pub(crate) const OPS: &[&Op] = &[
    &CONDITIONAL_ACCUMULATOR,
    &SPARSE_CONDITIONAL_ACCUMULATOR,
    &RESOURCE_CONDITIONAL_ACCUMULATOR,
    &ACCUMULATOR_APPLY_GRADIENT,
    &ACCUMULATOR_TAKE_GRADIENT,
    &ACCUMULATOR_SET_GLOBAL_STEP,
    &ACCUMULATOR_NUM_ACCUMULATED,
    &SPARSE_ACCUMULATOR_APPLY_GRADIENT,
    &SPARSE_ACCUMULATOR_TAKE_GRADIENT,
    &RESOURCE_ACCUMULATOR_APPLY_GRADIENT,
    &RESOURCE_ACCUMULATOR_TAKE_GRADIENT,
    &RESOURCE_ACCUMULATOR_SET_GLOBAL_STEP,
    &RESOURCE_ACCUMULATOR_NUM_ACCUMULATED,
];

const NUMBERS: &[&str] = &["dtype: numbertype"];

static CONDITIONAL_ACCUMULATOR: Op = Op {
    name: "ConditionalAccumulator",
    outputs: &["handle: Ref(string)"],
    attrs: &[
        "dtype: numbertype",
        "shape: shape",
        "container: string = ''",
        "shared_name: string = ''",
        "reduction_type: {'MEAN', 'SUM'} = 'MEAN'",
    ],
    shape: handle_shape,
    kernels: kernels!["dtype" => dense_kernel: f16, f32, f64],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static SPARSE_CONDITIONAL_ACCUMULATOR: Op = Op {
    name: "SparseConditionalAccumulator",
    kernels: kernels!["dtype" => sparse_kernel: f16, f32, f64],
    ..CONDITIONAL_ACCUMULATOR
};

static RESOURCE_CONDITIONAL_ACCUMULATOR: Op =
    Op { name: "ResourceConditionalAccumulator", outputs: &["handle: resource"], ..CONDITIONAL_ACCUMULATOR };

static RESOURCE_ACCUMULATOR_APPLY_GRADIENT: Op = Op {
    name: "ResourceAccumulatorApplyGradient",
    inputs: &["handle: resource", "local_step: int64", "gradient: dtype"],
    attrs: NUMBERS,
    kernels: kernels![any apply_kernel],
    ..Op::STATEFUL
};

static RESOURCE_ACCUMULATOR_TAKE_GRADIENT: Op = Op {
    name: "ResourceAccumulatorTakeGradient",
    inputs: &["handle: resource", "num_required: int32"],
    outputs: &["average: dtype"],
    attrs: NUMBERS,
    kernels: kernels![any take_kernel],
    ..Op::STATEFUL
};

static RESOURCE_ACCUMULATOR_SET_GLOBAL_STEP: Op = Op {
    name: "ResourceAccumulatorSetGlobalStep",
    inputs: &["handle: resource", "new_global_step: int64"],
    kernels: kernels![any set_global_step_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static RESOURCE_ACCUMULATOR_NUM_ACCUMULATED: Op = Op {
    name: "ResourceAccumulatorNumAccumulated",
    inputs: &["handle: resource"],
    outputs: &["num_accumulated: int32"],
    shape: shapes::scalar,
    kernels: kernels![any num_accumulated_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ACCUMULATOR_APPLY_GRADIENT: Op = Op {
    name: "AccumulatorApplyGradient",
    inputs: &["handle: Ref(string)", "local_step: int64", "gradient: dtype"],
    stateful: false,
    ..RESOURCE_ACCUMULATOR_APPLY_GRADIENT
};

static ACCUMULATOR_TAKE_GRADIENT: Op = Op {
    name: "AccumulatorTakeGradient",
    inputs: &["handle: Ref(string)", "num_required: int32"],
    stateful: false,
    ..RESOURCE_ACCUMULATOR_TAKE_GRADIENT
};

static ACCUMULATOR_SET_GLOBAL_STEP: Op = Op {
    name: "AccumulatorSetGlobalStep",
    inputs: &["handle: Ref(string)", "new_global_step: int64"],
    stateful: false,
    ..RESOURCE_ACCUMULATOR_SET_GLOBAL_STEP
};

static ACCUMULATOR_NUM_ACCUMULATED: Op = Op {
    name: "AccumulatorNumAccumulated",
    inputs: &["handle: Ref(string)"],
    stateful: false,
    ..RESOURCE_ACCUMULATOR_NUM_ACCUMULATED
};

static SPARSE_ACCUMULATOR_APPLY_GRADIENT: Op = Op {
    name: "SparseAccumulatorApplyGradient",
    inputs: &[
        "handle: Ref(string)",
        "local_step: int64",
        "gradient_indices: int64",
        "gradient_values: dtype",
        "gradient_shape: int64",
    ],
    attrs: &["dtype: numbertype", "has_known_shape: bool"],
    kernels: kernels![any apply_sparse_kernel],
    ..Op::PURE
};

static SPARSE_ACCUMULATOR_TAKE_GRADIENT: Op = Op {
    name: "SparseAccumulatorTakeGradient",
    inputs: &["handle: Ref(string)", "num_required: int32"],
    outputs: &["indices: int64", "values: dtype", "shape: int64"],
    attrs: NUMBERS,
    kernels: kernels![any take_kernel],
    ..Op::PURE
};

fn handle_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if s.output_type(0) == DType::String {
        return s.output(0, [2]);
    }
    s.set(0, PartialShape::scalar());
    Ok(())
}

fn dense_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    create_kernel(init, Kind::Dense, Arithmetic::of::<T>())
}

fn sparse_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    create_kernel(init, Kind::Sparse, Arithmetic::of::<T>())
}

fn create_kernel(init: &Init<'_>, kind: Kind, arithmetic: Arithmetic) -> Result<Kernel> {
    let place = ResourceName::<Accumulator>::new(init)?;
    let by_reference = init.output_types[0] == DType::String;
    let spec = AccumulatorSpec {
        name: place.name.clone(),
        kind,
        dtype: init.attr("dtype")?,
        shape: init.attr("shape")?,
        mean: init.attr::<String>("reduction_type")? == "MEAN",
        arithmetic,
    };
    let handle: OnceLock<Value> = OnceLock::new();
    Kernel::sync(move |cx| {
        let accumulator = place.lookup_or_create(cx, || Ok(Accumulator::new(spec.clone())))?;
        if let Some(handle) = handle.get() {
            return Ok(handle.clone().into());
        }
        let device = cx.device().name();
        let made = ref_handle::make(device, &place.container, &place.name, &*accumulator, by_reference)?;
        Ok(handle.get_or_init(|| made).clone().into())
    })
}

fn accumulator(cx: &KernelCx<'_>) -> Result<Arc<Accumulator>> {
    ref_handle::resolve(cx, &cx.step().resources)
}

fn scalar<'a>(cx: &'a KernelCx<'_>, name: &str) -> Result<&'a Tensor> {
    let tensor = cx.input(1)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "Argument {name} must be scalar, but had bad shape {}",
        tensor.shape()
    );
    Ok(tensor)
}

fn apply_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (accumulator, step) = (accumulator(cx)?, scalar(cx, "local_step")?.to_scalar()?);
        let gradient = cx.take(2)?;
        accumulator.check_type(gradient.dtype())?;
        accumulator.apply(cx.device(), step, Gradient::Dense(gradient))?;
        Ok(Outputs::None)
    })
}

fn apply_sparse_kernel(init: &Init<'_>) -> Result<Kernel> {
    let known: bool = init.attr("has_known_shape")?;
    Kernel::sync(move |cx| {
        let (accumulator, step) = (accumulator(cx)?, scalar(cx, "local_step")?.to_scalar()?);
        let shape = if known { Some(cx.i64s(4)?) } else { None };
        let (indices, values) = (cx.take(2)?, cx.take(3)?);
        accumulator.check_type(values.dtype())?;
        accumulator.apply(cx.device(), step, Gradient::Sparse { indices, values, shape })?;
        Ok(Outputs::None)
    })
}

fn take_kernel(init: &Init<'_>) -> Result<Kernel> {
    let sparse = init.output_types.len() > 1;
    let dtype = init.output_types[usize::from(sparse)];
    Kernel::future(move |mut cx| async move {
        let (accumulator, required) = {
            let cx = cx.cx();
            (accumulator(&cx)?, scalar(&cx, "num_required")?.to_scalar()?)
        };
        accumulator.check_type(dtype)?;
        ensure!(
            (accumulator.spec.kind == Kind::Sparse) == sparse,
            InvalidArgument,
            "accumulator '{}' gives {} gradients",
            accumulator.spec.name,
            if sparse { "dense" } else { "sparse" }
        );
        Ok(accumulator.take(&cx.step().device, required).await?.into())
    })
}

fn set_global_step_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let step = scalar(cx, "new_global_step")?.to_scalar()?;
        accumulator(cx)?.set_global_step(step);
        Ok(Outputs::None)
    })
}

fn num_accumulated_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(accumulator(cx)?.count() as i32).into()))
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::resource::ResourceManager;
    use ferroflow_core::{Code, DType, PartialShape, Tensor};

    /// Stock crashes on this, so no golden can show it.
    #[test]
    fn a_gradient_of_another_type_is_refused() {
        let resources = ResourceManager::new("localhost");
        let handle = Node::new("ResourceConditionalAccumulator")
            .attr("shape", PartialShape::scalar())
            .attr("shared_name", "a")
            .resources(&resources)
            .run([])
            .unwrap();
        let apply = Node::new("ResourceAccumulatorApplyGradient").resources(&resources);
        let refused = apply.run([handle[0].clone(), Tensor::scalar(0i64), Tensor::scalar(1.0f64)]);
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
        let take = Node::new("ResourceAccumulatorTakeGradient").attr("dtype", DType::Double);
        let refused = take.resources(&resources).run([handle[0].clone(), Tensor::scalar(1i32)]);
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
}

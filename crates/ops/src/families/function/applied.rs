//! Functions applied to many rows, or as their gradient.

use crate::support::rows;
use ferroflow_core::kernel::{Callable, Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::step::StepCx;
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, kernels};
use ferroflow_proto::tensorflow::NameAttrList;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&MAP_DEFUN, &SYMBOLIC_GRADIENT, &DEVICE_INDEX];

static MAP_DEFUN: Op = Op {
    name: "MapDefun",
    inputs: &["arguments: Targuments", "captured_inputs: Tcaptured"],
    outputs: &["output: output_types"],
    attrs: &[
        "Targuments: list(type) >= 1",
        "Tcaptured: list(type) >= 0 = []",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "f: func",
        "max_intra_op_parallelism: int = 1",
    ],
    shape: map_defun_shape,
    kernels: kernels![any map_defun_kernel],
    ..Op::PURE
};

static SYMBOLIC_GRADIENT: Op = Op {
    name: "SymbolicGradient",
    inputs: &["input: Tin"],
    outputs: &["output: Tout"],
    attrs: &["Tin: list(type) >= 1", "Tout: list(type) >= 1", "f: func"],
    shape: symbolic_gradient_shape,
    kernels: kernels![any symbolic_gradient_kernel],
    ..Op::PURE
};

static DEVICE_INDEX: Op = Op {
    name: "DeviceIndex",
    outputs: &["index: int32"],
    attrs: &["device_names: list(string)"],
    shape: shapes::scalar,
    kernels: kernels![any device_index_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn map_defun_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (shapes, arguments): (Vec<PartialShape>, Vec<DType>) =
        (s.attr("output_shapes")?, s.attr("Targuments")?);
    ensure!(
        shapes.len() == s.num_outputs(),
        InvalidArgument,
        "`output_shapes` must be the same length as `output_types` ({} vs. {})",
        shapes.len(),
        s.num_outputs()
    );
    let mut rows = UNKNOWN_DIM;
    for argument in 0..arguments.len() {
        let shape = s.rank_at_least(argument, 1)?;
        rows = s.merge_dims(rows, shape.dims().map_or(UNKNOWN_DIM, |dims| dims[0]))?;
    }
    for (output, shape) in shapes.iter().enumerate() {
        if let Some(dims) = shape.dims() {
            s.output(output, std::iter::once(rows).chain(dims.iter().copied()))?;
        }
    }
    Ok(())
}

/// Gradients have the shapes of what they are gradients of.
fn symbolic_gradient_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    ensure!(s.num_inputs() >= s.num_outputs(), InvalidArgument, "len(inputs) < len(outputs)");
    for output in 0..s.num_outputs() {
        s.set(output, s.input(output));
    }
    Ok(())
}

fn map_defun_kernel(init: &Init<'_>) -> Result<Kernel> {
    let function = init.function("f")?;
    let count = init.attr::<Vec<DType>>("Targuments")?.len();
    let shapes: Vec<PartialShape> = init.attr("output_shapes")?;
    let types: Arc<[DType]> = init.output_types.into();
    Kernel::future(move |mut cx| {
        let (function, shapes, types) = (function.clone(), shapes.clone(), types.clone());
        async move {
            let mut arguments = cx.take_all()?;
            let captured = arguments.split_off(count);
            Ok(map(&function, &arguments, &captured, &shapes, &types, cx.step()).await?.into())
        }
    })
}

/// Calls a function with each row of the arguments, and stacks its results.
async fn map(
    function: &Arc<dyn Callable>,
    arguments: &[Tensor],
    captured: &[Tensor],
    shapes: &[PartialShape],
    types: &[DType],
    step: &Arc<StepCx>,
) -> Result<Vec<Tensor>> {
    for argument in arguments {
        ensure!(
            argument.rank() > 0,
            InvalidArgument,
            "All inputs must have rank at least 1. Input has a rank of 0."
        );
    }
    let count = arguments[0].shape().dim(0);
    ensure!(
        arguments.iter().all(|argument| argument.shape().dim(0) == count),
        InvalidArgument,
        "All inputs must have the same dimension 0."
    );
    let mut results: Vec<Vec<Tensor>> = vec![Vec::with_capacity(count); types.len()];
    for row in 0..count {
        step.check_cancelled()?;
        let rows = arguments.iter().map(|argument| rows::row(&step.device, argument, row));
        let given = rows.chain(captured.iter().cloned().map(Ok)).collect::<Result<Vec<Tensor>>>()?;
        let outputs = function.clone().call(given, step.clone()).await?;
        ensure!(
            outputs.len() == types.len(),
            InvalidArgument,
            "{} returned {} results where {} were expected",
            function.name(),
            outputs.len(),
            types.len()
        );
        for (at, output) in outputs.into_iter().enumerate() {
            let expected = &shapes[at];
            let same = results[at].first().is_none_or(|first| first.shape() == output.shape());
            ensure!(
                expected.admits(output.shape()) && same,
                InvalidArgument,
                "Output shape mismatch: {expected} was expected of output {at}, got {}",
                output.shape()
            );
            results[at].push(output);
        }
    }
    let stack = |at: usize, results: &Vec<Tensor>| {
        let shape = match results.first() {
            Some(first) => rows::stacked(count, first.shape())?,
            // Without rows, dimensions that are not known are 0.
            None => {
                let dims: Vec<i64> =
                    shapes[at].dims().unwrap_or_default().iter().map(|dim| (*dim).max(0)).collect();
                rows::stacked(0, &dims)?
            }
        };
        rows::join(&step.device, types[at], shape, &results.iter().collect::<Vec<_>>())
    };
    results.iter().enumerate().map(|(at, results)| stack(at, results)).collect()
}

fn symbolic_gradient_kernel(init: &Init<'_>) -> Result<Kernel> {
    let function: NameAttrList = init.attr("f")?;
    let outputs = init.output_types.len();
    let gradient = init.library.instantiate_gradient(&function, init.input_types, outputs)?;
    Kernel::future(move |mut cx| {
        let gradient = gradient.clone();
        async move {
            let arguments = cx.take_all()?;
            let results = gradient.clone().call(arguments, cx.step().clone()).await?;
            ensure!(
                results.len() == outputs,
                InvalidArgument,
                "SymGrad expects to return {outputs} tensor(s), but get {} tensor(s) instead.",
                results.len()
            );
            Ok(results.into())
        }
    })
}

/// The place of this device's type in a list, or the list's length.
fn device_index_kernel(init: &Init<'_>) -> Result<Kernel> {
    let names: Vec<String> = init.attr("device_names")?;
    let kind = init.device.spec().kind.as_deref();
    let index = names.iter().position(|name| Some(name.as_str()) == kind).unwrap_or(names.len());
    Kernel::sync(move |_| Ok(Tensor::scalar(index as i32).into()))
}

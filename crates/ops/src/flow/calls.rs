//! The gradient of a call is a call of the function's gradient, which gets what the function computed on the way.

use crate::support::gradient::gradients_name;
use ferroflow_core::attr::ToAttr;
use ferroflow_core::op::{GradCx, InputGrads};
use ferroflow_core::scope::{FunctionGraph, Gradients, Operation, Output, TensorSpec};
use ferroflow_core::{DType, PartialShape, Result};
use ferroflow_proto::tensorflow::NameAttrList;
use ferroflow_proto::tensorflow::attr_value::Value;

/// Whether a value, the variable that a handle refers to, or the elements of a list can have a gradient.
pub(super) fn differentiable(output: &Output) -> bool {
    let numeric = |dtype: DType| dtype.is_floating() || dtype.is_complex();
    match output.dtype() {
        DType::Resource => output.handle_shape().is_some_and(|handle| numeric(handle.dtype)),
        // A list of lists, or one of which nothing is known, may hold numbers.
        DType::Variant => output
            .handle_shape()
            .is_none_or(|element| numeric(element.dtype) || element.dtype == DType::Variant),
        dtype => numeric(dtype),
    }
}

/// The type and shape of the gradient of a value.
pub(super) fn gradient_spec(output: &Output) -> Result<TensorSpec> {
    match (output.dtype(), output.handle_shape()) {
        (DType::Resource, Some(handle)) => TensorSpec::new(handle.dtype, handle.shape),
        _ => Ok(TensorSpec::from(output)),
    }
}

/// The types and shapes of outputs.
pub(super) fn specs_of(outputs: &[Output]) -> Vec<TensorSpec> {
    outputs.iter().map(Into::into).collect()
}

/// The gradient of a body as a body within it: its arguments are the gradients of the results `ys`, what it needs of the
/// body it captures, and the gradients of the arguments `xs` come back, as whole tensors. It goes by the name of the call
/// of `gradients` that it is part of.
pub(super) fn backward(
    g: &GradCx<'_>,
    body: &FunctionGraph,
    ys: &[usize],
    xs: &[usize],
    grads: &[TensorSpec],
) -> Result<(FunctionGraph, Vec<Option<Output>>)> {
    let mut gradient = FunctionGraph::empty(&body.graph.scope(), true);
    let mut grad_ys = Vec::new();
    for grad in grads {
        grad_ys.push(Some(gradient.add_arg(grad)?.into()));
    }
    let inner = gradient.graph.scope();
    let dxs = Gradients::new().name(&gradients_name(g.scope())).grad_ys(grad_ys).build(
        &inner,
        ys.iter().map(|y| &body.results[*y]),
        xs.iter().map(|x| &body.args[*x]),
    )?;
    let dense =
        dxs.into_iter().map(|dx| dx.map(|dx| dx.to_dense(&inner)).transpose()).collect::<Result<_>>()?;
    Ok((gradient, dense))
}

/// The attributes `Tout` and `output_shapes` of a call that returns more.
pub(super) fn extended_results(op: &Operation, more: &[Output]) -> Result<(Value, Value)> {
    let outputs = op.outputs();
    let types: Vec<DType> = outputs.iter().chain(more).map(Output::dtype).collect();
    let shapes: Vec<PartialShape> =
        outputs.iter().map(Output::shape).chain(more.iter().map(|_| PartialShape::unknown())).collect();
    Ok((types.to_attr()?, shapes.to_attr()?))
}

pub(crate) fn call_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let op = g.op();
    let around = op.graph().scope();
    let mut body = FunctionGraph::load(&around, &g.attr::<NameAttrList>("f")?, &specs_of(g.inputs()))?;
    let ys: Vec<usize> = (0..g.num_outputs()).filter(|y| g.grad(*y).is_some()).collect();
    let depends = body.dependencies();
    let wanted = |x: &usize| g.needs(*x) && differentiable(g.input(*x)) && ys.iter().any(|y| depends[*y][*x]);
    let xs: Vec<usize> = (0..g.num_inputs()).filter(wanted).collect();
    let mut all = InputGrads::none(g.num_inputs());
    if xs.is_empty() {
        return Ok(all);
    }
    let grads = ys.iter().map(|y| g.dy(*y)).collect::<Result<Vec<_>>>()?;
    let (mut gradient, dxs) = backward(g, &body, &ys, &xs, &specs_of(&grads))?;
    let returned: Vec<usize> = (0..xs.len()).filter(|i| dxs[*i].is_some()).collect();
    gradient.results = dxs.into_iter().flatten().collect();
    if returned.is_empty() {
        return Ok(all);
    }
    let captures = gradient.captures();
    let (mut more, before) = (Vec::new(), body.results.len());
    let mut sources = Vec::new();
    for capture in &captures {
        let arg = body.args.iter().position(|arg| arg == capture);
        // A second gradient through the same call finds what the first one added.
        let known = body.results.iter().chain(&more).position(|result| result == capture);
        sources.push(match (arg, known) {
            (Some(arg), _) => Source::Input(arg),
            (None, Some(result)) => Source::Result(result),
            (None, None) => {
                more.push(capture.clone());
                Source::Result(before + more.len() - 1)
            }
        });
    }
    let name = g.attr::<NameAttrList>("f")?.name;
    if !more.is_empty() {
        let (types, _) = extended_results(op, &more)?;
        body.results.extend(more);
        op.rewrite([("f", body.define(&format!("{name}_forward"), &[])?.to_attr()?), ("Tout", types)], &[])?;
        for (index, value) in body.results.iter().enumerate().skip(before) {
            op.output(index)?.set_shape(value.shape())?;
        }
    }
    let mut passed = grads;
    for source in sources {
        passed.push(match source {
            Source::Input(index) => g.input(index).clone(),
            Source::Result(index) => op.output(index)?,
        });
    }
    let types: Vec<DType> = gradient.results.iter().map(Output::dtype).collect();
    let call = if gradient.is_stateful() { "StatefulPartitionedCall" } else { "PartitionedCall" };
    let function = gradient.define(&format!("{name}_backward"), &captures)?;
    let call = g.scope().op(call).inputs(&passed).attr("Tout", types).attr("f", function).build()?;
    for (index, (which, dx)) in returned.into_iter().zip(call.outputs()).enumerate() {
        dx.set_shape(gradient.results[index].shape())?;
        all.0[xs[which]] = Some(dx.into());
    }
    Ok(all)
}

/// The source of a value that a gradient needs of a function.
enum Source {
    /// An argument of the call.
    Input(usize),
    /// A result of the call, perhaps one that was added for it.
    Result(usize),
}

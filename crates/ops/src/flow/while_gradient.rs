//! The gradient of a loop is a loop over its iterations in reverse.
//!
//! The loop pushes values of an iteration that the body's gradient needs onto lists, from which the gradient pops them.
//! Values that are the same in every iteration are passed in as they are, and their gradients add up.

use super::calls::{backward, differentiable, gradient_spec};
use super::loops::add_traced;
use crate::builders as ops;
use ferroflow_core::attr::ToAttr;
use ferroflow_core::op::{GradCx, InputGrads, zeros_like};
use ferroflow_core::scope::{FunctionGraph, Input, Operation, Output, TensorSpec};
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail};
use ferroflow_proto::tensorflow::NameAttrList;

/// The source of a value that the gradient of the body needs.
enum Source {
    /// A variable that no iteration changes.
    Invariant(usize),
    /// The list that is this variable of the loop.
    List(usize),
}

pub(crate) fn while_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, op) = (g.scope(), g.op());
    let count = g.num_inputs();
    let mut forward = Forward::load(op, g.inputs())?;
    let wanted = forward.wanted(g);
    let mut all = InputGrads::none(count);
    if wanted.is_empty() {
        return Ok(all);
    }
    // Gradients of the variables as an iteration left them; zeros where only earlier iterations matter.
    let mut last = Vec::new();
    for index in &wanted {
        last.push(match g.grad(*index) {
            Some(grad) => grad.to_dense(s)?,
            None if g.input(*index).dtype() == DType::Resource => zeros_like(s, g.input(*index))?,
            None => g.dy(*index)?,
        });
    }
    let specs =
        wanted.iter().map(|index| gradient_spec(&forward.body.args[*index])).collect::<Result<Vec<_>>>()?;
    let (mut gradient, dxs) = backward(g, &forward.body, &wanted, &wanted, &specs)?;
    let inner = gradient.graph.scope();
    let mut next = Vec::new();
    for (dx, index) in dxs.into_iter().zip(&wanted) {
        next.push(dx.map_or_else(|| zeros_like(&inner, &forward.body.args[*index]), Ok)?);
    }

    let sources =
        gradient.captures().iter().map(|value| forward.source(value)).collect::<Result<Vec<_>>>()?;
    let counter = forward.counter()?;
    forward.rewrite()?;

    // The variables of the gradient's loop: gradients, iterations done, iterations to do, lists, what is the same in
    // every iteration.
    let mut variables = last;
    variables.extend([s.constant(0i32)?, op.output(counter)?]);
    let done = gradient.add_arg(&TensorSpec::new(DType::Int32, PartialShape::scalar())?)?;
    let total = gradient.add_arg(&TensorSpec::new(DType::Int32, PartialShape::scalar())?)?;
    gradient.results = next;
    gradient.results.extend([ops::add_v2(&inner, &done, 1)?, total]);
    for (value, source) in gradient.captured().into_iter().zip(sources) {
        match source {
            Source::Invariant(index) => {
                variables.push(g.input(index).clone());
                let arg = gradient.add_arg(&TensorSpec::from(g.input(index)))?;
                gradient.results.push(arg.clone());
                gradient.bind(&value, &arg)?;
            }
            Source::List(index) => {
                let list = op.output(index)?;
                variables.push(list.clone());
                let arg = gradient.add_arg(&TensorSpec::from(&list))?;
                let popped = ops::tensor_list_pop_back(&inner, &arg, element_shape(&value), value.dtype())?;
                gradient.results.push(popped.output_handle);
                gradient.bind(&value, &popped.tensor)?;
            }
        }
    }
    let specs: Vec<TensorSpec> = gradient.args.iter().map(Into::into).collect();
    let at = wanted.len();
    let condition =
        FunctionGraph::trace(s, &specs, |s, args| Ok(vec![ops::less(s, &args[at], &args[at + 1])?]))?;
    let name = format!("{}_grad", op.name().rsplit('/').next().unwrap_or("while"));
    let parallel = g.attr::<i64>("parallel_iterations")?;
    let grads = add_traced(s, &name, &variables, Some(parallel), &condition, gradient)?;
    for (index, grad) in wanted.into_iter().zip(grads) {
        all.0[index] = Some(grad.into());
    }
    Ok(all)
}

/// The shape of a list's elements as an input of list ops.
fn element_shape(value: &Output) -> Input {
    match value.shape().dims() {
        Some(dims) => dims.iter().map(|dim| *dim as i32).collect::<Vec<i32>>().into(),
        None => Input::from(-1),
    }
}

/// The loop, and what is added to it so that it can be gone through in reverse.
struct Forward<'a> {
    op: &'a Operation,
    inputs: Vec<Output>,
    condition: FunctionGraph,
    body: FunctionGraph,
    /// The initial values of new variables.
    starts: Vec<Output>,
}

impl<'a> Forward<'a> {
    fn load(op: &'a Operation, inputs: &[Output]) -> Result<Forward<'a>> {
        let around = op.graph().scope();
        // Shapes are those that hold in every iteration.
        let shapes = op.outputs();
        let specs = inputs.iter().zip(&shapes);
        let specs: Vec<TensorSpec> =
            specs.map(|(input, output)| TensorSpec::from(input).with_shape(output.shape())).collect();
        let load = |name: &str| FunctionGraph::load(&around, &op.attr::<NameAttrList>(name)?, &specs);
        Ok(Forward {
            op,
            inputs: inputs.to_vec(),
            condition: load("cond")?,
            body: load("body")?,
            starts: Vec::new(),
        })
    }

    /// The variables that have a gradient: a result with one depends on them, and they on an input that wants one.
    fn wanted(&self, g: &GradCx<'_>) -> Vec<usize> {
        let depends = self.body.dependencies();
        let count = self.inputs.len();
        let can = |index: usize| {
            differentiable(&self.inputs[index])
                && (self.inputs[index].dtype() != DType::Resource || self.is_invariant(index))
        };
        let mut matters: Vec<bool> = (0..count).map(|index| can(index) && g.grad(index).is_some()).collect();
        let mut asked: Vec<bool> = (0..count).map(|index| can(index) && g.needs(index)).collect();
        for _ in 0..count {
            for (result, args) in depends.iter().enumerate() {
                for (arg, depends) in args.iter().enumerate().filter(|(arg, depends)| **depends && can(*arg))
                {
                    matters[arg] |= *depends && matters[result];
                    asked[result] |= *depends && asked[arg] && can(result);
                }
            }
        }
        (0..count).filter(|index| matters[*index] && asked[*index]).collect()
    }

    fn is_invariant(&self, index: usize) -> bool {
        self.body.results[index] == self.body.args[index]
    }

    /// The source of a body's value in reverse; adds a list for it if there is none.
    fn source(&mut self, value: &Output) -> Result<Source> {
        if let Some(index) = self.body.args.iter().position(|arg| arg == value)
            && self.is_invariant(index)
        {
            return Ok(Source::Invariant(index));
        }
        let pushes = |(index, result): (usize, &Output)| {
            let push = result.op();
            let inputs = push.inputs();
            let same = push.op_type() == "TensorListPushBack"
                && inputs.first() == self.body.args.get(index)
                && inputs.get(1) == Some(value);
            same.then_some(index)
        };
        if let Some(index) = self.body.results.iter().enumerate().find_map(pushes) {
            return Ok(Source::List(index));
        }
        let around = self.op.graph().scope().scope(&format!("{}/", self.op.name()));
        let list = ops::EmptyTensorList::new(value.dtype()).name("accumulator");
        let list = list.build(&around, element_shape(value), -1)?;
        let (condition_arg, arg) = (TensorSpec::from(&list), self.body.add_arg(&TensorSpec::from(&list))?);
        self.condition.add_arg(&condition_arg)?;
        let pushed = ops::tensor_list_push_back(&self.body.graph.scope(), &arg, value)?;
        self.body.results.push(pushed);
        self.starts.push(list);
        Ok(Source::List(self.body.results.len() - 1))
    }

    /// The variable that counts iterations; added if there is none.
    fn counter(&mut self) -> Result<usize> {
        let is_scalar = |value: Option<Tensor>, number: i32| {
            value
                .is_some_and(|value| value.rank() == 0 && value.to_scalar::<i32>().is_ok_and(|v| v == number))
        };
        for (index, input) in self.inputs.iter().enumerate() {
            let step = self.body.results[index].op();
            let inputs = step.inputs();
            let counts = step.op_type() == "AddV2"
                && inputs.first() == self.body.args.get(index)
                && inputs.get(1).is_some_and(|one| is_scalar(one.value(), 1));
            if counts && is_scalar(input.value(), 0) {
                return Ok(index);
            }
        }
        let around = self.op.graph().scope().scope(&format!("{}/", self.op.name()));
        let start = around.named_constant("iterations", Tensor::scalar(0i32))?;
        let (spec, inner) = (TensorSpec::from(&start), self.body.graph.scope());
        self.condition.add_arg(&spec)?;
        let arg = self.body.add_arg(&spec)?;
        self.body.results.push(ops::add_v2(&inner, &arg, 1)?);
        self.starts.push(start);
        Ok(self.body.results.len() - 1)
    }

    /// Gives the loop its new variables.
    fn rewrite(&self) -> Result<()> {
        if self.starts.is_empty() {
            return Ok(());
        }
        let op = self.op;
        let name = |attr: &str| Ok(format!("{}_forward", op.attr::<NameAttrList>(attr)?.name));
        let outputs = op.outputs();
        let types: Vec<DType> = outputs.iter().chain(&self.starts).map(Output::dtype).collect();
        let shapes = outputs.iter().map(Output::shape);
        let shapes: Vec<PartialShape> =
            shapes.chain(self.starts.iter().map(|_| PartialShape::scalar())).collect();
        if self.body.results.len() != types.len() {
            bail!(Internal, "a loop's new variables have no next values");
        }
        op.rewrite(
            [
                ("cond", self.condition.define(&name("cond")?, &[])?.to_attr()?),
                ("body", self.body.define(&name("body")?, &[])?.to_attr()?),
                ("T", types.to_attr()?),
                ("output_shapes", shapes.to_attr()?),
            ],
            &self.starts,
        )
    }
}

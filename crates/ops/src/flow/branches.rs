//! Conditionals, and their gradient.

use super::calls::{backward, differentiable, extended_results, specs_of};
use super::{LOWER, joint_captures};
use crate::builders as ops;
use ferroflow_core::attr::ToAttr;
use ferroflow_core::op::{GradCx, InputGrads, zeros_like};
use ferroflow_core::scope::{FunctionGraph, Input, Output, Scope, TensorSpec};
use ferroflow_core::{DType, PartialShape, Result, ensure};
use ferroflow_proto::tensorflow::NameAttrList;
use ferroflow_proto::tensorflow::attr_value::Value;

/// Runs one of two branches. Each is a closure that adds nodes and returns results; both return as many, of the same
/// types. What a branch uses from around it is passed in.
///
/// ```
/// use ferroflow_core::{DType, Result, scope::Graph};
/// use ferroflow_ops::{builders as ops, flow::cond};
///
/// # fn main() -> Result<()> {
/// let graph = Graph::over(ferroflow_ops::registry());
/// let s = graph.scope();
/// let x = ops::placeholder(&s, DType::Float)?;
/// let is_large = ops::greater(&s, &x, 10.0)?;
/// let y = cond(&s, &is_large, |_| Ok(vec![(&x * 0.5)?]), |_| Ok(vec![(&x + 1.0)?]))?;
/// assert_eq!(y.len(), 1);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn cond<T, E>(
    scope: &Scope,
    predicate: impl Into<Input>,
    then_branch: T,
    else_branch: E,
) -> Result<Vec<Output>>
where
    T: FnOnce(&Scope) -> Result<Vec<Output>>,
    E: FnOnce(&Scope) -> Result<Vec<Output>>,
{
    Cond::new().build(scope, predicate, then_branch, else_branch)
}

/// [`cond`] with more choices.
#[derive(Clone, Debug, Default)]
pub struct Cond {
    name: Option<String>,
}

impl Cond {
    /// The usual choices.
    pub fn new() -> Cond {
        Cond::default()
    }

    /// Names the node; `cond` otherwise.
    #[must_use]
    pub fn name(mut self, name: &str) -> Cond {
        self.name = Some(name.to_owned());
        self
    }

    /// Adds the node.
    #[track_caller]
    pub fn build<T, E>(
        self,
        scope: &Scope,
        predicate: impl Into<Input>,
        then_branch: T,
        else_branch: E,
    ) -> Result<Vec<Output>>
    where
        T: FnOnce(&Scope) -> Result<Vec<Output>>,
        E: FnOnce(&Scope) -> Result<Vec<Output>>,
    {
        let predicate = predicate.into();
        let shape = predicate.known_shape();
        ensure!(
            shape.rank().is_none_or(|rank| rank == 0),
            InvalidArgument,
            "the condition {}is a scalar, but its shape is {shape}; ops::all or ops::any make one of many",
            predicate.output().map_or_else(String::new, |output| format!("'{}' ", output.name()))
        );
        let then_branch = FunctionGraph::trace(scope, &[], |s, _| then_branch(s))?;
        let else_branch = FunctionGraph::trace(scope, &[], |s, _| else_branch(s))?;
        let (yes, no) = (&then_branch.results, &else_branch.results);
        ensure!(
            yes.len() == no.len(),
            InvalidArgument,
            "both branches of a conditional return as many results, but one returns {} and the other {}",
            yes.len(),
            no.len()
        );
        for (index, (yes, no)) in yes.iter().zip(no).enumerate() {
            ensure!(
                yes.dtype() == no.dtype(),
                InvalidArgument,
                "result {index} of a conditional is {} in one branch and {} in the other; ops::cast converts",
                yes.dtype(),
                no.dtype()
            );
        }
        let name = self.name.as_deref().unwrap_or("cond");
        let shapes = yes.iter().zip(no).map(|(yes, no)| common_shape(&yes.shape(), &no.shape())).collect();
        add_if(scope, name, predicate, [&then_branch, &else_branch], &[], shapes)
    }
}

/// Adds a conditional whose branches take `args` and what they capture.
pub(super) fn add_if(
    scope: &Scope,
    name: &str,
    predicate: Input,
    branches: [&FunctionGraph; 2],
    args: &[Output],
    shapes: Vec<PartialShape>,
) -> Result<Vec<Output>> {
    let [then_branch, else_branch] = branches;
    let captures = joint_captures(&branches);
    let node = scope
        .op(if branches.iter().any(|branch| branch.is_stateful()) { "If" } else { "StatelessIf" })
        .name(name)
        .input(predicate)
        .inputs(args.iter().chain(&captures))
        .attr("Tout", result_types(then_branch))
        .attr("then_branch", then_branch.define(&format!("{name}_true"), &captures)?)
        .attr("else_branch", else_branch.define(&format!("{name}_false"), &captures)?)
        .attr("output_shapes", shapes)
        .attr(LOWER, true)
        .build()?;
    Ok(node.outputs())
}

/// Adds a choice by number, whose branches take `args` and what they capture.
fn add_case(
    scope: &Scope,
    name: &str,
    index: Input,
    branches: &[&FunctionGraph],
    args: &[Output],
    shapes: Vec<PartialShape>,
) -> Result<Vec<Output>> {
    let captures = joint_captures(branches);
    let defined = branches.iter().enumerate();
    let defined = defined.map(|(i, branch)| branch.define(&format!("{name}_branch{i}"), &captures));
    let node = scope
        .op(if branches.iter().any(|branch| branch.is_stateful()) { "Case" } else { "StatelessCase" })
        .name(name)
        .input(index)
        .inputs(args.iter().chain(&captures))
        .attr("Tout", branches.first().map_or_else(Vec::new, |branch| result_types(branch)))
        .attr("branches", defined.collect::<Result<Vec<NameAttrList>>>()?)
        .attr("output_shapes", shapes)
        .attr(LOWER, true)
        .build()?;
    Ok(node.outputs())
}

fn result_types(branch: &FunctionGraph) -> Vec<DType> {
    branch.results.iter().map(Output::dtype).collect()
}

/// The known dimensions of a value that has one shape or the other.
pub(super) fn common_shape(a: &PartialShape, b: &PartialShape) -> PartialShape {
    let (Some(x), Some(y)) = (a.dims(), b.dims()) else { return PartialShape::unknown() };
    if x.len() != y.len() {
        return PartialShape::unknown();
    }
    let dims = x.iter().zip(y).map(|(x, y)| if x == y { *x } else { -1 });
    PartialShape::new(dims).unwrap_or_default()
}

/// The gradient of a conditional is a conditional on the same predicate.
pub(crate) fn if_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let functions = [g.attr::<NameAttrList>("then_branch")?, g.attr("else_branch")?];
    let define = |branches: &[FunctionGraph]| {
        let forward = |i: usize| branches[i].define(&format!("{}_forward", functions[i].name), &[]);
        Ok(vec![("then_branch", forward(0)?.to_attr()?), ("else_branch", forward(1)?.to_attr()?)])
    };
    let Some(gradient) = differentiate(g, &functions, define)? else {
        return Ok(InputGrads::none(g.num_inputs()));
    };
    let branches = [&gradient.branches[0], &gradient.branches[1]];
    let (name, shapes) = (gradient.name(g), gradient.shapes());
    let dxs = add_if(g.scope(), &name, g.input(0).into(), branches, &gradient.args, shapes)?;
    Ok(gradient.input_grads(g, dxs))
}

/// The gradient of a choice by number is a choice by the same number.
pub(crate) fn case_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let functions: Vec<NameAttrList> = g.attr("branches")?;
    let define = |branches: &[FunctionGraph]| {
        let forward = functions.iter().zip(branches);
        let forward = forward.map(|(f, branch)| branch.define(&format!("{}_forward", f.name), &[]));
        Ok(vec![("branches", forward.collect::<Result<Vec<NameAttrList>>>()?.to_attr()?)])
    };
    let Some(gradient) = differentiate(g, &functions, define)? else {
        return Ok(InputGrads::none(g.num_inputs()));
    };
    let branches: Vec<&FunctionGraph> = gradient.branches.iter().collect();
    let (name, shapes) = (gradient.name(g), gradient.shapes());
    let dxs = add_case(g.scope(), &name, g.input(0).into(), &branches, &gradient.args, shapes)?;
    Ok(gradient.input_grads(g, dxs))
}

/// The gradients of branches, which all take the same arguments.
struct BranchGradients {
    branches: Vec<FunctionGraph>,
    args: Vec<Output>,
    /// The inputs, without the one that chooses, whose gradients the branches return.
    xs: Vec<usize>,
}

impl BranchGradients {
    fn name(&self, g: &GradCx<'_>) -> String {
        format!("{}_grad", g.op().name().rsplit('/').next().unwrap_or("cond"))
    }

    fn shapes(&self) -> Vec<PartialShape> {
        let common = |i: usize| {
            let shapes = self.branches.iter().map(|branch| branch.results[i].shape());
            shapes.reduce(|a, b| common_shape(&a, &b)).unwrap_or_default()
        };
        (0..self.xs.len()).map(common).collect()
    }

    fn input_grads(self, g: &GradCx<'_>, dxs: Vec<Output>) -> InputGrads {
        let mut all = InputGrads::none(g.num_inputs());
        for (x, dx) in self.xs.into_iter().zip(dxs) {
            all.0[x + 1] = Some(dx.into());
        }
        all
    }
}

/// Differentiates the branches of a conditional, whose first input chooses among them; `None` if no input matters. What
/// a branch's gradient needs of the branch becomes a result of the conditional, for which the other branches return
/// something that nobody looks at; `define` gives the branches as attributes then.
fn differentiate(
    g: &GradCx<'_>,
    functions: &[NameAttrList],
    define: impl Fn(&[FunctionGraph]) -> Result<Vec<(&'static str, Value)>>,
) -> Result<Option<BranchGradients>> {
    let op = g.op();
    let around = op.graph().scope();
    let inputs = &g.inputs()[1..];
    let specs = specs_of(inputs);
    let load = |function| FunctionGraph::load(&around, function, &specs);
    let mut branches = functions.iter().map(load).collect::<Result<Vec<_>>>()?;
    // Results with a gradient, and inputs that want one.
    let dys: Vec<usize> = (0..g.num_outputs()).filter(|i| g.grad(*i).is_some()).collect();
    let mut xs: Vec<usize> =
        (0..inputs.len()).filter(|i| g.needs(i + 1) && differentiable(&inputs[*i])).collect();
    let depends = branches.iter().map(FunctionGraph::dependencies).collect::<Vec<_>>();
    xs.retain(|x| depends.iter().any(|results| dys.iter().any(|y| results[*y][*x])));
    if xs.is_empty() {
        return Ok(None);
    }
    let grads = dys.iter().map(|y| g.dy(*y)).collect::<Result<Vec<_>>>()?;

    let mut gradients = Vec::new();
    for branch in &branches {
        let (mut gradient, dxs) = backward(g, branch, &dys, &xs, &specs_of(&grads))?;
        let inner = gradient.graph.scope();
        gradient.results = dxs
            .into_iter()
            .zip(&xs)
            .map(|(dx, x)| dx.map_or_else(|| zeros_like(&inner, &branch.args[*x]), Ok))
            .collect::<Result<_>>()?;
        gradients.push(gradient);
    }
    // All take the same arguments: gradients of results, inputs of the conditional, and what any branch computed.
    let (before, mut extra) = (g.num_outputs(), Vec::new());
    let mut positions = Vec::new();
    for (which, gradient) in gradients.iter().enumerate() {
        let position = |capture: Output| match branches[which].args.iter().position(|arg| *arg == capture) {
            Some(arg) => arg,
            None => {
                extra.push((which, capture));
                inputs.len() + extra.len() - 1
            }
        };
        positions.push(gradient.captures().into_iter().map(position).collect::<Vec<usize>>());
    }
    for (owner, value) in &extra {
        for (which, branch) in branches.iter_mut().enumerate() {
            let result = if which == *owner {
                value.clone()
            } else {
                ops::fake_param(&branch.graph.scope(), value.dtype(), value.shape())?
            };
            branch.results.push(result);
        }
    }
    if !extra.is_empty() {
        let more: Vec<Output> = extra.iter().map(|(_, value)| value.clone()).collect();
        let (types, shapes) = extended_results(op, &more)?;
        let attrs = define(&branches)?.into_iter().chain([("Tout", types), ("output_shapes", shapes)]);
        op.rewrite(attrs, &[])?;
    }
    let mut args = grads;
    args.extend(inputs.iter().cloned());
    for index in 0..extra.len() {
        args.push(op.output(before + index)?);
    }
    for (which, gradient) in gradients.iter_mut().enumerate() {
        let mut passed = Vec::new();
        for arg in &branches[which].args {
            passed.push(gradient.add_arg(&arg.into())?);
        }
        for (owner, value) in &extra {
            let spec = TensorSpec::from(value);
            let unknown = PartialShape::unknown();
            passed.push(gradient.add_arg(&if *owner == which { spec } else { spec.with_shape(unknown) })?);
        }
        for (inner, position) in gradient.captured().into_iter().zip(&positions[which]) {
            gradient.bind(&inner, &passed[*position])?;
        }
    }
    Ok(Some(BranchGradients { branches: gradients, args, xs }))
}

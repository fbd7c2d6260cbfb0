//! Conditionals, and their gradient.

use super::calls::{backward, differentiable, extended_results, specs_of};
use super::{LOWER, joint_captures};
use crate::build as ops;
use ferroflow_core::attr::ToAttr;
use ferroflow_core::op::{GradCx, InputGrads, zeros_like};
use ferroflow_core::scope::{FunctionGraph, Input, Output, Scope, TensorSpec};
use ferroflow_core::{DType, PartialShape, Result, ensure};
use ferroflow_proto::tensorflow::NameAttrList;

/// Runs one of two branches. Each is a closure that adds nodes and returns results; both return as many, of the same
/// types. What a branch uses from around it is passed in.
///
/// ```
/// use ferroflow_core::{DType, Result, scope::Graph};
/// use ferroflow_ops::{build as ops, flow::cond};
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
        add_if(scope, name, predicate.into(), [&then_branch, &else_branch], &[], shapes)
    }
}

/// Adds a conditional whose branches take `args` and what they capture.
fn add_if(
    scope: &Scope,
    name: &str,
    predicate: Input,
    [then_branch, else_branch]: [&FunctionGraph; 2],
    args: &[Output],
    shapes: Vec<PartialShape>,
) -> Result<Vec<Output>> {
    let captures = joint_captures(&[then_branch, else_branch]);
    let types: Vec<DType> = then_branch.results.iter().map(Output::dtype).collect();
    let stateful = then_branch.is_stateful() || else_branch.is_stateful();
    let node = scope
        .op(if stateful { "If" } else { "StatelessIf" })
        .name(name)
        .input(predicate)
        .inputs(args.iter().chain(&captures))
        .attr("Tout", types)
        .attr("then_branch", then_branch.define(&format!("{name}_true"), &captures)?)
        .attr("else_branch", else_branch.define(&format!("{name}_false"), &captures)?)
        .attr("output_shapes", shapes)
        .attr(LOWER, true)
        .build()?;
    Ok(node.outputs())
}

/// What is known of a value that has one shape or the other.
pub(super) fn common_shape(a: &PartialShape, b: &PartialShape) -> PartialShape {
    let (Some(x), Some(y)) = (a.dims(), b.dims()) else { return PartialShape::unknown() };
    if x.len() != y.len() {
        return PartialShape::unknown();
    }
    let dims = x.iter().zip(y).map(|(x, y)| if x == y { *x } else { -1 });
    PartialShape::new(dims).unwrap_or_default()
}

/// The gradient of a conditional is a conditional on the same predicate. What a branch's gradient needs of the branch
/// becomes a result of the conditional, for which the other branch returns something that nobody looks at.
pub(crate) fn if_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, op) = (g.scope(), g.op());
    let around = op.graph().scope();
    let inputs = &g.inputs()[1..];
    let specs = specs_of(inputs);
    let load = |name: &str| FunctionGraph::load(&around, &g.attr::<NameAttrList>(name)?, &specs);
    let mut branches = [load("then_branch")?, load("else_branch")?];
    // Results with a gradient, and inputs that want one.
    let dys: Vec<usize> = (0..g.num_outputs()).filter(|i| g.grad(*i).is_some()).collect();
    let mut xs: Vec<usize> =
        (0..inputs.len()).filter(|i| g.needs(i + 1) && differentiable(&inputs[*i])).collect();
    let depends = branches.iter().map(FunctionGraph::dependencies).collect::<Vec<_>>();
    xs.retain(|x| depends.iter().any(|results| dys.iter().any(|y| results[*y][*x])));
    if xs.is_empty() {
        return Ok(InputGrads::none(g.num_inputs()));
    }
    let grads = dys.iter().map(|y| g.dy(*y)).collect::<Result<Vec<_>>>()?;

    let mut gradients = Vec::new();
    for branch in &branches {
        let (mut gradient, dxs) = backward(branch, &dys, &xs, &specs_of(&grads))?;
        let inner = gradient.graph.scope();
        gradient.results = dxs
            .into_iter()
            .zip(&xs)
            .map(|(dx, x)| dx.map_or_else(|| zeros_like(&inner, &branch.args[*x]), Ok))
            .collect::<Result<_>>()?;
        gradients.push(gradient);
    }
    // Both take the same arguments: gradients of results, inputs of the conditional, and what either branch computed.
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
    for (which, value) in &extra {
        let filler = ops::fake_param(&branches[1 - which].graph.scope(), value.dtype(), value.shape())?;
        branches[*which].results.push(value.clone());
        branches[1 - which].results.push(filler);
    }
    if !extra.is_empty() {
        let more: Vec<Output> = extra.iter().map(|(_, value)| value.clone()).collect();
        let (types, shapes) = extended_results(op, &more)?;
        let name = |attr: &str| Ok(format!("{}_forward", g.attr::<NameAttrList>(attr)?.name));
        op.rewrite(
            [
                ("then_branch", branches[0].define(&name("then_branch")?, &[])?.to_attr()?),
                ("else_branch", branches[1].define(&name("else_branch")?, &[])?.to_attr()?),
                ("Tout", types),
                ("output_shapes", shapes),
            ],
            &[],
        )?;
    }
    let mut passed = grads;
    passed.extend(inputs.iter().cloned());
    for index in 0..extra.len() {
        passed.push(op.output(before + index)?);
    }
    for (which, gradient) in gradients.iter_mut().enumerate() {
        let mut args = Vec::new();
        for arg in &branches[which].args {
            args.push(gradient.add_arg(&arg.into())?);
        }
        for (owner, value) in &extra {
            let spec = TensorSpec::from(value);
            let unknown = PartialShape::unknown();
            args.push(gradient.add_arg(&if *owner == which { spec } else { spec.with_shape(unknown) })?);
        }
        for (inner, position) in gradient.captured().into_iter().zip(&positions[which]) {
            gradient.bind(&inner, &args[*position])?;
        }
    }
    let shapes = gradients[0].results.iter().zip(&gradients[1].results);
    let shapes = shapes.map(|(yes, no)| common_shape(&yes.shape(), &no.shape())).collect();
    let name = format!("{}_grad", op.name().rsplit('/').next().unwrap_or("cond"));
    let dxs = add_if(s, &name, g.input(0).into(), [&gradients[0], &gradients[1]], &passed, shapes)?;
    let mut all = InputGrads::none(g.num_inputs());
    for (x, dx) in xs.into_iter().zip(dxs) {
        all.0[x + 1] = Some(dx.into());
    }
    Ok(all)
}

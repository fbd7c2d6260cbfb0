//! Loops.

use super::branches::common_shape;
use super::{LOWER, joint_captures};
use crate::builders as ops;
use ferroflow_core::scope::{FunctionGraph, Input, Output, Scope, TensorSpec};
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure};

/// Runs `body` while `condition` holds. Both are closures that get the loop's variables; the body returns their next
/// values, of the same types, and the loop returns their last. What they use from around the loop is passed in, the same
/// in every iteration.
///
/// A variable whose shape the body changes is of a shape that is not known; the closures may be called several times to
/// find that out.
///
/// ```
/// use ferroflow_core::{Result, scope::Graph};
/// use ferroflow_ops::{builders as ops, flow::while_loop};
///
/// # fn main() -> Result<()> {
/// let graph = Graph::over(ferroflow_ops::registry());
/// let s = graph.scope();
/// let start = [s.constant(1i32)?, s.constant(0.5f32)?];
/// let last = while_loop(
///     &s,
///     &start,
///     |s, v| ops::less(s, &v[0], 100),
///     |_, v| Ok(vec![(&v[0] * 2)?, (&v[1] + 1.0)?]),
/// )?;
/// assert_eq!(last.len(), 2);
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn while_loop<V, C, B>(scope: &Scope, variables: V, condition: C, body: B) -> Result<Vec<Output>>
where
    V: IntoIterator,
    V::Item: Into<Input>,
    C: Fn(&Scope, &[Output]) -> Result<Output>,
    B: Fn(&Scope, &[Output]) -> Result<Vec<Output>>,
{
    WhileLoop::new().build(scope, variables, condition, body)
}

/// [`while_loop`] with more choices.
#[derive(Clone, Debug, Default)]
pub struct WhileLoop {
    name: Option<String>,
    parallel_iterations: Option<i64>,
    maximum_iterations: Option<Input>,
}

impl WhileLoop {
    /// The usual choices.
    pub fn new() -> WhileLoop {
        WhileLoop::default()
    }

    /// Names the node; `while` otherwise.
    #[must_use]
    pub fn name(mut self, name: &str) -> WhileLoop {
        self.name = Some(name.to_owned());
        self
    }

    /// The number of iterations that may run at once where their data allows; 10 otherwise.
    #[must_use]
    pub fn parallel_iterations(mut self, count: i64) -> WhileLoop {
        self.parallel_iterations = Some(count);
        self
    }

    /// Ends the loop after this many iterations, an int32, whatever the condition says.
    #[must_use]
    pub fn maximum_iterations(mut self, count: impl Into<Input>) -> WhileLoop {
        self.maximum_iterations = Some(count.into());
        self
    }

    /// Adds the node.
    #[track_caller]
    pub fn build<V, C, B>(self, scope: &Scope, variables: V, condition: C, body: B) -> Result<Vec<Output>>
    where
        V: IntoIterator,
        V::Item: Into<Input>,
        C: Fn(&Scope, &[Output]) -> Result<Output>,
        B: Fn(&Scope, &[Output]) -> Result<Vec<Output>>,
    {
        let mut variables = as_outputs(scope, variables)?;
        let given = variables.len();
        if let Some(limit) = self.maximum_iterations {
            variables.push(scope.named_constant("iteration", Tensor::scalar(0i32))?);
            variables.push(ops::identity(scope, limit)?);
        }
        let limited = variables.len() > given;
        let condition = |s: &Scope, args: &[Output]| {
            let goes_on = condition(s, &args[..given])?;
            ensure!(
                goes_on.dtype() == DType::Bool,
                InvalidArgument,
                "the condition of a loop is a bool, but '{}' is {}",
                goes_on.name(),
                goes_on.dtype()
            );
            if !limited {
                return Ok(vec![goes_on]);
            }
            Ok(vec![ops::logical_and(s, goes_on, ops::less(s, &args[given], &args[given + 1]))?])
        };
        let body = |s: &Scope, args: &[Output]| {
            let mut next = body(s, &args[..given])?;
            if limited {
                next.extend([ops::add_v2(s, &args[given], 1)?, args[given + 1].clone()]);
            }
            Ok(next)
        };
        let name = self.name.as_deref().unwrap_or("while");
        let mut last = add_while(scope, name, &variables, self.parallel_iterations, condition, body)?;
        last.truncate(given);
        Ok(last)
    }
}

/// Values that are not outputs become constants.
fn as_outputs<V>(scope: &Scope, variables: V) -> Result<Vec<Output>>
where
    V: IntoIterator,
    V::Item: Into<Input>,
{
    let variables: Vec<Input> = variables.into_iter().map(Into::into).collect();
    variables.into_iter().map(|variable| variable.into_output(scope)).collect()
}

/// Adds a loop: traces both functions until the shapes of variables hold in every iteration.
pub(super) fn add_while(
    scope: &Scope,
    name: &str,
    variables: &[Output],
    parallel_iterations: Option<i64>,
    condition: impl Fn(&Scope, &[Output]) -> Result<Vec<Output>>,
    body: impl Fn(&Scope, &[Output]) -> Result<Vec<Output>>,
) -> Result<Vec<Output>> {
    let mut specs: Vec<TensorSpec> = variables.iter().map(Into::into).collect();
    // Every round makes a dimension or a rank unknown, of which there are few.
    let traced = loop {
        let traced = FunctionGraph::trace(scope, &specs, &body)?;
        check_results(variables, &traced.results)?;
        let relaxed: Vec<TensorSpec> = specs
            .iter()
            .zip(&traced.results)
            .map(|(spec, result)| spec.clone().with_shape(common_shape(spec.shape(), &result.shape())))
            .collect();
        if relaxed.iter().zip(&specs).all(|(relaxed, spec)| relaxed.shape() == spec.shape()) {
            break traced;
        }
        specs = relaxed;
    };
    let condition = FunctionGraph::trace(scope, &specs, &condition)?;
    add_traced(scope, name, variables, parallel_iterations, &condition, traced)
}

/// Adds a loop whose functions take the variables and what they capture.
pub(super) fn add_traced(
    scope: &Scope,
    name: &str,
    variables: &[Output],
    parallel_iterations: Option<i64>,
    condition: &FunctionGraph,
    mut body: FunctionGraph,
) -> Result<Vec<Output>> {
    let captures = joint_captures(&[condition, &body]);
    let mut shapes: Vec<PartialShape> = body.args.iter().map(Output::shape).collect();
    // What is passed in is the same in the next iteration.
    let stateful = condition.is_stateful() || body.is_stateful();
    let named = |suffix: &str| format!("{name}_{suffix}");
    let condition = condition.define(&named("cond"), &captures)?;
    body.pass_captures(&captures)?;
    let function = body.define(&named("body"), &captures)?;
    shapes.extend(captures.iter().map(Output::shape));
    let node = scope
        .op(if stateful { "While" } else { "StatelessWhile" })
        .name(name)
        .inputs(variables.iter().chain(&captures))
        .attr("cond", condition)
        .attr("body", function)
        .attr("output_shapes", shapes)
        .attr("parallel_iterations", parallel_iterations.unwrap_or(10))
        .attr(LOWER, true)
        .build()?;
    let mut outputs = node.outputs();
    outputs.truncate(variables.len());
    Ok(outputs)
}

fn check_results(variables: &[Output], results: &[Output]) -> Result<()> {
    ensure!(
        variables.len() == results.len(),
        InvalidArgument,
        "the body of a loop returns the next values of its {} variables, but it returns {}",
        variables.len(),
        results.len()
    );
    for (index, (variable, result)) in variables.iter().zip(results).enumerate() {
        if variable.dtype() != result.dtype() {
            bail!(
                InvalidArgument,
                "variable {index} of the loop is {}, but the body returns {} for it; ops::cast converts",
                variable.dtype(),
                result.dtype()
            );
        }
    }
    Ok(())
}

//! Gradients of loops of the first generation of control flow, which imported graphs have: frames.
//!
//! A loop in a frame has no gradient of its own: it becomes a loop of the second generation, whose functions are made of
//! the frame's nodes, and what left the frame passes that loop's results on.

use super::loops::add_while;
use super::region::{Borders, Region, is};
use ferroflow_core::op::{GradCx, InputGrads};
use ferroflow_core::scope::{Operation, Output, Scope};
use ferroflow_core::{Result, bail, ensure, status};
use std::collections::HashMap;

/// Nodes within a frame have no gradient: what leaves the frame has.
pub(crate) fn in_frame_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    bail!(
        InvalidArgument,
        "'{}' is within a loop; differentiate what the loop gives when it ends",
        g.op().name()
    )
}

/// Makes the loop that an `Exit` belongs to one of the second generation.
pub(crate) fn replace_loop(exit: &Operation) -> Result<()> {
    let frame = Frame::of(exit)?;
    let graph = exit.graph();
    let prefix = frame.name.rsplit_once('/').map_or("", |(prefix, _)| prefix);
    let name = if prefix.is_empty() { "while".to_owned() } else { format!("{prefix}/functional") };
    let starts = frame.variables.iter().map(|variable| variable.start.clone()).collect::<Vec<_>>();
    let last = add_while(
        &graph.scope(),
        &name,
        &starts,
        Some(frame.parallel_iterations),
        |s, args| frame.copy(s, args, std::slice::from_ref(&frame.goes_on)),
        |s, args| frame.copy(s, args, &frame.next()),
    )?;
    for (variable, last) in frame.variables.iter().zip(&last) {
        for exit in &variable.exits {
            exit.become_identity(std::slice::from_ref(last))?;
        }
    }
    graph.discard(frame.into_nodes()?)
}

/// A loop as a frame of nodes.
struct Frame {
    name: String,
    parallel_iterations: i64,
    /// The input of `LoopCond`.
    goes_on: Output,
    variables: Vec<LoopVariable>,
    /// The nodes that make it a loop.
    structure: Vec<Operation>,
}

struct LoopVariable {
    start: Output,
    next: Output,
    /// The variable in the frame: the merge, and the output of the switch.
    inside: [Output; 2],
    exits: Vec<Operation>,
}

impl Frame {
    fn of(exit: &Operation) -> Result<Frame> {
        let odd = || status!(InvalidArgument, "'{}' does not end a loop as programs build them", exit.name());
        let switch = single(exit, "Switch").ok_or_else(odd)?;
        let condition = switch.inputs().get(1).cloned().ok_or_else(odd)?;
        ensure!(condition.op().op_type() == "LoopCond", InvalidArgument, "{}", odd().message());
        let goes_on = condition.op().inputs().first().cloned().ok_or_else(odd)?;
        let operations = exit.graph().operations();
        let mut exits: HashMap<String, Vec<Operation>> = HashMap::new();
        for operation in operations.iter().filter(|operation| is(operation, "Exit")) {
            if let Some(switch) = single(operation, "Switch") {
                exits.entry(switch.name()).or_default().push(operation.clone());
            }
        }
        let mut frame = Frame {
            name: String::new(),
            parallel_iterations: 10,
            goes_on,
            variables: Vec::new(),
            structure: vec![condition.op().clone()],
        };
        for switch in operations.iter().filter(|operation| is(operation, "Switch")) {
            if switch.inputs().get(1) != Some(&condition) {
                continue;
            }
            let merge = single(switch, "Merge").ok_or_else(odd)?;
            let parts: Vec<Operation> = merge.inputs().iter().map(|part| part.op().clone()).collect();
            let enter = parts.iter().find(|part| is(part, "Enter")).ok_or_else(odd)?;
            let next = parts.iter().find(|part| is(part, "NextIteration")).ok_or_else(odd)?;
            frame.name = enter.attr("frame_name")?;
            frame.parallel_iterations = enter.attr("parallel_iterations")?;
            let first = |operation: &Operation| operation.inputs().first().cloned().ok_or_else(odd);
            frame.structure.extend([switch, &merge, enter, next].into_iter().cloned());
            frame.variables.push(LoopVariable {
                start: first(enter)?,
                next: first(next)?,
                inside: [merge.output(0)?, switch.output(1)?],
                exits: exits.remove(&switch.name()).unwrap_or_default(),
            });
        }
        Ok(frame)
    }

    fn is_enter(&self, operation: &Operation) -> Result<bool> {
        Ok(is(operation, "Enter") && operation.attr::<String>("frame_name")? == self.name)
    }

    /// The nodes that results depend on, with arguments of a function in the place of the variables.
    fn region(&self, args: &[Output], results: &[Output]) -> Result<Region> {
        Region::new(results, &FrameBorders { frame: self, args })
    }

    /// Copies the nodes that results depend on into a function, whose arguments stand for the variables.
    fn copy(&self, scope: &Scope, args: &[Output], results: &[Output]) -> Result<Vec<Output>> {
        self.region(args, results)?.copy(scope, results)
    }

    fn next(&self) -> Vec<Output> {
        self.variables.iter().map(|variable| variable.next.clone()).collect()
    }

    /// Every node that the loop was made of.
    fn into_nodes(self) -> Result<Vec<Operation>> {
        let starts: Vec<Output> = self.variables.iter().map(|variable| variable.start.clone()).collect();
        let mut results = self.next();
        results.push(self.goes_on.clone());
        let mut nodes: Vec<Operation> = self.region(&starts, &results)?.into_nodes().collect();
        nodes.extend(self.structure);
        Ok(nodes)
    }
}

struct FrameBorders<'a> {
    frame: &'a Frame,
    /// The stand-ins of the variables.
    args: &'a [Output],
}

impl Borders for FrameBorders<'_> {
    fn at(&self, output: &Output) -> Result<Option<Output>> {
        let variables = self.frame.variables.iter().zip(self.args);
        if let Some((_, arg)) = variables.into_iter().find(|(variable, _)| variable.inside.contains(output)) {
            return Ok(Some(arg.clone()));
        }
        if !self.frame.is_enter(output.op())? {
            return Ok(None);
        }
        // What is the same in every iteration comes from around the frame.
        let outside = output.op().inputs().first().cloned();
        Ok(Some(outside.ok_or_else(|| status!(Internal, "an Enter has an input"))?))
    }

    fn begins_with(&self, operation: &Operation) -> Result<bool> {
        let is_inside =
            |variable: &LoopVariable| variable.inside.iter().any(|inside| inside.op() == operation);
        Ok(self.frame.is_enter(operation)?
            || is(operation, "LoopCond")
            || self.frame.variables.iter().any(is_inside))
    }
}

/// The operation that an operation's first input comes from, if it is of this op.
fn single(operation: &Operation, op: &str) -> Option<Operation> {
    operation.inputs().first().map(|input| input.op().clone()).filter(|source| is(source, op))
}

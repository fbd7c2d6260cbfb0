//! Gradients of the first generation of control flow, which imported graphs have: switches and merges, and loops in frames.
//!
//! A loop in a frame has no gradient of its own: it becomes a loop of the second generation, whose functions are made of
//! the frame's nodes, and what left the frame passes that loop's results on. Conditionals stay as they are; their
//! gradient is made of switches and merges that are dead where they are.

use super::loops::add_while;
use crate::build as ops;
use ferroflow_core::op::{GradCx, InputGrads};
use ferroflow_core::scope::{Import, Operation, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The data arrives from whichever side ran: its gradient, or zeros that are dead where the side is.
pub(crate) fn switch_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    check_place(g)?;
    let s = g.scope();
    let side = |index: usize| match g.grad(index) {
        Some(grad) => grad.to_dense(s),
        None => dead_zeros(s, &g.output(index)?),
    };
    let merged = ops::merge(s, [side(0)?, side(1)?])?.output;
    merged.set_shape(g.input(0).shape()).or_else(|error| match g.input(0).dtype() {
        DType::Resource => Ok(()),
        _ => Err(error),
    })?;
    Ok([Some(merged), None].into())
}

/// Only the input that arrived gets the gradient.
pub(crate) fn merge_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    check_place(g)?;
    let (s, dy, arrived) = (g.scope(), g.dy(0)?, g.output(1)?);
    let input = |index: usize| {
        let it_was = ops::equal(s, &arrived, Tensor::scalar(index as i32))?;
        Ok(ops::switch(s, &dy, &it_was)?.output_true)
    };
    Ok((0..g.num_inputs()).map(input).collect::<Result<Vec<Output>>>()?.into())
}

/// A value that is dead cannot be kept for later, as the gradient of a function's body would have to.
fn check_place(g: &GradCx<'_>) -> Result<()> {
    ensure!(
        g.scope().graph().is_same(g.op().graph()),
        Unimplemented,
        "'{}' belongs to a conditional of switches and merges within a loop or a function, through which there is no \
         gradient; build it with ferroflow::cond, or export the graph with the second generation of control flow \
         (tf.compat.v1.enable_control_flow_v2)",
        g.op().name()
    );
    Ok(())
}

/// Zeros like a value, or like the variable behind a handle, that are dead if it is.
fn dead_zeros(s: &Scope, output: &Output) -> Result<Output> {
    let (DType::Resource, Some(handle)) = (output.dtype(), output.handle_shape()) else {
        return ops::zeros_like(s, output);
    };
    let shape = ops::variable_shape(s, output)?;
    ops::fill(s, &shape, Tensor::zeros(handle.dtype, ferroflow_core::Shape::scalar()))
}

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
        |s, args| {
            let next: Vec<Output> = frame.variables.iter().map(|variable| variable.next.clone()).collect();
            frame.copy(s, args, &next)
        },
    )?;
    for (variable, last) in frame.variables.iter().zip(&last) {
        for exit in &variable.exits {
            exit.become_identity(last)?;
        }
    }
    Ok(())
}

/// A loop as a frame of nodes.
struct Frame {
    name: String,
    parallel_iterations: i64,
    /// The input of `LoopCond`.
    goes_on: Output,
    variables: Vec<LoopVariable>,
}

struct LoopVariable {
    start: Output,
    next: Output,
    /// What stands for the variable in the frame: the merge, and what the switch lets through.
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
        let mut frame =
            Frame { name: String::new(), parallel_iterations: 10, goes_on, variables: Vec::new() };
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
            frame.variables.push(LoopVariable {
                start: first(enter)?,
                next: first(next)?,
                inside: [merge.output(0)?, switch.output(1)?],
                exits: exits.remove(&switch.name()).unwrap_or_default(),
            });
        }
        Ok(frame)
    }

    /// Copies the nodes that results depend on into a function, whose arguments stand for the variables.
    fn copy(&self, scope: &Scope, args: &[Output], results: &[Output]) -> Result<Vec<Output>> {
        let mut borders: HashMap<String, Output> = HashMap::new();
        for (variable, arg) in self.variables.iter().zip(args) {
            borders.extend(variable.inside.iter().map(|inside| (inside.name(), arg.clone())));
        }
        let mut nodes: BTreeMap<usize, Operation> = BTreeMap::new();
        let mut ahead: Vec<Output> = results.to_vec();
        let mut waits: Vec<Operation> = Vec::new();
        loop {
            let operation = if let Some(output) = ahead.pop() {
                if borders.contains_key(&output.name()) {
                    continue;
                }
                // What is the same in every iteration comes from around the frame.
                if is(output.op(), "Enter") && output.op().attr::<String>("frame_name")? == self.name {
                    let outside = output.op().inputs().first().cloned();
                    let outside = outside.ok_or_else(|| status!(Internal, "an Enter has an input"))?;
                    borders.insert(output.name(), outside);
                    continue;
                }
                output.op().clone()
            } else if let Some(operation) = waits.pop() {
                if self.is_border(&operation)? {
                    continue;
                }
                operation
            } else {
                break;
            };
            if nodes.insert(operation.position(), operation.clone()).is_none() {
                ahead.extend(operation.inputs());
                waits.extend(operation.control_inputs());
            }
        }
        let names: HashSet<String> = nodes.values().map(Operation::name).collect();
        let node: Vec<NodeDef> = nodes.values().map(|operation| detached(operation, &names)).collect();
        let copied = results.iter().filter(|result| !borders.contains_key(&result.name()));
        let mut import = Import::new().outputs(copied.map(Output::name));
        let taken: HashSet<String> =
            node.iter().flat_map(|node| &node.input).map(|input| full_name(input)).collect();
        for (name, output) in borders.iter().filter(|(name, _)| taken.contains(*name)) {
            import = import.map(name, scope.own(output)?);
        }
        let mut copied = import.build(scope, &GraphDef { node, ..Default::default() })?.into_iter();
        let missing = || status!(Internal, "a result of the loop was not copied");
        let result = |result: &Output| match borders.get(&result.name()) {
            Some(border) => scope.own(border),
            None => copied.next().ok_or_else(missing),
        };
        results.iter().map(result).collect()
    }

    /// Whether waiting for an operation means waiting for the iteration to begin.
    fn is_border(&self, operation: &Operation) -> Result<bool> {
        let is_inside =
            |variable: &LoopVariable| variable.inside.iter().any(|inside| inside.op() == operation);
        let is_enter = is(operation, "Enter") && operation.attr::<String>("frame_name")? == self.name;
        Ok(is_enter || is(operation, "LoopCond") || self.variables.iter().any(is_inside))
    }
}

/// A node without what it refers to outside of a set of nodes, its inputs apart.
fn detached(operation: &Operation, names: &HashSet<String>) -> NodeDef {
    let mut def = operation.to_node_def();
    def.input.retain(|input| input.strip_prefix('^').is_none_or(|name| names.contains(name)));
    if let Some(AttrValue { value: Some(Value::List(list)) }) = def.attr.get_mut("_class") {
        list.s.retain(|class| {
            let name = class.strip_prefix(b"loc:@").and_then(|name| std::str::from_utf8(name).ok());
            name.is_none_or(|name| names.contains(name))
        });
    }
    def
}

fn full_name(input: &str) -> String {
    if input.contains(':') || input.starts_with('^') { input.to_owned() } else { format!("{input}:0") }
}

/// Whether an operation is of this op, or of its form for references.
fn is(operation: &Operation, op: &str) -> bool {
    let found = operation.op_type();
    found == op || found.strip_prefix("Ref") == Some(op)
}

/// The operation that an operation's first input comes from, if it is of this op.
fn single(operation: &Operation, op: &str) -> Option<Operation> {
    operation.inputs().first().map(|input| input.op().clone()).filter(|source| is(source, op))
}

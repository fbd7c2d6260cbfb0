//! Gradients of conditionals of the first generation of control flow, which imported graphs have: switches and merges.
//!
//! The gradient is made of switches and merges beside the conditional's own, dead where those are. The gradient of a
//! function's body, or of a loop's, keeps what it needs of every call or iteration, and what is dead cannot be kept. There
//! the conditional becomes one of the second generation, whose branches are made of the nodes between switches and
//! merges.

use super::branches::{add_if, common_shape};
use super::region::{Borders, Region, is};
use crate::builders as ops;
use ferroflow_core::op::{GradCx, InputGrads};
use ferroflow_core::scope::{FunctionGraph, Operation, Output, Scope};
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, status};
use std::collections::{BTreeMap, BTreeSet};

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

/// A value that is dead cannot be kept for later, as the gradient of a function's body would have to. Whole conditionals
/// have been replaced there.
fn check_place(g: &GradCx<'_>) -> Result<()> {
    ensure!(
        g.scope().graph().is_same(g.op().graph()),
        InvalidArgument,
        "a loop or a function returns what '{}' lets through on one side only; merge it with the other side",
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
    ops::fill(s, &shape, Tensor::zeros(handle.dtype, Shape::scalar()))
}

/// Makes the conditional that a merge belongs to one of the second generation. A merge that begins the iterations of a
/// loop stays.
pub(crate) fn replace_conditional(merge: &Operation) -> Result<bool> {
    if joins_iterations(merge) {
        return Ok(false);
    }
    let graph = merge.graph();
    let conditional = Conditional::of(merge)?.with_others();
    let scope = graph.scope().control(conditional.waits());
    let trace = |side: usize| {
        let branch = &conditional.branches[side];
        FunctionGraph::trace(&scope, &[], |s, _| branch.region()?.copy(s, &branch.results))
    };
    let (otherwise, then) = (trace(0)?, trace(1)?);
    let shapes = then.results.iter().zip(&otherwise.results);
    let shapes = shapes.map(|(yes, no)| common_shape(&yes.shape(), &no.shape())).collect();
    let name = merge.name();
    let name = name.rsplit_once('/').map_or("cond".to_owned(), |(prefix, _)| format!("{prefix}/functional"));
    let predicate = &conditional.predicate;
    let results = add_if(&scope, &name, predicate.into(), [&then, &otherwise], &[], shapes)?;
    let operations = graph.operations();
    for ((merge, then), result) in conditional.merges.iter().zip(results) {
        let which = merge.output(1)?;
        let mut values = vec![result];
        if operations.iter().any(|operation| operation.inputs().contains(&which)) {
            let (then, otherwise) = (*then as i32, 1 - *then as i32);
            values.push(ops::select_v2(&scope, predicate, then, otherwise)?);
        }
        merge.become_identity(&values)?;
    }
    let mut replaced = Vec::new();
    for branch in &conditional.branches {
        replaced.extend(branch.region()?.into_nodes());
        replaced.extend(branch.switches.values().cloned());
    }
    graph.discard(replaced)?;
    Ok(true)
}

/// Whether a merge is where the iterations of a loop begin.
fn joins_iterations(merge: &Operation) -> bool {
    merge.inputs().iter().any(|input| is(input.op(), "NextIteration"))
}

/// Whether an operation lets its input into one of two branches, rather than on or out of a loop.
fn is_branching(operation: &Operation) -> bool {
    is(operation, "Switch")
        && operation.inputs().get(1).is_some_and(|predicate| predicate.op().op_type() != "LoopCond")
}

/// A conditional as nodes of one graph.
struct Conditional {
    /// The predicate as one of the switches gets it.
    predicate: Output,
    /// The results, each with the number of the input that arrives if the predicate holds.
    merges: Vec<(Operation, usize)>,
    /// The branches for false and for true.
    branches: [Branch; 2],
}

/// The nodes between the switches of a conditional and what they let through.
struct Branch {
    /// The inputs of the merges.
    results: Vec<Output>,
    /// Nodes that run in this branch only, by their positions.
    inside: BTreeMap<usize, Operation>,
    /// Its beginning.
    switches: BTreeMap<usize, Operation>,
}

impl Conditional {
    /// The conditional that ends in a merge, as far as that result needs it.
    fn of(merge: &Operation) -> Result<Conditional> {
        let odd = || {
            status!(InvalidArgument, "'{}' does not end a conditional as programs build them", merge.name())
        };
        let inputs: [Output; 2] = merge.inputs().try_into().map_err(|_| odd())?;
        let [(first, first_side), (second, second_side)] =
            [Branch::of(&inputs[0]).ok_or_else(odd)?, Branch::of(&inputs[1]).ok_or_else(odd)?];
        ensure!(first_side != second_side, InvalidArgument, "{}", odd().message());
        let switches = first.switches.values().chain(second.switches.values());
        let predicates: Vec<Output> =
            switches.filter_map(|switch| switch.inputs().into_iter().nth(1)).collect();
        let predicate = predicates.first().cloned().ok_or_else(odd)?;
        let same = predicates.iter().all(|other| origin(other) == origin(&predicate));
        ensure!(same, InvalidArgument, "{}", odd().message());
        let (then, branches) = match second_side {
            1 => (1, [first, second]),
            _ => (0, [second, first]),
        };
        Ok(Conditional { predicate, merges: vec![(merge.clone(), then)], branches })
    }

    /// With the other results of the conditional that share nodes with it, so that no node runs twice.
    fn with_others(mut self) -> Conditional {
        let merge = &self.merges[0].0;
        let others = merge.graph().operations().into_iter();
        let others = others.filter(|other| is(other, "Merge") && other != merge && !joins_iterations(other));
        // What is not built as programs build them is not part of this conditional.
        let mut others: Vec<Conditional> = others.filter_map(|other| Conditional::of(&other).ok()).collect();
        others.retain(|other| origin(&other.predicate) == origin(&self.predicate));
        while let Some(at) = others.iter().position(|other| self.shares_nodes_with(other)) {
            let other = others.swap_remove(at);
            self.merges.extend(other.merges);
            for (branch, more) in self.branches.iter_mut().zip(other.branches) {
                branch.results.extend(more.results);
                branch.inside.extend(more.inside);
                branch.switches.extend(more.switches);
            }
        }
        self
    }

    fn shares_nodes_with(&self, other: &Conditional) -> bool {
        // Nodes that only pass on what arrives cost nothing, and all of a branch may wait for one of them.
        let computes = |node: &Operation| {
            !(is(node, "Identity") && node.inputs().first().is_some_and(|input| is(input.op(), "Switch")))
        };
        let pairs = self.branches.iter().zip(&other.branches);
        let shared = |(a, b): (&Branch, &Branch)| {
            a.inside.iter().any(|(position, node)| b.inside.contains_key(position) && computes(node))
        };
        pairs.into_iter().any(shared)
    }

    /// Control inputs of the branches' nodes from outside of them.
    fn waits(&self) -> Vec<Operation> {
        let mut waits: BTreeMap<usize, Operation> = BTreeMap::new();
        for branch in &self.branches {
            for wait in branch.inside.values().flat_map(Operation::control_inputs) {
                if !branch.contains(&wait) && !branch.begins_at(&wait) {
                    waits.insert(wait.position(), wait);
                }
            }
        }
        waits.into_values().collect()
    }
}

impl Branch {
    /// The branch that a result comes from, and the side of the switches that it is on.
    fn of(result: &Output) -> Option<(Branch, usize)> {
        let (mut seen, mut switches) = (BTreeMap::new(), BTreeMap::new());
        let mut sides = BTreeSet::new();
        // Conditionals within the branch end in merges and begin with switches of their own.
        let mut ahead = vec![(result.op().clone(), Some(result.index()), 1)];
        while let Some((operation, output, depth)) = ahead.pop() {
            let branching = is_branching(&operation);
            if branching && depth == 1 {
                sides.extend(output);
                switches.insert(operation.position(), operation);
                continue;
            }
            if seen.insert(operation.position(), operation.clone()).is_some() {
                continue;
            }
            let ends_inner = is(&operation, "Merge") && !joins_iterations(&operation);
            let depth = depth + usize::from(ends_inner) - usize::from(branching);
            let inputs = operation.inputs().into_iter();
            ahead.extend(inputs.map(|input| (input.op().clone(), Some(input.index()), depth)));
            ahead.extend(operation.control_inputs().into_iter().map(|wait| (wait, None, depth)));
        }
        let mut branch = Branch { results: vec![result.clone()], inside: BTreeMap::new(), switches };
        loop {
            let before = branch.inside.len();
            for operation in seen.values() {
                let sources = operation.inputs().into_iter().map(Operation::from);
                let runs_here = |source: Operation| branch.contains(&source) || branch.begins_at(&source);
                if sources.chain(operation.control_inputs()).any(runs_here) {
                    branch.inside.insert(operation.position(), operation.clone());
                }
            }
            if branch.inside.len() == before {
                break;
            }
        }
        let [side] = sides.into_iter().collect::<Vec<usize>>()[..] else { return None };
        Some((branch, side))
    }

    fn contains(&self, operation: &Operation) -> bool {
        self.inside.contains_key(&operation.position())
    }

    fn begins_at(&self, operation: &Operation) -> bool {
        self.switches.contains_key(&operation.position())
    }

    fn region(&self) -> Result<Region> {
        Region::new(&self.results, self)
    }
}

impl Borders for Branch {
    fn at(&self, output: &Output) -> Result<Option<Output>> {
        if self.begins_at(output.op()) {
            return Ok(output.op().inputs().into_iter().next());
        }
        Ok((!self.contains(output.op())).then(|| output.clone()))
    }

    fn begins_with(&self, operation: &Operation) -> Result<bool> {
        Ok(!self.contains(operation))
    }
}

/// The origin of a value that nodes may only pass on.
fn origin(output: &Output) -> Output {
    let mut output = output.clone();
    while is(output.op(), "Identity") {
        let Some(input) = output.op().inputs().into_iter().next() else { break };
        output = input;
    }
    output
}

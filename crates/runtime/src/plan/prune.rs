//! Pruning, the first planning pass: keeps the nodes that fetches and targets need, and replaces fed outputs with
//! arguments.

use super::{PlanOptions, Planned};
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::{Graph, Node, NodeData, NodeId, NodeKind, Output};
use ferroflow_core::{Result, bail, ensure};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// The feeds, fetches and targets of a run. Tensor names are `node:index`; `node` alone means `node:0`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Signature {
    /// Tensors that the caller supplies.
    pub feeds: Vec<String>,
    /// Tensors that the caller receives.
    pub fetches: Vec<String>,
    /// Nodes that must run.
    pub targets: Vec<String>,
}

/// Splits `node:index`.
pub fn parse_tensor_name(text: &str) -> (&str, u32) {
    match text.rsplit_once(':') {
        Some((name, digits)) if !digits.is_empty() => match digits.parse() {
            Ok(index) => (name, index),
            Err(_) => (text, 0),
        },
        _ => (text, 0),
    }
}

/// Prunes `graph` for a signature whose feeds are on the device `client`.
pub(super) fn prune(graph: &Graph, signature: &Signature, client: &str) -> Result<Planned> {
    ensure!(
        !signature.fetches.is_empty() || !signature.targets.is_empty(),
        InvalidArgument,
        "Must specify at least one target to fetch or execute."
    );
    let mut pruned = graph.clone();
    let mut fed: HashMap<Output, Output> = HashMap::new();
    let mut arg_types = Vec::new();
    for (i, feed) in signature.feeds.iter().enumerate() {
        let output = find_feed(graph, feed)?;
        let (dtype, _) = graph.node(output.node).data.output_types[output.index as usize];
        let arg = pruned.push(Node {
            data: Arc::new(NodeData {
                name: format!("_recv_{}_{}", graph.node(output.node).data.name, output.index),
                kind: NodeKind::Arg(i),
                attrs: Attrs::default(),
                device: client.to_owned(),
                input_types: Vec::new(),
                output_types: vec![(dtype, false)],
            }),
            inputs: Vec::new(),
            controls: Vec::new(),
        });
        if fed.insert(output, Output { node: arg, index: 0 }).is_some() {
            bail!(InvalidArgument, "Endpoint \"{feed}\" fed more than once.");
        }
        arg_types.push(dtype);
    }
    let mut fetches = Vec::new();
    for fetch in &signature.fetches {
        let output = find_fetch(graph, fetch)?;
        ensure!(!fed.contains_key(&output), InvalidArgument, "{fetch} is both fed and fetched.");
        fetches.push(output);
    }
    let mut targets = Vec::new();
    let mut missing = String::new();
    for target in &signature.targets {
        match graph.find(target.strip_suffix(":0").unwrap_or(target)) {
            Some(id) => targets.push(id),
            None => missing.push_str(&format!("{target} ")),
        }
    }
    ensure!(missing.is_empty(), NotFound, "PruneForTargets: Some target nodes not found: {missing}");
    if !fed.is_empty() {
        for (output, arg) in &fed {
            for (id, input) in graph.bypassing(*output) {
                pruned.node_mut(*id).inputs[*input] = *arg;
            }
        }
        let ids: Vec<NodeId> = pruned.ids().collect();
        for id in ids {
            for input in &mut pruned.node_mut(id).inputs {
                if let Some(arg) = fed.get(input) {
                    *input = *arg;
                }
            }
            // A control edge from a node whose output is fed becomes one from the feed.
            let controls = pruned.node(id).controls.clone();
            let replaced = controls.into_iter().map(|control| {
                let whole =
                    graph.nodes().get(control.index()).is_some_and(|node| node.data.output_types.len() == 1);
                match fed.get(&Output { node: control, index: 0 }) {
                    Some(arg) if whole => arg.node,
                    _ => control,
                }
            });
            pruned.node_mut(id).controls = replaced.collect();
        }
    }
    let arg_names = signature.feeds.iter().map(|feed| parse_tensor_name(feed).0.to_owned()).collect();
    let planned = keep_needed(Planned {
        graph: pruned,
        arg_names,
        arg_types,
        fetches,
        fetch_names: signature.fetches.clone(),
        fetch_devices: Vec::new(),
        targets,
        options: PlanOptions::default(),
    });
    refuse_fed_references(&planned.graph)?;
    Ok(planned)
}

/// Refuses nodes that would update a reference in whose place a value is fed.
fn refuse_fed_references(graph: &Graph) -> Result<()> {
    for node in graph.nodes() {
        for (input, (output, (dtype, is_ref))) in node.inputs.iter().zip(&node.data.input_types).enumerate() {
            let from = &graph.node(output.node).data;
            ensure!(
                !is_ref || !matches!(from.kind, NodeKind::Arg(_)),
                InvalidArgument,
                "Input {input} of node {} was passed {dtype} from {}:{} incompatible with expected {dtype}_ref.",
                node.data.name,
                from.name,
                output.index
            );
        }
    }
    Ok(())
}

fn find_feed(graph: &Graph, text: &str) -> Result<Output> {
    let (name, index) = parse_tensor_name(text);
    let Some(node) = graph.find(name) else {
        bail!(NotFound, "FeedInputs: unable to find feed output {text}")
    };
    let outputs = graph.node(node).data.output_types.len();
    ensure!(
        (index as usize) < outputs,
        InvalidArgument,
        "FeedInputs: {text} should have output index < {outputs}"
    );
    Ok(Output { node, index })
}

fn find_fetch(graph: &Graph, text: &str) -> Result<Output> {
    let (name, index) = parse_tensor_name(text);
    let Some(node) = graph.find(name) else { bail!(NotFound, "FetchOutputs node {text}: not found") };
    let outputs = graph.node(node).data.output_types.len();
    ensure!(outputs > 0, InvalidArgument, "Tried to fetch data for '{text}', which produces no output.");
    ensure!(
        (index as usize) < outputs,
        InvalidArgument,
        "FetchOutputs {text}: output index too large, must be < {outputs}"
    );
    Ok(Output { node, index })
}

/// Drops every node that no fetch or target needs.
pub(super) fn keep_needed(planned: Planned) -> Planned {
    let graph = &planned.graph;
    let mut needed = HashSet::new();
    let mut queue: Vec<NodeId> =
        planned.fetches.iter().map(|fetch| fetch.node).chain(planned.targets.iter().copied()).collect();
    while let Some(id) = queue.pop() {
        if needed.insert(id) {
            let node = graph.node(id);
            queue.extend(node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied()));
        }
    }
    let mut kept = graph.empty_like();
    let mut new_ids = vec![NodeId(u32::MAX); graph.node_count()];
    for id in graph.ids().filter(|id| needed.contains(id)) {
        new_ids[id.index()] = kept.push(graph.node(id).clone());
    }
    let ids: Vec<NodeId> = kept.ids().collect();
    for id in ids {
        let node = kept.node_mut(id);
        node.inputs.iter_mut().for_each(|input| input.node = new_ids[input.node.index()]);
        node.controls.iter_mut().for_each(|control| *control = new_ids[control.index()]);
    }
    let fetches = planned.fetches.iter().map(|fetch| Output { node: new_ids[fetch.node.index()], ..*fetch });
    Planned {
        fetches: fetches.collect(),
        targets: planned.targets.iter().map(|id| new_ids[id.index()]).collect(),
        graph: kept,
        ..planned
    }
}

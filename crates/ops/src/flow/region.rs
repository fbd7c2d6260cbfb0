//! Parts of a graph between results and the borders where they begin, copied into the body of a function.
//!
//! This is how the first generation of control flow, which marks branches and iterations by nodes, becomes the second,
//! whose branches and bodies are functions.

use ferroflow_core::scope::{Import, Operation, Output, Scope};
use ferroflow_core::{Result, status};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef};
use std::collections::{BTreeMap, HashMap, HashSet};

/// The beginning of a region.
pub(super) trait Borders {
    /// The stand-in of an output in the copy if the region begins there: an argument, or an output from around.
    fn at(&self, output: &Output) -> Result<Option<Output>>;

    /// Whether waiting for an operation means no more than waiting for the region to begin.
    fn begins_with(&self, operation: &Operation) -> Result<bool>;
}

/// Nodes that results depend on, back to the borders.
#[derive(Default)]
pub(super) struct Region {
    nodes: BTreeMap<usize, Operation>,
    /// The stand-ins of outputs where the region begins, by their names.
    borders: HashMap<String, Output>,
}

impl Region {
    pub(super) fn new(results: &[Output], borders: &impl Borders) -> Result<Region> {
        let mut region = Region::default();
        let mut ahead: Vec<Output> = results.to_vec();
        let mut waits: Vec<Operation> = Vec::new();
        loop {
            let operation = if let Some(output) = ahead.pop() {
                if region.borders.contains_key(&output.name()) {
                    continue;
                }
                if let Some(border) = borders.at(&output)? {
                    region.borders.insert(output.name(), border);
                    continue;
                }
                output.op().clone()
            } else if let Some(operation) = waits.pop() {
                if borders.begins_with(&operation)? {
                    continue;
                }
                operation
            } else {
                break;
            };
            if region.nodes.insert(operation.position(), operation.clone()).is_none() {
                ahead.extend(operation.inputs());
                waits.extend(operation.control_inputs());
            }
        }
        Ok(region)
    }

    /// The nodes.
    pub(super) fn into_nodes(self) -> impl Iterator<Item = Operation> {
        self.nodes.into_values()
    }

    /// Copies the nodes into a scope of a function's body, and returns what results are there.
    pub(super) fn copy(&self, scope: &Scope, results: &[Output]) -> Result<Vec<Output>> {
        let names: HashSet<String> = self.nodes.values().map(Operation::name).collect();
        let node: Vec<NodeDef> = self.nodes.values().map(|operation| detached(operation, &names)).collect();
        let inside = results.iter().filter(|result| !self.borders.contains_key(&result.name()));
        let mut import = Import::new().outputs(inside.map(Output::name));
        let taken: HashSet<String> =
            node.iter().flat_map(|node| &node.input).map(|input| full_name(input)).collect();
        for (name, output) in self.borders.iter().filter(|(name, _)| taken.contains(*name)) {
            import = import.map(name, scope.capture(output)?);
        }
        let mut copied = import.build(scope, &GraphDef { node, ..Default::default() })?.into_iter();
        let missing = || status!(Internal, "a result was not copied with what it depends on");
        let result = |result: &Output| match self.borders.get(&result.name()) {
            Some(border) => scope.capture(border),
            None => copied.next().ok_or_else(missing),
        };
        results.iter().map(result).collect()
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
pub(super) fn is(operation: &Operation, op: &str) -> bool {
    let found = operation.op_type();
    found == op || found.strip_prefix("Ref") == Some(op)
}

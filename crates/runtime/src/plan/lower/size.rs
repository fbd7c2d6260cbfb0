//! The size of a graph after lowering, computed before lowering: short functions that call each other twice can expand
//! to any number of nodes.

use super::{Lowered, MAX_NODES, is_lowered};
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::{Graph, Library, NodeKind};
use ferroflow_core::{Result, ensure};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, NodeDef};
use std::collections::{BTreeMap, HashMap};

/// The depth of calls beyond which counting stops.
const MAX_DEPTH: usize = 1000;

/// Refuses a graph that would be too large after the nodes from `first` on are lowered.
pub(super) fn check(graph: &Graph, first: usize, which: Lowered) -> Result<()> {
    let mut sizes = Sizes { library: graph.library(), known: HashMap::new(), depth: 0 };
    let mut total = graph.node_count();
    for node in graph.nodes().iter().skip(first).filter(|node| is_lowered(&node.data, which)) {
        let data = &node.data;
        let size = match &data.kind {
            NodeKind::Function(name) => sizes.function(name),
            _ => sizes.called(&data.attrs),
        };
        total = total.saturating_add(size);
        ensure!(
            total <= MAX_NODES,
            ResourceExhausted,
            "{} calls functions that call functions; written out as nodes they make a graph of more than {MAX_NODES} \
             nodes, which is the limit",
            data.name
        );
    }
    Ok(())
}

struct Sizes<'a> {
    library: &'a Library,
    /// The sizes of functions, including everything that they call. A function that is being counted counts as zero,
    /// because recursive calls are not inlined.
    known: HashMap<String, usize>,
    depth: usize,
}

impl Sizes<'_> {
    fn function(&mut self, name: &str) -> usize {
        if let Some(size) = self.known.get(name) {
            return *size;
        }
        let Some(function) = self.library.get(name).cloned() else { return 0 };
        if self.depth == MAX_DEPTH {
            return usize::MAX;
        }
        self.known.insert(name.to_owned(), 0);
        self.depth += 1;
        let mut size = function.node_def.len();
        for node in &function.node_def {
            size = size.saturating_add(self.node(node));
        }
        self.depth -= 1;
        self.known.insert(name.to_owned(), size);
        size
    }

    fn node(&mut self, node: &NodeDef) -> usize {
        match self.library.get(&node.op) {
            Some(_) => self.function(&node.op),
            None => self.attrs(&node.attr),
        }
    }

    fn called(&mut self, attrs: &Attrs) -> usize {
        self.attrs(attrs.map())
    }

    /// The size of the functions among attributes.
    fn attrs(&mut self, attrs: &BTreeMap<String, AttrValue>) -> usize {
        let mut size = 0usize;
        for value in attrs.values().filter_map(|attr| attr.value.as_ref()) {
            match value {
                Value::Func(function) => size = size.saturating_add(self.function(&function.name)),
                Value::List(list) => {
                    for function in &list.func {
                        size = size.saturating_add(self.function(&function.name));
                    }
                }
                _ => {}
            }
        }
        size
    }
}

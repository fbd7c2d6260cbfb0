//! Import of a `GraphDef` into a graph, optionally under a prefix and with some inputs replaced by existing outputs.

use super::{Graph, Operation, Output, Scope};
use crate::graph::NodeId;
use crate::{Result, bail, ensure};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef};
use std::collections::HashMap;

/// Options for importing a `GraphDef`.
///
/// ```
/// # use ferroflow_core::{Result, op::{Op, Registry}, scope::{Graph, Import}};
/// # static NEG: Op = Op { name: "Neg", inputs: &["x: T"], outputs: &["y: T"], attrs: &["T: type"], ..Op::PURE };
/// # static CONST: Op = Op {
/// #     name: "Const", outputs: &["output: dtype"], attrs: &["value: tensor", "dtype: type"], ..Op::PURE
/// # };
/// # fn main() -> Result<()> {
/// # let registry = Registry::new([&NEG, &CONST])?;
/// let model = Graph::over(registry.clone());
/// let x = model.scope().named_constant("x", 1.0f32)?;
/// model.scope().op("Neg").name("y").input(&x).build()?;
///
/// let graph = Graph::over(registry);
/// let mine = graph.scope().constant(5.0f32)?;
/// let import = Import::new().prefix("model").map("x:0", &mine).outputs(["y:0"]);
/// let y = import.build(&graph.scope(), &model.to_graph_def())?.remove(0);
/// assert_eq!(y.name(), "model/y:0");
/// assert_eq!(y.op().inputs(), [mine]);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
pub struct Import {
    prefix: Option<String>,
    inputs: HashMap<String, Output>,
    controls: HashMap<String, Operation>,
    outputs: Vec<String>,
}

impl Import {
    /// The defaults: names and inputs stay as they are.
    pub fn new() -> Import {
        Import::default()
    }

    /// Puts the nodes into a scope of this name. One that is taken gets a number, and one that ends in `/` is a full
    /// prefix, as for [`Scope::scope`].
    #[must_use]
    pub fn prefix(mut self, prefix: &str) -> Import {
        self.prefix = Some(prefix.to_owned());
        self
    }

    /// Replaces an output of the imported graph, `node:index` or `node`, with an existing one.
    #[must_use]
    pub fn map(mut self, name: &str, output: impl Into<Output>) -> Import {
        self.inputs.insert(full_name(name), output.into());
        self
    }

    /// Replaces an operation of the imported graph that others wait for with an existing one.
    #[must_use]
    pub fn map_control(mut self, name: &str, operation: impl Into<Operation>) -> Import {
        self.controls.insert(name.to_owned(), operation.into());
        self
    }

    /// The outputs to return, by their names in the imported graph.
    #[must_use]
    pub fn outputs<I>(mut self, names: I) -> Import
    where
        I: IntoIterator,
        I::Item: AsRef<str>,
    {
        self.outputs.extend(names.into_iter().map(|name| name.as_ref().to_owned()));
        self
    }

    /// Adds all nodes and functions; on an error, none.
    pub fn build(self, scope: &Scope, def: &GraphDef) -> Result<Vec<Output>> {
        scope.check()?;
        let prefix = match &self.prefix {
            Some(prefix) => scope.scope(prefix).prefix().to_owned(),
            None => scope.prefix().to_owned(),
        };
        let mut used = Vec::new();
        let mut renamed = def.clone();
        for node in &mut renamed.node {
            self.rename(node, &prefix, scope, &mut used)?;
        }
        if let Some(name) = self.inputs.keys().find(|name| !used.contains(*name)) {
            bail!(
                InvalidArgument,
                "the imported graph has no node that takes '{name}', for which a replacement was given"
            );
        }
        scope.graph().add(&renamed)?;
        let find = |name: &String| match self.inputs.get(&full_name(name)) {
            Some(output) => Ok(output.clone()),
            None => scope.graph().output(&format!("{prefix}{name}")),
        };
        self.outputs.iter().map(find).collect()
    }

    fn rename(&self, node: &mut NodeDef, prefix: &str, scope: &Scope, used: &mut Vec<String>) -> Result<()> {
        node.name = format!("{prefix}{}", node.name);
        for input in &mut node.input {
            *input = match input.strip_prefix('^') {
                Some(name) => match self.controls.get(name) {
                    Some(operation) => {
                        scope.graph().check_owns(operation)?;
                        format!("^{}", operation.name())
                    }
                    None => format!("^{prefix}{name}"),
                },
                None => match self.inputs.get(&full_name(input)) {
                    Some(output) => {
                        used.push(full_name(input));
                        scope.capture(output)?.name()
                    }
                    None => format!("{prefix}{input}"),
                },
            };
        }
        if let Some(AttrValue { value: Some(Value::List(list)) }) = node.attr.get_mut("_class") {
            for class in &mut list.s {
                if let Some(name) = class.strip_prefix(b"loc:@") {
                    *class = [b"loc:@", prefix.as_bytes(), name].concat().into();
                }
            }
        }
        Ok(())
    }
}

fn full_name(name: &str) -> String {
    if name.contains(':') { name.to_owned() } else { format!("{name}:0") }
}

impl Graph {
    /// Adds the nodes and functions of a `GraphDef` with their names. [`Import`] has options.
    pub fn import(&self, def: &GraphDef) -> Result<()> {
        Import::new().build(&self.scope(), def).map(|_| ())
    }

    fn add(&self, def: &GraphDef) -> Result<()> {
        let mut state = self.lock();
        for node in &def.node {
            ensure!(
                state.graph.find(&node.name).is_none(),
                InvalidArgument,
                "the graph already has a node named '{}'; import under a prefix",
                node.name
            );
        }
        let first = state.graph.node_count();
        let mut next = state.graph.clone();
        let own = next.versions().clone();
        next.extend(def)?;
        // As in stock, the older producer version determines what nodes may rely on.
        let theirs = next.versions().producer;
        let producer = if theirs == 0 { own.producer } else { own.producer.min(theirs) };
        next.set_versions(VersionDef { producer, ..own });
        let mut known = state.known.clone();
        for id in next.topological_order()?.into_iter().filter(|id| id.index() >= first) {
            known.infer(&next, id).map_err(|error| at(&next, id, error))?;
        }
        (state.graph, state.known) = (next, known);
        for node in &def.node {
            let ends = node.name.match_indices('/').map(|(at, _)| at).chain([node.name.len()]);
            for end in ends {
                state.names.reserve(&node.name[..end]);
            }
        }
        Ok(())
    }
}

fn at(graph: &crate::graph::Graph, id: NodeId, error: crate::Status) -> crate::Status {
    let data = &graph.node(id).data;
    error.map_message(|text| format!("{text} for '{{{{node {}}}}} = {}'", data.name, data.op_name()))
}

//! Conversion of graphs from and to `GraphDef`.

use super::build::{Checker, SharedAttrs};
use super::{GRAPH_VERSION, Graph, Node, NodeData, NodeId, NodeKind, Output};
use crate::{DType, Result, bail, ensure};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NodeDef, VersionDef};
use std::sync::Arc;

impl Graph {
    /// Adds the nodes and functions of a `GraphDef`. Either all of it is added or, on an error, nothing.
    pub fn extend(&mut self, def: &GraphDef) -> Result<()> {
        self.add(def, false)
    }

    /// Like [`Graph::extend`], for a partition of a graph that a master has planned: names may start with an
    /// underscore, as names of nodes added by planning do.
    pub fn extend_planned(&mut self, def: &GraphDef) -> Result<()> {
        self.add(def, true)
    }

    fn add(&mut self, def: &GraphDef, planned: bool) -> Result<()> {
        check_versions(&def.versions.clone().unwrap_or_default())?;
        let mut next = self.clone();
        if let Some(versions) = &def.versions {
            next.versions = versions.clone();
        }
        if let Some(library) = &def.library {
            next.library = Arc::new(next.library.with(library, &next.registry)?);
        }
        next.add_nodes(def, self.node_count() > 0, planned)?;
        next.topological_order()?;
        *self = next;
        Ok(())
    }

    fn add_nodes(&mut self, def: &GraphDef, extending: bool, planned: bool) -> Result<()> {
        let first = self.node_count();
        let mut shared = SharedAttrs::default();
        for node_def in &def.node {
            let library = self.library.clone();
            let checker = Checker { registry: &self.registry, library: &library, planned };
            if let Some(known) = self.find(&node_def.name) {
                if extending && known.index() < first {
                    bail!(
                        InvalidArgument,
                        "GraphDef argument to Extend includes node '{}', which was created by a previous call to \
                         Create or Extend in this session.",
                        node_def.name
                    );
                }
                bail!(InvalidArgument, "Node '{}' is not unique", node_def.name);
            }
            let mut data = checker.check(node_def, &node_def.attr)?;
            data.attrs = shared.share(data.attrs);
            self.push(Node { data: Arc::new(data), inputs: Vec::new(), controls: Vec::new() });
        }
        for (position, node_def) in def.node.iter().enumerate() {
            let id = NodeId((first + position) as u32);
            self.connect(id, node_def)?;
        }
        Ok(())
    }

    fn connect(&mut self, id: NodeId, def: &NodeDef) -> Result<()> {
        let mut inputs = Vec::with_capacity(def.input.len());
        let mut controls = Vec::new();
        for text in &def.input {
            let (name, output) = parse_input(text);
            let Some(source) = self.find(name) else {
                bail!(InvalidArgument, "Node '{}': Unknown input node '{text}'", def.name)
            };
            match output {
                None => {
                    if !controls.contains(&source) {
                        controls.push(source);
                    }
                }
                Some(index) => {
                    ensure!(
                        controls.is_empty(),
                        InvalidArgument,
                        "Node '{}': Control dependencies must come after regular dependencies",
                        def.name
                    );
                    let outputs = self.node(source).data.output_types.len();
                    ensure!(
                        (index as usize) < outputs,
                        InvalidArgument,
                        "Node '{}': Connecting to invalid output {index} of source node {name} which has {outputs} \
                         outputs.",
                        def.name
                    );
                    inputs.push(Output { node: source, index });
                }
            }
        }
        self.check_input_types(id, &inputs)?;
        let node = self.node_mut(id);
        node.inputs = inputs;
        node.controls = controls;
        Ok(())
    }

    /// Checks that inputs have the number and types that the op declares.
    pub(crate) fn check_input_types(&self, id: NodeId, inputs: &[Output]) -> Result<()> {
        let data = &self.node(id).data;
        ensure!(
            inputs.len() == data.input_types.len(),
            InvalidArgument,
            "NodeDef expected inputs '{}' do not match {} inputs specified; Op<name={}>; NodeDef: {{{{node {}}}}}",
            data.input_types.iter().map(|ty| type_name(*ty)).collect::<Vec<_>>().join(", "),
            inputs.len(),
            data.op_name(),
            data.name
        );
        for (i, (input, want)) in inputs.iter().zip(&data.input_types).enumerate() {
            let source = &self.node(input.node).data;
            let have = source.output_types[input.index as usize];
            let fits = have.0 == want.0 && (have.1 || !want.1);
            ensure!(
                fits,
                InvalidArgument,
                "Input {i} of node {} was passed {} from {}:{} incompatible with expected {}.",
                data.name,
                type_name(have),
                source.name,
                input.index,
                type_name(*want)
            );
        }
        Ok(())
    }

    /// The wire form.
    pub fn to_def(&self) -> GraphDef {
        GraphDef {
            node: self.node_defs(0).collect(),
            library: Some(self.library.to_proto()),
            versions: Some(self.versions.clone()),
            ..Default::default()
        }
    }

    /// The wire form of the nodes from position `first` on.
    pub fn node_defs(&self, first: usize) -> impl Iterator<Item = NodeDef> + '_ {
        self.nodes.iter().skip(first).map(|node| self.node_def(node))
    }

    fn node_def(&self, node: &Node) -> NodeDef {
        let mut input: Vec<String> = node.inputs.iter().map(|input| self.output_name(*input)).collect();
        input.extend(node.controls.iter().map(|id| format!("^{}", self.node(*id).data.name)));
        let mut attr = node.data.attrs.map().clone();
        let mut set =
            |name: &str, value: Value| attr.insert(name.to_owned(), AttrValue { value: Some(value) });
        match &node.data.kind {
            NodeKind::Arg(index) => {
                let dtype = node.data.output_types.first().map_or(DType::Float, |(dtype, _)| *dtype);
                set("index", Value::I(*index as i64));
                set("T", Value::Type(dtype.to_wire()));
            }
            NodeKind::Constant(value) => {
                set("dtype", Value::Type(value.dtype().to_wire()));
                if let Ok(proto) = value.to_proto() {
                    set("value", Value::Tensor(Box::new(proto)));
                }
            }
            NodeKind::Op(_) | NodeKind::Function(_) | NodeKind::Unsupported(_) => {}
        }
        NodeDef {
            name: node.data.name.clone(),
            op: node.data.op_name().to_owned(),
            input,
            device: node.data.device.clone(),
            attr,
            ..Default::default()
        }
    }

    /// `name` or `name:index`.
    pub fn output_name(&self, output: Output) -> String {
        let name = &self.node(output.node).data.name;
        if output.index == 0 { name.clone() } else { format!("{name}:{}", output.index) }
    }

    /// Converts and checks a node from its wire form, for planners.
    pub fn check_node(&self, def: &NodeDef) -> Result<NodeData> {
        Checker { registry: &self.registry, library: &self.library, planned: true }.check(def, &def.attr)
    }

    /// Like [`Graph::check_node`], for nodes that programs add.
    pub(crate) fn check_user_node(&self, def: &NodeDef) -> Result<NodeData> {
        Checker { registry: &self.registry, library: &self.library, planned: false }.check(def, &def.attr)
    }

    /// Assigns a node to another device.
    pub fn set_device(&mut self, id: NodeId, device: &str) {
        match Arc::get_mut(&mut self.node_mut(id).data) {
            // If no other graph holds the node, it is changed in place: its attributes may be large.
            Some(data) => device.clone_into(&mut data.device),
            None => self.replace_data(id, |data| data.on_device(device)),
        }
    }

    /// Replaces a node's data, for planners.
    pub fn replace_data(&mut self, id: NodeId, change: impl FnOnce(&NodeData) -> NodeData) {
        let data = change(&self.node(id).data);
        self.node_mut(id).data = Arc::new(data);
    }
}

/// Splits `name`, `name:k` and `^name`; the index is `None` for control inputs.
fn parse_input(text: &str) -> (&str, Option<u32>) {
    if let Some(name) = text.strip_prefix('^') {
        return (name, None);
    }
    if let Some((name, digits)) = text.rsplit_once(':')
        && let Ok(index) = digits.parse()
    {
        return (name, Some(index));
    }
    (text, Some(0))
}

fn type_name((dtype, is_ref): (DType, bool)) -> String {
    if is_ref { format!("{dtype}_ref") } else { dtype.to_string() }
}

fn check_versions(versions: &VersionDef) -> Result<()> {
    ensure!(
        versions.min_consumer <= GRAPH_VERSION,
        InvalidArgument,
        "GraphDef min consumer version {} above current version {GRAPH_VERSION} for this server. Please upgrade it.",
        versions.min_consumer
    );
    ensure!(
        !versions.bad_consumers.contains(&GRAPH_VERSION),
        InvalidArgument,
        "GraphDef disallows consumer version {GRAPH_VERSION}. Please upgrade this server: this version is likely buggy."
    );
    Ok(())
}

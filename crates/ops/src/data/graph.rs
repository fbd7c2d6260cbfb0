//! Datasets as graphs: the nodes that make a dataset again, in another process or in another form.
//!
//! The layout is stock's: constants and dataset nodes, inputs first, named `Op/_N`, and a `_Retval` node that tells which
//! of them is the dataset.

use super::Dataset;
use bytes::Bytes;
use ferroflow_core::attr::ToAttr;
use ferroflow_core::op::Registry;
use ferroflow_core::{DType, Result, Tensor, bail};
use ferroflow_proto::tensorflow::{
    AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NodeDef, TensorProto, attr_value,
};
use std::collections::{BTreeMap, HashMap};
use std::sync::OnceLock;

/// The op of the node that tells which node is the dataset.
const RETVAL: &str = "_Retval";

/// The graph of a dataset.
pub(crate) fn to_graph(dataset: &Dataset) -> Result<GraphDef> {
    let mut builder = Builder::default();
    let output = builder.dataset(dataset)?;
    let attrs = [("T", DType::Variant.to_attr()?), ("index", 0i64.to_attr()?)];
    builder.nodes.push(node("dataset".to_owned(), RETVAL, vec![output], attrs));
    let library = FunctionDefLibrary {
        function: builder.functions.into_values().collect(),
        ..FunctionDefLibrary::default()
    };
    Ok(GraphDef { node: builder.nodes, library: Some(library), ..GraphDef::default() })
}

/// Removes the node that tells which node is the dataset, and returns what it says.
pub(crate) fn take_output(graph: &mut GraphDef) -> Result<String> {
    let output = graph.node.iter().rev().find(|node| node.op == RETVAL).and_then(|node| node.input.first());
    let Some(output) = output.cloned() else {
        bail!(NotFound, "the graph of a dataset must have a {RETVAL} node")
    };
    graph.node.retain(|node| node.op != RETVAL);
    Ok(output)
}

fn node<const N: usize>(
    name: String,
    op: &str,
    input: Vec<String>,
    attrs: [(&str, attr_value::Value); N],
) -> NodeDef {
    let attr =
        attrs.into_iter().map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) })).collect();
    NodeDef { name, op: op.to_owned(), input, attr, ..NodeDef::default() }
}

#[derive(Default)]
struct Builder {
    nodes: Vec<NodeDef>,
    functions: BTreeMap<String, FunctionDef>,
    /// Names of nodes, by the dataset's identity: one that is used twice is described once.
    known: HashMap<usize, String>,
}

impl Builder {
    fn name(&self, op: &str) -> String {
        format!("{op}/_{}", self.nodes.len())
    }

    fn dataset(&mut self, dataset: &Dataset) -> Result<String> {
        if let Some(known) = self.known.get(&dataset.address()) {
            return Ok(known.clone());
        }
        let Some(arguments) = dataset.arguments() else {
            bail!(Unimplemented, "{} is made within a pipeline and has no graph", dataset.op())
        };
        let inputs: Result<Vec<String>> =
            arguments.iter().map(|argument| self.argument(dataset, argument)).collect();
        let inputs = inputs?;
        for function in dataset.functions() {
            for definition in function.definitions().function {
                let name = definition.signature.as_ref().map(|signature| signature.name.clone());
                self.functions.entry(name.unwrap_or_default()).or_insert(definition);
            }
        }
        let name = self.name(dataset.op());
        self.nodes
            .push(NodeDef { attr: dataset.attrs().clone(), ..node(name.clone(), dataset.op(), inputs, []) });
        self.known.insert(dataset.address(), name.clone());
        Ok(name)
    }

    fn argument(&mut self, dataset: &Dataset, argument: &Tensor) -> Result<String> {
        if let Ok(input) = Dataset::from_tensor(argument) {
            return self.dataset(&input);
        }
        let value = match constant(argument) {
            Ok(value) => value,
            Err(error) => bail!(Unimplemented, "an input of {}: {}", dataset.op(), error.message()),
        };
        let name = self.name("Const");
        let attrs =
            [("dtype", argument.dtype().to_attr()?), ("value", attr_value::Value::Tensor(Box::new(value)))];
        self.nodes.push(node(name.clone(), "Const", Vec::new(), attrs));
        Ok(name)
    }
}

/// A tensor as stock writes constants: single numbers and strings in a field of their type. Fingerprints depend on it.
fn constant(tensor: &Tensor) -> Result<TensorProto> {
    let mut proto = tensor.to_proto()?;
    if tensor.elements() != 1 {
        return Ok(proto);
    }
    match tensor.dtype() {
        DType::Int64 => proto.int64_val = vec![tensor.to_scalar()?],
        DType::Int32 => proto.int_val = vec![tensor.to_scalar()?],
        DType::Float => proto.float_val = vec![tensor.to_scalar()?],
        DType::Double => proto.double_val = vec![tensor.to_scalar()?],
        DType::Bool => proto.bool_val = vec![tensor.to_scalar()?],
        DType::Uint8 => proto.int_val = vec![tensor.to_scalar::<u8>()?.into()],
        DType::Int8 => proto.int_val = vec![tensor.to_scalar::<i8>()?.into()],
        DType::Int16 => proto.int_val = vec![tensor.to_scalar::<i16>()?.into()],
        DType::Uint16 => proto.int_val = vec![tensor.to_scalar::<u16>()?.into()],
        DType::Uint32 => proto.uint32_val = vec![tensor.to_scalar()?],
        DType::Uint64 => proto.uint64_val = vec![tensor.to_scalar()?],
        DType::String => proto.string_val = vec![tensor.to_scalar()?],
        _ => return Ok(proto),
    }
    proto.tensor_content = Bytes::new();
    Ok(proto)
}

/// All ops, to look up what the nodes of functions are.
pub(crate) fn registry() -> &'static Registry {
    static REGISTRY: OnceLock<Registry> = OnceLock::new();
    REGISTRY.get_or_init(crate::registry)
}

/// Stateful ops that stock lets functions of datasets call.
const ALLOWED: [&str; 7] =
    ["Assert", "Print", "PrintV2", "Timestamp", "LookupTableFindV2", "LookupTableSize", "LookupTableSizeV2"];

/// Refuses a dataset whose elements depend on state outside of it, which its graph would not carry.
pub(crate) fn check_external_state(dataset: &Dataset) -> Result<()> {
    let mut open = vec![dataset.clone()];
    while let Some(dataset) = open.pop() {
        if matches!(dataset.op(), "ShuffleDatasetV2" | "GeneratorDataset") {
            bail!(FailedPrecondition, "{} depends on external state.", dataset.op());
        }
        for function in dataset.functions() {
            let definitions = function.definitions().function;
            let called = &function.reference().name;
            check_function(&definitions, called)?;
        }
        open.extend(dataset.inputs());
    }
    Ok(())
}

fn check_function(library: &[FunctionDef], name: &str) -> Result<()> {
    let registry = registry();
    let found = library.iter().find(|function| function.signature.as_ref().is_some_and(|s| s.name == name));
    let Some(function) = found.filter(|function| function.signature.as_ref().is_some_and(|s| s.is_stateful))
    else {
        return Ok(());
    };
    for node in &function.node_def {
        // Ops that make datasets are taken for functions of their inputs.
        let stateful = registry.get(&node.op).is_some_and(|entry| {
            entry.op.stateful && !(node.op.contains("Dataset") && entry.op.outputs == ["handle: variant"])
        });
        if !stateful || ALLOWED.contains(&node.op.as_str()) {
            continue;
        }
        let branches: &[&str] = match node.op.as_str() {
            "If" => &["then_branch", "else_branch"],
            "While" => &["cond", "body"],
            op => bail!(FailedPrecondition, "{op} is stateful."),
        };
        for branch in branches {
            if let Some(attr_value::Value::Func(branch)) =
                node.attr.get(*branch).and_then(|attr| attr.value.as_ref())
            {
                check_function(library, &branch.name)?;
            }
        }
    }
    Ok(())
}

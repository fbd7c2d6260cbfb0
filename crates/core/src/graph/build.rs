//! Checks one node against its op's declaration and completes its attributes. Edges are checked in `def.rs`.

use super::{Library, NodeData, NodeKind};
use crate::attr::Attrs;
use crate::op::{AttrKind, OpSpec, Registry};
use crate::{DType, Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, NodeDef, op_def};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Attributes whose encoding is longer than this are not deduplicated.
const MAX_SHARED_BYTES: usize = 512;

/// Attributes of the nodes being added, by their encoding. Most nodes of a large graph have the same attributes as
/// another.
#[derive(Default)]
pub(super) struct SharedAttrs(HashMap<Vec<u8>, Attrs>);

impl SharedAttrs {
    /// The same attributes, shared with other nodes that have them.
    pub(super) fn share(&mut self, attrs: Attrs) -> Attrs {
        let mut key = Vec::new();
        for (name, value) in attrs.map() {
            if key.len() + value.encoded_len() > MAX_SHARED_BYTES {
                return attrs;
            }
            key.extend_from_slice(name.as_bytes());
            key.push(0);
            if value.encode_length_delimited(&mut key).is_err() {
                return attrs;
            }
        }
        self.0.entry(key).or_insert(attrs).clone()
    }
}

/// The context for checking a node.
pub(super) struct Checker<'a> {
    pub(super) registry: &'a Registry,
    pub(super) library: &'a Library,
    /// True if names that only planning produces (leading underscore) are allowed.
    pub(super) planned: bool,
}

impl Checker<'_> {
    /// Converts a node from its wire form, or reports what is wrong with it.
    pub(super) fn check(&self, def: &NodeDef, attrs: &BTreeMap<String, AttrValue>) -> Result<NodeData> {
        ensure!(
            is_node_name(&def.name, self.planned),
            InvalidArgument,
            "Node name '{}' is not valid: expected letters, digits and any of _.-/> after a letter, digit or dot",
            def.name
        );
        if let Some(entry) = self.registry.get(&def.op) {
            let kind = NodeKind::Op(entry.clone());
            return check_op(def, kind, entry.spec(), attrs).map_err(|error| name_node(def, error));
        }
        if let Some(function) = self.library.get(&def.op) {
            return check_function_call(def, function, attrs).map_err(|error| name_node(def, error));
        }
        if let Some(spec) = self.registry.unsupported(&def.op) {
            let spec = Arc::new(spec);
            let kind = NodeKind::Unsupported(spec.clone());
            return check_op(def, kind, &spec, attrs).map_err(|error| name_node(def, error));
        }
        Err(self.registry.unknown(&def.op, &def.name))
    }
}

fn check_op(
    def: &NodeDef,
    kind: NodeKind,
    spec: &OpSpec,
    given: &BTreeMap<String, AttrValue>,
) -> Result<NodeData> {
    let op = &spec.name;
    let mut attrs = Attrs::default();
    for attr in &spec.attrs {
        let value = match given.get(&attr.name).and_then(|value| value.value.clone()) {
            Some(value) => value,
            None => attr.default.clone().ok_or_else(|| missing_attr(spec, &attr.name, op, given))?,
        };
        attr.check(&value).map_err(|error| {
            error.map_message(|text| format!("{text}; for attr '{}' of Op<name={op}>", attr.name))
        })?;
        attrs.set(&attr.name, value);
    }
    for (name, value) in given {
        // Unknown attributes come from newer clients or are hints; stock ignores them as well.
        if spec.attr(name).is_none() {
            attrs.map_mut().insert(name.clone(), value.clone());
        }
    }
    Ok(NodeData {
        name: def.name.clone(),
        kind,
        input_types: OpSpec::arg_types(&spec.inputs, &attrs)?,
        output_types: OpSpec::arg_types(&spec.outputs, &attrs)?,
        attrs,
        device: def.device.clone(),
    })
}

fn check_function_call(
    def: &NodeDef,
    function: &FunctionDef,
    given: &BTreeMap<String, AttrValue>,
) -> Result<NodeData> {
    let attrs = Attrs::from(given.clone());
    let signature = function.signature.clone().unwrap_or_default();
    let types = |args: &[op_def::ArgDef]| -> Result<Vec<(DType, bool)>> {
        let mut types = Vec::new();
        for arg in args {
            types.extend(arg_types(arg, &attrs)?.into_iter().map(|dtype| (dtype, false)));
        }
        Ok(types)
    };
    Ok(NodeData {
        name: def.name.clone(),
        kind: NodeKind::Function(def.op.clone()),
        input_types: types(&signature.input_arg)?,
        output_types: types(&signature.output_arg)?,
        attrs,
        device: def.device.clone(),
    })
}

/// The element types of the tensors that a function's argument stands for.
pub(super) fn arg_types(arg: &op_def::ArgDef, attrs: &Attrs) -> Result<Vec<DType>> {
    if !arg.type_list_attr.is_empty() {
        return attrs.get(&arg.type_list_attr);
    }
    let dtype = match arg.type_attr.as_str() {
        "" => DType::from_wire_maybe_ref(arg.r#type)?.0,
        attr => attrs.get(attr)?,
    };
    let count = match arg.number_attr.as_str() {
        "" => 1,
        attr => attrs.get::<usize>(attr)?,
    };
    ensure!(count <= 1 << 20, InvalidArgument, "argument '{}' has too many tensors: {count}", arg.name);
    Ok(vec![dtype; count])
}

/// Replaces `placeholder` attribute values with those of the function's instantiation.
pub(super) fn bind_attrs(
    attrs: &BTreeMap<String, AttrValue>,
    bindings: &BTreeMap<String, AttrValue>,
) -> Result<BTreeMap<String, AttrValue>> {
    let mut bound = BTreeMap::new();
    for (name, value) in attrs {
        let value = match &value.value {
            Some(Value::Placeholder(parameter)) => match bindings.get(parameter) {
                Some(value) => value.clone(),
                None => bail!(
                    InvalidArgument,
                    "attr '{name}' needs the function's attr '{parameter}', which is not given"
                ),
            },
            Some(Value::Func(function)) => {
                let mut function = function.clone();
                function.attr = bind_attrs(&function.attr, bindings)?;
                AttrValue { value: Some(Value::Func(function)) }
            }
            _ => value.clone(),
        };
        bound.insert(name.clone(), value);
    }
    Ok(bound)
}

/// The error for a missing attribute. Stock resolves the types of inputs and outputs first, so if a type attribute is
/// missing too, that one is reported, as not found.
fn missing_attr(spec: &OpSpec, name: &str, op: &str, given: &BTreeMap<String, AttrValue>) -> Status {
    let missing_type = spec.attrs.iter().find(|attr| {
        attr.kind == AttrKind::Type && attr.default.is_none() && !given.contains_key(&attr.name)
    });
    match missing_type {
        Some(attr) => status!(NotFound, "No attr named '{}' in NodeDef of Op<name={op}>", attr.name),
        None => status!(InvalidArgument, "NodeDef missing attr '{name}' from Op<name={op}>"),
    }
}

fn name_node(def: &NodeDef, error: Status) -> Status {
    if error.message().contains("{{node ") {
        return error;
    }
    error.map_message(|text| format!("{text}; NodeDef: {{{{node {}}}}}", def.name))
}

fn is_node_name(name: &str, planned: bool) -> bool {
    let mut chars = name.chars();
    let first = chars.next().is_some_and(|c| c.is_ascii_alphanumeric() || c == '.' || (planned && c == '_'));
    first && chars.all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '/' | '>'))
}

//! The function library that a graph carries.

use crate::op::Registry;
use crate::{Result, bail, ensure};
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, FunctionDefLibrary, NodeDef, attr_value};
use prost::Message;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// Functions by name.
#[derive(Clone, Default)]
pub struct Library {
    functions: HashMap<String, Arc<FunctionDef>>,
    gradients: HashMap<String, String>,
}

impl Library {
    /// The function with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<FunctionDef>> {
        self.functions.get(name)
    }

    /// The gradient function registered for this function.
    pub fn gradient(&self, name: &str) -> Option<&str> {
        self.gradients.get(name).map(String::as_str)
    }

    /// The number of functions.
    pub fn len(&self) -> usize {
        self.functions.len()
    }

    /// Returns whether there are no functions.
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// This library with more functions. A function that exists already must be identical, and no function may have an
    /// op's name.
    pub fn with(&self, more: &FunctionDefLibrary, ops: &Registry) -> Result<Library> {
        let mut library = self.clone();
        for function in &more.function {
            let Some(signature) = &function.signature else {
                bail!(InvalidArgument, "a function in the library has no signature")
            };
            match library.functions.get(&signature.name) {
                Some(known) if is_same(known, function) => {}
                Some(_) => bail!(
                    InvalidArgument,
                    "Cannot add function '{}' because a different function with the same name already exists.",
                    signature.name
                ),
                None => {
                    ensure!(
                        !ops.declares(&signature.name),
                        InvalidArgument,
                        "Cannot add function '{}' because an op with the same name already exists.",
                        signature.name
                    );
                    library.functions.insert(signature.name.clone(), Arc::new(function.clone()));
                }
            }
        }
        for gradient in &more.gradient {
            library.gradients.insert(gradient.function_name.clone(), gradient.gradient_func.clone());
        }
        Ok(library)
    }

    /// This library without the function of this name.
    #[must_use]
    pub fn without(&self, name: &str) -> Library {
        let mut library = self.clone();
        library.functions.remove(name);
        library.gradients.remove(name);
        library
    }

    /// The wire form of a function and of those that it refers to, directly or not, sorted by name.
    pub fn reachable_from(&self, name: &str) -> FunctionDefLibrary {
        let mut found: BTreeMap<&str, &Arc<FunctionDef>> = BTreeMap::new();
        let mut open = vec![name];
        while let Some(name) = open.pop() {
            let Some((name, function)) = self.functions.get_key_value(name) else { continue };
            if found.insert(name, function).is_some() {
                continue;
            }
            for node in &function.node_def {
                open.push(&node.op);
                for value in node.attr.values().filter_map(|attr| attr.value.as_ref()) {
                    match value {
                        attr_value::Value::Func(function) => open.push(&function.name),
                        attr_value::Value::List(list) => {
                            open.extend(list.func.iter().map(|function| function.name.as_str()));
                        }
                        _ => {}
                    }
                }
            }
        }
        let function = found.into_values().map(|function| (**function).clone()).collect();
        FunctionDefLibrary { function, ..Default::default() }
    }

    /// The wire form, sorted by name.
    pub fn to_proto(&self) -> FunctionDefLibrary {
        let mut functions: Vec<_> = self.functions.iter().collect();
        functions.sort_by_key(|(name, _)| *name);
        FunctionDefLibrary {
            function: functions.into_iter().map(|(_, function)| (**function).clone()).collect(),
            ..Default::default()
        }
    }
}

/// Returns whether two definitions are one function, as stock sees it: the order of nodes and of control inputs,
/// internal attributes of nodes and debug information are ignored, and NaN constants are equal.
fn is_same(a: &FunctionDef, b: &FunctionDef) -> bool {
    // The fast path: clients nearly always repeat what they sent before.
    a == b
        || (a.signature == b.signature
            && a.ret == b.ret
            && a.control_ret == b.control_ret
            && same_attrs(&a.attr, &b.attr, |_, value| value.value.is_some())
            && same_nodes(&a.node_def, &b.node_def))
}

fn same_nodes(a: &[NodeDef], b: &[NodeDef]) -> bool {
    let by_name: HashMap<&str, &NodeDef> = b.iter().map(|node| (node.name.as_str(), node)).collect();
    a.len() == b.len()
        && a.iter().all(|node| by_name.get(node.name.as_str()).is_some_and(|other| same_node(node, other)))
}

fn same_node(a: &NodeDef, b: &NodeDef) -> bool {
    let sorted = |node: &NodeDef| {
        let mut inputs = node.input.clone();
        let control = inputs.iter().position(|input| input.starts_with('^')).unwrap_or(inputs.len());
        inputs[control..].sort_unstable();
        inputs
    };
    a.op == b.op
        && a.device == b.device
        && sorted(a) == sorted(b)
        && same_attrs(&a.attr, &b.attr, |name, _| !name.starts_with('_'))
}

/// Compares the encodings of the attributes that `counts` selects, so that NaN equals NaN.
fn same_attrs(
    a: &BTreeMap<String, AttrValue>,
    b: &BTreeMap<String, AttrValue>,
    counts: impl Fn(&str, &AttrValue) -> bool,
) -> bool {
    let counted = |attrs: &BTreeMap<String, AttrValue>| -> Vec<(String, Vec<u8>)> {
        let counted = attrs.iter().filter(|(name, value)| counts(name, value));
        counted.map(|(name, value)| (name.clone(), value.encode_to_vec())).collect()
    };
    counted(a) == counted(b)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_proto::tensorflow::OpDef;
    use ferroflow_proto::tensorflow::attr_value::Value;

    fn function(inputs: &[&str], attrs: &[(&str, f32)]) -> FunctionDefLibrary {
        let attr =
            |(name, value): &(&str, f32)| (name.to_string(), AttrValue { value: Some(Value::F(*value)) });
        let node = |name: &str| NodeDef {
            name: name.to_owned(),
            input: inputs.iter().map(|input| input.to_string()).collect(),
            attr: attrs.iter().map(attr).collect(),
            ..Default::default()
        };
        let signature = OpDef { name: "f".to_owned(), ..Default::default() };
        let function = FunctionDef {
            signature: Some(signature),
            node_def: vec![node("a"), node("b")],
            ..Default::default()
        };
        FunctionDefLibrary { function: vec![function], ..Default::default() }
    }

    #[test]
    fn a_function_that_comes_again_may_be_written_in_another_way() {
        let ops = Registry::default();
        let known =
            Library::default().with(&function(&["x", "^c", "^d"], &[("value", f32::NAN)]), &ops).unwrap();
        let mut again = function(&["x", "^d", "^c"], &[("value", f32::NAN), ("_internal", 1.0)]);
        again.function[0].node_def.reverse();
        assert_eq!(known.with(&again, &ops).unwrap().len(), 1);
        for other in
            [function(&["x", "^d"], &[("value", f32::NAN)]), function(&["x", "^c", "^d"], &[("value", 1.0)])]
        {
            assert!(known.with(&other, &ops).is_err());
        }
    }
}

//! Fingerprints of datasets' graphs: equal for equal pipelines, whatever their nodes are called. They name the
//! directories of snapshots, so the numbers are stock's.

use ferroflow_core::attr::ToAttr;
use ferroflow_core::graph::{FunctionBody, Library, NodeKind};
use ferroflow_core::op::Registry;
use ferroflow_core::{Result, ensure, status};
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NameAttrList, attr_value};
use prost::Message;
use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The seed of stock's hash.
const SEED: u64 = 0x00DE_CAFC_AFFE;

/// Stock's hash of bytes, MurmurHash64A.
fn hash64(bytes: &[u8]) -> u64 {
    const M: u64 = 0xc6a4_a793_5bd1_e995;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(M);
    let mut chunks = bytes.chunks_exact(8);
    for chunk in &mut chunks {
        let mut word = u64::from_le_bytes(chunk.try_into().expect("chunks have eight bytes")).wrapping_mul(M);
        word = (word ^ (word >> 47)).wrapping_mul(M);
        hash = (hash ^ word).wrapping_mul(M);
    }
    let rest = chunks.remainder();
    if !rest.is_empty() {
        let word = rest.iter().rev().fold(0u64, |word, byte| (word << 8) | u64::from(*byte));
        hash = (hash ^ word).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 47)).wrapping_mul(M);
    hash ^ (hash >> 47)
}

/// The hash of a text.
pub(crate) fn text(text: &str) -> u64 {
    hash64(text.as_bytes())
}

/// One hash of two, in this order.
pub(crate) fn combine(a: u64, b: u64) -> u64 {
    let mixed = b.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(a << 10).wrapping_add(a >> 4);
    a ^ mixed
}

/// The fingerprint of a dataset's graph.
pub(crate) fn fingerprint(graph: &GraphDef, registry: &Registry) -> Result<u64> {
    let library = graph.library.clone().unwrap_or_default();
    let library = Arc::new(Library::default().with(&library, registry)?);
    let mut hasher = Hasher { registry, library, functions: HashMap::new() };
    let nodes = nodes_of(graph);
    let root = nodes.iter().position(|node| node.op == "_Retval");
    let root = root.ok_or_else(|| status!(Internal, "Cannot find sink node for dataset graph."))?;
    let mut known = Known::default();
    hasher.root(&nodes, root, &mut known, 0)
}

/// A node as the hash sees it: without its name.
struct HashedNode {
    op: String,
    attrs: BTreeMap<String, AttrValue>,
    device: String,
    /// Places of the nodes that the inputs come from, and which outputs.
    inputs: Vec<(usize, String)>,
    controls: Vec<usize>,
}

fn nodes_of(graph: &GraphDef) -> Vec<HashedNode> {
    let places: HashMap<&str, usize> =
        graph.node.iter().enumerate().map(|(place, node)| (node.name.as_str(), place)).collect();
    let hashed = |node: &ferroflow_proto::tensorflow::NodeDef| {
        let (mut inputs, mut controls) = (Vec::new(), Vec::new());
        for input in &node.input {
            if let Some(control) = input.strip_prefix('^') {
                controls.extend(places.get(control));
            } else {
                let (name, suffix) = input.split_once(':').unwrap_or((input, ""));
                inputs.extend(places.get(name).map(|place| (*place, suffix.to_owned())));
            }
        }
        HashedNode {
            op: node.op.clone(),
            attrs: node.attr.clone(),
            device: node.device.clone(),
            inputs,
            controls,
        }
    };
    graph.node.iter().map(hashed).collect()
}

/// The hashes of the nodes of one graph.
#[derive(Default)]
struct Known {
    nodes: HashMap<usize, u64>,
}

struct Hasher<'a> {
    registry: &'a Registry,
    library: Arc<Library>,
    functions: HashMap<String, u64>,
}

/// The edges of nodes that count: inputs with the name of the output that they are, and nodes that run before.
type Edges = HashMap<usize, (Vec<(usize, String)>, Vec<usize>)>;

/// Functions nested deeper than this are taken for endless.
const MAX_DEPTH: usize = 50;

impl Hasher<'_> {
    /// Hashes what a node depends on. Edges that lead back to a node that was seen are left out, as in stock.
    fn root(&mut self, nodes: &[HashedNode], root: usize, known: &mut Known, depth: usize) -> Result<u64> {
        let mut edges = Edges::new();
        let (mut visited, mut queue) = (HashSet::new(), VecDeque::from([root]));
        while let Some(place) = queue.pop_front() {
            if !visited.insert(place) {
                continue;
            }
            let node = &nodes[place];
            let (mut inputs, mut controls) = (Vec::new(), Vec::new());
            for (at, (input, suffix)) in node.inputs.iter().enumerate() {
                if !is_seed(self.registry, node, at) && !visited.contains(input) {
                    inputs.push((*input, suffix.clone()));
                    queue.push_back(*input);
                }
            }
            controls.extend(node.controls.iter().copied().filter(|control| !visited.contains(control)));
            edges.insert(place, (inputs, controls));
        }
        self.node(nodes, root, &edges, known, depth)
    }

    fn node(
        &mut self,
        nodes: &[HashedNode],
        place: usize,
        edges: &Edges,
        known: &mut Known,
        depth: usize,
    ) -> Result<u64> {
        // Inputs come before what uses them: a stack instead of recursion, since pipelines may be long.
        let mut open = vec![place];
        while let Some(at) = open.last().copied() {
            let Some((inputs, controls)) = edges.get(&at) else {
                open.pop();
                continue;
            };
            let missing: Vec<usize> = inputs
                .iter()
                .map(|(input, _)| *input)
                .filter(|input| !known.nodes.contains_key(input))
                .collect();
            if !missing.is_empty() {
                open.extend(missing);
                ensure!(open.len() < 1 << 20, Internal, "the graph of a dataset has a cycle");
                continue;
            }
            open.pop();
            if known.nodes.contains_key(&at) {
                continue;
            }
            let own = self.own(&nodes[at], true, depth)?;
            let controls = self.controls(nodes, controls, depth)?;
            let mut hashed = 0;
            for (input, suffix) in inputs {
                hashed = combine(hashed, combine(known.nodes[input], text(suffix)));
            }
            known.nodes.insert(at, combine(own, combine(controls, hashed)));
        }
        Ok(known.nodes.get(&place).copied().unwrap_or_default())
    }

    fn controls(&mut self, nodes: &[HashedNode], controls: &[usize], depth: usize) -> Result<u64> {
        let mut sum = 0u64;
        for control in controls {
            sum = sum.wrapping_add(self.own(&nodes[*control], false, depth)?);
        }
        Ok(sum)
    }

    /// The hash of a node without its inputs.
    fn own(&mut self, node: &HashedNode, with_functions: bool, depth: usize) -> Result<u64> {
        let called = self.library.get(&node.op).is_some();
        let op = if !called {
            text(&node.op)
        } else if with_functions {
            let reference = NameAttrList { name: node.op.clone(), attr: node.attrs.clone() };
            self.function(&reference, depth)?
        } else {
            0
        };
        let names: Vec<String> = match self.registry.get(&node.op) {
            Some(entry) => entry.spec().attrs.iter().map(|attr| attr.name.clone()).collect(),
            None => match self.registry.unsupported(&node.op) {
                Some(spec) => spec.attrs.into_iter().map(|attr| attr.name).collect(),
                None if called => node.attrs.keys().filter(|name| !name.starts_with('_')).cloned().collect(),
                None => ["T", "index"].map(str::to_owned).into(),
            },
        };
        let mut attrs = 0;
        for name in names {
            // Names that users give do not change what a pipeline does.
            if name == "metadata" && node.op.contains("Dataset") {
                continue;
            }
            let Some(value) = node.attrs.get(&name) else { continue };
            let hashed = match &value.value {
                Some(attr_value::Value::Func(function)) if with_functions => {
                    self.function(function, depth)?
                }
                Some(attr_value::Value::Func(_)) => 0,
                Some(attr_value::Value::List(list)) if !list.func.is_empty() => {
                    let mut hash = 0;
                    for function in list.func.iter().filter(|_| with_functions) {
                        hash = combine(hash, self.function(function, depth)?);
                    }
                    hash
                }
                _ => hash64(&value.encode_to_vec()),
            };
            attrs = combine(attrs, combine(text(&name), hashed));
        }
        Ok(combine(op, combine(attrs, text(&node.device))))
    }

    fn function(&mut self, function: &NameAttrList, depth: usize) -> Result<u64> {
        if let Some(known) = self.functions.get(&function.name) {
            return Ok(*known);
        }
        ensure!(depth < MAX_DEPTH, Internal, "functions are nested too deeply to be hashed");
        let Some(definition) = self.library.get(&function.name).cloned() else {
            return Err(status!(NotFound, "Function {} is not defined.", function.name));
        };
        let body = FunctionBody::new(self.registry, &self.library, &definition, &function.attr)?;
        let (nodes, returns, controls) = body_nodes(&body)?;
        let mut known = Known::default();
        let mut hash = 0;
        for place in returns {
            hash = combine(hash, self.root(&nodes, place, &mut known, depth + 1)?);
        }
        let hash = combine(hash, self.controls(&nodes, &controls, depth + 1)?);
        self.functions.insert(function.name.clone(), hash);
        Ok(hash)
    }
}

/// The nodes of a function, with those that stand for its arguments and results as stock writes them.
fn body_nodes(body: &FunctionBody) -> Result<(Vec<HashedNode>, Vec<usize>, Vec<usize>)> {
    let mut nodes = Vec::new();
    let input = |output: &ferroflow_core::graph::Output| {
        let suffix = if output.index == 0 { String::new() } else { output.index.to_string() };
        (output.node.index(), suffix)
    };
    let value = |value: attr_value::Value| AttrValue { value: Some(value) };
    for node in body.graph.nodes() {
        let data = &node.data;
        let (op, attrs) = match &data.kind {
            NodeKind::Arg(index) => {
                let dtype = body.arg_types[*index];
                let attrs = [("T", value(dtype.to_attr()?)), ("index", value((*index as i64).to_attr()?))];
                ("_Arg", attrs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }
            _ => (data.op_name(), data.attrs.map().clone()),
        };
        nodes.push(HashedNode {
            op: op.to_owned(),
            attrs,
            device: data.device.clone(),
            inputs: node.inputs.iter().map(input).collect(),
            controls: node.controls.iter().map(|control| control.index()).collect(),
        });
    }
    let mut returns = Vec::new();
    for (index, output) in body.returns.iter().enumerate() {
        let (dtype, _) = body.graph.node(output.node).data.output_types[output.index as usize];
        let attrs = [("T", value(dtype.to_attr()?)), ("index", value((index as i64).to_attr()?))];
        returns.push(nodes.len());
        nodes.push(HashedNode {
            op: "_Retval".to_owned(),
            attrs: attrs.into_iter().map(|(name, value)| (name.to_owned(), value)).collect(),
            device: String::new(),
            inputs: vec![input(output)],
            controls: Vec::new(),
        });
    }
    let controls = body.controls.iter().map(|control| control.index()).collect();
    Ok((nodes, returns, controls))
}

/// Returns whether an input is a seed, which may differ from run to run.
fn is_seed(registry: &Registry, node: &HashedNode, input: usize) -> bool {
    let base = node.op.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('V');
    let seeded = ["AnonymousRandomSeedGenerator", "ShuffleDataset", "ShuffleAndRepeatDataset"];
    seeded.contains(&base)
        && registry.get(&node.op).is_some_and(|entry| {
            let name = entry.spec().inputs.get(input).map(|input| input.name.as_str());
            matches!(name, Some("seed" | "seed2" | "seed_generator"))
        })
}

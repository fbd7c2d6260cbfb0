//! Parts of pipelines for several workers, as stock divides them: by rewriting the graph of the dataset.
//!
//! Dividing *files* puts a shard where the names of files are, in front of what reads them; a shuffle of the names moves
//! behind it, because workers that shuffle differently would read some files twice. Dividing *data* puts the shard at
//! the end. A *hint* is a shard that the program put there for the purpose.

use ferroflow_core::attr::ToAttr;
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::data::AutoShardPolicy;
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, GraphDef, NodeDef, attr_value};
use std::collections::HashMap;

const READERS: [&str; 3] = ["FixedLengthRecordDataset", "TextLineDataset", "TFRecordDataset"];
const SEVERAL_INPUTS: [&str; 2] = ["ConcatenateDataset", "ZipDataset"];
const UNSHARDABLE: [&str; 5] =
    ["GeneratorDataset", "RangeDataset", "SparseTensorsSliceDataset", "TensorDataset", "TensorSliceDataset"];
const WITH_FUNCTIONS: [&str; 5] = [
    "ExperimentalParallelInterleaveDataset",
    "FlatMapDataset",
    "InterleaveDataset",
    "LegacyParallelInterleaveDataset",
    "ParallelInterleaveDataset",
];
const PASSED_THROUGH: [&str; 32] = [
    "_Retval",
    "AssertNextDataset",
    "BatchDataset",
    "CacheDataset",
    "ExperimentalMapAndBatchDataset",
    "ExperimentalParseExampleDataset",
    "ExperimentalRebatchDataset",
    "FilterDataset",
    "FinalizeDataset",
    "Identity",
    "MapAndBatchDataset",
    "MapDataset",
    "MaxIntraOpParallelismDataset",
    "ModelDataset",
    "OptimizeDataset",
    "OptionsDataset",
    "PaddedBatchDataset",
    "ParallelBatchDataset",
    "ParallelMapDataset",
    "ParseExampleDataset",
    "PrefetchDataset",
    "PrivateThreadPoolDataset",
    "ReduceDataset",
    "RebatchDataset",
    "RepeatDataset",
    "ShardDataset",
    "ShuffleAndRepeatDataset",
    "ShuffleDataset",
    "SkipDataset",
    "TakeDataset",
    "UnbatchDataset",
    "WindowDataset",
];
/// The number of shards that stands for a hint.
const HINT: i64 = -1;

/// Returns whether an op is one of these, in any version.
fn is_any(op: &str, of: &[&str]) -> bool {
    let base = op.trim_end_matches(|c: char| c.is_ascii_digit());
    let base = if base == op { op } else { base.strip_suffix('V').unwrap_or(op) };
    of.contains(&op) || of.contains(&base)
}

/// A part of a pipeline.
#[derive(Clone, Copy)]
pub(crate) struct Part {
    pub(crate) workers: i64,
    pub(crate) index: i64,
    /// The replicas that a batch is divided among.
    pub(crate) replicas: i64,
}

/// Rewrites the graph of a dataset to that of a part of it.
pub(crate) fn shard(graph: GraphDef, policy: AutoShardPolicy, part: Part) -> Result<GraphDef> {
    let mut pipeline = Pipeline::new(graph, part)?;
    match policy {
        AutoShardPolicy::Off => {}
        AutoShardPolicy::File => {
            if part.workers > 1 || part.index != 0 {
                pipeline.by_file()?;
            }
        }
        AutoShardPolicy::Data => pipeline.by_data()?,
        AutoShardPolicy::Hint => pipeline.by_hint()?,
        AutoShardPolicy::Auto => {
            let untouched = pipeline.graph.clone();
            match pipeline.by_file() {
                Err(error) if error.code() == ferroflow_core::Code::NotFound => {
                    pipeline = Pipeline::new(untouched, part)?;
                    pipeline.by_data()?;
                }
                outcome => outcome?,
            }
        }
    }
    Ok(pipeline.graph)
}

struct Pipeline {
    graph: GraphDef,
    places: HashMap<String, usize>,
    sink: usize,
    part: Part,
}

impl Pipeline {
    fn new(graph: GraphDef, part: Part) -> Result<Pipeline> {
        let places = graph.node.iter().enumerate().map(|(at, node)| (node.name.clone(), at)).collect();
        let sink = graph.node.iter().position(|node| node.op == "_Retval");
        let sink = sink.ok_or_else(|| status!(Internal, "the graph of a dataset has no _Retval node"))?;
        Ok(Pipeline { graph, places, sink, part })
    }

    fn node(&self, at: usize) -> &NodeDef {
        &self.graph.node[at]
    }

    /// The node that an input comes from.
    fn input(&self, at: usize, input: usize) -> Result<usize> {
        let name = self.node(at).input.get(input).map(|name| name.split(':').next().unwrap_or_default());
        let found = name.and_then(|name| self.places.get(name)).copied();
        found.ok_or_else(|| status!(NotFound, "node {} has no input {input}", self.node(at).name))
    }

    fn add(&mut self, op: &str, input: Vec<String>, attr: Vec<(&str, attr_value::Value)>) -> String {
        let name = format!("{op}/_auto_shard_{}", self.graph.node.len());
        let attr = attr.into_iter().map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) }));
        let node = NodeDef {
            name: name.clone(),
            op: op.to_owned(),
            input,
            attr: attr.collect(),
            ..NodeDef::default()
        };
        self.places.insert(name.clone(), self.graph.node.len());
        self.graph.node.push(node);
        name
    }

    fn constant(&mut self, value: i64) -> Result<String> {
        let value = Tensor::scalar(value).to_proto()?;
        let attrs =
            vec![("dtype", DType::Int64.to_attr()?), ("value", attr_value::Value::Tensor(Box::new(value)))];
        Ok(self.add("Const", Vec::new(), attrs))
    }

    /// Lets all consumers of a node take another one instead, but the other one itself.
    fn replace(&mut self, old: &str, new: &str) {
        for node in self.graph.node.iter_mut().filter(|node| node.name != new) {
            node.input.iter_mut().filter(|input| *input == old).for_each(|input| new.clone_into(input));
        }
    }

    /// Puts a shard in front of a node.
    fn add_shard(&mut self, before: usize) -> Result<()> {
        let after = self.input(before, 0)?;
        let source = self.node(after).clone();
        ensure!(
            source.op.contains("Dataset"),
            NotFound,
            "Unable to shard this input. You may need to wrap the inputs to your reader dataset in a \
             TensorSliceDataset. Input node is {} of op {}",
            source.name,
            source.op
        );
        let attr = |name: &str| source.attr.get(name).and_then(|attr| attr.value.clone());
        let shapes = match attr("output_shapes") {
            Some(shapes) => shapes,
            None => vec![PartialShape::unknown()].to_attr()?,
        };
        let types = match attr("output_types").or_else(|| attr("Toutput_types")) {
            Some(types) => types,
            None => vec![DType::String].to_attr()?,
        };
        let Part { workers, index, .. } = self.part;
        let inputs = vec![source.name.clone(), self.constant(workers)?, self.constant(index)?];
        let attrs =
            vec![("require_non_empty", true.to_attr()?), ("output_types", types), ("output_shapes", shapes)];
        let shard = self.add("ShardDataset", inputs, attrs);
        self.replace(&source.name, &shard);
        Ok(())
    }

    /// Puts a shard in front of what reads files, and shuffles of their names behind it.
    fn shard_source(&mut self, before: usize) -> Result<()> {
        self.add_shard(before)?;
        let mut shuffle = None;
        let (mut open, mut seen) = (vec![before], Vec::new());
        while let Some(at) = open.pop() {
            if seen.contains(&at) {
                continue;
            }
            seen.push(at);
            open.extend((0..self.node(at).input.len()).filter_map(|input| self.input(at, input).ok()));
            let node = self.node(at).clone();
            if is_any(&node.op, &["ShuffleDataset"]) && at != before {
                self.replace(&node.name, &node.input[0]);
                shuffle = Some(node);
            }
        }
        if let Some(mut shuffle) = shuffle {
            let name = self.node(before).input[0].clone();
            shuffle.input[0] = name.clone();
            shuffle.name = format!("{}/_auto_shard_{}", shuffle.op, self.graph.node.len());
            let moved = shuffle.name.clone();
            self.places.insert(moved.clone(), self.graph.node.len());
            self.graph.node.push(shuffle);
            self.replace(&name, &moved);
        }
        Ok(())
    }

    fn by_file(&mut self) -> Result<()> {
        self.shard_files(self.sink)
    }

    fn shard_files(&mut self, at: usize) -> Result<()> {
        let node = self.node(at).clone();
        if node.op == "AssertCardinalityDataset" {
            // The number of elements is that of all parts.
            let input = self.input(at, 0)?;
            self.replace(&node.name, &node.input[0]);
            return self.shard_files(input);
        }
        if is_any(&node.op, &UNSHARDABLE) {
            bail!(NotFound, "Found an unshardable source dataset: {} of op {}", node.name, node.op)
        }
        if is_any(&node.op, &SEVERAL_INPUTS) {
            for input in 0..node.input.len() {
                let input = self.input(at, input)?;
                self.shard_files(input)?;
            }
            return Ok(());
        }
        let with_function = is_any(&node.op, &WITH_FUNCTIONS);
        if with_function && let Some(inner) = self.function_over_slices(self.input(at, 0)?) {
            let name = self.node(inner).name.clone();
            let consumers: Vec<usize> = (0..self.graph.node.len())
                .filter(|consumer| self.node(*consumer).input.contains(&name))
                .collect();
            if let [consumer] = consumers.as_slice() {
                return self.shard_source(*consumer);
            }
        }
        let passed = is_any(&node.op, &PASSED_THROUGH);
        if (with_function || passed) && self.reads_in_function(&node) || is_any(&node.op, &READERS) {
            return self.shard_source(at);
        }
        ensure!(
            with_function || passed,
            NotFound,
            "Did not find a shardable source, walked to a node which is not a dataset: {} of op {}. Consider either \
             turning off auto-sharding or switching the auto_shard_policy to DATA to shard this dataset.",
            node.name,
            node.op
        );
        let input = self.input(at, 0)?;
        self.shard_files(input)
    }

    /// A node whose function is called with slices of a tensor, at this node or in front of it.
    fn function_over_slices(&self, at: usize) -> Option<usize> {
        let node = self.node(at);
        if is_any(&node.op, &WITH_FUNCTIONS) {
            let input = self.input(at, 0).ok()?;
            if matches!(self.node(input).op.as_str(), "TensorSliceDataset" | "TensorDataset") {
                return Some(at);
            }
        }
        if !is_any(&node.op, &PASSED_THROUGH) {
            return None;
        }
        self.function_over_slices(self.input(at, 0).ok()?)
    }

    fn reads_in_function(&self, node: &NodeDef) -> bool {
        let library = self.graph.library.as_ref().map_or(&[][..], |library| &library.function);
        function_of(node).is_some_and(|name| reads(library, name, 0))
    }

    fn by_data(&mut self) -> Result<()> {
        let mut before = self.sink;
        let mut input = self.input(before, 0)?;
        while matches!(self.node(input).op.as_str(), "PrefetchDataset" | "OptionsDataset" | "FinalizeDataset")
        {
            before = input;
            input = self.input(before, 0)?;
        }
        if self.node(input).op == "RebatchDatasetV2" {
            let replicas = self.part.replicas;
            ensure!(
                replicas >= 1,
                InvalidArgument,
                "Cannot rewrite RebatchDatasetV2 to legacy RebatchDataset with invalid num_replicas argument. \
                 `num_replicas` is {replicas}, but expected to be >= 1."
            );
            let count = self.constant(replicas)?;
            let node = &mut self.graph.node[input];
            node.op = "RebatchDataset".to_owned();
            node.input.truncate(1);
            node.input.push(count);
            node.attr.insert("use_fallback".to_owned(), AttrValue { value: Some(true.to_attr()?) });
            if let Some(attr_value::Value::List(list)) =
                node.attr.get_mut("output_shapes").and_then(|attr| attr.value.as_mut())
            {
                let sized = list.shape.iter_mut().filter(|shape| !shape.unknown_rank);
                sized.filter_map(|shape| shape.dim.first_mut()).for_each(|dim| dim.size = -1);
            }
        }
        self.add_shard(before)
    }

    fn by_hint(&mut self) -> Result<()> {
        let Part { workers, index, .. } = self.part;
        let hints: Vec<usize> = (0..self.graph.node.len())
            .filter(|at| self.node(*at).op == "ShardDataset" && self.is_hint(*at))
            .collect();
        let (workers, index) = (self.constant(workers)?, self.constant(index)?);
        for at in hints {
            let node = &mut self.graph.node[at];
            node.input[1].clone_from(&workers);
            node.input[2].clone_from(&index);
            node.attr.insert("require_non_empty".to_owned(), AttrValue { value: Some(true.to_attr()?) });
        }
        Ok(())
    }

    fn is_hint(&self, at: usize) -> bool {
        let value = self.input(at, 1).ok().and_then(|input| self.node(input).attr.get("value"));
        match value.and_then(|value| value.value.as_ref()) {
            Some(attr_value::Value::Tensor(proto)) => {
                Tensor::from_proto(proto).is_ok_and(|count| count.to_scalar::<i64>().ok() == Some(HINT))
            }
            _ => false,
        }
    }
}

fn function_of(node: &NodeDef) -> Option<&str> {
    match node.attr.get("f").and_then(|attr| attr.value.as_ref()) {
        Some(attr_value::Value::Func(function)) => Some(&function.name),
        _ => None,
    }
}

/// Returns whether a function has a node that reads files.
fn reads(library: &[FunctionDef], name: &str, depth: usize) -> bool {
    let found = library.iter().find(|function| function.signature.as_ref().is_some_and(|s| s.name == name));
    found.is_some_and(|function| {
        function.node_def.iter().any(|node| {
            (is_any(&node.op, &READERS) && !node.input.is_empty())
                || (depth < 50
                    && is_any(&node.op, &WITH_FUNCTIONS)
                    && function_of(node).is_some_and(|inner| reads(library, inner, depth + 1)))
        })
    })
}

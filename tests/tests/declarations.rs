//! Our declarations are stock's: names, arguments, attributes, defaults and flags.

use ferroflow_core::op::{Op, OpSpec};
use ferroflow_proto::tensorflow::op_def::{ArgDef, AttrDef};
use ferroflow_proto::tensorflow::{OpDef, OpList};
use ferroflow_testing::{golden, text};
use std::collections::{BTreeMap, BTreeSet};

fn stock_ops() -> BTreeMap<String, OpDef> {
    let path = golden::testdata().join("ops.pbtxt");
    let written = std::fs::read_to_string(path).expect("testdata is part of the repository");
    let list: OpList = text::parse("tensorflow.OpList", &written).expect("stock's op list parses");
    list.op.into_iter().map(|op| (op.name.clone(), op)).collect()
}

#[test]
fn every_declaration_equals_stock() {
    let stock = stock_ops();
    let mut wrong = Vec::new();
    for entry in ferroflow_ops::registry().all() {
        let ours = entry.spec().to_proto(entry.op);
        match stock.get(entry.op.name) {
            None => wrong.push(format!("{}: stock has no such op", ours.name)),
            Some(theirs) => wrong.extend(difference(&ours, theirs)),
        }
    }
    assert!(wrong.is_empty(), "{} declarations differ from stock's:\n{}", wrong.len(), wrong.join("\n"));
}

/// The first part in which two declarations differ.
fn difference(ours: &OpDef, stock: &OpDef) -> Option<String> {
    let (ours, stock) = (parts(ours), parts(stock));
    (0..ours.len().max(stock.len())).find_map(|at| {
        let get = |list: &[String]| list.get(at).cloned().unwrap_or_else(|| "nothing more".to_owned());
        let (mine, theirs) = (get(&ours), get(&stock));
        (mine != theirs).then(|| format!("{}:\n  ours  {mine}\n  stock {theirs}", ours[0]))
    })
}

/// A declaration part by part, its name first.
fn parts(op: &OpDef) -> Vec<String> {
    let deprecated = op.deprecation.as_ref().map(|deprecation| deprecation.version);
    let flags = format!(
        "stateful {}, commutative {}, aggregate {}, uninitialized {}, deprecated {deprecated:?}",
        op.is_stateful, op.is_commutative, op.is_aggregate, op.allows_uninitialized_input
    );
    let mut parts = vec![op.name.clone(), flags];
    // Full types are hints for stock's type inference pass; no client reads them.
    let arg = |arg: &ArgDef| format!("{:?}", ArgDef { experimental_full_type: None, ..arg.clone() });
    parts.extend(op.input_arg.iter().map(|input| format!("input {}", arg(input))));
    parts.extend(op.output_arg.iter().map(|output| format!("output {}", arg(output))));
    parts.extend(op.attr.iter().map(|attr| format!("attribute {attr:?}")));
    parts
}

#[test]
fn the_list_of_stock_ops_is_current() {
    let current: String = stock_ops().values().map(|op| OpSpec::to_line(op) + "\n").collect();
    let path = golden::testdata().join("../crates/ops/src/stock_ops.txt");
    if std::env::var_os("UPDATE").is_some() {
        std::fs::write(&path, &current).expect("the list can be written");
    }
    let list = std::fs::read_to_string(path).expect("the list is part of the repository");
    assert!(current == list, "crates/ops/src/stock_ops.txt is not current: UPDATE=1 writes it anew");
}

#[test]
fn ops_that_we_lack_have_the_arguments_of_stock() {
    let registry = ferroflow_ops::registry();
    for (name, op) in stock_ops() {
        assert!(registry.declares(&name), "{name}");
        let spec = registry.unsupported(&name).expect("stock's ops are known by name");
        let ours = spec.to_proto(&Op::PURE);
        let args = |args: &[ArgDef]| -> Vec<ArgDef> {
            args.iter().map(|arg| ArgDef { experimental_full_type: None, ..arg.clone() }).collect()
        };
        assert_eq!(ours.input_arg, args(&op.input_arg), "{name}");
        assert_eq!(ours.output_arg, args(&op.output_arg), "{name}");
        for attr in &ours.attr {
            let theirs = op.attr.iter().find(|theirs| theirs.name == attr.name).expect("it comes from there");
            assert_eq!(*attr, AttrDef { allowed_values: None, ..theirs.clone() }, "{name}");
        }
    }
    assert!(registry.unsupported("NoSuchOp").is_none() && !registry.declares("NoSuchOp"));
}

#[test]
fn every_op_has_goldens() {
    let mut tested = BTreeSet::new();
    for family in golden::families().expect("testdata is part of the repository") {
        for case in golden::load(&family).expect("goldens parse").case {
            let graph = case.graph.unwrap_or_default();
            let functions = graph.library.unwrap_or_default().function;
            tested.extend(graph.node.into_iter().map(|node| node.op));
            tested.extend(functions.into_iter().flat_map(|function| function.node_def).map(|node| node.op));
        }
    }
    let registry = ferroflow_ops::registry();
    let names = registry.all().into_iter().map(|entry| entry.op.name);
    let untested: Vec<&str> =
        names.filter(|name| !tested.contains(*name) && !ELSEWHERE.contains(name)).collect();
    assert!(untested.is_empty(), "{} ops have no goldens: {}", untested.len(), untested.join(" "));
}

/// Ops that no golden can hold: a planner alone puts them into graphs, stock has no CPU kernel for them, its servers
/// refuse what other sessions run, they end the process, they are tested with the files they write, stock reads a part of
/// a snapshot only within another dataset, or stock makes them with oneDNN alone, so that unit tests compare them with
/// their parts.
const ELSEWHERE: &[&str] = &[
    "DumpTensor",
    "LoadDataset",
    "SaveDataset",
    "SaveDatasetV2",
    "SnapshotDataset",
    "SnapshotDatasetReader",
    "SnapshotDatasetV2",
    "_FusedBatchNormEx",
    "_FusedConv3D",
    "_FusedDepthwiseConv2dNative",
    "AnonymousRandomSeedGenerator",
    "DeleteMemoryCache",
    "DeleteRandomSeedGenerator",
    "DeleteSeedGenerator",
    "DeserializeIterator",
    "SerializeIterator",
    "_Arg",
    "_DeviceArg",
    "_DeviceRetval",
    "_EagerConst",
    "_HostRecv",
    "_HostSend",
    "_Recv",
    "_Retval",
    "_Send",
    "Abort",
    "DeleteSessionTensor",
    "FakeParam",
    "GetSessionHandle",
    "GetSessionHandleV2",
    "GetSessionTensor",
    "GenerateVocabRemapping",
    "InitializeTableFromTextFile",
    "InitializeTableFromTextFileV2",
    "LoadAndRemapMatrix",
    "MergeV2Checkpoints",
    "Restore",
    "RestoreSlice",
    "RestoreV2",
    "Save",
    "SaveSlices",
    "SaveV2",
    "SegmentMaxV2",
    "SegmentMinV2",
    "SegmentProdV2",
    "SegmentSumV2",
    "TopK",
    "CloseSummaryWriter",
    "CreateSummaryFileWriter",
    "FlushSummaryWriter",
    "ImportEvent",
    "SummaryWriter",
    "WriteAudioSummary",
    "WriteGraphSummary",
    "WriteHistogramSummary",
    "WriteImageSummary",
    "WriteRawProtoSummary",
    "WriteScalarSummary",
    "WriteSummary",
];

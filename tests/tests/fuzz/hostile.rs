//! Graphs that are built to hurt: each must be refused, with the code that stock gives where stock survives.

use ferroflow_core::{Code, Result, Tensor};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{AttrValue, GraphDef, NameAttrList, NodeDef};
use ferroflow_runtime::PlanOptions;
use ferroflow_testing::local::Local;
use ferroflow_testing::suite::Runtime;
use ferroflow_testing::text;
use std::time::{Duration, Instant};

/// Time limit for a refusal, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(10);

fn graph(nodes: &str) -> GraphDef {
    text::parse("tensorflow.GraphDef", nodes).unwrap_or_else(|error| panic!("{error}"))
}

fn run(graph: &GraphDef, fetch: &str) -> Result<Vec<Tensor>> {
    let started = Instant::now();
    let runtime = Local::new(ferroflow_ops::registry(), PlanOptions::default())?;
    let answer =
        runtime.session(graph).and_then(|mut session| session.run(Vec::new(), &[fetch.to_owned()], &[]));
    assert!(started.elapsed() < PATIENCE, "took {:?}", started.elapsed());
    if let Err(status) = &answer {
        assert!(!status.message().contains("panicked"), "{status}");
    }
    answer
}

fn refused(nodes: &str, codes: &[Code]) {
    let status = run(&graph(nodes), "out:0").err().unwrap_or_else(|| panic!("not refused: {nodes}"));
    assert!(codes.contains(&status.code()), "expected one of {codes:?}, got {status}");
}

/// A constant: `values` in the text form of a TensorProto's fields.
fn constant(name: &str, dtype: &str, dims: &[i64], values: &str) -> String {
    let dims: String = dims.iter().map(|size| format!("dim {{ size: {size} }} ")).collect();
    format!(
        "node {{ name: '{name}' op: 'Const' attr {{ key: 'dtype' value {{ type: {dtype} }} }} \
         attr {{ key: 'value' value {{ tensor {{ dtype: {dtype} tensor_shape {{ {dims} }} {values} }} }} }} }}\n"
    )
}

fn node(op: &str, inputs: &[&str], attrs: &str) -> String {
    let inputs: String = inputs.iter().map(|input| format!("input: '{input}' ")).collect();
    let attr = |pair: &str| {
        let (key, value) = pair.split_once('=').expect("key=value");
        format!("attr {{ key: '{key}' value {{ {value} }} }} ")
    };
    let attrs: String = attrs.split(", ").filter(|pair| !pair.is_empty()).map(attr).collect();
    format!("node {{ name: 'out' op: '{op}' {inputs}{attrs}}}\n")
}

const INVALID: &[Code] = &[Code::InvalidArgument];
/// Stock refuses a shape that overflows, and runs out of memory on one that does not.
const TOO_LARGE: &[Code] = &[Code::InvalidArgument, Code::ResourceExhausted];

#[test]
fn cycles_and_dangling_edges() {
    let identity = |name: &str, input: &str| {
        node("Identity", &[input], "T=type: DT_FLOAT").replace("'out'", &format!("'{name}'"))
    };
    refused(&identity("out", "out"), INVALID);
    refused(&(identity("out", "b") + &identity("b", "out")), INVALID);
    refused(&identity("out", "nobody"), INVALID);
    let scalar = constant("c", "DT_FLOAT", &[], "float_val: 1");
    refused(&(scalar.clone() + &identity("out", "c:1")), INVALID);
    refused(&(scalar.clone() + &identity("out", "c:99999999999999999999")), INVALID);
    refused(&(scalar + &identity("out", "^c")), INVALID);
}

#[test]
fn functions_that_double_at_every_level() {
    // Calls `callee`, whose output is called `output`, twice.
    let function = |level: usize, callee: &str, output: &str, attrs: &str| {
        let call = |name: &str, input: &str| {
            format!("node_def {{ name: '{name}' op: '{callee}' input: '{input}' {attrs} }} ")
        };
        format!(
            "function {{ signature {{ name: 'f{level}' input_arg {{ name: 'x' type: DT_FLOAT }} \
             output_arg {{ name: 'y' type: DT_FLOAT }} }} {}{} ret {{ key: 'y' value: 'b:{output}:0' }} }} ",
            call("a", "x"),
            call("b", &format!("a:{output}:0"))
        )
    };
    let levels: String = (1..=40).map(|level| function(level, &format!("f{}", level - 1), "y", "")).collect();
    let float = "attr { key: 'T' value { type: DT_FLOAT } }";
    let library = format!("library {{ {}{levels} }}", function(0, "Identity", "output", float));
    let call = node("f40", &["c"], "");
    let bomb = constant("c", "DT_FLOAT", &[], "float_val: 1") + &call + &library;
    let refusal = run(&graph(&bomb), "out:0").expect_err("2^40 nodes are too many");
    assert_eq!(refusal.code(), Code::ResourceExhausted, "{refusal}");
    assert!(refusal.message().contains("out calls functions"), "{refusal}");
    // The same functions, fewer of them.
    let few = bomb.replace("op: 'f40'", "op: 'f8'");
    assert_eq!(run(&graph(&few), "out:0").unwrap()[0].to_scalar::<f32>().unwrap(), 1.0);
}

#[test]
fn memory_bombs() {
    let huge = constant("dims", "DT_INT64", &[2], "int64_val: 4294967296");
    let value = constant("value", "DT_FLOAT", &[], "float_val: 1");
    let fill = node("Fill", &["dims", "value"], "T=type: DT_FLOAT, index_type=type: DT_INT64");
    refused(&(huge.clone() + &value + &fill), TOO_LARGE);
    let large = constant("dims", "DT_INT64", &[1], "int64_val: 1099511627776");
    refused(&(large.clone() + &value + &fill), TOO_LARGE);
    let negative = constant("dims", "DT_INT64", &[1], "int64_val: -5");
    refused(&(negative + &value + &fill), INVALID);
    let broadcast = node("BroadcastTo", &["value", "dims"], "T=type: DT_FLOAT, Tidx=type: DT_INT64");
    refused(&(large.clone() + &value + &broadcast), TOO_LARGE);
    let random = node("RandomUniform", &["dims"], "T=type: DT_INT64, dtype=type: DT_FLOAT");
    refused(&(large.clone() + &random), TOO_LARGE);
    let vector = constant("value", "DT_FLOAT", &[4], "float_val: 1");
    let tile = node("Tile", &["value", "dims"], "T=type: DT_FLOAT, Tmultiples=type: DT_INT64");
    refused(&(large + &vector + &tile), TOO_LARGE);
    let range = constant("start", "DT_INT64", &[], "int64_val: 0")
        + &constant("limit", "DT_INT64", &[], "int64_val: 9223372036854775807")
        + &constant("delta", "DT_INT64", &[], "int64_val: 1")
        + &node("Range", &["start", "limit", "delta"], "Tidx=type: DT_INT64");
    refused(&range, TOO_LARGE);
    refused(&constant("out", "DT_FLOAT", &[1 << 40], "float_val: 1"), INVALID);
    refused(&constant("out", "DT_FLOAT", &[1 << 62, 1 << 62], ""), INVALID);
    refused(&constant("out", "DT_FLOAT", &[-7], ""), INVALID);
}

#[test]
fn counts_without_substance() {
    let pack = node("Pack", &[], "N=i: 1099511627776, T=type: DT_FLOAT");
    refused(&pack, INVALID);
    refused(&node("Pack", &[], "N=i: -1, T=type: DT_FLOAT"), INVALID);
    refused(&node("Placeholder", &[], "dtype=type: 77"), INVALID);
    let split = constant("axis", "DT_INT32", &[], "int_val: 0")
        + &constant("value", "DT_FLOAT", &[4], "float_val: 1")
        + &node("Split", &["axis", "value"], "num_split=i: 1152921504606846976, T=type: DT_FLOAT");
    refused(&split, TOO_LARGE);
}

/// Shape functions that take a rank from a dimension: it is checked before anything of its size is made.
#[test]
fn ranks_that_no_shape_has() {
    let placeholder = |name: &str, dtype: &str, dims: &str| {
        format!(
            "node {{ name: '{name}' op: 'Placeholder' attr {{ key: 'dtype' value {{ type: {dtype} }} }} \
             attr {{ key: 'shape' value {{ shape {{ {dims} }} }} }} }}\n"
        )
    };
    let many = "dim { size: 1000000000000 }";
    let value = constant("value", "DT_FLOAT", &[], "float_val: 1");
    let dims = placeholder("dims", "DT_INT64", many);
    let free = placeholder("free", "DT_FLOAT", "unknown_rank: true");
    let fill = node("Fill", &["dims", "value"], "T=type: DT_FLOAT, index_type=type: DT_INT64");
    refused(&(value.clone() + &dims + &fill), INVALID);
    let reshape = node("Reshape", &["free", "dims"], "T=type: DT_FLOAT, Tshape=type: DT_INT64");
    refused(&(free.clone() + &dims + &reshape), INVALID);
    let transpose = node("Transpose", &["free", "dims"], "T=type: DT_FLOAT, Tperm=type: DT_INT64");
    refused(&(free.clone() + &dims + &transpose), INVALID);
    let paddings = placeholder("paddings", "DT_INT64", &format!("{many} dim {{ size: 2 }}"));
    let pad = node("Pad", &["free", "paddings"], "T=type: DT_FLOAT, Tpaddings=type: DT_INT64");
    refused(&(free + &paddings + &pad), INVALID);
}

#[test]
fn nesting_deeper_than_any_stack() {
    let mut function = NameAttrList { name: "leaf".to_owned(), ..Default::default() };
    for _ in 0..50 {
        let inner = AttrValue { value: Some(Value::Func(Box::new(function))) };
        function = NameAttrList { name: "shell".to_owned(), attr: [("f".to_owned(), inner)].into() };
    }
    let node = NodeDef {
        name: "out".to_owned(),
        op: "PartitionedCall".to_owned(),
        attr: [
            ("f".to_owned(), AttrValue { value: Some(Value::Func(Box::new(function))) }),
            ("Tin".to_owned(), AttrValue { value: Some(Value::List(Default::default())) }),
            ("Tout".to_owned(), AttrValue { value: Some(Value::List(Default::default())) }),
        ]
        .into(),
        ..Default::default()
    };
    assert!(run(&GraphDef { node: vec![node], ..Default::default() }, "out:0").is_err());
}

#[test]
fn a_function_that_calls_itself() {
    let nodes = "
        library { function {
            signature { name: 'again' input_arg { name: 'x' type: DT_FLOAT } output_arg { name: 'y' type: DT_FLOAT } }
            node_def { name: 'call' op: 'again' input: 'x' }
            ret { key: 'y' value: 'call:y:0' }
        } }
        node { name: 'out' op: 'again' input: 'c' }";
    let constant = constant("c", "DT_FLOAT", &[], "float_val: 1");
    assert!(run(&graph(&(constant + nodes)), "out:0").is_err());
}

#[test]
fn a_long_chain_given_backwards() {
    const LENGTH: usize = 20_000;
    let identity = |at: usize| NodeDef {
        name: format!("n{at}"),
        op: "Neg".to_owned(),
        input: vec![format!("n{}", at - 1)],
        attr: [("T".to_owned(), AttrValue { value: Some(Value::Type(1)) })].into(),
        ..Default::default()
    };
    let mut def = graph(&constant("n0", "DT_FLOAT", &[], "float_val: 1"));
    def.node.extend((1..=LENGTH).rev().map(identity));
    let answer = run(&def, &format!("n{LENGTH}:0")).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(answer[0].to_scalar::<f32>().expect("a float"), 1.0);
}

#[test]
fn an_exit_from_no_loop() {
    let scalar = constant("c", "DT_FLOAT", &[], "float_val: 1");
    assert!(run(&graph(&(scalar + &node("Exit", &["c"], "T=type: DT_FLOAT"))), "out:0").is_err());
}

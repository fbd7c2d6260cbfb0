//! The cost of the executor itself: scalar additions in a chain and side by side, many small variables, and a step with
//! nothing to do.
#![allow(missing_docs)]

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ferroflow_benches::{Nodes, float, ramp};
use ferroflow_core::{DType, PartialShape, Tensor};
use ferroflow_proto::tensorflow::attr_value::Value;

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const NODES: usize = 1000;
const VARIABLES: usize = 200;

fn empty(c: &mut Criterion) {
    let mut nodes = Nodes::default();
    let target = [nodes.add("nothing", "NoOp", &[], &[])];
    let mut session = nodes.session();
    c.bench_function("executor/empty step", |b| b.iter(|| session.run(Vec::new(), &[], &target)));
}

fn chain(c: &mut Criterion) {
    let mut nodes = Nodes::default();
    let (mut last, step) = (nodes.placeholder("x", DType::Float), nodes.placeholder("y", DType::Float));
    for i in 0..NODES {
        last = nodes.add(&format!("n{i}"), "AddV2", &[&last, &step], &[float()]);
    }
    let mut session = nodes.session();
    let fetch = [format!("{last}:0")];
    let feeds = vec![("x:0".to_owned(), Tensor::scalar(0f32)), ("y:0".to_owned(), Tensor::scalar(1f32))];
    let mut group = c.benchmark_group("executor");
    group.throughput(Throughput::Elements(NODES as u64));
    group.bench_function("chain", |b| b.iter(|| session.run(feeds.clone(), &fetch, &[])));
}

/// Sums of all pairs from two groups of feeds: no two are alike, so none are shared.
fn wide(c: &mut Criterion) {
    let mut nodes = Nodes::default();
    let names = |side: &str| (0..32).map(|i| format!("{side}{i}")).collect::<Vec<_>>();
    let (left, right) = (names("a"), names("b"));
    for name in left.iter().chain(&right) {
        nodes.placeholder(name, DType::Float);
    }
    let mut sums = Vec::new();
    for (a, b) in left.iter().flat_map(|a| right.iter().map(move |b| (a, b))).take(NODES) {
        sums.push(format!("^{}", nodes.add(&format!("{a}{b}"), "AddV2", &[a, b], &[float()])));
    }
    let sums: Vec<&str> = sums.iter().map(String::as_str).collect();
    let target = [nodes.add("all", "NoOp", &sums, &[])];
    let mut session = nodes.session();
    let feeds: Vec<_> =
        left.iter().chain(&right).map(|name| (format!("{name}:0"), Tensor::scalar(1f32))).collect();
    let mut group = c.benchmark_group("executor");
    group.throughput(Throughput::Elements(NODES as u64));
    group.bench_function("wide", |b| b.iter(|| session.run(feeds.clone(), &[], &target)));
}

/// Every variable is read and then changed.
fn variables(c: &mut Criterion) {
    let mut nodes = Nodes::default();
    let shape = Value::Shape(PartialShape::new([10]).expect("a small shape").to_proto());
    let dtype = [("dtype", Value::Type(DType::Float.to_wire()))];
    nodes.placeholder("value", DType::Float);
    let (mut starts, mut changes) = (Vec::new(), Vec::new());
    for i in 0..VARIABLES {
        let handle =
            nodes.add(&format!("v{i}"), "VarHandleOp", &[], &[dtype[0].clone(), ("shape", shape.clone())]);
        let inputs = [&handle, "value"];
        starts.push(nodes.add(&format!("start{i}"), "AssignVariableOp", &inputs, &dtype));
        let read = nodes.add(&format!("read{i}"), "ReadVariableOp", &[&handle], &dtype);
        let inputs = [handle.as_str(), "value", &format!("^{read}")];
        changes.push(nodes.add(&format!("add{i}"), "AssignAddVariableOp", &inputs, &dtype));
    }
    let mut session = nodes.session();
    let feeds = || vec![("value:0".to_owned(), ramp(&[10]))];
    session.run(feeds(), &[], &starts).unwrap_or_else(|error| panic!("{error}"));
    let mut group = c.benchmark_group("executor");
    group.throughput(Throughput::Elements(VARIABLES as u64));
    group.bench_function("variables", |b| {
        b.iter(|| session.run(feeds(), &[], &changes).unwrap_or_else(|error| panic!("{error}")))
    });
}

criterion_group!(benches, empty, chain, wide, variables);
criterion_main!(benches);

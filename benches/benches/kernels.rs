//! Kernels that most models spend their time in, at a small and a large size, through a step of one node.
#![allow(missing_docs)]

use criterion::{Criterion, criterion_group, criterion_main};
use ferroflow_benches::{Nodes, float, ramp};
use ferroflow_core::{DType, Tensor};
use ferroflow_proto::tensorflow::attr_value::Value;

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Benches one op on these inputs.
fn op(c: &mut Criterion, label: &str, op: &str, inputs: Vec<Tensor>, attrs: &[(&str, Value)]) {
    let mut nodes = Nodes::default();
    let names: Vec<String> = inputs
        .iter()
        .enumerate()
        .map(|(i, tensor)| nodes.placeholder(&format!("x{i}"), tensor.dtype()))
        .collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    nodes.add("out", op, &names, attrs);
    let mut session = nodes.session();
    let fetch = ["out:0".to_owned()];
    let feeds: Vec<_> = names.iter().map(|name| format!("{name}:0")).zip(inputs).collect();
    c.bench_function(&format!("{op}/{label}"), |b| {
        b.iter(|| session.run(feeds.clone(), &fetch, &[]).unwrap_or_else(|error| panic!("{error}")))
    });
}

fn kernels(c: &mut Criterion) {
    let index = ("Tidx", Value::Type(DType::Int32.to_wire()));
    for n in [64, 512] {
        let label = format!("{n}×{n}");
        op(c, &label, "MatMul", vec![ramp(&[n, n]), ramp(&[n, n])], &[float()]);
        op(c, &label, "Softmax", vec![ramp(&[n, n])], &[float()]);
        op(c, &label, "AddV2", vec![ramp(&[n, n]), ramp(&[n, n])], &[float()]);
        op(c, &format!("{label} + {n}"), "AddV2", vec![ramp(&[n, n]), ramp(&[n])], &[float()]);
        op(c, &label, "Sum", vec![ramp(&[n, n]), Tensor::vector(vec![1i32])], &[float(), index.clone()]);
        let perm = ("Tperm", Value::Type(DType::Int32.to_wire()));
        op(c, &label, "Transpose", vec![ramp(&[n, n]), Tensor::vector(vec![1i32, 0])], &[float(), perm]);
        let order: Vec<i32> = (0..n as i32).rev().collect();
        let types =
            ["Tparams", "Tindices", "Taxis"].into_iter().zip([DType::Float, DType::Int32, DType::Int32]);
        let types: Vec<_> = types.map(|(key, dtype)| (key, Value::Type(dtype.to_wire()))).collect();
        op(c, &label, "GatherV2", vec![ramp(&[n, n]), Tensor::vector(order), Tensor::scalar(0i32)], &types);
    }
}

/// Functions of single elements, where registers and the price of a call show.
fn functions(c: &mut Criterion) {
    for (label, n) in [("4K", 1 << 12), ("1M", 1 << 20)] {
        for name in ["Tanh", "Sigmoid", "Sqrt", "Exp", "Relu", "Neg"] {
            op(c, label, name, vec![ramp(&[n])], &[float()]);
        }
        for name in ["AddV2", "Mul", "Maximum"] {
            op(c, label, name, vec![ramp(&[n]), ramp(&[n])], &[float()]);
        }
    }
    op(c, "128×10", "Softmax", vec![ramp(&[128, 10])], &[float()]);
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20);
    targets = kernels, functions
}
criterion_main!(benches);

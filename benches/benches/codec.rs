//! Tensors to and from their wire form.
#![allow(missing_docs)]

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use ferroflow_benches::ramp;
use ferroflow_core::Tensor;
use ferroflow_proto::tensorflow::TensorProto;
use prost::Message;

fn codec(c: &mut Criterion) {
    let mut group = c.benchmark_group("tensor codec");
    for elements in [256, 1 << 18, 1 << 24] {
        let tensor = ramp(&[elements]);
        let encoded = tensor.to_proto().expect("floats have a wire form").encode_to_vec();
        let encoded = bytes(encoded);
        group.throughput(Throughput::Bytes(4 * elements as u64));
        group.bench_function(BenchmarkId::new("encode", elements), |b| {
            b.iter(|| tensor.to_proto().expect("floats have a wire form").encode_to_vec())
        });
        group.bench_function(BenchmarkId::new("decode", elements), |b| {
            b.iter(|| {
                let proto = TensorProto::decode(encoded.clone()).expect("just encoded");
                Tensor::from_proto(&proto).expect("just encoded")
            })
        });
    }
}

/// Shared bytes, as a transport hands them over: decoding then copies elements once.
fn bytes(encoded: Vec<u8>) -> prost::bytes::Bytes {
    encoded.into()
}

criterion_group!(benches, codec);
criterion_main!(benches);

//! Summaries: values under a tag, as the messages that event files hold.

use crate::histogram::Histogram;
use crate::numeric::Real;
use crate::string::encoding::stored_message;
use ferroflow_core::kernel::{Init, Kernel, Outputs, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, Tensor, bf16, ensure, f16, kernels, status};
use ferroflow_proto::tensorflow::{Summary, SummaryMetadata, summary};
use prost::Message;
use std::collections::HashSet;

pub(crate) const OPS: &[&Op] =
    &[&SCALAR_SUMMARY, &HISTOGRAM_SUMMARY, &TENSOR_SUMMARY, &TENSOR_SUMMARY_V2, &MERGE_SUMMARY];

static SCALAR_SUMMARY: Op = Op {
    name: "ScalarSummary",
    inputs: &["tags: string", "values: T"],
    outputs: &["summary: string"],
    attrs: &["T: realnumbertype"],
    shape: shapes::scalar,
    kernels: kernels![scalar_kernel: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..Op::PURE
};

static HISTOGRAM_SUMMARY: Op = Op {
    name: "HistogramSummary",
    inputs: &["tag: string", "values: T"],
    attrs: &["T: realnumbertype = DT_FLOAT"],
    kernels: kernels![histogram_kernel: f32, f64, i32, u8, i16, i8, i64, bf16, u16, f16, u32, u64],
    ..SCALAR_SUMMARY
};

static TENSOR_SUMMARY: Op = Op {
    name: "TensorSummary",
    inputs: &["tensor: T"],
    attrs: &["T: type", "description: string = ''", "labels: list(string) = []", "display_name: string = ''"],
    kernels: kernels![any tensor_kernel],
    ..SCALAR_SUMMARY
};

static TENSOR_SUMMARY_V2: Op = Op {
    name: "TensorSummaryV2",
    inputs: &["tag: string", "tensor: T", "serialized_summary_metadata: string"],
    attrs: &["T: type"],
    kernels: kernels![any tagged_tensor_kernel],
    ..SCALAR_SUMMARY
};

static MERGE_SUMMARY: Op = Op {
    name: "MergeSummary",
    inputs: &["inputs: N * string"],
    attrs: &["N: int >= 1"],
    kernels: kernels![any merge_kernel],
    ..SCALAR_SUMMARY
};

fn value(tag: &Str, value: summary::value::Value) -> summary::Value {
    summary::Value {
        tag: String::from_utf8_lossy(tag).into_owned(),
        value: Some(value),
        ..Default::default()
    }
}

fn message(value: Vec<summary::Value>) -> Outputs {
    Tensor::scalar(Str::from(Summary { value }.encode_to_vec())).into()
}

fn scalar_kernel<T: Real>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (tags, values) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            tags.shape() == values.shape(),
            InvalidArgument,
            "tags and values are not the same shape: {} != {}{}",
            tags.shape(),
            values.shape(),
            match tags.flat::<Str>()? {
                [tag] => format!(" (tag '{}')", String::from_utf8_lossy(tag)),
                _ => String::new(),
            }
        );
        let pairs = tags.flat::<Str>()?.iter().zip(values.flat::<T>()?);
        let simple = |x: &T| summary::value::Value::SimpleValue(x.to_f64() as f32);
        Ok(message(pairs.map(|(tag, x)| value(tag, simple(x))).collect()))
    })
}

fn tag(tensor: &Tensor, name: &str) -> Result<Str> {
    ensure!(tensor.rank() == 0, InvalidArgument, "{name} must be scalar");
    tensor.to_scalar()
}

fn histogram_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    let node = init.node.to_owned();
    Kernel::sync(move |cx| {
        let tag = tag(cx.input(0)?, "tags")?;
        let mut histogram = Histogram::default();
        for x in cx.flat::<T>(1)? {
            let x = x.to_f64();
            ensure!(!x.is_nan(), InvalidArgument, "Nan in summary histogram for: {node}");
            ensure!(x.is_finite(), InvalidArgument, "Infinity in Histogram for: {node}");
            histogram.add(x);
        }
        Ok(message(vec![value(&tag, summary::value::Value::Histo(histogram.to_proto()))]))
    })
}

fn tensor_value(tensor: &Tensor) -> Result<summary::value::Value> {
    Ok(summary::value::Value::Tensor(stored_message(tensor)?))
}

fn tensor_kernel(init: &Init<'_>) -> Result<Kernel> {
    let named = summary::Value { node_name: init.node.to_owned(), ..Default::default() }.encode_to_vec();
    Kernel::sync(move |cx| {
        // The two parts of one message, in the order of stock's fields.
        let held = summary::Value { value: Some(tensor_value(cx.input(0)?)?), ..Default::default() };
        let value = [named.as_slice(), &held.encode_to_vec()].concat();
        let mut summary = Vec::new();
        prost::encoding::bytes::encode(1, &value, &mut summary);
        Ok(Tensor::scalar(Str::from(summary)).into())
    })
}

fn tagged_tensor_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let tag = tag(cx.input(0)?, "tag")?;
        let metadata = cx.input(2)?;
        ensure!(
            metadata.rank() == 0,
            InvalidArgument,
            "serialized_summary_metadata must be scalar, got shape {}",
            metadata.shape()
        );
        let mut value = value(&tag, tensor_value(cx.input(1)?)?);
        // What cannot be read is left out, as in stock.
        value.metadata = Some(SummaryMetadata::decode(metadata.to_scalar::<Str>()?).unwrap_or_default());
        Ok(message(vec![value]))
    })
}

fn merge_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (mut values, mut tags) = (Vec::new(), HashSet::new());
        for input in 0..cx.num_inputs() {
            for text in cx.flat::<Str>(input)? {
                let summary = Summary::decode(text.clone())
                    .map_err(|_| status!(InvalidArgument, "Could not parse one of the summary inputs"))?;
                for value in summary.value {
                    ensure!(
                        value.tag.is_empty() || tags.insert(value.tag.clone()),
                        InvalidArgument,
                        "Duplicate tag {} found in summary inputs",
                        value.tag
                    );
                    values.push(value);
                }
            }
        }
        Ok(message(values))
    })
}

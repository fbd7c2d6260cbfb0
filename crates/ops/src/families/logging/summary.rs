//! Summaries: values under a tag, as the messages that event files hold.

use crate::families::string::encoding::stored_message;
use crate::numeric::Real;
use crate::numeric::histogram::Histogram;
use crate::support::wire::Message;
use crate::support::wire::summary::{METADATA, SUMMARY, VALUE};
use ferroflow_core::kernel::{Init, Kernel, Outputs, Str};
use ferroflow_core::op::{Gradient, Op, shapes};
use ferroflow_core::{DType, Result, Tensor, bail, bf16, ensure, f16, kernels};
use ferroflow_io::image::{encode_png, scale_to_bytes};
use ferroflow_io::wav::encode_wav;
use ferroflow_proto::tensorflow::summary;
use prost::Message as _;
use std::collections::HashSet;

pub(crate) const OPS: &[&Op] = &[
    &SCALAR_SUMMARY,
    &HISTOGRAM_SUMMARY,
    &IMAGE_SUMMARY,
    &TENSOR_SUMMARY,
    &TENSOR_SUMMARY_V2,
    &MERGE_SUMMARY,
    &AUDIO_SUMMARY,
    &AUDIO_SUMMARY_V2,
];

static SCALAR_SUMMARY: Op = Op {
    name: "ScalarSummary",
    gradient: Gradient::Stop,
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

static IMAGE_SUMMARY: Op = Op {
    name: "ImageSummary",
    inputs: &["tag: string", "tensor: T"],
    attrs: &[
        "max_images: int >= 1 = 3",
        "T: {uint8, float, half, float64} = DT_FLOAT",
        "bad_color: tensor = uint8[255, 0, 0, 255]",
    ],
    kernels: kernels![any image_kernel],
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

static AUDIO_SUMMARY: Op = Op {
    name: "AudioSummary",
    inputs: &["tag: string", "tensor: float"],
    attrs: &["sample_rate: float", "max_outputs: int >= 1 = 3"],
    kernels: kernels![any audio_kernel],
    deprecated_at: Some(15),
    ..SCALAR_SUMMARY
};

static AUDIO_SUMMARY_V2: Op = Op {
    name: "AudioSummaryV2",
    inputs: &["tag: string", "tensor: float", "sample_rate: float"],
    attrs: &["max_outputs: int >= 1 = 3"],
    deprecated_at: None,
    ..AUDIO_SUMMARY
};

/// A summary of values under tags. Tags are any bytes here, though their field is declared as text: stock writes what it
/// is given.
pub(super) fn message(values: impl IntoIterator<Item = (Str, summary::Value)>) -> Outputs {
    joined(values.into_iter().map(|(tag, value)| encode(&tag, value)))
}

/// A summary of encoded values.
fn joined(values: impl IntoIterator<Item = Vec<u8>>) -> Outputs {
    Tensor::scalar(Str::from(encode_all(values))).into()
}

/// The message of a summary of encoded values.
pub(super) fn encode_all(values: impl IntoIterator<Item = Vec<u8>>) -> Vec<u8> {
    let mut summary = Vec::new();
    for value in values {
        prost::encoding::bytes::encode(1, &value, &mut summary);
    }
    summary
}

/// A value with its fields in the order of their numbers, as stock writes them: a tensor comes after the node's name,
/// any other kind of value before it.
pub(super) fn encode(tag: &[u8], mut value: summary::Value) -> Vec<u8> {
    let named = summary::Value { node_name: std::mem::take(&mut value.node_name), ..Default::default() };
    let held = summary::Value { value: value.value, ..Default::default() };
    let in_order = match &held.value {
        Some(summary::value::Value::Tensor(_)) => [&named, &held],
        _ => [&held, &named],
    };
    let mut bytes = Vec::new();
    if !tag.is_empty() {
        prost::encoding::bytes::encode(1, &tag.to_vec(), &mut bytes);
    }
    for part in in_order {
        bytes.extend(part.encode_to_vec());
    }
    bytes
}

pub(super) fn value(value: summary::value::Value) -> summary::Value {
    summary::Value { value: Some(value), ..Default::default() }
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
        Ok(message(pairs.map(|(tag, x)| (tag.clone(), value(simple(x))))))
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
        Ok(message([(tag, value(summary::value::Value::Histo(histogram.to_proto())))]))
    })
}

/// Images are packed as PNG by another program than stock's, so bytes differ from stock's and pixels do not.
fn image_kernel(init: &Init<'_>) -> Result<Kernel> {
    let max_images: usize = init.attr("max_images")?;
    let bad_color: Tensor = init.attr("bad_color")?;
    ensure!(
        bad_color.dtype() == DType::Uint8,
        InvalidArgument,
        "bad_color must be uint8, got {}",
        bad_color.dtype()
    );
    ensure!(
        bad_color.rank() == 1,
        InvalidArgument,
        "bad_color must be a vector, got shape {}",
        bad_color.shape()
    );
    Kernel::sync(move |cx| {
        let tag = tag(cx.input(0)?, "Tags")?;
        Ok(message(image_values(&tag, cx.input(1)?, max_images, bad_color.flat::<u8>()?)?))
    })
}

/// Images under tags that begin with `tag`.
pub(super) fn image_values(
    tag: &[u8],
    images: &Tensor,
    max_images: usize,
    bad_color: &[u8],
) -> Result<Vec<(Str, summary::Value)>> {
    let tag = String::from_utf8_lossy(tag);
    let [count, height, width, channels] = images.shape().dims() else {
        bail!(InvalidArgument, "Tensor must be 4-D with last dim 1, 3, or 4, not {}", images.shape());
    };
    ensure!(
        matches!(channels, 1 | 3 | 4),
        InvalidArgument,
        "Tensor must be 4-D with last dim 1, 3, or 4, not {}",
        images.shape()
    );
    let [count, height, width, channels] = [count, height, width, channels].map(|dim| *dim as usize);
    ensure!(
        height > 0 && width > 0,
        InvalidArgument,
        "input tensor must have non-zero dims. Found: {}.",
        images.shape()
    );
    ensure!(
        bad_color.len() >= channels,
        InvalidArgument,
        "expected depth <= bad_color.size, got depth = {channels}, bad_color.size = {}",
        bad_color.len()
    );
    let size = height * width * channels;
    let mut values = Vec::new();
    for number in 0..count.min(max_images) {
        let range = number * size..(number + 1) * size;
        let pixels = match images.dtype() {
            DType::Uint8 => images.flat::<u8>()?[range].to_vec(),
            DType::Half => {
                let floats: Vec<f32> = images.flat::<f16>()?[range].iter().map(|x| x.to_f32()).collect();
                scale_to_bytes(&floats, channels, bad_color)
            }
            DType::Double => {
                let floats: Vec<f32> = images.flat::<f64>()?[range].iter().map(|x| *x as f32).collect();
                scale_to_bytes(&floats, channels, bad_color)
            }
            _ => scale_to_bytes(&images.flat::<f32>()?[range], channels, bad_color),
        };
        let image = summary::Image {
            height: height as i32,
            width: width as i32,
            colorspace: channels as i32,
            encoded_image_string: encode_png(height, width, channels, &pixels)?.into(),
        };
        // One image has no number, as in stock.
        let tag = if max_images > 1 { format!("{tag}/image/{number}") } else { format!("{tag}/image") };
        values.push((Str::from(tag), value(summary::value::Value::Image(image))));
    }
    Ok(values)
}

fn audio_kernel(init: &Init<'_>) -> Result<Kernel> {
    let max_outputs: usize = init.attr("max_outputs")?;
    let fixed: Option<f32> =
        if init.attrs.has("sample_rate") { Some(init.attr("sample_rate")?) } else { None };
    Kernel::sync(move |cx| {
        let (tag, tensor) = (cx.input(0)?, cx.input(1)?);
        ensure!(tag.rank() == 0, InvalidArgument, "Tag must be a scalar");
        ensure!(
            matches!(tensor.rank(), 2 | 3),
            InvalidArgument,
            "Tensor must be 3-D or 2-D, got: {}",
            tensor.shape()
        );
        let rate = match fixed {
            Some(rate) => rate,
            None => {
                let rate = cx.input(2)?;
                ensure!(
                    rate.elements() == 1,
                    InvalidArgument,
                    "sample_rate must be rank-0 or contain a single value"
                );
                rate.flat::<f32>()?[0]
            }
        };
        Ok(message(audio_values(&tag.to_scalar::<Str>()?, tensor, max_outputs, rate)?))
    })
}

/// Sounds under tags that begin with `tag`, as WAV files.
pub(super) fn audio_values(
    tag: &[u8],
    tensor: &Tensor,
    max_outputs: usize,
    rate: f32,
) -> Result<Vec<(Str, summary::Value)>> {
    ensure!(rate > 0.0, InvalidArgument, "sample_rate must be > 0");
    let (count, frames, channels) = match *tensor.shape().dims() {
        [count, frames] => (count as usize, frames as usize, 1),
        [count, frames, channels] => (count as usize, frames as usize, channels as usize),
        _ => bail!(InvalidArgument, "Tensor must be 3-D or 2-D, got: {}", tensor.shape()),
    };
    let tag = String::from_utf8_lossy(tag);
    let mut values = Vec::new();
    for number in 0..count.min(max_outputs) {
        let samples = &tensor.flat::<f32>()?[number * frames * channels..][..frames * channels];
        let rate_in_file = (rate.round_ties_even() as u32).max(1);
        let audio = summary::Audio {
            sample_rate: rate,
            num_channels: channels as i64,
            length_frames: frames as i64,
            encoded_audio_string: encode_wav(samples, rate_in_file, channels)?.into(),
            content_type: "audio/wav".to_owned(),
        };
        let tag = if max_outputs > 1 { format!("{tag}/audio/{number}") } else { format!("{tag}/audio") };
        values.push((Str::from(tag), value(summary::value::Value::Audio(audio))));
    }
    Ok(values)
}

pub(super) fn tensor_value(tensor: &Tensor) -> Result<summary::value::Value> {
    Ok(summary::value::Value::Tensor(stored_message(tensor)?))
}

fn tensor_kernel(init: &Init<'_>) -> Result<Kernel> {
    let node = init.node.to_owned();
    Kernel::sync(move |cx| {
        let mut value = value(tensor_value(cx.input(0)?)?);
        value.node_name.clone_from(&node);
        Ok(message([(Str::new(), value)]))
    })
}

/// Keeps the metadata read before a mistake, and unknown fields, as stock does.
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
        let mut described = Message::default();
        let _mistake = described.merge(METADATA, &metadata.to_scalar::<Str>()?);
        let mut bytes = encode(&tag, value(tensor_value(cx.input(1)?)?));
        prost::encoding::bytes::encode(9, &described.encode(METADATA), &mut bytes);
        Ok(joined([bytes]))
    })
}

fn merge_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (mut values, mut tags) = (Vec::new(), HashSet::new());
        for input in 0..cx.num_inputs() {
            for text in cx.flat::<Str>(input)? {
                let mut summary = Message::default();
                ensure!(
                    summary.merge(SUMMARY, text),
                    InvalidArgument,
                    "Could not parse one of the summary inputs"
                );
                for value in summary.into_messages(1) {
                    let tag = value.bytes(1);
                    ensure!(
                        tag.is_empty() || tags.insert(tag.to_vec()),
                        InvalidArgument,
                        "Duplicate tag {} found in summary inputs",
                        String::from_utf8_lossy(tag)
                    );
                    values.push(value.encode(VALUE));
                }
            }
        }
        Ok(joined(values))
    })
}

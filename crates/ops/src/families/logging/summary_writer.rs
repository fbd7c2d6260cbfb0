//! Event files written by servers.

use super::summary::{audio_values, encode, encode_all, image_values, tensor_value, value};
use crate::numeric::histogram::Histogram;
use crate::state::summary_writer::{SUMMARY_WRITER_TYPE, SummaryWriter};
use crate::support::wire::Message;
use crate::support::wire::summary::{METADATA, SUMMARY};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, OpClass, shapes};
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, f16, kernels, status};
use ferroflow_proto::tensorflow::{Event, GraphDef, summary};
use prost::Message as _;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &SUMMARY_WRITER,
    &CREATE_SUMMARY_FILE_WRITER,
    &FLUSH_SUMMARY_WRITER,
    &CLOSE_SUMMARY_WRITER,
    &WRITE_SUMMARY,
    &WRITE_SCALAR_SUMMARY,
    &WRITE_HISTOGRAM_SUMMARY,
    &WRITE_IMAGE_SUMMARY,
    &WRITE_AUDIO_SUMMARY,
    &WRITE_GRAPH_SUMMARY,
    &WRITE_RAW_PROTO_SUMMARY,
    &IMPORT_EVENT,
];

static SUMMARY_WRITER: Op = Op {
    name: "SummaryWriter",
    outputs: &["writer: resource"],
    attrs: &["shared_name: string = ''", "container: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any handle_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static CREATE_SUMMARY_FILE_WRITER: Op = Op {
    name: "CreateSummaryFileWriter",
    inputs: &[
        "writer: resource",
        "logdir: string",
        "max_queue: int32",
        "flush_millis: int32",
        "filename_suffix: string",
    ],
    kernels: kernels![any create_kernel],
    ..Op::STATEFUL
};

static FLUSH_SUMMARY_WRITER: Op = Op {
    name: "FlushSummaryWriter",
    inputs: &["writer: resource"],
    kernels: kernels![any flush_kernel],
    ..Op::STATEFUL
};

static CLOSE_SUMMARY_WRITER: Op =
    Op { name: "CloseSummaryWriter", kernels: kernels![any close_kernel], ..FLUSH_SUMMARY_WRITER };

static WRITE_SUMMARY: Op = Op {
    name: "WriteSummary",
    inputs: &["writer: resource", "step: int64", "tensor: T", "tag: string", "summary_metadata: string"],
    attrs: &["T: type"],
    kernels: kernels![any tensor_kernel],
    ..Op::STATEFUL
};

static WRITE_SCALAR_SUMMARY: Op = Op {
    name: "WriteScalarSummary",
    inputs: &["writer: resource", "step: int64", "tag: string", "value: T"],
    attrs: &["T: realnumbertype"],
    kernels: kernels![any scalar_kernel],
    ..Op::STATEFUL
};

static WRITE_HISTOGRAM_SUMMARY: Op = Op {
    name: "WriteHistogramSummary",
    inputs: &["writer: resource", "step: int64", "tag: string", "values: T"],
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, bool} = DT_FLOAT",
    ],
    kernels: kernels![any histogram_kernel],
    ..Op::STATEFUL
};

static WRITE_IMAGE_SUMMARY: Op = Op {
    name: "WriteImageSummary",
    inputs: &["writer: resource", "step: int64", "tag: string", "tensor: T", "bad_color: uint8"],
    attrs: &["max_images: int >= 1 = 3", "T: {uint8, double, float, half} = DT_FLOAT"],
    kernels: kernels![any image_kernel],
    ..Op::STATEFUL
};

static WRITE_AUDIO_SUMMARY: Op = Op {
    name: "WriteAudioSummary",
    inputs: &["writer: resource", "step: int64", "tag: string", "tensor: float", "sample_rate: float"],
    attrs: &["max_outputs: int >= 1 = 3"],
    kernels: kernels![any audio_kernel],
    ..Op::STATEFUL
};

static WRITE_GRAPH_SUMMARY: Op = Op {
    name: "WriteGraphSummary",
    inputs: &["writer: resource", "step: int64", "tensor: string"],
    kernels: kernels![any graph_kernel],
    ..Op::STATEFUL
};

static WRITE_RAW_PROTO_SUMMARY: Op =
    Op { name: "WriteRawProtoSummary", kernels: kernels![any raw_kernel], ..WRITE_GRAPH_SUMMARY };

static IMPORT_EVENT: Op = Op {
    name: "ImportEvent",
    inputs: &["writer: resource", "event: string"],
    kernels: kernels![any import_kernel],
    ..Op::STATEFUL
};

/// The fields of an event that hold its content.
const GRAPH_FIELD: u32 = 4;
const SUMMARY_FIELD: u32 = 5;

/// Without a shared name, writers belong to their node in one session, as queues do.
fn handle_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (container, shared) = init.resource_name()?;
    let private = init.attr::<String>("shared_name")?.is_empty();
    let name = if private { format!("_{}_{}", init.resources.unique_number(), init.node) } else { shared };
    let device = init.device.name();
    let handle = ResourceHandle::named(device, &container, &name, SUMMARY_WRITER_TYPE, Vec::new());
    let handle = Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])?;
    Kernel::sync(move |_| Ok(handle.clone().into()))
}

fn scalar_input<T: ferroflow_core::Element>(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<T> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "{name} must be a scalar");
    tensor.to_scalar()
}

fn create_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let directory: Str = scalar_input(cx, 1, "logdir")?;
        let (max_queue, flush_millis) =
            (scalar_input(cx, 2, "max_queue")?, scalar_input(cx, 3, "flush_millis")?);
        let suffix: Str = scalar_input(cx, 4, "filename_suffix")?;
        let (directory, suffix) = (String::from_utf8_lossy(&directory), String::from_utf8_lossy(&suffix));
        let handle = cx.handle(0)?;
        let make = || SummaryWriter::create(&directory, max_queue, flush_millis, &suffix);
        cx.step().resources.lookup_or_create(handle.container(), handle.name(), make)?;
        Ok(Outputs::None)
    })
}

fn writer(cx: &KernelCx<'_>) -> Result<Arc<SummaryWriter>> {
    cx.resource(0)
}

fn flush_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        writer(cx)?.flush()?;
        Ok(Outputs::None)
    })
}

fn close_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let handle = cx.handle(0)?;
        cx.step().resources.delete::<SummaryWriter>(handle.container(), handle.name())?;
        Ok(Outputs::None)
    })
}

/// Writes the summary that `make` makes of the tag, which input `tag` holds.
fn write(
    cx: &KernelCx<'_>,
    tag: usize,
    make: impl FnOnce(&[u8]) -> Result<Vec<(Str, summary::Value)>>,
) -> Result<Outputs> {
    let writer = writer(cx)?;
    let (step, tag) = (scalar_input(cx, 1, "step")?, scalar_input::<Str>(cx, tag, "tag")?);
    let values = make(&tag)?;
    let summary = encode_all(values.into_iter().map(|(tag, value)| encode(&tag, value)));
    writer.write(step, SUMMARY_FIELD, &summary)?;
    Ok(Outputs::None)
}

fn tensor_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let writer = writer(cx)?;
        let (step, tag) = (scalar_input(cx, 1, "step")?, scalar_input::<Str>(cx, 3, "tag")?);
        let metadata: Str = scalar_input(cx, 4, "summary_metadata")?;
        let mut bytes = encode(&tag, value(tensor_value(cx.input(2)?)?));
        if !metadata.is_empty() {
            // What was read before a mistake is kept, as in stock.
            let mut described = Message::default();
            let _mistake = described.merge(METADATA, &metadata);
            prost::encoding::bytes::encode(9, &described.encode(METADATA), &mut bytes);
        }
        writer.write(step, SUMMARY_FIELD, &encode_all([bytes]))?;
        Ok(Outputs::None)
    })
}

/// The elements in double precision, each as `put` takes it until it refuses one.
fn each_number(tensor: &Tensor, put: &mut dyn FnMut(f64) -> Result<()>) -> Result<()> {
    macro_rules! numbers {
        ($($dtype:ident: $type:ty => $convert:expr),+ $(,)?) => {
            match tensor.dtype() {
                $(DType::$dtype => tensor.flat::<$type>()?.iter().try_for_each(|x| put($convert(*x))),)+
                other => bail!(Unimplemented, "SummaryFileWriter {other} not supported."),
            }
        };
    }
    numbers![
        Bool: bool => |x: bool| f64::from(u8::from(x)),
        Half: f16 => |x: f16| x.to_f64(),
        Float: f32 => f64::from,
        Double: f64 => |x: f64| x,
        Int8: i8 => f64::from,
        Int16: i16 => f64::from,
        Int32: i32 => f64::from,
        Int64: i64 => |x: i64| x as f64,
        Uint8: u8 => f64::from,
        Uint16: u16 => f64::from,
        Uint32: u32 => f64::from,
        Uint64: u64 => |x: u64| x as f64,
    ]
}

fn scalar_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        write(cx, 2, |tag| {
            let mut first = None;
            each_number(cx.input(3)?, &mut |x| {
                first.get_or_insert(x);
                Ok(())
            })?;
            let number = first.ok_or_else(|| status!(InvalidArgument, "a scalar summary needs a value"))?;
            Ok(vec![(tag.to_vec().into(), value(summary::value::Value::SimpleValue(number as f32)))])
        })
    })
}

fn histogram_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        write(cx, 2, |tag| {
            let name = String::from_utf8_lossy(tag);
            let mut histogram = Histogram::default();
            each_number(cx.input(3)?, &mut |x| {
                ensure!(!x.is_nan(), InvalidArgument, "Nan in summary histogram for: {name}");
                ensure!(x.is_finite(), InvalidArgument, "Infinity in summary histogram for: {name}");
                histogram.add(x);
                Ok(())
            })?;
            Ok(vec![(tag.to_vec().into(), value(summary::value::Value::Histo(histogram.to_proto())))])
        })
    })
}

fn image_kernel(init: &Init<'_>) -> Result<Kernel> {
    let max_images: usize = init.attr("max_images")?;
    Kernel::sync(move |cx| {
        let bad_color = cx.input(4)?;
        ensure!(
            bad_color.rank() == 1,
            InvalidArgument,
            "bad_color must be a vector, got shape {}",
            bad_color.shape()
        );
        write(cx, 2, |tag| image_values(tag, cx.input(3)?, max_images, bad_color.flat()?))
    })
}

fn audio_kernel(init: &Init<'_>) -> Result<Kernel> {
    let max_outputs: usize = init.attr("max_outputs")?;
    Kernel::sync(move |cx| {
        let rate = scalar_input(cx, 4, "sample_rate")?;
        write(cx, 2, |tag| audio_values(tag, cx.input(3)?, max_outputs, rate))
    })
}

fn graph_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let writer = writer(cx)?;
        let graph: Str = scalar_input(cx, 2, "tensor")?;
        ensure!(
            GraphDef::decode(graph.as_ref()).is_ok(),
            DataLoss,
            "Bad tf.GraphDef binary proto tensor string"
        );
        writer.write(scalar_input(cx, 1, "step")?, GRAPH_FIELD, &graph)?;
        Ok(Outputs::None)
    })
}

fn raw_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let writer = writer(cx)?;
        let step = cx.input(1)?;
        ensure!(step.rank() == 0, InvalidArgument, "step must be scalar, got shape {}", step.shape());
        let mut merged = Message::default();
        for (number, text) in cx.flat::<Str>(2)?.iter().enumerate() {
            ensure!(
                merged.merge(SUMMARY, text),
                DataLoss,
                "Bad tf.compat.v1.Summary binary proto tensor string at index {number}"
            );
        }
        writer.write(step.to_scalar()?, SUMMARY_FIELD, &merged.encode(SUMMARY))?;
        Ok(Outputs::None)
    })
}

fn import_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let writer = writer(cx)?;
        let event: Str = scalar_input(cx, 1, "event")?;
        ensure!(Event::decode(event.as_ref()).is_ok(), DataLoss, "Bad tf.Event binary proto tensor string");
        writer.import(&event)?;
        Ok(Outputs::None)
    })
}

//! Readers of the queue era, under a handle or under a reference to their name, and the ops that read with them.

use crate::state::queue::Queue;
use crate::state::reader::{Reader, ReaderKind};
use crate::state::ref_handle;
use crate::state::resource_name::ResourceName;
use ferroflow_core::kernel::{FutureCx, Init, Kernel, KernelCx, Outputs, Str, Value};
use ferroflow_core::op::{Gradient, Op, OpClass, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, kernels};
use std::sync::{Arc, OnceLock};

pub(crate) const OPS: &[&Op] = &[
    &IDENTITY_READER,
    &IDENTITY_READER_V2,
    &WHOLE_FILE_READER,
    &WHOLE_FILE_READER_V2,
    &TEXT_LINE_READER,
    &TEXT_LINE_READER_V2,
    &TF_RECORD_READER,
    &TF_RECORD_READER_V2,
    &FIXED_LENGTH_RECORD_READER,
    &FIXED_LENGTH_RECORD_READER_V2,
    &READER_READ,
    &READER_READ_V2,
    &READER_READ_UP_TO,
    &READER_READ_UP_TO_V2,
    &READER_NUM_RECORDS_PRODUCED,
    &READER_NUM_RECORDS_PRODUCED_V2,
    &READER_NUM_WORK_UNITS_COMPLETED,
    &READER_NUM_WORK_UNITS_COMPLETED_V2,
    &READER_SERIALIZE_STATE,
    &READER_SERIALIZE_STATE_V2,
    &READER_RESTORE_STATE,
    &READER_RESTORE_STATE_V2,
    &READER_RESET,
    &READER_RESET_V2,
];

static IDENTITY_READER_V2: Op = Op {
    name: "IdentityReaderV2",
    gradient: Gradient::Stop,
    outputs: &["reader_handle: resource"],
    attrs: &["container: string = ''", "shared_name: string = ''"],
    shape: reader_shape,
    kernels: kernels![any reader_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static IDENTITY_READER: Op = Op {
    name: "IdentityReader",
    outputs: &["reader_handle: Ref(string)"],
    deprecated_at: Some(26),
    ..IDENTITY_READER_V2
};

static WHOLE_FILE_READER_V2: Op = Op { name: "WholeFileReaderV2", ..IDENTITY_READER_V2 };

static WHOLE_FILE_READER: Op =
    Op { name: "WholeFileReader", outputs: &["reader_handle: Ref(string)"], ..IDENTITY_READER_V2 };

static TEXT_LINE_READER_V2: Op = Op {
    name: "TextLineReaderV2",
    attrs: &["skip_header_lines: int = 0", "container: string = ''", "shared_name: string = ''"],
    ..IDENTITY_READER_V2
};

static TEXT_LINE_READER: Op = Op {
    name: "TextLineReader",
    outputs: &["reader_handle: Ref(string)"],
    deprecated_at: Some(26),
    ..TEXT_LINE_READER_V2
};

static TF_RECORD_READER_V2: Op = Op {
    name: "TFRecordReaderV2",
    attrs: &["container: string = ''", "shared_name: string = ''", "compression_type: string = ''"],
    ..IDENTITY_READER_V2
};

static TF_RECORD_READER: Op = Op {
    name: "TFRecordReader",
    outputs: &["reader_handle: Ref(string)"],
    deprecated_at: Some(26),
    ..TF_RECORD_READER_V2
};

static FIXED_LENGTH_RECORD_READER_V2: Op = Op {
    name: "FixedLengthRecordReaderV2",
    attrs: &[
        "header_bytes: int = 0",
        "record_bytes: int",
        "footer_bytes: int = 0",
        "hop_bytes: int = 0",
        "container: string = ''",
        "shared_name: string = ''",
        "encoding: string = ''",
    ],
    ..IDENTITY_READER_V2
};

static FIXED_LENGTH_RECORD_READER: Op = Op {
    name: "FixedLengthRecordReader",
    outputs: &["reader_handle: Ref(string)"],
    attrs: &[
        "header_bytes: int = 0",
        "record_bytes: int",
        "footer_bytes: int = 0",
        "hop_bytes: int = 0",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    deprecated_at: Some(26),
    ..IDENTITY_READER_V2
};

static READER_READ_V2: Op = Op {
    name: "ReaderReadV2",
    gradient: Gradient::Stop,
    inputs: &["reader_handle: resource", "queue_handle: resource"],
    outputs: &["key: string", "value: string"],
    shape: shapes::scalar,
    kernels: kernels![any read_kernel],
    ..Op::STATEFUL
};

static READER_READ: Op = Op {
    name: "ReaderRead",
    inputs: &["reader_handle: Ref(string)", "queue_handle: Ref(string)"],
    stateful: false,
    ..READER_READ_V2
};

static READER_READ_UP_TO_V2: Op = Op {
    name: "ReaderReadUpToV2",
    gradient: Gradient::Stop,
    inputs: &["reader_handle: resource", "queue_handle: resource", "num_records: int64"],
    outputs: &["keys: string", "values: string"],
    shape: read_up_to_shape,
    kernels: kernels![any read_up_to_kernel],
    ..Op::STATEFUL
};

static READER_READ_UP_TO: Op = Op {
    name: "ReaderReadUpTo",
    inputs: &["reader_handle: Ref(string)", "queue_handle: Ref(string)", "num_records: int64"],
    stateful: false,
    ..READER_READ_UP_TO_V2
};

static READER_NUM_RECORDS_PRODUCED_V2: Op = Op {
    name: "ReaderNumRecordsProducedV2",
    gradient: Gradient::Stop,
    inputs: &["reader_handle: resource"],
    outputs: &["records_produced: int64"],
    shape: shapes::scalar,
    kernels: kernels![any records_produced_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static READER_NUM_RECORDS_PRODUCED: Op = Op {
    name: "ReaderNumRecordsProduced",
    inputs: &["reader_handle: Ref(string)"],
    stateful: false,
    ..READER_NUM_RECORDS_PRODUCED_V2
};

static READER_NUM_WORK_UNITS_COMPLETED_V2: Op = Op {
    name: "ReaderNumWorkUnitsCompletedV2",
    outputs: &["units_completed: int64"],
    kernels: kernels![any units_completed_kernel],
    ..READER_NUM_RECORDS_PRODUCED_V2
};

static READER_NUM_WORK_UNITS_COMPLETED: Op = Op {
    name: "ReaderNumWorkUnitsCompleted",
    inputs: &["reader_handle: Ref(string)"],
    stateful: false,
    ..READER_NUM_WORK_UNITS_COMPLETED_V2
};

static READER_SERIALIZE_STATE_V2: Op = Op {
    name: "ReaderSerializeStateV2",
    outputs: &["state: string"],
    kernels: kernels![any serialize_kernel],
    ..READER_NUM_RECORDS_PRODUCED_V2
};

static READER_SERIALIZE_STATE: Op = Op {
    name: "ReaderSerializeState",
    inputs: &["reader_handle: Ref(string)"],
    stateful: false,
    ..READER_SERIALIZE_STATE_V2
};

static READER_RESTORE_STATE_V2: Op = Op {
    name: "ReaderRestoreStateV2",
    gradient: Gradient::Stop,
    inputs: &["reader_handle: resource", "state: string"],
    shape: restore_shape,
    kernels: kernels![any restore_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static READER_RESTORE_STATE: Op = Op {
    name: "ReaderRestoreState",
    inputs: &["reader_handle: Ref(string)", "state: string"],
    stateful: false,
    ..READER_RESTORE_STATE_V2
};

static READER_RESET_V2: Op = Op {
    name: "ReaderResetV2",
    gradient: Gradient::Stop,
    inputs: &["reader_handle: resource"],
    kernels: kernels![any reset_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static READER_RESET: Op =
    Op { name: "ReaderReset", inputs: &["reader_handle: Ref(string)"], stateful: false, ..READER_RESET_V2 };

fn reader_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if s.output_type(0) == DType::String { s.output(0, [2]) } else { s.output(0, []) }
}

fn read_up_to_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(2, 0)?;
    s.output(0, [UNKNOWN_DIM])?;
    s.output(1, [UNKNOWN_DIM])
}

fn restore_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 0)?;
    Ok(())
}

fn reader_kind(init: &Init<'_>) -> Result<ReaderKind> {
    let count = |name: &str| -> Result<usize> {
        let value: i64 = init.attr(name)?;
        ensure!(value >= 0, InvalidArgument, "{name} must be >= 0 not {value}");
        Ok(value as usize)
    };
    Ok(match init.op.trim_end_matches("V2") {
        "IdentityReader" => ReaderKind::Identity,
        "WholeFileReader" => ReaderKind::WholeFile,
        "TextLineReader" => ReaderKind::Lines { skip: count("skip_header_lines")? },
        "TFRecordReader" => ReaderKind::Records { compression: init.attr("compression_type")? },
        _ => ReaderKind::FixedLength {
            header: count("header_bytes")? as u64,
            record: count("record_bytes")?,
            footer: count("footer_bytes")?,
            hop: count("hop_bytes")?,
            // The first generation has no such attribute, and stock's kernel fails without it.
            encoding: if init.attrs.has("encoding") {
                init.attr("encoding")?
            } else {
                bail!(NotFound, "No attr named 'encoding' in NodeDef")
            },
        },
    })
}

fn reader_kernel(init: &Init<'_>) -> Result<Kernel> {
    let kind = reader_kind(init)?;
    let place = ResourceName::<Reader>::new(init)?;
    let (node, by_reference) = (init.node.to_owned(), init.output_types[0] == DType::String);
    let handle: OnceLock<Value> = OnceLock::new();
    Kernel::sync(move |cx| {
        let reader = place.lookup_or_create(cx, || Ok(Reader::new(kind.clone(), &node)))?;
        if let Some(handle) = handle.get() {
            return Ok(handle.clone().into());
        }
        let device = cx.device().name();
        let made = ref_handle::make(device, &place.container, &place.name, &*reader, by_reference)?;
        Ok(handle.get_or_init(|| made).clone().into())
    })
}

fn reader(cx: &KernelCx<'_>) -> Result<Arc<Reader>> {
    ref_handle::resolve(cx, &cx.step().resources)
}

fn reader_and_queue(cx: &mut FutureCx) -> Result<(Arc<Reader>, Arc<Queue>)> {
    let cx = cx.cx();
    Ok((reader(&cx)?, ref_handle::resolve_input(&cx, 1, &cx.step().resources)?))
}

fn read_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let (reader, queue) = reader_and_queue(&mut cx)?;
        let read = reader.read(&queue, 1).await?;
        let (key, value) = read.into_iter().next().unwrap_or_default();
        Ok([Tensor::scalar(key), Tensor::scalar(value)].into())
    })
}

fn read_up_to_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let count = cx.cx().scalar::<i64>(2)?;
        ensure!(count >= 0, InvalidArgument, "num_records must be >= 0 not {count}");
        let (reader, queue) = reader_and_queue(&mut cx)?;
        let read = reader.read(&queue, count as usize).await?;
        let (keys, values): (Vec<Str>, Vec<Str>) = read.into_iter().unzip();
        Ok([Tensor::vector(keys), Tensor::vector(values)].into())
    })
}

fn records_produced_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(reader(cx)?.records_produced()).into()))
}

fn units_completed_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(reader(cx)?.units_completed()).into()))
}

fn serialize_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(reader(cx)?.serialize()?).into()))
}

fn restore_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (reader, state) = (reader(cx)?, cx.input(1)?);
        ensure!(
            state.rank() == 0,
            InvalidArgument,
            "Reader state must be scalar, but had shape: {}",
            state.shape()
        );
        reader.restore(&state.to_scalar::<Str>()?)?;
        Ok(Outputs::None)
    })
}

fn reset_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        reader(cx)?.reset();
        Ok(Outputs::None)
    })
}

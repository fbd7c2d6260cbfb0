//! Fields of serialized messages of any type as tensors, and back.

use crate::parsing::described::{Cell, Field, message};
use crate::parsing::described_wire::{WantedField, read_fields, write_field};
use bytes::Bytes;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};
use prost::Message;
use prost_reflect::{DynamicMessage, MessageDescriptor};

pub(crate) const OPS: &[&Op] = &[&DECODE_PROTO_V2, &ENCODE_PROTO];

static DECODE_PROTO_V2: Op = Op {
    name: "DecodeProtoV2",
    gradient: Gradient::Stop,
    inputs: &["bytes: string"],
    outputs: &["sizes: int32", "values: output_types"],
    attrs: &[
        "message_type: string",
        "field_names: list(string)",
        "output_types: list(type) >= 0",
        "descriptor_source: string = 'local://'",
        "message_format: string = 'binary'",
        "sanitize: bool = false",
    ],
    shape: decode_shape,
    kernels: kernels![any decode_kernel],
    ..Op::PURE
};

static ENCODE_PROTO: Op = Op {
    name: "EncodeProto",
    gradient: Gradient::Stop,
    inputs: &["sizes: int32", "values: Tinput_types"],
    outputs: &["bytes: string"],
    attrs: &[
        "field_names: list(string)",
        "message_type: string",
        "descriptor_source: string = 'local://'",
        "Tinput_types: list(type) >= 1",
    ],
    shape: encode_shape,
    kernels: kernels![any encode_kernel],
    ..Op::PURE
};

fn decode_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let fields = s.attr::<Vec<DType>>("output_types")?.len();
    let input = s.input(0);
    let Some(batch) = input.dims() else { return Ok(()) };
    for output in 0..=fields {
        let last = if output == 0 { fields as i64 } else { UNKNOWN_DIM };
        s.output(output, batch.iter().copied().chain([last]))?;
    }
    Ok(())
}

fn encode_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let mut batch = PartialShape::unknown();
    for input in (1..s.num_inputs()).rev() {
        let shape = s.rank_at_least(input, 2)?;
        if let Some(dims) = shape.dims() {
            batch = s.merge(&PartialShape::new(dims[..dims.len() - 1].to_vec())?, &batch)?;
        }
    }
    s.set(0, batch);
    Ok(())
}

fn described(init: &Init<'_>) -> Result<MessageDescriptor> {
    message(&init.attr::<Bytes>("descriptor_source")?, &init.attr::<String>("message_type")?)
}

/// The ways in which messages arrive.
#[derive(Clone, Copy, PartialEq)]
enum Form {
    Binary,
    /// Binary, and checked as a whole before any field is read.
    Sanitized,
    Text,
}

fn decode_kernel(init: &Init<'_>) -> Result<Kernel> {
    let descriptor = described(init)?;
    let (names, types): (Vec<String>, Vec<DType>) = (init.attr("field_names")?, init.attr("output_types")?);
    ensure!(
        names.len() == types.len(),
        InvalidArgument,
        "field_names and output_types attributes must have the same length"
    );
    let mut wanted = Vec::with_capacity(names.len());
    for (name, dtype) in names.iter().zip(types) {
        let field = Field::find(&descriptor, name, true)?;
        field.check_output(dtype)?;
        let default = field.default_cell(dtype)?;
        wanted.push(WantedField { field, dtype, default });
    }
    let format: String = init.attr("message_format")?;
    let form = match format.as_str() {
        "binary" if init.attr("sanitize")? => Form::Sanitized,
        "binary" => Form::Binary,
        "text" => Form::Text,
        _ => bail!(InvalidArgument, "format must be one of binary or text"),
    };
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        ensure!(input.elements() > 0, InvalidArgument, "Bufs argument must contain at least one value");
        let mut sizes = Vec::with_capacity(input.elements() * wanted.len());
        let mut columns: Vec<Vec<Vec<Cell>>> = wanted.iter().map(|_| Vec::new()).collect();
        for (number, text) in input.flat::<Str>()?.iter().enumerate() {
            if number.is_multiple_of(256) {
                cx.step().check_cancelled()?;
            }
            let values = read_fields(&in_binary(&descriptor, form, text)?, &wanted)?;
            for (column, values) in columns.iter_mut().zip(values) {
                sizes.push(values.len() as i32);
                column.push(values);
            }
        }
        let batch = input.shape().dims();
        let shape = |last: usize| Shape::new(batch.iter().copied().chain([last as i64]));
        let mut outputs = vec![Tensor::new(shape(wanted.len())?, sizes)?];
        for (column, wanted) in columns.into_iter().zip(&wanted) {
            // At least one, so that fields that are not there have their default.
            let width = column.iter().map(Vec::len).max().unwrap_or(0).max(1);
            let elements = (column.len() as u64).saturating_mul(width as u64);
            let shape = shape(width)?;
            ensure!(
                elements < 1 << 40,
                ResourceExhausted,
                "the values of field {} would need a tensor of shape {shape}",
                wanted.field.number
            );
            outputs.push(padded(column, width, wanted, shape)?);
        }
        Ok(outputs.into())
    })
}

/// A message as bytes of the wire format.
fn in_binary(descriptor: &MessageDescriptor, form: Form, text: &Str) -> Result<Bytes> {
    let parsed = match form {
        Form::Binary => return Ok(text.clone()),
        Form::Sanitized => DynamicMessage::decode(descriptor.clone(), text.clone())
            .map_err(|error| status!(DataLoss, "Unable to parse binary protobuf: {error}"))?,
        Form::Text => {
            let refused =
                |error: &dyn std::fmt::Display| status!(DataLoss, "Unable to parse text protobuf: {error}");
            let text = std::str::from_utf8(text).map_err(|error| refused(&error))?;
            DynamicMessage::parse_text_format(descriptor.clone(), text).map_err(|error| refused(&error))?
        }
    };
    Ok(parsed.encode_to_vec().into())
}

/// One row of values per message, filled up with the default.
fn padded(column: Vec<Vec<Cell>>, width: usize, wanted: &WantedField, shape: Shape) -> Result<Tensor> {
    let WantedField { dtype, default, .. } = wanted;
    let cells = column.into_iter().flat_map(|values| {
        let missing = width - values.len();
        values.into_iter().chain(std::iter::repeat_n(default.clone(), missing))
    });
    if *dtype == DType::String {
        let text = |cell| match cell {
            Cell::Text(text) => text,
            Cell::Bits(_) => Bytes::new(),
        };
        return Tensor::new(shape, cells.map(text).collect::<Vec<Str>>());
    }
    let bits = cells.map(|cell| match cell {
        Cell::Bits(bits) => bits,
        Cell::Text(_) => 0,
    });
    match dtype {
        DType::Bool => Tensor::new(shape, bits.map(|bits| bits != 0).collect()),
        DType::Float => Tensor::new(shape, bits.map(|bits| f32::from_bits(bits as u32)).collect()),
        DType::Double => Tensor::new(shape, bits.map(f64::from_bits).collect()),
        DType::Int32 => Tensor::new(shape, bits.map(|bits| bits as i32).collect()),
        DType::Int64 => Tensor::new(shape, bits.map(|bits| bits as i64).collect()),
        DType::Uint32 => Tensor::new(shape, bits.map(|bits| bits as u32).collect()),
        _ => Tensor::new(shape, bits.collect::<Vec<u64>>()),
    }
}

fn encode_kernel(init: &Init<'_>) -> Result<Kernel> {
    let descriptor = described(init)?;
    let names: Vec<String> = init.attr("field_names")?;
    let fields =
        names.iter().map(|name| Field::find(&descriptor, name, false)).collect::<Result<Vec<_>>>()?;
    let mut order: Vec<usize> = (0..fields.len()).collect();
    order.sort_by_key(|field| fields[*field].number);
    Kernel::sync(move |cx| {
        let batch = batch_shape(cx, &names, &fields)?;
        let sizes = cx.flat::<i32>(0)?;
        for (number, size) in sizes.iter().enumerate() {
            let (message, field) = (number / fields.len(), number % fields.len());
            let width = last_dim(cx.input(1 + field)?);
            ensure!(
                *size as i64 <= width as i64,
                InvalidArgument,
                "Size to write must not be larger than value tensor; but saw: {size} > {width} at message {message} \
                 field {field}"
            );
        }
        let mut messages: Vec<Str> = Vec::with_capacity(batch.elements());
        for message in 0..batch.elements() {
            let mut out = Vec::new();
            for field in &order {
                let size = sizes[message * fields.len() + field].max(0) as usize;
                let values = cx.input(1 + field)?;
                let first = message * last_dim(values);
                if size > 0 {
                    write_field(&fields[*field], values, first..first + size, &mut out)?;
                }
            }
            messages.push(out.into());
        }
        Ok(Tensor::new(batch, messages)?.into())
    })
}

fn last_dim(tensor: &Tensor) -> usize {
    tensor.shape().dims().last().map_or(0, |dim| *dim as usize)
}

/// The shape of the messages, which all values have in common with the sizes.
fn batch_shape(cx: &KernelCx<'_>, names: &[String], fields: &[Field]) -> Result<Shape> {
    ensure!(
        fields.len() == cx.num_inputs() - 1,
        InvalidArgument,
        "Length of inputs list must match field_names"
    );
    let mut batch: Option<Vec<i64>> = None;
    for (number, (name, field)) in names.iter().zip(fields).enumerate() {
        let values = cx.input(1 + number)?;
        ensure!(
            field.field_type.fits(values.dtype()),
            InvalidArgument,
            "Incompatible type for field {name}.  Saw dtype: {} but field type is: {}",
            values.dtype(),
            field.field_type.name()
        );
        ensure!(
            values.rank() >= 2,
            InvalidArgument,
            "Invalid shape for field {name}.  Saw shape {} but it should be at least a matrix.",
            values.shape()
        );
        let own = &values.shape().dims()[..values.rank() - 1];
        ensure!(
            batch.as_deref().is_none_or(|batch| batch == own),
            InvalidArgument,
            "Values must match up to the last dimension"
        );
        batch = Some(own.to_vec());
    }
    let batch = batch.unwrap_or_default();
    let expected = Shape::new(batch.iter().copied().chain([fields.len() as i64]))?;
    let sizes = cx.input(0)?.shape();
    ensure!(
        *sizes == expected,
        InvalidArgument,
        "sizes should be batch_size + [len(field_names)].  Saw: {sizes} but expected: {expected}"
    );
    Shape::new(batch)
}

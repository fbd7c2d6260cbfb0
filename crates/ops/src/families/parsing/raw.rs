//! Strings that hold the bytes of numbers, or compressed strings.

use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Gradient, KernelRow, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels, status};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use std::io::Read;

pub(crate) const OPS: &[&Op] = &[&DECODE_RAW, &DECODE_PADDED_RAW, &DECODE_COMPRESSED];

static DECODE_RAW: Op = Op {
    name: "DecodeRaw",
    gradient: Gradient::Stop,
    inputs: &["bytes: string"],
    outputs: &["output: out_type"],
    attrs: &[
        "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, complex64, complex128, bool, \
         bfloat16}",
        "little_endian: bool = true",
    ],
    shape: decode_raw_shape,
    kernels: kernels![any decode_raw_kernel],
    ..Op::PURE
};

static DECODE_PADDED_RAW: Op = Op {
    name: "DecodePaddedRaw",
    gradient: Gradient::Stop,
    inputs: &["input_bytes: string", "fixed_length: int32"],
    outputs: &["output: out_type"],
    attrs: &[
        "out_type: {half, float, double, int32, uint16, uint8, int16, int8, int64, bfloat16}",
        "little_endian: bool = true",
    ],
    shape: decode_padded_raw_shape,
    kernels: PADDED,
    ..Op::PURE
};

/// Stock has kernels for all types but half.
const PADDED: &[KernelRow] = {
    const fn row(dtype: DType) -> KernelRow {
        KernelRow::new("out_type", dtype, decode_padded_raw_kernel)
    }
    &[
        row(DType::Float),
        row(DType::Double),
        row(DType::Int32),
        row(DType::Uint16),
        row(DType::Uint8),
        row(DType::Int16),
        row(DType::Int8),
        row(DType::Int64),
        row(DType::Bfloat16),
    ]
};

static DECODE_COMPRESSED: Op = Op {
    name: "DecodeCompressed",
    inputs: &["bytes: string"],
    outputs: &["output: string"],
    attrs: &["compression_type: string = ''"],
    shape: shapes::unchanged,
    kernels: kernels![any decode_compressed_kernel],
    ..Op::PURE
};

fn decode_raw_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    match s.input(0).dims() {
        Some(dims) => s.output(0, dims.iter().copied().chain([UNKNOWN_DIM])),
        None => Ok(()),
    }
}

fn decode_padded_raw_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let size = s.output_type(0).size() as i64;
    let width = match s.constant_i64(1)? {
        Some(length) => {
            ensure!(
                length >= 0,
                InvalidArgument,
                "Dimension size, given by scalar input 1, must be non-negative but is {length}"
            );
            ensure!(
                length % size == 0,
                InvalidArgument,
                "Dimension size must be evenly divisible by {size} but is {length}"
            );
            length / size
        }
        None => UNKNOWN_DIM,
    };
    match s.input(0).dims() {
        Some(dims) => s.output(0, dims.iter().copied().chain([width])),
        None => Ok(()),
    }
}

/// A tensor of rows of `width` elements below the dimensions of `texts`, of each text as many bytes as there is room
/// for; the rest is zero. Parts of complex numbers are turned around by themselves.
fn rows(
    cx: &KernelCx<'_>,
    texts: &Tensor,
    dtype: DType,
    width: usize,
    little_endian: bool,
) -> Result<Tensor> {
    let shape = Shape::new(texts.shape().dims().iter().copied().chain([width as i64]))?;
    let mut buffer = cx.device().allocate_bytes(dtype, &shape)?;
    let length = width * dtype.size();
    if length > 0 {
        let out = buffer.make_mut();
        let part = if dtype.is_complex() { dtype.size() / 2 } else { dtype.size() };
        for (row, text) in out.chunks_exact_mut(length).zip(texts.flat::<Str>()?) {
            let taken = text.len().min(length);
            row[..taken].copy_from_slice(&text[..taken]);
            row[taken..].fill(0);
            if !little_endian && part > 1 {
                row.chunks_exact_mut(part).for_each(<[u8]>::reverse);
            }
        }
    }
    Tensor::from_buffer(dtype, shape, buffer)
}

fn decode_raw_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    let little_endian: bool = init.attr("little_endian")?;
    Kernel::sync(move |cx| {
        let texts = cx.input(0)?;
        let length = texts.flat::<Str>()?.first().map_or(0, |text| text.len());
        for (i, text) in texts.flat::<Str>()?.iter().enumerate() {
            ensure!(
                text.len() == length,
                InvalidArgument,
                "DecodeRaw requires input strings to all be the same size, but element {i} has size {length} != {}",
                text.len()
            );
        }
        let size = dtype.size();
        ensure!(
            length % size == 0,
            InvalidArgument,
            "Input to DecodeRaw has length {length} that is not a multiple of {size}, the size of {dtype}"
        );
        Ok(rows(cx, texts, dtype, length / size, little_endian)?.into())
    })
}

fn decode_padded_raw_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    let little_endian: bool = init.attr("little_endian")?;
    Kernel::sync(move |cx| {
        let (texts, length) = (cx.input(0)?, cx.input(1)?);
        ensure!(length.rank() == 0, InvalidArgument, "k must be scalar, got shape {}", length.shape());
        let (length, size) = (length.to_scalar::<i32>()?, dtype.size());
        ensure!(
            // Stock takes the remainder of an unsigned number.
            (length as i64 as u64).is_multiple_of(size as u64),
            InvalidArgument,
            "fixed_length ({length}) must be a multiple of the size of out_type ({size})"
        );
        ensure!(length > 0, InvalidArgument, "fixed_length ({length}) must be greater than zero.");
        Ok(rows(cx, texts, dtype, length as usize / size, little_endian)?.into())
    })
}

fn decode_compressed_kernel(init: &Init<'_>) -> Result<Kernel> {
    let kind: String = init.attr("compression_type")?;
    ensure!(
        matches!(kind.as_str(), "" | "ZLIB" | "GZIP" | "ZSTD"),
        InvalidArgument,
        "Only ZLIB, ZSTD, GZIP or NONE are supported compressions"
    );
    Kernel::sync(move |cx| {
        let mut texts = cx.take(0)?;
        if kind.is_empty() {
            return Ok(texts.into());
        }
        let device = cx.device();
        for text in texts.flat_mut::<Str>()? {
            *text = match kind.as_str() {
                "ZLIB" => inflate(ZlibDecoder::new(text.as_ref()), |bytes| device.check_text(bytes))?,
                "GZIP" => inflate(MultiGzDecoder::new(text.as_ref()), |bytes| device.check_text(bytes))?,
                other => {
                    bail!(Unimplemented, "DecodeCompressed is not supported for compression_type = {other}")
                }
            };
        }
        Ok(texts.into())
    })
}

/// All that a decoder gives; memory grows with it, as far as `check` allows.
fn inflate(mut decoder: impl Read, check: impl Fn(usize) -> Result<()>) -> Result<Str> {
    let mut out = Vec::new();
    loop {
        let step = out.len().clamp(1 << 16, 1 << 26) as u64;
        check(out.len() + step as usize)?;
        let got = decoder.by_ref().take(step).read_to_end(&mut out);
        match got {
            Ok(0) => return Ok(out.into()),
            Ok(_) => {}
            // What ends too early counts up to there, as in stock.
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => return Ok(out.into()),
            Err(error) => return Err(status!(DataLoss, "inflate() failed with error -3: {error}")),
        }
    }
}

//! Strings as sequences of characters: case, length, spaces, parts.

use crate::support::text::trim;
use ferroflow_core::kernel::{Init, Kernel, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, shapes};
use ferroflow_core::{PartialShape, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&STRING_LENGTH, &STRING_LOWER, &STRING_UPPER, &STRING_STRIP, &SUBSTR];

static STRING_LENGTH: Op = Op {
    name: "StringLength",
    inputs: &["input: string"],
    outputs: &["output: int32"],
    attrs: &["unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"],
    shape: shapes::unchanged,
    kernels: kernels![any length_kernel],
    ..Op::PURE
};

static STRING_LOWER: Op = Op {
    name: "StringLower",
    inputs: &["input: string"],
    outputs: &["output: string"],
    attrs: &["encoding: string = ''"],
    shape: shapes::unchanged,
    kernels: kernels![any lower_kernel],
    ..Op::PURE
};

static STRING_UPPER: Op = Op {
    name: "StringUpper",
    inputs: &["input: string"],
    outputs: &["output: string"],
    attrs: &["encoding: string = ''"],
    shape: shapes::unchanged,
    kernels: kernels![any upper_kernel],
    ..Op::PURE
};

static STRING_STRIP: Op = Op {
    name: "StringStrip",
    inputs: &["input: string"],
    outputs: &["output: string"],
    shape: shapes::unchanged,
    kernels: kernels![any strip_kernel],
    ..Op::PURE
};

static SUBSTR: Op = Op {
    name: "Substr",
    inputs: &["input: string", "pos: T", "len: T"],
    outputs: &["output: string"],
    attrs: &["T: {int32, int64}", "unit: {'BYTE', 'UTF8_CHAR'} = 'BYTE'"],
    shape: substr_shape,
    kernels: kernels![any substr_kernel],
    ..Op::PURE
};

fn substr_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.merge(&s.input(1), &s.input(2))?;
    let shape = shapes::broadcast(&s.input(0), &s.input(1))?;
    s.set(0, shape);
    Ok(())
}

fn counts_characters(init: &Init<'_>) -> Result<bool> {
    Ok(init.attr::<String>("unit")? == "UTF8_CHAR")
}

/// Whether a byte starts a character.
fn starts_character(byte: &u8) -> bool {
    byte & 0xc0 != 0x80
}

fn length_kernel(init: &Init<'_>) -> Result<Kernel> {
    let characters = counts_characters(init)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let length = |text: &Str| {
            if characters {
                text.iter().filter(|byte| starts_character(byte)).count() as i32
            } else {
                text.len() as i32
            }
        };
        let lengths = input.flat::<Str>()?.iter().map(length).collect::<Vec<i32>>();
        Ok(Tensor::new(input.shape().clone(), lengths)?.into())
    })
}

/// A kernel that changes every string by itself.
fn each(change: impl Fn(&Str) -> Str + Send + Sync + 'static) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let mut texts = cx.take(0)?;
        texts.flat_mut::<Str>()?.iter_mut().for_each(|text| *text = change(text));
        Ok(texts.into())
    })
}

fn change_case(init: &Init<'_>, ascii: fn(&[u8]) -> Vec<u8>, unicode: fn(&str) -> String) -> Result<Kernel> {
    let encoding: String = init.attr("encoding")?;
    match encoding.as_str() {
        "" => each(move |text| ascii(text).into()),
        "utf-8" => each(move |text| unicode(&String::from_utf8_lossy(text)).into()),
        other => bail!(InvalidArgument, "only utf-8 or '' (no encoding) is supported, received {other}"),
    }
}

fn lower_kernel(init: &Init<'_>) -> Result<Kernel> {
    change_case(init, <[u8]>::to_ascii_lowercase, str::to_lowercase)
}

fn upper_kernel(init: &Init<'_>) -> Result<Kernel> {
    change_case(init, <[u8]>::to_ascii_uppercase, str::to_uppercase)
}

fn strip_kernel(_: &Init<'_>) -> Result<Kernel> {
    each(|text| text.slice_ref(trim(text)))
}

/// The part of a text from `position` on; `None` if there is no such position.
fn part(text: &Str, position: i64, length: i64, characters: bool) -> Option<Str> {
    let starts: Vec<usize>;
    let count = if characters {
        let at = text.iter().enumerate().filter(|(_, byte)| starts_character(byte)).map(|(at, _)| at);
        starts = at.chain([text.len()]).collect();
        starts.len() - 1
    } else {
        starts = Vec::new();
        text.len()
    };
    let start = if position < 0 { position + count as i64 } else { position };
    let start = usize::try_from(start).ok().filter(|start| *start <= count)?;
    if characters && length < 0 {
        // Stock reads a negative length as "to the end" in bytes only.
        return (position >= 0).then(Str::new);
    }
    let end = usize::try_from(length).map_or(count, |length| start.saturating_add(length).min(count));
    Some(if characters { text.slice(starts[start]..starts[end]) } else { text.slice(start..end) })
}

fn substr_kernel(init: &Init<'_>) -> Result<Kernel> {
    let characters = counts_characters(init)?;
    Kernel::sync(move |cx| {
        let (input, positions, lengths) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        ensure!(
            positions.shape() == lengths.shape(),
            InvalidArgument,
            "pos and len should have the same shape, got: {} vs. {}",
            positions.shape(),
            lengths.shape()
        );
        let shape = broadcast(input.shape(), positions.shape())?;
        let (texts, positions_shape) = (input.flat::<Str>()?, positions.shape());
        let (positions, lengths) = (positions.to_i64s()?, lengths.to_i64s()?);
        let mut parts = Vec::with_capacity(shape.elements());
        for at in 0..shape.elements() {
            let text = &texts[source(at, &shape, input.shape())];
            let given = source(at, &shape, positions_shape);
            match part(text, positions[given], lengths[given], characters) {
                Some(part) => parts.push(part),
                None => bail!(
                    InvalidArgument,
                    "pos {} out of range for string b'{}' at index {at}",
                    positions[given],
                    String::from_utf8_lossy(text)
                ),
            }
        }
        Ok(Outputs::from(Tensor::new(shape, parts)?))
    })
}

fn broadcast(a: &Shape, b: &Shape) -> Result<Shape> {
    let shape = shapes::broadcast(&PartialShape::from(a), &PartialShape::from(b))?;
    Ok(shape.to_shape().unwrap_or_default())
}

/// The source of element `at` of a broadcast shape.
fn source(mut at: usize, shape: &Shape, from: &Shape) -> usize {
    let (mut offset, mut stride) = (0, 1);
    let missing = shape.rank() - from.rank();
    for dim in (missing..shape.rank()).rev() {
        let (size, own) = (shape.dim(dim), from.dim(dim - missing));
        if own > 1 {
            offset += at % size * stride;
        }
        stride *= own;
        at /= size;
    }
    offset
}

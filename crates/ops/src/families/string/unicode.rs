//! Strings as characters of Unicode, and back.

use crate::support::unicode::{self, Source, Target};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, kernels, status};

pub(crate) const OPS: &[&Op] =
    &[&UNICODE_DECODE, &UNICODE_DECODE_WITH_OFFSETS, &UNICODE_ENCODE, &UNICODE_TRANSCODE, &UNICODE_SCRIPT];

static UNICODE_DECODE: Op = Op {
    name: "UnicodeDecode",
    inputs: &["input: string"],
    outputs: &["row_splits: Tsplits", "char_values: int32"],
    attrs: &[
        "input_encoding: string",
        "errors: {'strict', 'replace', 'ignore'} = 'replace'",
        "replacement_char: int = 65533",
        "replace_control_characters: bool = false",
        "Tsplits: {int32, int64} = DT_INT64",
    ],
    shape: decode_shape,
    kernels: kernels![any decode_kernel],
    ..Op::PURE
};

static UNICODE_DECODE_WITH_OFFSETS: Op = Op {
    name: "UnicodeDecodeWithOffsets",
    outputs: &["row_splits: Tsplits", "char_values: int32", "char_to_byte_starts: int64"],
    ..UNICODE_DECODE
};

static UNICODE_ENCODE: Op = Op {
    name: "UnicodeEncode",
    inputs: &["input_values: int32", "input_splits: Tsplits"],
    outputs: &["output: string"],
    attrs: &[
        "errors: {'ignore', 'replace', 'strict'} = 'replace'",
        "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}",
        "replacement_char: int = 65533",
        "Tsplits: {int32, int64} = DT_INT64",
    ],
    shape: encode_shape,
    kernels: kernels![any encode_kernel],
    ..Op::PURE
};

static UNICODE_TRANSCODE: Op = Op {
    name: "UnicodeTranscode",
    inputs: &["input: string"],
    outputs: &["output: string"],
    attrs: &[
        "input_encoding: string",
        "output_encoding: {'UTF-8', 'UTF-16-BE', 'UTF-32-BE'}",
        "errors: {'strict', 'replace', 'ignore'} = 'replace'",
        "replacement_char: int = 65533",
        "replace_control_characters: bool = false",
    ],
    shape: shapes::unchanged,
    kernels: kernels![any transcode_kernel],
    ..Op::PURE
};

static UNICODE_SCRIPT: Op = Op {
    name: "UnicodeScript",
    inputs: &["input: int32"],
    outputs: &["output: int32"],
    shape: shapes::unchanged,
    kernels: kernels![any script_kernel],
    ..Op::PURE
};

fn decode_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let texts = s.input(0).to_shape().map_or(UNKNOWN_DIM, |shape| shape.elements() as i64 + 1);
    s.output(0, [texts])?;
    (1..s.num_outputs()).try_for_each(|output| s.output(output, [UNKNOWN_DIM]))
}

fn encode_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 1)?;
    let splits = s.rank(1, 1)?;
    let strings = splits.dims().and_then(|dims| dims.first().copied()).filter(|dim| *dim > 0);
    s.output(0, [strings.map_or(UNKNOWN_DIM, |splits| splits - 1)])
}

/// The treatment of bytes and numbers that are not characters.
struct Policy {
    strict: bool,
    ignore: bool,
    replacement: u32,
    /// Whether control characters count as such.
    controls: bool,
}

impl Policy {
    fn new(init: &Init<'_>) -> Result<Policy> {
        let errors: String = init.attr("errors")?;
        ensure!(
            matches!(errors.as_str(), "replace" | "ignore" | "strict"),
            InvalidArgument,
            "errors policy must be one of 'strict', 'replace', or 'ignore'"
        );
        let replacement: i64 = init.attr("replacement_char")?;
        ensure!(
            (0..=0x10_ffff).contains(&replacement),
            InvalidArgument,
            "replacement_char out of unicode codepoint range"
        );
        let controls = init.attrs.has("replace_control_characters");
        Ok(Policy {
            strict: errors == "strict",
            ignore: errors == "ignore",
            replacement: replacement as u32,
            controls: controls && init.attr("replace_control_characters")?,
        })
    }

    /// The code of a character that was read; none if it is left out.
    fn read(&self, character: Option<char>, malformed: &mut bool) -> Option<u32> {
        *malformed |= character.is_none();
        match character {
            Some(character) if !(self.controls && character <= '\u{1f}') => Some(character.into()),
            _ => (!self.ignore).then_some(self.replacement),
        }
    }

    fn check(&self, malformed: bool) -> Result<()> {
        ensure!(!(self.strict && malformed), InvalidArgument, "Invalid formatting on input string");
        Ok(())
    }
}

fn input_encoding(init: &Init<'_>) -> Result<Source> {
    let name: String = init.attr("input_encoding")?;
    Source::named(&name)
        .ok_or_else(|| status!(InvalidArgument, "Could not create converter for input encoding: {name}"))
}

fn output_encoding(init: &Init<'_>) -> Result<Target> {
    let name: String = init.attr("output_encoding")?;
    Target::named(&name).ok_or_else(|| status!(InvalidArgument, "Invalid encoding: {name}"))
}

fn splits(dtype: DType, splits: Vec<i64>) -> Result<Tensor> {
    if dtype == DType::Int64 {
        return Ok(Tensor::vector(splits));
    }
    let last = splits.last().copied().unwrap_or(0);
    ensure!(
        i32::try_from(last).is_ok(),
        InvalidArgument,
        "char_values size exceeds maximum capacity of SPLITS_TYPE: {last}"
    );
    Ok(Tensor::vector(splits.into_iter().map(|split| split as i32).collect()))
}

fn decode_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (policy, source) = (Policy::new(init)?, input_encoding(init)?);
    let (dtype, with_offsets): (DType, bool) = (init.attr("Tsplits")?, init.output_types.len() == 3);
    Kernel::sync(move |cx| {
        let texts = cx.flat::<Str>(0)?;
        let (mut ends, mut values, mut starts) = (vec![0i64], Vec::new(), Vec::new());
        for text in texts {
            let (mut at, mut malformed) = (0, false);
            source.read(text, &mut |character, bytes| {
                if let Some(value) = policy.read(character, &mut malformed) {
                    values.push(value as i32);
                    starts.push(at);
                }
                at += bytes as i64;
            });
            policy.check(malformed)?;
            ends.push(values.len() as i64);
        }
        let mut outputs = vec![splits(dtype, ends)?, Tensor::vector(values)];
        outputs.extend(with_offsets.then(|| Tensor::vector(starts)));
        Ok(outputs.into())
    })
}

fn encode_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (policy, target) = (Policy::new(init)?, output_encoding(init)?);
    Kernel::sync(move |cx| {
        let (values, splits) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            values.rank() == 1 && splits.rank() == 1,
            InvalidArgument,
            "Both the input_tensor and input_splits should be of rank 1. "
        );
        let (values, splits) = (values.flat::<i32>()?, splits.to_i64s()?);
        let (Some(first), Some(last)) = (splits.first(), splits.last()) else {
            bail!(
                InvalidArgument,
                "Input_splits should contain elements, but given input_values has 0 elements"
            );
        };
        ensure!(*first == 0, InvalidArgument, "First value in input_splits must be zero.");
        ensure!(
            *last == values.len() as i64,
            InvalidArgument,
            "Last value in input_splits must be equal to length of input_tensor."
        );
        let mut texts = Vec::with_capacity(splits.len() - 1);
        for pair in splits.windows(2) {
            ensure!(
                pair[0] <= pair[1],
                InvalidArgument,
                "Values in input_splits must be equal or in ascending order."
            );
            ensure!(
                pair[1] <= values.len() as i64,
                InvalidArgument,
                "Values in input_splits must be less than or equal to input_tensor length."
            );
            let mut text = Vec::new();
            for value in &values[pair[0] as usize..pair[1] as usize] {
                match u32::try_from(*value).ok().and_then(char::from_u32) {
                    Some(character) => target.push(character, &mut text),
                    None if policy.strict => {
                        bail!(InvalidArgument, "Code point is out of range for Unicode, or is a surrogate.")
                    }
                    None if policy.ignore => {}
                    None => push_replacement(target, policy.replacement, &mut text),
                }
            }
            texts.push(Str::from(text));
        }
        Ok(Tensor::vector(texts).into())
    })
}

/// Appends a replacement, which may be half of a pair: that is written as the replacement of everything else.
fn push_replacement(target: Target, value: u32, text: &mut Vec<u8>) {
    target.push(char::from_u32(value).unwrap_or(char::REPLACEMENT_CHARACTER), text);
}

fn transcode_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (policy, source, target) = (Policy::new(init)?, input_encoding(init)?, output_encoding(init)?);
    Kernel::sync(move |cx| {
        let mut texts = cx.take(0)?;
        let mut malformed = false;
        for text in texts.flat_mut::<Str>()? {
            let mut out = Vec::with_capacity(text.len());
            source.read(text, &mut |character, _| {
                // Control characters that are to be replaced count as mistakes here.
                malformed |= policy.controls && character.is_some_and(|character| character <= '\u{1f}');
                if let Some(value) = policy.read(character, &mut malformed) {
                    push_replacement(target, value, &mut out);
                }
            });
            *text = out.into();
        }
        policy.check(malformed)?;
        Ok(texts.into())
    })
}

fn script_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut values = cx.take(0)?;
        values.flat_mut::<i32>()?.iter_mut().for_each(|value| *value = unicode::script(*value));
        Ok(values.into())
    })
}

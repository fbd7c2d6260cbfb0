//! Numbers as strings and back.

use crate::support::text::{format_e, format_f, format_g, trim};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Gradient, Op, shapes};
use ferroflow_core::{C64, C128, DType, Element, Result, Tensor, bail, bf16, ensure, f16, kernels, status};
use std::num::IntErrorKind;

pub(crate) const OPS: &[&Op] = &[&AS_STRING, &STRING_TO_NUMBER];

static AS_STRING: Op = Op {
    name: "AsString",
    gradient: Gradient::Stop,
    inputs: &["input: T"],
    outputs: &["output: string"],
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, complex64, \
         complex128, bool, variant, string}",
        "precision: int = -1",
        "scientific: bool = false",
        "shortest: bool = false",
        "width: int = -1",
        "fill: string = ''",
    ],
    shape: shapes::unchanged,
    kernels: kernels![any as_string_kernel],
    ..Op::PURE
};

static STRING_TO_NUMBER: Op = Op {
    name: "StringToNumber",
    gradient: Gradient::Stop,
    inputs: &["string_tensor: string"],
    outputs: &["output: out_type"],
    attrs: &["out_type: {float, double, int32, int64, uint32, uint64} = DT_FLOAT"],
    shape: shapes::unchanged,
    kernels: kernels!["out_type" => string_to_number_kernel: f32, f64, i32, i64, u32, u64],
    ..Op::PURE
};

/// The directive of C's `printf` that the attributes describe.
struct Format {
    notation: Notation,
    precision: usize,
    /// The characters of a string that are printed.
    cut: usize,
    width: usize,
    fill: Option<u8>,
}

enum Notation {
    Fixed,
    Scientific,
    Shortest,
}

impl Format {
    fn new(init: &Init<'_>, dtype: DType) -> Result<Format> {
        let (precision, width): (i64, i64) = (init.attr("precision")?, init.attr("width")?);
        let (scientific, shortest): (bool, bool) = (init.attr("scientific")?, init.attr("shortest")?);
        let fill: Str = init.attr("fill")?;
        // Strings ignore what is said of numbers.
        if !dtype.is_floating() && !dtype.is_complex() && dtype != DType::String {
            ensure!(
                !scientific && !shortest,
                InvalidArgument,
                "scientific and shortest format not supported for datatype {dtype}"
            );
            ensure!(precision < 0, InvalidArgument, "precision not supported for datatype {dtype}");
        }
        ensure!(fill.len() <= 1, InvalidArgument, "Fill string must be one or fewer characters");
        ensure!(
            fill.iter().all(|fill| b" +-0#".contains(fill)),
            InvalidArgument,
            "Fill argument not supported: \"{}\"",
            String::from_utf8_lossy(&fill)
        );
        ensure!(
            !(scientific && shortest),
            InvalidArgument,
            "Cannot select both scientific and shortest notation"
        );
        // A single string of this many characters is refused before memory is.
        ensure!(width <= 1 << 16 && precision <= 1 << 10, InvalidArgument, "width or precision is too large");
        Ok(Format {
            notation: match (scientific, shortest) {
                (true, _) => Notation::Scientific,
                (_, true) => Notation::Shortest,
                _ => Notation::Fixed,
            },
            precision: usize::try_from(precision).unwrap_or(6),
            cut: usize::try_from(precision).unwrap_or(usize::MAX),
            width: usize::try_from(width).unwrap_or(0),
            fill: fill.first().copied(),
        })
    }

    fn float(&self, value: f64) -> String {
        let text = match self.notation {
            Notation::Fixed => format_f(value, self.precision),
            Notation::Scientific => format_e(value, self.precision),
            Notation::Shortest => format_g(value, self.precision),
        };
        self.pad(text, value.is_finite())
    }

    /// Signs and pads a number.
    fn pad(&self, mut text: String, digits: bool) -> String {
        if !text.starts_with('-') {
            match self.fill {
                Some(b'+') => text.insert(0, '+'),
                Some(b' ') => text.insert(0, ' '),
                _ => {}
            }
        }
        self.widen(text, digits)
    }

    /// Pads a number; zeros stand between the sign and the digits.
    fn widen(&self, mut text: String, digits: bool) -> String {
        let missing = self.width.saturating_sub(text.len());
        match self.fill {
            Some(b'-') => text.push_str(&" ".repeat(missing)),
            Some(b'0') if digits => text.insert_str(text.starts_with('-') as usize, &"0".repeat(missing)),
            _ => text.insert_str(0, &" ".repeat(missing)),
        }
        text
    }
}

impl Format {
    /// Pads a string with spaces, on the right if the fill says so; a string to be padded is cut at the precision.
    fn pad_text(&self, text: &Str) -> Str {
        if self.width == 0 {
            return text.clone();
        }
        let text = &text[..text.len().min(self.cut)];
        let missing = self.width.saturating_sub(text.len());
        let spaces = vec![b' '; missing];
        Str::from(if self.fill == Some(b'-') {
            [text, &spaces[..]].concat()
        } else {
            [&spaces[..], text].concat()
        })
    }
}

fn as_string_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("T")?;
    let format = Format::new(init, dtype)?;
    fn each<T: Element>(input: &Tensor, show: impl Fn(&T) -> String) -> Result<Tensor> {
        let texts = input.flat::<T>()?.iter().map(|value| Str::from(show(value))).collect::<Vec<Str>>();
        Tensor::new(input.shape().clone(), texts)
    }
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        macro_rules! integer {
            ($type:ty) => {
                each::<$type>(input, |value| format.pad(value.to_string(), true))
            };
        }
        // What has no sign gets no place for one.
        macro_rules! unsigned {
            ($type:ty) => {
                each::<$type>(input, |value| format.widen(value.to_string(), true))
            };
        }
        let texts = match dtype {
            DType::Float => each::<f32>(input, |value| format.float(*value as f64)),
            DType::Double => each::<f64>(input, |value| format.float(*value)),
            DType::Half => each::<f16>(input, |value| format.float(value.to_f64())),
            DType::Bfloat16 => each::<bf16>(input, |value| format.float(value.to_f64())),
            DType::Int8 => integer!(i8),
            DType::Int16 => integer!(i16),
            DType::Int32 => integer!(i32),
            DType::Int64 => integer!(i64),
            DType::Uint8 => unsigned!(u8),
            DType::Uint16 => unsigned!(u16),
            DType::Uint32 => unsigned!(u32),
            DType::Uint64 => unsigned!(u64),
            DType::Bool => each::<bool>(input, |value| value.to_string()),
            DType::Complex64 => each::<C64>(input, |value| {
                format!("({},{})", format.float(value.re as f64), format.float(value.im as f64))
            }),
            DType::Complex128 => each::<C128>(input, |value| {
                format!("({},{})", format.float(value.re), format.float(value.im))
            }),
            DType::String => {
                let texts =
                    input.flat::<Str>()?.iter().map(|text| format.pad_text(text)).collect::<Vec<Str>>();
                Tensor::new(input.shape().clone(), texts)
            }
            other => bail!(Unimplemented, "AsString is not supported for T = {other}"),
        };
        Ok(texts?.into())
    })
}

/// A number that a string may hold, with spaces around it.
pub(crate) trait Parse: Element {
    fn parse(text: &str) -> Option<Self>;
}

macro_rules! parse_float {
    ($($type:ty),+) => {$(
        impl Parse for $type {
            fn parse(text: &str) -> Option<$type> {
                let (negative, digits) = match text.strip_prefix('-') {
                    Some(digits) => (true, digits),
                    None => (false, text.strip_prefix('+').unwrap_or(text)),
                };
                if let Some(hex) = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
                    let (mantissa, exponent) = parse_hex(hex)?;
                    // Rounded once, to the digits of this type; half the power at a time stays in the range.
                    let (half, rest) = (exponent / 2, exponent - exponent / 2);
                    let value = (mantissa as $type) as f64 * 2f64.powi(half) * 2f64.powi(rest);
                    return Some(if negative { -value as $type } else { value as $type });
                }
                if is_marked_nan(digits) {
                    return Some(<$type>::NAN);
                }
                text.parse().ok()
            }
        }
    )+};
}

/// The number after `0x`, as C's library reads it: its first digits, of which the last one says if any follow, and the
/// power of two that they are multiplied by.
fn parse_hex(text: &str) -> Option<(u64, i32)> {
    let (digits, power) = match text.split_once(['p', 'P']) {
        Some((digits, power)) => (digits, power),
        None => (text, "0"),
    };
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    // What does not fit leaves the range in the same direction.
    let far = 1 << 20;
    let mut exponent = match power.parse::<i32>() {
        Ok(power) => power.clamp(-far, far),
        Err(error) if *error.kind() == IntErrorKind::PosOverflow => far,
        Err(error) if *error.kind() == IntErrorKind::NegOverflow => -far,
        Err(_) => return None,
    };
    let mut mantissa = 0u64;
    for (at, digit) in whole.chars().chain(fraction.chars()).enumerate() {
        let digit = u64::from(digit.to_digit(16)?);
        let is_whole = at < whole.len();
        if mantissa >> 58 == 0 {
            mantissa = mantissa << 4 | digit;
            exponent -= if is_whole { 0 } else { 4 };
        } else {
            mantissa |= u64::from(digit != 0);
            exponent = exponent.saturating_add(if is_whole { 4 } else { 0 });
        }
    }
    Some((mantissa, if mantissa == 0 { 0 } else { exponent.clamp(-4000, 4000) }))
}

/// Whether this is C's name of a NaN with a mark in parentheses.
fn is_marked_nan(text: &str) -> bool {
    let Some((name, mark)) = text.split_once('(') else { return false };
    let is_mark = |mark: &str| mark.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    name.eq_ignore_ascii_case("nan") && mark.strip_suffix(')').is_some_and(is_mark)
}
parse_float!(f32, f64);

macro_rules! parse_int {
    ($($type:ty),+) => {$(
        impl Parse for $type {
            fn parse(text: &str) -> Option<$type> {
                text.parse().ok()
            }
        }
    )+};
}
parse_int!(i32, i64, u32, u64);

fn string_to_number_kernel<T: Parse>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        let mut numbers = Vec::with_capacity(input.elements());
        for text in input.flat::<Str>()? {
            let parsed = std::str::from_utf8(trim(text)).ok().and_then(T::parse);
            numbers.push(parsed.ok_or_else(|| {
                status!(
                    InvalidArgument,
                    "StringToNumberOp could not correctly convert string: {}",
                    String::from_utf8_lossy(text)
                )
            })?);
        }
        Ok(Tensor::new(input.shape().clone(), numbers)?.into())
    })
}

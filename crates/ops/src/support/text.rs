//! Values as people read them: numbers in C's formats, and tensors in the short form of assertions and prints.

use ferroflow_core::kernel::Str;
use ferroflow_core::{DType, Element, Result, Tensor, bf16, f16};

/// Whether a byte is white space in C; Rust has no vertical tabulator among them.
pub(crate) fn is_space(byte: &u8) -> bool {
    byte.is_ascii_whitespace() || *byte == b'\x0b'
}

/// A text without the white space before it.
pub(crate) fn trim_start(text: &[u8]) -> &[u8] {
    &text[text.iter().position(|byte| !is_space(byte)).unwrap_or(text.len())..]
}

/// A text without the white space around it.
pub(crate) fn trim(text: &[u8]) -> &[u8] {
    let end = text.iter().rposition(|byte| !is_space(byte)).map_or(0, |last| last + 1);
    trim_start(&text[..end])
}

/// C's `%.{precision}g`.
pub(crate) fn format_g(value: f64, precision: usize) -> String {
    if let Some(text) = non_finite(value) {
        return text.to_owned();
    }
    let precision = precision.max(1);
    let scientific = format!("{:.*e}", precision - 1, value);
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= precision as i32 {
        return format!("{}{}", trim_zeros(mantissa), exponent_text(exponent));
    }
    let decimals = (precision as i32 - 1 - exponent).max(0) as usize;
    trim_zeros(&format!("{value:.decimals$}")).to_owned()
}

/// C's `%.{precision}e`.
pub(crate) fn format_e(value: f64, precision: usize) -> String {
    if let Some(text) = non_finite(value) {
        return text.to_owned();
    }
    let scientific = format!("{value:.precision$e}");
    match scientific.split_once('e') {
        Some((mantissa, exponent)) => format!("{mantissa}{}", exponent_text(exponent.parse().unwrap_or(0))),
        None => scientific,
    }
}

/// C's `%.{precision}f`.
pub(crate) fn format_f(value: f64, precision: usize) -> String {
    match non_finite(value) {
        Some(text) => text.to_owned(),
        None => format!("{value:.precision$}"),
    }
}

fn non_finite(value: f64) -> Option<&'static str> {
    if value.is_nan() {
        return Some(if value.is_sign_negative() { "-nan" } else { "nan" });
    }
    value.is_infinite().then_some(if value < 0.0 { "-inf" } else { "inf" })
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

fn exponent_text(exponent: i32) -> String {
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("e{sign}{:02}", exponent.unsigned_abs())
}

/// A float in six digits if they say it exactly, else in nine, which always do.
pub(crate) fn float(value: f32) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let short = format_g(value as f64, 6);
    if short.parse() == Ok(value) { short } else { format_g(value as f64, 9) }
}

/// A double in fifteen digits if they say it exactly, else in seventeen.
pub(crate) fn double(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let short = format_g(value, 15);
    if short.parse() == Ok(value) { short } else { format_g(value, 17) }
}

/// A string with quotes and what cannot be printed escaped; other bytes stay.
fn escape(bytes: &[u8]) -> String {
    let mut out = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'"' | b'\'' | b'\\' => out.extend_from_slice(&[b'\\', *byte]),
            0..0x20 | 0x7f => out.extend_from_slice(format!("\\{byte:03o}").as_bytes()),
            other => out.push(*other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// One of stock's two forms: that of `Assert` and `Print`, or the indented one of `tf.print`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    Flat,
    Nested,
}

/// A tensor's first elements; at most `limit` (negative: all). The nested form shows as many at either end.
pub(crate) fn summarize(tensor: &Tensor, limit: i64, form: Form) -> Result<String> {
    fn each<T: Element>(
        tensor: &Tensor,
        limit: i64,
        form: Form,
        show: impl Fn(&T) -> String,
    ) -> Result<String> {
        let values = tensor.flat::<T>()?;
        Ok(lay_out(tensor, limit, form, &|at| show(&values[at])))
    }
    macro_rules! integers {
        ($($dtype:ident => $type:ty),+) => {
            match tensor.dtype() {
                $(DType::$dtype => return each::<$type>(tensor, limit, form, |value| value.to_string()),)+
                _ => {}
            }
        };
    }
    integers!(Int8 => i8, Int16 => i16, Int32 => i32, Int64 => i64, Uint8 => u8, Uint16 => u16, Uint32 => u32,
        Uint64 => u64);
    match tensor.dtype() {
        DType::Float => each::<f32>(tensor, limit, form, |value| float(*value)),
        DType::Double => each::<f64>(tensor, limit, form, |value| double(*value)),
        DType::Half => each::<f16>(tensor, limit, form, |value| float(value.to_f32())),
        DType::Bfloat16 => each::<bf16>(tensor, limit, form, |value| float(value.to_f32())),
        // Stock prints nothing at all where it shows none of them.
        DType::Bool if shown(tensor, limit) == 0 => Ok(String::new()),
        DType::Bool => each::<bool>(tensor, limit, form, |value| (*value as u8).to_string()),
        DType::String => each::<Str>(tensor, limit, form, |value| match form {
            Form::Flat => escape(value),
            Form::Nested => format!("\"{}\"", escape(value)),
        }),
        _ => Ok(opaque(tensor, limit, form)),
    }
}

/// Types without a printed form show as question marks, whatever their shape.
fn opaque(tensor: &Tensor, limit: i64, form: Form) -> String {
    let shown = shown(tensor, limit);
    let mut out = vec!["?"; shown].join(" ");
    if shown < tensor.elements() {
        out.push_str("...");
    }
    if form == Form::Nested && tensor.rank() > 0 { format!("[{out}]") } else { out }
}

fn shown(tensor: &Tensor, limit: i64) -> usize {
    usize::try_from(limit).unwrap_or(usize::MAX).min(tensor.elements())
}

fn lay_out(tensor: &Tensor, limit: i64, form: Form, show: &dyn Fn(usize) -> String) -> String {
    let (mut out, limit) = (String::new(), shown(tensor, limit));
    let dims = tensor.shape().dims();
    match form {
        _ if dims.is_empty() => {
            if limit > 0 {
                out.push_str(&show(0));
            }
        }
        Form::Nested => nested(dims, 0, limit, 0, show, &mut out),
        Form::Flat => flat(dims, 0, limit, &mut 0, show, &mut out),
    }
    if limit < tensor.elements() && (form == Form::Flat || dims.is_empty()) {
        out.push_str("...");
    }
    out
}

fn flat(
    dims: &[i64],
    dim: usize,
    limit: usize,
    at: &mut usize,
    show: &dyn Fn(usize) -> String,
    out: &mut String,
) {
    if *at >= limit {
        return;
    }
    if dim + 1 == dims.len() {
        for i in 0..dims[dim] {
            if *at >= limit {
                if dim != 0 {
                    out.push_str("...");
                }
                return;
            }
            if i > 0 {
                out.push(' ');
            }
            out.push_str(&show(*at));
            *at += 1;
        }
        return;
    }
    for _ in 0..dims[dim] {
        let open = *at < limit;
        if open {
            out.push('[');
        }
        flat(dims, dim + 1, limit, at, show, out);
        if open {
            out.push(']');
        }
    }
}

fn nested(
    dims: &[i64],
    dim: usize,
    at_ends: usize,
    at: usize,
    show: &dyn Fn(usize) -> String,
    out: &mut String,
) {
    if dim == dims.len() {
        out.push_str(&show(at));
        return;
    }
    let space = |out: &mut String| {
        if dim + 1 == dims.len() {
            return out.push(' ');
        }
        out.push_str(&"\n".repeat(dims.len() - dim - 1));
        out.push_str(&" ".repeat(dim + 1));
    };
    let count = dims[dim] as usize;
    let stride: usize = dims[dim + 1..].iter().product::<i64>() as usize;
    out.push('[');
    for i in 0..at_ends.min(count) {
        if i > 0 {
            space(out);
        }
        nested(dims, dim + 1, at_ends, at + stride * i, show, out);
    }
    if count > at_ends.saturating_mul(2) {
        space(out);
        out.push_str("...");
    }
    for i in at_ends.max(count.saturating_sub(at_ends))..count {
        space(out);
        nested(dims, dim + 1, at_ends, at + stride * i, show, out);
    }
    out.push(']');
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Shape;

    #[test]
    fn numbers_look_as_in_c() {
        for (value, text) in [(0.1, "0.1"), (1e6, "1e+06"), (123456.0, "123456"), (1e-5, "1e-05"), (0.0, "0")]
        {
            assert_eq!(format_g(value, 6), text);
        }
        assert_eq!(format_e(1e10, 6), "1.000000e+10");
        assert_eq!(float(1.0 / 3.0), "0.333333343");
        assert_eq!(double(1.0 / 3.0), "0.33333333333333331");
        assert_eq!(float(1234567.0), "1234567");
    }

    #[test]
    fn tensors_are_cut_where_stock_cuts_them() {
        let cube = Tensor::new(Shape::new([2, 2, 3]).unwrap(), (0..12).collect::<Vec<i32>>()).unwrap();
        assert_eq!(summarize(&cube, 4, Form::Flat).unwrap(), "[[0 1 2][3...]]...");
        assert_eq!(
            summarize(&cube, 1, Form::Nested).unwrap(),
            "[[[0 ... 2]\n  [3 ... 5]]\n\n [[6 ... 8]\n  [9 ... 11]]]"
        );
        let row = Tensor::vector((0..10).collect::<Vec<i32>>());
        assert_eq!(summarize(&row, 3, Form::Flat).unwrap(), "0 1 2...");
        assert_eq!(summarize(&row, 3, Form::Nested).unwrap(), "[0 1 2 ... 7 8 9]");
    }
}

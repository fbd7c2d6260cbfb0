//! Compares a tensor with the one that stock computed.
//!
//! All tolerances are here. Integers, booleans and strings always agree exactly; floats as the case asks.

use ferroflow_core::{DType, Tensor};
use half::{bf16, f16};
use num_complex::Complex;

/// The closeness that float values must have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closeness {
    /// Bit for bit, except that any NaN equals any NaN, and that a subnormal number equals zero, to which stock flushes it.
    Exact,
    /// Within the dtype's tolerance.
    Rounding,
    /// Not at all: only dtype and shape are compared.
    Random,
}

impl Closeness {
    /// The value of `GoldenCase.accuracy`.
    pub fn from_golden(accuracy: &str) -> Closeness {
        match accuracy {
            "rounding" => Closeness::Rounding,
            "random" => Closeness::Random,
            _ => Closeness::Exact,
        }
    }
}

/// The rounding of a dtype: relative tolerance, and the smallest normal number.
struct Precision {
    relative: f64,
    smallest: f64,
}

fn precision(dtype: DType) -> Option<Precision> {
    let (relative, smallest) = match dtype {
        DType::Half => (4e-3, f64::from(f16::MIN_POSITIVE)),
        DType::Bfloat16 => (2e-2, f64::from(bf16::MIN_POSITIVE)),
        DType::Float | DType::Complex64 => (2e-5, f64::from(f32::MIN_POSITIVE)),
        DType::Double | DType::Complex128 => (1e-11, f64::MIN_POSITIVE),
        _ => return None,
    };
    Some(Precision { relative, smallest })
}

/// Why `actual` is not what was expected, or nothing.
pub fn difference(expected: &Tensor, actual: &Tensor, closeness: Closeness) -> Option<String> {
    if expected.dtype() != actual.dtype() || expected.shape() != actual.shape() {
        let describe = |tensor: &Tensor| format!("{} {}", tensor.dtype().name(), tensor.shape());
        return Some(format!("expected {}, got {}", describe(expected), describe(actual)));
    }
    if closeness == Closeness::Random {
        return None;
    }
    let Some(precision) = precision(expected.dtype()) else {
        return discrete_difference(expected, actual);
    };
    let (expected, actual) = (numbers(expected), numbers(actual));
    // A result near zero may come from operands that were not, so it is measured by the size of its neighbors.
    let largest = expected.iter().map(|x| x.abs()).filter(|x| x.is_finite()).fold(0.0, f64::max);
    let floor = (0.1 * largest.min(1.0)).max(precision.smallest);
    let agrees = |expected: f64, actual: f64| match closeness {
        _ if expected.is_nan() || actual.is_nan() => expected.is_nan() && actual.is_nan(),
        _ if expected.to_bits() == actual.to_bits() => true,
        Closeness::Exact => {
            let subnormal = |x: f64| x != 0.0 && x.abs() < precision.smallest;
            (subnormal(expected) || subnormal(actual))
                && expected.abs().max(actual.abs()) < precision.smallest
        }
        _ => {
            expected.is_finite()
                && (expected - actual).abs() <= precision.relative * expected.abs().max(floor)
        }
    };
    let wrong = (0..expected.len()).find(|&at| !agrees(expected[at], actual[at]))?;
    Some(format!(
        "value {wrong}: expected {:?}, got {:?}\n{}",
        expected[wrong],
        actual[wrong],
        both(&expected, &actual)
    ))
}

fn both(expected: &[f64], actual: &[f64]) -> String {
    let some = |values: &[f64]| {
        let shown: Vec<String> = values.iter().take(32).map(|value| format!("{value:?}")).collect();
        shown.join(", ")
    };
    format!("        expected [{}]\n             got [{}]", some(expected), some(actual))
}

fn discrete_difference(expected: &Tensor, actual: &Tensor) -> Option<String> {
    let (expected, actual) = (words(expected), words(actual));
    let wrong = (0..expected.len()).find(|&at| expected[at] != actual[at])?;
    Some(format!(
        "value {wrong}: expected {}, got {}\n        expected [{}]\n             got [{}]",
        expected[wrong],
        actual[wrong],
        expected.join(", "),
        actual.join(", ")
    ))
}

/// Float values, parts of complex numbers one after the other.
fn numbers(tensor: &Tensor) -> Vec<f64> {
    fn flat<T: ferroflow_core::Element>(tensor: &Tensor, convert: impl Fn(&T) -> f64) -> Vec<f64> {
        tensor.flat::<T>().map(|values| values.iter().map(convert).collect()).unwrap_or_default()
    }
    fn parts<T: Copy + Into<f64>>(values: &[Complex<T>]) -> Vec<f64> {
        values.iter().flat_map(|value| [value.re.into(), value.im.into()]).collect()
    }
    match tensor.dtype() {
        DType::Half => flat(tensor, |x: &f16| x.to_f64()),
        DType::Bfloat16 => flat(tensor, |x: &bf16| x.to_f64()),
        DType::Float => flat(tensor, |x: &f32| f64::from(*x)),
        DType::Double => flat(tensor, |x: &f64| *x),
        DType::Complex64 => tensor.flat::<Complex<f32>>().map(parts).unwrap_or_default(),
        DType::Complex128 => tensor.flat::<Complex<f64>>().map(parts).unwrap_or_default(),
        _ => Vec::new(),
    }
}

/// Other values as text.
fn words(tensor: &Tensor) -> Vec<String> {
    fn flat<T: ferroflow_core::Element + std::fmt::Debug>(tensor: &Tensor) -> Vec<String> {
        tensor.flat::<T>().map(|values| values.iter().map(|x| format!("{x:?}")).collect()).unwrap_or_default()
    }
    match tensor.dtype() {
        DType::Int8 => flat::<i8>(tensor),
        DType::Int16 => flat::<i16>(tensor),
        DType::Int32 => flat::<i32>(tensor),
        DType::Int64 => flat::<i64>(tensor),
        DType::Uint8 => flat::<u8>(tensor),
        DType::Uint16 => flat::<u16>(tensor),
        DType::Uint32 => flat::<u32>(tensor),
        DType::Uint64 => flat::<u64>(tensor),
        DType::Bool => flat::<bool>(tensor),
        DType::String => flat::<ferroflow_core::kernel::Str>(tensor),
        other => vec![format!("values of type {} are not compared", other.name()); tensor.elements()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expected: f32, actual: f32, closeness: Closeness) -> bool {
        difference(&Tensor::scalar(expected), &Tensor::scalar(actual), closeness).is_none()
    }

    #[test]
    fn exact_tells_zeros_apart_but_not_nans() {
        assert!(!check(0.0, -0.0, Closeness::Exact));
        assert!(check(f32::NAN, -f32::NAN, Closeness::Exact));
        assert!(check(0.0, 1e-40, Closeness::Exact));
        assert!(!check(1.0, 1.0 + f32::EPSILON, Closeness::Exact));
    }

    #[test]
    fn rounding_allows_the_last_bits_only() {
        assert!(check(1.0, 1.0 + f32::EPSILON, Closeness::Rounding));
        assert!(!check(1.0, 1.001, Closeness::Rounding));
        assert!(!check(f32::INFINITY, f32::MAX, Closeness::Rounding));
        assert!(!check(1.0, f32::NAN, Closeness::Rounding));
    }

    #[test]
    fn dtype_and_shape_always_count() {
        let one = Tensor::scalar(1.0f32);
        assert!(difference(&one, &Tensor::scalar(1.0f64), Closeness::Random).is_some());
        assert!(difference(&one, &Tensor::vector(vec![1.0f32]), Closeness::Random).is_some());
    }
}

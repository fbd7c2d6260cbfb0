//! Statistics of a tensor's values, and differences between two tensors.

use ferroflow::{DType, Result, Tensor};
use half::{bf16, f16};
use serde::Serialize;

/// Statistics of the finite numbers of a tensor, and counts of the others.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Statistics {
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
    pub(super) mean: Option<f64>,
    pub(super) standard_deviation: Option<f64>,
    pub(super) zeros: usize,
    pub(super) nan: usize,
    pub(super) infinite: usize,
}

/// The difference between two tensors of one type and shape.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Difference {
    /// The number of elements whose bytes differ.
    pub(super) elements: usize,
    /// The largest absolute difference between two numbers, where both are finite.
    pub(super) largest: Option<f64>,
}

/// Returns the statistics of a tensor, or `None` if its elements are not numbers.
pub(super) fn statistics(tensor: &Tensor) -> Result<Option<Statistics>> {
    let Some(numbers) = numbers(tensor)? else { return Ok(None) };
    let mut found = Statistics::default();
    // Welford's method: the sum of squares of large values would lose their differences.
    let (mut count, mut mean, mut squares) = (0.0, 0.0, 0.0);
    for number in numbers {
        if number.is_nan() {
            found.nan += 1;
            continue;
        }
        if number.is_infinite() {
            found.infinite += 1;
            continue;
        }
        found.zeros += usize::from(number == 0.0);
        found.min = Some(found.min.map_or(number, |least| least.min(number)));
        found.max = Some(found.max.map_or(number, |most| most.max(number)));
        count += 1.0;
        let distance = number - mean;
        mean += distance / count;
        squares += distance * (number - mean);
    }
    if count > 0.0 {
        found.mean = Some(mean);
        found.standard_deviation = Some((squares / count).sqrt());
    }
    Ok(Some(found))
}

/// Compares two tensors of one type and shape; `None` if they are equal.
pub(super) fn difference(a: &Tensor, b: &Tensor) -> Result<Option<Difference>> {
    let mut found = Difference::default();
    let size = a.dtype().size();
    if size == 0 {
        let (a, b) = (a.flat::<bytes::Bytes>()?, b.flat::<bytes::Bytes>()?);
        found.elements = a.iter().zip(b).filter(|(a, b)| a != b).count();
    } else {
        let (a, b) = (a.bytes()?, b.bytes()?);
        if a == b {
            return Ok(None);
        }
        found.elements = a.chunks_exact(size).zip(b.chunks_exact(size)).filter(|(a, b)| a != b).count();
    }
    if let (Some(a), Some(b)) = (numbers(a)?, numbers(b)?) {
        let finite = a.zip(b).map(|(a, b)| (a - b).abs()).filter(|distance| distance.is_finite());
        found.largest = finite.reduce(f64::max);
    }
    Ok((found.elements > 0).then_some(found))
}

/// Returns the numbers of a tensor in their order, or `None` if its elements are not numbers. A complex number counts as
/// two.
pub(super) fn numbers(tensor: &Tensor) -> Result<Option<impl Iterator<Item = f64>>> {
    let Some((size, decode)) = decoder(tensor.dtype()) else { return Ok(None) };
    Ok(Some(tensor.bytes()?.chunks_exact(size).map(decode)))
}

/// Reads one number.
type Decode = fn(&[u8]) -> f64;

/// Returns the size of a number in memory, and the function that reads one.
fn decoder(dtype: DType) -> Option<(usize, Decode)> {
    macro_rules! decode {
        ($number:ty, |$value:ident| $wide:expr) => {
            Some((size_of::<$number>(), |bytes: &[u8]| {
                let $value = <$number>::from_ne_bytes(bytes.try_into().expect("a chunk has this size"));
                $wide
            }))
        };
    }
    match dtype {
        DType::Float | DType::Complex64 => decode!(f32, |value| f64::from(value)),
        DType::Double | DType::Complex128 => decode!(f64, |value| value),
        DType::Half => decode!(u16, |value| f16::from_bits(value).to_f64()),
        DType::Bfloat16 => decode!(u16, |value| bf16::from_bits(value).to_f64()),
        DType::Int8 | DType::Qint8 => decode!(i8, |value| f64::from(value)),
        DType::Uint8 | DType::Quint8 | DType::Bool => decode!(u8, |value| f64::from(value)),
        DType::Int16 | DType::Qint16 => decode!(i16, |value| f64::from(value)),
        DType::Uint16 | DType::Quint16 => decode!(u16, |value| f64::from(value)),
        DType::Int32 | DType::Qint32 => decode!(i32, |value| f64::from(value)),
        DType::Uint32 => decode!(u32, |value| f64::from(value)),
        DType::Int64 => decode!(i64, |value| value as f64),
        DType::Uint64 => decode!(u64, |value| value as f64),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statistics_leave_out_what_is_not_finite() {
        let tensor = Tensor::vector(vec![1.0f32, 3.0, 0.0, f32::NAN, f32::INFINITY]);
        let found = statistics(&tensor).unwrap().unwrap();
        assert_eq!((found.min, found.max), (Some(0.0), Some(3.0)));
        assert!((found.mean.unwrap() - 4.0 / 3.0).abs() < 1e-12);
        assert!((found.standard_deviation.unwrap() - (14.0f64 / 9.0).sqrt()).abs() < 1e-12);
        assert_eq!((found.zeros, found.nan, found.infinite), (1, 1, 1));
    }

    #[test]
    fn text_has_no_statistics_but_differs() {
        let tensor = |text: &'static str| Tensor::scalar(bytes::Bytes::from_static(text.as_bytes()));
        assert_eq!(statistics(&tensor("a")).unwrap(), None);
        assert_eq!(difference(&tensor("a"), &tensor("a")).unwrap(), None);
        assert_eq!(difference(&tensor("a"), &tensor("b")).unwrap().unwrap().elements, 1);
    }

    #[test]
    fn the_largest_difference_is_found() {
        let (a, b) = (Tensor::vector(vec![1i32, 2, 3]), Tensor::vector(vec![1i32, -2, 4]));
        assert_eq!(difference(&a, &b).unwrap(), Some(Difference { elements: 2, largest: Some(4.0) }));
    }
}

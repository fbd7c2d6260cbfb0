//! Tensors as text for people: nested lists, long ones abbreviated to their first elements.

use super::{C64, C128, Element, Tensor};
use crate::DType;
use bytes::Bytes;
use half::{bf16, f16};
use std::fmt;

/// The number of elements of a dimension that are printed.
const SHOWN: usize = 8;

/// The elements as nested lists. Dimensions with more than eight elements end in dots.
///
/// ```
/// use ferroflow_core::Tensor;
///
/// assert_eq!(Tensor::from([[1.0f32, 2.5], [3.0, 4.0]]).to_string(), "[[1 2.5] [3 4]]");
/// assert_eq!(Tensor::from((0..100).collect::<Vec<i32>>()).to_string(), "[0 1 2 3 4 5 6 7 ...]");
/// assert_eq!(Tensor::from([4e-14f32, 0.5]).to_string(), "[4e-14 0.5]");
/// assert_eq!(Tensor::from("text").to_string(), "\"text\"");
/// ```
impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.dtype() {
            DType::Half => self.show::<f16>(f, |value, f| number(f64::from(*value), value, f)),
            DType::Bfloat16 => self.show::<bf16>(f, |value, f| number(f64::from(*value), value, f)),
            DType::Float => self.show::<f32>(f, |value, f| number(f64::from(*value), value, f)),
            DType::Double => self.show::<f64>(f, |value, f| number(*value, value, f)),
            DType::Complex64 => self.show::<C64>(f, |value, f| write!(f, "{value}")),
            DType::Complex128 => self.show::<C128>(f, |value, f| write!(f, "{value}")),
            DType::Bool => self.show::<bool>(f, |value, f| write!(f, "{value}")),
            DType::Uint8 => self.show::<u8>(f, |value, f| write!(f, "{value}")),
            DType::Int8 => self.show::<i8>(f, |value, f| write!(f, "{value}")),
            DType::Uint16 => self.show::<u16>(f, |value, f| write!(f, "{value}")),
            DType::Int16 => self.show::<i16>(f, |value, f| write!(f, "{value}")),
            DType::Uint32 => self.show::<u32>(f, |value, f| write!(f, "{value}")),
            DType::Int32 => self.show::<i32>(f, |value, f| write!(f, "{value}")),
            DType::Uint64 => self.show::<u64>(f, |value, f| write!(f, "{value}")),
            DType::Int64 => self.show::<i64>(f, |value, f| write!(f, "{value}")),
            DType::String => {
                self.show::<Bytes>(f, |text, f| write!(f, "{:?}", String::from_utf8_lossy(text)))
            }
            _ => fmt::Debug::fmt(self, f),
        }
    }
}

impl Tensor {
    fn show<T: Element>(
        &self,
        f: &mut fmt::Formatter<'_>,
        element: impl Fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
    ) -> fmt::Result {
        match self.flat::<T>() {
            Ok(elements) => nested(f, elements, self.shape().dims(), &element),
            Err(_) => fmt::Debug::fmt(self, f),
        }
    }
}

/// Prints a number, with an exponent if it is very small or large, as stock does.
fn number<T: fmt::Display + fmt::LowerExp>(size: f64, value: &T, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let plain = size == 0.0 || !size.is_finite() || (1e-4..1e16).contains(&size.abs());
    if plain { write!(f, "{value}") } else { write!(f, "{value:e}") }
}

fn nested<T>(
    f: &mut fmt::Formatter<'_>,
    elements: &[T],
    dims: &[i64],
    element: &impl Fn(&T, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    let Some((count, inner)) = dims.split_first() else {
        return elements.first().map_or(Ok(()), |value| element(value, f));
    };
    let count = *count as usize;
    f.write_str("[")?;
    for i in 0..count.min(SHOWN) {
        if i > 0 {
            f.write_str(" ")?;
        }
        let width = elements.len() / count;
        nested(f, &elements[i * width..(i + 1) * width], inner, element)?;
    }
    f.write_str(if count > SHOWN { " ...]" } else { "]" })
}

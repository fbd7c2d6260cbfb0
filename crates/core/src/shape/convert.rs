//! Conversions into shapes: from `[2, 3]`, `[-1, 64]`, `[None, Some(64)]`, `[]`, a vector, a slice, or a shape.
//!
//! Dimensions are `i64`, `i32` or `usize`, so literals, lengths of Rust collections and dimensions of other tensors
//! need no cast. Arrays of `i64` may have any length and arrays of other types up to eight elements, so that the type
//! of `[]` is unambiguous.

use super::{Dims, PartialShape, Shape};
use crate::{Result, status};
use std::fmt::Display;

/// A conversion into a [`Shape`], for arrays, slices and vectors of `i64`, `i32` or `usize`.
///
/// ```
/// use ferroflow_core::{Shape, Tensor, ToShape};
///
/// let rows = vec![1.0f32; 6];
/// let matrix = Tensor::new([rows.len() / 3, 3], rows)?;
/// assert_eq!(matrix.shape(), &[2, 3].to_shape()?);
/// assert!([2, -3].to_shape().is_err());
/// assert_eq!([].to_shape()?, Shape::scalar());
/// # Ok::<(), ferroflow_core::Status>(())
/// ```
pub trait ToShape {
    /// Converts; an error if a dimension is negative or the number of elements too large.
    fn to_shape(self) -> Result<Shape>;
}

/// A conversion into a [`PartialShape`]: from `[-1, 64]`, `[None, Some(64)]`, `[2, 3]`, or a shape.
pub trait ToPartialShape {
    /// Converts, or reports what is wrong with the shape.
    fn to_partial_shape(self) -> Result<PartialShape>;
}

impl ToShape for Shape {
    #[inline]
    fn to_shape(self) -> Result<Shape> {
        Ok(self)
    }
}

impl ToShape for &Shape {
    #[inline]
    fn to_shape(self) -> Result<Shape> {
        Ok(self.clone())
    }
}

impl ToPartialShape for PartialShape {
    fn to_partial_shape(self) -> Result<PartialShape> {
        Ok(self)
    }
}

impl ToPartialShape for &PartialShape {
    fn to_partial_shape(self) -> Result<PartialShape> {
        Ok(self.clone())
    }
}

impl ToPartialShape for Shape {
    fn to_partial_shape(self) -> Result<PartialShape> {
        Ok(PartialShape(Some(self.0)))
    }
}

impl ToPartialShape for &Shape {
    fn to_partial_shape(self) -> Result<PartialShape> {
        Ok(self.into())
    }
}

impl From<&Shape> for PartialShape {
    fn from(shape: &Shape) -> PartialShape {
        PartialShape(Some(shape.0.clone()))
    }
}

impl From<&Shape> for Shape {
    fn from(shape: &Shape) -> Shape {
        shape.clone()
    }
}

/// Panics if the number of elements overflows, as `Vec::with_capacity` does. [`ToShape`] returns an error instead.
impl<const N: usize> From<[usize; N]> for Shape {
    fn from(dims: [usize; N]) -> Shape {
        Shape::from(&dims[..])
    }
}

/// Panics if the number of elements overflows, as `Vec::with_capacity` does. [`ToShape`] returns an error instead.
impl From<&[usize]> for Shape {
    fn from(dims: &[usize]) -> Shape {
        dims.to_shape().unwrap_or_else(|error| panic!("{}", error.message()))
    }
}

/// Panics if the number of elements overflows, as `Vec::with_capacity` does. [`ToShape`] returns an error instead.
impl From<Vec<usize>> for Shape {
    fn from(dims: Vec<usize>) -> Shape {
        Shape::from(dims.as_slice())
    }
}

/// The dimensions as `i64`.
fn widen_dims<T: TryInto<i64> + Copy + Display>(dims: &[T]) -> Result<Dims> {
    let widen =
        |dim: &T| (*dim).try_into().map_err(|_| status!(InvalidArgument, "Dimension {dim} is too large"));
    dims.iter().map(widen).collect()
}

macro_rules! convert_list {
    ($list:ty $(, $generics:tt $name:ident $kind:ty)?) => {
        impl$(<$generics $name: $kind>)? ToShape for $list {
            fn to_shape(self) -> Result<Shape> {
                Shape::new(widen_dims(&self[..])?)
            }
        }

        impl$(<$generics $name: $kind>)? ToPartialShape for $list {
            fn to_partial_shape(self) -> Result<PartialShape> {
                PartialShape::new(widen_dims(&self[..])?)
            }
        }
    };
}

convert_list!([i64; N], const N usize);
convert_list!(&[i64; N], const N usize);

macro_rules! lists {
    ($($dim:ty)*) => {$(
        convert_list!(&[$dim]);
        convert_list!(Vec<$dim>);
        convert_list!(&Vec<$dim>);
    )*};
}

lists!(i64 i32 usize);

macro_rules! arrays {
    ($($rank:literal)*) => {$(
        convert_list!([i32; $rank]);
        convert_list!(&[i32; $rank]);
        convert_list!([usize; $rank]);
        convert_list!(&[usize; $rank]);

        impl ToPartialShape for [Option<i64>; $rank] {
            fn to_partial_shape(self) -> Result<PartialShape> {
                PartialShape::new(self.into_iter().map(|dim| dim.unwrap_or(-1)))
            }
        }
    )*};
}

arrays!(1 2 3 4 5 6 7 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Tensor};

    #[test]
    fn shapes_are_written_as_lists_of_any_integers() {
        let expected = Shape::matrix(2, 3);
        let (rows, columns): (usize, i64) = (2, 3);
        let lists = [
            [2, 3].to_shape(),
            [rows, 3].to_shape(),
            [2, columns].to_shape(),
            (&[2, 3]).to_shape(),
            vec![rows, 3].to_shape(),
            vec![2, columns][..].to_shape(),
            expected.dims().to_shape(),
            (&expected).to_shape(),
        ];
        for list in lists {
            assert_eq!(list.unwrap(), expected);
        }
        assert_eq!([].to_shape().unwrap(), Shape::scalar());
        assert_eq!(Tensor::zeros(DType::Float, [2, 3]).shape(), &expected);
        assert_eq!(Tensor::zeros(DType::Float, &expected).shape(), &expected);
        assert_eq!(Tensor::zeros(DType::Float, []).elements(), 1);
        assert_eq!(
            Tensor::new([3, rows], vec![0i32; 6]).unwrap().reshaped([2, 3]).unwrap().shape(),
            &expected
        );
    }

    #[test]
    fn partial_shapes_leave_dimensions_open() {
        let expected = PartialShape::new([-1, 3]).unwrap();
        assert_eq!([-1, 3].to_partial_shape().unwrap(), expected);
        assert_eq!([None, Some(3)].to_partial_shape().unwrap(), expected);
        assert_eq!([].to_partial_shape().unwrap(), PartialShape::scalar());
    }

    #[test]
    fn impossible_shapes_are_errors() {
        for shape in [[-1, 3].to_shape(), [1 << 40, 1i64 << 40].to_shape(), [usize::MAX].to_shape()] {
            assert_eq!(shape.unwrap_err().code(), crate::Code::InvalidArgument);
        }
        assert!([-2, 3].to_partial_shape().is_err());
        assert!(Tensor::new([2, 2], vec![0.0f32; 3]).unwrap_err().message().contains("[2,2] has 4 elements"));
    }
}

//! Shapes of tensors, and partially known shapes of graph edges.
//!
//! Shape functions infer the latter before a step runs ([`crate::op::ShapeCx`]); kernels see only the former. The shape
//! rules of ops, such as broadcasting, are not here.

mod convert;

pub use convert::{ToPartialShape, ToShape};

use crate::{Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::{TensorShapeProto, tensor_shape_proto};
use smallvec::SmallVec;
use std::fmt;
use std::ops::Deref;

/// The largest number of dimensions of a tensor, as in stock.
pub const MAX_RANK: usize = 254;

/// Dimensions of a tensor; up to four are stored inline.
pub type Dims = SmallVec<[i64; 4]>;

/// The shape of a tensor: every dimension is known and not negative, and the number of elements fits `i64`.
#[derive(PartialEq, Eq, Hash, Default)]
pub struct Shape(Dims);

impl Clone for Shape {
    #[inline]
    fn clone(&self) -> Shape {
        // A memcpy; the derived implementation would push element by element.
        Shape(Dims::from_slice(&self.0))
    }
}

/// Collects dimensions; an error if there are more than a shape may have.
fn collect_dims(dims: impl IntoIterator<Item = i64>) -> Result<Dims> {
    let mut collected = Dims::new();
    for dim in dims {
        if collected.len() == MAX_RANK {
            return Err(too_many_dims());
        }
        collected.push(dim);
    }
    Ok(collected)
}

#[cold]
fn too_many_dims() -> Status {
    status!(InvalidArgument, "Shape has more than the {MAX_RANK} dimensions that a tensor may have")
}

impl Shape {
    /// The shape of a scalar.
    #[inline]
    pub fn scalar() -> Shape {
        Shape(Dims::new())
    }

    /// A shape with these dimensions; an error if one is negative or the number of elements overflows.
    pub fn new(dims: impl IntoIterator<Item = i64>) -> Result<Shape> {
        Shape::checked(collect_dims(dims)?)
    }

    fn checked(dims: Dims) -> Result<Shape> {
        let mut elements: i64 = 1;
        for &dim in &dims {
            ensure!(dim >= 0, InvalidArgument, "Dimension {dim} must be >= 0 in shape {}", ShapeText(&dims));
            elements = match elements.checked_mul(dim) {
                Some(elements) => elements,
                None => {
                    bail!(
                        InvalidArgument,
                        "Shape {} is too large (more than 2**63 - 1 entries)",
                        ShapeText(&dims)
                    )
                }
            };
        }
        Ok(Shape(dims))
    }

    /// A vector's shape.
    pub fn vector(length: usize) -> Shape {
        Shape(smallvec::smallvec![length as i64])
    }

    /// A matrix's shape.
    pub fn matrix(rows: usize, columns: usize) -> Shape {
        Shape(smallvec::smallvec![rows as i64, columns as i64])
    }

    /// The dimensions.
    #[inline]
    pub fn dims(&self) -> &[i64] {
        &self.0
    }

    /// One dimension as a count.
    #[inline]
    pub fn dim(&self, index: usize) -> usize {
        self.0[index] as usize
    }

    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.len()
    }

    /// The number of elements.
    #[inline]
    pub fn elements(&self) -> usize {
        self.0.iter().product::<i64>() as usize
    }

    /// Returns whether this is a scalar's shape.
    #[inline]
    pub fn is_scalar(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether this is a vector's shape.
    pub fn is_vector(&self) -> bool {
        self.0.len() == 1
    }

    /// Reads a shape from its wire form; unknown dimensions are an error, unknown rank means a scalar (as in stock).
    pub fn from_proto(proto: &TensorShapeProto) -> Result<Shape> {
        Shape::new(proto.dim.iter().map(|dim| dim.size))
    }

    /// The wire form.
    pub fn to_proto(&self) -> TensorShapeProto {
        TensorShapeProto { dim: dims_to_proto(self.0.iter().copied()), unknown_rank: false }
    }
}

fn dims_to_proto(dims: impl Iterator<Item = i64>) -> Vec<tensor_shape_proto::Dim> {
    dims.map(|size| tensor_shape_proto::Dim { size, ..Default::default() }).collect()
}

impl Deref for Shape {
    type Target = [i64];
    #[inline]
    fn deref(&self) -> &[i64] {
        &self.0
    }
}

struct ShapeText<'a>(&'a [i64]);

impl fmt::Display for ShapeText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (i, dim) in self.0.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if *dim < 0 { write!(f, "{comma}?")? } else { write!(f, "{comma}{dim}")? }
        }
        f.write_str("]")
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ShapeText(&self.0), f)
    }
}

impl fmt::Debug for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&ShapeText(&self.0), f)
    }
}

/// A shape that is known in part: nothing, only the rank, or some dimensions (−1 is unknown).
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PartialShape(Option<Dims>);

impl PartialShape {
    /// The shape of which nothing is known.
    pub fn unknown() -> PartialShape {
        PartialShape(None)
    }

    /// A shape of which only the rank is known. The rank may come from a client, so it is checked before anything is
    /// allocated.
    pub fn of_rank(rank: i64) -> Result<PartialShape> {
        let rank = usize::try_from(rank).ok().filter(|rank| *rank <= MAX_RANK).ok_or_else(|| {
            status!(
                InvalidArgument,
                "Shape has {rank} dimensions, more than the {MAX_RANK} that a tensor may have"
            )
        })?;
        PartialShape::new(std::iter::repeat_n(-1, rank))
    }

    /// A shape with these dimensions, −1 for each unknown one.
    pub fn new(dims: impl IntoIterator<Item = i64>) -> Result<PartialShape> {
        PartialShape::checked(collect_dims(dims)?)
    }

    fn checked(dims: Dims) -> Result<PartialShape> {
        let mut elements: i64 = 1;
        for &dim in &dims {
            ensure!(dim >= -1, InvalidArgument, "Shape {} has dimensions below -1", ShapeText(&dims));
            if dim > 0 {
                elements = match elements.checked_mul(dim) {
                    Some(elements) => elements,
                    None => bail!(
                        InvalidArgument,
                        "Shape {} is too large (more than 2**63 - 1 entries)",
                        ShapeText(&dims)
                    ),
                };
            }
        }
        Ok(PartialShape(Some(dims)))
    }

    /// A scalar's shape.
    #[inline]
    pub fn scalar() -> PartialShape {
        PartialShape(Some(Dims::new()))
    }

    /// The dimensions, unless the rank is unknown.
    #[inline]
    pub fn dims(&self) -> Option<&[i64]> {
        self.0.as_deref()
    }

    /// The rank, if known.
    #[inline]
    pub fn rank(&self) -> Option<usize> {
        self.0.as_ref().map(|dims| dims.len())
    }

    /// The full shape, if every dimension is known.
    pub fn to_shape(&self) -> Option<Shape> {
        let dims = self.0.as_ref()?;
        if dims.iter().any(|dim| *dim < 0) { None } else { Shape::new(dims.iter().copied()).ok() }
    }

    /// Returns whether a tensor of this shape has the partial shape.
    pub fn admits(&self, shape: &Shape) -> bool {
        match &self.0 {
            None => true,
            Some(dims) => {
                dims.len() == shape.rank()
                    && dims.iter().zip(shape.dims()).all(|(want, have)| *want < 0 || want == have)
            }
        }
    }

    /// Returns whether a tensor could have both shapes.
    pub fn is_compatible_with(&self, other: &PartialShape) -> bool {
        match (&self.0, &other.0) {
            (Some(a), Some(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(x, y)| *x < 0 || *y < 0 || x == y)
            }
            _ => true,
        }
    }

    /// The shape that a tensor with both shapes has; `None` if they contradict each other.
    pub fn merged(&self, other: &PartialShape) -> Option<PartialShape> {
        match (&self.0, &other.0) {
            (None, _) => Some(other.clone()),
            (_, None) => Some(self.clone()),
            (Some(a), Some(b)) => self
                .is_compatible_with(other)
                .then(|| PartialShape(Some(a.iter().zip(b).map(|(x, y)| *x.max(y)).collect()))),
        }
    }

    /// Reads a shape from its wire form.
    pub fn from_proto(proto: &TensorShapeProto) -> Result<PartialShape> {
        if proto.unknown_rank {
            return Ok(PartialShape::unknown());
        }
        PartialShape::new(proto.dim.iter().map(|dim| dim.size))
    }

    /// The wire form.
    pub fn to_proto(&self) -> TensorShapeProto {
        match &self.0 {
            None => TensorShapeProto { dim: Vec::new(), unknown_rank: true },
            Some(dims) => TensorShapeProto { dim: dims_to_proto(dims.iter().copied()), unknown_rank: false },
        }
    }
}

impl fmt::Display for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            None => f.write_str("<unknown>"),
            Some(dims) => fmt::Display::fmt(&ShapeText(dims), f),
        }
    }
}

impl fmt::Debug for PartialShape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_shapes_are_refused() {
        assert!(Shape::new([1 << 40, 1 << 40]).is_err());
        assert!(Shape::new([-1]).is_err());
        assert!(Shape::new(vec![1; 255]).is_err());
        assert_eq!(Shape::new([2, 0, 3]).unwrap().elements(), 0);
    }

    #[test]
    fn partial_shapes_admit_what_they_leave_open() {
        let partial = PartialShape::new([-1, 3]).unwrap();
        assert!(partial.admits(&Shape::matrix(7, 3)));
        assert!(!partial.admits(&Shape::matrix(3, 7)));
        assert!(PartialShape::unknown().admits(&Shape::scalar()));
    }
}

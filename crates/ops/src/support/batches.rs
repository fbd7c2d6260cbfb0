//! Batches of matrices whose leading dimensions broadcast: their shapes, where matrices lie, gradients.

use crate::builders as ops;
use crate::linalg::product::Batch;
use crate::support::gradient::part;
use ferroflow_core::op::{Dim, GradCx, InputGrads, UNKNOWN_DIM, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{PartialShape, Result, Shape, bail};
use smallvec::SmallVec;

type Sizes = SmallVec<[usize; 4]>;

/// The dimensions before those of the matrices.
pub(crate) fn leading(dims: &[Dim]) -> Result<PartialShape> {
    PartialShape::new(dims[..dims.len() - 2].iter().copied())
}

/// Pairs of matrices.
pub(crate) struct Batches {
    shape: Shape,
    dims: Sizes,
    left: Sizes,
    right: Sizes,
}

impl Batches {
    /// Pairs the matrices of two tensors, each of rank 2 at least.
    pub(crate) fn new(x: &Shape, y: &Shape) -> Result<Batches> {
        let shape = shapes::broadcast(&leading(x.dims())?, &leading(y.dims())?);
        let Some(shape) = shape.ok().and_then(|shape| shape.to_shape()) else {
            bail!(InvalidArgument, "In[0] and In[1] must have compatible batch dimensions: {x} vs. {y}");
        };
        let dims: Sizes = shape.dims().iter().map(|dim| *dim as usize).collect();
        let (left, right) = (steps(&dims, x.dims()), steps(&dims, y.dims()));
        Ok(Batches { shape, dims, left, right })
    }

    /// The shape of results with this many rows and columns each.
    pub(crate) fn shape_of(&self, rows: i64, columns: i64) -> Result<Shape> {
        Shape::new(self.shape.dims().iter().copied().chain([rows, columns]))
    }

    /// The positions of the matrices.
    pub(crate) fn layout(&self) -> Batch<'_> {
        Batch { dims: &self.dims, left: &self.left, right: &self.right }
    }
}

/// Matrices to step over per batch dimension; none where the operand repeats.
fn steps(dims: &[usize], own: &[i64]) -> Sizes {
    let own = &own[..own.len() - 2];
    let mut steps: Sizes = SmallVec::from_elem(0, dims.len());
    let mut step = 1;
    for (axis, dim) in own.iter().enumerate().rev() {
        if *dim != 1 {
            steps[dims.len() - own.len() + axis] = step;
        }
        step *= *dim as usize;
    }
    steps
}

/// Gradients of both inputs of an op of pairs, each summed over the dimensions in which its matrices were repeated.
pub(crate) fn unbroadcast(g: &GradCx<'_>, dx: Output, dy: Output) -> Result<InputGrads> {
    let (s, x, y) = (g.scope(), g.input(0), g.input(1));
    if same_batches(&x.shape(), &y.shape()) {
        return Ok([dx, dy].into());
    }
    let (x_shape, y_shape) = (ops::shape(s, x)?, ops::shape(s, y)?);
    let batches = |shape: &Output| part(s, shape, 0, Some(-2));
    let axes = ops::broadcast_gradient_args(s, batches(&x_shape)?, batches(&y_shape)?)?;
    let dx = ops::reshape(s, ops::sum(s, dx, axes.r0), x_shape)?;
    let dy = ops::reshape(s, ops::sum(s, dy, axes.r1), y_shape)?;
    Ok([dx, dy].into())
}

/// Whether both sides are known to have the same batch dimensions, so that none was repeated.
fn same_batches(x: &PartialShape, y: &PartialShape) -> bool {
    let (Some(x), Some(y)) = (x.dims(), y.dims()) else { return false };
    let (x, y) = (&x[..x.len().saturating_sub(2)], &y[..y.len().saturating_sub(2)]);
    x == y && !x.contains(&UNKNOWN_DIM)
}

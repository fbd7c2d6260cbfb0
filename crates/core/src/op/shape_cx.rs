//! The context of shape functions, which infer outputs before anything runs: while a program builds a graph, and again
//! when a plan is made. [`crate::graph::Inference`] calls them.

use crate::attr::{Attrs, FromAttr};
use crate::resource::HandleShape;
use crate::{DType, PartialShape, Result, Tensor, bail, ensure, status};

/// A dimension; [`UNKNOWN_DIM`] if unknown.
pub type Dim = i64;

/// A dimension that is not known.
pub const UNKNOWN_DIM: Dim = -1;

/// The context of a shape function: a node's inputs, and what is inferred about its outputs.
pub struct ShapeCx<'a> {
    attrs: &'a Attrs,
    inputs: &'a [PartialShape],
    /// Values of inputs that are known before the step runs.
    constants: &'a [Option<Tensor>],
    handles: &'a [Vec<HandleShape>],
    outputs: Vec<PartialShape>,
    output_handles: Vec<Vec<HandleShape>>,
    output_types: &'a [DType],
}

impl<'a> ShapeCx<'a> {
    /// A context for a node whose inputs have these shapes. `constants` and `handles` have an entry per input.
    pub fn new(
        attrs: &'a Attrs,
        inputs: &'a [PartialShape],
        constants: &'a [Option<Tensor>],
        handles: &'a [Vec<HandleShape>],
        output_types: &'a [DType],
    ) -> ShapeCx<'a> {
        ShapeCx {
            attrs,
            inputs,
            constants,
            handles,
            outputs: vec![PartialShape::unknown(); output_types.len()],
            output_handles: vec![Vec::new(); output_types.len()],
            output_types,
        }
    }

    /// The inferred shapes and handle shapes, per output.
    pub fn into_outputs(self) -> (Vec<PartialShape>, Vec<Vec<HandleShape>>) {
        (self.outputs, self.output_handles)
    }

    /// An attribute.
    pub fn attr<T: FromAttr>(&self, name: &str) -> Result<T> {
        self.attrs.get(name)
    }

    /// The number of inputs.
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// The number of outputs.
    pub fn num_outputs(&self) -> usize {
        self.outputs.len()
    }

    /// The element type of an output.
    pub fn output_type(&self, output: usize) -> DType {
        self.output_types[output]
    }

    /// The shape of an input, as far as it is known.
    pub fn input(&self, input: usize) -> PartialShape {
        self.inputs.get(input).cloned().unwrap_or_default()
    }

    /// An input's value, if it is known before the step runs.
    pub fn constant(&self, input: usize) -> Option<&Tensor> {
        self.constants.get(input)?.as_ref()
    }

    /// An integer input's elements, if known before the step runs.
    pub fn constant_i64s(&self, input: usize) -> Result<Option<Vec<i64>>> {
        self.constant(input).map(Tensor::to_i64s).transpose()
    }

    /// A scalar integer input, if known before the step runs.
    pub fn constant_i64(&self, input: usize) -> Result<Option<i64>> {
        match self.constant_i64s(input)?.as_deref() {
            None => Ok(None),
            Some([value]) => Ok(Some(*value)),
            Some(values) => bail!(InvalidArgument, "Input must be scalar but has {} elements", values.len()),
        }
    }

    /// The shape that an integer vector input describes; −1 elements are unknown dimensions. If the value is unknown,
    /// its length still gives the rank.
    pub fn constant_shape(&self, input: usize) -> Result<PartialShape> {
        let declared = self.input(input);
        if let Some(dims) = declared.dims() {
            ensure!(dims.len() <= 1, InvalidArgument, "Shape must be rank 1 but is rank {}", dims.len());
        }
        if let Some(value) = self.constant(input) {
            // A scalar −1 stands for an unknown shape, as in stock.
            if value.rank() == 0 && value.to_i64s()? == [-1] {
                return Ok(PartialShape::unknown());
            }
            return PartialShape::new(value.to_i64s()?);
        }
        match declared.dims() {
            Some([length]) if *length >= 0 => PartialShape::of_rank(*length),
            _ => Ok(PartialShape::unknown()),
        }
    }

    /// The input's shape, which must have this rank; an unknown shape gets it.
    pub fn rank(&self, input: usize, rank: usize) -> Result<PartialShape> {
        let shape = self.input(input);
        match shape.rank() {
            None => PartialShape::of_rank(rank as i64),
            Some(have) if have == rank => Ok(shape),
            Some(have) => bail!(InvalidArgument, "Shape must be rank {rank} but is rank {have}"),
        }
    }

    /// The input's shape, which must have at least this rank if known.
    pub fn rank_at_least(&self, input: usize, rank: usize) -> Result<PartialShape> {
        let shape = self.input(input);
        match shape.rank() {
            Some(have) if have < rank => {
                bail!(InvalidArgument, "Shape must be at least rank {rank} but is rank {have}")
            }
            _ => Ok(shape),
        }
    }

    /// The input's shape, which must have at most this rank if known.
    pub fn rank_at_most(&self, input: usize, rank: usize) -> Result<PartialShape> {
        let shape = self.input(input);
        match shape.rank() {
            Some(have) if have > rank => {
                bail!(InvalidArgument, "Shape must be at most rank {rank} but is rank {have}")
            }
            _ => Ok(shape),
        }
    }

    /// The dimension that equals both; an error if they differ.
    pub fn merge_dims(&self, a: Dim, b: Dim) -> Result<Dim> {
        match (a, b) {
            (UNKNOWN_DIM, dim) | (dim, UNKNOWN_DIM) => Ok(dim),
            (a, b) if a == b => Ok(a),
            (a, b) => bail!(InvalidArgument, "Dimensions must be equal, but are {a} and {b}"),
        }
    }

    /// The shape that equals both; an error if they contradict each other.
    pub fn merge(&self, a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
        let (Some(x), Some(y)) = (a.dims(), b.dims()) else {
            return Ok(if a.dims().is_some() { a.clone() } else { b.clone() });
        };
        ensure!(
            x.len() == y.len(),
            InvalidArgument,
            "Shapes must be equal rank, but are {} and {}",
            x.len(),
            y.len()
        );
        let mut dims = Vec::with_capacity(x.len());
        for (i, (x, y)) in x.iter().zip(y).enumerate() {
            dims.push(self.merge_dims(*x, *y).map_err(|_| {
                status!(
                    InvalidArgument,
                    "Dimension {i} in both shapes must be equal, but are {x} and {y}. Shapes are {a} and {b}."
                )
            })?);
        }
        PartialShape::new(dims)
    }

    /// Sets an output's shape.
    pub fn set(&mut self, output: usize, shape: PartialShape) {
        if let Some(slot) = self.outputs.get_mut(output) {
            *slot = shape;
        }
    }

    /// Sets an output's dimensions, [`UNKNOWN_DIM`] where unknown.
    pub fn output(&mut self, output: usize, dims: impl IntoIterator<Item = Dim>) -> Result<()> {
        let shape = PartialShape::new(dims)?;
        self.set(output, shape);
        Ok(())
    }

    /// The type and shape of the resource behind a handle input, if known.
    pub fn handle(&self, input: usize) -> Option<&HandleShape> {
        self.handles.get(input)?.first()
    }

    /// All types and shapes behind a handle or variant input.
    pub fn handles(&self, input: usize) -> &[HandleShape] {
        self.handles.get(input).map_or(&[], Vec::as_slice)
    }

    /// Sets the types and shapes behind an output handle.
    pub fn set_handles(&mut self, output: usize, handles: Vec<HandleShape>) {
        if let Some(slot) = self.output_handles.get_mut(output) {
            *slot = handles;
        }
    }
}

/// Shape functions that many ops share.
pub mod shapes {
    use super::*;

    /// Leaves every output unknown.
    pub fn unknown(_: &mut ShapeCx<'_>) -> Result<()> {
        Ok(())
    }

    /// Makes every output a scalar.
    pub fn scalar(s: &mut ShapeCx<'_>) -> Result<()> {
        for output in 0..s.num_outputs() {
            s.set(output, PartialShape::scalar());
        }
        Ok(())
    }

    /// Gives every output the first input's shape (and handle).
    pub fn unchanged(s: &mut ShapeCx<'_>) -> Result<()> {
        for output in 0..s.num_outputs() {
            s.set(output, s.input(0));
            s.set_handles(output, s.handles(0).to_vec());
        }
        Ok(())
    }

    /// Requires all inputs to have one shape, and gives it to every output.
    pub fn same(s: &mut ShapeCx<'_>) -> Result<()> {
        let mut shape = s.input(0);
        for input in 1..s.num_inputs() {
            shape = s.merge(&shape, &s.input(input))?;
        }
        for output in 0..s.num_outputs() {
            s.set(output, shape.clone());
        }
        Ok(())
    }

    /// The broadcast of two shapes.
    pub fn broadcast(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
        let (Some(x), Some(y)) = (a.dims(), b.dims()) else { return Ok(PartialShape::unknown()) };
        let rank = x.len().max(y.len());
        let at = |dims: &[i64], i: usize| {
            let missing = rank - dims.len();
            if i < missing { 1 } else { dims[i - missing] }
        };
        let mut dims = Vec::with_capacity(rank);
        for i in 0..rank {
            dims.push(match (at(x, i), at(y, i)) {
                (p, q) if p == q => p,
                (1, q) => q,
                (p, 1) => p,
                (UNKNOWN_DIM, q) => q,
                (p, UNKNOWN_DIM) => p,
                (p, q) => bail!(
                    InvalidArgument,
                    "Dimensions must be equal, but are {p} and {q} for input shapes: {a}, {b}."
                ),
            });
        }
        PartialShape::new(dims)
    }

    /// Gives output 0 the broadcast of inputs 0 and 1.
    pub fn broadcast_binary(s: &mut ShapeCx<'_>) -> Result<()> {
        let shape = broadcast(&s.input(0), &s.input(1))?;
        s.set(0, shape);
        Ok(())
    }
}

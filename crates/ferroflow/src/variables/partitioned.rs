//! Variables cut into parts that lie on different tasks, saved and restored as one.

use super::{SaveSlice, Variable, VariableSpec};
use ferroflow_core::scope::{Graph, Output, Scope};
use ferroflow_core::{DType, Result, Shape, ensure};
use ferroflow_ops::builders as ops;

/// Decides how many parts a variable has, all along one dimension.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Partitioner {
    axis: usize,
    rule: Rule,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Rule {
    Fixed(usize),
    MinMax { parts: usize, smallest: usize },
    AxisSize { bytes: usize, parts: Option<usize> },
}

impl Partitioner {
    /// So many parts, or fewer if the dimension is smaller.
    pub fn fixed(parts: usize) -> Partitioner {
        Partitioner { axis: 0, rule: Rule::Fixed(parts) }
    }

    /// At most `parts`, none smaller than 256 KiB unless [`Partitioner::smallest`] says otherwise.
    pub fn min_max(parts: usize) -> Partitioner {
        Partitioner { axis: 0, rule: Rule::MinMax { parts, smallest: 256 << 10 } }
    }

    /// As many as it takes for parts of at most so many bytes.
    pub fn variable_axis_size(bytes: usize) -> Partitioner {
        Partitioner { axis: 0, rule: Rule::AxisSize { bytes, parts: None } }
    }

    /// The dimension that is cut; the first unless this says otherwise.
    #[must_use]
    pub fn axis(mut self, axis: usize) -> Partitioner {
        self.axis = axis;
        self
    }

    /// The bytes of the smallest part of [`Partitioner::min_max`].
    #[must_use]
    pub fn smallest(mut self, bytes: usize) -> Partitioner {
        if let Rule::MinMax { smallest, .. } = &mut self.rule {
            *smallest = bytes;
        }
        self
    }

    /// The most parts of [`Partitioner::variable_axis_size`].
    #[must_use]
    pub fn max_parts(mut self, count: usize) -> Partitioner {
        if let Rule::AxisSize { parts, .. } = &mut self.rule {
            *parts = Some(count);
        }
        self
    }

    /// The number of parts of a variable.
    pub fn parts(&self, shape: &Shape, dtype: DType) -> Result<usize> {
        ensure!(
            self.axis < shape.rank() && shape.elements() > 0,
            InvalidArgument,
            "a variable of shape {shape} cannot be cut along dimension {}",
            self.axis
        );
        let length = shape.dim(self.axis);
        // What stock takes a string for.
        let element = if dtype == DType::String { 16 } else { dtype.size() };
        let total = shape.elements() * element;
        let parts = match self.rule {
            Rule::Fixed(parts) => parts,
            Rule::MinMax { parts, smallest } => parts.min(total.div_ceil(smallest.max(1))),
            Rule::AxisSize { bytes, parts } => {
                let rows = (bytes / (total / length).max(1)).max(1);
                length.div_ceil(rows).min(parts.unwrap_or(usize::MAX))
            }
        };
        Ok(parts.min(length).max(1))
    }

    /// Start and length of each part: as equal as can be, the longer ones first.
    fn cuts(&self, shape: &Shape, dtype: DType) -> Result<Vec<(i64, i64)>> {
        let parts = self.parts(shape, dtype)?;
        let length = shape.dim(self.axis);
        let mut start = 0;
        let cut = |part: usize| {
            let size = (length / parts + usize::from(part < length % parts)) as i64;
            start += size;
            (start - size, size)
        };
        Ok((0..parts).map(cut).collect())
    }
}

/// A variable in parts.
#[derive(Clone, Debug)]
pub struct PartitionedVariable {
    name: String,
    shape: Shape,
    axis: usize,
    parts: Vec<Variable>,
}

impl VariableSpec {
    /// Adds the variable in parts `name/part_0`, `name/part_1`, and so on, which checkpoints hold as one.
    ///
    /// ```
    /// use ferroflow::variables::Partitioner;
    /// use ferroflow::{Graph, Variable};
    /// # fn main() -> ferroflow::Result<()> {
    /// let graph = Graph::new();
    /// let table = Variable::spec("table", [1000, 16]).partitioned(&graph.scope(), Partitioner::fixed(2))?;
    /// assert_eq!(table.parts()[1].name(), "table/part_1");
    /// assert_eq!(table.parts()[1].save_slice().unwrap().spec(), "1000 16 500,500:0,16");
    /// # Ok(())
    /// # }
    /// ```
    #[track_caller]
    pub fn partitioned(self, scope: &Scope, partitioner: Partitioner) -> Result<PartitionedVariable> {
        let (shape, axis) = (self.shape.clone()?, partitioner.axis);
        let name = format!("{}{}", scope.prefix(), self.name);
        let mut parts = Vec::new();
        for (number, (start, size)) in partitioner.cuts(&shape, self.dtype)?.into_iter().enumerate() {
            let mut dims = shape.dims().to_vec();
            let mut offset = vec![0; dims.len()];
            (dims[axis], offset[axis]) = (size, start);
            let part = Shape::new(dims)?;
            let mut spec = self.clone();
            spec.name = format!("{}/part_{number}", self.name);
            spec.shape = Ok(part.clone());
            let slice = SaveSlice { full_name: name.clone(), full_shape: shape.clone(), offset, shape: part };
            parts.push(spec.slice(slice).build(scope)?);
        }
        Ok(PartitionedVariable { name, shape, axis, parts })
    }
}

impl PartitionedVariable {
    /// A variable in one part.
    pub fn whole(variable: &Variable) -> PartitionedVariable {
        PartitionedVariable {
            name: variable.name(),
            shape: variable.shape().clone(),
            axis: 0,
            parts: vec![variable.clone()],
        }
    }

    /// The name of the whole.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The shape of the whole.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.parts[0].dtype()
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        self.parts[0].graph()
    }

    /// The dimension that is cut.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// The parts in order.
    pub fn parts(&self) -> &[Variable] {
        &self.parts
    }

    /// Adds nodes that join the parts.
    #[track_caller]
    pub fn concat(&self, scope: &Scope) -> Result<Output> {
        if let [part] = &self.parts[..] {
            return Ok(part.value().clone());
        }
        let inner = scope.scope("ConcatPartitions");
        ops::ConcatV2::new().name("concat").build(&inner, self.parts.iter(), self.axis as i32)
    }
}

impl From<&Variable> for PartitionedVariable {
    fn from(variable: &Variable) -> PartitionedVariable {
        PartitionedVariable::whole(variable)
    }
}

impl From<&PartitionedVariable> for PartitionedVariable {
    fn from(variable: &PartitionedVariable) -> PartitionedVariable {
        variable.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn longer_parts_come_first() {
        let shape = Shape::matrix(5, 2);
        let cuts = Partitioner::fixed(3).cuts(&shape, DType::Float).unwrap();
        assert_eq!(cuts, [(0, 2), (2, 2), (4, 1)]);
        assert_eq!(Partitioner::fixed(9).parts(&shape, DType::Float).unwrap(), 5);
        assert!(Partitioner::fixed(2).axis(2).parts(&shape, DType::Float).is_err());
    }

    #[test]
    fn sizes_decide_as_in_stock() {
        let shape = Shape::matrix(1024, 64);
        let parts = |partitioner: Partitioner| partitioner.parts(&shape, DType::Float).unwrap();
        assert_eq!(parts(Partitioner::min_max(8)), 1);
        assert_eq!(parts(Partitioner::min_max(8).smallest(100_000)), 3);
        assert_eq!(parts(Partitioner::variable_axis_size(65_536)), 4);
        assert_eq!(parts(Partitioner::variable_axis_size(65_536).max_parts(3)), 3);
        assert_eq!(parts(Partitioner::variable_axis_size(1)), 1024);
    }
}

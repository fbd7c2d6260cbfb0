//! Partitioned variables: their parts are on different tasks, but saved and restored as one.

use super::{SaveSlice, Variable, VariableSpec};
use ferroflow_core::scope::{Graph, Output, Scope};
use ferroflow_core::{DType, Result, Shape, ensure};
use ferroflow_ops::builders as ops;

/// Rule for the number of parts of a variable, along one dimension.
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
    /// Makes `parts` parts, or fewer if the dimension is smaller.
    pub fn fixed(parts: usize) -> Partitioner {
        Partitioner { axis: 0, rule: Rule::Fixed(parts) }
    }

    /// Makes at most `parts` parts, none smaller than 256 KiB or what [`Partitioner::smallest`] sets.
    pub fn min_max(parts: usize) -> Partitioner {
        Partitioner { axis: 0, rule: Rule::MinMax { parts, smallest: 256 << 10 } }
    }

    /// Makes parts of at most `bytes` bytes each.
    pub fn variable_axis_size(bytes: usize) -> Partitioner {
        Partitioner { axis: 0, rule: Rule::AxisSize { bytes, parts: None } }
    }

    /// Sets the dimension to partition; the first by default.
    #[must_use]
    pub fn axis(mut self, axis: usize) -> Partitioner {
        self.axis = axis;
        self
    }

    /// Sets the size in bytes of the smallest part of [`Partitioner::min_max`].
    #[must_use]
    pub fn smallest(mut self, bytes: usize) -> Partitioner {
        if let Rule::MinMax { smallest, .. } = &mut self.rule {
            *smallest = bytes;
        }
        self
    }

    /// Sets the maximum number of parts of [`Partitioner::variable_axis_size`].
    #[must_use]
    pub fn max_parts(mut self, count: usize) -> Partitioner {
        if let Rule::AxisSize { parts, .. } = &mut self.rule {
            *parts = Some(count);
        }
        self
    }

    /// Returns the number of parts of a variable.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the variable is empty or does not have the dimension.
    pub fn parts(&self, shape: &Shape, dtype: DType) -> Result<usize> {
        ensure!(
            self.axis < shape.rank() && shape.elements() > 0,
            InvalidArgument,
            "a variable of shape {shape} cannot be partitioned along dimension {}",
            self.axis
        );
        let length = shape.dim(self.axis);
        // TensorFlow's estimate for strings.
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

    /// Returns start and length of each part: as equal as possible, longer ones first.
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
    /// Treats a variable as one part.
    pub fn whole(variable: &Variable) -> PartitionedVariable {
        PartitionedVariable {
            name: variable.name(),
            shape: variable.shape().clone(),
            axis: 0,
            parts: vec![variable.clone()],
        }
    }

    /// Returns the name of the whole variable.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the shape of the whole variable.
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// Returns the element type.
    pub fn dtype(&self) -> DType {
        self.parts[0].dtype()
    }

    /// Returns the graph.
    pub fn graph(&self) -> &Graph {
        self.parts[0].graph()
    }

    /// Returns the partitioned dimension.
    pub fn axis(&self) -> usize {
        self.axis
    }

    /// Returns the parts in order.
    pub fn parts(&self) -> &[Variable] {
        &self.parts
    }

    /// Adds nodes that concatenate the parts.
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

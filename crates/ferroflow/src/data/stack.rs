//! Values that stack into tensors, and tensors that split into values.

use super::Features;
use bytes::Bytes;
use ferroflow_core::tensor::Buffer;
use ferroflow_core::{Element, Result, Shape, Tensor, bail, bf16, ensure, f16, status};

/// Values that can be batched: numbers and strings become a vector, vectors a matrix, tensors a tensor with one more
/// dimension, and tuples, lists and maps of these a batch of each part.
pub trait Stack: Sized + Send + 'static {
    /// Type of a batch of values.
    type Batch: Send + 'static;

    /// Stacks values of equal shapes.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if their types or shapes differ.
    fn stack(items: Vec<Self>) -> Result<Self::Batch>;

    /// Stacks values after padding each dimension to its largest size, with zeros or empty strings.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if their types or ranks differ.
    fn stack_padded(items: Vec<Self>) -> Result<Self::Batch> {
        Self::stack(items)
    }
}

/// Values that can be split along a first dimension.
pub trait Slices: Sized + Send + 'static {
    /// Type of one slice.
    type Item;

    /// Returns the number of slices.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a scalar, or if parts have different numbers of slices.
    fn count(&self) -> Result<usize>;

    /// Returns slice number `index`.
    ///
    /// # Errors
    ///
    /// `OutOfRange` if `index` is not less than the count.
    fn slice(&self, index: usize) -> Result<Self::Item>;
}

impl Stack for Tensor {
    type Batch = Tensor;

    fn stack(items: Vec<Tensor>) -> Result<Tensor> {
        let Some(first) = items.first() else {
            bail!(InvalidArgument, "cannot stack an empty list of tensors")
        };
        for item in &items {
            ensure!(
                item.dtype() == first.dtype(),
                InvalidArgument,
                "Cannot batch tensors of different types: {} and {}",
                first.dtype(),
                item.dtype()
            );
            ensure!(
                item.shape() == first.shape(),
                InvalidArgument,
                "Cannot batch tensors with different shapes in component 0. First element had shape {} and another had \
                 shape {}; use padded_batch for values of different lengths",
                first.shape(),
                item.shape()
            );
        }
        let shape = Shape::new([items.len() as i64].into_iter().chain(first.shape().dims().iter().copied()))?;
        if !first.dtype().is_plain() {
            let mut strings = Vec::with_capacity(shape.elements());
            for item in &items {
                strings.extend_from_slice(item.flat::<Bytes>()?);
            }
            return Tensor::new(shape, strings);
        }
        let mut buffer = Buffer::zeroed(shape.elements() * first.dtype().size());
        let width = first.byte_size();
        if width > 0 {
            let rows = buffer.make_mut().chunks_exact_mut(width);
            for (row, item) in rows.zip(&items) {
                row.copy_from_slice(item.bytes()?);
            }
        }
        Tensor::from_buffer(first.dtype(), shape, buffer)
    }

    fn stack_padded(items: Vec<Tensor>) -> Result<Tensor> {
        let Some(first) = items.first() else {
            bail!(InvalidArgument, "cannot stack an empty list of tensors")
        };
        let mut dims = first.shape().dims().to_vec();
        for item in &items {
            ensure!(
                item.rank() == dims.len(),
                InvalidArgument,
                "All elements in a batch must have the same rank: got shapes {} and {}",
                first.shape(),
                item.shape()
            );
            dims.iter_mut().zip(item.shape().dims()).for_each(|(dim, other)| *dim = (*dim).max(*other));
        }
        let shape = Shape::new(dims)?;
        Tensor::stack(items.iter().map(|item| padded(item, &shape)).collect::<Result<_>>()?)
    }
}

/// Extends a tensor to a larger shape, with zeros or empty strings after its elements in each dimension.
fn padded(tensor: &Tensor, shape: &Shape) -> Result<Tensor> {
    if tensor.shape() == shape {
        return Ok(tensor.clone());
    }
    let row = tensor.shape().dims().last().map_or(1, |dim| *dim as usize);
    let wide = shape.dims().last().map_or(1, |dim| *dim as usize);
    let mut at = Vec::new();
    for number in 0..tensor.elements().checked_div(row).unwrap_or(0) {
        let (mut rest, mut index, mut stride) = (number, 0, 1);
        let outer = tensor.rank() - 1;
        for axis in (0..outer).rev() {
            index += rest % tensor.shape().dim(axis) * stride;
            rest /= tensor.shape().dim(axis);
            stride *= shape.dim(axis);
        }
        at.push(index * wide);
    }
    if !tensor.dtype().is_plain() {
        let mut strings = vec![Bytes::new(); shape.elements()];
        for (at, values) in at.iter().zip(tensor.flat::<Bytes>()?.chunks(row.max(1))) {
            strings[*at..*at + row].clone_from_slice(values);
        }
        return Tensor::new(shape.clone(), strings);
    }
    let size = tensor.dtype().size();
    let mut buffer = Buffer::zeroed(shape.elements() * size);
    let bytes = buffer.make_mut();
    for (at, values) in at.iter().zip(tensor.bytes()?.chunks((row * size).max(1))) {
        bytes[at * size..(at + row) * size].copy_from_slice(values);
    }
    Tensor::from_buffer(tensor.dtype(), shape.clone(), buffer)
}

impl Slices for Tensor {
    type Item = Tensor;

    fn count(&self) -> Result<usize> {
        ensure!(self.rank() > 0, InvalidArgument, "a scalar has no slices; expected at least one dimension");
        Ok(self.shape().dim(0))
    }

    fn slice(&self, index: usize) -> Result<Tensor> {
        let count = self.count()?;
        ensure!(index < count, OutOfRange, "slice {index} does not exist: there are {count}");
        let shape = Shape::new(self.shape().dims()[1..].iter().copied())?;
        let width = shape.elements();
        if !self.dtype().is_plain() {
            let strings = &self.flat::<Bytes>()?[index * width..(index + 1) * width];
            return Tensor::new(shape, strings.to_vec());
        }
        let width = width * self.dtype().size();
        let mut buffer = Buffer::zeroed(width);
        buffer.make_mut().copy_from_slice(&self.bytes()?[index * width..(index + 1) * width]);
        Tensor::from_buffer(self.dtype(), shape, buffer)
    }
}

fn vector_of_rows<T: Element>(items: Vec<Vec<T>>) -> Result<Tensor> {
    Tensor::stack(items.into_iter().map(Tensor::vector).collect())
}

macro_rules! elements {
    ($($element:ty),*) => {$(
        impl Stack for $element {
            type Batch = Tensor;
            fn stack(items: Vec<$element>) -> Result<Tensor> {
                Ok(Tensor::vector(items))
            }
        }

        impl Stack for Vec<$element> {
            type Batch = Tensor;
            fn stack(items: Vec<Vec<$element>>) -> Result<Tensor> {
                vector_of_rows(items)
            }
            fn stack_padded(items: Vec<Vec<$element>>) -> Result<Tensor> {
                Tensor::stack_padded(items.into_iter().map(Tensor::vector).collect())
            }
        }

        impl<const N: usize> Stack for [$element; N] {
            type Batch = Tensor;
            fn stack(items: Vec<[$element; N]>) -> Result<Tensor> {
                let shape = Shape::matrix(items.len(), N);
                Tensor::new(shape, items.into_iter().flatten().collect())
            }
        }
    )*};
}

elements!(f32, f64, f16, bf16, i8, i16, i32, i64, u8, u16, u32, u64, bool, Bytes);

impl Stack for String {
    type Batch = Tensor;

    fn stack(items: Vec<String>) -> Result<Tensor> {
        Ok(Tensor::vector(items.into_iter().map(Bytes::from).collect()))
    }
}

/// Transposes a list of rows into a list of columns.
fn columns<T>(items: Vec<Vec<T>>) -> Result<Vec<Vec<T>>> {
    let width = items.first().map_or(0, Vec::len);
    let mut columns: Vec<Vec<T>> = (0..width).map(|_| Vec::with_capacity(items.len())).collect();
    for item in items {
        ensure!(
            item.len() == width,
            InvalidArgument,
            "cannot batch elements with different numbers of parts: {width} and {}",
            item.len()
        );
        columns.iter_mut().zip(item).for_each(|(column, part)| column.push(part));
    }
    Ok(columns)
}

impl Stack for Vec<Tensor> {
    type Batch = Vec<Tensor>;

    fn stack(items: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        columns(items)?.into_iter().map(Tensor::stack).collect()
    }

    fn stack_padded(items: Vec<Vec<Tensor>>) -> Result<Vec<Tensor>> {
        columns(items)?.into_iter().map(Tensor::stack_padded).collect()
    }
}

/// Stacks, for each name, the features of all items.
fn stack_features(items: Vec<Features>, stack: fn(Vec<Tensor>) -> Result<Tensor>) -> Result<Features> {
    let names: Vec<String> = items.first().map_or(Vec::new(), |item| item.keys().cloned().collect());
    let lacks =
        |name: &str| status!(InvalidArgument, "feature '{name}' is missing in some elements of a batch");
    let column = |name: &String| -> Result<Vec<Tensor>> {
        items.iter().map(|item| item.get(name).cloned().ok_or_else(|| lacks(name))).collect()
    };
    let stacked = |name: String| {
        let batch = column(&name).and_then(stack);
        let batch = batch.map_err(|status| {
            ferroflow_core::Status::new(status.code(), format!("feature '{name}': {}", status.message()))
        });
        Ok((name, batch?))
    };
    names.into_iter().map(stacked).collect()
}

impl Stack for Features {
    type Batch = Features;

    fn stack(items: Vec<Features>) -> Result<Features> {
        stack_features(items, Tensor::stack)
    }

    fn stack_padded(items: Vec<Features>) -> Result<Features> {
        stack_features(items, Tensor::stack_padded)
    }
}

fn agreed(counts: impl Iterator<Item = Result<usize>>) -> Result<usize> {
    let mut agreed = None;
    for count in counts {
        let count = count?;
        let known = *agreed.get_or_insert(count);
        ensure!(
            known == count,
            InvalidArgument,
            "parts have different numbers of slices: {known} and {count}"
        );
    }
    agreed.ok_or_else(|| status!(InvalidArgument, "cannot slice an empty list of tensors"))
}

impl Slices for Vec<Tensor> {
    type Item = Vec<Tensor>;

    fn count(&self) -> Result<usize> {
        agreed(self.iter().map(Slices::count))
    }

    fn slice(&self, index: usize) -> Result<Vec<Tensor>> {
        self.iter().map(|part| part.slice(index)).collect()
    }
}

impl Slices for Features {
    type Item = Features;

    fn count(&self) -> Result<usize> {
        agreed(self.values().map(Slices::count))
    }

    fn slice(&self, index: usize) -> Result<Features> {
        self.iter().map(|(name, part)| Ok((name.clone(), part.slice(index)?))).collect()
    }
}

macro_rules! tuples {
    ($($part:ident $column:ident $at:tt),*) => {
        impl<$($part: Stack),*> Stack for ($($part,)*) {
            type Batch = ($($part::Batch,)*);
            fn stack(items: Vec<Self>) -> Result<Self::Batch> {
                $(let mut $column = Vec::with_capacity(items.len());)*
                items.into_iter().for_each(|item| {$($column.push(item.$at);)*});
                Ok(($($part::stack($column)?,)*))
            }
            fn stack_padded(items: Vec<Self>) -> Result<Self::Batch> {
                $(let mut $column = Vec::with_capacity(items.len());)*
                items.into_iter().for_each(|item| {$($column.push(item.$at);)*});
                Ok(($($part::stack_padded($column)?,)*))
            }
        }

        impl<$($part: Slices),*> Slices for ($($part,)*) {
            type Item = ($($part::Item,)*);
            fn count(&self) -> Result<usize> {
                agreed([$(self.$at.count()),*].into_iter())
            }
            fn slice(&self, index: usize) -> Result<Self::Item> {
                Ok(($(self.$at.slice(index)?,)*))
            }
        }
    };
}

tuples!(A a 0, B b 1);
tuples!(A a 0, B b 1, C c 2);
tuples!(A a 0, B b 1, C c 2, D d 3);

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;

    #[test]
    fn rows_become_a_matrix_and_come_apart_again() {
        let rows = vec![Tensor::vector(vec![1i32, 2]), Tensor::vector(vec![3, 4])];
        let matrix = Tensor::stack(rows).unwrap();
        assert_eq!(matrix.shape().dims(), [2, 2]);
        assert_eq!(matrix.slice(1).unwrap().flat::<i32>().unwrap(), [3, 4]);
        let words =
            <(String, [f32; 2])>::stack(vec![("a".into(), [0.5, 1.5]), ("b".into(), [2.5, 3.5])]).unwrap();
        assert_eq!(words.0.slice(1).unwrap().to_scalar::<Bytes>().unwrap(), "b");
        assert_eq!(words.1.flat::<f32>().unwrap(), [0.5, 1.5, 2.5, 3.5]);
    }

    #[test]
    fn different_shapes_need_padding() {
        let matrix = Tensor::new([2, 1], vec![1u8, 2]).unwrap();
        let wider = Tensor::new([1, 3], vec![3u8, 4, 5]).unwrap();
        let status = Tensor::stack(vec![matrix.clone(), wider.clone()]).unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument);
        let padded = Tensor::stack_padded(vec![matrix, wider]).unwrap();
        assert_eq!(padded.shape().dims(), [2, 2, 3]);
        assert_eq!(padded.flat::<u8>().unwrap(), [1, 0, 0, 2, 0, 0, 3, 4, 5, 0, 0, 0]);
        let words = vec![Tensor::vector(vec![Bytes::from("a")]), Tensor::vector(Vec::<Bytes>::new())];
        assert_eq!(Tensor::stack_padded(words).unwrap().flat::<Bytes>().unwrap(), ["a", ""]);
    }
}

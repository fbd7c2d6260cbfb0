//! Tensors: an element type, a shape, and shared memory. They are what feeds, fetches and edges carry; kernels compute
//! with them.
//!
//! Cloning a tensor shares its elements. Writing through [`Tensor::flat_mut`] copies them first if there is another
//! owner, so working in place follows from sole ownership and needs no special case. A tensor is one pointer: edges and
//! kernels move it more often than they look at it.

pub mod buffer;
mod display;
mod element;
mod proto;
mod storage;

pub use buffer::{Buffer, BufferPool};
pub use element::{C64, C128, Element, Unit};
pub use proto::{decode_string_list, encode_string_list};
pub use storage::Storage;

use crate::memory;
use crate::{DType, Result, Shape, Status, ToShape, bail, ensure, status};
use buffer::Shared;
use std::fmt;
use std::sync::Arc;

/// A tensor: element type, shape and elements.
#[derive(Clone)]
pub struct Tensor(Shared<Inner>);

#[derive(Clone)]
struct Inner {
    dtype: DType,
    shape: Shape,
    storage: Storage,
}

impl Tensor {
    #[inline]
    fn of(dtype: DType, shape: Shape, storage: Storage) -> Tensor {
        Tensor(Shared::new(Inner { dtype, shape, storage }))
    }

    /// A tensor of these elements, in row-major order.
    ///
    /// ```
    /// use ferroflow_core::Tensor;
    ///
    /// let matrix = Tensor::new([2, 3], vec![1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0])?;
    /// assert_eq!(matrix.shape().dims(), [2, 3]);
    /// # Ok::<(), ferroflow_core::Status>(())
    /// ```
    pub fn new<T: Element>(shape: impl ToShape, values: Vec<T>) -> Result<Tensor> {
        let shape = shape.to_shape()?;
        check_count(&shape, values.len())?;
        Ok(Tensor::of(T::DTYPE, shape, T::store(values)))
    }

    /// A vector of these elements.
    pub fn vector<T: Element>(values: Vec<T>) -> Tensor {
        Tensor::of(T::DTYPE, Shape::vector(values.len()), T::store(values))
    }

    /// A scalar.
    #[inline]
    pub fn scalar<T: Element>(value: T) -> Tensor {
        Tensor::of(T::DTYPE, Shape::scalar(), T::store_one(value))
    }

    /// A tensor of owned units (strings, handles, variants) or of plain units as wide as `dtype`.
    pub fn from_units<U: Unit>(dtype: DType, shape: Shape, values: Vec<U>) -> Result<Tensor> {
        ensure!(U::fits(dtype), Internal, "units do not have the width of {dtype} elements");
        check_count(&shape, values.len())?;
        Ok(Tensor::of(dtype, shape, U::store(values)))
    }

    /// A tensor of zeros, empty strings or empty handles. Panics if there is no memory for it.
    ///
    /// ```
    /// use ferroflow_core::{DType, Tensor};
    ///
    /// assert_eq!(Tensor::zeros(DType::Float, [2, 3]).flat::<f32>()?, [0.0; 6]);
    /// # Ok::<(), ferroflow_core::Status>(())
    /// ```
    pub fn zeros(dtype: DType, shape: impl Into<Shape>) -> Tensor {
        let shape = shape.into();
        let bytes = shape.elements().saturating_mul(dtype.size());
        Tensor::try_zeros(dtype, shape).unwrap_or_else(|| memory::panic_out_of_memory(bytes))
    }

    /// A tensor of zeros, empty strings or empty handles; `None` if there is no memory for it.
    pub fn try_zeros(dtype: DType, shape: Shape) -> Option<Tensor> {
        let storage = Storage::new(dtype, shape.elements(), None, true)?;
        Some(Tensor::of(dtype, shape, storage))
    }

    /// A tensor from the pool with initialized but unspecified contents; `None` if there is no memory for it.
    #[inline]
    pub fn unspecified(dtype: DType, shape: Shape, pool: &Arc<BufferPool>) -> Option<Tensor> {
        let storage = Storage::new(dtype, shape.elements(), Some(pool), false)?;
        Some(Tensor::of(dtype, shape, storage))
    }

    /// A tensor over bytes that were filled elsewhere, e.g. from a socket.
    pub fn from_buffer(dtype: DType, shape: Shape, mut buffer: Buffer) -> Result<Tensor> {
        ensure!(dtype.is_plain(), Internal, "{dtype} elements are not plain bytes");
        let want = shape.elements().checked_mul(dtype.size());
        ensure!(
            want == Some(buffer.len()),
            InvalidArgument,
            "expected {} bytes for a {dtype} tensor of shape {shape}, got {}",
            want.unwrap_or(usize::MAX),
            buffer.len()
        );
        if dtype == DType::Bool && buffer.as_slice().iter().any(|byte| *byte > 1) {
            buffer.make_mut().iter_mut().for_each(|byte| *byte = (*byte != 0) as u8);
        }
        Ok(Tensor::of(dtype, shape, Storage::Plain(buffer)))
    }

    /// The element type.
    #[inline]
    pub fn dtype(&self) -> DType {
        self.0.dtype
    }

    /// The shape.
    #[inline]
    pub fn shape(&self) -> &Shape {
        &self.0.shape
    }

    /// The number of dimensions.
    #[inline]
    pub fn rank(&self) -> usize {
        self.0.shape.rank()
    }

    /// The number of elements.
    #[inline]
    pub fn elements(&self) -> usize {
        self.0.shape.elements()
    }

    /// The memory, for code that moves whole tensors.
    #[inline]
    pub fn storage(&self) -> &Storage {
        &self.0.storage
    }

    /// The size of plain elements in bytes; an estimate for other types.
    pub fn byte_size(&self) -> usize {
        match &self.0.storage {
            Storage::Plain(buffer) => buffer.len(),
            Storage::Strings(values) => {
                values.iter().map(|value| value.len() + size_of::<bytes::Bytes>()).sum()
            }
            Storage::Resources(values) => values.len() * 64,
            Storage::Variants(values) => values.len() * 64,
        }
    }

    /// Returns whether these elements have no other owner.
    #[inline]
    pub fn is_unique(&self) -> bool {
        self.0.is_unique() && self.0.storage.is_unique()
    }

    /// Returns whether both tensors have the same elements in memory, possibly with another shape or type. Elements
    /// stored inline count only if it is the same tensor.
    pub fn shares_memory_with(&self, other: &Tensor) -> bool {
        match (&self.0.storage, &other.0.storage) {
            (Storage::Plain(a), Storage::Plain(b)) => std::ptr::eq(a.as_slice(), b.as_slice()),
            (Storage::Strings(a), Storage::Strings(b)) => Arc::ptr_eq(a, b),
            (Storage::Resources(a), Storage::Resources(b)) => Arc::ptr_eq(a, b),
            (Storage::Variants(a), Storage::Variants(b)) => Arc::ptr_eq(a, b),
            _ => false,
        }
    }

    /// The elements in row-major order.
    #[inline]
    pub fn flat<T: Element>(&self) -> Result<&[T]> {
        self.check_type::<T>()?;
        Ok(T::view(&self.0.storage).expect("storage follows the element type"))
    }

    /// The elements for writing; copied first if there is another owner.
    #[inline]
    pub fn flat_mut<T: Element>(&mut self) -> Result<&mut [T]> {
        self.check_type::<T>()?;
        Ok(T::view_mut(&mut self.0.make_mut().storage).expect("storage follows the element type"))
    }

    /// The elements as units, for code that only moves them.
    #[inline]
    pub fn units<U: Unit>(&self) -> Result<&[U]> {
        ensure!(U::fits(self.dtype()), Internal, "units do not have the width of {} elements", self.dtype());
        Ok(U::view(&self.0.storage).expect("storage follows the element type"))
    }

    /// The elements as units, for writing. Only units of the same element type may be written.
    #[inline]
    pub fn units_mut<U: Unit>(&mut self) -> Result<&mut [U]> {
        ensure!(U::fits(self.dtype()), Internal, "units do not have the width of {} elements", self.dtype());
        Ok(U::view_mut(&mut self.0.make_mut().storage).expect("storage follows the element type"))
    }

    /// The raw bytes of plain elements.
    #[inline]
    pub fn bytes(&self) -> Result<&[u8]> {
        match &self.0.storage {
            Storage::Plain(buffer) => Ok(buffer.as_slice()),
            _ => bail!(Internal, "{} elements are not plain bytes", self.dtype()),
        }
    }

    /// The only element.
    pub fn to_scalar<T: Element>(&self) -> Result<T> {
        match self.flat::<T>()? {
            [value] => Ok(value.clone()),
            _ => bail!(InvalidArgument, "expected one element, got shape {}", self.shape()),
        }
    }

    /// The elements of an int16, int32 or int64 tensor, widened.
    pub fn to_i64s(&self) -> Result<Vec<i64>> {
        match self.dtype() {
            DType::Int16 => Ok(self.flat::<i16>()?.iter().map(|v| *v as i64).collect()),
            DType::Int32 => Ok(self.flat::<i32>()?.iter().map(|v| *v as i64).collect()),
            DType::Int64 => Ok(self.flat::<i64>()?.to_vec()),
            other => bail!(InvalidArgument, "expected int32 or int64 values, got {other}"),
        }
    }

    /// The same elements with another shape of the same size.
    #[inline]
    pub fn reshaped(mut self, shape: impl ToShape) -> Result<Tensor> {
        let shape = shape.to_shape()?;
        check_count(&shape, self.elements())?;
        self.0.make_mut().shape = shape;
        Ok(self)
    }

    /// The same bytes as another plain type of the same width.
    pub fn bitcast(mut self, dtype: DType) -> Result<Tensor> {
        ensure!(
            self.dtype().is_plain() && dtype.size() == self.dtype().size() && dtype != DType::Bool,
            InvalidArgument,
            "cannot reinterpret {} as {dtype}",
            self.dtype()
        );
        self.0.make_mut().dtype = dtype;
        Ok(self)
    }

    /// A copy that shares no memory with this tensor.
    pub fn deep_copy(&self) -> Tensor {
        let mut copy = self.clone();
        match &mut copy.0.make_mut().storage {
            Storage::Plain(buffer) => {
                buffer.make_mut();
            }
            Storage::Strings(values) => {
                Arc::make_mut(values);
            }
            Storage::Resources(values) => {
                Arc::make_mut(values);
            }
            Storage::Variants(values) => {
                Arc::make_mut(values);
            }
        }
        copy
    }

    #[inline]
    fn check_type<T: Element>(&self) -> Result<()> {
        if self.dtype() == T::DTYPE {
            return Ok(());
        }
        Err(wrong_type(T::DTYPE, self.dtype()))
    }
}

#[cold]
fn wrong_type(expected: DType, got: DType) -> Status {
    status!(InvalidArgument, "expected a tensor of type {expected}, got {got}")
}

fn check_count(shape: &Shape, elements: usize) -> Result<()> {
    ensure!(
        shape.elements() == elements,
        InvalidArgument,
        "shape {shape} has {} elements, but {elements} were given",
        shape.elements()
    );
    Ok(())
}

impl fmt::Debug for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tensor({} {})", self.dtype(), self.shape())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_a_shared_tensor_leaves_the_other_holder_alone() {
        let mut a = Tensor::vector(vec![1.0f32, 2.0]);
        let b = a.clone();
        a.flat_mut::<f32>().unwrap()[0] = 9.0;
        assert_eq!(b.flat::<f32>().unwrap(), [1.0, 2.0]);
        assert_eq!(a.flat::<f32>().unwrap(), [9.0, 2.0]);
    }

    #[test]
    fn booleans_from_bytes_are_normalized() {
        let mut buffer = Buffer::zeroed(2);
        buffer.make_mut().copy_from_slice(&[0, 7]);
        let tensor = Tensor::from_buffer(DType::Bool, Shape::vector(2), buffer).unwrap();
        assert_eq!(tensor.flat::<bool>().unwrap(), [false, true]);
    }

    #[test]
    fn reading_another_type_is_an_error() {
        assert!(Tensor::scalar(1i32).flat::<f32>().is_err());
        assert!(Tensor::scalar(1i32).units::<u32>().is_ok());
        assert!(Tensor::scalar(1i32).units::<u64>().is_err());
    }
}

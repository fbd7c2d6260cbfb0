//! Whole tensors put side by side and cut apart again, for ops that keep collections of tensors: lists, arrays,
//! queues, checkpoints. Only elements move, so nothing here is generic over their type.

use crate::numeric::Num;
use crate::support::variants;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::Str;
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::tensor::Storage;
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, Element, PartialShape, Result, Shape, Tensor, Unit, bail, ensure};

/// The elements of all pieces, one after the other, as a tensor of this shape.
pub(crate) fn join(device: &Device, dtype: DType, shape: Shape, pieces: &[&Tensor]) -> Result<Tensor> {
    let elements: usize = pieces.iter().map(|piece| piece.elements()).sum();
    ensure!(
        elements == shape.elements() && pieces.iter().all(|piece| piece.dtype() == dtype),
        Internal,
        "pieces of {elements} elements do not make a {dtype} tensor of shape {shape}"
    );
    device.check_allocation(dtype, &shape)?;
    fn owned<U: Unit>(dtype: DType, shape: Shape, pieces: &[&Tensor]) -> Result<Tensor> {
        let mut units: Vec<U> = Vec::with_capacity(shape.elements());
        for piece in pieces {
            units.extend_from_slice(piece.units::<U>()?);
        }
        Tensor::from_units(dtype, shape, units)
    }
    match dtype {
        DType::String => owned::<Str>(dtype, shape, pieces),
        DType::Resource => owned::<ResourceHandle>(dtype, shape, pieces),
        DType::Variant => owned::<Variant>(dtype, shape, pieces),
        _ => {
            let mut buffer = device.allocate_bytes(dtype, &shape)?;
            let mut rest = buffer.make_mut();
            for piece in pieces {
                let bytes = piece.bytes()?;
                let (head, tail) = rest.split_at_mut(bytes.len());
                head.copy_from_slice(bytes);
                rest = tail;
            }
            Tensor::from_buffer(dtype, shape, buffer)
        }
    }
}

/// A copy of the elements from `start` on, as many as `shape` has.
pub(crate) fn slice(device: &Device, tensor: &Tensor, start: usize, shape: Shape) -> Result<Tensor> {
    let end = start + shape.elements();
    ensure!(end <= tensor.elements(), Internal, "elements {start} to {end} of a {tensor:?}");
    if shape.elements() == tensor.elements() {
        return tensor.clone().reshaped(shape);
    }
    let dtype = tensor.dtype();
    Ok(match tensor.storage() {
        Storage::Strings(values) => Tensor::from_units(dtype, shape, values[start..end].to_vec())?,
        Storage::Resources(values) => Tensor::from_units(dtype, shape, values[start..end].to_vec())?,
        Storage::Variants(values) => Tensor::from_units(dtype, shape, values[start..end].to_vec())?,
        Storage::Plain(bytes) => {
            let size = dtype.size();
            let mut buffer = device.allocate_bytes(dtype, &shape)?;
            buffer.make_mut().copy_from_slice(&bytes.as_slice()[start * size..end * size]);
            Tensor::from_buffer(dtype, shape, buffer)?
        }
    })
}

/// Row `row` of a tensor of rank one or more.
pub(crate) fn row(device: &Device, tensor: &Tensor, row: usize) -> Result<Tensor> {
    let shape = Shape::new(tensor.shape()[1..].iter().copied())?;
    slice(device, tensor, row * shape.elements(), shape)
}

/// The shape of `rows` rows of this shape.
pub(crate) fn stacked(rows: usize, row: &[i64]) -> Result<Shape> {
    Shape::new(std::iter::once(rows as i64).chain(row.iter().copied()))
}

/// The sum of two tensors of one type and shape; the first one's memory is used if nobody else holds it.
pub(crate) fn add(mut a: Tensor, b: &Tensor) -> Result<Tensor> {
    fn sum<T: Num>(a: &mut Tensor, b: &Tensor) -> Result<()> {
        let b = b.flat::<T>()?;
        for (a, b) in a.flat_mut::<T>()?.iter_mut().zip(b) {
            *a = a.add(*b);
        }
        Ok(())
    }
    ensure!(a.shape() == b.shape(), InvalidArgument, "cannot add shapes {} and {}", a.shape(), b.shape());
    use DType::*;
    match a.dtype() {
        Float => sum::<f32>(&mut a, b)?,
        Double => sum::<f64>(&mut a, b)?,
        Half => sum::<ferroflow_core::f16>(&mut a, b)?,
        Bfloat16 => sum::<ferroflow_core::bf16>(&mut a, b)?,
        Int8 => sum::<i8>(&mut a, b)?,
        Int16 => sum::<i16>(&mut a, b)?,
        Int32 => sum::<i32>(&mut a, b)?,
        Int64 => sum::<i64>(&mut a, b)?,
        Uint8 => sum::<u8>(&mut a, b)?,
        Uint16 => sum::<u16>(&mut a, b)?,
        Uint32 => sum::<u32>(&mut a, b)?,
        Uint64 => sum::<u64>(&mut a, b)?,
        Complex64 => sum::<ferroflow_core::C64>(&mut a, b)?,
        Complex128 => sum::<ferroflow_core::C128>(&mut a, b)?,
        Variant => {
            let others = b.units::<ferroflow_core::variant::Variant>()?;
            let values = a.units_mut::<ferroflow_core::variant::Variant>()?;
            for (value, other) in values.iter_mut().zip(others) {
                *value = variants::sum(value, other)?;
            }
        }
        other => bail!(InvalidArgument, "Trying to add tensors of type {other}"),
    }
    Ok(a)
}

/// Zeros of a tensor's type and shape.
pub(crate) fn zeros_like(tensor: &Tensor) -> Result<Tensor> {
    let Storage::Variants(values) = tensor.storage() else {
        return Ok(Tensor::zeros(tensor.dtype(), tensor.shape().clone()));
    };
    let zeros: Result<Vec<Variant>> = values
        .iter()
        .map(|value| value.get().map_or(Ok(Variant::default()), |_| variants::zeros_like(value)))
        .collect();
    Tensor::from_units(DType::Variant, tensor.shape().clone(), zeros?)
}

/// The shape that fits both.
pub(crate) fn merge_shapes(a: &PartialShape, b: &PartialShape) -> Result<PartialShape> {
    let (Some(x), Some(y)) = (a.dims(), b.dims()) else {
        return Ok(if a.dims().is_some() { a.clone() } else { b.clone() });
    };
    ensure!(
        x.len() == y.len(),
        InvalidArgument,
        "PartialTensorShape: Incompatible ranks during merge: {} vs. {}",
        x.len(),
        y.len()
    );
    ensure!(
        a.is_compatible_with(b),
        InvalidArgument,
        "PartialTensorShape: Incompatible shapes during merge: {a} vs. {b}"
    );
    PartialShape::new(x.iter().zip(y).map(|(x, y)| *x.max(y)))
}

/// The shape that an int32 or int64 tensor describes; a scalar −1 is a shape of unknown rank.
pub(crate) fn shape_from_tensor(tensor: &Tensor) -> Result<PartialShape> {
    let dims = tensor.to_i64s()?;
    match tensor.rank() {
        0 => {
            ensure!(
                dims == [-1],
                InvalidArgument,
                "The only valid scalar shape tensor is the fully unknown shape specified as -1."
            );
            Ok(PartialShape::unknown())
        }
        1 => {
            if let Some(dim) = dims.iter().find(|dim| **dim < -1) {
                bail!(InvalidArgument, "Dimension {dim} must be >= -1");
            }
            PartialShape::new(dims)
        }
        rank => bail!(InvalidArgument, "Shape must be at most rank 1 but is rank {rank}"),
    }
}

/// A scalar.
pub(crate) fn scalar<T: Element>(tensor: &Tensor, what: &str) -> Result<T> {
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{what} must be a scalar, but had shape: {}",
        tensor.shape()
    );
    tensor.to_scalar()
}

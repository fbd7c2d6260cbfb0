//! Batches: elements put side by side, padded or not, and cut apart again.

use super::Element;
use crate::support::rows;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::Str;
use ferroflow_core::tensor::Storage;
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};

/// One element whose components have the components of all elements as rows.
pub(crate) fn batch(device: &Device, elements: &[Element]) -> Result<Element> {
    let Some(first) = elements.first() else { bail!(Internal, "a batch without elements") };
    let mut batched = Vec::with_capacity(first.len());
    for (component, model) in first.iter().enumerate() {
        let mut pieces = Vec::with_capacity(elements.len());
        for (index, element) in elements.iter().enumerate() {
            let Some(piece) = element.get(component) else {
                bail!(
                    InvalidArgument,
                    "element {index} has {} components, not {}",
                    element.len(),
                    first.len()
                )
            };
            ensure!(
                piece.shape() == model.shape(),
                InvalidArgument,
                "Cannot batch tensors with different shapes in component {component}. First element had shape {} and \
                 element {index} had shape {}.",
                model.shape(),
                piece.shape()
            );
            ensure!(
                piece.dtype() == model.dtype(),
                InvalidArgument,
                "Cannot batch tensors with different types in component {component}: {} and {}.",
                model.dtype(),
                piece.dtype()
            );
            pieces.push(piece);
        }
        let shape = rows::stacked(elements.len(), model.shape().dims())?;
        batched.push(rows::join(device, model.dtype(), shape, &pieces)?);
    }
    Ok(batched)
}

/// Like [`batch`], with every component padded to a shape; unknown dimensions of it grow to the largest.
pub(crate) fn padded_batch(
    device: &Device,
    elements: &[Element],
    shapes: &[PartialShape],
    padding: &[Tensor],
) -> Result<Element> {
    let mut batched = Vec::with_capacity(shapes.len());
    for (component, (wanted, value)) in shapes.iter().zip(padding).enumerate() {
        let wanted = wanted.dims().unwrap_or_default();
        let mut dims: Vec<i64> = wanted.iter().map(|dim| (*dim).max(0)).collect();
        for element in elements {
            let Some(piece) = element.get(component) else {
                bail!(InvalidArgument, "an element has {} components, not {}", element.len(), shapes.len())
            };
            ensure!(
                piece.rank() == wanted.len(),
                InvalidArgument,
                "All elements in a batch must have the same rank as the padded shape for component{component}: \
                 expected rank {} but got element with rank {}",
                wanted.len(),
                piece.rank()
            );
            for (axis, have) in piece.shape().dims().iter().enumerate() {
                if wanted[axis] < 0 {
                    dims[axis] = dims[axis].max(*have);
                } else {
                    ensure!(
                        *have <= wanted[axis],
                        DataLoss,
                        "Attempted to pad to a smaller size than the input element."
                    );
                }
            }
        }
        let row = Shape::new(dims.iter().copied())?;
        let pieces: Result<Vec<Tensor>> =
            elements.iter().map(|element| pad(device, &element[component], &row, value)).collect();
        let pieces = pieces?;
        let shape = rows::stacked(elements.len(), row.dims())?;
        let pieces: Vec<&Tensor> = pieces.iter().collect();
        batched.push(rows::join(device, value.dtype(), shape, &pieces)?);
    }
    Ok(batched)
}

/// A tensor in the first corner of a larger one of this shape.
fn pad(device: &Device, tensor: &Tensor, shape: &Shape, value: &Tensor) -> Result<Tensor> {
    if tensor.shape() == shape {
        return Ok(tensor.clone());
    }
    device.check_allocation(tensor.dtype(), shape)?;
    match tensor.storage() {
        Storage::Strings(values) => {
            let fill = value.units::<Str>()?[0].clone();
            let mut out = vec![fill; shape.elements()];
            let mut place = |from: usize, to: usize, count: usize| {
                out[to..to + count].clone_from_slice(&values[from..from + count]);
            };
            runs(tensor.shape(), shape, &mut place);
            Tensor::from_units(DType::String, shape.clone(), out)
        }
        Storage::Variants(values) => {
            let fill = value.units::<Variant>()?[0].clone();
            let mut out = vec![fill; shape.elements()];
            let mut place = |from: usize, to: usize, count: usize| {
                out[to..to + count].clone_from_slice(&values[from..from + count]);
            };
            runs(tensor.shape(), shape, &mut place);
            Tensor::from_units(DType::Variant, shape.clone(), out)
        }
        Storage::Plain(bytes) => {
            let size = tensor.dtype().size();
            let fill = value.bytes()?;
            let mut buffer = device.allocate_bytes(tensor.dtype(), shape)?;
            let out = buffer.make_mut();
            out.chunks_exact_mut(size).for_each(|unit| unit.copy_from_slice(fill));
            let bytes = bytes.as_slice();
            let mut place = |from: usize, to: usize, count: usize| {
                out[to * size..(to + count) * size]
                    .copy_from_slice(&bytes[from * size..(from + count) * size]);
            };
            runs(tensor.shape(), shape, &mut place);
            Tensor::from_buffer(tensor.dtype(), shape.clone(), buffer)
        }
        Storage::Resources(_) => bail!(InvalidArgument, "resources cannot be padded"),
    }
}

/// Calls `place` with where each row of the innermost axis comes from, where it goes to, and its length.
fn runs(from: &Shape, to: &Shape, place: &mut dyn FnMut(usize, usize, usize)) {
    let Some(width) = from.dims().last().map(|dim| *dim as usize) else { return place(0, 0, 1) };
    if from.elements() == 0 {
        return;
    }
    let outer = from.rank() - 1;
    let mut index = vec![0usize; outer];
    for row in 0..from.elements() / width {
        let target = (0..outer).fold(0, |place, axis| place * to.dim(axis) + index[axis]);
        place(row * width, target * to.dim(outer), width);
        for axis in (0..outer).rev() {
            index[axis] += 1;
            if index[axis] < from.dim(axis) {
                break;
            }
            index[axis] = 0;
        }
    }
}

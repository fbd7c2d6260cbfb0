//! Tensor arrays: slots that a step writes once and reads, and the arrays that gather their gradients.

use crate::support::rows;
use ferroflow_core::device::Device;
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure};
use std::sync::{Mutex, MutexGuard};

/// The declared properties of an array.
pub(crate) struct ArraySpec {
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) element_shape: PartialShape,
    pub(crate) identical_element_shapes: bool,
    pub(crate) dynamic_size: bool,
    pub(crate) clear_after_read: bool,
    /// Whether a second write to a slot adds to the first; so it is for gradients.
    pub(crate) aggregate: bool,
}

/// An array of tensors that lives as long as its step.
pub(crate) struct TensorArray {
    name: String,
    dtype: DType,
    identical_element_shapes: bool,
    clear_after_read: bool,
    aggregate: bool,
    /// Guards the slots; held while tensors are added up, which is short.
    state: Mutex<State>,
}

struct State {
    slots: Vec<Slot>,
    element_shape: PartialShape,
    dynamic_size: bool,
    closed: bool,
}

#[derive(Clone, Default)]
struct Slot {
    tensor: Option<Tensor>,
    /// The shape of what was written here or, in a gradient array, of what was written to the forward array.
    shape: Option<Shape>,
    read: bool,
    cleared: bool,
}

impl Resource for TensorArray {
    fn type_name(&self) -> &'static str {
        "N10tensorflow11TensorArrayE"
    }
}

impl TensorArray {
    pub(crate) fn new(device: &Device, spec: ArraySpec, size: usize) -> Result<TensorArray> {
        device.check_allocation(DType::Variant, &Shape::vector(size))?;
        Ok(TensorArray {
            name: spec.name,
            dtype: spec.dtype,
            identical_element_shapes: spec.identical_element_shapes,
            clear_after_read: spec.clear_after_read,
            aggregate: spec.aggregate,
            state: Mutex::new(State {
                slots: vec![Slot::default(); size],
                element_shape: spec.element_shape,
                dynamic_size: spec.dynamic_size,
                closed: false,
            }),
        })
    }

    /// An array for the gradients of this one: as many slots, of the same shapes with `prefix` before them. From now
    /// on this array keeps its size.
    pub(crate) fn gradient(&self, device: &Device, name: String, prefix: &[i64]) -> Result<TensorArray> {
        let mut state = self.open()?;
        state.dynamic_size = false;
        let prefixed = |dims: &[i64]| prefix.iter().chain(dims).copied().collect::<Vec<i64>>();
        let element_shape = match state.element_shape.dims() {
            Some(dims) => PartialShape::new(prefixed(dims))?,
            None => PartialShape::unknown(),
        };
        let spec = ArraySpec {
            name,
            dtype: self.dtype,
            element_shape,
            identical_element_shapes: self.identical_element_shapes,
            dynamic_size: false,
            clear_after_read: true,
            aggregate: true,
        };
        let gradient = TensorArray::new(device, spec, state.slots.len())?;
        for (slot, forward) in gradient.lock().slots.iter_mut().zip(&state.slots) {
            slot.shape = forward.shape.as_ref().map(|shape| Shape::new(prefixed(shape))).transpose()?;
        }
        Ok(gradient)
    }

    pub(crate) fn dtype(&self) -> DType {
        self.dtype
    }

    pub(crate) fn size(&self) -> usize {
        self.lock().slots.len()
    }

    pub(crate) fn is_dynamic(&self) -> bool {
        self.lock().dynamic_size
    }

    pub(crate) fn element_shape(&self) -> PartialShape {
        self.lock().element_shape.clone()
    }

    /// Narrows what is known of the elements' shape.
    pub(crate) fn merge_element_shape(&self, shape: &PartialShape) -> Result<()> {
        let mut state = self.lock();
        state.element_shape = rows::merge_shapes(&state.element_shape, shape)?;
        Ok(())
    }

    /// Drops every tensor; later use is refused.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.closed = true;
        state.slots.iter_mut().for_each(|slot| slot.tensor = None);
    }

    /// Writes a tensor, or adds it where gradients gather.
    pub(crate) fn write(&self, device: &Device, index: i64, value: Tensor) -> Result<()> {
        let (name, mut state) = (&self.name, self.open()?);
        let size = state.slots.len();
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        ensure!(
            at < size || (state.dynamic_size && index >= 0),
            InvalidArgument,
            "TensorArray {name}: Tried to write to index {index} but array is not resizeable and size is: {size}"
        );
        if at >= size {
            // Doubling is left to the vector; stock grows to the index as well.
            device.check_allocation(DType::Variant, &Shape::vector(at + 1))?;
            state.slots.resize(at + 1, Slot::default());
        }
        ensure!(
            value.dtype() == self.dtype,
            InvalidArgument,
            "TensorArray {name}: Could not write to TensorArray index {index} because the value dtype is {} but \
             TensorArray dtype is {}.",
            value.dtype(),
            self.dtype
        );
        ensure!(
            state.element_shape.admits(value.shape()),
            InvalidArgument,
            "TensorArray {name}: Could not write to TensorArray index {index} because the value shape is {} which \
             is incompatible with the TensorArray's inferred element shape: {} (consider setting \
             infer_shape=False).",
            value.shape(),
            state.element_shape
        );
        if self.identical_element_shapes && state.element_shape.to_shape().is_none() {
            state.element_shape = value.shape().into();
        }
        let slot = &mut state.slots[at];
        ensure!(
            !slot.read,
            InvalidArgument,
            "TensorArray {name}: Could not write to TensorArray index {index} because it has already been read."
        );
        let Some(present) = slot.tensor.take() else {
            slot.shape = Some(value.shape().clone());
            slot.tensor = Some(value);
            return Ok(());
        };
        if !self.aggregate {
            slot.tensor = Some(present);
            bail!(
                InvalidArgument,
                "TensorArray {name}: Could not write to TensorArray index {index} because it has already been \
                 written to."
            );
        }
        if present.shape() != value.shape() {
            let shape = present.shape().clone();
            slot.tensor = Some(present);
            bail!(
                InvalidArgument,
                "TensorArray {name}: Could not aggregate to TensorArray index {index} because the existing shape is \
                 {shape} but the new input shape is {}.",
                value.shape()
            );
        }
        slot.tensor = Some(rows::add(present, &value)?);
        Ok(())
    }

    /// Reads a tensor; a slot that was never written reads as zeros if its shape is known.
    pub(crate) fn read(&self, device: &Device, index: i64) -> Result<Tensor> {
        let (name, mut state) = (&self.name, self.open()?);
        let state = &mut *state;
        let size = state.slots.len();
        let at = usize::try_from(index).unwrap_or(usize::MAX);
        ensure!(at < size, InvalidArgument, "Tried to read from index {index} but array size is: {size}");
        let slot = &mut state.slots[at];
        ensure!(
            !slot.cleared,
            InvalidArgument,
            "TensorArray {name}: Could not read index {index} twice because it was cleared after a previous read \
             (perhaps try setting clear_after_read = false?)."
        );
        if slot.tensor.is_none() {
            let Some(shape) = state.element_shape.to_shape().or_else(|| slot.shape.clone()) else {
                bail!(
                    InvalidArgument,
                    "TensorArray {name}: Could not read from TensorArray index {index}.  Furthermore, the element \
                     shape is not fully defined: {}.  It is possible you are working with a resizeable TensorArray \
                     and stop_gradients is not allowing the gradients to be written.  If you set the full \
                     element_shape property on the forward TensorArray, the proper all-zeros tensor will be \
                     returned instead of incurring this error.",
                    state.element_shape
                );
            };
            device.check_allocation(self.dtype, &shape)?;
            slot.tensor = Some(Tensor::zeros(self.dtype, shape));
        }
        slot.read = true;
        slot.cleared = self.clear_after_read;
        let tensor = if self.clear_after_read { slot.tensor.take() } else { slot.tensor.clone() };
        Ok(tensor.expect("a slot without a tensor was filled above"))
    }

    fn open(&self) -> Result<MutexGuard<'_, State>> {
        let state = self.lock();
        ensure!(!state.closed, InvalidArgument, "TensorArray {} has already been closed.", self.name);
        Ok(state)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Slots are whole at every point where a panic could happen.
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

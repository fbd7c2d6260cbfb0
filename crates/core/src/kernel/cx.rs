//! The context that a kernel runs in: its inputs, memory, resources, and the step it belongs to. The executor fills it
//! in for each node; kernels see nothing else of the executor.

use super::value::Value;
use crate::device::{Device, Threads};
use crate::resource::{Resource, ResourceHandle, Variable};
use crate::step::StepCx;
use crate::{DType, Element, Result, Shape, Tensor, bail, ensure, status};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

/// The loop frame and iteration that a node runs in; zeros outside loops.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameIteration {
    /// The frame's id, the same in every task.
    pub frame: u64,
    /// The iteration within the frame.
    pub iteration: u64,
}

/// The context of a kernel that never waits. Inputs belong to the kernel: it may take them and reuse their memory.
pub struct KernelCx<'a> {
    inputs: &'a mut [Value],
    step: &'a Arc<StepCx>,
    frame: FrameIteration,
    dead: bool,
    /// One of [`RUNS`], [`MAY_STOP`] and [`STOPPED`]. Atomic only so that parallel parts of a kernel may share the
    /// context.
    stop: AtomicU8,
    /// Whether loops end early when the step is cancelled: for contexts whose owner calls [`KernelCx::conclude`].
    interruptible: bool,
    /// Whether a loop of the kernel ended before its last part because the step was cancelled.
    incomplete: AtomicBool,
}

/// The kernel runs to completion on this thread.
const RUNS: u8 = 0;
/// The kernel may be stopped and restarted: it has taken no input yet.
const MAY_STOP: u8 = 1;
/// The kernel was stopped because its output is large.
const STOPPED: u8 = 2;

/// Outputs of at least this many bytes are not computed on I/O threads.
const LARGE_OUTPUT: usize = 256 * 1024;

impl<'a> KernelCx<'a> {
    /// A context over these inputs.
    #[inline]
    pub fn new(
        inputs: &'a mut [Value],
        step: &'a Arc<StepCx>,
        frame: FrameIteration,
        dead: bool,
    ) -> KernelCx<'a> {
        let (stop, incomplete) = (AtomicU8::new(RUNS), AtomicBool::new(false));
        KernelCx { inputs, step, frame, dead, stop, interruptible: true, incomplete }
    }

    /// Stops the kernel when it asks for memory for a large output, unless it has taken an input by then. Used on I/O
    /// threads, which must not run long; the kernel is then restarted on a compute thread.
    #[inline]
    pub fn stop_if_large(&mut self) {
        *self.stop.get_mut() = MAY_STOP;
    }

    /// Returns whether the kernel was stopped because of a large output. Its inputs are intact.
    #[inline]
    pub fn was_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed) == STOPPED
    }

    /// Records that inputs are no longer intact, so the kernel cannot be restarted.
    #[inline]
    fn mark_input_taken(&mut self) {
        *self.stop.get_mut() = RUNS;
    }

    #[cold]
    fn stop(&self) -> Result<()> {
        self.stop.store(STOPPED, Ordering::Relaxed);
        bail!(Internal, "a large output is left to another thread")
    }

    #[inline]
    fn stop_before_large_output(&self, dtype: DType, shape: &Shape) -> Result<()> {
        let unit = if dtype.is_plain() { dtype.size() } else { 32 };
        if self.stop.load(Ordering::Relaxed) == MAY_STOP && shape.elements() >= LARGE_OUTPUT / unit {
            self.stop()?;
        }
        Ok(())
    }

    /// The step.
    #[inline]
    pub fn step(&self) -> &'a Arc<StepCx> {
        self.step
    }

    /// The device.
    #[inline]
    pub fn device(&self) -> &'a Arc<Device> {
        &self.step.device
    }

    /// The device's threads, for loops that end early when the step is cancelled: what they have written is dropped then,
    /// see [`KernelCx::conclude`]. Loops that update state which outlives the step use [`Device::threads`].
    #[inline]
    pub fn threads(&self) -> Threads<'_> {
        let threads = self.device().threads();
        if self.interruptible { threads.until(&self.step.cancellation, &self.incomplete) } else { threads }
    }

    /// The outcome of a kernel that ran in this context and returned `outputs`: the cancellation if that ended one of its
    /// loops.
    #[inline]
    pub fn conclude<T>(&self, outputs: Result<T>) -> Result<T> {
        if self.incomplete.load(Ordering::Relaxed) {
            self.step.check_cancelled()?;
        }
        outputs
    }

    /// The loop frame and iteration that the node runs in.
    pub fn frame(&self) -> FrameIteration {
        self.frame
    }

    /// Returns whether an input was dead. Only ops that run on dead inputs see this.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// The number of inputs.
    #[inline]
    pub fn num_inputs(&self) -> usize {
        self.inputs.len()
    }

    /// An input. References were replaced by values unless the op declares the input as a reference.
    #[inline]
    pub fn input(&self, input: usize) -> Result<&Tensor> {
        match self.inputs.get(input) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            Some(Value::Ref(_) | Value::View(_)) => {
                bail!(Internal, "input {input} is a reference where a value was expected")
            }
            Some(Value::None) | None => bail!(Internal, "input {input} is missing"),
        }
    }

    /// Returns whether an input is a reference to a variable.
    #[inline]
    pub fn is_ref(&self, input: usize) -> bool {
        matches!(self.inputs.get(input), Some(Value::Ref(_)))
    }

    /// Takes an input out of the context.
    #[inline]
    pub fn take(&mut self, input: usize) -> Result<Tensor> {
        self.mark_input_taken();
        match self.inputs.get_mut(input).map(std::mem::take) {
            Some(Value::Tensor(tensor)) => Ok(tensor),
            _ => bail!(Internal, "input {input} is missing"),
        }
    }

    /// Puts an input back, e.g. with another shape.
    pub fn put(&mut self, input: usize, tensor: Tensor) {
        self.mark_input_taken();
        if let Some(slot) = self.inputs.get_mut(input) {
            *slot = Value::Tensor(tensor);
        }
    }

    /// Takes an input, whether it is a reference or a value.
    pub fn take_value(&mut self, input: usize) -> Result<Value> {
        self.mark_input_taken();
        match self.inputs.get_mut(input).map(std::mem::take) {
            Some(Value::None) | None => bail!(Internal, "input {input} is missing"),
            Some(value) => Ok(value),
        }
    }

    /// Passes a reference input on as an output (e.g. `Assign` returns its `ref`).
    pub fn forward(&mut self, input: usize) -> Result<Value> {
        self.take_value(input)
    }

    /// An input's elements.
    #[inline]
    pub fn flat<T: Element>(&self, input: usize) -> Result<&[T]> {
        self.input(input)?.flat()
    }

    /// An input's only element; the input must be a scalar, or have one element.
    #[inline]
    pub fn scalar<T: Element>(&self, input: usize) -> Result<T> {
        let tensor = self.input(input)?;
        match tensor.flat::<T>()? {
            [value] => Ok(value.clone()),
            _ => bail!(InvalidArgument, "input {input} must be a scalar, got shape {}", tensor.shape()),
        }
    }

    /// An int32 or int64 scalar, widened.
    pub fn scalar_i64(&self, input: usize) -> Result<i64> {
        let tensor = self.input(input)?;
        match tensor.to_i64s()?.as_slice() {
            [value] => Ok(*value),
            _ => bail!(InvalidArgument, "input {input} must be a scalar, got shape {}", tensor.shape()),
        }
    }

    /// An int32 or int64 input's elements, widened.
    pub fn i64s(&self, input: usize) -> Result<Vec<i64>> {
        self.input(input)?.to_i64s()
    }

    /// Memory for an output: initialized, with unspecified contents.
    #[inline]
    pub fn alloc<T: Element>(&self, shape: Shape) -> Result<Tensor> {
        self.alloc_dtype(T::DTYPE, shape)
    }

    /// Memory for an output of a type known at run time: initialized, with unspecified contents.
    #[inline]
    pub fn alloc_dtype(&self, dtype: DType, shape: Shape) -> Result<Tensor> {
        self.stop_before_large_output(dtype, &shape)?;
        self.device().allocate(dtype, shape)
    }

    /// Memory for an output, all zeros (or empty strings).
    pub fn zeros(&self, dtype: DType, shape: Shape) -> Result<Tensor> {
        self.stop_before_large_output(dtype, &shape)?;
        self.device().allocate_zeros(dtype, shape)
    }

    /// An output that reuses the memory of the first candidate input with the same type and number of elements and no
    /// other owner, or new memory. The input is gone afterwards; contents are unspecified.
    #[inline]
    pub fn reuse_or_alloc<T: Element>(&mut self, candidates: &[usize], shape: Shape) -> Result<Tensor> {
        match self.take_reusable(candidates, T::DTYPE, shape.elements()) {
            Some((_, tensor)) => tensor.reshaped(shape),
            None => self.alloc::<T>(shape),
        }
    }

    /// Takes the first candidate input with this type and number of elements that has no other owner.
    #[inline]
    pub fn take_reusable(
        &mut self,
        candidates: &[usize],
        dtype: DType,
        elements: usize,
    ) -> Option<(usize, Tensor)> {
        let fits = |value: &Value| {
            matches!(value, Value::Tensor(tensor)
                if tensor.dtype() == dtype && tensor.elements() == elements && tensor.is_unique())
        };
        let input = candidates.iter().copied().find(|input| self.inputs.get(*input).is_some_and(fits))?;
        self.mark_input_taken();
        match std::mem::take(&mut self.inputs[input]) {
            Value::Tensor(tensor) => Some((input, tensor)),
            _ => None,
        }
    }

    /// The handle of a resource input.
    pub fn handle(&self, input: usize) -> Result<&ResourceHandle> {
        let tensor = self.input(input)?;
        match tensor.units::<ResourceHandle>()? {
            [handle] => Ok(handle),
            _ => bail!(InvalidArgument, "input {input} must be one handle, got shape {}", tensor.shape()),
        }
    }

    /// The resource behind a handle input.
    pub fn resource<R: Resource>(&self, input: usize) -> Result<Arc<R>> {
        self.step.resources.resolve(self.handle(input)?)
    }

    /// The variable behind a reference or a handle.
    pub fn variable(&self, input: usize) -> Result<Arc<Variable>> {
        match self.inputs.get(input) {
            Some(Value::Ref(variable)) => Ok(variable.clone()),
            Some(Value::Tensor(_)) => {
                let handle = self.handle(input)?;
                self.resource::<Variable>(input).map_err(|error| {
                    status!(
                        FailedPrecondition,
                        "Could not find variable {}. This could mean that the variable has been deleted. In TF1, \
                         it can also mean the variable is uninitialized. Debug info: container={}, status error \
                         message={}",
                        handle.name(),
                        handle.container(),
                        error.message()
                    )
                })
            }
            _ => bail!(Internal, "input {input} is missing"),
        }
    }

    /// Returns an error that names both shapes unless they are equal.
    pub fn check_same_shape(&self, what: &str, a: &Shape, b: &Shape) -> Result<()> {
        ensure!(a == b, InvalidArgument, "{what} must have the same shape. Got shapes {a} and {b}");
        Ok(())
    }
}

/// The context of a kernel that may wait: it owns its inputs.
pub struct FutureCx {
    inputs: Vec<Value>,
    step: Arc<StepCx>,
    frame: FrameIteration,
    dead: bool,
}

impl FutureCx {
    /// A context that owns these inputs.
    #[inline]
    pub fn new(inputs: Vec<Value>, step: Arc<StepCx>, frame: FrameIteration, dead: bool) -> FutureCx {
        FutureCx { inputs, step, frame, dead }
    }

    /// This context as a [`KernelCx`].
    pub fn cx(&mut self) -> KernelCx<'_> {
        let cx = KernelCx::new(&mut self.inputs, &self.step, self.frame, self.dead);
        // Nobody concludes it.
        KernelCx { interruptible: false, ..cx }
    }

    /// The step.
    #[inline]
    pub fn step(&self) -> &Arc<StepCx> {
        &self.step
    }

    /// Takes every input, reading references.
    pub fn take_all(&mut self) -> Result<Vec<Tensor>> {
        self.inputs
            .iter_mut()
            .map(|value| match std::mem::take(value) {
                Value::Tensor(tensor) => Ok(tensor),
                other => other.read(),
            })
            .collect()
    }
}

//! Tensor arrays: slots that a step writes and reads, kept with the step. The `flow` tensors only order the ops.

use crate::builders as ops;
use crate::state::ref_handle;
use crate::state::tensor_array::{ArraySpec, TensorArray};
use crate::support::gradient::gradients_name;
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Value};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::resource::{HandleShape, ResourceHandle};
use ferroflow_core::scope::Output;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &TENSOR_ARRAY_V3,
    &TENSOR_ARRAY_GRAD_V3,
    &TENSOR_ARRAY_GRAD_WITH_SHAPE,
    &TENSOR_ARRAY_WRITE_V3,
    &TENSOR_ARRAY_READ_V3,
    &TENSOR_ARRAY_GATHER_V3,
    &TENSOR_ARRAY_SCATTER_V3,
    &TENSOR_ARRAY_CONCAT_V3,
    &TENSOR_ARRAY_SPLIT_V3,
    &TENSOR_ARRAY_SIZE_V3,
    &TENSOR_ARRAY_CLOSE_V3,
];

static TENSOR_ARRAY_V3: Op = Op {
    name: "TensorArrayV3",
    gradient: Gradient::Stop,
    inputs: &["size: int32"],
    outputs: &["handle: resource", "flow: float"],
    attrs: &[
        "dtype: type",
        "element_shape: shape = <unknown>",
        "dynamic_size: bool = false",
        "clear_after_read: bool = true",
        "identical_element_shapes: bool = false",
        "tensor_array_name: string = ''",
    ],
    shape: create_shape,
    kernels: kernels![any create_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_GRAD_V3: Op = Op {
    name: "TensorArrayGradV3",
    gradient: Gradient::Stop,
    inputs: &["handle: resource", "flow_in: float"],
    outputs: &["grad_handle: resource", "flow_out: float"],
    attrs: &["source: string"],
    shape: grad_shape,
    kernels: kernels![any grad_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_GRAD_WITH_SHAPE: Op = Op {
    name: "TensorArrayGradWithShape",
    gradient: Gradient::Stop,
    inputs: &["handle: resource", "flow_in: float", "shape_to_prepend: int32"],
    outputs: &["grad_handle: resource", "flow_out: float"],
    attrs: &["source: string"],
    shape: grad_shape,
    kernels: kernels![any grad_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_WRITE_V3: Op = Op {
    name: "TensorArrayWriteV3",
    gradient: Gradient::Fn(write_grad),
    inputs: &["handle: resource", "index: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any write_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_READ_V3: Op = Op {
    name: "TensorArrayReadV3",
    gradient: Gradient::Fn(read_grad),
    inputs: &["handle: resource", "index: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type"],
    shape: read_shape,
    kernels: kernels![any read_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_GATHER_V3: Op = Op {
    name: "TensorArrayGatherV3",
    gradient: Gradient::Fn(gather_grad),
    inputs: &["handle: resource", "indices: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type", "element_shape: shape = <unknown>"],
    shape: gather_shape,
    kernels: kernels![any gather_kernel],
    ..Op::STATEFUL
};

static TENSOR_ARRAY_SCATTER_V3: Op = Op {
    name: "TensorArrayScatterV3",
    gradient: Gradient::Fn(scatter_grad),
    inputs: &["handle: resource", "indices: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any scatter_kernel],
    ..Op::STATEFUL
};

static TENSOR_ARRAY_CONCAT_V3: Op = Op {
    name: "TensorArrayConcatV3",
    gradient: Gradient::Fn(concat_grad),
    inputs: &["handle: resource", "flow_in: float"],
    outputs: &["value: dtype", "lengths: int64"],
    attrs: &["dtype: type", "element_shape_except0: shape = <unknown>"],
    shape: concat_shape,
    kernels: kernels![any concat_kernel],
    ..Op::STATEFUL
};

static TENSOR_ARRAY_SPLIT_V3: Op = Op {
    name: "TensorArraySplitV3",
    gradient: Gradient::Fn(split_grad),
    inputs: &["handle: resource", "value: T", "lengths: int64", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any split_kernel],
    ..Op::STATEFUL
};

static TENSOR_ARRAY_SIZE_V3: Op = Op {
    name: "TensorArraySizeV3",
    gradient: Gradient::Stop,
    inputs: &["handle: resource", "flow_in: float"],
    outputs: &["size: int32"],
    shape: shapes::scalar,
    kernels: kernels![any size_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_CLOSE_V3: Op = Op {
    name: "TensorArrayCloseV3",
    gradient: Gradient::Stop,
    inputs: &["handle: resource"],
    kernels: kernels![any close_kernel],
    cheap: true,
    ..Op::STATEFUL
};

// Where arrays and their gradients are kept among a step's resources; the names are stock's.
const ARRAYS: &str = "_tensor_arrays";
const GRADIENTS: &str = "_tensor_array_grads";

fn create_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let dtype: DType = s.attr("dtype")?;
    let (shape, identical): (PartialShape, bool) =
        (s.attr("element_shape")?, s.attr("identical_element_shapes")?);
    s.output(0, [2])?;
    s.set(1, PartialShape::scalar());
    if shape.to_shape().is_some() || identical {
        s.set_handles(0, vec![HandleShape { dtype, shape }]);
    }
    Ok(())
}

fn grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [2])?;
    s.set(1, PartialShape::scalar());
    if s.num_inputs() == 2 {
        s.set_handles(0, s.handles(0).to_vec());
    }
    Ok(())
}

fn read_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if let Some(handle) = s.handle(0) {
        s.set(0, handle.shape.clone());
    }
    Ok(())
}

fn gather_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let mut element: PartialShape = s.attr("element_shape")?;
    if let Some(handle) = s.handle(0) {
        element = s.merge(&element, &handle.shape)?;
    }
    let count = s.input(1).dims().and_then(|dims| dims.first().copied()).unwrap_or(UNKNOWN_DIM);
    match element.dims() {
        Some(dims) => s.output(0, std::iter::once(count).chain(dims.iter().copied())),
        None => Ok(()),
    }
}

pub(super) fn concat_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rest: PartialShape = s.attr("element_shape_except0")?;
    s.output(1, [UNKNOWN_DIM])?;
    match rest.dims() {
        Some(dims) => s.output(0, std::iter::once(UNKNOWN_DIM).chain(dims.iter().copied())),
        None => Ok(()),
    }
}

/// The form of a handle: the three generations of ops.
#[derive(Clone, Copy)]
enum Form {
    Reference,
    Names,
    Handle,
}

impl Form {
    fn of(op: &str) -> Form {
        match op {
            "TensorArray" | "TensorArrayGrad" => Form::Reference,
            "TensorArrayV2" | "TensorArrayGradV2" => Form::Names,
            _ => Form::Handle,
        }
    }

    /// The outputs of an op that makes an array: a handle, and the flow if ops are ordered by it.
    fn outputs(self, cx: &KernelCx<'_>, container: &str, name: &str, array: &TensorArray) -> Result<Outputs> {
        let device = cx.device().name();
        match self {
            Form::Reference => Ok(ref_handle::make(device, container, name, array, true)?.into()),
            Form::Names => Ok(ref_handle::names(container, name).into()),
            Form::Handle => Ok([handle_tensor(cx, container, name, array)?, Tensor::scalar(0.0f32)].into()),
        }
    }
}

fn handle_tensor(cx: &KernelCx<'_>, container: &str, name: &str, array: &TensorArray) -> Result<Tensor> {
    let shapes = vec![HandleShape { dtype: array.dtype(), shape: array.element_shape() }];
    let device = cx.device().name();
    let type_name = ferroflow_core::resource::Resource::type_name(array);
    let handle = ResourceHandle::named(device, container, name, type_name, shapes);
    Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])
}

pub(super) fn create_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    let element_shape: PartialShape = init.attr("element_shape")?;
    let (dynamic_size, clear_after_read): (bool, bool) =
        (init.attr("dynamic_size")?, init.attr("clear_after_read")?);
    let attrs = init.attrs;
    let identical_element_shapes =
        attrs.has("identical_element_shapes") && attrs.get("identical_element_shapes")?;
    let form = Form::of(init.op);
    let given: String = init.attr("tensor_array_name")?;
    let base = if given.is_empty() { init.node.to_owned() } else { given };
    Kernel::sync(move |cx| {
        let size = cx.input(0)?;
        ensure!(
            size.rank() == 0,
            InvalidArgument,
            "TensorArray size must be scalar, but had shape: {}",
            size.shape()
        );
        let size = size.to_scalar::<i32>()?;
        ensure!(size >= 0, InvalidArgument, "Size should be >= 0.");
        // Every array has a name of its own, in this step and in others.
        let name = format!("{base}_{}", cx.step().resources.unique_number());
        let spec = ArraySpec {
            name: name.clone(),
            dtype,
            element_shape: element_shape.clone(),
            identical_element_shapes,
            dynamic_size,
            clear_after_read,
            aggregate: false,
        };
        let array = Arc::new(TensorArray::new(cx.device(), spec, size as usize)?);
        cx.step().step_resources.create(ARRAYS, &name, array.clone())?;
        form.outputs(cx, ARRAYS, &name, &array)
    })
}

/// Makes the array of a gradient pass (`source`), or finds it if another node has made it.
pub(super) fn grad_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (source, form): (String, Form) = (init.attr("source")?, Form::of(init.op));
    Kernel::sync(move |cx| {
        let (container, forward) = ref_handle::names_of(cx, 0)?;
        ensure!(container == ARRAYS, InvalidArgument, "Wrong input container. {container}{forward}");
        let name = format!("{forward}@{source}");
        let array = array(cx)?;
        let prefix = if cx.num_inputs() > 2 { cx.i64s(2)? } else { Vec::new() };
        let gradient = cx
            .step()
            .step_resources
            .lookup_or_create(GRADIENTS, &name, || array.gradient(cx.device(), name.clone(), &prefix))?;
        form.outputs(cx, GRADIENTS, &name, &gradient)
    })
}

pub(super) fn array(cx: &KernelCx<'_>) -> Result<Arc<TensorArray>> {
    ref_handle::resolve(cx, &cx.step().step_resources)
}

fn index(cx: &KernelCx<'_>) -> Result<i64> {
    let index = cx.input(1)?;
    ensure!(
        index.rank() == 0,
        InvalidArgument,
        "TensorArray index must be scalar, but had shape: {}",
        index.shape()
    );
    Ok(index.to_scalar::<i32>()? as i64)
}

fn check_write_type(array: &TensorArray, dtype: DType) -> Result<()> {
    ensure!(
        array.dtype() == dtype,
        InvalidArgument,
        "TensorArray dtype is {} but Op is trying to write dtype {dtype}.",
        array.dtype()
    );
    Ok(())
}

pub(super) fn check_read_type(array: &TensorArray, dtype: DType) -> Result<()> {
    ensure!(
        array.dtype() == dtype,
        InvalidArgument,
        "TensorArray dtype is {} but Op requested dtype {dtype}.",
        array.dtype()
    );
    Ok(())
}

pub(super) fn write_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (array, index) = (array(cx)?, index(cx)?);
        check_write_type(&array, cx.input(2)?.dtype())?;
        array.write(cx.device(), index, cx.take(2)?)?;
        Ok(cx.take_value(3)?.into())
    })
}

pub(super) fn read_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    Kernel::sync(move |cx| {
        let array = array(cx)?;
        check_read_type(&array, dtype)?;
        Ok(Value::Tensor(array.read(cx.device(), index(cx)?)?).into())
    })
}

pub(super) fn gather_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    let declared: PartialShape = init.attr("element_shape")?;
    Kernel::sync(move |cx| {
        let array = array(cx)?;
        check_read_type(&array, dtype)?;
        array.merge_element_shape(&declared).or_else(|error| {
            // A declared shape that disagrees is reported for the first element that shows it.
            if array.size() == 0 { Err(error) } else { Ok(()) }
        })?;
        let indices = cx.input(1)?;
        ensure!(
            indices.rank() == 1,
            InvalidArgument,
            "Expected indices to be a vector, but received shape: {}",
            indices.shape()
        );
        let indices = indices.to_i64s()?;
        gather_all(cx, &array, &declared, &indices)
    })
}

/// The elements at these indices, stacked.
pub(super) fn gather_all(
    cx: &KernelCx<'_>,
    array: &TensorArray,
    declared: &PartialShape,
    indices: &[i64],
) -> Result<Outputs> {
    if indices.is_empty() {
        let Some(shape) = array.element_shape().to_shape() else {
            bail!(
                Unimplemented,
                "TensorArray has size zero, but element shape {} is not fully defined. Currently only static \
                 shapes are supported when packing zero-size TensorArrays.",
                array.element_shape()
            );
        };
        return Ok(cx.zeros(array.dtype(), rows::stacked(0, &shape)?)?.into());
    }
    let read = indices.iter().map(|index| array.read(cx.device(), *index));
    let tensors = read.collect::<Result<Vec<Tensor>>>()?;
    let first = tensors[0].shape();
    ensure!(
        declared.admits(first),
        InvalidArgument,
        "TensorArray was passed element_shape {declared} which does not match the Tensor at index {}: {first}",
        indices[0]
    );
    for (tensor, index) in tensors.iter().zip(indices) {
        ensure!(
            tensor.shape() == first,
            InvalidArgument,
            "TensorArray has inconsistent shapes.  Index {} has shape: {first} but index {index} has shape: {}",
            indices[0],
            tensor.shape()
        );
    }
    let shape = rows::stacked(tensors.len(), first)?;
    Ok(rows::join(cx.device(), array.dtype(), shape, &tensors.iter().collect::<Vec<_>>())?.into())
}

pub(super) fn scatter_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let array = array(cx)?;
        let (indices, value) = (cx.input(1)?, cx.input(2)?);
        check_write_type(&array, value.dtype())?;
        ensure!(
            value.rank() >= 1,
            InvalidArgument,
            "Expected value to be at least a vector, but received shape: {}",
            value.shape()
        );
        ensure!(
            indices.rank() == 1,
            InvalidArgument,
            "Expected indices to be a vector, but received shape: {}",
            indices.shape()
        );
        ensure!(
            indices.elements() == value.shape().dim(0),
            InvalidArgument,
            "Expected len(indices) == values.shape[0], but saw: {} vs. {}",
            indices.elements(),
            value.shape().dim(0)
        );
        let indices = indices.to_i64s()?;
        if let Some(max) = indices.iter().max() {
            let size = array.size();
            ensure!(
                array.is_dynamic() || *max < size as i64,
                InvalidArgument,
                "Max scatter index must be < array size ({max} vs. {size})"
            );
        }
        for (row, index) in indices.iter().enumerate() {
            array.write(cx.device(), *index, rows::row(cx.device(), value, row)?)?;
        }
        Ok(cx.take_value(3)?.into())
    })
}

pub(super) fn concat_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    let declared: PartialShape = init.attr("element_shape_except0")?;
    Kernel::sync(move |cx| {
        let array = array(cx)?;
        check_read_type(&array, dtype)?;
        let size = array.size();
        if size == 0 {
            let Some(shape) = declared.to_shape() else {
                bail!(
                    Unimplemented,
                    "TensorArray has size zero, but element_shape_except0 {declared} is not fully defined. \
                     Currently only static shapes are supported when concatenating zero-size TensorArrays."
                );
            };
            let lengths = Tensor::zeros(DType::Int64, Shape::vector(0));
            return Ok([cx.zeros(dtype, rows::stacked(0, &shape)?)?, lengths].into());
        }
        let read = (0..size as i64).map(|index| array.read(cx.device(), index));
        let tensors = read.collect::<Result<Vec<Tensor>>>()?;
        let mut lengths = Vec::with_capacity(size);
        for (i, tensor) in tensors.iter().enumerate() {
            ensure!(
                tensor.rank() >= 1,
                InvalidArgument,
                "Concat saw a scalar shape at index {i} but requires at least vectors.  Did you mean to call pack?"
            );
            let (rest, first) = (except0(tensor)?, except0(&tensors[0])?);
            ensure!(
                declared.admits(&rest),
                InvalidArgument,
                "TensorArray was passed element_shape_except0 {declared} but index {i} has (excepting dimension 0) \
                 shape: {rest} which does not match."
            );
            ensure!(
                rest == first,
                InvalidArgument,
                "TensorArray has inconsistent shapes.  Index 0 has (excepting dimension 0) shape: {first} but index \
                 {i} has (excepting dimension 0) shape: {rest}"
            );
            lengths.push(tensor.shape()[0]);
        }
        let shape = rows::stacked(lengths.iter().sum::<i64>() as usize, &except0(&tensors[0])?)?;
        let joined = rows::join(cx.device(), dtype, shape, &tensors.iter().collect::<Vec<_>>())?;
        Ok([joined, Tensor::vector(lengths)].into())
    })
}

fn except0(tensor: &Tensor) -> Result<Shape> {
    Shape::new(tensor.shape()[1..].iter().copied())
}

pub(super) fn split_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let array = array(cx)?;
        let (value, lengths) = (cx.input(1)?, cx.input(2)?);
        check_write_type(&array, value.dtype())?;
        ensure!(
            lengths.rank() == 1,
            InvalidArgument,
            "Expected lengths to be a vector, received shape: {}",
            lengths.shape()
        );
        ensure!(
            value.rank() >= 1,
            InvalidArgument,
            "Expected value to be at least a vector, but received shape: {}",
            value.shape()
        );
        let lengths = lengths.to_i64s()?;
        ensure!(
            lengths.iter().all(|length| *length >= 0),
            InvalidArgument,
            "Expected lengths not to be negative, but received {lengths:?}"
        );
        let total = lengths.iter().fold(0i64, |sum, length| sum.saturating_add(*length));
        ensure!(
            total == value.shape()[0],
            InvalidArgument,
            "Expected sum of lengths to be equal to values.shape[0], but sum of lengths is {total} and value's shape \
             is: {}",
            value.shape()
        );
        let size = array.size();
        ensure!(
            array.is_dynamic() || size == lengths.len(),
            InvalidArgument,
            "TensorArray's size is not equal to the size of lengths ({size} vs. {}), and the TensorArray is not \
             marked as dynamically resizeable",
            lengths.len()
        );
        let rest = except0(value)?;
        let mut start = 0usize;
        for (i, length) in lengths.iter().enumerate() {
            let shape = rows::stacked(*length as usize, &rest)?;
            let count = shape.elements();
            array.write(cx.device(), i as i64, rows::slice(cx.device(), value, start, shape)?)?;
            start += count;
        }
        Ok(cx.take_value(3)?.into())
    })
}

pub(super) fn size_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(array(cx)?.size() as i32).into()))
}

pub(super) fn close_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        array(cx)?.close();
        Ok(Outputs::None)
    })
}

/// The array that gradients of another array's elements are collected in, and the flow that orders what is done to it.
struct GradArray {
    handle: Output,
    flow: Output,
}

impl GradArray {
    /// Each call of `gradients` collects in an array of its own, which is known by the call's scope.
    fn of(g: &GradCx<'_>, handle: &Output, flow: &Output) -> Result<GradArray> {
        let s = g.scope();
        // An array that a loop's body gets is wherever it was made.
        let near = if handle.graph().is_same(s.graph()) { s.colocate_with(handle) } else { s.clone() };
        let made = ops::tensor_array_grad_v3(&near, handle, flow, &gradients_name(s))?;
        let ordered = s.control([&made.grad_handle]);
        let flow = ops::Identity::new().name("gradient_flow").build(&ordered, flow)?;
        Ok(GradArray { handle: made.grad_handle, flow })
    }

    /// The same for an operation that wrote: all writes come before the gradient array is made.
    fn after_writes(g: &GradCx<'_>) -> Result<(GradArray, Output)> {
        let s = g.scope();
        let written = ops::Identity::new().name("flow_out").build(s, g.output(0)?)?;
        let barrier = ops::Identity::new().name("write_barrier").build(&s.control([&written]), g.dy(0)?)?;
        Ok((GradArray::of(g, g.input(0), &barrier)?, barrier))
    }
}

fn read_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let array = GradArray::of(g, g.input(0), g.input(2))?;
    let flow = ops::tensor_array_write_v3(g.scope(), array.handle, g.input(1), g.dy(0)?, array.flow)?;
    Ok([None, None, Some(flow)].into())
}

fn write_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (array, barrier) = GradArray::after_writes(g)?;
    let value = ops::tensor_array_read_v3(g.scope(), array.handle, g.input(1), array.flow, g.attr("T")?)?;
    Ok([None, None, Some(value), Some(barrier)].into())
}

fn gather_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let array = GradArray::of(g, g.input(0), g.input(2))?;
    let flow = ops::tensor_array_scatter_v3(g.scope(), array.handle, g.input(1), g.dy(0)?, array.flow)?;
    Ok([None, None, Some(flow)].into())
}

fn scatter_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (array, barrier) = GradArray::after_writes(g)?;
    let value = ops::tensor_array_gather_v3(g.scope(), array.handle, g.input(1), array.flow, g.attr("T")?)?;
    Ok([None, None, Some(value), Some(barrier)].into())
}

fn concat_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let array = GradArray::of(g, g.input(0), g.input(1))?;
    let flow = ops::tensor_array_split_v3(g.scope(), array.handle, g.dy(0)?, g.output(1)?, array.flow)?;
    Ok([None, Some(flow)].into())
}

fn split_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (array, barrier) = GradArray::after_writes(g)?;
    let value = ops::tensor_array_concat_v3(g.scope(), array.handle, array.flow, g.attr("T")?)?.value;
    Ok([None, Some(value), None, Some(barrier)].into())
}

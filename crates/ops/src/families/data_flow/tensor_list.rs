//! Tensor lists, element by element: create, push, pop, get, set, measure.

use crate::builders as ops;
use crate::state::tensor_list::TensorList;
use crate::support::gradient::shape_output;
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Value};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::resource::HandleShape;
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &EMPTY_TENSOR_LIST,
    &TENSOR_LIST_RESERVE,
    &TENSOR_LIST_PUSH_BACK,
    &TENSOR_LIST_PUSH_BACK_BATCH,
    &TENSOR_LIST_POP_BACK,
    &TENSOR_LIST_LENGTH,
    &TENSOR_LIST_ELEMENT_SHAPE,
    &TENSOR_LIST_SET_ITEM,
    &TENSOR_LIST_GET_ITEM,
    &TENSOR_LIST_CONCAT_LISTS,
    &TENSOR_LIST_RESIZE,
];

static EMPTY_TENSOR_LIST: Op = Op {
    name: "EmptyTensorList",
    gradient: Gradient::Stop,
    inputs: &["element_shape: shape_type", "max_num_elements: int32"],
    outputs: &["handle: variant"],
    attrs: &["element_dtype: type", "shape_type: {int32, int64}"],
    shape: new_list_shape,
    kernels: kernels![any empty_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_RESERVE: Op = Op {
    name: "TensorListReserve",
    gradient: Gradient::Stop,
    inputs: &["element_shape: shape_type", "num_elements: int32"],
    outputs: &["handle: variant"],
    attrs: &["element_dtype: type", "shape_type: {int32, int64}"],
    shape: new_list_shape,
    kernels: kernels![any reserve_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_PUSH_BACK: Op = Op {
    name: "TensorListPushBack",
    gradient: Gradient::Fn(push_back_grad),
    inputs: &["input_handle: variant", "tensor: element_dtype"],
    outputs: &["output_handle: variant"],
    attrs: &["element_dtype: type"],
    shape: same_list_shape,
    kernels: kernels![any push_back_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_PUSH_BACK_BATCH: Op = Op {
    name: "TensorListPushBackBatch",
    gradient: Gradient::Stop,
    inputs: &["input_handles: variant", "tensor: element_dtype"],
    outputs: &["output_handles: variant"],
    attrs: &["element_dtype: type"],
    shape: shapes::unchanged,
    kernels: kernels![any push_back_batch_kernel],
    ..Op::PURE
};

static TENSOR_LIST_POP_BACK: Op = Op {
    name: "TensorListPopBack",
    gradient: Gradient::Fn(pop_back_grad),
    inputs: &["input_handle: variant", "element_shape: int32"],
    outputs: &["output_handle: variant", "tensor: element_dtype"],
    attrs: &["element_dtype: type"],
    shape: pop_back_shape,
    kernels: kernels![any pop_back_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_LENGTH: Op = Op {
    name: "TensorListLength",
    gradient: Gradient::Stop,
    inputs: &["input_handle: variant"],
    outputs: &["length: int32"],
    shape: shapes::scalar,
    kernels: kernels![any length_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_ELEMENT_SHAPE: Op = Op {
    name: "TensorListElementShape",
    gradient: Gradient::Stop,
    inputs: &["input_handle: variant"],
    outputs: &["element_shape: shape_type"],
    attrs: &["shape_type: {int32, int64}"],
    shape: element_shape_shape,
    kernels: kernels![any element_shape_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_SET_ITEM: Op = Op {
    name: "TensorListSetItem",
    gradient: Gradient::Fn(set_item_grad),
    inputs: &["input_handle: variant", "index: int32", "item: element_dtype"],
    outputs: &["output_handle: variant"],
    attrs: &["element_dtype: type", "resize_if_index_out_of_bounds: bool = false"],
    shape: same_list_shape,
    kernels: kernels![any set_item_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_GET_ITEM: Op = Op {
    name: "TensorListGetItem",
    gradient: Gradient::Fn(get_item_grad),
    inputs: &["input_handle: variant", "index: int32", "element_shape: Tshape"],
    outputs: &["item: element_dtype"],
    attrs: &["element_dtype: type", "Tshape: {int32, int64} = DT_INT32"],
    shape: get_item_shape,
    kernels: kernels![any get_item_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_LIST_CONCAT_LISTS: Op = Op {
    name: "TensorListConcatLists",
    gradient: Gradient::Stop,
    inputs: &["input_a: variant", "input_b: variant"],
    outputs: &["output: variant"],
    attrs: &["element_dtype: type"],
    shape: shapes::unchanged,
    kernels: kernels![any concat_lists_kernel],
    ..Op::PURE
};

static TENSOR_LIST_RESIZE: Op = Op {
    name: "TensorListResize",
    gradient: Gradient::Fn(resize_grad),
    inputs: &["input_handle: variant", "size: int32"],
    outputs: &["output_handle: variant"],
    shape: same_list_shape,
    kernels: kernels![any resize_kernel],
    cheap: true,
    ..Op::PURE
};

fn new_list_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let handle = HandleShape { dtype: s.attr("element_dtype")?, shape: s.constant_shape(0)? };
    s.set(0, PartialShape::scalar());
    s.set_handles(0, vec![handle]);
    Ok(())
}

fn same_list_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, PartialShape::scalar());
    s.set_handles(0, s.handles(0).to_vec());
    Ok(())
}

/// The known shape of an element, from the list and from the op's own `element_shape` input.
fn known_element(s: &ShapeCx<'_>, shape_input: usize) -> Result<PartialShape> {
    let given = s.constant_shape(shape_input)?;
    match s.handle(0) {
        Some(handle) => s.merge(&handle.shape, &given),
        None => Ok(given),
    }
}

fn pop_back_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    same_list_shape(s)?;
    let element = known_element(s, 1)?;
    s.set(1, element);
    Ok(())
}

fn get_item_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let element = known_element(s, 2)?;
    s.set(0, element);
    Ok(())
}

fn element_shape_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    match s.handle(0).and_then(|handle| handle.shape.rank()) {
        Some(rank) => s.output(0, [rank as i64]),
        None => Ok(()),
    }
}

fn empty_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let max_elements = cx.input(1)?;
        ensure!(
            max_elements.rank() == 0,
            InvalidArgument,
            "max_num_elements expected to be a scalar but got shape: {}",
            max_elements.shape()
        );
        let max_elements = max_elements.to_scalar::<i32>()?;
        let element_shape = rows::shape_from_tensor(cx.input(0)?)?;
        let list = TensorList::new(dtype, element_shape, Vec::new());
        Ok(TensorList { max_elements, ..list }.into_tensor().into())
    })
}

fn reserve_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let element_shape = rows::shape_from_tensor(cx.input(0)?)?;
        let count = cx.input(1)?;
        ensure!(
            count.rank() == 0,
            InvalidArgument,
            "The num_elements to reserve must be a tensor size 1, but got {}",
            count.shape()
        );
        let count = count.to_scalar::<i32>()?;
        ensure!(
            count >= 0,
            InvalidArgument,
            "The num_elements to reserve must be a non negative number, but got {count}"
        );
        let mut list = TensorList::new(dtype, element_shape, Vec::new());
        list.resize(cx.device(), count as usize)?;
        Ok(list.into_tensor().into())
    })
}

/// Adds an element to a list, of which a batch has the one at `index`.
fn push(list: &mut TensorList, tensor: Tensor, index: Option<usize>) -> Result<()> {
    list.check_dtype(tensor.dtype())?;
    ensure!(
        list.element_shape.admits(tensor.shape()),
        InvalidArgument,
        "Tried to append a tensor with incompatible shape to a list{}. Op element shape: {} list shape: {}",
        index.map(|index| format!(" at index {index}")).unwrap_or_default(),
        tensor.shape(),
        list.element_shape
    );
    ensure!(
        list.max_elements == -1 || (list.tensors.len() as i64) < list.max_elements as i64,
        InvalidArgument,
        "Tried to push item into a full list list size: {} max_num_elements: {}",
        list.tensors.len(),
        list.max_elements
    );
    list.tensors.push(Some(tensor));
    Ok(())
}

fn push_back_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut list = TensorList::take(cx.take(0)?)?;
        push(&mut list, cx.take(1)?, None)?;
        Ok(list.into_tensor().into())
    })
}

fn push_back_batch_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (mut handles, tensor) = (cx.take(0)?, cx.take(1)?);
        ensure!(
            tensor.rank() >= 1,
            InvalidArgument,
            "Expected tensor to be at least a vector, but saw shape: {}",
            tensor.shape()
        );
        ensure!(
            tensor.shape().dim(0) == handles.elements(),
            InvalidArgument,
            "Expected tensor.shape[0] == input_handles.size, but saw {} vs. {}",
            tensor.shape().dim(0),
            handles.elements()
        );
        for (i, variant) in handles.units_mut::<Variant>()?.iter_mut().enumerate() {
            let mut list = TensorList::from_variant(variant)?;
            push(&mut list, rows::row(cx.device(), &tensor, i)?, Some(i))?;
            *variant = Variant::new(list);
        }
        Ok(handles.into())
    })
}

/// An element that was never set reads as zeros, if its shape is known.
fn pop_back_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let mut list = TensorList::take(cx.take(0)?)?;
        list.check_dtype(dtype)?;
        ensure!(!list.tensors.is_empty(), InvalidArgument, "Trying to pop from an empty list.");
        let tensor = match list.tensors.pop().flatten() {
            Some(tensor) => tensor,
            None => {
                let given = rows::shape_from_tensor(cx.input(1)?)?;
                let shape = rows::merge_shapes(&given, &list.element_shape)?;
                let Some(full) = shape.to_shape() else {
                    bail!(
                        InvalidArgument,
                        "Trying to read an uninitialized tensor but element_shape is not fully defined.{shape}"
                    );
                };
                cx.zeros(dtype, full)?
            }
        };
        Ok([list.into_tensor(), tensor].into())
    })
}

fn length_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let length = TensorList::with(cx.input(0)?, |list| Ok(list.tensors.len()))?;
        Ok(Tensor::scalar(length as i32).into())
    })
}

fn element_shape_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("shape_type")?;
    Kernel::sync(move |cx| {
        let shape = TensorList::with(cx.input(0)?, |list| Ok(list.element_shape.clone()))?;
        let tensor = match (shape.dims(), dtype) {
            (Some(dims), DType::Int64) => Tensor::vector(dims.to_vec()),
            (Some(dims), _) => Tensor::vector(dims.iter().map(|dim| *dim as i32).collect::<Vec<i32>>()),
            (None, DType::Int64) => Tensor::scalar(-1i64),
            (None, _) => Tensor::scalar(-1i32),
        };
        Ok(tensor.into())
    })
}

fn set_item_kernel(init: &Init<'_>) -> Result<Kernel> {
    let resize: bool = init.attr("resize_if_index_out_of_bounds")?;
    Kernel::sync(move |cx| {
        let mut list = TensorList::take(cx.take(0)?)?;
        let index = cx.input(1)?;
        ensure!(
            index.rank() == 0,
            InvalidArgument,
            "Expected argument 1 to be a scalar. Received a tensor of shape {}",
            index.shape()
        );
        let index = index.to_scalar::<i32>()?;
        let item = cx.take(2)?;
        list.check_dtype(item.dtype())?;
        ensure!(
            list.element_shape.admits(item.shape()),
            InvalidArgument,
            "Tried to set a tensor with incompatible shape at a list index. Item element shape: {} list shape: {}",
            item.shape(),
            list.element_shape
        );
        if resize && index >= list.tensors.len() as i32 {
            list.resize(cx.device(), index as usize + 1)?;
        }
        ensure!(
            index >= 0 && (index as usize) < list.tensors.len(),
            InvalidArgument,
            "Trying to modify element {index} in a list with {} elements.",
            list.tensors.len()
        );
        list.tensors[index as usize] = Some(item);
        Ok(list.into_tensor().into())
    })
}

fn get_item_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        // A vector of one index will do, as in stock.
        let index = cx.input(1)?;
        ensure!(
            index.elements() == 1,
            InvalidArgument,
            "index must have one element, but had shape: {}",
            index.shape()
        );
        let index = index.flat::<i32>()?[0];
        let item = TensorList::with(cx.input(0)?, |list| get_item(cx, list, dtype, index))?;
        Ok(Value::Tensor(item).into())
    })
}

fn get_item(cx: &KernelCx<'_>, list: &TensorList, dtype: DType, index: i32) -> Result<Tensor> {
    list.check_dtype(dtype)?;
    ensure!(
        index >= 0 && (index as usize) < list.tensors.len(),
        InvalidArgument,
        "Trying to access element {index} in a list with {} elements.",
        list.tensors.len()
    );
    if let Some(item) = &list.tensors[index as usize] {
        return Ok(item.clone());
    }
    let given = rows::shape_from_tensor(cx.input(2)?)?;
    let mut shape = rows::merge_shapes(&given, &list.element_shape)?;
    // Elements that are set say what zeros must look like if the list itself does not.
    for tensor in list.tensors.iter().flatten() {
        if shape.to_shape().is_some() {
            break;
        }
        shape = rows::merge_shapes(&shape, &tensor.shape().into())?;
    }
    match shape.to_shape() {
        Some(full) => cx.zeros(dtype, full),
        None => bail!(
            InvalidArgument,
            "Trying to read an uninitialized tensor but element_shape is not fully defined: {shape} and no list \
             element is set."
        ),
    }
}

fn resize_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let size = rows::scalar::<i32>(cx.input(1)?, "size")?;
        ensure!(size >= 0, InvalidArgument, "TensorListSlice expects size to be non-negative. Got: {size}");
        let mut list = TensorList::take(cx.take(0)?)?;
        list.resize(cx.device(), size as usize)?;
        Ok(list.into_tensor().into())
    })
}

fn concat_lists_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let (mut a, b) = (cx.take(0)?, cx.take(1)?);
        ensure!(
            a.shape() == b.shape(),
            InvalidArgument,
            "Input list shapes must match: input_a.shape: {} input_b.shape: {}",
            a.shape(),
            b.shape()
        );
        let others = b.units::<Variant>()?;
        for (i, (variant, other)) in a.units_mut::<Variant>()?.iter_mut().zip(others).enumerate() {
            let mut list = TensorList::from_variant(variant)?;
            let other = TensorList::from_variant(other)?;
            for (name, have) in [("input_a", list.dtype), ("input_b", other.dtype)] {
                ensure!(
                    have == dtype,
                    InvalidArgument,
                    "{name}[{i}].dtype != element_dtype.  Saw: {have} vs. {dtype}"
                );
            }
            ensure!(
                list.element_shape == other.element_shape,
                InvalidArgument,
                "input_a and input_b TensorList element shapes are not identical at index {i}.  Saw {} vs. {}",
                list.element_shape,
                other.element_shape
            );
            list.tensors.extend(other.tensors);
            *variant = Variant::new(list);
        }
        Ok(a.into())
    })
}

fn push_back_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, element) = (g.scope(), g.input(1));
    let popped = ops::tensor_list_pop_back(s, g.dy(0)?, shape_output(s, element)?, element.dtype())?;
    Ok([popped.output_handle, popped.tensor].into())
}

/// An empty list of elements like those of another.
fn empty_like(s: &Scope, list: Output, dtype: DType) -> Result<Output> {
    ops::empty_tensor_list(s, ops::tensor_list_element_shape(s, list, DType::Int32), -1, dtype)
}

fn pop_back_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let list = match g.grad(0) {
        Some(grad) => grad.to_dense(s)?,
        None => empty_like(s, g.output(0)?, g.attr("element_dtype")?)?,
    };
    Ok([Some(ops::tensor_list_push_back(s, list, g.dy(1)?)?), None].into())
}

fn get_item_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, list, dy) = (g.scope(), g.input(0), g.dy(0)?);
    let shape = ops::tensor_list_element_shape(s, list, DType::Int32);
    let zeros = ops::tensor_list_reserve(s, shape, ops::tensor_list_length(s, list), dy.dtype());
    Ok([Some(ops::tensor_list_set_item(s, zeros, g.input(1), dy)?), None, None].into())
}

fn set_item_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, list, index, item, dy) = (g.scope(), g.input(0), g.input(1), g.input(2), g.dy(0)?);
    let mut dlist = ops::tensor_list_set_item(s, &dy, index, ops::zeros_like(s, item))?;
    let ditem = ops::tensor_list_get_item(s, &dy, index, shape_output(s, item)?, item.dtype())?;
    if g.attr("resize_if_index_out_of_bounds")? {
        dlist = ops::tensor_list_resize(s, dlist, ops::tensor_list_length(s, list))?;
    }
    Ok([Some(dlist), None, Some(ditem)].into())
}

fn resize_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    Ok([Some(ops::tensor_list_resize(s, g.dy(0)?, ops::tensor_list_length(s, g.input(0)))?), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{DType, Shape, Tensor};

    fn empty() -> Tensor {
        let shape = Tensor::zeros(DType::Int32, Shape::vector(0));
        let node = Node::new("EmptyTensorList").attr("element_dtype", DType::Float);
        node.run([shape, Tensor::scalar(-1i32)]).unwrap().remove(0)
    }

    fn push(list: Tensor, value: f32) -> Tensor {
        Node::new("TensorListPushBack").run([list, Tensor::scalar(value)]).unwrap().remove(0)
    }

    fn length(list: &Tensor) -> i32 {
        Node::new("TensorListLength").run([list.clone()]).unwrap()[0].to_scalar().unwrap()
    }

    #[test]
    fn a_list_that_others_hold_does_not_change() {
        let one = push(empty(), 1.0);
        let two = push(one.clone(), 2.0);
        assert_eq!((length(&one), length(&two)), (1, 2));
    }

    #[test]
    fn a_negative_index_is_refused_even_where_lists_grow() {
        let node = Node::new("TensorListSetItem").attr("resize_if_index_out_of_bounds", true);
        let set = node.run([push(empty(), 1.0), Tensor::scalar(-1i32), Tensor::scalar(1.0f32)]);
        assert!(set.is_err());
    }
}

//! Tensor lists as a whole: stack, gather, concatenate, and lists made from the rows of a tensor.

use crate::builders as ops;
use crate::state::tensor_list::TensorList;
use crate::support::gradient::{part, shape_output};
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::resource::HandleShape;
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &TENSOR_LIST_STACK,
    &TENSOR_LIST_GATHER,
    &TENSOR_LIST_CONCAT,
    &TENSOR_LIST_CONCAT_V2,
    &TENSOR_LIST_FROM_TENSOR,
    &TENSOR_LIST_SCATTER,
    &TENSOR_LIST_SCATTER_V2,
    &TENSOR_LIST_SCATTER_INTO_EXISTING_LIST,
    &TENSOR_LIST_SPLIT,
];

static TENSOR_LIST_STACK: Op = Op {
    name: "TensorListStack",
    gradient: Gradient::Fn(stack_grad),
    inputs: &["input_handle: variant", "element_shape: int32"],
    outputs: &["tensor: element_dtype"],
    attrs: &["element_dtype: type", "num_elements: int = -1"],
    shape: stack_shape,
    kernels: kernels![any stack_kernel],
    ..Op::PURE
};

static TENSOR_LIST_GATHER: Op = Op {
    name: "TensorListGather",
    gradient: Gradient::Fn(gather_grad),
    inputs: &["input_handle: variant", "indices: int32", "element_shape: int32"],
    outputs: &["values: element_dtype"],
    attrs: &["element_dtype: type"],
    shape: gather_shape,
    kernels: kernels![any gather_kernel],
    ..Op::PURE
};

static TENSOR_LIST_CONCAT: Op = Op {
    name: "TensorListConcat",
    gradient: Gradient::Fn(concat_grad),
    inputs: &["input_handle: variant"],
    outputs: &["tensor: element_dtype", "lengths: int64"],
    attrs: &["element_dtype: type", "element_shape: shape = <unknown>"],
    shape: concat_shape,
    kernels: kernels![any concat_kernel],
    ..Op::PURE
};

static TENSOR_LIST_CONCAT_V2: Op = Op {
    name: "TensorListConcatV2",
    gradient: Gradient::Fn(concat_grad),
    inputs: &["input_handle: variant", "element_shape: shape_type", "leading_dims: int64"],
    outputs: &["tensor: element_dtype", "lengths: int64"],
    attrs: &["element_dtype: type", "shape_type: {int32, int64}"],
    shape: concat_shape,
    kernels: kernels![any concat_kernel],
    ..Op::PURE
};

static TENSOR_LIST_FROM_TENSOR: Op = Op {
    name: "TensorListFromTensor",
    gradient: Gradient::Fn(from_tensor_grad),
    inputs: &["tensor: element_dtype", "element_shape: shape_type"],
    outputs: &["output_handle: variant"],
    attrs: &["element_dtype: type", "shape_type: {int32, int64}"],
    shape: from_tensor_shape,
    kernels: kernels![any from_tensor_kernel],
    ..Op::PURE
};

static TENSOR_LIST_SCATTER: Op = Op {
    name: "TensorListScatter",
    gradient: Gradient::Fn(scatter_grad),
    inputs: &["tensor: element_dtype", "indices: int32", "element_shape: shape_type"],
    outputs: &["output_handle: variant"],
    attrs: &["element_dtype: type", "shape_type: {int32, int64}"],
    shape: scatter_shape,
    kernels: kernels![any scatter_kernel],
    ..Op::PURE
};

static TENSOR_LIST_SCATTER_V2: Op = Op {
    name: "TensorListScatterV2",
    gradient: Gradient::Fn(scatter_grad),
    inputs: &["tensor: element_dtype", "indices: int32", "element_shape: shape_type", "num_elements: int32"],
    outputs: &["output_handle: variant"],
    attrs: &["element_dtype: type", "shape_type: {int32, int64}"],
    shape: scatter_shape,
    kernels: kernels![any scatter_kernel],
    ..Op::PURE
};

static TENSOR_LIST_SCATTER_INTO_EXISTING_LIST: Op = Op {
    name: "TensorListScatterIntoExistingList",
    gradient: Gradient::Fn(scatter_into_grad),
    inputs: &["input_handle: variant", "tensor: element_dtype", "indices: int32"],
    outputs: &["output_handle: variant"],
    attrs: &["element_dtype: type"],
    shape: existing_list_shape,
    kernels: kernels![any scatter_into_kernel],
    ..Op::PURE
};

static TENSOR_LIST_SPLIT: Op = Op {
    name: "TensorListSplit",
    gradient: Gradient::Fn(split_grad),
    inputs: &["tensor: element_dtype", "element_shape: shape_type", "lengths: int64"],
    outputs: &["output_handle: variant"],
    attrs: &["element_dtype: type", "shape_type: {int32, int64}"],
    shape: from_tensor_shape,
    kernels: kernels![any split_kernel],
    ..Op::PURE
};

fn known_element(s: &ShapeCx<'_>, given: PartialShape) -> Result<PartialShape> {
    match s.handle(0) {
        Some(handle) => s.merge(&handle.shape, &given),
        None => Ok(given),
    }
}

fn set_rows(s: &mut ShapeCx<'_>, rows: i64, element: &PartialShape) -> Result<()> {
    match element.dims() {
        Some(dims) => s.output(0, std::iter::once(rows).chain(dims.iter().copied())),
        None => Ok(()),
    }
}

fn stack_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let element = known_element(s, s.constant_shape(1)?)?;
    let rows: i64 = s.attr("num_elements")?;
    set_rows(s, if rows >= 0 { rows } else { UNKNOWN_DIM }, &element)
}

fn gather_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let element = known_element(s, s.constant_shape(2)?)?;
    let indices = s.rank(1, 1)?;
    set_rows(s, indices.dims().map_or(UNKNOWN_DIM, |dims| dims[0]), &element)
}

fn concat_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let given = if s.num_inputs() > 1 { s.constant_shape(1)? } else { s.attr("element_shape")? };
    let element = known_element(s, given)?;
    s.output(1, [UNKNOWN_DIM])?;
    match element.dims() {
        Some([_, rest @ ..]) => s.output(0, std::iter::once(UNKNOWN_DIM).chain(rest.iter().copied())),
        _ => Ok(()),
    }
}

fn set_list(s: &mut ShapeCx<'_>, shape_input: usize) -> Result<()> {
    let handle = HandleShape { dtype: s.attr("element_dtype")?, shape: s.constant_shape(shape_input)? };
    s.set(0, PartialShape::scalar());
    s.set_handles(0, vec![handle]);
    Ok(())
}

fn from_tensor_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    set_list(s, 1)
}

fn scatter_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    set_list(s, 2)
}

fn existing_list_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, PartialShape::scalar());
    s.set_handles(0, s.handles(0).to_vec());
    Ok(())
}

/// Joins elements into rows; those never set are zeros.
fn join_elements(
    cx: &KernelCx<'_>,
    dtype: DType,
    elements: &[Option<&Tensor>],
    known: PartialShape,
    undefined: impl Fn(&PartialShape, bool) -> String,
) -> Result<Tensor> {
    let mut shape = known;
    if shape.to_shape().is_none() && elements.is_empty() {
        bail!(InvalidArgument, "{}", undefined(&shape, true));
    }
    for tensor in elements.iter().flatten() {
        shape = rows::merge_shapes(&shape, &tensor.shape().into())?;
    }
    let Some(element) = shape.to_shape() else {
        bail!(InvalidArgument, "{}", undefined(&shape, false));
    };
    let zeros =
        if elements.iter().any(Option::is_none) { Some(cx.zeros(dtype, element.clone())?) } else { None };
    let pieces: Vec<&Tensor> = elements.iter().filter_map(|tensor| tensor.or(zeros.as_ref())).collect();
    rows::join(cx.device(), dtype, rows::stacked(pieces.len(), &element)?, &pieces)
}

fn stack_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    let expected: i64 = init.attr("num_elements")?;
    Kernel::sync(move |cx| {
        let given = rows::shape_from_tensor(cx.input(1)?)?;
        let stacked = TensorList::with(cx.input(0)?, |list| {
            list.check_dtype(dtype)?;
            let known = rows::merge_shapes(&given, &list.element_shape)?;
            ensure!(
                expected == -1 || expected == list.tensors.len() as i64,
                InvalidArgument,
                "Operation expected a list with {expected} elements but got a list with {} elements.",
                list.tensors.len()
            );
            let elements: Vec<Option<&Tensor>> = list.tensors.iter().map(Option::as_ref).collect();
            join_elements(cx, dtype, &elements, known, |shape, empty| {
                if empty {
                    format!(
                        "Tried to stack elements of an empty list with non-fully-defined element_shape: {shape}"
                    )
                } else {
                    format!(
                        "Tried to stack list which only contains uninitialized tensors and has a \
                         non-fully-defined element_shape: {shape}"
                    )
                }
            })
        })?;
        Ok(stacked.into())
    })
}

fn gather_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let (indices, given) = (cx.i64s(1)?, rows::shape_from_tensor(cx.input(2)?)?);
        let gathered = TensorList::with(cx.input(0)?, |list| {
            list.check_dtype(dtype)?;
            let known = rows::merge_shapes(&given, &list.element_shape)?;
            let mut elements = Vec::with_capacity(indices.len());
            for index in &indices {
                match usize::try_from(*index).ok().and_then(|index| list.tensors.get(index)) {
                    Some(tensor) => elements.push(tensor.as_ref()),
                    // The missing letter is stock's.
                    None => bail!(
                        InvalidArgument,
                        "Index {index} out o range; list only has {} elements.",
                        list.tensors.len()
                    ),
                }
            }
            join_elements(cx, dtype, &elements, known, |shape, empty| {
                if empty {
                    format!("Tried to gather 0-elements from a list with non-fully-defined shape: {shape}")
                } else {
                    format!(
                        "Tried to gather uninitialized tensors from a list with non-fully-defined element_shape: \
                         {shape}"
                    )
                }
            })
        })?;
        Ok(gathered.into())
    })
}

fn concat_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    let declared: Option<PartialShape> =
        if init.attrs.has("element_shape") { Some(init.attr("element_shape")?) } else { None };
    Kernel::sync(move |cx| {
        let (given, leading) = match &declared {
            Some(shape) => (shape.clone(), Vec::new()),
            None => (rows::shape_from_tensor(cx.input(1)?)?, cx.i64s(2)?),
        };
        let (joined, lengths) =
            TensorList::with(cx.input(0)?, |list| concat(cx, list, dtype, &given, &leading))?;
        Ok([joined, Tensor::vector(lengths)].into())
    })
}

fn concat(
    cx: &KernelCx<'_>,
    list: &TensorList,
    dtype: DType,
    given: &PartialShape,
    leading: &[i64],
) -> Result<(Tensor, Vec<i64>)> {
    list.check_dtype(dtype)?;
    let element = rows::merge_shapes(given, &list.element_shape)?;
    let (first, mut rest) = match element.dims() {
        Some([]) => {
            bail!(InvalidArgument, "Concat requires elements to be at least vectors, found scalars instead.")
        }
        Some([first, rest @ ..]) => (*first, PartialShape::new(rest.iter().copied())?),
        None => (UNKNOWN_DIM, PartialShape::unknown()),
    };
    ensure!(
        !list.tensors.is_empty() || rest.to_shape().is_some(),
        InvalidArgument,
        "All except the first dimension must be fully defined when concating an empty tensor list. element_shape: \
         {rest}"
    );
    for (i, tensor) in list.tensors.iter().enumerate() {
        let Some(tensor) = tensor else { continue };
        ensure!(
            tensor.rank() >= 1,
            InvalidArgument,
            "Concat saw a scalar shape at index {i} but requires at least vectors."
        );
        rest = rows::merge_shapes(&rest, &PartialShape::new(tensor.shape()[1..].iter().copied())?)?;
    }
    let Some(rest) = rest.to_shape() else {
        bail!(
            InvalidArgument,
            "Trying to concat list with only uninitialized tensors but element_shape_except_first_dim is not fully \
             defined: {rest}"
        );
    };
    let mut lengths = Vec::with_capacity(list.tensors.len());
    let mut pieces = Vec::with_capacity(list.tensors.len());
    let mut total = 0i64;
    for (i, tensor) in list.tensors.iter().enumerate() {
        let length = match tensor {
            Some(tensor) => {
                let length = tensor.shape()[0];
                ensure!(
                    first == UNKNOWN_DIM || first == length,
                    InvalidArgument,
                    "First entry of element_shape input does not match the first dim of list element at index: {i} \
                     Expected: {first} Actual: {length}"
                );
                length
            }
            None => match leading.get(i) {
                Some(length) => *length,
                None if first != UNKNOWN_DIM => first,
                None => bail!(
                    InvalidArgument,
                    "List contains uninitialized tensor at index {i} but leading_dims has only {} elements.",
                    leading.len()
                ),
            },
        };
        pieces.push(match tensor {
            Some(tensor) => tensor.clone(),
            None => cx.zeros(dtype, Shape::new(std::iter::once(length).chain(rest.iter().copied()))?)?,
        });
        lengths.push(length);
        total = total.saturating_add(length);
    }
    let shape = Shape::new(std::iter::once(total).chain(rest.iter().copied()))?;
    let joined = rows::join(cx.device(), dtype, shape, &pieces.iter().collect::<Vec<_>>())?;
    Ok((joined, lengths))
}

fn at_least_vector(tensor: &Tensor) -> Result<()> {
    ensure!(
        tensor.rank() >= 1,
        InvalidArgument,
        "Tensor must be at least a vector, but saw shape: {}",
        tensor.shape()
    );
    Ok(())
}

fn check_rows(tensor: &Tensor, element_shape: &PartialShape) -> Result<()> {
    let row = Shape::new(tensor.shape()[1..].iter().copied())?;
    ensure!(
        element_shape.admits(&row),
        InvalidArgument,
        "Specified a list with shape {element_shape} from a tensor with shape {row}"
    );
    Ok(())
}

fn from_tensor_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let tensor = cx.input(0)?;
        at_least_vector(tensor)?;
        let element_shape = cx.input(1)?;
        ensure!(
            element_shape.rank() <= 1,
            InvalidArgument,
            "TensorListFromTensor: element_shape must be at most rank 1 but has the shape of {}",
            element_shape.shape()
        );
        let element_shape = rows::shape_from_tensor(element_shape)?;
        check_rows(tensor, &element_shape)?;
        let elements = (0..tensor.shape().dim(0)).map(|row| rows::row(cx.device(), tensor, row).map(Some));
        let tensors = elements.collect::<Result<_>>()?;
        Ok(TensorList::new(dtype, element_shape, tensors).into_tensor().into())
    })
}

/// Puts the rows of a tensor at these indices.
fn scatter(cx: &KernelCx<'_>, tensor: &Tensor, indices: &[i64], list: &mut TensorList) -> Result<()> {
    at_least_vector(tensor)?;
    ensure!(
        indices.len() == tensor.shape().dim(0),
        InvalidArgument,
        "Invalid number of rows in input tensor. Expected: {} Actual: {}",
        indices.len(),
        tensor.shape().dim(0)
    );
    for (row, index) in indices.iter().enumerate() {
        list.tensors[*index as usize] = Some(rows::row(cx.device(), tensor, row)?);
    }
    Ok(())
}

/// The length that a list needs for these indices.
fn length_for(indices: &[i64]) -> Result<usize> {
    ensure!(
        indices.iter().all(|index| *index >= 0),
        InvalidArgument,
        "Indices in TensorListScatter must all be non-negative."
    );
    Ok(indices.iter().max().map_or(0, |index| *index as usize + 1))
}

fn scatter_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let (tensor, indices) = (cx.take(0)?, cx.i64s(1)?);
        let element_shape = rows::shape_from_tensor(cx.input(2)?)?;
        let count = if cx.num_inputs() > 3 { rows::scalar::<i32>(cx.input(3)?, "num_elements")? } else { -1 };
        ensure!(count >= -1, InvalidArgument, "TensorListScatter expects num_elements >= -1, found: {count}");
        let needed = length_for(&indices)?;
        if let Some(index) = indices.iter().find(|index| count != -1 && **index >= i64::from(count)) {
            bail!(
                InvalidArgument,
                "TensorListScatter: Trying to scatter at index {index} in list with size {count}"
            );
        }
        let length = if count == -1 { needed } else { count as usize };
        let mut list = TensorList::new(dtype, element_shape, Vec::new());
        list.resize(cx.device(), length)?;
        at_least_vector(&tensor)?;
        check_rows(&tensor, &list.element_shape)?;
        scatter(cx, &tensor, &indices, &mut list)?;
        Ok(list.into_tensor().into())
    })
}

fn scatter_into_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let mut list = TensorList::take(cx.take(0)?)?;
        let (tensor, indices) = (cx.take(1)?, cx.i64s(2)?);
        list.check_dtype(tensor.dtype())?;
        let needed = length_for(&indices)?;
        if needed > list.tensors.len() {
            list.resize(cx.device(), needed)?;
        }
        scatter(cx, &tensor, &indices, &mut list)?;
        Ok(list.into_tensor().into())
    })
}

fn split_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("element_dtype")?;
    Kernel::sync(move |cx| {
        let (tensor, lengths) = (cx.input(0)?, cx.input(2)?);
        at_least_vector(tensor)?;
        ensure!(
            lengths.rank() == 1,
            InvalidArgument,
            "Expected lengths to be a vector, received shape: {}",
            lengths.shape()
        );
        let element_shape = rows::shape_from_tensor(cx.input(1)?)?;
        let rest = Shape::new(tensor.shape()[1..].iter().copied())?;
        if let Some(dims) = element_shape.dims() {
            ensure!(
                !dims.is_empty(),
                InvalidArgument,
                "TensorListSplit requires element_shape to be at least of rank 1, but saw: {element_shape}"
            );
            let wanted = PartialShape::new(dims[1..].iter().copied())?;
            ensure!(
                wanted.admits(&rest),
                InvalidArgument,
                "tensor shape {} is not compatible with element_shape {element_shape}",
                tensor.shape()
            );
        }
        let length = tensor.shape()[0];
        let mut start = 0i64;
        let mut tensors = Vec::with_capacity(lengths.elements());
        for rows in lengths.to_i64s()? {
            ensure!(rows >= 0, InvalidArgument, "Invalid value in lengths: {rows}");
            let end = start.saturating_add(rows);
            ensure!(
                end <= length,
                InvalidArgument,
                "Attempting to slice [{start}, {end}] from tensor with length {length}"
            );
            let shape = rows::stacked(rows as usize, &rest)?;
            tensors.push(Some(rows::slice(cx.device(), tensor, start as usize * rest.elements(), shape)?));
            start = end;
        }
        ensure!(
            start == length,
            InvalidArgument,
            "Unused values in tensor. Length of tensor: {length} Values used: {start}"
        );
        Ok(TensorList::new(dtype, element_shape, tensors).into_tensor().into())
    })
}

/// The shape of the elements along a tensor's first axis.
fn element_shape(s: &Scope, tensor: &Output) -> Result<Output> {
    part(s, &shape_output(s, tensor)?, 1, None)
}

fn stack_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    // Dimensions that are not known may be anything, and so may all be.
    let shape = match dy.shape().dims() {
        Some([_, rest @ ..]) => s.constant(rest.iter().map(|dim| *dim as i32).collect::<Vec<_>>())?,
        _ => s.constant(-1i32)?,
    };
    Ok([Some(ops::tensor_list_from_tensor(s, dy, shape)?), None].into())
}

fn from_tensor_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, tensor) = (g.scope(), g.input(0));
    let known = tensor.shape().dims().and_then(|dims| dims.first().copied()).unwrap_or(-1);
    let stack = ops::TensorListStack::new(tensor.dtype()).num_elements(known);
    Ok([Some(stack.build(s, g.dy(0)?, element_shape(s, tensor)?)?), None].into())
}

fn gather_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, list, dy) = (g.scope(), g.input(0), g.dy(0)?);
    let shape = ops::tensor_list_element_shape(s, list, DType::Int32);
    let zeros = ops::tensor_list_reserve(s, shape, ops::tensor_list_length(s, list), dy.dtype());
    Ok([Some(ops::tensor_list_scatter_into_existing_list(s, zeros, dy, g.input(1))?), None, None].into())
}

fn scatter_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, tensor) = (g.scope(), g.input(0));
    let shape = element_shape(s, tensor)?;
    let mut grads = InputGrads::none(g.num_inputs());
    grads.0[0] = Some(ops::tensor_list_gather(s, g.dy(0)?, g.input(1), shape, tensor.dtype())?.into());
    Ok(grads)
}

fn scatter_into_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, tensor, indices, dy) = (g.scope(), g.input(1), g.input(2), g.dy(0)?);
    let dtensor = ops::tensor_list_gather(s, &dy, indices, element_shape(s, tensor)?, tensor.dtype())?;
    let zeros = ops::zeros_like(s, tensor);
    let dlist = ops::tensor_list_scatter_into_existing_list(s, dy, zeros, indices)?;
    Ok([Some(dlist), Some(dtensor), None].into())
}

fn concat_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let shape = ops::tensor_list_element_shape(s, g.input(0), DType::Int32);
    let mut grads = InputGrads::none(g.num_inputs());
    grads.0[0] = Some(ops::tensor_list_split(s, g.dy(0)?, shape, g.output(1)?)?.into());
    Ok(grads)
}

fn split_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, tensor) = (g.scope(), g.input(0));
    let shape = ops::concat_v2(s, [&s.constant([-1i32])?, &element_shape(s, tensor)?], 0);
    let whole = ops::tensor_list_concat_v2(s, g.dy(0)?, shape, g.input(2), tensor.dtype())?;
    Ok([Some(whole.tensor), None, None].into())
}

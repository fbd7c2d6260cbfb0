//! Tensor arrays of the first two generations, which are known by names: a reference to two strings, then the strings
//! themselves. Graphs that were written long ago have them.

use super::tensor_array::{
    array, check_read_type, close_kernel, concat_kernel, concat_shape, create_kernel, gather_all,
    gather_kernel, grad_kernel, read_kernel, scatter_kernel, size_kernel, split_kernel, write_kernel,
};
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{DType, PartialShape, Result, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &TENSOR_ARRAY,
    &TENSOR_ARRAY_V2,
    &TENSOR_ARRAY_GRAD,
    &TENSOR_ARRAY_GRAD_V2,
    &TENSOR_ARRAY_WRITE,
    &TENSOR_ARRAY_WRITE_V2,
    &TENSOR_ARRAY_READ,
    &TENSOR_ARRAY_READ_V2,
    &TENSOR_ARRAY_GATHER,
    &TENSOR_ARRAY_GATHER_V2,
    &TENSOR_ARRAY_SCATTER,
    &TENSOR_ARRAY_SCATTER_V2,
    &TENSOR_ARRAY_CONCAT,
    &TENSOR_ARRAY_CONCAT_V2,
    &TENSOR_ARRAY_SPLIT,
    &TENSOR_ARRAY_SPLIT_V2,
    &TENSOR_ARRAY_SIZE,
    &TENSOR_ARRAY_SIZE_V2,
    &TENSOR_ARRAY_CLOSE,
    &TENSOR_ARRAY_CLOSE_V2,
    &TENSOR_ARRAY_PACK,
    &TENSOR_ARRAY_UNPACK,
];

static TENSOR_ARRAY: Op = Op {
    name: "TensorArray",
    gradient: Gradient::Stop,
    inputs: &["size: int32"],
    outputs: &["handle: Ref(string)"],
    attrs: &[
        "dtype: type",
        "dynamic_size: bool = false",
        "clear_after_read: bool = true",
        "tensor_array_name: string = ''",
        "element_shape: shape = <unknown>",
    ],
    shape: handle_shape,
    kernels: kernels![any create_kernel],
    deprecated_at: Some(16),
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_V2: Op = Op {
    name: "TensorArrayV2",
    gradient: Gradient::Stop,
    inputs: &["size: int32"],
    outputs: &["handle: string"],
    attrs: &[
        "dtype: type",
        "element_shape: shape = <unknown>",
        "dynamic_size: bool = false",
        "clear_after_read: bool = true",
        "tensor_array_name: string = ''",
    ],
    shape: handle_shape,
    kernels: kernels![any create_kernel],
    deprecated_at: Some(26),
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_GRAD: Op = Op {
    name: "TensorArrayGrad",
    gradient: Gradient::Stop,
    inputs: &["handle: string", "flow_in: float"],
    outputs: &["grad_handle: Ref(string)"],
    attrs: &["source: string"],
    shape: handle_shape,
    kernels: kernels![any grad_kernel],
    deprecated_at: Some(16),
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_GRAD_V2: Op = Op {
    name: "TensorArrayGradV2",
    gradient: Gradient::Stop,
    inputs: &["handle: string", "flow_in: float"],
    outputs: &["grad_handle: string"],
    attrs: &["source: string"],
    shape: handle_shape,
    kernels: kernels![any grad_kernel],
    deprecated_at: Some(26),
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_ARRAY_WRITE: Op = Op {
    name: "TensorArrayWrite",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: Ref(string)", "index: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any write_kernel],
    deprecated_at: Some(16),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_WRITE_V2: Op = Op {
    name: "TensorArrayWriteV2",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: string", "index: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any write_kernel],
    deprecated_at: Some(26),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_READ: Op = Op {
    name: "TensorArrayRead",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: Ref(string)", "index: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type"],
    kernels: kernels![any read_kernel],
    deprecated_at: Some(16),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_READ_V2: Op = Op {
    name: "TensorArrayReadV2",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: string", "index: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type"],
    kernels: kernels![any read_kernel],
    deprecated_at: Some(26),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_GATHER: Op = Op {
    name: "TensorArrayGather",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: Ref(string)", "indices: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type", "element_shape: shape = <unknown>"],
    kernels: kernels![any gather_kernel],
    deprecated_at: Some(16),
    ..Op::PURE
};

static TENSOR_ARRAY_GATHER_V2: Op = Op {
    name: "TensorArrayGatherV2",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: string", "indices: int32", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type", "element_shape: shape = <unknown>"],
    kernels: kernels![any gather_kernel],
    deprecated_at: Some(26),
    ..Op::PURE
};

static TENSOR_ARRAY_SCATTER: Op = Op {
    name: "TensorArrayScatter",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: Ref(string)", "indices: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any scatter_kernel],
    deprecated_at: Some(19),
    ..Op::PURE
};

static TENSOR_ARRAY_SCATTER_V2: Op = Op {
    name: "TensorArrayScatterV2",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: string", "indices: int32", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any scatter_kernel],
    deprecated_at: Some(26),
    ..Op::PURE
};

static TENSOR_ARRAY_CONCAT: Op = Op {
    name: "TensorArrayConcat",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: Ref(string)", "flow_in: float"],
    outputs: &["value: dtype", "lengths: int64"],
    attrs: &["dtype: type", "element_shape_except0: shape = <unknown>"],
    shape: concat_shape,
    kernels: kernels![any concat_kernel],
    deprecated_at: Some(16),
    ..Op::PURE
};

static TENSOR_ARRAY_CONCAT_V2: Op = Op {
    name: "TensorArrayConcatV2",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: string", "flow_in: float"],
    outputs: &["value: dtype", "lengths: int64"],
    attrs: &["dtype: type", "element_shape_except0: shape = <unknown>"],
    shape: concat_shape,
    kernels: kernels![any concat_kernel],
    ..Op::PURE
};

static TENSOR_ARRAY_SPLIT: Op = Op {
    name: "TensorArraySplit",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: Ref(string)", "value: T", "lengths: int64", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any split_kernel],
    deprecated_at: Some(16),
    ..Op::PURE
};

static TENSOR_ARRAY_SPLIT_V2: Op = Op {
    name: "TensorArraySplitV2",
    gradient: Gradient::Fn(first_generations),
    inputs: &["handle: string", "value: T", "lengths: int64", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any split_kernel],
    deprecated_at: Some(26),
    ..Op::PURE
};

static TENSOR_ARRAY_SIZE: Op = Op {
    name: "TensorArraySize",
    gradient: Gradient::Stop,
    inputs: &["handle: Ref(string)", "flow_in: float"],
    outputs: &["size: int32"],
    shape: shapes::scalar,
    kernels: kernels![any size_kernel],
    deprecated_at: Some(16),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_SIZE_V2: Op = Op {
    name: "TensorArraySizeV2",
    gradient: Gradient::Stop,
    inputs: &["handle: string", "flow_in: float"],
    outputs: &["size: int32"],
    shape: shapes::scalar,
    kernels: kernels![any size_kernel],
    deprecated_at: Some(26),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_CLOSE: Op = Op {
    name: "TensorArrayClose",
    gradient: Gradient::Stop,
    inputs: &["handle: Ref(string)"],
    kernels: kernels![any close_kernel],
    deprecated_at: Some(16),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_CLOSE_V2: Op = Op {
    name: "TensorArrayCloseV2",
    gradient: Gradient::Stop,
    inputs: &["handle: string"],
    kernels: kernels![any close_kernel],
    deprecated_at: Some(26),
    cheap: true,
    ..Op::PURE
};

static TENSOR_ARRAY_PACK: Op = Op {
    name: "TensorArrayPack",
    inputs: &["handle: Ref(string)", "flow_in: float"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type", "element_shape: shape = <unknown>"],
    kernels: kernels![any pack_kernel],
    deprecated_at: Some(16),
    ..Op::PURE
};

static TENSOR_ARRAY_UNPACK: Op = Op {
    name: "TensorArrayUnpack",
    inputs: &["handle: Ref(string)", "value: T", "flow_in: float"],
    outputs: &["flow_out: float"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any unpack_kernel],
    deprecated_at: Some(20),
    ..Op::PURE
};

fn handle_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [2])
}

/// Stock registers gradients, but what makes them takes no names.
fn first_generations(g: &GradCx<'_>) -> Result<InputGrads> {
    bail!(
        Unimplemented,
        "{} works on an array that is known by its name; only arrays of TensorArrayV3 have gradients",
        g.op().op_type()
    )
}

fn pack_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (dtype, declared): (DType, PartialShape) = (init.attr("dtype")?, init.attr("element_shape")?);
    Kernel::sync(move |cx| {
        let array = array(cx)?;
        check_read_type(&array, dtype)?;
        let indices: Vec<i64> = (0..array.size() as i64).collect();
        gather_all(cx, &array, &declared, &indices)
    })
}

fn unpack_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (array, value) = (array(cx)?, cx.input(1)?);
        ensure!(
            array.dtype() == value.dtype(),
            InvalidArgument,
            "TensorArray dtype is {} but Op is trying to write dtype {}.",
            array.dtype(),
            value.dtype()
        );
        ensure!(
            value.rank() > 0,
            InvalidArgument,
            "Input value for unpack must be at least a vector but received shape: {}",
            value.shape()
        );
        let (count, mut size) = (value.shape().dim(0), array.size());
        if array.is_dynamic() {
            size = size.max(count);
        }
        ensure!(
            count == size,
            InvalidArgument,
            "Input value must have first dimension equal to the array size ({count} vs. {size})"
        );
        for row in 0..count {
            array.write(cx.device(), row as i64, rows::row(cx.device(), value, row)?)?;
        }
        Ok(cx.take_value(2)?.into())
    })
}

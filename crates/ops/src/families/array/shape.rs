//! Shapes as tensors, and changes of shape that move no data.

use crate::builders as ops;
use crate::support::gradient::shape_of;
use crate::support::index::{Ints, axis, constant_ints, input_ints, int_tensor};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::tensor::Storage;
use ferroflow_core::{DType, MAX_RANK, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&SHAPE, &SHAPE_N, &SIZE, &RANK, &RESHAPE, &EXPAND_DIMS, &SQUEEZE, &BITCAST];

static SHAPE: Op = Op {
    name: "Shape",
    gradient: Gradient::Stop,
    inputs: &["input: T"],
    outputs: &["output: out_type"],
    attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
    shape: shape_shape,
    kernels: kernels![any shape_kernel],
    cheap: true,
    metadata: true,
    ..Op::PURE
};

static SHAPE_N: Op = Op {
    name: "ShapeN",
    gradient: Gradient::Stop,
    inputs: &["input: N * T"],
    outputs: &["output: N * out_type"],
    attrs: &["N: int >= 1", "T: type", "out_type: {int32, int64} = DT_INT32"],
    shape: shape_shape,
    kernels: kernels![any shape_kernel],
    cheap: true,
    ..Op::PURE
};

static SIZE: Op = Op {
    name: "Size",
    gradient: Gradient::Stop,
    inputs: &["input: T"],
    outputs: &["output: out_type"],
    attrs: &["T: type", "out_type: {int32, int64} = DT_INT32"],
    shape: shapes::scalar,
    kernels: kernels![any size_kernel],
    cheap: true,
    metadata: true,
    ..Op::PURE
};

static RANK: Op = Op {
    name: "Rank",
    gradient: Gradient::Stop,
    inputs: &["input: T"],
    outputs: &["output: int32"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any rank_kernel],
    cheap: true,
    metadata: true,
    ..Op::PURE
};

static RESHAPE: Op = Op {
    name: "Reshape",
    gradient: Gradient::Fn(reshape_grad),
    inputs: &["tensor: T", "shape: Tshape"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tshape: {int32, int64} = DT_INT32"],
    shape: reshape_shape,
    kernels: kernels![any reshape_kernel],
    cheap: true,
    reinterprets: true,
    ..Op::PURE
};

static EXPAND_DIMS: Op = Op {
    name: "ExpandDims",
    gradient: Gradient::Fn(reshape_grad),
    inputs: &["input: T", "dim: Tdim"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tdim: {int32, int64} = DT_INT32"],
    shape: expand_dims_shape,
    kernels: kernels![any expand_dims_kernel],
    cheap: true,
    reinterprets: true,
    ..Op::PURE
};

static SQUEEZE: Op = Op {
    name: "Squeeze",
    gradient: Gradient::Fn(reshape_grad),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: type", "squeeze_dims: list(int) >= 0 = []"],
    shape: squeeze_shape,
    kernels: kernels![any squeeze_kernel],
    cheap: true,
    reinterprets: true,
    ..Op::PURE
};

static BITCAST: Op = Op {
    name: "Bitcast",
    inputs: &["input: T"],
    outputs: &["output: type"],
    attrs: &[
        "T: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, qint8, quint8, qint16, quint16, qint32}",
        "type: {bfloat16, half, float, double, int64, int32, uint8, uint16, uint32, uint64, int8, int16, complex64, complex128, qint8, quint8, qint16, quint16, qint32}",
    ],
    shape: bitcast_shape,
    kernels: kernels![any bitcast_kernel],
    cheap: true,
    reinterprets: true,
    ..Op::PURE
};

fn shape_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for i in 0..s.num_outputs() {
        let rank = s.input(i).rank().map_or(UNKNOWN_DIM, |rank| rank as i64);
        s.output(i, [rank])?;
    }
    Ok(())
}

fn shape_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    let dims = move |shape: &Shape| -> Result<Tensor> {
        if dtype == DType::Int32
            && let Some((i, dim)) = shape.iter().enumerate().find(|(_, dim)| **dim > i32::MAX as i64)
        {
            bail!(InvalidArgument, "Shape output type is 32-bit  but dim {i} is {dim}");
        }
        int_tensor(dtype, Shape::vector(shape.rank()), shape.iter().copied())
    };
    if init.output_types.len() == 1 {
        return Kernel::sync(move |cx| Ok(dims(cx.input(0)?.shape())?.into()));
    }
    Kernel::sync(move |cx| {
        let shapes: Result<Vec<Tensor>> = (0..cx.num_inputs()).map(|i| dims(cx.input(i)?.shape())).collect();
        Ok(shapes?.into())
    })
}

fn size_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    Kernel::sync(move |cx| {
        let size = cx.input(0)?.elements() as i64;
        ensure!(
            dtype == DType::Int64 || size <= i32::MAX as i64,
            InvalidArgument,
            "Number of elements was larger than representable by 32-bit output type"
        );
        Ok(if dtype == DType::Int64 { Tensor::scalar(size) } else { Tensor::scalar(size as i32) }.into())
    })
}

fn rank_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(cx.input(0)?.rank() as i32).into()))
}

fn reshape_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set_handles(0, s.handles(0).to_vec());
    let Some(sizes) = constant_ints(s, 1)? else {
        let shape = s.constant_shape(1)?;
        s.set(0, shape);
        return Ok(());
    };
    let input = s.input(0);
    let inferred = sizes.contains(&-1);
    if let Some(shape) = input.to_shape() {
        let shape = requested_shape(&shape, &sizes)?;
        s.set(0, PartialShape::from(&shape));
    } else {
        // A size that stands for the rest stays unknown, unless everything else cancels out.
        s.output(0, sizes.iter().copied())?;
        if inferred && sizes.len() == 1 && input.rank() == Some(1) {
            s.set(0, input);
        }
    }
    Ok(())
}

/// The shape that `sizes` ask for, of which one may be −1: whatever is left.
fn requested_shape(input: &Shape, sizes: &[i64]) -> Result<Shape> {
    let mut rest = None;
    let mut known: i64 = 1;
    let mut has_zero = false;
    for (i, &size) in sizes.iter().enumerate() {
        match (size, rest) {
            (-1, Some(other)) => {
                bail!(InvalidArgument, "Only one input size may be -1, not both {other} and {i}")
            }
            (-1, None) => rest = Some(i),
            (0, _) => has_zero = true,
            (size, _) => {
                ensure!(size > 0, InvalidArgument, "Size {i} must be non-negative, not {size}");
                known = known.checked_mul(size).unwrap_or(i64::MAX);
            }
        }
    }
    let mut dims = Ints::from_slice(sizes);
    if let Some(rest) = rest {
        // Zeros on both sides cancel out, as in stock, so that empty tensors can be reshaped to empty ones.
        let cancels = has_zero && input.contains(&0);
        let elements: i64 = input.iter().filter(|dim| **dim != 0 || !has_zero).product();
        ensure!(
            cancels || elements % known == 0,
            InvalidArgument,
            "Input to reshape is a tensor with {elements} values, but the requested shape requires a multiple of {known}"
        );
        dims[rest] = elements / known;
    }
    let shape = Shape::new(dims)?;
    ensure!(
        shape.elements() == input.elements(),
        InvalidArgument,
        "Input to reshape is a tensor with {} values, but the requested shape has {}",
        input.elements(),
        shape.elements()
    );
    Ok(shape)
}

fn reshape_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let sizes = cx.input(1)?;
        ensure!(sizes.rank() <= 1, InvalidArgument, "sizes input must be 1-D, not {}", sizes.shape());
        ensure!(
            sizes.elements() < MAX_RANK,
            InvalidArgument,
            "too many dimensions: must be < {MAX_RANK}, but received {}",
            sizes.elements()
        );
        let shape = requested_shape(cx.input(0)?.shape(), &input_ints(cx, 1)?)?;
        Ok(cx.take(0)?.reshaped(shape)?.into())
    })
}

fn expand_dims_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    let Some(values) = constant_ints(s, 1)? else {
        return s.output(0, std::iter::repeat_n(UNKNOWN_DIM, dims.len() + 1));
    };
    let at = expanded(&values, dims.len())?;
    s.output(0, dims[..at].iter().copied().chain([1]).chain(dims[at..].iter().copied()))
}

/// The position of the new dimension.
fn expanded(values: &[i64], rank: usize) -> Result<usize> {
    let [value] = values else { bail!(InvalidArgument, "'dim' must be a tensor with a single value") };
    match axis(*value, rank + 1) {
        Some(at) => Ok(at),
        None => {
            bail!(InvalidArgument, "Tried to expand dim index {value} for tensor with {rank} dimensions.")
        }
    }
}

fn expand_dims_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let dims = cx.input(0)?.shape().dims();
        let at = expanded(&input_ints(cx, 1)?, dims.len())?;
        let shape = dims[..at].iter().copied().chain([1]).chain(dims[at..].iter().copied());
        let shape = Shape::new(shape)?;
        Ok(cx.take(0)?.reshaped(shape)?.into())
    })
}

/// The rest of `dims` without these (or all) dimensions of size one; `None` if unknown sizes decide.
fn squeezed(dims: &[i64], squeeze: &[i64]) -> Result<Option<Ints>> {
    let mut gone = vec![false; dims.len()];
    for &dim in squeeze {
        let Some(at) = axis(dim, dims.len()) else {
            bail!(
                InvalidArgument,
                "Tried to squeeze dim index {dim} for tensor with {} dimensions.",
                dims.len()
            )
        };
        ensure!(
            dims[at] == 1 || dims[at] == UNKNOWN_DIM,
            InvalidArgument,
            "Can not squeeze dim[{at}], expected a dimension of 1, got {}",
            dims[at]
        );
        gone[at] = true;
    }
    if squeeze.is_empty() {
        if dims.contains(&UNKNOWN_DIM) {
            return Ok(None);
        }
        return Ok(Some(dims.iter().copied().filter(|dim| *dim != 1).collect()));
    }
    Ok(Some(dims.iter().zip(gone).filter(|(_, gone)| !gone).map(|(dim, _)| *dim).collect()))
}

fn squeeze_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    match squeezed(dims, &s.attr::<Vec<i64>>("squeeze_dims")?)? {
        Some(dims) => s.output(0, dims),
        None => Ok(()),
    }
}

fn squeeze_kernel(init: &Init<'_>) -> Result<Kernel> {
    let squeeze: Vec<i64> = init.attr("squeeze_dims")?;
    Kernel::sync(move |cx| {
        let dims = squeezed(cx.input(0)?.shape(), &squeeze)?.expect("a value's dimensions are known");
        Ok(cx.take(0)?.reshaped(Shape::new(dims)?)?.into())
    })
}

/// The dimensions of the same bytes under another type; `Ok(None)` if the last dimension is unknown.
fn recast(dims: &[i64], from: DType, to: DType) -> Result<Ints> {
    let (from, to) = (from.size(), to.size());
    let mut out = Ints::from_slice(dims);
    if from > to {
        out.push((from / to) as i64);
    } else if from < to {
        match out.pop() {
            Some(last) if last == (to / from) as i64 || last == UNKNOWN_DIM => {}
            _ => bail!(InvalidArgument, "Cannot bitcast from {to} to {from}"),
        }
    }
    Ok(out)
}

fn bitcast_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.input(0);
    let Some(dims) = input.dims() else { return Ok(()) };
    s.output(0, recast(dims, s.attr("T")?, s.attr("type")?)?)
}

fn bitcast_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (from, to): (DType, DType) = (init.attr("T")?, init.attr("type")?);
    Kernel::sync(move |cx| {
        let tensor = cx.take(0)?;
        let shape = Shape::new(recast(tensor.shape(), from, to)?)?;
        match tensor.storage() {
            Storage::Plain(buffer) => Ok(Tensor::from_buffer(to, shape, buffer.clone())?.into()),
            _ => bail!(InvalidArgument, "Cannot bitcast from {from} to {to}"),
        }
    })
}

/// Back to the input's shape; the other input, if there is one, is a shape or an axis.
fn reshape_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x) = (g.scope(), g.input(0));
    let known = x.shape();
    // One unknown dimension follows from the number of elements, unless there are none.
    let wildcard = known.dims().filter(|dims| {
        let fits = |dim: &i64| *dim != 0 && *dim <= i64::from(i32::MAX);
        dims.iter().filter(|dim| **dim < 0).count() == 1 && dims.iter().all(fits)
    });
    let shape = match wildcard {
        Some(dims) => dims.iter().map(|dim| *dim as i32).collect::<Vec<_>>().into(),
        None => shape_of(s, x)?,
    };
    let mut grads = InputGrads::none(g.num_inputs());
    grads.0[0] = Some(ops::reshape(s, g.dy(0)?, shape)?.into());
    Ok(grads)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Code, DType, Shape, Tensor};

    #[test]
    fn shapes_follow_constants() {
        infer("Reshape", "[2,3];[2]", "[?,?]");
        Node::new("Reshape").constant(1, Tensor::vector(vec![-1i32, 2])).infer("[2,3];[2]", "[3,2]");
        Node::new("Reshape").constant(1, Tensor::vector(vec![-1i32, 2])).infer("?;[2]", "[?,2]");
        Node::new("ExpandDims").constant(1, Tensor::scalar(-1i32)).infer("[2,?];[]", "[2,?,1]");
        infer("Squeeze", "[1,2,1]", "[2]");
        infer("Shape", "[1,2,1]", "[3]");
        let widened = Node::new("Bitcast").attr("T", DType::Uint8).attr("type", DType::Float);
        assert_eq!(widened.infer_shapes("[]").unwrap_err().code(), Code::InvalidArgument);
    }

    #[test]
    fn reshaping_shares_memory_and_bitcasting_keeps_bytes() {
        let bytes = Tensor::new(Shape::matrix(1, 4), vec![0u8, 0, 128, 63]).unwrap();
        let out = Node::new("Bitcast").attr("type", DType::Float).run([bytes]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [1.0]);
        assert_eq!(out[0].shape().dims(), [1]);
    }
}

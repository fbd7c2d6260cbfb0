//! Constants, placeholders, and the ops that make a tensor from a shape or from a few numbers.

use crate::families::array::identity::identity_grad;
use crate::linalg::strided_copy::{Layout, copy};
use crate::numeric::{Float, Int, Real};
use crate::support::gradient::sum_of_all;
use crate::support::index::{constant_int, constant_ints, input_ints};
use crate::support::units::by_unit;
use crate::support::variants;
use ferroflow_core::attr::FromAttr;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, OpClass, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::variant::Variant;
use ferroflow_core::{
    C64, C128, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels, status,
};
use ferroflow_proto::tensorflow::attr_value::Value as AttrValue;

pub(crate) const OPS: &[&Op] = &[
    &CONST,
    &HOST_CONST,
    &PLACEHOLDER,
    &PLACEHOLDER_V2,
    &PLACEHOLDER_WITH_DEFAULT,
    &ZEROS_LIKE,
    &ONES_LIKE,
    &FILL,
    &EMPTY,
    &RANGE,
    &LIN_SPACE,
    &ONE_HOT,
];

static CONST: Op = Op {
    name: "Const",
    gradient: Gradient::Stop,
    outputs: &["output: dtype"],
    attrs: &["value: tensor", "dtype: type"],
    shape: const_shape,
    kernels: kernels![any const_kernel],
    class: OpClass::Constant,
    cheap: true,
    ..Op::PURE
};

static HOST_CONST: Op = Op { name: "HostConst", ..CONST };

static PLACEHOLDER: Op = Op {
    name: "Placeholder",
    gradient: Gradient::Stop,
    outputs: &["output: dtype"],
    attrs: &["dtype: type", "shape: shape = <unknown>"],
    shape: placeholder_shape,
    kernels: kernels![any placeholder_kernel],
    class: OpClass::Placeholder,
    cheap: true,
    ..Op::PURE
};

static PLACEHOLDER_V2: Op = Op {
    name: "PlaceholderV2",
    attrs: &["dtype: type", "shape: shape"],
    deprecated_at: Some(23),
    outputs: &["output: dtype"],
    shape: placeholder_shape,
    kernels: kernels![any placeholder_kernel],
    class: OpClass::Placeholder,
    cheap: true,
    ..Op::PURE
};

static PLACEHOLDER_WITH_DEFAULT: Op = Op {
    name: "PlaceholderWithDefault",
    gradient: Gradient::Fn(identity_grad),
    inputs: &["input: dtype"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type", "shape: shape"],
    shape: placeholder_with_default_shape,
    kernels: kernels![any placeholder_with_default_kernel],
    cheap: true,
    ..Op::PURE
};

static ZEROS_LIKE: Op = Op {
    name: "ZerosLike",
    gradient: Gradient::Stop,
    inputs: &["x: T"],
    outputs: &["y: T"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    kernels: kernels![any zeros_like_kernel],
    ..Op::PURE
};

static ONES_LIKE: Op = Op {
    name: "OnesLike",
    gradient: Gradient::Stop,
    inputs: &["x: T"],
    outputs: &["y: T"],
    attrs: &[
        "T: {bfloat16, half, float, double, int8, uint8, int16, uint16, int32, uint32, int64, uint64, complex64, complex128, bool}",
    ],
    shape: shapes::unchanged,
    kernels: kernels![any ones_like_kernel],
    ..Op::PURE
};

static FILL: Op = Op {
    name: "Fill",
    gradient: Gradient::Fn(fill_grad),
    inputs: &["dims: index_type", "value: T"],
    outputs: &["output: T"],
    attrs: &["T: type", "index_type: {int32, int64} = DT_INT32"],
    shape: fill_shape,
    kernels: kernels![any fill_kernel],
    ..Op::PURE
};

static EMPTY: Op = Op {
    name: "Empty",
    inputs: &["shape: int32"],
    outputs: &["output: dtype"],
    attrs: &["dtype: type", "init: bool = false"],
    shape: fill_shape,
    kernels: kernels![any empty_kernel],
    ..Op::STATEFUL
};

static RANGE: Op = Op {
    name: "Range",
    gradient: Gradient::Stop,
    inputs: &["start: Tidx", "limit: Tidx", "delta: Tidx"],
    outputs: &["output: Tidx"],
    attrs: &[
        "Tidx: {bfloat16, half, float, double, int8, int16, int32, int64, uint16, uint32, uint64} = DT_INT32",
    ],
    shape: range_shape,
    kernels: kernels![
        "Tidx" => float_range_kernel: bf16, f16, f32, f64;
        "Tidx" => int_range_kernel: i8, i16, i32, i64, u16, u32, u64
    ],
    ..Op::PURE
};

static LIN_SPACE: Op = Op {
    name: "LinSpace",
    gradient: Gradient::Stop,
    inputs: &["start: T", "stop: T", "num: Tidx"],
    outputs: &["output: T"],
    attrs: &["T: {bfloat16, half, float, double}", "Tidx: {int32, int64} = DT_INT32"],
    shape: lin_space_shape,
    kernels: kernels![lin_space_kernel: f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static ONE_HOT: Op = Op {
    name: "OneHot",
    gradient: Gradient::Stop,
    inputs: &["indices: TI", "depth: int32", "on_value: T", "off_value: T"],
    outputs: &["output: T"],
    attrs: &["axis: int = -1", "T: type", "TI: {uint8, int8, int32, int64} = DT_INT64"],
    shape: one_hot_shape,
    kernels: kernels![any one_hot_kernel],
    ..Op::PURE
};

/// The shape of a tensor attribute, without decoding its elements.
struct ShapeOfTensor(PartialShape);

impl FromAttr for ShapeOfTensor {
    fn from_attr(value: &AttrValue) -> Result<ShapeOfTensor> {
        match value {
            AttrValue::Tensor(tensor) => {
                let proto = tensor.tensor_shape.clone().unwrap_or_default();
                Ok(ShapeOfTensor(PartialShape::from(&Shape::from_proto(&proto)?)))
            }
            _ => bail!(InvalidArgument, "expected a value of kind tensor"),
        }
    }
}

fn const_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let ShapeOfTensor(shape) = s.attr("value")?;
    s.set(0, shape);
    Ok(())
}

fn const_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    let value: Tensor = init
        .attr("value")
        .map_err(|error| error.map_message(|text| format!("Cannot parse tensor from proto: {text}")))?;
    ensure!(
        value.dtype() == dtype,
        InvalidArgument,
        "Type mismatch between value ({}) and dtype ({dtype})",
        value.dtype()
    );
    Kernel::sync(move |_| Ok(value.clone().into()))
}

fn placeholder_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.attr("shape")?;
    s.set(0, shape);
    Ok(())
}

/// A placeholder that runs was not fed.
fn placeholder_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (dtype, shape): (DType, PartialShape) = (init.attr("dtype")?, init.attr("shape")?);
    let mut message =
        format!("You must feed a value for placeholder tensor '{}' with dtype {dtype}", init.node);
    // Stock takes the shape of a scalar for none.
    if shape.dims().is_some_and(|dims| !dims.is_empty()) {
        message.push_str(&format!(" and shape {shape}"));
    }
    Kernel::sync(move |_| bail!(InvalidArgument, "{message}"))
}

fn placeholder_with_default_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.attr("shape")?;
    s.merge(&s.input(0), &shape)?;
    // Whatever is fed has the declared shape; the default may be narrower.
    s.set(0, shape);
    Ok(())
}

fn placeholder_with_default_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.take(0)?.into()))
}

fn zeros_like_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("T")?;
    if dtype == DType::Variant {
        return Kernel::sync(|cx| {
            let input = cx.input(0)?;
            let zeros: Result<Vec<Variant>> =
                input.units::<Variant>()?.iter().map(variants::zeros_like).collect();
            Ok(Tensor::from_units(DType::Variant, input.shape().clone(), zeros?)?.into())
        });
    }
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?.shape().clone();
        let mut out = match cx.take_reusable(&[0], dtype, shape.elements()) {
            Some((_, tensor)) => tensor,
            None => cx.alloc_dtype(dtype, shape)?,
        };
        by_unit!(dtype, U => out.units_mut::<U>()?.fill(U::default()));
        Ok(out.into())
    })
}

/// The number one of a type known at run time.
fn one(dtype: DType) -> Result<Tensor> {
    Ok(match dtype {
        DType::Bfloat16 => bf16::ONE.into(),
        DType::Half => f16::ONE.into(),
        DType::Float => 1f32.into(),
        DType::Double => 1f64.into(),
        DType::Int8 => 1i8.into(),
        DType::Uint8 => 1u8.into(),
        DType::Int16 => 1i16.into(),
        DType::Uint16 => 1u16.into(),
        DType::Int32 => 1i32.into(),
        DType::Uint32 => 1u32.into(),
        DType::Int64 => 1i64.into(),
        DType::Uint64 => 1u64.into(),
        DType::Complex64 => C64::new(1.0, 0.0).into(),
        DType::Complex128 => C128::new(1.0, 0.0).into(),
        DType::Bool => true.into(),
        other => bail!(Unimplemented, "there is no number one of type {other}"),
    })
}

fn ones_like_kernel(init: &Init<'_>) -> Result<Kernel> {
    let one = one(init.attr("T")?)?;
    Kernel::sync(move |cx| Ok(filled(cx, cx.input(0)?.shape().clone(), &one)?.into()))
}

/// A tensor of equal elements.
fn filled(cx: &KernelCx<'_>, shape: Shape, value: &Tensor) -> Result<Tensor> {
    let mut out = cx.alloc_dtype(value.dtype(), shape)?;
    copy(cx.threads(), &Layout::reading(0, [(out.elements(), 0)]), value, &mut out)?;
    Ok(out)
}

fn fill_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(0)?;
    s.set(0, shape);
    Ok(())
}

fn fill_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (dims, value) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            dims.rank() <= 1,
            InvalidArgument,
            "dims must represent a vector, got shape {}",
            dims.shape()
        );
        ensure!(
            value.elements() == 1 && value.rank() <= 1,
            InvalidArgument,
            "value must represent a scalar, got shape {}",
            value.shape()
        );
        Ok(filled(cx, Shape::new(input_ints(cx, 0)?)?, value)?.into())
    })
}

fn empty_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (dtype, zero): (DType, bool) = (init.attr("dtype")?, init.attr("init")?);
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?;
        ensure!(
            shape.rank() == 1,
            InvalidArgument,
            "shape must be a vector of int32, got shape {}",
            shape.shape()
        );
        let shape = Shape::new(input_ints(cx, 0)?)?;
        Ok(if zero { cx.zeros(dtype, shape)? } else { cx.alloc_dtype(dtype, shape)? }.into())
    })
}

/// The three scalars of a range; a vector of one element passes for a scalar.
fn bounds<T: Real>(cx: &KernelCx<'_>) -> Result<[T; 3]> {
    let scalar = |input: usize, name: &str| -> Result<T> {
        let tensor = cx.input(input)?;
        match tensor.flat::<T>()? {
            [value] if tensor.rank() <= 1 => Ok(*value),
            _ => bail!(InvalidArgument, "{name} must be a scalar, not shape {}", tensor.shape()),
        }
    };
    let [start, limit, delta] = [scalar(0, "start")?, scalar(1, "limit")?, scalar(2, "delta")?];
    ensure!(delta != T::ZERO, InvalidArgument, "Requires delta != 0: {}", delta.to_f64());
    if delta > T::ZERO {
        ensure!(
            start <= limit,
            InvalidArgument,
            "Requires start <= limit when delta > 0: {}/{}",
            start.to_f64(),
            limit.to_f64()
        );
    } else {
        ensure!(
            start >= limit,
            InvalidArgument,
            "Requires start >= limit when delta < 0: {}/{}",
            start.to_f64(),
            limit.to_f64()
        );
    }
    Ok([start, limit, delta])
}

/// `start`, `start + delta`, ...; each element is the one before it plus `delta`, rounding included, as in stock.
fn count_up<T: Real>(cx: &KernelCx<'_>, start: T, delta: T, size: usize) -> Result<Tensor> {
    let mut out = cx.alloc::<T>(Shape::vector(size))?;
    let mut next = start;
    for value in out.flat_mut::<T>()? {
        *value = next;
        next = next.add(delta);
    }
    Ok(out)
}

fn too_long() -> ferroflow_core::Status {
    status!(InvalidArgument, "Requires ((limit - start) / delta) <= {}", i64::MAX)
}

fn float_range_kernel<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let [start, limit, delta] = bounds::<T>(cx)?;
        let size = limit.sub(start).div(delta).to_f64().abs().ceil();
        if size.is_nan() || size >= i64::MAX as f64 {
            return Err(too_long());
        }
        Ok(count_up(cx, start, delta, size as usize)?.into())
    })
}

fn int_range_kernel<T: Int>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let [start, limit, delta] = bounds::<T>(cx)?;
        let wide = |value: T| {
            let value = value.to_i64();
            if T::SIGNED { value as i128 } else { value as u64 as i128 }
        };
        let size = (wide(limit) - wide(start)).unsigned_abs().div_ceil(wide(delta).unsigned_abs());
        let size = i64::try_from(size).map_err(|_| too_long())?;
        Ok(count_up(cx, start, delta, size as usize)?.into())
    })
}

fn range_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for input in 0..3 {
        s.rank_at_most(input, 1)?;
    }
    let value = |input: usize| -> Option<f64> {
        let tensor = s.constant(input)?;
        match tensor.dtype() {
            DType::Int32 => Some(*tensor.flat::<i32>().ok()?.first()? as f64),
            DType::Int64 => Some(*tensor.flat::<i64>().ok()?.first()? as f64),
            DType::Float => Some(*tensor.flat::<f32>().ok()?.first()? as f64),
            DType::Double => tensor.flat::<f64>().ok()?.first().copied(),
            _ => None,
        }
    };
    let dtype: DType = s.attr("Tidx")?;
    let size = match (value(0), value(1), value(2)) {
        (Some(start), Some(limit), Some(delta)) => {
            ensure!(delta != 0.0, InvalidArgument, "Requires delta != 0");
            ensure!(
                if delta > 0.0 { start <= limit } else { start >= limit },
                InvalidArgument,
                "Requires start {} limit when delta {} 0: {start}/{limit}",
                if delta > 0.0 { "<=" } else { ">=" },
                if delta > 0.0 { ">" } else { "<" }
            );
            // Single precision divides as the kernel does, so that both agree on the size.
            let size = match dtype {
                DType::Float => ((limit as f32 - start as f32) / delta as f32).abs().ceil() as f64,
                _ => ((limit - start) / delta).abs().ceil(),
            };
            // Beyond 2^53 the quotient is not exact; no tensor has so many elements.
            if size < 9e15 { size as i64 } else { UNKNOWN_DIM }
        }
        _ => UNKNOWN_DIM,
    };
    s.output(0, [size])
}

fn lin_space_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for input in 0..3 {
        s.rank(input, 0)?;
    }
    let num = constant_int(s, 2)?;
    if let Some(num) = num {
        ensure!(num > 0, InvalidArgument, "Requires num > 0: {num}");
    }
    s.output(0, [num.unwrap_or(UNKNOWN_DIM)])
}

fn lin_space_kernel<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        for (input, name) in ["start", "stop", "num"].into_iter().enumerate() {
            let shape = cx.input(input)?.shape();
            ensure!(shape.is_scalar(), InvalidArgument, "{name} must be a scalar, not shape {shape}");
        }
        let (start, stop, num) = (cx.scalar::<T>(0)?, cx.scalar::<T>(1)?, cx.scalar_i64(2)?);
        ensure!(num > 0, InvalidArgument, "Requires num > 0: {num}");
        let mut out = cx.alloc::<T>(Shape::new([num])?)?;
        let values = out.flat_mut::<T>()?;
        let step = stop.sub(start).div(T::from_f64((num - 1).max(1) as f64));
        for (i, value) in values.iter_mut().enumerate() {
            *value = start.add(step.mul(T::from_f64(i as f64)));
        }
        if let [.., last] = values {
            *last = stop;
        }
        if let [first, ..] = values {
            *first = start;
        }
        Ok(out.into())
    })
}

/// The place of the depth among the result's dimensions.
fn one_hot_axis(axis: i64, rank: usize) -> Result<usize> {
    ensure!(
        axis == -1 || (0..=rank as i64).contains(&axis),
        InvalidArgument,
        "Expected axis to be -1 or between [0, {}).  But received: {axis}",
        rank + 1
    );
    Ok(if axis == -1 { rank } else { axis as usize })
}

fn one_hot_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let axis: i64 = s.attr("axis")?;
    ensure!(axis >= -1, InvalidArgument, "axis must be >= -1");
    for input in 1..4 {
        s.rank(input, 0)?;
    }
    let depth = constant_ints(s, 1)?.map_or(UNKNOWN_DIM, |values| values[0]);
    ensure!(depth >= -1, InvalidArgument, "depth must be non-negative, got: {depth}");
    let indices = s.input(0);
    let Some(dims) = indices.dims() else { return Ok(()) };
    let axis = one_hot_axis(axis, dims.len())?;
    s.output(0, dims[..axis].iter().copied().chain([depth]).chain(dims[axis..].iter().copied()))
}

fn one_hot_kernel(init: &Init<'_>) -> Result<Kernel> {
    let axis: i64 = init.attr("axis")?;
    let dtype: DType = init.attr("T")?;
    Kernel::sync(move |cx| {
        for (input, name) in [(1, "depth"), (2, "on_value"), (3, "off_value")] {
            let shape = cx.input(input)?.shape();
            ensure!(shape.is_scalar(), InvalidArgument, "{name} must be a scalar, but got: {shape}");
        }
        let indices = cx.input(0)?;
        let dims = indices.shape().dims();
        let at = one_hot_axis(axis, dims.len())?;
        let depth = cx.scalar_i64(1)?;
        ensure!(depth >= 0, InvalidArgument, "depth must be non-negative, got: {depth}");
        let shape = Shape::new(dims[..at].iter().copied().chain([depth]).chain(dims[at..].iter().copied()))?;
        let suffix = dims[at..].iter().product::<i64>() as usize;
        let places = input_ints(cx, 0)?;
        let mut out = filled(cx, shape, cx.input(3)?)?;
        by_unit!(dtype, U => {
            let on = &cx.input(2)?.units::<U>()?[0];
            let units = out.units_mut::<U>()?;
            for (i, place) in places.iter().enumerate() {
                if (0..depth).contains(place) {
                    let row = i / suffix * depth as usize + *place as usize;
                    units[row * suffix + i % suffix].clone_from(on);
                }
            }
        });
        Ok(out.into())
    })
}

fn fill_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([None, Some(sum_of_all(g.scope(), &g.dy(0)?)?)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::{Code, DType, PartialShape, Tensor};

    #[test]
    fn shapes_follow_constants() {
        infer("Fill", "[2];[]", "[?,?]");
        Node::new("Fill").constant(0, Tensor::vector(vec![2i32, 3])).infer("[2];[]", "[2,3]");
        let scalar = |value: i32| Tensor::scalar(value);
        Node::new("Range")
            .constant(0, scalar(0))
            .constant(1, scalar(7))
            .constant(2, scalar(2))
            .infer("[];[];[]", "[4]");
        Node::new("OneHot").constant(1, scalar(5)).attr("axis", 0).infer("[2,?];[];[];[]", "[5,2,?]");
    }

    #[test]
    fn an_unfed_placeholder_says_what_it_wants() {
        let error = Node::new("Placeholder")
            .attr("dtype", DType::Float)
            .attr("shape", PartialShape::new([-1, 2]).unwrap())
            .run([])
            .unwrap_err();
        assert_eq!(error.code(), Code::InvalidArgument);
        assert_eq!(
            error.message(),
            "You must feed a value for placeholder tensor 'test' with dtype float and shape [?,2]"
        );
    }
}

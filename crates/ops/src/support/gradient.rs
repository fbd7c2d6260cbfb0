//! Parts of gradients shared by several ops: undoing broadcasts and reductions, conjugates, shapes as inputs.

use crate::builders as ops;
use ferroflow_core::op::{GradCx, InputGrads};
use ferroflow_core::scope::{Input, OpBuilder, Output, Scope};
use ferroflow_core::{DType, PartialShape, Result};

/// Gradients of functions of one tensor, each an expression of the scope, the input, the output and the gradient that
/// arrives.
macro_rules! unary_grads {
    ($($name:ident: |$s:ident, $x:pat, $y:pat, $dy:ident| $dx:expr;)+) => {$(
        fn $name(g: &ferroflow_core::op::GradCx<'_>) -> ferroflow_core::Result<ferroflow_core::op::InputGrads> {
            let ($s, $x, $y, $dy) = (g.scope(), g.input(0), &g.output(0)?, &g.dy(0)?);
            Ok([$dx?].into())
        }
    )+};
}

/// Gradients of functions of two tensors that broadcast: a pair of expressions of the scope, both inputs and the gradient
/// that arrives, before repeated elements are summed.
macro_rules! binary_grads {
    ($($name:ident: |$s:ident, $x:ident, $y:ident, $dy:ident| $grads:expr;)+) => {$(
        fn $name(g: &ferroflow_core::op::GradCx<'_>) -> ferroflow_core::Result<ferroflow_core::op::InputGrads> {
            let ($s, $x, $y, $dy) = (g.scope(), g.input(0), g.input(1), &g.dy(0)?);
            let (dx, dy) = $grads;
            $crate::support::gradient::unbroadcast_both(g, dx?, dy?)
        }
    )+};
}

pub(crate) use {binary_grads, unary_grads};

/// The shape of an output as an input of a node: a constant if it is known.
pub(crate) fn shape_of(s: &Scope, x: &Output) -> Result<Input> {
    match x.shape().to_shape() {
        Some(shape) if shape.dims().iter().all(|dim| i32::try_from(*dim).is_ok()) => {
            Ok(shape.dims().iter().map(|dim| *dim as i32).collect::<Vec<i32>>().into())
        }
        _ => Ok(ops::shape(s, x)?.into()),
    }
}

/// The shape of an output as a vector of this type: a constant if it is known.
pub(crate) fn shape_as(s: &Scope, x: &Output, dtype: DType) -> Result<Output> {
    match (x.shape().to_shape(), dtype) {
        (Some(shape), DType::Int64) => s.constant(shape.dims().to_vec()),
        (_, DType::Int32) => shape_output(s, x),
        _ => ops::Shape::new().out_type(dtype).build(s, x),
    }
}

/// The shape of an output as an int32 vector: a constant if it is known.
pub(crate) fn shape_output(s: &Scope, x: &Output) -> Result<Output> {
    match x.shape().to_shape().map(|shape| shape.dims().iter().map(|dim| i32::try_from(*dim)).collect()) {
        Some(Ok::<Vec<i32>, _>(dims)) => s.constant(dims),
        _ => ops::shape(s, x),
    }
}

/// Elements of a vector from `begin` to `end`; negative positions count from the end, and no `end` is the end.
pub(crate) fn part(s: &Scope, vector: &Output, begin: i32, end: Option<i32>) -> Result<Output> {
    let slice = ops::StridedSlice::new();
    let slice = if end.is_none() { slice.end_mask(1) } else { slice };
    slice.build(s, vector, [begin], [end.unwrap_or(0)], [1])
}

/// One element of a vector; negative positions count from the end.
pub(crate) fn element(s: &Scope, vector: &Output, index: i32) -> Result<Output> {
    let slice = ops::StridedSlice::new().shrink_axis_mask(1);
    // From the last element there is no position after it to stop at.
    let slice = if index == -1 { slice.end_mask(1) } else { slice };
    slice.build(s, vector, [index], [index.wrapping_add(1)], [1])
}

/// The conjugate of a complex value; a real value itself.
pub(crate) fn conj(s: &Scope, x: &Output) -> Result<Output> {
    if x.dtype().is_complex() { ops::conj(s, x) } else { Ok(x.clone()) }
}

/// The name of the scope of the call of `gradients` that a scope belongs to, the bodies of functions included.
pub(crate) fn gradients_name(s: &Scope) -> String {
    let parts: Vec<&str> = s.prefix().trim_end_matches('/').split('/').collect();
    let own = parts.len().saturating_sub(1);
    let end = parts.iter().rposition(|part| part.starts_with("gradients")).map_or(own, |at| at + 1);
    parts[..end].join("/")
}

/// Gradients of both inputs of an elementwise op, each summed over the dimensions in which its input was repeated.
pub(crate) fn unbroadcast_both(g: &GradCx<'_>, dx: Output, dy: Output) -> Result<InputGrads> {
    let (s, x, y) = (g.scope(), g.input(0), g.input(1));
    Ok([unbroadcast(s, dx, x, y)?, unbroadcast(s, dy, y, x)?].into())
}

/// The gradient of `x` from that of an elementwise result of `x` and `other`: summed over the dimensions in which `x`
/// was repeated.
pub(crate) fn unbroadcast(s: &Scope, grad: Output, x: &Output, other: &Output) -> Result<Output> {
    let (x_shape, other_shape) = (x.shape(), other.shape());
    let known = repeated_axes(&x_shape, &other_shape);
    if known.as_ref().is_some_and(Vec::is_empty) && x_shape.rank() >= other_shape.rank() {
        return Ok(grad);
    }
    let shape = shape_of(s, x)?;
    let axes: Input = match known {
        Some(axes) => axes.into(),
        None => ops::broadcast_gradient_args(s, shape.clone(), shape_of(s, other)?)?.r0.into(),
    };
    ops::reshape(s, ops::Sum::new().keep_dims(true).build(s, grad, axes), shape)
}

/// The dimensions of the result in which `x` is repeated to meet `other`; `None` if they are not known.
fn repeated_axes(x: &PartialShape, other: &PartialShape) -> Option<Vec<i32>> {
    let (x, other) = (x.dims()?, other.dims()?);
    let rank = x.len().max(other.len());
    let padded = |dims: &[i64], axis: usize| (axis + dims.len()).checked_sub(rank).map_or(1, |at| dims[at]);
    let mut axes = Vec::new();
    for axis in 0..rank {
        match (padded(x, axis), padded(other, axis)) {
            (1, 1) => {}
            (1, _) => axes.push(axis as i32),
            (_, 1) => {}
            (-1, _) | (_, -1) => return None,
            _ => {}
        }
    }
    Some(axes)
}

/// A reduction's gradient (or result) with the reduced dimensions back as ones, so that it broadcasts against the
/// input. The operation's inputs are the reduced value and the axes.
pub(crate) fn unreduced(g: &GradCx<'_>, reduced: Output) -> Result<Output> {
    let (s, x, axes) = (g.scope(), g.input(0), g.input(1));
    if g.attr::<bool>("keep_dims")? {
        return Ok(reduced);
    }
    if let (Some(rank), Some(known)) = (x.shape().rank(), axes.value()) {
        let wrapped = |axis: i64| if axis < 0 { axis + rank as i64 } else { axis };
        let mut known: Vec<i64> = known.to_i64s()?.into_iter().map(wrapped).collect();
        known.sort_unstable();
        let mut expanded = reduced;
        for axis in known {
            expanded = ops::expand_dims(s, expanded, axis as i32)?;
        }
        return Ok(expanded);
    }
    let kept = kept_shape(s, &ops::shape(s, x)?, axes)?;
    ops::reshape(s, reduced, kept)
}

/// A node of another op that has some of the operation's attributes: lists of integers, then texts.
pub(crate) fn sibling(g: &GradCx<'_>, op: &str, lists: &[&str], texts: &[&str]) -> Result<OpBuilder> {
    let mut builder = g.scope().op(op);
    for name in lists {
        builder = builder.attr(name, g.attr::<Vec<i64>>(name)?);
    }
    for name in texts {
        builder = builder.attr(name, g.attr::<String>(name)?);
    }
    Ok(builder)
}

/// A shape with ones in place of the dimensions of some axes.
pub(crate) fn kept_shape(s: &Scope, shape: &Output, axes: &Output) -> Result<Output> {
    let rank = ops::size(s, shape)?;
    let axes = wrapped_axes(s, axes, &rank)?;
    let ones = ops::fill(s, ops::shape(s, &axes), 1)?;
    ops::dynamic_stitch(s, [&ops::range(s, 0, &rank, 1)?, &axes], [shape, &ones])
}

/// Axes as an int32 vector of positions that count from the front.
pub(crate) fn wrapped_axes(s: &Scope, axes: &Output, rank: &Output) -> Result<Output> {
    let axes = ops::reshape(s, axes, [-1])?;
    let axes = if axes.dtype() == DType::Int32 { axes } else { ops::cast(s, axes, DType::Int32)? };
    ops::floor_mod(s, ops::add_v2(s, axes, rank), rank)
}

/// The operands of the products that are the gradients of `a` and `b`, with whether each is transposed. `0` and `1` are
/// `a` and `b`, `2` is what arrives.
pub(crate) type Factors = [(usize, usize, bool, bool); 2];

/// The gradients of a product whose factors may be transposed.
pub(crate) fn product_factors(transpose_a: bool, transpose_b: bool) -> Factors {
    match (transpose_a, transpose_b) {
        (false, false) => [(2, 1, false, true), (0, 2, true, false)],
        (false, true) => [(2, 1, false, false), (2, 0, true, false)],
        (true, false) => [(1, 2, false, true), (0, 2, false, false)],
        (true, true) => [(1, 2, true, true), (2, 0, true, true)],
    }
}

/// The sum of all elements.
pub(crate) fn sum_of_all(s: &Scope, x: &Output) -> Result<Output> {
    ops::sum(s, x, ops::range(s, 0, ops::rank(s, x), 1))
}

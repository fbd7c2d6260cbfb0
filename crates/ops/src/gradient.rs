//! What gradients of several ops share: undoing broadcasts and reductions, conjugates, shapes as inputs.

use crate::build as ops;
use ferroflow_core::op::GradCx;
use ferroflow_core::scope::{Input, OpBuilder, Output, Scope};
use ferroflow_core::{PartialShape, Result};

/// The shape of an output as an input of a node: a constant if it is known.
pub(crate) fn shape_of(s: &Scope, x: &Output) -> Result<Input> {
    match x.shape().to_shape() {
        Some(shape) if shape.dims().iter().all(|dim| i32::try_from(*dim).is_ok()) => {
            Ok(shape.dims().iter().map(|dim| *dim as i32).collect::<Vec<i32>>().into())
        }
        _ => Ok(ops::shape(s, x)?.into()),
    }
}

/// The conjugate of a complex value; a real value itself.
pub(crate) fn conj(s: &Scope, x: &Output) -> Result<Output> {
    if x.dtype().is_complex() { ops::conj(s, x) } else { Ok(x.clone()) }
}

/// The gradient of `x` from that of an elementwise result of `x` and `other`: summed over the dimensions in which `x`
/// was repeated.
pub(crate) fn unbroadcast(s: &Scope, grad: Output, x: &Output, other: &Output) -> Result<Output> {
    let (x_shape, other_shape) = (x.shape(), other.shape());
    match never_repeated(&x_shape, &other_shape) {
        Some(true) => Ok(grad),
        _ => {
            let shape = shape_of(s, x)?;
            let axes = ops::broadcast_gradient_args(s, shape.clone(), shape_of(s, other)?)?.r0;
            ops::reshape(s, ops::sum(s, grad, axes), shape)
        }
    }
}

/// Whether no element of `x` meets several of `other`; `None` if that is not known.
fn never_repeated(x: &PartialShape, other: &PartialShape) -> Option<bool> {
    let (x, other) = (x.dims()?, other.dims()?);
    if x.len() < other.len() {
        return Some(false);
    }
    let other = std::iter::repeat_n(&1, x.len() - other.len()).chain(other);
    x.iter().zip(other).try_fold(true, |never, (x, other)| match (*x, *other) {
        (1, 1) => Some(never),
        (1, -1) | (-1, _) => None,
        (1, _) => Some(false),
        _ => Some(never),
    })
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
    let shape = ops::shape(s, x)?;
    let rank = ops::size(s, &shape)?;
    let axes = ops::cast(s, axes, shape.dtype())?;
    let axes = ops::floor_mod(s, ops::add_v2(s, axes, &rank), &rank)?;
    let ones = ops::fill(s, ops::shape(s, &axes), 1)?;
    let kept = ops::dynamic_stitch(s, [&ops::range(s, 0, &rank, 1)?, &axes], [&shape, &ones])?;
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

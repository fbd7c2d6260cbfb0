//! Gradients kept within bounds.

use crate::reduce;
use ferroflow_core::op::{Grad, IndexedSlices};
use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{Result, bail};
use ferroflow_ops::build as ops;

/// The same gradient with other values.
fn with_values(grad: &Grad, values: Output) -> Grad {
    match grad {
        Grad::Dense(_) => Grad::Dense(values),
        Grad::Sparse(rows) => Grad::Sparse(IndexedSlices { values, ..rows.clone() }),
    }
}

/// Each element between `low` and `high`.
#[track_caller]
pub fn clip_by_value(
    scope: &Scope,
    grad: &Grad,
    low: impl Into<Input>,
    high: impl Into<Input>,
) -> Result<Grad> {
    let inner = scope.scope("clip_by_value");
    let below = ops::minimum(&inner, grad.values(), high)?;
    Ok(with_values(grad, ops::Maximum::new().name(inner.prefix()).build(&inner, &below, low)?))
}

/// The gradient, made shorter if it is longer than `norm`.
#[track_caller]
pub fn clip_by_norm(scope: &Scope, grad: &Grad, norm: impl Into<Input>) -> Result<Grad> {
    let (inner, norm) = (scope.scope("clip_by_norm"), norm.into());
    let values = grad.values();
    let squares = reduce::sum_all(&inner, ops::mul(&inner, values, values)?)?;
    // The root of zero has no gradient, so it is kept away from.
    let positive = ops::greater(&inner, &squares, 0.0)?;
    let safe = ops::select_v2(&inner, &positive, &squares, 1.0)?;
    let length = ops::select_v2(&inner, &positive, ops::sqrt(&inner, &safe), &squares)?;
    let scaled = ops::mul(&inner, values, &norm)?;
    let clipped = ops::real_div(&inner, &scaled, ops::maximum(&inner, &length, &norm))?;
    Ok(with_values(grad, ops::Identity::new().name(inner.prefix()).build(&inner, &clipped)?))
}

/// The length of all gradients together.
#[track_caller]
pub fn global_norm(scope: &Scope, grads: &[Option<Grad>]) -> Result<Output> {
    let inner = scope.scope("global_norm");
    let half = |grad: &Grad| ops::l2_loss(&inner.colocate_with(grad.values()), grad.values());
    let halves = grads.iter().flatten().map(half).collect::<Result<Vec<_>>>()?;
    if halves.is_empty() {
        bail!(InvalidArgument, "there are no gradients to measure");
    }
    let sum = ops::sum(&inner, ops::pack(&inner, &halves), [0])?;
    ops::Sqrt::new().name("global_norm").build(&inner, ops::mul(&inner, &sum, 2.0))
}

/// All gradients, made shorter by one factor if together they are longer than `norm`; and how long they were. If that is
/// infinite or not a number, so are they.
#[track_caller]
pub fn clip_by_global_norm(
    scope: &Scope,
    grads: &[Option<Grad>],
    norm: f64,
) -> Result<(Vec<Option<Grad>>, Output)> {
    let length = global_norm(scope, grads)?;
    let inner = scope.scope("clip_by_global_norm");
    let inverse = ops::minimum(&inner, ops::real_div(&inner, 1.0, &length), 1.0 / norm)?;
    let scale = ops::mul(&inner, norm, &inverse)?;
    let scale = ops::add_v2(&inner, &scale, ops::sub(&inner, &length, &length))?;
    let clip = |grad: &Option<Grad>| {
        let Some(grad) = grad else { return Ok(None) };
        let place = inner.colocate_with(grad.values());
        Ok(Some(with_values(grad, ops::mul(&place, grad.values(), &scale)?)))
    };
    Ok((grads.iter().map(clip).collect::<Result<_>>()?, length))
}

//! Gradient clipping. Sparse gradients stay sparse unless stated otherwise.

use crate::arithmetic::{add, cast, div, mul, sub};
use crate::optimizers::Scalar;
use crate::reduce;
use ferroflow_core::op::{Grad, IndexedSlices};
use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{DType, Result, ensure};
use ferroflow_ops::builders as ops;

/// Replaces the values of a gradient.
fn with_values(grad: &Grad, values: Output) -> Grad {
    match grad {
        Grad::Dense(_) => Grad::Dense(values),
        Grad::Sparse(rows) => Grad::Sparse(IndexedSlices { values, ..rows.clone() }),
    }
}

/// Limits each element to the range from `low` to `high`.
///
/// ```
/// use ferroflow::{Grad, Graph, Session, clip};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let grad = Grad::Dense(s.constant([-3.0f32, 0.5, 4.0])?);
/// let clipped = clip::clip_by_value(&s, &grad, -1.0, 1.0)?;
/// assert_eq!(Session::new(&graph)?.eval(clipped.values())?.flat::<f32>()?, [-1.0, 0.5, 1.0]);
/// # Ok::<(), ferroflow::Status>(())
/// ```
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

/// Scales a gradient down to the L2 norm `norm` if its own is larger. The norm of a sparse gradient is that of its rows.
///
/// ```
/// use ferroflow::{Grad, Graph, clip::clip_by_norm};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let grad = Grad::Dense(s.constant([3.0f32, 4.0])?);
/// let clipped = clip_by_norm(&s, &grad, 1.0)?;
/// assert_eq!(clipped.values().name(), "clip_by_norm:0");
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn clip_by_norm(scope: &Scope, grad: &Grad, norm: impl Into<Scalar>) -> Result<Grad> {
    let axes = |inner: &Scope| reduce::axes(inner, grad.values());
    clipped_by_norm(scope, grad, norm.into(), axes)
}

/// Scales each part of a gradient along `axes` down to the L2 norm `norm` if its own is larger.
#[track_caller]
pub fn clip_by_norm_along(scope: &Scope, grad: &Grad, norm: impl Into<Scalar>, axes: &[i32]) -> Result<Grad> {
    clipped_by_norm(scope, grad, norm.into(), |_| Ok(axes.into()))
}

#[track_caller]
fn clipped_by_norm(
    scope: &Scope,
    grad: &Grad,
    norm: Scalar,
    axes: impl Fn(&Scope) -> Result<Input>,
) -> Result<Grad> {
    let inner = scope.scope("clip_by_norm");
    let values = grad.values();
    let norm: Input = match norm {
        Scalar::Fixed(number) => number.max(0.0).into(),
        Scalar::Output(norm) => cast(&inner, &ops::maximum(&inner, &norm, 0)?, values.dtype())?.into(),
    };
    let squares = mul(&inner, values, values)?;
    let squares = ops::Sum::new().keep_dims(true).build(&inner, &squares, axes(&inner)?)?;
    // The square root has no finite gradient at zero, so zeros are replaced before it and put back after it.
    let positive = ops::greater(&inner, &squares, 0)?;
    let safe = ops::select_v2(&inner, &positive, &squares, ops::ones_like(&inner, &squares))?;
    let length = ops::select_v2(&inner, &positive, ops::sqrt(&inner, &safe), &squares)?;
    let scaled = mul(&inner, values, &norm)?;
    let clipped = div(&inner, &scaled, ops::maximum(&inner, &length, &norm))?;
    Ok(with_values(grad, ops::Identity::new().name(inner.prefix()).build(&inner, &clipped)?))
}

/// Scales a gradient down if its L2 norm per element is larger than `norm`. A sparse gradient becomes dense, as in
/// TensorFlow.
///
/// # Errors
///
/// `InvalidArgument` if `norm` is not positive.
#[track_caller]
pub fn clip_by_average_norm(scope: &Scope, grad: &Grad, norm: f64) -> Result<Grad> {
    check_norm(norm)?;
    let inner = scope.scope("clip_by_average_norm");
    let values = grad.to_dense(&inner)?;
    let elements = reduce::count(&inner, &values, DType::Float)?;
    let elements = cast(&inner, &elements, values.dtype())?;
    let inverse = ops::rsqrt(&inner, reduce::sum_all(&inner, mul(&inner, &values, &values)?)?)?;
    let factor = ops::minimum(&inner, mul(&inner, &inverse, &elements), 1.0 / norm)?;
    let clipped = mul(&inner, mul(&inner, &values, norm), &factor)?;
    Ok(Grad::Dense(ops::Identity::new().name(inner.prefix()).build(&inner, &clipped)?))
}

/// Returns the L2 norm of all gradients together.
///
/// # Errors
///
/// `InvalidArgument` if there is no gradient.
///
/// ```
/// use ferroflow::{Grad, Graph, Session, clip};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let grads = [Some(Grad::Dense(s.constant([3.0f32])?)), None, Some(Grad::Dense(s.constant([4.0f32])?))];
/// let norm = clip::global_norm(&s, &grads)?;
/// assert_eq!(Session::new(&graph)?.eval(&norm)?.to_scalar::<f32>()?, 5.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[track_caller]
pub fn global_norm(scope: &Scope, grads: &[Option<Grad>]) -> Result<Output> {
    let inner = scope.scope("global_norm");
    let half = |grad: &Grad| ops::l2_loss(&inner.colocate_with(grad.values()), grad.values());
    let halves = grads.iter().flatten().map(half).collect::<Result<Vec<_>>>()?;
    ensure!(
        !halves.is_empty(),
        InvalidArgument,
        "there are no gradients to measure: the loss does not depend on any of the variables"
    );
    let sum = ops::sum(&inner, ops::Pack::new().name("stack").build(&inner, &halves), [0])?;
    ops::Sqrt::new().name("global_norm").build(&inner, mul(&inner, &sum, 2.0))
}

/// Scales all gradients by one factor if their joint L2 norm is larger than `norm`, and returns them with that joint
/// norm. If it is infinite or NaN, all gradients become NaN.
///
/// # Errors
///
/// `InvalidArgument` if `norm` is not positive or there is no gradient.
///
/// ```
/// use ferroflow::optimizers::{GradientDescent, Optimizer};
/// use ferroflow::variables::trainable_variables;
/// use ferroflow::{Graph, Variable, clip, initializers, ops};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let w = Variable::new(&s, "w", [3], initializers::ones())?;
/// let loss = ops::sum(&s, ops::square(&s, &w), [0])?;
/// let optimizer = GradientDescent::new(0.1);
/// let (grads, variables): (Vec<_>, Vec<_>) =
///     optimizer.compute_gradients(&s, &loss, &trainable_variables(&graph)?)?.into_iter().unzip();
/// let (grads, _norm) = clip::clip_by_global_norm(&s, &grads, 5.0)?;
/// let grads: Vec<_> = grads.into_iter().zip(variables).collect();
/// optimizer.apply_gradients(&s, &grads, None)?;
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn clip_by_global_norm(
    scope: &Scope,
    grads: &[Option<Grad>],
    norm: f64,
) -> Result<(Vec<Option<Grad>>, Output)> {
    check_norm(norm)?;
    let total = global_norm(scope, grads)?;
    let inner = scope.scope("clip_by_global_norm");
    let bound = div(&inner, ops::ones_like(&inner, &total), norm)?;
    let inverse = ops::minimum(&inner, div(&inner, 1.0, &total), &bound)?;
    let scale = mul(&inner, norm, &inverse)?;
    // `total - total` is zero, or NaN if the norm is not finite.
    let scale = add(&inner, &scale, sub(&inner, &total, &total))?;
    let mut clipped = Vec::with_capacity(grads.len());
    for (i, grad) in grads.iter().enumerate() {
        let Some(grad) = grad else {
            clipped.push(None);
            continue;
        };
        let place = inner.colocate_with(grad.values());
        let values = mul(&place, grad.values(), cast(&place, &scale, grad.dtype()))?;
        let name = format!("clip_by_global_norm_{i}");
        clipped.push(Some(with_values(grad, ops::Identity::new().name(&name).build(&place, &values)?)));
    }
    Ok((clipped, total))
}

fn check_norm(norm: f64) -> Result<()> {
    ensure!(norm > 0.0, InvalidArgument, "the norm to clip by must be positive, not {norm}");
    Ok(())
}

//! Metrics over many steps, in local variables that update ops change, as stock's `tf.compat.v1.metrics` keeps them.
//!
//! ```
//! use ferroflow::{Graph, metrics};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! let s = graph.scope();
//! let labels = s.constant([1i64, 2, 3])?;
//! let predictions = s.constant([1i64, 2, 0])?;
//! let accuracy = metrics::accuracy(&s, &labels, &predictions)?;
//! // Run `accuracy.update` for every batch, then fetch `accuracy.value`.
//! assert_eq!(accuracy.value.name(), "accuracy/value:0");
//! # Ok(())
//! # }
//! ```

use crate::initializers;
use crate::reduce;
use crate::variables::{Variable, collections};
use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, ensure};
use ferroflow_ops::build as ops;

/// A metric: its value so far, and the value after the update by the step's batch.
#[derive(Clone, Debug)]
pub struct Metric {
    /// The value so far.
    pub value: Output,
    /// Adds the step's batch, and gives the value after that.
    pub update: Output,
}

/// Adds a local variable of zeros.
fn counter(scope: &Scope, name: &str, dims: &[i64]) -> Result<Variable> {
    Variable::spec(name, dims.iter().copied())
        .initializer(initializers::zeros())
        .trainable(false)
        .collections([collections::LOCAL_VARIABLES, collections::METRIC_VARIABLES])
        .build(scope)
}

/// Adds to a counter and reads it.
fn count(scope: &Scope, counter: &Variable, amount: &Output) -> Result<Output> {
    let added = counter.assign_add(scope, amount)?;
    counter.read(&scope.control([&added]))
}

fn to_float(scope: &Scope, x: impl Into<Input>) -> Result<Output> {
    let x = ops::identity(scope, x)?;
    if x.dtype() == DType::Float { Ok(x) } else { ops::cast(scope, &x, DType::Float) }
}

fn to_bool(scope: &Scope, x: impl Into<Input>) -> Result<Output> {
    let x = ops::identity(scope, x)?;
    if x.dtype() == DType::Bool { Ok(x) } else { ops::cast(scope, &x, DType::Bool) }
}

/// The mean of all values so far.
#[track_caller]
pub fn mean(scope: &Scope, values: impl Into<Input>) -> Result<Metric> {
    mean_named(scope, "mean", values)
}

#[track_caller]
fn mean_named(scope: &Scope, name: &str, values: impl Into<Input>) -> Result<Metric> {
    let inner = scope.scope(name);
    let values = to_float(&inner, values)?;
    let (total, number) = (counter(&inner, "total", &[])?, counter(&inner, "count", &[])?);
    let seen = reduce::count(&inner, &values, DType::Float)?;
    let total_after = count(&inner, &total, &reduce::sum_all(&inner, &values)?)?;
    // Values that cannot be computed must not be counted.
    let number_after = count(&inner.control([&values]), &number, &seen)?;
    let quotient = |name: &str, total: &Output, number: &Output| {
        let number = ops::maximum(&inner, number, 0.0)?;
        ops::DivNoNan::new().name(name).build(&inner, total, &number)
    };
    let value = quotient("value", &total.read(&inner)?, &number.read(&inner)?)?;
    Ok(Metric { value, update: quotient("update_op", &total_after, &number_after)? })
}

/// How many predictions equal their labels.
#[track_caller]
pub fn accuracy(scope: &Scope, labels: impl Into<Input>, predictions: impl Into<Input>) -> Result<Metric> {
    let labels = ops::identity(scope, labels)?;
    let predictions = ops::identity(scope, predictions)?;
    let predictions = match predictions.dtype() == labels.dtype() {
        true => predictions,
        false => ops::cast(scope, &predictions, labels.dtype())?,
    };
    let right = ops::cast(scope, ops::equal(scope, &predictions, &labels), DType::Float)?;
    mean_named(scope, "accuracy", &right)
}

/// The mean of squared differences.
#[track_caller]
pub fn mean_squared_error(
    scope: &Scope,
    labels: impl Into<Input>,
    predictions: impl Into<Input>,
) -> Result<Metric> {
    mean_named(scope, "mean_squared_error", ops::squared_difference(scope, predictions, labels)?)
}

/// Counts where both conditions hold.
fn count_both(scope: &Scope, name: &str, a: &Output, b: &Output) -> Result<(Variable, Output)> {
    let inner = scope.scope(name);
    let both = ops::cast(&inner, ops::logical_and(&inner, a, b), DType::Float)?;
    let number = counter(&inner, "count", &[])?;
    let after = count(&inner, &number, &reduce::sum_all(&inner, &both)?)?;
    Ok((number, after))
}

/// `hits / (hits + misses)`, zero without either.
fn share(scope: &Scope, name: &str, hits: &Output, misses: &Output) -> Result<Output> {
    let all = ops::add_v2(scope, hits, misses)?;
    let share = ops::div_no_nan(scope, hits, &all)?;
    ops::Identity::new().name(name).build(scope, &share)
}

/// The share of true ones among the elements that were predicted to be true.
#[track_caller]
pub fn precision(scope: &Scope, labels: impl Into<Input>, predictions: impl Into<Input>) -> Result<Metric> {
    let inner = scope.scope("precision");
    let (labels, predictions) = (to_bool(&inner, labels)?, to_bool(&inner, predictions)?);
    let (hits, hits_after) = count_both(&inner, "true_positives", &labels, &predictions)?;
    let wrong = ops::logical_not(&inner, &labels)?;
    let (misses, misses_after) = count_both(&inner, "false_positives", &wrong, &predictions)?;
    Ok(Metric {
        value: share(&inner, "value", &hits.read(&inner)?, &misses.read(&inner)?)?,
        update: share(&inner, "update_op", &hits_after, &misses_after)?,
    })
}

/// The share of elements that were predicted to be true among the true ones.
#[track_caller]
pub fn recall(scope: &Scope, labels: impl Into<Input>, predictions: impl Into<Input>) -> Result<Metric> {
    let inner = scope.scope("recall");
    let (labels, predictions) = (to_bool(&inner, labels)?, to_bool(&inner, predictions)?);
    let (hits, hits_after) = count_both(&inner, "true_positives", &labels, &predictions)?;
    let missed = ops::logical_not(&inner, &predictions)?;
    let (misses, misses_after) = count_both(&inner, "false_negatives", &labels, &missed)?;
    Ok(Metric {
        value: share(&inner, "value", &hits.read(&inner)?, &misses.read(&inner)?)?,
        update: share(&inner, "update_op", &hits_after, &misses_after)?,
    })
}

/// Which curve [`auc`] measures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// True over false positives.
    #[default]
    Roc,
    /// Precision over recall.
    PrecisionRecall,
}

/// The area under a curve, by trapezoids between `thresholds` predictions from 0 to 1; 200 is usual.
#[track_caller]
pub fn auc(
    scope: &Scope,
    labels: impl Into<Input>,
    predictions: impl Into<Input>,
    thresholds: usize,
    curve: Curve,
) -> Result<Metric> {
    ensure!(thresholds >= 2, InvalidArgument, "a curve needs at least two thresholds, not {thresholds}");
    let inner = scope.scope("auc");
    let labels = ops::reshape(&inner, to_bool(&inner, labels), [1, -1])?;
    let predictions = ops::reshape(&inner, to_float(&inner, predictions), [1, -1])?;
    // The ends lie a little outside, so that every prediction is between them.
    let mut limits = vec![-1e-7f32];
    limits.extend((1..thresholds - 1).map(|i| (i as f64 / (thresholds - 1) as f64) as f32));
    limits.push(1.0 + 1e-7);
    let limits = Tensor::new(ferroflow_core::Shape::matrix(thresholds, 1), limits)?;
    let above = ops::greater(&inner, &predictions, limits)?;
    let below = ops::logical_not(&inner, &above)?;
    let wrong = ops::logical_not(&inner, &labels)?;
    let tally = |name: &str, a: &Output, b: &Output| {
        let number = counter(&inner, name, &[thresholds as i64])?;
        let both = ops::cast(&inner, ops::logical_and(&inner, a, b), DType::Float)?;
        let after = count(&inner, &number, &ops::sum(&inner, &both, [1])?)?;
        Ok((number.read(&inner)?, after))
    };
    let tallies = [
        tally("true_positives", &labels, &above)?,
        tally("false_negatives", &labels, &below)?,
        tally("true_negatives", &wrong, &below)?,
        tally("false_positives", &wrong, &above)?,
    ];
    let [tp, fn_, tn, fp] = &tallies;
    let now = area(&inner, [&tp.0, &fn_.0, &tn.0, &fp.0], thresholds, curve)?;
    let after = area(&inner, [&tp.1, &fn_.1, &tn.1, &fp.1], thresholds, curve)?;
    Ok(Metric {
        value: ops::Identity::new().name("value").build(&inner, &now)?,
        update: ops::Identity::new().name("update_op").build(&inner, &after)?,
    })
}

fn area(scope: &Scope, [tp, fn_, tn, fp]: [&Output; 4], thresholds: usize, curve: Curve) -> Result<Output> {
    const EPSILON: f64 = 1e-6;
    let padded = |x: &Output| ops::add_v2(scope, x, EPSILON);
    let recall = ops::real_div(scope, padded(tp), padded(&ops::add_v2(scope, tp, fn_)?))?;
    let (x, y) = match curve {
        Curve::Roc => (ops::real_div(scope, fp, padded(&ops::add_v2(scope, fp, tn)?))?, recall),
        Curve::PrecisionRecall => {
            (recall, ops::real_div(scope, padded(tp), padded(&ops::add_v2(scope, tp, fp)?))?)
        }
    };
    let last = thresholds as i32;
    let head = |x: &Output| ops::strided_slice(scope, x, [0], [last - 1], [1]);
    let tail = |x: &Output| ops::strided_slice(scope, x, [1], [last], [1]);
    let width = ops::sub(scope, head(&x), tail(&x))?;
    let height = ops::real_div(scope, ops::add_v2(scope, head(&y), tail(&y)), 2.0)?;
    ops::sum(scope, ops::mul(scope, &width, &height), [0])
}

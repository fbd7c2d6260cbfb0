//! Metrics that accumulate over steps in local variables, like those of TensorFlow's `tf.compat.v1.metrics`.
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
use ferroflow_ops::builders as ops;

/// A metric that accumulates over batches.
#[derive(Clone, Debug)]
pub struct Metric {
    /// Value over all batches so far.
    pub value: Output,
    /// Accumulates the batch of the step, and returns the value including it.
    pub update: Output,
}

/// Adds a local variable of zeros.
fn counter(scope: &Scope, name: &str, dims: &[i64]) -> Result<Variable> {
    Variable::spec(name, dims)
        .initializer(initializers::zeros())
        .trainable(false)
        .collections([collections::LOCAL_VARIABLES, collections::METRIC_VARIABLES])
        .build(scope)
}

/// Adds to a counter and reads the sum.
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

/// Weights the elements of a batch. The shape of the weights must broadcast to that of the values, labels or predictions.
///
/// ```
/// use ferroflow::{Graph, Session, metrics, variables};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// // The second element only fills the batch.
/// let error = metrics::weighted([1.0f32, 0.0]).mean_absolute_error(&s, [1.0f32, 2.0], [1.5f32, 9.0])?;
/// let init = variables::local_variables_initializer(&s)?;
/// let session = Session::new(&graph)?;
/// session.execute(&init)?;
/// assert_eq!(session.eval(&error.update)?.to_scalar::<f32>()?, 0.5);
/// # Ok(())
/// # }
/// ```
pub fn weighted(weights: impl Into<Input>) -> MetricOptions {
    MetricOptions { weights: Some(weights.into()) }
}

/// Weights of the elements in a metric; see [`weighted`]. Its methods add the metrics.
#[derive(Clone, Debug, Default)]
pub struct MetricOptions {
    weights: Option<Input>,
}

macro_rules! shortcuts {
    ($($(#[$doc:meta])* $name:ident($($arg:ident),+ $(; $($more:ident: $type:ty),+)?);)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(scope: &Scope, $($arg: impl Into<Input>),+ $($(, $more: $type)+)?) -> Result<Metric> {
            MetricOptions::default().$name(scope, $($arg),+ $($(, $more)+)?)
        }
    )*};
}

shortcuts! {
    /// Adds the mean of all values.
    mean(values);
    /// Adds the fraction of predictions that equal their labels.
    accuracy(labels, predictions);
    /// Adds the mean of squared differences.
    mean_squared_error(labels, predictions);
    /// Adds the square root of the mean of squared differences.
    root_mean_squared_error(labels, predictions);
    /// Adds the mean of absolute differences.
    mean_absolute_error(labels, predictions);
    /// Counts the true elements that were predicted to be true.
    true_positives(labels, predictions);
    /// Counts the false elements that were predicted to be true.
    false_positives(labels, predictions);
    /// Counts the false elements that were predicted to be false.
    true_negatives(labels, predictions);
    /// Counts the true elements that were predicted to be false.
    false_negatives(labels, predictions);
    /// Adds the fraction of true elements among those predicted to be true.
    precision(labels, predictions);
    /// Adds the fraction of elements predicted to be true among the true ones.
    recall(labels, predictions);
    /// Adds the area under a curve, by the trapezoidal rule over `thresholds` predictions from 0 to 1; TensorFlow uses 200.
    auc(labels, predictions; thresholds: usize, curve: Curve);
}

/// Defines a method that counts the elements whose label and prediction have the given values.
macro_rules! counts {
    ($($name:ident = ($label:literal, $prediction:literal);)*) => {$(
        #[doc = concat!("See [`", stringify!($name), "`].")]
        #[track_caller]
        pub fn $name(
            &self,
            scope: &Scope,
            labels: impl Into<Input>,
            predictions: impl Into<Input>,
        ) -> Result<Metric> {
            let labels = as_given(scope, &to_bool(scope, labels)?, $label)?;
            let predictions = as_given(scope, &to_bool(scope, predictions)?, $prediction)?;
            self.count_both(scope, stringify!($name), &labels, &predictions)
        }
    )*};
}

/// Returns the condition, or its negation if `wanted` is `false`.
fn as_given(scope: &Scope, condition: &Output, wanted: bool) -> Result<Output> {
    if wanted { Ok(condition.clone()) } else { ops::logical_not(scope, condition) }
}

impl MetricOptions {
    /// See [`mean`].
    #[track_caller]
    pub fn mean(&self, scope: &Scope, values: impl Into<Input>) -> Result<Metric> {
        self.mean_named(scope, "mean", values)
    }

    #[track_caller]
    fn mean_named(&self, scope: &Scope, name: &str, values: impl Into<Input>) -> Result<Metric> {
        let inner = scope.scope(name);
        let mut values = to_float(&inner, values)?;
        let (total, number) = (counter(&inner, "total", &[])?, counter(&inner, "count", &[])?);
        let seen = match &self.weights {
            Some(weights) => {
                let weights = ops::mul(&inner, to_float(&inner, weights), ops::ones_like(&inner, &values))?;
                values = ops::mul(&inner, &values, &weights)?;
                reduce::sum_all(&inner, &weights)?
            }
            None => reduce::count(&inner, &values, DType::Float)?,
        };
        let total_after = count(&inner, &total, &reduce::sum_all(&inner, &values)?)?;
        // Counted only after the values, so that values that fail to compute are not counted.
        let number_after = count(&inner.control([&values]), &number, &seen)?;
        let quotient = |name: &str, total: &Output, number: &Output| {
            let number = ops::maximum(&inner, number, 0.0)?;
            ops::DivNoNan::new().name(name).build(&inner, total, &number)
        };
        let value = quotient("value", &total.read(&inner)?, &number.read(&inner)?)?;
        Ok(Metric { value, update: quotient("update_op", &total_after, &number_after)? })
    }

    /// See [`accuracy`].
    #[track_caller]
    pub fn accuracy(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Metric> {
        let labels = ops::identity(scope, labels)?;
        let predictions = ops::identity(scope, predictions)?;
        let predictions = if predictions.dtype() == labels.dtype() {
            predictions
        } else {
            ops::cast(scope, &predictions, labels.dtype())?
        };
        let right = ops::cast(scope, ops::equal(scope, &predictions, &labels), DType::Float)?;
        self.mean_named(scope, "accuracy", &right)
    }

    /// See [`mean_squared_error`].
    #[track_caller]
    pub fn mean_squared_error(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Metric> {
        let squares = ops::squared_difference(scope, predictions, labels)?;
        self.mean_named(scope, "mean_squared_error", squares)
    }

    /// See [`root_mean_squared_error`].
    #[track_caller]
    pub fn root_mean_squared_error(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Metric> {
        let inner = scope.scope("root_mean_squared_error");
        let squared = self.mean_squared_error(&inner, labels, predictions)?;
        let root = |name: &str, x: &Output| ops::Sqrt::new().name(name).build(&inner, x);
        Ok(Metric { value: root("value", &squared.value)?, update: root("update_op", &squared.update)? })
    }

    /// See [`mean_absolute_error`].
    #[track_caller]
    pub fn mean_absolute_error(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Metric> {
        let distances = ops::abs(scope, ops::sub(scope, predictions, labels))?;
        self.mean_named(scope, "mean_absolute_error", distances)
    }

    counts! {
        true_positives = (true, true);
        false_positives = (false, true);
        true_negatives = (false, false);
        false_negatives = (true, false);
    }

    /// Returns the weights of the elements where a condition holds, and zeros elsewhere.
    fn weigh(&self, scope: &Scope, holds: &Output) -> Result<Output> {
        let holds = ops::cast(scope, holds, DType::Float)?;
        match &self.weights {
            Some(weights) => ops::mul(scope, &holds, to_float(scope, weights)),
            None => Ok(holds),
        }
    }

    /// Counts the elements where both conditions hold.
    fn count_both(&self, scope: &Scope, name: &str, a: &Output, b: &Output) -> Result<Metric> {
        let inner = scope.scope(name);
        let both = self.weigh(&inner, &ops::logical_and(&inner, a, b)?)?;
        let number = counter(&inner, "count", &[])?;
        let update = count(&inner, &number, &reduce::sum_all(&inner, &both)?)?;
        Ok(Metric { value: number.read(&inner)?, update })
    }

    /// See [`precision`].
    #[track_caller]
    pub fn precision(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Metric> {
        let inner = scope.scope("precision");
        let (labels, predictions) = (to_bool(&inner, labels)?, to_bool(&inner, predictions)?);
        let hits = self.true_positives(&inner, &labels, &predictions)?;
        let misses = self.false_positives(&inner, &labels, &predictions)?;
        share(&inner, &hits, &misses)
    }

    /// See [`recall`].
    #[track_caller]
    pub fn recall(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Metric> {
        let inner = scope.scope("recall");
        let (labels, predictions) = (to_bool(&inner, labels)?, to_bool(&inner, predictions)?);
        let hits = self.true_positives(&inner, &labels, &predictions)?;
        let misses = self.false_negatives(&inner, &labels, &predictions)?;
        share(&inner, &hits, &misses)
    }

    /// See [`auc`].
    #[track_caller]
    pub fn auc(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
        thresholds: usize,
        curve: Curve,
    ) -> Result<Metric> {
        ensure!(
            thresholds >= 2,
            InvalidArgument,
            "the area under a curve needs at least 2 thresholds, not {thresholds}; TensorFlow uses 200"
        );
        let inner = scope.scope("auc");
        let row = |x: Result<Output>| ops::reshape(&inner, x, [1, -1]);
        let (labels, predictions) = (to_bool(&inner, labels)?, to_float(&inner, predictions)?);
        let weights = match &self.weights {
            Some(weights) => {
                // One weight per prediction.
                let ones = ops::ones_like(&inner, &predictions);
                Some(row(ops::mul(&inner, to_float(&inner, weights), ones))?.into())
            }
            None => None,
        };
        let (labels, predictions, weighting) =
            (row(Ok(labels))?, row(Ok(predictions))?, MetricOptions { weights });
        // The ends lie slightly outside of [0, 1], so that every prediction is between them.
        let mut limits = vec![-1e-7f32];
        limits.extend((1..thresholds - 1).map(|i| (i as f64 / (thresholds - 1) as f64) as f32));
        limits.push(1.0 + 1e-7);
        let limits = Tensor::new([thresholds, 1], limits)?;
        let above = ops::greater(&inner, &predictions, limits)?;
        let below = ops::logical_not(&inner, &above)?;
        let wrong = ops::logical_not(&inner, &labels)?;
        let tally = |name: &str, a: &Output, b: &Output| {
            let number = counter(&inner, name, &[thresholds as i64])?;
            let both = weighting.weigh(&inner, &ops::logical_and(&inner, a, b)?)?;
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
}

/// Adds `hits / (hits + misses)`, or zero without either.
fn share(scope: &Scope, hits: &Metric, misses: &Metric) -> Result<Metric> {
    let share = |name: &str, hits: &Output, misses: &Output| {
        let all = ops::add_v2(scope, hits, misses)?;
        let share = ops::div_no_nan(scope, hits, &all)?;
        ops::Identity::new().name(name).build(scope, &share)
    };
    Ok(Metric {
        value: share("value", &hits.value, &misses.value)?,
        update: share("update_op", &hits.update, &misses.update)?,
    })
}

/// Curve that [`auc`] integrates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Curve {
    /// Scalar of true positives over rate of false positives.
    #[default]
    Roc,
    /// Precision over recall.
    PrecisionRecall,
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

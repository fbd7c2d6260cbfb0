//! Losses, reduced and collected like those of TensorFlow's `tf.compat.v1.losses`.
//!
//! ```
//! use ferroflow::losses::{self, Reduction};
//! use ferroflow::{Graph, Tensor};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! let s = graph.scope();
//! let labels = s.constant([1.0f32, 2.0])?;
//! let predictions = s.constant([1.5f32, 1.0])?;
//! let loss = losses::mean_squared_error(&s, &labels, &predictions)?;
//! let weighted = losses::weighted(Tensor::vector(vec![1.0f32, 0.0]))
//!     .reduction(Reduction::Sum)
//!     .absolute_difference(&s, &labels, &predictions)?;
//! # let _ = (loss, weighted, losses::total_loss(&s)?);
//! # Ok(())
//! # }
//! ```

use crate::reduce;
use crate::variables::collections;
use ferroflow_core::scope::{CollectionItem, Input, Output, Scope};
use ferroflow_core::{PartialShape, Result, bail, ensure, status};
use ferroflow_ops::builders as ops;

/// Combination of the losses of all elements into one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Reduction {
    /// Keeps one loss per element.
    None,
    /// The sum of all losses.
    Sum,
    /// The sum of all losses divided by the sum of weights.
    Mean,
    /// The sum of all losses divided by the number of elements.
    SumOverBatchSize,
    /// The sum of all losses divided by the number of elements whose weight is not zero.
    #[default]
    SumByNonzeroWeights,
}

/// Options of a loss: weights, reduction and label smoothing. Its methods add the losses.
#[derive(Clone, Debug, Default)]
pub struct LossOptions {
    weights: Option<Input>,
    reduction: Reduction,
    label_smoothing: f64,
    uncollected: bool,
}

/// Weights the losses of elements. The shape of the weights must broadcast to that of the losses.
pub fn weighted(weights: impl Into<Input>) -> LossOptions {
    LossOptions { weights: Some(weights.into()), ..LossOptions::default() }
}

/// Reduces losses without weights.
pub fn reduced(reduction: Reduction) -> LossOptions {
    LossOptions { reduction, ..LossOptions::default() }
}

macro_rules! shortcuts {
    ($($(#[$doc:meta])* $name:ident($first:ident, $second:ident $(, $more:ident: $type:ty)*);)*) => {$(
        $(#[$doc])*
        #[track_caller]
        pub fn $name(
            scope: &Scope,
            $first: impl Into<Input>,
            $second: impl Into<Input>
            $(, $more: $type)*
        ) -> Result<Output> {
            LossOptions::default().$name(scope, $first, $second $(, $more)*)
        }
    )*};
}

shortcuts! {
    /// Adds the mean of squared differences.
    mean_squared_error(labels, predictions);
    /// Adds the mean of absolute differences.
    absolute_difference(labels, predictions);
    /// Adds the Huber loss: quadratic for differences up to `delta`, linear beyond.
    huber_loss(labels, predictions, delta: f64);
    /// Adds the cross entropy of labels 0 or 1 and predicted probabilities.
    log_loss(labels, predictions);
    /// Adds the hinge loss of labels 0 or 1 and logits.
    hinge_loss(labels, logits);
    /// Adds the cross entropy of labels 0 or 1 and logits.
    sigmoid_cross_entropy(labels, logits);
    /// Adds the cross entropy of probability distributions and logits.
    softmax_cross_entropy(onehot_labels, logits);
    /// Adds the cross entropy of class numbers and logits.
    sparse_softmax_cross_entropy(labels, logits);
    /// Adds one minus the cosine similarity of vectors of length one along an axis.
    cosine_distance(labels, predictions, axis: i32);
    /// Adds the mean squared difference between pairwise differences of predictions and those of labels, over all pairs of
    /// an example, summed over examples.
    mean_pairwise_squared_error(labels, predictions);
}

/// Converts an input to an output of the graph.
fn output(scope: &Scope, input: impl Into<Input>) -> Result<Output> {
    ops::identity(scope, input)
}

impl LossOptions {
    /// Sets how the losses of elements are combined; [`Reduction::SumByNonzeroWeights`] by default.
    #[must_use]
    pub fn reduction(mut self, reduction: Reduction) -> LossOptions {
        self.reduction = reduction;
        self
    }

    /// Moves the labels of cross entropies towards equal probabilities by this fraction, from 0 to 1.
    #[must_use]
    pub fn label_smoothing(mut self, amount: f64) -> LossOptions {
        self.label_smoothing = amount;
        self
    }

    /// Keeps the loss out of the collection that [`total_loss`] sums.
    #[must_use]
    pub fn uncollected(mut self) -> LossOptions {
        self.uncollected = true;
        self
    }

    /// See [`mean_squared_error`].
    #[track_caller]
    pub fn mean_squared_error(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Output> {
        let inner = scope.scope("mean_squared_error");
        let losses = ops::squared_difference(&inner, predictions, labels)?;
        self.reduce(&inner, &losses)
    }

    /// See [`absolute_difference`].
    #[track_caller]
    pub fn absolute_difference(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Output> {
        let inner = scope.scope("absolute_difference");
        let losses = ops::abs(&inner, ops::sub(&inner, predictions, labels))?;
        self.reduce(&inner, &losses)
    }

    /// See [`huber_loss`].
    #[track_caller]
    pub fn huber_loss(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
        delta: f64,
    ) -> Result<Output> {
        let inner = scope.scope("huber_loss");
        let distance = ops::abs(&inner, ops::sub(&inner, predictions, labels))?;
        let quadratic = ops::minimum(&inner, &distance, delta)?;
        let linear = ops::sub(&inner, &distance, &quadratic)?;
        let square = ops::mul(&inner, 0.5, ops::mul(&inner, &quadratic, &quadratic))?;
        let losses = ops::add_v2(&inner, &square, ops::mul(&inner, delta, &linear))?;
        self.reduce(&inner, &losses)
    }

    /// See [`log_loss`].
    #[track_caller]
    pub fn log_loss(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Output> {
        const EPSILON: f64 = 1e-7;
        let inner = scope.scope("log_loss");
        let (labels, predictions) = (output(&inner, labels)?, output(&inner, predictions)?);
        let hit = ops::log(&inner, ops::add_v2(&inner, &predictions, EPSILON))?;
        let hit = ops::neg(&inner, ops::mul(&inner, &labels, &hit))?;
        let rest = ops::sub(&inner, 1.0, &predictions)?;
        let miss = ops::log(&inner, ops::add_v2(&inner, &rest, EPSILON))?;
        let miss = ops::mul(&inner, ops::sub(&inner, 1.0, &labels), &miss)?;
        let losses = ops::sub(&inner, &hit, &miss)?;
        self.reduce(&inner, &losses)
    }

    /// See [`hinge_loss`].
    #[track_caller]
    pub fn hinge_loss(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        logits: impl Into<Input>,
    ) -> Result<Output> {
        let inner = scope.scope("hinge_loss");
        let signs = ops::sub(&inner, ops::mul(&inner, 2.0, output(&inner, labels)?), 1.0)?;
        let margin = ops::sub(&inner, 1.0, ops::mul(&inner, &signs, logits))?;
        let losses = ops::relu(&inner, &margin)?;
        self.reduce(&inner, &losses)
    }

    /// See [`sigmoid_cross_entropy`].
    #[track_caller]
    pub fn sigmoid_cross_entropy(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        logits: impl Into<Input>,
    ) -> Result<Output> {
        let inner = scope.scope("sigmoid_cross_entropy_loss");
        let (labels, logits) = (output(&inner, labels)?, output(&inner, logits)?);
        let labels = self.smooth(&inner, labels, 0.5)?;
        // A form in which no exponential overflows.
        let zeros = ops::zeros_like(&inner, &logits)?;
        let positive = ops::greater_equal(&inner, &logits, &zeros)?;
        let ramp = ops::select_v2(&inner, &positive, &logits, &zeros)?;
        let low = ops::select_v2(&inner, &positive, ops::neg(&inner, &logits), &logits)?;
        let ramp = ops::sub(&inner, &ramp, ops::mul(&inner, &logits, &labels))?;
        let losses = ops::add_v2(&inner, &ramp, ops::log1p(&inner, ops::exp(&inner, &low)))?;
        self.reduce(&inner, &losses)
    }

    /// See [`softmax_cross_entropy`].
    #[track_caller]
    pub fn softmax_cross_entropy(
        &self,
        scope: &Scope,
        onehot_labels: impl Into<Input>,
        logits: impl Into<Input>,
    ) -> Result<Output> {
        let inner = scope.scope("softmax_cross_entropy_loss");
        let mut labels = output(&inner, onehot_labels)?;
        if self.label_smoothing > 0.0 {
            let classes =
                labels.shape().dims().and_then(|dims| dims.get(1).copied()).filter(|size| *size > 0);
            let classes = classes.ok_or_else(|| {
                status!(
                    InvalidArgument,
                    "label smoothing needs to know the number of classes, but the labels have shape {}",
                    labels.shape()
                )
            })?;
            labels = self.smooth(&inner, labels, 1.0 / classes as f64)?;
        }
        let labels = ops::stop_gradient(&inner, &labels)?;
        let losses =
            inner.op("SoftmaxCrossEntropyWithLogits").input(logits).input(&labels).build()?.output(0)?;
        self.reduce(&inner, &losses)
    }

    /// See [`sparse_softmax_cross_entropy`].
    #[track_caller]
    pub fn sparse_softmax_cross_entropy(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        logits: impl Into<Input>,
    ) -> Result<Output> {
        let inner = scope.scope("sparse_softmax_cross_entropy_loss");
        let node =
            inner.op("SparseSoftmaxCrossEntropyWithLogits").name("xentropy").input(logits).input(labels);
        let losses = node.build()?.output(0)?;
        self.reduce(&inner, &losses)
    }

    /// Moves labels towards the probability `towards`.
    fn smooth(&self, scope: &Scope, labels: Output, towards: f64) -> Result<Output> {
        if self.label_smoothing <= 0.0 {
            return Ok(labels);
        }
        let kept = ops::mul(scope, &labels, 1.0 - self.label_smoothing)?;
        ops::add_v2(scope, &kept, self.label_smoothing * towards)
    }

    /// See [`cosine_distance`].
    #[track_caller]
    pub fn cosine_distance(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
        axis: i32,
    ) -> Result<Output> {
        let inner = scope.scope("cosine_distance_loss");
        let products = ops::mul(&inner, predictions, labels)?;
        let cosines = ops::Sum::new().keep_dims(true).build(&inner, &products, [axis])?;
        let losses = ops::sub(&inner, 1.0, &cosines)?;
        self.reduce(&inner, &losses)
    }

    /// See [`mean_pairwise_squared_error`]. Weights are one per example; the losses of examples are always summed.
    #[track_caller]
    pub fn mean_pairwise_squared_error(
        &self,
        scope: &Scope,
        labels: impl Into<Input>,
        predictions: impl Into<Input>,
    ) -> Result<Output> {
        let inner = scope.scope("mean_pairwise_squared_error");
        let differences = ops::sub(&inner, predictions, labels)?;
        let weights = match self.weights.clone() {
            Some(weights) => output(&inner, weights)?,
            None => inner.constant(1.0f32)?,
        };
        check_broadcast(&weights.shape(), &differences.shape())?;
        let axes = ops::range(&inner, 1, ops::rank(&inner, &differences), 1)?;
        let per_example = |x: &Output| ops::Sum::new().keep_dims(true).build(&inner, x, &axes);
        let there = ops::cast(&inner, ops::not_equal(&inner, &weights, 0.0), differences.dtype())?;
        let number = per_example(&ops::mul(&inner, ops::ones_like(&inner, &differences), &there)?)?;
        let others = ops::maximum(&inner, ops::sub(&inner, &number, 1.0), 0.0)?;
        let squares = per_example(&ops::square(&inner, &differences)?)?;
        let squares = ops::mul(&inner, 2.0, ops::div_no_nan(&inner, &squares, &others))?;
        let sums = ops::square(&inner, per_example(&differences)?)?;
        let sums = ops::mul(&inner, 2.0, ops::div_no_nan(&inner, &sums, ops::mul(&inner, &number, &others)))?;
        let losses = ops::mul(&inner, ops::sub(&inner, &squares, &sums), &weights)?;
        self.collect(ops::Identity::new().name("value").build(&inner, reduce::sum_all(&inner, &losses)?)?)
    }

    /// Weights and reduces the losses of elements, such as those of a loss of the program's own.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the weights do not broadcast to the losses.
    #[track_caller]
    pub fn reduce(&self, scope: &Scope, losses: &Output) -> Result<Output> {
        let weights = self.weights.clone().map(|weights| output(scope, weights)).transpose()?;
        if let Some(weights) = &weights {
            check_broadcast(&weights.shape(), &losses.shape())?;
        }
        let weighted = match &weights {
            Some(weights) => ops::mul(scope, losses, weights)?,
            None => losses.clone(),
        };
        if self.reduction == Reduction::None {
            return self.collect(weighted);
        }
        let sum = reduce::sum_all(scope, &weighted)?;
        let count = |elements: &Output| reduce::count(scope, elements, losses.dtype());
        let divisor = match (self.reduction, &weights) {
            (Reduction::Sum, _) | (Reduction::None, _) => {
                return self.collect(ops::Identity::new().name("value").build(scope, &sum)?);
            }
            (Reduction::SumOverBatchSize, _) | (_, None) => count(&weighted)?,
            (Reduction::Mean, Some(weights)) => {
                reduce::sum_all(scope, ops::mul(scope, ops::ones_like(scope, losses), weights)?)?
            }
            (Reduction::SumByNonzeroWeights, Some(weights)) => {
                let present = ops::cast(scope, ops::not_equal(scope, weights, 0.0), losses.dtype())?;
                reduce::sum_all(scope, ops::mul(scope, ops::ones_like(scope, losses), &present)?)?
            }
        };
        self.collect(ops::DivNoNan::new().name("value").build(scope, &sum, &divisor)?)
    }

    fn collect(&self, loss: Output) -> Result<Output> {
        if !self.uncollected {
            loss.graph().add_to_collection(collections::LOSSES, CollectionItem::Node(loss.name()));
        }
        Ok(loss)
    }
}

/// Checks that each dimension of the weights is 1 or that of the losses.
fn check_broadcast(weights: &PartialShape, losses: &PartialShape) -> Result<()> {
    let (Some(small), Some(large)) = (weights.dims(), losses.dims()) else { return Ok(()) };
    let fits = small.is_empty()
        || small.len() == large.len()
            && small.iter().zip(large).all(|(a, b)| *a == 1 || *a == *b || *a < 0 || *b < 0);
    ensure!(
        fits,
        InvalidArgument,
        "weights can not be broadcast to values. weights.shape={weights}. values.shape={losses}."
    );
    Ok(())
}

/// Adds the sum of all collected losses, including those of regularizers.
///
/// # Errors
///
/// `InvalidArgument` if no loss was collected.
#[track_caller]
pub fn total_loss(scope: &Scope) -> Result<Output> {
    let graph = scope.graph();
    let names = [collections::LOSSES, collections::REGULARIZATION_LOSSES];
    let items = names.into_iter().flat_map(|name| graph.collection(name));
    let loss = |item: CollectionItem| match item {
        CollectionItem::Node(name) => graph.output(&name),
        other => {
            bail!(InvalidArgument, "a collection of losses holds {other:?}, which is not the name of a loss")
        }
    };
    let losses = items.map(loss).collect::<Result<Vec<_>>>()?;
    ensure!(
        !losses.is_empty(),
        InvalidArgument,
        "there is no total loss: the graph has no losses; add one with a function of ferroflow::losses"
    );
    ops::AddN::new().name("total_loss").build(scope, &losses)
}

/// Adds `scale · ‖x‖² / 2`, and collects it as the loss of a regularizer.
#[track_caller]
pub fn l2_regularization(scope: &Scope, x: impl Into<Input>, scale: f64) -> Result<Output> {
    let inner = scope.scope("l2_regularizer");
    let loss = ops::mul(&inner, scale, ops::l2_loss(&inner, x))?;
    let item = CollectionItem::Node(loss.name());
    scope.graph().add_to_collection(collections::REGULARIZATION_LOSSES, item);
    Ok(loss)
}

/// Adds `scale · Σ|x|`, and collects it as the loss of a regularizer.
#[track_caller]
pub fn l1_regularization(scope: &Scope, x: impl Into<Input>, scale: f64) -> Result<Output> {
    let inner = scope.scope("l1_regularizer");
    let sum = reduce::sum_all(&inner, ops::abs(&inner, x)?)?;
    let loss = ops::mul(&inner, scale, &sum)?;
    let item = CollectionItem::Node(loss.name());
    scope.graph().add_to_collection(collections::REGULARIZATION_LOSSES, item);
    Ok(loss)
}

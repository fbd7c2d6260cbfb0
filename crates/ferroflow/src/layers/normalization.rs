//! Batch normalization, with moving averages for inference.

use super::last_dim;
use crate::initializers;
use crate::variables::{Variable, collections};
use ferroflow_core::scope::{CollectionItem, Output, Scope};
use ferroflow_core::{Result, Tensor, bail};
use ferroflow_ops::builders as ops;

/// Normalization of each channel (the last dimension): by statistics of the batch while training, which also updates the
/// moving averages, and by the moving averages otherwise.
///
/// The updates of the averages are in the collection `update_ops`. A training step must run them:
///
/// ```
/// use ferroflow::layers::BatchNorm;
/// use ferroflow::{DType, Graph, ops, variables};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let x = ops::Placeholder::new(DType::Float).shape([-1, 4]).build(&s)?;
/// let y = BatchNorm::new().build(&s, &x, true)?;
/// let training = s.control(variables::update_ops(&graph)?);
/// # let _ = (y, training);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct BatchNorm {
    momentum: f64,
    epsilon: f64,
    center: bool,
    scale: bool,
    name: String,
}

impl Default for BatchNorm {
    fn default() -> BatchNorm {
        BatchNorm::new()
    }
}

impl BatchNorm {
    /// Describes a layer with TensorFlow's defaults: momentum 0.99 and epsilon 0.001.
    pub fn new() -> BatchNorm {
        BatchNorm {
            momentum: 0.99,
            epsilon: 0.001,
            center: true,
            scale: true,
            name: "batch_normalization".to_owned(),
        }
    }

    /// Sets the fraction of the averages that is kept in every step.
    #[must_use]
    pub fn momentum(mut self, momentum: f64) -> BatchNorm {
        self.momentum = momentum;
        self
    }

    /// Sets the number that is added to variances.
    #[must_use]
    pub fn epsilon(mut self, epsilon: f64) -> BatchNorm {
        self.epsilon = epsilon;
        self
    }

    /// Sets whether `beta` is added; `true` by default.
    #[must_use]
    pub fn center(mut self, center: bool) -> BatchNorm {
        self.center = center;
        self
    }

    /// Sets whether the result is multiplied by `gamma`; `true` by default.
    #[must_use]
    pub fn scale(mut self, scale: bool) -> BatchNorm {
        self.scale = scale;
        self
    }

    /// Sets the name of the layer's scope.
    #[must_use]
    pub fn name(mut self, name: &str) -> BatchNorm {
        self.name = name.to_owned();
        self
    }

    /// Adds the layer.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the rank or the number of channels of `x` is not known.
    #[track_caller]
    pub fn build(self, scope: &Scope, x: &Output, training: bool) -> Result<Output> {
        let inner = scope.scope(&self.name);
        let channels = last_dim(x)?;
        let Some(rank) = x.shape().rank() else {
            bail!(InvalidArgument, "the rank of '{}' must be known to normalize it, but is not", x.name());
        };
        let variable = |name: &str, start, trainable| {
            let spec = Variable::spec(name, [channels]).dtype(x.dtype()).initializer(start);
            spec.trainable(trainable).build(&inner)
        };
        let gamma = if self.scale { Some(variable("gamma", initializers::ones(), true)?) } else { None };
        let beta = if self.center { Some(variable("beta", initializers::zeros(), true)?) } else { None };
        let mean = variable("moving_mean", initializers::zeros(), false)?;
        let variance = variable("moving_variance", initializers::ones(), false)?;
        if rank == 4 {
            return self.fused(
                &inner,
                x,
                training,
                [gamma.as_ref(), beta.as_ref(), Some(&mean), Some(&variance)],
            );
        }
        let (batch_mean, batch_variance) = if training {
            let axes: Vec<i32> = (0..rank as i32 - 1).collect();
            let center = ops::Mean::new().keep_dims(true).build(&inner, x, axes.as_slice())?;
            let squares = ops::squared_difference(&inner, x, ops::stop_gradient(&inner, &center))?;
            let spread = ops::mean(&inner, &squares, axes.as_slice())?;
            let center = ops::reshape(&inner, &center, [channels])?;
            self.move_average(&inner, &mean, &center)?;
            self.move_average(&inner, &variance, &spread)?;
            (center, spread)
        } else {
            (mean.value().clone(), variance.value().clone())
        };
        let inverse = ops::rsqrt(&inner, ops::add_v2(&inner, &batch_variance, self.epsilon))?;
        let factor = match &gamma {
            Some(gamma) => ops::mul(&inner, &inverse, gamma)?,
            None => inverse,
        };
        let shift = ops::mul(&inner, &batch_mean, &factor)?;
        let shift = match &beta {
            Some(beta) => ops::sub(&inner, beta, &shift)?,
            None => ops::neg(&inner, &shift)?,
        };
        ops::add_v2(&inner, ops::mul(&inner, x, &factor), &shift)
    }

    /// Adds the fused op, which exists for images only.
    fn fused(
        &self,
        inner: &Scope,
        x: &Output,
        training: bool,
        [gamma, beta, mean, variance]: [Option<&Variable>; 4],
    ) -> Result<Output> {
        let channels = last_dim(x)? as usize;
        let fixed = |variable: Option<&Variable>, value: f32| match variable {
            Some(variable) => Ok(variable.value().clone()),
            None => inner.constant(Tensor::vector(vec![value; channels])),
        };
        let (gamma, beta) = (fixed(gamma, 1.0)?, fixed(beta, 0.0)?);
        let (Some(mean), Some(variance)) = (mean, variance) else {
            bail!(Internal, "batch normalization was built without moving averages");
        };
        let empty = || inner.constant(Tensor::vector(Vec::<f32>::new()));
        let (old_mean, old_variance) =
            if training { (empty()?, empty()?) } else { (mean.value().clone(), variance.value().clone()) };
        let node = inner.op("FusedBatchNormV3").input(x).input(&gamma).input(&beta).input(&old_mean);
        let node =
            node.input(&old_variance).attr("epsilon", self.epsilon as f32).attr("is_training", training);
        let node = node.build()?;
        if training {
            self.move_average(inner, mean, &node.output(1)?)?;
            self.move_average(inner, variance, &node.output(2)?)?;
        }
        node.output(0)
    }

    fn move_average(&self, scope: &Scope, average: &Variable, value: &Output) -> Result<()> {
        let place = scope.scope("AssignMovingAvg").colocate_with(average.op());
        let gap = ops::sub(&place, average.read(&place), value)?;
        let update = average.assign_sub(&place, ops::mul(&place, &gap, 1.0 - self.momentum))?;
        let item = CollectionItem::Node(update.name());
        scope.graph().add_to_collection(collections::UPDATE_OPS, item);
        Ok(())
    }
}

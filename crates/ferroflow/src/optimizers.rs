//! Optimizers. Update ops, slots and their names are those of TensorFlow's `tf.compat.v1.train`, so that either continues
//! from a checkpoint of the other.
//!
//! ```
//! use ferroflow::optimizers::{Adam, Optimizer};
//! use ferroflow::{Graph, Variable, global_step, initializers, ops};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! let s = graph.scope();
//! let w = Variable::new(&s, "w", [3], initializers::ones())?;
//! let loss = ops::sum(&s, ops::square(&s, &w), [0])?;
//! let step = global_step(&s)?;
//! let train = Adam::new(0.01).beta2(0.99).minimize(&s, &loss, Some(&step))?;
//! assert_eq!(train.name(), "Adam");
//! assert!(graph.find("w/Adam_1").is_some());
//! # Ok(())
//! # }
//! ```

mod apply;
mod kinds;
mod moving_average;
mod slots;
mod sparse;
mod sync_replicas;

pub use apply::Rule;
pub use kinds::{
    AdaMax, Adadelta, Adagrad, AdagradDa, AdagradV2, Adam, AddSign, Ftrl, GradientDescent, KerasMomentum,
    Momentum, PowerSign, ProximalAdagrad, ProximalGradientDescent, RmsProp,
};
pub use moving_average::ExponentialMovingAverage;
pub use sync_replicas::{SyncReplicas, SyncTrainOp};

use crate::variables::{Variable, trainable_variables};
use ferroflow_core::op::Grad;
use ferroflow_core::scope::{Gradients, Input, Operation, Output, Scope};
use ferroflow_core::{Result, Tensor, ensure};

/// A number that configures an optimizer: fixed, or computed by the graph in every step, such as a [learning-rate
/// schedule](crate::schedules).
#[derive(Clone, Debug)]
pub enum Scalar {
    /// A fixed number.
    Fixed(f64),
    /// A scalar output of the graph.
    Output(Output),
}

impl From<f64> for Scalar {
    fn from(number: f64) -> Scalar {
        Scalar::Fixed(number)
    }
}

impl From<f32> for Scalar {
    fn from(number: f32) -> Scalar {
        Scalar::Fixed(number.into())
    }
}

impl From<Output> for Scalar {
    fn from(output: Output) -> Scalar {
        Scalar::Output(output)
    }
}

impl From<&Output> for Scalar {
    fn from(output: &Output) -> Scalar {
        Scalar::Output(output.clone())
    }
}

impl From<&Scalar> for Input {
    fn from(rate: &Scalar) -> Input {
        match rate {
            Scalar::Fixed(number) => (*number).into(),
            Scalar::Output(output) => output.into(),
        }
    }
}

impl Scalar {
    /// Returns the output, or adds a constant with this name.
    pub(crate) fn node(&self, scope: &Scope, name: &str) -> Result<Output> {
        match self {
            Scalar::Fixed(number) => scope.named_constant(name, Tensor::scalar(*number as f32)),
            Scalar::Output(output) => Ok(output.clone()),
        }
    }
}

/// A variable and the gradient of the loss with respect to it; `None` if the loss does not depend on it.
pub type GradAndVar = (Option<Grad>, Variable);

/// An algorithm that updates variables from gradients.
pub trait Optimizer {
    /// Returns the optimizer's slots, numbers and update ops.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a number is outside of its range.
    fn rule(&self) -> Result<Rule>;

    /// Adds the gradients of a loss with respect to all trainable variables, and returns the operation that updates them
    /// and increments the global step.
    #[track_caller]
    fn minimize(&self, scope: &Scope, loss: &Output, global_step: Option<&Variable>) -> Result<Operation> {
        let grads = self.compute_gradients(scope, loss, &trainable_variables(scope.graph())?)?;
        self.apply_gradients(scope, &grads, global_step)
    }

    /// Adds the gradients of a loss with respect to variables.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are no variables, or the loss is not a floating-point number.
    #[track_caller]
    fn compute_gradients(
        &self,
        scope: &Scope,
        loss: &Output,
        variables: &[Variable],
    ) -> Result<Vec<GradAndVar>> {
        compute_gradients(scope, loss, variables)
    }

    /// Adds an operation that updates variables from their gradients and then increments the global step. If it is called
    /// again, the optimizer uses its existing slots.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no variable has a gradient, a variable comes twice or a type or shape does not fit.
    #[track_caller]
    fn apply_gradients(
        &self,
        scope: &Scope,
        grads: &[GradAndVar],
        global_step: Option<&Variable>,
    ) -> Result<Operation> {
        self.rule()?.apply(scope, grads, global_step)
    }

    /// Returns the optimizer's slot of this name for a variable, e.g. `m` of [`Adam`]; `None` before
    /// [`Optimizer::apply_gradients`], or if it does not have such a slot.
    fn slot(&self, variable: &Variable, name: &str) -> Option<Variable> {
        self.rule().ok()?.slot(variable, name)
    }
}

#[track_caller]
pub(crate) fn compute_gradients(
    scope: &Scope,
    loss: &Output,
    variables: &[Variable],
) -> Result<Vec<GradAndVar>> {
    ensure!(
        !variables.is_empty(),
        InvalidArgument,
        "No variables to optimize; add some with Variable::new, which are trainable by default."
    );
    apply::check_dtype(&loss.name(), loss.dtype())?;
    let grads = Gradients::new().build(scope, [loss], variables.iter().map(Variable::handle))?;
    Ok(grads.into_iter().zip(variables.iter().cloned()).collect())
}

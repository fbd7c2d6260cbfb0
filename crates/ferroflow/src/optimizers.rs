//! Optimizers: how variables follow their gradients. Updates, slots and their names are those of stock's
//! `tf.compat.v1.train`, so that either continues a checkpoint of the other.
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

/// A number of an optimizer: fixed, or computed by the graph in every step, as learning-rate schedules are.
#[derive(Clone, Debug)]
pub enum Rate {
    /// A fixed number.
    Number(f64),
    /// A scalar of the graph.
    Output(Output),
}

impl From<f64> for Rate {
    fn from(number: f64) -> Rate {
        Rate::Number(number)
    }
}

impl From<f32> for Rate {
    fn from(number: f32) -> Rate {
        Rate::Number(number.into())
    }
}

impl From<Output> for Rate {
    fn from(output: Output) -> Rate {
        Rate::Output(output)
    }
}

impl From<&Output> for Rate {
    fn from(output: &Output) -> Rate {
        Rate::Output(output.clone())
    }
}

impl From<&Rate> for Input {
    fn from(rate: &Rate) -> Input {
        match rate {
            Rate::Number(number) => (*number).into(),
            Rate::Output(output) => output.into(),
        }
    }
}

impl Rate {
    /// The output, or a constant with this name.
    pub(crate) fn node(&self, scope: &Scope, name: &str) -> Result<Output> {
        match self {
            Rate::Number(number) => scope.named_constant(name, Tensor::scalar(*number as f32)),
            Rate::Output(output) => Ok(output.clone()),
        }
    }
}

/// A variable and the gradient of the loss by it, if the loss depends on it.
pub type GradAndVar = (Option<Grad>, Variable);

/// Something that updates variables by gradients.
pub trait Optimizer {
    /// What the optimizer does to a variable. Fails if its numbers make no sense.
    fn rule(&self) -> Result<Rule>;

    /// Adds the gradients of a loss by all trainable variables, and the operation that follows them.
    #[track_caller]
    fn minimize(&self, scope: &Scope, loss: &Output, global_step: Option<&Variable>) -> Result<Operation> {
        let grads = self.compute_gradients(scope, loss, &trainable_variables(scope.graph())?)?;
        self.apply_gradients(scope, &grads, global_step)
    }

    /// Adds the gradients of a loss by variables.
    #[track_caller]
    fn compute_gradients(
        &self,
        scope: &Scope,
        loss: &Output,
        variables: &[Variable],
    ) -> Result<Vec<GradAndVar>> {
        compute_gradients(scope, loss, variables)
    }

    /// Adds an operation that updates variables by their gradients and then adds one to the global step. Applied again,
    /// an optimizer uses the slots that it has.
    #[track_caller]
    fn apply_gradients(
        &self,
        scope: &Scope,
        grads: &[GradAndVar],
        global_step: Option<&Variable>,
    ) -> Result<Operation> {
        self.rule()?.apply(scope, grads, global_step)
    }

    /// The optimizer's own variable of this name beside a variable, e.g. `m` of [`Adam`]; `None` before
    /// [`Optimizer::apply_gradients`], or if it has no such slot.
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
        "No variables to optimize; add some with Variable::new, which are trainable unless they say otherwise."
    );
    apply::check_dtype(&loss.name(), loss.dtype())?;
    let grads = Gradients::new().build(scope, [loss], variables.iter().map(Variable::handle))?;
    Ok(grads.into_iter().zip(variables.iter().cloned()).collect())
}

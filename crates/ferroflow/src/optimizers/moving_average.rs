//! Moving averages of variables, which often do better than the variables themselves.

use super::Rate;
use super::apply::create_slot;
use crate::initializers;
use crate::variables::{Variable, collections};
use ferroflow_core::scope::{CollectionItem, Operation, Output, Scope};
use ferroflow_core::{DType, Result, bail};
use ferroflow_ops::build as ops;
use prost::Message;

/// Keeps averages that forget by `decay` in every step, in variables named `<variable>/ExponentialMovingAverage`.
///
/// ```
/// use ferroflow::optimizers::ExponentialMovingAverage;
/// use ferroflow::{Graph, Variable, initializers};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let w = Variable::new(&s, "w", [3], initializers::ones())?;
/// let mut averages = ExponentialMovingAverage::new(0.99);
/// let update = averages.apply(&s, &[w.clone()])?;
/// assert_eq!(averages.average(&w).unwrap().name(), "w/ExponentialMovingAverage");
/// # let _ = update;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ExponentialMovingAverage {
    decay: Rate,
    updates: Option<Variable>,
    name: String,
    averages: Vec<(Variable, Variable)>,
}

impl ExponentialMovingAverage {
    /// Averages that keep a part of `decay` in every step.
    pub fn new(decay: impl Into<Rate>) -> ExponentialMovingAverage {
        ExponentialMovingAverage {
            decay: decay.into(),
            updates: None,
            name: "ExponentialMovingAverage".to_owned(),
            averages: Vec::new(),
        }
    }

    /// Forgets faster in the first steps, which this variable counts.
    #[must_use]
    pub fn num_updates(mut self, counter: &Variable) -> ExponentialMovingAverage {
        self.updates = Some(counter.clone());
        self
    }

    /// The name of its nodes and variables.
    #[must_use]
    pub fn name(mut self, name: &str) -> ExponentialMovingAverage {
        self.name = name.to_owned();
        self
    }

    /// Adds averages of variables, and an operation that updates them: it runs after the variables' own updates.
    #[track_caller]
    pub fn apply(&mut self, scope: &Scope, variables: &[Variable]) -> Result<Operation> {
        let mut pairs = Vec::new();
        for variable in variables {
            if self.average(variable).is_some() {
                bail!(AlreadyExists, "Moving average already computed for: {}", variable.name());
            }
            let Some(initial) = variable.initial_value().cloned() else {
                bail!(InvalidArgument, "variable {} has no initial value to start with", variable.name());
            };
            let start = initializers::from_fn(move |_, _, _, _| Ok(initial.clone()));
            let average = create_slot(&scope.without_control(), variable, &self.name, start)?;
            let encoded = variable.to_proto().encode_to_vec().into();
            scope
                .graph()
                .add_to_collection(collections::MOVING_AVERAGE_VARIABLES, CollectionItem::Bytes(encoded));
            pairs.push((variable.clone(), average));
        }
        let inner = scope.scope(&self.name);
        let decay = self.decay_now(&inner)?;
        let mut updates = Vec::new();
        for (variable, average) in &pairs {
            let place = inner.scope("AssignMovingAvg").colocate_with(average.op());
            let decay = if average.dtype() == decay.dtype() {
                decay.clone()
            } else {
                ops::cast(&place, &decay, average.dtype())?
            };
            let rest = ops::sub(&place, 1.0, &decay)?;
            let gap = ops::sub(&place, average.read(&place), variable.read(&place))?;
            updates.push(average.assign_sub(&place, ops::mul(&place, &gap, &rest))?);
        }
        self.averages.extend(pairs);
        inner.control(&updates).op("NoOp").name(inner.prefix()).build()
    }

    fn decay_now(&self, inner: &Scope) -> Result<Output> {
        let decay = match &self.decay {
            Rate::Number(number) => inner.named_constant("decay", *number as f32)?,
            Rate::Output(output) => output.clone(),
        };
        let Some(counter) = &self.updates else { return Ok(decay) };
        let count = ops::Cast::new(DType::Float).name("num_updates").build(inner, counter.read(inner))?;
        let grown = ops::real_div(inner, ops::add_v2(inner, 1.0, &count), ops::add_v2(inner, 10.0, &count))?;
        ops::minimum(inner, &decay, &grown)
    }

    /// The average of a variable.
    pub fn average(&self, variable: &Variable) -> Option<&Variable> {
        self.averages.iter().find(|(of, _)| of == variable).map(|(_, average)| average)
    }

    /// The names under which a checkpoint holds the averages, with the variables that are restored from them, to
    /// evaluate with averages in place of the variables.
    pub fn variables_to_restore(&self, variables: &[Variable]) -> Vec<(String, Variable)> {
        let name = |variable: &Variable| match self.average(variable) {
            Some(average) => average.name(),
            None if variable.is_trainable() => format!("{}/{}", variable.name(), self.name),
            None => variable.name(),
        };
        variables.iter().map(|variable| (name(variable), variable.clone())).collect()
    }
}

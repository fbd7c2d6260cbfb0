//! Variables that optimizers keep: slots of each variable, and numbers that all variables share.

use super::Scalar;
use crate::initializers::{self, Initializer};
use crate::variables::{SaveSlice, Variable};
use ferroflow_core::scope::{Graph, Operation, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, bail};
use std::sync::{Arc, Mutex, PoisonError};

/// Initial value of a slot.
#[derive(Clone, Debug)]
pub(super) enum Start {
    /// Nodes in the scope of the slot.
    SlotScope(Initializer),
    /// A constant in the scope of the optimizer, where TensorFlow puts some.
    OptimizerScope(f64),
}

/// Variables that an optimizer has added. Clones share them, so that an optimizer finds its slots when applied again.
#[derive(Clone, Debug, Default)]
pub(super) struct Slots(Arc<Mutex<Made>>);

#[derive(Debug, Default)]
struct Made {
    /// Owner, name and variable of each slot.
    slots: Vec<(Operation, &'static str, Variable)>,
    shared: Vec<(&'static str, Variable)>,
}

impl Slots {
    fn with<R>(&self, f: impl FnOnce(&mut Made) -> R) -> R {
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Returns the slot of this name of a variable.
    pub(super) fn find(&self, variable: &Variable, name: &str) -> Option<Variable> {
        let is = |(owner, slot, _): &&(Operation, &str, Variable)| owner == variable.op() && *slot == name;
        self.with(|made| made.slots.iter().find(is).map(|(_, _, slot)| slot.clone()))
    }

    /// Returns all slots in a graph, sorted by name.
    pub(super) fn all(&self, graph: &Graph) -> Vec<Variable> {
        let mut all: Vec<Variable> = self.with(|made| {
            let slots = made.slots.iter().map(|(_, _, slot)| slot);
            slots.chain(made.shared.iter().map(|(_, variable)| variable)).cloned().collect()
        });
        all.retain(|variable| variable.graph().is_same(graph));
        all.sort_by_key(Variable::name);
        all
    }

    /// Returns the slots of a variable, in order; adds those that are missing.
    #[track_caller]
    pub(super) fn of(
        &self,
        scope: &Scope,
        variable: &Variable,
        optimizer: &str,
        starts: &[(&'static str, Start)],
    ) -> Result<Vec<Variable>> {
        let scope = scope.without_control();
        let mut initializers = Vec::with_capacity(starts.len());
        for (name, start) in starts {
            initializers.push(match (self.find(variable, name), start) {
                (Some(_), _) => None,
                (None, Start::SlotScope(initializer)) => Some(initializer.clone()),
                (None, Start::OptimizerScope(value)) => {
                    let constant = initializers::constant(*value);
                    let beside = scope.colocate_with(variable.op());
                    let value = constant.build(&beside, variable.shape(), variable.dtype(), None)?;
                    Some(initializers::from_fn(move |_, _, _, _| Ok(value.clone())))
                }
            });
        }
        let mut slots = Vec::with_capacity(starts.len());
        for ((name, _), initializer) in starts.iter().zip(initializers) {
            if let Some(initializer) = initializer {
                let slot = create_slot(&scope, variable, optimizer, initializer)?;
                self.with(|made| made.slots.push((variable.op().clone(), name, slot)));
            }
            slots.push(self.find(variable, name).expect("it was found or added above"));
        }
        Ok(slots)
    }

    /// Returns a number that all variables share, placed beside one of them; adds it if it is missing.
    #[track_caller]
    pub(super) fn shared(
        &self,
        scope: &Scope,
        name: &'static str,
        start: &Scalar,
        beside: &Variable,
    ) -> Result<Variable> {
        let graph = scope.graph();
        let is = |(shared, variable): &&(&str, Variable)| *shared == name && variable.graph().is_same(graph);
        if let Some(found) =
            self.with(|made| made.shared.iter().find(is).map(|(_, variable)| variable.clone()))
        {
            return Ok(found);
        }
        let Scalar::Fixed(start) = *start else {
            bail!(InvalidArgument, "{name} needs a fixed number to start with, not an output of the graph");
        };
        let full = graph.unique_name(&format!("{}{name}", scope.prefix()));
        let spec = Variable::spec(&full, []).absolute().trainable(false).colocate_with(beside.op());
        // As in TensorFlow, the position of the constant depends on the kind of variable.
        let prefix = if beside.is_resource() { format!("{full}/Initializer/") } else { format!("{full}/") };
        let initializer = initializers::from_fn(move |scope, _, _, _| {
            scope.scope(&prefix).named_constant("initial_value", Tensor::scalar(start as f32))
        });
        let spec = spec.dtype(DType::Float).initializer(initializer);
        let spec = if beside.is_resource() { spec } else { spec.reference() };
        let variable = spec.build(&scope.without_control())?;
        self.with(|made| made.shared.push((name, variable.clone())));
        Ok(variable)
    }
}

/// Adds a variable that belongs to another, e.g. `w/Adam`: on the device of `w` and partitioned like `w`.
#[track_caller]
pub(super) fn create_slot(
    scope: &Scope,
    variable: &Variable,
    name: &str,
    initializer: Initializer,
) -> Result<Variable> {
    let primary = variable.name();
    let full = scope.graph().unique_name(&format!("{primary}/{name}"));
    let mut spec = Variable::spec(&full, variable.shape())
        .absolute()
        .dtype(variable.dtype())
        .trainable(false)
        .initializer(initializer)
        .colocate_with(variable.op());
    if let Some(slice) = variable.save_slice() {
        let own = &full[primary.len() + 1..];
        spec = spec.slice(SaveSlice { full_name: format!("{}/{own}", slice.full_name), ..slice.clone() });
    }
    if !variable.is_resource() {
        spec = spec.reference();
    }
    spec.build(scope)
}

/// Returns the value of a variable. A read by handle waits for the scope's control dependencies; a reference does not.
#[track_caller]
pub(super) fn value(scope: &Scope, variable: &Variable) -> Result<Output> {
    if !variable.is_resource() {
        return Ok(variable.value().clone());
    }
    let device = variable.op().device();
    let scope = scope.without_colocation();
    variable.read(&if device.is_empty() { scope } else { scope.device(&device) })
}

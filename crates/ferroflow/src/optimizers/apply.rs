//! Turns the description of an optimizer into nodes: slots, hyperparameters, one update per variable, and the step.

use super::sparse::SparseUpdate;
use super::{GradAndVar, Rate};
use crate::initializers::Initializer;
use crate::variables::{SaveSlice, Variable};
use ferroflow_core::op::{Grad, IndexedSlices};
use ferroflow_core::scope::{CollectionItem, Input, Operation, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, bail};
use ferroflow_ops::build as ops;

/// One input of an update op.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg {
    /// The variable.
    Var,
    /// One of its slots.
    Slot(usize),
    /// A power that all variables share.
    Power(usize),
    /// A number.
    Hyper(usize),
    /// The gradient, or its rows.
    Grad,
    /// The rows' indices.
    Indices,
    /// The number of the step, counted from one.
    Step,
}

/// How rows of a variable are updated.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sparse {
    /// By an op with these inputs.
    Op(&'static [Arg]),
    /// By several nodes.
    Nodes(SparseUpdate),
}

/// What an optimizer is made of.
#[derive(Clone, Debug)]
pub struct Rule {
    /// The name of nodes and slots.
    pub(super) name: String,
    /// The op's name without `Resource`, `Sparse` and `Apply`.
    pub(super) op: &'static str,
    /// Numbers with the names of their nodes.
    pub(super) hyper: Vec<(&'static str, Rate)>,
    /// What the slots of a variable start with.
    pub(super) slots: Vec<Initializer>,
    /// Powers that all variables share: their names, and the numbers that they start with and are multiplied by.
    pub(super) powers: Vec<(&'static str, usize)>,
    pub(super) dense: &'static [Arg],
    pub(super) sparse: Sparse,
    pub(super) attrs: Vec<(&'static str, bool)>,
    /// The counter of steps, for rules that look at it.
    pub(super) step: Option<Variable>,
}

/// The nodes that the updates of all variables share.
pub(super) struct ApplyCx<'a> {
    pub(super) rule: &'a Rule,
    pub(super) hyper: Vec<Output>,
    pub(super) powers: Vec<Variable>,
    step: Option<Output>,
}

impl Rule {
    /// The optimizer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The variables that `apply` adds for each of these, in order; the powers last.
    #[track_caller]
    pub(super) fn create_slots(&self, scope: &Scope, variable: &Variable) -> Result<Vec<Variable>> {
        let slot = |initializer: &Initializer| create_slot(scope, variable, &self.name, initializer.clone());
        self.slots.iter().map(slot).collect()
    }

    #[track_caller]
    pub(crate) fn apply(
        &self,
        scope: &Scope,
        grads: &[GradAndVar],
        global_step: Option<&Variable>,
    ) -> Result<Operation> {
        let given: Vec<(&Grad, &Variable)> =
            grads.iter().filter_map(|(grad, variable)| Some((grad.as_ref()?, variable))).collect();
        if given.is_empty() {
            let names: Vec<String> = grads.iter().map(|(_, variable)| variable.name()).collect();
            bail!(
                InvalidArgument,
                "No gradients provided for any variable, check your graph for ops that do not support gradients, between variables {names:?}"
            );
        }
        let powers = self.create_powers(scope, &given)?;
        let slots = given
            .iter()
            .map(|(_, variable)| self.create_slots(scope, variable))
            .collect::<Result<Vec<_>>>()?;
        let inner = scope.scope(&self.name);
        let hyper = |(name, rate): &(&str, Rate)| match rate {
            Rate::Number(number) => inner.named_constant(name, Tensor::scalar(*number as f32)),
            Rate::Output(output) => Ok(output.clone()),
        };
        let hyper = self.hyper.iter().map(hyper).collect::<Result<_>>()?;
        let step = match &self.step {
            Some(step) => Some((&step.read(&inner)? + 1i64)?),
            None => None,
        };
        let cx = ApplyCx { rule: self, hyper, powers, step };
        let mut updates = Vec::new();
        for ((grad, variable), slots) in given.iter().zip(&slots) {
            let place = inner.scope(&format!("update_{}", variable.name())).colocate_with(variable.op());
            updates.push(cx.update(&place, grad, variable, slots)?);
        }
        updates.extend(cx.finish(&inner, &updates)?);
        let full = inner.prefix().to_owned();
        let train = match global_step {
            None => inner.control(&updates).op("NoOp").name(&full).build()?,
            Some(step) => {
                let update = inner.control(&updates).op("NoOp").name("update").build()?;
                let place = inner.control([&update]).colocate_with(step.op());
                let one = match step.dtype() {
                    DType::Int32 => place.constant(1i32)?,
                    _ => place.constant(1i64)?,
                };
                let op = if step.is_resource() { "AssignAddVariableOp" } else { "AssignAdd" };
                let place = inner.colocate_with(step.op());
                place.op(op).name(&full).input(step.handle()).input(&one).build()?
            }
        };
        scope.graph().add_to_collection("train_op", CollectionItem::Node(train.name()));
        Ok(train)
    }

    fn create_powers(&self, scope: &Scope, given: &[(&Grad, &Variable)]) -> Result<Vec<Variable>> {
        // As in stock, the powers lie with the variable whose name comes first.
        let first = given.iter().map(|(_, variable)| *variable).min_by_key(|variable| variable.name());
        let create = |(name, hyper): &(&str, usize)| {
            let Rate::Number(base) = self.hyper[*hyper].1 else {
                bail!(InvalidArgument, "{} needs a fixed number for {}", self.name, self.hyper[*hyper].0)
            };
            let name = scope.graph().unique_name(&format!("{}{name}", scope.prefix()));
            let spec = Variable::spec(&name, []).absolute().trainable(false);
            let spec = spec.initializer(Initializer::scalar(base));
            match first {
                Some(first) => {
                    let spec = if first.is_resource() { spec } else { spec.reference() };
                    spec.colocate_with(first.op()).build(scope)
                }
                None => spec.build(scope),
            }
        };
        self.powers.iter().map(create).collect()
    }
}

/// Adds a variable that belongs to another: `w/Adam`, in the place of `w` and cut like `w`.
#[track_caller]
pub(super) fn create_slot(
    scope: &Scope,
    variable: &Variable,
    name: &str,
    initializer: Initializer,
) -> Result<Variable> {
    let primary = variable.name();
    let full = scope.graph().unique_name(&format!("{primary}/{name}"));
    let mut spec = Variable::spec(&full, variable.shape().dims().iter().copied())
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

impl ApplyCx<'_> {
    /// A number in the variable's type.
    pub(super) fn hyper(&self, place: &Scope, index: usize, dtype: DType) -> Result<Output> {
        let hyper = &self.hyper[index];
        if hyper.dtype() == dtype { Ok(hyper.clone()) } else { ops::cast(place, hyper, dtype) }
    }

    /// The value of a power in the variable's type.
    pub(super) fn power(&self, place: &Scope, index: usize, dtype: DType) -> Result<Output> {
        let power = self.powers[index].read(place)?;
        if power.dtype() == dtype { Ok(power) } else { ops::cast(place, &power, dtype) }
    }

    fn update(
        &self,
        place: &Scope,
        grad: &Grad,
        variable: &Variable,
        slots: &[Variable],
    ) -> Result<Operation> {
        if grad.dtype() != variable.dtype() {
            bail!(
                InvalidArgument,
                "the gradient by '{}' is {}, but the variable is {}",
                variable.name(),
                grad.dtype(),
                variable.dtype()
            );
        }
        match (grad, &self.rule.sparse) {
            (Grad::Dense(grad), _) => self.op(place, "Apply", self.rule.dense, grad, None, variable, slots),
            (Grad::Sparse(rows), Sparse::Op(args)) => {
                let (values, indices) = deduplicated(place, rows)?;
                self.op(place, "SparseApply", args, &values, Some(&indices), variable, slots)
            }
            (Grad::Sparse(rows), Sparse::Nodes(update)) => update.build(self, place, rows, variable, slots),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "what an update op takes")]
    fn op(
        &self,
        place: &Scope,
        kind: &str,
        args: &[Arg],
        grad: &Output,
        indices: Option<&Output>,
        variable: &Variable,
        slots: &[Variable],
    ) -> Result<Operation> {
        let resource = if variable.is_resource() { "Resource" } else { "" };
        let mut node = place.op(&format!("{resource}{kind}{}", self.rule.op));
        for arg in args {
            let input: Input = match arg {
                Arg::Var => variable.handle().into(),
                Arg::Slot(index) => slots[*index].handle().into(),
                Arg::Power(index) => self.power(place, *index, variable.dtype())?.into(),
                Arg::Hyper(index) => self.hyper(place, *index, variable.dtype())?.into(),
                Arg::Grad => grad.into(),
                Arg::Indices => indices.expect("rows come with indices").into(),
                Arg::Step => self.step.as_ref().expect("rules that look at the step have it").into(),
            };
            node = node.input(input);
        }
        for (name, value) in &self.rule.attrs {
            node = node.attr(name, *value);
        }
        node.build()
    }

    /// Multiplies the powers, after all updates have seen them.
    fn finish(&self, inner: &Scope, updates: &[Operation]) -> Result<Vec<Operation>> {
        let after = inner.control(updates);
        let multiply = |(power, (_, hyper)): (&Variable, &(&str, usize))| {
            let place = after.colocate_with(power.op());
            let next = ops::mul(&place, power.read(&place), &self.hyper[*hyper])?;
            power.assign(&place, &next)
        };
        self.powers.iter().zip(&self.rule.powers).map(multiply).collect()
    }
}

/// Rows whose indices differ: those of equal indices are added.
pub(super) fn deduplicated(place: &Scope, rows: &IndexedSlices) -> Result<(Output, Output)> {
    let unique = place.op("Unique").input(&rows.indices).build()?;
    let (indices, positions) = (unique.output(0)?, unique.output(1)?);
    let shape = ops::shape(place, &indices)?;
    let count = ops::StridedSlice::new().shrink_axis_mask(1).build(place, &shape, [0], [1], [1])?;
    let sums = ops::unsorted_segment_sum(place, &rows.values, &positions, &count)?;
    Ok((sums, indices))
}

//! Nodes of an optimizer: slots, hyperparameters, one update per variable, and the global step.

use super::slots::{Slots, Start, value};
use super::sparse::SparseUpdate;
use super::{GradAndVar, Scalar};
use crate::arithmetic::{add, cast, div, mul};
use crate::variables::Variable;
use ferroflow_core::op::{Grad, IndexedSlices};
use ferroflow_core::scope::{CollectionItem, Graph, Input, Operation, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, bail, ensure};
use ferroflow_ops::builders as ops;

/// One input of an update op.
#[derive(Clone, Copy, Debug)]
pub(super) enum Arg {
    /// The variable.
    Var,
    /// One of its slots.
    Slot(usize),
    /// One of the powers that all variables share.
    Power(usize),
    /// One of the hyperparameters.
    Hyper(usize),
    /// The gradient; its values if it is sparse.
    Grad,
    /// The indices of a sparse gradient.
    Indices,
    /// The number of the step, counted from 1.
    Step,
}

/// A hyperparameter of an update op.
#[derive(Clone, Debug)]
pub(super) enum Hyper {
    /// A node of this name, shared by all updates.
    Shared(&'static str, Scalar),
    /// A node per update.
    Each(Scalar),
    /// `l2 + beta / (2 · rate)`, shared.
    AdjustedL2 { l2: Scalar, beta: f64, rate: Scalar },
}

/// Update for sparse gradients.
#[derive(Clone, Copy, Debug)]
pub(super) enum Sparse {
    /// An op with these inputs.
    Op(&'static [Arg]),
    /// Several nodes.
    Nodes(SparseUpdate),
}

/// Description of an optimizer: its slots, hyperparameters and update ops.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Name of nodes and slots.
    pub(super) name: String,
    /// Name of the op, without `Resource`, `Sparse` and `Apply`.
    pub(super) op: &'static str,
    pub(super) hyper: Vec<Hyper>,
    /// Slots of a variable: their names and initial values.
    pub(super) slots: Vec<(&'static str, Start)>,
    /// Powers that all variables share: their names, and the indices of the hyperparameters that they are powers of.
    pub(super) powers: Vec<(&'static str, usize)>,
    pub(super) dense: &'static [Arg],
    pub(super) sparse: Sparse,
    pub(super) attrs: Vec<(&'static str, bool)>,
    /// Global step, for rules that depend on it.
    pub(super) step: Option<Variable>,
    pub(super) use_locking: bool,
    /// Existing slots and powers.
    pub(super) made: Slots,
}

/// Nodes that the updates of all variables share.
pub(super) struct ApplyCx<'a> {
    pub(super) rule: &'a Rule,
    hyper: Vec<Option<Output>>,
    pub(super) powers: Vec<Variable>,
    step: Option<Output>,
}

impl Rule {
    /// Returns the optimizer's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the names of the slots that every variable has.
    pub fn slot_names(&self) -> Vec<&'static str> {
        self.slots.iter().map(|(name, _)| *name).collect()
    }

    /// Returns a slot of a variable, once the variable's update has been added.
    pub fn slot(&self, variable: &Variable, name: &str) -> Option<Variable> {
        self.made.find(variable, name)
    }

    /// Returns the variables that the optimizer added to a graph, sorted by name.
    pub fn variables(&self, graph: &Graph) -> Vec<Variable> {
        self.made.all(graph)
    }

    #[track_caller]
    pub(crate) fn apply(
        &self,
        scope: &Scope,
        grads: &[GradAndVar],
        global_step: Option<&Variable>,
    ) -> Result<Operation> {
        let given = self.check(scope, grads)?;
        // As in TensorFlow, the powers are placed with the variable whose name comes first.
        let first = given.iter().map(|(_, variable)| *variable).min_by_key(|variable| variable.name());
        let mut powers = Vec::with_capacity(self.powers.len());
        for (name, hyper) in &self.powers {
            let (Hyper::Shared(_, start) | Hyper::Each(start)) = &self.hyper[*hyper] else {
                bail!(Internal, "{name} is not the power of a plain hyperparameter");
            };
            powers.push(self.made.shared(scope, name, start, first.expect("there are gradients"))?);
        }
        let mut slots = Vec::with_capacity(given.len());
        for (_, variable) in &given {
            slots.push(self.made.of(scope, variable, &self.name, &self.slots)?);
        }
        let inner = scope.scope(&self.name);
        let cx = self.prepare(&inner, powers)?;
        let mut updates = Vec::new();
        for ((grad, variable), slots) in given.iter().zip(&slots) {
            let place = inner.scope(&format!("update_{}", variable.name())).colocate_with(variable.op());
            updates.push(cx.update(&place, grad, variable, slots)?);
        }
        updates.extend(cx.finish(&inner, &updates)?);
        let train = match global_step {
            None => inner.group_named(inner.prefix(), &updates)?,
            Some(step) => {
                let update = inner.group_named("update", &updates)?;
                increment(&inner, step, &update)?
            }
        };
        scope.graph().add_to_collection("train_op", CollectionItem::Node(train.name()));
        Ok(train)
    }

    /// Returns the variables that have gradients, after checking that everything fits.
    fn check<'a>(&self, scope: &Scope, grads: &'a [GradAndVar]) -> Result<Vec<(&'a Grad, &'a Variable)>> {
        ensure!(
            !grads.is_empty(),
            InvalidArgument,
            "No variables provided; pass pairs of gradients and variables, such as those of compute_gradients."
        );
        let given: Vec<(&Grad, &Variable)> =
            grads.iter().filter_map(|(grad, variable)| Some((grad.as_ref()?, variable))).collect();
        if given.is_empty() {
            let names: Vec<String> = grads.iter().map(|(_, variable)| variable.name()).collect();
            bail!(
                InvalidArgument,
                "No gradients provided for any variable: {}. The loss does not depend on them; check that it is \
                 computed from them, and not behind a stop_gradient.",
                names.join(", ")
            );
        }
        for (i, (grad, variable)) in given.iter().enumerate() {
            let name = variable.name();
            ensure!(
                variable.graph().is_same(scope.graph()),
                InvalidArgument,
                "variable '{name}' belongs to another graph; apply its gradient in a scope of that graph"
            );
            check_dtype(&name, variable.dtype())?;
            ensure!(
                grad.dtype() == variable.dtype(),
                InvalidArgument,
                "the gradient of '{name}' is {}, but the variable is {}; convert it with ops::cast",
                grad.dtype(),
                variable.dtype()
            );
            ensure!(
                !given[..i].iter().any(|(_, other)| other == variable),
                InvalidArgument,
                "variable '{name}' is given twice; add its gradients, and give it once"
            );
        }
        Ok(given)
    }

    fn prepare(&self, inner: &Scope, powers: Vec<Variable>) -> Result<ApplyCx<'_>> {
        let mut hyper = Vec::with_capacity(self.hyper.len());
        for number in &self.hyper {
            hyper.push(match number {
                Hyper::Shared(name, rate) => Some(rate.node(inner, name)?),
                Hyper::Each(_) => None,
                Hyper::AdjustedL2 { l2, beta, rate } => {
                    // A rate of zero must not lead to a division by zero.
                    let rate = ops::maximum(inner, rate, 1e-36)?;
                    let part = div(inner, *beta, mul(inner, 2.0, &rate))?;
                    Some(add(inner, l2, &part)?)
                }
            });
        }
        let step = match &self.step {
            Some(step) => {
                let place = match hyper.first() {
                    Some(Some(first)) => inner.colocate_with(first),
                    _ => inner.clone(),
                };
                let now = ops::identity(&place, value(&place, step))?;
                let one =
                    if step.dtype() == DType::Int32 { Tensor::scalar(1i32) } else { Tensor::scalar(1i64) };
                Some(cast(&place, &add(&place, &now, one)?, DType::Int64)?)
            }
            None => None,
        };
        Ok(ApplyCx { rule: self, hyper, powers, step })
    }
}

/// Checks that a type is one of the floating-point types that optimizers support.
pub(super) fn check_dtype(name: &str, dtype: DType) -> Result<()> {
    let valid = [DType::Half, DType::Bfloat16, DType::Float, DType::Double];
    ensure!(
        valid.contains(&dtype),
        InvalidArgument,
        "Invalid type {dtype} for {name}, expected: half, bfloat16, float or double."
    );
    Ok(())
}

/// Adds one to the global step after the updates; the operation has the scope's name.
fn increment(inner: &Scope, step: &Variable, update: &Operation) -> Result<Operation> {
    let one = match step.dtype() {
        DType::Int32 => Tensor::scalar(1i32),
        DType::Int64 => Tensor::scalar(1i64),
        other => bail!(
            InvalidArgument,
            "the global step '{}' is {other}, but must be int32 or int64; make it with ferroflow::global_step",
            step.name()
        ),
    };
    let place = inner.colocate_with(step.op());
    let (op, name) =
        if step.is_resource() { ("AssignAddVariableOp", "Const") } else { ("AssignAdd", "value") };
    let one = place.control([update]).named_constant(name, one)?;
    let node = place.op(op).name(inner.prefix()).input(step.handle()).input(&one);
    if step.is_resource() { node.attr("dtype", step.dtype()).build() } else { node.build() }
}

impl ApplyCx<'_> {
    /// Returns a hyperparameter in the variable's type.
    pub(super) fn hyper(&self, place: &Scope, index: usize, dtype: DType) -> Result<Output> {
        let number = match (&self.hyper[index], &self.rule.hyper[index]) {
            (Some(shared), _) => shared.clone(),
            (None, Hyper::Each(rate)) => rate.node(&place.scope("Cast"), "x")?,
            (None, _) => bail!(Internal, "a shared hyperparameter of an optimizer was not added"),
        };
        cast(place, &number, dtype)
    }

    /// Returns the value of a power in the variable's type.
    pub(super) fn power(&self, place: &Scope, index: usize, dtype: DType) -> Result<Output> {
        cast(place, &value(place, &self.powers[index])?, dtype)
    }

    fn update(
        &self,
        place: &Scope,
        grad: &Grad,
        variable: &Variable,
        slots: &[Variable],
    ) -> Result<Operation> {
        let target = Target { variable, slots };
        match (grad, &self.rule.sparse) {
            (Grad::Dense(grad), _) => {
                ensure!(
                    grad.shape().is_compatible_with(&variable.shape().into()),
                    InvalidArgument,
                    "the gradient of '{}' has shape {}, but the variable has shape {}",
                    variable.name(),
                    grad.shape(),
                    variable.shape()
                );
                self.op(place, "Apply", self.rule.dense, grad, None, target)
            }
            (Grad::Sparse(rows), Sparse::Op(args)) => {
                let (values, indices) = deduplicated(place, rows)?;
                self.op(place, "SparseApply", args, &values, Some(&indices), target)
            }
            (Grad::Sparse(rows), Sparse::Nodes(update)) => update.build(self, place, rows, target),
        }
    }

    fn op(
        &self,
        place: &Scope,
        kind: &str,
        args: &[Arg],
        grad: &Output,
        indices: Option<&Output>,
        target: Target<'_>,
    ) -> Result<Operation> {
        let (variable, dtype) = (target.variable, target.variable.dtype());
        let resource = if variable.is_resource() { "Resource" } else { "" };
        let op = format!("{resource}{kind}{}", self.rule.op);
        ensure!(
            place.graph().registry().get(&op).is_some(),
            Unimplemented,
            "{} cannot update the reference variable '{}': there is no op {op}; make it a resource variable",
            self.rule.name,
            variable.name()
        );
        let full = place.graph().unique_name(&format!("{}{op}", place.prefix()));
        let below = place.scope(&format!("{full}/"));
        let step = match &self.step {
            Some(step) => {
                let device = variable.op().device();
                let there = if device.is_empty() { place.clone() } else { place.device(&device) };
                Some(ops::identity(&there, step)?)
            }
            None => None,
        };
        let mut node = place.op(&op).name(&format!("{full}/"));
        for arg in args {
            let input: Input = match arg {
                Arg::Var => variable.handle().into(),
                Arg::Slot(index) => target.slots[*index].handle().into(),
                Arg::Power(index) => {
                    let converted = self.powers[*index].dtype() != dtype;
                    self.power(if converted { place } else { &below }, *index, dtype)?.into()
                }
                Arg::Hyper(index) => self.hyper(place, *index, dtype)?.into(),
                Arg::Grad => grad.into(),
                Arg::Indices => indices.expect("rows come with indices").into(),
                Arg::Step => step.as_ref().expect("rules that depend on the step have it").into(),
            };
            node = node.input(input);
        }
        for (name, value) in &self.rule.attrs {
            node = node.attr(name, *value);
        }
        node.attr("use_locking", self.rule.use_locking).build()
    }

    /// Multiplies the powers, after all updates have read them.
    fn finish(&self, inner: &Scope, updates: &[Operation]) -> Result<Vec<Operation>> {
        let Some(first) = self.powers.first() else { return Ok(Vec::new()) };
        let place = inner.colocate_with(first.op());
        let after = place.control(updates);
        let mut assigned = Vec::with_capacity(self.powers.len());
        for (power, (_, hyper)) in self.powers.iter().zip(&self.rule.powers) {
            let factor = self.hyper(inner, *hyper, power.dtype())?;
            // A read by reference does not wait for the updates itself.
            let multiply = if power.is_resource() { &place } else { &after };
            let next = mul(multiply, value(&after, power), &factor)?;
            let target = Target { variable: power, slots: &[] };
            assigned.push(target.assign(&place, "Assign", &next, self.rule.use_locking)?);
        }
        Ok(assigned)
    }
}

/// A variable to update, with its slots.
#[derive(Clone, Copy)]
pub(super) struct Target<'a> {
    pub(super) variable: &'a Variable,
    pub(super) slots: &'a [Variable],
}

impl<'a> Target<'a> {
    /// Returns one of the slots as a target.
    pub(super) fn slot(self, index: usize) -> Target<'a> {
        Target { variable: &self.slots[index], slots: &[] }
    }

    /// Adds an op of the family `Assign`, `AssignAdd`, `AssignSub`.
    pub(super) fn assign(
        self,
        place: &Scope,
        family: &str,
        value: &Output,
        use_locking: bool,
    ) -> Result<Operation> {
        let variable = self.variable;
        if variable.is_resource() {
            let node = place.op(&format!("{family}VariableOp")).input(variable.handle()).input(value);
            return node.attr("dtype", variable.dtype()).build();
        }
        place.op(family).input(variable.handle()).input(value).attr("use_locking", use_locking).build()
    }

    /// Adds an op of the family `ScatterAdd`, `ScatterSub`, `ScatterUpdate`.
    pub(super) fn scatter(
        self,
        place: &Scope,
        family: &str,
        indices: &Output,
        rows: &Output,
        use_locking: bool,
    ) -> Result<Operation> {
        let variable = self.variable;
        if variable.is_resource() {
            let node =
                place.op(&format!("Resource{family}")).input(variable.handle()).input(indices).input(rows);
            return node.attr("dtype", variable.dtype()).build();
        }
        let node = place.op(family).input(variable.handle()).input(indices).input(rows);
        node.attr("use_locking", use_locking).build()
    }

    /// Returns the value after an update.
    pub(super) fn after(self, place: &Scope, update: &Operation) -> Result<Output> {
        if self.variable.is_resource() {
            value(&place.control([update]), self.variable)
        } else {
            update.output(0)
        }
    }
}

/// Sums the rows of equal indices, so that all indices differ.
pub(super) fn deduplicated(place: &Scope, rows: &IndexedSlices) -> Result<(Output, Output)> {
    let unique = ops::unique(place, &rows.indices)?;
    let shape = ops::shape(place, &unique.y)?;
    let slice = place.scope("strided_slice");
    let [begin, end, strides] = [("stack", 0), ("stack_1", 1), ("stack_2", 1)]
        .map(|(name, at)| slice.named_constant(name, Tensor::vector(vec![at])));
    let count = ops::StridedSlice::new().name(slice.prefix()).shrink_axis_mask(1);
    let count = count.build(place, &shape, begin, end, strides)?;
    let sums = ops::unsorted_segment_sum(place, &rows.values, &unique.idx, &count)?;
    Ok((sums, unique.y))
}

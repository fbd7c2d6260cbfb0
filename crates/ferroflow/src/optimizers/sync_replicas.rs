//! Synchronous training: gradients of several workers are averaged before they are applied once.
//!
//! Each variable has an accumulator beside it. Workers add gradients, marked with the step they were computed in; the
//! chief takes an average of `replicas_to_aggregate` fresh ones, applies it, and puts a token for every worker into a
//! queue, which the workers wait for. Gradients of workers that were too slow are dropped. Accumulators, queue and their
//! names are those of stock's `SyncReplicasOptimizer`, so that workers of either kind train together.

use super::slots::value;
use super::{ExponentialMovingAverage, GradAndVar, Optimizer, compute_gradients};
use crate::initializers;
use crate::train::report_uninitialized_variables;
use crate::variables::{Variable, collections, global_variables, trainable_variables};
use ferroflow_core::op::{Grad, IndexedSlices};
use ferroflow_core::scope::{Operation, Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure};
use ferroflow_ops::builders as ops;

/// Makes an optimizer synchronous.
///
/// ```
/// use ferroflow::optimizers::{GradientDescent, SyncReplicas};
/// use ferroflow::{Graph, Variable, global_step, initializers, ops};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let w = Variable::new(&s, "w", [3], initializers::ones())?;
/// let loss = ops::sum(&s, ops::square(&s, &w), [0])?;
/// let step = global_step(&s)?;
/// // Two gradients make a step; the third worker is a backup.
/// let sync = SyncReplicas::new(GradientDescent::new(0.1), 2).total_replicas(3);
/// let train = sync.minimize(&s, &loss, &step)?;
/// assert_eq!(train.chief_queue.name(), "sync_token_q_EnqueueMany");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SyncReplicas<O> {
    optimizer: O,
    replicas: usize,
    total: usize,
    init_tokens: Option<usize>,
    averages: Option<(ExponentialMovingAverage, Vec<Variable>)>,
    name: String,
}

/// The operations of a synchronous step. Workers run `train`; the chief also runs `chief_queue` again and again on a
/// thread of its own, after `chief_init` and `init_tokens` once.
#[derive(Clone, Debug)]
pub struct SyncTrainOp {
    /// A worker's step: adds its gradients and waits for the next token.
    pub train: Operation,
    /// The chief's step: takes gradients, applies them, and hands out tokens. It waits until there are enough.
    pub chief_queue: Operation,
    /// Hands out the first tokens; the chief runs it once, after the variables have values.
    pub init_tokens: Operation,
    /// What the chief runs when it starts, in place of an initializer of local variables: accumulators learn the step.
    pub chief_init: Operation,
    /// What other workers run when they start: their local step learns the global one.
    pub local_step_init: Operation,
    /// Names of global variables without values; empty when `chief_init` and `local_step_init` may run.
    pub ready_for_local_init: Output,
    /// The token queue.
    pub token_queue: Output,
    /// Ends the queue when what is in it has been taken.
    pub close: Operation,
    /// Ends the queue and whoever waits for it.
    pub cancel: Operation,
}

impl<O: Optimizer> SyncReplicas<O> {
    /// Applies the average of this many gradients per step.
    pub fn new(optimizer: O, replicas_to_aggregate: usize) -> SyncReplicas<O> {
        SyncReplicas {
            optimizer,
            replicas: replicas_to_aggregate,
            total: replicas_to_aggregate,
            init_tokens: None,
            averages: None,
            name: "sync_replicas".to_owned(),
        }
    }

    /// The number of workers: those beyond the gradients that a step needs are backups. If there are fewer workers than
    /// gradients, each gives several per step.
    #[must_use]
    pub fn total_replicas(mut self, total: usize) -> SyncReplicas<O> {
        self.total = total;
        self
    }

    /// How many tokens there are before the first step; as many as gradients unless this says otherwise.
    #[must_use]
    pub fn init_tokens(mut self, tokens: usize) -> SyncReplicas<O> {
        self.init_tokens = Some(tokens);
        self
    }

    /// Moving averages of variables that the chief updates in every step.
    #[must_use]
    pub fn variable_averages(
        mut self,
        averages: ExponentialMovingAverage,
        variables: impl IntoIterator<Item = Variable>,
    ) -> SyncReplicas<O> {
        self.averages = Some((averages, variables.into_iter().collect()));
        self
    }

    /// The name of the accumulators' scope.
    #[must_use]
    pub fn name(mut self, name: &str) -> SyncReplicas<O> {
        self.name = name.to_owned();
        self
    }

    /// The optimizer whose updates are synchronous.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// Adds gradients by all trainable variables, and the operations of a synchronous step.
    #[track_caller]
    pub fn minimize(&self, scope: &Scope, loss: &Output, global_step: &Variable) -> Result<SyncTrainOp> {
        let grads = compute_gradients(scope, loss, &trainable_variables(scope.graph())?)?;
        self.apply_gradients(scope, &grads, global_step)
    }

    /// Adds the operations of a synchronous step.
    #[track_caller]
    pub fn apply_gradients(
        &self,
        scope: &Scope,
        grads: &[GradAndVar],
        global_step: &Variable,
    ) -> Result<SyncTrainOp> {
        let first_tokens = self.check(grads)?;
        let local_step = local_step(scope, global_step)?;
        let local_step_init = set(scope, &local_step, &value(scope, global_step)?)?;
        let ready_for_local_init = report_uninitialized_variables(scope, &global_variables(scope.graph())?)?;
        let inner = scope.scope(&self.name);
        let mut accumulators = Vec::new();
        let mut applied = Vec::new();
        let mut averages: Vec<GradAndVar> = Vec::new();
        for (grad, variable) in grads {
            let Some(grad) = grad else {
                averages.push((None, variable.clone()));
                continue;
            };
            let place = on_device_of(&inner, variable);
            let accumulator = Accumulator::new(&place, variable, grad)?;
            applied.push(accumulator.apply(&place, &value(&place, &local_step)?, grad)?);
            averages.push((Some(accumulator.take(&place, self.replicas, grad)?), variable.clone()));
            accumulators.push((accumulator, place));
        }
        let home = on_device_of(scope, global_step);
        let update = self.optimizer.apply_gradients(&home, &averages, Some(global_step))?;
        let types = [global_step.dtype()];
        let queue = home.op("FIFOQueueV2").name("sync_token_q").attr("component_types", types);
        let queue = queue.attr("shapes", [PartialShape::scalar()]).attr("shared_name", "sync_token_q");
        let token_queue = queue.build()?.output(0)?;
        let token = home.control(&applied).op("QueueDequeueV2").name("sync_token_q_Dequeue");
        let token = token.input(&token_queue).attr("component_types", types).build()?.output(0)?;
        let train = set(&home, &local_step, &token)?;
        let per_step = self.total.max(self.replicas);
        let mut chief_queue = tokens(&home.control([&update]), &token_queue, per_step, global_step)?;
        if let Some((averages, variables)) = &self.averages {
            chief_queue = averages.clone().apply(&scope.control([&chief_queue]), variables)?;
        }
        let end = |cancel: bool| {
            let close = home.op("QueueCloseV2").name("sync_token_q_Close").input(&token_queue);
            close.attr("cancel_pending_enqueues", cancel).build()
        };
        let (close, cancel) = (end(false)?, end(true)?);
        let mut starts = vec![local_step_init.clone()];
        for (accumulator, place) in &accumulators {
            starts.push(accumulator.set_step(place, &value(place, global_step)?)?);
        }
        let chief_init = inner.group(&starts)?;
        let init_tokens = match first_tokens {
            0 => home.op("NoOp").name("no_init_tokens").build()?,
            count => tokens(&home, &token_queue, count, global_step)?,
        };
        Ok(SyncTrainOp {
            train,
            chief_queue,
            init_tokens,
            chief_init,
            local_step_init,
            ready_for_local_init,
            token_queue,
            close,
            cancel,
        })
    }

    /// The number of tokens to start with, if the numbers fit.
    fn check(&self, grads: &[GradAndVar]) -> Result<usize> {
        ensure!(!grads.is_empty(), InvalidArgument, "Must supply at least one variable");
        ensure!(
            self.replicas > 0 && self.total > 0,
            InvalidArgument,
            "a step needs the gradients of at least one of at least one replica, not of {} of {}",
            self.replicas,
            self.total
        );
        let needed = self.replicas.saturating_sub(self.total);
        let given = self.init_tokens.unwrap_or(self.replicas);
        ensure!(
            given >= needed,
            InvalidArgument,
            "Too few tokens to finish the first step: {given} (given) vs {needed} (needed)"
        );
        Ok(given)
    }
}

/// Where the gradients of a variable meet.
struct Accumulator {
    handle: Output,
    /// What its ops start with.
    family: &'static str,
}

impl Accumulator {
    fn new(place: &Scope, variable: &Variable, grad: &Grad) -> Result<Accumulator> {
        let (op, name, family, shape) = match grad {
            Grad::Dense(_) => (
                "ResourceConditionalAccumulator",
                "conditional_accumulator",
                "ResourceAccumulator",
                PartialShape::from(variable.shape()),
            ),
            Grad::Sparse(_) => (
                "SparseConditionalAccumulator",
                "sparse_conditional_accumulator",
                "SparseAccumulator",
                PartialShape::scalar(),
            ),
        };
        let node = place.op(op).name(name).attr("dtype", grad.dtype()).attr("shape", shape);
        let node = node.attr("shared_name", format!("{}/grad_accum", variable.handle().name()).as_str());
        Ok(Accumulator { handle: node.build()?.output(0)?, family })
    }

    /// What a reference names, its users are beside.
    fn beside(&self, place: &Scope) -> Scope {
        if self.handle.is_ref() { place.colocate_with(&self.handle) } else { place.clone() }
    }

    fn apply(&self, place: &Scope, step: &Output, grad: &Grad) -> Result<Operation> {
        let op = format!("{}ApplyGradient", self.family);
        let node = |place: &Scope| place.op(&op).input(&self.handle).input(step);
        match grad {
            Grad::Dense(grad) => node(place).input(grad).build(),
            Grad::Sparse(rows) => {
                let indices = ops::cast(place, &rows.indices, DType::Int64)?;
                let shape = match &rows.dense_shape {
                    Some(shape) => ops::cast(place, shape, DType::Int64)?,
                    None => place.constant(Tensor::vector(Vec::<i64>::new()))?,
                };
                let node = node(&self.beside(place)).input(&indices).input(&rows.values).input(&shape);
                node.attr("has_known_shape", rows.dense_shape.is_some()).build()
            }
        }
    }

    fn take(&self, place: &Scope, count: usize, grad: &Grad) -> Result<Grad> {
        let op = format!("{}TakeGradient", self.family);
        let full = place.graph().unique_name(&format!("{}{op}", place.prefix()));
        let count = place.scope(&format!("{full}/")).named_constant("num_required", count as i32)?;
        let node = self.beside(place).op(&op).name(&format!("{full}/")).input(&self.handle).input(&count);
        let node = node.attr("dtype", grad.dtype()).build()?;
        Ok(match grad {
            Grad::Dense(_) => Grad::Dense(node.output(0)?),
            Grad::Sparse(_) => Grad::Sparse(IndexedSlices {
                indices: node.output(0)?,
                values: node.output(1)?,
                dense_shape: Some(node.output(2)?),
            }),
        })
    }

    fn set_step(&self, place: &Scope, step: &Output) -> Result<Operation> {
        let op = match self.handle.is_ref() {
            true => "AccumulatorSetGlobalStep",
            false => "ResourceAccumulatorSetGlobalStep",
        };
        self.beside(place).op(op).name("SetGlobalStep").input(&self.handle).input(step).build()
    }
}

fn on_device_of(scope: &Scope, variable: &Variable) -> Scope {
    let device = variable.op().device();
    if device.is_empty() { scope.clone() } else { scope.device(&device) }
}

/// Replaces the value, beside the variable if a reference names it.
fn set(scope: &Scope, variable: &Variable, value: &Output) -> Result<Operation> {
    if variable.is_resource() {
        return variable.assign(scope, value);
    }
    variable.assign(&scope.colocate_with(variable.op()), value)
}

/// The step that this worker's gradients are computed in.
fn local_step(scope: &Scope, global_step: &Variable) -> Result<Variable> {
    // Keeps the variable on the worker where other variables go to parameter servers.
    let anchor = scope.op("NoOp").build()?;
    let full = scope.graph().unique_name(&format!("{}sync_rep_local_step", scope.prefix()));
    let prefix = if global_step.is_resource() { format!("{full}/Initializer/") } else { format!("{full}/") };
    let zero = Tensor::zeros(global_step.dtype(), []);
    let start = initializers::from_fn(move |scope, _, _, _| {
        scope.scope(&prefix).named_constant("initial_value", zero.clone())
    });
    let spec = Variable::spec(&full, [])
        .absolute()
        .dtype(global_step.dtype())
        .initializer(start)
        .trainable(false)
        .collections([collections::LOCAL_VARIABLES])
        .colocate_with(anchor);
    if global_step.is_resource() { spec.build(scope) } else { spec.reference().build(scope) }
}

/// Puts tokens into the queue, after what the scope waits for: they say the number of the step.
fn tokens(place: &Scope, queue: &Output, count: usize, global_step: &Variable) -> Result<Operation> {
    let full = place.graph().unique_name(&format!("{}Fill", place.prefix()));
    let below = place.scope(&format!("{full}/"));
    // Like the read of a handle, the constant waits, because a reference's value does not.
    let dims = below.named_constant("dims", Tensor::vector(vec![count as i32]))?;
    let outside = place.without_control();
    let node = ops::Fill::new().name(&format!("{full}/"));
    let tokens = node.build(&outside, &dims, value(place, global_step))?;
    let node = outside.op("QueueEnqueueManyV2").name("sync_token_q_EnqueueMany").input(queue);
    node.inputs([&tokens]).build()
}

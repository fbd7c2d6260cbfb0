//! Synchronous training: the gradients of several workers are averaged and applied once.
//!
//! Each variable has an accumulator on its device. Workers add gradients, marked with the step they were computed in. The
//! chief takes the average of `replicas_to_aggregate` fresh ones, applies it, and puts a token for every worker into a
//! queue, which the workers wait for. Gradients of workers that were too slow are dropped. Accumulators, queue and their
//! names are those of TensorFlow's `SyncReplicasOptimizer`, so that workers of both kinds train together.

use super::slots::value;
use super::{ExponentialMovingAverage, GradAndVar, Optimizer, compute_gradients};
use crate::initializers;
use crate::train::report_uninitialized_variables;
use crate::variables::{Variable, collections, global_variables, trainable_variables};
use ferroflow_core::op::{Grad, IndexedSlices};
use ferroflow_core::scope::{Operation, Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure};
use ferroflow_ops::builders as ops;

/// Synchronous form of an optimizer.
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

/// Operations of a synchronous step. Workers run `train`. The chief also runs `chief_queue` repeatedly on another thread,
/// after running `chief_init` and `init_tokens` once. [`SyncReplicasHook`](crate::train::SyncReplicasHook) does all of it.
#[derive(Clone, Debug)]
pub struct SyncTrainOp {
    /// Step of a worker: adds its gradients and waits for the next token.
    pub train: Operation,
    /// Step of the chief: waits for enough gradients, applies their average, and hands out tokens.
    pub chief_queue: Operation,
    /// Hands out the first tokens; the chief runs it once, after the variables are initialized.
    pub init_tokens: Operation,
    /// Initializer that the chief runs for its local variables and the accumulators' step.
    pub chief_init: Operation,
    /// Initializer that other workers run: sets their local step to the global step.
    pub local_step_init: Operation,
    /// Names of uninitialized global variables; empty when `chief_init` and `local_step_init` may run.
    pub ready_for_local_init: Output,
    /// Queue of tokens.
    pub token_queue: Output,
    /// Closes the queue; tokens in it can still be taken.
    pub close: Operation,
    /// Closes the queue and cancels pending operations on it.
    pub cancel: Operation,
}

impl<O: Optimizer> SyncReplicas<O> {
    /// Applies the average of `replicas_to_aggregate` gradients per step.
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

    /// Sets the number of workers; by default, as many as gradients per step. Workers beyond that number are backups; if
    /// there are fewer, each contributes several gradients per step.
    #[must_use]
    pub fn total_replicas(mut self, total: usize) -> SyncReplicas<O> {
        self.total = total;
        self
    }

    /// Sets the number of tokens before the first step; by default, as many as gradients per step.
    #[must_use]
    pub fn init_tokens(mut self, tokens: usize) -> SyncReplicas<O> {
        self.init_tokens = Some(tokens);
        self
    }

    /// Sets moving averages of variables that the chief updates in every step.
    #[must_use]
    pub fn variable_averages(
        mut self,
        averages: ExponentialMovingAverage,
        variables: impl IntoIterator<Item = Variable>,
    ) -> SyncReplicas<O> {
        self.averages = Some((averages, variables.into_iter().collect()));
        self
    }

    /// Sets the name of the accumulators' scope.
    #[must_use]
    pub fn name(mut self, name: &str) -> SyncReplicas<O> {
        self.name = name.to_owned();
        self
    }

    /// Returns the optimizer that is made synchronous.
    pub fn optimizer(&self) -> &O {
        &self.optimizer
    }

    /// Adds gradients with respect to all trainable variables, and the operations of a synchronous step.
    #[track_caller]
    pub fn minimize(&self, scope: &Scope, loss: &Output, global_step: &Variable) -> Result<SyncTrainOp> {
        let grads = compute_gradients(scope, loss, &trainable_variables(scope.graph())?)?;
        self.apply_gradients(scope, &grads, global_step)
    }

    /// Adds the operations of a synchronous step.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if there are no variables, replicas or enough tokens for the first step.
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
        let close_queue = |cancel: bool| {
            let close = home.op("QueueCloseV2").name("sync_token_q_Close").input(&token_queue);
            close.attr("cancel_pending_enqueues", cancel).build()
        };
        let (close, cancel) = (close_queue(false)?, close_queue(true)?);
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

    /// Returns the number of initial tokens, after checking all numbers.
    fn check(&self, grads: &[GradAndVar]) -> Result<usize> {
        ensure!(!grads.is_empty(), InvalidArgument, "Must supply at least one variable");
        ensure!(
            self.replicas > 0 && self.total > 0,
            InvalidArgument,
            "synchronous training aggregates {} gradients of {} replicas, but both numbers must be at least 1",
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

/// Accumulator of the gradients of a variable.
struct Accumulator {
    handle: Output,
    /// Prefix of the names of its ops.
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

    /// Returns the scope of ops that use the accumulator: colocated with it if it is a reference.
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
        let op = if self.handle.is_ref() {
            "AccumulatorSetGlobalStep"
        } else {
            "ResourceAccumulatorSetGlobalStep"
        };
        self.beside(place).op(op).name("SetGlobalStep").input(&self.handle).input(step).build()
    }
}

fn on_device_of(scope: &Scope, variable: &Variable) -> Scope {
    let device = variable.op().device();
    if device.is_empty() { scope.clone() } else { scope.device(&device) }
}

/// Assigns a value; colocated with the variable if it is a reference variable.
fn set(scope: &Scope, variable: &Variable, value: &Output) -> Result<Operation> {
    if variable.is_resource() {
        return variable.assign(scope, value);
    }
    variable.assign(&scope.colocate_with(variable.op()), value)
}

/// Adds the variable that holds the step of this worker's gradients.
fn local_step(scope: &Scope, global_step: &Variable) -> Result<Variable> {
    // Keeps the variable on the worker, in scopes that place variables on parameter servers.
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

/// Adds tokens with the number of the step to the queue, after the scope's control dependencies.
fn tokens(place: &Scope, queue: &Output, count: usize, global_step: &Variable) -> Result<Operation> {
    let full = place.graph().unique_name(&format!("{}Fill", place.prefix()));
    let below = place.scope(&format!("{full}/"));
    // The constant waits like the read of a handle would, because the value of a reference does not.
    let dims = below.named_constant("dims", Tensor::vector(vec![count as i32]))?;
    let outside = place.without_control();
    let node = ops::Fill::new().name(&format!("{full}/"));
    let tokens = node.build(&outside, &dims, value(place, global_step))?;
    let node = outside.op("QueueEnqueueManyV2").name("sync_token_q_EnqueueMany").input(queue);
    node.inputs([&tokens]).build()
}

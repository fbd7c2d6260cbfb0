//! Synchronous training: gradients of several workers are averaged before they are applied once.
//!
//! Each variable has an accumulator beside it. Workers add gradients, marked with the step they were computed in; the
//! chief takes an average of `replicas_to_aggregate` fresh ones, applies it, and puts a token for every worker into a
//! queue, which the workers wait for. Gradients of workers that were too slow are dropped. Accumulators, queue and their
//! names are those of stock's `SyncReplicasOptimizer`, so that workers of either kind train together.

use super::{GradAndVar, Optimizer, compute_gradients};
use crate::initializers;
use crate::train::report_uninitialized_variables;
use crate::variables::{Variable, collections, global_variables, trainable_variables};
use ferroflow_core::op::{Grad, IndexedSlices};
use ferroflow_core::scope::{Operation, Output, Scope};
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure};
use ferroflow_ops::build as ops;

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
}

/// The operations of a synchronous step. Workers run `train`; the chief also runs `chief_queue` again and again on a
/// thread of its own, after `init_tokens` once.
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
}

struct Accumulator {
    handle: Output,
    device: String,
    op: &'static str,
}

impl<O: Optimizer> SyncReplicas<O> {
    /// Applies the average of this many gradients per step.
    pub fn new(optimizer: O, replicas_to_aggregate: usize) -> SyncReplicas<O> {
        SyncReplicas { optimizer, replicas: replicas_to_aggregate, total: replicas_to_aggregate }
    }

    /// The number of workers: those beyond the gradients that a step needs are backups.
    #[must_use]
    pub fn total_replicas(mut self, total: usize) -> SyncReplicas<O> {
        self.total = total;
        self
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
        ensure!(self.replicas > 0, InvalidArgument, "a step needs the gradients of at least one replica");
        if grads.is_empty() {
            bail!(InvalidArgument, "Must supply at least one variable");
        }
        let local_step = local_step(scope, global_step.dtype())?;
        let local_step_init = local_step.assign(scope, global_step.read(scope))?;
        let ready_for_local_init = report_uninitialized_variables(scope, &global_variables(scope.graph())?)?;
        let inner = scope.scope("sync_replicas");
        let mut accumulators = Vec::new();
        let mut applied = Vec::new();
        let mut averages: Vec<GradAndVar> = Vec::new();
        for (grad, variable) in grads {
            let Some(grad) = grad else {
                averages.push((None, variable.clone()));
                continue;
            };
            let device = variable.op().device();
            let place = on_device(&inner, &device);
            let accumulator = self.accumulator(&place, variable, grad, &device)?;
            let step = local_step.read(&inner)?;
            applied.push(accumulator.apply(&place, &step, grad)?);
            averages.push((Some(accumulator.take(&place, self.replicas, grad)?), variable.clone()));
            accumulators.push(accumulator);
        }
        let home = on_device(scope, &global_step.op().device());
        let update = self.optimizer.apply_gradients(&home, &averages, Some(global_step))?;
        let queue =
            home.op("FIFOQueueV2").name("sync_token_q").attr("component_types", [global_step.dtype()]);
        let queue = queue.attr("shapes", [PartialShape::scalar()]).attr("shared_name", "sync_token_q");
        let token_queue = queue.build()?.output(0)?;
        let token = home.control(&applied).op("QueueDequeueV2").name("sync_token_q_Dequeue");
        let token =
            token.input(&token_queue).attr("component_types", [global_step.dtype()]).build()?.output(0)?;
        let train = local_step.assign(&home.control(&applied), &token)?;
        let per_step = self.total.max(self.replicas);
        let chief_queue = tokens(&home.control([&update]), &token_queue, per_step, global_step)?;
        let mut starts = vec![local_step_init.clone()];
        for accumulator in &accumulators {
            starts.push(accumulator.set_step(&on_device(&inner, &accumulator.device), global_step)?);
        }
        Ok(SyncTrainOp {
            train,
            chief_queue,
            init_tokens: tokens(&home, &token_queue, self.replicas, global_step)?,
            chief_init: inner.group(&starts)?,
            local_step_init,
            ready_for_local_init,
            token_queue,
        })
    }

    fn accumulator(
        &self,
        place: &Scope,
        variable: &Variable,
        grad: &Grad,
        device: &str,
    ) -> Result<Accumulator> {
        let (op, name, shape) = match (grad, variable.is_resource()) {
            (Grad::Dense(_), true) => {
                ("ResourceAccumulator", "conditional_accumulator", PartialShape::from(variable.shape()))
            }
            (Grad::Dense(_), false) => {
                ("Accumulator", "conditional_accumulator", PartialShape::from(variable.shape()))
            }
            (Grad::Sparse(_), _) => {
                ("SparseAccumulator", "sparse_conditional_accumulator", PartialShape::scalar())
            }
        };
        let kind = match op {
            "ResourceAccumulator" => "ResourceConditionalAccumulator",
            "Accumulator" => "ConditionalAccumulator",
            _ => "SparseConditionalAccumulator",
        };
        let node = place.op(kind).name(name).attr("dtype", grad.dtype()).attr("shape", shape);
        let node = node.attr("shared_name", format!("{}/grad_accum", variable.handle().name()).as_str());
        Ok(Accumulator { handle: node.build()?.output(0)?, device: device.to_owned(), op })
    }
}

impl Accumulator {
    fn apply(&self, place: &Scope, step: &Output, grad: &Grad) -> Result<Operation> {
        let node = place.op(&format!("{}ApplyGradient", self.op)).input(&self.handle).input(step);
        match grad {
            Grad::Dense(grad) => node.input(grad).build(),
            Grad::Sparse(rows) => {
                let wide = |output: &Output| match output.dtype() {
                    DType::Int64 => Ok(output.clone()),
                    _ => ops::cast(place, output, DType::Int64),
                };
                let shape = match &rows.dense_shape {
                    Some(shape) => wide(shape)?,
                    None => place.constant(Tensor::vector(Vec::<i64>::new()))?,
                };
                let node = node.input(wide(&rows.indices)?).input(&rows.values).input(shape);
                node.attr("has_known_shape", rows.dense_shape.is_some()).build()
            }
        }
    }

    fn take(&self, place: &Scope, count: usize, grad: &Grad) -> Result<Grad> {
        let node = place.op(&format!("{}TakeGradient", self.op)).input(&self.handle);
        let node = node.input(count as i32).attr("dtype", grad.dtype()).build()?;
        Ok(match grad {
            Grad::Dense(_) => Grad::Dense(node.output(0)?),
            Grad::Sparse(_) => Grad::Sparse(IndexedSlices {
                indices: node.output(0)?,
                values: node.output(1)?,
                dense_shape: Some(node.output(2)?),
            }),
        })
    }

    fn set_step(&self, place: &Scope, global_step: &Variable) -> Result<Operation> {
        let op = match self.op {
            "ResourceAccumulator" => "ResourceAccumulatorSetGlobalStep",
            _ => "AccumulatorSetGlobalStep",
        };
        place.op(op).name("SetGlobalStep").input(&self.handle).input(global_step.read(place)).build()
    }
}

fn on_device(scope: &Scope, device: &str) -> Scope {
    if device.is_empty() { scope.clone() } else { scope.without_device().device(device) }
}

/// The step that this worker's gradients are computed in.
fn local_step(scope: &Scope, dtype: DType) -> Result<Variable> {
    // Keeps the variable on the worker where other variables go to parameter servers.
    let anchor = scope.op("NoOp").build()?;
    Variable::spec("sync_rep_local_step", [])
        .dtype(dtype)
        .initializer(initializers::zeros())
        .trainable(false)
        .collections([collections::LOCAL_VARIABLES])
        .colocate_with(anchor)
        .build(scope)
}

/// Puts tokens into the queue.
fn tokens(place: &Scope, queue: &Output, count: usize, global_step: &Variable) -> Result<Operation> {
    let tokens = ops::fill(place, [count as i32], global_step.read(place))?;
    place.op("QueueEnqueueManyV2").name("sync_token_q_EnqueueMany").input(queue).inputs([&tokens]).build()
}

//! Synchronous training with a backup worker: a step averages the gradients of the fastest workers and drops those that
//! come too late.
//!
//! One process per task, in any order, here with two gradients per step from three workers:
//!
//! ```text
//! cargo run --example sync_replicas -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224,localhost:2225 --replicas=2 --job_name=ps
//! cargo run --example sync_replicas -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224,localhost:2225 --replicas=2 --job_name=worker --task_index=0
//! ```
//!
//! and so on for the other workers.

use ferroflow::optimizers::{GradientDescent, SyncReplicas};
use ferroflow::train::{Every, LogTensors, StopAtStep, SyncReplicasHook};
use ferroflow::{Flags, Graph, Result, Tensor, Variable, Worker, global_step, initializers, ops};

/// Runs one task. A worker returns the loss of each of its steps; a parameter server never returns.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments, &["steps", "replicas", "dir"])?;
    let Some(worker) = Worker::start(flags.task_config()?)? else { return Ok(Vec::new()) };

    // Points on the line 2x - 1, and a line with slope and intercept 0 to be fitted to them.
    let graph = Graph::new();
    let s = worker.scope(&graph);
    let x: Vec<f32> = (0..8).map(|i| i as f32 / 8.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 2.0 * x - 1.0).collect();
    let line = Variable::new(&s, "line", [2], initializers::zeros())?;
    let [slope, intercept] = [0, 1].map(|part| ops::slice(&s, &line, [part], [1]));
    let (x, y) = (s.constant(Tensor::vector(x))?, s.constant(Tensor::vector(y))?);
    let error = ((ops::mul(&s, &x, slope)? + intercept)? - &y)?;
    let loss = ops::mean(&s, ops::square(&s, &error), [0])?;

    // The optimizer collects gradients beside the variables; the chief's hook applies their averages.
    let step = global_step(&s)?;
    let replicas = flags.get_or("replicas", worker.count())?;
    let sync = SyncReplicas::new(GradientDescent::new(0.5), replicas).total_replicas(worker.count());
    // No worker gets ahead: its second step waits for the first average.
    let sync = sync.init_tokens(0).minimize(&s, &loss, &step)?;
    let mut session = worker
        .training_session(&graph)
        .hook(SyncReplicasHook::new(&sync, worker.is_chief()))
        .hook(StopAtStep::last(flags.get_or("steps", 300)?))
        .hook(LogTensors::new([("step", step.value()), ("loss", &loss)], Every::Steps(20)));
    if let Some(directory) = flags.get("dir") {
        session = session.checkpoint_dir(directory);
    }
    let mut losses = Vec::new();
    session.build()?.run_loop(|session| {
        let values = session.run_step(&[], &[&loss], &[&sync.train])?;
        losses.push(values[0].to_scalar()?);
        Ok(())
    })?;
    Ok(losses)
}

fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}

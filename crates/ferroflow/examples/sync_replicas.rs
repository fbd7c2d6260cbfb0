//! Synchronous training with a backup worker: a step averages the gradients of the fastest workers, and drops what comes
//! too late.
//!
//! One process per task, in any order, here with two gradients per step from three workers:
//!
//! ```text
//! cargo run --example sync_replicas -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224,localhost:2225 --replicas=2 --job_name=ps
//! cargo run --example sync_replicas -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224,localhost:2225 --replicas=2 --job_name=worker --task_index=0
//! ```
//!
//! and so on for the other workers.

mod flags;

use ferroflow::optimizers::{GradientDescent, SyncReplicas};
use ferroflow::train::{MonitoredTrainingSession, StopAtStep, SyncReplicasHook};
use ferroflow::{
    Graph, ReplicaDeviceSetter, Result, Server, Tensor, Variable, global_step, initializers, ops,
};
use flags::Flags;

/// Runs one task. A worker returns the line that it learned, slope and height; a parameter server serves for ever.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments)?;
    let (cluster, job, task) = flags.task()?;
    let workers = flags.need("worker_hosts")?.split(',').count();
    let server = Server::new(&cluster, &job, task)?;
    if job == "ps" {
        server.join();
        return Ok(Vec::new());
    }

    // Points on the line 2x - 1, and a line through none of them yet.
    let graph = Graph::new();
    let worker = format!("/job:worker/task:{task}");
    let s = ReplicaDeviceSetter::new(&cluster).worker_device(&worker).apply(&graph.scope());
    let x: Vec<f32> = (0..8).map(|i| i as f32 / 8.0).collect();
    let y: Vec<f32> = x.iter().map(|x| 2.0 * x - 1.0).collect();
    let line = Variable::new(&s, "line", [2], initializers::zeros())?;
    let [slope, height] = [0, 1].map(|part| ops::slice(&s, &line, [part], [1]));
    let (x, y) = (s.constant(Tensor::vector(x))?, s.constant(Tensor::vector(y))?);
    let error = ((ops::mul(&s, &x, slope)? + height)? - &y)?;
    let loss = ops::mean(&s, ops::square(&s, &error), [0])?;

    // The optimizer gathers gradients beside the variables; the chief's hook applies their averages.
    let chief = task == 0;
    let step = global_step(&s)?;
    let replicas = flags.number("replicas", workers as u64)? as usize;
    let sync = SyncReplicas::new(GradientDescent::new(0.5), replicas).total_replicas(workers);
    let train = sync.minimize(&s, &loss, &step)?;
    let mut learned = Vec::new();
    let session = MonitoredTrainingSession::new(&graph)
        .target(server.target())
        .chief(chief)
        .hook(SyncReplicasHook::new(&train, chief))
        .hook(StopAtStep::last(flags.number("steps", 300)? as i64))
        .build()?;
    session.run_loop(|session| {
        session.execute(&train.train)?;
        learned = session.session()?.eval(line.value())?.flat::<f32>()?.to_vec();
        Ok(())
    })?;
    println!("worker {task} learned {learned:?}");
    Ok(learned)
}

#[allow(dead_code, reason = "tests call `run`")]
fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}

//! Between-graph replication: every worker builds the model for itself and trains it with its own part of the data, while
//! the variables are shared on the parameter servers.
//!
//! One process per task, in any order:
//!
//! ```text
//! cargo run --example between_graph -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=ps
//! cargo run --example between_graph -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0
//! cargo run --example between_graph -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=1
//! ```

mod flags;

use ferroflow::data::digits::Digits;
use ferroflow::layers::{Activation, Dense};
use ferroflow::optimizers::{Adagrad, Optimizer};
use ferroflow::train::{Every, MonitoredTrainingSession, StopAtStep};
use ferroflow::{DType, Graph, ReplicaDeviceSetter, Result, Server, global_step, initializers, losses, ops};
use flags::Flags;

const DATA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/data/digits.csv.gz");

/// Runs one task. A worker returns the losses of its steps; a parameter server serves for ever.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments)?;
    let (cluster, job, task) = flags.task()?;
    let workers = flags.need("worker_hosts")?.split(',').count();
    let server = Server::new(&cluster, &job, task)?;
    if job == "ps" {
        server.join();
        return Ok(Vec::new());
    }

    // Variables go to the parameter servers, one after the other; everything else stays here.
    let graph = Graph::new();
    let worker = format!("/job:worker/task:{task}");
    let s = ReplicaDeviceSetter::new(&cluster).worker_device(&worker).apply(&graph.scope());
    let images = ops::Placeholder::new(DType::Float).shape([-1, 64]).name("images").build(&s)?;
    let labels = ops::Placeholder::new(DType::Int64).shape([-1]).name("labels").build(&s)?;
    let hidden = Dense::new(32).activation(Activation::Relu).name("hidden");
    let hidden = hidden.kernel_initializer(initializers::glorot_uniform().seed(1)).build(&s, &images)?;
    let logits = Dense::new(10).name("logits");
    let logits = logits.kernel_initializer(initializers::glorot_uniform().seed(2)).build(&s, &hidden)?;
    let loss = losses::sparse_softmax_cross_entropy(&s, &labels, &logits)?;
    let step = global_step(&s)?;
    let train = [Adagrad::new(0.1).minimize(&s, &loss, Some(&step))?];

    // The first worker initializes the model or restores its last checkpoint, and writes checkpoints.
    let mut session = MonitoredTrainingSession::new(&graph)
        .target(server.target())
        .chief(task == 0)
        .hook(StopAtStep::last(flags.number("steps", 200)? as i64));
    if let Some(directory) = flags.get("dir") {
        session = session.checkpoint_dir(directory).save_checkpoint(Every::Steps(100));
    }
    let mut session = session.build()?;

    let digits = Digits::load(flags.get("data").unwrap_or(DATA))?;
    let own = digits.examples()?.shard(workers, task as usize)?;
    let batches = own.shuffle(1000, 42).repeat().batch(64).prefetch(2);
    let mut seen = Vec::new();
    for batch in &batches {
        if session.should_stop() {
            break;
        }
        let (x, y) = batch?;
        let values = session.run_step(&[(&images, x), (&labels, y)], &[&loss, step.value()], &train)?;
        seen.push(values[0].to_scalar::<f32>()?);
        if seen.len() % 20 == 0 {
            println!(
                "worker {task}, step {}: loss {:.4}",
                values[1].to_scalar::<i64>()?,
                seen[seen.len() - 1]
            );
        }
    }
    session.close()?;
    Ok(seen)
}

#[allow(dead_code, reason = "tests call `run`")]
fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}

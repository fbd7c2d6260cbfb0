//! One program for the whole cluster: variables on the parameter servers, and a training function that a coordinator
//! schedules on whichever worker is free.
//!
//! The other tasks are plain servers (`ferroflow serve` would do as well):
//!
//! ```text
//! cargo run --example coordinator -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=ps &
//! cargo run --example coordinator -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0 &
//! cargo run --example coordinator -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=1 &
//! cargo run --example coordinator -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224
//! ```

use ferroflow::data::digits::Digits;
use ferroflow::optimizers::{Adagrad, Optimizer};
use ferroflow::strategy::{ClusterCoordinator, ParameterServerStrategy};
use ferroflow::train::{Saver, latest_checkpoint};
use ferroflow::variables::global_variables_initializer;
use ferroflow::{DType, Flags, Graph, Result, TensorSpec, Variable, global_step, initializers, losses, ops};
use std::path::Path;

/// Runs one task. The coordinator returns the loss of each of its steps; servers never return.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments, &["steps", "dir"])?;
    if flags.get("job_name").is_some() {
        flags.task_config()?.server()?.join();
        return Ok(Vec::new());
    }

    let cluster = flags.cluster()?;
    let strategy = ParameterServerStrategy::new(&cluster)?;
    let graph = Graph::new();
    let s = strategy.scope(&graph.scope());
    let weights = Variable::new(&s, "weights", [64, 10], initializers::glorot_uniform().seed(1))?;
    let bias = Variable::new(&s, "bias", [10], initializers::zeros())?;
    let step = global_step(&s)?;

    // Traced once. A call runs on whichever worker is free; the variables stay on the parameter servers.
    let coordinator = ClusterCoordinator::new(&strategy, &graph)?;
    let inputs = [TensorSpec::new(DType::Float, [-1, 64])?, TensorSpec::new(DType::Int64, [-1])?];
    let train = coordinator.function(inputs, |s, inputs| {
        let logits = ops::bias_add(s, ops::mat_mul(s, &inputs[0], &weights), &bias)?;
        let loss = losses::sparse_softmax_cross_entropy(s, &inputs[1], &logits)?;
        let train = Adagrad::new(0.1).minimize(s, &loss, Some(&step))?;
        Ok((loss, train))
    })?;
    let init = global_variables_initializer(&s)?;
    let saver = Saver::new(&graph)?;
    coordinator.execute(&init)?;
    let directory = flags.get("dir");
    if let Some(latest) = directory.map(latest_checkpoint).transpose()?.flatten() {
        saver.restore(coordinator.session(), latest)?;
    }

    // Every worker has its own part of the digits.
    let (digits, workers) = (Digits::bundled()?, cluster.num_tasks("worker"));
    let batches = coordinator.per_worker_dataset(move |worker| {
        let own = digits.examples()?.shard(workers, worker)?;
        Ok(own.shuffle(1000, 42).repeat().batch(64).map(|(images, labels)| vec![images, labels]))
    });
    let steps = flags.get_or("steps", 200)?;
    let scheduled = (0..steps).map(|_| coordinator.schedule_next(&train, &batches));
    let scheduled = scheduled.collect::<Result<Vec<_>>>()?;
    let mut losses = Vec::new();
    for (number, result) in scheduled.iter().enumerate() {
        losses.push(coordinator.fetch(result)?[0].to_scalar::<f32>()?);
        if number % 20 == 0 {
            println!("step {number}: loss {:.4}", losses[number]);
        }
    }
    coordinator.join()?;
    if let Some(directory) = directory {
        let now = coordinator.eval(step.value())?.to_scalar()?;
        saver.save(coordinator.session(), Path::new(directory).join("model.ckpt"), Some(now))?;
    }
    Ok(losses)
}

fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}

//! Between-graph replication: every worker builds its own copy of the graph and trains with its own part of the data,
//! while the variables are shared on the parameter servers.
//!
//! One process per task, in any order:
//!
//! ```text
//! cargo run --example between_graph -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=ps
//! cargo run --example between_graph -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0
//! cargo run --example between_graph -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=1
//! ```
//!
//! Without cluster flags it trains alone, in one process.

use ferroflow::data::digits::Digits;
use ferroflow::layers::{Activation, Dense};
use ferroflow::optimizers::{Adagrad, Optimizer};
use ferroflow::train::{Every, LogTensors, StopAtStep};
use ferroflow::{DType, Flags, Graph, Output, Result, Scope, Worker, global_step, initializers, losses, ops};

/// Flags of this program besides those that describe the cluster.
pub(crate) const FLAGS: &[&str] = &["steps", "save_steps", "dir"];

/// Runs one task. A worker returns the loss of each of its steps; a parameter server never returns.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments, FLAGS)?;
    match Worker::start(flags.task_config()?)? {
        Some(worker) => train(&worker, &flags),
        None => Ok(Vec::new()),
    }
}

/// Inputs and outputs of a classifier of digits.
pub(crate) struct Classifier {
    pub(crate) images: Output,
    pub(crate) labels: Output,
    #[allow(dead_code, reason = "used by the example `evaluation`")]
    pub(crate) logits: Output,
    pub(crate) loss: Output,
}

/// Adds the classifier to a graph.
pub(crate) fn classifier(s: &Scope) -> Result<Classifier> {
    let images = ops::Placeholder::new(DType::Float).shape([-1, 64]).name("images").build(s)?;
    let labels = ops::Placeholder::new(DType::Int64).shape([-1]).name("labels").build(s)?;
    let hidden = Dense::new(32).activation(Activation::Relu).name("hidden");
    let hidden = hidden.kernel_initializer(initializers::glorot_uniform().seed(1)).build(s, &images)?;
    let logits = Dense::new(10).name("logits");
    let logits = logits.kernel_initializer(initializers::glorot_uniform().seed(2)).build(s, &hidden)?;
    let loss = losses::sparse_softmax_cross_entropy(s, &labels, &logits)?;
    Ok(Classifier { images, labels, logits, loss })
}

/// Returns the digits to train with, and those held out for evaluation.
pub(crate) fn digits() -> Result<(Digits, Digits)> {
    Digits::bundled()?.split(360, 42)
}

/// Trains the classifier together with the other workers.
pub(crate) fn train(worker: &Worker, flags: &Flags) -> Result<Vec<f32>> {
    // Variables go to the parameter servers in turn; everything else stays on this worker.
    let graph = Graph::new();
    let s = worker.scope(&graph);
    let model = classifier(&s)?;
    let step = global_step(&s)?;
    let train = Adagrad::new(0.1).minimize(&s, &model.loss, Some(&step))?;

    // The chief (worker 0) initializes the model or restores its last checkpoint, and writes checkpoints.
    let mut session = worker
        .training_session(&graph)
        .save_checkpoint(Every::Steps(flags.get_or("save_steps", 100)?))
        .hook(StopAtStep::last(flags.get_or("steps", 200)?))
        .hook(LogTensors::new([("step", step.value()), ("loss", &model.loss)], Every::Steps(20)));
    if let Some(directory) = flags.get("dir") {
        session = session.checkpoint_dir(directory);
    }
    let mut session = session.build()?;

    // Every worker has its own part of the digits.
    let own = worker.shard(&digits()?.0.examples()?)?;
    let batches = own.shuffle(1000, 42).repeat().batch(64).prefetch(2);
    let mut losses = Vec::new();
    for batch in &batches {
        if session.should_stop() {
            break;
        }
        let (x, y) = batch?;
        let feeds = [(&model.images, x), (&model.labels, y)];
        let values = session.run_step(&feeds, &[&model.loss], &[&train])?;
        losses.push(values[0].to_scalar::<f32>()?);
    }
    session.close()?;
    Ok(losses)
}

fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}

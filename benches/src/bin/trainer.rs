//! A program that trains with the `ferroflow` crate alone, for the ratio suite: `trainer MODEL [CLUSTER]`.
//!
//! With a cluster, as JSON, it is task 0 of job `worker`. It says `ready`, and then, for every line that it reads, how many
//! steps it made in a second. `oracle/bench/trainers.py` has the same models in stock TensorFlow.

use ferroflow::initializers::{glorot_uniform, random_uniform};
use ferroflow::layers::{
    Activation, Conv2d, Dense, Padding, PartitionStrategy, embedding_lookup, flatten, max_pool2d,
};
use ferroflow::optimizers::{Adagrad, Adam, Optimizer};
use ferroflow::train::MonitoredTrainingSession;
use ferroflow::variables::Partitioner;
use ferroflow::{
    ClusterSpec, Code, DType, Graph, Operation, Output, ReplicaDeviceSetter, Result, Scope, Server, Status,
    Tensor, Variable, global_step, losses, ops,
};
use std::io::BufRead;
use std::time::{Duration, Instant};

/// The allocator of the `ferroflow` binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// How long a sample takes.
const SAMPLE: Duration = Duration::from_secs(1);

/// Rows of each of the recommender's tables of embeddings.
const ROWS: i64 = 100_000;

/// What a step feeds, and the loss that it follows.
struct Model {
    inputs: Vec<Output>,
    /// Taken in turn.
    batches: Vec<Vec<Tensor>>,
    loss: Output,
    train: Operation,
}

fn main() -> Result<()> {
    let mut arguments = std::env::args().skip(1);
    let usage =
        || Status::new(Code::InvalidArgument, "usage: trainer perceptron|cnn|wide_and_deep [CLUSTER]");
    let model = arguments.next().ok_or_else(usage)?;
    let cluster = arguments.next().map(|json| ClusterSpec::from_json(&json)).transpose()?.unwrap_or_default();
    let graph = Graph::new();
    let device = ReplicaDeviceSetter::new(&cluster).worker_device("/job:worker/task:0");
    let s = device.apply(&graph.scope());
    let model = match model.as_str() {
        "perceptron" => perceptron(&s)?,
        "cnn" => convolutional(&s)?,
        "wide_and_deep" => wide_and_deep(&s, cluster.tasks().count().saturating_sub(1))?,
        _ => return Err(usage()),
    };
    let mut session = MonitoredTrainingSession::new(&graph).log_step_count(None);
    let server = (!cluster.is_empty()).then(|| Server::new(&cluster, "worker", 0)).transpose()?;
    if let Some(server) = &server {
        session = session.target(server);
    }
    let mut session = session.build()?;
    println!("ready");
    let mut batches = model.batches.iter().cycle();
    for line in std::io::stdin().lock().lines() {
        line.map_err(|error| Status::new(Code::Internal, error.to_string()))?;
        let (start, mut steps) = (Instant::now(), 0);
        while start.elapsed() < SAMPLE {
            let Some(batch) = batches.next() else { return Err(usage()) };
            let feeds: Vec<(&Output, Tensor)> = model.inputs.iter().zip(batch.iter().cloned()).collect();
            session.run_step(&feeds, &[&model.loss], &[&model.train])?;
            steps += 1;
        }
        println!("{}", f64::from(steps) / start.elapsed().as_secs_f64());
    }
    session.close()
}

fn dense(units: i64, name: &str, seed: i64) -> Dense {
    Dense::new(units).name(name).kernel_initializer(glorot_uniform().seed(seed))
}

/// Images of 64 pixels and ten classes.
fn images(s: &Scope, batch: usize) -> Result<(Vec<Output>, Vec<Vec<Tensor>>)> {
    let x = ops::Placeholder::new(DType::Float).shape([-1, 64]).name("x").build(s)?;
    let y = ops::Placeholder::new(DType::Int64).shape([-1]).name("y").build(s)?;
    let pixels = (0..batch * 64).map(|i| (i * 37 % 101) as f32 / 50.0 - 1.0).collect();
    let labels = (0..batch as i64).map(|i| i * 7 % 10).collect();
    Ok((vec![x, y], vec![vec![Tensor::new([batch, 64], pixels)?, Tensor::vector(labels)]]))
}

fn classify(
    s: &Scope,
    (inputs, batches): (Vec<Output>, Vec<Vec<Tensor>>),
    logits: &Output,
    optimizer: impl Optimizer,
) -> Result<Model> {
    let loss = losses::sparse_softmax_cross_entropy(s, &inputs[1], logits)?;
    let train = optimizer.minimize(s, &loss, Some(&global_step(s)?))?;
    Ok(Model { inputs, batches, loss, train })
}

fn perceptron(s: &Scope) -> Result<Model> {
    let data = images(s, 32)?;
    let hidden = dense(128, "hidden", 1).activation(Activation::Relu).build(s, &data.0[0])?;
    let logits = dense(10, "logits", 2).build(s, &hidden)?;
    classify(s, data, &logits, Adagrad::new(0.01))
}

fn convolutional(s: &Scope) -> Result<Model> {
    let data = images(s, 64)?;
    let mut x = ops::reshape(s, &data.0[0], [-1, 8, 8, 1])?;
    for (filters, name) in [(16, "edges"), (32, "shapes")] {
        let layer = Conv2d::new(filters, [3, 3]).padding(Padding::Same).activation(Activation::Relu);
        x = layer.name(name).build(s, &x)?;
    }
    let pooled = max_pool2d(s, &x, [2, 2], [2, 2], Padding::Valid)?;
    let hidden = dense(64, "hidden", 1).activation(Activation::Relu).build(s, &flatten(s, &pooled)?)?;
    let logits = dense(10, "logits", 2).build(s, &hidden)?;
    classify(s, data, &logits, Adam::new(0.001))
}

/// A linear part over pairs of kinds, and a network over embeddings of users and items, all tables in parts.
fn wide_and_deep(s: &Scope, servers: usize) -> Result<Model> {
    let batch = 256;
    let placeholder = |name| ops::Placeholder::new(DType::Int64).shape([-1]).name(name).build(s);
    let inputs = ["users", "items", "pairs"].map(placeholder).into_iter().collect::<Result<Vec<_>>>()?;
    let labels = ops::Placeholder::new(DType::Float).shape([-1]).name("labels").build(s)?;
    let look_up = |name: &str, rows: i64, width: i64, ids: &Output| {
        let table = Variable::spec(name, [rows, width]).initializer(random_uniform(-0.1, 0.1).seed(1));
        embedding_lookup(s, &table.partitioned(s, Partitioner::fixed(servers))?, ids, PartitionStrategy::Div)
    };
    let (users, items) = (look_up("users", ROWS, 32, &inputs[0])?, look_up("items", ROWS, 32, &inputs[1])?);
    let wide = look_up("pairs", ROWS / 10, 1, &inputs[2])?;
    let both = ops::concat_v2(s, [&users, &items], 1)?;
    let hidden = dense(64, "hidden", 2).activation(Activation::Relu).build(s, &both)?;
    let deep = dense(1, "logits", 3).build(s, &hidden)?;
    let logits = ops::reshape(s, (&wide + &deep)?, [-1])?;
    let loss = losses::sigmoid_cross_entropy(s, &labels, &logits)?;
    let train = Adagrad::new(0.05).minimize(s, &loss, Some(&global_step(s)?))?;
    // Rows that are far from each other, as those of real visitors are.
    let ids = |number: i64, factor: i64, rows: i64| {
        Tensor::vector((0..batch).map(|i| (number * batch + i) * factor % rows).collect::<Vec<i64>>())
    };
    let taken = Tensor::vector((0..batch).map(|i| (i % 3 / 2) as f32).collect::<Vec<f32>>());
    let visits = |n| vec![ids(n, 7919, ROWS), ids(n, 104_729, ROWS), ids(n, 3571, ROWS / 10), taken.clone()];
    let batches = (0..64).map(visits).collect();
    Ok(Model { inputs: inputs.into_iter().chain([labels]).collect(), batches, loss, train })
}

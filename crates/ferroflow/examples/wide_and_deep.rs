//! A wide-and-deep recommender: a linear model memorizes which kinds of users take which kinds of items, a network over
//! embeddings generalizes to the rest. The tables are partitioned over the parameter servers.
//!
//! One process per task, in any order:
//!
//! ```text
//! cargo run --example wide_and_deep -- --ps_hosts=localhost:2222,localhost:2223 --worker_hosts=localhost:2224 --job_name=ps --task_index=0
//! cargo run --example wide_and_deep -- --ps_hosts=localhost:2222,localhost:2223 --worker_hosts=localhost:2224 --job_name=ps --task_index=1
//! cargo run --example wide_and_deep -- --ps_hosts=localhost:2222,localhost:2223 --worker_hosts=localhost:2224 --job_name=worker
//! ```

use ferroflow::data::Dataset;
use ferroflow::initializers::Initializer;
use ferroflow::layers::{Activation, Dense, PartitionStrategy, embedding_lookup};
use ferroflow::optimizers::{Adagrad, Ftrl, GradAndVar, Optimizer};
use ferroflow::train::{Every, LogTensors, StopAtStep};
use ferroflow::variables::{Partitioner, trainable_variables};
use ferroflow::{
    DType, Flags, Graph, Output, Result, Scope, Variable, Worker, global_step, initializers, losses, ops,
};

const USERS: i64 = 1000;
const ITEMS: i64 = 400;
const USER_KINDS: i64 = 25;
const ITEM_KINDS: i64 = 16;
const WIDTH: i64 = 16;
const BATCH: usize = 128;

/// Runs one task. A worker returns the loss of each of its steps; a parameter server never returns.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments, &["steps", "dir"])?;
    let Some(worker) = Worker::start(flags.task_config()?)? else { return Ok(Vec::new()) };
    let servers = worker.parameter_servers().max(1);

    let graph = Graph::new();
    let s = worker.scope(&graph);
    let users = ops::Placeholder::new(DType::Int64).shape([-1]).name("users").build(&s)?;
    let items = ops::Placeholder::new(DType::Int64).shape([-1]).name("items").build(&s)?;
    let taken = ops::Placeholder::new(DType::Float).shape([-1]).name("taken").build(&s)?;

    // Wide: one weight for each pair of kinds.
    let kinds = ops::mul(&s, ops::floor_mod(&s, &users, USER_KINDS), ITEM_KINDS)?;
    let pairs = (kinds + ops::floor_mod(&s, &items, ITEM_KINDS))?;
    let wide = s.scope("wide");
    let weights = Table { rows: USER_KINDS * ITEM_KINDS, width: 1, parts: servers };
    let wide = weights.look_up(&wide, "weights", &pairs, initializers::zeros())?;

    // Deep: only the rows that a batch needs travel to the worker, and their gradients back.
    let deep = s.scope("deep");
    let random = |seed| initializers::random_normal(0.0, 0.1).seed(seed);
    let table = |rows| Table { rows, width: WIDTH, parts: servers };
    let user = table(USERS).look_up(&deep, "users", &users, random(1))?;
    let item = table(ITEMS).look_up(&deep, "items", &items, random(2))?;
    let both = ops::concat_v2(&deep, [&user, &item], 1)?;
    let hidden = Dense::new(32).activation(Activation::Relu).name("hidden");
    let hidden = hidden.kernel_initializer(initializers::glorot_uniform().seed(3)).build(&deep, &both)?;
    let logits = Dense::new(1).name("logits");
    let logits = logits.kernel_initializer(initializers::glorot_uniform().seed(4)).build(&deep, &hidden)?;
    let logits = ops::reshape(&s, (&wide + &logits)?, [-1])?;
    let loss = losses::sigmoid_cross_entropy(&s, &taken, &logits)?;

    // Each half has the optimizer that suits it.
    let step = global_step(&s)?;
    let (ftrl, adagrad) = (Ftrl::new(0.1), Adagrad::new(0.1));
    let grads = adagrad.compute_gradients(&s, &loss, &trainable_variables(&graph)?)?;
    let (wide, deep): (Vec<GradAndVar>, Vec<GradAndVar>) =
        grads.into_iter().partition(|(_, variable)| variable.name().starts_with("wide/"));
    let wide = ftrl.apply_gradients(&s, &wide, None)?;
    let deep = adagrad.apply_gradients(&s, &deep, Some(&step))?;

    let mut session = worker
        .training_session(&graph)
        .hook(StopAtStep::last(flags.get_or("steps", 500)?))
        .hook(LogTensors::new([("step", step.value()), ("loss", &loss)], Every::Steps(20)));
    if let Some(directory) = flags.get("dir") {
        session = session.checkpoint_dir(directory);
    }
    let mut session = session.build()?;
    let batches = worker.shard(&Dataset::from_fn(|| (0..).map(visit)))?.batch(BATCH).prefetch(2);
    let mut losses = Vec::new();
    for batch in &batches {
        if session.should_stop() {
            break;
        }
        let (user, item, took) = batch?;
        let feeds = [(&users, user), (&items, item), (&taken, took)];
        losses.push(session.run_step(&feeds, &[&loss], &[&wide, &deep])?[0].to_scalar()?);
    }
    session.close()?;
    Ok(losses)
}

/// An embedding table: a row of `width` numbers per id, in `parts` partitions.
struct Table {
    rows: i64,
    width: i64,
    parts: usize,
}

impl Table {
    /// Adds the partitioned table and looks up the rows of `ids` in it.
    fn look_up(&self, s: &Scope, name: &str, ids: &Output, initializer: Initializer) -> Result<Output> {
        let table = Variable::spec(name, [self.rows, self.width]).initializer(initializer);
        let table = table.partitioned(s, Partitioner::fixed(self.parts))?;
        embedding_lookup(s, &table, ids, PartitionStrategy::Div)
    }
}

/// Visit number `n`: the user, the item shown, and 1 if it was taken. The kinds decide that, except in every tenth visit.
fn visit(n: u64) -> (i64, i64, f32) {
    let draw = |k: u64, below: i64| (random(3 * n + k) % below as u64) as i64;
    let (user, item) = (draw(0, USERS), draw(1, ITEMS));
    let likes = (7 * (user % USER_KINDS) + 3 * (item % ITEM_KINDS)) % 10 < 4;
    let taken = likes != (draw(2, 10) == 0);
    (user, item, f32::from(u8::from(taken)))
}

/// Number `n` of the generator SplitMix64 with seed 0.
fn random(n: u64) -> u64 {
    let mut x = (n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}

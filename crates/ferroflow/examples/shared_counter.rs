//! Workers that count together: a variable on a parameter server, to which every worker adds.
//!
//! One process per task, in any order:
//!
//! ```text
//! cargo run --example shared_counter -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=ps
//! cargo run --example shared_counter -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=0
//! cargo run --example shared_counter -- --ps_hosts=localhost:2222 --worker_hosts=localhost:2223,localhost:2224 --job_name=worker --task_index=1
//! ```

use ferroflow::{DType, Flags, Graph, Result, Variable, Worker, initializers};

/// Runs one task. A worker returns the count that it saw at the end; a parameter server never returns.
pub(crate) fn run(arguments: impl IntoIterator<Item = String>) -> Result<i64> {
    let flags = Flags::parse(arguments, &["count"])?;
    let Some(worker) = Worker::start(flags.task_config()?)? else { return Ok(0) };

    // Every worker builds the same graph. They share one variable because its name and its device are the same.
    let graph = Graph::new();
    let s = graph.scope();
    let counter = Variable::spec("counter", [])
        .dtype(DType::Int64)
        .initializer(initializers::zeros())
        .trainable(false)
        .build(&s.device("/job:ps/task:0"))?;
    let count = counter.assign_add(&s, 1i64)?;

    // The chief initializes the counter; the other workers wait for it.
    let mut session = worker.training_session(&graph).build()?;
    for _ in 0..flags.get_or("count", 100)? {
        session.execute(&count)?;
    }
    let total = session.run(&[], &[counter.value()])?[0].to_scalar::<i64>()?;
    session.close()?;
    println!("worker {} sees {total}", worker.index());
    Ok(total)
}

fn main() -> Result<()> {
    run(std::env::args().skip(1)).map(drop)
}

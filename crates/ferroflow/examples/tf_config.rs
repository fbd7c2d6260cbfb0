//! The trainer of `between_graph`, configured by the environment variable `TF_CONFIG`, as schedulers do it.
//!
//! One process per task, in any order:
//!
//! ```text
//! CLUSTER='"cluster": {"ps": ["localhost:2222"], "chief": ["localhost:2223"], "worker": ["localhost:2224"]}'
//! TF_CONFIG="{$CLUSTER, \"task\": {\"type\": \"ps\", \"index\": 0}}" cargo run --example tf_config
//! TF_CONFIG="{$CLUSTER, \"task\": {\"type\": \"chief\", \"index\": 0}}" cargo run --example tf_config
//! TF_CONFIG="{$CLUSTER, \"task\": {\"type\": \"worker\", \"index\": 0}}" cargo run --example tf_config
//! ```
//!
//! Without the variable it trains alone, in one process.

#[path = "between_graph.rs"]
#[allow(dead_code, reason = "the other example is a program of its own")]
mod between_graph;

use ferroflow::server::TaskConfig;
use ferroflow::{Flags, Result, Worker};

/// Runs one task. A worker returns the loss of each of its steps; a parameter server never returns.
pub(crate) fn run(config: TaskConfig, arguments: impl IntoIterator<Item = String>) -> Result<Vec<f32>> {
    let flags = Flags::parse(arguments, between_graph::FLAGS)?;
    match Worker::start(config)? {
        Some(worker) => between_graph::train(&worker, &flags),
        None => Ok(Vec::new()),
    }
}

fn main() -> Result<()> {
    run(TaskConfig::from_env()?, std::env::args().skip(1)).map(drop)
}

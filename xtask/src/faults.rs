//! `cargo xtask faults`: every task of a cluster is killed and started again under load, for as many rounds as asked.

use crate::{python, server};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Times that a task is killed
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Choose other moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which tasks are ours: ours, our-ps, our-workers, mixed or stock
    #[arg(long, default_value = "ours")]
    layout: String,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = python::script("oracle/cluster/restarts.py")?;
    command.arg("--server").arg(server::build()?);
    command.arg("--rounds").arg(args.rounds.to_string());
    command.arg("--seed").arg(args.seed.to_string());
    command.args(["--layout", &args.layout]);
    python::run(command)
}

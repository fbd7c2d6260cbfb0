//! `cargo xtask faults`: every task of a cluster, or every worker of a coordinator, is killed and started again under load,
//! for as many rounds as asked.

use crate::{python, server};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Times that a task is killed; 200 unless given, 100 with --coordinator
    #[arg(long)]
    rounds: Option<u32>,
    /// Choose other moments
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Which tasks are ours: ours, our-ps, our-workers, mixed or stock
    #[arg(long, default_value = "ours")]
    layout: String,
    /// Kill the workers of a coordinator instead of the tasks of sessions
    #[arg(long)]
    coordinator: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let script =
        if args.coordinator { "oracle/coordinator/lost_tasks.py" } else { "oracle/cluster/restarts.py" };
    let mut command = python::script(script)?;
    command.arg("--server").arg(server::build()?);
    if let Some(rounds) = args.rounds {
        command.arg("--rounds").arg(rounds.to_string());
    }
    command.arg("--seed").arg(args.seed.to_string());
    command.args(["--layout", &args.layout]);
    python::run(command)
}

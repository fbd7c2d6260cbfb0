//! `cargo xtask checkpoints`: saves and restores variables of several gigabytes and watches the server's memory.

use crate::{python, server};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// How large the variables are
    #[arg(long, default_value_t = 3.0)]
    gigabytes: f64,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = python::script("oracle/cluster/large_checkpoints.py")?;
    command.arg("--server").arg(server::build()?);
    command.arg("--gigabytes").arg(args.gigabytes.to_string());
    python::run(command)
}

//! `cargo xtask checkpoints`: saves and restores variables of several gigabytes and watches the server's memory; kills
//! servers while they save.

use crate::{python, server};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Size of the variables
    #[arg(long, default_value_t = 3.0)]
    gigabytes: f64,
    /// Times that a server is killed while it saves
    #[arg(long, default_value_t = 0)]
    kills: u32,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let server = server::build()?;
    let mut command = python::script("oracle/cluster/large_checkpoints.py")?;
    command.arg("--server").arg(&server);
    command.arg("--gigabytes").arg(args.gigabytes.to_string());
    python::run(command)?;
    if args.kills > 0 {
        let mut command = python::script("oracle/cluster/killed_saves.py")?;
        command.arg("--server").arg(&server);
        command.arg("--kills").arg(args.kills.to_string());
        command.arg("--megabytes").arg(((args.gigabytes * 1024.0) as u64).to_string());
        python::run(command)?;
    }
    Ok(())
}

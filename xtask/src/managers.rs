//! `cargo xtask managers`: stock's trainer under a real Slurm or HTCondor, brought up on this machine, and as pods.

use crate::{python, server};
use anyhow::Result;
use clap::ValueEnum;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// The manager
    #[arg(value_enum)]
    manager: Manager,
    /// Scenarios whose name has these words
    #[arg(long, default_value = "")]
    only: String,
    /// Fail where this machine forbids it, instead of saying so
    #[arg(long)]
    strict: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Manager {
    /// Three nodes, installed from the distribution's packages; needs root
    Slurm,
    /// A pool of three machines in a file system of its own, which takes some minutes to make; needs root
    Condor,
    /// Pods of the written manifests, each a process on a node of its own; needs root
    K8s,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = python::script("oracle/managers/run.py")?;
    command.arg(match args.manager {
        Manager::Slurm => "slurm",
        Manager::Condor => "condor",
        Manager::K8s => "kubernetes",
    });
    command.arg("--binary").arg(server::build()?);
    command.args(["--only", &args.only]);
    if args.strict {
        command.arg("--strict");
    }
    python::run(command)
}

//! `cargo xtask bench`: the ratio suite, which compares this build with stock TensorFlow in the same run. The first page has some of its
//! figures.

mod figures;

pub(crate) use figures::check;

use crate::{python, server, workspace};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Measure only workloads whose name matches this regular expression; the results page stays as it is
    #[arg(long)]
    only: Option<String>,
    /// Take three samples of each instead of five to nine
    #[arg(long)]
    quick: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let mut command = python::script("oracle/bench/run.py")?;
    let (server, trainer) = server::build_with_trainer()?;
    command.arg("--server").arg(server).arg("--trainer").arg(trainer);
    match &args.only {
        Some(only) => command.args(["--only", only]),
        None => command.arg("--output").arg(workspace::root().join("benches/results/latest.md")),
    };
    if args.quick {
        command.arg("--quick");
    }
    python::run(command)?;
    if args.only.is_none() { figures::write() } else { Ok(()) }
}

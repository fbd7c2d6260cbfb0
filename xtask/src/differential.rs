//! `cargo xtask differential`: random graphs, answered by this build and by stock TensorFlow, must agree.

use crate::{python, server};
use anyhow::Result;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Stop after this long; 0 goes on until a difference is found
    #[arg(long, default_value_t = 60)]
    seconds: u64,
    /// Stop after this many seeds instead, however long they take
    #[arg(long)]
    seeds: Option<u64>,
    /// Start from this seed, as a failure prints it
    #[arg(long)]
    seed: Option<u64>,
    /// Draw only ops whose name matches this regular expression
    #[arg(long)]
    only: Option<String>,
    /// Draw no special values and no types without a kernel
    #[arg(long)]
    plain: bool,
    /// Draw updates of variables, too, and inputs by recipes for ops that refuse nearly all others
    #[arg(long)]
    wide: bool,
    /// Draw programs of functions with effects instead of graphs of ops
    #[arg(long)]
    programs: bool,
    /// Go on after a difference
    #[arg(long)]
    keep_going: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    let script = if args.programs { "programs" } else { "run" };
    let mut command = python::script(&format!("oracle/differential/{script}.py"))?;
    command.arg("--server").arg(server::build()?);
    if let Some(seeds) = args.seeds {
        command.arg("--seeds").arg(seeds.to_string());
    }
    if let Some(seed) = args.seed {
        command.arg("--seed").arg(seed.to_string());
    }
    if args.programs {
        return python::run(command);
    }
    command.arg("--seconds").arg(args.seconds.to_string());
    if let Some(only) = &args.only {
        command.args(["--only", only]);
    }
    let flags = [(args.plain, "--plain"), (args.wide, "--wide"), (args.keep_going, "--keep-going")];
    command.args(flags.into_iter().filter_map(|(is_set, flag)| is_set.then_some(flag)));
    python::run(command)
}

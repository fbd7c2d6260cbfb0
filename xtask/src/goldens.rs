//! Asks stock for the goldens, or whether they are current.

use crate::python;
use anyhow::Result;

/// Stock takes about a minute for all families and, rarely, does not answer at all: then it is asked once more.
const LIMIT_SECONDS: u32 = 8 * 60;

/// Options of `cargo xtask goldens`.
#[derive(clap::Args, Default)]
pub(crate) struct Args {
    /// Only these families; all by default
    #[arg(long)]
    pub(crate) family: Vec<String>,
    /// Write nothing; fail if a file is not what stock says
    #[arg(long)]
    pub(crate) check: bool,
    /// Print each case before stock runs it
    #[arg(long)]
    pub(crate) trace: bool,
}

/// Writes or checks `testdata/golden/`, the list of ops and kernels, and where stock places nodes.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut script = python::script("oracle/goldens.py")?;
    args.family.iter().for_each(|family| {
        script.args(["--family", family]);
    });
    if args.check {
        script.arg("--check");
    }
    if args.trace {
        script.arg("--trace");
    }
    python::run_within(&script, LIMIT_SECONDS)
}

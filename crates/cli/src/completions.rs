//! `ferroflow completions`: what a shell needs to complete our flags.

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use std::io;

/// Arguments of `ferroflow completions`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The shell; e.g. for bash: ferroflow completions bash > ~/.local/share/bash-completion/completions/ferroflow
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    generate(args.shell, &mut crate::Cli::command(), "ferroflow", &mut io::stdout());
    Ok(())
}

//! `ferroflow completions`: the script with which a shell completes commands and flags.

use clap::CommandFactory;
use clap_complete::{Shell, generate};
use std::io;

/// Arguments of `ferroflow completions`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the script for this shell; e.g. for bash: ferroflow completions bash > ~/.local/share/bash-completion/completions/ferroflow
    shell: Shell,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    generate(args.shell, &mut crate::Cli::command(), "ferroflow", &mut io::stdout());
    Ok(())
}

//! The `ferroflow` binary.

mod ops;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "ferroflow", version, about = "TensorFlow's cluster runtime")]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the ops that this build runs and their element types
    Ops(ops::Args),
}

fn main() -> ExitCode {
    let done = match Cli::parse().command {
        Command::Ops(args) => ops::run(&args),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ferroflow: {error}");
            ExitCode::FAILURE
        }
    }
}

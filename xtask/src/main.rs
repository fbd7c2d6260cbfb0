//! Project tasks: `cargo xtask <task>` does what no single crate's build should do.

mod codegen;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks of Ferroflow")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Generate message types and service stubs from the .proto files
    Codegen(codegen::Args),
}

fn main() -> Result<()> {
    match Cli::parse().task {
        Task::Codegen(args) => codegen::run(&args),
    }
}

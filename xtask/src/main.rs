//! Project tasks: `cargo xtask <task>` does what no single crate's build should do.

mod bench;
mod codegen;
mod compat;
mod differential;
mod python;
mod server;
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
    /// Write the table of ops that this build runs
    Compat(compat::Args),
    /// Compare speed and memory with stock TensorFlow
    Bench(bench::Args),
    /// Compare random graphs with stock TensorFlow
    Differential(differential::Args),
}

fn main() -> Result<()> {
    match Cli::parse().task {
        Task::Codegen(args) => codegen::run(&args),
        Task::Compat(args) => compat::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Differential(args) => differential::run(&args),
    }
}

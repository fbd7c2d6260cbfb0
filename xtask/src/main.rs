//! Project tasks: `cargo xtask <task>` does what no single crate's build should do.

mod bench;
mod check;
mod checkpoints;
mod clock;
mod codegen;
mod compat;
mod debian;
mod differential;
mod dist;
mod emulate;
mod faults;
mod format;
mod fuzz;
mod goldens;
mod managers;
mod module;
mod nfs;
mod programs;
mod python;
mod python_style;
mod recording;
mod release;
mod run_tests;
mod server;
mod setup;
mod stress;
mod tidy;
mod wheel;
mod workspace;

use anyhow::Result;
use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Project tasks of Ferroflow")]
struct Cli {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run the whole check: conventions, format, generated code, goldens, lints, tests, docs
    Test(check::Args),
    /// Make the Python environment with the pinned stock TensorFlow
    Setup,
    /// Generate message types from the .proto files
    Codegen(codegen::Args),
    /// Write the table of ops that this build runs
    Compat(compat::Args),
    /// Compare speed and memory with stock TensorFlow
    Bench(bench::Args),
    /// Run the kernels' tests on processors with fewer features than this one
    Emulate(emulate::Args),
    /// Run tests of tasks that meet and wait while the clock jumps
    Clock(clock::Args),
    /// Compare random graphs with stock TensorFlow
    Differential(differential::Args),
    /// Make a release archive that runs on older systems
    Dist(dist::Args),
    /// Format every Rust file, or check that it is
    Format(format::Args),
    /// Save and restore gigabytes, and watch the server's memory
    Checkpoints(checkpoints::Args),
    /// Send damaged calls and frames to a server with a memory limit, and watch it
    Fuzz(fuzz::Args),
    /// Kill and restart the tasks of a cluster under load, and watch the others
    Faults(faults::Args),
    /// Write what stock TensorFlow answers, or check that it is current
    Goldens(goldens::Args),
    /// Train under a real Slurm or HTCondor on this machine
    Managers(managers::Args),
    /// Install the Python package as it is built here, and run its tests
    Module(module::Args),
    /// Let tasks meet in a directory of real NFS clients
    Nfs(nfs::Args),
    /// Format and lint the oracle's Python, or check that it is
    Python(python_style::Args),
    /// Build and run the test programs, all or some
    RunTests(run_tests::Args),
    /// Run the test programs again and again while something else keeps the machine busy
    Stress(stress::Args),
    /// Record the binary at a terminal, for the picture of the first page
    Recording(recording::Args),
    /// Turn the fragments of changelog.d into a section of the changelog
    Release(release::Args),
    /// Build the Python package as a wheel, and try it in an environment of its own
    Wheel(wheel::Args),
    /// Check conventions: words, layers, module docs, file sizes, licenses, duplicate versions
    Tidy,
}

fn main() -> ExitCode {
    match run(Cli::parse().task) {
        Ok(code) => code,
        Err(error) => {
            // The causes, and no stack: what went wrong is not in this program.
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(task: Task) -> Result<ExitCode> {
    match task {
        Task::Test(args) => return check::run(&args),
        Task::Setup => setup::run(),
        Task::Codegen(args) => codegen::run(&args),
        Task::Compat(args) => compat::run(&args),
        Task::Bench(args) => bench::run(&args),
        Task::Emulate(args) => emulate::run(&args),
        Task::Clock(args) => clock::run(&args),
        Task::Differential(args) => differential::run(&args),
        Task::Dist(args) => dist::run(&args),
        Task::Format(args) => format::run(&args),
        Task::Checkpoints(args) => checkpoints::run(&args),
        Task::Fuzz(args) => fuzz::run(&args),
        Task::Faults(args) => faults::run(&args),
        Task::Goldens(args) => goldens::run(&args),
        Task::Managers(args) => managers::run(&args),
        Task::Module(args) => module::run(&args),
        Task::Nfs(args) => nfs::run(&args),
        Task::Python(args) => python_style::run(&args),
        Task::RunTests(args) => run_tests::run(&args),
        Task::Stress(args) => stress::run(&args),
        Task::Recording(args) => recording::run(&args),
        Task::Release(args) => release::run(&args),
        Task::Wheel(args) => wheel::run(&args),
        Task::Tidy => tidy::run(),
    }
    .map(|()| ExitCode::SUCCESS)
}

//! The `ferroflow` command, as a library: the binary and the Python package both run it.

mod ckpt;
mod completions;
mod demo;
mod doctor;
mod exit;
mod flag_value;
mod join;
mod local;
mod logging;
mod manual;
mod member;
mod ops;
mod output;
mod own_command;
mod ping;
mod placeholders;
mod python_servers;
mod rendezvous;
mod resolve;
mod role_args;
mod run;
mod serve;
mod signals;
mod spelling;
mod submit;
mod tasks;
mod up;

use clap::{Parser, Subcommand};
use exit::Failure;
pub use own_command::set_own_command;
use std::ffi::OsString;

#[derive(Parser)]
#[command(
    name = "ferroflow",
    version,
    about = "TensorFlow's cluster runtime: servers, clusters and trainings"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Train a classifier of handwritten digits on a cluster of processes on this machine
    Demo(demo::Args),
    #[command(hide = true)]
    DemoWorker(demo::Task),
    /// Bring up a cluster of servers on this machine
    Up(up::Args),
    /// Run a program on a cluster on this machine, once per worker, with parameter servers
    Run(run::Args),
    #[command(hide = true)]
    Watchdog(local::WatchdogArgs),
    #[command(hide = true)]
    WithParent(local::WithParent),
    /// Serve sessions to TensorFlow clients
    Serve(serve::Args),
    /// Find the other tasks at a rendezvous, then run a program as one of the tasks, or serve
    Join(join::Args),
    /// Host a rendezvous, show which tasks are there, or clean up after old runs
    Rendezvous(rendezvous::Args),
    /// Check names, ports, versions, clocks and directories of a cluster before it trains
    Doctor(doctor::Args),
    /// Ask a server whether it answers, and which task it is
    Ping(ping::Args),
    /// Show which task this is, which source says so, and which other sources were overridden
    Resolve(resolve::Args),
    /// Write a training job for Slurm, HTCondor or Kubernetes, and submit it
    Submit(submit::Args),
    /// Look into checkpoints: list, show, compare and export their tensors
    Ckpt(ckpt::Args),
    /// List the ops that this build runs and their element types
    Ops(ops::Args),
    /// Print the completion script of a shell
    Completions(completions::Args),
    /// Print the manual page, or write the pages of all commands to a directory
    Man(manual::Args),
}

/// Runs the command with these arguments, of which the first is its name, and returns its exit code. Arguments that are
/// refused, and requests for help, end the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    exit::end_with_reader();
    let arguments = spelling::with_two_dashes::<Cli>(arguments);
    let cli = Cli::try_parse_from(&arguments).unwrap_or_else(|error| spelling::refuse(&error, &arguments));
    let done = match cli.command {
        Command::Demo(args) => demo::run(&args),
        Command::DemoWorker(task) => demo::run_task(&task).map_err(Failure::from),
        Command::Up(args) => up::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Watchdog(args) => {
            local::watch_parent(&args);
            Ok(())
        }
        Command::WithParent(args) => Err(local::exec_with_parent(&args)),
        Command::Serve(args) => serve::run(&args),
        Command::Join(args) => join::run(&args),
        Command::Rendezvous(args) => rendezvous::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Ping(args) => ping::run(&args),
        Command::Resolve(args) => resolve::run(&args).map_err(Failure::from),
        Command::Submit(args) => submit::run(&args).map_err(Failure::from),
        Command::Ckpt(args) => ckpt::run(&args),
        Command::Completions(args) => completions::run(&args).map_err(Failure::from),
        Command::Man(args) => manual::run(&args).map_err(Failure::from),
        Command::Ops(args) => ops::run(&args).map_err(|error| error.to_string().into()),
    };
    done.map_or_else(Failure::report, |()| 0)
}

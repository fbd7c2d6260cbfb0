//! The end of a task with the process that started it.

use crate::exit::Failure;
use crate::own_command::own_command;
use rustix::process::{Pid, Signal, getpid, getppid, set_parent_process_death_signal};
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// The exit codes of shells for a program that is not found, or cannot be run.
const NOT_FOUND: u8 = 127;
const NOT_RUNNABLE: u8 = 126;

/// Arguments of the command through which programs of the user are started.
#[derive(clap::Args)]
pub(crate) struct WithParent {
    /// Process with which the program ends
    #[arg(long)]
    parent: i32,

    #[arg(required = true, last = true)]
    program: Vec<OsString>,
}

/// Makes the command of a program that ends with this process. Between `fork` and `exec` only unsafe code could arrange
/// that, so another start of this binary does, and becomes the program.
pub(crate) fn with_parent(program: &[String]) -> Result<Command, String> {
    let mut command = own_command()?;
    command.args(["with-parent", "--parent", &getpid().as_raw_pid().to_string(), "--"]).args(program);
    Ok(command)
}

/// Becomes the program; returns only if that fails.
pub(crate) fn exec_with_parent(args: &WithParent) -> Failure {
    if let Err(error) = follow(Pid::from_raw(args.parent)) {
        return error.into();
    }
    let (program, arguments) = args.program.split_first().expect("a program is required");
    let error = Command::new(program).args(arguments).exec();
    let code = if error.kind() == ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
    Failure::new(code, format!("cannot start {}: {error}", program.to_string_lossy()))
}

/// Returns the socket that this process was started with, and lets it end with the process that started it.
pub(crate) fn inherit_socket() -> Result<TcpListener, String> {
    follow(getppid())?;
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let listener = TcpListener::from(socket);
    match listener.local_addr() {
        Ok(_) => Ok(listener),
        Err(error) => Err(format!("standard input is not a socket that a parent handed over: {error}")),
    }
}

fn follow(parent: Option<Pid>) -> Result<(), String> {
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| format!("cannot follow the parent's end: {error}"))?;
    if getppid() != parent {
        return Err("the process that started this task is gone".to_owned());
    }
    Ok(())
}

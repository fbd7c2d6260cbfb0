//! The `ferroflow` binary.

use std::process::ExitCode;

/// Keeps its pages between steps, which large tensors profit from most.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    ferroflow_cli::run(std::env::args_os()).into()
}

//! The part of the Python package that is written in Rust, the module `ferroflow._ferroflow`. The package's Python gives
//! it the form that users see.
//!
//! Nothing here holds the interpreter's lock while it waits, and waits on the main thread notice signals.

mod arrays;
mod client_session;
mod errors;
mod files;
mod graphs;
mod roles;
mod server;
mod session;

use pyo3::prelude::*;
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

/// Keeps its pages between steps, as in the binary.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Runs the `ferroflow` command and returns its exit code. `script` is the file that starts the command again.
#[pyfunction]
fn run_command(py: Python<'_>, script: PathBuf, arguments: Vec<OsString>) -> u8 {
    ferroflow_cli::set_own_command(script);
    let name = OsString::from("ferroflow");
    py.detach(|| {
        let code = ferroflow_cli::run(std::iter::once(name).chain(arguments));
        // The end of a program in Rust does this; its output may be closed by then.
        let _ = std::io::stdout().flush();
        code
    })
}

#[pymodule]
mod _ferroflow {
    #[pymodule_export]
    const VERSION: &str = env!("CARGO_PKG_VERSION");
    #[pymodule_export]
    use super::arrays::TensorMemory;
    #[pymodule_export]
    use super::client_session::{ClientSession, find_session};
    #[pymodule_export]
    use super::files::{CheckpointReader, EventWriter, latest_checkpoint, read_events, write_checkpoint};
    #[pymodule_export]
    use super::graphs::{graph_to_binary, graph_to_text};
    #[pymodule_export]
    use super::roles::{parse_cluster, resolve};
    #[pymodule_export]
    use super::run_command;
    #[pymodule_export]
    use super::server::{Server, make_server_def};
    #[pymodule_export]
    use super::session::Session;
}

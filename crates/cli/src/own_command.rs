//! The file that starts this command again, for the processes of a cluster and for the jobs of schedulers.

use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Path that the process set. A static, because the command is the process's, too.
static PATH: OnceLock<PathBuf> = OnceLock::new();

/// Sets the file that starts this command again, where that is not the executable of this process: in a Python
/// interpreter it is a script. The first call counts.
pub fn set_own_command(path: PathBuf) {
    let _ = PATH.set(path);
}

/// Returns the file that starts this command again.
pub(crate) fn own_path() -> Result<PathBuf, String> {
    match PATH.get() {
        Some(path) => Ok(path.clone()),
        None => std::env::current_exe().map_err(|error| format!("cannot find this binary: {error}")),
    }
}

/// Makes a command that starts this one again.
pub(crate) fn own_command() -> Result<Command, String> {
    own_path().map(Command::new)
}

//! Where things are in the repository.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The repository's root directory.
pub(crate) fn root() -> PathBuf {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    package.parent().expect("the xtask package is a directory of the workspace").to_owned()
}

/// Where cargo puts what it builds.
pub(crate) fn target() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

/// The cargo that runs this program.
pub(crate) fn cargo() -> PathBuf {
    std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from)
}

/// Cargo, for builds that share their crates with those of a shell.
pub(crate) fn cargo_command() -> Command {
    let mut command = Command::new(cargo());
    without_own_package(&mut command);
    command
}

/// Hides from a command the package that cargo runs this program for. Build scripts of dependencies look at these variables
/// and would run again, with everything that depends on them, whenever the same build is started from a shell.
pub(crate) fn without_own_package(command: &mut Command) -> &mut Command {
    for (name, _) in std::env::vars_os() {
        if name
            .to_str()
            .is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
        {
            command.env_remove(name);
        }
    }
    command
}

/// Whether a program is on the path.
pub(crate) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join(name).exists())
}

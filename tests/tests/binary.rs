//! The `ferroflow` binary.

use crate::stock;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// Our binary, of the same build as these tests; `FERROFLOW_SERVER` names another.
pub(crate) fn path() -> PathBuf {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(build).clone()
}

fn build() -> PathBuf {
    if let Some(binary) = std::env::var_os("FERROFLOW_SERVER") {
        return binary.into();
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    // The same packages as a run of all tests selects, and a test: so cargo unifies the same features, and has everything
    // but the binary itself.
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "ferroflow", "--test", "main"])
        .current_dir(stock::root())
        .status()
        .expect("cargo starts");
    assert!(built.success(), "the binary does not build");
    let test = std::env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(2).expect("tests lie below the profile's directory").join("ferroflow")
}

/// Variables by which launchers and managers tell tasks who they are, and users what they want. The pod or
/// allocation that runs these tests is not part of them.
const TOLD: [&str; 10] = [
    "TF_CONFIG",
    "FERROFLOW_",
    "SLURM",
    "OMPI_",
    "PMI",
    "MPI_",
    "HYDRA_",
    "_CONDOR_",
    "KUBERNETES_",
    "NO_COLOR",
];

/// Our binary with these arguments, without variables of the machine that runs the tests.
pub(crate) fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(path());
    command.args(arguments);
    for (name, _) in std::env::vars_os() {
        if TOLD.iter().any(|told| name.to_string_lossy().starts_with(told)) {
            command.env_remove(name);
        }
    }
    command
}

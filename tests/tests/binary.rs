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
    let built = Command::new(cargo)
        .args(["build", "--quiet", "--package", "ferroflow-cli"])
        .current_dir(stock::root())
        .status()
        .expect("cargo starts");
    assert!(built.success(), "the binary does not build");
    let test = std::env::current_exe().expect("a test knows its own path");
    test.ancestors().nth(2).expect("tests lie below the profile's directory").join("ferroflow")
}

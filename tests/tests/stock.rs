//! Where stock TensorFlow is.

use std::path::{Path, PathBuf};

/// The interpreter of a virtual environment with stock TensorFlow; without one a test is skipped, but not in CI.
pub(crate) fn python() -> Option<PathBuf> {
    let venv = std::env::var_os("FERROFLOW_VENV").map_or_else(|| root().join(".venv"), PathBuf::from);
    let python = Some(venv.join("bin/python")).filter(|python| python.exists());
    if python.is_none() {
        assert!(
            std::env::var_os("CI").is_none(),
            "no stock TensorFlow: run `cargo xtask test` once to install it"
        );
        eprintln!("skipped: no stock TensorFlow");
    }
    python
}

/// The repository.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("this package lies in the workspace")
}

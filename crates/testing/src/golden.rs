//! The goldens in `testdata/golden/`, as messages.

use crate::text;
use ferroflow_core::{Result, status};
use std::path::{Path, PathBuf};

#[allow(missing_docs, unreachable_pub, clippy::all, rustdoc::all)]
mod generated {
    include!("generated/ferroflow.testing.rs");
}

pub use generated::{GoldenCase, GoldenFile, GoldenStep};

/// The directory of everything that stock wrote.
pub fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../testdata")
}

/// The names of all families, in order.
pub fn families() -> Result<Vec<String>> {
    let directory = testdata().join("golden");
    let unreadable = |error| status!(NotFound, "cannot list {}: {error}", directory.display());
    let mut names = Vec::new();
    for entry in directory.read_dir().map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if let (Some("pbtxt"), Some(stem)) =
            (path.extension().and_then(|end| end.to_str()), path.file_stem().and_then(|stem| stem.to_str()))
        {
            names.push(stem.to_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The cases of one family.
pub fn load(family: &str) -> Result<GoldenFile> {
    let path = testdata().join("golden").join(format!("{family}.pbtxt"));
    let text = std::fs::read_to_string(&path)
        .map_err(|error| status!(NotFound, "cannot read {}: {error}", path.display()))?;
    let file: GoldenFile = text::parse("ferroflow.testing.GoldenFile", &text)?;
    Ok(file)
}

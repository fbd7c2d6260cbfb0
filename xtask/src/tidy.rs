//! Conventions as failing checks: layers, module docs, file sizes, paths of one machine, links, the first page's figures, one environment for stock, licenses, duplicate versions.

mod files;
mod links;
mod oracle;
mod packages;

pub(crate) use files::tracked;
pub(crate) use links::anchor;

use crate::{bench, workspace};
use anyhow::{Result, bail};

/// Runs every convention and lists all violations.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    let mut wrong = files::check(&root)?;
    wrong.extend(oracle::check(&root, &tracked(&root)?)?);
    wrong.extend(links::check(&root, &tracked(&root)?)?);
    wrong.extend(bench::check()?);
    wrong.extend(packages::check(&root)?);
    if !wrong.is_empty() {
        bail!("{} conventions are broken:\n  {}", wrong.len(), wrong.join("\n  "));
    }
    Ok(())
}

//! Conventions as failing checks: layers, module docs, file sizes, paths of one machine, words, links, the first page's
//! figures, one environment for stock, licenses, duplicate versions.

mod families;
mod files;
mod links;
mod oracle;
mod packages;
mod rust_text;
mod words;

pub(crate) use files::tracked;
pub(crate) use links::anchor;

use crate::{bench, workspace};
use anyhow::{Result, bail};

/// Runs every convention and lists all violations.
pub(crate) fn run() -> Result<()> {
    let root = workspace::root();
    let mut wrong = files::check(&root)?;
    let names = tracked(&root)?;
    wrong.extend(oracle::check(&root, &names)?);
    wrong.extend(families::check(&root, &names)?);
    wrong.extend(words::check(&root, &names)?);
    wrong.extend(links::check(&root, &names)?);
    wrong.extend(bench::check()?);
    wrong.extend(packages::check(&root)?);
    if !wrong.is_empty() {
        bail!("{} conventions are broken:\n  {}", wrong.len(), wrong.join("\n  "));
    }
    Ok(())
}

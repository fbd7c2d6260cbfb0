//! Tools from Debian's packages, for checks that are skipped where there is none.

use crate::workspace::has_program;
use anyhow::{Context, Result, ensure};
use std::process::Command;

/// Installs a package unless its program is on the path; needs root on Debian.
pub(crate) fn install(program: &str, package: &str) -> Result<()> {
    if has_program(program) {
        return Ok(());
    }
    ensure!(has_program("apt-get"), "{program} is not installed, and there is no apt-get to install it");
    let user = Command::new("id").arg("-u").output().context("id")?;
    ensure!(user.stdout == b"0\n", "{program} is not installed; as root: apt-get install {package}");
    println!("installing {package}");
    for words in [&["update", "-qq"][..], &["install", "-y", "-qq", "--no-install-recommends", package]] {
        let status = Command::new("apt-get").args(words).env("DEBIAN_FRONTEND", "noninteractive").status();
        let status = status.context("apt-get")?;
        ensure!(status.success(), "{package} cannot be installed: apt-get {} ended with {status}", words[0]);
    }
    Ok(())
}

//! `cargo xtask test`: the whole check, which is also what CI runs.

use crate::{codegen, compat, differential, format, goldens, managers, python, setup, tidy, workspace};
use anyhow::{Context, Result, bail};
use std::process::Command;
use std::time::Instant;

/// Options of `cargo xtask test`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Leave out what asks stock TensorFlow
    #[arg(long)]
    without_stock: bool,
}

type Step<'a> = (&'a str, Box<dyn Fn() -> Result<()>>);

/// Runs every check in order of cost and stops at the first that fails.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut steps: Vec<Step<'_>> = vec![
        ("tidy", Box::new(tidy::run)),
        ("format", Box::new(|| format::run(&format::Args { check: true }))),
        ("generated code", Box::new(|| codegen::run(&codegen::Args { check: true }))),
    ];
    if !args.without_stock {
        steps.push(("stock TensorFlow", Box::new(setup::run)));
        steps.push((
            "goldens",
            Box::new(|| goldens::run(&goldens::Args { check: true, ..Default::default() })),
        ));
    }
    steps.extend([
        ("lints", cargo(&["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"])),
        ("server", cargo(&["build", "--release", "--quiet"])),
        ("compatibility table", Box::new(|| compat::run(&compat::Args { check: true }))),
        ("tests", cargo(&["test", "--workspace", "--all-targets", "--quiet", "--no-fail-fast"])),
        ("doc tests", cargo(&["test", "--workspace", "--doc", "--quiet"])),
        ("docs", cargo(&["doc", "--workspace", "--no-deps", "--quiet"])),
    ]);
    if !args.without_stock {
        steps.push(("cluster managers", Box::new(managers::run_quick)));
        steps.push(("differential", Box::new(|| differential::run(&differential::Args::bounded()))));
    }
    let start = Instant::now();
    for (name, step) in &steps {
        let start = Instant::now();
        println!("== {name}");
        step().with_context(|| format!("check failed: {name}"))?;
        println!("== {name}: ok, {:.1} s", start.elapsed().as_secs_f64());
    }
    println!("all {} checks passed in {:.0} s", steps.len(), start.elapsed().as_secs_f64());
    Ok(())
}

fn cargo(arguments: &'static [&'static str]) -> Box<dyn Fn() -> Result<()>> {
    Box::new(move || {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(arguments)
            .current_dir(workspace::root())
            .env("RUSTDOCFLAGS", "-D warnings")
            // Tests that speak with stock find it here.
            .env(python::VARIABLE, python::venv())
            .status()?;
        if !status.success() {
            bail!("cargo {} ended with {status}", arguments.join(" "));
        }
        Ok(())
    })
}

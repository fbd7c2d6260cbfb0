//! `cargo xtask run-tests`: the test programs, all or some, one after the other.

use crate::programs::{self, Program};
use anyhow::{Result, ensure};

/// Options of `cargo xtask run-tests`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Build the programs and run none
    #[arg(long)]
    no_run: bool,
    /// Run what was built before, without asking cargo
    #[arg(long)]
    built: bool,
    /// Only this program, such as `tests (golden)`; may be repeated
    #[arg(long)]
    only: Vec<String>,
    /// All but this program; may be repeated
    #[arg(long)]
    except: Vec<String>,
    /// Only tests whose name contains this
    #[arg(long)]
    test: Option<String>,
    /// No tests whose name contains this
    #[arg(long)]
    skip: Option<String>,
}

/// Builds and runs; a program that fails does not keep the others from running.
pub(crate) fn run(args: &Args) -> Result<()> {
    let mut programs = if args.built { programs::built()? } else { programs::build()? };
    if args.no_run {
        programs.iter().for_each(|program| println!("{}: {}", program.name, program.path.display()));
        return Ok(());
    }
    programs.retain(|program| {
        (args.only.is_empty() || args.only.contains(&program.name)) && !args.except.contains(&program.name)
    });
    ensure!(!programs.is_empty(), "there is no such test program; `run-tests --no-run` lists them");
    let failed: Vec<String> = programs
        .iter()
        .filter(|program| !passes(program, args))
        .map(|program| program.name.clone())
        .collect();
    ensure!(failed.is_empty(), "tests failed in {}", failed.join(", "));
    Ok(())
}

fn passes(program: &Program, args: &Args) -> bool {
    println!("\n     Running {}", program.name);
    let mut command = program.command();
    if program.has_harness {
        // Tests that miss something say so in their output.
        command.arg("--show-output").args(&args.test);
        command.args(args.skip.iter().flat_map(|skip| ["--skip", skip]));
    }
    match command.status() {
        Ok(status) if status.success() => {
            if !program.has_harness {
                println!("test result: ok. 1 passed; 0 failed");
            }
            true
        }
        // In the words of cargo, by which the reader of the log finds programs that were killed.
        Ok(status) => {
            println!("process didn't exit successfully: `{}` ({status})", program.name);
            false
        }
        Err(error) => {
            println!("process didn't exit successfully: `{}` (cannot start: {error})", program.name);
            false
        }
    }
}

//! The checks: how each is run, after which others, and about how long it takes.

use super::Args;
use crate::{python, workspace};
use anyhow::Result;
use std::process::{Command, Stdio};

/// A check.
pub(super) struct Step {
    pub(super) name: &'static str,
    program: Program,
    arguments: &'static [&'static str],
    /// Checks that have to pass before, if they are part of the run.
    pub(super) after: &'static [&'static str],
    pub(super) kind: Kind,
    /// Whether it waits while another check has cargo build in the development profile.
    pub(super) locks_dev_build: bool,
    /// Seconds on an idle machine with two cores, nothing built; later runs know better.
    pub(super) guess: u64,
}

#[derive(Clone, Copy)]
enum Program {
    Cargo,
    /// Another task of this program.
    Xtask,
}

/// Decides which runs a check is part of.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Part of every run.
    Quick,
    /// Left out before a commit.
    Whole,
    /// Needs stock TensorFlow, or another program of its Python environment.
    Stock,
}

const fn xtask(name: &'static str, arguments: &'static [&'static str], guess: u64) -> Step {
    let program = Program::Xtask;
    Step { name, program, arguments, after: &[], kind: Kind::Quick, locks_dev_build: false, guess }
}

const fn cargo(name: &'static str, arguments: &'static [&'static str], guess: u64) -> Step {
    Step { program: Program::Cargo, ..xtask(name, arguments, guess) }
}

impl Step {
    const fn after(self, after: &'static [&'static str]) -> Step {
        Step { after, ..self }
    }

    const fn kind(self, kind: Kind) -> Step {
        Step { kind, ..self }
    }

    const fn locks_dev_build(self) -> Step {
        Step { locks_dev_build: true, ..self }
    }
}

const STOCK: &str = "stock TensorFlow";
const TEST_BUILD: &str = "test build";
const SERVER: &str = "server";
const DOCS: &str = "docs";

/// The test program whose tests start processes, ours and stock's.
const SCENARIOS: &str = "tests (main)";
/// Its tests of clusters with stock.
const CLUSTERS: &str = "clusters::";

/// Every check. Of those that may start, the first one here does: what others wait for comes early, and what mostly waits
/// (scenarios with stock) runs beside what compiles.
pub(super) const STEPS: &[Step] = &[
    xtask("tidy", &["tidy"], 1),
    xtask("format", &["format", "--check"], 3),
    xtask("generated code", &["codegen", "--check"], 3),
    xtask(TEST_BUILD, &["run-tests", "--no-run"], 180).locks_dev_build(),
    xtask(STOCK, &["setup"], 1).kind(Kind::Stock),
    xtask("Python", &["python", "--check"], 1).kind(Kind::Stock).after(&[STOCK]),
    xtask("goldens", &["goldens", "--check"], 70).kind(Kind::Stock).after(&[STOCK]),
    // They take turns, and wait for servers to notice what was done to them.
    xtask("clusters", &["run-tests", "--built", "--only", SCENARIOS, "--test", CLUSTERS], 300)
        .kind(Kind::Stock)
        .after(&[TEST_BUILD, STOCK]),
    xtask("Python package", &["module", "--built"], 60).kind(Kind::Stock).after(&[TEST_BUILD, STOCK]),
    cargo("lints", &["clippy", "--workspace", "--all-targets", "--quiet", "--", "-D", "warnings"], 70)
        .locks_dev_build(),
    xtask("tests", &["run-tests", "--built", "--except", SCENARIOS], 120).after(&[TEST_BUILD]),
    xtask("scenarios", &["run-tests", "--built", "--only", SCENARIOS, "--skip", CLUSTERS], 150)
        .after(&[TEST_BUILD, STOCK]),
    cargo(SERVER, &["build", "--release", "--quiet"], 240).kind(Kind::Whole),
    xtask("compatibility table", &["compat", "--check"], 1).kind(Kind::Whole).after(&[SERVER]),
    xtask("other processors", &["emulate", "--built"], 90).kind(Kind::Whole).after(&[TEST_BUILD]),
    xtask("a clock that jumps", &["clock", "--built"], 20).kind(Kind::Stock).after(&[TEST_BUILD, STOCK]),
    cargo("doc tests", &["test", "--workspace", "--doc", "--quiet"], 30)
        .kind(Kind::Whole)
        .after(&[TEST_BUILD])
        .locks_dev_build(),
    // After the lints, which have checked the crates.
    cargo(DOCS, &["doc", "--workspace", "--no-deps", "--quiet"], 40).kind(Kind::Whole).locks_dev_build(),
    // Enough seeds to draw most ops, and the same graphs on a fast machine as on a slow one, so that a change fails for
    // what it changes.
    xtask("differential", &["differential", "--seconds", "0", "--seed", "1", "--seeds", "500"], 60)
        .kind(Kind::Stock)
        .after(&[STOCK, SERVER]),
    xtask("pods", &["managers", "k8s"], 30).kind(Kind::Stock).after(&[STOCK, SERVER]),
    // Of the scenarios, one training from start to end.
    xtask("Slurm", &["managers", "slurm", "--only", "process manager"], 40)
        .kind(Kind::Stock)
        .after(&[STOCK, SERVER]),
];

impl Step {
    /// Whether the check is part of a run with these options.
    pub(super) fn is_part_of(&self, args: &Args) -> bool {
        match self.kind {
            Kind::Quick => true,
            Kind::Whole => !args.quick,
            Kind::Stock => !args.quick && !args.without_stock,
        }
    }

    /// The command that does it; tests that ask stock say that they are skipped where it is left out.
    pub(super) fn command(&self, without_stock: bool) -> Result<Command> {
        let program = match self.program {
            Program::Cargo => workspace::cargo(),
            Program::Xtask => std::env::current_exe()?,
        };
        let mut command = Command::new(program);
        workspace::without_own_package(&mut command);
        command.args(self.arguments).current_dir(workspace::root()).stdin(Stdio::null());
        // A report says where its test failed; the frames above are the test runner's.
        command.env("RUST_BACKTRACE", "0").env("RUST_LIB_BACKTRACE", "0");
        if let Program::Cargo = self.program {
            command.env("RUSTDOCFLAGS", "-D warnings");
        }
        if self.name == DOCS {
            // As clippy calls cargo: crates that it has checked are not checked again for the crates that use them.
            command.env("RUSTC_WORKSPACE_WRAPPER", workspace::cargo().with_file_name("clippy-driver"));
            command.env("CLIPPY_ARGS", "-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__");
        }
        if without_stock {
            // In CI, a test that misses stock fails.
            command.env(python::VARIABLE, workspace::target().join("check/no-stock")).env_remove("CI");
        }
        Ok(command)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_follow_checks_that_come_before_them() {
        for (at, step) in STEPS.iter().enumerate() {
            for name in step.after {
                assert!(STEPS[..at].iter().any(|before| before.name == *name), "{} after {name}", step.name);
            }
        }
    }

    #[test]
    fn before_a_commit_nothing_asks_for_python() {
        let quick = Args { quick: true, without_stock: false };
        let parts: Vec<&Step> = STEPS.iter().filter(|step| step.is_part_of(&quick)).collect();
        assert!(parts.iter().all(|step| step.kind == Kind::Quick && !step.arguments.contains(&"setup")));
        assert!(parts.len() > 5 && parts.len() < STEPS.len());
    }
}

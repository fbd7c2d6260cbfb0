//! A look at a cluster before it trains: names, ports in both directions, versions, agreement, clocks, directories.
//!
//! It talks to the servers that are up, and asks those of our own which others they reach.

mod directory;
mod names;
mod obstacle;
mod peers;

pub use directory::Marker;
pub use peers::{ping, who_answers};

use crate::Role;
use ferroflow_cluster::spec::TaskName;
use ferroflow_cluster::waiting::aloud;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// As it should be.
    Fine,
    /// A warning: training can start all the same.
    Doubtful,
    /// An error: training would fail or wait for ever.
    Wrong,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What kind of check it was: `role`, `listen`, `name`, `port`, `task`, `version`, `agreement`,
    /// `clock`, `way`, `directory`.
    pub check: &'static str,
    /// Whom it is about.
    pub about: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub fix: Option<String>,
}

impl Finding {
    /// Something that is as it should be.
    pub fn fine(check: &'static str, about: impl fmt::Display, text: impl Into<String>) -> Finding {
        Finding { check, about: about.to_string(), verdict: Verdict::Fine, text: text.into(), fix: None }
    }

    /// Something that is not, and what to do about it.
    pub fn faulty(
        verdict: Verdict,
        check: &'static str,
        about: impl fmt::Display,
        text: impl Into<String>,
        fix: impl Into<String>,
    ) -> Finding {
        Finding { check, about: about.to_string(), verdict, text: text.into(), fix: Some(fix.into()) }
    }
}

/// What to look at.
pub struct Examination<'a> {
    /// The task in whose place to look.
    pub role: &'a Role,
    /// Whether something answers, now, at this task's own address.
    pub listening: bool,
    /// Directories that all tasks are to share.
    pub directories: &'a [PathBuf],
    /// How long one answer may take.
    pub limit: Duration,
    /// How long to wait for tasks that are not up; without, they need not be.
    pub wait: Option<Duration>,
}

impl Examination<'_> {
    /// Looks at everything; `waiting` hears for whom it waits.
    pub fn run(&self, waiting: impl FnMut(&[TaskName])) -> Vec<Finding> {
        let leave =
            |path: &PathBuf| aloud(path.display(), "its file system does not answer", || Marker::leave(path));
        let markers: Vec<_> = self.directories.iter().map(leave).collect();
        let mut findings = names::check(self.role);
        findings.extend(peers::check(self, waiting));
        for marker in markers {
            match marker {
                Ok(marker) => findings.extend(marker.check()),
                Err(finding) => findings.push(*finding),
            }
        }
        findings
    }

    fn deadline(&self) -> Option<Instant> {
        self.wait.map(|wait| Instant::now() + wait)
    }
}

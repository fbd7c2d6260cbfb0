//! A look at a cluster before it trains: names, ports in both directions, versions, agreement, clocks, directories.
//!
//! It talks to the servers that are up, and asks Ferroflow servers which others they reach.

mod directory;
mod names;
mod obstacle;
mod peers;

pub use directory::Marker;
pub use peers::{ping, who_answers};

use crate::Role;
use ferroflow_cluster::logged_wait::log_while;
use ferroflow_cluster::spec::TaskName;
use std::fmt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// No problem.
    Fine,
    /// A warning: training can start all the same.
    Doubtful,
    /// An error: training would fail or wait for ever.
    Wrong,
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind of check: `role`, `listen`, `name`, `port`, `task`, `version`, `agreement`,
    /// `clock`, `way`, `directory`.
    pub check: &'static str,
    /// The task, address or directory that was checked.
    pub about: String,
    /// The outcome.
    pub verdict: Verdict,
    /// The finding, as the end of a sentence that begins with `about`.
    pub text: String,
    /// The remedy.
    pub fix: Option<String>,
}

impl Finding {
    /// A check without a problem.
    pub fn fine(check: &'static str, about: impl fmt::Display, text: impl Into<String>) -> Finding {
        Finding { check, about: about.to_string(), verdict: Verdict::Fine, text: text.into(), fix: None }
    }

    /// A problem with its remedy.
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

/// The scope of an examination.
pub struct Examination<'a> {
    /// The task from whose point of view to look.
    pub role: &'a Role,
    /// True if a server answers at this task's own address.
    pub listening: bool,
    /// Directories that all tasks are to share.
    pub directories: &'a [PathBuf],
    /// The time that one answer may take.
    pub limit: Duration,
    /// The time to wait for tasks that are not up, after which each is an error.
    pub wait: Option<Duration>,
}

impl Examination<'_> {
    /// Checks everything; `waiting` is called with the tasks that it waits for.
    pub fn run(&self, waiting: impl FnMut(&[TaskName])) -> Vec<Finding> {
        let leave = |path: &PathBuf| {
            log_while(path.display(), "its file system does not answer", || Marker::leave(path))
        };
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

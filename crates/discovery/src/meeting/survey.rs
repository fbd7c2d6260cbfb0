//! The tasks at a rendezvous, seen from outside, and the removal of runs that have ended.

use super::Url;
use super::claim::{machine, open};
use super::control::reach;
use super::file::{TEMPORARY, is_record};
use super::record::{Member, address};
use super::table::{Table, View};
use crate::Topology;
use crate::role::short;
use ferroflow_core::{Result, status};
use serde::Serialize;
use std::fs::OpenOptions;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The state of a rendezvous.
#[derive(Clone, Debug, Serialize)]
pub struct Survey {
    /// The jobs that the newest member was started with.
    pub jobs: Option<String>,
    /// The number of times that a cluster was complete.
    pub epoch: u64,
    /// Every task that was ever started, by its newest start.
    pub tasks: Vec<SurveyedTask>,
    /// Tasks of the jobs that never came, as `worker:1`.
    pub missing: Vec<String>,
}

/// A task at a rendezvous.
#[derive(Clone, Debug, Serialize)]
pub struct SurveyedTask {
    /// Its job.
    pub job: String,
    /// Its number.
    pub task: u32,
    /// Counts its starts, from 0.
    pub generation: u64,
    /// The address that it published.
    pub address: String,
    /// The name of its machine.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// `there`, `ended` or `unreachable`.
    pub state: &'static str,
    /// The way it ended, or the reason why it cannot be reached.
    pub detail: String,
}

/// Looks at a rendezvous without joining it.
pub fn survey(url: &Url) -> Result<Survey> {
    let view = Table::new(open(url, None)?).look()?;
    let jobs = view.members.values().max_by_key(|member| member.generation).map(|member| member.jobs.clone());
    let epoch = view.cluster.as_ref().map_or(0, |cluster| cluster.epoch);
    let tasks: Vec<SurveyedTask> =
        view.members.values().map(|member| describe(member, &view, &url.run())).collect();
    let expected: Option<Topology> = jobs.as_ref().and_then(|jobs| jobs.parse().ok());
    let expected = expected.iter().flat_map(Topology::tasks);
    let missing =
        expected.filter(|name| !tasks.iter().any(|task| task.job == name.job && task.task == name.task));
    let missing = missing.map(|name| short(&name)).collect();
    Ok(Survey { jobs, epoch, tasks, missing })
}

fn describe(member: &Member, view: &View, run: &str) -> SurveyedTask {
    let (state, detail) = match view.note_of(&member.incarnation) {
        Some(note) if note.reason.is_empty() => ("ended", format!("code {}", note.code)),
        Some(note) => ("ended", format!("code {}: {}", note.code, note.reason)),
        None => match reach(member, run, &machine()) {
            Ok(reached) if reached.ending => ("ending", "it lets steps finish".to_owned()),
            Ok(_) => ("there", String::new()),
            Err(unreached) => ("unreachable", unreached.reason),
        },
    };
    SurveyedTask {
        job: member.job.clone(),
        task: member.task,
        generation: member.generation,
        address: address(member.hosts.first().unwrap_or(&member.host), member.port),
        host: member.host.clone(),
        pid: member.pid,
        state,
        detail,
    }
}

/// Removes runs below a directory that have no living task and were not written to for `older_than`; `dry` only finds
/// them.
pub fn collect_garbage(directory: &Path, older_than: Duration, dry: bool) -> Result<Vec<PathBuf>> {
    let shown = directory.display();
    let failed = |error: std::io::Error| status!(FailedPrecondition, "{shown}: {error}");
    let entries = std::fs::read_dir(directory).map_err(failed)?;
    let now = clock_of(directory).map_err(failed)?;
    let user = rustix::process::geteuid().as_raw();
    let mut removed = Vec::new();
    for entry in entries {
        let path = entry.map_err(failed)?.path();
        let Ok(found) = std::fs::symlink_metadata(&path) else { continue };
        if !found.is_dir() || found.uid() != user {
            continue;
        }
        let Some(newest) = newest_of_run(&path) else { continue };
        let newest = newest.max(found.mtime());
        if now.saturating_sub(newest) < older_than.as_secs() as i64 {
            continue;
        }
        let url = Url::File(path.clone());
        let Ok(survey) = survey(&url) else { continue };
        if survey.tasks.iter().any(|task| task.state == "there") {
            continue;
        }
        if !dry {
            open(&url, None)?.remove_all()?;
        }
        removed.push(path);
    }
    removed.sort();
    Ok(removed)
}

/// Returns the time of the file server, which dates files: that of a file made just now.
fn clock_of(directory: &Path) -> std::io::Result<i64> {
    let path = directory.join(format!("{TEMPORARY}clock.{}", std::process::id()));
    let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path)?;
    let now = file.metadata().map(|found| found.mtime());
    std::fs::remove_file(&path)?;
    now
}

/// Returns the time at which a run was last written to; `None` for another directory, which is left alone.
fn newest_of_run(directory: &Path) -> Option<i64> {
    let mut newest = None;
    for entry in std::fs::read_dir(directory).ok()? {
        let entry = entry.ok()?;
        if !is_record(&entry.file_name().to_string_lossy()) {
            return None;
        }
        newest = newest.max(entry.metadata().ok().map(|found| found.mtime()));
    }
    newest
}

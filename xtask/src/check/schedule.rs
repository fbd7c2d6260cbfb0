//! Runs checks side by side: two at a time, each after those that it builds on.

use super::excerpt;
use super::history::History;
use super::progress::{Progress, Running};
use super::steps::Step;
use super::tally::Tally;
use anyhow::{Context, Result};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

/// Enough to keep two cores busy: one check mostly compiles, the other one mostly waits.
const AT_ONCE: usize = 2;

/// Interval at which the elapsed time is shown.
const TICK: Duration = Duration::from_secs(1);

/// The end of a check.
pub(super) struct Outcome {
    pub(super) name: &'static str,
    verdict: Verdict,
    pub(super) tally: Tally,
}

#[derive(Clone, Copy, PartialEq)]
enum Verdict {
    Passed,
    Failed,
    /// A check that it builds on failed.
    NotRun,
}

impl Outcome {
    pub(super) fn has_failed(&self) -> bool {
        self.verdict == Verdict::Failed
    }
}

/// A check that was started.
struct Started<'a> {
    step: &'a Step,
    at: Instant,
    expected: Duration,
    log: PathBuf,
}

/// Runs all checks and says how each ended.
pub(super) fn run(steps: &[&'static Step], logs: &Path, without_stock: bool) -> Result<Vec<Outcome>> {
    let (progress, mut history) = (Progress::new(), History::read(logs));
    let (sender, ended) = channel();
    let mut waiting: Vec<&Step> = steps.to_vec();
    let mut running: Vec<Started<'_>> = Vec::new();
    let mut outcomes: Vec<Outcome> = Vec::new();
    let mut processor_before = processor_time();
    while !waiting.is_empty() || !running.is_empty() {
        while let Some(at) = next(&waiting, &running, &outcomes) {
            let step = waiting.remove(at);
            if let Some(failed) = missing(step, &outcomes) {
                progress.line(&format!("{}: not run, because of {failed}", step.name));
                outcomes.push(Outcome { name: step.name, verdict: Verdict::NotRun, tally: Tally::SKIPPED });
                continue;
            }
            let log = logs.join(step.name.replace(' ', "-")).with_extension("log");
            let expected = history.expected(step.name, step.guess);
            progress.started(step.name, expected);
            start(step.name, step.command(without_stock)?, &log, sender.clone())?;
            running.push(Started { step, at: Instant::now(), expected, log });
        }
        let shown: Vec<Running<'_>> = running
            .iter()
            .map(|each| Running { name: each.step.name, elapsed: each.at.elapsed(), expected: each.expected })
            .collect();
        progress.update(&shown, waiting.len());
        let Ok((name, status)) = ended.recv_timeout(TICK) else { continue };
        let at = running.iter().position(|each| each.step.name == name).expect("it was started");
        let done = running.remove(at);
        let has_passed = status.with_context(|| format!("cannot run {name}"))?.success();
        let text = String::from_utf8_lossy(&fs::read(&done.log)?).into_owned();
        let (took, processor_total) = (done.at.elapsed(), processor_time());
        let processor = processor_total.saturating_sub(processor_before);
        processor_before = processor_total;
        let tally = Tally::of(&text, has_passed);
        let verdict = match (has_passed, tally.passed) {
            (true, 0) => "skipped",
            (true, _) => "ok",
            (false, _) => "FAILED",
        };
        progress.ended(name, verdict, took, processor, done.expected);
        if !has_passed {
            progress.line(&excerpt::of(&text));
        } else if tally.passed > 0 {
            history.note(name, took);
        }
        let verdict = if has_passed { Verdict::Passed } else { Verdict::Failed };
        outcomes.push(Outcome { name, verdict, tally });
    }
    progress.update(&[], 0);
    Ok(outcomes)
}

/// The first check that may start now.
fn next(waiting: &[&Step], running: &[Started<'_>], outcomes: &[Outcome]) -> Option<usize> {
    if running.len() >= AT_ONCE {
        return None;
    }
    let dev_build_is_locked = running.iter().any(|each| each.step.locks_dev_build);
    waiting.iter().position(|step| {
        let is_pending = |name: &&str| {
            waiting.iter().any(|other| other.name == *name)
                || running.iter().any(|other| other.step.name == *name)
        };
        let doomed = missing(step, outcomes).is_some();
        doomed || !(step.after.iter().any(is_pending) || step.locks_dev_build && dev_build_is_locked)
    })
}

/// A check that this one builds on and that did not pass.
fn missing(step: &Step, outcomes: &[Outcome]) -> Option<&'static str> {
    let failed = |name: &&str| {
        outcomes.iter().any(|outcome| outcome.name == *name && outcome.verdict != Verdict::Passed)
    };
    step.after.iter().find(|name| failed(name)).copied()
}

/// The time for which processors worked for processes that this one started, and for theirs, once they have ended; zero
/// where the system does not say.
fn processor_time() -> Duration {
    let text = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    processor_time_in(&text).unwrap_or_default()
}

fn processor_time_in(stat: &str) -> Option<Duration> {
    // The name, in parentheses, may have spaces. Of the fields behind it, these are the waited-for children's.
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let ticks = |field: usize| fields.get(field)?.parse::<u64>().ok();
    // A tick is a hundredth of a second on every Linux.
    Some(Duration::from_millis(10 * (ticks(13)? + ticks(14)?)))
}

type Ended = (&'static str, std::io::Result<std::process::ExitStatus>);

/// Starts a command whose output goes to a log, and a thread that says when it has ended.
fn start(name: &'static str, mut command: Command, log: &Path, ended: Sender<Ended>) -> Result<()> {
    let output = File::create(log).with_context(|| log.display().to_string())?;
    command.stdout(output.try_clone()?).stderr(output);
    let mut child =
        command.spawn().with_context(|| format!("cannot start {}", command.get_program().display()))?;
    std::thread::spawn(move || {
        let status = child.wait();
        let _ = ended.send((name, status));
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_processor_time_is_that_of_processes_that_have_ended() {
        let stat = "7 (a b) c) S 1 7 7 0 -1 0 0 0 0 0 11 12 250 50 20 0 1";
        assert_eq!(processor_time_in(stat), Some(Duration::from_secs(3)));
        assert_eq!(processor_time_in(""), None);
    }
}

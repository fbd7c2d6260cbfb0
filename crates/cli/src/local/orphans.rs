//! Processes that tasks started and that left their groups, as daemons do.
//!
//! Every task's environment has a mark, which its children inherit.

use rustix::process::{Pid, Signal, getpid, kill_process};
use std::fs;
use std::sync::mpsc::channel;
use std::time::Duration;

/// The variable that holds the mark.
pub(super) const VARIABLE: &str = "FERROFLOW_LAUNCH";

/// The number of searches, because processes may start others while they are killed.
const ROUNDS: usize = 10;
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// Kills every process with this mark but this one.
pub(super) fn kill_all(mark: &str) {
    let (_kept, never) = channel::<()>();
    for _ in 0..ROUNDS {
        let found = marked(mark);
        if found.is_empty() {
            return;
        }
        for process in found {
            // It may have ended since.
            let _ = kill_process(process, Signal::KILL);
        }
        let _ = never.recv_timeout(LOOK_EVERY);
    }
}

/// Returns this user's processes with the mark. Those that have ended but were not waited for have no environment any
/// more.
fn marked(mark: &str) -> Vec<Pid> {
    let wanted = format!("{VARIABLE}={mark}");
    let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
    let marked = processes.flatten().filter_map(|process| {
        let pid = process.file_name().to_str()?.parse().ok().and_then(Pid::from_raw)?;
        let environment = fs::read(process.path().join("environ")).ok()?;
        let has_mark = environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes());
        (has_mark && pid != getpid()).then_some(pid)
    });
    marked.collect()
}

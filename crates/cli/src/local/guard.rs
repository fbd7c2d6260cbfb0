//! A process that outlives this one by a moment, to end what it started should it be killed.
//!
//! The kernel tells only the children of a process that it is gone, and their own children stay. The guard is told of
//! every process group that begins and ends, through a pipe; when the pipe closes without a farewell, it ends the groups
//! that are left, and what had left them.

use super::strays;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// How long groups may take to end when they are asked to.
const GRACE: Duration = Duration::from_secs(3);
/// How often the guard looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(50);

const FAREWELL: &str = "farewell";

/// The guard, as the process sees it that posted it.
pub(super) struct Guard(Child);

impl Guard {
    /// Starts a guard of processes with this mark.
    pub(super) fn post(mark: &str) -> Result<Guard, String> {
        let failed = |error: std::io::Error| format!("cannot start the guard of the cluster: {error}");
        let guard = Command::new(std::env::current_exe().map_err(failed)?)
            .args(["guard", mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn();
        guard.map(Guard).map_err(failed)
    }

    /// A group has begun.
    pub(super) fn watch(&mut self, group: Pid) {
        self.say(&format!("+{}", group.as_raw_pid()));
    }

    /// A group has ended.
    pub(super) fn forget(&mut self, group: Pid) {
        self.say(&format!("-{}", group.as_raw_pid()));
    }

    fn say(&mut self, word: &str) {
        if let Some(pipe) = &mut self.0.stdin {
            // Without its guard the cluster works as well.
            let _ = pipe.write_all(format!("{word}\n").as_bytes());
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.say(FAREWELL);
        let _ = self.0.wait();
    }
}

/// Arguments of the guard's process.
#[derive(clap::Args)]
pub(crate) struct Watch {
    /// What the environments of the processes have
    mark: String,
}

/// In the guard's process: waits for the end of the one that posted it.
pub(crate) fn stand_guard(args: &Watch) {
    let mut groups = BTreeSet::new();
    for line in std::io::stdin().lock().lines().map_while(Result::ok) {
        if line == FAREWELL {
            return;
        }
        let (sign, number) = line.split_at_checked(1).unwrap_or_default();
        let Some(group) = number.parse().ok().and_then(Pid::from_raw) else { continue };
        match sign {
            "+" => drop(groups.insert(group.as_raw_nonzero())),
            _ => drop(groups.remove(&group.as_raw_nonzero())),
        }
    }
    let groups: Vec<Pid> = groups.into_iter().filter_map(|group| Pid::from_raw(group.get())).collect();
    for group in &groups {
        let _ = kill_process_group(*group, Signal::TERM);
    }
    let deadline = Instant::now() + GRACE;
    let (_kept, never) = channel::<()>();
    while groups.iter().any(|group| test_kill_process_group(*group).is_ok()) && Instant::now() < deadline {
        let _ = never.recv_timeout(LOOK_EVERY);
    }
    for group in groups {
        let _ = kill_process_group(group, Signal::KILL);
    }
    strays::kill_all(&args.mark);
}

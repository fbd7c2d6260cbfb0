//! A process that outlives this one by a moment, to end the processes that it started should it be killed.
//!
//! The kernel signals only the children of a process that is gone, and their own children stay. The watchdog hears of
//! every process group that begins and ends, through a pipe; when the pipe closes without a last word, it ends the groups
//! that are left, and the orphans that had left them.

use super::orphans;
use crate::own_command::own_command;
use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};
use std::collections::BTreeSet;
use std::io::{BufRead, Write};
use std::os::unix::process::CommandExt;
use std::process::{Child, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// The time that groups have to end when they are asked to.
const GRACE: Duration = Duration::from_secs(3);
/// The interval at which the watchdog looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The last word of a process that ends by itself.
const FAREWELL: &str = "end";

/// The watchdog of this process.
pub(super) struct Watchdog(Child);

impl Watchdog {
    /// Starts a watchdog of processes with this mark.
    pub(super) fn start(mark: &str) -> Result<Watchdog, String> {
        let failed = |error: std::io::Error| format!("cannot start the watchdog of the cluster: {error}");
        let watchdog = own_command()?
            .args(["watchdog", mark])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            // Ctrl-C is not for it.
            .process_group(0)
            .spawn();
        watchdog.map(Watchdog).map_err(failed)
    }

    /// Adds a group that has begun.
    pub(super) fn watch(&mut self, group: Pid) {
        self.say(&format!("+{}", group.as_raw_pid()));
    }

    /// Removes a group that has ended.
    pub(super) fn forget(&mut self, group: Pid) {
        self.say(&format!("-{}", group.as_raw_pid()));
    }

    fn say(&mut self, word: &str) {
        if let Some(pipe) = &mut self.0.stdin {
            // Without its watchdog the cluster works as well.
            let _ = pipe.write_all(format!("{word}\n").as_bytes());
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.say(FAREWELL);
        let _ = self.0.wait();
    }
}

/// Arguments of the watchdog's process.
#[derive(clap::Args)]
pub(crate) struct WatchdogArgs {
    /// Mark in the environments of the processes
    mark: String,
}

/// Waits, in the watchdog's process, for the end of the process that started it.
pub(crate) fn watch_parent(args: &WatchdogArgs) {
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
    orphans::kill_all(&args.mark);
}

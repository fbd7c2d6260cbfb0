//! Processes that this one has started, and that end with it however it ends: their children, daemons that leave their
//! groups, and all of them when this process is killed.

use super::orphans;
use super::watchdog::Watchdog;
use rustix::process::Pid;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// The processes that were started. They end with this value.
pub(crate) struct ProcessTree {
    /// A mark in the environments of the processes and of their children.
    mark: String,
    watchdog: Watchdog,
}

impl ProcessTree {
    /// Makes an empty tree.
    pub(crate) fn new() -> Result<ProcessTree, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("{}.{}", std::process::id(), now.as_nanos());
        let watchdog = Watchdog::start(&mark)?;
        Ok(ProcessTree { mark, watchdog })
    }

    /// Marks a process that is about to be started, and with it its children.
    pub(crate) fn mark(&self, command: &mut Command) {
        command.env(orphans::VARIABLE, &self.mark);
    }

    /// Adds a process group.
    pub(crate) fn watch(&mut self, group: Pid) {
        self.watchdog.watch(group);
    }

    /// Removes a process group that has ended.
    pub(crate) fn forget(&mut self, group: Pid) {
        self.watchdog.forget(group);
    }
}

impl Drop for ProcessTree {
    fn drop(&mut self) {
        orphans::kill_all(&self.mark);
    }
}

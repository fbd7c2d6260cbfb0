//! Processes that this one has started, and that end with it however it ends: what they start in turn, what leaves their
//! groups, and what is left when this process is killed.

use super::guard::Guard;
use super::strays;
use rustix::process::Pid;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What has been started. It ends with this value.
pub(crate) struct Custody {
    /// What the environments of the processes have, and of whatever they start.
    mark: String,
    guard: Guard,
}

impl Custody {
    /// Nothing yet.
    pub(crate) fn new() -> Result<Custody, String> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mark = format!("{}.{}", std::process::id(), now.as_nanos());
        let guard = Guard::post(&mark)?;
        Ok(Custody { mark, guard })
    }

    /// Marks a process that is to be started, and whatever it will start.
    pub(crate) fn mark(&self, command: &mut Command) {
        command.env(strays::VARIABLE, &self.mark);
    }

    /// A process group has begun.
    pub(crate) fn watch(&mut self, group: Pid) {
        self.guard.watch(group);
    }

    /// A process group has ended.
    pub(crate) fn forget(&mut self, group: Pid) {
        self.guard.forget(group);
    }
}

impl Drop for Custody {
    fn drop(&mut self) {
        strays::kill_all(&self.mark);
    }
}

//! Names of tasks, and filters that choose tasks and devices.

mod address;
mod agreement;
mod cluster;
mod json;

pub use agreement::Difference;
pub use cluster::ClusterSpec;
pub use json::parse_json;

use ferroflow_core::device::DeviceSpec;
use ferroflow_core::{Result, ensure};
use std::fmt;

/// The name of a process of a cluster: `/job:<job>/replica:<replica>/task:<task>`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TaskName {
    /// The job, e.g. `worker`.
    pub job: String,
    /// The replica; 0 unless the user chose another.
    pub replica: u32,
    /// The task index within the job.
    pub task: u32,
}

impl TaskName {
    /// Names task `task` of a job.
    pub fn new(job: &str, task: u32) -> TaskName {
        TaskName { job: job.to_owned(), replica: 0, task }
    }

    /// Returns the full name of one of the task's CPU devices.
    pub fn cpu(&self, index: u32) -> String {
        format!("{self}/device:CPU:{index}")
    }

    /// Returns the task that a device belongs to; `None` for a partial name.
    pub fn of_device(device: &DeviceSpec) -> Option<TaskName> {
        let DeviceSpec { job: Some(job), replica, task: Some(task), .. } = device else { return None };
        Some(TaskName { job: job.clone(), replica: replica.unwrap_or_default(), task: *task })
    }

    /// Returns the name as a device specification without a device.
    pub fn spec(&self) -> DeviceSpec {
        DeviceSpec {
            job: Some(self.job.clone()),
            replica: Some(self.replica),
            task: Some(self.task),
            ..DeviceSpec::default()
        }
    }
}

impl fmt::Display for TaskName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/job:{}/replica:{}/task:{}", self.job, self.replica, self.task)
    }
}

/// Parses device filters; a malformed filter is an error.
pub(crate) fn parse_filters(filters: &[String]) -> Result<Vec<DeviceSpec>> {
    let mut specs = Vec::with_capacity(filters.len());
    for filter in filters {
        let spec = DeviceSpec::parse(filter);
        ensure!(
            spec.is_ok(),
            InvalidArgument,
            "Malformed device filter '{filter}', expected e.g. '/job:ps' or '/job:worker/task:0'"
        );
        specs.extend(spec);
    }
    Ok(specs)
}

/// Returns whether the filters select a task; no filters select every task.
pub(crate) fn task_passes(filters: &[DeviceSpec], task: &TaskName) -> bool {
    let task = task.spec();
    filters.is_empty() || filters.iter().any(|filter| filter.task_part().matches(&task))
}

/// Returns whether the filters select a device, given by its full name.
pub(crate) fn device_passes(filters: &[DeviceSpec], device: &str) -> bool {
    let Ok(device) = DeviceSpec::parse(device) else { return false };
    filters.is_empty() || filters.iter().any(|filter| filter.matches(&device))
}

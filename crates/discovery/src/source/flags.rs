//! Flags that name the cluster and this task's place in it.

use super::{Found, Says};
use crate::Environment;
use crate::role::Asked;
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::Result;

/// Flags that name the task alone are no role: they choose a task in the cluster that another source names.
pub(super) fn ask(asked: &Asked, _: &Environment) -> Result<Says> {
    if asked.cluster.is_empty() {
        return Ok(Says::Nothing);
    }
    asked.cluster.check()?;
    let task = asked.job.as_ref().map(|job| TaskName::new(job, asked.task.unwrap_or_default()));
    Ok(Says::Role(Found { task, cluster: asked.cluster.clone(), ..Found::default() }))
}

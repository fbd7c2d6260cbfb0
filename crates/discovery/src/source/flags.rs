//! Flags that name the cluster and this task's place in it.

use super::{Found, Says};
use crate::Environment;
use crate::role::RoleRequest;
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::Result;

/// Reads a role from flags. Flags that name the task alone are not one: they choose a task in the cluster that another
/// source names.
pub(super) fn ask(request: &RoleRequest, _: &Environment) -> Result<Says> {
    if request.cluster.is_empty() {
        return Ok(Says::Nothing);
    }
    request.cluster.check()?;
    let task = request.job.as_ref().map(|job| TaskName::new(job, request.task.unwrap_or_default()));
    Ok(Says::Role(Found { task, cluster: request.cluster.clone(), ..Found::default() }))
}

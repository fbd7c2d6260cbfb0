//! The task of a process, as flags, `TF_CONFIG` or a scheduler say it, and clusters as people write them.

use crate::errors::Result;
use ferroflow::ClusterSpec;
use ferroflow::discovery::{Environment, Role, RoleRequest, Source, Topology};
use pyo3::prelude::*;
use serde_json::json;

/// Returns the role of this process as JSON. Variables of `environment` are read instead of the process's, if given.
#[pyfunction]
#[pyo3(signature = (environment=None, jobs=None))]
pub(crate) fn resolve(
    py: Python<'_>,
    environment: Option<Vec<(String, String)>>,
    jobs: Option<String>,
) -> Result<String> {
    py.detach(|| {
        let environment: Environment = match &environment {
            None => Environment::of_process(),
            Some(variables) => {
                variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
            }
        };
        let jobs = jobs.as_deref().or_else(|| environment.get("FERROFLOW_JOBS"));
        let jobs = jobs.map(str::parse::<Topology>).transpose()?;
        let role = Role::resolve(&RoleRequest { jobs, ..RoleRequest::default() }, &environment)?;
        role.located()?;
        let overridden = role
            .overridden
            .iter()
            .map(|other| json!({"source": other.source.to_string(), "said": other.said}));
        let described = json!({
            "job_name": role.task.job,
            "task_index": role.task.task,
            "is_chief": role.is_chief(),
            "address": role.address(),
            "source": (role.source != Source::Local).then(|| role.source.to_string()),
            "cluster": role.cluster.to_value(),
            "notes": role.notes,
            "overridden": overridden.collect::<Vec<_>>(),
        });
        Ok(described.to_string())
    })
}

/// Checks a cluster that is given as JSON, and returns it in the shortest form.
#[pyfunction]
pub(crate) fn parse_cluster(text: &str) -> Result<String> {
    Ok(ClusterSpec::from_json(text)?.to_json())
}

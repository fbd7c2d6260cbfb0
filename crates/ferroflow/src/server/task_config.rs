//! Who a process is among the tasks of a cluster: told by the environment variable `TF_CONFIG`, by a scheduler, or by flags.

use super::Server;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::Result;
use ferroflow_discovery::{Environment, Role, RoleRequest, Source, is_chief};

/// Who this task is, and in which cluster.
///
/// ```
/// use ferroflow::server::TaskConfig;
///
/// let text = r#"{"cluster": {"ps": ["a:2222"], "worker": ["b:2222"]}, "task": {"type": "worker", "index": 0}}"#;
/// let config = TaskConfig::from_tf_config(text)?;
/// assert_eq!((config.task.job.as_str(), config.task.task), ("worker", 0));
/// assert!(config.is_chief());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskConfig {
    /// The cluster; empty for a program that runs alone.
    pub cluster: ClusterSpec,
    /// This task.
    pub task: TaskName,
}

impl TaskConfig {
    /// Asks `TF_CONFIG` and then schedulers, which `FERROFLOW_JOBS` tells which jobs there are. A program that is told
    /// nothing is a worker of its own, with an empty cluster.
    pub fn from_env() -> Result<TaskConfig> {
        TaskConfig::resolve(RoleRequest::default(), &Environment::of_process())
    }

    /// Reads `{"cluster": {"ps": […], "worker": […]}, "task": {"type": "worker", "index": 0}}`, in every form that stock
    /// accepts. A program that is told nothing is a worker of its own.
    pub fn from_tf_config(text: &str) -> Result<TaskConfig> {
        TaskConfig::resolve(RoleRequest::default(), &[("TF_CONFIG", text)].into_iter().collect())
    }

    pub(crate) fn resolve(mut request: RoleRequest, environment: &Environment) -> Result<TaskConfig> {
        if request.jobs.is_none() {
            request.jobs = environment.get("FERROFLOW_JOBS").map(str::parse).transpose()?;
        }
        let role = Role::resolve(&request, environment)?;
        role.located()?;
        let task = if role.source == Source::Local { TaskName::new("worker", 0) } else { role.task };
        Ok(TaskConfig { cluster: role.cluster, task })
    }

    /// Whether this task initializes the model and writes checkpoints: the chief, or the first worker without one.
    pub fn is_chief(&self) -> bool {
        is_chief(&self.task, &self.cluster)
    }

    /// Starts this task's server.
    pub fn server(&self) -> Result<Server> {
        match self.cluster.is_empty() {
            true => Server::local(),
            false => Server::new(&self.cluster, &self.task.job, self.task.task),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_found_and_mistakes_named() {
        let cluster = r#""cluster": {"chief": ["a:1"], "worker": ["b:1", "c:1"]}"#;
        let text = format!(r#"{{{cluster}, "task": {{"type": "worker", "index": "1"}}}}"#);
        let config = TaskConfig::from_tf_config(&text).unwrap();
        assert_eq!(config.task, TaskName::new("worker", 1));
        assert!(!config.is_chief());
        assert!(TaskConfig::from_tf_config("{}").unwrap().is_chief());
        let message = |text: &str| TaskConfig::from_tf_config(text).unwrap_err().message().to_owned();
        assert!(message("{").contains("TF_CONFIG: not JSON"));
        let absent = format!(r#"{{{cluster}, "task": {{"type": "ps", "index": 0}}}}"#);
        assert!(message(&absent).contains("/job:ps/replica:0/task:0 is not in the cluster"));
        assert!(message(r#"{"task": {"index": -1}}"#).contains("expected a number"));
        let misspelled = r#"{"clustre": {"worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 0}}"#;
        assert!(message(misspelled).contains("did you mean 'cluster'?"));
    }
}

//! The task of a process in a cluster, as told by the environment variable `TF_CONFIG`, by a scheduler, or by flags.

use super::Server;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::Result;
use ferroflow_discovery::{Environment, Role, RoleRequest, Source, is_chief};

/// A task and its cluster.
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
    /// Cluster of the task; empty for a program that runs alone.
    pub cluster: ClusterSpec,
    /// Job and index of the task.
    pub task: TaskName,
}

impl TaskConfig {
    /// Reads `TF_CONFIG`, or the variables of a scheduler together with `FERROFLOW_JOBS`, which lists the jobs. Without any
    /// of them, the program is a single worker with an empty cluster.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the variables are malformed or contradict each other.
    pub fn from_env() -> Result<TaskConfig> {
        TaskConfig::resolve(RoleRequest::default(), &Environment::of_process())
    }

    /// Parses `{"cluster": {"ps": […], "worker": […]}, "task": {"type": "worker", "index": 0}}`, in every form that
    /// TensorFlow accepts. Without a cluster, the program is a single worker.
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

    /// Returns `true` if this task initializes the model and writes checkpoints: the chief, or worker 0 without a chief.
    pub fn is_chief(&self) -> bool {
        is_chief(&self.task, &self.cluster)
    }

    /// Starts the server of this task; see [`Server::new`].
    pub fn server(&self) -> Result<Server> {
        if self.cluster.is_empty() {
            Server::local()
        } else {
            Server::new(&self.cluster, &self.task.job, self.task.task)
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

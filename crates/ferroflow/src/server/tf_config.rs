//! The environment variable `TF_CONFIG`, by which schedulers tell a task who it is.

use super::Server;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::Result;
use ferroflow_discovery::{Asked, Environment, Role, Source, is_chief};

/// Who this task is, and in which cluster.
///
/// ```
/// use ferroflow::server::TfConfig;
///
/// let text = r#"{"cluster": {"ps": ["a:2222"], "worker": ["b:2222"]}, "task": {"type": "worker", "index": 0}}"#;
/// let config = TfConfig::parse(text)?;
/// assert_eq!((config.task.job.as_str(), config.task.task), ("worker", 0));
/// assert!(config.is_chief());
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TfConfig {
    /// The cluster; empty for a program that runs alone.
    pub cluster: ClusterSpec,
    /// This task.
    pub task: TaskName,
}

impl TfConfig {
    /// Reads the environment; `None` if the variable is not set or empty.
    pub fn from_env() -> Result<Option<TfConfig>> {
        match Environment::of_process().get("TF_CONFIG") {
            Some(text) => TfConfig::parse(text).map(Some),
            None => Ok(None),
        }
    }

    /// Reads `{"cluster": {"ps": […], "worker": […]}, "task": {"type": "worker", "index": 0}}`, in every form that stock
    /// accepts. A program that is told nothing is a worker of its own.
    pub fn parse(text: &str) -> Result<TfConfig> {
        let environment: Environment = [("TF_CONFIG", text)].into_iter().collect();
        let Role { source, task, cluster, .. } = Role::resolve(&Asked::default(), &environment)?;
        let task = if source == Source::Local { TaskName::new("worker", 0) } else { task };
        Ok(TfConfig { cluster, task })
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
        let config =
            TfConfig::parse(&format!(r#"{{{cluster}, "task": {{"type": "worker", "index": "1"}}}}"#))
                .unwrap();
        assert_eq!(config.task, TaskName::new("worker", 1));
        assert!(!config.is_chief());
        assert!(TfConfig::parse("{}").unwrap().is_chief());
        let message = |text: &str| TfConfig::parse(text).unwrap_err().message().to_owned();
        assert!(message("{").contains("TF_CONFIG: not JSON"));
        let absent = format!(r#"{{{cluster}, "task": {{"type": "ps", "index": 0}}}}"#);
        assert!(message(&absent).contains("/job:ps/replica:0/task:0 is not in the cluster"));
        assert!(message(r#"{"task": {"index": -1}}"#).contains("expected a number"));
        let misspelled = r#"{"clustre": {"worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 0}}"#;
        assert!(message(misspelled).contains("did you mean 'cluster'?"));
    }
}

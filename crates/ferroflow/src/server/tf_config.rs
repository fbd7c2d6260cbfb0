//! The environment variable `TF_CONFIG`, by which schedulers tell a task who it is.

use super::Server;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, ensure, status};
use serde_json::Value;

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
        match std::env::var("TF_CONFIG") {
            Ok(text) if !text.trim().is_empty() => TfConfig::parse(&text).map(Some),
            _ => Ok(None),
        }
    }

    /// Reads `{"cluster": {"ps": […], "worker": […]}, "task": {"type": "worker", "index": 0}}`.
    pub fn parse(text: &str) -> Result<TfConfig> {
        let json: Value = serde_json::from_str(text)
            .map_err(|error| status!(InvalidArgument, "TF_CONFIG is no JSON: {error}"))?;
        let cluster = match json.get("cluster") {
            Some(cluster) => ClusterSpec::from_value(cluster)
                .map_err(|error| error.map_message(|message| format!("TF_CONFIG: {message}")))?,
            None => ClusterSpec::new(),
        };
        let task = json.get("task");
        let field = |name| task.and_then(|task| task.get(name));
        let job = field("type").and_then(Value::as_str).unwrap_or("worker");
        // Some schedulers write numbers as text.
        let index = match field("index") {
            None => Some(0),
            Some(Value::String(text)) => text.parse().ok(),
            Some(index) => index.as_u64().and_then(|index| u32::try_from(index).ok()),
        };
        let index = index.ok_or_else(|| {
            status!(InvalidArgument, "TF_CONFIG: the index of the task is no number: {:?}", field("index"))
        })?;
        let task = TaskName::new(job, index);
        ensure!(
            // An evaluator is beside the cluster, not in it.
            cluster.is_empty() || job == "evaluator" || cluster.address(&task).is_some(),
            InvalidArgument,
            "TF_CONFIG: {task} is not in the cluster, which has {cluster}"
        );
        Ok(TfConfig { cluster, task })
    }

    /// Whether this task initializes the model and writes checkpoints: the chief, or the first worker without one.
    pub fn is_chief(&self) -> bool {
        let has_chief = self.cluster.tasks().any(|(task, _)| task.job == "chief" || task.job == "master");
        match self.task.job.as_str() {
            "chief" | "master" => true,
            "worker" => !has_chief && self.task.task == 0,
            _ => false,
        }
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
        assert!(message("{").contains("TF_CONFIG is no JSON"));
        let absent = format!(r#"{{{cluster}, "task": {{"type": "ps", "index": 0}}}}"#);
        assert!(message(&absent).contains("/job:ps/replica:0/task:0 is not in the cluster"));
        assert!(message(r#"{"task": {"index": -1}}"#).contains("no number"));
    }
}

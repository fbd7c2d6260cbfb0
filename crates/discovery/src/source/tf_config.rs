//! The environment variable `TF_CONFIG`, by which schedulers tell a task who it is.
//!
//! It is read as `TFConfigClusterResolver` reads it, and where that gives up for no good reason (a variable set to
//! nothing), as stock's estimators do. One thing is stricter: stock ignores keys that it does not know, so that a task
//! whose `cluster` is misspelled takes itself for the chief of a cluster of one; here such a key is an error.

use super::{Found, Says};
use crate::Environment;
use crate::role::RoleRequest;
use crate::spelling::suggestion;
use ferroflow_cluster::spec::{ClusterSpec, TaskName, parse_json};
use ferroflow_core::{Result, ensure, status};
use serde_json::{Map, Value};

/// Keys that are read here, and those that others write or read.
const KEYS: [&str; 11] = [
    "cluster",
    "task",
    "rpc_layer",
    "session_master",
    // Old versions of Kubeflow's operator wrote it in place of `cluster` when workers may come and go.
    "sparseCluster",
    // Stock's estimators read these.
    "environment",
    "eval_session_master",
    "model_dir",
    "service",
    // Vertex AI writes the request that created the training, programs for TPUs the address of their coordinator.
    "job",
    "coordinator",
];

/// Keys of `task`. Vertex AI writes the last two.
const TASK_KEYS: [&str; 4] = ["type", "index", "trial", "cloud"];

pub(super) fn ask(_: &RoleRequest, environment: &Environment) -> Result<Says> {
    let Some(text) = environment.get("TF_CONFIG") else { return Ok(Says::Nothing) };
    let config = TfConfig::parse(text)?;
    if config.cluster.is_empty() && config.job.is_none() {
        return Ok(Says::Nothing);
    }
    config.found().map(Says::Role)
}

/// The fields of `TF_CONFIG`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TfConfig {
    /// The cluster; empty for a program that runs alone.
    pub cluster: ClusterSpec,
    /// The job of this task.
    pub job: Option<String>,
    /// Its number within the job.
    pub index: Option<u32>,
    /// The scheme of targets.
    pub rpc_layer: Option<String>,
    /// The target of sessions, whatever else is said.
    pub session_master: Option<String>,
    /// Jobs that are lists of one address: with workers that come and go, such a list holds this task alone, whatever
    /// its number.
    lone: Vec<String>,
    /// Names of all jobs, those without tasks included.
    jobs: usize,
}

impl TfConfig {
    /// Reads `{"cluster": {"ps": […], "worker": […]}, "task": {"type": "worker", "index": 0}}`.
    pub fn parse(text: &str) -> Result<TfConfig> {
        // A name that comes twice means the last, as in stock.
        let json = serde_json::from_str(text).or_else(|_| parse_json(text))?;
        TfConfig::from_value(&json, &[])
    }

    /// Reads a value that may have these keys, too.
    pub(super) fn from_value(json: &Value, more: &[&str]) -> Result<TfConfig> {
        if matches!(json, Value::Array(items) if items.is_empty()) {
            return Ok(TfConfig::default());
        }
        let fields = json.as_object().ok_or_else(|| {
            status!(InvalidArgument, "expected an object such as {{\"cluster\": …, \"task\": …}}, got {json}")
        })?;
        check_keys("", fields, &[&KEYS, more].concat())?;
        let jobs = fields.get("cluster").or_else(|| fields.get("sparseCluster"));
        let cluster = jobs.map(ClusterSpec::from_value).transpose()?.unwrap_or_default();
        let jobs = jobs.and_then(Value::as_object);
        // A job without tasks, whose tasks may come, is written only by such operators.
        let is_open = |tasks: &Value| tasks.as_object().is_some_and(|tasks| tasks.is_empty());
        let may_grow =
            fields.contains_key("sparseCluster") || jobs.is_some_and(|jobs| jobs.values().any(is_open));
        let lone = |(job, tasks): (&String, &Value)| match tasks {
            Value::Array(list) if may_grow && list.len() == 1 => Some(job.clone()),
            _ => None,
        };
        let task = match fields.get("task") {
            None | Some(Value::Null) => None,
            Some(Value::Object(task)) => Some(task),
            Some(other) => {
                let example = r#"{"type": "worker", "index": 0}"#;
                return Err(status!(InvalidArgument, "the task is {other}, expected e.g. {example}"));
            }
        };
        if let Some(task) = task {
            check_keys("task.", task, &TASK_KEYS)?;
        }
        let field = |name| task.and_then(|task| task.get(name)).filter(|value| !value.is_null());
        let job = field("type").map(|job| match job {
            Value::String(job) => Ok(job.clone()),
            other => {
                Err(status!(InvalidArgument, "the type of the task is {other}, expected the name of a job"))
            }
        });
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(status!(InvalidArgument, "'{name}' is {other}, expected text in quotes")),
        };
        Ok(TfConfig {
            lone: jobs.into_iter().flatten().filter_map(lone).collect(),
            jobs: jobs.map_or(0, |jobs| jobs.len()),
            job: job.transpose()?,
            index: field("index").map(index).transpose()?,
            rpc_layer: text("rpc_layer")?,
            session_master: text("session_master")?,
            cluster,
        })
    }

    /// Returns the target of this task's sessions, as `TFConfigClusterResolver.master()` does: empty for a cluster of one,
    /// which needs no server.
    pub fn master(&self) -> Result<String> {
        if let Some(master) = &self.session_master {
            return Ok(master.clone());
        }
        if self.jobs == 0 || (self.jobs == 1 && self.cluster.tasks().count() == 1) {
            return Ok(String::new());
        }
        let task = TaskName::new(self.job.as_deref().unwrap_or_default(), self.index.unwrap_or_default());
        let known = self.index.and_then(|_| self.cluster.address(&task));
        let address = known.ok_or_else(|| {
            status!(InvalidArgument, "{task} is not in the cluster, which has {}", self.cluster)
        })?;
        let scheme = self.rpc_layer.as_ref().map(|layer| format!("{layer}://")).unwrap_or_default();
        Ok(format!("{scheme}{address}"))
    }

    /// Returns the role that this describes.
    pub(super) fn found(&self) -> Result<Found> {
        let mut found = Found { cluster: self.cluster.clone(), ..Found::default() };
        let Some(job) = &self.job else { return Ok(found) };
        let task = TaskName::new(job, self.index.unwrap_or_default());
        if self.cluster.address(&task).is_none() && self.lone.contains(job) {
            let only = TaskName::new(job, 0);
            found.cluster = ClusterSpec::new();
            for (other, address) in self.cluster.tasks() {
                let number = if other == only { task.task } else { other.task };
                found.cluster.add(&other.job, number, address)?;
            }
            found.notes.push(format!(
                "the only address of job {job} is taken to be this task's, which is number {}",
                task.task
            ));
        }
        if self.index.is_none() {
            found.notes.push(format!("the task has no index, so it is {job}:0"));
        }
        found.task = Some(task);
        Ok(found)
    }
}

/// Refuses an unknown key: most likely it is a known one, misspelled.
fn check_keys(prefix: &str, fields: &Map<String, Value>, known: &[&str]) -> Result<()> {
    for key in fields.keys() {
        ensure!(
            known.contains(&key.as_str()),
            InvalidArgument,
            "unknown key '{prefix}{key}', {}",
            suggestion(key, known)
        );
    }
    Ok(())
}

/// Reads the number of a task, which may be text or have a fraction: stock cuts it off.
pub(super) fn index(value: &Value) -> Result<u32> {
    let number = match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Bool(truth) => Some(i64::from(*truth)),
        Value::Number(number) => number.as_i64().or_else(|| number.as_f64().map(|float| float as i64)),
        _ => None,
    };
    number.and_then(|number: i64| u32::try_from(number).ok()).ok_or_else(|| {
        let said = value.as_str().map_or_else(|| value.to_string(), |text| format!("'{text}'"));
        status!(InvalidArgument, "the index of the task is {said}, expected a number from 0 on")
    })
}

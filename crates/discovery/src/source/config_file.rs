//! A JSON file with a task's role: in the form of `TF_CONFIG`, as flags would have it, or the cluster alone.

use super::tf_config::{self, TfConfig};
use super::{Found, Says};
use crate::Environment;
use crate::role::RoleRequest;
use crate::spelling::nearest;
use ferroflow_cluster::spec::{ClusterSpec, TaskName, parse_json};
use ferroflow_core::{Result, Status, ensure, status};
use serde_json::Value;

/// Keys of the form of `TF_CONFIG` by which a file says more than a cluster.
const CONFIG_KEYS: [&str; 3] = ["cluster", "sparseCluster", "task"];

/// Keys that are called like flags, beside lists of hosts.
const FLAG_KEYS: [&str; 7] =
    ["job_name", "task_index", "ps_hosts", "worker_hosts", "chief_hosts", "master_hosts", "evaluator_hosts"];

/// The suffix of keys that list the hosts of a job.
const HOSTS: &str = "_hosts";

pub(super) fn ask(request: &RoleRequest, _: &Environment) -> Result<Says> {
    let Some(path) = &request.config_file else { return Ok(Says::Nothing) };
    let of_file = |error: Status| error.map_message(|message| format!("{}: {message}", path.display()));
    let text = std::fs::read_to_string(path)
        .map_err(|error| of_file(status!(InvalidArgument, "cannot read the file: {error}")))?;
    read(&text).map(Says::Role).map_err(of_file)
}

fn read(text: &str) -> Result<Found> {
    ensure!(!text.trim().is_empty(), InvalidArgument, "the file is empty");
    let json = parse_json(text)?;
    let hosts = json.as_object().into_iter().flatten().filter_map(|(key, value)| {
        let job = key.strip_suffix(HOSTS)?;
        Some((job, value))
    });
    let mut cluster = ClusterSpec::new();
    for (job, value) in hosts {
        match value {
            Value::String(list) => cluster.add_hosts(job, list)?,
            other => {
                let job_alone = ClusterSpec::from_value(&Value::from_iter([(job, other.clone())]))?;
                job_alone.tasks().try_for_each(|(task, address)| cluster.add(job, task.task, address))?;
            }
        }
    }
    let says_more = CONFIG_KEYS.iter().chain(&FLAG_KEYS).any(|key| json.get(key).is_some());
    if cluster.is_empty() && !says_more {
        let cluster = ClusterSpec::from_value(&json).map_err(|error| misspelled(&json).unwrap_or(error))?;
        return Ok(Found { cluster, ..Found::default() });
    }
    // Jobs may have any name, and so may the lists of their hosts.
    let hosts = json.as_object().into_iter().flat_map(|fields| fields.keys().map(String::as_str));
    let hosts = hosts.filter(|key| key.ends_with(HOSTS));
    let more: Vec<&str> = FLAG_KEYS.into_iter().chain(hosts).collect();
    let config = TfConfig::from_value(&json, &more)?;
    let mut found = config.found()?;
    if found.cluster.is_empty() {
        found.cluster = cluster;
    }
    if let Some(job) = json.get("job_name").and_then(Value::as_str) {
        let index = json.get("task_index").map(tf_config::index).transpose()?;
        found.task = Some(TaskName::new(job, index.unwrap_or_default()));
    }
    found.cluster.check()?;
    Ok(found)
}

/// Finds the mistake in a file that is not a cluster: a misspelled key of the other forms.
fn misspelled(json: &Value) -> Option<Status> {
    let known = [&CONFIG_KEYS[..], &FLAG_KEYS].concat();
    json.as_object()?.keys().find_map(|key| {
        let meant = nearest(key, known.iter().copied())?;
        Some(status!(InvalidArgument, "unknown key '{key}', did you mean '{meant}'?"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_file_is_read() {
        let forms = [
            r#"{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "task": {"type": "ps", "index": 0}}"#,
            r#"{"cluster": {"ps": ["a:1"], "worker": ["b:1"]}, "job_name": "ps", "task_index": "0"}"#,
            r#"{"ps_hosts": "a:1", "worker_hosts": ["b:1"], "job_name": "ps", "task_index": 0}"#,
        ];
        for form in forms {
            let found = read(form).unwrap();
            assert_eq!(found.task, Some(TaskName::new("ps", 0)), "{form}");
            assert_eq!(found.cluster.to_json(), r#"{"ps":["a:1"],"worker":["b:1"]}"#, "{form}");
        }
        let bare = read(r#"{"ps": ["a:1"]}"#).unwrap();
        assert!(bare.task.is_none() && bare.cluster.address(&TaskName::new("ps", 0)).is_some());
        let message = |text| read(text).err().unwrap().message().to_owned();
        assert!(message(r#"{"ps_hosts": "a:1", "ps_hosts": "b:1"}"#).contains("'ps_hosts' is named twice"));
        let misspelled = [
            (r#"{"clustre": {"ps": ["a:1"]}}"#, "did you mean 'cluster'?"),
            (r#"{"cluster": {"ps": ["a:1"]}, "job_nmae": "ps"}"#, "did you mean 'job_name'?"),
            (r#"{"ps_hosts": "a:1", "worker_host": "b:1"}"#, "did you mean 'worker_hosts'?"),
        ];
        for (text, expected) in misspelled {
            assert!(message(text).contains(expected), "{}", message(text));
        }
        assert!(read(r#"{"trainer_hosts": "a:1", "job_name": "trainer"}"#).is_ok());
        assert!(message(r#"{"ps_hosts": "a:1,,b:1"}"#).contains("remove the comma"));
        assert!(message(r#"{"ps_hosts": "a:1", "job_name": "ps", "task_index": "x"}"#).contains("'x'"));
    }
}

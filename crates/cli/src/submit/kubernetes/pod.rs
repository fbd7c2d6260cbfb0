//! The pods of a job: one container that knows its number, and by it its role.

use super::{Cluster, Job};
use crate::placeholders;
use crate::python_servers;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// The variable with a task's number, which `TF_CONFIG` and the program's arguments refer to.
const TASK: &str = "FERROFLOW_TASK";

/// The seconds that a task has to drain when it is asked to end.
const GRACE: u32 = 30;

/// Codes of failures that may pass: not all tasks came, or a signal that comes from outside or that TensorFlow dies of when
/// a peer does.
const PASSING: [u8; 9] = [75, 129, 130, 134, 135, 137, 138, 139, 143];

/// The parts of a pod that differ between controllers.
pub(super) struct Shape<'a> {
    /// The path of the downward API at which the controller notes a pod's number.
    pub(super) number: &'a str,
    /// The container's name.
    pub(super) container: &'a str,
    /// The name of its port.
    pub(super) port: &'a str,
    pub(super) restart_policy: Option<&'a str>,
    /// The headless Service, where pods must name it.
    pub(super) subdomain: Option<&'a str>,
    /// The cluster, unless the controller sets `TF_CONFIG`.
    pub(super) addresses: Option<&'a Addresses>,
}

/// The addresses of tasks.
pub(super) struct Addresses {
    /// Lists by job; an evaluator is beside the cluster, not in it.
    jobs: Map<String, Value>,
    /// The address of the pod itself, by job.
    own: BTreeMap<String, String>,
}

/// The template of a job's pods.
pub(super) fn template(cluster: &Cluster<'_>, job: &Job, shape: &Shape<'_>) -> Result<Value, String> {
    let args = cluster.args;
    let mut env = vec![json!({"name": TASK, "valueFrom": {"fieldRef": {"fieldPath": shape.number}}})];
    if let Some(addresses) = shape.addresses {
        env.push(json!({"name": "TF_CONFIG", "value": tf_config(&addresses.jobs, job)}));
    }
    if !job.serves {
        env.push(json!({"name": python_servers::VARIABLE, "value": args.training.python.value()}));
    }
    let mut container = json!({
        "name": shape.container,
        "image": args.image,
        "command": command(cluster, job, shape.addresses)?,
        "env": env,
        "ports": [{"name": shape.port, "containerPort": args.port}],
    });
    if job.serves {
        // A pod is ready when it listens, and is started again when it no longer answers.
        container["readinessProbe"] = json!({"tcpSocket": {"port": args.port}, "periodSeconds": 5});
        container["livenessProbe"] = json!({
            "exec": {"command": ["ferroflow", "ping", format!("127.0.0.1:{}", args.port)]},
            "initialDelaySeconds": 10,
            "periodSeconds": 20,
            "timeoutSeconds": 10,
            "failureThreshold": 3,
        });
    }
    let given = [("cpu", &args.cpus_per_task), ("memory", &args.mem)];
    let amounts: Map<String, Value> = given
        .into_iter()
        .filter_map(|(kind, amount)| Some((kind.to_owned(), amount.as_deref()?.into())))
        .collect();
    if !amounts.is_empty() {
        container["resources"] = json!({"requests": amounts, "limits": amounts});
    }
    let mut spec = json!({"containers": [container], "terminationGracePeriodSeconds": GRACE});
    if let Some(policy) = shape.restart_policy {
        spec["restartPolicy"] = policy.into();
    }
    if let Some(subdomain) = shape.subdomain {
        spec["subdomain"] = subdomain.into();
    }
    let mut labels = cluster.labels();
    labels["app.kubernetes.io/component"] = job.label.as_str().into();
    Ok(json!({"metadata": {"labels": labels}, "spec": spec}))
}

/// Rules by which a Job tells failures apart: a pod that the cluster disrupted has not failed.
pub(super) fn failure_policy() -> Value {
    json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": PASSING}},
    ]})
}

fn command(cluster: &Cluster<'_>, job: &Job, addresses: Option<&Addresses>) -> Result<Vec<String>, String> {
    if job.serves {
        // The pod's own name may not be known to DNS yet.
        let port = cluster.args.port.to_string();
        return Ok(["ferroflow", "serve", "--bind", "0.0.0.0", "--port", &port].map(str::to_owned).into());
    }
    let value = |placeholder: &str| match (placeholder, addresses) {
        ("job", _) => Ok(job.name.clone()),
        ("task", _) => Ok(format!("$({TASK})")),
        (other, None) => Err(format!(
            "the placeholder {{{other}}} is not known here: the operator chooses addresses, and the program finds them in \
             TF_CONFIG"
        )),
        ("address", Some(known)) => Ok(known.own.get(&job.name).cloned().unwrap_or_default()),
        ("cluster", Some(known)) => Ok(Value::Object(known.jobs.clone()).to_string()),
        (lists, Some(known)) => {
            let list = known.jobs.get(lists.trim_end_matches("_hosts")).and_then(Value::as_array);
            let list = list.into_iter().flatten().filter_map(Value::as_str);
            Ok(list.collect::<Vec<_>>().join(","))
        }
    };
    // Kubernetes itself fills in $(NAME).
    let word = |word: &String| placeholders::fill(&word.replace("$(", "$$("), value);
    cluster.args.training.program.iter().map(word).collect()
}

fn tf_config(addresses: &Map<String, Value>, job: &Job) -> String {
    let cluster = Value::Object(addresses.clone());
    format!(
        r#"{{"cluster":{cluster},"task":{{"type":"{}","index":$({TASK})}},"environment":"cloud"}}"#,
        job.name
    )
}

/// The addresses of every job's tasks, given the host of each by its number.
pub(super) fn addresses(cluster: &Cluster<'_>, host: impl Fn(&Job, &str) -> String) -> Addresses {
    let inside = || cluster.jobs.iter().filter(|job| job.name != "evaluator");
    let address = |job: &Job, task: &str| format!("{}:{}", host(job, task), cluster.args.port);
    let list = |job: &Job| (0..job.count).map(|task| address(job, &task.to_string())).collect();
    Addresses {
        jobs: inside().map(|job| (job.name.clone(), list(job))).collect(),
        own: inside().map(|job| (job.name.clone(), address(job, &format!("$({TASK})")))).collect(),
    }
}

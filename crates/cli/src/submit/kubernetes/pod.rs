//! The pods of a job: one container that knows its number, and by it its role.

use super::{Cluster, Job};
use serde_json::{Map, Value, json};

/// The variable with a task's number, which `TF_CONFIG` and the program's arguments refer to.
const TASK: &str = "FERROFLOW_TASK";

/// How long a task has to drain when it is asked to end, in seconds.
const GRACE: u32 = 30;

/// Codes of failures that may pass: not all tasks came, or a signal that comes from outside or that TensorFlow dies of when
/// a peer does.
const PASSING: [u8; 9] = [75, 129, 130, 134, 135, 137, 138, 139, 143];

/// What differs between controllers.
pub(super) struct Shape<'a> {
    /// Where the controller notes a pod's number: a path of the downward API.
    pub(super) number: &'a str,
    /// The container's name.
    pub(super) container: &'a str,
    /// The name of its port.
    pub(super) port: &'a str,
    pub(super) restart_policy: Option<&'a str>,
    /// The headless Service, where pods must name it.
    pub(super) subdomain: Option<&'a str>,
    /// The cluster, unless the controller sets `TF_CONFIG`.
    pub(super) addresses: Option<&'a Map<String, Value>>,
}

/// The template of a job's pods.
pub(super) fn template(cluster: &Cluster<'_>, job: &Job, shape: &Shape<'_>) -> Value {
    let args = cluster.args;
    let mut env = vec![json!({"name": TASK, "valueFrom": {"fieldRef": {"fieldPath": shape.number}}})];
    if let Some(addresses) = shape.addresses {
        env.push(json!({"name": "TF_CONFIG", "value": tf_config(addresses, job)}));
    }
    let mut container = json!({
        "name": shape.container,
        "image": args.image,
        "command": command(cluster, job),
        "env": env,
        "ports": [{"name": shape.port, "containerPort": args.port}],
    });
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
    json!({"metadata": {"labels": labels}, "spec": spec})
}

/// Rules by which a Job tells failures apart: what the cluster did to a pod is not its fault.
pub(super) fn failure_policy() -> Value {
    json!({"rules": [
        {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]},
        {"action": "FailJob", "onExitCodes": {"operator": "NotIn", "values": PASSING}},
    ]})
}

fn command(cluster: &Cluster<'_>, job: &Job) -> Vec<String> {
    if job.serves {
        // The pod's own name may not be known to DNS yet.
        let port = cluster.args.port.to_string();
        return ["ferroflow", "serve", "--bind", "0.0.0.0", "--port", &port].map(str::to_owned).into();
    }
    let word = |word: &String| {
        // Kubernetes itself fills in $(NAME).
        let word = word.replace("$(", "$$(");
        word.replace("{job}", &job.name).replace("{task}", &format!("$({TASK})"))
    };
    cluster.args.training.program.iter().map(word).collect()
}

fn tf_config(addresses: &Map<String, Value>, job: &Job) -> String {
    let cluster = Value::Object(addresses.clone());
    format!(
        r#"{{"cluster":{cluster},"task":{{"type":"{}","index":$({TASK})}},"environment":"cloud"}}"#,
        job.name
    )
}

/// The addresses of every job's tasks; an evaluator is beside the cluster, not in it.
pub(super) fn addresses(cluster: &Cluster<'_>, host: impl Fn(&Job, u32) -> String) -> Map<String, Value> {
    let inside = cluster.jobs.iter().filter(|job| job.name != "evaluator");
    inside
        .map(|job| {
            let address = |task| format!("{}:{}", host(job, task), cluster.args.port);
            (job.name.clone(), (0..job.count).map(address).collect())
        })
        .collect()
}

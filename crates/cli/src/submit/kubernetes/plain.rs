//! Objects that every Kubernetes has: a headless Service for names, a StatefulSet for servers, an indexed Job for each
//! program.

use super::pod::{self, Shape};
use super::{Cluster, Job};
use crate::submit::names::{LONGEST_LABEL, check_room};
use serde_json::{Value, json};

/// The suffix in a label of a StatefulSet's pods: its name and a hash of eleven characters.
const REVISION: &str = "-0123456789";

pub(super) fn manifests(cluster: &Cluster<'_>) -> Result<Vec<Value>, String> {
    for job in &cluster.jobs {
        let name = object(cluster, job);
        let last = if job.stays() { REVISION.to_owned() } else { format!("-{}", job.count - 1) };
        check_room(&cluster.name, &format!("{name}{last}"), LONGEST_LABEL)?;
    }
    let domain = match &cluster.args.namespace {
        Some(namespace) => format!("{}.{namespace}.svc", cluster.name),
        None => cluster.name.clone(),
    };
    let addresses =
        pod::addresses(cluster, |job, task: &str| format!("{}-{task}.{domain}", object(cluster, job)));
    let mut manifests = vec![service(cluster)];
    for job in &cluster.jobs {
        let number = if job.stays() {
            "metadata.labels['apps.kubernetes.io/pod-index']"
        } else {
            "metadata.annotations['batch.kubernetes.io/job-completion-index']"
        };
        let shape = Shape {
            number,
            container: "ferroflow",
            port: "grpc",
            restart_policy: (!job.stays()).then_some("Never"),
            subdomain: (!job.stays()).then_some(cluster.name.as_str()),
            addresses: Some(&addresses),
        };
        let template = pod::template(cluster, job, &shape)?;
        manifests.push(if job.stays() {
            stateful_set(cluster, job, template)
        } else {
            indexed_job(cluster, job, template)
        });
    }
    Ok(manifests)
}

fn object(cluster: &Cluster<'_>, job: &Job) -> String {
    format!("{}-{}", cluster.name, job.label)
}

fn service(cluster: &Cluster<'_>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": cluster.metadata(&cluster.name),
        "spec": {
            "clusterIP": "None",
            // Tasks look for each other before they are ready, and are not ready before they have found each other.
            "publishNotReadyAddresses": true,
            "selector": cluster.labels(),
            "ports": [{"name": "grpc", "port": cluster.args.port}],
        },
    })
}

fn stateful_set(cluster: &Cluster<'_>, job: &Job, template: Value) -> Value {
    json!({
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": cluster.metadata(&object(cluster, job)),
        "spec": {
            "serviceName": cluster.name,
            "replicas": job.count,
            // One after the other, each would wait for those after it.
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": template["metadata"]["labels"]},
            "template": template,
        },
    })
}

fn indexed_job(cluster: &Cluster<'_>, job: &Job, template: Value) -> Value {
    json!({
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": cluster.metadata(&object(cluster, job)),
        "spec": {
            "completionMode": "Indexed",
            "completions": job.count,
            "parallelism": job.count,
            "backoffLimit": cluster.args.training.restarts,
            "podFailurePolicy": pod::failure_policy(),
            "template": template,
        },
    })
}

//! A JobSet: an indexed Job per job of the cluster, which end and start again together.

use super::Cluster;
use super::pod::{self, Shape};
use crate::submit::names::{LONGEST_LABEL, check_room};
use serde_json::{Value, json};

/// The suffix that a Job adds to the names of its pods.
const RANDOM: &str = "-abcde";

pub(super) fn manifest(cluster: &Cluster<'_>) -> Result<Value, String> {
    let name = &cluster.name;
    for job in &cluster.jobs {
        check_room(name, &format!("{name}-{}-0-{}{RANDOM}", job.label, job.count - 1), LONGEST_LABEL)?;
    }
    let domain = match &cluster.args.namespace {
        Some(namespace) => format!("{name}.{namespace}.svc"),
        None => name.clone(),
    };
    // Each job is replicated once: the first number is the Job's, the second the pod's.
    let addresses =
        pod::addresses(cluster, |job, task: &str| format!("{name}-{}-0-{task}.{domain}", job.label));
    let jobs: Vec<Value> = cluster
        .jobs
        .iter()
        .map(|job| {
            let shape = Shape {
                number: "metadata.annotations['batch.kubernetes.io/job-completion-index']",
                container: "ferroflow",
                port: "grpc",
                restart_policy: Some("Never"),
                subdomain: None,
                addresses: Some(&addresses),
            };
            Ok(json!({
                "name": job.label,
                "replicas": 1,
                "template": {"spec": {
                    "completionMode": "Indexed",
                    "completions": job.count,
                    "parallelism": job.count,
                    // A task that fails starts all of them again, which the set counts.
                    "backoffLimit": 0,
                    "template": pod::template(cluster, job, &shape)?,
                }},
            }))
        })
        .collect::<Result<_, String>>()?;
    let leader = cluster.leader().ok_or("no job runs the program: name a chief or workers in --jobs")?;
    Ok(json!({
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": cluster.metadata(name),
        "spec": {
            "network": {"enableDNSHostnames": true, "subdomain": name, "publishNotReadyAddresses": true},
            "successPolicy": {"operator": "All", "targetReplicatedJobs": [leader.label]},
            "failurePolicy": {"maxRestarts": cluster.args.training.restarts},
            "replicatedJobs": jobs,
        },
    }))
}

//! A TFJob, whose operator makes pods and Services and sets `TF_CONFIG`.

use super::pod::{self, Shape};
use super::{Cluster, Job};
use crate::submit::names::{LONGEST_LABEL, check_room};
use serde_json::{Map, Value, json};

pub(super) fn manifest(cluster: &Cluster<'_>) -> Result<Value, String> {
    let mut replicas = Map::new();
    for job in &cluster.jobs {
        let last = format!("{}-{}-{}", cluster.name, job.label, job.count - 1);
        check_room(&cluster.name, &last, LONGEST_LABEL)?;
        // The operator insists on the names of the container and its port.
        let shape = Shape {
            number: "metadata.labels['training.kubeflow.org/replica-index']",
            container: "tensorflow",
            port: "tfjob-port",
            restart_policy: None,
            subdomain: None,
            addresses: None,
        };
        let replica = json!({
            "replicas": job.count,
            // Codes from 128 are tried again, others are for good.
            "restartPolicy": "ExitCode",
            "template": pod::template(cluster, job, &shape)?,
        });
        replicas.insert(kind(job)?.to_owned(), replica);
    }
    Ok(json!({
        "apiVersion": "kubeflow.org/v1",
        "kind": "TFJob",
        "metadata": cluster.metadata(&cluster.name),
        "spec": {
            "runPolicy": {
                // Parameter servers end with the training.
                "cleanPodPolicy": "Running",
                "backoffLimit": cluster.args.training.restarts,
            },
            "tfReplicaSpecs": replicas,
        },
    }))
}

fn kind(job: &Job) -> Result<&'static str, String> {
    match job.name.as_str() {
        "chief" => Ok("Chief"),
        "master" => Ok("Master"),
        "ps" => Ok("PS"),
        "worker" => Ok("Worker"),
        "evaluator" => Ok("Evaluator"),
        other => Err(format!(
            "--flavor tfjob: job {other} is not a replica type of a TFJob, which has chief, master, ps, worker and evaluator"
        )),
    }
}

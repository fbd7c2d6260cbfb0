//! Flags that tell every command about one task which task that is, and the environment that may tell it instead.

use crate::flag_value;
use ferroflow::ClusterSpec;
use ferroflow::discovery::{Environment, Role, RoleRequest, Topology};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The role of this task. Without any of these, the environment tells it: `TF_CONFIG`, a launcher or scheduler, the name
/// of a pod.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Role of this task (by default from TF_CONFIG or the launcher)")]
pub(crate) struct RoleArgs {
    /// Be a task of this job
    #[arg(long = "job_name", visible_aliases = ["job-name", "job"], value_name = "JOB")]
    pub(crate) job_name: Option<String>,

    /// Be the task with this number in the job [default: 0, or the next free one at a rendezvous]
    #[arg(long = "task_index", visible_aliases = ["task-index", "task"], value_name = "N")]
    pub(crate) task_index: Option<u32>,

    /// List the tasks of job `ps`: host:port, separated by commas
    #[arg(long = "ps_hosts", visible_alias = "ps-hosts", value_name = "HOSTS")]
    ps_hosts: Option<String>,

    /// List the tasks of job `worker`
    #[arg(long = "worker_hosts", visible_alias = "worker-hosts", value_name = "HOSTS")]
    worker_hosts: Option<String>,

    /// Name the task of job `chief`
    #[arg(long = "chief_hosts", visible_alias = "chief-hosts", value_name = "HOSTS")]
    chief_hosts: Option<String>,

    /// Name the task of job `master`, the older name of the chief
    #[arg(long = "master_hosts", alias = "master-hosts", value_name = "HOSTS")]
    master_hosts: Option<String>,

    /// Name the task of job `evaluator`
    #[arg(long = "evaluator_hosts", visible_alias = "evaluator-hosts", value_name = "HOSTS")]
    evaluator_hosts: Option<String>,

    /// Describe the cluster as JSON, or name a file that holds it: {"ps": ["a:2222"], "worker": {"1": "c:2222"}}
    #[arg(long, value_name = "JSON|FILE")]
    cluster: Option<String>,

    /// Read the role of this task from a JSON file, in the form of TF_CONFIG
    #[arg(long, visible_aliases = ["cluster_config", "cluster-config"], value_name = "FILE")]
    config: Option<PathBuf>,

    /// Name the jobs of the cluster with their sizes, where tasks meet or a launcher gives only ranks:
    /// chief:1,ps:2,worker:*
    #[arg(long, env = "FERROFLOW_JOBS", value_name = "JOBS", value_parser = flag_value::parse::<Topology>)]
    pub(crate) jobs: Option<Topology>,
}

/// The role of this task, for commands that compute addresses from host names.
#[derive(clap::Args)]
pub(crate) struct LocatedRoleArgs {
    #[command(flatten)]
    role: RoleArgs,

    /// Compute addresses from host names with ports from this one on
    #[arg(long)]
    port: Option<u16>,
}

impl LocatedRoleArgs {
    /// Returns the role of this process.
    pub(crate) fn role(&self) -> Result<Role, String> {
        self.role.role(self.port)
    }
}

impl RoleArgs {
    /// Returns the role of this process. `port` is the first one of addresses that are computed.
    pub(crate) fn role(&self, port: Option<u16>) -> Result<Role, String> {
        let request = RoleRequest {
            job: self.job_name.clone(),
            task: self.task_index,
            cluster: self.flagged_cluster()?,
            config_file: self.config.clone(),
            jobs: self.jobs.clone(),
            port,
        };
        Role::resolve(&request, &Environment::of_process()).map_err(|error| error.message().to_owned())
    }

    /// Returns the cluster that the flags describe; empty if none does.
    fn flagged_cluster(&self) -> Result<ClusterSpec, String> {
        let mut spec = match &self.cluster {
            None => ClusterSpec::new(),
            Some(json) if json.trim_start().starts_with(['{', '[', '"']) => {
                cluster_of_json(json).map_err(|error| format!("--cluster: {error}"))?
            }
            Some(path) => {
                let text = std::fs::read_to_string(Path::new(path)).map_err(|error| {
                    let hint = if path.contains(':') {
                        "; a cluster is written as JSON, e.g. {\"ps\": [\"a:2222\"], \"worker\": [\"b:2222\"]}"
                    } else {
                        ""
                    };
                    format!("--cluster: cannot read the file '{path}': {error}{hint}")
                })?;
                cluster_of_json(&text).map_err(|error| format!("--cluster: {path}: {error}"))?
            }
        };
        let hosts = [
            ("ps", "--ps_hosts", &self.ps_hosts),
            ("worker", "--worker_hosts", &self.worker_hosts),
            ("chief", "--chief_hosts", &self.chief_hosts),
            ("master", "--master_hosts", &self.master_hosts),
            ("evaluator", "--evaluator_hosts", &self.evaluator_hosts),
        ];
        for (job, flag, list) in hosts {
            if let Some(list) = list {
                spec.add_hosts(job, list).map_err(|error| format!("{flag}: {}", error.message()))?;
            }
        }
        let given = hosts.iter().find(|(.., list)| list.is_some()).map(|(_, flag, _)| *flag);
        match given.or(self.cluster.as_ref().map(|_| "--cluster")) {
            // A variable of a script that is not set must not make this a cluster of its own.
            Some(flag) if spec.is_empty() => {
                Err(format!("{flag}: it names no task; write addresses, or leave the flag out"))
            }
            _ => Ok(spec),
        }
    }
}

fn cluster_of_json(text: &str) -> Result<ClusterSpec, String> {
    ClusterSpec::from_json(text).map_err(|error| {
        let value = serde_json::from_str::<Value>(text).unwrap_or_default();
        if value.get("cluster").is_some_and(Value::is_object) {
            "this has the form of TF_CONFIG; write only what is in its \"cluster\", or name a file that holds all of it \
             with --config"
                .to_owned()
        } else {
            error.message().to_owned()
        }
    })
}

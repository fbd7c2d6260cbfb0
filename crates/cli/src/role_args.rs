//! Flags by which every command that is about one task learns which, and the environment that may say it instead.

use crate::flag_value;
use ferroflow::ClusterSpec;
use ferroflow::discovery::{Environment, Role, RoleRequest, Topology};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Who this task is. Without any of these, the environment tells: `TF_CONFIG`, a launcher or scheduler, a pod's name.
#[derive(clap::Args, Clone, Debug, Default)]
#[command(next_help_heading = "Role of this task (by default from TF_CONFIG or the launcher)")]
pub(crate) struct RoleArgs {
    /// Job of this task
    #[arg(long = "job_name", visible_aliases = ["job-name", "job"], value_name = "JOB")]
    pub(crate) job_name: Option<String>,

    /// Number of this task within its job [default: 0]
    #[arg(long = "task_index", visible_aliases = ["task-index", "task"], value_name = "N")]
    pub(crate) task_index: Option<u32>,

    /// Tasks of job `ps`: host:port, separated by commas
    #[arg(long = "ps_hosts", visible_alias = "ps-hosts", value_name = "HOSTS")]
    ps_hosts: Option<String>,

    /// Tasks of job `worker`
    #[arg(long = "worker_hosts", visible_alias = "worker-hosts", value_name = "HOSTS")]
    worker_hosts: Option<String>,

    /// Task of job `chief`
    #[arg(long = "chief_hosts", visible_alias = "chief-hosts", value_name = "HOSTS")]
    chief_hosts: Option<String>,

    /// Task of job `master`, the older name of the chief
    #[arg(long = "master_hosts", alias = "master-hosts", value_name = "HOSTS")]
    master_hosts: Option<String>,

    /// Task of job `evaluator`
    #[arg(long = "evaluator_hosts", visible_alias = "evaluator-hosts", value_name = "HOSTS")]
    evaluator_hosts: Option<String>,

    /// Cluster as JSON, or a file that holds it: {"ps": ["a:2222"], "worker": {"1": "c:2222"}}
    #[arg(long, value_name = "JSON|FILE")]
    cluster: Option<String>,

    /// JSON file with the role of this task, in the form of TF_CONFIG
    #[arg(long, visible_aliases = ["cluster_config", "cluster-config"], value_name = "FILE")]
    config: Option<PathBuf>,

    /// Jobs of the cluster with their sizes, where a launcher gives only ranks: chief:1,ps:2,worker:*
    #[arg(long, env = "FERROFLOW_JOBS", value_name = "JOBS", value_parser = flag_value::parse::<Topology>)]
    pub(crate) jobs: Option<Topology>,
}

/// The same for commands that compute addresses from the names of hosts.
#[derive(clap::Args)]
pub(crate) struct LocatedRoleArgs {
    #[command(flatten)]
    role: RoleArgs,

    /// First port of addresses that are computed from host names
    #[arg(long)]
    port: Option<u16>,
}

impl LocatedRoleArgs {
    /// The role of this process.
    pub(crate) fn role(&self) -> Result<Role, String> {
        self.role.role(self.port)
    }
}

impl RoleArgs {
    /// The role of this process. `port` is the first one of addresses that are computed.
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

    /// The cluster that the flags describe; empty if none does.
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
        match value.get("cluster").is_some_and(Value::is_object) {
            true => "this has the form of TF_CONFIG; write only what is in its \"cluster\", or name a file that holds all \
                     of it with --config"
                .to_owned(),
            false => error.message().to_owned(),
        }
    })
}

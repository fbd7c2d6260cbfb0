//! Tasks of clusters on this machine: their names, the commands that serve them, and their lists of hosts.

use crate::own_command::own_command;
use ferroflow::{ClusterSpec, TaskName};
use std::process::Command;

/// The seconds that a served task has to finish its steps once the programs are done.
const DRAIN_SECONDS: &str = "2";

/// The number of tasks of each job.
#[derive(clap::Args)]
pub(crate) struct Jobs {
    /// Start this many parameter servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=256))]
    ps: u32,

    /// Start this many workers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(0..=256))]
    workers: u32,

    /// Add a chief beside the workers
    #[arg(long)]
    chief: bool,

    /// Add an evaluator
    #[arg(long)]
    evaluator: bool,
}

impl Jobs {
    /// Adds a chief unless there is one.
    pub(crate) fn with_chief(&self) -> Jobs {
        Jobs { chief: true, ..*self }
    }

    /// Returns every task.
    pub(crate) fn tasks(&self) -> impl Iterator<Item = TaskName> {
        let jobs = [
            ("ps", self.ps),
            ("chief", u32::from(self.chief)),
            ("worker", self.workers),
            ("evaluator", u32::from(self.evaluator)),
        ];
        jobs.into_iter().flat_map(|(job, count)| (0..count).map(move |task| TaskName::new(job, task)))
    }
}

/// Makes the command of a task that this binary serves on a socket that it is handed.
pub(crate) fn serve_command(name: &TaskName, cluster: &ClusterSpec, log: &str) -> Result<Command, String> {
    let mut command = own_command()?;
    command.args(["serve", "--inherit", "--job_name", &name.job, "--task_index", &name.task.to_string()]);
    command.args(["--cluster", &cluster.to_json(), "--drain", DRAIN_SECONDS, "--log", log]);
    // The flags say which task it is.
    command.env_remove("TF_CONFIG");
    Ok(command)
}

/// Returns the addresses of a job, as classic programs take them in their flags.
pub(crate) fn hosts(job: &str, cluster: &ClusterSpec) -> String {
    let addresses = cluster.tasks().filter(|(task, _)| task.job == job).map(|(_, address)| address);
    addresses.collect::<Vec<_>>().join(",")
}

//! Sources of a task's role. Each is one file; [`SOURCES`] has them in the order of precedence.

mod condor;
mod config_file;
mod flags;
mod hydra;
mod kubernetes;
mod open_mpi;
mod slurm;
mod tf_config;

pub use tf_config::TfConfig;

use crate::role::{Rank, RoleRequest, short};
use crate::{Environment, Topology};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, Status, status};
use std::fmt;

/// A source of a task's role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Flags that name the cluster.
    Flags,
    /// A file that was named on the command line.
    ConfigFile,
    /// The environment variable `TF_CONFIG`.
    TfConfig,
    /// `mpirun` of Open MPI.
    OpenMpi,
    /// `mpiexec` of MPICH and Intel MPI.
    Hydra,
    /// `srun`.
    Slurm,
    /// HTCondor's parallel universe.
    Condor,
    /// The name of a pod.
    Kubernetes,
    /// No source: the task is alone.
    Local,
}

/// The answer of a source.
pub(crate) enum Says {
    Nothing,
    /// A process among others, whose jobs are not known.
    Rank(Rank),
    Role(Found),
}

/// A role as one source has it.
#[derive(Default)]
pub(crate) struct Found {
    pub(crate) task: Option<TaskName>,
    pub(crate) cluster: ClusterSpec,
    pub(crate) topology: Option<Topology>,
    pub(crate) rank: Option<Rank>,
    /// The reason why addresses that could be known are not.
    pub(crate) unlocated: Option<Status>,
    pub(crate) run_id: Option<String>,
    pub(crate) notes: Vec<String>,
}

type Ask = fn(&RoleRequest, &Environment) -> Result<Says>;

/// The order of precedence. Open MPI and Hydra come before Slurm because within an allocation their processes see the
/// variables of the daemon that Slurm started, which is another one.
const SOURCES: [(Source, Ask); 8] = [
    (Source::Flags, flags::ask),
    (Source::ConfigFile, config_file::ask),
    (Source::TfConfig, tf_config::ask),
    (Source::OpenMpi, open_mpi::ask),
    (Source::Hydra, hydra::ask),
    (Source::Slurm, slurm::ask),
    (Source::Condor, condor::ask),
    (Source::Kubernetes, kubernetes::ask),
];

impl Source {
    /// Asks every source, in the order of precedence.
    pub(crate) fn ask_all(
        request: &RoleRequest,
        environment: &Environment,
    ) -> impl Iterator<Item = (Source, Result<Says>)> {
        SOURCES.into_iter().map(|(source, ask)| (source, ask(request, environment)))
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Source::Flags => "flags",
            Source::ConfigFile => "--config",
            Source::TfConfig => "TF_CONFIG",
            Source::OpenMpi => "Open MPI",
            Source::Hydra => "Hydra",
            Source::Slurm => "Slurm",
            Source::Condor => "HTCondor",
            Source::Kubernetes => "Kubernetes",
            Source::Local => "no source",
        })
    }
}

impl Says {
    /// Describes the answer in a few words.
    pub(crate) fn summary(&self) -> String {
        match self {
            Says::Nothing => "nothing".to_owned(),
            Says::Rank(Rank { rank, size }) => format!("process {rank} of {size}"),
            Says::Role(found) => {
                let task = found.task.as_ref().map_or_else(|| "no task".to_owned(), short);
                let size = found.cluster.tasks().count();
                match (&found.topology, size) {
                    (_, 1..) => format!("{task} in a cluster of {size}"),
                    (Some(topology), 0) => format!("{task} in a cluster of {topology}"),
                    (None, 0) => task,
                }
            }
        }
    }
}

/// Returns the role of a rank, for launchers that know only ranks; jobs make tasks of them.
fn by_rank(request: &RoleRequest, rank: Rank, run_id: Option<String>) -> Result<Says> {
    let Some(jobs) = &request.jobs else { return Ok(Says::Rank(rank)) };
    let topology = jobs.of_size(rank.size)?;
    let task = topology.task_of_rank(rank.rank).ok_or_else(|| {
        status!(InvalidArgument, "rank {} is beyond the {} processes that were started", rank.rank, rank.size)
    })?;
    let topology = Some(topology);
    Ok(Says::Role(Found { task: Some(task), topology, rank: Some(rank), run_id, ..Found::default() }))
}

/// Reads the rank from two variables; `None` unless both are set.
fn rank_of(environment: &Environment, rank: &str, size: &str) -> Result<Option<Rank>> {
    let (Some(rank), Some(size)) = (environment.number(rank)?, environment.number(size)?) else {
        return Ok(None);
    };
    Ok(Some(Rank { rank, size }))
}

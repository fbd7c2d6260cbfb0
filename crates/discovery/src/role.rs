//! The role of this task: the first source that names one decides; the others are reported, never mixed in.

use crate::source::{Found, Says, Source};
use crate::spelling::nearest;
use crate::{Environment, Topology};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, Status, status};
use serde_json::{Value, json};
use std::path::PathBuf;

/// The role that the user asks for on the command line.
#[derive(Clone, Debug, Default)]
pub struct RoleRequest {
    /// The job of this task.
    pub job: Option<String>,
    /// Its number within the job.
    pub task: Option<u32>,
    /// The cluster, if flags describe one.
    pub cluster: ClusterSpec,
    /// A file with the role of this task.
    pub config_file: Option<PathBuf>,
    /// The jobs of the cluster, which turn ranks and names of pods into tasks.
    pub jobs: Option<Topology>,
    /// The first port of addresses that are computed from host names.
    pub port: Option<u16>,
}

/// The place of a process among those that were started together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// From 0 on.
    pub rank: u32,
    /// The number of processes.
    pub size: u32,
}

/// A source that named a role and was overridden.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overridden {
    /// The source.
    pub source: Source,
    /// The role that it named.
    pub said: String,
}

/// The role of a task.
///
/// ```
/// use ferroflow_discovery::{RoleRequest, Environment, Role, Source};
///
/// let text = r#"{"cluster": {"ps": ["a:2222"], "worker": ["b:2222"]}, "task": {"type": "worker", "index": 0}}"#;
/// let environment: Environment = [("TF_CONFIG", text)].into_iter().collect();
/// let role = Role::resolve(&RoleRequest::default(), &environment)?;
/// assert_eq!((role.source, role.task.job.as_str(), role.task.task), (Source::TfConfig, "worker", 0));
/// # Ok::<(), ferroflow_core::Status>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Role {
    /// The source that decided.
    pub source: Source,
    /// This task.
    pub task: TaskName,
    /// The cluster as far as it is known; empty for a task that is alone, or whose peers have yet to be found.
    pub cluster: ClusterSpec,
    /// The jobs of the cluster, where addresses are not known.
    pub topology: Option<Topology>,
    /// The place among the processes that a launcher started together.
    pub rank: Option<Rank>,
    /// The reason why the addresses of a cluster of several tasks are not known.
    pub unlocated: Option<Status>,
    /// A name that this launch has and no other: a restart of the whole has another one.
    pub run_id: Option<String>,
    /// Remarks for the user about how the role was found.
    pub notes: Vec<String>,
    /// Sources that also spoke, in the order of precedence.
    pub overridden: Vec<Overridden>,
}

impl Role {
    /// Asks every source in the order of precedence. A mistake in the one that decides is an error.
    pub fn resolve(request: &RoleRequest, environment: &Environment) -> Result<Role> {
        let mut role: Option<Role> = None;
        let mut notes = Vec::new();
        let mut overridden = Vec::new();
        for (source, heard) in Source::ask_all(request, environment) {
            match (&role, heard) {
                (_, Ok(Says::Nothing)) => {}
                (Some(_), Ok(says)) => overridden.push(Overridden { source, said: says.summary() }),
                (Some(_), Err(error)) => {
                    let said = format!("nothing usable: {}", error.message());
                    overridden.push(Overridden { source, said });
                }
                (None, Err(error)) => return Err(of_source(&source, &error)),
                (None, Ok(Says::Rank(Rank { size: 0 | 1, .. }))) => {
                    let note = format!(
                        "{source} started this process alone; --jobs would make it a task of a cluster"
                    );
                    notes.push(note);
                }
                (None, Ok(Says::Rank(Rank { rank, size }))) => {
                    return Err(status!(
                        InvalidArgument,
                        "{source} started {size} processes, of which this is number {rank}, but their jobs are not known: \
                         add e.g. --jobs ps:1,worker:*"
                    ));
                }
                (None, Ok(Says::Role(found))) => role = Some(found.into_role(source, request)?),
            }
        }
        let mut role = role.unwrap_or_else(|| Role::alone(request));
        role.notes.splice(0..0, notes);
        role.overridden = overridden;
        Ok(role)
    }

    fn alone(request: &RoleRequest) -> Role {
        let job = request.job.as_deref().unwrap_or("localhost");
        let unchosen = request.jobs.as_ref().filter(|_| request.job.is_none()).map(|jobs| {
            format!("no launcher says which task of {jobs} this is; add --job_name, or start it with srun or mpiexec")
        });
        Role {
            source: if request.job.is_some() { Source::Flags } else { Source::Local },
            task: TaskName::new(job, request.task.unwrap_or_default()),
            cluster: ClusterSpec::new(),
            topology: request.jobs.clone(),
            rank: None,
            unlocated: None,
            run_id: None,
            notes: unchosen.into_iter().collect(),
            overridden: Vec::new(),
        }
    }

    /// Refuses a role whose peers have yet to be found.
    pub fn located(&self) -> Result<()> {
        match &self.unlocated {
            Some(why) => Err(of_source(&self.source, why)),
            None => Ok(()),
        }
    }

    /// Returns whether this task initializes the model and writes checkpoints: the chief, or the first worker without one.
    pub fn is_chief(&self) -> bool {
        is_chief(&self.task, &self.cluster)
    }

    /// Returns the address of this task, if it is in the cluster. Evaluators need not be.
    pub fn address(&self) -> Option<&str> {
        self.cluster.address(&self.task)
    }

    /// Returns the role as the value of `TF_CONFIG`, which stock's programs read.
    pub fn tf_config(&self) -> Value {
        tf_config(&self.task, &self.cluster)
    }
}

/// Returns the value of `TF_CONFIG` for a task.
pub fn tf_config(task: &TaskName, cluster: &ClusterSpec) -> Value {
    json!({ "cluster": cluster.to_value(), "task": { "type": task.job, "index": task.task } })
}

/// Returns whether a task initializes the model and writes checkpoints: the chief, or the first worker without one.
pub fn is_chief(task: &TaskName, cluster: &ClusterSpec) -> bool {
    let has_chief = cluster.tasks().any(|(task, _)| task.job == "chief" || task.job == "master");
    match task.job.as_str() {
        "chief" | "master" => true,
        "worker" => !has_chief && task.task == 0,
        _ => false,
    }
}

fn of_source(source: &Source, error: &Status) -> Status {
    error.clone().map_message(|message| format!("{source}: {message}"))
}

impl Found {
    /// Makes the role, after flags that name only the task have chosen it in the cluster that was found.
    fn into_role(self, source: Source, request: &RoleRequest) -> Result<Role> {
        let Found { task, cluster, topology, rank, mut unlocated, run_id, mut notes } = self;
        let mut chosen = task;
        if source != Source::Flags && (request.job.is_some() || request.task.is_some()) {
            let job = request.job.clone().or_else(|| chosen.as_ref().map(|task| task.job.clone()));
            let job = job.unwrap_or_else(|| "worker".to_owned());
            let task = TaskName::new(&job, request.task.unwrap_or_default());
            if let Some(given) = chosen.as_ref().filter(|given| **given != task) {
                let note = format!("the flags choose {}, {source} says {}", short(&task), short(given));
                notes.push(note);
            }
            chosen = Some(task);
        }
        let task = chosen.ok_or_else(|| {
            let has = listed(&cluster);
            status!(
                InvalidArgument,
                "{source}: the cluster does not say which task this is; choose --job_name and --task_index among {has}"
            )
        })?;
        in_cluster(&task, &cluster).map_err(|error| of_source(&source, &error))?;
        if !cluster.is_empty() && cluster.address(&task).is_none() {
            let what = short(&task);
            notes.push(format!("{what} is not in the cluster: it calls other tasks, and no task calls it"));
        }
        notes.extend(unusual_jobs(&cluster));
        let several = topology.as_ref().is_some_and(|topology| topology.tasks().nth(1).is_some());
        if several && cluster.is_empty() && unlocated.is_none() {
            unlocated = Some(status!(
                FailedPrecondition,
                "it has no addresses: add --rendezvous with a directory that all tasks share"
            ));
        }
        Ok(Role { source, task, cluster, topology, rank, unlocated, run_id, notes, overridden: Vec::new() })
    }
}

/// Refuses a task that the cluster lacks, and says what to do. Evaluators, and chiefs that coordinate, may be outside.
pub(crate) fn in_cluster(task: &TaskName, cluster: &ClusterSpec) -> Result<()> {
    let numbers: Vec<u32> =
        cluster.tasks().filter(|(other, _)| other.job == task.job).map(|(other, _)| other.task).collect();
    if cluster.is_empty() || numbers.contains(&task.task) {
        return Ok(());
    }
    if numbers.is_empty() && matches!(task.job.as_str(), "evaluator" | "chief") {
        return Ok(());
    }
    let mut jobs: Vec<String> = cluster.tasks().map(|(other, _)| other.job).collect();
    jobs.dedup();
    let fix = match (numbers.as_slice(), jobs.iter().find(|job| job.eq_ignore_ascii_case(&task.job))) {
        ([], Some(similar)) => format!("write {similar}: names of jobs are case-sensitive"),
        ([], None) => {
            let meant = nearest(&task.job, jobs.iter().map(String::as_str));
            let meant = meant.map(|meant| format!("did you mean {meant}? ")).unwrap_or_default();
            let one_of = if jobs.len() > 1 { "one of " } else { "" };
            format!(
                "{meant}there is no job {}, choose {one_of}{} or add its addresses",
                task.job,
                jobs.join(", ")
            )
        }
        ([first, .., last], _) if (last - first) as usize + 1 == numbers.len() => {
            format!(
                "job {} has tasks {first} to {last}, choose one of them or add this one's address",
                task.job
            )
        }
        (numbers, _) => {
            let numbers: Vec<String> = numbers.iter().map(u32::to_string).collect();
            let numbers = numbers.join(", ");
            format!("job {} has task {numbers} alone, choose it or add this one's address", task.job)
        }
    };
    Err(status!(InvalidArgument, "{task} is not in the cluster, which has {cluster}: {fix}"))
}

/// Returns remarks about jobs whose names are nearly usual ones. Jobs may have any name, but a typing error is likelier:
/// its tasks would be started and never used.
fn unusual_jobs(cluster: &ClusterSpec) -> Vec<String> {
    let usual = ["chief", "worker", "ps", "evaluator", "master"];
    let unusual = cluster.jobs().filter(|job| job.len() > 2 && !usual.contains(job));
    let note = |job: &str| {
        let meant = nearest(job, usual).filter(|meant| cluster.num_tasks(meant) == 0)?;
        Some(format!("the cluster has a job {job}; did you mean {meant}?"))
    };
    unusual.filter_map(note).collect()
}

fn listed(cluster: &ClusterSpec) -> String {
    let tasks: Vec<String> = cluster.tasks().map(|(task, _)| short(&task)).collect();
    if tasks.is_empty() { "the tasks of the cluster".to_owned() } else { tasks.join(", ") }
}

/// Formats a task as `worker:1`, for texts about many tasks.
pub(crate) fn short(task: &TaskName) -> String {
    format!("{}:{}", task.job, task.task)
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: (&str, &str) = (
        "TF_CONFIG",
        r#"{"cluster": {"ps": ["a:1"], "worker": ["b:1", "c:1"]}, "task": {"type": "worker", "index": 0}}"#,
    );
    const OPEN_MPI: [(&str, &str); 3] =
        [("OMPI_COMM_WORLD_RANK", "2"), ("OMPI_COMM_WORLD_SIZE", "3"), ("PMIX_NAMESPACE", "prte-7")];
    const SLURM: [(&str, &str); 7] = [
        ("SLURM_JOB_ID", "7"),
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NODELIST", "n[1-2]"),
        ("SLURM_STEP_TASKS_PER_NODE", "1(x2)"),
        ("SLURM_STEP_NUM_TASKS", "2"),
        ("SLURM_PROCID", "0"),
        ("SLURMD_NODENAME", "n1"),
    ];

    fn request(jobs: &str) -> RoleRequest {
        RoleRequest { jobs: Some(jobs.parse().unwrap()), ..RoleRequest::default() }
    }

    #[test]
    fn the_first_source_decides_and_the_others_are_told() {
        let everything: Environment = [CONFIG].into_iter().chain(OPEN_MPI).chain(SLURM).collect();
        let role = Role::resolve(&request("ps:1,worker:*"), &everything).unwrap();
        assert_eq!((role.source, short(&role.task).as_str()), (Source::TfConfig, "worker:0"));
        let said: Vec<String> =
            role.overridden.iter().map(|other| format!("{}: {}", other.source, other.said)).collect();
        assert_eq!(
            said,
            ["Open MPI: worker:1 in a cluster of ps:1,worker:2", "Slurm: ps:0 in a cluster of 2"]
        );
        // Within an allocation, Slurm's variables are those of the daemon that mpirun started.
        let launched: Environment = OPEN_MPI.into_iter().chain(SLURM).collect();
        let role = Role::resolve(&request("ps:1,worker:*"), &launched).unwrap();
        assert_eq!((role.source, short(&role.task).as_str()), (Source::OpenMpi, "worker:1"));
        assert_eq!(role.run_id.as_deref(), Some("prte-7"));
        assert!(role.located().unwrap_err().message().contains("--rendezvous"));
    }

    #[test]
    fn flags_that_name_the_task_alone_choose_it_in_the_cluster_of_the_next_source() {
        let environment: Environment = [CONFIG].into_iter().collect();
        let choose =
            |job: &str, task| RoleRequest { job: Some(job.to_owned()), task, ..RoleRequest::default() };
        let role = Role::resolve(&choose("ps", None), &environment).unwrap();
        assert_eq!((role.source, role.address()), (Source::TfConfig, Some("a:1")));
        assert_eq!(role.notes, ["the flags choose ps:0, TF_CONFIG says worker:0"]);
        let wrong = Role::resolve(&choose("worker", Some(2)), &environment).unwrap_err();
        assert!(wrong.message().contains("job worker has tasks 0 to 1"), "{wrong}");
        let alone = Role::resolve(&choose("ps", Some(1)), &Environment::default()).unwrap();
        assert_eq!((short(&alone.task).as_str(), alone.cluster.is_empty()), ("ps:1", true));
    }

    #[test]
    fn hydra_and_condor_tell_ranks() {
        let hydra = [("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")];
        let role = Role::resolve(&request("chief:1,ps:1"), &hydra.into_iter().collect()).unwrap();
        assert_eq!((role.source, short(&role.task).as_str()), (Source::Hydra, "chief:0"));
        // Slurm's PMI sets the same, but for the local rank.
        let pmi = hydra.into_iter().take(2).chain(SLURM);
        assert_eq!(Role::resolve(&request("chief:1,ps:1"), &pmi.collect()).unwrap().source, Source::Slurm);
        let condor = [("_CONDOR_PROCNO", "1"), ("_CONDOR_NPROCS", "2")];
        let role = Role::resolve(&request("chief:1,ps:1"), &condor.into_iter().collect()).unwrap();
        assert_eq!((role.source, role.rank), (Source::Condor, Some(Rank { rank: 1, size: 2 })));
    }

    #[test]
    fn evaluators_and_coordinators_may_be_outside() {
        for job in ["evaluator", "chief"] {
            let text = CONFIG.1.replace(r#""type": "worker""#, &format!(r#""type": "{job}""#));
            let role =
                Role::resolve(&RoleRequest::default(), &[("TF_CONFIG", text)].into_iter().collect()).unwrap();
            assert!(role.address().is_none() && role.notes[0].contains("no task calls it"));
        }
    }
}

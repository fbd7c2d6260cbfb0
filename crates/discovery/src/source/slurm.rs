//! A step of Slurm: ranks, and host names from which addresses are computed.
//!
//! Ranks are laid on nodes as Slurm lays them, in the order of its own list. The facts that Slurm tells about this process
//! must agree with the result: an address that is wrong here would be wrong everywhere.

mod host_list;
mod layout;

use super::{Found, Says, by_rank, rank_of};
use crate::Environment;
use crate::role::{Rank, RoleRequest};
use ferroflow_cluster::spec::ClusterSpec;
use ferroflow_core::{Result, ensure, status};
use layout::{Distribution, lay_out};

/// The first port on every host, as stock's resolver has it.
const PORT: u16 = 8888;

/// Variables that a process of a step has and one of a batch script or an allocation lacks.
const STEP: [&str; 3] = ["SLURM_STEP_NODELIST", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE"];

/// The advice where addresses cannot be computed.
const ADVICE: &str = "use --rendezvous with a directory that all nodes share, or srun --mpi=pmi2, which need no computed addresses";

pub(super) fn ask(request: &RoleRequest, environment: &Environment) -> Result<Says> {
    let Some(job) = environment.get("SLURM_JOB_ID") else { return Ok(Says::Nothing) };
    if STEP.iter().any(|name| environment.get(name).is_none()) {
        ensure!(
            request.jobs.is_none(),
            FailedPrecondition,
            "this process is in job {job}, but in none of its steps: start it with srun"
        );
        return Ok(Says::Nothing);
    }
    let Some(rank) = rank_of(environment, "SLURM_PROCID", "SLURM_STEP_NUM_TASKS")? else {
        return Ok(Says::Nothing);
    };
    let text = |name| environment.get(name).unwrap_or_default();
    let restarts = environment.get("SLURM_RESTART_COUNT").unwrap_or("0");
    let run_id = format!("slurm.{job}.{}.{restarts}", text("SLURM_STEP_ID"));
    let mut says = by_rank(request, rank, Some(run_id))?;
    if let Says::Role(found) = &mut says {
        // Tasks that exchange their addresses need none of these.
        match hosts(environment, rank)
            .and_then(|hosts| addresses(found, &hosts, request.port.unwrap_or(PORT)))
        {
            Ok(cluster) => {
                found.cluster = cluster;
                found
                    .notes
                    .push("addresses are computed from the step's nodes; ports may be taken".to_owned());
            }
            Err(why) => found.unlocated = Some(why),
        }
    }
    Ok(says)
}

/// Returns the node of every rank.
fn hosts(environment: &Environment, rank: Rank) -> Result<Vec<String>> {
    let text = |name| environment.get(name).unwrap_or_default();
    let nodes = host_list::expand(text("SLURM_STEP_NODELIST"))?;
    let counts = layout::counts(text("SLURM_STEP_TASKS_PER_NODE"))?;
    let distribution = Distribution::of(environment)?;
    let groups = layout::groups(environment, &counts)?;
    let hosts: Vec<String> = match distribution {
        Distribution::Listed(hosts) => hosts,
        computed => lay_out(&counts, &groups, &computed)?
            .into_iter()
            .map(|node| {
                nodes.get(node).cloned().ok_or_else(|| {
                    status!(
                        InvalidArgument,
                        "SLURM_STEP_NODELIST has {} nodes, SLURM_STEP_TASKS_PER_NODE {}",
                        nodes.len(),
                        counts.len()
                    )
                })
            })
            .collect::<Result<_>>()?,
    };
    ensure!(
        hosts.len() == rank.size as usize,
        InvalidArgument,
        "the nodes have room for {} tasks, but the step has {}",
        hosts.len(),
        rank.size
    );
    verify(environment, rank, &hosts)?;
    Ok(hosts)
}

/// Compares the result with the facts that Slurm tells about this process and the others of its node.
fn verify(environment: &Environment, rank: Rank, hosts: &[String]) -> Result<()> {
    let (Some(computed), Some(here)) = (hosts.get(rank.rank as usize), environment.get("SLURMD_NODENAME"))
    else {
        return Ok(());
    };
    ensure!(
        computed == here,
        FailedPrecondition,
        "rank {} is computed to be on {computed}, but runs on {here}: the distribution of tasks over nodes is not known \
         here; {ADVICE}",
        rank.rank
    );
    let Some(ranks) = environment.get("SLURM_GTIDS") else { return Ok(()) };
    let listed: Vec<usize> = ranks.split(',').filter_map(|rank| rank.trim().parse().ok()).collect();
    let mine: Vec<usize> = (0..hosts.len()).filter(|rank| hosts[*rank] == here).collect();
    ensure!(
        listed.iter().all(|rank| mine.contains(rank)),
        FailedPrecondition,
        "{here} runs the ranks {ranks}, but {mine:?} were computed: the distribution of tasks over nodes is not known \
         here; {ADVICE}"
    );
    Ok(())
}

/// Returns the address of every task: its host, with the ports of one host counted up.
fn addresses(found: &Found, hosts: &[String], port: u16) -> Result<ClusterSpec> {
    let mut cluster = ClusterSpec::new();
    let tasks = found.topology.iter().flat_map(|topology| topology.tasks());
    for (rank, (task, host)) in tasks.zip(hosts).enumerate() {
        let earlier = hosts[..rank].iter().filter(|other| *other == host).count();
        let port = usize::from(port) + earlier;
        cluster.add(&task.job, task.task, &format!("{host}:{port}"))?;
    }
    Ok(cluster)
}

#[cfg(test)]
mod tests;

//! The layout of a step: the node of every rank.

use super::ADVICE;
use crate::Environment;
use ferroflow_core::{Result, ensure, status};

/// The way in which Slurm deals ranks out to nodes.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Distribution {
    /// A node is filled before the next one.
    Block,
    /// Each node in turn gets this number of ranks.
    Plane(u32),
    /// As a file says, host by host.
    Listed(Vec<String>),
}

impl Distribution {
    /// Reads the choice of `srun -m`; block without one.
    pub(super) fn of(environment: &Environment) -> Result<Distribution> {
        let Some(chosen) = environment.get("SLURM_DISTRIBUTION") else { return Ok(Distribution::Block) };
        // Further words tell of sockets and cores within a node.
        let word = chosen.split([':', ',', '=']).next().unwrap_or(chosen);
        match word.to_ascii_lowercase().as_str() {
            "block" | "unknown" | "*" => Ok(Distribution::Block),
            "cyclic" => Ok(Distribution::Plane(1)),
            "plane" => {
                let given = chosen.split_once('=').and_then(|(_, size)| size.parse().ok());
                let size = given.or(environment.number("SLURM_DIST_PLANESIZE")?).filter(|size| *size > 0);
                let missing = || {
                    status!(FailedPrecondition, "tasks are dealt out in planes of an unknown size; {ADVICE}")
                };
                Ok(Distribution::Plane(size.ok_or_else(missing)?))
            }
            "arbitrary" => listed(environment).map(Distribution::Listed),
            _ => Err(status!(
                FailedPrecondition,
                "tasks are dealt out to nodes by '{chosen}', which is not known here; {ADVICE}"
            )),
        }
    }
}

/// Reads the hosts in the file that `srun -m arbitrary` reads, one per rank.
fn listed(environment: &Environment) -> Result<Vec<String>> {
    let path = environment.get("SLURM_HOSTFILE").ok_or_else(|| {
        status!(
            FailedPrecondition,
            "tasks are dealt out by a file that SLURM_HOSTFILE does not name; {ADVICE}"
        )
    })?;
    let text = std::fs::read_to_string(path).map_err(|error| {
        status!(FailedPrecondition, "cannot read SLURM_HOSTFILE {path}: {error}; {ADVICE}")
    })?;
    let mut hosts = Vec::new();
    for line in text.lines().map(|line| line.split('#').next().unwrap_or_default().trim()) {
        if !line.is_empty() {
            hosts.extend(super::host_list::expand(line)?);
        }
    }
    Ok(hosts)
}

/// Expands `2(x3),1` into the number of tasks of every node.
pub(super) fn counts(text: &str) -> Result<Vec<u32>> {
    let mut counts = Vec::new();
    for entry in text.split(',') {
        let wrong = || {
            status!(
                InvalidArgument,
                "SLURM_STEP_TASKS_PER_NODE is '{text}', expected numbers such as 2(x3),1"
            )
        };
        let (count, times) = match entry.split_once("(x") {
            Some((count, times)) => (count, times.strip_suffix(')').ok_or_else(wrong)?),
            None => (entry, "1"),
        };
        let count: u32 = count.trim().parse().map_err(|_| wrong())?;
        let times: u32 = times.trim().parse().map_err(|_| wrong())?;
        ensure!(
            times <= 100_000,
            InvalidArgument,
            "SLURM_STEP_TASKS_PER_NODE is '{text}': there are not that many nodes"
        );
        counts.extend((0..times).map(|_| count));
    }
    Ok(counts)
}

/// Returns the number of nodes of each part of a heterogeneous step: a part is laid out by itself, after the one before.
pub(super) fn groups(environment: &Environment, counts: &[u32]) -> Result<Vec<usize>> {
    let parts = environment.number("SLURM_HET_SIZE")?.unwrap_or(1);
    let (mut groups, mut from) = (Vec::new(), 0);
    for part in 0..parts {
        let Some(tasks) = environment.number(&format!("SLURM_NTASKS_HET_GROUP_{part}"))? else { break };
        let mut sum = 0;
        let nodes = counts[from..].iter().take_while(|count| {
            let fits = sum + **count <= tasks;
            sum += if fits { **count } else { 0 };
            fits && **count > 0
        });
        let nodes = nodes.count();
        groups.push(nodes);
        from += nodes;
    }
    // Numbers that do not add up mean one part: a step need not use all parts of its job.
    Ok(if from == counts.len() && !groups.is_empty() { groups } else { vec![counts.len()] })
}

/// Returns the node of every rank.
pub(super) fn lay_out(counts: &[u32], groups: &[usize], distribution: &Distribution) -> Result<Vec<usize>> {
    let most = counts.iter().copied().max().unwrap_or_default();
    let at_once = match distribution {
        Distribution::Plane(size) => *size,
        _ => most.max(1),
    };
    let mut ranks = Vec::new();
    let mut first = 0;
    for nodes in groups {
        let mut left: Vec<u32> = counts[first..first + nodes].to_vec();
        while left.iter().any(|left| *left > 0) {
            for (node, left) in left.iter_mut().enumerate() {
                let taken = at_once.min(*left);
                *left -= taken;
                ranks.extend((0..taken).map(|_| first + node));
            }
        }
        first += nodes;
    }
    Ok(ranks)
}

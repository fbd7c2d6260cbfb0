//! HTCondor's parallel universe: it tells ranks, and hosts without ports. Its vanilla jobs know nothing of each other.

use super::{Says, by_rank, rank_of};
use crate::Environment;
use crate::role::RoleRequest;
use ferroflow_core::Result;

pub(super) fn ask(request: &RoleRequest, environment: &Environment) -> Result<Says> {
    match rank_of(environment, "_CONDOR_PROCNO", "_CONDOR_NPROCS")? {
        Some(rank) => by_rank(request, rank, run_id(environment)),
        None => Ok(Says::Nothing),
    }
}

/// Reads the job's number and its number of starts from its advertisement: lines of `Name = value`.
fn run_id(environment: &Environment) -> Option<String> {
    let ad = std::fs::read_to_string(environment.get("_CONDOR_JOB_AD")?).ok()?;
    let value = |name: &str| {
        let pairs = ad.lines().filter_map(|line| line.split_once('='));
        pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|pair| pair.1)
    };
    Some(format!("condor.{}.{}", value("ClusterId")?, value("NumShadowStarts").unwrap_or("1")))
}

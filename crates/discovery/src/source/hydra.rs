//! `mpiexec` of MPICH and Intel MPI: it tells ranks, and no addresses.

use super::{Says, by_rank, rank_of};
use crate::Environment;
use crate::role::RoleRequest;
use ferroflow_core::Result;

pub(super) fn ask(request: &RoleRequest, environment: &Environment) -> Result<Says> {
    // Slurm sets the variables of the rank as well when it offers PMI; the one of the local rank is Hydra's alone.
    if environment.get("MPI_LOCALRANKID").is_none() {
        return Ok(Says::Nothing);
    }
    match rank_of(environment, "PMI_RANK", "PMI_SIZE")? {
        Some(rank) => by_rank(request, rank, None),
        None => Ok(Says::Nothing),
    }
}

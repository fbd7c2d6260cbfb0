//! `mpirun` of Open MPI: it tells ranks, and no addresses.

use super::{Says, by_rank, rank_of};
use crate::Environment;
use crate::role::RoleRequest;
use ferroflow_core::Result;

pub(super) fn ask(request: &RoleRequest, environment: &Environment) -> Result<Says> {
    let Some(rank) = rank_of(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else {
        return Ok(Says::Nothing);
    };
    // All ranks have the same namespace, and another one at the next start.
    by_rank(request, rank, environment.get("PMIX_NAMESPACE").map(str::to_owned))
}

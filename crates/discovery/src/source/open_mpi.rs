//! `mpirun` of Open MPI: it tells ranks, and no addresses.

use super::{Says, by_rank, rank_of};
use crate::Environment;
use crate::role::Asked;
use ferroflow_core::Result;

pub(super) fn ask(asked: &Asked, environment: &Environment) -> Result<Says> {
    let Some(rank) = rank_of(environment, "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE")? else {
        return Ok(Says::Nothing);
    };
    // The same for all ranks, and another one at the next start.
    by_rank(asked, rank, environment.get("PMIX_NAMESPACE").map(str::to_owned))
}

//! Every op: declaration, shape function and kernel, and the numeric routines they share.
//!
//! This crate knows nothing of planning, executing, sessions or RPC. `families/<group>/<family>.rs` holds a family of
//! ops; the build script finds them, so that adding a family touches nothing but its own file.

pub mod linalg;
pub mod numeric;

mod distribution;
mod philox;
mod rng_state;

#[cfg(test)]
mod testing;

include!(concat!(env!("OUT_DIR"), "/families.rs"));

use ferroflow_core::op::Registry;

/// Every op of this crate.
pub fn registry() -> Registry {
    let ops = FAMILIES.iter().flat_map(|(_, ops)| ops.iter().copied());
    Registry::new(ops).expect("a test checks that names are unique")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_declaration_parses_and_no_name_is_taken_twice() {
        for entry in registry().all() {
            entry.spec();
        }
    }
}

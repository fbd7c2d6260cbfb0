//! Every op: declaration, shape function and kernel, and the numeric routines they share.
//!
//! This crate knows nothing of planning, executing, sessions or RPC. `families/<group>/<family>.rs` holds a family of
//! ops; the build script finds them, so that adding a family touches nothing but its own file.

pub mod cwise;
mod distribution;
mod hash;
mod index;
pub mod linalg;
pub mod numeric;
mod optimizer;
mod philox;
mod queue;
mod re2;
mod ref_handle;
mod rng_state;
mod rows;
mod strided;
mod tensor_array;
mod tensor_list;
mod text;
mod units;
mod variable;

#[cfg(test)]
mod testing;

include!(concat!(env!("OUT_DIR"), "/families.rs"));

use ferroflow_core::op::Registry;

/// The ops of the TensorFlow release that we follow, one name a line: what is among them and not in the registry is
/// reported as not supported yet, not as unknown.
const STOCK_OPS: &str = include_str!("stock_ops.txt");

/// Every op of this crate.
pub fn registry() -> Registry {
    let ops = FAMILIES.iter().flat_map(|(_, ops)| ops.iter().copied());
    let registry = Registry::new(ops).expect("a test checks that names are unique");
    registry.with_unsupported(STOCK_OPS).with_thread_setup(linalg::denormals::flush_denormals)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_stock_ops_is_current() {
        let dumped = include_str!("../../../testdata/ops.pbtxt");
        let names = dumped.lines().zip(dumped.lines().skip(1)).filter(|(line, _)| *line == "op {");
        let names: Vec<&str> = names.filter_map(|(_, name)| name.split('"').nth(1)).collect();
        assert_eq!(names, STOCK_OPS.lines().collect::<Vec<_>>());
    }

    #[test]
    fn every_declaration_parses_and_no_name_is_taken_twice() {
        for entry in registry().all() {
            entry.spec();
        }
    }
}

//! Every op: declaration, shape function and kernel, and the numeric routines they share.
//!
//! This crate knows nothing of planning, executing, sessions or RPC. `families/<group>/<family>.rs` holds a family of
//! ops; the build script finds them, so that adding a family touches nothing but its own file.

pub mod builders;
mod data;
pub mod flow;
mod linalg;
mod numeric;
mod parsing;
mod state;
mod support;

#[cfg(test)]
mod testing;

/// The op families by group, as the build script finds them.
mod families {
    include!(concat!(env!("OUT_DIR"), "/families.rs"));
}

pub use numeric::{histogram, philox};

use families::FAMILIES;
use ferroflow_core::DType;
use ferroflow_core::op::{KernelRow, Registry};

/// The signatures of the ops of the TensorFlow release that we follow: what is among them and not in the registry may be
/// in graphs and is reported as not supported yet, not as unknown.
const STOCK_OPS: &str = include_str!("stock_ops.txt");

/// The CPU kernels of that release: an op and, by attribute, the element types it has kernels for.
const STOCK_KERNELS: &str = include_str!("stock_kernels.txt");

/// The ops of that release that are not meant to run, with reasons. `docs/compatibility.md` lists them under the same
/// titles.
const OUT_OF_SCOPE: &str = include_str!("out_of_scope.txt");

/// Every op of this crate.
pub fn registry() -> Registry {
    let ops = FAMILIES.iter().flat_map(|(_, ops)| ops.iter().copied());
    let registry = Registry::default().with_stock_kernels(STOCK_KERNELS).with(ops);
    let registry = registry.expect("a test checks that names are unique");
    let registry = registry.with_stock_ops(STOCK_OPS).with_out_of_scope(OUT_OF_SCOPE);
    registry.with_thread_setup(linalg::denormals::flush_denormals)
}

/// The kernel of an op whose only type attribute is `T`, for ops that are made of others.
fn kernel_row(op: &str, dtype: DType) -> Option<&'static KernelRow> {
    let op = FAMILIES.iter().flat_map(|(_, ops)| ops.iter()).find(|candidate| candidate.name == op)?;
    op.kernels.iter().find(|row| row.attr.is_empty() || (row.attr == "T" && row.dtype == dtype))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn ops_out_of_scope_are_refused_with_the_reason() {
        let registry = registry();
        let attrs = ferroflow_core::attr::Attrs::default();
        let refuse = |op: &str| {
            let spec = registry.unsupported(op).unwrap_or_else(|| panic!("stock has no op named {op}"));
            registry.refuse_unsupported(&spec, "n", &attrs).message().to_owned()
        };
        for op in ["PyFunc", "EagerPyFunc", "PyFuncStateless"] {
            assert!(refuse(op).contains("lives in the client's Python process"), "{}", refuse(op));
        }
        assert!(refuse("_MklConv2D").contains("oneDNN"));
        for (number, block) in OUT_OF_SCOPE.split("\n\n").enumerate() {
            let lines: Vec<&str> = block.lines().collect();
            assert_eq!(lines.len(), 3, "block {number} is a title, a reason and ops: {block}");
            for name in lines[2].split_whitespace().filter(|name| !name.contains('*')) {
                assert!(registry.unsupported(name).is_some(), "stock has no op named {name}");
                assert!(registry.get(name).is_none(), "{name} runs, so it is not out of scope");
            }
        }
    }

    #[test]
    fn the_list_of_stock_kernels_is_current() {
        use std::collections::{BTreeMap, BTreeSet};
        let mut ops: BTreeMap<&str, BTreeMap<&str, BTreeSet<&str>>> = BTreeMap::new();
        for line in
            include_str!("../../../testdata/kernels.tsv").lines().filter(|line| !line.starts_with('#'))
        {
            let mut fields = line.split('\t');
            let attrs = ops.entry(fields.next().unwrap()).or_default();
            let constraints = fields.next().unwrap_or_default().split(' ').filter_map(|c| c.split_once('='));
            // Constraints on attributes that are no types have no value here.
            for (attr, dtype) in constraints.filter(|(_, dtype)| !dtype.is_empty()) {
                attrs.entry(attr).or_default().insert(match dtype {
                    "float16" => "half",
                    "float32" => "float",
                    "float64" => "double",
                    other => other,
                });
            }
        }
        let line = |(op, attrs): (&str, BTreeMap<&str, BTreeSet<&str>>)| {
            let types = |(attr, types): (&str, BTreeSet<&str>)| {
                format!("\t{attr}={}", types.into_iter().collect::<Vec<_>>().join(","))
            };
            format!("{op}{}\n", attrs.into_iter().map(types).collect::<String>())
        };
        let current: String = ops.into_iter().map(line).collect();
        if std::env::var_os("UPDATE").is_some() {
            std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/src/stock_kernels.txt"), &current).unwrap();
        }
        assert_eq!(current, STOCK_KERNELS, "UPDATE=1 writes it anew");
    }

    #[test]
    fn every_op_has_a_builder() {
        let generated =
            std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/src/builders/generated")).unwrap();
        let text: String =
            generated.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap()).collect();
        let builders: HashSet<&str> = text
            .lines()
            .filter_map(|line| Some(line.trim_start().strip_prefix("pub struct ")?.split_once('(')?.0))
            .collect();
        let registry = registry();
        let names =
            registry.all().into_iter().map(|entry| entry.op.name).filter(|name| !name.starts_with('_'));
        let missing: Vec<&str> = names.filter(|name| !builders.contains(name)).collect();
        assert!(missing.is_empty(), "`cargo xtask codegen` writes builders of {missing:?}");
    }

    #[test]
    fn every_declaration_parses_and_no_name_is_taken_twice() {
        for entry in registry().all() {
            entry.spec();
        }
    }

    #[test]
    fn large_kernels_end_with_their_step() {
        use crate::testing::Node;
        use ferroflow_core::{Code, Shape, Tensor};
        let zeros = |dims: &[i64]| Tensor::zeros(DType::Float, Shape::new(dims.iter().copied()).unwrap());
        let kernels: [(&str, Node, Vec<Tensor>); 4] = [
            ("random", Node::new("RandomUniform"), vec![Tensor::vector(vec![1i32 << 22])]),
            ("element-wise", Node::new("Exp"), vec![zeros(&[1 << 22])]),
            ("reduction", Node::new("Sum"), vec![zeros(&[1 << 22]), Tensor::scalar(0i32)]),
            (
                "convolution",
                Node::new("Conv2D").attr("strides", vec![1i64; 4]).attr("padding", "SAME"),
                vec![zeros(&[1, 128, 128, 8]), zeros(&[5, 5, 8, 8])],
            ),
        ];
        for (name, node, inputs) in kernels {
            let error = node.attr("dtype", DType::Float).cancelled().run(inputs).unwrap_err();
            assert_eq!((error.code(), error.is_derived()), (Code::Cancelled, true), "{name}");
        }
    }
}

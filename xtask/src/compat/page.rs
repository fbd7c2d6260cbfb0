//! The table of ops by family, and the number of ops that the first page tells.

use super::State;
use super::scope::Group;
use crate::tidy::anchor;
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Families of the page, in its order, with the modules of stock's Python package that belong to each.
const FAMILIES: &[(&str, &[&str])] = &[
    ("Math", &["math", "special_math", "bitwise"]),
    ("Arrays", &["array", "manip"]),
    ("Linear algebra", &["linalg"]),
    ("Neural networks", &["nn", "rnn", "ctc", "candidate_sampling"]),
    ("Variables", &["state", "resource_variable"]),
    ("Optimizers", &["training", "sdca"]),
    ("Queues, accumulators, tensor arrays and lists", &["data_flow", "list", "map", "optional"]),
    ("Control flow and functions", &["control_flow", "functional", "sendrecv"]),
    ("Random numbers", &["random", "stateful_random", "stateless_random", "random_index_shuffle"]),
    ("Strings and parsing", &["string", "parsing", "decode_proto", "encode_proto"]),
    ("Files and checkpoints", &["io", "checkpoint", "filesystem"]),
    ("Summaries, messages and debugging", &["logging", "summary", "debug"]),
    ("Input pipelines (tf.data)", &["dataset", "experimental_dataset"]),
    ("Lookup tables", &["lookup"]),
    (
        "Sparse and ragged tensors, sets",
        &[
            "sparse",
            "sparse_csr_matrix",
            "ragged_array",
            "ragged_conversion",
            "ragged_math",
            "set",
            "count",
            "composite_tensor",
        ],
    ),
    ("Images and audio", &["image", "audio"]),
    ("Fourier transforms", &["spectral"]),
    ("Quantized numbers", &["uniform_quant"]),
    ("Decision trees and clusters of points", &["boosted_trees", "clustering"]),
    ("Calls of Python and of batches", &["script", "batch"]),
    (
        "Collectives, accelerators and compilers",
        &["collective", "nccl", "dtensor", "rpc", "sync", "xla", "tpu", "tpu_partition", "cudnn_rnn"],
    ),
    (OTHER, &[]),
];
/// Ops that stock's runtime and optimizer make themselves, of its tests, and whatever its package has no module for.
const OTHER: &str = "Ops without a Python function";

/// Counts of one family, or of all.
#[derive(Default)]
struct Counts {
    runs: usize,
    partly: usize,
    absent: usize,
    out_of_scope: usize,
    absent_in_both: usize,
}

impl Counts {
    fn of<'a>(states: impl IntoIterator<Item = &'a State>) -> Counts {
        let mut counts = Counts::default();
        for state in states {
            match state {
                State::Runs => counts.runs += 1,
                State::Partly(_) => counts.partly += 1,
                State::Absent => counts.absent += 1,
                State::OutOfScope(_) => counts.out_of_scope += 1,
                State::AbsentInBoth => counts.absent_in_both += 1,
            }
        }
        counts
    }

    fn all(&self) -> usize {
        self.runs + self.partly + self.absent + self.out_of_scope + self.absent_in_both
    }
}

/// The page `docs/compatibility.md`.
pub(super) fn table(states: &BTreeMap<&str, State>, families: &str, groups: &[Group<'_>]) -> String {
    let grouped = grouped(states, families);
    let all = Counts::of(states.values());
    let mut text = format!(
        "# Ops\n\n\
         Written by `cargo xtask compat` from the op list of stock TensorFlow, its CPU kernels and the ops of this build.\n\n\
         Of {} ops in stock, {} run with every element type that stock's CPU kernels take, {} run in part, {} are not there \
         yet, and {} are [out of scope](#{}); {} more have no CPU kernel in stock either. A graph may have nodes of ops that are not there; a step that needs one \
         is refused with `UNIMPLEMENTED`. `ferroflow ops` lists what a binary runs, with element types.\n\n\
         | family | ops in stock | run | in part | not yet | out of scope | without a CPU kernel in stock |\n\
         |---|---|---|---|---|---|---|\n",
        thousands(all.all()),
        all.runs,
        all.partly,
        all.absent,
        all.out_of_scope,
        anchor(OUT_OF_SCOPE),
        all.absent_in_both,
    );
    let row = |name: &str, counts: &Counts| {
        let Counts { runs, partly, absent, out_of_scope, absent_in_both } = counts;
        let all = counts.all();
        format!("| {name} | {all} | {runs} | {partly} | {absent} | {out_of_scope} | {absent_in_both} |\n")
    };
    for (family, ops) in &grouped {
        let counts = Counts::of(ops.iter().map(|(_, state)| *state));
        // A family that is out of scope as a whole has no section but that of its reason.
        let section = if counts.out_of_scope == counts.all() { OUT_OF_SCOPE } else { family };
        text += &row(&format!("[{family}](#{})", anchor(section)), &counts);
    }
    text += &row("**all**", &all);
    for (family, ops) in &grouped {
        let named = |wanted: fn(&State) -> bool| -> Vec<String> {
            ops.iter().filter(|(_, state)| wanted(state)).map(|(name, _)| format!("`{name}`")).collect()
        };
        let partly: Vec<String> = ops
            .iter()
            .filter_map(|(name, state)| match state {
                State::Partly(how) => Some(format!("`{name}` ({how})")),
                _ => None,
            })
            .collect();
        let lists = [
            ("Run", named(|state| *state == State::Runs)),
            ("Run in part", partly),
            ("Not yet", named(|state| *state == State::Absent)),
            ("Without a CPU kernel in stock", named(|state| *state == State::AbsentInBoth)),
        ];
        if lists.iter().all(|(_, names)| names.is_empty()) {
            continue;
        }
        write!(text, "\n## {family}\n").expect("strings take all");
        for (title, names) in lists.iter().filter(|(_, names)| !names.is_empty()) {
            write!(text, "\n**{title}** ({}): {}\n", names.len(), names.join(", "))
                .expect("strings take all");
        }
    }
    text + &out_of_scope(states, groups)
}

/// The heading of ops that are not meant to run.
const OUT_OF_SCOPE: &str = "Out of scope";

/// The ops of each group, after the reason.
fn out_of_scope(states: &BTreeMap<&str, State>, groups: &[Group<'_>]) -> String {
    let mut text = format!(
        "\n## {OUT_OF_SCOPE}\n\nA step that needs one of these is refused with the reason given here.\n"
    );
    for (number, group) in groups.iter().enumerate() {
        let members = states.iter().filter(|(_, state)| **state == State::OutOfScope(number));
        let names: Vec<String> = members.map(|(name, _)| format!("`{name}`")).collect();
        if !names.is_empty() {
            let (title, reason, count) = (group.title, group.reason, names.len());
            write!(text, "\n**{title}** ({count}), because {reason}: {}\n", names.join(", "))
                .expect("strings take all");
        }
    }
    text
}

/// Ops with their states, by name, in families that have any.
type Grouped<'a> = Vec<(&'static str, Vec<(&'a str, &'a State)>)>;

fn grouped<'a>(states: &'a BTreeMap<&str, State>, families: &'a str) -> Grouped<'a> {
    let modules: BTreeMap<&str, &str> = families.lines().filter_map(|line| line.split_once('\t')).collect();
    let family = |op: &str| {
        let module = modules.get(op);
        let found =
            FAMILIES.iter().find(|(_, members)| module.is_some_and(|module| members.contains(module)));
        found.map_or(OTHER, |(name, _)| *name)
    };
    let of = |wanted: &str| -> Vec<(&str, &State)> {
        states.iter().filter(|(op, _)| family(op) == wanted).map(|(op, state)| (*op, state)).collect()
    };
    FAMILIES.iter().map(|(name, _)| (*name, of(name))).filter(|(_, ops)| !ops.is_empty()).collect()
}

/// The words of the first page after the number of ops that run.
const NUMBER: &str = " of stock's ";

/// The first page with the number of ops that run, in `656 of stock's 1,908 ops`.
pub(super) fn with_number(page: &str, states: &BTreeMap<&str, State>) -> Result<String> {
    let at = page.find(NUMBER).with_context(|| format!("the first page does not say '…{NUMBER}… ops'"))?;
    let start =
        page[..at].rfind(|letter: char| !letter.is_ascii_digit() && letter != ',').map_or(0, |end| end + 1);
    let rest = &page[at + NUMBER.len()..];
    let end = rest.find(" ops").with_context(|| format!("the first page does not say '…{NUMBER}… ops'"))?;
    let counts = Counts::of(states.values());
    let number = format!("{}{NUMBER}{}", thousands(counts.runs), thousands(counts.all()));
    Ok(format!("{}{number}{}", &page[..start], &rest[end..]))
}

/// A number with a comma before its last three digits.
fn thousands(number: usize) -> String {
    if number < 1000 { number.to_string() } else { format!("{},{:03}", number / 1000, number % 1000) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn states() -> BTreeMap<&'static str, State> {
        BTreeMap::from([
            ("Abs", State::Runs),
            ("Add", State::Partly("without T: int8".to_owned())),
            ("RangeDataset", State::Absent),
            ("_Tpu", State::AbsentInBoth),
            ("PyFunc", State::OutOfScope(0)),
        ])
    }

    #[test]
    fn ops_are_grouped_and_counted() {
        let groups = crate::compat::scope::groups("Python\nit is elsewhere\nPyFunc\n").unwrap();
        let page = table(&states(), "# c\nAbs\tmath\nAdd\tmath\nRangeDataset\tdataset\n", &groups);
        for line in [
            "| [Math](#math) | 2 | 1 | 1 | 0 | 0 | 0 |",
            "| [Input pipelines (tf.data)](#input-pipelines-tfdata) | 1 | 0 | 0 | 1 | 0 | 0 |",
            "| **all** | 5 | 1 | 1 | 1 | 1 | 1 |",
            "**Run in part** (1): `Add` (without T: int8)",
            "## Ops without a Python function",
            "**Without a CPU kernel in stock** (1): `_Tpu`",
            "**Python** (1), because it is elsewhere: `PyFunc`",
        ] {
            assert!(page.lines().any(|found| found == line), "{line} is not in:\n{page}");
        }
        assert!(!page.contains("## Arrays"), "{page}");
    }

    #[test]
    fn the_first_page_tells_the_number() {
        let page = with_number("| ops | 1,234 of stock's 5,678 ops |\n", &states()).unwrap();
        assert_eq!(page, "| ops | 1 of stock's 5 ops |\n");
        assert!(with_number("nothing", &states()).is_err());
        assert_eq!([thousands(7), thousands(1908), thousands(12_005)], ["7", "1,908", "12,005"]);
    }
}

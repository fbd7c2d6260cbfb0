//! `cargo xtask compat`: writes `docs/compatibility.md`, the ops of stock that this build runs, and their number into the
//! first page.

mod page;
mod scope;

use crate::{server, workspace};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail if a page is not current
    #[arg(long)]
    pub(crate) check: bool,
}

/// An op of this build, as `ferroflow ops --output json` lists it.
#[derive(Deserialize)]
struct Ours {
    name: String,
    any: bool,
    types: BTreeMap<String, BTreeSet<String>>,
}

/// The kernels that stock has for an op: what each asks of the op's type attributes.
type Kernels = Vec<BTreeMap<String, String>>;

/// The pages, from the root of the repository.
const TABLE: &str = "docs/compatibility.md";
const FIRST_PAGE: &str = "README.md";

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = workspace::root();
    let read = |name: &str| fs::read_to_string(root.join(name)).with_context(|| name.to_owned());
    let (ops, kernels) = (read("testdata/ops.pbtxt")?, read("testdata/kernels.tsv")?);
    let (families, first_page) = (read("testdata/op_families.tsv")?, read(FIRST_PAGE)?);
    let (declared, ours) = (declarations(&ops), our_ops()?);
    let out_of_scope = read("crates/ops/src/out_of_scope.txt")?;
    let groups = scope::groups(&out_of_scope)?;
    if let Some(unknown) = ours.keys().find(|name| !declared.contains_key(name.as_str())) {
        bail!("stock has no op named {unknown}");
    }
    let mut states = states(&declared, &stock_kernels(&kernels), &ours);
    scope::apply(&groups, &mut states)?;
    let table = page::table(&states, &families, &groups);
    let first_page = page::with_number(&first_page, &states)?;
    for (name, text) in [(TABLE, table), (FIRST_PAGE, first_page)] {
        if !args.check {
            fs::write(root.join(name), text).context(name)?;
        } else if read(name).unwrap_or_default() != text {
            bail!("{name} is not current; run `cargo xtask compat`");
        }
    }
    Ok(())
}

fn our_ops() -> Result<BTreeMap<String, Ours>> {
    let listed = Command::new(server::build()?).args(["ops", "--output", "json"]).output()?;
    if !listed.status.success() {
        bail!("ferroflow ops: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let ops: Vec<Ours> = serde_json::from_slice(&listed.stdout).context("ferroflow ops --output json")?;
    Ok(ops.into_iter().map(|op| (op.name.clone(), op)).collect())
}

/// The types that each attribute of an op may take; attributes without a list take any. Arguments are among them.
type Allowed = BTreeMap<String, BTreeSet<String>>;

/// The ops of an `OpList` in text form, which is indented as protobuf prints it.
fn declarations(text: &str) -> BTreeMap<&str, Allowed> {
    let mut declared: BTreeMap<&str, Allowed> = BTreeMap::new();
    let (mut op, mut attr, mut in_list) = ("", "", false);
    let quoted = |text: &'_ str| text.len() - 1;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("  name: \"") {
            op = &name[..quoted(name)];
            declared.entry(op).or_default();
        } else if let Some(name) = line.strip_prefix("    name: \"") {
            attr = &name[..quoted(name)];
            declared.entry(op).or_default().entry(attr.to_owned()).or_default();
        } else if line.starts_with("    ") && !line.starts_with("     ") {
            in_list = line == "    allowed_values {";
        } else if let Some(dtype) = line.strip_prefix("        type: DT_")
            && in_list
        {
            let allowed = declared.entry(op).or_default().entry(attr.to_owned()).or_default();
            allowed.insert(dtype.to_lowercase());
        }
    }
    declared
}

fn stock_kernels(text: &str) -> BTreeMap<&str, Kernels> {
    let mut kernels: BTreeMap<&str, Kernels> = BTreeMap::new();
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let mut columns = line.split('\t');
        let name = columns.next().unwrap_or_default();
        let constraints = columns.next().unwrap_or_default().split_whitespace();
        let constraints = constraints.filter_map(|pair| pair.split_once('='));
        kernels
            .entry(name)
            .or_default()
            .push(constraints.map(|(attr, dtype)| (attr.to_owned(), spell(dtype).to_owned())).collect());
    }
    kernels
}

/// A dtype as op signatures spell it.
fn spell(dtype: &str) -> &str {
    match dtype {
        "float16" => "half",
        "float32" => "float",
        "float64" => "double",
        other => other,
    }
}

/// The types that the declaration allows, for which stock has a kernel and we have none, as `T: half, uint8`.
fn missing(ours: &Ours, allowed: &Allowed, stock: &Kernels) -> Vec<String> {
    if ours.any {
        return Vec::new();
    }
    let missing = ours.types.iter().filter_map(|(attr, have)| {
        let theirs: BTreeSet<&String> = stock.iter().filter_map(|kernel| kernel.get(attr)).collect();
        let may =
            |dtype: &String| allowed.get(attr).is_none_or(|types| types.is_empty() || types.contains(dtype));
        let lacking = theirs.into_iter().filter(|dtype| may(dtype) && !have.contains(*dtype));
        let lacking: Vec<&str> = lacking.map(String::as_str).collect();
        (!lacking.is_empty()).then(|| format!("{attr}: {}", lacking.join(", ")))
    });
    missing.collect()
}

/// Support for an op of stock.
#[derive(Debug, PartialEq)]
enum State {
    /// With every element type that stock's CPU kernels take.
    Runs,
    /// In part, and what is missing.
    Partly(String),
    Absent,
    /// Not there, and not meant to be: the number of the group that has the reason.
    OutOfScope(usize),
    /// Stock itself has no CPU kernel for it.
    AbsentInBoth,
}

/// The state of every op of stock, by name.
fn states<'a>(
    declared: &BTreeMap<&'a str, Allowed>,
    kernels: &BTreeMap<&str, Kernels>,
    ours: &BTreeMap<String, Ours>,
) -> BTreeMap<&'a str, State> {
    // A kernel that asks for an attribute which the op does not have is never found.
    let found = |allowed: &Allowed, stock: &Kernels| {
        stock.iter().any(|kernel| kernel.keys().all(|attr| allowed.contains_key(attr)))
    };
    let theirs = |name: &str, allowed: &Allowed| kernels.get(name).filter(|stock| found(allowed, stock));
    let state = |name: &str, allowed: &Allowed| match (ours.get(name), theirs(name, allowed)) {
        (Some(op), stock) if op.any || !op.types.is_empty() => {
            let missing = stock.map(|stock| missing(op, allowed, stock)).unwrap_or_default();
            if missing.is_empty() {
                State::Runs
            } else {
                State::Partly(format!("without {}", missing.join("; ")))
            }
        }
        (Some(_), Some(_)) => State::Partly("declared, without a kernel".to_owned()),
        // Declared, which is all that stock does on a CPU.
        (Some(_), None) => State::Runs,
        (None, Some(_)) => State::Absent,
        (None, None) => State::AbsentInBoth,
    };
    declared.iter().map(|(name, allowed)| (*name, state(name, allowed))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_type_is_named_if_the_declaration_allows_it() {
        let ops = "op {\n  name: \"Abs\"\n  attr {\n    name: \"T\"\n    type: \"type\"\n    allowed_values {\n      list {\n        \
                   type: DT_FLOAT\n        type: DT_INT8\n      }\n    }\n  }\n}\nop {\n  name: \"NoOp\"\n}\nop {\n  name: \"Tpu\"\n}\n";
        let kernels = stock_kernels("# c\nAbs\tT=float32\nAbs\tT=int8\nAbs\tT=int16\nNoOp\nTpu\tU=int8\n");
        let types = BTreeMap::from([("T".to_owned(), BTreeSet::from(["float".to_owned()]))]);
        let abs = Ours { name: "Abs".to_owned(), any: false, types };
        let ours = BTreeMap::from([(abs.name.clone(), abs)]);
        let states = states(&declarations(ops), &kernels, &ours);
        assert_eq!(states["Abs"], State::Partly("without T: int8".to_owned()));
        assert_eq!((&states["NoOp"], &states["Tpu"]), (&State::Absent, &State::AbsentInBoth));
    }
}

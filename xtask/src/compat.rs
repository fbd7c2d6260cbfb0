//! `cargo xtask compat`: writes `docs/compatibility.md`, what this build runs of every op that stock has.

use crate::{server, workspace};
use anyhow::{Context, Result, bail};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::process::Command;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail if the page is not current
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

pub(crate) fn run(args: &Args) -> Result<()> {
    let root = workspace::root();
    let ops = fs::read_to_string(root.join("testdata/ops.pbtxt")).context("testdata/ops.pbtxt")?;
    let kernels = fs::read_to_string(root.join("testdata/kernels.tsv")).context("testdata/kernels.tsv")?;
    let (declared, ours) = (declarations(&ops), our_ops()?);
    if let Some(unknown) = ours.keys().find(|name| !declared.contains_key(name.as_str())) {
        bail!("stock has no op named {unknown}");
    }
    let text = page(&declared, &stock_kernels(&kernels), &ours);
    let path = root.join("docs/compatibility.md");
    if args.check {
        if fs::read_to_string(&path).unwrap_or_default() != text {
            bail!("docs/compatibility.md is not current; run `cargo xtask compat`");
        }
        return Ok(());
    }
    fs::create_dir_all(root.join("docs"))?;
    fs::write(path, text).context("docs/compatibility.md")
}

fn our_ops() -> Result<BTreeMap<String, Ours>> {
    let listed = Command::new(server::build()?).args(["ops", "--output", "json"]).output()?;
    if !listed.status.success() {
        bail!("ferroflow ops: {}", String::from_utf8_lossy(&listed.stderr));
    }
    let ops: Vec<Ours> = serde_json::from_slice(&listed.stdout).context("ferroflow ops --output json")?;
    Ok(ops.into_iter().map(|op| (op.name.clone(), op)).collect())
}

/// The types that each attribute of an op may take; attributes without a list take any.
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
        let may = |dtype: &String| allowed.get(attr).is_none_or(|types| types.contains(dtype));
        let lacking = theirs.into_iter().filter(|dtype| may(dtype) && !have.contains(*dtype));
        let lacking: Vec<&str> = lacking.map(String::as_str).collect();
        (!lacking.is_empty()).then(|| format!("{attr}: {}", lacking.join(", ")))
    });
    missing.collect()
}

fn page(
    declared: &BTreeMap<&str, Allowed>,
    kernels: &BTreeMap<&str, Kernels>,
    ours: &BTreeMap<String, Ours>,
) -> String {
    let (mut rows, mut complete, mut partial, mut absent) = (String::new(), 0, 0, 0);
    for (name, allowed) in declared {
        let stock = kernels.get(name);
        let state = match ours.get(*name) {
            Some(op) if op.any || !op.types.is_empty() => {
                let missing = stock.map(|stock| missing(op, allowed, stock)).unwrap_or_default();
                if missing.is_empty() {
                    complete += 1;
                    "yes".to_owned()
                } else {
                    partial += 1;
                    format!("yes, without {}", missing.join("; "))
                }
            }
            Some(_) if stock.is_none() => {
                complete += 1;
                "declared; stock has no CPU kernel either".to_owned()
            }
            Some(_) => {
                partial += 1;
                "declared, no kernel".to_owned()
            }
            None if stock.is_none() => {
                absent += 1;
                "not yet (stock has no CPU kernel either)".to_owned()
            }
            None => {
                absent += 1;
                "not yet".to_owned()
            }
        };
        writeln!(rows, "| `{name}` | {state} |").expect("strings take all");
    }
    format!(
        "# Ops\n\n\
         Written by `cargo xtask compat` from the op list of stock TensorFlow, its CPU kernels and the ops of this build.\n\n\
         Of {} ops in stock, {complete} run with every element type that stock's CPU kernels take, {partial} run in part \
         and {absent} are not there yet. A graph may have nodes of those; a step that needs one is refused.\n\n\
         | op | runs |\n|---|---|\n{rows}",
        declared.len()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_type_is_named_if_the_declaration_allows_it() {
        let ops = "op {\n  name: \"Abs\"\n  attr {\n    name: \"T\"\n    type: \"type\"\n    allowed_values {\n      list {\n        \
                   type: DT_FLOAT\n        type: DT_INT8\n      }\n    }\n  }\n}\nop {\n  name: \"NoOp\"\n}\n";
        let kernels = stock_kernels("# c\nAbs\tT=float32\nAbs\tT=int8\nAbs\tT=int16\nNoOp\n");
        let types = BTreeMap::from([("T".to_owned(), BTreeSet::from(["float".to_owned()]))]);
        let abs = Ours { name: "Abs".to_owned(), any: false, types };
        let ours = BTreeMap::from([(abs.name.clone(), abs)]);
        let page = page(&declarations(ops), &kernels, &ours);
        assert!(page.contains("| `Abs` | yes, without T: int8 |"), "{page}");
        assert!(page.contains("| `NoOp` | not yet |"), "{page}");
    }
}

//! `ferroflow ops`: the ops that this build runs, and their element types.
//!
//! The compatibility table and the differential test read it as JSON.

use clap::ValueEnum;
use ferroflow::op::{Accuracy, Op};
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// Arguments of `ferroflow ops`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Print the list in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Text)]
    output: Format,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// One op per line
    Text,
    /// One JSON array
    Json,
}

/// One op of the list.
#[derive(Serialize)]
struct Listed {
    name: &'static str,
    /// True if the op runs with every element type, in a kernel or in the executor itself.
    any: bool,
    /// Element types by the attribute that selects the kernel.
    types: BTreeMap<&'static str, Vec<&'static str>>,
    /// `exact`, `rounding` or `random`.
    accuracy: &'static str,
    stateful: bool,
}

/// Prints the list. A reader that stops early is not an error.
pub(crate) fn run(args: &Args) -> io::Result<()> {
    let registry = ferroflow::registry();
    let listed: Vec<Listed> = registry.all().into_iter().map(|entry| list(entry.op)).collect();
    let text = match args.output {
        Format::Json => serde_json::to_string(&listed)? + "\n",
        Format::Text => listed.iter().map(line).collect(),
    };
    match io::stdout().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}

fn list(op: &Op) -> Listed {
    let mut types: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for row in op.kernels.iter().filter(|row| !row.attr.is_empty()) {
        types.entry(row.attr).or_default().push(row.dtype.name());
    }
    Listed {
        name: op.name,
        any: op.class.runs_without_kernel() || op.kernels.iter().any(|row| row.attr.is_empty()),
        types,
        accuracy: match op.accuracy {
            Accuracy::Exact => "exact",
            Accuracy::Rounding => "rounding",
            Accuracy::Random => "random",
        },
        stateful: op.stateful,
    }
}

fn line(op: &Listed) -> String {
    let types = op.types.iter().map(|(attr, types)| format!(" {attr}={}", types.join(",")));
    format!("{}{}{}\n", op.name, if op.any { " any" } else { "" }, types.collect::<String>())
}

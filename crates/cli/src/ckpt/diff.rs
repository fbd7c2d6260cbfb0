//! `ferroflow ckpt diff`: what differs between two checkpoints.

use super::pattern::{Pattern, selects};
use super::statistics::difference;
use super::type_name;
use crate::exit::{Failure, PERMANENT};
use crate::output::Output;
use ferroflow::train::{CheckpointReader, StoredTensor};
use serde_json::{Value, json};

/// Arguments of `ferroflow ckpt diff`.
#[derive(clap::Args)]
#[command(
    after_help = "The exit code is 0 if all tensors are equal, 1 if some differ or a checkpoint cannot be read."
)]
pub(crate) struct Args {
    /// Compare this checkpoint
    #[arg(value_name = "CHECKPOINT")]
    one: String,

    /// Compare it with this one
    #[arg(value_name = "OTHER")]
    other: String,

    /// Compare only tensors with these names; * stands for any characters
    #[arg(value_name = "NAME")]
    names: Vec<Pattern>,

    /// Take numbers as equal if they differ by no more than this
    #[arg(long, value_name = "NUMBER", default_value_t = 0.0)]
    tolerance: f64,

    /// Print the result in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

/// A line of the result: a tensor, and how it differs.
struct Row {
    name: String,
    text: String,
    json: Value,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let (one, other) = (CheckpointReader::open(&args.one)?, CheckpointReader::open(&args.other)?);
    let mut rows = Vec::new();
    let mut equal = 0;
    for stored in one.tensors().iter().filter(|tensor| selects(&args.names, &tensor.name)) {
        let row = match other.get(&stored.name) {
            Some(counterpart) => compare(args, &one, &other, stored, counterpart)?,
            None => Some(Row::new(stored, "only in the first".to_owned(), json!({"only_in": "first"}))),
        };
        match row {
            Some(row) => rows.push(row),
            None => equal += 1,
        }
    }
    for stored in other.tensors().iter().filter(|tensor| selects(&args.names, &tensor.name)) {
        if one.get(&stored.name).is_none() {
            rows.push(Row::new(stored, "only in the second".to_owned(), json!({"only_in": "second"})));
        }
    }
    rows.sort_by(|a, b| a.name.cmp(&b.name));
    match args.output {
        Output::Json => {
            let differing: Vec<&Value> = rows.iter().map(|row| &row.json).collect();
            println!(
                "{:#}",
                json!({"first": one.prefix(), "second": other.prefix(), "equal": equal, "different": differing})
            );
        }
        Output::Text => {
            let width = rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
            for row in &rows {
                println!("{:width$}  {}", row.name, row.text);
            }
            println!("{equal} equal, {} different", rows.len());
        }
    }
    if rows.is_empty() { Ok(()) } else { Err(Failure::reported(PERMANENT)) }
}

/// Compares a tensor that both checkpoints have; `None` if it is equal.
fn compare(
    args: &Args,
    one: &CheckpointReader,
    other: &CheckpointReader,
    stored: &StoredTensor,
    counterpart: &StoredTensor,
) -> Result<Option<Row>, Failure> {
    if (stored.dtype, &stored.shape) != (counterpart.dtype, &counterpart.shape) {
        let describe = |tensor: &StoredTensor| format!("{} {}", type_name(tensor.dtype), tensor.shape);
        let (first, second) = (describe(stored), describe(counterpart));
        let text = format!("{first} in the first, {second} in the second");
        return Ok(Some(Row::new(stored, text, json!({"first": first, "second": second}))));
    }
    let Some(found) = difference(&one.read(&stored.name)?, &other.read(&stored.name)?)? else {
        return Ok(None);
    };
    if found.largest.is_some_and(|largest| largest <= args.tolerance) && args.tolerance > 0.0 {
        return Ok(None);
    }
    let largest = found.largest.map_or(String::new(), |largest| format!(", by up to {largest:.3e}"));
    let text = format!("{} of {} elements differ{largest}", found.elements, stored.shape.elements());
    Ok(Some(Row::new(stored, text, json!({"elements": found.elements, "largest": found.largest}))))
}

impl Row {
    fn new(stored: &StoredTensor, text: String, mut json: Value) -> Row {
        json["name"] = stored.name.as_str().into();
        Row { name: stored.name.clone(), text, json }
    }
}

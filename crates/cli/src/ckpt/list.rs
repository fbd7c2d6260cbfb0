//! `ferroflow ckpt ls`: the tensors of a checkpoint.

use super::pattern::{Pattern, selects};
use super::{byte_size, readable_bytes, type_name};
use crate::exit::Failure;
use crate::output::Output;
use ferroflow::train::{CheckpointReader, StoredTensor};
use serde_json::json;

/// Arguments of `ferroflow ckpt ls`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// List this checkpoint: its prefix, or the directory of which the latest one is meant
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: String,

    /// List only tensors with these names; * stands for any characters
    #[arg(value_name = "NAME")]
    names: Vec<Pattern>,

    /// Print the list in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let checkpoint = CheckpointReader::open(&args.checkpoint)?;
    let tensors: Vec<&StoredTensor> =
        checkpoint.tensors().iter().filter(|tensor| selects(&args.names, &tensor.name)).collect();
    match args.output {
        Output::Json => print_json(&checkpoint, &tensors),
        Output::Text => print_text(&checkpoint, &tensors),
    }
    Ok(())
}

fn print_json(checkpoint: &CheckpointReader, tensors: &[&StoredTensor]) {
    let describe = |tensor: &&StoredTensor| {
        json!({
            "name": tensor.name,
            "type": type_name(tensor.dtype),
            "shape": tensor.shape.dims(),
            "bytes": byte_size(tensor),
            "parts": tensor.slices.max(1),
        })
    };
    let tensors: Vec<_> = tensors.iter().map(describe).collect();
    println!("{:#}", json!({"checkpoint": checkpoint.prefix(), "tensors": tensors}));
}

fn print_text(checkpoint: &CheckpointReader, tensors: &[&StoredTensor]) {
    println!("{}", checkpoint.prefix());
    let rows: Vec<[String; 4]> = tensors.iter().map(|tensor| row(tensor)).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let [name, dtype, shape, size] = [width(0), width(1), width(2), width(3)];
    for row in &rows {
        println!("  {:name$}  {:dtype$}  {:shape$}  {:>size$}", row[0], row[1], row[2], row[3]);
    }
    let elements: u64 = tensors.iter().map(|tensor| tensor.shape.elements() as u64).sum();
    let bytes: u64 = tensors.iter().filter_map(|tensor| byte_size(tensor)).sum();
    let count = match tensors.len() {
        1 => "1 tensor".to_owned(),
        count => format!("{count} tensors"),
    };
    println!("{count}, {elements} elements, {}", readable_bytes(bytes));
}

fn row(tensor: &StoredTensor) -> [String; 4] {
    let size = byte_size(tensor).map_or("-".to_owned(), readable_bytes);
    let parts = if tensor.slices > 0 { format!(" in {} parts", tensor.slices) } else { String::new() };
    [tensor.name.clone(), type_name(tensor.dtype).to_owned(), format!("{}{parts}", tensor.shape), size]
}

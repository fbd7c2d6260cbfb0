//! `ferroflow ckpt show`: statistics and the first values of tensors.

use super::pattern::Pattern;
use super::statistics::{Statistics, statistics};
use super::type_name;
use crate::exit::Failure;
use crate::output::Output;
use ferroflow::train::{CheckpointReader, StoredTensor};
use serde_json::json;

/// Arguments of `ferroflow ckpt show`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Show tensors of this checkpoint: its prefix, or the directory of which the latest one is meant
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: String,

    /// Show the tensors with these names; * stands for any characters
    #[arg(value_name = "NAME", required = true)]
    names: Vec<Pattern>,

    /// Print the result in this format
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let checkpoint = CheckpointReader::open(&args.checkpoint)?;
    for pattern in &args.names {
        if !checkpoint.tensors().iter().any(|tensor| pattern.matches(&tensor.name)) {
            return Err(format!(
                "{} has no tensor named {pattern}; `ferroflow ckpt ls` lists those that it has",
                checkpoint.prefix()
            )
            .into());
        }
    }
    let wanted = |tensor: &&StoredTensor| args.names.iter().any(|pattern| pattern.matches(&tensor.name));
    let mut shown = Vec::new();
    for stored in checkpoint.tensors().iter().filter(wanted) {
        let tensor = checkpoint.read(&stored.name)?;
        let found = statistics(&tensor)?;
        match args.output {
            Output::Text => {
                println!("{}  {} {}", stored.name, type_name(stored.dtype), stored.shape);
                if let Some(line) = found.as_ref().and_then(describe) {
                    println!("  {line}");
                }
                println!("  {tensor}");
            }
            Output::Json => shown.push(json!({
                "name": stored.name,
                "type": type_name(stored.dtype),
                "shape": stored.shape.dims(),
                "statistics": found,
            })),
        }
    }
    if args.output == Output::Json {
        println!("{:#}", json!({"checkpoint": checkpoint.prefix(), "tensors": shown}));
    }
    Ok(())
}

/// Describes a tensor with at least one number.
fn describe(found: &Statistics) -> Option<String> {
    let mut parts = Vec::new();
    if let (Some(min), Some(max)) = (found.min, found.max) {
        parts.push(format!("min {}, max {}", short(min), short(max)));
    }
    if let (Some(mean), Some(deviation)) = (found.mean, found.standard_deviation) {
        parts.push(format!("mean {}, standard deviation {}", short(mean), short(deviation)));
    }
    for (count, what) in [(found.zeros, "zero"), (found.nan, "NaN"), (found.infinite, "infinite")] {
        if count > 0 {
            parts.push(format!("{count} {what}"));
        }
    }
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Formats a number with six digits.
fn short(number: f64) -> String {
    if number != 0.0 && !(1e-4..1e7).contains(&number.abs()) {
        return format!("{number:.5e}");
    }
    let text = format!("{number:.6}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        for (number, text) in
            [(0.0, "0"), (1.5, "1.5"), (-2.0, "-2"), (1e-9, "1.00000e-9"), (1e9, "1.00000e9")]
        {
            assert_eq!(short(number), text);
        }
    }
}

//! `ferroflow ckpt`: looks into checkpoints of TensorFlow and of Ferroflow.

mod diff;
mod export;
mod list;
mod npz;
mod pattern;
mod safetensors;
mod show;
mod statistics;

use crate::exit::Failure;
use clap::Subcommand;
use ferroflow::train::StoredTensor;
use ferroflow::{DType, Status};

/// Arguments of `ferroflow ckpt`.
#[derive(clap::Args)]
#[command(after_help = "\
A checkpoint is named by its prefix (logs/model.ckpt-100), by its index file, or by the directory that holds it, which \
stands for the latest one there. It may be at an s3://, gs:// or https:// URL.")]
pub(crate) struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// List the tensors of a checkpoint: name, type, shape and size
    Ls(list::Args),
    /// Show statistics and the first values of tensors
    Show(show::Args),
    /// Compare two checkpoints
    Diff(diff::Args),
    /// Write the tensors to a file of NumPy (.npz) or of safetensors
    Export(export::Args),
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    match &args.command {
        Command::Ls(args) => list::run(args),
        Command::Show(args) => show::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Export(args) => export::run(args),
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        status.message().into()
    }
}

/// Returns the bytes that a tensor's elements take, unless their size varies.
fn byte_size(tensor: &StoredTensor) -> Option<u64> {
    let size = tensor.dtype.size() as u64;
    (size > 0).then(|| (tensor.shape.elements() as u64).saturating_mul(size))
}

/// Returns the name of a type as Python programs print it.
fn type_name(dtype: DType) -> &'static str {
    match dtype {
        DType::Float => "float32",
        DType::Double => "float64",
        DType::Half => "float16",
        other => other.name(),
    }
}

/// Formats a number of bytes for people.
fn readable_bytes(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KB", "MB", "GB", "TB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    if unit == 0 { format!("{bytes} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_readable() {
        for (bytes, text) in [(0, "0 B"), (999, "999 B"), (1000, "1.0 KB"), (1_536_000, "1.5 MB")] {
            assert_eq!(readable_bytes(bytes), text);
        }
    }
}

//! `ferroflow ckpt export`: the tensors of a checkpoint in formats that other programs read.

use super::pattern::{Pattern, selects};
use super::{npz, readable_bytes, safetensors, type_name};
use crate::exit::Failure;
use ferroflow::train::{CheckpointReader, StoredTensor};
use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

/// Arguments of `ferroflow ckpt export`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Export this checkpoint: its prefix, or the directory of which the latest one is meant
    #[arg(value_name = "CHECKPOINT")]
    checkpoint: String,

    /// Export only tensors with these names; * stands for any characters
    #[arg(value_name = "NAME")]
    names: Vec<Pattern>,

    /// Write this file; its ending, .npz or .safetensors, selects the format
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
}

/// A format to export to.
#[derive(Clone, Copy)]
enum Format {
    Npz,
    Safetensors,
}

impl Format {
    fn of(path: &Path) -> Result<Format, Failure> {
        match path.extension().and_then(|ending| ending.to_str()) {
            Some("npz") => Ok(Format::Npz),
            Some("safetensors") => Ok(Format::Safetensors),
            _ => Err(format!("{} must end with .npz or .safetensors", path.display()).into()),
        }
    }

    /// Returns whether the format has the type of a tensor's elements.
    fn holds(self, tensor: &StoredTensor) -> bool {
        match self {
            Format::Npz => npz::type_code(tensor.dtype).is_some(),
            Format::Safetensors => safetensors::type_name(tensor.dtype).is_some(),
        }
    }
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let format = Format::of(&args.out)?;
    let checkpoint = CheckpointReader::open(&args.checkpoint)?;
    let selected = checkpoint.tensors().iter().filter(|tensor| selects(&args.names, &tensor.name));
    let (tensors, left_out): (Vec<&StoredTensor>, Vec<&StoredTensor>) =
        selected.partition(|tensor| format.holds(tensor));
    // Under another name until it is complete: nobody takes a part of a file for all of it.
    let partial = args.out.with_extension("partial");
    let failed = |error: &dyn std::fmt::Display| {
        Failure::from(format!("cannot write {}: {error}", args.out.display()))
    };
    let file = BufWriter::new(fs::File::create(&partial).map_err(|error| failed(&error))?);
    let written = match format {
        Format::Npz => npz::write(file, &checkpoint, &tensors),
        Format::Safetensors => safetensors::write(file, &checkpoint, &tensors),
    };
    if let Err(error) = written.and_then(|()| fs::rename(&partial, &args.out).map_err(Into::into)) {
        // The reason is the error that came first.
        let _ = fs::remove_file(&partial);
        return Err(failed(&error));
    }
    for tensor in left_out {
        eprintln!("left out {}: the format has no type for {}", tensor.name, type_name(tensor.dtype));
    }
    let size = fs::metadata(&args.out).map_or(0, |metadata| metadata.len());
    println!("{} tensors in {}, {}", tensors.len(), args.out.display(), readable_bytes(size));
    Ok(())
}

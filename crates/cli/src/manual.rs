//! `ferroflow man`: the pages of the manual, one per command, from the definition that `--help` shows.

use clap::CommandFactory;
use clap_mangen::{Man, generate_to};
use std::path::PathBuf;
use std::{fs, io};

/// Arguments of `ferroflow man`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write a page per command into this directory, e.g. ~/.local/share/man/man1; without it the first page is printed
    #[arg(value_name = "DIR")]
    directory: Option<PathBuf>,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    let command = crate::Cli::command();
    match &args.directory {
        None => Man::new(command).render(&mut io::stdout()).map_err(|error| error.to_string()),
        Some(directory) => fs::create_dir_all(directory)
            .and_then(|()| generate_to(command, directory))
            .map_err(|error| format!("cannot write the manual to {}: {error}", directory.display())),
    }
}

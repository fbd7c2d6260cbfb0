//! `ferroflow submit`: a training job for a cluster's manager, written to a file and handed over to the manager's tool.

mod condor;
mod kubernetes;
mod names;
mod slurm;
mod yaml;

use crate::flag_value;
use crate::local::described;
use crate::placeholders;
use ferroflow::discovery::{Count, Topology};
use std::fs;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Arguments of `ferroflow submit`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    manager: Manager,
}

#[derive(clap::Subcommand)]
enum Manager {
    /// Write a batch script for Slurm and submit it with sbatch
    Slurm(slurm::Args),
    /// Write a submit file for HTCondor and submit it with condor_submit
    Condor(condor::Args),
    /// Write manifests for Kubernetes and apply them with kubectl
    #[command(alias = "kubernetes")]
    K8s(kubernetes::Args),
}

/// The word that says that no job is served.
const NOBODY: &str = "none";

/// Arguments that every manager has.
#[derive(clap::Args)]
struct Training {
    /// Jobs of the cluster with their sizes, in the order of ranks: chief:1,ps:2,worker:3
    #[arg(long, value_name = "JOBS", value_parser = flag_value::parse::<Topology>)]
    jobs: Topology,

    /// Name of the training [default: made from the program's]
    #[arg(long)]
    name: Option<String>,

    /// Directory for the file, and for what the tasks print
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// How often a task is started again after a failure that may pass (exit code 75, or 128 and more)
    #[arg(long, value_name = "N", default_value_t = 3)]
    restarts: u32,

    /// Jobs whose tasks are Ferroflow servers instead of running the program; `none` if the program serves its parameters
    /// itself
    #[arg(long, value_name = "JOBS", value_delimiter = ',', default_value = "ps")]
    serve: Vec<String>,

    /// Write the file, and do not submit it
    #[arg(long)]
    dry_run: bool,

    /// Overwrite a file of the same name that is different, without asking
    #[arg(long, visible_alias = "yes", short_alias = 'y')]
    force: bool,

    /// Program with its arguments, in which {job}, {task} and other words are filled in (see `ferroflow join --help`);
    /// without a program all tasks are servers
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), String> {
    match &args.manager {
        Manager::Slurm(args) => slurm::run(args),
        Manager::Condor(args) => condor::run(args),
        Manager::K8s(args) => kubernetes::run(args),
    }
}

impl Training {
    /// Every job's size; managers must know how many tasks they start.
    fn sizes(&self) -> Result<Vec<(&str, u32)>, String> {
        let size = |(job, count)| match count {
            Count::Tasks(count) => Ok((job, count)),
            Count::Rest => {
                Err(format!("--jobs: {} leaves open how many tasks job {job} has; write a number", self.jobs))
            }
        };
        self.jobs.jobs().map(size).collect()
    }

    /// The jobs whose tasks serve although there is a program.
    fn served(&self) -> Result<Vec<&str>, String> {
        match self.serve.as_slice() {
            // Not every training has parameter servers, and nobody has to say so.
            [only] if only == "ps" || only == NOBODY => {
                Ok(self.jobs.jobs().map(|(job, _)| job).filter(|job| job == only).collect())
            }
            named => {
                let known = |name: &&String| self.jobs.jobs().any(|(job, _)| job == *name);
                match named.iter().find(|name| !known(name)) {
                    Some(unknown) => {
                        Err(format!("--serve: there is no job {unknown}, the jobs are {}", self.jobs))
                    }
                    None => Ok(named.iter().map(String::as_str).collect()),
                }
            }
        }
    }

    /// The words by which every task joins: its jobs, and which of them serve.
    fn joining(&self) -> Result<Vec<String>, String> {
        placeholders::check(&self.program)?;
        let served = self.served()?;
        let mut words = vec!["--jobs".to_owned(), self.jobs.to_string()];
        if !served.is_empty() && !self.program.is_empty() {
            words.extend(["--serve".to_owned(), served.join(",")]);
        }
        Ok(words)
    }

    /// The name as a label of DNS: the one that was given, or made from the program's.
    fn label(&self) -> Result<String, String> {
        if let Some(name) = &self.name {
            return names::label(name).map_err(|error| format!("--name: {error}"));
        }
        // The script says more than the interpreter that runs it.
        let script = self.program.iter().map(Path::new).find(|word| word.extension().is_some());
        let program = script.or(self.program.first().map(Path::new));
        let stem = program.and_then(Path::file_stem).and_then(|stem| stem.to_str());
        Ok(stem.and_then(|stem| names::label(stem).ok()).unwrap_or_else(|| "ferroflow".to_owned()))
    }

    /// The directory as every machine sees it.
    fn directory(&self) -> Result<PathBuf, String> {
        fs::create_dir_all(&self.dir)
            .and_then(|()| self.dir.canonicalize())
            .map_err(|error| format!("cannot use the directory {}: {error}", self.dir.display()))
    }

    /// Writes the file, and hands it to the manager's tool unless that is not wanted.
    fn hand_over(&self, file: &str, text: &str, tool: &Tool<'_>) -> Result<PathBuf, String> {
        let program = match (self.dry_run, on_path(tool.command[0])) {
            (false, None) => {
                let command = tool.command[0];
                return Err(format!(
                    "{command} is not on the PATH: run this where {} (it comes with {}), or write the file alone with \
                     --dry-run",
                    tool.place, tool.package
                ));
            }
            (_, program) => program,
        };
        let path = self.directory()?.join(file);
        self.may_write(&path, text)?;
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("Wrote {}", path.display());
        let shown = format!("{} {}", tool.command.join(" "), slurm::quote(&path.display().to_string()));
        let program = match program {
            Some(program) if !self.dry_run => program,
            _ => {
                println!("Submit it with: {shown}");
                return Ok(path);
            }
        };
        let status = Command::new(program)
            .args(&tool.command[1..])
            .arg(&path)
            .status()
            .map_err(|error| format!("cannot start {}: {error}", tool.command[0]))?;
        match status.success() {
            true => Ok(path),
            false => Err(format!("{shown} failed with {}", described(status))),
        }
    }

    /// Asks before a file is overwritten that somebody may have changed by hand.
    fn may_write(&self, path: &Path, text: &str) -> Result<(), String> {
        let differs = match fs::read(path) {
            Ok(there) => there != text.as_bytes(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(format!("cannot read {}, which is there: {error}", path.display())),
        };
        if !differs || self.force {
            return Ok(());
        }
        let shown = path.display();
        let refusal = format!(
            "{shown} is there already and differs; overwrite it with --force, or choose another --name"
        );
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(refusal);
        }
        eprint!("{shown} is there already and differs. Overwrite it? [y/N] ");
        let _ = io::stderr().flush();
        let mut answer = String::new();
        let _ = io::stdin().lock().read_line(&mut answer);
        match answer.trim() {
            "y" | "Y" | "yes" => Ok(()),
            _ => Err(format!("{shown} was not overwritten")),
        }
    }
}

/// The command that takes a file over.
struct Tool<'a> {
    /// The command with its first arguments.
    command: &'a [&'a str],
    /// The end of a sentence: run this where …
    place: &'a str,
    /// The package to install.
    package: &'a str,
}

/// This binary, by a path that holds on every machine that shares the file system.
fn own_binary() -> Result<String, String> {
    let path = std::env::current_exe().map_err(|error| format!("cannot find this binary: {error}"))?;
    path.into_os_string()
        .into_string()
        .map_err(|path| format!("the path {} is not valid UTF-8", path.display()))
}

fn on_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(tool)).find(|file| file.is_file())
}

/// Checks a value that is written into a line of its own.
fn one_word(flag: &str, value: &str) -> Result<(), String> {
    match value.is_empty() || value.contains(|c: char| c.is_whitespace() || c.is_control()) {
        true => Err(format!("{flag}: '{value}' must be one word")),
        false => Ok(()),
    }
}

/// Reads the flags of one manager, as the tests of each need them.
#[cfg(test)]
fn parsed<'a, A: clap::Args>(words: impl IntoIterator<Item = &'a str>) -> A {
    let words = std::iter::once("submit").chain(words);
    let matches = A::augment_args(clap::Command::new("submit")).try_get_matches_from(words);
    A::from_arg_matches(&matches.expect("the flags are right")).expect("the flags are right")
}

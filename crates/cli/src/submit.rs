//! `ferroflow submit`: a training job for a cluster's manager, written to a file and handed over where the tool is there.

mod condor;
mod kubernetes;
mod names;
mod slurm;
mod yaml;

use ferroflow::discovery::{Count, Topology};
use std::fs;
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

/// What every manager is told.
#[derive(clap::Args)]
struct Training {
    /// The jobs of the cluster with their sizes, in the order of ranks: chief:1,ps:2,worker:3
    #[arg(long, value_name = "JOBS")]
    jobs: Topology,

    /// The name of the training [default: the program's]
    #[arg(long)]
    name: Option<String>,

    /// Where the file is written, and what the tasks print
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// How many times a failure that may pass (exit codes from 128) is tried again
    #[arg(long, value_name = "N", default_value_t = 3)]
    restarts: u32,

    /// Jobs whose tasks are servers of ours instead of running the program, e.g. ps
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    serve: Vec<String>,

    /// Write the file only
    #[arg(long)]
    dry_run: bool,

    /// The program with its arguments, in which {job} and {task} are filled in; tasks without a program are servers
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
                Err(format!("how many tasks does job {job} have? --jobs {} leaves it open", self.jobs))
            }
        };
        self.jobs.jobs().map(size).collect()
    }

    /// The words by which every task joins: its jobs, and which of them serve.
    fn joining(&self) -> Result<Vec<String>, String> {
        if let Some(stranger) =
            self.serve.iter().find(|serving| self.jobs.jobs().all(|(job, _)| job != *serving))
        {
            return Err(format!("--serve: there is no job {stranger}, the jobs are {}", self.jobs));
        }
        let mut words = vec!["--jobs".to_owned(), self.jobs.to_string()];
        if !self.serve.is_empty() {
            words.extend(["--serve".to_owned(), self.serve.join(",")]);
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

    /// Writes the file, and hands it to the manager's tool unless it is not there or not wanted.
    fn hand_over(&self, file: &str, text: &str, tool: &[&str]) -> Result<PathBuf, String> {
        let path = self.directory()?.join(file);
        fs::write(&path, text).map_err(|error| format!("cannot write {}: {error}", path.display()))?;
        println!("Wrote {}", path.display());
        let shown = format!("{} {}", tool.join(" "), path.display());
        if self.dry_run {
            println!("Submit it with: {shown}");
            return Ok(path);
        }
        let Some(program) = on_path(tool[0]) else {
            println!("{} is not on this machine's PATH. Where it is, submit with: {shown}", tool[0]);
            return Ok(path);
        };
        let status = Command::new(program)
            .args(&tool[1..])
            .arg(&path)
            .status()
            .map_err(|error| format!("cannot start {}: {error}", tool[0]))?;
        match status.success() {
            true => Ok(path),
            false => Err(format!("{shown} failed: {status}")),
        }
    }
}

/// This binary, by a path that holds on every machine that shares the file system.
fn own_binary() -> Result<String, String> {
    let path = std::env::current_exe().map_err(|error| format!("where is this program? {error}"))?;
    path.into_os_string().into_string().map_err(|path| format!("the path {} is no text", path.display()))
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

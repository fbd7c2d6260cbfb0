//! `ferroflow submit`: a training job for a cluster's manager, written to a file and handed over to the manager's tool.

mod condor;
mod kubernetes;
mod names;
mod slurm;
mod yaml;

use crate::flag_value;
use crate::local::described;
use crate::own_command::own_path;
use crate::placeholders;
use crate::python_servers::PythonServers;
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

/// The value of `--serve` for which no job is served.
const NO_JOB: &str = "none";

/// Arguments that every manager has.
#[derive(clap::Args)]
struct Training {
    /// Run these jobs, given with their sizes in the order of ranks: chief:1,ps:2,worker:3
    #[arg(long, value_name = "JOBS", value_parser = flag_value::parse::<Topology>)]
    jobs: Topology,

    /// Name the training [default: made from the program's name]
    #[arg(long)]
    name: Option<String>,

    /// Write the file, and the output of the tasks, to this directory
    #[arg(long, value_name = "DIR", default_value = ".")]
    dir: PathBuf,

    /// Start a task again up to this many times after a failure that may pass (exit code 75, or 128 and more)
    #[arg(long, value_name = "N", default_value_t = 3)]
    restarts: u32,

    /// Serve the tasks of these jobs instead of running the program for them; `none` if the program serves its parameters
    /// itself
    #[arg(long, value_name = "JOBS", value_delimiter = ',', default_value = "ps")]
    serve: Vec<String>,

    /// Write the file, and do not submit it
    #[arg(long)]
    dry_run: bool,

    /// Overwrite a file of the same name that is different, without asking
    #[arg(long, visible_alias = "yes", short_alias = 'y')]
    force: bool,

    #[command(flatten)]
    python: PythonServers,

    /// Run this program, with its arguments, in which {job}, {task} and other words are filled in (see `ferroflow join
    /// --help`); without a program all tasks are servers
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
    /// Returns every job's size; managers must know the number of tasks that they start.
    fn sizes(&self) -> Result<Vec<(&str, u32)>, String> {
        let size = |(job, count)| match count {
            Count::Tasks(count) => Ok((job, count)),
            Count::Rest => Err(format!(
                "--jobs: {} leaves the number of tasks of job {job} open; write a number",
                self.jobs
            )),
        };
        self.jobs.jobs().map(size).collect()
    }

    /// Returns the jobs whose tasks serve although there is a program.
    fn served(&self) -> Result<Vec<&str>, String> {
        match self.serve.as_slice() {
            // A training without parameter servers needs no flag for that.
            [only] if only == "ps" || only == NO_JOB => {
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

    /// Returns the arguments of `join` for every task: the jobs, and those of them that serve.
    fn joining(&self) -> Result<Vec<String>, String> {
        placeholders::check(&self.program)?;
        let served = self.served()?;
        let mut words = vec!["--jobs".to_owned(), self.jobs.to_string()];
        if !served.is_empty() && !self.program.is_empty() {
            words.extend(["--serve".to_owned(), served.join(",")]);
        }
        words.extend(self.python.flag().map(str::to_owned));
        Ok(words)
    }

    /// Returns the name as a label of DNS: the one that was given, or made from the program's.
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

    /// Returns the directory as every machine sees it.
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
        if !status.success() {
            return Err(format!("{shown} failed with {}", described(status)));
        }
        Ok(path)
    }

    /// Asks before a file is overwritten that may have been changed by hand.
    fn may_write(&self, path: &Path, text: &str) -> Result<(), String> {
        let differs = match fs::read(path) {
            Ok(there) => there != text.as_bytes(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => false,
            Err(error) => return Err(format!("cannot read {}, which exists: {error}", path.display())),
        };
        if !differs || self.force {
            return Ok(());
        }
        let shown = path.display();
        let refusal =
            format!("{shown} exists and differs; overwrite it with --force, or choose another --name");
        if !(io::stdin().is_terminal() && io::stderr().is_terminal()) {
            return Err(refusal);
        }
        eprint!("{shown} exists and differs. Overwrite it? [y/N] ");
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

/// Returns the path of this binary, which holds on every machine that shares the file system.
fn own_binary() -> Result<String, String> {
    own_path()?
        .into_os_string()
        .into_string()
        .map_err(|path| format!("the path {} is not valid UTF-8", path.display()))
}

fn on_path(tool: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|directory| directory.join(tool)).find(|file| file.is_file())
}

/// Checks a value that is written into a line of its own.
fn one_word(flag: &str, value: &str) -> Result<(), String> {
    if value.is_empty() || value.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err(format!("{flag}: '{value}' is not one word; leave out spaces"));
    }
    Ok(())
}

/// Reads the flags of one manager, as the tests of each need them.
#[cfg(test)]
fn parsed<'a, A: clap::Args>(words: impl IntoIterator<Item = &'a str>) -> A {
    let words = std::iter::once("submit").chain(words);
    let matches = A::augment_args(clap::Command::new("submit")).try_get_matches_from(words);
    A::from_arg_matches(&matches.expect("the flags are right")).expect("the flags are right")
}

//! `ferroflow demo`: a real cluster of processes on this machine trains a classifier of handwritten digits.

mod model;
mod progress;
mod report;
mod worker;

use crate::exit::{self, Failure};
use crate::local::{Event, LocalCluster, Port, Stream, short};
use crate::tasks::serve_command;
use ferroflow::TaskName;
use ferroflow::train::latest_checkpoint;
use model::Model;
use progress::Progress;
use report::Report;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

/// The digits travel with the binary, so that it runs anywhere.
const DIGITS: &[u8] = include_bytes!("../../../examples/data/digits.csv.gz");

/// How long nothing may happen before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// Arguments of `ferroflow demo`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Parameter servers
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    ps: u32,

    /// Workers
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,

    /// Average the gradients of all workers in every step instead of applying them as they come
    #[arg(long)]
    sync: bool,

    /// Steps to train
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(i64).range(1..))]
    steps: i64,

    /// The classifier
    #[arg(long, value_enum, default_value_t = Model::Mlp)]
    model: Model,

    /// Where checkpoints and TensorBoard's events go, below the classifier's name
    #[arg(long, default_value = "ferroflow-demo")]
    dir: PathBuf,
}

/// Arguments of a worker's process, which `ferroflow demo` starts.
#[derive(clap::Args)]
pub(crate) struct Task {
    #[arg(long)]
    cluster: String,
    #[arg(long)]
    task_index: u32,
    #[arg(long)]
    sync: bool,
    #[arg(long)]
    last_step: i64,
    #[arg(long, value_enum)]
    model: Model,
    #[arg(long)]
    dir: PathBuf,
}

pub(crate) fn run_task(task: &Task) -> Result<(), String> {
    crate::logging::start(tracing::level_filters::LevelFilter::INFO);
    worker::run(task).map_err(|status| status.to_string())
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let began = Instant::now();
    // Each classifier resumes from checkpoints of its own.
    let dir = args.dir.join(args.model.name());
    let first = first_step(&dir)?;
    let last = first + args.steps;
    let cluster = start(args, &dir, last)?;
    println!(
        "{} and {} train a classifier of handwritten digits.",
        counted(args.ps, "parameter server"),
        counted(args.workers, "worker")
    );
    cluster.hear_signals()?;
    watch(cluster, args, Progress::new(first, last))?;
    println!("Checkpoints and events are in {}; look at them with: tensorboard --logdir {0}", dir.display());
    println!("Everything has ended after {:.1} s.", began.elapsed().as_secs_f64());
    Ok(())
}

/// The step that a checkpoint of an earlier run has reached.
fn first_step(dir: &Path) -> Result<i64, String> {
    let failed = |error: ferroflow::Status| format!("{}: {}", dir.display(), error.message());
    let Some(checkpoint) = latest_checkpoint(dir).map_err(failed)? else { return Ok(0) };
    let step = checkpoint.rsplit_once('-').and_then(|(_, step)| step.parse().ok());
    let step = step.ok_or_else(|| format!("the name of {checkpoint} does not end with its step"))?;
    println!("Resuming from step {step}, saved in {checkpoint}.");
    Ok(step)
}

fn start(args: &Args, dir: &Path, last: i64) -> Result<LocalCluster, String> {
    let binary = std::env::current_exe().map_err(|error| format!("cannot find this binary: {error}"))?;
    let jobs = [("ps", args.ps), ("worker", args.workers)];
    let names =
        jobs.into_iter().flat_map(|(job, count)| (0..count).map(move |task| TaskName::new(job, task)));
    let tasks: Vec<(TaskName, Port)> = names.map(|name| (name, Port::HandedOver)).collect();
    let mut cluster = LocalCluster::open(&tasks)?;
    for (task, (name, _)) in tasks.iter().enumerate() {
        let command = if name.job == "ps" {
            serve_command(name, cluster.spec(), "info")?
        } else {
            let mut command = Command::new(&binary);
            command.args(["demo-worker", "--task-index", &name.task.to_string()]);
            command.args(["--last-step", &last.to_string(), "--model", args.model.name()]);
            command.arg("--dir").arg(dir);
            command.args(args.sync.then_some("--sync"));
            command.args(["--cluster", &cluster.spec().to_json()]);
            command
        };
        cluster.start(task, command)?;
    }
    Ok(cluster)
}

/// Follows the workers until all are done, then ends the parameter servers.
fn watch(mut cluster: LocalCluster, args: &Args, mut progress: Progress) -> Result<(), Failure> {
    let mut working = args.workers;
    let (mut failed, mut interrupted) = (None, None);
    while working > 0 && failed.is_none() && interrupted.is_none() {
        match cluster.next_event(Some(Instant::now() + PATIENCE)) {
            None => failed = Some(format!("nothing has happened for {} s", PATIENCE.as_secs())),
            Some(Event::Line { stream: Stream::Error, .. }) => {}
            Some(Event::Signal(signal)) => interrupted = Some(signal),
            Some(Event::Line { text, .. }) => match Report::read(&String::from_utf8_lossy(&text)) {
                Some(Report::Started) => progress.begin(),
                Some(Report::Trained { step, loss }) => progress.trained(step, loss),
                Some(Report::Judged { accuracy }) => progress.judged(accuracy),
                None => {}
            },
            Some(Event::Ended { task, status }) if status.success() => {
                // Workers that close their sessions later are told at once that this one is gone.
                cluster.close(task);
                working -= u32::from(cluster.name(task).job == "worker");
            }
            Some(Event::Ended { task, status }) => {
                let name = short(cluster.name(task));
                failed = Some(format!("{name} ended with {status}:\n{}", cluster.log(task)));
            }
        }
    }
    let (rate, accuracy, step) = (progress.rate(), progress.accuracy(), progress.step());
    progress.finish();
    for name in cluster.stop() {
        println!("{name} did not end when it was asked to and was killed.");
    }
    if let Some(signal) = interrupted {
        println!("Interrupted at step {step}; the same command goes on from the last checkpoint.");
        return Err(Failure::told(exit::of_signal(signal)));
    }
    if let Some(failure) = failed {
        return Err(failure.into());
    }
    let accuracy = accuracy.ok_or("no worker has judged the model")?;
    println!("Held-out accuracy {:.1} % at {rate:.0} steps per second.", accuracy * 100.0);
    Ok(())
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

//! `ferroflow demo`: a real cluster of processes on this machine trains a classifier of handwritten digits.

mod goal;
mod model;
mod progress;
mod report;
mod worker;

use crate::exit::{self, Failure};
use crate::local::{Event, LocalCluster, Port, described, short};
use crate::own_command::own_command;
use crate::tasks::serve_command;
use ferroflow::TaskName;
use ferroflow::train::latest_checkpoint;
use goal::Goal;
use model::Model;
use progress::Progress;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The longest silence of all tasks before the demonstration gives up.
const PATIENCE: Duration = Duration::from_secs(60);

/// The time that the chief has to save the model when the user interrupts.
const SAVE_WITHIN: Duration = Duration::from_secs(20);

/// Arguments of `ferroflow demo`.
#[derive(clap::Args)]
#[command(
    after_help = "Ctrl-C saves the model; the same command then goes on to the same last step. Once that is reached, \
another run trains as many steps more."
)]
pub(crate) struct Args {
    /// Start this many parameter servers
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=16))]
    ps: u32,

    /// Start this many workers
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=16))]
    workers: u32,

    /// Average the gradients of all workers in every step instead of applying them as they come
    #[arg(long)]
    sync: bool,

    /// Train this many steps
    #[arg(long, value_name = "N", default_value_t = 2000, value_parser = clap::value_parser!(i64).range(1..))]
    steps: i64,

    /// Train this classifier
    #[arg(long, value_enum, default_value_t = Model::Mlp)]
    model: Model,

    /// Write checkpoints and TensorBoard's events below this directory, in one named like the classifier
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
    let resumed = saved_step(&dir)?;
    let first = resumed.as_ref().map_or(0, |(step, _)| *step);
    let last = Goal::choose(&dir, first, args.steps)?.last;
    if let Some((step, checkpoint)) = resumed {
        println!("Resuming from step {step}, saved in {checkpoint}; training to step {last}.");
    }
    let cluster = start(args, &dir, last)?;
    println!(
        "{} and {} train a classifier of handwritten digits.",
        counted(args.ps, "parameter server"),
        counted(args.workers, "worker")
    );
    cluster.hear_signals()?;
    watch(cluster, args, &dir, Progress::new(first, last))?;
    Goal::reached(&dir);
    println!("Checkpoints and events are in {0}; to look at them: tensorboard --logdir {0}", dir.display());
    println!("Done after {:.1} s.", began.elapsed().as_secs_f64());
    Ok(())
}

/// Returns the step of the latest checkpoint, and its path.
fn saved_step(dir: &Path) -> Result<Option<(i64, String)>, String> {
    let failed = |error: ferroflow::Status| format!("{}: {}", dir.display(), error.message());
    let Some(checkpoint) = latest_checkpoint(dir).map_err(failed)? else { return Ok(None) };
    let step = checkpoint.rsplit_once('-').and_then(|(_, step)| step.parse().ok());
    let step = step.ok_or_else(|| {
        format!("the name of {checkpoint} does not end with its step; choose another directory with --dir")
    })?;
    Ok(Some((step, checkpoint)))
}

fn start(args: &Args, dir: &Path, last: i64) -> Result<LocalCluster, String> {
    let jobs = [("ps", args.ps), ("worker", args.workers)];
    let names =
        jobs.into_iter().flat_map(|(job, count)| (0..count).map(move |task| TaskName::new(job, task)));
    let tasks: Vec<(TaskName, Port)> = names.map(|name| (name, Port::HandedOver)).collect();
    let mut cluster = LocalCluster::open(&tasks)?;
    for (task, (name, _)) in tasks.iter().enumerate() {
        let command = if name.job == "ps" {
            serve_command(name, cluster.spec(), "info")?
        } else {
            let mut command = own_command()?;
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
fn watch(mut cluster: LocalCluster, args: &Args, dir: &Path, mut progress: Progress) -> Result<(), Failure> {
    let mut working = args.workers;
    let (mut failed, mut interrupted) = (None, None);
    while working > 0 && failed.is_none() && interrupted.is_none() {
        match cluster.next_event(Some(Instant::now() + PATIENCE)) {
            None => failed = Some(format!("nothing has happened for {} s", PATIENCE.as_secs())),
            Some(Event::Signal(signal)) => interrupted = Some(signal),
            Some(Event::Line { stream, text, .. }) => progress.hear(stream, &text),
            Some(Event::Ended { task, status }) if status.success() => {
                // Workers that close their sessions later are told at once that this one is gone.
                cluster.close(task);
                working -= u32::from(cluster.name(task).job == "worker");
            }
            Some(Event::Ended { task, status }) => {
                let name = short(cluster.name(task));
                failed = Some(format!("{name} failed with {}:\n{}", described(status), cluster.log(task)));
            }
        }
    }
    if interrupted.is_some() {
        progress.note("Interrupted; saving the model. Ctrl-C again ends without.");
        save(&mut cluster, args.ps as usize, &mut progress);
    }
    let (rate, accuracy, last) = (progress.rate(), progress.accuracy(), progress.last());
    progress.finish();
    for name in cluster.stop() {
        println!("{name} did not end when it was asked to and was killed.");
    }
    if let Some(signal) = interrupted {
        match saved_step(dir)? {
            Some((step, _)) => println!("Saved at step {step}; the same command goes on to step {last}."),
            None => println!("Nothing was trained yet; the same command begins again."),
        }
        return Err(Failure::reported(exit::of_signal(signal)));
    }
    if let Some(failure) = failed {
        return Err(failure.into());
    }
    let accuracy = accuracy.ok_or("no worker has judged the model")?;
    let rate = rate.map(|rate| format!(" at {rate} steps per second")).unwrap_or_default();
    println!("Held-out accuracy {:.1} %{rate}.", accuracy * 100.0);
    Ok(())
}

/// Lets the chief, the first worker, save the model and end, while the others go on: in synchronous training it could not
/// finish its step without them.
fn save(cluster: &mut LocalCluster, chief: usize, progress: &mut Progress) {
    cluster.signal(chief, Signal::TERM);
    let deadline = Instant::now() + SAVE_WITHIN;
    while cluster.is_running(chief) {
        match cluster.next_event(Some(deadline)) {
            None | Some(Event::Signal(_)) => return,
            Some(Event::Line { stream, text, .. }) => progress.hear(stream, &text),
            Some(Event::Ended { .. }) => {}
        }
    }
}

fn counted(count: u32, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

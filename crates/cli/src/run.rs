//! `ferroflow run`: a program of the user on a cluster of this machine, from its start to its end.

use crate::exit::{self, Failure};
use crate::local::{Ending, Port, Supervisor, Task, Wait, short, with_parent};
use crate::placeholders;
use crate::python_servers::PythonServers;
use crate::tasks::{Jobs, hosts, serve_command};
use ferroflow::discovery::tf_config;
use ferroflow::{ClusterSpec, TaskName};
use rustix::process::Signal;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};
use tracing::level_filters::LevelFilter;

/// The time that programs have to end after another one has failed, and served tasks after the programs.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Arguments of `ferroflow run`.
#[derive(clap::Args)]
#[command(
    after_help = "In the program's arguments these words are replaced: {job}, {task}, {address} of the task, \
{ps_hosts}, {worker_hosts}, {chief_hosts} and {cluster}; write {{job}} for the text {job}. The program finds the same in \
TF_CONFIG.\n\n\
The run is over when the chief's program has ended, or without a chief those of all workers. The exit code is that of \
the first program that failed, else 0.\n\n\
With --coordinator the program runs once, as the chief of parameter servers and workers that are served, as programs with \
tf.distribute.ParameterServerStrategy expect it; --evaluator runs it once more, beside the cluster."
)]
pub(crate) struct Args {
    #[command(flatten)]
    jobs: Jobs,

    /// Run the program once, as the chief that coordinates: serve the workers, too, and go on without one that is lost
    #[arg(long, conflicts_with = "serve")]
    coordinator: bool,

    /// Start a task that failed again, up to this many times
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u32,

    /// Give the other programs this many seconds to end once the chief's program is done, and all of them after Ctrl-C
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    grace: u64,

    /// Write the output of each task to a file in this directory as well: ps-0.log, worker-0.log, …
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,

    /// Serve the tasks of this job, as those of `ps`, instead of running the program for them; may be repeated
    #[arg(long, value_name = "JOB")]
    serve: Vec<String>,

    /// Log served tasks at this level: error, warn, info, debug, trace or off
    #[arg(long, value_name = "LEVEL", default_value = "warn", env = "FERROFLOW_LOG")]
    log: LevelFilter,

    #[command(flatten)]
    python: PythonServers,

    /// Run this program, with its arguments
    #[arg(required = true, last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    placeholders::check(&args.program)?;
    let names: Vec<TaskName> =
        if args.coordinator { args.jobs.with_chief().tasks().collect() } else { args.jobs.tasks().collect() };
    let jobs = ["ps", "chief", "worker", "evaluator"];
    if let Some(unknown) = args.serve.iter().find(|job| !jobs.contains(&job.as_str())) {
        return Err(format!("--serve: there is no job {unknown}, expected one of {}", jobs.join(", ")).into());
    }
    let is_served =
        |job: &String| job == "ps" || (args.coordinator && job == "worker") || args.serve.contains(job);
    let is_program = |name: &TaskName| !is_served(&name.job);
    if args.coordinator
        && let Some(job) = ["ps", "worker"].iter().find(|job| !names.iter().any(|name| name.job == **job))
    {
        return Err(format!("--coordinator: there is no {job} to run on; ask for at least one").into());
    }
    // The job whose end is the end of the run.
    let deciding = ["chief", "worker", "evaluator"].into_iter().find(|job| {
        let of_job = |name: &&TaskName| name.job == *job && is_program(name);
        names.iter().any(|name| of_job(&name))
    });
    let Some(deciding) = deciding else {
        return Err("no task runs the program; ask for --workers or --chief, or start servers with \
                    'ferroflow up'"
            .into());
    };
    let task = |name: &TaskName| {
        let owned = name.clone();
        if is_program(name) {
            let port = if name.job == "evaluator" { Port::None } else { Port::Kept };
            let (program, python) = (args.program.clone(), args.python);
            let command = move |cluster: &_| program_command(&owned, cluster, &program, python);
            Task { name: name.clone(), port, command: Box::new(command) }
        } else {
            let log = args.log.to_string();
            let command = move |cluster: &_| serve_command(&owned, cluster, &log);
            Task { name: name.clone(), port: Port::HandedOver, command: Box::new(command) }
        }
    };
    let mut supervisor =
        Supervisor::start(names.iter().map(task).collect(), args.restarts, args.log_dir.as_deref())?;

    let running = |this: &Supervisor, chosen: &dyn Fn(&TaskName) -> bool| {
        names.iter().enumerate().any(|(task, name)| chosen(name) && this.is_running(task))
    };
    let shown = |_: usize, _, _: &[u8]| true;
    let decided = |this: &Supervisor| !running(this, &|name| name.job == deciding);
    let all_ended = |this: &Supervisor| !running(this, &is_program);
    let grace = Duration::from_secs(args.grace);
    // A coordinator gives the work of a lost worker to others.
    let dispensable = |task: usize| args.coordinator && names[task].job == "worker";
    let run = |supervisor: &mut Supervisor, wait: Wait<'_>, reached: &dyn Fn(&Supervisor) -> bool| {
        loop {
            match supervisor.run(wait, shown, reached)? {
                Ending::Failed { task, .. } if dispensable(task) => {
                    eprintln!("ferroflow: {}", going_on_without(&names[task]));
                }
                ending => return Ok::<_, String>(ending),
            }
        }
    };
    let mut ending = run(&mut supervisor, Wait::Ever, &decided)?;
    if ending == Ending::Reached {
        supervisor.no_more_restarts();
        let words = |this: &Supervisor| {
            let left = this.running(|task| is_program(&names[task]));
            (left, format!("still at work, and {deciding} is done"))
        };
        ending = run(&mut supervisor, Wait::Until(Instant::now() + grace, &words), &all_ended)?;
    }
    let programs = |_: &TaskName, port| port != Port::HandedOver;
    let (code, why) = match ending {
        Ending::Reached => (0, "the programs are done".to_owned()),
        Ending::TimeOver => {
            let why = format!("{deciding} is done, and --grace is over");
            supervisor.end(programs, Signal::TERM, END_WITHIN, &why)?;
            (0, why)
        }
        Ending::Failed { task, code } => {
            let why = format!("{} failed", short(&names[task]));
            supervisor.end(programs, Signal::TERM, END_WITHIN, &why)?;
            (code, why)
        }
        Ending::Signal(signal) => {
            let how = if signal == Signal::INT { "Ctrl-C" } else { "SIGTERM" };
            eprintln!("ferroflow: {how}: stopping the programs; once more to kill them");
            let why = format!("the run was interrupted by {how}");
            supervisor.end(programs, signal, grace, &why)?;
            (exit::of_signal(signal), why)
        }
    };
    supervisor.end(|_, _| true, Signal::TERM, END_WITHIN, &why)?;
    supervisor.summarize();
    if code == 0 { Ok(()) } else { Err(Failure::reported(code)) }
}

/// Tells that a served task is lost, which does not end the cluster.
pub(crate) fn going_on_without(task: &TaskName) -> String {
    format!("the cluster goes on without {}; --restarts N starts it again", short(task))
}

/// Makes the command of a task that runs the user's program.
pub(crate) fn program_command(
    name: &TaskName,
    cluster: &ClusterSpec,
    program: &[String],
    python: PythonServers,
) -> Result<Command, String> {
    let value = |placeholder: &str| Ok(value_of(placeholder, name, cluster));
    let filled = program.iter().map(|word| placeholders::fill(word, value));
    let filled: Vec<String> = filled.collect::<Result<_, _>>()?;
    let mut command = with_parent(&filled)?;
    command.env("TF_CONFIG", tf_config(name, cluster).to_string());
    python.apply(&mut command);
    if std::env::var_os("PYTHONUNBUFFERED").is_none() {
        // Lines are shown when they are written, not when a buffer is full.
        command.env("PYTHONUNBUFFERED", "1");
    }
    Ok(command)
}

/// Returns the value of a placeholder for a task.
fn value_of(placeholder: &str, name: &TaskName, cluster: &ClusterSpec) -> String {
    match placeholder {
        "job" => name.job.clone(),
        "task" => name.task.to_string(),
        "address" => cluster.address(name).unwrap_or_default().to_owned(),
        "cluster" => cluster.to_json(),
        lists => hosts(lists.trim_end_matches("_hosts"), cluster),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_have_the_values_of_the_task() {
        let mut cluster = ClusterSpec::new();
        cluster.add_hosts("ps", "a:1,b:1").unwrap();
        cluster.add_hosts("worker", "c:1").unwrap();
        let worker = TaskName::new("worker", 0);
        let filled = |word| placeholders::fill(word, |name| Ok(value_of(name, &worker, &cluster))).unwrap();
        assert_eq!(filled("--task={job}:{task}"), "--task=worker:0");
        assert_eq!(filled("{ps_hosts}"), "a:1,b:1");
        assert_eq!(filled("{worker_hosts}{chief_hosts} {address}"), "c:1 c:1");
        assert_eq!(filled("{cluster}"), r#"{"ps":["a:1","b:1"],"worker":["c:1"]}"#);
    }
}

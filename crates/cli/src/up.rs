//! `ferroflow up`: a cluster of servers on this machine, until Ctrl-C.

use crate::exit::Failure;
use crate::local::{self, Ending, Port, Supervisor, Task, Wait, short};
use crate::output::Output;
use crate::run::going_on_without;
use crate::tasks::{Jobs, serve_command};
use ferroflow::discovery::{PortChoice, ReservedPort, tf_config};
use ferroflow::{ClusterSpec, TaskName};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tracing::level_filters::LevelFilter;

/// The time that tasks have to start.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The time that tasks have to end.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Arguments of `ferroflow up`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    jobs: Jobs,

    /// Start a task that crashed again, up to this many times
    #[arg(long, value_name = "N", default_value_t = 0)]
    restarts: u32,

    /// Write the output of each task to a file in this directory as well: ps-0.log, worker-0.log, …
    #[arg(long, value_name = "DIR")]
    log_dir: Option<PathBuf>,

    /// Print the list of tasks in this format; JSON is one line
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t)]
    output: Output,

    /// Log at this level in the tasks: error, warn, info, debug, trace or off
    #[arg(long, value_name = "LEVEL", default_value = "warn", env = "FERROFLOW_LOG")]
    log: LevelFilter,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    let names: Vec<TaskName> = args.jobs.tasks().collect();
    if names.is_empty() {
        return Err("there is no task to start; ask for --ps or --workers".into());
    }
    let task = |name: &TaskName| {
        let (owned, log) = (name.clone(), args.log.to_string());
        let command = move |cluster: &_| serve_command(&owned, cluster, &log);
        Task { name: name.clone(), port: Port::HandedOver, command: Box::new(command) }
    };
    let mut supervisor =
        Supervisor::start(names.iter().map(task).collect(), args.restarts, args.log_dir.as_deref())?;
    let code = supervise(args, &names, &mut supervisor);
    supervisor.end(|_, _| true, Signal::TERM, END_WITHIN, "the cluster was ended")?;
    code
}

fn supervise(args: &Args, names: &[TaskName], supervisor: &mut Supervisor) -> Result<(), Failure> {
    if let Some(ending) = until_ready(names, supervisor)? {
        return ending;
    }
    // Kept as long as the cluster is there.
    let chief = chief_port(names)?;
    print(args.output, names, supervisor.spec(), chief.as_ref().map(ReservedPort::port));
    loop {
        // The addresses at which tasks listen have been printed.
        let ready = |_, stream, _: &[u8]| stream == local::Stream::Error;
        let all_gone = |this: &Supervisor| !(0..names.len()).any(|task| this.is_running(task));
        match supervisor.run(Wait::Ever, ready, all_gone)? {
            Ending::Signal(_) => return Ok(()),
            Ending::Failed { task, .. } => {
                eprintln!("ferroflow: {}", going_on_without(&names[task]));
            }
            Ending::Reached | Ending::TimeOver => return Err("every task has ended".into()),
        }
    }
}

/// Waits until every task serves; returns the outcome if that fails.
fn until_ready(
    names: &[TaskName],
    supervisor: &mut Supervisor,
) -> Result<Option<Result<(), Failure>>, Failure> {
    let ready = std::cell::RefCell::new(vec![false; names.len()]);
    let heard = |task: usize, stream, _: &[u8]| {
        if stream == local::Stream::Output {
            ready.borrow_mut()[task] = true;
        }
        stream == local::Stream::Error
    };
    let all_ready = |_: &Supervisor| ready.borrow().iter().all(|ready| *ready);
    let words = |_: &Supervisor| (slow(names, &ready.borrow()), "they have yet to listen".to_owned());
    match supervisor.run(Wait::Until(Instant::now() + READY_WITHIN, &words), heard, all_ready)? {
        Ending::Reached => Ok(None),
        Ending::Signal(_) => Ok(Some(Ok(()))),
        // It has been reported.
        Ending::Failed { code, .. } => Ok(Some(Err(Failure::reported(code)))),
        Ending::TimeOver => {
            let (slow, seconds) = (slow(names, &ready.borrow()), READY_WITHIN.as_secs());
            Err(format!("{slow} did not start within {seconds} s").into())
        }
    }
}

/// Returns the tasks that are not ready.
fn slow(names: &[TaskName], ready: &[bool]) -> String {
    let slow = names.iter().zip(ready).filter(|(_, ready)| !**ready);
    slow.map(|(name, _)| short(name)).collect::<Vec<_>>().join(", ")
}

/// Keeps a port for a coordinator, which is the chief of a cluster of parameter servers and workers and has a server of
/// its own.
fn chief_port(names: &[TaskName]) -> Result<Option<ReservedPort>, Failure> {
    let has = |job| names.iter().any(|name| name.job == job);
    if has("chief") || !has("ps") || !has("worker") {
        return Ok(None);
    }
    // Of all addresses, because that is where stock's servers listen.
    let port = ReservedPort::new(None, PortChoice::Any).map_err(|status| status.message().to_owned())?;
    Ok(Some(port))
}

fn print(format: Output, names: &[TaskName], cluster: &ClusterSpec, chief: Option<u16>) {
    let target = |name: &TaskName| format!("grpc://{}", cluster.address(name).unwrap_or_default());
    let coordinator = chief.and_then(|port| coordinator_config(cluster, port));
    if format == Output::Json {
        let task = |name: &TaskName| -> Value {
            json!({
                "job": name.job,
                "task": name.task,
                "target": target(name),
                "tf_config": tf_config(name, cluster),
            })
        };
        let tasks: Vec<Value> = names.iter().map(task).collect();
        let mut told = json!({ "cluster": cluster.to_value(), "tasks": tasks });
        if let Some(config) = coordinator {
            told["coordinator"] = json!({ "tf_config": config });
        }
        println!("{told}");
        return;
    }
    let width = names.iter().map(|name| short(name).len()).max().unwrap_or_default();
    for name in names {
        println!("{:width$}  {}  TF_CONFIG='{}'", short(name), target(name), tf_config(name, cluster));
    }
    if let Some(config) = coordinator {
        println!("A program with a tf.distribute.ParameterServerStrategy coordinates them as their chief:");
        println!("TF_CONFIG='{config}'");
    }
    println!("Ctrl-C ends the cluster.");
}

/// Makes the `TF_CONFIG` of a coordinator: the tasks' cluster, with itself as its chief.
fn coordinator_config(cluster: &ClusterSpec, port: u16) -> Option<Value> {
    let chief = TaskName::new("chief", 0);
    let mut with_chief = cluster.clone();
    with_chief.add(&chief.job, chief.task, &format!("127.0.0.1:{port}")).ok()?;
    Some(tf_config(&chief, &with_chief))
}

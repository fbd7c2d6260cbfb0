//! `ferroflow join`: a task that finds the others at a rendezvous, then runs a program or serves.

mod program;

use crate::exit::{self, Failure};
use crate::role_args::RoleArgs;
use crate::signals;
use ferroflow::discovery::rendezvous::{
    self, EndWith, Event, Host, Rendezvous, Seat, Socket, Stop, Url, meet_through_launcher,
};
use ferroflow::discovery::{Environment, PortChoice, Source, Topology, Wishes, pmi};
use ferroflow::{ClusterSpec, Server, ServerConfig};
use program::Program;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use tracing::level_filters::LevelFilter;

/// How long a program that is told to end may take, where nothing else says so.
const END_WITHIN: Duration = Duration::from_secs(5);

/// How long to wait for others whose start depends on a queue.
const QUEUED_TIMEOUT: u64 = 3600;
const TIMEOUT: u64 = 300;

/// Arguments of `ferroflow join`.
#[derive(clap::Args)]
#[command(
    after_help = "In the program's arguments these words are replaced: {job}, {task}, {address} of the task, \
{ps_hosts}, {worker_hosts}, {chief_hosts} and {cluster}. The program finds the same in TF_CONFIG. In the rendezvous, {run} \
stands for the name that a launcher gave to this launch.\n\n\
Exit codes: that of the program; 3 if tasks were told of different clusters, 4 if this task was started again elsewhere, \
75 if the others did not come in time; the code of another task that failed, where one failure ends all."
)]
pub(crate) struct Args {
    /// Where the tasks meet: file:///shared/dir/job-42 or tcp://host:port; not needed under a launcher that lets its
    /// processes exchange addresses, as srun --mpi=pmi2 and Hydra's mpiexec do
    #[arg(long, env = "FERROFLOW_RENDEZVOUS", value_name = "URL")]
    rendezvous: Option<String>,

    /// So many workers are enough, once all other tasks are there and no more workers come
    #[arg(long, visible_alias = "min_workers", value_name = "N")]
    min_workers: Option<u32>,

    /// Seconds to wait for the others, 0 for no limit; 300 by default, 3600 under HTCondor, whose jobs start one by one
    #[arg(long, visible_alias = "rendezvous_timeout", value_name = "SECONDS")]
    timeout: Option<u64>,

    /// Host, or host:port, by which others reach this task; by default it is found out
    #[arg(long, visible_alias = "advertise_host", value_name = "HOST")]
    advertise: Option<String>,

    /// Interface whose addresses to publish
    #[arg(long, value_name = "NAME", conflicts_with = "advertise")]
    interface: Option<String>,

    /// Port to serve on, or a range to choose from, as 20000-20099; any free one by default
    #[arg(long, visible_alias = "port_range", default_value = "0", hide_default_value = true)]
    port: PortChoice,

    /// Whose good end ends the tasks that serve others
    #[arg(long, value_enum, default_value_t = Whose::Chief)]
    end_with: Whose,

    /// Seconds that tasks which serve others stay for programs that still run when the chief is done
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    grace: u64,

    /// Whether the failure of one task ends all; by default, unless a manager starts single tasks again (HTCondor,
    /// Kubernetes)
    #[arg(long, visible_alias = "fail_fast", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    fail_fast: Option<bool>,

    /// How many seconds steps under way may take to finish after SIGTERM, in a task that serves others
    #[arg(long, value_name = "SECONDS", default_value_t = 5)]
    drain: u64,

    /// What to log: error, warn, info, debug, trace or off
    #[arg(long, default_value = "info", env = "FERROFLOW_LOG")]
    log: LevelFilter,

    #[command(flatten)]
    role: RoleArgs,

    /// Jobs whose tasks serve others instead of running the program, e.g. ps
    #[arg(long, value_name = "JOBS", value_delimiter = ',')]
    serve: Vec<String>,

    /// The program to run, with its arguments; without one the task serves others
    #[arg(last = true, value_name = "PROGRAM")]
    program: Vec<String>,
}

#[derive(Clone, Copy, clap::ValueEnum)]
enum Whose {
    /// The chief's, or the first worker's where there is none
    Chief,
    /// That of the last program
    Programs,
}

/// What can happen to a task that works.
enum Happened {
    Signal(Signal),
    Heard(Event),
    /// The program has ended.
    Exited,
}

/// How a task ends: its code, and what the others are told.
struct End {
    code: u8,
    reason: String,
    /// This process should say it, too.
    news: bool,
}

pub(crate) fn run(args: &Args) -> Result<(), Failure> {
    crate::logging::start(args.log);
    let (rendezvous, host) = rendezvous(args)?;
    let (sender, happened) = channel();
    let stop = Stop::default();
    let (told, stopping) = (sender.clone(), stop.clone());
    signals::hear(move |signal| {
        let heard = told.send(Happened::Signal(signal)).is_ok();
        stopping.stop();
        heard
    })?;
    let mut seat = rendezvous.enter_hosting(&stop, host).map_err(|failure| before(&failure, &happened))?;
    let cluster = match seat.wait() {
        Ok(cluster) => cluster,
        Err(failure) => {
            let failed = before(&failure, &happened);
            if matches!(failure, rendezvous::Failure::Stopped | rendezvous::Failure::Unusable(_)) {
                seat.leave(failed.code(), &failure.to_string());
            }
            return Err(failed);
        }
    };
    let socket = seat.take_socket();
    let events = sender.clone();
    seat.watch(move |event| drop(events.send(Happened::Heard(event)))).map_err(said)?;
    let end = match socket {
        Some(Socket::Listening(listener)) => serve(args, &seat, cluster, listener, &happened),
        // The port is kept while the program runs.
        kept => {
            let ended = run_program(args, &seat, &cluster, sender, &happened);
            drop(kept);
            ended
        }
    };
    let end = end.unwrap_or_else(|message| End { code: exit::PERMANENT, reason: message, news: true });
    if end.code != exit::SUPERSEDED {
        seat.leave(end.code, &end.reason);
    }
    match end {
        End { code: 0, .. } => Ok(()),
        End { code, reason, news: true } => Err(Failure::new(code, reason)),
        End { code, .. } => Err(Failure::told(code)),
    }
}

/// Where to join, as whom, under which conditions.
fn rendezvous(args: &Args) -> Result<(Rendezvous, Option<Host>), String> {
    let role = args.role.role(None)?;
    crate::serve::tell(&role);
    let environment = Environment::of_process();
    let condor = environment.get("_CONDOR_JOB_AD").is_some();
    let jobs = role.topology.clone().or(args.role.jobs.clone()).or_else(|| jobs_of(&role.cluster));
    let jobs = jobs.ok_or("which jobs does the cluster have? Add e.g. --jobs ps:1,worker:2")?;
    let (job, task) = match &args.role.job_name {
        Some(job) => (job.clone(), args.role.task_index),
        None if role.source == Source::Local => {
            return Err(format!("which job is this task of? Add --job and one of {jobs}"));
        }
        None => (role.task.job.clone(), Some(role.task.task)),
    };
    let (url, host) = match &args.rendezvous {
        Some(text) => (named(text, role.run_id.as_deref())?, None),
        None if pmi::is_offered() => {
            let (advertise, interface) = (args.advertise.as_deref(), args.interface.as_deref());
            let wishes = Wishes { advertise, interface, peer: None };
            meet_through_launcher(&wishes, args.port).map_err(said)?
        }
        None => {
            return Err("where do the tasks meet? Add --rendezvous file:///shared/dir/job-42 with a directory that all \
                        machines share, or --rendezvous tcp://host:port with one of the machines"
                .to_owned());
        }
    };
    if let Some(stranger) = args.serve.iter().find(|serving| jobs.jobs().all(|(job, _)| job != *serving)) {
        return Err(format!("--serve: there is no job {stranger}, the jobs are {jobs}"));
    }
    let program = !args.program.is_empty() && !args.serve.contains(&job);
    let timeout = args.timeout.unwrap_or(if condor { QUEUED_TIMEOUT } else { TIMEOUT });
    let rendezvous = Rendezvous {
        url,
        jobs,
        job,
        task,
        min_workers: args.min_workers,
        timeout: (timeout > 0).then(|| Duration::from_secs(timeout)),
        grace: Duration::from_secs(args.grace),
        end_with: match args.end_with {
            Whose::Chief => EndWith::Chief,
            Whose::Programs => EndWith::Programs,
        },
        fail_fast: args.fail_fast.unwrap_or(!condor && role.source != Source::Kubernetes),
        advertise: args.advertise.clone(),
        interface: args.interface.clone(),
        port: args.port,
        program,
        reserve: program,
    };
    Ok((rendezvous, host))
}

fn named(text: &str, run: Option<&str>) -> Result<Url, String> {
    let text = match (text.contains("{run}"), run) {
        (true, Some(run)) => text.replace("{run}", run),
        (true, None) => return Err(format!("nobody tells what {{run}} in {text} stands for; write a name")),
        (false, _) => text.to_owned(),
    };
    text.parse().map_err(|error| format!("--rendezvous: {}", said(error)))
}

/// The jobs of a cluster whose addresses somebody wrote down, although they are found out here.
fn jobs_of(cluster: &ClusterSpec) -> Option<Topology> {
    let mut jobs: BTreeMap<String, u32> = BTreeMap::new();
    for (task, _) in cluster.tasks() {
        let count = jobs.entry(task.job).or_default();
        *count = (*count).max(task.task + 1);
    }
    Topology::new(jobs.iter().map(|(job, count)| (job.as_str(), *count))).ok()
}

/// Serves until the work is done, somebody asks for an end, or another task fails.
fn serve(
    args: &Args,
    seat: &Seat,
    cluster: ClusterSpec,
    listener: std::net::TcpListener,
    happened: &Receiver<Happened>,
) -> Result<End, String> {
    let config = ServerConfig { task: seat.task(), cluster, ..ServerConfig::default() };
    let server = Server::start(config, ferroflow::registry(), vec![listener], std::future::pending())
        .map_err(|status| status.to_string())?;
    println!("Ferroflow {} serves {} at {}", env!("CARGO_PKG_VERSION"), server.task(), server.target());
    let end = loop {
        match happened.recv() {
            Ok(Happened::Heard(event)) => break of_event(event),
            Ok(Happened::Signal(signal)) => break drained(&server, signal, args.drain)?,
            Ok(Happened::Exited) => {}
            Err(_) => return Err("nobody is left to tell of the end".to_owned()),
        }
    };
    server.stop();
    tracing::info!("The server has ended.");
    Ok(end)
}

/// Lets steps under way finish. A task that is still needed then does not end well, but can be started again.
fn drained(server: &Server, signal: Signal, seconds: u64) -> Result<End, String> {
    tracing::info!(seconds, "Asked to end by signal {}; steps under way may finish.", signal.as_raw());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot wait for the steps under way: {error}"))?;
    let left = runtime.block_on(server.drain(Duration::from_secs(seconds)));
    if left > 0 {
        tracing::warn!(steps = left, "Steps that did not finish in time are cancelled.");
    }
    let needed = signal == Signal::TERM && server.has_sessions();
    let code = if needed { exit::of_signal(signal) } else { 0 };
    Ok(End { code, reason: "it was asked to end".to_owned(), news: false })
}

/// Runs the program until it ends, or until it has to.
fn run_program(
    args: &Args,
    seat: &Seat,
    cluster: &ClusterSpec,
    sender: Sender<Happened>,
    happened: &Receiver<Happened>,
) -> Result<End, String> {
    let task = seat.task();
    let program = Program::start(&args.program, &task, cluster, args.rendezvous.is_none(), sender)?;
    let mut decided: Option<End> = None;
    let mut deadline: Option<Instant> = None;
    loop {
        let next = match deadline {
            None => happened.recv().map_err(|_| "nobody is left to tell of the end".to_owned())?,
            Some(deadline) => {
                match happened.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
                    Ok(next) => next,
                    Err(_) => {
                        tracing::warn!("The program does not end and is killed.");
                        program.signal(Signal::KILL);
                        happened.recv().map_err(|error| error.to_string())?
                    }
                }
            }
        };
        match next {
            Happened::Exited => {
                let status = program.reap()?;
                let code = exit::of_status(status);
                let reason =
                    if code == 0 { String::new() } else { format!("the program ended with {status}") };
                return Ok(decided.unwrap_or(End { code, reason, news: false }));
            }
            Happened::Signal(signal) => {
                let again = deadline.is_some();
                program.signal(if again { Signal::KILL } else { signal });
                deadline.get_or_insert(Instant::now() + Duration::from_secs(args.grace).max(END_WITHIN));
            }
            // Programs of workers end by themselves; parameter servers wait for ever.
            Happened::Heard(Event::Ended(_)) if task.job != "ps" => {}
            Happened::Heard(event) => {
                decided = Some(of_event(event));
                program.signal(Signal::TERM);
                deadline.get_or_insert(Instant::now() + END_WITHIN);
            }
        }
    }
}

fn of_event(event: Event) -> End {
    match event {
        Event::Ended(reason) => {
            tracing::info!("The work is done: {reason}.");
            End { code: 0, reason: String::new(), news: false }
        }
        Event::Failed(failure) => End { code: code_of(&failure), reason: failure.to_string(), news: true },
        Event::Orphaned(reason) => End { code: exit::TIMED_OUT, reason, news: true },
    }
}

/// The failure of a task that is not part of a cluster yet.
fn before(failure: &rendezvous::Failure, happened: &Receiver<Happened>) -> Failure {
    match (failure, happened.try_recv()) {
        (rendezvous::Failure::Stopped, Ok(Happened::Signal(signal))) => {
            Failure::told(exit::of_signal(signal))
        }
        _ => Failure::new(code_of(failure), failure.to_string()),
    }
}

fn code_of(failure: &rendezvous::Failure) -> u8 {
    match failure {
        rendezvous::Failure::TimedOut(_) => exit::TIMED_OUT,
        rendezvous::Failure::Superseded(_) => exit::SUPERSEDED,
        rendezvous::Failure::Mismatch(_) => exit::MISMATCH,
        rendezvous::Failure::Peer(_, code) => *code,
        rendezvous::Failure::Stopped => exit::of_signal(Signal::TERM),
        rendezvous::Failure::Unusable(_) => exit::PERMANENT,
    }
}

fn said(status: ferroflow::Status) -> String {
    status.message().to_owned()
}

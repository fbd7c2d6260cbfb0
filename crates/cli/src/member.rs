//! A task that finds the others at a rendezvous, then runs a program or serves: `ferroflow join`, and
//! `ferroflow serve --rendezvous`.

mod program;

use crate::exit::{self, Failure};
use crate::local::described;
use crate::python_servers::PythonServers;
use crate::role_args::RoleArgs;
use crate::serve::Resources;
use crate::signals::{self, StatusSignals};
use ferroflow::discovery::meeting::{
    self, Change, EndWith, Event, Host, Meeting, Seat, Socket, Stop, Url, meet_through_launcher,
};
use ferroflow::discovery::{Environment, PortChoice, Source, Topology, Wishes, pmi};
use ferroflow::server::Listeners;
use ferroflow::{ClusterSpec, LoggedWait, Server, ServerConfig, TaskName};
use program::Program;
use rustix::process::Signal;
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// The time that a program has to end when it is asked to, where no flag says so.
const END_WITHIN: Duration = Duration::from_secs(5);

/// The seconds to wait for others whose start depends on a queue, and for others.
const QUEUED_TIMEOUT: u64 = 3600;
const TIMEOUT: u64 = 300;

/// Arguments about the meeting with other tasks.
#[derive(clap::Args)]
#[command(next_help_heading = "Meeting the other tasks")]
pub(crate) struct MeetingArgs {
    /// Meet the other tasks here: file:///shared/dir/job-42 or tcp://host:port; {run} stands for the name that a launcher
    /// gave to this launch
    #[arg(long, env = "FERROFLOW_RENDEZVOUS", value_name = "URL")]
    pub(crate) rendezvous: Option<String>,

    /// Start with this many workers, once all other tasks are there and no more workers come
    #[arg(long, visible_alias = "min_workers", value_name = "N")]
    min_workers: Option<u32>,

    /// Wait this many seconds for the others, 0 for no limit; 300 by default, 3600 under HTCondor, whose jobs start one by
    /// one
    #[arg(long, visible_aliases = ["rendezvous_timeout", "deadline"], value_name = "SECONDS")]
    timeout: Option<u64>,

    /// Publish this host, or host:port, as the one at which others reach this task; by default the machine's addresses
    #[arg(long, visible_alias = "advertise_host", value_name = "HOST")]
    advertise: Option<String>,

    /// Publish the addresses of this interface
    #[arg(long, value_name = "NAME", conflicts_with = "advertise")]
    interface: Option<String>,

    /// End all tasks when one fails; true by default, unless the manager starts single tasks again (HTCondor, Kubernetes)
    #[arg(long, visible_alias = "fail_fast", value_name = "BOOL", num_args = 0..=1, default_missing_value = "true")]
    fail_fast: Option<bool>,
}

impl MeetingArgs {
    /// Refuses flags that mean nothing to a task that does not meet others.
    pub(crate) fn refuse(&self) -> Result<(), String> {
        let given = [
            (self.min_workers.is_some(), "--min-workers"),
            (self.timeout.is_some(), "--timeout"),
            (self.advertise.is_some(), "--advertise"),
            (self.interface.is_some(), "--interface"),
            (self.fail_fast.is_some(), "--fail-fast"),
        ];
        match given.iter().find(|(given, _)| *given) {
            Some((_, flag)) => {
                Err(format!("{flag} is only for tasks that meet others; add --rendezvous, or leave it out"))
            }
            None => Ok(()),
        }
    }
}

/// The treatment of a program when a parameter server comes back elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum OnMove {
    /// Leave it running, with the old address
    Keep,
    /// End it and start it again, with the new address
    Restart,
}

/// A task that is to take part.
pub(crate) struct Member<'a> {
    pub(crate) meeting: &'a MeetingArgs,
    pub(crate) role: &'a RoleArgs,
    pub(crate) port: PortChoice,
    /// The address to listen on; all of them without one.
    pub(crate) bind: Option<IpAddr>,
    /// The share of the machine that a serving task may use.
    pub(crate) resources: &'a Resources,
    /// Signals by which operators ask what a task that serves is doing.
    pub(crate) status_signals: Option<&'a StatusSignals>,
    /// The tasks whose success ends the tasks that serve others.
    pub(crate) end_with: EndWith,
    /// The time that those stay for programs that still run.
    pub(crate) grace: Duration,
    /// The time that steps under way have to finish after SIGTERM.
    pub(crate) drain: Duration,
    /// CPU devices of a task that serves others.
    pub(crate) cpu_devices: usize,
    pub(crate) on_move: Option<OnMove>,
    /// Jobs whose tasks serve others instead of running the program.
    pub(crate) serve: &'a [String],
    /// The servers that a program in Python starts.
    pub(crate) python: PythonServers,
    /// Without one, the task serves others.
    pub(crate) program: &'a [String],
}

/// An event in the life of a task that works.
enum TaskEvent {
    Signal(Signal),
    Changed(Change),
    Meeting(Event),
    /// The program has ended.
    Exited,
}

/// The end of a task: its code, and the reason for the other tasks.
struct End {
    code: u8,
    reason: String,
    /// True if this process should print the reason, too.
    news: bool,
}

/// The outcome of a program.
enum Outcome {
    Ended(End),
    /// It was ended, to be started again with this cluster.
    Again(ClusterSpec),
}

impl Member<'_> {
    /// Takes part until the end.
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let (meeting, host) = self.meeting()?;
        // Where single tasks are started again, they may be so elsewhere.
        let default = if meeting.fail_fast { OnMove::Keep } else { OnMove::Restart };
        let on_move = self.on_move.unwrap_or(default);
        let (sender, task_events) = channel();
        let stop = Stop::default();
        let (signals, stopping) = (sender.clone(), stop.clone());
        signals::hear(move |signal| {
            let heard = signals.send(TaskEvent::Signal(signal)).is_ok();
            stopping.stop();
            heard
        })?;
        let mut seat =
            meeting.enter_hosting(&stop, host).map_err(|failure| before(&failure, &task_events))?;
        let cluster = match seat.wait() {
            Ok(cluster) => cluster,
            Err(failure) => {
                let failed = before(&failure, &task_events);
                // The others have been told of the other failures, or know them themselves.
                use meeting::Failure::{Peer, Stopped, Unusable};
                if matches!(failure, Stopped | Unusable(_) | Peer(..)) {
                    seat.leave(failed.code(), &failure.to_string());
                }
                return Err(failed);
            }
        };
        let socket = seat.take_socket();
        let (changes, events) = (sender.clone(), sender.clone());
        let changed = move |change| drop(changes.send(TaskEvent::Changed(change)));
        seat.watch(changed, move |event| drop(events.send(TaskEvent::Meeting(event)))).map_err(said)?;
        let end = match socket {
            Some(Socket::Listening(listeners)) => self.serve(&seat, cluster, listeners, &task_events),
            // The port is kept while the program runs.
            kept => {
                let ended = self.run_programs(&seat, cluster, on_move, &sender, &task_events);
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
            End { code, .. } => Err(Failure::reported(code)),
        }
    }

    /// Reads the flags and the environment: the place, this task and the conditions.
    fn meeting(&self) -> Result<(Meeting, Option<Host>), String> {
        let role = self.role.role(None)?;
        crate::serve::tell(&role);
        let environment = Environment::of_process();
        let condor = environment.get("_CONDOR_JOB_AD").is_some();
        let jobs = role.topology.clone().or(self.role.jobs.clone()).or_else(|| jobs_of(&role.cluster));
        let jobs = jobs.ok_or("the jobs of the cluster are not known; add e.g. --jobs ps:1,worker:2")?;
        let (job, task) = match &self.role.job_name {
            Some(job) => (job.clone(), self.role.task_index),
            None if role.source == Source::Local => {
                let names: Vec<&str> = jobs.jobs().map(|(job, _)| job).collect();
                return Err(format!(
                    "the job of this task is not known; add --job {}",
                    names.join(" or --job ")
                ));
            }
            None => (role.task.job.clone(), Some(role.task.task)),
        };
        let (url, host) = match &self.meeting.rendezvous {
            Some(text) => (named(text, role.run_id.as_deref())?, None),
            None if pmi::is_offered() => {
                let (advertise, interface) = (self.advertise(), self.meeting.interface.as_deref());
                let wishes = Wishes { advertise: advertise.as_deref(), interface, peer: None };
                meet_through_launcher(&wishes, self.port).map_err(said)?
            }
            None => {
                return Err("the place where the tasks meet is not known; add --rendezvous file:///shared/dir/job-42 with a directory that all \
                            machines share, or --rendezvous tcp://host:port with one of the machines"
                    .to_owned());
            }
        };
        if let Some(stranger) = self.serve.iter().find(|serving| jobs.jobs().all(|(job, _)| job != *serving))
        {
            return Err(format!("--serve: there is no job {stranger}, the jobs are {jobs}"));
        }
        let program = !self.program.is_empty() && !self.serve.contains(&job);
        let timeout = self.meeting.timeout.unwrap_or(if condor { QUEUED_TIMEOUT } else { TIMEOUT });
        let meeting = Meeting {
            url,
            jobs,
            job,
            task,
            min_workers: self.meeting.min_workers,
            timeout: (timeout > 0).then(|| Duration::from_secs(timeout)),
            grace: self.grace,
            end_with: self.end_with,
            fail_fast: self.meeting.fail_fast.unwrap_or(!condor && role.source != Source::Kubernetes),
            advertise: self.advertise(),
            bind: self.bind,
            interface: self.meeting.interface.clone(),
            port: self.port,
            program,
            reserve: program,
        };
        Ok((meeting, host))
    }

    /// Returns the address at which others reach this task, if the user names it or the only one that it listens on.
    fn advertise(&self) -> Option<String> {
        let only = self.bind.filter(|address| !address.is_unspecified() && self.meeting.interface.is_none());
        self.meeting.advertise.clone().or_else(|| only.map(|address| address.to_string()))
    }

    /// Serves until the work is done, a signal asks for an end, or another task fails.
    fn serve(
        &self,
        seat: &Seat,
        cluster: ClusterSpec,
        listeners: Listeners,
        task_events: &Receiver<TaskEvent>,
    ) -> Result<End, String> {
        let (task, epoch) = (seat.task(), seat.epoch());
        crate::serve::warn_of_exposure(&listeners.sockets);
        let cpu_devices = self.cpu_devices;
        let opens_sessions = false;
        let shares = self.resources.config()?;
        let config = ServerConfig { task, cluster, epoch, cpu_devices, opens_sessions, ..shares };
        self.resources.tell(&config);
        let server = Server::start(config, ferroflow::registry(), listeners, std::future::pending())
            .map_err(|status| status.to_string())?;
        if let Some(status_signals) = self.status_signals {
            status_signals.answer(server.whereabouts());
        }
        println!("Ferroflow {} serves {} at {}", env!("CARGO_PKG_VERSION"), server.task(), server.target());
        let end = loop {
            match task_events.recv() {
                Ok(TaskEvent::Changed(change)) => {
                    server.whereabouts().learn(&change.cluster, change.epoch).map_err(said)?;
                }
                Ok(TaskEvent::Meeting(event)) => break of_event(event),
                Ok(TaskEvent::Signal(signal)) => {
                    seat.begin_to_leave();
                    break drained(&server, signal, self.drain)?;
                }
                Ok(TaskEvent::Exited) => {}
                Err(_) => return Err("the threads that watch the task have ended".to_owned()),
            }
        };
        server.stop();
        tracing::info!("The server has ended.");
        Ok(end)
    }

    /// Runs the program until it ends by itself, or for good.
    fn run_programs(
        &self,
        seat: &Seat,
        mut cluster: ClusterSpec,
        on_move: OnMove,
        sender: &Sender<TaskEvent>,
        task_events: &Receiver<TaskEvent>,
    ) -> Result<End, String> {
        loop {
            match self.run_program(seat, &cluster, on_move, sender.clone(), task_events)? {
                Outcome::Ended(end) => return Ok(end),
                Outcome::Again(newer) => cluster = newer,
            }
        }
    }

    /// Runs the program until it ends, or until it has to.
    fn run_program(
        &self,
        seat: &Seat,
        cluster: &ClusterSpec,
        on_move: OnMove,
        sender: Sender<TaskEvent>,
        task_events: &Receiver<TaskEvent>,
    ) -> Result<Outcome, String> {
        let task = seat.task();
        let exchanged = self.meeting.rendezvous.is_none();
        let program = Program::start(self.program, self.python, &task, cluster, exchanged, sender)?;
        let mut decided: Option<Outcome> = None;
        let mut deadline: Option<Instant> = None;
        let mut waiting = LoggedWait::new();
        loop {
            let next = match deadline {
                None => {
                    task_events.recv().map_err(|_| "the threads that watch the task have ended".to_owned())?
                }
                Some(deadline) => {
                    let left = deadline.saturating_duration_since(Instant::now());
                    match task_events.recv_timeout(left.min(waiting.until_next())) {
                        Ok(next) => next,
                        Err(RecvTimeoutError::Timeout) if Instant::now() < deadline => {
                            waiting.log("the program", "it was asked to end");
                            continue;
                        }
                        Err(_) => {
                            tracing::warn!("The program does not end and is killed.");
                            program.signal(Signal::KILL);
                            task_events.recv().map_err(|error| error.to_string())?
                        }
                    }
                }
            };
            let asked = deadline.is_some();
            let mut end_within = |limit: Duration| {
                deadline.get_or_insert_with(|| {
                    waiting = LoggedWait::new();
                    Instant::now() + limit
                });
            };
            match next {
                TaskEvent::Exited => {
                    let status = program.reap()?;
                    let code = exit::of_status(status);
                    let reason = match code {
                        0 => String::new(),
                        _ => format!("the program failed with {}", described(status)),
                    };
                    return Ok(decided.unwrap_or(Outcome::Ended(End { code, reason, news: false })));
                }
                TaskEvent::Signal(signal) => {
                    program.signal(if asked { Signal::KILL } else { signal });
                    // A task that is asked to end is not started again.
                    decided = decided.filter(|decided| matches!(decided, Outcome::Ended(_)));
                    end_within(self.grace.max(END_WITHIN));
                }
                // Programs of workers end by themselves; parameter servers wait forever.
                TaskEvent::Meeting(Event::Ended(_)) if task.job != "ps" => {}
                TaskEvent::Changed(change) => match &mut decided {
                    Some(Outcome::Again(cluster)) => *cluster = change.cluster,
                    None if !asked && loses_variables(&task, &change) && on_move == OnMove::Restart => {
                        tracing::info!("The program is started again with the new addresses.");
                        decided = Some(Outcome::Again(change.cluster));
                        program.signal(Signal::TERM);
                        end_within(END_WITHIN);
                    }
                    None if loses_variables(&task, &change) => tracing::warn!(
                        "The program keeps the old addresses; with --on-move restart it is started again."
                    ),
                    None if task.job == "ps" && !change.moved.is_empty() => tracing::warn!(
                        "The program keeps the old addresses; with --serve ps Ferroflow serves the task and follows the move."
                    ),
                    _ => {}
                },
                TaskEvent::Meeting(event) => {
                    decided = Some(Outcome::Ended(of_event(event)));
                    program.signal(Signal::TERM);
                    end_within(END_WITHIN);
                }
            }
        }
    }
}

fn named(text: &str, run: Option<&str>) -> Result<Url, String> {
    let text = match (text.contains("{run}"), run) {
        (true, Some(run)) => text.replace("{run}", run),
        (true, None) => {
            return Err(format!(
                "--rendezvous: {text} has {{run}}, and no launcher gives it a value; write a name instead"
            ));
        }
        (false, _) => text.to_owned(),
    };
    text.parse().map_err(|error| format!("--rendezvous: {}", said(error)))
}

/// Returns the jobs of a cluster whose addresses are written down, although they are found out here.
fn jobs_of(cluster: &ClusterSpec) -> Option<Topology> {
    let mut jobs: BTreeMap<String, u32> = BTreeMap::new();
    for (task, _) in cluster.tasks() {
        let count = jobs.entry(task.job).or_default();
        *count = (*count).max(task.task + 1);
    }
    Topology::new(jobs.iter().map(|(job, count)| (job.as_str(), *count))).ok()
}

/// Returns whether a parameter server comes back elsewhere, without its variables, that a program of this task uses.
/// Programs use no workers but their own, and a restart would not help parameter servers whose workers move.
fn loses_variables(task: &TaskName, change: &Change) -> bool {
    task.job != "ps" && change.moved.iter().any(|moved| moved.job == "ps")
}

/// Lets steps under way finish. A task that is still needed then does not end well, but can be started again.
fn drained(server: &Server, signal: Signal, limit: Duration) -> Result<End, String> {
    let seconds = limit.as_secs();
    tracing::info!(seconds, "Asked to end by signal {}; steps under way may finish.", signal.as_raw());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("cannot wait for the steps under way: {error}"))?;
    let left = runtime.block_on(server.drain(limit));
    if left > 0 {
        tracing::warn!(steps = left, "Steps that did not finish in time are cancelled.");
    }
    let needed = signal == Signal::TERM && server.has_sessions();
    let code = if needed { exit::of_signal(signal) } else { 0 };
    Ok(End { code, reason: "it was asked to end".to_owned(), news: false })
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

/// Returns the failure of a task that is not part of a cluster yet.
fn before(failure: &meeting::Failure, task_events: &Receiver<TaskEvent>) -> Failure {
    match (failure, task_events.try_recv()) {
        (meeting::Failure::Stopped, Ok(TaskEvent::Signal(signal))) => {
            Failure::reported(exit::of_signal(signal))
        }
        _ => Failure::new(code_of(failure), failure.to_string()),
    }
}

fn code_of(failure: &meeting::Failure) -> u8 {
    match failure {
        meeting::Failure::TimedOut(_) => exit::TIMED_OUT,
        meeting::Failure::Taken(_) => exit::TAKEN,
        meeting::Failure::Superseded(_) => exit::SUPERSEDED,
        meeting::Failure::Mismatch(_) => exit::MISMATCH,
        meeting::Failure::Peer(_, code) => *code,
        meeting::Failure::Stopped => exit::of_signal(Signal::TERM),
        meeting::Failure::Unusable(_) => exit::PERMANENT,
    }
}

fn said(status: ferroflow::Status) -> String {
    status.message().to_owned()
}

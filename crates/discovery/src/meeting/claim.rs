//! A task's entry: its sockets, its number and its record.

use super::board::Board;
use super::control::{Control, reach, tell_to_look};
use super::file::FileBoard;
use super::form::leader;
use super::patience::Patience;
use super::record::{Cluster, Member, VERSION, address, seal, short};
use super::table::{Table, View};
use super::tcp::TcpBoard;
use super::wake::Wake;
use super::{Failure, Host, Meeting, Url};
use crate::advertise::{Advertised, Wishes, advertise};
use crate::{PortChoice, ReservedPort, listen_on};
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::{Code, Result, status};
use std::collections::{HashMap, HashSet};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A member that does not answer at all, neither yes nor no, is given up after so long.
const SILENCE: Duration = Duration::from_secs(10);

/// A task's place in a run. Others are told of its end by [`Seat::leave`].
pub struct Seat {
    pub(super) inner: Arc<Inner>,
    socket: Option<Socket>,
}

/// What a task was given to serve on.
#[derive(Debug)]
pub enum Socket {
    /// Connections wait there already.
    Listening(TcpListener),
    /// Kept for a program that listens by itself.
    Reserved(ReservedPort),
}

/// What the waiting, the watching and the leaving share.
pub(super) struct Inner {
    pub(super) options: Meeting,
    pub(super) run: String,
    pub(super) machine: String,
    pub(super) me: Member,
    pub(super) started: Instant,
    pub(super) wake: Arc<Wake>,
    /// Starts whose ends were on the board before this one began: they say nothing about this cluster.
    pub(super) bygone: HashSet<String>,
    pub(super) state: Mutex<State>,
    _control: Control,
}

/// What changes while a task is a member.
pub(super) struct State {
    pub(super) table: Table,
    /// The cluster that this task is part of, once there is one.
    pub(super) cluster: Option<Cluster>,
    /// By incarnation: the host that worked, and when it last did.
    pub(super) reached: HashMap<String, (String, Instant)>,
    /// Starts that are known to be gone.
    pub(super) dead: HashSet<String>,
    /// Since when nobody joined, and how many had by then.
    pub(super) settled: Option<(usize, Instant)>,
}

impl Seat {
    /// Who this task is.
    pub fn task(&self) -> TaskName {
        self.inner.me.task_name()
    }

    /// How often this task was started before in this run.
    pub fn generation(&self) -> u64 {
        self.inner.me.generation
    }

    /// Counts the clusters of this run; 0 before there is one.
    pub fn epoch(&self) -> u64 {
        let state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.cluster.as_ref().map_or(0, |cluster| cluster.epoch)
    }

    /// The socket to serve on; it can be taken once.
    pub fn take_socket(&mut self) -> Option<Socket> {
        self.socket.take()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Whoever watches holds the control socket open.
        self.inner.wake.stop();
    }
}

pub(super) fn enter(options: Meeting, wake: Arc<Wake>, host: Option<Host>) -> Result<Seat, Failure> {
    let started = Instant::now();
    let peer = match &options.url {
        Url::Tcp { host, .. } => Some(host.as_str()),
        Url::File(_) => None,
    };
    let wishes =
        Wishes { advertise: options.advertise.as_deref(), interface: options.interface.as_deref(), peer };
    let mut advertised = advertise(&wishes)?;
    advertised.bind = options.bind.or(advertised.bind);
    let control_port = match options.port {
        PortChoice::Range(..) => options.port,
        PortChoice::Any | PortChoice::Fixed(_) => PortChoice::Any,
    };
    let listener = listen_on(advertised.bind, control_port)?;
    let random = getrandom::u64().map_err(|error| status!(Internal, "no random numbers: {error}"))?;
    let (run, incarnation) = (options.url.run(), format!("{random:016x}"));
    let control = Control::start(listener, run.clone(), incarnation.clone(), wake.clone())?;
    let mut claim = Claim {
        table: Table::new(open(&options.url, Some(host))?),
        patience: Patience::new(started, options.timeout),
        machine: machine(),
        dead: HashSet::new(),
        silent: HashMap::new(),
        lost: HashMap::new(),
        run,
        advertised,
        wake,
        options,
    };
    let (me, socket, view) = claim.take(&control, &incarnation)?;
    let Claim { options, run, machine, wake, table, dead, advertised, .. } = claim;
    let others = match advertised.hosts.len() {
        1 => String::new(),
        _ => format!("; also {}", advertised.hosts[1..].join(", ")),
    };
    tracing::info!(
        "{} is published at {} as {} ({}{others}), generation {}.",
        short(&me.task_name()),
        options.url,
        address(&me.hosts[0], me.port),
        advertised.reason,
        me.generation
    );
    let bygone = view.notes.iter().map(|note| note.incarnation.clone()).collect();
    // The start before this one, and whoever forms clusters, should know at once.
    let concerned = [me.task_name(), leader(&options.jobs)];
    let concerned: HashSet<&TaskName> = concerned.iter().collect();
    tell_to_look(concerned.into_iter().filter_map(|task| view.members.get(task)), &run, &machine);
    let state = State { table, cluster: None, reached: HashMap::new(), dead, settled: None };
    let inner = Inner {
        options,
        run,
        machine,
        me,
        started,
        wake,
        bygone,
        state: Mutex::new(state),
        _control: control,
    };
    Ok(Seat { inner: Arc::new(inner), socket: Some(socket) })
}

/// The board at a place. Only tasks make one; a task may host one already.
pub(super) fn open(url: &Url, task: Option<Option<Host>>) -> Result<Box<dyn Board>> {
    Ok(match (url, task) {
        (Url::File(directory), Some(_)) => Box::new(FileBoard::create(directory)?),
        (Url::File(directory), None) => Box::new(FileBoard::open(directory)?),
        (Url::Tcp { host, port, run }, task) => {
            Box::new(TcpBoard::new(host, *port, run, task.is_some()).hosting(task.flatten()))
        }
    })
}

struct Claim {
    options: Meeting,
    run: String,
    machine: String,
    advertised: Advertised,
    wake: Arc<Wake>,
    table: Table,
    patience: Patience,
    dead: HashSet<String>,
    /// Starts that do not answer at all, and since when.
    silent: HashMap<String, Instant>,
    /// Generations that somebody else published first.
    lost: HashMap<TaskName, u64>,
}

impl Claim {
    /// Publishes this task's record. The view is the one from before.
    fn take(&mut self, control: &Control, incarnation: &str) -> Result<(Member, Socket, View), Failure> {
        loop {
            let problem = match self.attempt(control, incarnation) {
                Ok(Ok(done)) => return Ok(done),
                Ok(Err(problem)) => problem,
                Err(Failure::Unusable(status)) if status.code() == Code::Unavailable => {
                    Some(status.message().to_owned())
                }
                Err(failure) => return Err(failure),
            };
            let Some(problem) = problem else { continue };
            if self.wake.stopped() {
                return Err(Failure::Stopped);
            }
            if self.patience.is_over() {
                return Err(Failure::TimedOut(format!(
                    "no place at {} after {} s: {problem}",
                    self.options.url,
                    self.patience.seconds()
                )));
            }
            self.patience.speak("a place at the rendezvous", &problem);
            self.patience.pause(&self.wake);
        }
    }

    /// One try; the inner error is what to wait for, or nothing if another try may succeed at once.
    #[allow(clippy::type_complexity, reason = "the two kinds of failure of one private step")]
    fn attempt(
        &mut self,
        control: &Control,
        incarnation: &str,
    ) -> Result<Result<(Member, Socket, View), Option<String>>, Failure> {
        let view = self.table.look()?;
        let jobs = self.options.jobs.to_string();
        let own = |member: &&Member| member.jobs == jobs && member.version == VERSION;
        for member in view.members.values().filter(|member| !own(member)) {
            if self.is_there(member) {
                return Err(mismatch(member, &jobs, &self.options.url));
            }
        }
        let Some(task) = self.choose(&view) else {
            let taken = view.members.values().filter(|member| member.job == self.options.job);
            let taken: Vec<String> = taken
                .map(|member| {
                    format!("{} by process {} on {}", short(&member.task_name()), member.pid, member.host)
                })
                .collect();
            let problem = format!("all tasks of job {} are taken, {}", self.options.job, taken.join(", "));
            return Ok(Err(Some(problem)));
        };
        let previous = view.members.get(&task);
        let after = |generation: Option<u64>| generation.map_or(0, |generation| generation + 1);
        let generation =
            after(previous.map(|member| member.generation)).max(after(self.lost.get(&task).copied()));
        let socket = self.socket(previous)?;
        let member = Member {
            version: VERSION,
            job: task.job.clone(),
            task: task.task,
            generation,
            incarnation: incarnation.to_owned(),
            hosts: self.advertised.hosts.clone(),
            port: self.advertised.port.map_or_else(|| socket.port(), Ok)?,
            control: control.port(),
            host: gethostname::gethostname().to_string_lossy().into_owned(),
            machine: self.machine.clone(),
            pid: std::process::id(),
            jobs,
            program: self.options.program,
        };
        if !self.table.publish(member.name(), seal(&member)?)? {
            self.lost.insert(task, generation);
            return Ok(Err(None));
        }
        Ok(Ok((member, socket, view)))
    }

    /// The number asked for, or one that nobody has: never taken, or left by one that is dead.
    fn choose(&mut self, view: &View) -> Option<TaskName> {
        let job = self.options.job.clone();
        if let Some(task) = self.options.task {
            return Some(TaskName::new(&job, task));
        }
        let tasks: Vec<TaskName> = self.options.jobs.tasks().filter(|task| task.job == job).collect();
        if let Some(free) = tasks.iter().find(|task| !view.members.contains_key(task)) {
            return Some(free.clone());
        }
        let mut members: Vec<&Member> = tasks.iter().filter_map(|task| view.members.get(task)).collect();
        // What ran here before can have its address again.
        members.sort_by_key(|member| member.machine != self.machine);
        members.into_iter().find(|member| !self.is_there(member)).map(Member::task_name)
    }

    fn is_there(&mut self, member: &Member) -> bool {
        if self.dead.contains(&member.incarnation) {
            return false;
        }
        match reach(member, &self.run, &self.machine) {
            Ok(_) => true,
            Err(unreached) => {
                let since = *self.silent.entry(member.incarnation.clone()).or_insert_with(Instant::now);
                let there = unreached.silent && since.elapsed() < SILENCE;
                if !there {
                    self.dead.insert(member.incarnation.clone());
                }
                there
            }
        }
    }

    /// A port; the one that the task had before if it can be had, because the others know that one.
    fn socket(&self, previous: Option<&Member>) -> Result<Socket> {
        let bind = |choice| match self.options.reserve {
            true => ReservedPort::new(self.advertised.bind, choice).map(Socket::Reserved),
            false => listen_on(self.advertised.bind, choice).map(Socket::Listening),
        };
        let again = previous.filter(|previous| {
            previous.machine == self.machine
                && self.options.port == PortChoice::Any
                && self.advertised.port.is_none()
        });
        match again.map(|previous| bind(PortChoice::Fixed(previous.port))) {
            Some(Ok(socket)) => Ok(socket),
            _ => bind(self.options.port),
        }
    }
}

impl Socket {
    fn port(&self) -> Result<u16> {
        match self {
            Socket::Listening(listener) => {
                let address = listener.local_addr();
                Ok(address.map_err(|error| status!(Internal, "the socket has no address: {error}"))?.port())
            }
            Socket::Reserved(reserved) => Ok(reserved.port()),
        }
    }
}

pub(super) fn mismatch(member: &Member, jobs: &str, url: &Url) -> Failure {
    let who = format!("{} (process {} on {})", short(&member.task_name()), member.pid, member.host);
    Failure::Mismatch(match member.version == VERSION {
        true => format!(
            "{who} joined {url} with the jobs {}, this task has {jobs}; start all with the same --jobs, or choose another \
             rendezvous",
            member.jobs
        ),
        false => format!(
            "{who} joined {url} with another version of Ferroflow (protocol {}, here {VERSION})",
            member.version
        ),
    })
}

/// Equal for processes that reach each other by the loopback address: one boot, one network.
pub(super) fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    match boot.trim() {
        "" => gethostname::gethostname().to_string_lossy().into_owned(),
        boot => format!("{boot} {}", network.display()),
    }
}

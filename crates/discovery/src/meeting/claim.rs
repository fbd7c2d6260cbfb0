//! A task's entry: its sockets, its number and its record.

use super::board::Board;
use super::bounded_wait::BoundedWait;
use super::control::{Control, Identity, reach, tell_to_look};
use super::file::FileBoard;
use super::form::leader;
use super::record::{Cluster, Member, VERSION, address, seal, short};
use super::table::{Table, View};
use super::tcp::TcpBoard;
use super::wake::Wake;
use super::{Failure, Host, Meeting, Url};
use crate::advertise::{Advertised, Wishes, advertise};
use crate::{PortChoice, ReservedPort, listen_on};
use ferroflow_cluster::Listeners;
use ferroflow_cluster::spec::TaskName;
use ferroflow_core::{Code, Result, status};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time after which a member that does not answer at all, neither yes nor no, is given up.
const SILENCE: Duration = Duration::from_secs(10);

/// A task's place in a run. Others are told of its end by [`Seat::leave`].
pub struct Seat {
    pub(super) inner: Arc<Inner>,
    socket: Option<Socket>,
}

/// The port of a task.
#[derive(Debug)]
pub enum Socket {
    /// Open for the task's own server. The questions of other tasks come to the same port.
    Listening(Listeners),
    /// Kept for a program that listens by itself.
    Reserved(ReservedPort),
}

/// The state that waiting, watching and leaving share.
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
    pub(super) control: Control,
}

/// The facts that change while a task is a member.
pub(super) struct State {
    pub(super) table: Table,
    /// The cluster that this task is part of, once there is one.
    pub(super) cluster: Option<Cluster>,
    /// By incarnation: the host that worked, and when it last did.
    pub(super) reached: HashMap<String, (String, Instant)>,
    /// Starts that are known to be gone.
    pub(super) dead: HashSet<String>,
    /// The number of tasks when the last one joined, and when that was.
    pub(super) settled: Option<(usize, Instant)>,
}

impl Seat {
    /// The name of this task.
    pub fn task(&self) -> TaskName {
        self.inner.me.task_name()
    }

    /// The number of earlier starts of this task in this run.
    pub fn generation(&self) -> u64 {
        self.inner.me.generation
    }

    /// The number of clusters that this run has formed; 0 before the first.
    pub fn epoch(&self) -> u64 {
        let state = self.inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.cluster.as_ref().map_or(0, |cluster| cluster.epoch)
    }

    /// Tells a new start of this task to wait: this one is going to leave when its steps have finished.
    pub fn begin_to_leave(&self) {
        self.inner.control.begin_to_leave();
    }

    /// The socket to serve on; it can be taken once.
    pub fn take_socket(&mut self) -> Option<Socket> {
        self.socket.take()
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.inner.control.leave();
        // The thread that watches holds the control port open.
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
    let random = getrandom::u64().map_err(|error| status!(Internal, "no random numbers: {error}"))?;
    let mut claim = Claim {
        table: Table::new(open(&options.url, Some(host))?),
        wait: BoundedWait::new(started, options.timeout),
        identity: Identity { run: options.url.run(), incarnation: format!("{random:016x}") },
        machine: machine(),
        dead: HashSet::new(),
        silent: HashMap::new(),
        lost: HashMap::new(),
        advertised,
        wake,
        options,
    };
    let Claimed { me, socket, control, before } = claim.take()?;
    let Claim { options, identity: Identity { run, .. }, machine, wake, table, dead, advertised, .. } = claim;
    let others = match &advertised.hosts[1..] {
        [] => String::new(),
        others => format!("; also {}", others.join(", ")),
    };
    tracing::info!(
        "{} is published at {} as {} ({}{others}), generation {}.",
        short(&me.task_name()),
        options.url,
        address(&me.hosts[0], me.port),
        advertised.reason,
        me.generation
    );
    let bygone = before.notes.iter().map(|note| note.incarnation.clone()).collect();
    // The start before this one, and the task that forms clusters, should know at once.
    let concerned = [me.task_name(), leader(&options.jobs)];
    let concerned: HashSet<&TaskName> = concerned.iter().collect();
    tell_to_look(concerned.into_iter().filter_map(|task| before.members.get(task)), &run, &machine);
    let state = State { table, cluster: None, reached: HashMap::new(), dead, settled: None };
    let state = Mutex::new(state);
    let inner = Inner { options, run, machine, me, started, wake, bygone, state, control };
    Ok(Seat { inner: Arc::new(inner), socket: Some(socket) })
}

/// Opens the board at a place. Only tasks make one; a task may host one already.
pub(super) fn open(url: &Url, task: Option<Option<Host>>) -> Result<Box<dyn Board>> {
    Ok(match (url, task) {
        (Url::File(directory), Some(_)) => Box::new(FileBoard::create(directory)?),
        (Url::File(directory), None) => Box::new(FileBoard::open(directory)?),
        (Url::Tcp { host, port, run }, task) => {
            Box::new(TcpBoard::new(host, *port, run, task.is_some()).hosting(task.flatten()))
        }
    })
}

/// An attempt to become a member.
struct Claim {
    options: Meeting,
    identity: Identity,
    machine: String,
    advertised: Advertised,
    wake: Arc<Wake>,
    table: Table,
    wait: BoundedWait,
    /// Starts that are known to be gone.
    dead: HashSet<String>,
    /// Starts that do not answer at all, and since when.
    silent: HashMap<String, Instant>,
    /// Generations that another process published first.
    lost: HashMap<TaskName, u64>,
}

/// A published member with its sockets, and the board as it was before.
struct Claimed {
    me: Member,
    socket: Socket,
    control: Control,
    before: View,
}

impl Claim {
    /// Publishes this task's record.
    fn take(&mut self) -> Result<Claimed, Failure> {
        loop {
            let problem = match self.attempt() {
                Ok(Ok(claimed)) => return Ok(claimed),
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
            if self.wait.is_over() {
                return Err(Failure::TimedOut(format!(
                    "no place at {} after {} s: {problem}",
                    self.options.url,
                    self.wait.seconds()
                )));
            }
            self.wait.log("a place at the rendezvous", &problem);
            self.wait.pause(&self.wake);
        }
    }

    /// Tries once; the inner error is what to wait for, or nothing if another try may succeed at once.
    fn attempt(&mut self) -> Result<Result<Claimed, Option<String>>, Failure> {
        let before = self.table.look()?;
        let jobs = self.options.jobs.to_string();
        let own = |member: &&Member| member.jobs == jobs && member.version == VERSION;
        for member in before.members.values().filter(|member| !own(member)) {
            if self.is_there(member) {
                return Err(mismatch(member, &jobs, &self.options.url));
            }
        }
        let Some(task) = self.choose(&before) else {
            let taken = before.members.values().filter(|member| member.job == self.options.job);
            let taken: Vec<String> = taken
                .map(|member| {
                    format!("{} by process {} on {}", short(&member.task_name()), member.pid, member.host)
                })
                .collect();
            let problem = format!("all tasks of job {} are taken, {}", self.options.job, taken.join(", "));
            return Ok(Err(Some(problem)));
        };
        let previous = before.members.get(&task);
        if let Some(previous) = previous
            && self.options.task.is_some()
            && let Some(problem) = self.check_rival(previous, &before)?
        {
            return Ok(Err(Some(problem)));
        }
        let after = |generation: Option<u64>| generation.map_or(0, |generation| generation + 1);
        let generation =
            after(previous.map(|member| member.generation)).max(after(self.lost.get(&task).copied()));
        let (socket, control) = self.sockets(previous)?;
        let port = match (self.advertised.port, &socket) {
            (Some(port), _) => port,
            (None, Socket::Reserved(reserved)) => reserved.port(),
            (None, Socket::Listening(_)) => control.port(),
        };
        let me = Member {
            version: VERSION,
            job: task.job.clone(),
            task: task.task,
            generation,
            incarnation: self.identity.incarnation.clone(),
            hosts: self.advertised.hosts.clone(),
            port,
            control: if self.options.reserve { control.port() } else { port },
            host: host_name(),
            machine: self.machine.clone(),
            pid: std::process::id(),
            jobs,
            program: self.options.program,
        };
        if !self.table.publish(me.name(), seal(&me)?)? {
            self.lost.insert(task, generation);
            return Ok(Err(None));
        }
        Ok(Ok(Claimed { me, socket, control, before }))
    }

    /// The number asked for, or one that is free: never taken, or left by a task that is dead.
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
        // A task that ran here before can have its address again.
        members.sort_by_key(|member| member.machine != self.machine);
        members.into_iter().find(|member| !self.is_there(member)).map(Member::task_name)
    }

    /// Refuses to take the place of an earlier start of the same task that answers, or says what to wait for if that one is
    /// ending. One that does not answer is replaced, and ends when it learns of that.
    fn check_rival(&mut self, earlier: &Member, view: &View) -> Result<Option<String>, Failure> {
        let ended = view.note_of(&earlier.incarnation).is_some();
        if ended || self.dead.contains(&earlier.incarnation) {
            return Ok(None);
        }
        let task = short(&earlier.task_name());
        match reach(earlier, &self.identity.run, &self.machine) {
            Ok(reached) if reached.ending => Ok(Some(format!(
                "the earlier start of {task} (process {} on {}) is ending and lets its steps finish",
                earlier.pid, earlier.host
            ))),
            Ok(reached) => Err(Failure::Taken(format!(
                "{task} is alive at {} (process {} on {}), and this process ({} on {}, {}) was started as the same task; \
                 give it another task index, or end the other one first",
                address(&reached.host, earlier.port),
                earlier.pid,
                earlier.host,
                std::process::id(),
                host_name(),
                self.own_address()
            ))),
            Err(unreached) => {
                tracing::info!(
                    "{task} was started before, as process {} on {}, which does not answer ({}); this start takes its place.",
                    earlier.pid,
                    earlier.host,
                    unreached.reason
                );
                self.dead.insert(earlier.incarnation.clone());
                Ok(None)
            }
        }
    }

    /// The address that this task would have, or its host alone if it can have no port.
    fn own_address(&self) -> String {
        let host = self.advertised.hosts.first().map_or("", String::as_str);
        let port = self.advertised.port.or_else(|| {
            let listener = listen_on(self.advertised.bind, self.options.port).ok()?;
            listener.local_addr().ok().map(|address| address.port())
        });
        port.map_or_else(|| host.to_owned(), |port| address(host, port))
    }

    fn is_there(&mut self, member: &Member) -> bool {
        if self.dead.contains(&member.incarnation) {
            return false;
        }
        match reach(member, &self.identity.run, &self.machine) {
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

    /// Opens the task's port, and the one for questions where a program will listen on the first.
    fn sockets(&self, previous: Option<&Member>) -> Result<(Socket, Control)> {
        let (bind, identity, wake) = (self.advertised.bind, self.identity.clone(), self.wake.clone());
        if !self.options.reserve {
            let listener = self.on_old_port(previous, |choice| listen_on(bind, choice))?;
            let (control, listeners) = Control::start_shared(listener, identity, wake)?;
            return Ok((Socket::Listening(listeners), control));
        }
        let reserved = self.on_old_port(previous, |choice| ReservedPort::new(bind, choice))?;
        let choice = match self.options.port {
            PortChoice::Range(..) => self.options.port,
            PortChoice::Any | PortChoice::Fixed(_) => PortChoice::Any,
        };
        let control = Control::start(listen_on(bind, choice)?, identity, wake)?;
        Ok((Socket::Reserved(reserved), control))
    }

    /// Opens the port that the task had before if it is free, because the others know that one, or else one of choice.
    fn on_old_port<T>(&self, previous: Option<&Member>, open: impl Fn(PortChoice) -> Result<T>) -> Result<T> {
        let free_choice = self.options.port == PortChoice::Any && self.advertised.port.is_none();
        let previous = previous.filter(|previous| previous.machine == self.machine && free_choice);
        match previous.map(|previous| open(PortChoice::Fixed(previous.port))) {
            Some(Ok(opened)) => Ok(opened),
            _ => open(self.options.port),
        }
    }
}

fn host_name() -> String {
    gethostname::gethostname().to_string_lossy().into_owned()
}

pub(super) fn mismatch(member: &Member, jobs: &str, url: &Url) -> Failure {
    let who = format!("{} (process {} on {})", short(&member.task_name()), member.pid, member.host);
    Failure::Mismatch(if member.version == VERSION {
        format!(
            "{who} joined {url} with the jobs {}, this task has {jobs}; start all with the same --jobs, or choose another \
             rendezvous",
            member.jobs
        )
    } else {
        format!(
            "{who} joined {url} with another version of Ferroflow (protocol {}, here {VERSION}); start all tasks with the \
             same version",
            member.version
        )
    })
}

/// Identifies the boot and the network of this machine: equal for processes that reach each other by the loopback address.
pub(super) fn machine() -> String {
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    match boot.trim() {
        "" => host_name(),
        boot => format!("{boot} {}", network.display()),
    }
}

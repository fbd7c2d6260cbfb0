//! A cluster of processes on this machine.
//!
//! A served task listens on a socket that this process opened for it and hands over as its standard input: no port can
//! be taken by another program in between, and peers that connect early wait in the socket's queue. For programs that
//! listen by themselves this process keeps the port. Every task is a process group of its own, which ends with the
//! process that started it, however that ends; processes that leave the group are found by a mark in their environment.

mod ending;
mod log_files;
mod orphans;
mod output;
mod parent_death;
mod process;
mod process_tree;
mod supervisor;
mod watchdog;

pub(crate) use ending::described;
pub(crate) use parent_death::{WithParent, exec_with_parent, inherit_socket, with_parent};
pub(crate) use process_tree::ProcessTree;
pub(crate) use supervisor::{Ending, Supervisor, Task, Wait};
pub(crate) use watchdog::{WatchdogArgs, watch_parent};

use ferroflow::discovery::{PortChoice, ReservedPort, listen_on};
use ferroflow::{ClusterSpec, TaskName};
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

/// The number of a task's last lines that are kept, for reports of failures.
const KEPT_LINES: usize = 20;

/// The time that a task has to end when it is asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// The way in which a task gets its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// It listens on a socket that it is handed as its standard input.
    HandedOver,
    /// It listens by itself, on a port that is kept for it.
    Kept,
    /// It has no port: no other task calls it.
    None,
}

/// One of a process's two streams of output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stream {
    Output,
    Error,
}

/// An event in the life of a cluster.
pub(crate) enum Event {
    /// A task's process wrote a line.
    Line { task: usize, stream: Stream, text: Vec<u8> },
    /// A task's process ended, and whatever it had started.
    Ended { task: usize, status: ExitStatus },
    /// This process was asked to end.
    Signal(Signal),
}

/// An event as the threads see it that follow processes and signals.
enum ThreadEvent {
    Line { task: usize, stream: Stream, text: Vec<u8> },
    Ended { task: usize, process: Child },
    Signal(Signal),
}

/// Processes of one cluster, in the order in which they were asked for.
pub(crate) struct LocalCluster {
    spec: ClusterSpec,
    places: Vec<Place>,
    sender: Sender<ThreadEvent>,
    heard: Receiver<ThreadEvent>,
    tree: ProcessTree,
}

struct Place {
    name: TaskName,
    socket: Socket,
    /// The group of its process, while that runs.
    running: Option<Pid>,
    /// The last lines that it wrote.
    log: VecDeque<String>,
}

enum Socket {
    Open(TcpListener),
    Kept { _port: ReservedPort },
    None,
}

impl LocalCluster {
    /// Opens or keeps a port for every task that has one.
    pub(crate) fn open(tasks: &[(TaskName, Port)]) -> Result<LocalCluster, String> {
        let said = |status: ferroflow::Status| status.message().to_owned();
        let (mut spec, mut places) = (ClusterSpec::new(), Vec::new());
        for (name, port) in tasks {
            let (socket, number) = match port {
                Port::HandedOver => {
                    let local = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
                    let socket = listen_on(local, PortChoice::Any).map_err(said)?;
                    let number = socket.local_addr().map_err(|error| error.to_string())?.port();
                    (Socket::Open(socket), Some(number))
                }
                Port::Kept => {
                    // Of all addresses, because that is where stock's servers listen.
                    let port = ReservedPort::new(None, PortChoice::Any).map_err(said)?;
                    let number = port.port();
                    (Socket::Kept { _port: port }, Some(number))
                }
                Port::None => (Socket::None, None),
            };
            if let Some(number) = number {
                spec.add(&name.job, name.task, &format!("127.0.0.1:{number}")).map_err(said)?;
            }
            places.push(Place { name: name.clone(), socket, running: None, log: VecDeque::new() });
        }
        let (sender, heard) = channel();
        Ok(LocalCluster { spec, places, sender, heard, tree: ProcessTree::new()? })
    }

    /// The tasks and their addresses.
    pub(crate) fn spec(&self) -> &ClusterSpec {
        &self.spec
    }

    /// Starts a task's process. To be called on a thread that lives as long as the cluster, because the end of that
    /// thread is what tasks take for the end of this process.
    pub(crate) fn start(&mut self, task: usize, mut command: Command) -> Result<(), String> {
        let place = &mut self.places[task];
        let failed = |error: std::io::Error| format!("cannot start {}: {error}", short(&place.name));
        match &place.socket {
            Socket::Open(socket) => command.stdin(OwnedFd::from(socket.try_clone().map_err(failed)?)),
            Socket::Kept { .. } | Socket::None => command.stdin(Stdio::null()),
        };
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        self.tree.mark(&mut command);
        let process = command.spawn().map_err(failed)?;
        let group = Pid::from_child(&process);
        self.tree.watch(group);
        place.running = Some(group);
        process::follow(process, task, &self.sender);
        Ok(())
    }

    /// Turns signals that ask this process to end into events.
    pub(crate) fn hear_signals(&self) -> Result<(), String> {
        let sender = self.sender.clone();
        crate::signals::hear(move |signal| sender.send(ThreadEvent::Signal(signal)).is_ok())
    }

    /// The name of a task.
    pub(crate) fn name(&self, task: usize) -> &TaskName {
        &self.places[task].name
    }

    /// Returns whether a task's process runs.
    pub(crate) fn is_running(&self, task: usize) -> bool {
        self.places[task].running.is_some()
    }

    /// The last lines that a task wrote.
    pub(crate) fn log(&self, task: usize) -> String {
        self.places[task].log.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// Closes a task's port: calls are refused from now on.
    pub(crate) fn close(&mut self, task: usize) {
        self.places[task].socket = Socket::None;
    }

    /// Sends a signal to a task's process and whatever that has started.
    pub(crate) fn signal(&self, task: usize, signal: Signal) {
        if let Some(group) = self.places[task].running {
            // Fails only if all of it has just ended.
            let _ = kill_process_group(group, signal);
        }
    }

    /// Waits for the next event, until the deadline if there is one.
    pub(crate) fn next_event(&mut self, deadline: Option<Instant>) -> Option<Event> {
        let heard = match deadline {
            None => self.heard.recv().ok()?,
            Some(deadline) => {
                self.heard.recv_timeout(deadline.saturating_duration_since(Instant::now())).ok()?
            }
        };
        match heard {
            ThreadEvent::Line { task, stream, text } => {
                self.places[task].keep(stream, &text);
                Some(Event::Line { task, stream, text })
            }
            ThreadEvent::Ended { task, mut process } => {
                if let Some(group) = self.places[task].running.take() {
                    self.tree.forget(group);
                }
                let status = process.wait().unwrap_or_default();
                Some(Event::Ended { task, status })
            }
            ThreadEvent::Signal(signal) => Some(Event::Signal(signal)),
        }
    }

    /// Asks every task that still runs to end, and waits until all have. Returns those that have to be killed.
    pub(crate) fn stop(mut self) -> Vec<String> {
        for task in 0..self.places.len() {
            self.signal(task, Signal::TERM);
        }
        let deadline = Instant::now() + GRACE;
        while self.places.iter().any(|place| place.running.is_some())
            && self.next_event(Some(deadline)).is_some()
        {}
        let stubborn = self.places.iter().filter(|place| place.running.is_some());
        stubborn.map(|place| short(&place.name)).collect()
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for task in 0..self.places.len() {
            self.signal(task, Signal::KILL);
        }
        // Killed processes end at once; waiting for them leaves no zombies.
        let deadline = Instant::now() + Duration::from_secs(1);
        while self.places.iter().any(|place| place.running.is_some())
            && self.next_event(Some(deadline)).is_some()
        {}
    }
}

impl Place {
    /// Keeps a line. The standard output of a served task is for programs, not for people.
    fn keep(&mut self, stream: Stream, text: &[u8]) {
        if stream == Stream::Output && matches!(self.socket, Socket::Open(_)) {
            return;
        }
        if self.log.len() == KEPT_LINES {
            self.log.pop_front();
        }
        self.log.push_back(String::from_utf8_lossy(text).into_owned());
    }
}

/// Returns a task's name as people write it: `worker/0`.
pub(crate) fn short(task: &TaskName) -> String {
    format!("{}/{}", task.job, task.task)
}

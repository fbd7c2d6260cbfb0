//! A cluster of processes on this machine.
//!
//! Every task listens on a socket that this process opened for it and hands over as its standard input: no port can be
//! taken by somebody else in between, and peers that connect early wait in the socket's queue. Tasks end with the process
//! that started them, however that ends.

use ferroflow::{ClusterSpec, TaskName};
use rustix::process::{Pid, Signal, getppid, kill_process, set_parent_process_death_signal};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// How many of a task's last lines are kept for whoever looks into a failure.
const KEPT_LINES: usize = 20;

/// How long a task may take to end when it is asked to, before it is killed.
const GRACE: Duration = Duration::from_secs(5);

/// What came of a task's process.
pub(crate) enum Event {
    /// It printed a line.
    Line(String),
    /// It ended.
    Ended { task: usize, status: ExitStatus },
}

/// What a reader of a task's output saw.
enum Heard {
    Line(String),
    Log { task: usize, text: String },
    Closed { task: usize },
}

/// Processes of one cluster, in the order in which they were asked for.
pub(crate) struct LocalCluster {
    tasks: Vec<Task>,
    heard: Receiver<Heard>,
}

struct Task {
    name: TaskName,
    process: Child,
    /// Whether its end has been told.
    ended: bool,
    log: VecDeque<String>,
}

impl LocalCluster {
    /// Starts so many tasks of each job; `command` makes the command of a task, given the cluster as JSON.
    pub(crate) fn start(
        jobs: &[(&str, u32)],
        command: impl Fn(&TaskName, &str) -> Command,
    ) -> Result<LocalCluster, String> {
        let (mut spec, mut sockets) = (ClusterSpec::new(), Vec::new());
        for (job, count) in jobs {
            for index in 0..*count {
                let socket = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
                    .map_err(|error| format!("cannot listen on any port of this machine: {error}"))?;
                let address = socket.local_addr().map_err(|error| error.to_string())?;
                spec.add(job, index, &address.to_string()).map_err(|error| error.message().to_owned())?;
                sockets.push((TaskName::new(job, index), socket));
            }
        }
        let json = spec.to_json();
        let (sender, heard) = channel();
        let mut cluster = LocalCluster { tasks: Vec::new(), heard };
        for (name, socket) in sockets {
            let mut process = command(&name, &json)
                .stdin(OwnedFd::from(socket))
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .map_err(|error| format!("cannot start {name}: {error}"))?;
            let task = cluster.tasks.len();
            let (output, log) = (process.stdout.take(), process.stderr.take());
            cluster.tasks.push(Task { name, process, ended: false, log: VecDeque::new() });
            let (lines, logs) = (sender.clone(), sender.clone());
            read_lines(output, move |text| lines.send(Heard::Line(text)), end_of(&sender, task));
            read_lines(log, move |text| logs.send(Heard::Log { task, text }), || {});
        }
        Ok(cluster)
    }

    /// The name of a task.
    pub(crate) fn name(&self, task: usize) -> &TaskName {
        &self.tasks[task].name
    }

    /// The last lines that a task logged.
    pub(crate) fn log(&self, task: usize) -> String {
        self.tasks[task].log.iter().fold(String::new(), |text, line| text + line + "\n")
    }

    /// The next thing that happens until then, if any.
    pub(crate) fn next_event(&mut self, deadline: Instant) -> Option<Event> {
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.heard.recv_timeout(left) {
                Ok(Heard::Line(text)) => return Some(Event::Line(text)),
                Ok(Heard::Log { task, text }) => self.tasks[task].keep(text),
                Ok(Heard::Closed { task }) => {
                    // A process that closed its output is about to end.
                    let status = self.tasks[task].process.wait().ok()?;
                    self.tasks[task].ended = true;
                    return Some(Event::Ended { task, status });
                }
                Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => return None,
            }
        }
    }

    /// Asks every task that is still there to end, and waits until all have. Says which had to be killed.
    pub(crate) fn stop(mut self) -> Vec<String> {
        for task in self.tasks.iter().filter(|task| !task.ended) {
            // Fails only if the task has just ended by itself.
            let _ = kill_process(Pid::from_child(&task.process), Signal::TERM);
        }
        let deadline = Instant::now() + GRACE;
        while self.tasks.iter().any(|task| !task.ended) && self.next_event(deadline).is_some() {}
        let stubborn = self.tasks.iter().filter(|task| !task.ended);
        stubborn.map(|task| task.name.to_string()).collect()
    }
}

impl Drop for LocalCluster {
    fn drop(&mut self) {
        for task in self.tasks.iter_mut().filter(|task| !task.ended) {
            let _ = task.process.kill();
            let _ = task.process.wait();
        }
    }
}

impl Task {
    fn keep(&mut self, line: String) {
        if self.log.len() == KEPT_LINES {
            self.log.pop_front();
        }
        self.log.push_back(line);
    }
}

fn end_of(sender: &Sender<Heard>, task: usize) -> impl FnOnce() + Send + 'static {
    let sender = sender.clone();
    move || drop(sender.send(Heard::Closed { task }))
}

/// Reads a stream on a thread of its own until it closes.
fn read_lines<E>(
    stream: Option<impl Read + Send + 'static>,
    tell: impl Fn(String) -> Result<(), E> + Send + 'static,
    finish: impl FnOnce() + Send + 'static,
) {
    let Some(stream) = stream else { return finish() };
    std::thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if tell(line).is_err() {
                break;
            }
        }
        finish();
    });
}

/// In a task's process: the socket that it was started with. From now on it ends with the process that started it.
pub(crate) fn inherit_socket() -> Result<TcpListener, String> {
    let parent = getppid();
    set_parent_process_death_signal(Some(Signal::TERM))
        .map_err(|error| format!("cannot follow the parent's end: {error}"))?;
    if getppid() != parent {
        return Err("the process that started this task is gone".to_owned());
    }
    let socket = std::io::stdin().as_fd().try_clone_to_owned().map_err(|error| error.to_string())?;
    let listener = TcpListener::from(socket);
    match listener.local_addr() {
        Ok(_) => Ok(listener),
        Err(error) => Err(format!("standard input is not a socket that a parent handed over: {error}")),
    }
}

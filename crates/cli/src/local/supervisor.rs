//! The supervisor of a cluster's tasks: shows their output, starts crashed ones again, ends them.

use super::ending::{TaskEnd, described};
use super::log_files::LogFiles;
use super::output::Output;
use super::{Event, LocalCluster, Port, Stream, short};
use crate::exit;
use ferroflow::{ClusterSpec, LoggedWait, TaskName};
use rustix::process::Signal;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};

/// The time that a killed process has to be gone.
const KILLED_WITHIN: Duration = Duration::from_secs(2);

/// Makes the command of a task's process, given the cluster.
type MakeCommand = dyn Fn(&ClusterSpec) -> Result<Command, String>;

/// A task to be run.
pub(crate) struct Task {
    pub(crate) name: TaskName,
    pub(crate) port: Port,
    /// Called again when the task is restarted.
    pub(crate) command: Box<MakeCommand>,
}

/// The limit of a wait.
#[derive(Clone, Copy)]
pub(crate) enum Wait<'a> {
    /// Without a limit.
    Ever,
    /// Until this moment; meanwhile it prints for whom it waits, and why.
    Until(Instant, &'a dyn Fn(&Supervisor) -> (String, String)),
}

impl Wait<'_> {
    fn deadline(&self) -> Option<Instant> {
        match self {
            Wait::Ever => None,
            Wait::Until(deadline, _) => Some(*deadline),
        }
    }
}

/// The reason why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// The condition is met.
    Reached,
    /// The limit has passed.
    TimeOver,
    /// This process was asked to end.
    Signal(Signal),
    /// A task failed and is not started again; with the exit code for it.
    Failed { task: usize, code: u8 },
}

/// Runs a cluster.
pub(crate) struct Supervisor {
    tasks: Vec<Task>,
    cluster: LocalCluster,
    output: Output,
    files: LogFiles,
    /// The restarts that each task has left.
    restarts: Vec<u32>,
    /// The time of each task's last start, and the number of its starts.
    started: Vec<(Instant, u32)>,
    /// The reasons why tasks were asked to end.
    asked: Vec<Option<String>>,
    /// True for tasks that were killed because they did not.
    killed: Vec<bool>,
    /// The ends of tasks.
    ends: Vec<Option<TaskEnd>>,
}

impl Supervisor {
    /// Opens the cluster and starts every task. Their output goes to files in `log_dir`, too, if there is one.
    pub(crate) fn start(
        tasks: Vec<Task>,
        restarts: u32,
        log_dir: Option<&Path>,
    ) -> Result<Supervisor, String> {
        let files = LogFiles::create(log_dir, tasks.iter().map(|task| &task.name))?;
        let ports: Vec<_> = tasks.iter().map(|task| (task.name.clone(), task.port)).collect();
        let cluster = LocalCluster::open(&ports)?;
        cluster.hear_signals()?;
        let count = tasks.len();
        let mut supervisor = Supervisor {
            output: Output::new(tasks.iter().map(|task| &task.name)),
            tasks,
            cluster,
            files,
            restarts: vec![restarts; count],
            started: vec![(Instant::now(), 0); count],
            asked: vec![None; count],
            killed: vec![false; count],
            ends: (0..count).map(|_| None).collect(),
        };
        for task in 0..count {
            supervisor.start_one(task)?;
        }
        Ok(supervisor)
    }

    fn start_one(&mut self, task: usize) -> Result<(), String> {
        let command = (self.tasks[task].command)(self.cluster.spec())?;
        self.started[task] = (Instant::now(), self.started[task].1 + 1);
        self.cluster.start(task, command)
    }

    /// The tasks and their addresses.
    pub(crate) fn spec(&self) -> &ClusterSpec {
        self.cluster.spec()
    }

    /// Returns whether a task's process runs.
    pub(crate) fn is_running(&self, task: usize) -> bool {
        self.cluster.is_running(task)
    }

    /// Starts no task again from now on.
    pub(crate) fn no_more_restarts(&mut self) {
        self.restarts.fill(0);
    }

    /// Returns the names of the chosen tasks that run.
    pub(crate) fn running(&self, chosen: impl Fn(usize) -> bool) -> String {
        let tasks = (0..self.tasks.len()).filter(|task| chosen(*task) && self.is_running(*task));
        tasks.map(|task| short(&self.tasks[task].name)).collect::<Vec<_>>().join(", ")
    }

    /// Runs the tasks until `reached` holds. `heard` sees every line of a served task before it is shown, and returns
    /// whether it is for people.
    pub(crate) fn run(
        &mut self,
        wait: Wait<'_>,
        mut heard: impl FnMut(usize, Stream, &[u8]) -> bool,
        reached: impl Fn(&Supervisor) -> bool,
    ) -> Result<Ending, String> {
        let mut waiting = LoggedWait::new();
        loop {
            if reached(self) {
                return Ok(Ending::Reached);
            }
            let next_word = Instant::now() + waiting.until_next();
            match self.cluster.next_event(wait.deadline().map(|deadline| deadline.min(next_word))) {
                None => match wait {
                    Wait::Until(deadline, words) if Instant::now() < deadline => {
                        let (whom, why) = words(self);
                        if let Some(word) = waiting.message(whom, why) {
                            eprintln!("ferroflow: {word}");
                        }
                    }
                    _ => return Ok(Ending::TimeOver),
                },
                Some(Event::Signal(signal)) => return Ok(Ending::Signal(signal)),
                Some(Event::Line { task, stream, text }) => {
                    self.files.line(task, &text);
                    let Task { name, port, .. } = &self.tasks[task];
                    let served = *port == Port::HandedOver;
                    if !served || heard(task, stream, &text) {
                        // Standard output belongs to the programs.
                        let stream = if served { Stream::Error } else { stream };
                        self.output.line(task, name, stream, &text);
                    }
                }
                Some(Event::Ended { task, status }) => {
                    if let Some(code) = self.ended(task, status)? {
                        return Ok(Ending::Failed { task, code });
                    }
                }
            }
        }
    }

    /// Notes a task's end; returns its exit code if that is a failure which is not cured by another start.
    fn ended(&mut self, task: usize, status: ExitStatus) -> Result<Option<u8>, String> {
        let program = self.tasks[task].port != Port::HandedOver;
        let (started, starts) = self.started[task];
        let (asked, killed) = (self.asked[task].clone(), self.killed[task]);
        let by_itself = asked.is_none();
        self.ends[task] = Some(TaskEnd { status, ran: started.elapsed(), starts, asked, killed });
        if !by_itself || (program && status.success()) {
            self.cluster.close(task);
            return Ok(None);
        }
        self.report(task, status);
        if self.restarts[task] > 0 {
            self.restarts[task] -= 1;
            let name = short(&self.tasks[task].name);
            let left = match self.restarts[task] {
                0 => "no restarts left".to_owned(),
                1 => "1 restart left".to_owned(),
                left => format!("{left} restarts left"),
            };
            eprintln!("ferroflow: {name} is started again ({left})");
            self.start_one(task)?;
            return Ok(None);
        }
        self.cluster.close(task);
        // A served task does not end by itself.
        Ok(Some(exit::of_status(status).max(exit::PERMANENT)))
    }

    /// Prints a failure when it happens. The task's own lines were shown when it wrote them.
    fn report(&self, task: usize, status: ExitStatus) {
        let silent = if self.cluster.log(task).is_empty() { " and no output" } else { "" };
        let file = self.files.path(task);
        let file = file.map(|path| format!("; its output is in {}", path.display())).unwrap_or_default();
        let name = short(&self.tasks[task].name);
        let verb = if status.success() { "ended unexpectedly" } else { "failed" };
        eprintln!("ferroflow: {name} {verb} with {}{silent}{file}", described(status));
    }

    /// Prints how every task ended.
    pub(crate) fn summarize(&self) {
        for (task, end) in self.tasks.iter().zip(&self.ends) {
            let text = end.as_ref().map_or_else(|| "is still running".to_owned(), TaskEnd::text);
            eprintln!("ferroflow: {} {text}", short(&task.name));
        }
    }

    /// Asks the tasks that are chosen to end, and kills those that have not after `patience`, or when this process is
    /// asked to end again. `why` ends a sentence: the task was stopped because …
    pub(crate) fn end(
        &mut self,
        chosen: impl Fn(&TaskName, Port) -> bool,
        signal: Signal,
        patience: Duration,
        why: &str,
    ) -> Result<(), String> {
        let tasks: Vec<usize> = (0..self.tasks.len())
            .filter(|task| chosen(&self.tasks[*task].name, self.tasks[*task].port))
            .collect();
        let all_ended = |this: &Supervisor| !tasks.iter().any(|task| this.is_running(*task));
        for (signal, patience) in [(signal, patience), (Signal::KILL, KILLED_WITHIN)] {
            for task in tasks.iter().copied().filter(|task| self.cluster.is_running(*task)) {
                self.asked[task].get_or_insert_with(|| why.to_owned());
                self.killed[task] |= signal == Signal::KILL;
                self.cluster.signal(task, signal);
            }
            let words = |this: &Supervisor| {
                (this.running(|task| tasks.contains(&task)), "they were asked to end".to_owned())
            };
            let wait = Wait::Until(Instant::now() + patience, &words);
            // Other tasks that fail meanwhile change nothing.
            while let Ending::Failed { .. } = self.run(wait, |_, _, _| true, all_ended)? {}
            if all_ended(self) {
                return Ok(());
            }
        }
        Ok(())
    }
}

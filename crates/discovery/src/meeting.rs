//! The meeting of tasks that do not know each other's addresses.
//!
//! Every start of a task publishes a record at a meeting place (a directory or a process): its name, its addresses
//! and a random incarnation. The leader, a task that all know from the list of jobs, asks every member at its control port
//! whether it still is the one that published, and publishes the cluster when all are there. Dead tasks leave records
//! behind and do not answer, so they are waited out; a task that is started again publishes a higher generation, and the
//! leader the next epoch of the cluster. A task that leaves says how it ended, so that the others end too.

mod board;
mod bounded_wait;
mod claim;
mod control;
mod file;
mod form;
mod launch;
mod lines;
mod record;
mod survey;
mod table;
mod tcp;
#[cfg(test)]
mod tests;
mod url;
mod wake;
mod watch;

pub use claim::{Seat, Socket};
pub use launch::meet_through_launcher;
pub use survey::{Survey, SurveyedTask, collect_garbage, survey};
pub use tcp::Host;
pub use url::Url;
pub use watch::{Change, Event};

use crate::{Count, PortChoice, Topology, nearest};
use ferroflow_core::{Code, Result, Status, ensure, status};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The place where a task joins a run, its name there, and the conditions.
///
/// ```no_run
/// use ferroflow_discovery::meeting::{Meeting, Stop};
///
/// let meeting = Meeting::new("file:///shared/dir/job-42", "ps:1,worker:2", "worker", None)?;
/// let seat = meeting.enter(&Stop::default())?;
/// println!("{} is in {}", seat.task(), seat.wait()?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Meeting {
    /// The place where the tasks meet.
    pub url: Url,
    /// The jobs of the cluster; all tasks must say the same.
    pub jobs: Topology,
    /// This task's job.
    pub job: String,
    /// Its number; without one, the next free number is taken.
    pub task: Option<u32>,
    /// The number of workers that are enough, if all other tasks are there and no more workers come.
    pub min_workers: Option<u32>,
    /// The longest wait for the others; without a limit, until stopped.
    pub timeout: Option<Duration>,
    /// The time that tasks that serve others stay when the chief is done, for programs that are not.
    pub grace: Duration,
    /// The tasks whose end is the end.
    pub end_with: EndWith,
    /// True if the failure of one task ends all; false where single tasks are started again.
    pub fail_fast: bool,
    /// The host, or host and port, at which others reach this task.
    pub advertise: Option<String>,
    /// The interface whose addresses to publish.
    pub interface: Option<String>,
    /// The address to listen on; by default the advertised one if it is this machine's, or all.
    pub bind: Option<IpAddr>,
    /// The port to serve on.
    pub port: PortChoice,
    /// True if this task ends by itself when its work is done, as one that trains does; others wait for it.
    pub program: bool,
    /// True if the port is kept for a program that listens by itself, instead of listened on.
    pub reserve: bool,
}

/// The tasks whose success ends the tasks that serve others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndWith {
    /// The chief, or the first worker where there is none.
    #[default]
    Chief,
    /// All programs.
    Programs,
    /// None: servers stay until they are asked to end.
    Nobody,
}

impl Meeting {
    /// Joins as a task of a job, with the usual conditions.
    pub fn new(url: &str, jobs: &str, job: &str, task: Option<u32>) -> Result<Meeting> {
        Ok(Meeting {
            url: url.parse()?,
            jobs: jobs.parse()?,
            job: job.to_owned(),
            task,
            min_workers: None,
            timeout: Some(Duration::from_secs(300)),
            grace: Duration::from_secs(30),
            end_with: EndWith::default(),
            fail_fast: true,
            advertise: None,
            interface: None,
            bind: None,
            port: PortChoice::Any,
            program: false,
            reserve: false,
        })
    }

    /// Publishes this task, with its port open or kept. Waits only while all numbers of its job are taken.
    pub fn enter(self, stop: &Stop) -> Result<Seat, Failure> {
        self.enter_hosting(stop, None)
    }

    /// Publishes a task that may host the meeting place already.
    pub fn enter_hosting(self, stop: &Stop, host: Option<Host>) -> Result<Seat, Failure> {
        self.check()?;
        claim::enter(self, stop.0.clone(), host)
    }

    /// Returns the hint at the job that a misspelled one may be.
    fn meant(&self) -> String {
        let meant = nearest(&self.job, self.jobs.jobs().map(|(job, _)| job));
        meant.map(|meant| format!("; did you mean {meant}?")).unwrap_or_default()
    }

    fn check(&self) -> Result<()> {
        let named = self.jobs.jobs().find(|(job, _)| *job == self.job).map(|(_, count)| count);
        let Some(count) = named else {
            return Err(status!(
                InvalidArgument,
                "job {} is not among the jobs {}{}",
                self.job,
                self.jobs,
                self.meant()
            ));
        };
        for (job, count) in self.jobs.jobs() {
            ensure!(
                count != Count::Rest,
                InvalidArgument,
                "the number of tasks of job {job} must be known before they meet, and {} leaves it open; write e.g. {job}:2",
                self.jobs
            );
        }
        if let (Some(task), Count::Tasks(count)) = (self.task, count) {
            ensure!(
                task < count,
                InvalidArgument,
                "there is no {}:{task}, the jobs are {} and numbers start at 0",
                self.job,
                self.jobs
            );
        }
        if let Some(fewest) = self.min_workers {
            let workers = self.jobs.tasks().filter(|task| task.job == "worker").count();
            ensure!(
                0 < fewest && fewest as usize <= workers,
                InvalidArgument,
                "at least {fewest} workers are asked for, but the jobs {} have {workers}",
                self.jobs
            );
        }
        Ok(())
    }
}

/// Ends waits from outside.
#[derive(Clone, Default)]
pub struct Stop(Arc<wake::Wake>);

impl Stop {
    /// Lets every wait with this handle end.
    pub fn stop(&self) {
        self.0.stop();
    }
}

/// The reason why a task is not, or no longer, part of a cluster.
#[derive(Clone, Debug)]
pub enum Failure {
    /// The others did not come in time.
    TimedOut(String),
    /// Another process is the same task, and alive.
    Taken(String),
    /// The same task was started again by a process that could not reach this one, and has its place.
    Superseded(String),
    /// Tasks were started with different clusters.
    Mismatch(String),
    /// Another task failed, with this exit code.
    Peer(String, u8),
    /// [`Stop::stop`] was called.
    Stopped,
    /// The meeting place, the network or the arguments cannot be used.
    Unusable(Status),
}

impl From<Status> for Failure {
    fn from(status: Status) -> Failure {
        Failure::Unusable(status)
    }
}

impl Failure {
    /// Converts the failure to a status. An implementation of `From` would make every other one ambiguous.
    pub fn into_status(self) -> Status {
        let code = match &self {
            Failure::TimedOut(_) => Code::DeadlineExceeded,
            Failure::Taken(_) => Code::AlreadyExists,
            Failure::Superseded(_) | Failure::Peer(..) => Code::Aborted,
            Failure::Mismatch(_) => Code::FailedPrecondition,
            Failure::Stopped => Code::Cancelled,
            Failure::Unusable(status) => return status.clone(),
        };
        Status::new(code, self.to_string())
    }
}

impl std::error::Error for Failure {}

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Failure::TimedOut(message)
            | Failure::Taken(message)
            | Failure::Superseded(message)
            | Failure::Mismatch(message)
            | Failure::Peer(message, _) => f.write_str(message),
            Failure::Stopped => f.write_str("asked to stop"),
            Failure::Unusable(status) => f.write_str(status.message()),
        }
    }
}

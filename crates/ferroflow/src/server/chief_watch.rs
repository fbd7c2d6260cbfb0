//! Detection of the end of training by a task that nobody tells about it.
//!
//! TensorFlow's chiefs do not announce the end of training. But their masters open a session on the tasks that they use,
//! delete it when the program closes its own, and then their process ends, so that nothing listens at their address. A
//! chief that goes without deleting its sessions has crashed, and is waited for. A task that the chief never used cannot
//! tell the two apart: it asks the other tasks, and waits as long as none says that the chief has used it.
//!
//! Other workers may not have begun when the chief is done: TensorFlow's workers look every 30 seconds whether the
//! variables are ready, with a session that they close again. As long as their servers answer, they are waited for until
//! they have trained.

#[cfg(test)]
mod tests;

use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_cluster::probe::Probe;
use ferroflow_cluster::server::Server as Task;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, ensure, status};
use ferroflow_discovery::is_chief;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// Interval between two looks at the chief.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// Time that a task may take to accept a connection or to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Limits of the waits for the end of training.
pub(super) struct Timeouts {
    /// Time that this task stays after the chief has gone.
    pub(super) grace: Duration,
    /// Time to wait for a chief that is not there; `None` for no limit.
    pub(super) chief: Option<Duration>,
    /// Time that a worker that closed its session may take to open another one; TensorFlow's look every 30 seconds.
    pub(super) poll: Duration,
    /// Time that a worker that answers may take to open its first session.
    pub(super) begin: Duration,
}

impl Timeouts {
    /// Sets limits that suit TensorFlow programs.
    pub(super) fn new(grace: Duration, chief: Option<Duration>) -> Timeouts {
        Timeouts { grace, chief, poll: Duration::from_secs(40), begin: Duration::from_secs(600) }
    }
}

/// Waits until training is over. Fails if the chief is away for too long.
pub(super) async fn until_done(task: &Task, cluster: &ClusterSpec, timeouts: &Timeouts) -> Result<()> {
    let grace = timeouts.grace;
    let chief = cluster.tasks().map(|(task, _)| task).find(|task| is_chief(task, cluster));
    let chief = chief.ok_or_else(|| {
        status!(
            InvalidArgument,
            "cannot wait for the end of training: the cluster has neither a chief nor a worker 0"
        )
    })?;
    let mut watch = Watch::new(chief.clone());
    loop {
        let masters = task.masters();
        let here = is_there(task, cluster, &chief).await;
        let used = task.has_seen(&chief);
        watch.seen |= used || (here && chief != *task.task());
        let closed = !masters.contains(&chief.to_string());
        // This task itself is alive until it ends here, so only its sessions tell.
        let gone = closed && (!here || chief == *task.task());
        let done = closed && (used || watch.trained);
        watch.note_presence(here || done, timeouts.chief)?;
        if !watch.seen {
            watch.log(Wait::Start, "it has not come yet");
        } else if !gone {
            (watch.gone, watch.met, watch.trained) = (None, false, false);
            if closed || here {
                watch.wait = None;
            } else {
                watch.log(Wait::Return, "it went without closing its session");
            }
        } else {
            let since = *watch.gone.get_or_insert_with(Instant::now);
            let trained = used || watch.ask_others(task, cluster).await?;
            if since.elapsed() >= grace && !trained {
                let others = "it went before it used this task, and no other task says that it has trained";
                watch.log(Wait::Return, others);
            } else if since.elapsed() >= grace {
                let busy = still_there(task, cluster, &masters).await;
                let unfinished = if busy.is_empty() {
                    watch.unfinished(task, cluster, timeouts, since).await?
                } else {
                    Vec::new()
                };
                if busy.is_empty() && unfinished.is_empty() {
                    tracing::info!(%chief, "The chief is done; ending.");
                    return Ok(());
                }
                let why = if busy.is_empty() {
                    format!("the chief is done, but {} may yet train", unfinished.join(" and "))
                } else {
                    format!("the chief is done, but {busy:?} have sessions open here")
                };
                watch.log(Wait::Others, &why);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// Event that the task waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// The arrival of the chief.
    Start,
    /// The return of the chief.
    Return,
    /// The end of other tasks.
    Others,
}

/// Observations so far.
struct Watch {
    chief: TaskName,
    /// Set once the chief was there.
    seen: bool,
    /// Time since when the chief has been gone.
    gone: Option<Instant>,
    /// Set if other tasks than the chief answered after it had gone.
    met: bool,
    /// Set if one of them says that the chief used it and closed its sessions.
    trained: bool,
    /// Time since when nothing has listened at the chief's address.
    away: Option<Instant>,
    wait: Option<(Wait, LoggedWait)>,
}

impl Watch {
    fn new(chief: TaskName) -> Watch {
        Watch { chief, seen: false, gone: None, met: false, trained: false, away: None, wait: None }
    }

    /// Fails if the chief has been away for too long. A chief that is done with its training counts as present.
    fn note_presence(&mut self, present: bool, limit: Option<Duration>) -> Result<()> {
        if present {
            self.away = None;
            return Ok(());
        }
        let away = self.away.get_or_insert_with(Instant::now).elapsed();
        let happened = if self.seen { "has not come back" } else { "has not come" };
        ensure!(
            limit.is_none_or(|limit| away < limit),
            DeadlineExceeded,
            "{} {happened} within {} s, so this task ends; is the chief's program running?",
            self.chief,
            away.as_secs()
        );
        Ok(())
    }

    /// Returns a description of each worker besides the chief whose server answers and which may still train.
    async fn unfinished(
        &self,
        task: &Task,
        cluster: &ClusterSpec,
        timeouts: &Timeouts,
        gone_since: Instant,
    ) -> Result<Vec<String>> {
        let serves = |name: &TaskName| matches!(name.job.as_str(), "ps" | "evaluator");
        let others =
            cluster.tasks().filter(|(name, _)| name != task.task() && *name != self.chief && !serves(name));
        let mut new = Vec::new();
        let mut unfinished = Vec::new();
        for (name, address) in others {
            match task.closed_for(&name) {
                Some(closed) if closed >= timeouts.poll => {}
                Some(_) => {
                    if is_there(task, cluster, &name).await {
                        unfinished.push(format!("{name}, which closed its session a moment ago,"));
                    }
                }
                None if gone_since.elapsed() >= timeouts.begin => {}
                None => new.push((name, address.to_owned())),
            }
        }
        if new.is_empty() {
            return Ok(unfinished);
        }
        let probe = Probe { task: task.task(), cluster, try_others: false, limit: ANSWER_WITHIN };
        let addresses: Vec<String> = cluster.tasks().map(|(_, address)| address.to_owned()).collect();
        let answers: Vec<_> = addresses.iter().zip(probe.answers(&addresses).await?).collect();
        let done: Vec<&String> = answers
            .iter()
            .filter_map(|(_, answer)| answer.as_ref().ok())
            .flat_map(|it| &it.done_with)
            .collect();
        for (name, address) in new {
            let answer = answers.iter().find(|(asked, _)| **asked == address);
            let may_begin = answer.is_some_and(|(_, answer)| answer.as_ref().is_ok_and(|it| !it.serves_only));
            if may_begin && !done.contains(&&name.to_string()) {
                unfinished.push(format!("{name}, which is there and has not begun,"));
            }
        }
        Ok(unfinished)
    }

    fn log(&mut self, wait: Wait, why: &str) {
        let whom = if wait == Wait::Others { "other tasks".to_owned() } else { self.chief.to_string() };
        match &mut self.wait {
            Some((before, waiting)) if *before == wait => waiting.log(whom, why),
            _ => self.wait = Some((wait, LoggedWait::new())),
        }
    }

    /// Asks the other tasks whether the chief has trained: one says so, or all of them have ended since.
    async fn ask_others(&mut self, task: &Task, cluster: &ClusterSpec) -> Result<bool> {
        let others = cluster.tasks().filter(|(name, _)| name != task.task() && *name != self.chief);
        let others: Vec<String> = others.map(|(_, address)| address.to_owned()).collect();
        let probe = Probe { task: task.task(), cluster, try_others: false, limit: ANSWER_WITHIN };
        let answers = if self.trained { Vec::new() } else { probe.answers(&others).await? };
        let there: Vec<_> = answers.into_iter().flatten().collect();
        let chief = self.chief.to_string();
        self.trained |= there.iter().any(|identity| identity.done_with.contains(&chief));
        self.trained |= self.met && there.is_empty();
        self.met |= !there.is_empty();
        Ok(self.trained)
    }
}

/// Returns the masters with sessions here whose processes are alive. Sessions of dead ones stay open, but are not used.
async fn still_there<'a>(
    task: &Task,
    cluster: &ClusterSpec,
    masters: &'a BTreeSet<String>,
) -> Vec<&'a String> {
    let mut there = Vec::new();
    for master in masters {
        let known = cluster.tasks().map(|(name, _)| name).find(|name| name.to_string() == *master);
        match known {
            Some(name) if !is_there(task, cluster, &name).await => {}
            // A master that the cluster does not name cannot be asked.
            _ => there.push(master),
        }
    }
    there
}

/// Returns `true` if something listens at a task's address.
async fn is_there(task: &Task, cluster: &ClusterSpec, name: &TaskName) -> bool {
    if name == task.task() {
        return true;
    }
    let Some(address) = cluster.address(name) else { return false };
    let connected = tokio::time::timeout(ANSWER_WITHIN, TcpStream::connect(address)).await;
    matches!(connected, Ok(Ok(_)))
}

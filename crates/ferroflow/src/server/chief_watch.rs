//! The end of training, as a task sees it that nobody tells.
//!
//! Chiefs of stock know nothing of an end that others could follow. But their masters open a session on the tasks that
//! they use and delete it when the program closes its own, and then their process ends, so that nobody listens at their
//! address any more. A chief that goes without deleting its sessions has crashed and is waited for. A task that it never
//! used cannot tell the two by itself: it asks the others, and without any that the chief has used it waits.
//!
//! Other workers may have yet to begin when the chief is done: those of stock look every 30 seconds whether its variables
//! are ready, with a session that they close again. As long as their servers answer, they are waited for until they have
//! trained.

#[cfg(test)]
mod tests;

use ferroflow_cluster::probe::Probe;
use ferroflow_cluster::server::Server as Task;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_cluster::waiting::Waiting;
use ferroflow_core::{Result, ensure, status};
use ferroflow_discovery::is_chief;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// How often a task looks at the chief.
const LOOK_EVERY: Duration = Duration::from_millis(250);
/// How long a task may take to accept a connection or to answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// How long a task waits, and for what.
pub(super) struct Patience {
    /// How long it stays after the chief.
    pub(super) grace: Duration,
    /// How long it waits for a chief that is not there; `None` for ever.
    pub(super) chief: Option<Duration>,
    /// How long a worker that closed its session may take to open another one: stock's look every 30 seconds.
    pub(super) poll: Duration,
    /// How long a worker that answers may take to open its first session.
    pub(super) begin: Duration,
}

impl Patience {
    /// What suits programs of stock.
    pub(super) fn new(grace: Duration, chief: Option<Duration>) -> Patience {
        Patience { grace, chief, poll: Duration::from_secs(40), begin: Duration::from_secs(600) }
    }
}

/// Ends when training is over. Fails if the chief is away for longer than the task has patience.
pub(super) async fn until_done(task: &Task, cluster: &ClusterSpec, patience: &Patience) -> Result<()> {
    let grace = patience.grace;
    let chief = cluster.tasks().map(|(task, _)| task).find(|task| is_chief(task, cluster));
    let chief = chief.ok_or_else(|| {
        status!(InvalidArgument, "no task ends the training: the cluster has neither a chief nor a worker 0")
    })?;
    let mut watch = Watch::new(chief.clone());
    loop {
        let masters = task.masters();
        let here = is_there(task, cluster, &chief).await;
        let used = task.has_seen(&chief);
        watch.seen |= used || (here && chief != *task.task());
        let closed = !masters.contains(&chief.to_string());
        // The own task is there until it ends here, so that only its sessions can tell.
        let gone = closed && (!here || chief == *task.task());
        let done = closed && (used || watch.trained);
        watch.note_presence(here || done, patience.chief)?;
        if !watch.seen {
            watch.speak(Wait::Start, "it has not come yet");
        } else if !gone {
            (watch.gone, watch.met, watch.trained) = (None, false, false);
            match closed || here {
                true => watch.wait = None,
                false => watch.speak(Wait::Return, "it went without closing its session"),
            }
        } else {
            let since = *watch.gone.get_or_insert_with(Instant::now);
            let trained = used || watch.ask_others(task, cluster).await?;
            if since.elapsed() >= grace && !trained {
                let others = "it went before it used this task, and no other task tells that it trained";
                watch.speak(Wait::Return, others);
            } else if since.elapsed() >= grace {
                let busy = still_there(task, cluster, &masters).await;
                let unfinished = match busy.is_empty() {
                    true => watch.unfinished(task, cluster, patience, since).await?,
                    false => Vec::new(),
                };
                if busy.is_empty() && unfinished.is_empty() {
                    tracing::info!(%chief, "The chief is done; ending.");
                    return Ok(());
                }
                let why = match busy.is_empty() {
                    true => format!("the chief is done, but {} may yet train", unfinished.join(" and ")),
                    false => format!("the chief is done, but {busy:?} have sessions open here"),
                };
                watch.speak(Wait::Others, &why);
            }
        }
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

/// What is waited for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wait {
    Start,
    Return,
    Others,
}

/// What has been seen so far.
struct Watch {
    chief: TaskName,
    /// The chief was there.
    seen: bool,
    /// Since when it is done.
    gone: Option<Instant>,
    /// Tasks beside the chief that were there when it had gone.
    met: bool,
    /// One of them says that the chief has used it, and has closed its sessions.
    trained: bool,
    /// Since when nobody has been at its address.
    away: Option<Instant>,
    wait: Option<(Wait, Waiting)>,
}

impl Watch {
    fn new(chief: TaskName) -> Watch {
        Watch { chief, seen: false, gone: None, met: false, trained: false, away: None, wait: None }
    }

    /// Fails if the chief has been away for too long; one that is done with its training counts as present.
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
            "{} {happened} within {} s, so this task ends",
            self.chief,
            away.as_secs()
        );
        Ok(())
    }

    /// Workers beside the chief whose servers answer and who may have yet to train, with what is known of them.
    async fn unfinished(
        &self,
        task: &Task,
        cluster: &ClusterSpec,
        patience: &Patience,
        gone_since: Instant,
    ) -> Result<Vec<String>> {
        let serves = |name: &TaskName| matches!(name.job.as_str(), "ps" | "evaluator");
        let others =
            cluster.tasks().filter(|(name, _)| name != task.task() && *name != self.chief && !serves(name));
        let mut new = Vec::new();
        let mut unfinished = Vec::new();
        for (name, address) in others {
            match task.closed_for(&name) {
                Some(closed) if closed >= patience.poll => {}
                Some(_) => {
                    if is_there(task, cluster, &name).await {
                        unfinished.push(format!("{name}, which closed its session a moment ago,"));
                    }
                }
                None if gone_since.elapsed() >= patience.begin => {}
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

    fn speak(&mut self, wait: Wait, why: &str) {
        let whom = if wait == Wait::Others { "other tasks".to_owned() } else { self.chief.to_string() };
        match &mut self.wait {
            Some((before, waiting)) if *before == wait => waiting.speak(whom, why),
            _ => self.wait = Some((wait, Waiting::new())),
        }
    }

    /// Whether the chief has trained, as the others tell: one says so, or all of them have ended since.
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

/// Masters with sessions here whose processes are there. Sessions of dead ones stay open, but nobody will use them.
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
            // One that the cluster does not name cannot be asked.
            _ => there.push(master),
        }
    }
    there
}

/// Whether somebody listens at a task's address.
async fn is_there(task: &Task, cluster: &ClusterSpec, name: &TaskName) -> bool {
    if name == task.task() {
        return true;
    }
    let Some(address) = cluster.address(name) else { return false };
    let connected = tokio::time::timeout(ANSWER_WITHIN, TcpStream::connect(address)).await;
    matches!(connected, Ok(Ok(_)))
}

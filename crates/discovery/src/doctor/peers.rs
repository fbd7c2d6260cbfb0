//! The other tasks: their answers, their identities, and their views of the cluster.

use super::obstacle::Obstacle;
use super::{Examination, Finding, Verdict};
use crate::Role;
use crate::role::{is_chief, short};
use ferroflow_cluster::probe::{Identity, Probe};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Status, status};
use std::time::{Duration, Instant};

/// The difference of clocks from which files and events may look out of order,
const CLOCKS_APART: f64 = 1.0;
/// and from which nothing that compares times can be right.
const CLOCKS_WRONG: f64 = 30.0;
/// The pause before tasks that were not up are asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// A task of the cluster and its answer.
struct Peer {
    task: TaskName,
    address: String,
    answer: Result<Identity, Status>,
}

pub(super) fn check(examination: &Examination<'_>, mut waiting: impl FnMut(&[TaskName])) -> Vec<Finding> {
    let deadline = examination.deadline();
    loop {
        let peers = match ask(examination) {
            Ok(peers) => peers,
            Err(error) => {
                let fix = "end other programs, or raise the limits of this process";
                return vec![Finding::faulty(Verdict::Wrong, "task", "all", error.message(), fix)];
            }
        };
        let absent: Vec<TaskName> =
            peers.iter().filter(|peer| peer.answer.is_err()).map(|peer| peer.task.clone()).collect();
        let over = deadline.is_none_or(|deadline| Instant::now() >= deadline);
        if absent.is_empty() || over {
            return peers.iter().flat_map(|peer| judge(examination, peer, &peers)).collect();
        }
        waiting(&absent);
        std::thread::park_timeout(PAUSE);
    }
}

fn ask(examination: &Examination<'_>) -> Result<Vec<Peer>, Status> {
    let role = examination.role;
    let others: Vec<(TaskName, String)> = role
        .cluster
        .tasks()
        .filter(|(task, _)| *task != role.task)
        .map(|(task, address)| (task, address.to_owned()))
        .collect();
    let addresses: Vec<String> = others.iter().map(|(_, address)| address.clone()).collect();
    let probe =
        Probe { task: &role.task, cluster: &role.cluster, try_others: true, limit: examination.limit };
    let answers = probe.ask(&addresses)?;
    let peers = others.into_iter().zip(answers);
    Ok(peers.map(|((task, address), answer)| Peer { task, address, answer }).collect())
}

/// Returns the task that answers at an address.
pub fn who_answers(role: &Role, address: &str) -> Option<TaskName> {
    let limit = Duration::from_secs(2);
    let probe = Probe { task: &role.task, cluster: &role.cluster, try_others: false, limit };
    probe.ask(&[address.to_owned()]).ok()?.pop()?.ok()?.task
}

/// Asks the server at `host:port` which task it is; an error says why it does not answer, and what to do.
pub fn ping(address: &str, limit: Duration) -> Result<Identity, String> {
    let caller = TaskName::new("localhost", 0);
    let check = ClusterSpec::new().add("localhost", 0, address);
    check.map_err(|error| {
        let fault = error.message();
        let fault = fault.split_once("expected host:port: ").map_or(fault, |(_, fault)| fault);
        format!("'{address}' is not an address, expected host:port: {fault}")
    })?;
    let cluster = ClusterSpec::new();
    let probe = Probe { task: &caller, cluster: &cluster, try_others: false, limit };
    let answer = probe
        .ask(&[address.to_owned()])
        .and_then(|mut answers| answers.pop().unwrap_or_else(|| Err(status!(Internal, "no answer"))));
    answer.map_err(|error| {
        let obstacle = Obstacle::find(address, &error, limit);
        let text = obstacle.text(address, limit);
        let fix = match obstacle {
            Obstacle::Refused => "start it, or check the address".to_owned(),
            Obstacle::Stranger(_) => "check the port".to_owned(),
            other => other.fix("it", address),
        };
        format!("the server {text}; {fix}")
    })
}

fn judge(examination: &Examination<'_>, peer: &Peer, all: &[Peer]) -> Vec<Finding> {
    let about = short(&peer.task);
    match &peer.answer {
        Err(error) => vec![absent(examination, peer, error)],
        Ok(identity) if identity.task.as_ref() != Some(&peer.task) => vec![misplaced(peer, identity)],
        Ok(identity) => {
            let millis = identity.round_trip.as_secs_f64() * 1e3;
            let version = identity.version.as_deref();
            let version = version.map_or("stock TensorFlow".to_owned(), |own| format!("Ferroflow {own}"));
            let text = format!("answers at {} within {millis:.1} ms, {version}", peer.address);
            let mut findings = vec![Finding::fine("task", &about, text)];
            if identity.version.is_some() {
                findings.extend(version_of(&about, identity));
                findings.extend(agreement(examination, &about, peer, identity));
                findings.push(clock(&about, identity));
                findings.extend(ways(examination, &about, identity, all));
            }
            findings
        }
    }
}

/// Judges a task that does not answer.
fn absent(examination: &Examination<'_>, peer: &Peer, error: &Status) -> Finding {
    let obstacle = Obstacle::find(&peer.address, error, examination.limit);
    let (about, address) = (short(&peer.task), &peer.address);
    let mut text = obstacle.text(address, examination.limit);
    let needed = is_needed(&peer.task, examination.role);
    // A worker that is not up joins later; whatever else is wrong with its address stays wrong.
    let may_come = obstacle == Obstacle::Refused && !needed && examination.wait.is_none();
    let verdict = if may_come { Verdict::Doubtful } else { Verdict::Wrong };
    let waits = matches!(obstacle, Obstacle::Refused | Obstacle::TimedOut | Obstacle::Silent);
    text.push_str(match verdict {
        Verdict::Doubtful => "; training starts without it",
        _ if needed && waits => "; training waits for it",
        _ => "",
    });
    let mut fix = obstacle.fix(&about, address);
    if may_come {
        fix.push_str("; sessions of stock TensorFlow wait for it unless their device_filters leave it out");
    }
    Finding::faulty(verdict, "task", &about, text, fix)
}

/// Returns whether training cannot begin without a task: the chief, and every task of another job, because the chief's
/// session waits for those.
fn is_needed(task: &TaskName, role: &Role) -> bool {
    let tasks = || role.cluster.tasks().map(|(task, _)| task).chain([role.task.clone()]);
    let chief = tasks().find(|task| is_chief(task, &role.cluster));
    match chief {
        Some(chief) => *task == chief || task.job != chief.job,
        None => task.job != role.task.job,
    }
}

/// Judges an address at which another task answers.
fn misplaced(peer: &Peer, identity: &Identity) -> Finding {
    let same_lists =
        "give every task the same lists in the same order, and the index of its own place in them";
    let (there, fix) = match &identity.task {
        None => ("a server that does not say which task it is".to_owned(), same_lists.to_owned()),
        Some(_) if identity.version.is_some() && identity.cluster.is_empty() => (
            "a Ferroflow server that was started without a cluster".to_owned(),
            format!(
                "start it with the lists of all tasks, --job_name={} and --task_index={}",
                peer.task.job, peer.task.task
            ),
        ),
        Some(task) => (short(task), same_lists.to_owned()),
    };
    let elsewhere = match identity.cluster.address(&peer.task) {
        Some(address) if address != peer.address => {
            format!(" and has {} at {address} in its own lists", short(&peer.task))
        }
        _ => String::new(),
    };
    let text = format!("is not at {}: {there} answers there{elsewhere}", peer.address);
    Finding::faulty(Verdict::Wrong, "task", short(&peer.task), text, fix)
}

fn version_of(about: &str, identity: &Identity) -> Option<Finding> {
    let (here, there) = (env!("CARGO_PKG_VERSION"), identity.version.as_deref()?);
    (here != there).then(|| {
        let text = format!("runs version {there}, and {here} is here");
        Finding::faulty(Verdict::Doubtful, "version", about, text, "install the same version everywhere")
    })
}

fn agreement(examination: &Examination<'_>, about: &str, peer: &Peer, identity: &Identity) -> Vec<Finding> {
    let (here, there) = (&examination.role.cluster, &identity.cluster);
    let fix = "start all tasks with the same lists";
    if there.is_empty() {
        let text = "was started without a cluster, so that it cannot reach other tasks";
        return vec![Finding::faulty(Verdict::Wrong, "agreement", about, text, fix)];
    }
    let differences = here.differences(there).into_iter().map(|difference| {
        let found_each_other = difference.task == peer.task || difference.task == examination.role.task;
        let matters = !found_each_other && difference.matters();
        let verdict = if matters { Verdict::Wrong } else { Verdict::Doubtful };
        Finding::faulty(verdict, "agreement", about, format!("has different lists: {difference}"), fix)
    });
    let mut findings: Vec<Finding> = differences.collect();
    let unknown = |these: &ClusterSpec, those: &ClusterSpec| {
        let missing = these.tasks().filter(|(task, _)| those.address(task).is_none());
        missing.map(|(task, _)| short(&task)).collect::<Vec<_>>().join(", ")
    };
    for (missing, text) in [
        (unknown(here, there), "lacks in its lists"),
        (unknown(there, here), "has in its lists, unlike this task,"),
    ] {
        if !missing.is_empty() {
            let text = format!("{text} {missing}");
            findings.push(Finding::faulty(Verdict::Doubtful, "agreement", about, text, fix));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine("agreement", about, "has the same lists"));
    }
    findings
}

fn clock(about: &str, identity: &Identity) -> Finding {
    let uncertain = identity.round_trip.as_secs_f64() / 2.0;
    let ahead = identity.clock_ahead;
    let apart = (ahead.abs() - uncertain).max(0.0);
    let text = format!(
        "its clock is {:.3} s {} this one",
        ahead.abs(),
        if ahead >= 0.0 { "ahead of" } else { "behind" }
    );
    let fix = "let both machines follow a time server";
    match apart {
        apart if apart > CLOCKS_WRONG => Finding::faulty(Verdict::Wrong, "clock", about, text, fix),
        apart if apart > CLOCKS_APART => Finding::faulty(Verdict::Doubtful, "clock", about, text, fix),
        _ => Finding::fine("clock", about, text),
    }
}

/// Judges the ways from a task to the others. One that is not up is not reached from anywhere, and one that the task looks
/// for elsewhere is a difference of lists: neither says anything about the network.
fn ways(examination: &Examination<'_>, about: &str, identity: &Identity, all: &[Peer]) -> Vec<Finding> {
    let role = examination.role;
    let mut findings = Vec::new();
    for (name, address, failure) in &identity.reached {
        let Some(why) = failure else { continue };
        let Some((task, _)) =
            role.cluster.tasks().find(|(task, here)| task.to_string() == *name && here == address)
        else {
            continue;
        };
        let is_up = if task == role.task {
            examination.listening
        } else {
            all.iter().any(|peer| peer.task == task && peer.answer.is_ok())
        };
        if is_up {
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            let text = format!("does not reach {} at {address}, which answers here: {why}", short(&task));
            let fix = format!(
                "check that name on the machine of {about}, and that firewalls between the two let port {port} through"
            );
            findings.push(Finding::faulty(Verdict::Wrong, "way", about, text, fix));
        }
    }
    let reached = identity.reached.iter().filter(|(_, _, failure)| failure.is_none()).count();
    if findings.is_empty() && reached > 0 {
        findings.push(Finding::fine(
            "way",
            about,
            format!("reaches {reached} of {} others", identity.reached.len()),
        ));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_that_differ_are_told_by_how_much() {
        let judged = |ahead: f64, round_trip: f64| {
            let identity = Identity {
                task: None,
                version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                cluster: ClusterSpec::new(),
                clock_ahead: ahead,
                round_trip: Duration::from_secs_f64(round_trip),
                reached: Vec::new(),
                serves_only: false,
                done_with: Vec::new(),
            };
            let finding = clock("ps:0", &identity);
            (finding.verdict, finding.text)
        };
        assert_eq!(judged(0.2, 0.0).0, Verdict::Fine);
        let (verdict, text) = judged(2.5, 0.0);
        assert_eq!((verdict, text.as_str()), (Verdict::Doubtful, "its clock is 2.500 s ahead of this one"));
        let (verdict, text) = judged(-40.0, 0.0);
        assert_eq!((verdict, text.as_str()), (Verdict::Wrong, "its clock is 40.000 s behind this one"));
        // An answer that took long says little about the moment at which it was given.
        assert_eq!(judged(2.5, 4.0).0, Verdict::Fine);
    }
}

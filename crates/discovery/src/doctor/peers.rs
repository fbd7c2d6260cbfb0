//! The other tasks: who answers, whether it is the right one, and whether all see the same cluster.

use super::{Examination, Finding, Verdict};
use crate::Role;
use crate::role::short;
use ferroflow_cluster::probe::{Identity, Probe};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Code, Status};
use std::time::{Duration, Instant};

/// How far clocks may be apart before files and events look out of order,
const CLOCKS_APART: f64 = 1.0;
/// and before nothing that compares times can be right.
const CLOCKS_WRONG: f64 = 30.0;
/// How long to wait before tasks that were not up are asked again.
const PAUSE: Duration = Duration::from_millis(500);

/// A task of the cluster and what it said.
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

/// The task that answers at an address.
pub fn who_answers(role: &Role, address: &str) -> Option<TaskName> {
    let limit = Duration::from_secs(2);
    let probe = Probe { task: &role.task, cluster: &role.cluster, try_others: false, limit };
    probe.ask(&[address.to_owned()]).ok()?.pop()?.ok()?.task
}

fn judge(examination: &Examination<'_>, peer: &Peer, all: &[Peer]) -> Vec<Finding> {
    let about = short(&peer.task);
    match &peer.answer {
        Err(error) => vec![absent(examination, peer, error)],
        Ok(identity) if identity.task.as_ref() != Some(&peer.task) => {
            let there = identity.task.as_ref().map_or_else(|| "another program".to_owned(), short);
            let text = format!("is not at {}: {there} answers there", peer.address);
            let fix =
                "give every task the same lists in the same order, and the index of its own place in them";
            vec![Finding::faulty(Verdict::Wrong, "task", about, text, fix)]
        }
        Ok(identity) => {
            let millis = identity.round_trip.as_secs_f64() * 1e3;
            let version =
                identity.version.as_deref().map_or("TensorFlow".to_owned(), |own| format!("Ferroflow {own}"));
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

fn absent(examination: &Examination<'_>, peer: &Peer, error: &Status) -> Finding {
    let why = error.message();
    let refused = why.contains("refused");
    let verdict = if refused && examination.wait.is_none() { Verdict::Doubtful } else { Verdict::Wrong };
    let fix = match (refused, error.code()) {
        (true, _) => "start it; if it runs, it listens on another address or port".to_owned(),
        (_, Code::DeadlineExceeded) => format!(
            "open port {} of its machine in firewalls between here and there, or look whether it hangs",
            peer.address.rsplit_once(':').map_or("", |(_, port)| port)
        ),
        _ => "check its address, and the network between here and there".to_owned(),
    };
    let what = if refused { "is not up" } else { "is not reached" };
    Finding::faulty(verdict, "task", short(&peer.task), format!("{what} at {}: {why}", peer.address), fix)
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
    let fix = "start all tasks with the same cluster";
    if there.is_empty() {
        let text = "was started without a cluster, so it reaches no other task";
        return vec![Finding::faulty(Verdict::Wrong, "agreement", about, text, fix)];
    }
    let differences = here.differences(there).into_iter().map(|difference| {
        let found_each_other = difference.task == peer.task || difference.task == examination.role.task;
        let verdict = match !found_each_other && difference.matters() {
            true => Verdict::Wrong,
            false => Verdict::Doubtful,
        };
        Finding::faulty(verdict, "agreement", about, format!("has another cluster: {difference}"), fix)
    });
    let mut findings: Vec<Finding> = differences.collect();
    let unknown = |these: &ClusterSpec, those: &ClusterSpec| {
        let missing = these.tasks().filter(|(task, _)| those.address(task).is_none());
        missing.map(|(task, _)| short(&task)).collect::<Vec<_>>().join(", ")
    };
    for (missing, text) in
        [(unknown(here, there), "does not know"), (unknown(there, here), "knows, unlike this task,")]
    {
        if !missing.is_empty() {
            let text = format!("{text} {missing}");
            findings.push(Finding::faulty(Verdict::Doubtful, "agreement", about, text, fix));
        }
    }
    if findings.is_empty() {
        findings.push(Finding::fine("agreement", about, "has the same cluster"));
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

/// The ways from a task to the others. One that is not up is not reached from anywhere, which says nothing.
fn ways(examination: &Examination<'_>, about: &str, identity: &Identity, all: &[Peer]) -> Vec<Finding> {
    let own = examination.role.task.to_string();
    let mut findings = Vec::new();
    for (task, address, failure) in &identity.reached {
        let is_up = match *task == own {
            true => examination.listening,
            false => all.iter().any(|peer| peer.task.to_string() == *task && peer.answer.is_ok()),
        };
        let Some(why) = failure else { continue };
        if is_up {
            let port = address.rsplit_once(':').map_or("", |(_, port)| port);
            let text = format!("does not reach {task} at {address}, which is up: {why}");
            let fix =
                format!("check that name on its machine, and open port {port} in firewalls between the two");
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

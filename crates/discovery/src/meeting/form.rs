//! The forming of a cluster: the leader publishes it when all members are there, the others wait for it.

use super::Failure;
use super::bounded_wait::BoundedWait;
use super::claim::{Inner, Seat, State, mismatch};
use super::control::{Unreached, reach, tell_to_look};
use super::record::{Cluster, Member, Note, Place, VERSION, seal, short};
use super::table::View;
use crate::Topology;
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Code, Result};
use std::collections::BTreeMap;
use std::sync::PoisonError;
use std::time::{Duration, Instant};

/// The time for which a member that answered is taken to be there.
const FRESH: Duration = Duration::from_secs(2);

/// The time without a further task after which fewer workers are enough.
const SETTLING: Duration = Duration::from_secs(5);

/// The exit code in a note about a timeout.
pub(super) const TIMED_OUT: u8 = 75;

/// Returns the task that forms clusters, which is never one that the cluster could do without.
pub(super) fn leader(jobs: &Topology) -> TaskName {
    let rank = |task: &TaskName| {
        let order = ["chief", "master", "worker", "ps"];
        (order.iter().position(|job| *job == task.job).unwrap_or(order.len()), task.clone())
    };
    jobs.tasks().min_by_key(rank).unwrap_or_else(|| TaskName::new("worker", 0))
}

/// The outcome of an attempt to form a cluster.
pub(super) enum Formed {
    /// A new epoch is published, by this task or another.
    Published,
    /// These tasks are missing, for these reasons.
    Missing(Vec<(TaskName, String)>),
    /// The cluster is the same as before.
    Unchanged,
}

impl Seat {
    /// Waits until the cluster is complete, and logs from time to time which tasks are missing.
    pub fn wait(&self) -> Result<ClusterSpec, Failure> {
        let done = self.inner.wait();
        if let Err(Failure::TimedOut(reason)) = &done {
            self.inner.publish_note(TIMED_OUT, reason);
        }
        done
    }
}

impl Inner {
    fn wait(&self) -> Result<ClusterSpec, Failure> {
        let mut wait = BoundedWait::new(self.started, self.options.timeout);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = View::default();
        loop {
            if self.wake.stopped() {
                return Err(Failure::Stopped);
            }
            let over = wait.is_over();
            let mut missing = None;
            match self.look(&mut state) {
                Ok(view) => {
                    self.check(&mut state, &view)?;
                    if let Some(cluster) = self.own_cluster(&view) {
                        let spec = cluster.spec()?;
                        tracing::info!("The cluster is complete (epoch {}): {spec}.", cluster.epoch);
                        state.cluster = Some(cluster.clone());
                        return Ok(spec);
                    }
                    if leader(&self.options.jobs) == self.me.task_name() {
                        match self.form(&mut state, &view, over)? {
                            Formed::Published => {
                                wait.hurry();
                                continue;
                            }
                            Formed::Missing(tasks) => missing = Some(list(&tasks)),
                            Formed::Unchanged => {}
                        }
                    }
                    last = view;
                }
                Err(status) if status.code() == Code::Unavailable => {
                    missing = Some(status.message().to_owned())
                }
                Err(status) => return Err(status.into()),
            }
            if over || wait.is_due() {
                let missing = missing.unwrap_or_else(|| self.missing(&mut state, &last));
                if over {
                    return Err(Failure::TimedOut(format!(
                        "the cluster at {} is not complete after {} s: {missing}; start the missing tasks, or wait longer \
                         (--timeout)",
                        self.options.url,
                        wait.seconds()
                    )));
                }
                wait.log("the other tasks", &missing);
            }
            wait.pause(&self.wake);
        }
    }

    /// Reads the board, and adds the notes that other tasks sent directly.
    pub(super) fn look(&self, state: &mut State) -> Result<View> {
        let mut view = state.table.look()?;
        self.add_sent_notes(&mut view, state.cluster.as_ref());
        Ok(view)
    }

    /// Adds notes that were sent directly. One counts only if it is a member's, whose incarnation strangers do not know.
    /// The members of the cluster are known even if the board was lost with its host.
    pub(super) fn add_sent_notes(&self, view: &mut View, cluster: Option<&Cluster>) {
        for note in self.wake.notes() {
            let listed = view.members.values().any(|member| member.incarnation == note.incarnation);
            let known = listed || cluster.is_some_and(|cluster| cluster.has(&note.incarnation));
            if known && view.note_of(&note.incarnation).is_none() {
                view.notes.push(note);
            }
        }
    }

    /// Fails if something ends the membership.
    fn check(&self, state: &mut State, view: &View) -> Result<(), Failure> {
        self.check_superseded(view)?;
        let others =
            view.members.values().filter(|member| member.jobs != self.me.jobs || member.version != VERSION);
        for member in others {
            if state.dead.contains(&member.incarnation) {
                continue;
            }
            match reach(member, &self.run, &self.machine) {
                Ok(_) => return Err(mismatch(member, &self.me.jobs, &self.options.url)),
                Err(unreached) if !unreached.silent => drop(state.dead.insert(member.incarnation.clone())),
                Err(_) => {}
            }
        }
        let newest = |note: &&Note| {
            let member = view.members.get(&note.task_name());
            member.is_some_and(|member| member.incarnation == note.incarnation)
        };
        let mut failed = view.notes.iter().filter(newest).filter(|note| note.code != 0);
        match failed.find(|note| self.options.fail_fast && !self.bygone.contains(&note.incarnation)) {
            Some(note) => Err(peer_failed(note)),
            None => Ok(()),
        }
    }

    pub(super) fn check_superseded(&self, view: &View) -> Result<(), Failure> {
        match view.members.get(&self.me.task_name()) {
            Some(newest) if newest.incarnation != self.me.incarnation => Err(Failure::Superseded(format!(
                "{} was started again, as process {} on {}; this start (generation {}) gives way",
                short(&self.me.task_name()),
                newest.pid,
                newest.host,
                self.me.generation
            ))),
            _ => Ok(()),
        }
    }

    /// Returns the newest cluster, if this start is in it and all members in it are the newest starts of their tasks.
    fn own_cluster<'a>(&self, view: &'a View) -> Option<&'a Cluster> {
        let newest = |place: &Place| {
            let member = view.members.get(&place.task_name());
            member.is_some_and(|member| member.incarnation == place.incarnation)
        };
        let cluster = view.cluster.as_ref()?;
        (cluster.has(&self.me.incarnation) && cluster.members.iter().all(newest)).then_some(cluster)
    }

    /// Publishes the next epoch if all tasks that are needed are there.
    pub(super) fn form(&self, state: &mut State, view: &View, over: bool) -> Result<Formed> {
        let (places, missing) = self.find(state, view);
        let needed = missing.iter().filter(|(task, _)| self.is_needed(task)).count();
        let workers = places.iter().filter(|place| place.job == "worker").count();
        let enough = self.options.min_workers.is_none_or(|fewest| workers >= fewest as usize);
        if needed > 0 || !enough {
            state.settled = None;
            return Ok(Formed::Missing(missing));
        }
        if !missing.is_empty() && !over {
            let now = Instant::now();
            let (_, since) = *state.settled.get_or_insert((places.len(), now));
            if state.settled.is_some_and(|(count, _)| count != places.len()) {
                state.settled = Some((places.len(), now));
                return Ok(Formed::Missing(missing));
            }
            if since.elapsed() < SETTLING {
                return Ok(Formed::Missing(missing));
            }
        }
        if let Some(cluster) = &view.cluster
            && cluster.members == places
        {
            return Ok(Formed::Unchanged);
        }
        let epoch = view.cluster.as_ref().map_or(0, |cluster| cluster.epoch) + 1;
        let cluster = Cluster { epoch, members: places };
        // Two tasks with the same address would take each other for themselves.
        cluster.spec()?;
        state.table.publish(Cluster::name(epoch), seal(&cluster)?)?;
        let others = view.members.values().filter(|member| member.incarnation != self.me.incarnation);
        tell_to_look(others.filter(|member| cluster.has(&member.incarnation)), &self.run, &self.machine);
        Ok(Formed::Published)
    }

    /// Returns whether there is no cluster without this task.
    fn is_needed(&self, task: &TaskName) -> bool {
        self.options.min_workers.is_none() || task.job != "worker" || *task == leader(&self.options.jobs)
    }

    /// Finds the members that answer, with the address that works, and the tasks that do not.
    fn find(&self, state: &mut State, view: &View) -> (Vec<Place>, Vec<(TaskName, String)>) {
        let ended = |member: &Member| {
            view.note_of(&member.incarnation).is_some_and(|note| note.code == 0)
                && state.cluster.as_ref().is_some_and(|cluster| cluster.has(&member.incarnation))
        };
        let fresh = |member: &Member| {
            state.reached.get(&member.incarnation).is_some_and(|(_, when)| when.elapsed() < FRESH)
        };
        let doubtful: Vec<&Member> = view
            .members
            .values()
            .filter(|member| member.incarnation != self.me.incarnation && !ended(member) && !fresh(member))
            .collect();
        let answers = self.reach_all(&doubtful);
        let mut unreached = BTreeMap::new();
        for (member, answer) in doubtful.iter().zip(answers) {
            match answer {
                Ok(host) => drop(state.reached.insert(member.incarnation.clone(), (host, Instant::now()))),
                Err(reason) => {
                    state.reached.remove(&member.incarnation);
                    unreached.insert(member.task_name(), reason);
                }
            }
        }
        let (mut places, mut missing) = (Vec::new(), Vec::new());
        for task in self.options.jobs.tasks() {
            let member = view.members.get(&task);
            match (member, unreached.get(&task)) {
                (None, _) => missing.push((task, "absent".to_owned())),
                (Some(member), Some(Unreached { reason, .. })) => {
                    missing.push((task, format!("{} is stale, {reason}", member.name())));
                }
                (Some(member), None) => {
                    let known = state.reached.get(&member.incarnation).map(|(host, _)| host);
                    let before = state.cluster.as_ref().and_then(|cluster| cluster.place(&task));
                    let host = known.or(before.map(|place| &place.host)).or(member.hosts.first());
                    let host = host.unwrap_or(&member.host);
                    places.push(Place {
                        job: member.job.clone(),
                        task: member.task,
                        incarnation: member.incarnation.clone(),
                        host: host.clone(),
                        port: member.port,
                        control: member.control,
                        program: member.program,
                    });
                }
            }
        }
        (places, missing)
    }

    pub(super) fn reach_all(&self, members: &[&Member]) -> Vec<Result<String, Unreached>> {
        std::thread::scope(|scope| {
            let asked: Vec<_> = members
                .iter()
                .map(|member| scope.spawn(|| Ok(reach(member, &self.run, &self.machine)?.host)))
                .collect();
            let failed = || Unreached { reason: "it could not be asked".to_owned(), silent: true };
            asked.into_iter().map(|answer| answer.join().unwrap_or_else(|_| Err(failed()))).collect()
        })
    }

    /// Describes the tasks that a task that does not form clusters waits for.
    fn missing(&self, state: &mut State, view: &View) -> String {
        match self.find(state, view).1 {
            missing if missing.is_empty() => {
                let leader = leader(&self.options.jobs);
                format!("{} has yet to see all tasks", short(&leader))
            }
            missing => list(&missing),
        }
    }

    /// Publishes how this task ended.
    pub(super) fn publish_note(&self, code: u8, reason: &str) -> Note {
        let note = Note {
            job: self.me.job.clone(),
            task: self.me.task,
            incarnation: self.me.incarnation.clone(),
            code,
            reason: reason.to_owned(),
        };
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let published = seal(&note).and_then(|text| state.table.publish(self.me.note_name(), text));
        if let Err(error) = published {
            tracing::warn!("The others may not learn how this task ended: {}", error.message());
        }
        // Records that are missing from now on were removed by the last task to leave, and are not to come back.
        state.table.leave();
        note
    }
}

pub(super) fn peer_failed(note: &Note) -> Failure {
    let task = short(&note.task_name());
    Failure::Peer(format!("{task} ended with code {}: {}", note.code, note.reason), note.code)
}

fn list(missing: &[(TaskName, String)]) -> String {
    let named: Vec<String> =
        missing.iter().map(|(task, reason)| format!("{} ({reason})", short(task))).collect();
    format!("{} missing: {}", missing.len(), named.join(", "))
}

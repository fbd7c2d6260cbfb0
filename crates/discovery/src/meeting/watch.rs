//! Watching a cluster that has formed: restarts, failures and the end.

use super::bounded_wait::{BoundedWait, jittered};
use super::claim::{Inner, Seat, State};
use super::control::tell_note;
use super::form::{Formed, leader, peer_failed};
use super::record::{Cluster, Member, Place, short};
use super::table::View;
use super::{EndWith, Failure};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
use ferroflow_core::Result;
use std::sync::{Arc, PoisonError};
use std::time::{Duration, Instant};

/// The pause between looks at the board when no task tells of news.
const PAUSE: Duration = Duration::from_secs(5);

/// The pause between questions whether the programs are still there.
const ROUNDS: Duration = Duration::from_secs(15);

/// Tasks have joined, or were started again, some at other addresses.
#[derive(Clone, Debug)]
pub struct Change {
    /// The addresses of all tasks by now.
    pub cluster: ClusterSpec,
    /// The number of clusters that this run has formed.
    pub epoch: u64,
    /// Tasks whose addresses have changed.
    pub moved: Vec<TaskName>,
}

/// The end of a member's work.
#[derive(Clone, Debug)]
pub enum Event {
    /// The work is done: tasks that serve others can end.
    Ended(String),
    /// This task must stop.
    Failed(Failure),
    /// No program has answered for long, and none said how it ended.
    Orphaned(String),
}

impl Seat {
    /// Watches on a thread of its own until the seat is left, and tells of changes and of the event that ends the work.
    pub fn watch(
        &self,
        changed: impl FnMut(Change) + Send + 'static,
        ended: impl FnOnce(Event) + Send + 'static,
    ) -> Result<()> {
        let inner = self.inner.clone();
        let watch = move || {
            if let Some(event) = Watch::new(&inner).run(changed) {
                ended(event);
            }
        };
        std::thread::Builder::new()
            .name("meeting-watch".to_owned())
            .spawn(watch)
            .map(drop)
            .map_err(|error| ferroflow_core::status!(Internal, "cannot watch the others: {error}"))
    }

    /// Tells the others how this task ended. The last one to leave a run that went well cleans up; one that hosts the board
    /// stays until the others have read it, but not longer than the grace period.
    pub fn leave(self, code: u8, reason: &str) {
        let inner = &self.inner;
        inner.control.resume();
        let note = inner.publish_note(code, reason);
        let mut state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(cluster) = state.cluster.clone() else { return };
        let others = || cluster.members.iter().filter(|place| place.incarnation != inner.me.incarnation);
        tell_note(others(), &inner.run, &note);
        let limit = if state.table.is_host() { inner.options.grace } else { Duration::ZERO };
        let mut wait = BoundedWait::new(Instant::now(), Some(limit));
        loop {
            let Ok(view) = inner.look(&mut state) else { return };
            // The last task to leave has removed the records that were to be read here.
            if state.table.is_cleaned_up() {
                return;
            }
            // Notes that were sent directly count even if the board has nothing else of their tasks any more.
            let sent = inner.wake.notes();
            let note_of = |place: &Place| {
                let sent = sent.iter().find(|note| note.incarnation == place.incarnation);
                view.note_of(&place.incarnation).or(sent)
            };
            if cluster.members.iter().all(|place| note_of(place).is_some_and(|note| note.code == 0)) {
                if let Err(error) = state.table.remove_all() {
                    tracing::debug!("The rendezvous is not cleaned up: {}", error.message());
                }
                return;
            }
            if wait.is_over() || inner.wake.stopped() {
                return;
            }
            let absent = |place: &&Place| note_of(place).is_none();
            let left = inner.still_there(&view, cluster.members.iter().filter(absent));
            if left.is_empty() {
                return;
            }
            wait.log(&left.join(", "), "this task hosts the rendezvous, which they have yet to leave");
            wait.pause(&inner.wake);
        }
    }
}

impl Inner {
    /// Returns those of these members that answer.
    fn still_there<'a>(&self, view: &View, places: impl Iterator<Item = &'a Place>) -> Vec<String> {
        let names = places.map(Place::task_name);
        let members: Vec<&Member> = names.filter_map(|name| view.members.get(&name)).collect();
        let answers = self.reach_all(&members);
        let there = members.iter().zip(answers).filter(|(_, answer)| answer.is_ok());
        there.map(|(member, _)| short(&member.task_name())).collect()
    }
}

struct Watch {
    inner: Arc<Inner>,
    /// A change that is to be passed on.
    change: Option<Change>,
    view: View,
    /// The problem with the board, so that it is logged once.
    trouble: String,
    chief_done: Option<Instant>,
    /// The time at which a program last answered, and at which programs were last asked.
    seen: Instant,
    asked: Instant,
}

impl Watch {
    fn new(inner: &Arc<Inner>) -> Watch {
        let now = Instant::now();
        Watch {
            inner: inner.clone(),
            change: None,
            view: View::default(),
            trouble: String::new(),
            chief_done: None,
            seen: now,
            asked: now,
        }
    }

    /// Watches until something ends the work; `None` if the task was asked to stop or has left.
    fn run(&mut self, mut changed: impl FnMut(Change)) -> Option<Event> {
        loop {
            if self.inner.wake.stopped() {
                return None;
            }
            let event = self.look();
            self.change.take().into_iter().for_each(&mut changed);
            if event.is_some() {
                return event;
            }
            let left = self
                .chief_done
                .map_or(PAUSE, |since| self.inner.options.grace.saturating_sub(since.elapsed()));
            self.inner.wake.wait(jittered(PAUSE).min(left.max(Duration::from_millis(100))));
        }
    }

    fn look(&mut self) -> Option<Event> {
        let inner = self.inner.clone();
        let mut state = inner.state.lock().unwrap_or_else(PoisonError::into_inner);
        match inner.look(&mut state) {
            Ok(view) => {
                if !std::mem::take(&mut self.trouble).is_empty() {
                    tracing::info!("The rendezvous is back.");
                }
                self.view = view;
            }
            Err(error) => {
                inner.add_sent_notes(&mut self.view, state.cluster.as_ref());
                if self.trouble != error.message() {
                    tracing::warn!(
                        "Restarts of other tasks are not heard of for now: {}.",
                        error.message().trim_end_matches('.')
                    );
                    self.trouble = error.message().to_owned();
                }
            }
        }
        if let Err(failure) = inner.check_superseded(&self.view) {
            return Some(Event::Failed(failure));
        }
        self.follow(&mut state);
        let cluster = state.cluster.clone()?;
        self.failure(&cluster).or_else(|| self.end(&cluster)).or_else(|| self.orphaned(&state, &cluster))
    }

    /// Forms the next epoch if this task is the leader, and follows one that another task formed.
    fn follow(&mut self, state: &mut State) {
        let (inner, view) = (&self.inner, &self.view);
        let Some(own) = state.cluster.clone() else { return };
        let news = view.members.values().filter(|member| !own.has(&member.incarnation));
        if leader(&inner.options.jobs) == inner.me.task_name() && news.count() > 0 {
            match inner.form(state, view, false) {
                Ok(Formed::Published) => inner.wake.look(),
                Ok(Formed::Missing(_) | Formed::Unchanged) => {}
                Err(error) => tracing::warn!("No new cluster can be formed: {}", error.message()),
            }
        }
        let Some(newest) = &view.cluster else { return };
        if newest.epoch <= own.epoch || !newest.has(&inner.me.incarnation) {
            return;
        }
        let mut moved = Vec::new();
        for place in newest.members.iter().filter(|place| !own.has(&place.incarnation)) {
            let task = short(&place.task_name());
            match own.place(&place.task_name()) {
                None => tracing::info!("{task} joined at {} (epoch {}).", place.address(), newest.epoch),
                Some(before) if before.address() == place.address() => {
                    tracing::info!(
                        "{task} was started again at {} (epoch {}).",
                        place.address(),
                        newest.epoch
                    );
                }
                Some(before) => {
                    let (here, there) = (before.address(), place.address());
                    tracing::warn!("{task} moved from {here} to {there} (epoch {}).", newest.epoch);
                    moved.push(place.task_name());
                }
            }
        }
        match newest.spec() {
            Ok(cluster) => self.change = Some(Change { cluster, epoch: newest.epoch, moved }),
            Err(error) => tracing::warn!("The new cluster cannot be used: {}", error.message()),
        }
        state.cluster = Some(newest.clone());
    }

    fn failure(&self, cluster: &Cluster) -> Option<Event> {
        let mut notes = cluster.members.iter().filter_map(|place| self.view.note_of(&place.incarnation));
        let failed = notes.find(|note| note.code != 0 && note.incarnation != self.inner.me.incarnation)?;
        self.inner.options.fail_fast.then(|| Event::Failed(peer_failed(failed)))
    }

    fn end(&mut self, cluster: &Cluster) -> Option<Event> {
        let done = |place: &Place| self.view.note_of(&place.incarnation).is_some_and(|note| note.code == 0);
        let ended = |place: &Place| self.view.note_of(&place.incarnation).is_some();
        let mut programs = programs(cluster).peekable();
        let chief = chief(cluster);
        match self.inner.options.end_with {
            EndWith::Nobody => None,
            EndWith::Programs => {
                programs.peek()?;
                programs.all(done).then(|| Event::Ended("all programs have ended".to_owned()))
            }
            EndWith::Chief => {
                let chief = chief.filter(|place| done(place))?;
                let since = *self.chief_done.get_or_insert_with(Instant::now);
                let over = programs.all(ended) || since.elapsed() >= self.inner.options.grace;
                over.then(|| Event::Ended(format!("{} has ended", short(&chief.task_name()))))
            }
        }
    }

    /// Ends the wait for programs whose machines died, which leave no note.
    fn orphaned(&mut self, state: &State, cluster: &Cluster) -> Option<Event> {
        let timeout =
            self.inner.options.timeout.filter(|_| self.inner.options.end_with != EndWith::Nobody)?;
        programs(cluster).next()?;
        if self.asked.elapsed() < ROUNDS.min(timeout) {
            return None;
        }
        self.asked = Instant::now();
        let alive = programs(cluster).any(|place| {
            let member = self.view.members.get(&place.task_name());
            let own = place.incarnation == self.inner.me.incarnation;
            own || member.is_some_and(|member| {
                super::control::reach(member, &self.inner.run, &self.inner.machine).is_ok()
            })
        });
        if alive || state.cluster.is_none() {
            self.seen = self.asked;
        }
        (self.seen.elapsed() > timeout).then(|| {
            Event::Orphaned(format!(
                "no program of the cluster has answered for {} s",
                self.seen.elapsed().as_secs()
            ))
        })
    }
}

/// Returns the members whose programs end by themselves; parameter servers wait for the others.
fn programs(cluster: &Cluster) -> impl Iterator<Item = &Place> {
    cluster.members.iter().filter(|place| place.program && place.job != "ps")
}

fn chief(cluster: &Cluster) -> Option<&Place> {
    let named = |job: &str| cluster.members.iter().find(|place| place.job == job && place.task == 0);
    named("chief").or_else(|| named("master")).or_else(|| named("worker"))
}

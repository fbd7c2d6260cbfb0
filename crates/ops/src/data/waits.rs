//! Waits for iterators: which stage of a pipeline keeps its consumer waiting, and with what.
//!
//! Every dataset that is opened is a stage. A stage that is pending notes the time; a stage that is busy with something
//! that may take long, such as a file or a function, notes that. Nothing is noted on the way of an element that comes at
//! once. The notes are read only when somebody asks why nothing goes on.

use super::state::{Restorer, Saver};
use super::{MapStage, Next, ShuffleStage, Source, SourceCx, Spec};
use ferroflow_core::device::{Device, Wait, Waiter};
use ferroflow_core::{Code, Result, Status, status};
use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

/// The most reasons that a message lists.
const MAX_REASONS: usize = 3;

/// The moment from which stages count.
static START: OnceLock<Instant> = OnceLock::new();

/// Nanoseconds since the start, at least 1.
fn now() -> u64 {
    (START.get_or_init(Instant::now).elapsed().as_nanos() as u64).max(1)
}

/// An opened dataset.
pub(crate) struct Stage {
    spec: Arc<Spec>,
    parent: Option<Arc<Stage>>,
    id: u64,
    /// The moment since which it is pending; 0 if it is not.
    since: AtomicU64,
}

/// Something that a stage does and that may take long.
pub(crate) enum Activity {
    /// Opens or reads a file.
    File(Arc<str>),
    /// Waits for the result of a function.
    Call(Arc<str>),
}

/// The waits within one iterator.
pub(crate) struct IteratorWaits {
    name: String,
    /// The number of consumers that wait for an element.
    consumers: AtomicUsize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    next: u64,
    stages: BTreeMap<u64, Weak<Stage>>,
    activities: BTreeMap<u64, (Arc<Stage>, Activity, u64)>,
    /// The moment at which the last consumer went away without an element.
    abandoned: u64,
}

impl IteratorWaits {
    /// The waits of an iterator on a device, which shows them from now on.
    pub(super) fn new(name: &str, device: &Device) -> Arc<IteratorWaits> {
        let (name, consumers, state) = (name.to_owned(), AtomicUsize::new(0), Mutex::default());
        let waits = Arc::new(IteratorWaits { name, consumers, state });
        let waiter: Weak<IteratorWaits> = Arc::downgrade(&waits);
        device.waits().register(waiter);
        waits
    }

    /// The name of the iterator.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no panic while a wait is noted")
    }

    /// A stage that another one, or the iterator itself, opens.
    pub(super) fn open_stage(&self, spec: &Arc<Spec>, parent: Option<&Arc<Stage>>) -> Arc<Stage> {
        let mut state = self.lock();
        state.next += 1;
        let (id, since) = (state.next, AtomicU64::new(0));
        Arc::new(Stage { spec: spec.clone(), parent: parent.cloned(), id, since })
    }

    /// Notes what a stage does.
    pub(super) fn note(self: &Arc<Self>, stage: &Arc<Stage>, activity: Activity) -> Note {
        let mut state = self.lock();
        state.next += 1;
        let id = state.next;
        state.activities.insert(id, (stage.clone(), activity, now()));
        Note { waits: self.clone(), id }
    }

    /// Counts a consumer that waits for an element.
    pub(super) fn consumer(&self) -> Consumer<'_> {
        self.consumers.fetch_add(1, Ordering::Relaxed);
        Consumer { waits: self, served: false }
    }
}

/// A note about what a stage does, removed when it is dropped.
pub(crate) struct Note {
    waits: Arc<IteratorWaits>,
    id: u64,
}

impl Drop for Note {
    fn drop(&mut self) {
        self.waits.lock().activities.remove(&self.id);
    }
}

/// A consumer that waits for an element.
pub(crate) struct Consumer<'a> {
    waits: &'a IteratorWaits,
    /// True once it has its element, or an error.
    pub(crate) served: bool,
}

impl Drop for Consumer<'_> {
    fn drop(&mut self) {
        self.waits.consumers.fetch_sub(1, Ordering::Relaxed);
        if !self.served {
            // Stages stay pending; the next consumer has not waited yet.
            self.waits.lock().abandoned = now();
        }
    }
}

/// The source of a stage, which notes when it is pending.
pub(super) struct StageSource {
    /// Declared first: it ends before its stage does.
    source: Box<dyn Source>,
    stage: Arc<Stage>,
    waits: Arc<IteratorWaits>,
    pending: bool,
}

impl StageSource {
    pub(super) fn new(source: Box<dyn Source>, stage: Arc<Stage>, waits: &Arc<IteratorWaits>) -> StageSource {
        waits.lock().stages.insert(stage.id, Arc::downgrade(&stage));
        StageSource { source, stage, waits: waits.clone(), pending: false }
    }
}

impl Source for StageSource {
    #[inline]
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let next = self.source.poll_next(cx);
        if next.is_pending() != self.pending {
            self.pending = next.is_pending();
            let since = if self.pending { *cx.now.get_or_insert_with(now) } else { 0 };
            self.stage.since.store(since, Ordering::Relaxed);
        }
        next
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let saved = ready!(self.source.poll_save(to, cx));
        Poll::Ready(saved.map_err(|error| self.named(error)))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        self.source.restore(from).map_err(|error| self.named(error))
    }

    fn works_ahead(&mut self) -> bool {
        self.source.works_ahead()
    }

    fn is_prefetch(&self) -> bool {
        self.source.is_prefetch()
    }

    fn as_map(&mut self) -> Option<&mut dyn MapStage> {
        self.source.as_map()
    }

    fn as_shuffle(&mut self) -> Option<&mut dyn ShuffleStage> {
        self.source.as_shuffle()
    }
}

impl StageSource {
    /// An error that names the stage, if it says only that the stage has no state in stock's format.
    fn named(&self, error: Status) -> Status {
        if error.code() == Code::Unimplemented && error.message().is_empty() {
            return status!(
                Unimplemented,
                "the state of a {} cannot be exchanged with stock TensorFlow",
                self.stage.spec.op
            );
        }
        error
    }
}

impl Drop for StageSource {
    fn drop(&mut self) {
        self.waits.lock().stages.remove(&self.stage.id);
    }
}

impl Waiter for IteratorWaits {
    fn wait(&self) -> Option<Wait> {
        if self.consumers.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let state = self.lock();
        let stages: Vec<(Arc<Stage>, u64)> = state
            .stages
            .values()
            .filter_map(Weak::upgrade)
            .map(|stage| (stage.since.load(Ordering::Relaxed), stage))
            .filter_map(|(since, stage)| (since > 0).then_some((stage, since)))
            .collect();
        let first =
            stages.iter().map(|(_, since)| *since).chain(state.activities.values().map(|done| done.2));
        let since = first.min()?.max(state.abandoned);
        // A stage whose input, file or function is what it waits for is not itself a reason.
        let mut explained: Vec<u64> = Vec::new();
        for stage in state.activities.values().map(|done| &done.0) {
            explained.extend(ancestry(stage).map(|stage| stage.id));
        }
        for (stage, _) in &stages {
            explained.extend(ancestry(stage).skip(1).map(|stage| stage.id));
        }
        let mut reasons: Vec<String> = state
            .activities
            .values()
            .map(|(stage, activity, _)| match activity {
                Activity::File(name) => format!("{}, which reads {name}", path(stage)),
                Activity::Call(function) => format!("{}, which calls function {function}", path(stage)),
            })
            .collect();
        let waiting = stages.iter().filter(|(stage, _)| !explained.contains(&stage.id));
        reasons.extend(waiting.map(|(stage, _)| format!("{}, which computes", path(stage))));
        // Several calls of one function are one reason.
        let mut seen = HashSet::new();
        reasons.retain(|reason| seen.insert(reason.clone()));
        let left_out = reasons.len().saturating_sub(MAX_REASONS);
        reasons.truncate(MAX_REASONS);
        let mut why = format!("it comes from {}", reasons.join("; and from "));
        if left_out > 0 {
            why += &format!("; and from {left_out} others");
        }
        let since = *START.get_or_init(Instant::now) + Duration::from_nanos(since);
        Some(Wait { whom: format!("the next element of {}", self.name), why, since })
    }
}

/// A stage and those that it belongs to, up to the root.
fn ancestry(stage: &Arc<Stage>) -> impl Iterator<Item = &Arc<Stage>> {
    std::iter::successors(Some(stage), |stage| stage.parent.as_ref())
}

/// The ops of a stage and of those that it belongs to, from the root.
fn path(stage: &Arc<Stage>) -> String {
    let mut ops: Vec<&str> = ancestry(stage).map(|stage| stage.spec.op.as_str()).collect();
    ops.reverse();
    ops.join(" of ")
}

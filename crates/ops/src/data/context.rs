//! The context of one iterator: instances of captured functions and the step that they run in.

use super::seeds::SeedLog;
use super::stats::Statistics;
use super::waits::{Activity, Consumer, IteratorWaits, Note, Stage};
use super::{Function, Spec};
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::{Background, BackgroundTask, Device};
use ferroflow_core::kernel::Callable;
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::{BoxFuture, Result, Status, bail, status};
use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

/// Ids of the steps that iterators call functions in. Negative, so that they differ from those of sessions.
static STEP_IDS: AtomicI64 = AtomicI64::new(i64::MIN / 2);

/// An iterator as one of its stages sees it.
pub(crate) struct IteratorCx {
    shared: Arc<Shared>,
    /// The stage; `None` for the iterator itself.
    stage: Option<Arc<Stage>>,
}

/// The state that all sources of one iterator share.
struct Shared {
    device: Arc<Device>,
    resources: Arc<ResourceManager>,
    cancellation: Cancellation,
    /// Instances by the address of the function they are of, which the iterator's dataset keeps alive.
    instances: Arc<Instances>,
    seeds: SeedLog,
    /// The statistics that stages add to, if the pipeline names some.
    statistics: Mutex<Option<Statistics>>,
    waits: Arc<IteratorWaits>,
}

/// The instances of captured functions that belong to an iterator, also after it was initialized again.
#[derive(Default)]
pub(crate) struct Instances(Mutex<HashMap<usize, Instance>>);

/// A function and its instance.
type Instance = (Function, Arc<dyn Callable>);

impl IteratorCx {
    /// A context for an iterator of this name that is made in this step.
    pub(crate) fn new(step: &StepCx, instances: &Arc<Instances>, name: &str) -> Arc<IteratorCx> {
        IteratorCx::with_seeds(step, instances, SeedLog::default(), name)
    }

    /// A context for an iterator that uses seeds of an earlier run first.
    pub(crate) fn with_seeds(
        step: &StepCx,
        instances: &Arc<Instances>,
        seeds: SeedLog,
        name: &str,
    ) -> Arc<IteratorCx> {
        let waits = IteratorWaits::new(name, &step.device);
        let shared = Arc::new(Shared {
            seeds,
            device: step.device.clone(),
            resources: step.resources.clone(),
            cancellation: Cancellation::new(),
            instances: instances.clone(),
            statistics: Mutex::default(),
            waits,
        });
        Arc::new(IteratorCx { shared, stage: None })
    }

    /// The context of a stage that this one opens.
    pub(super) fn stage(&self, spec: &Arc<Spec>) -> (Arc<IteratorCx>, Arc<Stage>) {
        let stage = self.shared.waits.open_stage(spec, self.stage.as_ref());
        (Arc::new(IteratorCx { shared: self.shared.clone(), stage: Some(stage.clone()) }), stage)
    }

    /// The waits within the iterator.
    pub(super) fn waits(&self) -> &Arc<IteratorWaits> {
        &self.shared.waits
    }

    /// Counts a consumer that waits for an element.
    pub(crate) fn consumer(&self) -> Consumer<'_> {
        self.shared.waits.consumer()
    }

    /// Notes what the stage does, for those who wait for it, until the note is dropped.
    pub(crate) fn note(&self, activity: Activity) -> Option<Note> {
        self.stage.as_ref().map(|stage| self.shared.waits.note(stage, activity))
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.shared.device
    }

    /// The statistics that stages add to, if the pipeline names some.
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        self.shared.statistics.lock().expect("no panic while statistics are named").clone()
    }

    /// Names the statistics that stages add to.
    pub(crate) fn set_statistics(&self, statistics: Statistics) {
        *self.shared.statistics.lock().expect("no panic while statistics are named") = Some(statistics);
    }

    /// The seeds that the iterator's sources draw.
    pub(crate) fn seeds(&self) -> &SeedLog {
        &self.shared.seeds
    }

    /// The iterator's instance of a function.
    pub(crate) fn instance(&self, function: &Function) -> Result<Arc<dyn Callable>> {
        let key = function.address();
        let mut instances = self.shared.instances.0.lock().expect("no panic while instances are made");
        if let Some((_, known)) = instances.get(&key) {
            return Ok(known.clone());
        }
        let made = function.instantiate()?;
        instances.insert(key, (function.clone(), made.clone()));
        Ok(made)
    }

    /// A step for calls of functions.
    pub(crate) fn new_step(&self) -> Arc<StepCx> {
        Arc::new(StepCx {
            step_id: STEP_IDS.fetch_add(1, Ordering::Relaxed),
            device: self.shared.device.clone(),
            resources: self.shared.resources.clone(),
            step_resources: ResourceManager::new("dataset"),
            rendezvous: Arc::new(NoPeers),
            cancellation: self.shared.cancellation.clone(),
            depth: 1,
        })
    }

    /// Starts work on the compute threads; `None` where there are none.
    pub(crate) fn spawn(&self, work: BoxFuture<()>) -> Option<BackgroundTask> {
        self.shared.device.background().map(|background| background.spawn(work))
    }

    /// The number of compute threads; 1 where there are none.
    pub(crate) fn parallelism(&self) -> usize {
        self.shared.device.background().map_or(1, |background: &Arc<dyn Background>| background.parallelism())
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.cancellation.cancel(ended());
    }
}

fn ended() -> Status {
    status!(Cancelled, "Iterator was cancelled")
}

/// The rendezvous of functions that datasets call: they run on one device and exchange nothing.
struct NoPeers;

impl Rendezvous for NoPeers {
    fn send(&self, key: &RendezvousKey, _: Parcel) -> Result<()> {
        bail!(Unimplemented, "a function of a dataset cannot send {key:?} to another device")
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        let refusal =
            status!(Unimplemented, "a function of a dataset cannot receive {key:?} from another device");
        Box::pin(async move { Err(refusal) })
    }

    fn abort(&self, _: Status) {}
}

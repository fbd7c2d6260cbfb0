//! The context of one iterator: instances of captured functions and the step that they run in.

use super::Function;
use super::seeds::SeedLog;
use super::stats::Statistics;
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

/// The state that all sources of one iterator share.
pub(crate) struct IteratorCx {
    device: Arc<Device>,
    resources: Arc<ResourceManager>,
    cancellation: Cancellation,
    /// Instances by the address of the function they are of, which the iterator's dataset keeps alive.
    instances: Arc<Instances>,
    seeds: SeedLog,
    /// The statistics that stages add to, if the pipeline names some.
    statistics: Mutex<Option<Statistics>>,
}

/// The instances of captured functions that belong to an iterator, also after it was initialized again.
#[derive(Default)]
pub(crate) struct Instances(Mutex<HashMap<usize, Instance>>);

/// A function and its instance.
type Instance = (Function, Arc<dyn Callable>);

impl IteratorCx {
    /// A context for an iterator that is made in this step.
    pub(crate) fn new(step: &StepCx, instances: &Arc<Instances>) -> Arc<IteratorCx> {
        IteratorCx::with_seeds(step, instances, SeedLog::default())
    }

    /// A context for an iterator that uses seeds of an earlier run first.
    pub(crate) fn with_seeds(step: &StepCx, instances: &Arc<Instances>, seeds: SeedLog) -> Arc<IteratorCx> {
        Arc::new(IteratorCx {
            seeds,
            device: step.device.clone(),
            resources: step.resources.clone(),
            cancellation: Cancellation::new(),
            instances: instances.clone(),
            statistics: Mutex::default(),
        })
    }

    /// The device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// The statistics that stages add to, if the pipeline names some.
    pub(crate) fn statistics(&self) -> Option<Statistics> {
        self.statistics.lock().expect("no panic while statistics are named").clone()
    }

    /// Names the statistics that stages add to.
    pub(crate) fn set_statistics(&self, statistics: Statistics) {
        *self.statistics.lock().expect("no panic while statistics are named") = Some(statistics);
    }

    /// The seeds that the iterator's sources draw.
    pub(crate) fn seeds(&self) -> &SeedLog {
        &self.seeds
    }

    /// The iterator's instance of a function.
    pub(crate) fn instance(&self, function: &Function) -> Result<Arc<dyn Callable>> {
        let key = function.address();
        let mut instances = self.instances.0.lock().expect("no panic while instances are made");
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
            device: self.device.clone(),
            resources: self.resources.clone(),
            step_resources: ResourceManager::new("dataset"),
            rendezvous: Arc::new(NoPeers),
            cancellation: self.cancellation.clone(),
            depth: 1,
        })
    }

    /// Starts work on the compute threads; `None` where there are none.
    pub(crate) fn spawn(&self, work: BoxFuture<()>) -> Option<BackgroundTask> {
        self.device.background().map(|background| background.spawn(work))
    }

    /// The number of compute threads; 1 where there are none.
    pub(crate) fn parallelism(&self) -> usize {
        self.device.background().map_or(1, |background: &Arc<dyn Background>| background.parallelism())
    }
}

impl Drop for IteratorCx {
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

//! A worker: the devices of one task, their state and their threads, and the sessions that masters open on it.

mod graphs;
mod introduction;
mod recv_tensor;
mod rivals;
mod run_graph;
mod sessions;
mod stalled;
mod steps;
#[cfg(test)]
mod tests;
mod transfers;

pub(crate) use run_graph::side_by_side;
pub(crate) use sessions::WorkerSession;
pub(crate) use steps::{StepRendezvous, WorkerStep};

use crate::eager::api::ClientCluster;
use crate::requests::RecentRequests;
use crate::spec::{ClusterSpec, TaskName};
use crate::transport::caller;
use crate::transport::client::{Channels, Naming, Peers};
use ferroflow_core::device::Device;
use ferroflow_core::op::Registry;
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::{Code, Result, Status, ensure};
use ferroflow_proto::tensorflow::{
    CreateWorkerSessionRequest, DeregisterGraphRequest, DeviceAttributes, DeviceLocality, LoggingRequest,
    LoggingResponse, RegisterGraphRequest, ServerDef,
};
use ferroflow_runtime::{ComputePool, RuntimeEnv};
use introduction::Told;
use prost::Message;
use sessions::WorkerSessions;
use stalled::Asked;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use steps::Steps;
use tokio::sync::watch;
use transfers::Transfers;

/// What every CPU device of stock claims to have.
const REPORTED_MEMORY: i64 = 256 << 20;

/// How many requests are remembered, as in stock's workers.
const REMEMBERED_REQUESTS: usize = 100_000;

/// What a session of a master takes before it has a graph.
const SESSION_BYTES: usize = 64 << 10;

/// Marks a status that says that this process is not the one that the caller knew.
const RESTARTED: &str = "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted";

/// What a worker keeps for masters and peers; all of it goes when they are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions of masters.
    pub sessions: usize,
    /// Graphs registered in them.
    pub graphs: usize,
    /// Steps under way or not cleaned up yet.
    pub steps: usize,
    /// Tensors in them that nobody has received.
    pub parcels: usize,
    /// Receivers, here or elsewhere, of tensors that this task has not sent.
    pub receivers: usize,
}

/// What a task knows of its cluster.
#[derive(Clone)]
pub(crate) struct Known {
    /// All tasks and their addresses.
    pub(crate) cluster: ClusterSpec,
    /// Counts the clusters of a rendezvous, where tasks may move; 0 for one that stays as it is.
    pub(crate) epoch: u64,
    /// The other tasks.
    pub(crate) peers: Arc<Peers>,
}

/// A device of a worker.
struct WorkerDevice {
    device: Arc<Device>,
    /// State on it that all sessions share that do not ask for state of their own. As in stock, devices of one task do
    /// not see each other's.
    resources: Arc<ResourceManager>,
}

/// The worker of one task.
pub struct Worker {
    task: TaskName,
    registry: Registry,
    devices: Vec<WorkerDevice>,
    pool: Arc<ComputePool>,
    channels: Arc<Channels>,
    /// The cluster as this task knows it, for sessions that do not bring one of their own.
    known: watch::Sender<Known>,
    /// What has been said about tasks that know another one.
    told: Told,
    sessions: WorkerSessions,
    /// Takes the graphs of masters that open no session, as long ago was usual.
    legacy_session: Arc<WorkerSession>,
    steps: Steps,
    requests: RecentRequests,
    transfers: Arc<Transfers>,
    /// Masters that have asked for devices and have opened no session yet.
    asked: Asked,
    /// Whether no program of this process opens sessions.
    serves_only: AtomicBool,
    /// Set when the task is about to end: what runs may finish, nothing new begins.
    draining: AtomicBool,
}

impl Worker {
    /// Prepares this thread for steps that begin on it.
    pub(crate) fn prepare_thread(&self) {
        self.registry.prepare_thread();
    }

    /// A worker on these devices, of which the first takes whatever is not placed explicitly. `cluster` holds the other
    /// tasks that it may call, through `channels`.
    pub(crate) fn new(
        task: TaskName,
        registry: Registry,
        devices: Vec<Arc<Device>>,
        pool: Arc<ComputePool>,
        channels: Arc<Channels>,
        cluster: &ClusterSpec,
        epoch: u64,
    ) -> Result<Arc<Worker>> {
        ensure!(!devices.is_empty(), InvalidArgument, "a worker needs a device");
        let devices = devices.into_iter().map(|device| {
            let resources = ResourceManager::new(&task.job);
            WorkerDevice { device, resources }
        });
        let devices: Vec<WorkerDevice> = devices.collect();
        let peers = peers(&channels, &task, cluster, Naming::Own)?;
        let transfers = Arc::new(Transfers::default());
        let steps = Steps::new(transfers.clone());
        let envs = devices.iter().map(|WorkerDevice { device, resources }| {
            RuntimeEnv::new(registry.clone(), device.clone(), resources.clone(), pool.clone())
        });
        let envs = envs.collect();
        Ok(Arc::new(Worker {
            legacy_session: Arc::new(WorkerSession::new(task.clone(), envs, false, peers.clone())),
            task,
            registry,
            devices,
            pool,
            channels,
            known: watch::Sender::new(Known { cluster: cluster.clone(), epoch, peers }),
            told: Told::default(),
            sessions: WorkerSessions::default(),
            steps,
            requests: RecentRequests::new(REMEMBERED_REQUESTS),
            transfers,
            asked: Asked::default(),
            serves_only: AtomicBool::new(false),
            draining: AtomicBool::new(false),
        }))
    }

    /// The other tasks, as the server's configuration has them, or the rendezvous by now.
    pub(crate) fn peers(&self) -> Arc<Peers> {
        self.known.borrow().peers.clone()
    }

    /// Hears of changes from now on.
    pub(crate) fn news(&self) -> watch::Receiver<Known> {
        self.known.subscribe()
    }

    /// Takes the addresses of a newer cluster, for sessions that are opened from now on. Returns the tasks that are
    /// elsewhere now, with their addresses.
    pub(crate) fn learn(&self, cluster: &ClusterSpec, epoch: u64) -> Result<Vec<(TaskName, String)>> {
        let peers = peers(&self.channels, &self.task, cluster, Naming::Own)?;
        let mut moved = Vec::new();
        self.known.send_if_modified(|known| {
            if known.epoch >= epoch {
                return false;
            }
            let differences = known.cluster.differences(cluster).into_iter();
            moved = differences.map(|difference| (difference.task, difference.there)).collect();
            *known = Known { cluster: cluster.clone(), epoch, peers };
            true
        });
        Ok(moved)
    }

    /// The tasks other than `own` of a cluster that a session brings along. They go by the names that they have there.
    pub(crate) fn peers_in(&self, cluster: &ClusterSpec, own: &TaskName) -> Result<Arc<Peers>> {
        peers(&self.channels, own, cluster, Naming::Given)
    }

    /// The step with this id, found or made. [`Worker::cleanup_step`] ends it.
    pub(crate) fn step(&self, id: i64) -> Arc<WorkerStep> {
        self.steps.get(id)
    }

    /// Takes a tensor that a peer has pushed, or why it could not be taken, which ends its step. One of a step that is
    /// over is dropped.
    pub(crate) fn deliver(&self, step_id: i64, key: &RendezvousKey, parcel: Result<Parcel>) {
        let Some(step) = self.steps.find(step_id) else { return };
        match parcel {
            Ok(parcel) => {
                if let Err(error) = step.local().send(key, parcel) {
                    tracing::debug!(step_id, %key, %error, "A tensor came too late.");
                }
            }
            Err(why) => step.abort(why),
        }
    }

    /// Forgets a step in which nothing ran and nobody waits for anything.
    pub(crate) fn forget_unused_step(&self, id: i64) {
        if let Some(step) = self.steps.find(id) {
            self.steps.forget_if_idle(&step);
        }
    }

    /// Tensors that somebody waits for, with their steps.
    pub(crate) fn awaited(&self) -> Vec<(i64, RendezvousKey)> {
        self.steps.awaited()
    }

    /// Ends and forgets a step: whoever still waits for its tensors is told. One that is not known is fine.
    pub(crate) fn cleanup_step(&self, id: i64) {
        self.steps.cleanup(id);
    }

    /// Ends and forgets all steps of a session.
    pub(crate) fn cleanup_steps_of(&self, session: &Arc<WorkerSession>) {
        self.steps.cleanup_of(session);
    }

    /// Waits; works on any thread. An error if the server ends before.
    pub(crate) fn sleep(&self, length: Duration) -> impl Future<Output = Result<()>> + Send + use<> {
        self.channels.sleep(length)
    }

    /// The task's name.
    pub fn task(&self) -> &TaskName {
        &self.task
    }

    /// The device that takes whatever is not placed explicitly.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.devices.first().expect("a worker has a device").device
    }

    /// Counts what is kept.
    pub fn census(&self) -> Census {
        let (sessions, graphs) = self.sessions.count();
        let (steps, parcels, receivers) = self.steps.count();
        Census { sessions, graphs: graphs + self.legacy_session.graphs.len(), steps, parcels, receivers }
    }

    /// The tasks whose masters have sessions open here.
    pub fn masters(&self) -> BTreeSet<String> {
        self.sessions.masters()
    }

    /// Whether the master of this task has ever opened a session here.
    pub fn has_seen(&self, master_task: &str) -> bool {
        self.sessions.has_seen(master_task)
    }

    /// How long ago the master of this task closed the last session that it had here; `None` if it never had one or has
    /// one open.
    pub fn closed_for(&self, master_task: &str) -> Option<Duration> {
        self.sessions.closed_for(master_task)
    }

    /// Tells others that no program of this process opens sessions.
    pub(crate) fn serve_only(&self) {
        self.serves_only.store(true, Ordering::Relaxed);
    }

    /// Where this task's server is, as its cluster has it; empty if it has none.
    pub(crate) fn address(&self) -> String {
        self.known.borrow().cluster.address(&self.task).unwrap_or_default().to_owned()
    }

    /// Notes a master that has opened a session, and where it says that its server is.
    pub(crate) fn note_master(&self, handle: &str, address: &str) {
        self.sessions.set_address(handle, address);
        if let Some(peer) = caller::peer() {
            self.asked.remove(peer);
        }
    }

    /// From now on nothing new begins.
    pub(crate) fn refuse_work(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Refuses what is about to begin if the task is about to end.
    pub(crate) fn admit(&self) -> Result<()> {
        ensure!(!self.draining.load(Ordering::Relaxed), Unavailable, "{} is ending", self.task);
        Ok(())
    }

    /// How many calls of masters are under way that run steps here.
    pub(crate) fn running_calls(&self) -> usize {
        self.steps.calls()
    }

    fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.devices.iter().map(|each| &each.device)
    }

    /// The devices, as other tasks and clients are told.
    pub fn device_attributes(&self) -> Vec<DeviceAttributes> {
        self.devices().map(|device| attributes(device)).collect()
    }

    /// The devices by the names that they have where this task is called `own`.
    fn devices_as(&self, own: &TaskName) -> Result<Vec<Arc<Device>>> {
        let renamed = |(index, device): (u32, &Arc<Device>)| match *own == self.task {
            true => Ok(device.clone()),
            false => device.renamed(&own.cpu(index)).map(Arc::new),
        };
        (0..).zip(self.devices()).map(renamed).collect()
    }

    /// The surroundings of a client's context, which share no state with others.
    pub(crate) fn eager_session(&self, cluster: Option<&ClientCluster>) -> Result<WorkerSession> {
        let (own, peers) = match cluster {
            Some(ClientCluster { own, cluster, .. }) => (own.clone(), self.peers_in(cluster, own)?),
            None => (self.task.clone(), self.peers()),
        };
        let envs = self.devices_as(&own)?.into_iter().map(|device| {
            let resources = ResourceManager::new(&self.task.job);
            RuntimeEnv::new(self.registry.clone(), device, resources, self.pool.clone())
        });
        Ok(WorkerSession::new(own, envs.collect(), false, peers))
    }

    /// Opens a session for a master; opening one that is open changes nothing.
    pub(crate) fn create_session(&self, request: &CreateWorkerSessionRequest) -> Result<Arc<WorkerSession>> {
        self.admit()?;
        let (own, peers) = match &request.server_def {
            Some(ServerDef { cluster: Some(cluster), job_name, task_index, .. })
                if !cluster.job.is_empty() =>
            {
                let own = TaskName::new(job_name, u32::try_from(*task_index).unwrap_or_default());
                let peers = self.peers_in(&ClusterSpec::from_def(cluster)?, &own)?;
                (own, peers)
            }
            _ => (self.task.clone(), self.peers()),
        };
        let devices = self.devices_as(&own)?;
        // Also under other names: a master whose session is not to share the state of the tasks that it renames says so.
        let isolate = request.isolate_session_state;
        let make = || {
            let envs = self.devices.iter().zip(devices).map(|(known, device)| {
                let resources = match isolate {
                    true => ResourceManager::new(&self.task.job),
                    false => known.resources.clone(),
                };
                RuntimeEnv::new(self.registry.clone(), device, resources, self.pool.clone())
            });
            WorkerSession::new(own.clone(), envs.collect(), isolate, peers)
        };
        let (handle, master) = (&request.session_handle, &request.master_task);
        let mut charge = self.device().memory().budget().charge(SESSION_BYTES)?;
        charge.add(request.encoded_len())?;
        let session = self.sessions.create(handle, master, request.master_incarnation, charge, make)?;
        // A master that restarted leaves steps behind.
        self.steps.sweep();
        Ok(session)
    }

    /// The session that a request is about.
    fn session(&self, handle: &str, created: bool) -> Result<Arc<WorkerSession>> {
        if !created {
            return Ok(self.legacy_session.clone());
        }
        self.sessions.get(handle).ok_or_else(|| {
            let task = &self.task;
            let text = format!(
                "Session handle is not found: {handle}. Possibly this worker (\"{task}\") just restarted."
            );
            Status::new(Code::Aborted, text).with_payload(RESTARTED, [])
        })
    }

    /// Forgets a session with its graphs; one that is not known is fine.
    pub(crate) fn delete_session(&self, handle: &str) {
        self.sessions.delete(handle);
        self.steps.sweep();
    }

    /// Makes a graph of a master ready to run and returns its handle.
    pub(crate) async fn register_graph(&self, request: RegisterGraphRequest) -> Result<String> {
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        // Making kernels takes a while, so not on a thread that answers calls.
        let models_costs = request.graph_options.as_ref().is_some_and(|options| options.build_cost_model > 0);
        let register = async move { session.register(&request.graph_def.unwrap_or_default(), models_costs) };
        self.pool.complete(register).await
    }

    /// Forgets a graph.
    pub(crate) fn deregister_graph(&self, request: &DeregisterGraphRequest) -> Result<()> {
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        session.deregister(&request.graph_handle)
    }

    /// Starts, stops or reads the log of transfers from other tasks.
    pub(crate) fn logging(&self, request: &LoggingRequest) -> LoggingResponse {
        self.transfers.serve(request)
    }

    /// Empties these containers, or the default one if none is named, after releasing whoever waits in them.
    pub fn cleanup_all(&self, containers: &[String]) {
        for WorkerDevice { resources, .. } in &self.devices {
            if containers.is_empty() {
                resources.clear(resources.default_container());
            }
            for container in containers {
                resources.clear(container);
            }
        }
    }
}

/// A device, as other tasks and clients are told.
pub(crate) fn attributes(device: &Device) -> DeviceAttributes {
    DeviceAttributes {
        name: device.name().to_owned(),
        device_type: device.spec().kind.clone().unwrap_or_default(),
        memory_limit: REPORTED_MEMORY,
        locality: Some(DeviceLocality::default()),
        incarnation: device.incarnation(),
        xla_global_id: -1,
        ..Default::default()
    }
}

fn peers(channels: &Channels, own: &TaskName, cluster: &ClusterSpec, naming: Naming) -> Result<Arc<Peers>> {
    let others = cluster.tasks().filter(|(task, _)| task != own);
    Peers::new(channels, others.map(|(task, address)| (task, address.to_owned())), naming)
}

/// Microseconds since 1970.
pub(crate) fn since_epoch() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64
}

//! A worker: the devices of one task with their state and threads, and the sessions that masters open on it.
//!
//! It handles the calls of `tensorflow.WorkerService` in domain types; `transport` reads and writes the
//! messages. The master of the same task uses it directly.

mod graphs;
mod reclaim;
mod rivals;
mod run_graph;
mod serve_recv_tensor;
mod sessions;
mod stalled;
mod step_rendezvous;
mod steps;
mod task_status;
#[cfg(test)]
mod tests;
mod transfers;

pub(crate) use run_graph::run_concurrently;
pub(crate) use sessions::WorkerSession;
pub(crate) use step_rendezvous::StepRendezvous;
pub(crate) use steps::WorkerStep;

use crate::eager::api::ClientCluster;
use crate::metrics::Metrics;
use crate::requests::RecentRequests;
use crate::spec::{ClusterSpec, TaskName};
use crate::transport::caller;
use crate::transport::client::{Channels, Naming, Peers};
use ferroflow_core::device::{Device, Wait};
use ferroflow_core::op::Registry;
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::{Code, Result, Status, ensure, status};
use ferroflow_proto::tensorflow::{
    CreateWorkerSessionRequest, DeregisterGraphRequest, DeviceAttributes, DeviceLocality, LoggingRequest,
    LoggingResponse, RegisterGraphRequest, ServerDef,
};
use ferroflow_runtime::{ComputePool, RuntimeEnv};
use prost::Message;
use sessions::WorkerSessions;
use stalled::PendingMasters;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use steps::Steps;
use task_status::LoggedDifferences;
use tokio::sync::watch;
use transfers::Transfers;

/// The memory that every CPU device of stock reports.
const REPORTED_MEMORY: i64 = 256 << 20;

/// The number of remembered requests, as in stock's workers.
const REMEMBERED_REQUESTS: usize = 100_000;

/// Bytes charged for a session without a graph.
const SESSION_BYTES: usize = 64 << 10;

/// The payload of a status that says that this process is not the one that the caller knew.
const RESTARTED: &str = "type.googleapis.com/tensorflow.distributed_runtime.WorkerPossiblyRestarted";

/// Counts of what a worker holds for masters and peers; all are zero when they are done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Census {
    /// Sessions of masters.
    pub sessions: usize,
    /// Graphs registered in them.
    pub graphs: usize,
    /// Steps that are running or not cleaned up yet.
    pub steps: usize,
    /// Tensors in steps that have not been received.
    pub parcels: usize,
    /// Receivers, here or on other tasks, of tensors that this task has not sent.
    pub receivers: usize,
}

/// A task's knowledge of its cluster.
#[derive(Clone)]
pub(crate) struct KnownCluster {
    /// All tasks and their addresses.
    pub(crate) cluster: ClusterSpec,
    /// The version of the cluster that a rendezvous formed; 0 for a cluster that never changes.
    pub(crate) epoch: u64,
    /// The other tasks.
    pub(crate) peers: Arc<Peers>,
}

/// A device of a worker.
struct WorkerDevice {
    device: Arc<Device>,
    /// The device's state, shared by all sessions that do not ask for state of their own. As in stock, devices of one
    /// task do not see each other's.
    resources: Arc<ResourceManager>,
}

/// The worker of one task.
pub struct Worker {
    task: TaskName,
    registry: Registry,
    devices: Vec<WorkerDevice>,
    pool: Arc<ComputePool>,
    channels: Arc<Channels>,
    /// The cluster as this task knows it, for sessions that do not bring their own.
    known: watch::Sender<KnownCluster>,
    /// The differences between clusters that were logged.
    logged_differences: LoggedDifferences,
    sessions: WorkerSessions,
    /// The session of masters that open none, as very old ones do.
    legacy_session: Arc<WorkerSession>,
    steps: Steps,
    requests: RecentRequests,
    transfers: Arc<Transfers>,
    /// Masters that have asked for devices and have not opened a session yet.
    pending_masters: PendingMasters,
    /// True if no program of this process opens sessions.
    serves_only: AtomicBool,
    /// True once the task is about to end: running steps may finish, nothing new starts.
    draining: AtomicBool,
    metrics: Arc<Metrics>,
}

impl Worker {
    /// Prepares the calling thread for steps that begin on it.
    pub(crate) fn prepare_thread(&self) {
        self.registry.prepare_thread();
    }

    /// Creates a worker on these devices; the first takes nodes without an explicit device. `cluster` lists the other
    /// tasks, which are called through `channels`.
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
            known: watch::Sender::new(KnownCluster { cluster: cluster.clone(), epoch, peers }),
            logged_differences: LoggedDifferences::default(),
            sessions: WorkerSessions::default(),
            steps,
            requests: RecentRequests::new(REMEMBERED_REQUESTS),
            transfers,
            pending_masters: PendingMasters::default(),
            serves_only: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            metrics: Arc::default(),
        }))
    }

    /// Returns the counts of what this task has done.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Returns the other tasks: those of the server's configuration, or the ones that the rendezvous reported last.
    pub(crate) fn peers(&self) -> Arc<Peers> {
        self.known.borrow().peers.clone()
    }

    /// Returns a receiver of changes of the cluster.
    pub(crate) fn watch_cluster(&self) -> watch::Receiver<KnownCluster> {
        self.known.subscribe()
    }

    /// Adopts the addresses of a newer cluster for sessions opened from now on. Returns the tasks that have moved, with
    /// their new addresses.
    pub(crate) fn learn(&self, cluster: &ClusterSpec, epoch: u64) -> Result<Vec<(TaskName, String)>> {
        let peers = peers(&self.channels, &self.task, cluster, Naming::Own)?;
        let mut moved = Vec::new();
        self.known.send_if_modified(|known| {
            if known.epoch >= epoch {
                return false;
            }
            let differences = known.cluster.differences(cluster).into_iter();
            moved = differences.map(|difference| (difference.task, difference.there)).collect();
            *known = KnownCluster { cluster: cluster.clone(), epoch, peers };
            true
        });
        Ok(moved)
    }

    /// Returns the tasks other than `own` of a cluster that a session brought along, under the names that they have
    /// there.
    pub(crate) fn peers_in(&self, cluster: &ClusterSpec, own: &TaskName) -> Result<Arc<Peers>> {
        peers(&self.channels, own, cluster, Naming::Given)
    }

    /// Returns the step with this id, creating it if needed. [`Worker::cleanup_step`] ends it.
    pub(crate) fn step(&self, id: i64) -> Arc<WorkerStep> {
        self.steps.get(id)
    }

    /// Accepts a tensor that a peer has pushed; an error aborts its step. A tensor of a step that is over is dropped.
    pub(crate) fn deliver(&self, step_id: i64, key: &RendezvousKey, parcel: Result<Parcel>) {
        let Some(step) = self.steps.find(step_id) else { return };
        match parcel {
            Ok(parcel) => {
                if let Err(error) = step.local().send(key, parcel) {
                    tracing::debug!(step_id, %key, %error, "A tensor arrived too late.");
                }
            }
            Err(why) => step.abort(why),
        }
    }

    /// Cancels and forgets a step whose part never began, with the tensors that were pushed for it.
    pub(crate) fn forget_unused_step(&self, id: i64) {
        if let Some(step) = self.steps.find(id).filter(|step| !step.has_run()) {
            step.abort(status!(Cancelled, "Step {id} was cancelled by its master."));
            self.steps.forget_if_idle(&step);
        }
    }

    /// Returns the tensors that receivers are waiting for, with their steps.
    pub(crate) fn awaited(&self) -> Vec<(i64, RendezvousKey)> {
        self.steps.awaited()
    }

    /// Returns the waits of iterators and whatever else runs on the worker's devices beside the nodes of steps.
    pub(crate) fn waits(&self) -> Vec<Wait> {
        self.devices.iter().flat_map(|device| device.device.waits().now()).collect()
    }

    /// Ends and forgets a step; pending waits for its tensors fail. An unknown id is ignored.
    pub(crate) fn cleanup_step(&self, id: i64) {
        self.steps.cleanup(id);
    }

    /// Ends and forgets all steps of a session.
    pub(crate) fn cleanup_steps_of(&self, session: &Arc<WorkerSession>) {
        self.steps.cleanup_session(session);
    }

    /// Sleeps; can be awaited on any thread. Fails if the server ends first.
    pub(crate) fn sleep(&self, length: Duration) -> impl Future<Output = Result<()>> + Send + use<> {
        self.channels.sleep(length)
    }

    /// Returns the task's name.
    pub fn task(&self) -> &TaskName {
        &self.task
    }

    /// Returns the device that takes nodes without an explicit device.
    pub(crate) fn device(&self) -> &Arc<Device> {
        &self.devices.first().expect("a worker has a device").device
    }

    /// Counts what the worker holds.
    pub fn census(&self) -> Census {
        let (sessions, graphs) = self.sessions.count();
        let (steps, parcels, receivers) = self.steps.count();
        Census { sessions, graphs: graphs + self.legacy_session.graphs.len(), steps, parcels, receivers }
    }

    /// Returns the tasks whose masters have sessions open here.
    pub fn masters(&self) -> BTreeSet<String> {
        self.sessions.masters()
    }

    /// Returns whether the master of this task has ever opened a session here.
    pub fn has_seen(&self, master_task: &str) -> bool {
        self.sessions.has_seen(master_task)
    }

    /// Returns the time since the master of this task closed its last session here; `None` if it has one open or never
    /// had one.
    pub fn closed_for(&self, master_task: &str) -> Option<Duration> {
        self.sessions.closed_for(master_task)
    }

    /// Declares that no program of this process opens sessions.
    pub(crate) fn mark_serve_only(&self) {
        self.serves_only.store(true, Ordering::Relaxed);
    }

    /// Returns the address of this task's server according to its cluster; empty if it is not listed.
    pub(crate) fn address(&self) -> String {
        self.known.borrow().cluster.address(&self.task).unwrap_or_default().to_owned()
    }

    /// Records that a master has opened a session, and the address that it reports for its server.
    pub(crate) fn note_master(&self, handle: &str, address: &str) {
        self.sessions.set_address(handle, address);
        if let Some(peer) = caller::peer() {
            self.pending_masters.remove(peer);
        }
    }

    /// Refuses new work from now on.
    pub(crate) fn start_draining(&self) {
        self.draining.store(true, Ordering::Relaxed);
    }

    /// Fails if the task is about to end.
    pub(crate) fn check_not_draining(&self) -> Result<()> {
        ensure!(!self.draining.load(Ordering::Relaxed), Unavailable, "{} is ending", self.task);
        Ok(())
    }

    /// Returns the number of calls in progress that run steps here.
    pub(crate) fn running_calls(&self) -> usize {
        self.steps.calls()
    }

    fn devices(&self) -> impl Iterator<Item = &Arc<Device>> {
        self.devices.iter().map(|each| &each.device)
    }

    /// Returns the devices as reported to other tasks and clients.
    pub fn device_attributes(&self) -> Vec<DeviceAttributes> {
        self.devices().map(|device| attributes(device)).collect()
    }

    /// The devices by the names that they have where this task is called `own`.
    fn devices_as(&self, own: &TaskName) -> Result<Vec<Arc<Device>>> {
        let renamed = |(index, device): (u32, &Arc<Device>)| {
            if *own == self.task { Ok(device.clone()) } else { device.renamed(&own.cpu(index)).map(Arc::new) }
        };
        (0..).zip(self.devices()).map(renamed).collect()
    }

    /// The surroundings of a client's context, which share no state with others.
    pub(crate) fn eager_session(&self, cluster: Option<&ClientCluster>) -> Result<WorkerSession> {
        let (own, peers) = match cluster {
            Some(ClientCluster { own, cluster, .. }) => {
                let known = cluster.address(own).is_some();
                ensure!(known, Internal, "{own} is not a task of the cluster that the client describes");
                (own.clone(), self.peers_in(cluster, own)?)
            }
            None => (self.task.clone(), self.peers()),
        };
        let envs = self.devices_as(&own)?.into_iter().map(|device| {
            let resources = ResourceManager::new(&self.task.job);
            RuntimeEnv::new(self.registry.clone(), device, resources, self.pool.clone())
        });
        Ok(WorkerSession::new(own, envs.collect(), false, peers))
    }

    /// Opens a session for a master; opening it again changes nothing.
    pub(crate) fn create_session(&self, request: &CreateWorkerSessionRequest) -> Result<Arc<WorkerSession>> {
        self.check_not_draining()?;
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
        // Also under other names: a master whose session shares the state of the tasks that it renames says so.
        let isolate = request.isolate_session_state;
        let make = || {
            let envs = self.devices.iter().zip(devices).map(|(known, device)| {
                let resources =
                    if isolate { ResourceManager::new(&self.task.job) } else { known.resources.clone() };
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

    /// Returns the session that a request refers to.
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

    /// Deletes a session with its graphs; an unknown handle is ignored.
    pub(crate) fn delete_session(&self, handle: &str) {
        self.sessions.delete(handle);
        self.steps.sweep();
    }

    /// Prepares a graph of a master to run and returns its handle.
    pub(crate) async fn register_graph(&self, request: RegisterGraphRequest) -> Result<String> {
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        // Creating kernels takes a while, so it must not happen on an I/O thread.
        let models_costs = request.graph_options.as_ref().is_some_and(|options| options.build_cost_model > 0);
        let register = async move { session.register(&request.graph_def.unwrap_or_default(), models_costs) };
        self.pool.complete(register).await
    }

    /// Removes a graph.
    pub(crate) fn deregister_graph(&self, request: &DeregisterGraphRequest) -> Result<()> {
        let session = self.session(&request.session_handle, request.create_worker_session_called)?;
        session.deregister(&request.graph_handle)
    }

    /// Starts, stops or reads the log of transfers from other tasks.
    pub(crate) fn logging(&self, request: &LoggingRequest) -> LoggingResponse {
        self.transfers.serve(request)
    }

    /// Clears these containers, or the default one if none is named, and releases their waiters first.
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

/// Describes a device as reported to other tasks and clients.
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

/// Returns the time in microseconds since 1970.
pub(crate) fn since_epoch() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros() as i64
}

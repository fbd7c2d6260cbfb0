//! A worker: the devices of one task, their state and their threads, and the sessions that masters open on it.

mod sessions;
#[allow(dead_code)]
mod steps;

pub(crate) use sessions::WorkerSession;
#[allow(unused_imports)]
pub(crate) use steps::WorkerStep;

use crate::spec::{ClusterSpec, TaskName};
use crate::transport::client::{Channels, Naming, Peers};
use ferroflow_core::Result;
use ferroflow_core::device::Device;
use ferroflow_core::op::Registry;
use ferroflow_core::resource::ResourceManager;
use ferroflow_proto::tensorflow::{CreateWorkerSessionRequest, DeviceAttributes, DeviceLocality, ServerDef};
use ferroflow_runtime::{ComputePool, RuntimeEnv};
use sessions::WorkerSessions;
use std::sync::Arc;
use std::time::Duration;
use steps::Steps;

/// What every CPU device of stock claims to have.
const REPORTED_MEMORY: i64 = 256 << 20;

/// The worker of one task.
pub struct Worker {
    task: TaskName,
    registry: Registry,
    devices: Vec<Arc<Device>>,
    /// State shared by all sessions that do not ask for state of their own.
    resources: Arc<ResourceManager>,
    pool: Arc<ComputePool>,
    channels: Arc<Channels>,
    /// The other tasks, for sessions that do not bring a cluster of their own.
    peers: Arc<Peers>,
    sessions: WorkerSessions,
    #[allow(dead_code)]
    steps: Steps,
}

impl Worker {
    /// A worker on these devices, of which the first takes whatever is not placed explicitly. `cluster` holds the other
    /// tasks that it may call, through `channels`.
    pub(crate) fn new(
        task: TaskName,
        registry: Registry,
        devices: Vec<Arc<Device>>,
        pool: Arc<ComputePool>,
        channels: Arc<Channels>,
        cluster: &ClusterSpec,
    ) -> Result<Arc<Worker>> {
        let resources = ResourceManager::new(&task.job);
        let peers = peers(&channels, &task, cluster, Naming::Own)?;
        let steps = Steps::default();
        Ok(Arc::new(Worker {
            task,
            registry,
            devices,
            resources,
            pool,
            channels,
            peers,
            sessions: WorkerSessions::default(),
            steps,
        }))
    }

    /// The other tasks, as the server's configuration has them.
    #[allow(dead_code)]
    pub(crate) fn peers(&self) -> &Arc<Peers> {
        &self.peers
    }

    /// The tasks other than `own` of a cluster that a session brings along. They go by the names that they have there.
    pub(crate) fn peers_in(&self, cluster: &ClusterSpec, own: &TaskName) -> Result<Arc<Peers>> {
        peers(&self.channels, own, cluster, Naming::Given)
    }

    /// The step with this id, found or made. [`Worker::cleanup_step`] ends it.
    #[allow(dead_code)]
    pub(crate) fn step(&self, id: i64) -> Arc<WorkerStep> {
        self.steps.get(id)
    }

    /// Ends and forgets a step: whoever still waits for its tensors is told. One that is not known is fine.
    #[allow(dead_code)]
    pub(crate) fn cleanup_step(&self, id: i64) {
        self.steps.cleanup(id);
    }

    /// Waits; works on any thread.
    pub(crate) fn sleep(&self, length: Duration) -> tokio::time::Sleep {
        self.channels.sleep(length)
    }

    /// The task's name.
    pub fn task(&self) -> &TaskName {
        &self.task
    }

    /// The device that takes whatever is not placed explicitly.
    pub(crate) fn device(&self) -> &Arc<Device> {
        self.devices.first().expect("a worker has a device")
    }

    /// The devices, as other tasks and clients are told.
    pub fn device_attributes(&self) -> Vec<DeviceAttributes> {
        self.devices.iter().map(|device| attributes(device)).collect()
    }

    /// Opens a session for a master; opening one that is open changes nothing.
    pub(crate) fn create_session(&self, request: &CreateWorkerSessionRequest) -> Result<Arc<WorkerSession>> {
        let (own, peers) = match &request.server_def {
            Some(ServerDef { cluster: Some(cluster), job_name, task_index, .. })
                if !cluster.job.is_empty() =>
            {
                let own = TaskName::new(job_name, u32::try_from(*task_index).unwrap_or_default());
                let peers = self.peers_in(&ClusterSpec::from_def(cluster)?, &own)?;
                (own, peers)
            }
            _ => (self.task.clone(), self.peers.clone()),
        };
        let device = self.device();
        let device = if own == self.task { device.clone() } else { Arc::new(device.renamed(&own.cpu(0))?) };
        let isolate = request.isolate_session_state;
        let make = || {
            let resources =
                if isolate { ResourceManager::new(&self.task.job) } else { self.resources.clone() };
            let env = RuntimeEnv::new(self.registry.clone(), device, resources, self.pool.clone());
            WorkerSession::new(own, env, isolate, peers)
        };
        self.sessions.create(&request.session_handle, &request.master_task, request.master_incarnation, make)
    }

    /// Forgets a session; one that is not known is fine.
    pub(crate) fn delete_session(&self, handle: &str) {
        self.sessions.delete(handle);
    }

    /// Empties these containers, or the default one if none is named, after releasing whoever waits in them.
    pub fn cleanup_all(&self, containers: &[String]) {
        if containers.is_empty() {
            self.resources.clear(self.resources.default_container());
        }
        for container in containers {
            self.resources.clear(container);
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

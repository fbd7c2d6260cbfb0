//! A worker: the devices of one task, their state and their threads, and the sessions that masters open on it.

mod sessions;
#[allow(dead_code)]
mod steps;

pub(crate) use sessions::WorkerSession;
#[allow(unused_imports)]
pub(crate) use steps::WorkerStep;

use crate::spec::{ClusterSpec, TaskName};
use crate::transport::client::{Channels, Peers};
use ferroflow_core::Result;
use ferroflow_core::device::Device;
use ferroflow_core::op::Registry;
use ferroflow_core::resource::ResourceManager;
use ferroflow_proto::tensorflow::{CreateWorkerSessionRequest, DeviceAttributes, DeviceLocality};
use ferroflow_runtime::{ComputePool, RuntimeEnv};
use sessions::WorkerSessions;
use std::sync::Arc;
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
        let peers = peers(&channels, &task, cluster)?;
        let steps = Steps::new(&task);
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

    /// The other tasks of a cluster that a session brings along.
    pub(crate) fn peers_in(&self, cluster: &ClusterSpec) -> Result<Arc<Peers>> {
        peers(&self.channels, &self.task, cluster)
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
        let attributes = |device: &Arc<Device>| DeviceAttributes {
            name: device.name().to_owned(),
            device_type: device.spec().kind.clone().unwrap_or_default(),
            memory_limit: REPORTED_MEMORY,
            locality: Some(DeviceLocality::default()),
            incarnation: device.incarnation(),
            xla_global_id: -1,
            ..Default::default()
        };
        self.devices.iter().map(attributes).collect()
    }

    /// Opens a session for a master; opening one that is open changes nothing.
    pub(crate) fn create_session(&self, request: &CreateWorkerSessionRequest) -> Result<Arc<WorkerSession>> {
        let cluster = request.server_def.as_ref().and_then(|server| server.cluster.as_ref());
        let peers = match cluster {
            Some(cluster) if !cluster.job.is_empty() => self.peers_in(&ClusterSpec::from_def(cluster)?)?,
            _ => self.peers.clone(),
        };
        let isolate = request.isolate_session_state;
        let make = || {
            let resources =
                if isolate { ResourceManager::new(&self.task.job) } else { self.resources.clone() };
            let device = self.device().clone();
            let env = RuntimeEnv::new(self.registry.clone(), device, resources, self.pool.clone());
            WorkerSession::new(env, isolate, peers)
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

fn peers(channels: &Channels, own: &TaskName, cluster: &ClusterSpec) -> Result<Arc<Peers>> {
    let others = cluster.tasks().filter(|(task, _)| task != own);
    Peers::new(channels, others.map(|(task, address)| (task, address.to_owned())))
}

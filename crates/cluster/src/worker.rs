//! A worker: the devices of one task, their state and their threads, and the sessions that masters open on it.

mod sessions;

pub(crate) use sessions::WorkerSession;

use crate::spec::TaskName;
use ferroflow_core::Result;
use ferroflow_core::device::Device;
use ferroflow_core::op::Registry;
use ferroflow_core::resource::ResourceManager;
use ferroflow_proto::tensorflow::{DeviceAttributes, DeviceLocality};
use ferroflow_runtime::{ComputePool, RuntimeEnv};
use sessions::WorkerSessions;
use std::sync::Arc;

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
    sessions: WorkerSessions,
}

impl Worker {
    /// A worker on these devices, of which the first takes whatever is not placed explicitly.
    pub fn new(
        task: TaskName,
        registry: Registry,
        devices: Vec<Arc<Device>>,
        pool: Arc<ComputePool>,
    ) -> Arc<Worker> {
        let resources = ResourceManager::new(&task.job);
        Arc::new(Worker { task, registry, devices, resources, pool, sessions: WorkerSessions::default() })
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
    pub(crate) fn create_session(
        &self,
        handle: &str,
        isolate: bool,
        master_task: &str,
        master_incarnation: i64,
    ) -> Result<Arc<WorkerSession>> {
        self.sessions.create(handle, master_task, master_incarnation, || {
            let resources =
                if isolate { ResourceManager::new(&self.task.job) } else { self.resources.clone() };
            let device = self.device().clone();
            let env = RuntimeEnv::new(self.registry.clone(), device, resources, self.pool.clone());
            WorkerSession::new(env, isolate)
        })
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

//! The other tasks of a cluster, as one task or one session sees them.

use super::super::intake::Intake;
use super::super::io::Io;
use super::channel::Channel;
use super::remote_worker::RemoteWorker;
use crate::spec::TaskName;
use ferroflow_core::Result;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

/// Channels by address, so that all who call a task share its connections. One per server.
pub(crate) struct Channels {
    io: Arc<Io>,
    intake: Arc<Intake>,
    by_address: Mutex<HashMap<String, Weak<Channel>>>,
}

impl Channels {
    /// Channels carried by these threads; tensors that arrive on them get memory from `intake`.
    pub(crate) fn new(io: Arc<Io>, intake: Arc<Intake>) -> Arc<Channels> {
        Arc::new(Channels { io, intake, by_address: Mutex::default() })
    }

    /// Waits, as [`Io::sleep`] does.
    pub(crate) fn sleep(&self, length: Duration) -> impl Future<Output = Result<()>> + Send + use<> {
        self.io.sleep(self.io.choose(0), length)
    }

    /// The channel to `host:port`.
    fn get(&self, address: &str) -> Arc<Channel> {
        let mut channels = self.by_address.lock().expect("no panic while channels are locked");
        if let Some(channel) = channels.get(address).and_then(Weak::upgrade) {
            return channel;
        }
        let channel = Channel::new(address, self.io.clone(), &self.intake);
        channels.retain(|_, channel| channel.strong_count() > 0);
        channels.insert(address.to_owned(), Arc::downgrade(&channel));
        channel
    }
}

/// Whose names for tasks count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Tasks know who they are: one that answers under another name is not the one that was meant.
    Own,
    /// A session names the tasks, whatever they were started as.
    Given,
}

/// The tasks of a cluster that can be called.
pub(crate) struct Peers {
    by_task: BTreeMap<TaskName, Arc<RemoteWorker>>,
    /// The same by the name that device names start with.
    by_prefix: HashMap<String, Arc<RemoteWorker>>,
}

impl Peers {
    /// These tasks at these addresses (`host:port`). Nothing is connected before it is needed.
    pub(crate) fn new(
        channels: &Channels,
        tasks: impl IntoIterator<Item = (TaskName, String)>,
        naming: Naming,
    ) -> Result<Arc<Peers>> {
        let (mut by_task, mut by_prefix) = (BTreeMap::new(), HashMap::new());
        for (task, address) in tasks {
            let worker =
                RemoteWorker::new(task.clone(), channels.get(&address), channels.intake.clone(), naming)?;
            let worker = Arc::new(worker);
            by_prefix.insert(task.to_string(), worker.clone());
            by_task.insert(task, worker);
        }
        Ok(Arc::new(Peers { by_task, by_prefix }))
    }

    /// The worker of a task.
    pub(crate) fn worker(&self, task: &TaskName) -> Option<&Arc<RemoteWorker>> {
        self.by_task.get(task)
    }

    /// All of them, by job and number.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<RemoteWorker>> {
        self.by_task.values()
    }

    /// The worker that a device belongs to, by the device's full name.
    pub(crate) fn of_device(&self, device: &str) -> Option<&Arc<RemoteWorker>> {
        self.by_prefix.get(device.split_once("/device:")?.0)
    }
}

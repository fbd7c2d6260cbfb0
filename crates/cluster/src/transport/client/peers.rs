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

/// Channels by address, so that all callers of a task share its connections. There is one set per server.
pub(crate) struct Channels {
    io: Arc<Io>,
    intake: Arc<Intake>,
    by_address: Mutex<HashMap<String, Weak<Channel>>>,
}

impl Channels {
    /// Creates channels that run on these threads and take memory for incoming tensors from `intake`.
    pub(crate) fn new(io: Arc<Io>, intake: Arc<Intake>) -> Arc<Channels> {
        Arc::new(Channels { io, intake, by_address: Mutex::default() })
    }

    /// Sleeps, as [`Io::sleep`] does.
    pub(crate) fn sleep(&self, length: Duration) -> impl Future<Output = Result<()>> + Send + use<> {
        self.io.sleep(self.io.choose(0), length)
    }

    /// Returns the channel to `host:port`.
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

/// The party that names the tasks.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Tasks have the names that they were started with. A task that reports another name is not the intended one.
    Own,
    /// The session names the tasks, whatever they were started as.
    Given,
}

/// The other tasks of a cluster.
pub(crate) struct Peers {
    by_task: BTreeMap<TaskName, Arc<RemoteWorker>>,
    /// The same tasks by the prefix of their device names.
    by_prefix: HashMap<String, Arc<RemoteWorker>>,
}

impl Peers {
    /// Creates the tasks at these addresses (`host:port`). Connects on first use.
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

    /// Returns the worker of a task.
    pub(crate) fn worker(&self, task: &TaskName) -> Option<&Arc<RemoteWorker>> {
        self.by_task.get(task)
    }

    /// Returns all workers, sorted by job and index.
    pub(crate) fn workers(&self) -> impl Iterator<Item = &Arc<RemoteWorker>> {
        self.by_task.values()
    }

    /// Returns the worker that owns a device, given by its full name.
    pub(crate) fn of_device(&self, device: &str) -> Option<&Arc<RemoteWorker>> {
        self.by_prefix.get(device.split_once("/device:")?.0)
    }
}

//! Servers: one task of a cluster each, in this process.

mod bound;
mod chief_watch;
mod listen;
mod meeting;
mod task_config;

pub use bound::BoundServer;
pub use listen::{ListenConfig, listen};
pub use task_config::TaskConfig;

use crate::target::Target;
use chief_watch::Timeouts;
pub use ferroflow_cluster::Listeners;
pub use ferroflow_cluster::server::{Activity, Whereabouts};
use ferroflow_cluster::server::{Server as Task, ServerConfig};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
pub use ferroflow_core::memory::limits::{Limit as MemoryLimit, least as memory_limit};
use ferroflow_core::op::Registry;
use ferroflow_core::{Result, Status, status};
use meeting::Membership;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;

/// A running server. It stops when it is dropped; [`Server::join`] keeps it running.
///
/// ```
/// use ferroflow::Server;
///
/// let server = Server::local()?;
/// assert!(server.target().starts_with("grpc://"));
/// server.stop();
/// # Ok::<(), ferroflow::Status>(())
/// ```
pub struct Server {
    task: Task,
    target: Target,
    cluster: ClusterSpec,
    stop: oneshot::Sender<()>,
    /// Dropped last, when the server no longer serves.
    membership: Option<Membership>,
}

impl Server {
    /// Starts the server of one task, at the task's address in the cluster.
    ///
    /// ```no_run
    /// use ferroflow::{ClusterSpec, Server};
    ///
    /// let mut cluster = ClusterSpec::new();
    /// cluster.add_hosts("ps", "ps0:2222")?;
    /// cluster.add_hosts("worker", "worker0:2222,worker1:2222")?;
    /// Server::new(&cluster, "ps", 0)?.join();
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if the cluster does not have the task; `Unknown`, as in TensorFlow, if the address cannot be used.
    pub fn new(cluster: &ClusterSpec, job: &str, task: u32) -> Result<Server> {
        crate::logging::start();
        let task = TaskName::new(job, task);
        let entry = cluster.address(&task);
        if entry.is_none() {
            return Err(not_a_task(&task, &cluster.to_string()));
        }
        let listeners = listen(&ListenConfig { entry, bind: None, port: None })?;
        let config = ServerConfig { task, cluster: cluster.clone(), ..ServerConfig::default() };
        let server = Server::start(config, crate::registry(), listeners, std::future::pending())?;
        tracing::info!("{} serves at {}.", server.task(), server.address());
        Ok(server)
    }

    /// Starts a cluster of one task, on any free port of the loopback interface.
    pub fn local() -> Result<Server> {
        let listeners = listen(&ListenConfig { entry: None, bind: None, port: Some(0) })?;
        Server::start(ServerConfig::default(), crate::registry(), listeners, std::future::pending())
    }

    /// Starts a server on `listeners`, of which there must be at least one. It serves the ops of `registry` until `shutdown`
    /// completes or the server is stopped.
    pub fn start(
        config: ServerConfig,
        registry: Registry,
        listeners: impl Into<Listeners>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Server> {
        crate::logging::start();
        let (stop, stopped) = oneshot::channel();
        let shutdown = async {
            tokio::select! {
                () = shutdown => {}
                _ = stopped => {}
            }
        };
        let cluster = config.cluster.clone();
        let task = Task::start(config, registry, listeners, shutdown)?;
        let cluster = if cluster.is_empty() {
            ClusterSpec::single(task.task(), &task.address().to_string())
        } else {
            cluster
        };
        Ok(Server { target: Target::direct(task.client().clone()), task, cluster, stop, membership: None })
    }

    /// Returns the target to open sessions on. Sessions of this process call the server directly, without gRPC.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Returns the address that the server listens on.
    pub fn address(&self) -> SocketAddr {
        self.task.address()
    }

    /// Returns the task that the server is.
    pub fn task(&self) -> &TaskName {
        self.task.task()
    }

    /// Returns the cluster that the server is part of, as it was when the server started.
    pub fn cluster(&self) -> &ClusterSpec {
        &self.cluster
    }

    /// Returns the handle by which the server is told new addresses of tasks that were restarted elsewhere.
    pub fn whereabouts(&self) -> Whereabouts {
        self.task.whereabouts()
    }

    /// Returns the server's work so far: sessions, steps, and the memory of tensors.
    pub fn activity(&self) -> Activity {
        self.task.activity()
    }

    /// Returns `true` if any master, this task's own or another's, has a session open on this server.
    pub fn has_sessions(&self) -> bool {
        !self.task.masters().is_empty()
    }

    /// Refuses new work with `Unavailable` and waits up to `limit` for the steps in flight; returns the number of steps
    /// that are left. Must be polled in a tokio runtime.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.task.drain(limit).await
    }

    /// Waits until training is over: the chief has used this cluster, has closed its sessions and has been gone for `grace`,
    /// no other live master has a session open here, and no live worker may still begin. Must be polled in a tokio runtime.
    ///
    /// # Errors
    ///
    /// `DeadlineExceeded` if the chief does not come, or come back, within `limit`; `InvalidArgument` if the cluster has no
    /// chief.
    pub async fn until_chief_is_done(
        &self,
        grace: Duration,
        limit: impl Into<Option<Duration>>,
    ) -> Result<()> {
        chief_watch::until_done(&self.task, &self.cluster, &Timeouts::new(grace, limit.into())).await
    }

    /// Blocks until the `shutdown` future of [`Server::start`] completes; a server without one blocks forever.
    pub fn join(self) {
        let Server { task, stop, .. } = self;
        task.join();
        drop(stop);
    }

    /// Closes all sessions and connections, and waits until the server's threads have ended.
    pub fn stop(self) {
        let Server { task, stop, .. } = self;
        drop(stop);
        task.join();
    }
}

/// The refusal to be a task that the cluster, given in words, does not have.
fn not_a_task(task: &TaskName, cluster: &str) -> Status {
    let known = if cluster.is_empty() { "no tasks" } else { cluster };
    status!(InvalidArgument, "{task} is not a task of the cluster, which has {known}")
}

impl From<&Server> for Target {
    fn from(server: &Server) -> Target {
        server.target.clone()
    }
}

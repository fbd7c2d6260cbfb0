//! A server: one task of a cluster, in this process.

mod chief_watch;
mod listen;
mod meeting;
mod task_config;

pub use listen::{Place, listen};
pub use task_config::TaskConfig;

use crate::target::Target;
use chief_watch::Patience;
pub use ferroflow_cluster::Listeners;
pub use ferroflow_cluster::server::Whereabouts;
use ferroflow_cluster::server::{Server as Task, ServerConfig};
use ferroflow_cluster::spec::{ClusterSpec, TaskName};
pub use ferroflow_core::memory::limits::{Limit as MemoryLimit, least as memory_limit};
use ferroflow_core::op::Registry;
use ferroflow_core::{Result, ensure};
use meeting::Membership;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::sync::oneshot;

/// A server at work. It stops when it is dropped; [`Server::join`] keeps it until somebody else stops it.
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
    /// Left last, when nothing is served any more.
    membership: Option<Membership>,
}

impl Server {
    /// Serves one task of a cluster, at the address that the cluster has for it.
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
    pub fn new(cluster: &ClusterSpec, job: &str, task: u32) -> Result<Server> {
        crate::logging::start();
        let task = TaskName::new(job, task);
        let entry = cluster.address(&task);
        ensure!(
            entry.is_some(),
            InvalidArgument,
            "{task} is not in the cluster, which has {}",
            if cluster.is_empty() { "no tasks".to_owned() } else { cluster.to_string() }
        );
        let listeners = listen(&Place { entry, bind: None, port: None })?;
        let config = ServerConfig { task, cluster: cluster.clone(), ..ServerConfig::default() };
        let server = Server::start(config, crate::registry(), listeners, std::future::pending())?;
        tracing::info!("{} serves at {}.", server.task(), server.address());
        Ok(server)
    }

    /// A cluster of one at any free port of this machine.
    pub fn local() -> Result<Server> {
        let listeners = listen(&Place { entry: None, bind: None, port: Some(0) })?;
        Server::start(ServerConfig::default(), crate::registry(), listeners, std::future::pending())
    }

    /// Serves `listeners`, of which there is at least one, with these ops until `shutdown` ends or the server is stopped.
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
        let cluster = match cluster.is_empty() {
            true => ClusterSpec::single(task.task(), &task.address().to_string()),
            false => cluster,
        };
        Ok(Server { target: Target::direct(task.client().clone()), task, cluster, stop, membership: None })
    }

    /// What sessions are opened on. A session of this process calls the server directly.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.task.address()
    }

    /// Its place in the cluster.
    pub fn task(&self) -> &TaskName {
        self.task.task()
    }

    /// The cluster that it is part of, as it was when the server started.
    pub fn cluster(&self) -> &ClusterSpec {
        &self.cluster
    }

    /// By which the server hears where other tasks are that were started again elsewhere.
    pub fn whereabouts(&self) -> Whereabouts {
        self.task.whereabouts()
    }

    /// Whether any master, this task's own or another's, has a session open here.
    pub fn has_sessions(&self) -> bool {
        !self.task.masters().is_empty()
    }

    /// Lets nothing new begin and waits for the steps under way, at most so long; says how many are left. Whoever wants
    /// to begin something hears `Unavailable`. To be polled in a runtime of tokio.
    pub async fn drain(&self, limit: Duration) -> usize {
        self.task.drain(limit).await
    }

    /// Ends when training is over: the chief has been here, has closed its sessions and has been gone for `grace`, no
    /// other master that is still there has a session open, and no worker that is there may yet begin. Fails with
    /// `DeadlineExceeded` if the chief does not come, or come back, within `limit`. To be polled in a runtime of tokio.
    pub async fn until_chief_is_done(
        &self,
        grace: Duration,
        limit: impl Into<Option<Duration>>,
    ) -> Result<()> {
        chief_watch::until_done(&self.task, &self.cluster, &Patience::new(grace, limit.into())).await
    }

    /// Serves until the future that it was started with ends; for one without, as long as the process lives.
    pub fn join(self) {
        let Server { task, stop, .. } = self;
        task.join();
        drop(stop);
    }

    /// Closes its sessions, ends its connections and waits until its threads are gone.
    pub fn stop(self) {
        let Server { task, stop, .. } = self;
        drop(stop);
        task.join();
    }
}

impl From<&Server> for Target {
    fn from(server: &Server) -> Target {
        server.target.clone()
    }
}

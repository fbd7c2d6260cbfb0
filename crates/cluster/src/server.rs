//! A server: one task of a cluster, with its master, its worker and the I/O threads that serve them.

use crate::client::{LocalMaster, MasterClient};
use crate::eager::Eager;
use crate::eager::EagerCount;
use crate::listeners::{Listeners, PortSharer};
use crate::local_users::LocalUsers;
use crate::logged_wait::LoggedWait;
use crate::master::{LongWaits, Master};
use crate::random;
use crate::spec::{ClusterSpec, TaskName};
use crate::transport::client::Channels;
use crate::transport::intake::Intake;
use crate::transport::io::{Carrier, Io, IoThread};
use crate::transport::local;
use crate::transport::server::{RareReport, Services, Sources, spawn};
use crate::worker::{Census, Worker};
use ferroflow_core::device::{Device, Wait};
use ferroflow_core::memory::{MemoryBudget, limits};
use ferroflow_core::op::Registry;
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{BoxFuture, Result, bail, status};
use ferroflow_proto::tensorflow::ConfigProto;
use ferroflow_runtime::ComputePool;
use std::collections::BTreeSet;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::{mpsc, watch};

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct ServerConfig {
    /// The task that the server is.
    pub task: TaskName,
    /// The cluster as this task knows it; empty for a cluster of one.
    pub cluster: ClusterSpec,
    /// The version of the cluster that a rendezvous formed; 0 for a cluster that never changes.
    pub epoch: u64,
    /// True if a program of this process opens sessions. Other tasks wait for such a program at the end of training.
    pub opens_sessions: bool,
    /// The number of CPU devices (`/device:CPU:0` and up), which share threads and memory; at least one.
    pub cpu_devices: usize,
    /// The number of threads that accept connections and answer calls.
    pub io_threads: usize,
    /// The number of threads that run steps.
    pub compute_threads: usize,
    /// The largest single tensor, in bytes.
    pub tensor_limit: usize,
    /// Bytes of freed tensor memory to keep for reuse.
    pub kept_memory: usize,
    /// The largest size of the process in bytes. Requests that need more are refused with `ResourceExhausted`, as they
    /// are at the limits that the system sets.
    pub memory: Option<usize>,
    /// The bytes that incoming requests may hold per connection; half of the available memory by default.
    pub connection_memory: Option<usize>,
    /// The time after which sessions are closed whose programs, or whose masters on other tasks, are gone. `None` keeps
    /// them forever, as stock does.
    pub reclaim_sessions: Option<Duration>,
    /// The users of this machine who may connect.
    pub local_users: LocalUsers,
    /// True if browsers, probes and scrapers are answered on the same port: `/metrics`, `/healthz`, `/readyz`.
    pub http: bool,
    /// The configuration of sessions that are opened at this server; a session's own settings override it.
    pub session_config: ConfigProto,
}

impl Default for ServerConfig {
    fn default() -> ServerConfig {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        ServerConfig {
            task: TaskName::new("localhost", 0),
            cluster: ClusterSpec::new(),
            epoch: 0,
            opens_sessions: true,
            cpu_devices: 1,
            io_threads: cores.clamp(1, 4),
            compute_threads: cores,
            tensor_limit: 1 << 42,
            kept_memory: 1 << 30,
            memory: None,
            connection_memory: None,
            reclaim_sessions: None,
            local_users: LocalUsers::default(),
            http: true,
            session_config: ConfigProto::default(),
        }
    }
}

impl ServerConfig {
    /// Returns the bytes that the server may use: its own limit or the lowest of the system's.
    pub fn room(&self) -> usize {
        let least = limits::least().map_or(usize::MAX, |limit| limit.bytes);
        self.memory.unwrap_or(usize::MAX).min(least)
    }
}

/// The interval at which a draining server checks for running steps.
const DRAIN_POLL: Duration = Duration::from_millis(10);

/// A server's work at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Activity {
    /// Sessions of masters and contexts of eager clients that are open here.
    pub sessions: usize,
    /// Steps that have ended and eager calls, since the server started.
    pub steps: u64,
    /// Steps and calls under way.
    pub running: usize,
    /// Bytes that tensors hold.
    pub tensor_bytes: usize,
}

/// A running server.
pub struct Server {
    address: SocketAddr,
    client: MasterClient,
    task: TaskName,
    services: Arc<Services>,
    threads: Vec<JoinHandle<()>>,
}

impl Server {
    /// Starts a server on at least one listener. It serves until `shutdown` completes.
    pub fn start(
        config: ServerConfig,
        registry: Registry,
        listeners: impl Into<Listeners>,
        shutdown: impl Future<Output = ()> + Send + 'static,
    ) -> Result<Server> {
        let failed = |error: std::io::Error| status!(Internal, "cannot listen: {error}");
        let Listeners { sockets, sharer } = listeners.into();
        for listener in &sockets {
            listener.set_nonblocking(true).map_err(failed)?;
        }
        let first = sockets.first().ok_or_else(|| status!(InvalidArgument, "no address to listen on"))?;
        let address = first.local_addr().map_err(failed)?;
        let own = config.cluster.address(&config.task);
        let target = own.map_or_else(|| format!("grpc://{address}"), |own| format!("grpc://{own}"));
        let Assembled { services, io, io_threads } =
            assemble(&config, registry, address.port(), sharer.clone())?;

        let local = local::listen(&local::name(services.worker.device().incarnation()));
        let local = local.inspect_err(|error| {
            tracing::debug!(%error, "No local socket; tasks of this machine have to connect over TCP.");
        });
        let (stop, stopped) = watch::channel(());
        let (give, handed_over) = mpsc::unbounded_channel();
        let mut handed_over = Some(handed_over);
        let mut threads = Vec::new();
        for thread in io_threads {
            let local = local.as_ref().ok().map(UnixListener::try_clone).transpose().map_err(failed)?;
            let network = sockets.iter().map(TcpListener::try_clone);
            let network = network.collect::<Result<_, _>>().map_err(failed)?;
            let sources = Sources { network, local, handed_over: handed_over.take() };
            threads.push(spawn(thread, sources, services.clone(), stopped.clone())?);
        }
        if let Some(sharer) = sharer {
            // A connection that comes when the server has stopped is closed.
            sharer.hand_over(Box::new(move |connection| drop(give.send(connection))));
        }
        let (master, worker) = (services.master.clone(), services.worker.clone());
        let local = LocalMaster { master, worker, io, stopped, _carrier: None };
        let client = MasterClient::in_process(&target, local);
        threads.push(watch_for_shutdown(services.clone(), stop, shutdown)?);
        Ok(Server { address, client, task: config.task, services, threads })
    }

    /// Returns the address of the first listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns the task that the server is.
    pub fn task(&self) -> &TaskName {
        &self.task
    }

    /// Returns the target that clients open sessions on.
    pub fn target(&self) -> &str {
        self.client.target()
    }

    /// Returns a client that calls the server's master directly.
    pub fn client(&self) -> &MasterClient {
        &self.client
    }

    /// Returns the server's worker.
    #[cfg(test)]
    pub(crate) fn worker(&self) -> &Arc<Worker> {
        &self.services.worker
    }

    /// Its clients' contexts.
    #[cfg(test)]
    pub(crate) fn eager(&self) -> &Arc<Eager> {
        &self.services.eager
    }

    /// Counts what the server holds for masters and peers.
    pub fn census(&self) -> Census {
        self.services.worker.census()
    }

    /// Returns the server's work so far.
    pub fn activity(&self) -> Activity {
        let Services { master, worker, eager, .. } = &*self.services;
        let metrics = worker.metrics();
        Activity {
            sessions: worker.census().sessions + eager.count().contexts,
            // A step of the master may have a part that counts here, too.
            steps: metrics.steps.total().max(metrics.parts.total()) + eager.total_calls(),
            running: master.running_steps().max(worker.running_calls()) + eager.running_calls(),
            tensor_bytes: worker.device().memory().budget().held(),
        }
    }

    /// Returns the tasks whose masters have sessions open here, including this task.
    pub fn masters(&self) -> BTreeSet<String> {
        self.services.worker.masters()
    }

    /// Returns whether the master of this task has ever opened a session here.
    pub fn has_seen(&self, master: &TaskName) -> bool {
        self.services.worker.has_seen(&master.to_string())
    }

    /// Returns the time since the master of this task closed its last session here; `None` if it has one open or never
    /// had one.
    pub fn closed_for(&self, master: &TaskName) -> Option<Duration> {
        self.services.worker.closed_for(&master.to_string())
    }

    /// Returns the handle through which the server learns of cluster changes.
    pub fn whereabouts(&self) -> Whereabouts {
        Whereabouts(self.services.clone())
    }

    /// Refuses new work with `Unavailable` and waits up to `limit` for running steps. Returns the number of steps that
    /// are still running.
    pub async fn drain(&self, limit: Duration) -> usize {
        let Services { master, worker, eager, .. } = &*self.services;
        worker.start_draining();
        let deadline = Instant::now() + limit;
        // A step that was accepted just before shows up a moment later, so one look is not enough.
        let (mut calm, mut waiting) = (0, LoggedWait::new());
        loop {
            let running = master.running_steps() + worker.running_calls() + eager.running_calls();
            waiting.log(format_args!("{running} running steps"), "this task was asked to end");
            calm = if running == 0 { calm + 1 } else { 0 };
            if calm == 2 || Instant::now() >= deadline {
                return running;
            }
            tokio::time::sleep(DRAIN_POLL).await;
        }
    }

    /// Blocks until the server has stopped.
    pub fn join(self) {
        for thread in self.threads {
            if thread.join().is_err() {
                tracing::error!("A server thread panicked.");
            }
        }
    }
}

/// A handle to a running server: tells it where other tasks are now, and asks what it is doing.
#[derive(Clone)]
pub struct Whereabouts(Arc<Services>);

impl Whereabouts {
    /// Describes in one sentence what the server is doing, for operators who ask with a signal.
    pub fn summary(&self) -> String {
        let Services { master, worker, eager, .. } = &*self.0;
        let sessions = master.session_count();
        let steps = master.running_steps() + worker.running_calls() + eager.running_calls();
        let EagerCount { contexts, values, functions, parts, plans } = eager.count();
        let Census { parcels, receivers, .. } = worker.census();
        let held = worker.device().memory().budget().held() >> 20;
        let resident = limits::Usage::now().unwrap_or_default().resident >> 20;
        format!(
            "{} has {sessions} sessions open and {steps} steps under way; {parcels} tensors wait for their receivers and \
             {receivers} receivers for their tensors; {contexts} contexts of eager clients keep {values} values, \
             {functions} functions, {parts} parts of functions and {plans} plans; tensors hold {held} MiB, the process \
             {resident} MiB",
            worker.task()
        )
    }

    /// Returns the waits that have not ended, a sentence each without its period: for tensors of other nodes, and for
    /// elements of iterators.
    pub fn waits(&self) -> Vec<String> {
        let worker = &self.0.worker;
        let tensors = worker.awaited().into_iter().map(|(step, tensor)| {
            let (edge, from, to) = (tensor.edge(), tensor.source(), tensor.target());
            format!("{to} waits for tensor {edge} of step {step} from {from}")
        });
        let others = worker.waits().into_iter().map(|Wait { whom, why, since }| {
            format!("{} has waited for {whom} for {} s: {why}", worker.task(), since.elapsed().as_secs())
        });
        tensors.chain(others).collect()
    }

    /// Uses the addresses of this cluster for sessions opened from now on, if its epoch is newer. Sessions that involve
    /// a task that has moved end with `Aborted`.
    pub fn learn(&self, cluster: &ClusterSpec, epoch: u64) -> Result<()> {
        self.0.master.learn(cluster, epoch)
    }
}

/// Creates a cluster of one without a server: a master and a worker that only this process can call. It ends with its
/// last client.
pub fn in_process(config: &ServerConfig, registry: Registry) -> Result<MasterClient> {
    let Assembled { services, io, io_threads } = assemble(config, registry, 0, None)?;
    let carrier = Carrier::start(io_threads)?;
    let stopped = carrier.stopped();
    let (master, worker) = (services.master.clone(), services.worker.clone());
    Ok(MasterClient::in_process("", LocalMaster { master, worker, io, stopped, _carrier: Some(carrier) }))
}

/// The parts of a task before it serves.
struct Assembled {
    services: Arc<Services>,
    io: Arc<Io>,
    io_threads: Vec<IoThread>,
}

fn assemble(
    config: &ServerConfig,
    registry: Registry,
    port: u16,
    sharer: Option<Arc<dyn PortSharer>>,
) -> Result<Assembled> {
    let prepared = registry.clone();
    let pool = ComputePool::prepared(config.compute_threads, move || prepared.prepare_thread());
    let devices = make_devices(config, &registry)?;
    let [device, ..] = &devices[..] else { bail!(InvalidArgument, "a server needs a CPU device") };
    let intake = Intake::new(device.memory().clone(), config.connection_memory.unwrap_or(config.room() / 2));
    let (io_threads, io) = Io::prepare(config.io_threads)?;
    let channels = Channels::new(io.clone(), intake.clone());
    let worker =
        Worker::new(config.task.clone(), registry, devices, pool, channels, &config.cluster, config.epoch)?;
    if !config.opens_sessions {
        worker.mark_serve_only();
    }
    if config.reclaim_sessions.is_some() {
        worker.track_session_users();
    }
    let master = Master::new(worker.clone(), port, config.reclaim_sessions, config.session_config.clone());
    let eager = Eager::new(worker.clone())?;
    let services = Services {
        master,
        worker,
        eager,
        intake,
        accept_failures: RareReport::default(),
        local_users: config.local_users,
        refused_users: RareReport::default(),
        http: config.http,
        sharer,
    };
    Ok(Assembled { services: Arc::new(services), io, io_threads })
}

fn make_devices(config: &ServerConfig, registry: &Registry) -> Result<Vec<Arc<Device>>> {
    let prepared = registry.clone();
    let threads = rayon::ThreadPoolBuilder::new()
        .num_threads(config.compute_threads)
        .thread_name(|index| format!("kernel-{index}"))
        .start_handler(move |_| prepared.prepare_thread())
        .build()
        .map_err(|error| status!(Internal, "cannot start kernel threads: {error}"))?;
    let kept = config.kept_memory.min(config.room() / 4);
    let memory = BufferPool::within(kept, MemoryBudget::share(config.memory.unwrap_or(usize::MAX)));
    let threads = Arc::new(threads);
    let make = |index: usize| {
        let (name, incarnation) = (config.task.cpu(index as u32), random()?.max(1));
        Device::new(&name, incarnation, memory.clone(), config.tensor_limit, threads.clone()).map(Arc::new)
    };
    (0..config.cpu_devices).map(make).collect()
}

/// Starts the thread that waits for shutdown. Meanwhile it logs long steps and reclaims sessions; at shutdown it
/// cancels running steps and stops the I/O threads.
fn watch_for_shutdown(
    services: Arc<Services>,
    stop: watch::Sender<()>,
    shutdown: impl Future<Output = ()> + Send + 'static,
) -> Result<JoinHandle<()>> {
    watch_until(services, stop, Box::pin(shutdown))
}

/// The same for any kind of shutdown, which is compiled once.
fn watch_until(
    services: Arc<Services>,
    stop: watch::Sender<()>,
    shutdown: BoxFuture<()>,
) -> Result<JoinHandle<()>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| status!(Internal, "cannot start the shutdown thread: {error}"))?;
    std::thread::Builder::new()
        .name("shutdown".to_owned())
        .spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    () = shutdown => {}
                    () = LongWaits::watch(&services.master) => {}
                    () = services.master.reclaim_sessions() => {}
                    () = services.worker.reclaim_sessions(services.master.reclaim_after()) => {}
                    () = services.worker.watch_for_stalled_masters() => {}
                    () = services.eager.expire() => {}
                }
                services.eager.end();
                services.master.end().await;
                stop.send_replace(());
            })
        })
        .map_err(|error| status!(Internal, "cannot start the shutdown thread: {error}"))
}

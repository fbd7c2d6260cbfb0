//! The runtime crate on its own: plans and steps by direct calls, without master, worker or transport.
//!
//! When a golden fails here, a kernel, the planner or the executor is wrong; when it fails only on a server, the
//! services are. With several devices the nodes of every graph are scattered over them, calls of functions become nodes,
//! and the parts of a step meet in one rendezvous: what fails only then, placement or partitioning breaks.

use crate::suite::{Runtime, Session};
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::{Device, DeviceSpec};
use ferroflow_core::graph::Graph;
use ferroflow_core::op::Registry;
use ferroflow_core::rendezvous::Rendezvous;
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{DType, Result, Tensor, status};
use ferroflow_proto::tensorflow::GraphDef;
use ferroflow_runtime::plan::lower::{Lowered, lower};
use ferroflow_runtime::plan::partition::{Borders, Parts, partition};
use ferroflow_runtime::plan::place::Placer;
use ferroflow_runtime::plan::plan;
use ferroflow_runtime::{ComputePool, Executable, LocalRendezvous, PlanOptions, RuntimeEnv, Signature};
use futures_util::future::try_join_all;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A step that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(20);

/// Plans and runs graphs in this process.
pub struct Local {
    registry: Registry,
    devices: Vec<Arc<Device>>,
    pool: Arc<ComputePool>,
    options: PlanOptions,
}

impl Local {
    /// A runtime with a device and threads of its own.
    pub fn new(registry: Registry, options: PlanOptions) -> Result<Local> {
        Local::with_threads(registry, options, 2)
    }

    /// A runtime with a device and this number of threads.
    pub fn with_threads(registry: Registry, options: PlanOptions, threads: usize) -> Result<Local> {
        Local::scattered(registry, options, 1, threads)
    }

    /// A runtime that scatters graphs over several devices, which share the threads.
    pub fn scattered(
        registry: Registry,
        options: PlanOptions,
        devices: usize,
        thread_count: usize,
    ) -> Result<Local> {
        let (prepared, also_prepared) = (registry.clone(), registry.clone());
        let threads = rayon::ThreadPoolBuilder::new()
            .num_threads(thread_count)
            .start_handler(move |_| prepared.prepare_thread())
            .build();
        let threads = threads.map_err(|error| status!(Internal, "cannot start threads: {error}"))?;
        let threads = Arc::new(threads);
        let device = |task: usize| {
            let name = format!("/job:localhost/replica:0/task:{task}/device:CPU:0");
            Device::new(&name, task as u64 + 1, BufferPool::new(1 << 20), 1 << 32, threads.clone())
                .map(Arc::new)
        };
        let devices = (0..devices).map(device).collect::<Result<Vec<_>>>()?;
        let pool = ComputePool::prepared(thread_count, move || also_prepared.prepare_thread());
        Ok(Local { registry, devices, pool, options })
    }

    /// A graph whose nodes have devices.
    fn placed(&self, def: &GraphDef) -> Result<Graph> {
        let mut graph = Graph::new(self.registry.clone());
        graph.extend(def)?;
        let specs: Vec<DeviceSpec> = self.devices.iter().map(|device| device.spec().clone()).collect();
        let placer = Placer { devices: &specs, default: 0, soft: true, inline_calls: self.options.optimize };
        if specs.len() > 1 {
            lower(&mut graph, 0, Lowered::All)?;
            let mut scattered = graph.clone();
            for id in scattered.ids() {
                let data = &scattered.node(id).data;
                if !data.device.is_empty() {
                    continue;
                }
                // Ops take several variables, and nodes share state by name: what has state stays together.
                let shared: String = data.attrs.get("shared_name").unwrap_or_default();
                let state = |(dtype, is_ref): &(DType, bool)| *is_ref || *dtype == DType::Resource;
                let task = if !shared.is_empty() || data.output_types.iter().any(state) {
                    specs.len() as u64 - 1
                } else {
                    let mut hasher = DefaultHasher::new();
                    data.name.hash(&mut hasher);
                    hasher.finish() % specs.len() as u64
                };
                scattered.set_device(id, &format!("/task:{task}"));
            }
            // Nodes that belong together may have been torn apart.
            if placer.place(&mut scattered, 0).is_ok() {
                return Ok(scattered);
            }
        }
        placer.place(&mut graph, 0)?;
        Ok(graph)
    }
}

impl Runtime for Local {
    fn session(&self, def: &GraphDef) -> Result<Box<dyn Session>> {
        // Plans are made and steps begin on the caller's thread.
        self.registry.prepare_thread();
        let graph = self.placed(def)?;
        let env = |device: &Arc<Device>| {
            let resources = ResourceManager::new("localhost");
            let env = RuntimeEnv::new(self.registry.clone(), device.clone(), resources, self.pool.clone());
            env.set_library(graph.library().clone());
            env
        };
        Ok(Box::new(LocalSession {
            envs: self.devices.iter().map(env).collect(),
            graph,
            options: self.options.clone(),
            plans: HashMap::new(),
            next_id: AtomicU64::new(0),
            steps: 0,
        }))
    }
}

struct LocalSession {
    graph: Graph,
    /// By device; the first is the client's.
    envs: Vec<Arc<RuntimeEnv>>,
    options: PlanOptions,
    plans: HashMap<String, Arc<Plan>>,
    next_id: AtomicU64,
    steps: i64,
}

/// The part of a graph on each device; the first has the feeds and fetches.
type Plan = Vec<(Arc<RuntimeEnv>, Arc<Executable>)>;

impl LocalSession {
    fn prepare(&self, signature: &Signature) -> Result<Plan> {
        let client = &self.envs[0];
        let env_of = |device: &str| self.envs.iter().find(|env| env.device.name() == device);
        let borders = Borders {
            client: client.device.name(),
            incarnation: &|device| env_of(device).map_or(0, |env| env.device.incarnation()),
            next_id: &self.next_id,
            bfloat16: false,
        };
        let planned = plan(&self.graph, signature, &self.options, client)?;
        let Parts { local, remote, .. } = partition(planned, &borders)?;
        let mut executables = vec![(client.clone(), Executable::from_plan(local, client)?)];
        for part in remote {
            let env = env_of(&part.device).ok_or_else(|| status!(Internal, "no device {}", part.device))?;
            // As on the wire, so that what a part means does not depend on how it came.
            let mut graph = Graph::new(self.graph.registry().clone());
            graph.extend_planned(&part.graph.to_def())?;
            executables.push((env.clone(), Executable::for_part(graph, env)?));
        }
        Ok(executables)
    }
}

impl Session for LocalSession {
    fn run(
        &mut self,
        feeds: Vec<(String, Tensor)>,
        fetches: &[String],
        targets: &[String],
    ) -> Result<Vec<Tensor>> {
        let (names, tensors): (Vec<String>, Vec<Tensor>) = feeds.into_iter().unzip();
        // A tensor fetched twice is computed and returned once; the client repeats it.
        let mut distinct: Vec<String> = Vec::new();
        for fetch in fetches {
            if !distinct.contains(fetch) {
                distinct.push(fetch.clone());
            }
        }
        let key = format!("{names:?} {distinct:?} {targets:?}");
        let plan = match self.plans.get(&key) {
            Some(plan) => plan.clone(),
            None => {
                let signature =
                    Signature { feeds: names, fetches: distinct.clone(), targets: targets.to_vec() };
                let made = Arc::new(self.prepare(&signature)?);
                self.plans.insert(key, made.clone());
                made
            }
        };
        self.steps += 1;
        let rendezvous: Arc<dyn Rendezvous> = Arc::new(LocalRendezvous::default());
        let (mut feeds, mut runs) = (Some(tensors), Vec::with_capacity(plan.len()));
        for (env, executable) in plan.iter() {
            let step = Arc::new(StepCx {
                step_id: self.steps,
                device: env.device.clone(),
                resources: env.resources.clone(),
                step_resources: ResourceManager::new("step"),
                rendezvous: rendezvous.clone(),
                cancellation: Cancellation::new(),
                depth: 0,
            });
            runs.push(executable.start(feeds.take().unwrap_or_default(), step, None)?);
        }
        let results = block_on(try_join_all(runs))
            .ok_or_else(|| status!(DeadlineExceeded, "the step does not end"))??;
        let outputs = &results[0];
        let position = |fetch: &String| distinct.iter().position(|name| name == fetch);
        let output = |fetch| position(fetch).and_then(|at| outputs.get(at)).cloned();
        let missing = || status!(Internal, "{} fetches, {} outputs", distinct.len(), outputs.len());
        fetches.iter().map(|fetch| output(fetch).ok_or_else(missing)).collect()
    }
}

/// Polls a future on this thread until it is done or the deadline has passed.
fn block_on<F: Future>(future: F) -> Option<F::Output> {
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = std::pin::pin!(future);
    let end = Instant::now() + DEADLINE;
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Some(output);
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return None;
        }
        std::thread::park_timeout(left);
    }
}

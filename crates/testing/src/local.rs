//! The runtime crate on its own: plans and steps by direct calls, without master, worker or transport.
//!
//! When a golden fails here, a kernel, the planner or the executor is wrong; when it fails only on a server, the
//! services are.

use crate::suite::{Runtime, Session};
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::Device;
use ferroflow_core::graph::Graph;
use ferroflow_core::op::Registry;
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{Result, Tensor, status};
use ferroflow_proto::tensorflow::GraphDef;
use ferroflow_runtime::plan::place::Placer;
use ferroflow_runtime::{ComputePool, Executable, LocalRendezvous, PlanOptions, RuntimeEnv, Signature};
use std::collections::HashMap;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

/// A step that takes longer hangs.
const DEADLINE: Duration = Duration::from_secs(20);

/// Plans and runs graphs in this process.
pub struct Local {
    registry: Registry,
    device: Arc<Device>,
    pool: Arc<ComputePool>,
    options: PlanOptions,
}

impl Local {
    /// A runtime with a device and threads of its own.
    pub fn new(registry: Registry, options: PlanOptions) -> Result<Local> {
        let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build();
        let threads = threads.map_err(|error| status!(Internal, "cannot start threads: {error}"))?;
        let name = "/job:localhost/replica:0/task:0/device:CPU:0";
        let device = Device::new(name, 1, BufferPool::new(1 << 20), 1 << 32, Arc::new(threads))?;
        Ok(Local { registry, device: Arc::new(device), pool: ComputePool::new(2), options })
    }
}

impl Runtime for Local {
    fn session(&self, def: &GraphDef) -> Result<Box<dyn Session>> {
        let mut graph = Graph::new(self.registry.clone());
        graph.extend(def)?;
        let devices = [self.device.spec().clone()];
        Placer { devices: &devices, default: 0, soft: true }.place(&mut graph, 0)?;
        let resources = ResourceManager::new("localhost");
        let env = RuntimeEnv::new(self.registry.clone(), self.device.clone(), resources, self.pool.clone());
        env.set_library(graph.library().clone());
        Ok(Box::new(LocalSession {
            graph,
            env,
            options: self.options.clone(),
            plans: HashMap::new(),
            steps: 0,
        }))
    }
}

struct LocalSession {
    graph: Graph,
    env: Arc<RuntimeEnv>,
    options: PlanOptions,
    plans: HashMap<String, Arc<Executable>>,
    steps: i64,
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
        let executable = match self.plans.get(&key) {
            Some(executable) => executable.clone(),
            None => {
                let signature =
                    Signature { feeds: names, fetches: distinct.clone(), targets: targets.to_vec() };
                let made = Executable::build(&self.graph, &signature, &self.options, &self.env)?;
                self.plans.insert(key, made.clone());
                made
            }
        };
        self.steps += 1;
        let step = Arc::new(StepCx {
            step_id: self.steps,
            device: self.env.device.clone(),
            resources: self.env.resources.clone(),
            step_resources: ResourceManager::new("step"),
            rendezvous: Arc::new(LocalRendezvous::default()),
            cancellation: Cancellation::new(),
        });
        let outputs = block_on(executable.start(tensors, step, None)?)
            .ok_or_else(|| status!(DeadlineExceeded, "the step does not end"))??;
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

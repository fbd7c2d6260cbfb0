//! A plan that is ready to run, step after step: its layout, and the memory of completed steps for reuse.

use crate::env::RuntimeEnv;
use crate::exec::layout::{KernelScope, Layout};
use crate::exec::run::{Run, Scratch};
use crate::functions::Functions;
use crate::partial::PartialHub;
use crate::plan::{self, PlanOptions, Planned, Signature};
use crate::rendezvous::LocalRendezvous;
use crate::trace::StepTrace;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::graph::{FunctionBody, Graph, Output};
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::{DType, Result, Tensor, ensure};
use ferroflow_proto::tensorflow::GraphDef;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

/// The number of completed steps whose memory a plan keeps.
const KEPT_SCRATCHES: usize = 8;

/// A graph planned for one set of feeds, fetches and targets.
pub struct Executable {
    layout: Arc<Layout>,
    arg_names: Vec<String>,
    arg_types: Vec<DType>,
    fetches: Vec<Output>,
    env: Arc<RuntimeEnv>,
    /// The functions that the plan calls; kernels hold weak references to them. `None` if this is itself one of them.
    _functions: Option<Arc<Functions>>,
    scratches: Mutex<Vec<Scratch>>,
}

impl Executable {
    /// Plans a graph for a signature and makes its kernels.
    pub fn build(
        graph: &Graph,
        signature: &Signature,
        options: &PlanOptions,
        env: &Arc<RuntimeEnv>,
    ) -> Result<Arc<Executable>> {
        Executable::from_plan(plan::plan(graph, signature, options, env)?, env)
    }

    /// Plans the body of a function that a plan calls. If its name is given, calls within are inlined.
    pub(crate) fn from_function(
        body: FunctionBody,
        inlined: Option<&str>,
        env: &Arc<RuntimeEnv>,
        functions: &Arc<Functions>,
    ) -> Result<Arc<Executable>> {
        let planned = plan::plan_function(body, inlined, env)?;
        let scope = KernelScope { functions: functions.clone(), in_function: true };
        Executable::new(planned, env, &scope, None)
    }

    /// Makes the kernels of a plan that has state of its own: a single op or a function that a client calls. The
    /// state of its nodes lives as long as the executable.
    pub fn standalone(planned: Planned, env: &Arc<RuntimeEnv>) -> Result<Arc<Executable>> {
        let functions = Functions::new(env, &planned.options);
        let scope = KernelScope { functions: functions.clone(), in_function: true };
        Executable::new(planned, env, &scope, Some(functions))
    }

    /// Prepares a part that [`crate::plan::partition`] made for another device: every node runs, and values arrive and
    /// leave only through the step's rendezvous.
    pub fn for_part(graph: Graph, env: &Arc<RuntimeEnv>) -> Result<Arc<Executable>> {
        Executable::from_plan(Planned::whole(graph), env)
    }

    /// Makes the kernels of a plan.
    pub fn from_plan(planned: Planned, env: &Arc<RuntimeEnv>) -> Result<Arc<Executable>> {
        let functions = Functions::new(env, &planned.options);
        let scope = KernelScope { functions: functions.clone(), in_function: false };
        Executable::new(planned, env, &scope, Some(functions))
    }

    fn new(
        planned: Planned,
        env: &Arc<RuntimeEnv>,
        scope: &KernelScope,
        functions: Option<Arc<Functions>>,
    ) -> Result<Arc<Executable>> {
        let Planned { graph, fetches, fetch_names, .. } = planned;
        let layout = Layout::new(graph, &fetches, fetch_names, env, scope)?;
        Ok(Arc::new(Executable {
            layout: Arc::new(layout),
            arg_names: planned.arg_names,
            arg_types: planned.arg_types,
            fetches,
            env: env.clone(),
            _functions: functions,
            scratches: Mutex::default(),
        }))
    }

    /// Starts a step with these feeds, in the signature's order. Nothing runs until the result is polled.
    pub fn start(
        self: &Arc<Self>,
        feeds: Vec<Tensor>,
        step: Arc<StepCx>,
        trace: Option<Arc<StepTrace>>,
    ) -> Result<StepRun> {
        ensure!(
            feeds.len() == self.arg_types.len(),
            InvalidArgument,
            "Expected {} feeds, got {}",
            self.arg_types.len(),
            feeds.len()
        );
        for (i, feed) in feeds.iter().enumerate() {
            self.check_feed(i, feed)?;
        }
        let run = self.run(feeds.into_iter().map(Some).collect(), step, trace, None);
        Ok(StepRun { executable: self.clone(), run })
    }

    /// Starts what a client calls, with its arguments; those that this plan does not use may be left out.
    pub fn start_call(
        self: &Arc<Self>,
        arguments: Vec<Option<Tensor>>,
        step: Arc<StepCx>,
    ) -> Result<StepRun> {
        ensure!(
            arguments.len() == self.arg_types.len(),
            InvalidArgument,
            "InstantiateOptions.input_devices must have the same length as the number of arguments: input_devices \
             length = {} number of arguments = {}",
            arguments.len(),
            self.arg_types.len()
        );
        Ok(StepRun { executable: self.clone(), run: self.run(arguments, step, None, None) })
    }

    /// Number of results.
    pub fn fetch_count(&self) -> usize {
        self.fetches.len()
    }

    /// Element types of the arguments.
    pub fn arg_types(&self) -> &[DType] {
        &self.arg_types
    }

    /// The number of a function's arguments.
    pub(crate) fn arg_count(&self) -> usize {
        self.arg_types.len()
    }

    /// Starts a function's body within the step that drives it.
    pub(crate) fn call(self: &Arc<Self>, arguments: Vec<Tensor>, step: Arc<StepCx>) -> Result<StepRun> {
        ensure!(
            arguments.len() == self.arg_types.len(),
            InvalidArgument,
            "Expects {} arguments, but {} is provided",
            self.arg_types.len(),
            arguments.len()
        );
        for (i, (argument, want)) in arguments.iter().zip(&self.arg_types).enumerate() {
            ensure!(
                argument.dtype() == *want,
                InvalidArgument,
                "Expects arg[{i}] to be {want} but {} is provided",
                argument.dtype()
            );
        }
        let run = self.run(arguments.into_iter().map(Some).collect(), step, None, None).into_call();
        Ok(StepRun { executable: self.clone(), run })
    }

    /// Starts a step whose feeds arrive and whose fetches leave through `hub`.
    pub fn start_partial(self: &Arc<Self>, step: Arc<StepCx>, hub: Arc<PartialHub>) -> StepRun {
        StepRun { executable: self.clone(), run: self.run(Vec::new(), step, None, Some(hub)) }
    }

    /// Checks the type of a feed; the message is stock's.
    pub fn check_feed(&self, index: usize, feed: &Tensor) -> Result<()> {
        let want = self.arg_types[index];
        ensure!(
            feed.dtype() == want,
            Internal,
            "Output 0 of type {} does not match declared output type {want} for node {{{{node _recv_{}_0}}}}",
            feed.dtype(),
            self.arg_names[index]
        );
        Ok(())
    }

    /// The graph that runs here, in wire form, every node with its device.
    pub fn partition_graphs(&self) -> Vec<GraphDef> {
        vec![self.layout.graph.to_def()]
    }

    /// The fetched outputs.
    pub(crate) fn fetches(&self) -> &[Output] {
        &self.fetches
    }

    /// The environment that the plan was made for.
    pub fn env(&self) -> &Arc<RuntimeEnv> {
        &self.env
    }

    /// The planned graph.
    pub fn graph(&self) -> &Graph {
        &self.layout.graph
    }

    fn run(
        self: &Arc<Self>,
        args: Vec<Option<Tensor>>,
        step: Arc<StepCx>,
        trace: Option<Arc<StepTrace>>,
        hub: Option<Arc<PartialHub>>,
    ) -> Run {
        let scratch = self.scratches.lock().expect("no panic while memory is handed out").pop();
        let scratch = scratch.unwrap_or_else(|| Scratch::new(&self.layout));
        Run::new(self.layout.clone(), scratch, args, step, self.env.pool.clone(), trace, hub)
    }
}

/// A running step: a future of its fetches. Polled directly, it stays on the polling thread; see
/// [`StepRun::near_caller`].
pub struct StepRun {
    executable: Arc<Executable>,
    run: Run,
}

impl StepRun {
    /// Runs the step on the polling thread while it is short, and on the compute threads after that. Switching threads
    /// costs more than most steps.
    pub async fn near_caller(mut self) -> Result<Vec<Tensor>> {
        let ended = poll_fn(|context| match Pin::new(&mut self).poll(context) {
            Poll::Ready(ended) => Poll::Ready(Some(ended)),
            Poll::Pending if self.run.needs_compute_thread() => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        });
        if let Some(ended) = ended.await {
            return ended;
        }
        let pool = self.executable.env.pool.clone();
        pool.complete(self).await
    }
}

impl Future for StepRun {
    type Output = Result<Vec<Tensor>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = self.run.poll(context);
        if matches!(polled, Poll::Ready(Ok(_)))
            && let Some(scratch) = self.run.take_scratch()
        {
            let mut kept = self.executable.scratches.lock().expect("no panic while memory is handed out");
            if kept.len() < KEPT_SCRATCHES {
                kept.push(scratch);
            }
        }
        polled
    }
}

/// A step for kernels that run during planning: nothing outside the process is reachable.
pub(crate) fn planning_step(env: &RuntimeEnv) -> Arc<StepCx> {
    Arc::new(StepCx {
        step_id: 0,
        device: env.device.clone(),
        resources: env.resources.clone(),
        step_resources: ResourceManager::new("planning"),
        rendezvous: Arc::new(LocalRendezvous::default()),
        cancellation: Cancellation::new(),
        depth: 0,
    })
}

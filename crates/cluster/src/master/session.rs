//! A session of a master: a graph that grows, its plans, and the running steps.

use super::callables::Callables;
use super::members::Members;
use super::partial_run::PartialRuns;
use super::plan::{PlanContext, StepPlan};
use super::plan_cache::{PlanCache, Prepared};
use super::refusals::Refusals;
use super::step::{RunningSteps, run_plan};
use crate::api::{RunStep, StepOutcome};
use crate::logged_wait::LoggedWait;
use crate::presence::Users;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::Graph;
use ferroflow_core::memory::Charge;
use ferroflow_core::{Result, Status, ensure, status};
use ferroflow_proto::tensorflow::{ConfigProto, DeviceAttributes, GraphDef};
use ferroflow_runtime::plan::place::Placer;
use ferroflow_runtime::{PlanOptions, RuntimeEnv, Signature};
use futures_util::FutureExt;
use futures_util::future::{Either, select};
use std::pin::pin;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, RwLock};
use std::time::Duration;

/// The time that closing a session waits for its steps. A kernel that never checks for cancellation cannot block a
/// client forever.
const CLOSE_WAIT: Duration = Duration::from_secs(10);

/// A session of one master.
pub(crate) struct MasterSession {
    /// The master's task, for error messages.
    pub(super) task: String,
    pub(super) context: PlanContext,
    graph: RwLock<Versioned>,
    plans: PlanCache,
    pub(super) callables: Callables,
    pub(super) partial_runs: PartialRuns,
    pub(super) steps: Arc<RunningSteps>,
    pub(super) users: Users,
    /// The memory charged for the session, not counting graphs.
    _charge: Charge,
    refusals: Refusals,
}

struct Versioned {
    graph: Arc<Graph>,
    version: i64,
}

const UNPOISONED: &str = "no panic while the graph is locked";

impl MasterSession {
    /// Creates a session with an empty graph.
    pub(super) fn new(members: Members, config: ConfigProto, charge: Charge) -> Arc<MasterSession> {
        let graph = Arc::new(Graph::new(members.own().env().registry.clone()));
        let task = members.own().task().to_string();
        let options = plan_options(&config);
        let metrics = members.own_worker().metrics().clone();
        Arc::new(MasterSession {
            task,
            context: PlanContext { members, options, config, next_edge: AtomicU64::new(0) },
            graph: RwLock::new(Versioned { graph, version: 0 }),
            plans: PlanCache::default(),
            callables: Callables::default(),
            partial_runs: PartialRuns::default(),
            steps: RunningSteps::new(metrics),
            users: Users::default(),
            _charge: charge,
            refusals: Refusals::default(),
        })
    }

    /// Returns the devices that the session's graph may use.
    pub(super) fn devices(&self) -> Vec<DeviceAttributes> {
        self.context.members.devices()
    }

    /// Returns the runtime environment of the session's plans.
    pub(super) fn env(&self) -> &Arc<RuntimeEnv> {
        self.context.members.own().env()
    }

    /// Returns the current graph.
    pub(super) fn graph(&self) -> Arc<Graph> {
        self.graph.read().expect(UNPOISONED).graph.clone()
    }

    /// Returns the name that the client has given the session; empty without one.
    pub(super) fn name(&self) -> &str {
        let experimental = self.context.config.experimental.as_ref();
        experimental.and_then(|config| config.session_metadata.as_ref()).map_or("", |session| &session.name)
    }

    /// Adds nodes and functions. `version` is the graph version that the caller expects, or `None` for the session's
    /// initial graph. Returns the new version.
    pub(super) async fn extend(self: &Arc<Self>, def: GraphDef, version: Option<i64>) -> Result<i64> {
        self.while_open(self.context.members.wait_for_named(&def, &self.context.config)).await?;
        let session = self.clone();
        // Validating a large graph takes a while, so it must not happen on an I/O thread.
        self.env().pool.complete(async move { session.extend_now(&def, version) }).await
    }

    fn extend_now(&self, def: &GraphDef, version: Option<i64>) -> Result<i64> {
        let mut current = self.graph.write().expect(UNPOISONED);
        if let Some(expected) = version {
            let version = current.version;
            ensure!(
                version == expected,
                Aborted,
                "Current version is {version} but caller expected {expected}."
            );
        }
        let mut graph = (*current.graph).clone();
        graph.extend(def)?;
        self.place(&mut graph, current.graph.node_count())?;
        self.context.members.own().set_library(graph.library());
        current.graph = Arc::new(graph);
        current.version += i64::from(version.is_some());
        Ok(current.version)
    }

    /// Places the nodes from index `first` onward on the session's devices.
    fn place(&self, graph: &mut Graph, first: usize) -> Result<()> {
        let devices: Result<Vec<DeviceSpec>> =
            self.devices().iter().map(|device| DeviceSpec::parse(&device.name)).collect();
        let devices = devices?;
        let default = self.context.members.default_device(&devices);
        let soft = self.context.config.allow_soft_placement;
        let inline_calls = self.context.options.optimize;
        Placer { devices: &devices, default, soft, inline_calls }.place(graph, first)
    }

    /// Runs one step that is not a partial run.
    pub(super) async fn run_step(self: &Arc<Self>, step: RunStep) -> Result<StepOutcome> {
        let known = self.plans.get(step.feeds.iter().map(|(name, _)| name), &step.fetches, &step.targets);
        let prepared = match known {
            Some(prepared) => prepared,
            None => {
                let feeds = step.feeds.iter().map(|(name, _)| name.clone()).collect();
                self.prepare(Signature { feeds, fetches: step.fetches, targets: step.targets }).await?
            }
        };
        let feeds = prepared.order_feeds(step.feeds.into_iter().map(|(_, feed)| feed));
        let ran = run_plan(self, &prepared.plan, feeds, &step.options).await;
        let (values, metadata) = ran.inspect_err(|error| self.log_refusal(error, &prepared.signature))?;
        let named = prepared.named_fetches();
        let fetches = named.map(|(name, position)| (name.clone(), values[position].clone())).collect();
        Ok(StepOutcome { fetches, metadata })
    }

    /// Returns the plan for these names, making it if it is new.
    pub(super) async fn prepare(self: &Arc<Self>, request: Signature) -> Result<Arc<Prepared>> {
        let build = |signature| {
            let session = self.clone();
            // Planning continues even if the first caller is gone, because others may wait for the same plan.
            let plan = async move {
                let graph = session.graph();
                session.build(&graph, &signature).await
            };
            self.env().pool.complete(plan).boxed()
        };
        let wanted = request.clone();
        self.plans.prepare(request, build).await.inspect_err(|error| self.log_refusal(error, &wanted))
    }

    /// Logs that a step with this signature was refused, if that is what the error says.
    pub(super) fn log_refusal(&self, error: &Status, signature: &Signature) {
        let handle = self.context.members.handle();
        self.refusals
            .log_once(handle, error, || [&signature.fetches[..], &signature.targets[..]].concat().join(", "));
    }

    /// Plans `graph`, which is the session's graph or a variation of it, and registers the other tasks' parts.
    pub(super) async fn build(&self, graph: &Graph, signature: &Signature) -> Result<Arc<StepPlan>> {
        // Closing the session cancels this first. Otherwise a task might be asked to register a part for a session that
        // it was told to delete, which would look as if that task had restarted.
        let registered = async {
            let cut = self.context.cut(graph, signature)?;
            self.context.register(cut).await
        };
        self.while_open(registered).await.map(Arc::new)
    }

    /// Awaits other tasks until the session is closed.
    async fn while_open<T>(&self, wait: impl Future<Output = Result<T>>) -> Result<T> {
        let mut under_way = self.steps.begin_uncounted()?;
        match select(pin!(wait), under_way.cancelled()).await {
            Either::Left((done, _)) => {
                under_way.finished();
                done
            }
            Either::Right((reason, _)) => Err(reason),
        }
    }

    /// The status of steps whose program closes the session.
    pub(super) fn closed_by_program() -> Status {
        status!(Cancelled, "Step was cancelled by an explicit call to `Session::Close()`.")
    }

    /// Cancels the running steps with this reason, waits for them and closes the session on every task.
    pub(super) async fn close(&self, reason: Status) {
        self.steps.close(reason);
        self.partial_runs.clear();
        let idle = LoggedWait::new().during("cancelled steps", "their session closes", self.steps.idle());
        if tokio::time::timeout(CLOSE_WAIT, idle).await.is_err() {
            tracing::warn!("Steps of a closed session are still running.");
        }
        self.context.members.leave().await;
    }
}

fn plan_options(config: &ConfigProto) -> PlanOptions {
    let rewrites = config.graph_options.as_ref().and_then(|options| options.rewrite_options.as_ref());
    PlanOptions { optimize: !rewrites.is_some_and(|rewrites| rewrites.disable_meta_optimizer) }
}

//! What a session and its steps are to be like.

use ferroflow_cluster::spec::ClusterSpec;
use ferroflow_proto::tensorflow as proto;
use std::time::Duration;

/// How long a session waits for its cluster unless told otherwise.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);

/// What a session is to be like.
///
/// ```
/// use ferroflow::SessionOptions;
/// use std::time::Duration;
///
/// // A worker of asynchronous training talks to the parameter servers and to nobody else.
/// let options = SessionOptions::new()
///     .device_filters(["/job:ps", "/job:worker/task:1"])
///     .step_timeout(Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct SessionOptions {
    device_filters: Vec<String>,
    soft_placement: bool,
    isolate: bool,
    share: bool,
    optimize: bool,
    cluster: Option<ClusterSpec>,
    open_timeout: Option<Duration>,
    step_timeout: Option<Duration>,
}

impl Default for SessionOptions {
    fn default() -> SessionOptions {
        SessionOptions::new()
    }
}

impl SessionOptions {
    /// Soft placement, state shared with other sessions of the same cluster, two minutes for the cluster to come.
    pub fn new() -> SessionOptions {
        SessionOptions {
            device_filters: Vec::new(),
            soft_placement: true,
            isolate: false,
            share: false,
            optimize: true,
            cluster: None,
            open_timeout: Some(OPEN_TIMEOUT),
            step_timeout: None,
        }
    }

    /// Uses only the tasks and devices that one of these names matches, e.g. `/job:ps`. The session then neither waits
    /// for other tasks nor fails with them.
    pub fn device_filters(mut self, filters: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.device_filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// Whether a node on a device that does not exist may run on another one.
    pub fn soft_placement(mut self, soft: bool) -> Self {
        self.soft_placement = soft;
        self
    }

    /// Whether variables and queues are the session's own.
    pub fn isolate(mut self, isolate: bool) -> Self {
        self.isolate = isolate;
        self
    }

    /// Whether graphs may be rewritten before they run.
    pub fn optimize(mut self, optimize: bool) -> Self {
        self.optimize = optimize;
        self
    }

    /// A cluster that the session brings along, instead of the one that the servers were started with. The master's task
    /// must have another name in it. Variables and queues are the session's own, unless it shares those of the tasks
    /// ([`SessionOptions::share_state`]).
    pub fn cluster(mut self, cluster: ClusterSpec) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// Whether a session that brings a cluster along shares variables and queues with the other sessions of its tasks.
    pub fn share_state(mut self, share: bool) -> Self {
        self.share = share;
        self
    }

    /// How long to wait for the server and the tasks of its cluster; `None` waits for ever.
    pub fn open_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.open_timeout = timeout.into();
        self
    }

    /// How long a step may take that sets no timeout of its own; `None` is as long as it takes.
    pub fn step_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.step_timeout = timeout.into();
        self
    }

    pub(crate) fn open_limit(&self) -> Option<Duration> {
        self.open_timeout
    }

    pub(crate) fn step_limit(&self) -> Option<Duration> {
        self.step_timeout
    }

    /// The form in which masters take it.
    pub(crate) fn to_config(&self) -> proto::ConfigProto {
        let rewrites = proto::RewriterConfig { disable_meta_optimizer: true, ..Default::default() };
        let unchanged = proto::GraphOptions { rewrite_options: Some(rewrites), ..Default::default() };
        let experimental = proto::config_proto::Experimental {
            share_session_state_in_clusterspec_propagation: true,
            ..Default::default()
        };
        proto::ConfigProto {
            experimental: self.share.then_some(experimental),
            device_filters: self.device_filters.clone(),
            allow_soft_placement: self.soft_placement,
            isolate_session_state: self.isolate,
            graph_options: (!self.optimize).then_some(unchanged),
            cluster_def: self.cluster.as_ref().map(ClusterSpec::to_def),
            operation_timeout_in_ms: self.open_timeout.map_or(0, |timeout| timeout.as_millis() as i64),
            ..Default::default()
        }
    }
}

/// What a single step is to be like.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    timeout: Option<Duration>,
    trace: bool,
    partition_graphs: bool,
}

impl RunOptions {
    /// The session's timeout, no trace.
    pub fn new() -> RunOptions {
        RunOptions::default()
    }

    /// The step fails with `DeadlineExceeded` if it takes longer.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Records when each node ran, on every task, in the metadata's `step_stats`.
    pub fn trace(mut self, trace: bool) -> Self {
        self.trace = trace;
        self
    }

    /// Returns the graphs that ran, one per device.
    pub fn partition_graphs(mut self, wanted: bool) -> Self {
        self.partition_graphs = wanted;
        self
    }

    /// The form in which masters take it; `default_timeout` counts if there is no other.
    pub(crate) fn to_proto(&self, default_timeout: Option<Duration>) -> proto::RunOptions {
        use proto::run_options::TraceLevel;
        let timeout = self.timeout.or(default_timeout);
        proto::RunOptions {
            trace_level: if self.trace { TraceLevel::FullTrace } else { TraceLevel::NoTrace } as i32,
            timeout_in_ms: timeout.map_or(0, |timeout| (timeout.as_millis() as i64).max(1)),
            output_partition_graphs: self.partition_graphs,
            ..Default::default()
        }
    }
}

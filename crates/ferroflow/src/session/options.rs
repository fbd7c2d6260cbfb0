//! Options of sessions and of steps.

use ferroflow_cluster::spec::ClusterSpec;
use ferroflow_proto::tensorflow as proto;
use std::time::Duration;

/// Default time that a session waits for its cluster.
const OPEN_TIMEOUT: Duration = Duration::from_secs(120);

/// Options of a session.
///
/// ```
/// use ferroflow::SessionOptions;
/// use std::time::Duration;
///
/// // A worker of asynchronous training only uses the parameter servers and itself.
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
    /// Sets the defaults: soft placement, state shared with other sessions of the same cluster, two minutes to open.
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

    /// Restricts the session to tasks and devices that match one of these names, e.g. `/job:ps`. It then neither waits for
    /// other tasks nor fails with them.
    pub fn device_filters(mut self, filters: impl IntoIterator<Item = impl Into<String>>) -> Self {
        self.device_filters = filters.into_iter().map(Into::into).collect();
        self
    }

    /// Sets whether a node on a device that does not exist may run on another one; `true` by default.
    pub fn soft_placement(mut self, soft: bool) -> Self {
        self.soft_placement = soft;
        self
    }

    /// Sets whether the session has its own variables and queues; `false` by default.
    pub fn isolate(mut self, isolate: bool) -> Self {
        self.isolate = isolate;
        self
    }

    /// Sets whether graphs may be optimized before they run; `true` by default.
    pub fn optimize(mut self, optimize: bool) -> Self {
        self.optimize = optimize;
        self
    }

    /// Sets a cluster that the session uses instead of the one that the servers were started with. The master's task must
    /// have another name in it. The session has its own variables and queues, unless it shares those of the tasks
    /// ([`SessionOptions::share_state`]).
    pub fn cluster(mut self, cluster: ClusterSpec) -> Self {
        self.cluster = Some(cluster);
        self
    }

    /// Sets whether a session with its own cluster shares variables and queues with other sessions of its tasks; `false` by
    /// default.
    pub fn share_state(mut self, share: bool) -> Self {
        self.share = share;
        self
    }

    /// Sets the time to wait for the server and the tasks of its cluster: two minutes by default, `None` for no limit.
    pub fn open_timeout(mut self, timeout: impl Into<Option<Duration>>) -> Self {
        self.open_timeout = timeout.into();
        self
    }

    /// Sets the timeout of steps that do not have their own; `None`, the default, for no limit.
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

    /// Returns the options as masters take them.
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

/// Options of a single step.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    timeout: Option<Duration>,
    trace: bool,
    partition_graphs: bool,
}

impl RunOptions {
    /// Sets the defaults: the session's timeout, no trace.
    pub fn new() -> RunOptions {
        RunOptions::default()
    }

    /// Sets the timeout. A step that takes longer fails with `DeadlineExceeded`.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Sets whether to record when each node ran, on every task, in the metadata's `step_stats`.
    pub fn trace(mut self, trace: bool) -> Self {
        self.trace = trace;
        self
    }

    /// Sets whether the metadata includes the graphs that ran, one per device.
    pub fn partition_graphs(mut self, wanted: bool) -> Self {
        self.partition_graphs = wanted;
        self
    }

    /// Returns the options as masters take them, with `default_timeout` if there is no other.
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

//! What the services do, in our own types. The master implements it directly, a client over gRPC by messages.

use ferroflow_core::{Result, Tensor};
use ferroflow_proto::tensorflow::{
    CallableOptions, ConfigProto, DeviceAttributes, GraphDef, PartialRunSetupRequest, RunMetadata, RunOptions,
};

/// One step: what is fed, what is wanted.
#[derive(Default)]
pub struct RunStep {
    /// The session.
    pub session_handle: String,
    /// Values by tensor name.
    pub feeds: Vec<(String, Tensor)>,
    /// Tensors wanted, by name.
    pub fetches: Vec<String>,
    /// Nodes to run without taking their outputs.
    pub targets: Vec<String>,
    /// Timeout, trace level and the like.
    pub options: RunOptions,
    /// The partial run that this step continues; empty for a whole step.
    pub partial_run_handle: String,
    /// Identifies repetitions of the same request; 0 if they need not be found.
    pub request_id: i64,
}

/// What a step gives.
#[derive(Default)]
pub struct StepOutcome {
    /// Fetched tensors under the names that were asked for, each once.
    pub fetches: Vec<(String, Tensor)>,
    /// What was asked for in the options.
    pub metadata: RunMetadata,
}

/// A call of a callable: its names were fixed when it was made.
#[derive(Default)]
pub struct RunCallable {
    /// The session.
    pub session_handle: String,
    /// The callable.
    pub handle: i64,
    /// Values in the order of the callable's feeds.
    pub feeds: Vec<Tensor>,
    /// Identifies repetitions of the same request; 0 if they need not be found.
    pub request_id: i64,
}

/// What a callable gives.
#[derive(Default)]
pub struct CallableOutcome {
    /// Tensors in the order of the callable's fetches.
    pub fetches: Vec<Tensor>,
    /// What was asked for in the options.
    pub metadata: RunMetadata,
}

/// Devices as a session or a master sees them.
#[derive(Default)]
pub struct Devices {
    /// Those of the master's own task; of a session, all.
    pub local: Vec<DeviceAttributes>,
    /// Those of other tasks.
    pub remote: Vec<DeviceAttributes>,
}

/// A master: keeps sessions and runs their steps. Dropping a future gives up the call, and its work stops.
pub trait MasterApi: Send + Sync + 'static {
    /// Opens a session on a graph and returns its handle. `target` is the address at which the client reached the master.
    fn create_session(
        &self,
        graph: GraphDef,
        config: ConfigProto,
        target: &str,
    ) -> impl Future<Output = Result<String>> + Send;

    /// Adds nodes to a session's graph, whose version must be `version`; returns the new version.
    fn extend_session(
        &self,
        handle: &str,
        graph: GraphDef,
        version: i64,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Runs a step, or continues a partial run.
    fn run_step(&self, step: RunStep) -> impl Future<Output = Result<StepOutcome>> + Send;

    /// Starts a step whose feeds and fetches come one after the other; returns its handle.
    fn partial_run_setup(
        &self,
        request: PartialRunSetupRequest,
    ) -> impl Future<Output = Result<String>> + Send;

    /// Cancels a session's steps, waits for them and forgets the session.
    fn close_session(&self, handle: &str) -> impl Future<Output = Result<()>> + Send;

    /// The devices of a session, or of the master if the handle is empty.
    fn list_devices(&self, handle: &str) -> impl Future<Output = Result<Devices>> + Send;

    /// Empties containers (the default one if none is named) and closes all sessions.
    fn reset(
        &self,
        containers: Vec<String>,
        device_filters: Vec<String>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Fixes the names of a step; returns the callable's handle.
    fn make_callable(
        &self,
        session: &str,
        options: CallableOptions,
        request_id: i64,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Runs a callable.
    fn run_callable(&self, call: RunCallable) -> impl Future<Output = Result<CallableOutcome>> + Send;

    /// Forgets a callable.
    fn release_callable(&self, session: &str, handle: i64) -> impl Future<Output = Result<()>> + Send;
}

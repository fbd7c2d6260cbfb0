//! The operations of a master in domain types.
//!
//! [`crate::master`] implements them in this process, [`crate::client`] also over gRPC. Messages of the wire appear
//! only where stock's protobuf type is the natural vocabulary.

use ferroflow_core::{Result, Tensor};
use ferroflow_proto::tensorflow::{
    CallableOptions, ConfigProto, DeviceAttributes, GraphDef, PartialRunSetupRequest, RunMetadata, RunOptions,
};

/// A step to run: feeds, fetches and targets.
#[derive(Default)]
pub struct RunStep {
    /// The session.
    pub session_handle: String,
    /// Values by tensor name.
    pub feeds: Vec<(String, Tensor)>,
    /// Names of the tensors to fetch.
    pub fetches: Vec<String>,
    /// Names of the nodes to run for their effects only.
    pub targets: Vec<String>,
    /// Timeout, trace level and other options.
    pub options: RunOptions,
    /// The partial run that this step continues; empty for an ordinary step.
    pub partial_run_handle: String,
    /// An id that repetitions of the request share; 0 if repetitions need not be detected.
    pub request_id: i64,
}

/// The result of a step.
#[derive(Default)]
pub struct StepOutcome {
    /// Fetched tensors by requested name, without repetitions.
    pub fetches: Vec<(String, Tensor)>,
    /// The metadata that the options asked for.
    pub metadata: RunMetadata,
}

/// A call of a callable, whose feeds and fetches were named when it was made.
#[derive(Default)]
pub struct RunCallable {
    /// The session.
    pub session_handle: String,
    /// The callable's handle.
    pub handle: i64,
    /// Values in the order of the callable's feeds.
    pub feeds: Vec<Tensor>,
    /// An id that repetitions of the request share; 0 if repetitions need not be detected.
    pub request_id: i64,
}

/// The result of a callable.
#[derive(Default)]
pub struct CallableOutcome {
    /// Tensors in the order of the callable's fetches.
    pub fetches: Vec<Tensor>,
    /// The metadata that the options asked for.
    pub metadata: RunMetadata,
}

/// The devices of a session or of a master.
#[derive(Default)]
pub struct Devices {
    /// The devices of the master's own task; for a session, all devices.
    pub local: Vec<DeviceAttributes>,
    /// The devices of other tasks; empty for a session.
    pub remote: Vec<DeviceAttributes>,
}

/// A master, which keeps sessions and runs their steps. Dropping a future cancels the call and stops its work.
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

    /// Starts a step whose feeds and fetches are exchanged over several calls; returns its handle.
    fn partial_run_setup(
        &self,
        request: PartialRunSetupRequest,
    ) -> impl Future<Output = Result<String>> + Send;

    /// Cancels a session's steps, waits for them, and removes the session.
    fn close_session(&self, handle: &str) -> impl Future<Output = Result<()>> + Send;

    /// Lists the devices of a session, or those of the master if the handle is empty.
    fn list_devices(&self, handle: &str) -> impl Future<Output = Result<Devices>> + Send;

    /// Clears containers (the default one if none is named) and closes all sessions.
    fn reset(
        &self,
        containers: Vec<String>,
        device_filters: Vec<String>,
    ) -> impl Future<Output = Result<()>> + Send;

    /// Names the feeds, fetches and targets of a step once; returns the callable's handle.
    fn make_callable(
        &self,
        session: &str,
        options: CallableOptions,
        request_id: i64,
    ) -> impl Future<Output = Result<i64>> + Send;

    /// Runs a callable.
    fn run_callable(&self, call: RunCallable) -> impl Future<Output = Result<CallableOutcome>> + Send;

    /// Removes a callable.
    fn release_callable(&self, session: &str, handle: i64) -> impl Future<Output = Result<()>> + Send;
}

//! A master in another process, called over gRPC.
//!
//! Calls end when they are answered, when the connection breaks, or when they are dropped, which cancels them at the
//! master too. A call that may have arrived is never retried, so requests need no id.

use super::super::intake::Intake;
use super::super::io::{Carrier, Io};
use super::super::rope::Rope;
use super::super::tensor_codec::{
    read_run_callable_response, read_run_step_response, write_run_callable_request, write_run_step_request,
};
use super::channel::{CallResponse, Channel};
use super::method::{Method, methods};
use super::when_ready::Attempts;
use crate::api::{CallableOutcome, Devices, MasterApi, RunCallable, RunStep, StepOutcome};
use crate::random;
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{Code, Result, Status, status};
use ferroflow_proto::tensorflow::{
    CallableOptions, CloseSessionRequest, CloseSessionResponse, ConfigProto, CreateSessionRequest,
    CreateSessionResponse, ExtendSessionRequest, ExtendSessionResponse, GraphDef, ListDevicesRequest,
    ListDevicesResponse, MakeCallableRequest, MakeCallableResponse, PartialRunSetupRequest,
    PartialRunSetupResponse, ReleaseCallableRequest, ReleaseCallableResponse, ResetRequest, ResetResponse,
    RunCallableRequest, RunStepRequest,
};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Bytes of freed tensor memory that a client keeps.
const KEPT_MEMORY: usize = 256 << 20;
/// The time beyond a call's own timeout that the client waits for the master to report it.
const GRACE: Duration = Duration::from_secs(5);

/// A master in another process.
pub(crate) struct RemoteMaster {
    channel: Arc<Channel>,
    methods: Methods,
    /// Selects the connection for calls from threads other than I/O threads.
    hint: u64,
    _carrier: Carrier,
}

methods! {
    "/tensorflow.MasterService/"
    create_session "CreateSession" None,
    extend_session "ExtendSession" None,
    run_step "RunStep" None,
    partial_run_setup "PartialRunSetup" None,
    close_session "CloseSession" None,
    list_devices "ListDevices" None,
    reset "Reset" None,
    make_callable "MakeCallable" None,
    run_callable "RunCallable" None,
    release_callable "ReleaseCallable" None,
}

impl RemoteMaster {
    /// Creates a client of the master at `host:port` with an I/O thread of its own. Connects on first use.
    pub(crate) fn new(address: &str) -> Result<RemoteMaster> {
        let (threads, io) = Io::prepare(1)?;
        let carrier = Carrier::start(threads)?;
        let intake = Intake::new(BufferPool::new(KEPT_MEMORY), usize::MAX);
        let methods = Methods::new(address)?;
        let channel = Channel::new(address, io, &intake);
        Ok(RemoteMaster { channel, methods, hint: random()?, _carrier: carrier })
    }

    /// Returns the master's address.
    pub(crate) fn address(&self) -> &str {
        self.channel.address()
    }

    /// Waits until the server accepts connections.
    async fn ready(&self, deadline: Option<Instant>) -> Result<()> {
        let whom = format!("the server at {}", self.address());
        let mut attempts = Attempts::new(whom, &self.channel, deadline);
        loop {
            match self.channel.within(attempts.limit(), self.channel.connected(self.hint)).await {
                Ok(()) => return Ok(()),
                Err(failure) => attempts.failed(&failure).await?,
            }
        }
    }

    async fn call(&self, method: &Method, request: Rope) -> Result<CallResponse> {
        self.channel.call(method.head(), request.finish()?, self.hint).await
    }

    /// Fails after a timeout in milliseconds plus `grace`, naming the server that did not respond. No timeout if
    /// `millis` is not positive.
    async fn within<T>(
        &self,
        millis: i64,
        method: &Method,
        grace: Duration,
        work: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let limit = match u64::try_from(millis) {
            Ok(millis @ 1..) => Duration::from_millis(millis) + grace,
            _ => return work.await,
        };
        let started = Instant::now();
        self.channel.within(limit, work).await.map_err(|error| match error.code() {
            Code::DeadlineExceeded if started.elapsed() >= limit => status!(
                DeadlineExceeded,
                "{} did not answer {} within {:.1} s",
                self.address(),
                method.path(),
                limit.as_secs_f64()
            ),
            _ => error,
        })
    }
}

impl MasterApi for RemoteMaster {
    async fn create_session(&self, graph: GraphDef, config: ConfigProto, target: &str) -> Result<String> {
        let millis = config.operation_timeout_in_ms;
        let deadline = match u64::try_from(millis) {
            Ok(millis @ 1..) => Some(Instant::now() + Duration::from_millis(millis)),
            _ => None,
        };
        self.ready(deadline).await?;
        let request = CreateSessionRequest {
            graph_def: Some(graph),
            config: Some(config),
            target: target.strip_prefix("grpc://").unwrap_or(target).to_owned(),
        };
        let method = &self.methods.create_session;
        let opened = method.unary(&self.channel, &request, self.hint);
        let response: CreateSessionResponse = self.within(millis, method, GRACE, opened).await?;
        Ok(response.session_handle)
    }

    async fn extend_session(&self, handle: &str, graph: GraphDef, version: i64) -> Result<i64> {
        let request = ExtendSessionRequest {
            session_handle: handle.to_owned(),
            graph_def: Some(graph),
            current_graph_version: version,
        };
        let response: ExtendSessionResponse =
            self.methods.extend_session.unary(&self.channel, &request, self.hint).await?;
        Ok(response.new_graph_version)
    }

    async fn run_step(&self, step: RunStep) -> Result<StepOutcome> {
        let RunStep { session_handle, feeds, fetches, targets, options, partial_run_handle, request_id } =
            step;
        let millis = options.timeout_in_ms;
        let request = RunStepRequest {
            session_handle,
            feed: Vec::new(),
            fetch: fetches,
            target: targets,
            options: Some(options),
            partial_run_handle,
            store_errors_in_response_body: true,
            request_id,
        };
        let message = write_run_step_request(&request, &feeds)?;
        let method = &self.methods.run_step;
        let done = async {
            let mut response = self.call(method, message).await?;
            let (rest, fetches) = read_run_step_response(response.message()).await?;
            response.finish().await?;
            match rest.status_code {
                0 => Ok(StepOutcome { fetches, metadata: rest.metadata.unwrap_or_default() }),
                code => {
                    let code = Code::from_number(code).unwrap_or(Code::Unknown);
                    Err(Status::new(code, rest.status_error_message))
                }
            }
        };
        self.within(millis, method, GRACE, done).await
    }

    async fn partial_run_setup(&self, request: PartialRunSetupRequest) -> Result<String> {
        let response: PartialRunSetupResponse =
            self.methods.partial_run_setup.unary(&self.channel, &request, self.hint).await?;
        Ok(response.partial_run_handle)
    }

    async fn close_session(&self, handle: &str) -> Result<()> {
        let request = CloseSessionRequest { session_handle: handle.to_owned() };
        let CloseSessionResponse {} =
            self.methods.close_session.unary(&self.channel, &request, self.hint).await?;
        Ok(())
    }

    async fn list_devices(&self, handle: &str) -> Result<Devices> {
        let request = ListDevicesRequest { session_handle: handle.to_owned() };
        let response: ListDevicesResponse =
            self.methods.list_devices.unary(&self.channel, &request, self.hint).await?;
        Ok(Devices { local: response.local_device, remote: response.remote_device })
    }

    async fn reset(&self, containers: Vec<String>, device_filters: Vec<String>) -> Result<()> {
        let request = ResetRequest { container: containers, device_filters };
        let ResetResponse {} = self.methods.reset.unary(&self.channel, &request, self.hint).await?;
        Ok(())
    }

    async fn make_callable(&self, session: &str, options: CallableOptions, request_id: i64) -> Result<i64> {
        let session_handle = session.to_owned();
        let request = MakeCallableRequest { session_handle, options: Some(options), request_id };
        let response: MakeCallableResponse =
            self.methods.make_callable.unary(&self.channel, &request, self.hint).await?;
        Ok(response.handle)
    }

    async fn run_callable(&self, call: RunCallable) -> Result<CallableOutcome> {
        let RunCallable { session_handle, handle, feeds, request_id } = call;
        let request = RunCallableRequest { session_handle, handle, feed: Vec::new(), request_id };
        let message = write_run_callable_request(&request, &feeds)?;
        let mut response = self.call(&self.methods.run_callable, message).await?;
        let (rest, fetches) = read_run_callable_response(response.message()).await?;
        response.finish().await?;
        Ok(CallableOutcome { fetches, metadata: rest.metadata.unwrap_or_default() })
    }

    async fn release_callable(&self, session: &str, handle: i64) -> Result<()> {
        let request = ReleaseCallableRequest { session_handle: session.to_owned(), handle };
        let ReleaseCallableResponse {} =
            self.methods.release_callable.unary(&self.channel, &request, self.hint).await?;
        Ok(())
    }
}

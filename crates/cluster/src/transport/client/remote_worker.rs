//! The worker of another task: its gRPC methods, and its direct connection if it accepts one.

use super::super::direct::{LinkHandle, RunPart};
use super::super::intake::Intake;
use super::super::keys::KeyText;
use super::super::rope::PREFIX_BYTES;
use super::super::task_status::{TaskStatusRequest, TaskStatusResponse, is_settling};
use super::super::tensor_codec::{ReceivedTensor, read_recv_tensor};
use super::super::worker_service::{ExtendedSessionRequest, ExtendedSessionResponse};
use super::channel::{CallResponse, Channel};
use super::method::{Method, methods};
use super::peers::Naming;
use super::remote_coordination::RemoteCoordination;
use super::remote_eager::RemoteEager;
use super::when_ready::{ATTEMPT_WAIT, Attempts};
use crate::eager::api::Registrar;
use crate::spec::{ClusterSpec, TaskName};
use bytes::{BufMut, Bytes, BytesMut};
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::rendezvous::{Parcel, RendezvousKey};
use ferroflow_core::{Code, Result, Status, status};
use ferroflow_proto::tensorflow::eager::queue_item::Item;
use ferroflow_proto::tensorflow::eager::{
    CleanupFunctionOp, RegisterFunctionOp, RemoteTensorHandle, RunComponentFunctionResponse,
};
use ferroflow_proto::tensorflow::{
    CleanupAllRequest, CleanupAllResponse, CleanupGraphRequest, CleanupGraphResponse, ClusterDef,
    CreateWorkerSessionRequest, DeleteWorkerSessionRequest, DeleteWorkerSessionResponse,
    DeregisterGraphRequest, DeregisterGraphResponse, DeviceAttributes, LoggingRequest, LoggingResponse,
    NamedTensorProto, RegisterGraphRequest, RegisterGraphResponse, RunGraphRequest, RunGraphResponse,
};
use prost::Message;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint};
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// The time limit for telling a peer that something is over, as in stock.
const FAREWELL_WAIT: Duration = Duration::from_secs(10);
/// Responses of this many bytes are read by the connection's I/O thread, because the caller's thread may be busy while
/// they arrive.
const LARGE_RESPONSE: u64 = 64 << 10;

/// The text between the failure of a call and the name of the called task. Stock's programs match on it.
const CALL_FAILED: &str = "\nAdditional GRPC error information from remote target ";

/// The worker of another task. Calls end when they are answered, when the connection breaks, or when they are dropped,
/// which cancels them at the peer too.
pub(crate) struct RemoteWorker {
    task: TaskName,
    channel: Arc<Channel>,
    intake: Arc<Intake>,
    naming: Naming,
    methods: Methods,
    eager: RemoteEager,
    coordination: RemoteCoordination,
    /// True if the task accepts direct connections, as far as is known.
    takes_direct_links: AtomicBool,
    /// The name of its local socket, for tasks on the same machine.
    local_name: Mutex<String>,
    /// Parts of functions that the task is about to be told to forget.
    forgotten: Mutex<Vec<String>>,
}

methods! {
    "/tensorflow.WorkerService/"
    get_status "GetStatus" Some(ATTEMPT_WAIT),
    create_session "CreateWorkerSession" None,
    delete_session "DeleteWorkerSession" Some(FAREWELL_WAIT),
    register_graph "RegisterGraph" None,
    deregister_graph "DeregisterGraph" None,
    run_graph "RunGraph" None,
    recv_tensor "RecvTensor" None,
    cleanup_graph "CleanupGraph" None,
    cleanup_all "CleanupAll" None,
    logging "Logging" None,
}

impl RemoteWorker {
    /// Creates a client of `task`'s worker.
    pub(super) fn new(
        task: TaskName,
        channel: Arc<Channel>,
        intake: Arc<Intake>,
        naming: Naming,
    ) -> Result<RemoteWorker> {
        let methods = Methods::new(channel.address())?;
        let eager = RemoteEager::new(task.clone(), channel.clone())?;
        let coordination = RemoteCoordination::new(channel.clone())?;
        Ok(RemoteWorker {
            task,
            channel,
            intake,
            naming,
            methods,
            eager,
            coordination,
            takes_direct_links: AtomicBool::new(false),
            local_name: Mutex::default(),
            forgotten: Mutex::default(),
        })
    }

    /// Returns the task.
    pub(crate) fn task(&self) -> &TaskName {
        &self.task
    }

    /// Returns its address.
    pub(crate) fn address(&self) -> &str {
        self.channel.address()
    }

    /// Calls `GetStatus`. Any task may answer at the address, not only the intended one.
    async fn get_status(&self, request: &TaskStatusRequest) -> Result<TaskStatusResponse> {
        self.unary(&self.methods.get_status, request, 0).await
    }

    /// Returns the task's description of itself. Waits until the task is up and logs the wait.
    pub(crate) async fn get_status_when_ready(
        &self,
        request: &TaskStatusRequest,
        deadline: Option<Instant>,
    ) -> Result<TaskStatusResponse> {
        let mut attempts = Attempts::new(self.task.to_string(), &self.channel, deadline);
        loop {
            match self.try_get_status(request, attempts.limit()).await? {
                Ok(response) => return Ok(response),
                Err(failure) => attempts.failed(&failure).await?,
            }
        }
    }

    /// Returns the task's description of itself, or as the inner error the reason why it is not available within
    /// `limit`. The outer error is permanent: another task answers at the address and knows a different cluster.
    pub(crate) async fn try_get_status(
        &self,
        request: &TaskStatusRequest,
        limit: Duration,
    ) -> Result<Result<TaskStatusResponse>> {
        match self.channel.within(limit, self.get_status(request)).await {
            Ok(mut response) if self.naming == Naming::Given => {
                response.device_attributes = self.renamed(response.device_attributes);
                Ok(Ok(response))
            }
            Ok(response) if self.owns(&response.device_attributes) => Ok(Ok(response)),
            Ok(response) => {
                let another = self.another_task(&response.device_attributes);
                self.check_agreement(request, &response, &another)?;
                Ok(Err(another))
            }
            Err(failure) => Ok(Err(failure)),
        }
    }

    fn owns(&self, devices: &[DeviceAttributes]) -> bool {
        let task = self.task.spec();
        devices.iter().all(|device| DeviceSpec::parse(&device.name).is_ok_and(|spec| task.matches(&spec)))
    }

    /// Returns the devices under the names that they have in the session's cluster.
    fn renamed(&self, devices: Vec<DeviceAttributes>) -> Vec<DeviceAttributes> {
        let rename = |mut device: DeviceAttributes| {
            if let Some((_, local)) = device.name.split_once("/device:") {
                device.name = format!("{}/device:{local}", self.task);
            }
            device
        };
        devices.into_iter().map(rename).collect()
    }

    fn another_task(&self, devices: &[DeviceAttributes]) -> Status {
        let there = devices.first().map_or("", |device| device.name.as_str());
        let there = there.split("/device:").next().unwrap_or_default();
        let address = self.address();
        status!(
            Unavailable,
            "{there} answers at {address} instead: it was started as another task, or {} has the wrong address here",
            self.task
        )
    }

    /// Fails if the task that answers instead knows a different cluster. If it knows the same one, it may end and make
    /// room for the intended task.
    fn check_agreement(
        &self,
        request: &TaskStatusRequest,
        response: &TaskStatusResponse,
        another: &Status,
    ) -> Result<()> {
        let read = |def: &Option<ClusterDef>| def.as_ref().and_then(|def| ClusterSpec::from_def(def).ok());
        let (Some(ours), Some(theirs)) = (read(&request.cluster), read(&response.cluster)) else {
            return Ok(());
        };
        if is_settling(request.epoch, response.epoch) {
            return Ok(());
        }
        match ours.differences(&theirs).first() {
            None => Ok(()),
            Some(difference) => Err(status!(
                InvalidArgument,
                "{}. The two were started with different clusters: {difference}. Start all tasks with the same one",
                another.message()
            )),
        }
    }

    /// Opens a session for a master whose server is at `master_address`.
    pub(crate) async fn create_session(
        &self,
        request: &CreateWorkerSessionRequest,
        master_address: String,
    ) -> Result<()> {
        let request = ExtendedSessionRequest::new(request, master_address);
        let opened: ExtendedSessionResponse = self.unary(&self.methods.create_session, &request, 0).await?;
        *self.local_name.lock().unwrap_or_else(PoisonError::into_inner) = opened.local_name;
        self.takes_direct_links.store(opened.takes_direct_links, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the direct connection to the task if it accepts one; `deliver` gets the tensors that arrive on a new
    /// one.
    pub(crate) async fn link(
        &self,
        step_id: i64,
        deliver: impl Fn(i64, RendezvousKey, Result<Parcel>) + Send + 'static,
    ) -> Option<Arc<LinkHandle>> {
        if !self.takes_direct_links.load(Ordering::Relaxed) {
            return None;
        }
        let local_name = || self.local_name.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match self.channel.direct(step_id as u64, local_name, &self.intake, deliver).await {
            Ok(link) => Some(link),
            Err(error) => {
                // The task may have been replaced by stock. It is called over gRPC from now on, which reports its
                // failures.
                self.takes_direct_links.store(false, Ordering::Relaxed);
                tracing::debug!(task = %self.task, %error, "A Ferroflow task does not accept a direct connection.");
                None
            }
        }
    }

    /// Runs a registered graph once over a direct connection; otherwise like [`RemoteWorker::run_graph`].
    pub(crate) async fn run_directly(
        &self,
        link: &LinkHandle,
        part: RunPart,
        step_id: i64,
    ) -> Result<RunGraphResponse> {
        let ran = link.run(step_id, part).await;
        let response = ran.map_err(|error| self.explain(&self.methods.run_graph, error))?;
        checked(response)
    }

    /// Closes a session; an unknown handle is ignored.
    pub(crate) async fn delete_session(&self, handle: &str) -> Result<()> {
        let request = DeleteWorkerSessionRequest { session_handle: handle.to_owned() };
        let DeleteWorkerSessionResponse {} = self.unary(&self.methods.delete_session, &request, 0).await?;
        Ok(())
    }

    /// Closes a session in the background. The receiver completes when the task has confirmed or did not respond in
    /// time.
    pub(crate) fn forget_session(self: &Arc<Self>, handle: &str) -> oneshot::Receiver<()> {
        let handle = handle.to_owned();
        let (confirm, confirmed) = oneshot::channel();
        self.spawn_call(0, move |worker| async move {
            worker.delete_session(&handle).await?;
            let _ = confirm.send(());
            Ok(())
        });
        confirmed
    }

    /// Registers a graph; returns its handle.
    pub(crate) async fn register_graph(&self, request: &RegisterGraphRequest) -> Result<String> {
        let response: RegisterGraphResponse = self.unary(&self.methods.register_graph, request, 0).await?;
        Ok(response.graph_handle)
    }

    /// Deregisters a graph in the background.
    pub(crate) fn forget_graph(self: &Arc<Self>, request: DeregisterGraphRequest) {
        self.spawn_call(0, move |worker| async move {
            let DeregisterGraphResponse {} =
                worker.unary(&worker.methods.deregister_graph, &request, 0).await?;
            Ok(())
        });
    }

    /// Runs a registered graph once. A failure of the graph is an error, whichever way the peer reports it.
    pub(crate) async fn run_graph(&self, request: &RunGraphRequest) -> Result<RunGraphResponse> {
        let hint = request.step_id as u64;
        let response: RunGraphResponse = self.unary(&self.methods.run_graph, request, hint).await?;
        checked(response)
    }

    /// Waits for a tensor that the task sends in a step.
    pub(crate) async fn recv_tensor(&self, step_id: i64, key: &RendezvousKey) -> Result<ReceivedTensor> {
        let method = &self.methods.recv_tensor;
        let received = async {
            let request = encode_recv_tensor(step_id, key);
            let called = self.channel.call(method.head(), [request], step_id as u64);
            let response = self.channel.log_wait(method.waiting(), &self.task, &key.edge(), called).await?;
            if response.length() < LARGE_RESPONSE {
                return receive(response).await;
            }
            let (io, lane) = (self.channel.io(), response.lane());
            io.run(lane, async move { receive(response).await }).await
        };
        received.await.map_err(|error| self.explain(method, error))
    }

    /// Ends a step at the task.
    pub(crate) async fn cleanup_graph(&self, step_id: i64) -> Result<()> {
        let request = CleanupGraphRequest { step_id };
        let CleanupGraphResponse {} =
            self.unary(&self.methods.cleanup_graph, &request, step_id as u64).await?;
        Ok(())
    }

    /// Ends a step at the task in the background.
    pub(crate) fn forget_step(self: &Arc<Self>, step_id: i64) {
        self.spawn_call(step_id as u64, move |worker| async move { worker.cleanup_graph(step_id).await });
    }

    /// The task's coordination service.
    pub(crate) fn coordination(&self) -> &RemoteCoordination {
        &self.coordination
    }

    /// The task's eager service.
    pub(crate) fn eager(&self) -> &RemoteEager {
        &self.eager
    }

    /// Ends a step of a function at the task in the background.
    pub(crate) fn forget_function_step(self: &Arc<Self>, context: u64, step_id: i64) {
        let cleanup = Item::CleanupFunction(CleanupFunctionOp { step_id });
        self.spawn_call(step_id as u64, move |worker| async move {
            worker.eager.enqueue(context, vec![cleanup]).await.map(drop)
        });
    }

    /// Registers a part of a function at the task, and learns whether it takes direct connections.
    pub(crate) async fn register_component(
        &self,
        context: u64,
        registrar: &Registrar,
        function: RegisterFunctionOp,
    ) -> Result<()> {
        let registered = self.eager.register(context, registrar, function).await?;
        *self.local_name.lock().unwrap_or_else(PoisonError::into_inner) = registered.local_name;
        self.takes_direct_links.store(registered.takes_direct_links, Ordering::Relaxed);
        Ok(())
    }

    /// Has the task forget a part of a function in the background. Many that come at once make one call. Stock has no
    /// way to forget one.
    pub(crate) fn forget_component(self: &Arc<Self>, context: u64, function: String) {
        if !self.takes_direct_links.load(Ordering::Relaxed) {
            return;
        }
        let is_first = {
            let mut forgotten = self.forgotten.lock().unwrap_or_else(PoisonError::into_inner);
            forgotten.push(function);
            forgotten.len() == 1
        };
        if is_first {
            self.spawn_call(context, move |worker| async move {
                let functions =
                    std::mem::take(&mut *worker.forgotten.lock().unwrap_or_else(PoisonError::into_inner));
                worker.eager.forget(context, functions).await
            });
        }
    }

    /// Runs a part of a function over a direct connection.
    pub(crate) async fn run_component_directly(
        &self,
        link: &LinkHandle,
        part: RunPart,
        step_id: i64,
    ) -> Result<RunComponentFunctionResponse> {
        let response = link.run(step_id, part).await.and_then(checked);
        let response = response.map_err(|error| self.eager.component_failed(error))?;
        let shape = |result: NamedTensorProto| result.tensor.and_then(|tensor| tensor.tensor_shape);
        let shape = response.recv.into_iter().map(|result| shape(result).unwrap_or_default()).collect();
        Ok(RunComponentFunctionResponse { shape, tensor: Vec::new() })
    }

    /// Has the task let go of results of a function in the background.
    pub(crate) fn release_results(self: &Arc<Self>, context: u64, op: i64, outputs: Vec<usize>) {
        let release = |output| {
            let handle = RemoteTensorHandle { op_id: op, output_num: output as i32, ..Default::default() };
            Item::HandleToDecref(handle)
        };
        let items = outputs.into_iter().map(release).collect();
        self.spawn_call(op as u64, move |worker| async move {
            worker.eager.enqueue(context, items).await.map(drop)
        });
    }

    /// Stops the log of transfers in the background.
    pub(crate) fn stop_logging(self: &Arc<Self>) {
        let request = LoggingRequest { disable_rpc_logging: true, ..Default::default() };
        self.spawn_call(0, move |worker| async move { worker.logging(&request).await.map(drop) });
    }

    /// Makes a call on an I/O thread, independent of the caller and limited by `FAREWELL_WAIT`.
    fn spawn_call<F: Future<Output = Result<()>> + Send + 'static>(
        self: &Arc<Self>,
        hint: u64,
        call: impl FnOnce(Arc<RemoteWorker>) -> F + Send + 'static,
    ) {
        let (worker, io) = (self.clone(), self.channel.io());
        io.spawn(io.choose(hint), async move {
            if let Err(error) = worker.channel.within(FAREWELL_WAIT, call(worker.clone())).await {
                tracing::debug!(task = %worker.task, %error, "A task was not told that something is over.");
            }
        });
    }

    /// Clears containers; the default one if none is named.
    pub(crate) async fn cleanup_all(&self, containers: &[String]) -> Result<()> {
        let request = CleanupAllRequest { container: containers.to_vec() };
        let CleanupAllResponse {} = self.unary(&self.methods.cleanup_all, &request, 0).await?;
        Ok(())
    }

    /// Starts, stops or reads the log of transfers.
    pub(crate) async fn logging(&self, request: &LoggingRequest) -> Result<LoggingResponse> {
        self.unary(&self.methods.logging, request, 0).await
    }

    async fn unary<R: Message + Default>(
        &self,
        method: &Method,
        request: &impl Message,
        hint: u64,
    ) -> Result<R> {
        let responded = method.unary(&self.channel, request, hint);
        let why = NoResponse { address: self.address(), path: method.path() };
        let responded = self.channel.log_wait(method.waiting(), &self.task, &why, responded).await;
        responded.map_err(|error| self.explain(method, error))
    }

    /// Adds the called task and method to an error, in the form by which stock's programs tell a failed task from a
    /// failed op.
    fn explain(&self, method: &Method, error: Status) -> Status {
        call_failed(error, &self.task, method.path(), self.address())
    }
}

/// The failure of a call of `path` to a task.
pub(super) fn call_failed(error: Status, task: &TaskName, path: &str, address: &str) -> Status {
    let code = error.code() as i32;
    error.map_message(|message| {
        format!(
            "{message}{CALL_FAILED}{task} while calling {path}:\n:{{grpc_status:{code}, peer:\"{address}\"}}"
        )
    })
}

/// The reason for a wait: no response to a call.
struct NoResponse<'a> {
    address: &'a str,
    path: &'a str,
}

impl fmt::Display for NoResponse<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no answer from {} to {}", self.address, self.path)
    }
}

/// Turns a failure in the response body into an error.
fn checked(response: RunGraphResponse) -> Result<RunGraphResponse> {
    match response.status_code {
        0 => Ok(response),
        code => {
            let code = Code::from_number(code).unwrap_or(Code::Unknown);
            // The body cannot mark a status as derived, but the text shows that a call to another task failed.
            let derived = response.status_error_message.contains(CALL_FAILED);
            let status = Status::new(code, response.status_error_message);
            Err(if derived { status.derived() } else { status })
        }
    }
}

async fn receive(mut response: CallResponse) -> Result<ReceivedTensor> {
    let received = read_recv_tensor(response.message()).await?;
    response.finish().await?;
    received
}

/// Encodes a `RecvTensorRequest`. It has no request id, because a call that may have arrived is never retried.
fn encode_recv_tensor(step_id: i64, key: &RendezvousKey) -> Bytes {
    const STEP_ID: u32 = 1;
    const KEY: u32 = 2;
    let key = KeyText::new(key);
    let key_length = key.len();
    let length = 2 + encoded_len_varint(step_id as u64) + encoded_len_varint(key_length as u64) + key_length;
    let mut out = BytesMut::with_capacity(PREFIX_BYTES + length);
    out.put_u8(0);
    out.put_u32(length as u32);
    encode_key(STEP_ID, WireType::Varint, &mut out);
    encode_varint(step_id as u64, &mut out);
    encode_key(KEY, WireType::LengthDelimited, &mut out);
    encode_varint(key_length as u64, &mut out);
    key.put(&mut out);
    out.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_proto::tensorflow::RecvTensorRequest;

    #[test]
    fn requests_for_tensors_are_read_back_by_the_generated_decoder() {
        let key =
            RendezvousKey::new("/job:a/device:CPU:0", 0xfedc_ba98_0123_4567, "/job:b/device:CPU:0", "e");
        for (step_id, key) in [(0, key.clone()), (-7, key.at(6315961604705615773, 12)), (1 << 56, key)] {
            let encoded = encode_recv_tensor(step_id, &key);
            let length = u32::from_be_bytes(encoded[1..PREFIX_BYTES].try_into().unwrap());
            assert_eq!((encoded[0], length as usize), (0, encoded.len() - PREFIX_BYTES));
            let request = RecvTensorRequest::decode(encoded.slice(PREFIX_BYTES..)).unwrap();
            assert_eq!((request.step_id, request.rendezvous_key), (step_id, key.to_string()));
        }
    }
}

//! `tensorflow.WorkerService`: decodes requests and encodes responses. [`crate::worker`] does the work.

use super::grpc::Request;
use super::local;
use super::rope::Rope;
use super::server::{Caller, Services, unknown_method};
use super::task_status::TaskStatusRequest;
use super::tensor_codec::write_recv_tensor;
use crate::worker::{Worker, since_epoch};
use ferroflow_core::{Result, Status, bail};
use ferroflow_proto::tensorflow::{
    CleanupAllRequest, CleanupAllResponse, CleanupGraphRequest, CleanupGraphResponse,
    CreateWorkerSessionRequest, DeleteWorkerSessionRequest, DeleteWorkerSessionResponse,
    DeregisterGraphResponse, DeviceAttributes, MarkRecvFinishedRequest, MarkRecvFinishedResponse,
    RecvTensorRequest, RegisterGraphRequest, RegisterGraphResponse, RunGraphRequest, RunGraphResponse,
    ServerDef,
};
use prost::Message;

/// Serves one call.
pub(crate) async fn call(
    services: &Services,
    caller: &Caller,
    method: &str,
    request: Request,
) -> Result<Rope> {
    let worker = &*services.worker;
    match method {
        "RecvTensor" => recv_tensor(worker, request).await,
        "RunGraph" => run_graph(worker, caller, request).await,
        // A future is as large as its largest branch; steps should not pay for graphs.
        _ => Box::pin(call_other(worker, caller, method, request)).await,
    }
}

async fn call_other(worker: &Worker, caller: &Caller, method: &str, mut request: Request) -> Result<Rope> {
    match method {
        "GetStatus" => {
            let status_request: TaskStatusRequest = request.decode().await?;
            Ok(Rope::from_message(&worker.task_status(&status_request).await))
        }
        "CreateWorkerSession" => {
            let (request, address) = request.decode::<ExtendedSessionRequest>().await?.into_parts();
            worker.refuse_rival(&request, &address).await?;
            worker.create_session(&request)?;
            worker.session_used_by(&request.session_handle, &caller.presence);
            worker.note_master(&request.session_handle, &address);
            Ok(Rope::from_message(&ExtendedSessionResponse {
                takes_direct_links: true,
                local_name: local::name(worker.device().incarnation()),
            }))
        }
        "DeleteWorkerSession" => {
            let DeleteWorkerSessionRequest { session_handle } = request.decode().await?;
            worker.delete_session(&session_handle);
            Ok(Rope::from_message(&DeleteWorkerSessionResponse {}))
        }
        "CleanupAll" => {
            let CleanupAllRequest { container } = request.decode().await?;
            worker.cleanup_all(&container);
            Ok(Rope::from_message(&CleanupAllResponse {}))
        }
        "RegisterGraph" => {
            let request: RegisterGraphRequest = request.decode().await?;
            worker.session_used_by(&request.session_handle, &caller.presence);
            let graph_handle = worker.register_graph(request).await?;
            Ok(Rope::from_message(&RegisterGraphResponse { graph_handle }))
        }
        "DeregisterGraph" => {
            worker.deregister_graph(&request.decode().await?)?;
            Ok(Rope::from_message(&DeregisterGraphResponse {}))
        }
        "CleanupGraph" => {
            let CleanupGraphRequest { step_id } = request.decode().await?;
            worker.cleanup_step(step_id);
            Ok(Rope::from_message(&CleanupGraphResponse {}))
        }
        "Logging" => Ok(Rope::from_message(&worker.logging(&request.decode().await?))),
        // Responses are not kept for retries, so there is nothing to release.
        "MarkRecvFinished" => {
            let _: MarkRecvFinishedRequest = request.decode().await?;
            Ok(Rope::from_message(&MarkRecvFinishedResponse {}))
        }
        // Stock declares the method but never implemented it either.
        "Tracing" => bail!(Unimplemented, "Tracing"),
        "RecvBuf" | "CompleteGroup" | "CompleteInstance" | "GetStepSequence" => {
            bail!(Unimplemented, "{method} is not supported: this server does not take part in collectives")
        }
        _ => Err(unknown_method()),
    }
}

async fn recv_tensor(worker: &Worker, mut request: Request) -> Result<Rope> {
    let RecvTensorRequest { step_id, rendezvous_key, request_id, .. } = request.decode().await?;
    let parcel = worker.serve_recv_tensor(step_id, &rendezvous_key, request_id).await?;
    write_recv_tensor(&parcel, since_epoch())
}

async fn run_graph(worker: &Worker, caller: &Caller, mut request: Request) -> Result<Rope> {
    let request: RunGraphRequest = request.decode().await?;
    worker.session_used_by(&request.session_handle, &caller.presence);
    let store_errors = request.store_errors_in_response_body;
    match worker.run_graph(request).await {
        Ok(response) => Ok(Rope::from_message(&response)),
        Err(status) if store_errors => Ok(Rope::from_message(&error_response(&status))),
        Err(status) => Err(status),
    }
}

/// Encodes a failure as a response body.
pub(crate) fn error_response(status: &Status) -> RunGraphResponse {
    RunGraphResponse {
        status_code: status.code() as i32,
        status_error_message: status.message().to_owned(),
        ..Default::default()
    }
}

/// A `CreateWorkerSessionRequest` with Ferroflow's field, which stock ignores.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExtendedSessionRequest {
    #[prost(string, tag = "1")]
    session_handle: String,
    #[prost(message, optional, tag = "2")]
    server_def: Option<ServerDef>,
    #[prost(bool, tag = "3")]
    isolate_session_state: bool,
    #[prost(message, repeated, tag = "4")]
    cluster_device_attributes: Vec<DeviceAttributes>,
    #[prost(string, tag = "5")]
    master_task: String,
    #[prost(int64, tag = "6")]
    master_incarnation: i64,
    /// The address of the master's server.
    #[prost(string, tag = "61001")]
    master_address: String,
}

impl ExtendedSessionRequest {
    /// Extends the request of a master whose server is at this address.
    pub(crate) fn new(
        request: &CreateWorkerSessionRequest,
        master_address: String,
    ) -> ExtendedSessionRequest {
        let CreateWorkerSessionRequest {
            session_handle,
            server_def,
            isolate_session_state,
            cluster_device_attributes,
            master_task,
            master_incarnation,
        } = request.clone();
        ExtendedSessionRequest {
            session_handle,
            server_def,
            isolate_session_state,
            cluster_device_attributes,
            master_task,
            master_incarnation,
            master_address,
        }
    }

    /// Returns stock's request and the address.
    fn into_parts(self) -> (CreateWorkerSessionRequest, String) {
        let request = CreateWorkerSessionRequest {
            session_handle: self.session_handle,
            server_def: self.server_def,
            isolate_session_state: self.isolate_session_state,
            cluster_device_attributes: self.cluster_device_attributes,
            master_task: self.master_task,
            master_incarnation: self.master_incarnation,
        };
        (request, self.master_address)
    }
}

/// A `CreateWorkerSessionResponse` with Ferroflow's fields, which stock ignores.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExtendedSessionResponse {
    /// True if the task accepts direct connections.
    #[prost(bool, tag = "61001")]
    pub(crate) takes_direct_links: bool,
    /// The name of its local socket, for tasks on the same machine.
    #[prost(string, tag = "61002")]
    pub(crate) local_name: String,
}

//! `tensorflow.WorkerService`: messages in, messages out; the meaning is in [`crate::worker`].

use super::grpc::Request;
use super::rope::Rope;
use super::server::{Services, unknown_method};
use ferroflow_core::{Result, bail};
use ferroflow_proto::tensorflow::{
    CleanupAllRequest, CleanupAllResponse, CleanupGraphRequest, CleanupGraphResponse,
    CreateWorkerSessionRequest, CreateWorkerSessionResponse, DeleteWorkerSessionRequest,
    DeleteWorkerSessionResponse, GetStatusRequest, GetStatusResponse, LoggingRequest, LoggingResponse,
    MarkRecvFinishedRequest, MarkRecvFinishedResponse,
};

/// Answers one call.
pub(crate) async fn call(services: &Services, method: &str, mut request: Request) -> Result<Rope> {
    let worker = &*services.worker;
    match method {
        "GetStatus" => {
            let GetStatusRequest {} = request.decode().await?;
            Ok(Rope::from_message(&GetStatusResponse { device_attributes: worker.device_attributes() }))
        }
        "CreateWorkerSession" => {
            let request: CreateWorkerSessionRequest = request.decode().await?;
            worker.create_session(&request)?;
            Ok(Rope::from_message(&CreateWorkerSessionResponse {}))
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
        // No step of another task's master runs here, so there is nothing to clean up, to log or to keep for a
        // repeated answer.
        "CleanupGraph" => {
            let _: CleanupGraphRequest = request.decode().await?;
            Ok(Rope::from_message(&CleanupGraphResponse {}))
        }
        "Logging" => {
            let _: LoggingRequest = request.decode().await?;
            Ok(Rope::from_message(&LoggingResponse::default()))
        }
        "MarkRecvFinished" => {
            let _: MarkRecvFinishedRequest = request.decode().await?;
            Ok(Rope::from_message(&MarkRecvFinishedResponse {}))
        }
        // Stock declares the method and never implemented it either.
        "Tracing" => bail!(Unimplemented, "Tracing"),
        "RegisterGraph" | "DeregisterGraph" | "RunGraph" | "RecvTensor" | "RecvBuf" | "CompleteGroup"
        | "CompleteInstance" | "GetStepSequence" => {
            bail!(
                Unimplemented,
                "{method} is not supported: this server runs the graphs of its own master only"
            )
        }
        _ => Err(unknown_method()),
    }
}

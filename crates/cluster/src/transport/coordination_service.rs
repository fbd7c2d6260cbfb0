//! `tensorflow.CoordinationService`: messages in, messages out; the meaning is in [`crate::eager`].

use super::grpc::Request;
use super::rope::Rope;
use super::server::{Services, unknown_method};
use ferroflow_core::{Code, Result, Status, bail};
use ferroflow_proto::tensorflow::{
    DeleteKeyValueRequest, DeleteKeyValueResponse, GetKeyValueDirRequest, GetKeyValueDirResponse,
    GetKeyValueRequest, GetKeyValueResponse, GetTaskStateRequest, GetTaskStateResponse, HeartbeatRequest,
    HeartbeatResponse, IncrementKeyValueRequest, IncrementKeyValueResponse, InsertKeyValueRequest,
    InsertKeyValueResponse, KeyValueEntry, RegisterTaskRequest, RegisterTaskResponse,
    ReportErrorToServiceRequest, ReportErrorToServiceResponse, ResetTaskRequest, ResetTaskResponse,
    ShutdownTaskRequest, ShutdownTaskResponse, TryGetKeyValueRequest, TryGetKeyValueResponse,
};

/// Methods of the service that stock's coordinators do not call.
const UNSUPPORTED: &[&str] = &[
    "WaitForAllTasks",
    "ReportErrorToTask",
    "WatchJobState",
    "Barrier",
    "CancelBarrier",
    "GetAliveTasks",
    "PollForError",
];

/// Answers one call.
pub(crate) async fn call(services: &Services, method: &str, mut request: Request) -> Result<Rope> {
    let service = services.eager.coordination();
    Ok(match method {
        "RegisterTask" => {
            let RegisterTaskRequest { incarnation, source_task } = request.decode().await?;
            let leader_incarnation = service.register(&source_task.unwrap_or_default(), incarnation)?;
            Rope::from_message(&RegisterTaskResponse { leader_incarnation })
        }
        "Heartbeat" => {
            let HeartbeatRequest { incarnation, source_task } = request.decode().await?;
            let leader_incarnation = service.heartbeat(&source_task.unwrap_or_default(), incarnation)?;
            Rope::from_message(&HeartbeatResponse { leader_incarnation })
        }
        "GetTaskState" => {
            let GetTaskStateRequest { source_task } = request.decode().await?;
            Rope::from_message(&GetTaskStateResponse { task_state: service.states(&source_task)? })
        }
        "ReportErrorToService" => {
            let request: ReportErrorToServiceRequest = request.decode().await?;
            let code = Code::from_number(request.error_code).unwrap_or(Code::Unknown);
            let error = Status::new(code, request.error_message);
            service.report(&request.error_origin.unwrap_or_default(), error)?;
            Rope::from_message(&ReportErrorToServiceResponse {})
        }
        "ResetTask" => {
            let ResetTaskRequest { source_task } = request.decode().await?;
            service.disconnect(&source_task.unwrap_or_default())?;
            Rope::from_message(&ResetTaskResponse {})
        }
        "ShutdownTask" => {
            let ShutdownTaskRequest { source_task } = request.decode().await?;
            service.disconnect(&source_task.unwrap_or_default())?;
            Rope::from_message(&ShutdownTaskResponse {})
        }
        "InsertKeyValue" => {
            let InsertKeyValueRequest { kv, allow_overwrite } = request.decode().await?;
            let KeyValueEntry { key, value } = kv.unwrap_or_default();
            service.insert(&key, &value, allow_overwrite)?;
            Rope::from_message(&InsertKeyValueResponse {})
        }
        "GetKeyValue" => {
            let GetKeyValueRequest { key } = request.decode().await?;
            let value = service.wait_for(&key).await?;
            Rope::from_message(&GetKeyValueResponse { kv: Some(KeyValueEntry { key, value }) })
        }
        "TryGetKeyValue" => {
            let TryGetKeyValueRequest { key } = request.decode().await?;
            let value = service.get(&key)?;
            Rope::from_message(&TryGetKeyValueResponse { kv: Some(KeyValueEntry { key, value }) })
        }
        "IncrementKeyValue" => {
            let IncrementKeyValueRequest { key, increment } = request.decode().await?;
            let value = service.increment(&key, increment)?;
            Rope::from_message(&IncrementKeyValueResponse { kv: Some(KeyValueEntry { key, value }) })
        }
        "GetKeyValueDir" => {
            let GetKeyValueDirRequest { directory_key } = request.decode().await?;
            let kv = service.directory(&directory_key)?;
            Rope::from_message(&GetKeyValueDirResponse { directory_key, kv })
        }
        "DeleteKeyValue" => {
            let DeleteKeyValueRequest { key, is_directory } = request.decode().await?;
            service.delete(&key, is_directory)?;
            Rope::from_message(&DeleteKeyValueResponse {})
        }
        _ if UNSUPPORTED.contains(&method) => {
            bail!(Unimplemented, "{method} of the coordination service is not supported by this server")
        }
        _ => return Err(unknown_method()),
    })
}

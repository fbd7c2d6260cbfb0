//! `tensorflow.CoordinationService`: messages in, messages out; the meaning is in [`crate::eager`].

use super::grpc::Request;
use super::rope::Rope;
use super::server::{Services, unknown_method};
use crate::eager::{Arrival, coordinated};
use ferroflow_core::{Code, Result, Status, bail};
use ferroflow_proto::tensorflow::{
    BarrierRequest, BarrierResponse, CancelBarrierRequest, CancelBarrierResponse, DeleteKeyValueRequest,
    DeleteKeyValueResponse, GetAliveTasksRequest, GetAliveTasksResponse, GetKeyValueDirRequest,
    GetKeyValueDirResponse, GetKeyValueRequest, GetKeyValueResponse, GetTaskStateRequest,
    GetTaskStateResponse, HeartbeatRequest, HeartbeatResponse, IncrementKeyValueRequest,
    IncrementKeyValueResponse, InsertKeyValueRequest, InsertKeyValueResponse, KeyValueEntry,
    RegisterTaskRequest, RegisterTaskResponse, ReportErrorToServiceRequest, ReportErrorToServiceResponse,
    ReportErrorToTaskRequest, ReportErrorToTaskResponse, ResetTaskRequest, ResetTaskResponse,
    ShutdownTaskRequest, ShutdownTaskResponse, TryGetKeyValueRequest, TryGetKeyValueResponse,
    WaitForAllTasksRequest, WaitForAllTasksResponse, WatchJobStateRequest, WatchJobStateResponse,
};
use std::time::Duration;

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
        "WaitForAllTasks" => {
            let WaitForAllTasksRequest { source_task, device_info } = request.decode().await?;
            let devices = device_info.unwrap_or_default();
            let devices = service.wait_for_all(&source_task.unwrap_or_default(), devices).await?;
            // Without the leader's incarnation, as in stock.
            Rope::from_message(&WaitForAllTasksResponse { leader_incarnation: 0, device_info: Some(devices) })
        }
        "Barrier" => {
            let BarrierRequest { barrier_id, barrier_timeout_in_ms, tasks, source_task, counter } =
                request.decode().await?;
            let arrival = Arrival {
                barrier: &barrier_id,
                counter,
                limit: Duration::from_millis(u64::try_from(barrier_timeout_in_ms).unwrap_or_default()),
                task: &source_task.unwrap_or_default(),
                tasks: &tasks,
            };
            let counter = service.barrier(arrival).await?;
            Rope::from_message(&BarrierResponse { counter })
        }
        "CancelBarrier" => {
            let CancelBarrierRequest { barrier_id, counter, source_task } = request.decode().await?;
            service.cancel_barrier(&barrier_id, counter, &source_task.unwrap_or_default())?;
            Rope::from_message(&CancelBarrierResponse {})
        }
        "GetAliveTasks" => {
            let GetAliveTasksRequest { requesting_task, tasks } = request.decode().await?;
            let alive = service.alive(&requesting_task.unwrap_or_default(), &tasks).await?;
            let alive = alive.into_iter().map(|(task, incarnation)| (coordinated(&task), incarnation));
            let (alive_tasks, incarnations) = alive.unzip();
            Rope::from_message(&GetAliveTasksResponse { alive_tasks, incarnations })
        }
        // As in stock, whose servers tell tasks of errors by themselves.
        "PollForError" => bail!(
            Internal,
            "Should not use error polling from service when there is service to client connection."
        ),
        "ReportErrorToTask" => {
            let request: ReportErrorToTaskRequest = request.decode().await?;
            tracing::warn!(
                code = request.error_code,
                error = request.error_message,
                "The coordination service reports an error of another task."
            );
            Rope::from_message(&ReportErrorToTaskResponse {})
        }
        "WatchJobState" => {
            let WatchJobStateRequest { job_name, version_number } = request.decode().await?;
            // A negative version stands for none.
            let version = Some(version_number).filter(|version| *version >= 0);
            let (task_state, version_number) = service.watch(&job_name, version).await?;
            Rope::from_message(&WatchJobStateResponse { task_state, version_number })
        }
        _ => return Err(unknown_method()),
    })
}

//! `tensorflow.MasterService`: decodes requests and encodes responses. [`crate::master`] does the work.

use super::grpc::Request;
use super::rope::Rope;
use super::server::{Caller, Services, unknown_method};
use super::tensor_codec::{read_run_callable, read_run_step, write_run_callable, write_run_step};
use crate::api::{MasterApi, RunCallable, RunStep};
use ferroflow_core::{Result, Status};
use ferroflow_proto::tensorflow::{
    CloseSessionRequest, CloseSessionResponse, CreateSessionRequest, CreateSessionResponse,
    ExtendSessionRequest, ExtendSessionResponse, ListDevicesRequest, ListDevicesResponse,
    MakeCallableRequest, MakeCallableResponse, PartialRunSetupRequest, PartialRunSetupResponse,
    ReleaseCallableRequest, ReleaseCallableResponse, ResetRequest, ResetResponse, RunStepResponse,
};

/// Serves one call.
pub(crate) async fn call(
    services: &Services,
    caller: &Caller,
    method: &str,
    request: Request,
) -> Result<Rope> {
    match method {
        "RunStep" => run_step(services, caller, request).await,
        "RunCallable" => run_callable(services, caller, request).await,
        // A future is as large as its largest branch; steps should not pay for graphs and configurations.
        _ => Box::pin(call_other(services, caller, method, request)).await,
    }
}

async fn call_other(
    services: &Services,
    caller: &Caller,
    method: &str,
    mut request: Request,
) -> Result<Rope> {
    let master = &*services.master;
    match method {
        "CreateSession" => {
            let CreateSessionRequest { graph_def, config, target } = request.decode().await?;
            let (graph, config) = (graph_def.unwrap_or_default(), config.unwrap_or_default());
            let session_handle = master.create_session(graph, config, &target).await?;
            master.used_by(&session_handle, &caller.presence);
            Ok(Rope::from_message(&CreateSessionResponse { session_handle, graph_version: 0 }))
        }
        "ExtendSession" => {
            let ExtendSessionRequest { session_handle, graph_def, current_graph_version } =
                request.decode().await?;
            master.used_by(&session_handle, &caller.presence);
            let new_graph_version = master
                .extend_session(&session_handle, graph_def.unwrap_or_default(), current_graph_version)
                .await?;
            Ok(Rope::from_message(&ExtendSessionResponse { new_graph_version }))
        }
        "PartialRunSetup" => {
            let request: PartialRunSetupRequest = request.decode().await?;
            master.used_by(&request.session_handle, &caller.presence);
            let partial_run_handle = master.partial_run_setup(request).await?;
            Ok(Rope::from_message(&PartialRunSetupResponse { partial_run_handle }))
        }
        "CloseSession" => {
            let CloseSessionRequest { session_handle } = request.decode().await?;
            master.close_session(&session_handle).await?;
            Ok(Rope::from_message(&CloseSessionResponse {}))
        }
        "ListDevices" => {
            let ListDevicesRequest { session_handle } = request.decode().await?;
            let devices = master.list_devices(&session_handle).await?;
            let response = ListDevicesResponse { local_device: devices.local, remote_device: devices.remote };
            Ok(Rope::from_message(&response))
        }
        "Reset" => {
            let ResetRequest { container, device_filters } = request.decode().await?;
            master.reset(container, device_filters).await?;
            Ok(Rope::from_message(&ResetResponse {}))
        }
        "MakeCallable" => {
            let MakeCallableRequest { session_handle, options, request_id } = request.decode().await?;
            master.used_by(&session_handle, &caller.presence);
            let handle =
                master.make_callable(&session_handle, options.unwrap_or_default(), request_id).await?;
            Ok(Rope::from_message(&MakeCallableResponse { handle }))
        }
        "ReleaseCallable" => {
            let ReleaseCallableRequest { session_handle, handle } = request.decode().await?;
            master.release_callable(&session_handle, handle).await?;
            Ok(Rope::from_message(&ReleaseCallableResponse {}))
        }
        _ => Err(unknown_method()),
    }
}

async fn run_step(services: &Services, caller: &Caller, mut request: Request) -> Result<Rope> {
    let (request, feeds) = read_run_step(&mut request).await?;
    services.master.used_by(&request.session_handle, &caller.presence);
    let store_errors = request.store_errors_in_response_body;
    let done = async {
        let step = RunStep {
            session_handle: request.session_handle,
            feeds: feeds?,
            fetches: request.fetch,
            targets: request.target,
            options: request.options.unwrap_or_default(),
            partial_run_handle: request.partial_run_handle,
            request_id: request.request_id,
        };
        services.master.run_step(step).await
    };
    match done.await {
        Ok(done) => write_run_step(&done.fetches, &done.metadata),
        Err(status) if store_errors => Ok(Rope::from_message(&error_body(&status))),
        Err(status) => Err(status),
    }
}

/// Encodes a failure as a response body. Clients do not retry such a step, whatever the code.
fn error_body(status: &Status) -> RunStepResponse {
    RunStepResponse {
        status_code: status.code() as i32,
        status_error_message: status.message().to_owned(),
        ..Default::default()
    }
}

async fn run_callable(services: &Services, caller: &Caller, mut request: Request) -> Result<Rope> {
    let (request, feeds) = read_run_callable(&mut request).await?;
    services.master.used_by(&request.session_handle, &caller.presence);
    let call = RunCallable {
        session_handle: request.session_handle,
        handle: request.handle,
        feeds: feeds?,
        request_id: request.request_id,
    };
    let done = services.master.run_callable(call).await?;
    write_run_callable(&done.fetches, &done.metadata)
}

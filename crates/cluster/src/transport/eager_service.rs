//! `tensorflow.eager.EagerService`: messages in, messages out; the meaning is in [`crate::eager`].

use super::grpc::{Request, RequestStream, Streamed, deadline_exceeded};
use super::local;
use super::rope::Rope;
use super::server::{Services, unknown_method};
use crate::eager::api::{
    ClientCluster, ContextUpdate, EagerApi, HandleName, Input, Item, NewComponent, NewContext, Operation,
    Outcome, PackedPart, Registrar,
};
use crate::spec::{ClusterSpec, TaskName};
use ferroflow_core::{Result, Shape, Tensor, bail};
use ferroflow_proto::tensorflow::eager::{self, RemoteTensorHandle, queue_item};
use ferroflow_proto::tensorflow::{
    DeviceAttributes, NamedTensorProto, RunGraphResponse, ServerDef, TensorProto,
};
use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use prost::Message;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The method that is a stream of requests and answers.
pub(crate) const STREAMING_ENQUEUE: &str = "/tensorflow.eager.EagerService/StreamingEnqueue";

/// Answers one call.
pub(crate) async fn call(services: &Services, method: &str, request: Request) -> Result<Rope> {
    match method {
        "Enqueue" => enqueue(services, request).await,
        "RunComponentFunction" => run_component(services, request).await,
        _ => Box::pin(call_rarely(services, method, request)).await,
    }
}

async fn call_rarely(services: &Services, method: &str, mut request: Request) -> Result<Rope> {
    let eager = &*services.eager;
    match method {
        "CreateContext" => {
            let request: eager::CreateContextRequest = request.decode().await?;
            let config =
                request.server_def.as_ref().and_then(|server| server.default_session_config.as_ref());
            let part_limit = config.and_then(|config| u64::try_from(config.operation_timeout_in_ms).ok());
            let config = config.and_then(|config| config.experimental.as_ref());
            let new = NewContext {
                part_limit: part_limit.filter(|limit| *limit > 0).map(Duration::from_millis),
                coordination: config.and_then(|config| config.coordination_config.clone()),
                id: request.context_id,
                view: request.context_view_id,
                cluster: read_cluster(request.server_def, request.cluster_device_attributes)?,
                is_async: request.r#async,
                keep_alive: Duration::from_secs(u64::try_from(request.keep_alive_secs).unwrap_or_default()),
                clear_existing: request.clear_existing_contexts,
            };
            let device_attributes = eager.create_context(new).await?;
            Ok(Rope::from_message(&eager::CreateContextResponse { device_attributes }))
        }
        "UpdateContext" => {
            let request: eager::UpdateContextRequest = request.decode().await?;
            // Without devices only the view changes.
            let server = request.server_def.filter(|_| !request.cluster_device_attributes.is_empty());
            let update = ContextUpdate {
                id: request.context_id,
                view: request.context_view_id,
                cluster: read_cluster(server, request.cluster_device_attributes)?,
            };
            let device_attributes = eager.update_context(update)?;
            Ok(Rope::from_message(&eager::UpdateContextResponse { device_attributes }))
        }
        "KeepAlive" => {
            let eager::KeepAliveRequest { context_id } = request.decode().await?;
            let context_view_id = eager.keep_alive(context_id)?;
            Ok(Rope::from_message(&eager::KeepAliveResponse { context_view_id }))
        }
        "CloseContext" => {
            let eager::CloseContextRequest { context_id, context_view_id } = request.decode().await?;
            eager.close_context(context_id, context_view_id);
            Ok(Rope::from_message(&eager::CloseContextResponse {}))
        }
        "WaitQueueDone" => {
            let eager::WaitQueueDoneRequest { context_id, op_id } = request.decode().await?;
            eager.wait_queue_done(context_id, &op_id).await?;
            Ok(Rope::from_message(&eager::WaitQueueDoneResponse {}))
        }
        _ => Err(unknown_method()),
    }
}

async fn enqueue(services: &Services, mut request: Request) -> Result<Rope> {
    let ExtendedEnqueueRequest { context_id, queue, from_task, task, registrar, forgotten } =
        request.decode().await?;
    if !forgotten.is_empty() {
        services.eager.forget_components(context_id, &forgotten)?;
    }
    let registrar = (!task.is_empty()).then_some(Registrar { task, number: registrar });
    // What a peer asks for belongs to an operation that has its turn already.
    let queue_response = run_items(services, context_id, queue, registrar, from_task).await?;
    if !from_task {
        return Ok(Rope::from_message(&eager::EnqueueResponse { queue_response }));
    }
    let local_name = local::name(services.worker.device().incarnation());
    let response = ExtendedEnqueueResponse { queue_response, takes_direct_links: true, local_name };
    Ok(Rope::from_message(&response))
}

async fn run_items(
    services: &Services,
    context: u64,
    queue: Vec<eager::QueueItem>,
    registrar: Option<Registrar>,
    on_stream: bool,
) -> Result<Vec<eager::QueueResponse>> {
    let items = queue.into_iter().map(|item| read_item(item.item, &registrar));
    let outcomes = services.eager.enqueue(context, items, on_stream).await?;
    outcomes.into_iter().map(write_outcome).collect()
}

/// An `EnqueueRequest` with Ferroflow's fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExtendedEnqueueRequest {
    #[prost(fixed64, tag = "1")]
    pub(crate) context_id: u64,
    #[prost(message, repeated, tag = "3")]
    pub(crate) queue: Vec<eager::QueueItem>,
    /// True if the caller is a Ferroflow task, which may take direct connections, and not the client.
    #[prost(bool, tag = "61001")]
    pub(crate) from_task: bool,
    /// The task that registers parts of functions.
    #[prost(string, tag = "61002")]
    pub(crate) task: String,
    /// Tells its context from those that it had before.
    #[prost(fixed64, tag = "61003")]
    pub(crate) registrar: u64,
    /// Parts of functions that it will not run any more.
    #[prost(string, repeated, tag = "61004")]
    pub(crate) forgotten: Vec<String>,
}

/// An `EnqueueResponse` with Ferroflow's fields, for tasks that ask for them.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct ExtendedEnqueueResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) queue_response: Vec<eager::QueueResponse>,
    /// True if the task accepts direct connections.
    #[prost(bool, tag = "61001")]
    pub(crate) takes_direct_links: bool,
    /// The name of its local socket, for tasks on the same machine.
    #[prost(string, tag = "61002")]
    pub(crate) local_name: String,
}

/// Answers the requests of a stream in their order, for as long as the client wants. A failure ends the stream.
pub(crate) fn streaming_enqueue(
    services: Arc<Services>,
    requests: RequestStream,
    limit: Option<Duration>,
) -> BoxStream<'static, Streamed> {
    let deadline = limit.map(|limit| Instant::now() + limit);
    stream::unfold(Some((services, requests)), move |state| async move {
        let (services, mut requests) = state?;
        let answered = async {
            let Some((request, charge)) = requests.next().await? else { return Ok(None) };
            let eager::EnqueueRequest { context_id, queue } = request;
            let queue_response = run_items(&services, context_id, queue, None, true).await?;
            let pieces = Rope::from_message(&eager::EnqueueResponse { queue_response }).finish()?;
            drop(charge);
            Ok(Some(pieces))
        };
        let answered = match deadline {
            Some(deadline) => {
                timeout_at(deadline, answered).await.unwrap_or_else(|_| Err(deadline_exceeded()))
            }
            None => answered.await,
        };
        match answered {
            Ok(Some(pieces)) => Some((Streamed::Message(pieces), Some((services, requests)))),
            Ok(None) => Some((Streamed::End(Ok(())), None)),
            Err(status) => Some((Streamed::End(Err(status)), None)),
        }
    })
    .boxed()
}

async fn run_component(services: &Services, mut request: Request) -> Result<Rope> {
    let request = request.decode().await?;
    let eager::QueueResponse { shape, tensor, .. } = write_outcome(run_part(services, request).await?)?;
    Ok(Rope::from_message(&eager::RunComponentFunctionResponse { shape, tensor }))
}

/// Runs a part of a function for a peer with a direct connection. The response has the results that are kept here as
/// tensors without content.
pub(crate) async fn run_component_part(
    services: &Services,
    request: eager::RunComponentFunctionRequest,
) -> Result<RunGraphResponse> {
    let shapes = run_part(services, request).await?.shapes;
    let result = |shape: Shape| {
        let tensor = TensorProto { tensor_shape: Some(shape.to_proto()), ..Default::default() };
        NamedTensorProto { tensor: Some(tensor), ..Default::default() }
    };
    Ok(RunGraphResponse { recv: shapes.into_iter().map(result).collect(), ..Default::default() })
}

async fn run_part(services: &Services, request: eager::RunComponentFunctionRequest) -> Result<Outcome> {
    let operation = read_operation(request.operation.unwrap_or_default())?;
    services.eager.run_component(request.context_id, operation, request.output_num).await
}

fn read_cluster(server: Option<ServerDef>, devices: Vec<DeviceAttributes>) -> Result<Option<ClientCluster>> {
    let Some(ServerDef { cluster: Some(cluster), job_name, task_index, .. }) = server else {
        return Ok(None);
    };
    if cluster.job.is_empty() {
        return Ok(None);
    }
    let own = TaskName::new(&job_name, u32::try_from(task_index).unwrap_or_default());
    Ok(Some(ClientCluster { own, cluster: ClusterSpec::from_client_def(&cluster)?, devices }))
}

fn read_item(item: Option<queue_item::Item>, registrar: &Option<Registrar>) -> Result<Item> {
    Ok(match item {
        None => Item::Nothing,
        Some(queue_item::Item::Operation(operation)) => Item::Operation(read_operation(operation)?),
        Some(queue_item::Item::SendTensor(send)) => Item::SendTensor {
            op: send.op_id,
            tensors: send.tensors.iter().map(read_tensor).collect::<Result<_>>()?,
            device: send.device_name,
        },
        Some(queue_item::Item::SendPackedHandle(send)) => Item::SendPackedHandle {
            op: send.op_id,
            parts: send.handles.into_iter().map(read_packed).collect::<Result<_>>()?,
        },
        Some(queue_item::Item::HandleToDecref(handle)) => {
            Item::Release(HandleName { op: handle.op_id, output: handle.output_num })
        }
        Some(queue_item::Item::RegisterFunction(register)) => Item::RegisterFunction {
            definition: Box::new(register.function_def.unwrap_or_default()),
            component: register.is_component_function.then(|| NewComponent {
                library: register.library.unwrap_or_default(),
                registrar: registrar.clone(),
            }),
        },
        Some(queue_item::Item::RemoveFunction(remove)) => Item::RemoveFunction(remove.function_name),
        Some(queue_item::Item::CleanupFunction(cleanup)) => Item::CleanupFunction(cleanup.step_id),
        Some(queue_item::Item::SyncRemoteExecutorForStream(_)) => Item::Sync,
    })
}

fn read_packed(handle: eager::send_packed_handle_op::Handle) -> Result<PackedPart> {
    use eager::send_packed_handle_op::handle::Item;
    Ok(match handle.item {
        Some(Item::LocalHandle(local)) => {
            let tensor = read_tensor(&local.tensor.unwrap_or_default())?;
            PackedPart::Tensor(tensor, local.device)
        }
        Some(Item::RemoteHandle(handle)) => PackedPart::Handle(handle),
        None => PackedPart::Handle(RemoteTensorHandle::default()),
    })
}

fn read_operation(operation: eager::Operation) -> Result<Operation> {
    let mut inputs = Vec::with_capacity(operation.op_inputs.len());
    for input in operation.op_inputs {
        inputs.push(match input.item {
            Some(eager::operation::input::Item::RemoteHandle(handle)) => Input::Handle(handle),
            Some(eager::operation::input::Item::Tensor(tensor)) => Input::Tensor(read_tensor(&tensor)?),
            None => bail!(InvalidArgument, "Invalid TensorProto: an input of {} is empty", operation.name),
        });
    }
    Ok(Operation {
        id: operation.id,
        name: operation.name,
        attrs: operation.attrs,
        device: operation.device,
        inputs,
        is_function: operation.is_function,
        is_component: operation.is_component_function,
        step: operation.func_step_id,
    })
}

fn read_tensor(proto: &TensorProto) -> Result<Tensor> {
    Tensor::from_proto(proto)
        .or_else(|error| bail!(InvalidArgument, "Unable to parse tensor proto: {}", error.message()))
}

fn write_outcome(outcome: Outcome) -> Result<eager::QueueResponse> {
    let Outcome { shapes, devices, tensors } = outcome;
    Ok(eager::QueueResponse {
        shape: shapes.iter().map(|shape| shape.to_proto()).collect(),
        device: devices,
        tensor: tensors.iter().map(Tensor::to_proto).collect::<Result<_>>()?,
    })
}

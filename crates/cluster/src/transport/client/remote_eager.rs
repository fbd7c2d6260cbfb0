//! The eager service of another task.

use super::channel::Channel;
use super::method::{Method, methods};
use crate::eager::api::Registrar;
use crate::spec::TaskName;
use crate::transport::eager_service::{ExtendedEnqueueRequest, ExtendedEnqueueResponse};
use ferroflow_core::{Result, Status};
use ferroflow_proto::tensorflow::eager::queue_item::Item;
use ferroflow_proto::tensorflow::eager::{
    EnqueueResponse, QueueItem, RegisterFunctionOp, RunComponentFunctionRequest, RunComponentFunctionResponse,
};
use futures_util::FutureExt;
use prost::Message;
use std::sync::Arc;

/// The eager service of another task, in contexts that a client has opened there, too.
pub(crate) struct RemoteEager {
    task: TaskName,
    channel: Arc<Channel>,
    methods: Methods,
}

methods! {
    "/tensorflow.eager.EagerService/"
    enqueue "Enqueue" None,
    run_component "RunComponentFunction" None,
}

impl RemoteEager {
    pub(super) fn new(task: TaskName, channel: Arc<Channel>) -> Result<RemoteEager> {
        let methods = Methods::new(channel.address())?;
        Ok(RemoteEager { task, channel, methods })
    }

    /// Registers a part of a function; the response says whether the task takes direct connections.
    pub(super) async fn register(
        &self,
        context: u64,
        registrar: &Registrar,
        function: RegisterFunctionOp,
    ) -> Result<ExtendedEnqueueResponse> {
        let queue = vec![QueueItem { item: Some(Item::RegisterFunction(function)) }];
        let request = ExtendedEnqueueRequest {
            context_id: context,
            queue,
            from_task: true,
            task: registrar.task.clone(),
            registrar: registrar.number,
            forgotten: Vec::new(),
        };
        self.unary(&self.methods.enqueue, &request, context).await
    }

    /// Has these things done, one after the other.
    pub(crate) async fn enqueue(&self, context: u64, items: Vec<Item>) -> Result<EnqueueResponse> {
        let queue = items.into_iter().map(|item| QueueItem { item: Some(item) }).collect();
        let request =
            ExtendedEnqueueRequest { context_id: context, queue, from_task: true, ..Default::default() };
        self.unary(&self.methods.enqueue, &request, context).await
    }

    /// Has parts of functions forgotten by a Ferroflow task.
    pub(super) async fn forget(&self, context: u64, functions: Vec<String>) -> Result<()> {
        let request = ExtendedEnqueueRequest {
            context_id: context,
            from_task: true,
            forgotten: functions,
            ..Default::default()
        };
        let forgotten = self.unary(&self.methods.enqueue, &request, context).await;
        forgotten.map(|ExtendedEnqueueResponse { .. }| ())
    }

    /// Runs a part of a function.
    pub(crate) async fn run_component(
        &self,
        request: &RunComponentFunctionRequest,
    ) -> Result<RunComponentFunctionResponse> {
        let step = request.operation.as_ref().map_or(0, |operation| operation.func_step_id);
        self.unary(&self.methods.run_component, request, step as u64).await
    }

    async fn unary<R: Message + Default>(
        &self,
        method: &Method,
        request: &impl Message,
        hint: u64,
    ) -> Result<R> {
        // Boxed, because it is large, and part of everything that may make a call.
        let answered = method.unary(&self.channel, request, hint).boxed();
        let why = format!("no answer from {} to {}", self.channel.address(), method.path());
        let answered = self.channel.log_wait(method.waiting(), &self.task, &why, answered).await;
        answered.map_err(|error| self.explain(method, error))
    }

    /// The failure of a part of a function, however it was asked for.
    pub(super) fn component_failed(&self, error: Status) -> Status {
        self.explain(&self.methods.run_component, error)
    }

    fn explain(&self, method: &Method, error: Status) -> Status {
        super::remote_worker::call_failed(error, &self.task, method.path(), self.channel.address())
    }
}

//! Runs what a client enqueues.

use super::api::{HandleName, Input, Item, Operation, Outcome};
use super::context::{Context, View};
use super::plans::CallPlan;
use crate::worker::WorkerSession;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::{DType, Result, Status, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::NodeDef;
use ferroflow_proto::tensorflow::eager::RemoteTensorHandle;
use ferroflow_runtime::plan::plan_op;
use ferroflow_runtime::{Executable, RuntimeEnv};
use prost::Message;
use std::sync::Arc;

/// An input of an operation, located.
pub(super) enum Argument {
    /// A value of this task.
    Here(Tensor),
    /// A value that another task keeps.
    There(RemoteTensorHandle),
}

impl Context {
    /// Does one thing.
    pub(super) async fn run_item(self: &Arc<Self>, item: Item) -> Result<Outcome> {
        match item {
            Item::Operation(operation) if operation.is_component => {
                return self.run_component(operation, None).await;
            }
            Item::Operation(operation) => return self.run_operation(operation).await,
            Item::SendTensor { op, tensors, device } => self.receive(op, tensors, &device)?,
            Item::Release(name) => self.handles.release(name)?,
            Item::RegisterFunction { definition, component } => self.register(*definition, component)?,
            Item::RemoveFunction(name) => self.remove_function(&name)?,
            Item::CleanupFunction(step) => self.worker.cleanup_step(step),
            Item::SendPackedHandle => bail!(
                Unimplemented,
                "SendPackedHandle is not supported: this server takes no values that several devices hold together"
            ),
            // What came before on the stream has been answered.
            Item::Nothing | Item::Sync => {}
        }
        Ok(Outcome::default())
    }

    fn receive(&self, op: i64, tensors: Vec<Tensor>, device: &str) -> Result<()> {
        ensure!(self.session.env_on(device).is_some(), InvalidArgument, "{device} unknown device.");
        for (output, tensor) in (0..).zip(tensors) {
            let bytes = tensor.byte_size();
            self.handles.keep(HandleName { op, output }, tensor, bytes)?;
        }
        Ok(())
    }

    /// Runs an op or a function.
    async fn run_operation(self: &Arc<Self>, operation: Operation) -> Result<Outcome> {
        let env = self.session.env();
        let is_op = env.registry.declares(&operation.name);
        ensure!(
            is_op || env.library().get(&operation.name).is_some(),
            NotFound,
            "'{}' is neither a type of a primitive operation nor a name of a function registered in binary running on \
             {}. Make sure the operation or function is registered in the binary running in this process.",
            operation.name,
            self.worker.task()
        );
        let wanted = self.parse_device(&operation)?;
        let view = self.view();
        let arguments = self.arguments(&view, &operation.inputs)?;
        let env = self.choose_device(&wanted, &operation.device)?;
        if is_op {
            self.run_op(&view, env, operation, arguments).await
        } else {
            self.run_function(&view, env, operation, arguments).await
        }
    }

    async fn run_op(
        &self,
        view: &View,
        env: &Arc<RuntimeEnv>,
        operation: Operation,
        arguments: Vec<Argument>,
    ) -> Result<Outcome> {
        let mut inputs = Vec::with_capacity(arguments.len());
        for argument in arguments {
            match argument {
                Argument::Here(tensor) => inputs.push(tensor),
                Argument::There(handle) => bail!(
                    Unimplemented,
                    "{} on {} takes a value of {}, and this server does not fetch the inputs of single ops: have the \
                     value copied first",
                    operation.name,
                    env.device.name(),
                    handle.device
                ),
            }
        }
        let types: Vec<DType> = inputs.iter().map(Tensor::dtype).collect();
        let signature =
            signature(&operation, env.device.name(), types.iter().map(|dtype| dtype.to_wire() as u32));
        let cell = self.plans.get(signature, &operation.name, &self.account)?;
        let plan = match cell.get() {
            Some(plan) => plan.clone(),
            None => {
                let make = || -> Result<Arc<CallPlan>> {
                    let planned = plan_op(&node_def(&operation, env.device.name()), &types, env)?;
                    let local = Executable::standalone(planned, env)?;
                    Ok(Arc::new(CallPlan::new(local, Vec::new(), Vec::new(), &self.account)?))
                };
                cell.get_or_try_init(async || make().map_err(without_node)).await?.clone()
            }
        };
        let step =
            WorkerSession::step_cx(env, self.id as i64, view.rendezvous.clone(), self.cancellation.clone());
        let inputs = inputs.into_iter().map(Some).collect();
        let outputs = plan.local.start_call(inputs, step)?.near_caller().await.map_err(without_node)?;
        self.keep_outputs(operation.id, None, outputs)
    }

    /// Keeps the outputs of an operation, or hands them over if the client wants them.
    pub(super) fn keep_outputs(
        &self,
        id: i64,
        numbers: Option<Vec<i32>>,
        outputs: Vec<Tensor>,
    ) -> Result<Outcome> {
        if id < 0 {
            return Ok(Outcome { tensors: outputs, ..Outcome::default() });
        }
        let numbers = numbers.unwrap_or_else(|| (0..outputs.len() as i32).collect());
        ensure!(
            numbers.len() == outputs.len(),
            InvalidArgument,
            "an operation with {} outputs has numbers for {}",
            outputs.len(),
            numbers.len()
        );
        let shapes = outputs.iter().map(|tensor| tensor.shape().clone()).collect();
        for (output, tensor) in numbers.into_iter().zip(outputs) {
            self.handles.keep(HandleName { op: id, output }, tensor, 0)?;
        }
        Ok(Outcome { shapes, ..Outcome::default() })
    }

    /// Where the inputs of an operation are.
    pub(super) fn arguments(&self, view: &View, inputs: &[Input]) -> Result<Vec<Argument>> {
        let argument = |input: &Input| match input {
            Input::Tensor(tensor) => Ok(Argument::Here(tensor.clone())),
            Input::Handle(handle) if self.session.env_on(&handle.device).is_some() => {
                let name = HandleName { op: handle.op_id, output: handle.output_num };
                self.handles.get(name).map(Argument::Here)
            }
            Input::Handle(handle) => {
                let known = view.incarnations.contains_key(&handle.device);
                ensure!(known, InvalidArgument, "{} unknown device.", handle.device);
                Ok(Argument::There(handle.clone()))
            }
        };
        inputs.iter().map(argument).collect()
    }

    fn parse_device(&self, operation: &Operation) -> Result<DeviceSpec> {
        DeviceSpec::parse(&operation.device).map_err(|_| {
            status!(
                InvalidArgument,
                "Malformed device specification '{}' in eager op: Name: {}",
                operation.device,
                operation.name
            )
        })
    }

    /// The device of this task that an operation runs on.
    pub(super) fn choose_device(&self, wanted: &DeviceSpec, text: &str) -> Result<&Arc<RuntimeEnv>> {
        let found = self.session.envs().iter().find(|env| wanted.matches(env.device.spec()));
        found.ok_or_else(|| {
            let known: Vec<&str> = self.session.envs().iter().map(|env| env.device.name()).collect();
            status!(
                InvalidArgument,
                "Could not satisfy device specification '{text}'. enable_soft_placement=0. Supported device types \
                 [CPU]. All available devices [{}].",
                known.join(", ")
            )
        })
    }
}

/// Encodes everything that the plan of an operation depends on.
pub(super) fn signature(operation: &Operation, device: &str, types: impl Iterator<Item = u32>) -> Vec<u8> {
    let mut signature = Vec::with_capacity(128);
    for text in [operation.name.as_str(), device] {
        signature.extend((text.len() as u32).to_le_bytes());
        signature.extend(text.as_bytes());
    }
    types.for_each(|dtype| signature.extend(dtype.to_le_bytes()));
    for (name, value) in &operation.attrs {
        signature.extend((name.len() as u32).to_le_bytes());
        signature.extend(name.as_bytes());
        signature.extend(value.encode_length_delimited_to_vec());
    }
    signature
}

fn node_def(operation: &Operation, device: &str) -> NodeDef {
    NodeDef {
        name: operation.name.clone(),
        op: operation.name.clone(),
        device: device.to_owned(),
        attr: operation.attrs.clone(),
        ..Default::default()
    }
}

/// A failure of an op that is no node of anything the client knows.
fn without_node(error: Status) -> Status {
    error.map_message(|mut message| {
        if let Some(at) = message.find("\n\t [[{{node ") {
            message.truncate(at);
        }
        if let Some(at) = message.find("; NodeDef: {{node ") {
            message.truncate(at);
        }
        message
    })
}

/// The device that keeps what a value leads to, if it is a handle of a resource.
pub(super) fn resource_device(tensor: &Tensor) -> Option<&str> {
    match tensor.dtype() {
        DType::Resource => tensor.units::<ResourceHandle>().ok()?.first().map(ResourceHandle::device),
        _ => None,
    }
}

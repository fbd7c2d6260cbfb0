//! Runs what a client enqueues.

use super::across::remote_input;
use super::api::{HandleName, Input, Item, Operation, Outcome, PackedPart};
use super::context::{Context, View};
use super::handles::{KeptValue, Packed, PackedValue};
use super::plans::{CallPlan, LocalPart};
use super::queue::Queue;
use crate::random;
use crate::worker::WorkerSession;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::op::OpClass;
use ferroflow_core::rendezvous::{Rendezvous, RendezvousKey};
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::{DType, Result, Status, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::eager::{self, RemoteTensorHandle};
use ferroflow_proto::tensorflow::{AttrValue, NodeDef};
use ferroflow_runtime::plan::plan_op;
use ferroflow_runtime::{Executable, RuntimeEnv};
use futures_util::future::try_join;
use prost::Message;
use std::sync::Arc;

/// An input of an operation, located.
pub(super) enum Argument {
    /// A value of this task.
    Here(Tensor),
    /// A value that another task keeps.
    There(RemoteTensorHandle),
    /// Values of several devices, which follow the other arguments.
    Packed(Arc<Packed>),
}

/// An operation that is planned and whose inputs are found.
struct Ready {
    context: Arc<Context>,
    view: Arc<View>,
    env: Arc<RuntimeEnv>,
    plan: Arc<CallPlan>,
    arguments: Vec<Argument>,
    id: i64,
    is_op: bool,
}

impl Ready {
    async fn run(self) -> Result<Outcome> {
        let Ready { context, view, env, plan, arguments, id, is_op } = self;
        if !is_op {
            return context.run_function(&view, &plan, &env, id, arguments).await;
        }
        let mut inputs = Vec::with_capacity(arguments.len());
        for argument in arguments {
            inputs.push(Some(match argument {
                Argument::Here(tensor) => tensor,
                Argument::There(handle) => Box::pin(context.fetch(&view, &env, handle)).await?,
                Argument::Packed(_) => {
                    bail!(
                        InvalidArgument,
                        "a single op takes one value, not values of several devices as one"
                    )
                }
            }));
        }
        let (step, cancellation) = (context.id as i64, context.cancellation.clone());
        let step = WorkerSession::step_cx(&env, step, view.rendezvous.clone(), cancellation);
        let run = plan.local.executable.start_call(inputs, step)?;
        let outputs = run.near_caller().await.map_err(without_node)?;
        context.keep_outputs(id, None, outputs)
    }
}

impl Context {
    /// Does one thing. Things that do not come on a stream wait for each other in an asynchronous context.
    pub(super) async fn run_item(self: &Arc<Self>, item: Item, on_stream: bool) -> Result<Outcome> {
        let queue = self.queue.as_ref().filter(|_| !on_stream);
        match item {
            Item::Operation(operation) if operation.is_component => {
                return self.run_component(operation, None).await;
            }
            Item::Operation(operation) => {
                let ready = self.prepare(operation).await?;
                return match queue {
                    None => ready.run().await,
                    Some(queue) => Box::pin(self.run_in_turn(queue, ready)).await,
                };
            }
            Item::SendTensor { op, tensors, device } => {
                queue.map_or(Ok(()), Queue::check)?;
                self.receive(op, tensors, &device)?;
            }
            Item::Release(name) => match queue {
                None => self.handles.release(name)?,
                // Nobody waits for this one, so nobody hears that there was nothing to release.
                Some(queue) => queue.check().map(|()| drop(self.handles.release(name)))?,
            },
            Item::RegisterFunction { definition, component } => self.register(*definition, component)?,
            Item::RemoveFunction(name) => self.remove_function(&name)?,
            Item::CleanupFunction(step) => self.worker.cleanup_step(step),
            Item::SendPackedHandle { op, parts } => self.receive_packed(op, parts)?,
            // What came before on a stream has been answered.
            Item::Sync => {
                if let Some(queue) = queue {
                    self.until_ended(queue.done()).await?;
                }
            }
            Item::Nothing => {}
        }
        Ok(Outcome::default())
    }

    async fn run_in_turn(&self, queue: &Queue, ready: Ready) -> Result<Outcome> {
        if ready.plan.result_count() > 0 {
            return self.until_ended(queue.run(ready.run())).await;
        }
        let run = async move { ready.run().await.map(drop) };
        queue.run_unanswered(&self.account, run).await.map(|()| Outcome::default())
    }

    fn receive(&self, op: i64, tensors: Vec<Tensor>, device: &str) -> Result<()> {
        ensure!(self.session.env_on(device).is_some(), InvalidArgument, "{device} unknown device.");
        for (output, tensor) in (0..).zip(tensors) {
            let bytes = tensor.byte_size();
            self.handles.keep(HandleName { op, output }, KeptValue::Tensor(tensor), bytes)?;
        }
        Ok(())
    }

    fn receive_packed(&self, op: i64, parts: Vec<PackedPart>) -> Result<()> {
        let view = self.view();
        let mut bytes = 0;
        let value = |part| {
            Ok(match part {
                PackedPart::Tensor(tensor, device) => {
                    ensure!(
                        self.session.env_on(&device).is_some(),
                        InvalidArgument,
                        "{device} unknown device."
                    );
                    bytes += device.len() + tensor.byte_size();
                    (tensor.dtype(), PackedValue::Here(device, tensor))
                }
                PackedPart::Handle(handle) => {
                    let dtype = DType::from_wire(handle.dtype)?;
                    bytes += handle.encoded_len();
                    let device = handle.device.clone();
                    match self.find(&view, &handle)? {
                        Argument::Here(tensor) => (tensor.dtype(), PackedValue::Here(device, tensor)),
                        Argument::There(handle) => (dtype, PackedValue::There(handle)),
                        Argument::Packed(_) => {
                            bail!(InvalidArgument, "Handles should not be packed already.")
                        }
                    }
                }
            })
        };
        let (types, values): (Vec<DType>, Vec<PackedValue>) =
            parts.into_iter().map(value).collect::<Result<Vec<_>>>()?.into_iter().unzip();
        let Some(&dtype) = types.first() else { bail!(InvalidArgument, "Handles should not be empty.") };
        let equal = types.iter().all(|each| *each == dtype);
        ensure!(equal, InvalidArgument, "Handles do not have the same dtype.");
        let packed = KeptValue::Packed(Arc::new(Packed { dtype, values }));
        self.handles.keep(HandleName { op, output: 0 }, packed, bytes)
    }

    /// Plans an op or a function, or finds its plan, and finds its inputs.
    async fn prepare(self: &Arc<Self>, operation: Operation) -> Result<Ready> {
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
        let mut env = self.choose_device(&wanted, &operation.device)?.clone();
        if is_op && let Some(device) = self.keeper(&view, &env, &operation.name, &arguments) {
            let Some(keeper) = self.session.env_on(device) else {
                bail!(
                    InvalidArgument,
                    "{} on {} uses a resource of {device}: run it there, or in a function",
                    operation.name,
                    env.device.name()
                )
            };
            env = keeper.clone();
        }
        let plan = if is_op {
            self.op_plan(&view, &env, &operation, &arguments).await?
        } else {
            self.function_plan(&view, &env, &operation, &arguments).await?
        };
        Ok(Ready { context: self.clone(), view, env, plan, arguments, id: operation.id, is_op })
    }

    /// The device that keeps the resource that an op uses, if it is not the one that was asked for.
    fn keeper<'a>(
        &self,
        view: &View,
        asked: &RuntimeEnv,
        op: &str,
        arguments: &'a [Argument],
    ) -> Option<&'a str> {
        let declared = asked.registry.get(op)?.op.inputs;
        let devices = declared.iter().zip(arguments).filter_map(|(declared, argument)| match argument {
            // Others only pass handles on.
            _ if !declared.ends_with(": resource") => None,
            Argument::Here(tensor) => resource_device(tensor),
            Argument::There(handle) => Some(handle.device.as_str()),
            Argument::Packed(_) => None,
        });
        let mut known = devices.filter(|device| view.incarnations.contains_key(*device));
        known.find(|device| *device != asked.device.name())
    }

    async fn op_plan(
        &self,
        view: &View,
        env: &Arc<RuntimeEnv>,
        operation: &Operation,
        arguments: &[Argument],
    ) -> Result<Arc<CallPlan>> {
        let types = arguments.iter().map(argument_type).collect::<Result<Vec<DType>>>()?;
        let make = || -> Result<Arc<CallPlan>> {
            let planned = plan_op(&node_def(operation, env.device.name()), &types, env)?;
            let local = LocalPart::whole(Executable::standalone(planned, env)?);
            Ok(Arc::new(CallPlan::new(local, Vec::new(), Vec::new(), &self.account)?))
        };
        // The name of a transfer is in its attributes, and never comes again.
        if matches!(
            env.registry.get(&operation.name).map(|entry| entry.op.class),
            Some(OpClass::Send | OpClass::Recv)
        ) {
            return make().map_err(without_node);
        }
        let types = types.iter().map(|dtype| dtype.to_wire() as u32);
        let signature = signature(operation, env.device.name(), types);
        let cell = view.plans.get(signature, &operation.name, &self.account)?;
        match cell.get() {
            Some(plan) => Ok(plan.clone()),
            None => cell.get_or_try_init(async || make().map_err(without_node)).await.cloned(),
        }
    }

    /// Brings a value of another task here.
    async fn fetch(&self, view: &View, env: &RuntimeEnv, handle: RemoteTensorHandle) -> Result<Tensor> {
        let (from, to) = (handle.device.clone(), env.device.name());
        let Some(peer) = view.session.peers().of_device(&from).cloned() else {
            bail!(InvalidArgument, "{from} unknown device.")
        };
        let incarnation = view.incarnations.get(&from).copied().unwrap_or_default();
        let edge = format!("copy_{:016x}", random()?);
        let key = RendezvousKey::new(&from, incarnation, to, &edge);
        let text = |text: &str| Value::S(text.as_bytes().to_vec().into());
        let attrs = [
            ("T", Value::Type(handle.dtype)),
            ("tensor_name", text(&edge)),
            ("send_device", text(&from)),
            ("send_device_incarnation", Value::I(incarnation as i64)),
            ("recv_device", text(to)),
            ("client_terminated", Value::B(false)),
        ];
        let attrs = attrs.map(|(name, value)| (name.to_owned(), AttrValue { value: Some(value) }));
        let send = eager::Operation {
            id: -1,
            name: "_Send".to_owned(),
            op_inputs: vec![remote_input(&handle)],
            attrs: attrs.into_iter().collect(),
            device: from,
            ..Default::default()
        };
        let sending = async {
            peer.eager().enqueue(self.id, vec![eager::queue_item::Item::Operation(send)]).await.map(drop)
        };
        let receiving = async { Ok(view.rendezvous.recv(&key).await?.tensor) };
        let both = async { try_join(sending, receiving).await.map(|((), tensor)| tensor) };
        self.until_ended(both).await
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
            self.handles.keep(HandleName { op: id, output }, KeptValue::Tensor(tensor), 0)?;
        }
        Ok(Outcome { shapes, ..Outcome::default() })
    }

    /// Where the inputs of an operation are.
    pub(super) fn arguments(&self, view: &View, inputs: &[Input]) -> Result<Vec<Argument>> {
        let argument = |input: &Input| match input {
            Input::Tensor(tensor) => Ok(Argument::Here(tensor.clone())),
            Input::Handle(handle) => self.find(view, handle),
        };
        inputs.iter().map(argument).collect()
    }

    fn find(&self, view: &View, handle: &RemoteTensorHandle) -> Result<Argument> {
        let is_here = |device: &str| self.session.env_on(device).is_some();
        if is_here(&handle.op_device) || is_here(&handle.device) {
            let name = HandleName { op: handle.op_id, output: handle.output_num };
            return Ok(match self.handles.get(name)? {
                KeptValue::Tensor(tensor) => Argument::Here(tensor),
                KeptValue::Packed(packed) => Argument::Packed(packed),
            });
        }
        let device = if handle.op_device.is_empty() { &handle.device } else { &handle.op_device };
        let known = view.incarnations.contains_key(device);
        ensure!(known, InvalidArgument, "{device} unknown device.");
        Ok(Argument::There(RemoteTensorHandle { device: device.clone(), ..handle.clone() }))
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

/// The element type of an input.
pub(super) fn argument_type(argument: &Argument) -> Result<DType> {
    match argument {
        Argument::Here(tensor) => Ok(tensor.dtype()),
        Argument::There(handle) => DType::from_wire(handle.dtype),
        Argument::Packed(packed) => Ok(packed.dtype),
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

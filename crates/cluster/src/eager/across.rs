//! Functions, on one device or across tasks.
//!
//! The task that is asked plans the function once: ops go where their resources are, the rest stays here. What belongs to
//! other tasks is registered there as *component functions*, whose arguments are values that those tasks keep. A step
//! runs all parts side by side under one number, and tensors cross between them as in steps of sessions.

use super::api::{HandleName, Operation, Outcome, Registrar};
use super::context::{Context, View};
use super::execute::{Argument, argument_type, resource_device, signature};
use super::functions::Component;
use super::handles::{KeptValue, PackedValue};
use super::plans::{CallPlan, LocalPart};
use crate::random;
use crate::spec::TaskName;
use crate::transport::client::RemoteWorker;
use crate::transport::direct::{LinkHandle, RunPart};
use crate::worker::{WorkerSession, WorkerStep};
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{NodeData, Output};
use ferroflow_core::op::{AttrKind, OpClass};
use ferroflow_core::{DType, Result, Shape, Status, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::eager::{self, RemoteTensorHandle};
use ferroflow_proto::tensorflow::{FunctionDefLibrary, TensorShapeProto};
use ferroflow_runtime::plan::partition::{Borders, Part, Parts, partition};
use ferroflow_runtime::plan::place::Placer;
use ferroflow_runtime::plan::{Call, PackedArg, Planned, plan_component};
use ferroflow_runtime::{Executable, RuntimeEnv};
use futures_util::future::{BoxFuture, Either, join_all, select, try_join_all};
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt, StreamExt};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// Time to wait for the failure that caused the one at hand.
const CAUSE_WAIT: Duration = Duration::from_secs(2);

/// A part of a function that another task has registered.
pub(super) struct RemotePart {
    peer: Arc<RemoteWorker>,
    context: u64,
    context_end: Cancellation,
    device: String,
    function: String,
    /// The numbers of the arguments that it takes.
    args: Vec<usize>,
    /// The numbers of the results that stay there.
    pub(super) results: Vec<usize>,
    /// Whether its tensors go to this task only.
    sends_only_here: bool,
    /// Whether its task has no other part. A direct connection knows the parts of a step by its number alone.
    is_alone: bool,
}

/// A function that was cut: parts of this task, and definitions for others.
struct Cut {
    local: LocalPart,
    beside: Vec<LocalPart>,
    remote: Vec<(RemotePart, eager::RegisterFunctionOp)>,
}

/// A result of a function.
enum FunctionResult {
    /// A value of this task, and its device.
    Here(String, Tensor),
    /// A value that another task keeps.
    There(String, Shape),
}

/// Results with their numbers.
type NumberedResults = Vec<(usize, FunctionResult)>;

impl Context {
    /// The plan of a function that the client has registered.
    pub(super) async fn function_plan(
        self: &Arc<Self>,
        view: &Arc<View>,
        env: &Arc<RuntimeEnv>,
        operation: &Operation,
        arguments: &[Argument],
    ) -> Result<Arc<CallPlan>> {
        let mut key = signature(operation, env.device.name(), std::iter::empty());
        // Results that the client wants in the answer come here.
        key.push(u8::from(operation.id < 0));
        let (mut devices, mut packed) = (Vec::with_capacity(arguments.len()), Vec::new());
        for (number, argument) in arguments.iter().enumerate() {
            let device = match argument {
                Argument::Here(tensor) => {
                    // What uses a resource runs where it is, wherever its handle is.
                    let keeper =
                        resource_device(tensor).filter(|device| view.incarnations.contains_key(*device));
                    keeper.unwrap_or(env.device.name())
                }
                Argument::There(handle) => &handle.device,
                Argument::Packed(values) => {
                    let devices: Vec<String> = values.values.iter().map(PackedValue::device).collect();
                    for device in &devices {
                        key.push(1);
                        key.extend(device.as_bytes());
                    }
                    packed.push(PackedArg { number, devices });
                    env.device.name()
                }
            };
            key.push(0);
            key.extend(device.as_bytes());
            devices.push(device.to_owned());
        }
        let cell = view.plans.get(key, &operation.name, &self.account)?;
        let plan = match cell.get() {
            Some(plan) => plan.clone(),
            None => {
                let make = || Box::pin(self.instantiate(view, env, operation, devices, packed));
                cell.get_or_try_init(make).await?.clone()
            }
        };
        check_types(&operation.name, &plan, arguments)?;
        Ok(plan)
    }

    /// Runs a function.
    pub(super) async fn run_function(
        self: &Arc<Self>,
        view: &Arc<View>,
        plan: &CallPlan,
        env: &Arc<RuntimeEnv>,
        id: i64,
        mut arguments: Vec<Argument>,
    ) -> Result<Outcome> {
        unpack(&mut arguments);
        if plan.remote.is_empty() && plan.beside.is_empty() {
            let cancellation = self.cancellation.clone();
            let step = WorkerSession::step_cx(env, self.id as i64, view.rendezvous.clone(), cancellation);
            let outputs =
                plan.local.executable.start_call(own_values(&arguments), step)?.near_caller().await?;
            let outcome = self.keep_outputs(id, None, outputs)?;
            let devices = vec![self.told_device(env.device.name()); outcome.shapes.len()];
            return Ok(Outcome { devices, ..outcome });
        }
        let results = Box::pin(self.run_parts(view, plan, id, &arguments)).await?;
        let mut outcome = Outcome::default();
        for (output, result) in (0..).zip(results) {
            let (device, shape) = match result {
                FunctionResult::Here(_, tensor) if id < 0 => {
                    outcome.tensors.push(tensor);
                    continue;
                }
                FunctionResult::Here(device, tensor) => {
                    let shape = tensor.shape().clone();
                    self.handles.keep(HandleName { op: id, output }, KeptValue::Tensor(tensor), 0)?;
                    (self.told_device(&device), shape)
                }
                FunctionResult::There(device, shape) => (device, shape),
            };
            outcome.devices.push(device);
            outcome.shapes.push(shape);
        }
        Ok(outcome)
    }

    /// The name of a device of this task as clients hear it with a result: none for the memory of the host.
    fn told_device(&self, device: &str) -> String {
        if device == self.session.env().device.name() { String::new() } else { device.to_owned() }
    }

    /// Plans a function and has other tasks register their parts.
    async fn instantiate(
        self: &Arc<Self>,
        view: &Arc<View>,
        env: &Arc<RuntimeEnv>,
        operation: &Operation,
        arg_devices: Vec<String>,
        packed: Vec<PackedArg>,
    ) -> Result<Arc<CallPlan>> {
        let (context, view, env) = (self.clone(), view.clone(), env.clone());
        let (name, attrs) = (operation.name.clone(), operation.attrs.clone());
        let keep_results = operation.id >= 0;
        let pool = env.pool.clone();
        // Planning takes a while, so not on a thread that answers calls.
        let cut = async move {
            let definition = env.library().get(&name).cloned();
            let definition =
                definition.ok_or_else(|| status!(NotFound, "Function {name} is not defined."))?;
            let default = view.devices.iter().position(|device| device == env.device.spec());
            let placer = Placer {
                devices: &view.devices,
                default: default.ok_or_else(|| status!(Internal, "a context lacks its own device"))?,
                soft: true,
                inline_calls: true,
            };
            let (arg_devices, packed) = (&arg_devices, &packed);
            let call = Call {
                name: &name,
                definition: &definition,
                attrs: &attrs,
                arg_devices,
                packed,
                keep_results,
            };
            let planned = call.plan(&placer, &env)?;
            context.cut(&view, &env, &name, planned)
        };
        let Cut { local, beside, remote } = pool.complete(cut).await?;
        let registrar = &Registrar { task: self.session.task().to_string(), number: self.registrar };
        let registering = remote.into_iter().map(|(part, function)| async move {
            part.peer.register_component(self.id, registrar, function).await?;
            Ok(part)
        });
        let remote = try_join_all(registering).await?;
        Ok(Arc::new(CallPlan::new(local, beside, remote, &self.account)?))
    }

    fn cut(&self, view: &View, env: &Arc<RuntimeEnv>, name: &str, planned: Planned) -> Result<Cut> {
        let incarnation = |device: &str| view.incarnations.get(device).copied().unwrap_or_default();
        let borders = Borders {
            client: env.device.name(),
            incarnation: &incarnation,
            next_id: &self.next_edge,
            bfloat16: false,
        };
        let Parts { local, local_fetches, remote: parts } = partition(planned, &borders)?;
        let (mut beside, mut remote) = (Vec::new(), Vec::new());
        let number = random()?;
        for (index, part) in parts.into_iter().enumerate() {
            if let Some(env) = view.session.env_on(&part.device) {
                let results = part.fetches.iter().map(|(number, _)| *number).collect();
                let executable = Executable::standalone(local.beside(part), env)?;
                beside.push(LocalPart { executable, results });
                continue;
            }
            let Some(peer) = view.session.peers().of_device(&part.device).cloned() else {
                bail!(InvalidArgument, "{} unknown device.", part.device)
            };
            let function = format!("{name}_partitioned_{number}_{index}");
            let sends_only_here = sends_only_to(&view.session, &part, peer.task());
            remote.push(self.component(peer, part, function, sends_only_here)?);
        }
        let peers: Vec<_> = remote.iter().map(|(part, _)| Arc::as_ptr(&part.peer)).collect();
        for (part, _) in &mut remote {
            part.is_alone = peers.iter().filter(|peer| **peer == Arc::as_ptr(&part.peer)).count() == 1;
        }
        let local = LocalPart { executable: Executable::standalone(local, env)?, results: local_fetches };
        Ok(Cut { local, beside, remote })
    }

    /// A part for another task, and its definition.
    fn component(
        &self,
        peer: Arc<RemoteWorker>,
        part: Part,
        function: String,
        sends_only_here: bool,
    ) -> Result<(RemotePart, eager::RegisterFunctionOp)> {
        let Part { device, graph, fetches } = part;
        let (results, outputs): (Vec<usize>, Vec<Output>) = fetches.into_iter().unzip();
        let (definition, args) = graph.to_component(&function, &outputs)?;
        let calls = graph.nodes().iter().any(|node| names_function(&node.data));
        let library = if calls { graph.library().to_proto() } else { FunctionDefLibrary::default() };
        let register = eager::RegisterFunctionOp {
            function_def: Some(definition),
            is_component_function: true,
            library: Some(library),
        };
        let part = RemotePart {
            peer,
            context: self.id,
            context_end: self.cancellation.clone(),
            device,
            function,
            args,
            results,
            sends_only_here,
            is_alone: false,
        };
        Ok((part, register))
    }

    /// Runs the parts of a function side by side.
    async fn run_parts(
        &self,
        view: &View,
        plan: &CallPlan,
        id: i64,
        arguments: &[Argument],
    ) -> Result<Vec<FunctionResult>> {
        // Numbers of functions' steps are negative, as in stock.
        let step = self.worker.step((random()? | 1 << 63) as i64);
        step.belongs_to(&self.session);
        let mut call = Step { context: self, step: &step, plan, links: Vec::new() };
        call.links = self.links(plan, &step).await;
        let rendezvous = step.rendezvous(&view.session);
        let mut ends: FuturesUnordered<BoxFuture<'_, Result<NumberedResults>>> = FuturesUnordered::new();
        for (part, link) in plan.remote.iter().zip(&call.links) {
            let request = self.component_request(part, id, arguments, step.id())?;
            let (step, caller) = (step.id(), view.session.task());
            let answered = async move {
                let answer = match link {
                    Some(link) => {
                        let run = RunPart {
                            request: None,
                            caller: caller.to_string(),
                            master_only: part.sends_only_here,
                            component: Some(request),
                        };
                        part.peer.run_component_directly(link, run, step).await?
                    }
                    None => part.peer.eager().run_component(&request).await?,
                };
                part.results_in(&answer)
            };
            ends.push(match self.part_limit {
                None => answered.boxed(),
                Some(limit) => self.within(limit, part, answered.boxed()).boxed(),
            });
        }
        // The others first, so that requests leave before the part of this task occupies the thread.
        for LocalPart { executable, results } in [&plan.local].into_iter().chain(&plan.beside) {
            let env = executable.env();
            let (rendezvous, cancellation) = (rendezvous.clone(), step.cancellation().clone());
            let cx = WorkerSession::step_cx(env, step.id(), rendezvous, cancellation);
            let run = executable.start_call(own_values(arguments), cx)?.near_caller();
            let device = env.device.name();
            let here = |tensor| FunctionResult::Here(device.to_owned(), tensor);
            let run = async move {
                run.await.map(|outputs| results.iter().copied().zip(outputs.into_iter().map(here)).collect())
            };
            ends.push(run.boxed());
        }
        let mut results: NumberedResults = Vec::with_capacity(plan.result_count());
        let failure = loop {
            match ends.next().await {
                None => break None,
                Some(Ok(done)) => results.extend(done),
                Some(Err(failure)) => break Some(failure),
            }
        };
        let Some(failure) = failure else {
            results.sort_by_key(|(number, _)| *number);
            return Ok(results.into_iter().map(|(_, result)| result).collect());
        };
        // What the step does here ends, and with it what peers wait for from here.
        step.abort(failure.clone().derived());
        // Nobody will ask for what other tasks have kept by now.
        for part in plan.remote.iter().filter(|_| id >= 0) {
            let mut kept =
                part.results.iter().filter(|number| results.iter().any(|(done, _)| done == *number));
            if kept.next().is_some() {
                part.peer.release_results(self.id, id, part.results.clone());
            }
        }
        if !failure.is_derived() {
            return Err(failure);
        }
        let cause = async {
            while let Some(end) = ends.next().await {
                if let Err(error) = end
                    && !error.is_derived()
                {
                    return Some(error);
                }
            }
            None
        };
        match select(pin!(cause), pin!(self.worker.sleep(CAUSE_WAIT))).await {
            Either::Left((Some(cause), _)) => Err(cause),
            _ => Err(failure),
        }
    }

    /// Waits for a part of another task for as long as the client lets its operations take.
    async fn within<T>(
        &self,
        limit: Duration,
        part: &RemotePart,
        running: impl Future<Output = Result<T>> + Unpin,
    ) -> Result<T> {
        match select(running, pin!(self.worker.sleep(limit))).await {
            Either::Left((done, _)) => done,
            Either::Right(_) => Err(status!(
                DeadlineExceeded,
                "Deadline Exceeded: {} takes longer on {} than the client's operation_timeout_in_ms, {}",
                part.function,
                part.device,
                limit.as_millis()
            )),
        }
    }

    /// Direct connections to the tasks of other parts that take them.
    async fn links(&self, plan: &CallPlan, step: &WorkerStep) -> Vec<Option<Arc<LinkHandle>>> {
        let links = plan.remote.iter().map(|part| async {
            if !part.is_alone {
                return None;
            }
            let worker = Arc::downgrade(&self.worker);
            let deliver = move |step, key, parcel| {
                if let Some(worker) = worker.upgrade() {
                    worker.deliver(step, &key, parcel);
                }
            };
            part.peer.link(step.id(), deliver).await
        });
        let links = join_all(links).await;
        let linked = plan.remote.iter().zip(&links);
        let linked =
            linked.filter_map(|(part, link)| Some((part.peer.task().to_string(), link.as_ref()?.link())));
        step.connect(linked.collect());
        links
    }

    fn component_request(
        &self,
        part: &RemotePart,
        id: i64,
        arguments: &[Argument],
        step: i64,
    ) -> Result<eager::RunComponentFunctionRequest> {
        let input = |number: &usize| match arguments.get(*number) {
            Some(Argument::There(handle)) => Ok(remote_input(handle)),
            Some(Argument::Here(tensor)) => {
                let item = eager::operation::input::Item::Tensor(tensor.to_proto()?);
                Ok(eager::operation::Input { item: Some(item) })
            }
            _ => Err(status!(Internal, "argument {number} of {} is not on its task", part.function)),
        };
        Ok(eager::RunComponentFunctionRequest {
            context_id: self.id,
            operation: Some(eager::Operation {
                id,
                name: part.function.clone(),
                op_inputs: part.args.iter().map(input).collect::<Result<_>>()?,
                device: part.device.clone(),
                is_component_function: true,
                func_step_id: step,
                is_function: true,
                ..Default::default()
            }),
            output_num: part.results.iter().map(|number| *number as i32).collect(),
        })
    }

    /// Runs a part of a function that another task has cut. Without numbers its outputs count from 0.
    pub(super) async fn run_component(
        self: &Arc<Self>,
        operation: Operation,
        outputs: Option<Vec<i32>>,
    ) -> Result<Outcome> {
        ensure!(
            operation.is_function && operation.is_component,
            Internal,
            "RunComponentFunction request can only be used to execute component functions."
        );
        let component = self.functions.component(&operation.name)?;
        let view = self.view();
        let wanted = DeviceSpec::parse(&operation.device)?;
        let env = self.choose_device(&wanted, &operation.device)?;
        let arguments = self.arguments(&view, &operation.inputs)?;
        ensure!(
            arguments.iter().all(|argument| matches!(argument, Argument::Here(_))),
            Unimplemented,
            "{} takes values of other tasks, which a part of a function does not",
            operation.name
        );
        let is_elsewhere = |argument: &Argument| match argument {
            Argument::Here(tensor) => resource_device(tensor).is_some_and(|device| {
                view.incarnations.contains_key(device) && self.session.env_on(device).is_none()
            }),
            Argument::There(_) | Argument::Packed(_) => false,
        };
        if arguments.iter().any(is_elsewhere) {
            return Box::pin(self.run_cut_component(&view, env, &component, operation, arguments, outputs))
                .await;
        }
        let key = signature(&operation, env.device.name(), std::iter::once(u32::MAX));
        let cell = view.plans.get(key, &operation.name, &self.account)?;
        let make = async || {
            let (attrs, account) = (operation.attrs.clone(), self.account.clone());
            let (pool, env) = (env.pool.clone(), env.with_library(component.library.clone()));
            let component = component.clone();
            let plan = async move {
                let planned = plan_component(&component.definition, &attrs, &env)?;
                let local = LocalPart::whole(Executable::standalone(planned, &env)?);
                Ok(Arc::new(CallPlan::new(local, Vec::new(), Vec::new(), &account)?))
            };
            pool.complete(plan).await
        };
        let plan = match cell.get() {
            Some(plan) => plan.clone(),
            None => Box::pin(cell.get_or_try_init(make)).await?.clone(),
        };
        check_types(&operation.name, &plan, &arguments)?;
        let step = self.worker.step(operation.step);
        step.belongs_to(&self.session);
        let guard = Abort { step: &step, done: false };
        let cx = WorkerSession::step_cx(
            env,
            step.id(),
            step.rendezvous(&view.session),
            step.cancellation().clone(),
        );
        let done = plan.local.executable.start_call(own_values(&arguments), cx)?.near_caller().await;
        guard.end(&done);
        self.keep_outputs(operation.id, outputs, done?)
    }

    /// Runs a function that a `RemoteCall` of another task has registered as a part, although it uses resources of
    /// other tasks: it is cut like a function of a client.
    async fn run_cut_component(
        self: &Arc<Self>,
        view: &Arc<View>,
        env: &Arc<RuntimeEnv>,
        component: &Component,
        operation: Operation,
        arguments: Vec<Argument>,
        outputs: Option<Vec<i32>>,
    ) -> Result<Outcome> {
        let own = FunctionDefLibrary { function: vec![component.definition.clone()], ..Default::default() };
        let env = env.with_library(Arc::new(component.library.with(&own, &env.registry)?));
        let id = operation.id;
        let operation = Operation { id: -1, ..operation };
        let plan = self.function_plan(view, &env, &operation, &arguments).await?;
        let done = self.run_function(view, &plan, &env, -1, arguments).await?;
        self.keep_outputs(id, outputs, done.tensors)
    }
}

/// A step of a function under way. Dropping it ends the step here and tells the other tasks.
struct Step<'a> {
    context: &'a Context,
    step: &'a Arc<WorkerStep>,
    plan: &'a CallPlan,
    /// Direct connections of the other parts; empty until their tasks know of the step.
    links: Vec<Option<Arc<LinkHandle>>>,
}

impl Drop for Step<'_> {
    fn drop(&mut self) {
        let id = self.step.id();
        self.context.worker.cleanup_step(id);
        for (part, link) in self.plan.remote.iter().zip(&self.links) {
            match link {
                // The step ends there with its part.
                Some(_) if part.sends_only_here => {}
                Some(link) if link.forget(id).is_ok() => {}
                _ => part.peer.forget_function_step(self.context.id, id),
            }
        }
    }
}

/// Ends a step at this task if the call that runs it fails or is given up, so that nobody waits for its tensors.
struct Abort<'a> {
    step: &'a WorkerStep,
    done: bool,
}

impl Abort<'_> {
    fn end<T>(mut self, done: &Result<T>) {
        self.done = true;
        if let Err(error) = done {
            self.step.abort(error.clone());
        }
    }
}

impl Drop for Abort<'_> {
    fn drop(&mut self) {
        if !self.done {
            self.step.abort(status!(Cancelled, "Step {} was given up by its caller.", self.step.id()));
        }
    }
}

/// Whether a node calls a function, or may have one called.
fn names_function(data: &NodeData) -> bool {
    let has_function =
        || data.spec().is_some_and(|spec| spec.attrs.iter().any(|attr| attr.kind == AttrKind::Func));
    data.class() == OpClass::Call || has_function()
}

/// Whether the tensors of a part that another task runs go to this task only.
fn sends_only_to(session: &WorkerSession, part: &Part, there: &TaskName) -> bool {
    let there = format!("{there}/device:");
    let sends = part.graph.nodes().iter().filter(|node| node.data.class() == OpClass::Send);
    let mut targets = sends.map(|node| node.data.attrs.get::<String>("recv_device"));
    targets.all(|target| {
        target.is_ok_and(|target| session.env_on(&target).is_some() || target.starts_with(&there))
    })
}

impl Drop for RemotePart {
    /// Has the other task forget the part. With the context everything ends there, too.
    fn drop(&mut self) {
        if !self.context_end.is_cancelled() {
            self.peer.forget_component(self.context, std::mem::take(&mut self.function));
        }
    }
}

impl RemotePart {
    /// The results that its task has kept.
    fn results_in(&self, answer: &eager::RunComponentFunctionResponse) -> Result<NumberedResults> {
        ensure!(
            answer.shape.len() == self.results.len(),
            Internal,
            "{} has kept {} results of {}, which has {}",
            self.device,
            answer.shape.len(),
            self.function,
            self.results.len()
        );
        let result = |(number, shape): (&usize, &TensorShapeProto)| {
            Ok((*number, FunctionResult::There(self.device.clone(), Shape::from_proto(shape)?)))
        };
        self.results.iter().zip(&answer.shape).map(result).collect()
    }
}

/// Puts the values of arguments that several devices hold behind the arguments.
fn unpack(arguments: &mut Vec<Argument>) {
    for number in 0..arguments.len() {
        let Argument::Packed(packed) = &arguments[number] else { continue };
        for value in &packed.clone().values {
            arguments.push(match value {
                PackedValue::Here(_, tensor) => Argument::Here(tensor.clone()),
                PackedValue::There(handle) => Argument::There(handle.clone()),
            });
        }
    }
}

pub(super) fn remote_input(handle: &RemoteTensorHandle) -> eager::operation::Input {
    eager::operation::Input { item: Some(eager::operation::input::Item::RemoteHandle(handle.clone())) }
}

/// The arguments that are here.
fn own_values(arguments: &[Argument]) -> Vec<Option<Tensor>> {
    let value = |argument: &Argument| match argument {
        Argument::Here(tensor) => Some(tensor.clone()),
        Argument::There(_) | Argument::Packed(_) => None,
    };
    arguments.iter().map(value).collect()
}

/// Checks the types of a function's arguments, in stock's words.
fn check_types(name: &str, plan: &CallPlan, arguments: &[Argument]) -> Result<()> {
    for (index, (argument, want)) in arguments.iter().zip(plan.local.executable.arg_types()).enumerate() {
        let have = argument_type(argument)?;
        if have != *want {
            return Err(wrong_type(name, index, *want, have));
        }
    }
    Ok(())
}

fn wrong_type(name: &str, index: usize, want: DType, have: DType) -> Status {
    status!(
        InvalidArgument,
        "cannot compute {name} as input #{index}(zero-based) was expected to be a {want} tensor but is a {have} tensor"
    )
}

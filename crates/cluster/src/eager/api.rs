//! The eager service as a trait, in Ferroflow's own types.

use crate::spec::{ClusterSpec, TaskName};
use ferroflow_core::{DType, Result, Shape, Tensor};
use ferroflow_proto::tensorflow::eager::RemoteTensorHandle;
use ferroflow_proto::tensorflow::{
    AttrValue, CoordinationServiceConfig, DeviceAttributes, FunctionDef, FunctionDefLibrary,
};
use std::collections::BTreeMap;
use std::time::Duration;

/// The cluster as a client sees it.
#[derive(Clone, Debug)]
pub struct ClientCluster {
    /// The client's name for the task that it speaks to.
    pub own: TaskName,
    /// All tasks, the client's own among them.
    pub cluster: ClusterSpec,
    /// The devices that the task may see.
    pub devices: Vec<DeviceAttributes>,
}

/// A context that a client wants: the state of one client on one task.
#[derive(Clone, Debug)]
pub struct NewContext {
    /// Identifies the context on all tasks of the client.
    pub id: u64,
    /// Which of the client's clusters it belongs to: grows whenever the cluster changes.
    pub view: u64,
    /// The cluster; none if the client knows this task alone, by its own name.
    pub cluster: Option<ClientCluster>,
    /// Whether operations without outputs are answered before they are done.
    pub is_async: bool,
    /// Configuration of the coordination service, if the client has one.
    pub coordination: Option<CoordinationServiceConfig>,
    /// The longest time that a part of a function may take on another task.
    pub part_limit: Option<Duration>,
    /// After how long without any call it ends.
    pub keep_alive: Duration,
    /// Whether all other contexts end first.
    pub clear_existing: bool,
}

/// A change of a client's cluster.
#[derive(Clone, Debug)]
pub struct ContextUpdate {
    /// The context.
    pub id: u64,
    /// The new view, one more than the current one.
    pub view: u64,
    /// The new cluster; none if only the view changes.
    pub cluster: Option<ClientCluster>,
}

/// A value that a context keeps: the output of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HandleName {
    /// The operation.
    pub op: i64,
    /// Which of its outputs.
    pub output: i32,
}

/// An input of an operation.
#[derive(Clone, Debug)]
pub enum Input {
    /// A value that this task or another one keeps.
    Handle(RemoteTensorHandle),
    /// The value itself.
    Tensor(Tensor),
}

impl Input {
    /// The element type, as far as the client says it.
    pub fn dtype(&self) -> Result<DType> {
        match self {
            Input::Handle(handle) => DType::from_wire(handle.dtype),
            Input::Tensor(tensor) => Ok(tensor.dtype()),
        }
    }
}

/// An op or a function to run.
#[derive(Clone, Debug, Default)]
pub struct Operation {
    /// Names the outputs; −1 if the client wants them instead.
    pub id: i64,
    /// The op's type or the function's name.
    pub name: String,
    /// Attributes that the client gives.
    pub attrs: BTreeMap<String, AttrValue>,
    /// Where it runs.
    pub device: String,
    /// Its inputs.
    pub inputs: Vec<Input>,
    /// Whether the name is that of a function.
    pub is_function: bool,
    /// Whether it is a part of a function that another task has cut.
    pub is_component: bool,
    /// The step that the parts of a function share.
    pub step: i64,
}

/// One of several values that a function takes as one argument.
#[derive(Clone, Debug)]
pub enum PackedPart {
    /// A value that this task or another one keeps.
    Handle(RemoteTensorHandle),
    /// The value itself, and the device that it belongs to.
    Tensor(Tensor, String),
}

/// The rest of a function that is a part of another one.
#[derive(Clone, Debug)]
pub struct NewComponent {
    /// The functions that it calls.
    pub library: FunctionDefLibrary,
    /// The context that will run it, if its task is Ferroflow's.
    pub registrar: Option<Registrar>,
}

/// A context of another task that registers parts of functions here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registrar {
    /// The task.
    pub task: String,
    /// Tells the context from those that the task had before it, or before the task was started again.
    pub number: u64,
}

/// One thing to do in a context.
#[derive(Clone, Debug)]
pub enum Item {
    /// Nothing.
    Nothing,
    /// Run an op or a function.
    Operation(Operation),
    /// Keep values as the outputs of an operation.
    SendTensor {
        /// The operation.
        op: i64,
        /// Its outputs.
        tensors: Vec<Tensor>,
        /// Where they are kept.
        device: String,
    },
    /// Keep values of several devices as one output of an operation.
    SendPackedHandle {
        /// The operation.
        op: i64,
        /// The values.
        parts: Vec<PackedPart>,
    },
    /// Let go of a value.
    Release(HandleName),
    /// Make a function known.
    RegisterFunction {
        /// The function.
        definition: Box<FunctionDef>,
        /// Of a part of a function.
        component: Option<NewComponent>,
    },
    /// Forget a function.
    RemoveFunction(String),
    /// End what a step of a function has left.
    CleanupFunction(i64),
    /// Wait for what came before on the same stream.
    Sync,
}

/// The answer to one item.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Shapes of the outputs that are kept.
    pub shapes: Vec<Shape>,
    /// Devices of a function's outputs; empty for the host's memory.
    pub devices: Vec<String>,
    /// Outputs that the client wants.
    pub tensors: Vec<Tensor>,
}

/// The eager service of a task. Dropping a future gives up the call, and its work stops.
pub trait EagerApi: Send + Sync + 'static {
    /// Opens a context; returns the task's devices.
    fn create_context(
        &self,
        context: NewContext,
    ) -> impl Future<Output = Result<Vec<DeviceAttributes>>> + Send;

    /// Changes the cluster of a context; returns the task's devices if it changed.
    fn update_context(&self, update: ContextUpdate) -> Result<Vec<DeviceAttributes>>;

    /// Keeps a context from expiring; returns its view.
    fn keep_alive(&self, context: u64) -> Result<u64>;

    /// Ends a context unless it belongs to a later view; one that is not known is fine.
    fn close_context(&self, context: u64, view: u64);

    /// Waits until everything in a context is done; fails if something has failed that nobody was told of.
    fn wait_queue_done(&self, context: u64, ops: &[i64]) -> impl Future<Output = Result<()>> + Send;

    /// Does one thing after the other until one fails. Items are asked for when it is their turn. Those of a stream
    /// do not wait for others.
    fn enqueue(
        &self,
        context: u64,
        items: impl Iterator<Item = Result<Item>> + Send,
        on_stream: bool,
    ) -> impl Future<Output = Result<Vec<Outcome>>> + Send;

    /// Forgets parts of functions that the task that registered them will not run any more.
    fn forget_components(&self, context: u64, functions: &[String]) -> Result<()>;

    /// Runs a part of a function that another task has cut; its outputs get these numbers.
    fn run_component(
        &self,
        context: u64,
        operation: Operation,
        outputs: Vec<i32>,
    ) -> impl Future<Output = Result<Outcome>> + Send;
}

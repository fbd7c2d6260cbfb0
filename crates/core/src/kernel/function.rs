//! Functions as kernels see them: instantiated once, called in every step. The runtime crate implements both traits.

use crate::step::StepCx;
use crate::{BoxFuture, DType, Result, Tensor, bail};
use ferroflow_proto::tensorflow::{FunctionDefLibrary, GraphDef, NameAttrList};
use std::sync::Arc;

/// A function that is ready to be called.
pub trait Callable: Send + Sync {
    /// Runs the function within a step.
    fn call(self: Arc<Self>, arguments: Vec<Tensor>, step: Arc<StepCx>) -> BoxFuture<Result<Vec<Tensor>>>;

    /// Runs the function on another device, which may be another task's.
    fn call_on(
        self: Arc<Self>,
        device: String,
        _arguments: Vec<Tensor>,
        _step: Arc<StepCx>,
    ) -> BoxFuture<Result<Vec<Tensor>>> {
        let name = self.name().to_owned();
        Box::pin(async move { bail!(Unimplemented, "{name} cannot be called on {device} from here") })
    }

    /// The function's name, for messages.
    fn name(&self) -> &str;
}

/// The functions that a graph carries.
pub trait FunctionLibrary: Send + Sync {
    /// Finds a function and binds its attributes. Its body is planned on the first call, so functions may call
    /// themselves.
    fn instantiate(&self, function: &NameAttrList) -> Result<Arc<dyn Callable>>;

    /// Finds a function for a value that outlives the plan, such as a dataset. What the function calls is taken from
    /// the library as it is now, whatever happens to the graph later.
    fn capture(&self, function: &NameAttrList) -> Result<Arc<dyn CapturedFunction>>;

    /// Makes a function without arguments of a graph, which brings the functions that it calls. Its result is the
    /// output of this name, as node inputs spell it.
    fn capture_graph(&self, graph: GraphDef, output: &str) -> Result<Arc<dyn CapturedFunction>> {
        let nodes = graph.node.len();
        bail!(Unimplemented, "a graph of {nodes} nodes cannot be run for its output {output} here")
    }

    /// The gradient of a function: it takes the function's arguments and the gradients of its results, whose types are
    /// `inputs`, and returns the gradients of the arguments, of which there are `arguments`.
    fn instantiate_gradient(
        &self,
        function: &NameAttrList,
        inputs: &[DType],
        arguments: usize,
    ) -> Result<Arc<dyn Callable>> {
        let _ = (inputs, arguments);
        bail!(Unimplemented, "the gradient of {} cannot be made here", function.name)
    }
}

/// A function that does not depend on the plan it was found in.
pub trait CapturedFunction: Send + Sync {
    /// A new instance, with state of its own for the nodes within.
    fn instantiate(&self) -> Result<Arc<dyn Callable>>;

    /// The function with the values of its attributes.
    fn reference(&self) -> &NameAttrList;

    /// Definitions of the function and of everything that it calls.
    fn definitions(&self) -> FunctionDefLibrary;
}

/// A library without functions.
pub struct NoFunctions;

impl FunctionLibrary for NoFunctions {
    fn instantiate(&self, function: &NameAttrList) -> Result<Arc<dyn Callable>> {
        bail!(NotFound, "Function {} is not defined.", function.name)
    }

    fn capture(&self, function: &NameAttrList) -> Result<Arc<dyn CapturedFunction>> {
        bail!(NotFound, "Function {} is not defined.", function.name)
    }
}

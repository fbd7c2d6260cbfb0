//! Functions: looked up by name, planned on the first call, run as steps within a step.
//!
//! Each plan of a session has its own instances of the functions that it calls, one per name and attributes, however
//! many nodes call it. State of the nodes within, such as random streams, belongs to the instance, as in stock.

use crate::env::RuntimeEnv;
use crate::exec::turn::on_compute_thread;
use crate::executable::Executable;
use crate::plan::PlanOptions;
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::{FunctionBody, Library, NodeData, NodeKind};
use ferroflow_core::kernel::{Callable, CapturedFunction, FunctionLibrary, Kernel, Outputs};
use ferroflow_core::op::{OpClass, Registry, zeros_like};
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::scope::{FunctionGraph, Gradients, Graph, TensorSpec};
use ferroflow_core::step::StepCx;
use ferroflow_core::{BoxFuture, DType, PartialShape, Result, Status, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, FunctionDefLibrary, GraphDef, NameAttrList};
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// The depth of calls beyond which a recursion is taken for endless. Each call uses some of the thread's stack.
const MAX_CALL_DEPTH: usize = 200;

/// The functions that one plan calls. The plan owns them; kernels hold weak references, since a function may call
/// itself.
pub(crate) struct Functions {
    env: Arc<RuntimeEnv>,
    /// The function library at the time the plan was made.
    library: Arc<Library>,
    options: PlanOptions,
    /// Instances, by name and attributes, and by whether calls within are inlined.
    instances: Mutex<HashMap<(String, bool), Arc<FunctionInstance>>>,
    /// Gradients that were made of functions, by name and attributes, each with the functions that it calls.
    gradients: Mutex<HashMap<String, Arc<Functions>>>,
}

impl Functions {
    /// The functions that a new plan may call.
    pub(crate) fn new(env: &Arc<RuntimeEnv>, options: &PlanOptions) -> Arc<Functions> {
        Arc::new(Functions {
            env: env.clone(),
            library: env.library(),
            options: options.clone(),
            instances: Mutex::default(),
            gradients: Mutex::default(),
        })
    }

    /// The functions to be called by the gradient of a function, which is among them under the name [`GRADIENT`].
    fn of_gradient(
        &self,
        function: &NameAttrList,
        inputs: &[DType],
        arguments: usize,
    ) -> Result<Arc<Functions>> {
        let key = format!("{} {:?} {inputs:?}", function.name, function.attr);
        let mut gradients = self.gradients.lock().expect("no panic while gradients are locked");
        if let Some(known) = gradients.get(&key) {
            return Ok(known.clone());
        }
        let library = with_gradient(&self.env.registry, &self.library, function, inputs, arguments)?;
        let made = Arc::new(Functions {
            env: self.env.clone(),
            library: Arc::new(library),
            options: self.options.clone(),
            instances: Mutex::default(),
            gradients: Mutex::default(),
        });
        gradients.insert(key, made.clone());
        Ok(made)
    }

    /// The function library for the kernel of a node.
    pub(crate) fn for_node(self: &Arc<Self>, data: &NodeData) -> Arc<dyn FunctionLibrary> {
        let calls = matches!(data.kind, NodeKind::Function(_))
            || (data.class() == OpClass::Call && data.attrs.has("f"));
        // Without its optimizer, stock inlines calls in called functions, but not those in branches or loop bodies.
        let inlines = calls || self.options.optimize;
        Arc::new(PlanLibrary { functions: Arc::downgrade(self), inlines, calls })
    }
}

/// The name of a gradient in the library that is made for it.
const GRADIENT: &str = "__symbolic_gradient";

/// The name of the function that a whole graph is made to.
const GRAPH: &str = "__graph";

/// A library with the gradient of one of its functions: a function of the arguments and of the results' gradients.
fn with_gradient(
    registry: &Registry,
    library: &Library,
    function: &NameAttrList,
    inputs: &[DType],
    arguments: usize,
) -> Result<Library> {
    let graph = Graph::over(registry.clone());
    graph.import(&GraphDef { library: Some(library.to_proto()), ..Default::default() })?;
    let spec = |dtype: &DType| TensorSpec::new(*dtype, PartialShape::unknown());
    let specs = inputs.iter().map(spec).collect::<Result<Vec<_>>>()?;
    ensure!(arguments <= specs.len(), InvalidArgument, "len(inputs) < len(outputs)");
    let mut body = FunctionGraph::load(&graph.scope(), function, &specs[..arguments])?;
    ensure!(
        specs.len() - arguments == body.results.len(),
        InvalidArgument,
        "the gradient of {} takes {} gradients of results, not {}",
        function.name,
        body.results.len(),
        specs.len() - arguments
    );
    let mut grad_ys = Vec::new();
    for spec in &specs[arguments..] {
        grad_ys.push(Some(body.add_arg(spec)?.into()));
    }
    let (inner, xs) = (body.graph.scope(), body.args[..arguments].to_vec());
    let dxs = Gradients::new().grad_ys(grad_ys).build(&inner, &body.results, &xs)?;
    let dense = dxs.iter().zip(&xs).map(|(dx, x)| match dx {
        Some(dx) => dx.to_dense(&inner),
        None => zeros_like(&inner, x),
    });
    body.results = dense.collect::<Result<_>>()?;
    body.define(GRADIENT, &[])?;
    Library::default().with(&graph.to_graph_def().library.unwrap_or_default(), registry)
}

/// A function with its attributes bound.
struct FunctionInstance {
    name: String,
    definition: Arc<FunctionDef>,
    attrs: BTreeMap<String, AttrValue>,
    inlines: bool,
    functions: Weak<Functions>,
    executable: OnceLock<Result<Arc<Executable>>>,
}

impl FunctionInstance {
    fn executable(&self) -> Result<Arc<Executable>> {
        let plan = || {
            let functions = self.functions.upgrade().ok_or_else(|| gone(&self.name))?;
            let registry = &functions.env.registry;
            let body = FunctionBody::new(registry, &functions.library, &self.definition, &self.attrs)?;
            let name = self.inlines.then_some(self.name.as_str());
            Executable::from_function(body, name, &functions.env, &functions)
        };
        self.executable.get_or_init(plan).clone()
    }
}

/// A function as a kernel holds it.
struct FunctionHandle {
    name: String,
    /// True if the kernel is a call, false for a conditional or a loop.
    called: bool,
    /// True if arguments that the function does not have are dropped: datasets capture values only to keep them alive.
    drops_surplus: bool,
    instance: Weak<FunctionInstance>,
}

impl FunctionHandle {
    async fn run(&self, mut arguments: Vec<Tensor>, step: Arc<StepCx>) -> Result<Vec<Tensor>> {
        let depth = step.depth;
        ensure!(
            depth < MAX_CALL_DEPTH,
            ResourceExhausted,
            "function {} is called {depth} levels deep, which looks like infinite recursion",
            self.name
        );
        let instance = self.instance.upgrade().ok_or_else(|| gone(&self.name))?;
        if instance.executable.get().is_none() {
            // Planning may take long.
            on_compute_thread().await;
        }
        let executable = instance.executable()?;
        let (given, wanted) = (arguments.len(), executable.arg_count());
        if self.drops_surplus {
            arguments.truncate(wanted);
            if let Some(device) = self.elsewhere(&instance, &arguments) {
                return self.run_on(device, arguments).await;
            }
        }
        ensure!(
            given == wanted || !self.called,
            InvalidArgument,
            "InstantiateOptions.input_devices must have the same length as the number of arguments: input_devices \
                 length = {given} number of arguments = {wanted}"
        );
        executable.call(arguments, step.nested())?.await
    }

    /// The device of this function, if it has captured resources of others: what uses them runs there.
    fn elsewhere(&self, instance: &FunctionInstance, arguments: &[Tensor]) -> Option<String> {
        let functions = instance.functions.upgrade()?;
        let own = functions.env.device.name();
        let is_elsewhere = |argument: &Tensor| {
            let handles = match argument.dtype() {
                DType::Resource => argument.units::<ResourceHandle>().unwrap_or_default(),
                _ => &[],
            };
            handles.iter().any(|handle| !handle.device().is_empty() && handle.device() != own)
        };
        functions.env.others()?;
        arguments.iter().any(is_elsewhere).then(|| own.to_owned())
    }

    async fn run_on(&self, device: String, arguments: Vec<Tensor>) -> Result<Vec<Tensor>> {
        let instance = self.instance.upgrade().ok_or_else(|| gone(&self.name))?;
        let functions = instance.functions.upgrade().ok_or_else(|| gone(&self.name))?;
        let Some(others) = functions.env.others() else {
            bail!(
                Unimplemented,
                "RemoteCall of {} on {device} from {}: sessions support the calling device only",
                self.name,
                functions.env.device.name()
            )
        };
        let function = NameAttrList { name: self.name.clone(), attr: instance.attrs.clone() };
        others.call(function, device, arguments).await
    }
}

impl Callable for FunctionHandle {
    fn call(self: Arc<Self>, arguments: Vec<Tensor>, step: Arc<StepCx>) -> BoxFuture<Result<Vec<Tensor>>> {
        Box::pin(async move { self.run(arguments, step).await })
    }

    fn call_on(
        self: Arc<Self>,
        device: String,
        arguments: Vec<Tensor>,
        _step: Arc<StepCx>,
    ) -> BoxFuture<Result<Vec<Tensor>>> {
        Box::pin(async move { self.run_on(device, arguments).await })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

/// A function that a dataset or another long-lived value calls.
struct Captured {
    reference: NameAttrList,
    /// An environment that knows the functions of the library at the time of capture and nothing of the session.
    env: Arc<RuntimeEnv>,
    options: PlanOptions,
}

impl CapturedFunction for Captured {
    fn instantiate(&self) -> Result<Arc<dyn Callable>> {
        let functions = Functions::new(&self.env, &self.options);
        let (library, name) = (&functions.library, &self.reference.name);
        let definition = library.get(name).cloned().ok_or_else(|| not_defined(name))?;
        let instance = Arc::new(FunctionInstance {
            name: name.clone(),
            definition,
            attrs: self.reference.attr.clone(),
            inlines: true,
            functions: Arc::downgrade(&functions),
            executable: OnceLock::new(),
        });
        let handle = FunctionHandle {
            name: name.clone(),
            called: false,
            drops_surplus: true,
            instance: Arc::downgrade(&instance),
        };
        Ok(Arc::new(OwnedFunction { handle, _instance: instance, _functions: functions }))
    }

    fn reference(&self) -> &NameAttrList {
        &self.reference
    }

    fn definitions(&self) -> FunctionDefLibrary {
        self.env.library().reachable_from(&self.reference.name)
    }
}

/// An instance of a captured function, which keeps alive everything that it calls.
struct OwnedFunction {
    handle: FunctionHandle,
    _instance: Arc<FunctionInstance>,
    _functions: Arc<Functions>,
}

impl Callable for OwnedFunction {
    fn call(self: Arc<Self>, arguments: Vec<Tensor>, step: Arc<StepCx>) -> BoxFuture<Result<Vec<Tensor>>> {
        Box::pin(async move { self.handle.run(arguments, step).await })
    }

    fn call_on(
        self: Arc<Self>,
        device: String,
        arguments: Vec<Tensor>,
        _step: Arc<StepCx>,
    ) -> BoxFuture<Result<Vec<Tensor>>> {
        Box::pin(async move { self.handle.run_on(device, arguments).await })
    }

    fn name(&self) -> &str {
        &self.handle.name
    }
}

fn not_defined(function: &str) -> Status {
    status!(NotFound, "Function {function} is not defined.")
}

fn gone(function: &str) -> Status {
    status!(Cancelled, "the plan that calls {function} is gone")
}

struct PlanLibrary {
    functions: Weak<Functions>,
    inlines: bool,
    calls: bool,
}

impl FunctionLibrary for PlanLibrary {
    fn instantiate(&self, function: &NameAttrList) -> Result<Arc<dyn Callable>> {
        let functions = self.functions.upgrade().ok_or_else(|| gone(&function.name))?;
        let definition = functions.library.get(&function.name).cloned();
        let definition = definition.ok_or_else(|| not_defined(&function.name))?;
        let key = (format!("{} {:?}", function.name, function.attr), self.inlines);
        let mut instances = functions.instances.lock().expect("no panic while instances are locked");
        let instance = instances.entry(key).or_insert_with(|| {
            Arc::new(FunctionInstance {
                name: function.name.clone(),
                definition,
                attrs: function.attr.clone(),
                inlines: self.inlines,
                functions: self.functions.clone(),
                executable: OnceLock::new(),
            })
        });
        let (name, instance) = (function.name.clone(), Arc::downgrade(instance));
        Ok(Arc::new(FunctionHandle { name, called: self.calls, drops_surplus: false, instance }))
    }

    fn capture(&self, function: &NameAttrList) -> Result<Arc<dyn CapturedFunction>> {
        let functions = self.functions.upgrade().ok_or_else(|| gone(&function.name))?;
        let library = functions.library.clone();
        library.get(&function.name).ok_or_else(|| not_defined(&function.name))?;
        let env = functions.env.detached(library);
        Ok(Arc::new(Captured { reference: function.clone(), env, options: functions.options.clone() }))
    }

    fn capture_graph(&self, graph: GraphDef, output: &str) -> Result<Arc<dyn CapturedFunction>> {
        let functions = self.functions.upgrade().ok_or_else(|| gone(GRAPH))?;
        let registry = &functions.env.registry;
        let body = Graph::over(registry.clone());
        body.import(&graph)?;
        let results = vec![body.output(output)?];
        let function = FunctionGraph { graph: body.clone(), args: Vec::new(), results }.define(GRAPH, &[])?;
        let library = Library::default().with(&body.to_graph_def().library.unwrap_or_default(), registry)?;
        let env = functions.env.detached(Arc::new(library));
        Ok(Arc::new(Captured { reference: function, env, options: functions.options.clone() }))
    }

    fn instantiate_gradient(
        &self,
        function: &NameAttrList,
        inputs: &[DType],
        arguments: usize,
    ) -> Result<Arc<dyn Callable>> {
        let functions = self.functions.upgrade().ok_or_else(|| gone(&function.name))?;
        if let Some(given) = functions.library.gradient(&function.name) {
            return self.instantiate(&NameAttrList { name: given.to_owned(), attr: function.attr.clone() });
        }
        let functions = functions.of_gradient(function, inputs, arguments)?;
        let library = PlanLibrary { functions: Arc::downgrade(&functions), ..*self };
        library.instantiate(&NameAttrList { name: GRADIENT.to_owned(), ..Default::default() })
    }
}

/// The kernel of a node whose op is a function's name.
pub(crate) fn call_kernel(library: &Arc<dyn FunctionLibrary>, name: &str, attrs: &Attrs) -> Result<Kernel> {
    let function = library.instantiate(&NameAttrList { name: name.to_owned(), attr: attrs.map().clone() })?;
    Kernel::future(move |mut cx| {
        let function = function.clone();
        async move {
            let arguments = cx.take_all()?;
            Ok(Outputs::from(function.call(arguments, cx.step().clone()).await?))
        }
    })
}

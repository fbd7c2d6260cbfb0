//! Runs one op on its own, for the unit tests beside it: shape functions as text, kernels on tensors.

use ferroflow_core::attr::Attrs;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::{FrameIteration, FutureCx, Init, Kernel, KernelCx, NoFunctions, Outputs, Value};
use ferroflow_core::op::{ArgType, OpEntry, OpSpec, ShapeCx};
use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::step::StepCx;
use ferroflow_core::tensor::BufferPool;
use ferroflow_core::{BoxFuture, Code, DType, PartialShape, Result, Status, Tensor, bail};
use ferroflow_proto::tensorflow::attr_value::{ListValue, Value as AttrValue};
use std::sync::Arc;

/// Checks a shape function: `infer("MatMul", "[2,3];[3,?]", "[2,?]")`. `?` alone is an unknown shape.
#[track_caller]
pub(crate) fn infer(op: &str, inputs: &str, outputs: &str) {
    Node::new(op).infer(inputs, outputs);
}

/// Checks that a shape function refuses these inputs.
#[track_caller]
pub(crate) fn infer_err(op: &str, inputs: &str, code: Code) {
    match Node::new(op).infer_shapes(inputs) {
        Ok(shapes) => panic!("{op} accepts {inputs} and gives {shapes}"),
        Err(status) => assert_eq!(status.code(), code, "{status}"),
    }
}

/// Polls a future that waits for other threads at most.
#[track_caller]
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    let end = std::time::Instant::now() + std::time::Duration::from_secs(60);
    loop {
        if let Some(outcome) = futures_util::FutureExt::now_or_never(future.as_mut()) {
            return outcome;
        }
        assert!(std::time::Instant::now() < end, "nothing in this test ends the wait");
        std::thread::yield_now();
    }
}

/// One node to be inferred or run. Type and length attributes follow from the inputs.
pub(crate) struct Node {
    entry: Arc<OpEntry>,
    attrs: Attrs,
    constants: Vec<(usize, Tensor)>,
    resources: Arc<ResourceManager>,
    cancelled: bool,
}

impl Node {
    #[track_caller]
    pub(crate) fn new(op: &str) -> Node {
        let registry = crate::registry();
        let entry = registry.get(op).unwrap_or_else(|| panic!("no op is named {op}")).clone();
        let mut attrs = Attrs::default();
        for attr in &entry.spec().attrs {
            if let Some(default) = &attr.default {
                attrs.set(&attr.name, default.clone());
            }
        }
        Node {
            entry,
            attrs,
            constants: Vec::new(),
            resources: ResourceManager::new("localhost"),
            cancelled: false,
        }
    }

    pub(crate) fn attr(mut self, name: &str, value: impl IntoAttr) -> Node {
        self.attrs.set(name, value.into_attr());
        self
    }

    /// Makes an input's value known to the shape function.
    pub(crate) fn constant(mut self, input: usize, value: Tensor) -> Node {
        self.constants.push((input, value));
        self
    }

    /// Runs the node in a step that is cancelled.
    pub(crate) fn cancelled(mut self) -> Node {
        self.cancelled = true;
        self
    }

    /// Lets several nodes share their resources.
    #[allow(dead_code)]
    pub(crate) fn resources(mut self, resources: &Arc<ResourceManager>) -> Node {
        self.resources = resources.clone();
        self
    }

    #[track_caller]
    pub(crate) fn infer(self, inputs: &str, outputs: &str) {
        match self.infer_shapes(inputs) {
            Ok(shapes) => assert_eq!(shapes, outputs),
            Err(status) => panic!("{status}"),
        }
    }

    pub(crate) fn infer_shapes(mut self, inputs: &str) -> Result<String> {
        let shapes: Vec<PartialShape> =
            inputs.split(';').filter(|text| !text.is_empty()).map(parse_shape).collect();
        self.default_attrs(shapes.len());
        let mut constants = vec![None; shapes.len()];
        for (input, value) in self.constants {
            constants[input] = Some(value);
        }
        let spec = self.entry.spec();
        let types = OpSpec::arg_types(&spec.outputs, &self.attrs)?;
        let types: Vec<DType> = types.into_iter().map(|(dtype, _)| dtype).collect();
        let handles = vec![Vec::new(); shapes.len()];
        let mut cx = ShapeCx::new(&self.attrs, &shapes, &constants, &handles, &types);
        (self.entry.op.shape)(&mut cx)?;
        let (outputs, _) = cx.into_outputs();
        Ok(outputs.iter().map(print_shape).collect::<Vec<_>>().join(";"))
    }

    /// Types default to float and lengths to the number of inputs where a test did not say.
    fn default_attrs(&mut self, inputs: usize) {
        let entry = self.entry.clone();
        for attr in &entry.spec().attrs {
            use ferroflow_core::op::AttrKind::*;
            if self.attrs.has(&attr.name) {
                continue;
            }
            match (attr.kind, attr.list) {
                (Type, false) => {
                    let preferred = [DType::Float, DType::Int32, DType::Int64, DType::Bool, DType::String];
                    let allowed = |dtype: &DType| attr.types.is_empty() || attr.types.contains(dtype);
                    if let Some(dtype) = preferred.into_iter().find(allowed) {
                        self.attrs.set(&attr.name, AttrValue::Type(dtype.to_wire()));
                    }
                }
                (Int, false) => {
                    let single = entry.spec().inputs.iter().filter(|arg| arg.number_attr.is_none()).count();
                    self.attrs.set(&attr.name, AttrValue::I(inputs.saturating_sub(single) as i64));
                }
                _ => {}
            }
        }
    }

    pub(crate) fn run(self, inputs: impl IntoIterator<Item = Tensor>) -> Result<Vec<Tensor>> {
        self.run_values(inputs.into_iter().map(Value::Tensor).collect())?
            .into_iter()
            .map(|value| value.read())
            .collect()
    }

    pub(crate) fn run_values(mut self, mut inputs: Vec<Value>) -> Result<Vec<Value>> {
        self.bind_types(&inputs)?;
        self.default_attrs(inputs.len());
        let spec = self.entry.spec();
        for attr in &spec.attrs {
            if let Some(value) = self.attrs.raw(&attr.name) {
                attr.check(value)?;
            }
        }
        let types = |args| -> Result<Vec<DType>> {
            Ok(OpSpec::arg_types(args, &self.attrs)?.into_iter().map(|(dtype, _)| dtype).collect())
        };
        let (input_types, output_types) = (types(&spec.inputs)?, types(&spec.outputs)?);
        let step = step(&self.resources);
        if self.cancelled {
            step.cancellation.cancel(ferroflow_core::status!(Cancelled, "nobody waits for the step"));
        }
        let library: Arc<dyn ferroflow_core::kernel::FunctionLibrary> = Arc::new(NoFunctions);
        let init = Init {
            node: "test",
            op: self.entry.op.name,
            attrs: &self.attrs,
            input_types: &input_types,
            output_types: &output_types,
            device: &step.device,
            resources: &self.resources,
            library: &library,
        };
        let kernel = (self.entry.kernel("test", &self.attrs)?.make)(&init)?;
        let frame = FrameIteration::default();
        let outputs = match kernel {
            Kernel::Sync(run) => {
                let mut cx = KernelCx::new(&mut inputs, &step, frame, false);
                let outputs = run(&mut cx);
                cx.conclude(outputs)?
            }
            Kernel::Future(run) => {
                let future = run(FutureCx::new(inputs, step.clone(), frame, false));
                wait(future)?
            }
        };
        Ok(match outputs {
            Outputs::None | Outputs::Dead => Vec::new(),
            Outputs::One(value) => vec![value],
            Outputs::Many(values) => values,
        })
    }

    fn bind_types(&mut self, inputs: &[Value]) -> Result<()> {
        let entry = self.entry.clone();
        let mut next = 0;
        for arg in &entry.spec().inputs {
            let dtype = |at: usize| match inputs.get(at) {
                Some(Value::Tensor(tensor)) => Ok(tensor.dtype()),
                Some(Value::Ref(variable)) => Ok(variable.dtype()),
                _ => bail!(InvalidArgument, "input {at} is missing"),
            };
            match &arg.ty {
                ArgType::Attr(attr) => self.attrs.set(attr, AttrValue::Type(dtype(next)?.to_wire())),
                ArgType::List(attr) if !self.attrs.has(attr) => {
                    let types: Result<Vec<i32>> =
                        (next..inputs.len()).map(|at| Ok(dtype(at)?.to_wire())).collect();
                    self.attrs.set(attr, types?.into_attr_types());
                }
                _ => {}
            }
            next += match (&arg.number_attr, &arg.ty) {
                (Some(attr), _) if self.attrs.has(attr) => self.attrs.get::<usize>(attr)?,
                (Some(attr), _) => {
                    let others = entry.spec().inputs.len() - 1;
                    self.attrs.set(attr, AttrValue::I((inputs.len() - others) as i64));
                    inputs.len() - others
                }
                (None, ArgType::List(attr)) => self.attrs.get::<Vec<DType>>(attr)?.len(),
                _ => 1,
            };
        }
        Ok(())
    }
}

/// A step on a device of its own.
pub(crate) fn step(resources: &Arc<ResourceManager>) -> Arc<StepCx> {
    let threads = rayon::ThreadPoolBuilder::new().num_threads(2).build().expect("threads start");
    let device = Device::new(
        "/job:localhost/replica:0/task:0/device:CPU:0",
        1,
        BufferPool::new(1 << 20),
        1 << 32,
        Arc::new(threads),
    );
    Arc::new(StepCx {
        step_id: 1,
        device: Arc::new(device.expect("a full name")),
        resources: resources.clone(),
        step_resources: ResourceManager::new("step"),
        rendezvous: Arc::new(Nowhere),
        cancellation: Cancellation::new(),
        depth: 0,
    })
}

struct Nowhere;

impl Rendezvous for Nowhere {
    fn send(&self, key: &RendezvousKey, _: Parcel) -> Result<()> {
        bail!(Internal, "nobody receives {key} in a test of one op")
    }
    fn recv(&self, _: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        Box::pin(std::future::pending())
    }
    fn abort(&self, _: Status) {}
}

fn parse_shape(text: &str) -> PartialShape {
    let text = text.trim();
    if text == "?" {
        return PartialShape::unknown();
    }
    let inner = text.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).expect("a shape in brackets");
    let dim = |text: &str| if text.trim() == "?" { -1 } else { text.trim().parse().expect("a dimension") };
    PartialShape::new(inner.split(',').filter(|text| !text.trim().is_empty()).map(dim))
        .expect("a legal shape")
}

fn print_shape(shape: &PartialShape) -> String {
    if shape.dims().is_none() { "?".to_owned() } else { shape.to_string() }
}

/// A Rust value that a test gives as an attribute.
pub(crate) trait IntoAttr {
    fn into_attr(self) -> AttrValue;
}

macro_rules! into_attr {
    ($($type:ty, $value:ident => $convert:expr;)+) => {$(
        impl IntoAttr for $type {
            fn into_attr(self) -> AttrValue {
                let $value = self;
                $convert
            }
        }
    )+};
}
into_attr! {
    bool, v => AttrValue::B(v);
    i64, v => AttrValue::I(v);
    f32, v => AttrValue::F(v);
    &str, v => AttrValue::S(v.to_owned().into_bytes().into());
    DType, v => AttrValue::Type(v.to_wire());
    PartialShape, v => AttrValue::Shape(v.to_proto());
    AttrValue, v => v;
    Vec<i64>, v => AttrValue::List(Box::new(ListValue { i: v, ..Default::default() }));
    Vec<f32>, v => AttrValue::List(Box::new(ListValue { f: v, ..Default::default() }));
    Vec<String>, v => AttrValue::List(Box::new(ListValue {
        s: v.into_iter().map(|text| text.into_bytes().into()).collect(),
        ..Default::default()
    }));
    Vec<DType>, v => v.into_iter().map(|dtype| dtype.to_wire()).collect::<Vec<i32>>().into_attr_types();
}

trait IntoAttrTypes {
    fn into_attr_types(self) -> AttrValue;
}

impl IntoAttrTypes for Vec<i32> {
    fn into_attr_types(self) -> AttrValue {
        AttrValue::List(Box::new(ListValue { r#type: self, ..Default::default() }))
    }
}

//! Datasets: descriptions of pipelines, and the kernels that make them.

use super::waits::StageSource;
use super::{Function, IteratorCx, Source};
use ferroflow_core::kernel::{CapturedFunction, Init, Kernel, KernelCx};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Element as Plain, PartialShape, Result, Shape, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::{AttrValue, VariantTensorDataProto, attr_value};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The cardinality of a dataset that never ends.
pub(crate) const INFINITE: i64 = -1;
/// The cardinality of a dataset whose end is found only by running it.
pub(crate) const UNKNOWN: i64 = -2;

type OpenRepeated = dyn Fn(i64, &Arc<IteratorCx>) -> Box<dyn Source> + Send + Sync;
type Open = dyn Fn(&Arc<IteratorCx>) -> Result<Box<dyn Source>> + Send + Sync;

/// A description of a pipeline. Cloning shares.
#[derive(Clone)]
pub(crate) struct Dataset(Arc<Inner>);

struct Inner {
    spec: Arc<Spec>,
    cardinality: i64,
    /// The inputs of the node that made it, from which another such node makes it again; `None` for a dataset that a
    /// source made.
    arguments: Option<Vec<Tensor>>,
    options: Vec<u8>,
    open: Box<Open>,
    /// Opens the pipeline for several runs in one, as stock fuses it with a repeat.
    open_repeated: Option<Box<OpenRepeated>>,
}

/// The properties of datasets that the attributes of their node decide.
#[derive(Clone)]
pub(crate) struct Spec {
    /// The op that makes the dataset.
    pub(crate) op: String,
    /// Element types of the components.
    pub(crate) types: Vec<DType>,
    /// Shapes of the components, as far as they are known.
    pub(crate) shapes: Vec<PartialShape>,
    /// Functions that the node captures, by attribute; those of a list have the same one.
    functions: Vec<(String, Arc<dyn CapturedFunction>)>,
    /// The attributes of the node, without hints.
    attrs: BTreeMap<String, AttrValue>,
}

impl Spec {
    /// Reads the attributes that nearly all datasets have.
    pub(crate) fn new(init: &Init<'_>) -> Result<Spec> {
        let types = ["output_types", "Toutput_types", "Tvalues"];
        let types: Vec<DType> = match types.into_iter().find(|name| init.attrs.has(name)) {
            Some("Tvalues") => vec![DType::Int64, init.attr("Tvalues")?, DType::Int64],
            Some(name) => init.attr(name)?,
            None => Vec::new(),
        };
        let shapes: Vec<PartialShape> = if init.attrs.has("output_shapes") {
            init.attr("output_shapes")?
        } else {
            vec![PartialShape::unknown(); types.len()]
        };
        ensure!(
            shapes.len() == types.len(),
            InvalidArgument,
            "output_types and output_shapes must be same length, got:\noutput_types: {}\noutput_shapes: {}",
            types.len(),
            shapes.len()
        );
        let mut functions = Vec::new();
        for (name, value) in init.attrs.map() {
            let named = match &value.value {
                Some(attr_value::Value::Func(function)) => std::slice::from_ref(&**function),
                Some(attr_value::Value::List(list)) => list.func.as_slice(),
                _ => &[],
            };
            for function in named {
                functions.push((name.clone(), init.library.capture(function)?));
            }
        }
        let attrs = init.attrs.map().iter().filter(|(name, _)| !name.starts_with('_'));
        let attrs = attrs.map(|(name, value)| (name.clone(), value.clone())).collect();
        Ok(Spec { op: init.op.to_owned(), types, shapes, functions, attrs })
    }

    /// The specification of a dataset that a source makes, not a node.
    pub(crate) fn internal(op: &str, types: Vec<DType>, shapes: Vec<PartialShape>) -> Spec {
        Spec { op: op.to_owned(), types, shapes, functions: Vec::new(), attrs: BTreeMap::new() }
    }

    /// Returns whether the node's function changes nothing and reads no state.
    pub(crate) fn has_pure_function(&self, attr: &str) -> bool {
        let Some((_, function)) = self.functions.iter().find(|(name, _)| name == attr) else { return false };
        let library = function.definitions();
        let signatures = library.function.iter().filter_map(|function| function.signature.as_ref());
        signatures
            .filter(|signature| signature.name == function.reference().name)
            .all(|found| !found.is_stateful)
    }

    /// A function of the node, with the inputs that it captures.
    pub(crate) fn function(&self, cx: &KernelCx<'_>, attr: &str, captured: Range<usize>) -> Result<Function> {
        self.function_at(cx, attr, 0, captured)
    }

    /// A function of a list of the node, with the inputs that it captures.
    pub(crate) fn function_at(
        &self,
        cx: &KernelCx<'_>,
        attr: &str,
        place: usize,
        captured: Range<usize>,
    ) -> Result<Function> {
        let Some((_, function)) = self.functions.iter().filter(|(name, _)| name == attr).nth(place) else {
            bail!(Internal, "{} has no function {attr}", self.op)
        };
        let captured: Result<Vec<Tensor>> = captured.map(|input| cx.input(input).cloned()).collect();
        Ok(Function::new(function.clone(), captured?))
    }
}

/// A kernel that makes a dataset whenever it runs.
pub(crate) fn kernel(
    init: &Init<'_>,
    make: impl Fn(&mut KernelCx<'_>, &Arc<Spec>) -> Result<Dataset> + Send + Sync + 'static,
) -> Result<Kernel> {
    kernel_of(Spec::new(init)?, make)
}

/// A kernel that makes datasets of this specification.
pub(crate) fn kernel_of(
    spec: Spec,
    make: impl Fn(&mut KernelCx<'_>, &Arc<Spec>) -> Result<Dataset> + Send + Sync + 'static,
) -> Result<Kernel> {
    let spec = Arc::new(spec);
    Kernel::sync(move |cx| {
        let arguments: Result<Vec<Tensor>> =
            (0..cx.num_inputs()).map(|input| cx.input(input).cloned()).collect();
        let arguments = arguments?;
        let dataset = make(cx, &spec)?.with_arguments(arguments);
        Ok(dataset.into_tensor().into())
    })
}

impl Dataset {
    /// A dataset that is opened by a function.
    pub(crate) fn new(
        spec: &Arc<Spec>,
        cardinality: i64,
        open: impl Fn(&Arc<IteratorCx>) -> Result<Box<dyn Source>> + Send + Sync + 'static,
    ) -> Dataset {
        Dataset(Arc::new(Inner {
            spec: spec.clone(),
            cardinality,
            arguments: None,
            options: Vec::new(),
            open: Box::new(open),
            open_repeated: None,
        }))
    }

    /// The dataset as one that a node with these inputs made.
    pub(crate) fn with_arguments(mut self, arguments: Vec<Tensor>) -> Dataset {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.arguments = Some(arguments);
        }
        self
    }

    /// The dataset with a way to run it several times in one.
    pub(crate) fn with_repeated(
        mut self,
        open: impl Fn(i64, &Arc<IteratorCx>) -> Box<dyn Source> + Send + Sync + 'static,
    ) -> Dataset {
        if let Some(inner) = Arc::get_mut(&mut self.0) {
            inner.open_repeated = Some(Box::new(open));
        }
        self
    }

    /// Returns whether several runs of the pipeline can be one.
    pub(crate) fn repeats_in_one(&self) -> bool {
        self.0.open_repeated.is_some()
    }

    /// Starts several runs of the pipeline in one, if it can be; any number if `count` is negative.
    pub(crate) fn open_repeated(&self, count: i64, cx: &Arc<IteratorCx>) -> Option<Box<dyn Source>> {
        let (cx, stage) = cx.stage(&self.0.spec);
        let source = self.0.open_repeated.as_ref()?(count, &cx);
        Some(Box::new(StageSource::new(source, stage, cx.waits())))
    }

    /// The same pipeline with options, encoded as stock's `Options` message.
    pub(crate) fn with_options(&self, spec: &Arc<Spec>, options: Vec<u8>) -> Dataset {
        let (input, cardinality) = (self.clone(), self.cardinality());
        Dataset(Arc::new(Inner {
            spec: spec.clone(),
            cardinality,
            arguments: None,
            options,
            open: Box::new(move |cx| input.open(cx)),
            open_repeated: None,
        }))
    }

    /// The same pipeline, of which sources that can be divided are to be given to every worker as a whole: stock writes
    /// that into their nodes, and so into the fingerprint.
    pub(crate) fn replicated_on_split(&self) -> Dataset {
        const ATTR: &str = "replicate_on_split";
        let Inner { spec, cardinality, arguments, options, .. } = &*self.0;
        let mut spec = (**spec).clone();
        if spec.attrs.contains_key(ATTR) {
            let value = Some(attr_value::Value::B(true));
            spec.attrs.insert(ATTR.to_owned(), AttrValue { value });
        }
        let replicated = |argument: &Tensor| match Dataset::from_tensor(argument) {
            Ok(input) => input.replicated_on_split().into_tensor(),
            Err(_) => argument.clone(),
        };
        let arguments = arguments.as_ref().map(|arguments| arguments.iter().map(replicated).collect());
        let same = self.clone();
        Dataset(Arc::new(Inner {
            spec: Arc::new(spec),
            cardinality: *cardinality,
            arguments,
            options: options.clone(),
            open: Box::new(move |cx| same.open(cx)),
            open_repeated: None,
        }))
    }

    /// The dataset of an input.
    pub(crate) fn input(cx: &KernelCx<'_>, input: usize) -> Result<Dataset> {
        Dataset::from_tensor(cx.input(input)?)
    }

    /// The dataset that a tensor holds.
    pub(crate) fn from_tensor(tensor: &Tensor) -> Result<Dataset> {
        ensure!(
            tensor.dtype() == DType::Variant && tensor.rank() == 0,
            InvalidArgument,
            "Dataset tensor must be a scalar of dtype DT_VARIANT."
        );
        match tensor.units::<Variant>()?[0].downcast::<Dataset>() {
            Some(dataset) => Ok(dataset.clone()),
            None => bail!(InvalidArgument, "Tensor must be a Dataset object."),
        }
    }

    /// A tensor that holds the dataset.
    pub(crate) fn into_tensor(self) -> Tensor {
        let variants = vec![Variant::new(self)];
        Tensor::from_units(DType::Variant, Shape::scalar(), variants).expect("one variant is a scalar")
    }

    /// Starts the pipeline.
    pub(crate) fn open(&self, cx: &Arc<IteratorCx>) -> Result<Box<dyn Source>> {
        let (cx, stage) = cx.stage(&self.0.spec);
        let source = (self.0.open)(&cx)?;
        Ok(Box::new(StageSource::new(source, stage, cx.waits())))
    }

    /// The number of elements, [`INFINITE`] or [`UNKNOWN`].
    pub(crate) fn cardinality(&self) -> i64 {
        self.0.cardinality
    }

    /// Element types of the components.
    pub(crate) fn types(&self) -> &[DType] {
        &self.0.spec.types
    }

    /// Shapes of the components.
    pub(crate) fn shapes(&self) -> &[PartialShape] {
        &self.0.spec.shapes
    }

    /// The options of this dataset and of those that it is made of, encoded one after the other: later fields override
    /// earlier ones, and those of the dataset itself come last.
    pub(crate) fn options(&self) -> Vec<u8> {
        let (mut open, mut levels) = (vec![self.clone()], Vec::new());
        while let Some(dataset) = open.pop() {
            open.extend(dataset.inputs());
            levels.push(dataset);
        }
        levels.iter().rev().flat_map(|dataset| dataset.0.options.iter().copied()).collect()
    }

    /// The datasets that this one is made of.
    pub(crate) fn inputs(&self) -> impl DoubleEndedIterator<Item = Dataset> {
        self.0.arguments.iter().flatten().filter_map(|argument| Dataset::from_tensor(argument).ok())
    }

    /// The inputs of the node that made it; `None` for a dataset that a source made.
    pub(crate) fn arguments(&self) -> Option<&[Tensor]> {
        self.0.arguments.as_deref()
    }

    /// The op that makes it.
    pub(crate) fn op(&self) -> &str {
        &self.0.spec.op
    }

    /// The attributes of its node.
    pub(crate) fn attrs(&self) -> &BTreeMap<String, AttrValue> {
        &self.0.spec.attrs
    }

    /// The functions that it calls.
    pub(crate) fn functions(&self) -> impl Iterator<Item = &Arc<dyn CapturedFunction>> {
        self.0.spec.functions.iter().map(|(_, function)| function)
    }

    /// The identity of the dataset.
    pub(crate) fn address(&self) -> usize {
        Arc::as_ptr(&self.0).cast::<()>() as usize
    }
}

impl VariantValue for Dataset {
    fn type_name(&self) -> &str {
        "tensorflow::DatasetVariantWrapper"
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        bail!(
            Unimplemented,
            "a dataset ({}) cannot leave the device that made it; use DatasetToGraphV2",
            self.0.spec.op
        )
    }
}

/// A scalar argument of an op, with stock's message if it is none.
pub(crate) fn scalar<T: Plain>(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<T> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "{name} must be a scalar");
    tensor.to_scalar()
}

//! Datasets: descriptions of pipelines, and the kernels that make them.

use super::{Function, IteratorCx, Source};
use ferroflow_core::kernel::{CapturedFunction, Init, Kernel, KernelCx};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Element as Plain, PartialShape, Result, Shape, Tensor, bail, ensure};
use ferroflow_proto::tensorflow::{VariantTensorDataProto, attr_value};
use std::ops::Range;
use std::sync::Arc;

/// The cardinality of a dataset that never ends.
pub(crate) const INFINITE: i64 = -1;
/// The cardinality of a dataset whose end is found only by running it.
pub(crate) const UNKNOWN: i64 = -2;

type Open = dyn Fn(&Arc<IteratorCx>) -> Result<Box<dyn Source>> + Send + Sync;

/// A description of a pipeline. Cloning shares.
#[derive(Clone)]
pub(crate) struct Dataset(Arc<Inner>);

struct Inner {
    spec: Arc<Spec>,
    cardinality: i64,
    /// The datasets among the inputs of the node that made it.
    inputs: Vec<Dataset>,
    options: Vec<u8>,
    open: Box<Open>,
}

/// The properties of datasets that the attributes of their node decide.
pub(crate) struct Spec {
    /// The op that makes the dataset.
    pub(crate) op: String,
    /// Element types of the components.
    pub(crate) types: Vec<DType>,
    /// Shapes of the components, as far as they are known.
    pub(crate) shapes: Vec<PartialShape>,
    /// Functions that the node captures, by attribute.
    functions: Vec<(String, Arc<dyn CapturedFunction>)>,
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
            if let Some(attr_value::Value::Func(function)) = &value.value {
                functions.push((name.clone(), init.library.capture(function)?));
            }
        }
        Ok(Spec { op: init.op.to_owned(), types, shapes, functions })
    }

    /// The specification of a dataset that a source makes, not a node.
    pub(crate) fn internal(op: &str, types: Vec<DType>, shapes: Vec<PartialShape>) -> Spec {
        Spec { op: op.to_owned(), types, shapes, functions: Vec::new() }
    }

    /// A function of the node, with the inputs that it captures.
    pub(crate) fn function(&self, cx: &KernelCx<'_>, attr: &str, captured: Range<usize>) -> Result<Function> {
        let Some((_, function)) = self.functions.iter().find(|(name, _)| name == attr) else {
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
        let inputs = (0..cx.num_inputs()).filter_map(|input| Dataset::input(cx, input).ok()).collect();
        let mut dataset = make(cx, &spec)?;
        if let Some(inner) = Arc::get_mut(&mut dataset.0) {
            inner.inputs = inputs;
        }
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
            inputs: Vec::new(),
            options: Vec::new(),
            open: Box::new(open),
        }))
    }

    /// The same pipeline with options, encoded as stock's `Options` message.
    pub(crate) fn with_options(&self, spec: &Arc<Spec>, options: Vec<u8>) -> Dataset {
        let (input, cardinality) = (self.clone(), self.cardinality());
        Dataset(Arc::new(Inner {
            spec: spec.clone(),
            cardinality,
            inputs: Vec::new(),
            options,
            open: Box::new(move |cx| input.open(cx)),
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
        (self.0.open)(cx)
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

    /// The options that this dataset sets, encoded.
    pub(crate) fn own_options(&self) -> &[u8] {
        &self.0.options
    }

    /// The datasets that this one is made of.
    pub(crate) fn inputs(&self) -> &[Dataset] {
        &self.0.inputs
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

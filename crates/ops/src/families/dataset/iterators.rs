//! Iterators: resources that run a dataset, and the ops that take elements from them.

use super::order::scalars;
use crate::data::Dataset;
use crate::data::iterator::{IteratorResource, check_element, check_shapes, check_types};
use crate::families::data_flow::optional::Optional;
use crate::state::anonymous;
use crate::state::resource_name::ResourceName;
use ferroflow_core::kernel::{CapturedFunction, FutureCx, Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, OpClass, ShapeCx, shapes};
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};
use ferroflow_proto::tensorflow::ResourceHandleProto;
use futures_util::lock::Mutex as AsyncMutex;
use prost::Message;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &ITERATOR,
    &ITERATOR_V2,
    &ONE_SHOT_ITERATOR,
    &ANONYMOUS_ITERATOR,
    &ANONYMOUS_ITERATOR_V3,
    &ANONYMOUS_ITERATOR_V2,
    &MAKE_ITERATOR,
    &ITERATOR_GET_NEXT,
    &ITERATOR_GET_NEXT_SYNC,
    &ITERATOR_GET_NEXT_AS_OPTIONAL,
    &ITERATOR_TO_STRING_HANDLE,
    &ITERATOR_FROM_STRING_HANDLE,
    &ITERATOR_FROM_STRING_HANDLE_V2,
    &DELETE_ITERATOR,
    &ITERATOR_GET_DEVICE,
    &EXPERIMENTAL_ITERATOR_GET_DEVICE,
    &ITERATOR_GET_MODEL_PROTO,
];

static ITERATOR: Op = Op {
    name: "Iterator",
    outputs: &["handle: resource"],
    attrs: &[
        "shared_name: string",
        "container: string",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any iterator_kernel],
    cheap: true,
    class: OpClass::Variable,
    ..Op::STATEFUL
};

static ITERATOR_V2: Op = Op { name: "IteratorV2", ..ITERATOR };

static ONE_SHOT_ITERATOR: Op = Op {
    name: "OneShotIterator",
    outputs: &["handle: resource"],
    attrs: &[
        "dataset_factory: func",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any one_shot_kernel],
    cheap: true,
    class: OpClass::Variable,
    ..Op::STATEFUL
};

static ANONYMOUS_ITERATOR: Op = Op {
    name: "AnonymousIterator",
    outputs: &["handle: resource"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any anonymous_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ANONYMOUS_ITERATOR_V3: Op = Op { name: "AnonymousIteratorV3", ..ANONYMOUS_ITERATOR };

static ANONYMOUS_ITERATOR_V2: Op = Op {
    name: "AnonymousIteratorV2",
    outputs: &["handle: resource", "deleter: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: scalars,
    kernels: kernels![any anonymous_v2_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static MAKE_ITERATOR: Op = Op {
    name: "MakeIterator",
    inputs: &["dataset: variant", "iterator: resource"],
    kernels: kernels![any make_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ITERATOR_GET_NEXT: Op = Op {
    name: "IteratorGetNext",
    inputs: &["iterator: resource"],
    outputs: &["components: output_types"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: component_shapes,
    kernels: kernels![any get_next_kernel],
    ..Op::STATEFUL
};

static ITERATOR_GET_NEXT_SYNC: Op = Op { name: "IteratorGetNextSync", ..ITERATOR_GET_NEXT };

static ITERATOR_GET_NEXT_AS_OPTIONAL: Op = Op {
    name: "IteratorGetNextAsOptional",
    inputs: &["iterator: resource"],
    outputs: &["optional: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any get_next_optional_kernel],
    ..Op::STATEFUL
};

static ITERATOR_TO_STRING_HANDLE: Op = Op {
    name: "IteratorToStringHandle",
    inputs: &["resource_handle: resource"],
    outputs: &["string_handle: string"],
    shape: shapes::scalar,
    kernels: kernels![any to_string_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ITERATOR_FROM_STRING_HANDLE: Op = Op {
    name: "IteratorFromStringHandle",
    inputs: &["string_handle: string"],
    outputs: &["resource_handle: resource"],
    attrs: &["output_types: list(type) >= 0 = []", "output_shapes: list(shape) >= 0 = []"],
    shape: shapes::scalar,
    kernels: kernels![any from_string_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ITERATOR_FROM_STRING_HANDLE_V2: Op =
    Op { name: "IteratorFromStringHandleV2", ..ITERATOR_FROM_STRING_HANDLE };

static DELETE_ITERATOR: Op = Op {
    name: "DeleteIterator",
    inputs: &["handle: resource", "deleter: variant"],
    kernels: kernels![any delete_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ITERATOR_GET_DEVICE: Op = Op {
    name: "IteratorGetDevice",
    inputs: &["resource: resource"],
    outputs: &["device: string"],
    shape: shapes::scalar,
    kernels: kernels![any device_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_ITERATOR_GET_DEVICE: Op =
    Op { name: "ExperimentalIteratorGetDevice", ..ITERATOR_GET_DEVICE };

static ITERATOR_GET_MODEL_PROTO: Op = Op {
    name: "IteratorGetModelProto",
    inputs: &["iterator: resource"],
    outputs: &["model_proto: string"],
    shape: shapes::scalar,
    kernels: kernels![any model_kernel],
    cheap: true,
    ..Op::STATEFUL
};

/// The shapes that the attribute `output_shapes` declares.
pub(super) fn component_shapes(s: &mut ShapeCx<'_>) -> Result<()> {
    let shapes: Vec<PartialShape> = s.attr("output_shapes")?;
    ensure!(
        shapes.len() == s.num_outputs(),
        InvalidArgument,
        "`output_shapes` must be the same length as `output_types` ({} vs. {})",
        shapes.len(),
        s.num_outputs()
    );
    for (output, shape) in shapes.into_iter().enumerate() {
        s.set(output, shape);
    }
    Ok(())
}

/// Types and shapes of elements, as a node declares them.
pub(super) struct Components {
    pub(super) types: Vec<DType>,
    pub(super) shapes: Vec<PartialShape>,
}

impl Components {
    pub(super) fn new(init: &Init<'_>) -> Result<Components> {
        Ok(Components { types: init.attr("output_types")?, shapes: init.attr("output_shapes")? })
    }

    fn iterator(&self) -> IteratorResource {
        IteratorResource::new(&self.types, &self.shapes)
    }

    fn check(&self, iterator: &IteratorResource) -> Result<()> {
        check_types(&self.types, &iterator.types)?;
        check_shapes(&self.shapes, &iterator.shapes)
    }
}

/// A handle to a resource that a manager keeps.
pub(super) fn named_handle(
    cx: &KernelCx<'_>,
    container: &str,
    name: &str,
    type_name: &str,
) -> Result<Tensor> {
    let handle = ResourceHandle::named(cx.device().name(), container, name, type_name, Vec::new());
    Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])
}

const TYPE_NAME: &str = "N10tensorflow4data16IteratorResourceE";

fn iterator_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (components, name) = (Components::new(init)?, ResourceName::<IteratorResource>::new(init)?);
    Kernel::sync(move |cx| {
        let iterator = name.lookup_or_create(cx, || Ok(components.iterator()))?;
        components.check(&iterator)?;
        Ok(named_handle(cx, &name.container, &name.name, TYPE_NAME)?.into())
    })
}

/// An iterator that runs the dataset that a function makes, from the first time it is asked for.
struct OneShot {
    components: Components,
    name: ResourceName<IteratorResource>,
    factory: Arc<dyn CapturedFunction>,
    /// The outcome of the first time.
    made: AsyncMutex<Option<Result<()>>>,
}

fn one_shot_kernel(init: &Init<'_>) -> Result<Kernel> {
    let one_shot = Arc::new(OneShot {
        components: Components::new(init)?,
        name: ResourceName::new(init)?,
        // The kernel outlives the plan that it is made for.
        factory: init.captured_function("dataset_factory")?,
        made: AsyncMutex::new(None),
    });
    Kernel::future(move |cx| {
        let one_shot = one_shot.clone();
        async move { one_shot.run(cx).await }
    })
}

impl OneShot {
    async fn run(&self, mut cx: FutureCx) -> Result<Outputs> {
        let mut made = self.made.lock().await;
        let OneShot { name, components, .. } = self;
        let iterator = name.lookup_or_create(&cx.cx(), || Ok(components.iterator()))?;
        let outcome = match &*made {
            Some(outcome) => outcome.clone(),
            None => {
                let outcome = self.initialize(&iterator, &cx).await;
                made.insert(outcome).clone()
            }
        };
        outcome?;
        drop(made);
        Ok(named_handle(&cx.cx(), &name.container, &name.name, TYPE_NAME)?.into())
    }

    async fn initialize(&self, iterator: &IteratorResource, cx: &FutureCx) -> Result<()> {
        self.components.check(iterator)?;
        let factory = self.factory.instantiate()?;
        let results = factory.call(Vec::new(), cx.step().clone()).await?;
        let dataset = match results.as_slice() {
            [dataset] => Dataset::from_tensor(dataset).ok(),
            _ => None,
        };
        let dataset = dataset.ok_or_else(|| {
            status!(
                InvalidArgument,
                "The `dataset_factory` function must return a single scalar of dtype DT_VARIANT."
            )
        })?;
        iterator.initialize(&dataset, cx.step(), &self.name.name).map(|_| ())
    }
}

fn anonymous_kernel(init: &Init<'_>) -> Result<Kernel> {
    let components = Components::new(init)?;
    Kernel::sync(move |cx| {
        Ok(anonymous::handle(cx, "AnonymousIterator", Arc::new(components.iterator()))?.into())
    })
}

fn anonymous_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let components = Components::new(init)?;
    Kernel::sync(move |cx| anonymous::with_deleter(cx, "AnonymousIterator", Arc::new(components.iterator())))
}

fn make_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (dataset, iterator) = (Dataset::input(cx, 0)?, cx.resource::<IteratorResource>(1)?);
        iterator.initialize(&dataset, cx.step(), cx.handle(1)?.name())?;
        Ok(().into())
    })
}

fn get_next_kernel(init: &Init<'_>) -> Result<Kernel> {
    let components = Arc::new(Components::new(init)?);
    Kernel::future(move |mut cx| {
        let components = components.clone();
        let iterator = cx.cx().resource::<IteratorResource>(0);
        async move {
            let Some(element) = iterator?.next().await? else { bail!(OutOfRange, "End of sequence") };
            check_element(&components.types, &components.shapes, &element)?;
            Ok(element.into())
        }
    })
}

fn get_next_optional_kernel(init: &Init<'_>) -> Result<Kernel> {
    let components = Arc::new(Components::new(init)?);
    Kernel::future(move |mut cx| {
        let components = components.clone();
        let iterator = cx.cx().resource::<IteratorResource>(0);
        async move {
            let element = iterator?.next().await?;
            if let Some(element) = &element {
                check_element(&components.types, &components.shapes, element)?;
            }
            Ok(Optional(element).into_tensor().into())
        }
    })
}

fn to_string_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let tensor = cx.input(0)?;
        ensure!(tensor.rank() == 0, InvalidArgument, "resource_handle must be a scalar");
        let iterator = cx.resource::<IteratorResource>(0)?;
        let handle = cx.handle(0)?;
        anonymous::alias(cx, handle, &iterator);
        Ok(Tensor::scalar::<Str>(handle.to_proto().encode_to_vec().into()).into())
    })
}

/// The handle that a string holds.
pub(super) fn handle_from_string(cx: &KernelCx<'_>) -> Result<ResourceHandle> {
    let tensor = cx.input(0)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "string_handle must be a scalar");
    let text: Str = tensor.to_scalar()?;
    let handle =
        ResourceHandleProto::decode(text).ok().and_then(|proto| ResourceHandle::from_proto(&proto).ok());
    let handle = handle
        .ok_or_else(|| status!(InvalidArgument, "Could not parse string_handle as a valid ResourceHandle"))?;
    ensure!(
        handle.device() == cx.device().name(),
        InvalidArgument,
        "Attempted create an iterator on device \"{}\" from handle defined on device \"{}\"",
        cx.device().name(),
        handle.device()
    );
    Ok(handle)
}

fn from_string_kernel(init: &Init<'_>) -> Result<Kernel> {
    let components = Components::new(init)?;
    ensure!(
        components.types.is_empty()
            || components.shapes.is_empty()
            || components.types.len() == components.shapes.len(),
        InvalidArgument,
        "If both 'output_types' and 'output_shapes' are set, they must have the same length."
    );
    Kernel::sync(move |cx| {
        let handle = handle_from_string(cx)?;
        let (handle, iterator): (_, Arc<IteratorResource>) = anonymous::resolve(cx, handle)?;
        if !components.types.is_empty() {
            check_types(&components.types, &iterator.types)?;
        }
        if !components.shapes.is_empty() {
            check_shapes(&components.shapes, &iterator.shapes)?;
        }
        Ok(Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])?.into())
    })
}

fn delete_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let handle = cx.handle(0)?;
        // What runs ends now; the handle may live on in the client.
        cx.resource::<IteratorResource>(0)?.stop();
        let _ = cx.step().resources.delete::<IteratorResource>(handle.container(), handle.name());
        Ok(().into())
    })
}

/// Pipelines have no model here: the answer is that of stock when autotuning is off.
fn model_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        cx.resource::<IteratorResource>(0)?.running("GetModelProto", "getting the next element")?;
        bail!(
            NotFound,
            "Cannot find this iterator's analytical model: autotuning does without one here. AutotuneOptions have no \
             effect."
        )
    })
}

fn device_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(Str::copy_from_slice(cx.device().name().as_bytes())).into()))
}

//! Datasets of parsed examples: every batch of records becomes the features that are asked for.

use super::map::parallel_calls;
use crate::data::{Dataset, END, Element, Next, Source, SourceCx, kernel};
use crate::families::parsing::examples::Attributes;
use crate::parsing::example::{ExampleParser, Parsed};
use crate::state::variant_tensors::{VariantKind, VariantTensors};
use ferroflow_core::device::Device;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] =
    &[&PARSE_EXAMPLE_DATASET, &PARSE_EXAMPLE_DATASET_V2, &EXPERIMENTAL_PARSE_EXAMPLE_DATASET];

static PARSE_EXAMPLE_DATASET: Op = Op {
    name: "ParseExampleDataset",
    inputs: &["input_dataset: variant", "num_parallel_calls: int64", "dense_defaults: Tdense"],
    outputs: &["handle: variant"],
    attrs: &[
        "sparse_keys: list(string) >= 0",
        "dense_keys: list(string) >= 0",
        "sparse_types: list({float, int64, string}) >= 0",
        "Tdense: list({float, int64, string}) >= 0",
        "dense_shapes: list(shape) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "sloppy: bool = false",
        "ragged_keys: list(string) >= 0 = []",
        "ragged_value_types: list({float, int64, string}) >= 0 = []",
        "ragged_split_types: list({int32, int64}) >= 0 = []",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parse_kernel],
    cheap: true,
    ..Op::PURE
};

static PARSE_EXAMPLE_DATASET_V2: Op = Op {
    name: "ParseExampleDatasetV2",
    inputs: &["input_dataset: variant", "num_parallel_calls: int64", "dense_defaults: Tdense"],
    outputs: &["handle: variant"],
    attrs: &[
        "sparse_keys: list(string) >= 0",
        "dense_keys: list(string) >= 0",
        "sparse_types: list({float, int64, string}) >= 0",
        "Tdense: list({float, int64, string}) >= 0",
        "dense_shapes: list(shape) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "deterministic: string = 'default'",
        "ragged_keys: list(string) >= 0 = []",
        "ragged_value_types: list({float, int64, string}) >= 0 = []",
        "ragged_split_types: list({int32, int64}) >= 0 = []",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parse_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_PARSE_EXAMPLE_DATASET: Op = Op {
    name: "ExperimentalParseExampleDataset",
    inputs: &["input_dataset: variant", "num_parallel_calls: int64", "dense_defaults: Tdense"],
    outputs: &["handle: variant"],
    attrs: &[
        "sparse_keys: list(string) >= 0",
        "dense_keys: list(string) >= 0",
        "sparse_types: list({float, int64, string}) >= 0",
        "Tdense: list({float, int64, string}) >= 0",
        "dense_shapes: list(shape) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "sloppy: bool = false",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parse_kernel],
    cheap: true,
    ..Op::PURE
};

/// The place of a feature among those of its kind.
#[derive(Clone, Copy)]
enum Place {
    Dense(usize),
    Sparse(usize),
    Ragged(usize),
}

fn parse_kernel(init: &Init<'_>) -> Result<Kernel> {
    super::map::is_deterministic(init)?;
    let has_ragged = init.attrs.has("ragged_keys");
    let (sparse, dense): (Vec<Str>, Vec<Str>) = (init.attr("sparse_keys")?, init.attr("dense_keys")?);
    let ragged: Vec<Str> = if has_ragged { init.attr("ragged_keys")? } else { Vec::new() };
    let attributes = Attributes::new(init, sparse.len(), Some(dense.len()), has_ragged)?;
    // Elements have their components in the order of the names.
    let mut places: BTreeMap<Str, Place> = BTreeMap::new();
    let named = dense.iter().enumerate().map(|(at, key)| (key, Place::Dense(at)));
    let named = named.chain(sparse.iter().enumerate().map(|(at, key)| (key, Place::Sparse(at))));
    let named = named.chain(ragged.iter().enumerate().map(|(at, key)| (key, Place::Ragged(at))));
    for (key, place) in named {
        ensure!(
            places.insert(key.clone(), place).is_none(),
            InvalidArgument,
            "Duplicate key not allowed: {}",
            String::from_utf8_lossy(key)
        );
    }
    let places: Arc<[Place]> = places.into_values().collect();
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        parallel_calls(cx, 1)?;
        let defaults: Result<Vec<Tensor>> = (2..cx.num_inputs()).map(|at| cx.input(at).cloned()).collect();
        let defaults = defaults?;
        attributes.check_defaults(&defaults)?;
        let parser = Arc::new(attributes.parser(&sparse, &dense, &ragged, &defaults)?);
        let (places, types) = (places.clone(), spec.types.clone());
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            let (parser, places) = (parser.clone(), places.clone());
            Ok(Box::new(Parse {
                input: input.open(cx)?,
                parser,
                places,
                types: types.clone(),
                device: cx.device().clone(),
            }))
        }))
    })
}

/// Parses batches on the polling thread; the records of one are shared among the device's threads.
struct Parse {
    input: Box<dyn Source>,
    parser: Arc<ExampleParser>,
    places: Arc<[Place]>,
    types: Vec<DType>,
    device: Arc<Device>,
}

impl Source for Parse {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(element) = ready!(self.input.poll_next(cx))? else { return END };
        Poll::Ready(self.parse(&element).map(Some))
    }
}

impl Parse {
    fn parse(&self, element: &[Tensor]) -> Result<Element> {
        let mut records: Vec<Str> = Vec::new();
        for component in element {
            ensure!(
                component.dtype() == DType::String && component.rank() == 1,
                InvalidArgument,
                "the elements of the input must be vectors of records, not {} of shape {}",
                component.dtype(),
                component.shape()
            );
            records.extend_from_slice(component.units::<Str>()?);
        }
        let parsed = self.parser.parse_batch(self.device.threads(), &records, &[])?;
        let element: Element =
            self.places.iter().map(|place| component(&parsed, *place)).collect::<Result<_>>()?;
        for (at, (tensor, dtype)) in element.iter().zip(&self.types).enumerate() {
            ensure!(
                tensor.dtype() == *dtype,
                InvalidArgument,
                "Got wrong type for FastParseExample return value {at} (expected {dtype}, got {}).",
                tensor.dtype()
            );
        }
        Ok(element)
    }
}

fn component(parsed: &Parsed, place: Place) -> Result<Tensor> {
    match place {
        Place::Dense(at) => Ok(parsed.dense_values[at].clone()),
        Place::Sparse(at) => {
            let parts = [&parsed.sparse_indices[at], &parsed.sparse_values[at], &parsed.sparse_shapes[at]];
            sparse_variant(parts.map(Clone::clone))
        }
        Place::Ragged(at) => {
            let parts = vec![parsed.ragged_splits[at].clone(), parsed.ragged_values[at].clone()];
            VariantTensors::new(VariantKind::Ragged, parts).into_scalar()
        }
    }
}

/// A sparse tensor as a component: indices, values and shape as three variants.
pub(super) fn sparse_variant(parts: [Tensor; 3]) -> Result<Tensor> {
    let variants = parts.into_iter().map(VariantTensors::tensor).collect();
    Tensor::from_units(DType::Variant, Shape::vector(3), variants)
}

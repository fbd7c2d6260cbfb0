//! Datasets whose elements are kept after the first run.

use super::order::{delete_kernel, dummy_kernel, scalars};
use super::window::Elements;
use crate::data::file_cache::{self, CachedElements, CachingElements};
use crate::data::files;
use crate::data::memory::MemoryCache;
use crate::data::{Dataset, Element, Next, Source, SourceCx, kernel, scalar};
use crate::state::anonymous;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, kernels};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] =
    &[&CACHE_DATASET, &CACHE_DATASET_V2, &ANONYMOUS_MEMORY_CACHE, &DUMMY_MEMORY_CACHE, &DELETE_MEMORY_CACHE];

static CACHE_DATASET: Op = Op {
    name: "CacheDataset",
    inputs: &["input_dataset: variant", "filename: string"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any cache_kernel],
    cheap: true,
    ..Op::PURE
};

static CACHE_DATASET_V2: Op = Op {
    name: "CacheDatasetV2",
    inputs: &["input_dataset: variant", "filename: string", "cache: resource"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any cache_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ANONYMOUS_MEMORY_CACHE: Op = Op {
    name: "AnonymousMemoryCache",
    outputs: &["handle: resource", "deleter: variant"],
    shape: scalars,
    kernels: kernels![any memory_cache_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DUMMY_MEMORY_CACHE: Op = Op {
    name: "DummyMemoryCache",
    outputs: &["handle: resource"],
    shape: shapes::scalar,
    kernels: kernels![any dummy_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DELETE_MEMORY_CACHE: Op = Op {
    name: "DeleteMemoryCache",
    inputs: &["handle: resource", "deleter: variant"],
    kernels: kernels![any delete_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn memory_cache_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| anonymous::with_deleter(cx, "MemoryCache", Arc::new(MemoryCache::default())))
}

fn cache_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, name) = (Dataset::input(cx, 0)?, scalar::<Str>(cx, 1, "filename")?);
        if !name.is_empty() {
            let prefix = files::text(&name)?;
            let components = input.types().len();
            return Ok(Dataset::new(spec, input.cardinality(), move |cx| {
                if file_cache::is_complete(&prefix)? {
                    return Ok(Box::new(CachedElements::new(&prefix, components)));
                }
                Ok(Box::new(CachingElements::new(input.open(cx)?, &prefix, components)))
            }));
        }
        let shared = if cx.num_inputs() > 2 { cx.resource::<MemoryCache>(2).ok() } else { None };
        let cache = shared.unwrap_or_default();
        Ok(Dataset::new(spec, input.cardinality(), move |cx| match cache.get() {
            Some(elements) => Ok(Box::new(Elements { elements, next: 0 })),
            None => {
                let (input, cache) = (Some(input.open(cx)?), cache.clone());
                Ok(Box::new(Fill { input, cache, elements: Vec::new() }))
            }
        }))
    })
}

/// The first run, which fills the cache when it reaches its end.
struct Fill {
    input: Option<Box<dyn Source>>,
    cache: Arc<MemoryCache>,
    elements: Vec<Element>,
}

impl Source for Fill {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(input) = &mut self.input else { return Poll::Ready(Ok(None)) };
        let next = ready!(input.poll_next(cx))?;
        match &next {
            Some(element) => self.elements.push(element.clone()),
            None => {
                self.cache.complete(std::mem::take(&mut self.elements));
                self.input = None;
            }
        }
        Poll::Ready(Ok(next))
    }
}

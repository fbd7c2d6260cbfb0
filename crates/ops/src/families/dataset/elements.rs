//! Elements one by one: compressed, found by their place, or sampled; and datasets that wait.

use super::iterators::component_shapes;
use super::order::dummy_kernel;
use crate::data::compressed::{Compressed, compress, uncompress};
use crate::data::iterator::{OneRun, check_element};
use crate::data::random_access::{self, Access};
use crate::data::seeds::{seeds, words};
use crate::data::{Dataset, END, Next, Source, SourceCx, UNKNOWN, kernel, scalar};
use crate::numeric::philox::Words;
use crate::support::blocking;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::variant::Variant;
use ferroflow_core::{BoxFuture, DType, PartialShape, Result, Shape, Tensor, ensure, kernels};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::{Duration, Instant};

pub(crate) const OPS: &[&Op] = &[
    &COMPRESS_ELEMENT,
    &UNCOMPRESS_ELEMENT,
    &COMPUTE_BATCH_SIZE,
    &GET_ELEMENT_AT_INDEX,
    &SAMPLING_DATASET,
    &SLEEP_DATASET,
    &EXPERIMENTAL_SLEEP_DATASET,
    &DUMMY_ITERATION_COUNTER,
];

static COMPRESS_ELEMENT: Op = Op {
    name: "CompressElement",
    inputs: &["components: input_types"],
    outputs: &["compressed: variant"],
    attrs: &["input_types: list(type) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any compress_kernel],
    ..Op::PURE
};

static UNCOMPRESS_ELEMENT: Op = Op {
    name: "UncompressElement",
    inputs: &["compressed: variant"],
    outputs: &["components: output_types"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: component_shapes,
    kernels: kernels![any uncompress_kernel],
    ..Op::PURE
};

static COMPUTE_BATCH_SIZE: Op = Op {
    name: "ComputeBatchSize",
    inputs: &["input_dataset: variant"],
    outputs: &["batch_size: int64"],
    shape: shapes::scalar,
    kernels: kernels![any batch_size_kernel],
    cheap: true,
    ..Op::PURE
};

static GET_ELEMENT_AT_INDEX: Op = Op {
    name: "GetElementAtIndex",
    inputs: &["dataset: variant", "index: int64"],
    outputs: &["components: output_types"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: component_shapes,
    kernels: kernels![any element_at_kernel],
    ..Op::PURE
};

static SAMPLING_DATASET: Op = Op {
    name: "SamplingDataset",
    inputs: &["input_dataset: variant", "rate: float", "seed: int64", "seed2: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any sampling_kernel],
    cheap: true,
    ..Op::PURE
};

static SLEEP_DATASET: Op = Op {
    name: "SleepDataset",
    inputs: &["input_dataset: variant", "sleep_microseconds: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any sleep_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_SLEEP_DATASET: Op = Op { name: "ExperimentalSleepDataset", ..SLEEP_DATASET };

static DUMMY_ITERATION_COUNTER: Op = Op {
    name: "DummyIterationCounter",
    outputs: &["handle: resource"],
    shape: shapes::scalar,
    kernels: kernels![any dummy_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn compress_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let variants = vec![Variant::new(Compressed(compress(&super::sources::inputs(cx)?)?))];
        Ok(Tensor::from_units(DType::Variant, Shape::scalar(), variants)?.into())
    })
}

fn uncompress_kernel(init: &Init<'_>) -> Result<Kernel> {
    let types: Vec<DType> = init.attr("output_types")?;
    Kernel::sync(move |cx| {
        let tensor = cx.input(0)?;
        ensure!(
            tensor.rank() == 0,
            InvalidArgument,
            "`CompressedElement` tensor must be a scalar of dtype `DT_VARIANT`."
        );
        let compressed = Compressed::from_variant(&tensor.units::<Variant>()?[0])?;
        let types_held: Vec<i32> =
            compressed.component_metadata.iter().map(|metadata| metadata.dtype).collect();
        ensure!(
            types_held.len() == types.len(),
            FailedPrecondition,
            "Expected {} outputs from uncompress, but got {}",
            types.len(),
            types_held.len()
        );
        for (held, dtype) in types_held.iter().zip(&types) {
            ensure!(
                *held == dtype.to_wire(),
                FailedPrecondition,
                "Expected a tensor of type {dtype} but got another one"
            );
        }
        // As in stock, shapes are promises that nobody checks.
        Ok(uncompress(&compressed)?.into())
    })
}

/// The op's name without its version.
fn base(op: &str) -> &str {
    op.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('V')
}

/// The size of a dataset's batches; -1 if it has none or they differ.
fn batch_size(dataset: &Dataset) -> i64 {
    let number =
        |argument: Option<&Tensor>| argument.and_then(|tensor| tensor.to_scalar::<i64>().ok()).unwrap_or(-1);
    let arguments = dataset.arguments().unwrap_or_default();
    match base(dataset.op()) {
        "BatchDataset" | "PaddedBatchDataset" => number(arguments.get(1)),
        "MapAndBatchDataset" | "ExperimentalMapAndBatchDataset" => {
            // Captures are between the input and the size, which is followed by two arguments.
            number(arguments.len().checked_sub(3).and_then(|at| arguments.get(at)))
        }
        "ConcatenateDataset" | "ZipDataset" => {
            let sizes: Vec<i64> = dataset.inputs().map(|input| batch_size(&input)).collect();
            match sizes.split_first() {
                Some((first, rest)) if rest.iter().all(|size| size == first) => *first,
                _ => -1,
            }
        }
        "AssertCardinalityDataset"
        | "CacheDataset"
        | "FilterDataset"
        | "FinalizeDataset"
        | "ModelDataset"
        | "OptimizeDataset"
        | "OptionsDataset"
        | "ParseExampleDataset"
        | "PrefetchDataset"
        | "RepeatDataset"
        | "ShardDataset"
        | "ShuffleAndRepeatDataset"
        | "ShuffleDataset"
        | "SkipDataset"
        | "TakeDataset" => dataset.inputs().next().map_or(-1, |input| batch_size(&input)),
        _ => -1,
    }
}

fn batch_size_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(batch_size(&Dataset::input(cx, 0)?)).into()))
}

fn element_at_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (types, shapes): (Vec<DType>, Vec<PartialShape>) =
        (init.attr("output_types")?, init.attr("output_shapes")?);
    let results = Arc::new((types, shapes));
    Kernel::future(move |mut cx| {
        let results = results.clone();
        async move {
            let (dataset, index, run) = {
                let cx = cx.cx();
                let dataset = Dataset::input(&cx, 0)?;
                // The run owns the functions' instances.
                let run = OneRun::context(cx.step());
                (dataset, scalar::<i64>(&cx, 1, "index")?, run)
            };
            random_access::check(&dataset)?;
            let element = random_access::element(Access { cx: run }, dataset, index).await?;
            check_element(&results.0, &results.1, &element)?;
            Ok(element.into())
        }
    })
}

fn sampling_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, rate): (Dataset, f32) = (Dataset::input(cx, 0)?, scalar(cx, 1, "rate")?);
        let (seed, seed2): (i64, i64) = (scalar(cx, 2, "seed")?, scalar(cx, 3, "seed2")?);
        let chosen = seeds(seed, seed2);
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            Ok(Box::new(Sampling { input: Some(input.open(cx)?), rate, random: words(chosen) }))
        }))
    })
}

struct Sampling {
    input: Option<Box<dyn Source>>,
    rate: f32,
    random: Words,
}

impl Source for Sampling {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            let Some(input) = &mut self.input else { return END };
            let Some(element) = ready!(input.poll_next(cx))? else {
                self.input = None;
                return END;
            };
            // A number in [0, 1) of 23 random bits, as the uniform ops make it.
            let draw = f32::from_bits(0x3f80_0000 | (self.random.next() & 0x7f_ffff)) - 1.0;
            if draw < self.rate {
                return Poll::Ready(Ok(Some(element)));
            }
        }
    }
}

fn sleep_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, wait): (Dataset, i64) = (Dataset::input(cx, 0)?, scalar(cx, 1, "sleep_microseconds")?);
        ensure!(wait >= 0, InvalidArgument, "`sleep_microseconds` must be >= 0");
        let wait = Duration::from_micros(wait as u64);
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            Ok(Box::new(Sleep { input: input.open(cx)?, wait, waiting: None, waited: false }))
        }))
    })
}

/// Waits before every element, on a thread that has nothing else to do.
struct Sleep {
    input: Box<dyn Source>,
    wait: Duration,
    waiting: Option<BoxFuture<Result<()>>>,
    waited: bool,
}

/// The longest time without a look at whether anybody still waits.
const SLEEP_SLICE: Duration = Duration::from_millis(20);

impl Source for Sleep {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        if !self.waited {
            let wait = self.wait;
            let waiting = self.waiting.get_or_insert_with(|| {
                Box::pin(blocking::run("sleep of a dataset", move |cancellation: Cancellation| {
                    let end = Instant::now() + wait;
                    while let Some(left) = end.checked_duration_since(Instant::now()) {
                        if let Some(reason) = cancellation.reason() {
                            return Err(reason);
                        }
                        std::thread::park_timeout(left.min(SLEEP_SLICE));
                    }
                    Ok(())
                }))
            });
            let waited = ready!(waiting.as_mut().poll(cx.task));
            self.waiting = None;
            waited?;
            self.waited = true;
        }
        let next = ready!(self.input.poll_next(cx));
        self.waited = false;
        Poll::Ready(next)
    }
}

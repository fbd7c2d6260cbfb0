//! Datasets that measure others, and what becomes of the measurements.

use super::iterators::named_handle;
use crate::data::stats::{Statistics, StatsAggregator};
use crate::data::{Dataset, IteratorCx, Next, Source, SourceCx, kernel};
use crate::state::resource_name::ResourceName;
use crate::state::summary_writer::SummaryWriter;
use ferroflow_core::kernel::{Init, Kernel, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, shapes};
use ferroflow_core::tensor::Storage;
use ferroflow_core::{Result, Tensor, kernels};
use prost::Message;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Instant;

pub(crate) const OPS: &[&Op] = &[
    &LATENCY_STATS_DATASET,
    &EXPERIMENTAL_LATENCY_STATS_DATASET,
    &BYTES_PRODUCED_STATS_DATASET,
    &EXPERIMENTAL_BYTES_PRODUCED_STATS_DATASET,
    &SET_STATS_AGGREGATOR_DATASET,
    &EXPERIMENTAL_SET_STATS_AGGREGATOR_DATASET,
    &STATS_AGGREGATOR_HANDLE,
    &STATS_AGGREGATOR_HANDLE_V2,
    &EXPERIMENTAL_STATS_AGGREGATOR_HANDLE,
    &STATS_AGGREGATOR_SUMMARY,
    &EXPERIMENTAL_STATS_AGGREGATOR_SUMMARY,
    &STATS_AGGREGATOR_SET_SUMMARY_WRITER,
];

static LATENCY_STATS_DATASET: Op = Op {
    name: "LatencyStatsDataset",
    inputs: &["input_dataset: variant", "tag: string"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any measured_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_LATENCY_STATS_DATASET: Op =
    Op { name: "ExperimentalLatencyStatsDataset", ..LATENCY_STATS_DATASET };

static BYTES_PRODUCED_STATS_DATASET: Op = Op { name: "BytesProducedStatsDataset", ..LATENCY_STATS_DATASET };

static EXPERIMENTAL_BYTES_PRODUCED_STATS_DATASET: Op =
    Op { name: "ExperimentalBytesProducedStatsDataset", ..LATENCY_STATS_DATASET };

static SET_STATS_AGGREGATOR_DATASET: Op = Op {
    name: "SetStatsAggregatorDataset",
    inputs: &[
        "input_dataset: variant",
        "stats_aggregator: resource",
        "tag: string",
        "counter_prefix: string",
    ],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any set_aggregator_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_SET_STATS_AGGREGATOR_DATASET: Op =
    Op { name: "ExperimentalSetStatsAggregatorDataset", ..SET_STATS_AGGREGATOR_DATASET };

static STATS_AGGREGATOR_HANDLE: Op = Op {
    name: "StatsAggregatorHandle",
    outputs: &["handle: resource"],
    attrs: &["container: string = ''", "shared_name: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any aggregator_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static STATS_AGGREGATOR_HANDLE_V2: Op = Op { name: "StatsAggregatorHandleV2", ..STATS_AGGREGATOR_HANDLE };

static EXPERIMENTAL_STATS_AGGREGATOR_HANDLE: Op =
    Op { name: "ExperimentalStatsAggregatorHandle", ..STATS_AGGREGATOR_HANDLE };

static STATS_AGGREGATOR_SUMMARY: Op = Op {
    name: "StatsAggregatorSummary",
    inputs: &["iterator: resource"],
    outputs: &["summary: string"],
    shape: shapes::scalar,
    kernels: kernels![any summary_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_STATS_AGGREGATOR_SUMMARY: Op =
    Op { name: "ExperimentalStatsAggregatorSummary", ..STATS_AGGREGATOR_SUMMARY };

static STATS_AGGREGATOR_SET_SUMMARY_WRITER: Op = Op {
    name: "StatsAggregatorSetSummaryWriter",
    inputs: &["stats_aggregator: resource", "summary: resource"],
    shape: no_outputs,
    kernels: kernels![any set_writer_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn no_outputs(_: &mut ShapeCx<'_>) -> Result<()> {
    Ok(())
}

fn aggregator_kernel(init: &Init<'_>) -> Result<Kernel> {
    let name = ResourceName::<StatsAggregator>::new(init)?;
    Kernel::sync(move |cx| {
        name.lookup_or_create(cx, || Ok(StatsAggregator::default()))?;
        Ok(named_handle(cx, &name.container, &name.name, "N10tensorflow4data15StatsAggregatorE")?.into())
    })
}

fn summary_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let summary = cx.resource::<StatsAggregator>(0)?.summary();
        Ok(Tensor::scalar::<Str>(summary.encode_to_vec().into()).into())
    })
}

fn set_writer_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let writer = cx.resource::<SummaryWriter>(1)?;
        cx.resource::<StatsAggregator>(0)?.set_writer(writer);
        Ok(Outputs::None)
    })
}

fn set_aggregator_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let statistics =
            Statistics { aggregator: cx.resource(1)?, tag: super::readers::path_of(cx, 2, "tag")? };
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            cx.set_statistics(statistics.clone());
            input.open(cx)
        }))
    })
}

fn measured_kernel(init: &Init<'_>) -> Result<Kernel> {
    let times = init.op.contains("Latency");
    kernel(init, move |cx, spec| {
        let (input, tag) = (Dataset::input(cx, 0)?, super::readers::path_of(cx, 1, "tag")?);
        Ok(Dataset::new(spec, input.cardinality(), move |cx| {
            let (input, tag, cx) = (input.open(cx)?, tag.clone(), cx.clone());
            Ok(Box::new(Measured { input, tag, cx, times, asked: None, elements: 0 }))
        }))
    })
}

/// Passes elements on and adds how long they took, or how large they are, to the iterator's statistics.
struct Measured {
    input: Box<dyn Source>,
    tag: String,
    cx: Arc<IteratorCx>,
    times: bool,
    /// The time at which the next element was first asked for.
    asked: Option<Instant>,
    elements: i64,
}

impl Source for Measured {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(statistics) = self.cx.statistics() else { return self.input.poll_next(cx) };
        let asked = *self.asked.get_or_insert_with(Instant::now);
        let next = ready!(self.input.poll_next(cx));
        self.asked = None;
        if let Ok(Some(element)) = &next {
            let value = if self.times {
                asked.elapsed().as_micros() as f64
            } else {
                element.iter().map(bytes).sum::<usize>() as f64
            };
            statistics.add(&self.tag, value, self.elements);
            self.elements += 1;
        }
        Poll::Ready(next)
    }
}

/// The size of a tensor as stock counts it: strings have a header each.
fn bytes(tensor: &Tensor) -> usize {
    const STRING_HEADER: usize = 24;
    match tensor.storage() {
        Storage::Strings(values) => values.iter().map(|text| STRING_HEADER + text.len()).sum(),
        _ => tensor.elements() * tensor.dtype().size(),
    }
}

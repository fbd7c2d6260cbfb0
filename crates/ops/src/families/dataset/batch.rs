//! Datasets of batches, and of the rows of batches.

use super::limit::{EMPTY, restore_input, save_input};
use super::map::{ParallelMap, parallel_calls};
use crate::data::background::ParallelCalls;
use crate::data::state::{Restorer, Saver};
use crate::data::{
    Dataset, END, Element, INFINITE, IteratorCx, Next, Source, SourceCx, UNKNOWN, kernel, scalar, stack,
};
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &BATCH_DATASET,
    &BATCH_DATASET_V2,
    &PARALLEL_BATCH_DATASET,
    &PADDED_BATCH_DATASET,
    &PADDED_BATCH_DATASET_V2,
    &MAP_AND_BATCH_DATASET,
    &EXPERIMENTAL_MAP_AND_BATCH_DATASET,
    &UNBATCH_DATASET,
    &EXPERIMENTAL_UNBATCH_DATASET,
    &REBATCH_DATASET,
    &EXPERIMENTAL_REBATCH_DATASET,
    &REBATCH_DATASET_V2,
];

static BATCH_DATASET: Op = Op {
    name: "BatchDataset",
    inputs: &["input_dataset: variant", "batch_size: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any batch_kernel],
    cheap: true,
    ..Op::PURE
};

static BATCH_DATASET_V2: Op = Op {
    name: "BatchDatasetV2",
    inputs: &["input_dataset: variant", "batch_size: int64", "drop_remainder: bool"],
    outputs: &["handle: variant"],
    attrs: &[
        "parallel_copy: bool = false",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any batch_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_BATCH_DATASET: Op = Op {
    name: "ParallelBatchDataset",
    inputs: &[
        "input_dataset: variant",
        "batch_size: int64",
        "num_parallel_calls: int64",
        "drop_remainder: bool",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "parallel_copy: bool = false",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "deterministic: string = 'default'",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any batch_kernel],
    cheap: true,
    ..Op::PURE
};

static PADDED_BATCH_DATASET: Op = Op {
    name: "PaddedBatchDataset",
    inputs: &[
        "input_dataset: variant",
        "batch_size: int64",
        "padded_shapes: N * int64",
        "padding_values: Toutput_types",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "Toutput_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "N: int >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any padded_batch_kernel],
    cheap: true,
    ..Op::PURE
};

static PADDED_BATCH_DATASET_V2: Op = Op {
    name: "PaddedBatchDatasetV2",
    inputs: &[
        "input_dataset: variant",
        "batch_size: int64",
        "padded_shapes: N * int64",
        "padding_values: Toutput_types",
        "drop_remainder: bool",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "parallel_copy: bool = false",
        "Toutput_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "N: int >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any padded_batch_kernel],
    cheap: true,
    ..Op::PURE
};

static MAP_AND_BATCH_DATASET: Op = Op {
    name: "MapAndBatchDataset",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "batch_size: int64",
        "num_parallel_calls: int64",
        "drop_remainder: bool",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "preserve_cardinality: bool = false",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any map_and_batch_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_MAP_AND_BATCH_DATASET: Op = Op {
    name: "ExperimentalMapAndBatchDataset",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "batch_size: int64",
        "num_parallel_calls: int64",
        "drop_remainder: bool",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "preserve_cardinality: bool = false",
    ],
    shape: shapes::scalar,
    kernels: kernels![any map_and_batch_kernel],
    cheap: true,
    ..Op::PURE
};

static UNBATCH_DATASET: Op = Op {
    name: "UnbatchDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any unbatch_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_UNBATCH_DATASET: Op = Op {
    name: "ExperimentalUnbatchDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any unbatch_kernel],
    cheap: true,
    ..Op::PURE
};

static REBATCH_DATASET: Op = Op {
    name: "RebatchDataset",
    inputs: &["input_dataset: variant", "num_replicas: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "use_fallback: bool = true"],
    shape: shapes::scalar,
    kernels: kernels![any rebatch_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_REBATCH_DATASET: Op = Op { name: "ExperimentalRebatchDataset", ..REBATCH_DATASET };

static REBATCH_DATASET_V2: Op = Op {
    name: "RebatchDatasetV2",
    inputs: &["input_dataset: variant", "batch_sizes: int64", "drop_remainder: bool"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any rebatch_v2_kernel],
    cheap: true,
    ..Op::PURE
};

/// The number of batches of a dataset.
fn batches(input: &Dataset, size: i64, drops: bool) -> i64 {
    match input.cardinality() {
        special @ (INFINITE | UNKNOWN) => special,
        known => known / size + (known % size != 0 && !drops) as i64,
    }
}

fn batch_size(cx: &KernelCx<'_>, input: usize) -> Result<i64> {
    let size: i64 = scalar(cx, input, "batch_size")?;
    ensure!(size > 0, InvalidArgument, "Batch size must be greater than zero.");
    Ok(size)
}

fn batch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let parallel = init.op == "ParallelBatchDataset";
    let stage = match init.op {
        "BatchDataset" => Some("Batch"),
        "BatchDatasetV2" => Some("BatchV2"),
        _ => None,
    };
    kernel(init, move |cx, spec| {
        let (input, size) = (Dataset::input(cx, 0)?, batch_size(cx, 1)?);
        if parallel {
            parallel_calls(cx, 2)?;
        }
        let last = cx.num_inputs() - 1;
        let drops = last > 1 && scalar(cx, last, "drop_remainder")?;
        Ok(Dataset::new(spec, batches(&input, size, drops), move |cx| {
            Ok(Box::new(Batch::new(input.open(cx)?, size, drops, cx, Stacking::Plain).named(stage)))
        }))
    })
}

/// The way in which elements become one.
enum Stacking {
    Plain,
    Padded { shapes: Arc<[PartialShape]>, values: Arc<[Tensor]> },
}

struct Batch {
    input: Option<Box<dyn Source>>,
    size: usize,
    drops: bool,
    elements: Vec<Element>,
    cx: Arc<IteratorCx>,
    stacking: Stacking,
    /// Stock's name of the stage, if its state can be exchanged.
    stage: Option<&'static str>,
    /// True if stock makes one stage of it and its input.
    fused: bool,
    /// True if the input has ended; it is kept only for its state.
    ended: bool,
    /// Batches that a restored state had.
    ahead: VecDeque<Result<Element>>,
}

impl Batch {
    fn new(
        mut input: Box<dyn Source>,
        size: i64,
        drops: bool,
        cx: &Arc<IteratorCx>,
        stacking: Stacking,
    ) -> Batch {
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let elements = Vec::with_capacity(size.min(1024));
        let fused = input.as_map().is_some();
        let (input, cx, ahead) = (Some(input), cx.clone(), VecDeque::new());
        Batch { input, size, drops, elements, cx, stacking, stage: None, fused, ended: false, ahead }
    }

    /// The batch with stock's name of the stage, for its state.
    fn named(self, stage: Option<&'static str>) -> Batch {
        Batch { stage, ..self }
    }

    /// Writes the state of a map and a batch as that of the one stage that stock makes of them.
    fn poll_save_fused(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let Some(map) = self.input.as_mut().and_then(|input| input.as_map()) else {
            return Poll::Ready(Err(status!(Unimplemented, "")));
        };
        let mut elements = self.elements.clone();
        elements.extend(ready!(map.poll_results(cx))?);
        let mut to = to.stage("MapAndBatch");
        ready!(map.input().poll_save(&mut to, cx))?;
        let batches = self.ahead.len() + elements.len().div_ceil(self.size);
        to.number("call_counter", (self.ahead.len() * self.size + elements.len()) as i64);
        to.number("batch_results_size", batches as i64);
        for (i, batch) in self.ahead.iter().enumerate() {
            let Ok(batch) = batch else { return Poll::Ready(Err(status!(Unimplemented, ""))) };
            save_batch(&mut to, i, batch, self.size, self.size);
        }
        for (i, rows) in (self.ahead.len()..).zip(elements.chunks(self.size)) {
            let batch = stack::batch(self.cx.device(), rows)?;
            save_batch(&mut to, i, &batch, rows.len(), self.size);
        }
        Poll::Ready(Ok(()))
    }

    /// Reads the state of the one stage that stock makes of a map and a batch.
    fn restore_fused(&mut self, from: &Restorer) -> Result<()> {
        for i in 0..from.count("batch_results_size")? {
            let key = |name: &str| format!("batch_results_{i}_{name}");
            let code = from.full_number(&key("status_code"))?;
            let (left, count) = (from.number(&key("num_calls"))?, from.count(&key("num_elements"))?);
            if code != 0 {
                let failure = from.failure(code, &key("status_message"));
                self.ahead.push_back(Err(failure));
                continue;
            }
            let outputs = from.full_number(&key("output_size"))?;
            if count == 0 || outputs == 0 || (count < self.size && left == 0 && self.drops) {
                continue;
            }
            let place = from.full_place(&format!("batch_results_{i}"));
            let batch: Result<Element> = (0..outputs).map(|j| place.tensor(&format!("output_{j}"))).collect();
            let (batch, device) = (batch?, self.cx.device());
            ensure!(
                batch.iter().all(|output| output.rank() > 0 && output.shape().dim(0) >= count),
                InvalidArgument,
                "batch {i} of the state of an iterator has fewer than {count} elements"
            );
            if left == 0 {
                let first = |output: &Tensor| {
                    let dims =
                        std::iter::once(count as i64).chain(output.shape().dims().iter().skip(1).copied());
                    rows::slice(device, output, 0, Shape::new(dims)?)
                };
                self.ahead.push_back(batch.iter().map(first).collect());
                continue;
            }
            for row in 0..count {
                let element: Result<Element> =
                    batch.iter().map(|output| rows::row(device, output, row)).collect();
                self.elements.push(element?);
            }
        }
        match self.input.as_mut().and_then(|input| input.as_map()) {
            Some(map) => map.input().restore(from),
            None => Ok(()),
        }
    }
}

/// Writes a batch of a stage that maps and batches, of which some elements may be missing.
fn save_batch(to: &mut Saver<'_>, i: usize, batch: &[Tensor], count: usize, size: usize) {
    let key = |name: &str| format!("batch_results_{i}_{name}");
    to.number(&key("num_calls"), (size - count) as i64);
    to.number(&key("num_elements"), count as i64);
    to.mark(&key("output_allocated"));
    to.full_number(&key("output_size"), batch.len() as i64);
    to.full_number(&key("status_code"), 0);
    let mut place = to.full_place(&format!("batch_results_{i}"));
    for (j, output) in batch.iter().enumerate() {
        place.tensor(&format!("output_{j}"), output.clone());
    }
}

impl Source for Batch {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        if let Some(batch) = self.ahead.pop_front() {
            return Poll::Ready(batch.map(Some));
        }
        while self.elements.len() < self.size {
            let Some(input) = self.input.as_mut().filter(|_| !self.ended) else { break };
            ready!(cx.tick());
            match ready!(input.poll_next(cx)) {
                Ok(Some(element)) => self.elements.push(element),
                Ok(None) if self.fused => self.ended = true,
                Ok(None) => self.input = None,
                Err(error) => {
                    self.elements.clear();
                    return Poll::Ready(Err(error));
                }
            }
        }
        if self.elements.is_empty() || (self.drops && self.elements.len() < self.size) {
            self.elements.clear();
            return END;
        }
        let device = self.cx.device();
        let batch = match &self.stacking {
            Stacking::Plain => stack::batch(device, &self.elements),
            Stacking::Padded { shapes, values } => {
                stack::padded_batch(device, &self.elements, shapes, values)
            }
        };
        self.elements.clear();
        Poll::Ready(batch.map(Some))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let Some(stage) = self.stage else { return Poll::Ready(Err(status!(Unimplemented, ""))) };
        if self.fused {
            return self.poll_save_fused(to, cx);
        }
        let mut to = to.stage(stage);
        to.number(EMPTY, self.input.is_none() as i64);
        save_input(&mut self.input, &mut to, cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let Some(stage) = self.stage else { bail!(Unimplemented, "") };
        if self.fused && from.has("MapAndBatch") {
            return self.restore_fused(&from.stage(&["MapAndBatch"])?);
        }
        let from = from.stage(&[stage])?;
        restore_input(&mut self.input, &from, from.flag(EMPTY)?)
    }

    fn works_ahead(&mut self) -> bool {
        self.stage.is_some() && self.fused
    }
}

fn padded_batch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count: usize = init.attr("N")?;
    let has_drop = init.op.ends_with("V2");
    kernel(init, move |cx, spec| {
        let (input, size) = (Dataset::input(cx, 0)?, batch_size(cx, 1)?);
        let components = input.types().len();
        ensure!(
            count == components,
            InvalidArgument,
            "Number of padded shapes ({count}) must match the number of components in the input dataset's elements \
             ({components})"
        );
        let mut shapes = Vec::with_capacity(count);
        for at in 2..2 + count {
            let shape = cx.input(at)?;
            ensure!(shape.rank() == 1, InvalidArgument, "All padded shapes must be vectors");
            shapes.push(PartialShape::new(shape.to_i64s()?)?);
        }
        let values = spec.types.len();
        ensure!(
            values == components,
            InvalidArgument,
            "Number of padding values ({values}) must match the number of components in the input dataset's elements \
             ({components})"
        );
        let mut padding = Vec::with_capacity(values);
        for i in 0..values {
            let value = cx.input(2 + count + i)?;
            ensure!(value.rank() == 0, InvalidArgument, "All padding values must be scalars");
            ensure!(
                value.dtype() == input.types()[i],
                InvalidArgument,
                "Mismatched type between padding value {i} and input dataset's component {i}: {} vs. {}",
                value.dtype(),
                input.types()[i]
            );
            padding.push(value.clone());
        }
        let drops = has_drop && scalar(cx, cx.num_inputs() - 1, "drop_remainder")?;
        let (shapes, values): (Arc<[PartialShape]>, Arc<[Tensor]>) = (shapes.into(), padding.into());
        Ok(Dataset::new(spec, batches(&input, size, drops), move |cx| {
            let stacking = Stacking::Padded { shapes: shapes.clone(), values: values.clone() };
            Ok(Box::new(Batch::new(input.open(cx)?, size, drops, cx, stacking)))
        }))
    })
}

fn map_and_batch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let arguments = init.attr::<Vec<DType>>("Targuments")?.len();
    let preserves: bool = init.attr("preserve_cardinality")?;
    kernel(init, move |cx, spec| {
        let (input, first) = (Dataset::input(cx, 0)?, 1 + arguments);
        let function = spec.function(cx, "f", 1..first)?;
        let size: i64 = scalar(cx, first, "batch_size")?;
        ensure!(size > 0, InvalidArgument, "batch_size must be greater than zero.");
        let limit = parallel_calls(cx, first + 1)?;
        let drops: bool = scalar(cx, first + 2, "drop_remainder")?;
        let cardinality = if preserves { batches(&input, size, drops) } else { UNKNOWN };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let calls = ParallelCalls::new(input.open(cx)?, function.caller(cx)?, limit, true, false);
            let mapped = Box::new(ParallelMap { calls, preserves, stage: "ParallelMapV2" });
            Ok(Box::new(Batch::new(mapped, size, drops, cx, Stacking::Plain).named(Some("BatchV2"))))
        }))
    })
}

fn unbatch_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let rows =
            input.shapes().iter().find_map(|shape| shape.dims()?.first().filter(|dim| **dim >= 0).copied());
        let cardinality = match (input.cardinality(), rows) {
            (special @ (INFINITE | 0), _) => special,
            (UNKNOWN, _) | (_, None) => UNKNOWN,
            (known, Some(rows)) => known.saturating_mul(rows),
        };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let (input, batch) = (input.open(cx)?, Vec::new());
            Ok(Box::new(Unbatch { input, batch, next: 0, rows: 0, cx: cx.clone() }))
        }))
    })
}

struct Unbatch {
    input: Box<dyn Source>,
    batch: Element,
    next: usize,
    rows: usize,
    cx: Arc<IteratorCx>,
}

impl Source for Unbatch {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        while self.next == self.rows {
            ready!(cx.tick());
            let Some(batch) = ready!(self.input.poll_next(cx))? else { return END };
            (self.next, self.rows) = (0, rows_of(&batch)?);
            self.batch = batch;
        }
        let (row, device) = (self.next, self.cx.device());
        self.next += 1;
        let element = self.batch.iter().map(|component| rows::row(device, component, row)).collect();
        Poll::Ready(Result::map(element, Some))
    }
}

/// The rows that all components have.
fn rows_of(batch: &[Tensor]) -> Result<usize> {
    for component in batch {
        ensure!(
            component.rank() > 0,
            InvalidArgument,
            "Input element must have a non-scalar value in each component."
        );
    }
    let rows = batch.first().map_or(0, |component| component.shape().dim(0));
    for (i, component) in batch.iter().enumerate() {
        ensure!(
            component.shape().dim(0) == rows,
            InvalidArgument,
            "Input element must have the same batch size in each component. Component 0 had size {rows} but component \
             {i} had size, {}.",
            component.shape().dim(0)
        );
    }
    Ok(rows)
}

/// Some rows of every component.
fn cut(cx: &IteratorCx, batch: &[Tensor], start: usize, count: usize) -> Result<Element> {
    let slice = |component: &Tensor| {
        let row: usize = component.shape().dims()[1..].iter().map(|dim| *dim as usize).product();
        let shape = rows::stacked(count, &component.shape().dims()[1..])?;
        rows::slice(cx.device(), component, start * row, shape)
    };
    batch.iter().map(slice).collect()
}

/// Splits every batch evenly among replicas.
fn rebatch_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, replicas) = (Dataset::input(cx, 0)?, scalar::<i64>(cx, 1, "num_replicas")?);
        ensure!(replicas > 0, InvalidArgument, "num_replicas must be greater than zero.");
        let cardinality = match input.cardinality() {
            special @ (INFINITE | UNKNOWN) => special,
            known => known.saturating_mul(replicas),
        };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let (input, cx) = (input.open(cx)?, cx.clone());
            Ok(Box::new(SplitBatches { input, replicas: replicas as usize, parts: VecDeque::new(), cx }))
        }))
    })
}

struct SplitBatches {
    input: Box<dyn Source>,
    replicas: usize,
    parts: VecDeque<Element>,
    cx: Arc<IteratorCx>,
}

impl Source for SplitBatches {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        if self.parts.is_empty() {
            let Some(batch) = ready!(self.input.poll_next(cx))? else { return END };
            let rows = rows_of(&batch)?;
            let each = rows.div_ceil(self.replicas);
            for replica in 0..self.replicas {
                let start = (replica * each).min(rows);
                let part = cut(&self.cx, &batch, start, each.min(rows - start))?;
                self.parts.push_back(part);
            }
        }
        Poll::Ready(Ok(self.parts.pop_front()))
    }
}

/// Batches of other sizes, in a cycle.
fn rebatch_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let sizes = cx.input(1)?;
        ensure!(sizes.rank() <= 1, InvalidArgument, "`batch_sizes` must be a scalar or a vector.");
        let sizes: Vec<i64> = sizes.to_i64s()?;
        ensure!(!sizes.is_empty(), InvalidArgument, "`batch_sizes` must not be empty.");
        ensure!(
            sizes.iter().all(|size| *size > 0),
            InvalidArgument,
            "`batch_sizes` must contain only positive values"
        );
        let drops: bool = scalar(cx, 2, "drop_remainder")?;
        let cardinality = if input.cardinality() == INFINITE { INFINITE } else { UNKNOWN };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let sizes = sizes.iter().map(|size| *size as usize).collect();
            let (input, cx) = (Some(input.open(cx)?), cx.clone());
            Ok(Box::new(Rebatch { input, sizes, at: 0, drops, parts: VecDeque::new(), rows: 0, cx }))
        }))
    })
}

struct Rebatch {
    input: Option<Box<dyn Source>>,
    sizes: Vec<usize>,
    at: usize,
    drops: bool,
    /// Batches with the number of their rows, which were not handed out yet.
    parts: VecDeque<(Element, usize)>,
    rows: usize,
    cx: Arc<IteratorCx>,
}

impl Source for Rebatch {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let size = self.sizes[self.at];
        while self.rows < size {
            let Some(input) = &mut self.input else { break };
            match ready!(input.poll_next(cx))? {
                Some(batch) => {
                    let rows = rows_of(&batch)?;
                    self.rows += rows;
                    self.parts.push_back((batch, rows));
                }
                None => self.input = None,
            }
        }
        if self.rows == 0 || (self.rows < size && self.drops) {
            return END;
        }
        self.at = (self.at + 1) % self.sizes.len();
        let wanted = size.min(self.rows);
        Poll::Ready(self.take(wanted).map(Some))
    }
}

impl Rebatch {
    /// Takes this many rows off what is there.
    fn take(&mut self, wanted: usize) -> Result<Element> {
        let (mut pieces, mut left) = (Vec::new(), wanted);
        while left > 0 {
            let Some((batch, rows)) = self.parts.pop_front() else { break };
            if rows <= left {
                left -= rows;
                pieces.push(batch);
                continue;
            }
            pieces.push(cut(&self.cx, &batch, 0, left)?);
            self.parts.push_front((cut(&self.cx, &batch, left, rows - left)?, rows - left));
            left = 0;
        }
        self.rows -= wanted;
        if let [_] = pieces.as_slice() {
            return Ok(pieces.swap_remove(0));
        }
        let Some(first) = pieces.first() else { return Ok(Vec::new()) };
        let join = |component: usize| {
            let parts: Vec<&Tensor> = pieces.iter().map(|piece| &piece[component]).collect();
            for part in &parts {
                ensure!(
                    part.shape().dims()[1..] == first[component].shape().dims()[1..],
                    InvalidArgument,
                    "Cannot batch tensors with different shapes in component {component}. First element had shape {} \
                     and element had shape {}.",
                    first[component].shape(),
                    part.shape()
                );
            }
            let shape = rows::stacked(wanted, &first[component].shape().dims()[1..])?;
            rows::join(self.cx.device(), first[component].dtype(), shape, &parts)
        };
        (0..first.len()).map(join).collect()
    }
}

//! Datasets of datasets: a function makes a dataset of every element, and their elements are joined or interleaved.

use super::map::{is_deterministic, parallel_calls};
use crate::data::background::Prefetch;
use crate::data::state::{Restorer, Saver};
use crate::data::{
    Caller, Dataset, END, Element, Ended, IteratorCx, Next, Source, SourceCx, UNKNOWN, kernel, scalar,
};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Result, Status, bail, ensure, kernels};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &FLAT_MAP_DATASET,
    &INTERLEAVE_DATASET,
    &PARALLEL_INTERLEAVE_DATASET_V2,
    &PARALLEL_INTERLEAVE_DATASET_V3,
    &PARALLEL_INTERLEAVE_DATASET_V4,
    &PARALLEL_INTERLEAVE_DATASET,
    &LEGACY_PARALLEL_INTERLEAVE_DATASET_V2,
    &EXPERIMENTAL_PARALLEL_INTERLEAVE_DATASET,
];

static FLAT_MAP_DATASET: Op = Op {
    name: "FlatMapDataset",
    inputs: &["input_dataset: variant", "other_arguments: Targuments"],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any flat_map_kernel],
    cheap: true,
    ..Op::PURE
};

static INTERLEAVE_DATASET: Op = Op {
    name: "InterleaveDataset",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "cycle_length: int64",
        "block_length: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_INTERLEAVE_DATASET_V2: Op = Op {
    name: "ParallelInterleaveDatasetV2",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "cycle_length: int64",
        "block_length: int64",
        "num_parallel_calls: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "sloppy: bool = false",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parallel_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_INTERLEAVE_DATASET_V3: Op = Op {
    name: "ParallelInterleaveDatasetV3",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "cycle_length: int64",
        "block_length: int64",
        "num_parallel_calls: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "deterministic: string = 'default'",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parallel_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_INTERLEAVE_DATASET_V4: Op = Op {
    name: "ParallelInterleaveDatasetV4",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "cycle_length: int64",
        "block_length: int64",
        "buffer_output_elements: int64",
        "prefetch_input_elements: int64",
        "num_parallel_calls: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "deterministic: string = 'default'",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parallel_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_INTERLEAVE_DATASET: Op = Op {
    name: "ParallelInterleaveDataset",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "cycle_length: int64",
        "block_length: int64",
        "sloppy: bool",
        "buffer_output_elements: int64",
        "prefetch_input_elements: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any legacy_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static LEGACY_PARALLEL_INTERLEAVE_DATASET_V2: Op = Op {
    name: "LegacyParallelInterleaveDatasetV2",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "cycle_length: int64",
        "block_length: int64",
        "buffer_output_elements: int64",
        "prefetch_input_elements: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "deterministic: string = 'default'",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any legacy_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_PARALLEL_INTERLEAVE_DATASET: Op = Op {
    name: "ExperimentalParallelInterleaveDataset",
    inputs: &[
        "input_dataset: variant",
        "other_arguments: Targuments",
        "cycle_length: int64",
        "block_length: int64",
        "sloppy: bool",
        "buffer_output_elements: int64",
        "prefetch_input_elements: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any legacy_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

/// Opens the dataset that a function returned.
pub(super) fn open_returned(
    results: &[ferroflow_core::Tensor],
    cx: &Arc<IteratorCx>,
) -> Result<Box<dyn Source>> {
    let [dataset] = results else {
        bail!(InvalidArgument, "Function must return a single scalar of dtype DT_VARIANT.")
    };
    match Dataset::from_tensor(dataset) {
        Ok(dataset) => dataset.open(cx),
        Err(_) => bail!(InvalidArgument, "Function must return a single scalar of dtype DT_VARIANT."),
    }
}

fn flat_map_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let function = spec.function(cx, "f", 1..cx.num_inputs())?;
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            Ok(Box::new(FlatMap {
                input: input.open(cx)?,
                caller: function.caller(cx)?,
                current: None,
                cx: cx.clone(),
                opened: 0,
                arguments: Vec::new(),
                restored: None,
            }))
        }))
    })
}

struct FlatMap {
    input: Box<dyn Source>,
    caller: Caller,
    current: Option<Box<dyn Source>>,
    cx: Arc<IteratorCx>,
    /// The number of datasets that were opened.
    opened: u64,
    /// The element that the current dataset was made of.
    arguments: Element,
    /// The state of the dataset that is being made again.
    restored: Option<Restorer>,
}

impl FlatMap {
    fn start(&mut self, element: Element) {
        self.arguments.clone_from(&element);
        self.caller.start(element);
    }

    /// Opens the dataset that the function returns.
    fn poll_open(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let results = ready!(self.caller.poll(cx))?;
        let mut current = open_returned(&results, &self.cx)?;
        self.opened += 1;
        if let Some(from) = self.restored.take() {
            current.restore(&from)?;
        }
        self.current = Some(current);
        Poll::Ready(Ok(()))
    }
}

impl Source for FlatMap {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(element) = ready!(current.poll_next(cx))? {
                    return Poll::Ready(Ok(Some(element)));
                }
                self.current = None;
                ready!(cx.tick());
            }
            if self.caller.is_idle() {
                let Some(element) = ready!(self.input.poll_next(cx))? else { return END };
                self.start(element);
            }
            ready!(self.poll_open(cx))?;
        }
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        if !self.caller.is_idle() {
            ready!(self.poll_open(cx))?;
        }
        let mut to = to.stage("FlatMap");
        to.number("exhausted", 0);
        ready!(self.input.poll_save(&mut to, cx))?;
        to.number("element_index", self.opened as i64);
        to.number("current_element_iterator_uninitialized", self.current.is_none() as i64);
        let Some(current) = &mut self.current else { return Poll::Ready(Ok(())) };
        to.number("inputs_size", self.arguments.len() as i64);
        to.components("inputs", &self.arguments);
        current.poll_save(&mut to.at(&format!("[{}]", self.opened - 1)), cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&["FlatMap"])?;
        if from.flag("exhausted")? {
            self.input = Box::new(Ended);
            return Ok(());
        }
        self.input.restore(&from)?;
        self.opened = from.count("element_index")? as u64;
        if !from.flag("current_element_iterator_uninitialized")? {
            self.opened = self.opened.saturating_sub(1);
            self.restored = Some(from.at(&format!("[{}]", self.opened)));
            self.start(from.components("inputs", from.count("inputs_size")?)?);
        }
        Ok(())
    }
}

fn cycle_and_block(cx: &KernelCx<'_>, first: usize) -> Result<(i64, usize)> {
    let cycle: i64 = scalar(cx, first, "cycle_length")?;
    let block: i64 = scalar(cx, first + 1, "block_length")?;
    Ok((cycle, block.max(0) as usize))
}

fn interleave_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, first) = (Dataset::input(cx, 0)?, cx.num_inputs() - 2);
        let function = spec.function(cx, "f", 1..first)?;
        let (cycle, block) = cycle_and_block(cx, first)?;
        ensure!(cycle > 0, InvalidArgument, "cycle_length must be greater than zero.");
        ensure!(block > 0, InvalidArgument, "block_length must be greater than zero.");
        ensure!(
            cycle <= i32::MAX as i64,
            InvalidArgument,
            "cycle_length must be less than or equal to {}",
            i32::MAX
        );
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            let ahead = Ahead::Nothing;
            Ok(Box::new(Interleave::new(input.open(cx)?, function.caller(cx)?, cycle as usize, block, ahead)))
        }))
    })
}

/// The datasets of a cycle that nobody limits: as many as threads can serve, as in stock.
fn tuned_cycle(cx: &IteratorCx) -> usize {
    cx.parallelism().max(2)
}

fn parallel_interleave_kernel(init: &Init<'_>) -> Result<Kernel> {
    let in_order = is_deterministic(init)?;
    let arguments = init.attr::<Vec<ferroflow_core::DType>>("Targuments")?.len();
    let buffers = init.op.ends_with("V4");
    kernel(init, move |cx, spec| {
        let (input, first) = (Dataset::input(cx, 0)?, 1 + arguments);
        let function = spec.function(cx, "f", 1..first)?;
        let (cycle, block) = cycle_and_block(cx, first)?;
        ensure!(block > 0, InvalidArgument, "`block_length` must be > 0");
        if buffers {
            let buffer: i64 = scalar(cx, first + 2, "buffer_output_elements")?;
            ensure!(
                buffer > 0 || buffer == -1,
                InvalidArgument,
                "`buffer_output_elements` must be `tf.data.AUTOTUNE` or > 0 but is {buffer}"
            );
            let ahead: i64 = scalar(cx, first + 3, "prefetch_input_elements")?;
            ensure!(
                ahead >= -1,
                InvalidArgument,
                "`prefetch_input_elements` must be `tf.data.AUTOTUNE` or >= 0 but is {ahead}"
            );
        }
        let calls = parallel_calls(cx, cx.num_inputs() - 1)?;
        ensure!(
            cycle > 0 || cycle == -1,
            InvalidArgument,
            "`cycle_length` must be `tf.data.AUTOTUNE` or greater than 0 but is {cycle}"
        );
        ensure!(
            cycle == -1 || calls.is_none_or(|calls| calls as i64 <= cycle),
            InvalidArgument,
            "If `cycle_length` is set to a fixed value, `num_parallel_calls` must be either `tf.data.AUTOTUNE` or a \
             value less than or equal to `cycle_length`. However, `num_parallel_calls` is {} and `cycle_length` is \
             {cycle}",
            calls.unwrap_or_default()
        );
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            let cycle = if cycle > 0 { cycle as usize } else { calls.unwrap_or_else(|| tuned_cycle(cx)) };
            let ahead = Ahead::Elements { buffer: block, in_order };
            Ok(Box::new(Interleave::new(input.open(cx)?, function.caller(cx)?, cycle, block, ahead)))
        }))
    })
}

/// The first generation of parallel interleaves, whose order follows the same rule.
fn legacy_interleave_kernel(init: &Init<'_>) -> Result<Kernel> {
    let arguments = init.attr::<Vec<ferroflow_core::DType>>("Targuments")?.len();
    let by_attr = if init.attrs.has("deterministic") { Some(is_deterministic(init)?) } else { None };
    kernel(init, move |cx, spec| {
        let (input, first) = (Dataset::input(cx, 0)?, 1 + arguments);
        let function = spec.function(cx, "f", 1..first)?;
        let (cycle, block) = cycle_and_block(cx, first)?;
        ensure!(cycle > 0, InvalidArgument, "`cycle_length` must be > 0");
        ensure!(block > 0, InvalidArgument, "`block_length` must be > 0");
        let (in_order, buffer_at) = match by_attr {
            Some(in_order) => (in_order, first + 2),
            None => (!scalar::<bool>(cx, first + 2, "sloppy")?, first + 3),
        };
        let buffer: i64 = scalar(cx, buffer_at, "buffer_output_elements")?;
        ensure!(buffer > 0, InvalidArgument, "`buffer_output_elements` must be > 0");
        let inputs: i64 = scalar(cx, buffer_at + 1, "prefetch_input_elements")?;
        ensure!(inputs >= 0, InvalidArgument, "`prefetch_input_elements` must be >= 0");
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            let ahead = Ahead::Elements { buffer: buffer as usize, in_order };
            let (source, caller) = (input.open(cx)?, function.caller(cx)?);
            Ok(Box::new(Interleave::new(source, caller, cycle as usize, block, ahead)))
        }))
    })
}

/// The work that is done before the consumer asks for it.
enum Ahead {
    Nothing,
    /// All datasets of the cycle are open and make elements.
    Elements {
        buffer: usize,
        in_order: bool,
    },
}

/// Takes a block of elements from one dataset after the other, in a cycle. A dataset that has ended is replaced when
/// the cycle comes to its place again.
struct Interleave {
    input: Box<dyn Source>,
    caller: Caller,
    /// Datasets of the cycle; grows up to `cycle` places.
    open: Vec<Place>,
    cycle: usize,
    block: usize,
    /// The place in the cycle, and the number of elements that were taken there.
    at: usize,
    taken: usize,
    ended: bool,
    ahead: Ahead,
}

enum Place {
    Empty,
    Open(Box<dyn Source>),
    Failed(Status),
}

impl Interleave {
    fn new(input: Box<dyn Source>, caller: Caller, cycle: usize, block: usize, ahead: Ahead) -> Interleave {
        Interleave { input, caller, open: Vec::new(), cycle, block, at: 0, taken: 0, ended: false, ahead }
    }

    fn advance(&mut self) {
        self.at = (self.at + 1) % self.cycle;
        self.taken = 0;
    }

    fn place(&mut self, at: usize) -> &mut Place {
        while self.open.len() <= at {
            self.open.push(Place::Empty);
        }
        &mut self.open[at]
    }

    /// Opens the dataset of the next element; false at the end of the input.
    fn poll_open(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<Option<Box<dyn Source>>>> {
        if self.caller.is_idle() {
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                self.ended = true;
                return Poll::Ready(Ok(None));
            };
            self.caller.start(element);
        }
        let results = ready!(self.caller.poll(cx))?;
        let context = self.caller.cx().clone();
        let source = open_returned(&results, &context)?;
        Poll::Ready(Ok(Some(match self.ahead {
            Ahead::Nothing => source,
            Ahead::Elements { buffer, .. } => {
                Box::new(Prefetch::new(source, Some(buffer), &context).started())
            }
        })))
    }

    /// Opens datasets for all empty places, in the order in which the cycle comes to them.
    fn open_ahead(&mut self, cx: &mut SourceCx<'_, '_>) {
        for offset in 0..self.cycle {
            if self.ended {
                return;
            }
            let at = (self.at + offset) % self.cycle;
            if !matches!(self.place(at), Place::Empty) {
                continue;
            }
            match self.poll_open(cx) {
                Poll::Pending => return,
                Poll::Ready(Ok(None)) => return,
                Poll::Ready(Ok(Some(source))) => *self.place(at) = Place::Open(source),
                Poll::Ready(Err(error)) => *self.place(at) = Place::Failed(error),
            }
        }
    }
}

impl Source for Interleave {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        // Counts places without an element since the last one with some.
        let mut waiting = 0;
        loop {
            let in_order = match self.ahead {
                Ahead::Nothing => true,
                Ahead::Elements { in_order, .. } => {
                    self.open_ahead(cx);
                    in_order
                }
            };
            let (at, ended) = (self.at, self.ended);
            match self.place(at) {
                Place::Open(source) => match source.poll_next(cx) {
                    Poll::Ready(Ok(Some(element))) => {
                        self.taken += 1;
                        if self.taken == self.block {
                            self.advance();
                        }
                        return Poll::Ready(Ok(Some(element)));
                    }
                    Poll::Ready(Ok(None)) => {
                        *self.place(at) = Place::Empty;
                        self.advance();
                        waiting = 0;
                    }
                    Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                    Poll::Pending => {
                        waiting += 1;
                        if in_order || waiting > self.cycle {
                            return Poll::Pending;
                        }
                        self.advance();
                        continue;
                    }
                },
                Place::Failed(_) => {
                    let failed = std::mem::replace(self.place(at), Place::Empty);
                    if let Place::Failed(error) = failed {
                        return Poll::Ready(Err(error));
                    }
                }
                Place::Empty if !ended => {
                    if let Ahead::Elements { .. } = self.ahead
                        && waiting > 0
                    {
                        // The input is pending, as are datasets of other places.
                        waiting += 1;
                        if waiting > self.cycle {
                            return Poll::Pending;
                        }
                        self.advance();
                        continue;
                    }
                    if let Some(source) = ready!(self.poll_open(cx))? {
                        *self.place(at) = Place::Open(source);
                    }
                }
                Place::Empty => {
                    let any = self.open.iter().any(|place| !matches!(place, Place::Empty));
                    if !any {
                        return END;
                    }
                    if waiting > 0 {
                        waiting += 1;
                        if waiting > self.cycle {
                            return Poll::Pending;
                        }
                    }
                    self.advance();
                }
            }
            ready!(cx.tick());
        }
    }
}

//! Datasets whose elements are computed from, or chosen by, a function of the elements of another.

use super::limit::EMPTY;
use crate::data::background::ParallelCalls;
use crate::data::state::{Restorer, Saver};
use crate::data::{Caller, Dataset, END, Element, Ended, MapStage, Next, Source, SourceCx, UNKNOWN, kernel};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Code, DType, Result, Status, Tensor, ensure, kernels, status};
use std::collections::VecDeque;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &MAP_DATASET,
    &PARALLEL_MAP_DATASET,
    &PARALLEL_MAP_DATASET_V2,
    &FILTER_DATASET,
    &PARALLEL_FILTER_DATASET,
    &TAKE_WHILE_DATASET,
    &EXPERIMENTAL_TAKE_WHILE_DATASET,
    &SCAN_DATASET,
    &EXPERIMENTAL_SCAN_DATASET,
];

static MAP_DATASET: Op = Op {
    name: "MapDataset",
    inputs: &["input_dataset: variant", "other_arguments: Targuments"],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "use_inter_op_parallelism: bool = true",
        "preserve_cardinality: bool = false",
        "force_synchronous: bool = false",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any map_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_MAP_DATASET: Op = Op {
    name: "ParallelMapDataset",
    inputs: &["input_dataset: variant", "other_arguments: Targuments", "num_parallel_calls: int32"],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "use_inter_op_parallelism: bool = true",
        "sloppy: bool = false",
        "preserve_cardinality: bool = false",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parallel_map_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_MAP_DATASET_V2: Op = Op {
    name: "ParallelMapDatasetV2",
    inputs: &["input_dataset: variant", "other_arguments: Targuments", "num_parallel_calls: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "use_inter_op_parallelism: bool = true",
        "deterministic: string = 'default'",
        "preserve_cardinality: bool = false",
        "use_unbounded_threadpool: bool = false",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parallel_map_kernel],
    cheap: true,
    ..Op::PURE
};

static FILTER_DATASET: Op = Op {
    name: "FilterDataset",
    inputs: &["input_dataset: variant", "other_arguments: Targuments"],
    outputs: &["handle: variant"],
    attrs: &[
        "predicate: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any filter_kernel],
    cheap: true,
    ..Op::PURE
};

static PARALLEL_FILTER_DATASET: Op = Op {
    name: "ParallelFilterDataset",
    inputs: &["input_dataset: variant", "other_arguments: Targuments", "num_parallel_calls: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "predicate: func",
        "deterministic: string = 'default'",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any parallel_filter_kernel],
    cheap: true,
    ..Op::PURE
};

static TAKE_WHILE_DATASET: Op = Op {
    name: "TakeWhileDataset",
    inputs: &["input_dataset: variant", "other_arguments: Targuments"],
    outputs: &["handle: variant"],
    attrs: &[
        "predicate: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any take_while_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_TAKE_WHILE_DATASET: Op = Op {
    name: "ExperimentalTakeWhileDataset",
    inputs: &["input_dataset: variant", "other_arguments: Targuments"],
    outputs: &["handle: variant"],
    attrs: &[
        "predicate: func",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any take_while_kernel],
    cheap: true,
    ..Op::PURE
};

static SCAN_DATASET: Op = Op {
    name: "ScanDataset",
    inputs: &["input_dataset: variant", "initial_state: Tstate", "other_arguments: Targuments"],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Tstate: list(type) >= 1",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "preserve_cardinality: bool = false",
        "use_default_device: bool = true",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any scan_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_SCAN_DATASET: Op = Op {
    name: "ExperimentalScanDataset",
    inputs: &["input_dataset: variant", "initial_state: Tstate", "other_arguments: Targuments"],
    outputs: &["handle: variant"],
    attrs: &[
        "f: func",
        "Tstate: list(type) >= 1",
        "Targuments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "preserve_cardinality: bool = false",
    ],
    shape: shapes::scalar,
    kernels: kernels![any scan_kernel],
    cheap: true,
    ..Op::PURE
};

/// The cardinality of one result per element: known only if the function cannot end the sequence.
fn mapped_cardinality(input: &Dataset, preserves: bool) -> i64 {
    if preserves { input.cardinality() } else { UNKNOWN }
}

/// A function may end the sequence by failing with OUT_OF_RANGE, unless the number of elements is fixed.
fn mapped(results: Result<Element>, preserves: bool) -> Result<Option<Element>> {
    match results {
        Ok(element) => Ok(Some(element)),
        Err(error) if error.code() == Code::OutOfRange => {
            if preserves {
                return Err(out_of_range(&error));
            }
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

pub(super) fn out_of_range(error: &Status) -> Status {
    status!(InvalidArgument, "Function invocation produced OutOfRangeError: {}", error.message())
}

fn map_kernel(init: &Init<'_>) -> Result<Kernel> {
    let preserves: bool = init.attr("preserve_cardinality")?;
    let synchronous: bool = init.attr("force_synchronous")?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let function = spec.function(cx, "f", 1..cx.num_inputs())?;
        let made_parallel = !synchronous && spec.has_pure_function("f");
        Ok(Dataset::new(spec, mapped_cardinality(&input, preserves), move |cx| {
            let (input, caller) = (input.open(cx)?, function.caller(cx)?);
            Ok(Box::new(Map { input, caller, preserves, made_parallel, ahead: VecDeque::new() }))
        }))
    })
}

struct Map {
    input: Box<dyn Source>,
    caller: Caller,
    preserves: bool,
    /// True if stock rewrites it to a parallel map.
    made_parallel: bool,
    /// Results that a restored state had.
    ahead: VecDeque<Element>,
}

impl Source for Map {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        if self.caller.is_idle() {
            if let Some(result) = self.ahead.pop_front() {
                return Poll::Ready(Ok(Some(result)));
            }
            let Some(element) = ready!(self.input.poll_next(cx))? else { return END };
            self.caller.start(element);
        }
        let results = ready!(self.caller.poll(cx));
        Poll::Ready(mapped(results, self.preserves))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        if !self.made_parallel && self.ahead.is_empty() {
            return self.input.poll_save(&mut to.stage("Map"), cx);
        }
        let mut to = to.stage("ParallelMapV2");
        save_results(self.ahead.iter(), &mut to);
        self.input.poll_save(&mut to, cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&PARALLEL_OR_NOT)?;
        self.ahead = restored_results(&from)?.into();
        self.input.restore(&from)
    }

    fn works_ahead(&mut self) -> bool {
        self.made_parallel
    }

    fn as_map(&mut self) -> Option<&mut dyn MapStage> {
        Some(self)
    }
}

impl MapStage for Map {
    fn poll_results(&mut self, _: &mut SourceCx<'_, '_>) -> Poll<Result<Vec<Element>>> {
        Poll::Ready(Ok(self.ahead.iter().cloned().collect()))
    }

    fn input(&mut self) -> &mut Box<dyn Source> {
        &mut self.input
    }
}

/// Stock's names of stages that map: which of them runs is decided when stock rewrites the pipeline.
const PARALLEL_OR_NOT: [&str; 3] = ["ParallelMapV2", "ParallelMap", "Map"];

/// Writes the results that a parallel map has ready.
fn save_results<'a>(results: impl ExactSizeIterator<Item = &'a Element>, to: &mut Saver<'_>) {
    to.number("invocation_results_size", results.len() as i64);
    for (i, element) in results.enumerate() {
        let mut to = to.at(&format!("_invocation_results[{i}]"));
        to.number("_code", 0);
        to.number("size", element.len() as i64);
        to.components("", element);
        to.number("end_of_input", 0);
    }
}

/// The results that a parallel map had ready; none of a map that is not parallel.
fn restored_results(from: &Restorer) -> Result<Vec<Element>> {
    const COUNT: &str = "invocation_results_size";
    let mut results = Vec::new();
    for i in 0..if from.contains(COUNT) { from.count(COUNT)? } else { 0 } {
        let from = from.at(&format!("_invocation_results[{i}]"));
        let code = from.number("_code")?;
        if code != 0 {
            return Err(from.failure(code, "_error_message"));
        }
        // The end of the input is found again.
        if !from.flag("end_of_input")? {
            results.push(from.components("", from.count("size")?)?);
        }
    }
    Ok(results)
}

/// The number of calls at a time that a node asks for; `None` leaves it to us.
pub(super) fn parallel_calls(cx: &KernelCx<'_>, input: usize) -> Result<Option<usize>> {
    let calls = cx.scalar_i64(input)?;
    ensure!(calls > 0 || calls == -1, InvalidArgument, "num_parallel_calls must be greater than zero.");
    Ok((calls > 0).then_some(calls as usize))
}

/// Returns whether a node asks for results in the order of the elements.
pub(super) fn is_deterministic(init: &Init<'_>) -> Result<bool> {
    if init.attrs.has("sloppy") {
        return Ok(!init.attr::<bool>("sloppy")?);
    }
    match init.attr::<String>("deterministic")?.as_str() {
        "true" | "default" => Ok(true),
        "false" => Ok(false),
        other => Err(status!(InvalidArgument, "Unrecognized DeterminismPolicy: {other}")),
    }
}

fn parallel_map_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (preserves, in_order): (bool, bool) = (init.attr("preserve_cardinality")?, is_deterministic(init)?);
    let stage = if init.op.ends_with("V2") { "ParallelMapV2" } else { "ParallelMap" };
    kernel(init, move |cx, spec| {
        let (input, last) = (Dataset::input(cx, 0)?, cx.num_inputs() - 1);
        let function = spec.function(cx, "f", 1..last)?;
        let limit = parallel_calls(cx, last)?;
        Ok(Dataset::new(spec, mapped_cardinality(&input, preserves), move |cx| {
            let calls = ParallelCalls::new(input.open(cx)?, function.caller(cx)?, limit, in_order, false);
            Ok(Box::new(ParallelMap { calls, preserves, stage }))
        }))
    })
}

pub(super) struct ParallelMap {
    pub(super) calls: ParallelCalls,
    pub(super) preserves: bool,
    /// Stock's name of the stage.
    pub(super) stage: &'static str,
}

impl Source for ParallelMap {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some((results, _)) = ready!(self.calls.poll_called(cx))? else { return END };
        Poll::Ready(mapped(results, self.preserves))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let results = ready!(self.calls.poll_results(cx))?;
        let mut to = to.stage(self.stage);
        save_results(results.iter(), &mut to);
        self.calls.input().poll_save(&mut to, cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&PARALLEL_OR_NOT)?;
        self.calls.restore_results(restored_results(&from)?);
        self.calls.input().restore(&from)
    }

    fn works_ahead(&mut self) -> bool {
        true
    }

    fn as_map(&mut self) -> Option<&mut dyn MapStage> {
        Some(&mut self.calls)
    }
}

fn filter_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let function = spec.function(cx, "predicate", 1..cx.num_inputs())?;
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            Ok(Box::new(Filter { input: input.open(cx)?, caller: function.caller(cx)?, element: Vec::new() }))
        }))
    })
}

struct Filter {
    input: Box<dyn Source>,
    caller: Caller,
    element: Element,
}

impl Source for Filter {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            if self.caller.is_idle() {
                ready!(cx.tick());
                let Some(element) = ready!(self.input.poll_next(cx))? else { return END };
                self.element = element.clone();
                self.caller.start(element);
            }
            let keeps = ready!(self.caller.poll_bool(cx, "Filter predicate `f`"))?;
            let element = std::mem::take(&mut self.element);
            if keeps {
                return Poll::Ready(Ok(Some(element)));
            }
        }
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let mut to = to.stage("Filter");
        to.number(EMPTY, 0);
        // Counts for stock's profiler.
        to.number("filtered_elements", 0);
        to.number("dropped_elements", 0);
        self.input.poll_save(&mut to, cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&["Filter"])?;
        if from.flag(EMPTY)? {
            self.input = Box::new(Ended);
            return Ok(());
        }
        self.input.restore(&from)
    }
}

fn parallel_filter_kernel(init: &Init<'_>) -> Result<Kernel> {
    let in_order = is_deterministic(init)?;
    kernel(init, move |cx, spec| {
        let (input, last) = (Dataset::input(cx, 0)?, cx.num_inputs() - 1);
        let function = spec.function(cx, "predicate", 1..last)?;
        let limit = parallel_calls(cx, last)?;
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            let caller = function.caller(cx)?;
            Ok(Box::new(ParallelFilter(ParallelCalls::new(input.open(cx)?, caller, limit, in_order, true))))
        }))
    })
}

struct ParallelFilter(ParallelCalls);

impl Source for ParallelFilter {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            let Some((results, element)) = ready!(self.0.poll_called(cx))? else { return END };
            if verdict(&results?)? {
                return Poll::Ready(Ok(Some(element)));
            }
        }
    }
}

fn verdict(results: &[Tensor]) -> Result<bool> {
    let is_bool = matches!(results, [verdict, ..] if verdict.dtype() == DType::Bool && verdict.rank() == 0);
    ensure!(is_bool, InvalidArgument, "Filter predicate `predicate` must return a scalar bool.");
    results[0].to_scalar()
}

fn take_while_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let function = spec.function(cx, "predicate", 1..cx.num_inputs())?;
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            let source =
                TakeWhile { input: Some(input.open(cx)?), caller: function.caller(cx)?, element: Vec::new() };
            Ok(Box::new(source))
        }))
    })
}

struct TakeWhile {
    /// Ends with the first element that is not taken.
    input: Option<Box<dyn Source>>,
    caller: Caller,
    element: Element,
}

impl Source for TakeWhile {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(input) = &mut self.input else { return END };
        if self.caller.is_idle() {
            let Some(element) = ready!(input.poll_next(cx))? else {
                self.input = None;
                return END;
            };
            self.element = element.clone();
            self.caller.start(element);
        }
        if !ready!(self.caller.poll_bool(cx, "`predicate`"))? {
            self.input = None;
            return END;
        }
        Poll::Ready(Ok(Some(std::mem::take(&mut self.element))))
    }
}

fn scan_kernel(init: &Init<'_>) -> Result<Kernel> {
    let states = init.attr::<Vec<DType>>("Tstate")?.len();
    let preserves: bool = init.attr("preserve_cardinality")?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let initial: Result<Element> = (1..=states).map(|input| cx.input(input).cloned()).collect();
        let initial = initial?;
        let function = spec.function(cx, "f", states + 1..cx.num_inputs())?;
        Ok(Dataset::new(spec, mapped_cardinality(&input, preserves), move |cx| {
            let (input, caller) = (input.open(cx)?, function.caller(cx)?);
            Ok(Box::new(Scan { input, caller, state: initial.clone(), preserves }))
        }))
    })
}

struct Scan {
    input: Box<dyn Source>,
    caller: Caller,
    state: Element,
    preserves: bool,
}

impl Source for Scan {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        if self.caller.is_idle() {
            let Some(element) = ready!(self.input.poll_next(cx))? else { return END };
            let mut arguments = self.state.clone();
            arguments.extend(element);
            self.caller.start(arguments);
        }
        let results = ready!(self.caller.poll(cx));
        let Some(mut results) = mapped(results, self.preserves)? else { return END };
        let states = self.state.len();
        if results.len() < states {
            let (got, op) = (results.len(), "the function of a ScanDataset");
            return Poll::Ready(Err(status!(
                InvalidArgument,
                "{op} returned {got} values, fewer than its state"
            )));
        }
        let outputs = results.split_off(states);
        for (i, (before, after)) in self.state.iter().zip(&results).enumerate() {
            if before.dtype() != after.dtype() {
                return Poll::Ready(Err(status!(
                    InvalidArgument,
                    "Got wrong type for scan_func return value {i} (expected {}, got {}).",
                    before.dtype(),
                    after.dtype()
                )));
            }
        }
        self.state = results;
        Poll::Ready(Ok(Some(outputs)))
    }
}

//! Datasets that take a part of another's elements, or all of them several times.

use crate::data::state::{Restorer, Saver};
use crate::data::{
    Dataset, END, Element, Ended, INFINITE, IteratorCx, Next, Source, SourceCx, UNKNOWN, kernel, scalar,
};
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, Result, Status, bail, ensure, kernels, status};
use std::collections::HashSet;
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &TAKE_DATASET,
    &SKIP_DATASET,
    &REPEAT_DATASET,
    &SHARD_DATASET,
    &ASSERT_CARDINALITY_DATASET,
    &IGNORE_ERRORS_DATASET,
    &EXPERIMENTAL_IGNORE_ERRORS_DATASET,
    &UNIQUE_DATASET,
    &EXPERIMENTAL_UNIQUE_DATASET,
];

static TAKE_DATASET: Op = Op {
    name: "TakeDataset",
    inputs: &["input_dataset: variant", "count: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any take_kernel],
    cheap: true,
    ..Op::PURE
};

static SKIP_DATASET: Op = Op {
    name: "SkipDataset",
    inputs: &["input_dataset: variant", "count: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any skip_kernel],
    cheap: true,
    ..Op::PURE
};

static REPEAT_DATASET: Op = Op {
    name: "RepeatDataset",
    inputs: &["input_dataset: variant", "count: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any repeat_kernel],
    cheap: true,
    ..Op::PURE
};

static SHARD_DATASET: Op = Op {
    name: "ShardDataset",
    inputs: &["input_dataset: variant", "num_shards: int64", "index: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "require_non_empty: bool = false",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any shard_kernel],
    cheap: true,
    ..Op::PURE
};

static ASSERT_CARDINALITY_DATASET: Op = Op {
    name: "AssertCardinalityDataset",
    inputs: &["input_dataset: variant", "cardinality: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any assert_cardinality_kernel],
    cheap: true,
    ..Op::PURE
};

static IGNORE_ERRORS_DATASET: Op = Op {
    name: "IgnoreErrorsDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "log_warning: bool = false"],
    shape: shapes::scalar,
    kernels: kernels![any ignore_errors_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_IGNORE_ERRORS_DATASET: Op =
    Op { name: "ExperimentalIgnoreErrorsDataset", ..IGNORE_ERRORS_DATASET };

static UNIQUE_DATASET: Op = Op {
    name: "UniqueDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any unique_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_UNIQUE_DATASET: Op = Op {
    name: "ExperimentalUniqueDataset",
    inputs: &["input_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any unique_kernel],
    cheap: true,
    ..Op::PURE
};

fn take_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, count) = (Dataset::input(cx, 0)?, scalar::<i64>(cx, 1, "count")?);
        let cardinality = match input.cardinality() {
            known if count < 0 => known,
            UNKNOWN => UNKNOWN,
            INFINITE => count,
            known => known.min(count),
        };
        let limit = (count >= 0).then_some(count as u64);
        Ok(Dataset::new(spec, cardinality, move |cx| {
            // Nothing is opened for no elements, as in stock.
            let input = if limit == Some(0) { None } else { Some(input.open(cx)?) };
            Ok(Box::new(Take { input, left: limit, count: limit }))
        }))
    })
}

struct Take {
    input: Option<Box<dyn Source>>,
    left: Option<u64>,
    count: Option<u64>,
}

impl Source for Take {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(input) = &mut self.input else { return END };
        if self.left == Some(0) {
            self.input = None;
            return END;
        }
        let next = ready!(input.poll_next(cx))?;
        match &next {
            Some(_) => self.left = self.left.map(|left| left - 1),
            // Stock removes a stage that takes all; the input is kept for its state.
            None if self.count.is_none() => {}
            None => self.input = None,
        }
        Poll::Ready(Ok(next))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let (Some(count), Some(left)) = (self.count, self.left) else {
            // Stock removes a stage that takes all.
            return save_input(&mut self.input, to, cx);
        };
        if count == 0 {
            return Poll::Ready(Ok(()));
        }
        let mut to = to.stage("FiniteTake");
        to.number("i", (count - left) as i64);
        to.number(EMPTY, self.input.is_none() as i64);
        save_input(&mut self.input, &mut to, cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let Some(count) = self.count else { return restore_input(&mut self.input, from, false) };
        if count == 0 {
            return Ok(());
        }
        let from = from.stage(&["FiniteTake"])?;
        let taken = from.number("i")?;
        ensure!(
            (0..=count as i64).contains(&taken),
            InvalidArgument,
            "Restored tf.data.Dataset.take index {taken} is out of range [0, {count}]."
        );
        self.left = Some(count - taken as u64);
        restore_input(&mut self.input, &from, from.flag(EMPTY)?)
    }
}

/// The key that says whether a stage's input has ended.
pub(super) const EMPTY: &str = "input_impl_empty";

/// Writes the state of an input that may have ended.
pub(super) fn save_input(
    input: &mut Option<Box<dyn Source>>,
    to: &mut Saver<'_>,
    cx: &mut SourceCx<'_, '_>,
) -> Poll<Result<()>> {
    match input {
        Some(input) => input.poll_save(to, cx),
        None => Poll::Ready(Ok(())),
    }
}

/// Restores an input, or ends it.
pub(super) fn restore_input(input: &mut Option<Box<dyn Source>>, from: &Restorer, ended: bool) -> Result<()> {
    match input {
        _ if ended => *input = None,
        Some(input) => input.restore(from)?,
        None => {}
    }
    Ok(())
}

fn skip_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, count) = (Dataset::input(cx, 0)?, scalar::<i64>(cx, 1, "count")?);
        let cardinality = match input.cardinality() {
            special @ (INFINITE | UNKNOWN) => special,
            _ if count < 0 => 0,
            known => (known - count).max(0),
        };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let input = if count < 0 { None } else { Some(input.open(cx)?) };
            Ok(Box::new(Skip { input, left: count.max(0) as u64, count }))
        }))
    })
}

struct Skip {
    input: Option<Box<dyn Source>>,
    left: u64,
    count: i64,
}

impl Source for Skip {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(input) = &mut self.input else { return END };
        while self.left > 0 {
            ready!(cx.tick());
            if ready!(input.poll_next(cx))?.is_none() {
                self.input = None;
                return END;
            }
            self.left -= 1;
        }
        input.poll_next(cx)
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        match self.count {
            ..0 => Poll::Ready(Ok(())),
            // Stock removes a stage that skips nothing.
            0 => save_input(&mut self.input, to, cx),
            count => {
                let mut to = to.stage("FiniteSkip");
                to.number("i", count - self.left as i64);
                to.number(EMPTY, self.input.is_none() as i64);
                save_input(&mut self.input, &mut to, cx)
            }
        }
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        match self.count {
            ..0 => Ok(()),
            0 => restore_input(&mut self.input, from, false),
            count => {
                let from = from.stage(&["FiniteSkip"])?;
                self.left = (count - from.number("i")?.clamp(0, count)) as u64;
                restore_input(&mut self.input, &from, from.flag(EMPTY)?)
            }
        }
    }
}

fn repeat_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, count) = (Dataset::input(cx, 0)?, scalar::<i64>(cx, 1, "count")?);
        let cardinality = match (input.cardinality(), count) {
            (_, 0) | (0, _) => 0,
            (_, ..0) | (INFINITE, _) => INFINITE,
            (UNKNOWN, _) => UNKNOWN,
            (known, count) => known.saturating_mul(count),
        };
        let runs = (count >= 0).then_some(count as u64);
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let (input, cx) = (input.clone(), cx.clone());
            Ok(Box::new(Repeat { input, cx, running: None, count: runs, started: 0, produced: false }))
        }))
    })
}

struct Repeat {
    input: Dataset,
    cx: Arc<IteratorCx>,
    running: Option<Box<dyn Source>>,
    /// The number of runs; `None` for any number.
    count: Option<u64>,
    started: u64,
    /// True if the current run has produced an element.
    produced: bool,
}

impl Repeat {
    /// Starts the next run.
    fn start(&mut self) -> Result<()> {
        self.running = Some(self.input.open(&self.cx)?);
        self.started += 1;
        self.produced = false;
        Ok(())
    }

    /// Stock's name of the stage; `None` for one run, which stock removes.
    fn stage(&self) -> Option<&'static str> {
        match self.count {
            Some(1) => None,
            Some(_) => Some("FiniteRepeat"),
            None => Some("ForeverRepeat"),
        }
    }
}

impl Source for Repeat {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            let Some(running) = &mut self.running else {
                if self.count.is_some_and(|count| self.started >= count) {
                    return END;
                }
                self.start()?;
                continue;
            };
            if let Some(element) = ready!(running.poll_next(cx))? {
                self.produced = true;
                return Poll::Ready(Ok(Some(element)));
            }
            let fused = self.input.repeats_in_one() || self.stage().is_none();
            if fused && self.count.is_some_and(|count| self.started >= count) {
                // Kept for its state: stock has no stage here, or makes one of a shuffle that is repeated.
                return END;
            }
            self.running = None;
            if self.count.is_none() && !self.produced {
                // An empty dataset would be run forever.
                self.count = Some(0);
            }
            ready!(cx.tick());
        }
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        if self.running.is_none() && self.count.is_none_or(|count| self.started < count) {
            self.start()?;
        }
        let Some(stage) = self.stage() else { return save_input(&mut self.running, to, cx) };
        if let Some(shuffle) = self.running.as_mut().and_then(|running| running.as_shuffle()) {
            return shuffle.poll_save_repeated(self.started - 1, to, cx);
        }
        let mut to = to.stage(stage);
        let run = self.started.saturating_sub(1);
        to.number("i", if self.running.is_some() { run } else { self.started } as i64);
        to.number(EMPTY, self.running.is_none() as i64);
        save_input(&mut self.running, &mut to.at(&format!("[{run}]")), cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let Some(stage) = self.stage() else {
            self.start()?;
            return restore_input(&mut self.running, from, false);
        };
        if from.has("ShuffleAndRepeat") {
            let count = self.count.map_or(-1, |count| count as i64);
            self.running = self.input.open_repeated(count, &self.cx);
            (self.count, self.started, self.produced) = (Some(1), 1, true);
            return restore_input(&mut self.running, from, false);
        }
        let from = from.stage(&[stage])?;
        let (run, ended) = (from.count("i")? as u64, from.flag(EMPTY)?);
        self.started = run;
        if ended {
            // A repeat without end that has no input has yet to begin.
            self.count = self.count.map(|_| run);
            return Ok(());
        }
        self.start()?;
        self.produced = true;
        restore_input(&mut self.running, &from.at(&format!("[{run}]")), false)
    }
}

/// The number of shards that marks a place for one.
const SHARD_HINT: i64 = -1;

fn shard_kernel(init: &Init<'_>) -> Result<Kernel> {
    let require_non_empty: bool = init.attr("require_non_empty")?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let (shards, index): (i64, i64) = (scalar(cx, 1, "num_shards")?, scalar(cx, 2, "index")?);
        if shards == SHARD_HINT {
            // A place for a shard that only sharding for several workers fills.
            return Ok(Dataset::new(spec, input.cardinality(), |_| {
                bail!(
                    FailedPrecondition,
                    "`tf.data.Dataset.shard(SHARD_HINT, ...)` can only be used in \
                     `tf.distribute.Strategy.experimental_distribute_dataset()` with auto-sharding policy HINT."
                )
            }));
        }
        ensure!(
            shards > 0,
            InvalidArgument,
            "Number of shards must be greater than zero (currently num_shards = {shards})."
        );
        ensure!(
            (0..shards).contains(&index),
            InvalidArgument,
            "Index must be between 0 and {} (currently index = {index}).",
            shards - 1
        );
        let cardinality = match input.cardinality() {
            special @ (INFINITE | UNKNOWN) => special,
            known => known / shards + (index < known % shards) as i64,
        };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            Ok(Box::new(Shard::new(input.open(cx)?, shards, index, require_non_empty)))
        }))
    })
}

pub(super) struct Shard {
    input: Box<dyn Source>,
    shards: i64,
    index: i64,
    at: i64,
    require_non_empty: bool,
    /// The first element, until it is known that there is one for every shard.
    held: Option<Element>,
}

impl Shard {
    pub(super) fn new(input: Box<dyn Source>, shards: i64, index: i64, require_non_empty: bool) -> Shard {
        Shard { input, shards, index, at: 0, require_non_empty, held: None }
    }

    fn too_few(&self) -> Status {
        status!(
            InvalidArgument,
            "Could not apply FILE based sharding: the dataset only has {} file(s), which is not enough for the \
             required {} shards/workers. If you are using datasets with distribution strategy, consider setting the \
             auto sharding policy to either DATA or OFF using the `experimental_distribute.auto_shard_policy` option \
             of `tf.data.Options()`.",
            self.at,
            self.shards
        )
    }
}

impl Shard {
    /// Returns whether stock removes the stage.
    fn is_whole(&self) -> bool {
        self.shards == 1
    }
}

impl Source for Shard {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            let Some(element) = ready!(self.input.poll_next(cx))? else {
                return if self.held.take().is_some() { Poll::Ready(Err(self.too_few())) } else { END };
            };
            let mine = self.at % self.shards == self.index;
            self.at += 1;
            if !self.require_non_empty || self.at > self.shards {
                if mine {
                    return Poll::Ready(Ok(Some(element)));
                }
                continue;
            }
            // As in stock, the first element is given only when every shard has one; a shard without any just ends.
            if mine {
                self.held = Some(element);
            }
            if self.at == self.shards
                && let Some(held) = self.held.take()
            {
                return Poll::Ready(Ok(Some(held)));
            }
        }
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        if self.is_whole() {
            return self.input.poll_save(to, cx);
        }
        let mut to = to.stage("Shard");
        to.number(EMPTY, 0);
        to.number("next_index", self.at);
        self.input.poll_save(&mut to, cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        if self.is_whole() && !from.has("Shard") {
            return self.input.restore(from);
        }
        let from = from.stage(&["Shard"])?;
        if from.flag(EMPTY)? {
            self.input = Box::new(Ended);
            return Ok(());
        }
        self.at = from.number("next_index")?;
        self.input.restore(&from)
    }
}

fn assert_cardinality_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (input, count) = (Dataset::input(cx, 0)?, scalar::<i64>(cx, 1, "cardinality")?);
        Ok(Dataset::new(spec, count, move |cx| {
            Ok(Box::new(AssertCardinality { input: input.open(cx)?, count, seen: 0 }))
        }))
    })
}

struct AssertCardinality {
    input: Box<dyn Source>,
    count: i64,
    seen: i64,
}

impl Source for AssertCardinality {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let next = ready!(self.input.poll_next(cx))?;
        let elements = |count: i64| match count {
            INFINITE => "an infinite number of elements".to_owned(),
            UNKNOWN => "an unknown number of elements".to_owned(),
            1 => "1 element".to_owned(),
            count => format!("{count} elements"),
        };
        if next.is_some() {
            self.seen += 1;
            if self.count >= 0 && self.seen > self.count {
                return Poll::Ready(Err(status!(
                    FailedPrecondition,
                    "Input dataset was expected to contain {} but contained at least {}.",
                    elements(self.count),
                    elements(self.seen)
                )));
            }
        } else if self.count == INFINITE || (self.count >= 0 && self.seen != self.count) {
            return Poll::Ready(Err(status!(
                FailedPrecondition,
                "Input dataset was expected to contain {} but contained only {}.",
                elements(self.count),
                elements(self.seen)
            )));
        }
        Poll::Ready(Ok(next))
    }
}

fn ignore_errors_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let cardinality = if input.cardinality() == INFINITE { INFINITE } else { UNKNOWN };
        Ok(Dataset::new(spec, cardinality, move |cx| Ok(Box::new(IgnoreErrors(input.open(cx)?)))))
    })
}

struct IgnoreErrors(Box<dyn Source>);

impl Source for IgnoreErrors {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            if let next @ Ok(_) = ready!(self.0.poll_next(cx)) {
                return Poll::Ready(next);
            }
        }
    }
}

fn unique_kernel(init: &Init<'_>) -> Result<Kernel> {
    let types: Vec<DType> = init.attr("output_types")?;
    ensure!(types.len() == 1, InvalidArgument, "UniqueDataset only supports inputs with a single component.");
    kernel(init, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let dtype = *input.types().first().unwrap_or(&DType::Int64);
        ensure!(
            matches!(dtype, DType::Int32 | DType::Int64 | DType::String),
            InvalidArgument,
            "UniqueDataset only supports inputs with a single `tf.int32`, `tf.int64`, or `tf.string` component."
        );
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            Ok(Box::new(Unique { input: input.open(cx)?, seen: HashSet::new() }))
        }))
    })
}

struct Unique {
    input: Box<dyn Source>,
    seen: HashSet<Vec<u8>>,
}

impl Source for Unique {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            let Some(element) = ready!(self.input.poll_next(cx))? else { return END };
            let Some(tensor) = element.first() else { return Poll::Ready(Ok(Some(element))) };
            let mut key: Vec<u8> = format!("{}", tensor.shape()).into_bytes();
            match tensor.dtype() {
                DType::String => {
                    for text in tensor.units::<Str>()? {
                        key.extend_from_slice(&(text.len() as u64).to_le_bytes());
                        key.extend_from_slice(text);
                    }
                }
                _ => key.extend_from_slice(tensor.bytes()?),
            }
            if self.seen.insert(key) {
                return Poll::Ready(Ok(Some(element)));
            }
        }
    }
}

//! Shuffled datasets, in stock's order for equal seeds, and the generators of their seeds.

use crate::data::seeds::{SeedGenerator, words};
use crate::data::state::{Restorer, Saver};
use crate::data::{
    Dataset, END, Element, INFINITE, IteratorCx, Next, ShuffleStage, Source, SourceCx, UNKNOWN, kernel,
    scalar,
};
use crate::numeric::philox::Words;
use crate::state::anonymous;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels};
use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &SHUFFLE_DATASET,
    &SHUFFLE_DATASET_V2,
    &SHUFFLE_DATASET_V3,
    &SHUFFLE_AND_REPEAT_DATASET,
    &SHUFFLE_AND_REPEAT_DATASET_V2,
    &ANONYMOUS_RANDOM_SEED_GENERATOR,
    &ANONYMOUS_SEED_GENERATOR,
    &DELETE_SEED_GENERATOR,
    &DELETE_RANDOM_SEED_GENERATOR,
];

static SHUFFLE_DATASET: Op = Op {
    name: "ShuffleDataset",
    inputs: &["input_dataset: variant", "buffer_size: int64", "seed: int64", "seed2: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "reshuffle_each_iteration: bool = true",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any shuffle_kernel],
    cheap: true,
    ..Op::PURE
};

static SHUFFLE_DATASET_V2: Op = Op {
    name: "ShuffleDatasetV2",
    inputs: &["input_dataset: variant", "buffer_size: int64", "seed_generator: resource"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any shuffle_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static SHUFFLE_DATASET_V3: Op = Op {
    name: "ShuffleDatasetV3",
    inputs: &[
        "input_dataset: variant",
        "buffer_size: int64",
        "seed: int64",
        "seed2: int64",
        "seed_generator: resource",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "reshuffle_each_iteration: bool = true",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any shuffle_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static SHUFFLE_AND_REPEAT_DATASET: Op = Op {
    name: "ShuffleAndRepeatDataset",
    inputs: &["input_dataset: variant", "buffer_size: int64", "seed: int64", "seed2: int64", "count: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "reshuffle_each_iteration: bool = true",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any shuffle_kernel],
    cheap: true,
    ..Op::PURE
};

static SHUFFLE_AND_REPEAT_DATASET_V2: Op = Op {
    name: "ShuffleAndRepeatDatasetV2",
    inputs: &[
        "input_dataset: variant",
        "buffer_size: int64",
        "seed: int64",
        "seed2: int64",
        "count: int64",
        "seed_generator: resource",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "reshuffle_each_iteration: bool = true",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any shuffle_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ANONYMOUS_RANDOM_SEED_GENERATOR: Op = Op {
    name: "AnonymousRandomSeedGenerator",
    inputs: &["seed: int64", "seed2: int64"],
    outputs: &["handle: resource", "deleter: variant"],
    shape: scalars,
    kernels: kernels![any seed_generator_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ANONYMOUS_SEED_GENERATOR: Op = Op {
    name: "AnonymousSeedGenerator",
    inputs: &["seed: int64", "seed2: int64", "reshuffle: bool"],
    outputs: &["handle: resource", "deleter: variant"],
    shape: scalars,
    kernels: kernels![any seed_generator_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DELETE_SEED_GENERATOR: Op = Op {
    name: "DeleteSeedGenerator",
    inputs: &["handle: resource", "deleter: variant"],
    kernels: kernels![any delete_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DELETE_RANDOM_SEED_GENERATOR: Op = Op { name: "DeleteRandomSeedGenerator", ..DELETE_SEED_GENERATOR };

/// Every output is a scalar.
pub(super) fn scalars(s: &mut ferroflow_core::op::ShapeCx<'_>) -> Result<()> {
    (0..s.num_outputs()).for_each(|output| s.set(output, ferroflow_core::PartialShape::scalar()));
    Ok(())
}

fn seed_generator_kernel(init: &Init<'_>) -> Result<Kernel> {
    let always = init.op == "AnonymousRandomSeedGenerator";
    Kernel::sync(move |cx| {
        let (seed, seed2): (i64, i64) = (scalar(cx, 0, "seed")?, scalar(cx, 1, "seed2")?);
        let reshuffles = always || scalar(cx, 2, "reshuffle")?;
        anonymous::with_deleter(cx, "SeedGenerator", Arc::new(SeedGenerator::new(seed, seed2, reshuffles)))
    })
}

/// A handle to nothing: the dataset that is given it has a generator of its own.
pub(super) fn dummy_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let handle = ResourceHandle::named(cx.device().name(), "", "dummy_resource", "", Vec::new());
        Ok(Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])?.into())
    })
}

/// Anonymous resources end with their last handle.
pub(super) fn delete_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| Ok(().into()))
}

fn shuffle_kernel(init: &Init<'_>) -> Result<Kernel> {
    let repeats = init.op.starts_with("ShuffleAndRepeat");
    let reshuffles = !init.attrs.has("reshuffle_each_iteration") || init.attr("reshuffle_each_iteration")?;
    let by_handle = init.op == "ShuffleDatasetV2";
    let shared_at = init.input_types.iter().position(|dtype| *dtype == DType::Resource);
    kernel(init, move |cx, spec| {
        let (input, buffer): (Dataset, i64) = (Dataset::input(cx, 0)?, scalar(cx, 1, "buffer_size")?);
        ensure!(
            buffer > 0 || buffer == UNKNOWN,
            InvalidArgument,
            "buffer_size must be greater than zero or UNKNOWN_CARDINALITY"
        );
        let count: i64 = if repeats { scalar(cx, 4, "count")? } else { 1 };
        ensure!(count > 0 || count == -1, InvalidArgument, "count must be greater than zero or equal to -1.");
        let generator = generator(cx, shared_at, by_handle, reshuffles)?;
        let cardinality = match input.cardinality() {
            _ if count == -1 => INFINITE,
            special @ (INFINITE | UNKNOWN) => special,
            known => known.saturating_mul(count),
        };
        let (again, seeds) = (input.clone(), generator.clone());
        let dataset = Dataset::new(spec, cardinality, move |cx| {
            Ok(Box::new(Shuffle::new(&input, buffer, count, &generator, cx)))
        });
        if repeats {
            return Ok(dataset);
        }
        Ok(dataset.with_repeated(move |count, cx| Box::new(Shuffle::new(&again, buffer, count, &seeds, cx))))
    })
}

/// The generator behind the handle, or one of the dataset's own.
fn generator(
    cx: &KernelCx<'_>,
    shared_at: Option<usize>,
    by_handle: bool,
    reshuffles: bool,
) -> Result<Arc<SeedGenerator>> {
    if let Some(input) = shared_at
        && let Ok(shared) = cx.resource::<SeedGenerator>(input)
    {
        return Ok(shared);
    }
    if by_handle {
        return Ok(Arc::new(SeedGenerator::new(0, 0, true)));
    }
    let (seed, seed2) = (scalar(cx, 2, "seed")?, scalar(cx, 3, "seed2")?);
    Ok(Arc::new(SeedGenerator::new(seed, seed2, reshuffles)))
}

/// Elements of this many runs may be in the buffer at a time.
const MAX_RUNS: usize = 3;

/// A ring of elements, in slices of one run of the input each. An element is drawn from the first slice, and its place
/// is taken by the slice's first element.
struct Shuffle {
    input: Dataset,
    cx: Arc<IteratorCx>,
    running: Option<Box<dyn Source>>,
    /// Places for elements; as many as were ever filled, at most `limit`.
    buffer: Vec<Element>,
    /// `None` takes the whole of a run before the first element is drawn.
    limit: Option<usize>,
    held: usize,
    slices: VecDeque<Slice>,
    /// Runs that were started, and how many there are to be.
    runs: u64,
    count: Option<u64>,
    generator: Arc<SeedGenerator>,
    random: Words,
    /// The seeds of the words, and how many of them were used.
    seeds: (i64, i64),
    used: u64,
    produced: bool,
}

#[derive(Clone, Copy)]
struct Slice {
    start: usize,
    end: usize,
    complete: bool,
}

impl Shuffle {
    fn new(
        input: &Dataset,
        buffer: i64,
        count: i64,
        generator: &Arc<SeedGenerator>,
        cx: &Arc<IteratorCx>,
    ) -> Shuffle {
        let seeds = generator.next(cx);
        Shuffle {
            input: input.clone(),
            cx: cx.clone(),
            running: None,
            buffer: Vec::new(),
            limit: (buffer > 0).then(|| usize::try_from(buffer).unwrap_or(usize::MAX)),
            held: 0,
            slices: VecDeque::new(),
            runs: 0,
            count: (count >= 0).then_some(count as u64),
            random: words(seeds),
            seeds,
            used: 0,
            generator: generator.clone(),
            produced: false,
        }
    }

    /// The number of places in the ring.
    fn places(&self) -> usize {
        self.limit.unwrap_or(self.buffer.len())
    }

    fn wants_more(&self) -> bool {
        if self.running.is_none() && self.count.is_some_and(|count| self.runs >= count) {
            return false;
        }
        if self.slices.len() > MAX_RUNS && self.held > 0 {
            return false;
        }
        if self.limit.is_none() {
            let serving = self.slices.iter().find(|slice| slice.start != slice.end);
            if !serving.is_some_and(|slice| slice.complete) {
                return true;
            }
        }
        self.held < self.places()
    }

    fn poll_fill(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        while self.wants_more() {
            ready!(cx.tick());
            if self.running.is_none() {
                let start = self.slices.back().map_or(0, |slice| slice.end);
                self.running = Some(self.input.open(&self.cx)?);
                self.slices.push_back(Slice { start, end: start, complete: false });
                self.runs += 1;
            }
            let Some(running) = &mut self.running else { break };
            match ready!(running.poll_next(cx))? {
                Some(element) => self.add(element),
                None => {
                    if let Some(slice) = self.slices.back_mut() {
                        slice.complete = true;
                    }
                    self.running = None;
                    if !self.produced && self.count.is_none() {
                        // An empty dataset would be run forever.
                        return Poll::Ready(Ok(()));
                    }
                }
            }
        }
        Poll::Ready(Ok(()))
    }

    fn add(&mut self, element: Element) {
        self.produced = true;
        let grows = self.limit.is_none() && self.held == self.buffer.len();
        let Some(slice) = self.slices.back_mut() else { return };
        let place =
            if grows { self.buffer.len() } else { slice.end % self.limit.unwrap_or(self.buffer.len()) };
        slice.end += 1;
        self.held += 1;
        match self.buffer.get_mut(place) {
            Some(slot) => *slot = element,
            None => self.buffer.push(element),
        }
    }
}

impl Source for Shuffle {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        ready!(self.poll_fill(cx))?;
        if self.held == 0 {
            return END;
        }
        while self.slices.front().is_some_and(|slice| slice.start == slice.end) {
            self.slices.pop_front();
            self.seeds = self.generator.next(&self.cx);
            (self.random, self.used) = (words(self.seeds), 0);
        }
        let places = self.places();
        let Some(slice) = self.slices.front_mut() else { return END };
        self.used += 1;
        let offset = self.random.next() as usize % (slice.end - slice.start);
        let (drawn, first) = ((slice.start + offset) % places, slice.start % places);
        slice.start += 1;
        self.held -= 1;
        let element = std::mem::take(&mut self.buffer[drawn]);
        self.buffer.swap(drawn, first);
        Poll::Ready(Ok(Some(element)))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let stage = if self.count == Some(1) { "Shuffle" } else { "ShuffleAndRepeat" };
        self.poll_save_as(stage, 0, to, cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&["ShuffleAndRepeat", "Shuffle"])?;
        self.generator.go_to(from.number("epoch_num_random_samples")?);
        self.seeds = (from.number("seed")?, from.number("seed2")?);
        (self.random, self.used) = (words(self.seeds), from.count("num_random_samples")? as u64);
        for _ in 0..self.used {
            self.random.next();
        }
        self.running = None;
        if !from.flag("end_of_input_sequence")? {
            let mut running = self.input.open(&self.cx)?;
            running.restore(&from)?;
            self.running = Some(running);
        }
        self.runs = from.count("epoch")? as u64;
        self.held = from.count("num_elements")?;
        let place = from.at(":buffer");
        self.buffer.clear();
        for i in 0..place.count("num_elements")? {
            let place = place.at(&format!("::{i}"));
            self.buffer.push(place.components("component", place.count("num_components")?)?);
        }
        self.slices.clear();
        for i in 0..from.count("slices_size")? {
            let (start, end) =
                (from.count(&format!("slices_start_{i}"))?, from.count(&format!("slices_end_{i}"))?);
            let complete = from.flag(&format!("slices_reached_end_of_sequence_{i}"))?;
            self.slices.push_back(Slice { start, end, complete });
        }
        let held = self.slices.iter().try_fold(0usize, |held, slice| {
            slice.end.checked_sub(slice.start).and_then(|length| held.checked_add(length))
        });
        ensure!(
            held == Some(self.held) && self.held <= self.buffer.len().min(self.places()),
            InvalidArgument,
            "the state of a shuffle has {} elements in a buffer of {}, and slices of {held:?}",
            self.held,
            self.buffer.len()
        );
        self.produced = from.contains("data_produced");
        Ok(())
    }

    fn as_shuffle(&mut self) -> Option<&mut dyn ShuffleStage> {
        Some(self)
    }
}

impl ShuffleStage for Shuffle {
    fn poll_save_repeated(
        &mut self,
        ended: u64,
        to: &mut Saver<'_>,
        cx: &mut SourceCx<'_, '_>,
    ) -> Poll<Result<()>> {
        let ended = if self.count == Some(1) { ended } else { 0 };
        self.poll_save_as("ShuffleAndRepeat", ended, to, cx)
    }
}

impl Shuffle {
    /// Writes the state as that of a stage of this name, of which this many runs have ended before.
    fn poll_save_as(
        &mut self,
        stage: &str,
        ended: u64,
        to: &mut Saver<'_>,
        cx: &mut SourceCx<'_, '_>,
    ) -> Poll<Result<()>> {
        let mut to = to.stage(stage);
        to.number("epoch_num_random_samples", self.generator.place());
        to.number("num_random_samples", self.used as i64);
        to.number("seed", self.seeds.0);
        to.number("seed2", self.seeds.1);
        to.number("end_of_input_sequence", self.running.is_none() as i64);
        if let Some(running) = &mut self.running {
            ready!(running.poll_save(&mut to, cx))?;
        }
        to.number("epoch", (ended + self.runs) as i64);
        to.number("num_elements", self.held as i64);
        to.number("slices_size", self.slices.len() as i64);
        for (i, slice) in self.slices.iter().enumerate() {
            to.number(&format!("slices_start_{i}"), slice.start as i64);
            to.number(&format!("slices_end_{i}"), slice.end as i64);
            to.number(&format!("slices_reached_end_of_sequence_{i}"), slice.complete as i64);
        }
        if self.produced {
            to.mark("data_produced");
        }
        let mut place = to.at(":buffer");
        place.number("num_elements", self.buffer.len() as i64);
        for (i, element) in self.buffer.iter().enumerate() {
            let mut place = place.at(&format!("::{i}"));
            place.number("num_components", element.len() as i64);
            place.components("component", element);
        }
        Poll::Ready(Ok(()))
    }
}

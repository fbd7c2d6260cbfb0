//! Datasets whose elements are taken by their place: all of them in a random order, or those that a function names.

use crate::data::random_access::{self, Access};
use crate::data::seeds::SeedGenerator;
use crate::data::{
    Caller, Dataset, END, Element, INFINITE, IteratorCx, Next, PendingCall, Source, SourceCx, kernel, scalar,
};
use crate::families::random::index_shuffle::shuffled_index;
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, kernels};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] =
    &[&GLOBAL_SHUFFLE_DATASET, &INDEX_FLAT_MAP_DATASET, &WEIGHTED_FLAT_MAP_DATASET];

static GLOBAL_SHUFFLE_DATASET: Op = Op {
    name: "GlobalShuffleDataset",
    inputs: &["input_dataset: variant", "seed: int64", "seed2: int64", "seed_generator: resource"],
    outputs: &["handle: variant"],
    attrs: &[
        "reshuffle_each_iteration: bool = true",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any global_shuffle_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static INDEX_FLAT_MAP_DATASET: Op = Op {
    name: "IndexFlatMapDataset",
    inputs: &[
        "input_dataset: variant",
        "map_func_other_args: Tmap_func_args",
        "index_map_func_other_args: Tindex_map_func_args",
        "output_cardinality: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "map_func: func",
        "index_map_func: func",
        "Tmap_func_args: list(type) >= 0",
        "Tindex_map_func_args: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any index_flat_map_kernel],
    cheap: true,
    ..Op::PURE
};

static WEIGHTED_FLAT_MAP_DATASET: Op = Op {
    name: "WeightedFlatMapDataset",
    inputs: &["input_datasets: N * variant", "weights: M * double"],
    outputs: &["handle: variant"],
    attrs: &[
        "N: int >= 2",
        "M: int >= 2",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any weighted_kernel],
    cheap: true,
    ..Op::PURE
};

/// The number of rounds of stock's shuffle of indices.
const ROUNDS: usize = 8;

fn global_shuffle_kernel(init: &Init<'_>) -> Result<Kernel> {
    let reshuffles: bool = init.attr("reshuffle_each_iteration")?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        if let Err(error) = random_access::check(&input) {
            bail!(
                FailedPrecondition,
                "`global_shuffle` requires all upstream transformations be compatible with random access. Got: {}",
                error.message()
            )
        }
        let count = input.cardinality();
        ensure!(
            count != INFINITE,
            FailedPrecondition,
            "`global_shuffle` requires all upstream transformations be compatible with random access. Got: {} never \
             ends",
            input.op()
        );
        ensure!(
            count > 0,
            InvalidArgument,
            "`global_shuffle` requires the input dataset to have a non-empty finite cardinality. Got cardinality \
             {count} for dataset {}",
            input.op()
        );
        let (seed, seed2): (i64, i64) = (scalar(cx, 1, "seed")?, scalar(cx, 2, "seed2")?);
        let shared = cx.resource::<SeedGenerator>(3).ok();
        let generator = shared.unwrap_or_else(|| Arc::new(SeedGenerator::new(seed, seed2, reshuffles)));
        Ok(Dataset::new(spec, count, move |cx| {
            let ((seed, seed2), (seed3, _)) = (generator.next(cx), generator.next(cx));
            let key = [seed as u32, seed2 as u32, seed3 as u32];
            Ok(Box::new(GlobalShuffle {
                input: input.clone(),
                cx: cx.clone(),
                key,
                next: 0,
                count: count as u64,
                pending: None,
            }))
        }))
    })
}

struct GlobalShuffle {
    input: Dataset,
    cx: Arc<IteratorCx>,
    key: [u32; 3],
    next: u64,
    count: u64,
    pending: Option<PendingCall>,
}

impl Source for GlobalShuffle {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        if self.pending.is_none() {
            if self.next == self.count {
                return END;
            }
            let last = self.count - 1;
            let index = if last == 0 { 0 } else { shuffled_index(self.next, self.key, last, ROUNDS) };
            self.next += 1;
            let access = Access { cx: self.cx.clone() };
            self.pending = Some(random_access::element(access, self.input.clone(), index as i64));
        }
        let Some(pending) = &mut self.pending else { return END };
        let element = ready!(pending.as_mut().poll(cx.task));
        self.pending = None;
        Poll::Ready(element.map(Some))
    }
}

fn index_flat_map_kernel(init: &Init<'_>) -> Result<Kernel> {
    let maps = init.attr::<Vec<DType>>("Tmap_func_args")?.len();
    kernel(init, move |cx, spec| {
        let (input, last) = (Dataset::input(cx, 0)?, cx.num_inputs() - 1);
        let map = spec.function(cx, "map_func", 1..1 + maps)?;
        let index = spec.function(cx, "index_map_func", 1 + maps..last)?;
        let count: i64 = scalar(cx, last, "output_cardinality")?;
        Ok(Dataset::new(spec, count, move |cx| {
            Ok(Box::new(IndexFlatMap {
                input: input.open(cx)?,
                map: map.caller(cx)?,
                index: index.caller(cx)?,
                cx: cx.clone(),
                next: 0,
                place: None,
                current: None,
            }))
        }))
    })
}

/// Rows of mapped elements, as a function of the row's number says which element and which row of it.
struct IndexFlatMap {
    input: Box<dyn Source>,
    map: Caller,
    index: Caller,
    cx: Arc<IteratorCx>,
    next: i64,
    /// The element and the row that come next.
    place: Option<(i64, i64)>,
    /// The element that was mapped last, with its number.
    current: Option<(i64, Element)>,
}

impl Source for IndexFlatMap {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let (element, row) = match self.place {
            Some(place) => place,
            None => {
                if self.index.is_idle() {
                    self.index.start(vec![Tensor::scalar(self.next)]);
                }
                let place = places(&ready!(self.index.poll(cx))?)?;
                *self.place.insert(place)
            }
        };
        if self.current.as_ref().is_none_or(|(number, _)| element > *number) {
            if self.map.is_idle() {
                let Some(input) = ready!(self.input.poll_next(cx))? else { return END };
                self.map.start(input);
            }
            let mapped = ready!(self.map.poll(cx))?;
            self.current = Some((element, mapped));
        }
        self.place = None;
        self.next += 1;
        let Some((_, mapped)) = &self.current else { return END };
        let device = self.cx.device();
        let slices = mapped.iter().map(|tensor| {
            ensure!(tensor.rank() > 0, InvalidArgument, "`map_func` must return tensors with rows");
            let rows = tensor.shape().dim(0);
            let row = usize::try_from(row).ok().filter(|row| *row < rows);
            match row {
                Some(row) => rows::row(device, tensor, row),
                None => bail!(InvalidArgument, "Invalid index: a tensor of {rows} rows has no such row"),
            }
        });
        Poll::Ready(slices.collect::<Result<Element>>().map(Some))
    }
}

/// The numbers of an element and of a row in it.
fn places(results: &[Tensor]) -> Result<(i64, i64)> {
    match results {
        [element, row] => Ok((element.to_scalar()?, row.to_scalar()?)),
        [both] if both.elements() == 2 => Ok((both.flat::<i64>()?[0], both.flat::<i64>()?[1])),
        _ => bail!(
            InvalidArgument,
            "`index_map_func` must return the numbers of an element and of a row in it"
        ),
    }
}

fn weighted_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (inputs, weights): (usize, usize) = (init.attr("N")?, init.attr("M")?);
    ensure!(
        inputs == weights,
        InvalidArgument,
        "The number of weights must be the same as the number of datasets: {inputs} and {weights}"
    );
    kernel(init, move |cx, spec| {
        let datasets: Vec<Dataset> = (0..inputs).map(|at| Dataset::input(cx, at)).collect::<Result<_>>()?;
        let weights: Vec<f64> =
            (inputs..inputs + weights).map(|at| scalar(cx, at, "weights")).collect::<Result<_>>()?;
        let counts = weighted_counts(&datasets, &weights)?;
        let total = counts.iter().sum::<u64>() as i64;
        let parts: Arc<[(Dataset, u64)]> = datasets.into_iter().zip(counts).collect();
        Ok(Dataset::new(spec, total, move |cx| {
            Ok(Box::new(Weighted { parts: parts.clone(), at: 0, taken: 0, running: None, cx: cx.clone() }))
        }))
    })
}

/// The numbers of elements to take of each dataset, in the proportion of the weights.
fn weighted_counts(datasets: &[Dataset], weights: &[f64]) -> Result<Vec<u64>> {
    let largest = weights.iter().copied().fold(0.0, f64::max);
    ensure!(
        largest > 0.0 && weights.iter().all(|weight| *weight > 0.0),
        InvalidArgument,
        "`weights` must be greater than 0.0"
    );
    let mut least = (f64::MAX, 0);
    for (at, (dataset, weight)) in datasets.iter().zip(weights).enumerate() {
        let count = dataset.cardinality();
        ensure!(count >= 0, InvalidArgument, "Cardinality of input {at} must be finite. Got {count}");
        let share = count as f64 * weight / largest;
        if least.0 > share {
            least = (share, at);
        }
    }
    let mut counts = Vec::with_capacity(datasets.len());
    for (at, (dataset, weight)) in datasets.iter().zip(weights).enumerate() {
        let (count, have) = ((least.0 * weight / weights[least.1]) as u64, dataset.cardinality() as u64);
        ensure!(
            count <= have,
            InvalidArgument,
            "Input {at} needs to have at least {count} elements. It only has {have} elements."
        );
        counts.push(count);
    }
    Ok(counts)
}

/// The first elements of each dataset, one dataset after the other.
struct Weighted {
    parts: Arc<[(Dataset, u64)]>,
    at: usize,
    taken: u64,
    running: Option<Box<dyn Source>>,
    cx: Arc<IteratorCx>,
}

impl Source for Weighted {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            let Some((dataset, count)) = self.parts.get(self.at) else { return END };
            if self.taken < *count {
                let running = match &mut self.running {
                    Some(running) => running,
                    none => none.insert(dataset.open(&self.cx)?),
                };
                let next = ready!(running.poll_next(cx))?;
                if next.is_some() {
                    self.taken += 1;
                    return Poll::Ready(Ok(next));
                }
            }
            (self.at, self.taken, self.running) = (self.at + 1, 0, None);
        }
    }
}

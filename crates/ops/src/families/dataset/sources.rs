//! Datasets of numbers and tensors.

use crate::data::seeds::{SeedGenerator, words};
use crate::data::state::{Restorer, Saver};
use crate::data::{Caller, Function};
use crate::data::{
    Dataset, END, Element, INFINITE, IteratorCx, Next, Source, SourceCx, UNKNOWN, kernel, scalar,
};
use crate::numeric::philox::Words;
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &RANGE_DATASET,
    &TENSOR_DATASET,
    &TENSOR_SLICE_DATASET,
    &SPARSE_TENSOR_SLICE_DATASET,
    &RANDOM_DATASET,
    &RANDOM_DATASET_V2,
    &EXPERIMENTAL_RANDOM_DATASET,
    &GENERATOR_DATASET,
    &LIST_DATASET,
    &WINDOW_OP,
];

static RANGE_DATASET: Op = Op {
    name: "RangeDataset",
    inputs: &["start: int64", "stop: int64", "step: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
        "replicate_on_split: bool = false",
    ],
    shape: shapes::scalar,
    kernels: kernels![any range_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_DATASET: Op = Op {
    name: "TensorDataset",
    inputs: &["components: Toutput_types"],
    outputs: &["handle: variant"],
    attrs: &["Toutput_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any tensor_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TENSOR_SLICE_DATASET: Op = Op {
    name: "TensorSliceDataset",
    inputs: &["components: Toutput_types"],
    outputs: &["handle: variant"],
    attrs: &[
        "Toutput_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "is_files: bool = false",
        "metadata: string = ''",
        "replicate_on_split: bool = false",
    ],
    shape: shapes::scalar,
    kernels: kernels![any tensor_slice_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static SPARSE_TENSOR_SLICE_DATASET: Op = Op {
    name: "SparseTensorSliceDataset",
    inputs: &["indices: int64", "values: Tvalues", "dense_shape: int64"],
    outputs: &["handle: variant"],
    attrs: &["Tvalues: type"],
    shape: shapes::scalar,
    kernels: kernels![any sparse_slice_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static RANDOM_DATASET: Op = Op {
    name: "RandomDataset",
    inputs: &["seed: int64", "seed2: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any random_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static RANDOM_DATASET_V2: Op = Op {
    name: "RandomDatasetV2",
    inputs: &["seed: int64", "seed2: int64", "seed_generator: resource"],
    outputs: &["handle: variant"],
    attrs: &[
        "rerandomize_each_iteration: bool = false",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any random_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_RANDOM_DATASET: Op = Op {
    name: "ExperimentalRandomDataset",
    inputs: &["seed: int64", "seed2: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any random_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static GENERATOR_DATASET: Op = Op {
    name: "GeneratorDataset",
    inputs: &[
        "init_func_other_args: Tinit_func_args",
        "next_func_other_args: Tnext_func_args",
        "finalize_func_other_args: Tfinalize_func_args",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "init_func: func",
        "next_func: func",
        "finalize_func: func",
        "Tinit_func_args: list(type) >= 0",
        "Tnext_func_args: list(type) >= 0",
        "Tfinalize_func_args: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any generator_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static LIST_DATASET: Op = Op {
    name: "ListDataset",
    inputs: &["tensors: Tinput_types"],
    outputs: &["handle: variant"],
    attrs: &[
        "Tinput_types: list(type) >= 1",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any list_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static WINDOW_OP: Op = Op {
    name: "WindowOp",
    inputs: &["inputs: Tinputs"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "Tinputs: list(type) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any list_kernel],
    cheap: true,
    ..Op::PURE
};

fn range_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (start, stop) = (scalar::<i64>(cx, 0, "start")?, scalar::<i64>(cx, 1, "stop")?);
        let step: i64 = scalar(cx, 2, "step")?;
        ensure!(step != 0, InvalidArgument, "step must be a non-zero integer.");
        let dtype = *spec.types.first().unwrap_or(&DType::Int64);
        number(dtype, 0)?;
        let span = if step > 0 { stop as i128 - start as i128 } else { start as i128 - stop as i128 };
        let count = (span.max(0) as u128).div_ceil(step.unsigned_abs() as u128);
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        Ok(Dataset::new(spec, count, move |_| Ok(Box::new(Range { next: start, step, left: count, dtype }))))
    })
}

/// The key of a count that stock saves with elements that can be found by their place, 0 unless they are shuffled so.
const GLOBAL_SHUFFLE: &str = "global_shuffle_iterator_next_index";

struct Range {
    next: i64,
    step: i64,
    left: i64,
    dtype: DType,
}

impl Source for Range {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        if self.left == 0 {
            return END;
        }
        let value = self.next;
        self.left -= 1;
        self.next = self.next.wrapping_add(self.step);
        Poll::Ready(number(self.dtype, value).map(|value| Some(vec![value])))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, _: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let mut to = to.stage("Range");
        to.number("next", self.next);
        to.number(GLOBAL_SHUFFLE, 0);
        Poll::Ready(Ok(()))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let next = from.stage(&["Range"])?.number("next")?;
        let passed = (next as i128 - self.next as i128) / self.step as i128;
        self.left -= i64::try_from(passed.max(0)).unwrap_or(i64::MAX).min(self.left);
        self.next = next;
        Ok(())
    }
}

/// A number as a scalar of a type that stock counts in.
pub(crate) fn number(dtype: DType, value: i64) -> Result<Tensor> {
    use ferroflow_core::{bf16, f16};
    Ok(match dtype {
        DType::Int64 => Tensor::scalar(value),
        DType::Int32 => Tensor::scalar(value as i32),
        DType::Int16 => Tensor::scalar(value as i16),
        DType::Int8 => Tensor::scalar(value as i8),
        DType::Uint8 => Tensor::scalar(value as u8),
        DType::Uint16 => Tensor::scalar(value as u16),
        DType::Uint32 => Tensor::scalar(value as u32),
        DType::Uint64 => Tensor::scalar(value as u64),
        DType::Float => Tensor::scalar(value as f32),
        DType::Double => Tensor::scalar(value as f64),
        DType::Half => Tensor::scalar(f16::from_f32(value as f32)),
        DType::Bfloat16 => Tensor::scalar(bf16::from_f32(value as f32)),
        other => bail!(InvalidArgument, "Unsupported data type: {other}"),
    })
}

/// All inputs of a kernel.
pub(super) fn inputs(cx: &KernelCx<'_>) -> Result<Element> {
    (0..cx.num_inputs()).map(|input| cx.input(input).cloned()).collect()
}

fn tensor_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let element = inputs(cx)?;
        Ok(Dataset::new(spec, 1, move |_| Ok(Box::new(Once(Some(element.clone()))))))
    })
}

/// A source of one element.
pub(super) struct Once(pub(super) Option<Element>);

impl Source for Once {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        Poll::Ready(Ok(self.0.take()))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, _: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let mut to = to.stage("FromTensor");
        to.number("produced", self.0.is_none() as i64);
        to.number(GLOBAL_SHUFFLE, 0);
        Poll::Ready(Ok(()))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        if from.stage(&["FromTensor"])?.flag("produced")? {
            self.0 = None;
        }
        Ok(())
    }
}

fn tensor_slice_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let components = inputs(cx)?;
        for component in &components {
            ensure!(component.rank() > 0, InvalidArgument, "All components must be at least 1-dimensional");
        }
        let rows = components[0].shape().dim(0);
        ensure!(
            components.iter().all(|component| component.shape().dim(0) == rows),
            InvalidArgument,
            "All components must have the same size in the 0th dimension"
        );
        let components: Arc<[Tensor]> = components.into();
        Ok(Dataset::new(spec, rows as i64, move |cx| {
            Ok(Box::new(Slices { components: components.clone(), next: 0, rows, cx: cx.clone() }))
        }))
    })
}

struct Slices {
    components: Arc<[Tensor]>,
    next: usize,
    rows: usize,
    cx: Arc<IteratorCx>,
}

impl Source for Slices {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        if self.next == self.rows {
            return END;
        }
        let row = self.next;
        self.next += 1;
        let device = self.cx.device();
        let element = self.components.iter().map(|component| rows::row(device, component, row)).collect();
        Poll::Ready(Result::map(element, Some))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, _: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let mut to = to.stage("TensorSlice");
        to.full_number("index", self.next as i64);
        to.number(GLOBAL_SHUFFLE, 0);
        Poll::Ready(Ok(()))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let next = from.stage(&["TensorSlice"])?.full_number("index")?;
        self.next = usize::try_from(next).unwrap_or_default().min(self.rows);
        Ok(())
    }
}

fn list_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (tensors, width) = (inputs(cx)?, spec.types.len());
        ensure!(
            tensors.len() % width == 0,
            InvalidArgument,
            "{} tensors are not a whole number of elements of {width} components",
            tensors.len()
        );
        let count = tensors.len() / width;
        let tensors: Arc<[Tensor]> = tensors.into();
        Ok(Dataset::new(spec, count as i64, move |_| {
            Ok(Box::new(List { tensors: tensors.clone(), next: 0, width }))
        }))
    })
}

struct List {
    tensors: Arc<[Tensor]>,
    next: usize,
    width: usize,
}

impl Source for List {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        let start = self.next * self.width;
        let Some(element) = self.tensors.get(start..start + self.width) else { return END };
        self.next += 1;
        Poll::Ready(Ok(Some(element.to_vec())))
    }
}

fn sparse_slice_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (indices, values, dense) = (cx.input(0)?.clone(), cx.input(1)?.clone(), cx.input(2)?.clone());
        ensure!(
            indices.rank() == 2,
            InvalidArgument,
            "Input indices must be a matrix. Got: {}",
            indices.shape()
        );
        ensure!(
            values.rank() == 1,
            InvalidArgument,
            "Input values must be a vector. Got: {}",
            values.shape()
        );
        ensure!(dense.rank() == 1, InvalidArgument, "Input shape must be a vector. Got: {}", dense.shape());
        ensure!(
            values.elements() == indices.shape().dim(0),
            InvalidArgument,
            "Number of values must match first dimension of indices. Got {} values, indices shape: {}",
            values.elements(),
            indices.shape()
        );
        ensure!(
            dense.elements() == indices.shape().dim(1),
            InvalidArgument,
            "Number of dimensions must match second dimension of indices. Got {} dimensions, indices shape: {}",
            dense.elements(),
            indices.shape()
        );
        ensure!(dense.elements() > 0, InvalidArgument, "The shape argument requires at least one element.");
        let places = indices.flat::<i64>()?;
        let rank = dense.elements();
        let batches: Vec<i64> = places.chunks_exact(rank).map(|place| place[0]).collect();
        ensure!(
            batches.windows(2).all(|pair| pair[0] <= pair[1]),
            Unimplemented,
            "The SparseTensor must be ordered in the batch dimension; handling arbitrarily ordered input is not \
             currently supported."
        );
        let rows = dense.flat::<i64>()?[0];
        let parts = Arc::new(SparseParts { indices, values, dense });
        Ok(Dataset::new(spec, rows, move |cx| {
            Ok(Box::new(SparseSlices { parts: parts.clone(), next: 0, place: 0, cx: cx.clone() }))
        }))
    })
}

struct SparseParts {
    indices: Tensor,
    values: Tensor,
    dense: Tensor,
}

struct SparseSlices {
    parts: Arc<SparseParts>,
    next: i64,
    place: usize,
    cx: Arc<IteratorCx>,
}

impl Source for SparseSlices {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        Poll::Ready(self.next_slice())
    }
}

impl SparseSlices {
    fn next_slice(&mut self) -> Result<Option<Element>> {
        let SparseParts { indices, values, dense } = &*self.parts;
        let (indices, dense) = (indices.flat::<i64>()?, dense.flat::<i64>()?);
        if self.next >= dense[0] {
            return Ok(None);
        }
        let (rank, start) = (dense.len(), self.place);
        while self.place < values.elements() && indices[self.place * rank] <= self.next {
            self.place += 1;
        }
        let rows: Vec<&[i64]> = indices.chunks_exact(rank).skip(start).take(self.place - start).collect();
        let rows: Vec<i64> = rows.into_iter().flat_map(|row| row[1..].to_vec()).collect();
        let count = self.place - start;
        self.next += 1;
        Ok(Some(vec![
            Tensor::new(Shape::matrix(count, rank - 1), rows)?,
            rows::slice(self.cx.device(), values, start, Shape::vector(count))?,
            Tensor::vector(dense[1..].to_vec()),
        ]))
    }
}

/// Random integers. The generator of the second version is shared by iterators.
fn random_kernel(init: &Init<'_>) -> Result<Kernel> {
    let rerandomizes =
        init.attrs.has("rerandomize_each_iteration") && init.attr("rerandomize_each_iteration")?;
    kernel(init, move |cx, spec| {
        let seeds = (scalar(cx, 0, "seed")?, scalar(cx, 1, "seed2")?);
        let shared = if cx.num_inputs() > 2 { cx.resource::<SeedGenerator>(2).ok() } else { None };
        let shared = shared.unwrap_or_else(|| Arc::new(SeedGenerator::new(seeds.0, seeds.1, rerandomizes)));
        Ok(Dataset::new(spec, INFINITE, move |cx| Ok(Box::new(Random(words(shared.next(cx)))))))
    })
}

struct Random(Words);

impl Source for Random {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        Poll::Ready(Ok(Some(vec![Tensor::scalar(self.0.next() as i64)])))
    }
}

fn generator_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count = |attr: &str| init.attr::<Vec<DType>>(attr).map(|types| types.len());
    let (starts, nexts) = (count("Tinit_func_args")?, count("Tnext_func_args")?);
    let ends = count("Tfinalize_func_args")?;
    kernel(init, move |cx, spec| {
        let (next_at, end_at) = (starts, starts + nexts);
        let start = spec.function(cx, "init_func", 0..next_at)?;
        let next = spec.function(cx, "next_func", next_at..end_at)?;
        let end = spec.function(cx, "finalize_func", end_at..end_at + ends)?;
        Ok(Dataset::new(spec, UNKNOWN, move |cx| Ok(Box::new(Generator::new(&start, &next, &end, cx)?))))
    })
}

/// Elements that one function makes of a state that another one made, until it says that the sequence is over.
struct Generator {
    start: Caller,
    next: Caller,
    end: Caller,
    stage: GeneratorStage,
    state: Element,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum GeneratorStage {
    New,
    Starting,
    Running,
    Ending,
    Ended,
}

impl Generator {
    fn new(start: &Function, next: &Function, end: &Function, cx: &Arc<IteratorCx>) -> Result<Generator> {
        Ok(Generator {
            start: start.caller(cx)?,
            next: next.caller(cx)?,
            end: end.caller(cx)?,
            stage: GeneratorStage::New,
            state: Vec::new(),
        })
    }
}

impl Source for Generator {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        use GeneratorStage::*;
        loop {
            match self.stage {
                New => {
                    self.start.start(Vec::new());
                    self.stage = Starting;
                }
                Starting => {
                    let started = ready!(self.start.poll(cx));
                    self.stage = if started.is_ok() { Running } else { New };
                    self.state = started?;
                }
                Running => {
                    if self.next.is_idle() {
                        self.next.start(self.state.clone());
                    }
                    match ready!(self.next.poll(cx)) {
                        Err(error) if error.code() == ferroflow_core::Code::OutOfRange => {
                            self.end.start(self.state.clone());
                            self.stage = Ending;
                        }
                        results => return Poll::Ready(results.map(Some)),
                    }
                }
                Ending => {
                    let ended = ready!(self.end.poll(cx));
                    self.stage = Ended;
                    ended?;
                }
                Ended => return END,
            }
        }
    }
}

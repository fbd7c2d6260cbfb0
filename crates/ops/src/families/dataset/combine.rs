//! Datasets that combine the elements of several others.

use crate::data::state::{Restorer, Saver};
use crate::data::{Dataset, END, Element, Ended, INFINITE, Next, Source, SourceCx, UNKNOWN, kernel};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, Result, ensure, kernels, status};
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &ZIP_DATASET,
    &CONCATENATE_DATASET,
    &DIRECTED_INTERLEAVE_DATASET,
    &EXPERIMENTAL_DIRECTED_INTERLEAVE_DATASET,
    &CHOOSE_FASTEST_DATASET,
    &EXPERIMENTAL_CHOOSE_FASTEST_DATASET,
];

static ZIP_DATASET: Op = Op {
    name: "ZipDataset",
    inputs: &["input_datasets: N * variant"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "N: int >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any zip_kernel],
    cheap: true,
    ..Op::PURE
};

static CONCATENATE_DATASET: Op = Op {
    name: "ConcatenateDataset",
    inputs: &["input_dataset: variant", "another_dataset: variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any concatenate_kernel],
    cheap: true,
    ..Op::PURE
};

static DIRECTED_INTERLEAVE_DATASET: Op = Op {
    name: "DirectedInterleaveDataset",
    inputs: &["selector_input_dataset: variant", "data_input_datasets: N * variant"],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "N: int >= 1",
        "stop_on_empty_dataset: bool = false",
    ],
    shape: shapes::scalar,
    kernels: kernels![any directed_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_DIRECTED_INTERLEAVE_DATASET: Op = Op {
    name: "ExperimentalDirectedInterleaveDataset",
    inputs: &["selector_input_dataset: variant", "data_input_datasets: N * variant"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "N: int >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any directed_interleave_kernel],
    cheap: true,
    ..Op::PURE
};

static CHOOSE_FASTEST_DATASET: Op = Op {
    name: "ChooseFastestDataset",
    inputs: &["input_datasets: N * variant"],
    outputs: &["handle: variant"],
    attrs: &[
        "N: int >= 2",
        "num_experiments: int",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any choose_fastest_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_CHOOSE_FASTEST_DATASET: Op =
    Op { name: "ExperimentalChooseFastestDataset", ..CHOOSE_FASTEST_DATASET };

fn datasets(cx: &KernelCx<'_>, first: usize) -> Result<Vec<Dataset>> {
    (first..cx.num_inputs()).map(|input| Dataset::input(cx, input)).collect()
}

fn zip_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let inputs = datasets(cx, 0)?;
        let known = inputs.iter().map(Dataset::cardinality).filter(|count| *count >= 0).min();
        let unknown = inputs.iter().any(|input| input.cardinality() == UNKNOWN);
        let cardinality = match known {
            _ if unknown => UNKNOWN,
            Some(known) => known,
            None => INFINITE,
        };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let sources: Result<Vec<Box<dyn Source>>> = inputs.iter().map(|input| input.open(cx)).collect();
            Ok(Box::new(Zip { sources: sources?, element: Vec::new(), at: 0 }))
        }))
    })
}

struct Zip {
    sources: Vec<Box<dyn Source>>,
    /// The components that are there, from the sources before `at`.
    element: Element,
    at: usize,
}

impl Source for Zip {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        while let Some(source) = self.sources.get_mut(self.at) {
            match ready!(source.poll_next(cx)) {
                Ok(Some(components)) => self.element.extend(components),
                Ok(None) => {
                    self.sources.clear();
                    return END;
                }
                Err(error) => {
                    // The others are asked, too, so that the next elements belong together.
                    for later in self.sources.iter_mut().skip(self.at + 1) {
                        let _ = later.poll_next(cx);
                    }
                    (self.element, self.at) = (Vec::new(), 0);
                    return Poll::Ready(Err(error));
                }
            }
            self.at += 1;
        }
        if self.sources.is_empty() {
            return END;
        }
        self.at = 0;
        Poll::Ready(Ok(Some(std::mem::take(&mut self.element))))
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let mut to = to.stage("Zip");
        to.number("input_impls_empty", self.sources.is_empty() as i64);
        for (i, source) in self.sources.iter_mut().enumerate() {
            ready!(source.poll_save(&mut to.at(&format!("[{i}]")), cx))?;
        }
        Poll::Ready(Ok(()))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&["Zip"])?;
        if from.flag("input_impls_empty")? {
            self.sources.clear();
        }
        let mut sources = self.sources.iter_mut().enumerate();
        sources.try_for_each(|(i, source)| source.restore(&from.at(&format!("[{i}]"))))
    }
}

fn concatenate_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let (first, second) = (Dataset::input(cx, 0)?, Dataset::input(cx, 1)?);
        let list = |types: &[DType]| types.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        ensure!(
            first.types() == second.types(),
            InvalidArgument,
            "input dataset and dataset to concatenate have different output_types {} and {}",
            list(first.types()),
            list(second.types())
        );
        let cardinality = match (first.cardinality(), second.cardinality()) {
            (INFINITE, _) | (_, INFINITE) => INFINITE,
            (UNKNOWN, _) | (_, UNKNOWN) => UNKNOWN,
            (first, second) => first.saturating_add(second),
        };
        Ok(Dataset::new(spec, cardinality, move |context| {
            let (second, cx) = (second.clone(), context.clone());
            let open = Box::new(move || second.open(&cx));
            Ok(Box::new(Concatenate { current: first.open(context)?, next: Some(open) }))
        }))
    })
}

type OpenLater = Box<dyn FnOnce() -> Result<Box<dyn Source>> + Send>;

struct Concatenate {
    current: Box<dyn Source>,
    next: Option<OpenLater>,
}

impl Source for Concatenate {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            if let Some(element) = ready!(self.current.poll_next(cx))? {
                return Poll::Ready(Ok(Some(element)));
            }
            match self.next.take() {
                Some(open) => self.current = open()?,
                None => return END,
            }
        }
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let mut to = to.stage("Concatenate");
        let i = self.next.is_none() as usize;
        to.number("i", i as i64);
        to.number("element_count", 0);
        to.number("input_impl_uninitialized[0]", i as i64);
        to.number("input_impl_uninitialized[1]", 1 - i as i64);
        self.current.poll_save(&mut to.at(&format!("[{i}]")), cx)
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&["Concatenate"])?;
        let i = from.number("i")?;
        if i == 0 {
            return self.current.restore(&from.at("[0]"));
        }
        match self.next.take() {
            Some(open) if !from.flag("input_impl_uninitialized[1]")? => {
                self.current = open()?;
                self.current.restore(&from.at("[1]"))
            }
            _ => {
                self.current = Box::new(Ended);
                Ok(())
            }
        }
    }
}

fn directed_interleave_kernel(init: &Init<'_>) -> Result<Kernel> {
    let stops = init.attrs.has("stop_on_empty_dataset") && init.attr("stop_on_empty_dataset")?;
    kernel(init, move |cx, spec| {
        let (selector, inputs) = (Dataset::input(cx, 0)?, datasets(cx, 1)?);
        ensure!(
            selector.types() == [DType::Int64],
            InvalidArgument,
            "The selector input must be a dataset of scalar int64 elements."
        );
        for (i, input) in inputs.iter().enumerate() {
            ensure!(
                input.types() == inputs[0].types(),
                InvalidArgument,
                "All inputs must have the same output_dtypes. First input has types {:?}, and input {i} has types \
                 {:?}.",
                inputs[0].types(),
                input.types()
            );
        }
        let cardinality = directed_cardinality(&selector, &inputs, stops);
        Ok(Dataset::new(spec, cardinality, move |cx| {
            let sources: Result<Vec<_>> = inputs.iter().map(|input| input.open(cx).map(Some)).collect();
            let (selector, sources) = (Some(selector.open(cx)?), sources?);
            Ok(Box::new(DirectedInterleave { selector, sources, selected: None, stops }))
        }))
    })
}

/// Known only where the selector cannot matter.
fn directed_cardinality(selector: &Dataset, inputs: &[Dataset], stops: bool) -> i64 {
    let endless = |input: &Dataset| input.cardinality() == INFINITE;
    if inputs.iter().all(endless) {
        return selector.cardinality();
    }
    let counts = inputs.iter().map(Dataset::cardinality);
    if endless(selector) && !stops && inputs.iter().all(|input| input.cardinality() >= 0) {
        return counts.fold(0, i64::saturating_add);
    }
    if endless(selector) && !stops && inputs.iter().any(endless) {
        return INFINITE;
    }
    UNKNOWN
}

struct DirectedInterleave {
    selector: Option<Box<dyn Source>>,
    sources: Vec<Option<Box<dyn Source>>>,
    selected: Option<usize>,
    stops: bool,
}

impl Source for DirectedInterleave {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            let Some(selector) = &mut self.selector else { return END };
            let selected = match self.selected {
                Some(selected) => selected,
                None => {
                    let Some(choice) = ready!(selector.poll_next(cx))? else {
                        self.selector = None;
                        return END;
                    };
                    let index: i64 = choice[0].to_scalar()?;
                    let selected = usize::try_from(index).ok().filter(|at| *at < self.sources.len());
                    let count = self.sources.len();
                    selected.ok_or_else(|| {
                        status!(InvalidArgument, "Selector index out of range: {index} >= {count}")
                    })?
                }
            };
            self.selected = Some(selected);
            let Some(source) = &mut self.sources[selected] else {
                self.selected = None;
                continue;
            };
            let next = ready!(source.poll_next(cx));
            self.selected = None;
            if let Some(element) = next? {
                return Poll::Ready(Ok(Some(element)));
            }
            self.sources[selected] = None;
            if self.stops || self.sources.iter().all(Option::is_none) {
                self.selector = None;
            }
        }
    }
}

/// All inputs have the same elements; the first one is as good as any.
fn choose_fastest_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let inputs = datasets(cx, 0)?;
        for input in &inputs {
            ensure!(
                input.types() == inputs[0].types(),
                InvalidArgument,
                "Not all input datasets have the same output_types"
            );
        }
        let cardinality = inputs.iter().map(Dataset::cardinality).find(|count| *count != UNKNOWN);
        let first = inputs[0].clone();
        Ok(Dataset::new(spec, cardinality.unwrap_or(UNKNOWN), move |cx| first.open(cx)))
    })
}

//! Datasets of windows and groups of elements.

use super::interleave::open_returned;
use crate::data::{
    Caller, Dataset, END, Element, Function, INFINITE, IteratorCx, Next, Source, SourceCx, Spec, UNKNOWN,
    kernel, scalar, stack,
};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, Result, Status, Tensor, bail, ensure, kernels, status};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &WINDOW_DATASET,
    &SLIDING_WINDOW_DATASET,
    &EXPERIMENTAL_SLIDING_WINDOW_DATASET,
    &GROUP_BY_WINDOW_DATASET,
    &EXPERIMENTAL_GROUP_BY_WINDOW_DATASET,
    &GROUP_BY_REDUCER_DATASET,
    &EXPERIMENTAL_GROUP_BY_REDUCER_DATASET,
];

static WINDOW_DATASET: Op = Op {
    name: "WindowDataset",
    inputs: &[
        "input_dataset: variant",
        "size: int64",
        "shift: int64",
        "stride: int64",
        "drop_remainder: bool",
    ],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1", "metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any window_kernel],
    cheap: true,
    ..Op::PURE
};

static SLIDING_WINDOW_DATASET: Op = Op {
    name: "SlidingWindowDataset",
    inputs: &["input_dataset: variant", "window_size: int64", "window_shift: int64", "window_stride: int64"],
    outputs: &["handle: variant"],
    attrs: &[
        "drop_remainder: bool = true",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any sliding_window_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_SLIDING_WINDOW_DATASET: Op = Op {
    name: "ExperimentalSlidingWindowDataset",
    inputs: &["input_dataset: variant", "window_size: int64", "window_shift: int64", "window_stride: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any sliding_window_kernel],
    cheap: true,
    ..Op::PURE
};

static GROUP_BY_WINDOW_DATASET: Op = Op {
    name: "GroupByWindowDataset",
    inputs: &[
        "input_dataset: variant",
        "key_func_other_arguments: Tkey_func_other_arguments",
        "reduce_func_other_arguments: Treduce_func_other_arguments",
        "window_size_func_other_arguments: Twindow_size_func_other_arguments",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "key_func: func",
        "reduce_func: func",
        "window_size_func: func",
        "Tkey_func_other_arguments: list(type) >= 0",
        "Treduce_func_other_arguments: list(type) >= 0",
        "Twindow_size_func_other_arguments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
        "metadata: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any group_by_window_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_GROUP_BY_WINDOW_DATASET: Op = Op {
    name: "ExperimentalGroupByWindowDataset",
    inputs: &[
        "input_dataset: variant",
        "key_func_other_arguments: Tkey_func_other_arguments",
        "reduce_func_other_arguments: Treduce_func_other_arguments",
        "window_size_func_other_arguments: Twindow_size_func_other_arguments",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "key_func: func",
        "reduce_func: func",
        "window_size_func: func",
        "Tkey_func_other_arguments: list(type) >= 0",
        "Treduce_func_other_arguments: list(type) >= 0",
        "Twindow_size_func_other_arguments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any group_by_window_kernel],
    cheap: true,
    ..Op::PURE
};

static GROUP_BY_REDUCER_DATASET: Op = Op {
    name: "GroupByReducerDataset",
    inputs: &[
        "input_dataset: variant",
        "key_func_other_arguments: Tkey_func_other_arguments",
        "init_func_other_arguments: Tinit_func_other_arguments",
        "reduce_func_other_arguments: Treduce_func_other_arguments",
        "finalize_func_other_arguments: Tfinalize_func_other_arguments",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "key_func: func",
        "init_func: func",
        "reduce_func: func",
        "finalize_func: func",
        "Tkey_func_other_arguments: list(type) >= 0",
        "Tinit_func_other_arguments: list(type) >= 0",
        "Treduce_func_other_arguments: list(type) >= 0",
        "Tfinalize_func_other_arguments: list(type) >= 0",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any group_by_reducer_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_GROUP_BY_REDUCER_DATASET: Op =
    Op { name: "ExperimentalGroupByReducerDataset", ..GROUP_BY_REDUCER_DATASET };

/// The size, shift and stride of windows.
#[derive(Clone, Copy)]
struct Windows {
    size: usize,
    shift: usize,
    stride: usize,
    drops: bool,
}

impl Windows {
    fn new(cx: &KernelCx<'_>, names: [&str; 3], drops: bool) -> Result<Windows> {
        let positive = |input: usize, name: &str| -> Result<usize> {
            let value: i64 = scalar(cx, input, name)?;
            ensure!(value > 0, InvalidArgument, "{name} must be greater than zero.");
            Ok(usize::try_from(value).unwrap_or(usize::MAX))
        };
        let [size, shift, stride] = names;
        let (size, shift, stride) = (positive(1, size)?, positive(2, shift)?, positive(3, stride)?);
        Ok(Windows { size, shift, stride, drops })
    }

    /// The number of elements from the first to the last of a window.
    fn span(&self) -> usize {
        (self.size - 1).saturating_mul(self.stride).saturating_add(1)
    }

    fn cardinality(&self, input: &Dataset) -> i64 {
        match input.cardinality() {
            special @ (INFINITE | UNKNOWN | 0) => special,
            known if self.drops => {
                let rest = known as i128 - self.span() as i128;
                if rest < 0 { 0 } else { (rest / self.shift as i128 + 1) as i64 }
            }
            known => (known - 1) / self.shift as i64 + 1,
        }
    }
}

/// The elements that a window may still need.
struct WindowBuffer {
    input: Option<Box<dyn Source>>,
    windows: Windows,
    buffer: VecDeque<Result<Element>>,
    /// Elements between windows that are passed over.
    skips: usize,
}

impl WindowBuffer {
    fn new(input: Box<dyn Source>, windows: Windows) -> WindowBuffer {
        WindowBuffer { input: Some(input), windows, buffer: VecDeque::new(), skips: 0 }
    }

    /// The elements of the next window.
    fn poll_window(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<Option<Vec<Element>>>> {
        let span = self.windows.span();
        while self.skips > 0 || self.buffer.len() < span {
            let Some(input) = &mut self.input else { break };
            ready!(cx.tick());
            match ready!(input.poll_next(cx)) {
                Ok(None) => self.input = None,
                Ok(Some(_)) | Err(_) if self.skips > 0 => self.skips -= 1,
                Ok(Some(element)) => self.buffer.push_back(Ok(element)),
                Err(error) => self.buffer.push_back(Err(error)),
            }
        }
        let held = self.buffer.len();
        if held == 0 || (self.windows.drops && held < span) {
            self.buffer.clear();
            return Poll::Ready(Ok(None));
        }
        let window: Result<Vec<Element>> =
            self.buffer.iter().step_by(self.windows.stride).take(self.windows.size).cloned().collect();
        let shift = self.windows.shift;
        self.skips = shift.saturating_sub(held);
        self.buffer.drain(..shift.min(held));
        Poll::Ready(window.map(Some))
    }
}

fn window_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let drops: bool = scalar(cx, 4, "drop_remainder")?;
        let windows = Windows::new(cx, ["Window size", "Window shift", "Window stride"], drops)?;
        let specs: Vec<Arc<Spec>> = (0..input.types().len()).map(|at| component_spec(&input, at)).collect();
        Ok(Dataset::new(spec, windows.cardinality(&input), move |cx| {
            let buffer = WindowBuffer::new(input.open(cx)?, windows);
            Ok(Box::new(WindowSource { buffer, specs: specs.clone() }))
        }))
    })
}

/// The specification of a dataset of one component of another.
fn component_spec(input: &Dataset, at: usize) -> Arc<Spec> {
    Arc::new(Spec::internal("WindowOp", vec![input.types()[at]], vec![input.shapes()[at].clone()]))
}

struct WindowSource {
    buffer: WindowBuffer,
    specs: Vec<Arc<Spec>>,
}

impl Source for WindowSource {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(window) = ready!(self.buffer.poll_window(cx))? else { return END };
        let component = |(at, spec): (usize, &Arc<Spec>)| {
            let elements = window.iter().map(|element| vec![element[at].clone()]).collect();
            of_elements(spec, elements).into_tensor()
        };
        Poll::Ready(Ok(Some(self.specs.iter().enumerate().map(component).collect())))
    }
}

/// A dataset of elements that are there already.
pub(super) fn of_elements(spec: &Arc<Spec>, elements: Vec<Element>) -> Dataset {
    let elements: Arc<[Element]> = elements.into();
    Dataset::new(spec, elements.len() as i64, move |_| {
        Ok(Box::new(Elements { elements: elements.clone(), next: 0 }))
    })
}

/// The source of elements that are there already.
pub(super) struct Elements {
    pub(super) elements: Arc<[Element]>,
    pub(super) next: usize,
}

impl Source for Elements {
    fn poll_next(&mut self, _: &mut SourceCx<'_, '_>) -> Next {
        let next = self.elements.get(self.next).cloned();
        self.next += next.is_some() as usize;
        Poll::Ready(Ok(next))
    }
}

fn sliding_window_kernel(init: &Init<'_>) -> Result<Kernel> {
    let drops = !init.attrs.has("drop_remainder") || init.attr("drop_remainder")?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let windows = Windows::new(cx, ["window_size", "window_shift", "window_stride"], drops)?;
        Ok(Dataset::new(spec, windows.cardinality(&input), move |cx| {
            let buffer = WindowBuffer::new(input.open(cx)?, windows);
            Ok(Box::new(SlidingWindow { buffer, cx: cx.clone() }))
        }))
    })
}

struct SlidingWindow {
    buffer: WindowBuffer,
    cx: Arc<IteratorCx>,
}

impl Source for SlidingWindow {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let Some(window) = ready!(self.buffer.poll_window(cx))? else { return END };
        Poll::Ready(stack::batch(self.cx.device(), &window).map(Some))
    }
}

/// The captured inputs of several functions, one range after the other.
fn ranges(init: &Init<'_>, first: usize, attrs: &[&str]) -> Result<Vec<std::ops::Range<usize>>> {
    let mut start = first;
    let range = |attr: &&str| {
        let count = init.attr::<Vec<DType>>(attr)?.len();
        start += count;
        Ok(start - count..start)
    };
    attrs.iter().map(range).collect()
}

fn group_by_window_kernel(init: &Init<'_>) -> Result<Kernel> {
    let names =
        ["Tkey_func_other_arguments", "Treduce_func_other_arguments", "Twindow_size_func_other_arguments"];
    let ranges = ranges(init, 1, &names)?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let key = spec.function(cx, "key_func", ranges[0].clone())?;
        let reduce = spec.function(cx, "reduce_func", ranges[1].clone())?;
        let size = spec.function(cx, "window_size_func", ranges[2].clone())?;
        let group = Spec::internal("GroupByWindow", input.types().to_vec(), input.shapes().to_vec());
        let group = Arc::new(group);
        let cardinality = if input.cardinality() == INFINITE { INFINITE } else { UNKNOWN };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            Ok(Box::new(GroupByWindow {
                input: Some(input.open(cx)?),
                key: key.caller(cx)?,
                reduce: reduce.caller(cx)?,
                size: size.caller(cx)?,
                element: None,
                current_key: 0,
                sizes: HashMap::new(),
                groups: BTreeMap::new(),
                flushed: None,
                spec: group.clone(),
                cx: cx.clone(),
            }))
        }))
    })
}

struct GroupByWindow {
    input: Option<Box<dyn Source>>,
    key: Caller,
    reduce: Caller,
    size: Caller,
    /// The element that waits for its key, or for the size of its window.
    element: Option<Element>,
    current_key: i64,
    sizes: HashMap<i64, i64>,
    groups: BTreeMap<i64, Vec<Element>>,
    /// The dataset that a group was reduced to.
    flushed: Option<Box<dyn Source>>,
    spec: Arc<Spec>,
    cx: Arc<IteratorCx>,
}

fn int64_result(results: &[Tensor], what: &str) -> Result<i64> {
    let fits = matches!(results, [value] if value.dtype() == DType::Int64 && value.rank() == 0);
    ensure!(fits, InvalidArgument, "{what} must return a scalar int64.");
    results[0].to_scalar()
}

impl GroupByWindow {
    fn flush(&mut self, key: i64) {
        let group = self.groups.remove(&key).unwrap_or_default();
        let dataset = of_elements(&self.spec, group).into_tensor();
        self.reduce.start(vec![Tensor::scalar(key), dataset]);
    }

    /// Puts the element into its group, and reduces the group if it is complete.
    fn add(&mut self) {
        let (key, Some(element)) = (self.current_key, self.element.take()) else { return };
        let group = self.groups.entry(key).or_default();
        group.push(element);
        if group.len() as i64 == self.sizes[&key] {
            self.flush(key);
        }
    }
}

impl Source for GroupByWindow {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            if let Some(flushed) = &mut self.flushed {
                if let Some(element) = ready!(flushed.poll_next(cx))? {
                    return Poll::Ready(Ok(Some(element)));
                }
                self.flushed = None;
            }
            if !self.reduce.is_idle() {
                let results = ready!(self.reduce.poll(cx))?;
                self.flushed = Some(open_returned(&results, &self.cx)?);
                continue;
            }
            if !self.size.is_idle() {
                let size = ready!(self.size.poll(cx));
                let size = size.and_then(|results| int64_result(&results, "`window_size_func`"));
                let size = size.inspect_err(|_| self.element = None)?;
                if size <= 0 {
                    self.element = None;
                    return Poll::Ready(Err(status!(
                        InvalidArgument,
                        "Window size must be greater than zero, but got {size}."
                    )));
                }
                self.sizes.insert(self.current_key, size);
                self.add();
                continue;
            }
            if !self.key.is_idle() {
                let key = ready!(self.key.poll(cx)).and_then(|results| int64_result(&results, "`key_func`"));
                self.current_key = key.inspect_err(|_| self.element = None)?;
                if self.sizes.contains_key(&self.current_key) {
                    self.add();
                } else {
                    self.size.start(vec![Tensor::scalar(self.current_key)]);
                }
                continue;
            }
            if let Some(input) = &mut self.input {
                match ready!(input.poll_next(cx))? {
                    Some(element) => {
                        self.element = Some(element.clone());
                        self.key.start(element);
                    }
                    None => self.input = None,
                }
                continue;
            }
            match self.groups.keys().next() {
                Some(key) => self.flush(*key),
                None => return END,
            }
        }
    }
}

fn group_by_reducer_kernel(init: &Init<'_>) -> Result<Kernel> {
    let names = [
        "Tkey_func_other_arguments",
        "Tinit_func_other_arguments",
        "Treduce_func_other_arguments",
        "Tfinalize_func_other_arguments",
    ];
    let ranges = ranges(init, 1, &names)?;
    kernel(init, move |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        let function =
            |name: &str, at: usize| -> Result<Function> { spec.function(cx, name, ranges[at].clone()) };
        let (key, start) = (function("key_func", 0)?, function("init_func", 1)?);
        let (reduce, finish) = (function("reduce_func", 2)?, function("finalize_func", 3)?);
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            Ok(Box::new(GroupByReducer {
                input: Some(input.open(cx)?),
                key: key.caller(cx)?,
                start: start.caller(cx)?,
                reduce: reduce.caller(cx)?,
                finish: finish.caller(cx)?,
                element: Vec::new(),
                current_key: 0,
                states: BTreeMap::new(),
            }))
        }))
    })
}

struct GroupByReducer {
    input: Option<Box<dyn Source>>,
    key: Caller,
    start: Caller,
    reduce: Caller,
    finish: Caller,
    element: Element,
    current_key: i64,
    states: BTreeMap<i64, Element>,
}

impl GroupByReducer {
    fn reduce(&mut self) -> Result<(), Status> {
        let Some(state) = self.states.get(&self.current_key) else { bail!(Internal, "a group has no state") };
        let mut arguments = state.clone();
        arguments.append(&mut self.element);
        self.reduce.start(arguments);
        Ok(())
    }
}

impl Source for GroupByReducer {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        loop {
            ready!(cx.tick());
            if !self.finish.is_idle() {
                return Poll::Ready(ready!(self.finish.poll(cx)).map(Some));
            }
            if !self.reduce.is_idle() {
                let state = ready!(self.reduce.poll(cx))?;
                self.states.insert(self.current_key, state);
                continue;
            }
            if !self.start.is_idle() {
                let state = ready!(self.start.poll(cx))?;
                self.states.insert(self.current_key, state);
                self.reduce()?;
                continue;
            }
            if !self.key.is_idle() {
                let key = ready!(self.key.poll(cx))?;
                self.current_key = int64_result(&key, "`key_func`")?;
                if self.states.contains_key(&self.current_key) {
                    self.reduce()?;
                } else {
                    self.start.start(vec![Tensor::scalar(self.current_key)]);
                }
                continue;
            }
            if let Some(input) = &mut self.input {
                match ready!(input.poll_next(cx))? {
                    Some(element) => {
                        self.element = element.clone();
                        self.key.start(element);
                    }
                    None => self.input = None,
                }
                continue;
            }
            match self.states.pop_first() {
                Some((_, state)) => self.finish.start(state),
                None => return END,
            }
        }
    }
}

//! Batches across steps: rows that several clients bring are computed together.

use crate::state::batcher::{BatchLimits, Batcher};
use crate::state::watched::Watched;
use crate::support::rows;
use crate::support::timer::sleep_until;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::{Callable, FutureCx, Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::resource::Resource;
use ferroflow_core::step::StepCx;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels, status};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

pub(crate) const OPS: &[&Op] = &[&BATCH_FUNCTION, &BATCH, &UNBATCH, &UNBATCH_GRAD];

static BATCH_FUNCTION: Op = Op {
    name: "BatchFunction",
    inputs: &["in_tensors: Tin", "captured_tensors: Tcaptured"],
    outputs: &["out_tensors: Tout"],
    attrs: &[
        "f: func",
        "num_batch_threads: int",
        "max_batch_size: int",
        "batch_timeout_micros: int",
        "max_enqueued_batches: int = 10",
        "allowed_batch_sizes: list(int) = []",
        "container: string = ''",
        "shared_name: string = ''",
        "batching_queue: string = ''",
        "low_priority_max_batch_size: int = 0",
        "low_priority_batch_timeout_micros: int = 0",
        "low_priority_allowed_batch_sizes: list(int) = []",
        "low_priority_max_enqueued_batches: int = 0",
        "mixed_priority_policy: {'low_priority_padding_with_max_batch_size', 'low_priority_padding_with_next_allowed_batch_size', 'priority_isolation', 'priority_merge'} = 'low_priority_padding_with_max_batch_size'",
        "batch_padding_policy: {'PAD_UP', 'BATCH_DOWN', 'MINIMIZE_TPU_COST_PER_REQUEST'} = 'PAD_UP'",
        "Tin: list(type) >= 1",
        "Tcaptured: list(type) >= 0",
        "Tout: list(type) >= 1",
        "enable_large_batch_splitting: bool = false",
    ],
    kernels: kernels![any batch_function_kernel],
    distributed: true,
    ..Op::PURE
};

static BATCH: Op = Op {
    name: "Batch",
    inputs: &["in_tensors: T"],
    outputs: &["batched_tensors: T", "batch_index: int64", "id: int64"],
    attrs: &[
        "num_batch_threads: int",
        "max_batch_size: int",
        "max_enqueued_batches: int = 10",
        "batch_timeout_micros: int",
        "allowed_batch_sizes: list(int) = []",
        "grad_timeout_micros: int",
        "container: string = ''",
        "shared_name: string = ''",
        "batching_queue: string = ''",
        "T: list(type) >= 1",
    ],
    shape: batch_shape,
    kernels: kernels![any batch_kernel],
    distributed: true,
    ..Op::PURE
};

static UNBATCH: Op = Op {
    name: "Unbatch",
    inputs: &["batched_tensor: T", "batch_index: int64", "id: int64"],
    outputs: &["unbatched_tensor: T"],
    attrs: &["timeout_micros: int", "container: string = ''", "shared_name: string = ''", "T: type"],
    shape: unbatch_shape,
    kernels: kernels![any unbatch_kernel],
    ..Op::PURE
};

static UNBATCH_GRAD: Op = Op {
    name: "UnbatchGrad",
    inputs: &["original_input: T", "batch_index: int64", "grad: T", "id: int64"],
    outputs: &["batched_grad: T"],
    attrs: &["container: string = ''", "shared_name: string = ''", "T: type"],
    shape: unbatch_grad_shape,
    kernels: kernels![any unbatch_grad_kernel],
    ..Op::PURE
};

/// A shape with any number of rows.
fn any_rows(shape: &PartialShape) -> Result<PartialShape> {
    match shape.dims() {
        Some(dims) => PartialShape::new(
            dims.iter().enumerate().map(|(at, dim)| if at == 0 { UNKNOWN_DIM } else { *dim }),
        ),
        None => Ok(PartialShape::unknown()),
    }
}

fn batch_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let count = s.num_inputs();
    for input in 0..count {
        let shape = any_rows(&s.input(input))?;
        s.set(input, shape);
    }
    s.output(count, [UNKNOWN_DIM, 3])?;
    s.output(count + 1, [])
}

fn unbatch_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = any_rows(&s.input(0))?;
    s.set(0, shape);
    Ok(())
}

fn unbatch_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if let Some(rank) = s.input(2).rank() {
        s.set(0, PartialShape::of_rank(rank as i64)?);
    }
    Ok(())
}

/// The batcher of a node, by name, and its limits.
#[derive(Clone)]
struct Place {
    container: String,
    name: String,
    limits: BatchLimits,
    /// Sizes that batches are padded to.
    allowed: Vec<usize>,
}

impl Place {
    fn new(init: &Init<'_>) -> Result<Place> {
        let (container, name) = init.resource_name()?;
        let (size, timeout): (i64, i64) = (init.attr("max_batch_size")?, init.attr("batch_timeout_micros")?);
        ensure!(size > 0, InvalidArgument, "max_batch_size must be positive, got {size}");
        let allowed: Vec<i64> = init.attr("allowed_batch_sizes")?;
        ensure!(
            allowed.windows(2).all(|pair| pair[0] < pair[1]),
            InvalidArgument,
            "allowed_batch_sizes entries must be monotonically increasing"
        );
        let splits = init.attrs.has("enable_large_batch_splitting")
            && init.attr::<bool>("enable_large_batch_splitting")?;
        ensure!(
            splits || allowed.last().is_none_or(|last| *last == size),
            InvalidArgument,
            "final entry in allowed_batch_sizes must equal max_batch_size when enable_large_batch_splitting is False"
        );
        // With splitting, batches are as large as the largest size that is allowed.
        let largest = allowed.last().copied().filter(|_| splits).unwrap_or(size);
        let timeout = Duration::from_micros(timeout.max(0) as u64);
        Ok(Place {
            container,
            name: format!("{name}/{}", init.attr::<String>("batching_queue")?),
            limits: BatchLimits { size: largest as usize, timeout },
            allowed: allowed.into_iter().map(|size| size as usize).collect(),
        })
    }

    fn batcher<R: Send + 'static>(&self, cx: &KernelCx<'_>) -> Result<Arc<Batcher<R>>> {
        cx.step().resources.lookup_or_create(&self.container, &self.name, || Ok(Batcher::new()))
    }

    /// The rows that a batch of `rows` is padded to.
    fn padded(&self, rows: usize) -> usize {
        self.allowed.iter().copied().find(|size| *size >= rows).unwrap_or(rows)
    }
}

/// The number of rows that all tensors of a task have.
fn check_rows(tensors: &[Tensor]) -> Result<usize> {
    ensure!(
        tensors.iter().all(|tensor| tensor.rank() > 0),
        InvalidArgument,
        "Batching input tensors must have at least one dimension."
    );
    let rows = tensors.first().map_or(0, |tensor| tensor.shape().dim(0));
    ensure!(
        tensors.iter().all(|tensor| tensor.shape().dim(0) == rows),
        InvalidArgument,
        "Batching input tensors supplied in a given op invocation must have equal 0th-dimension size."
    );
    Ok(rows)
}

/// Some rows of a tensor.
fn part(device: &Device, tensor: &Tensor, start: usize, count: usize) -> Result<Tensor> {
    let rest = &tensor.shape()[1..];
    let width: usize = rest.iter().map(|dim| *dim as usize).product();
    rows::slice(device, tensor, start * width, rows::stacked(count, rest)?)
}

/// Tensors one after the other; they must agree in all but their rows.
fn joined(device: &Device, tensors: &[&Tensor]) -> Result<Tensor> {
    let (first, rest) = (tensors[0], &tensors[0].shape()[1..]);
    for tensor in tensors {
        ensure!(
            tensor.dtype() == first.dtype() && tensor.rank() > 0 && &tensor.shape()[1..] == rest,
            InvalidArgument,
            "tensors of one batch differ in more than their rows: {} and {}",
            first.shape(),
            tensor.shape()
        );
    }
    let count = tensors.iter().map(|tensor| tensor.shape().dim(0)).sum();
    rows::join(device, first.dtype(), rows::stacked(count, rest)?, tensors)
}

/// The tensors of all tasks, joined, and padded with copies of the first row.
fn gathered(device: &Device, tasks: &[(u64, Vec<Tensor>, usize)], padding: usize) -> Result<Vec<Tensor>> {
    let edges = tasks[0].1.len();
    ensure!(
        tasks.iter().all(|(_, tensors, _)| tensors.len() == edges),
        InvalidArgument,
        "Batching inputs must have equal number of edges"
    );
    let join = |edge: usize| {
        let mut parts: Vec<&Tensor> = tasks.iter().map(|(_, tensors, _)| &tensors[edge]).collect();
        let source = parts[0];
        ensure!(
            padding == 0 || source.shape().dim(0) > 0,
            InvalidArgument,
            "Cannot use an empty tensor with zero rows as padding when batching. (Input {edge} got shape {}.)",
            source.shape()
        );
        let row = if padding > 0 { Some(part(device, source, 0, 1)?) } else { None };
        parts.extend(row.iter().cycle().take(padding));
        joined(device, &parts)
    };
    (0..edges).map(join).collect()
}

fn batch_function_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (place, function) = (Place::new(init)?, init.function("f")?);
    let inputs = init.attr::<Vec<DType>>("Tin")?.len();
    Kernel::future(move |mut cx: FutureCx| {
        let (place, function) = (place.clone(), function.clone());
        async move {
            let batcher = place.batcher::<Vec<Tensor>>(&cx.cx())?;
            let mut tensors = cx.take_all()?;
            let captured = tensors.split_off(inputs);
            let step = cx.step().clone();
            let rows = check_rows(&tensors)?;
            let mut results: Vec<Vec<Tensor>> = Vec::new();
            // A task that is larger than batches may be goes in parts, if it may be split.
            let most = if place.allowed.is_empty() { rows.max(1) } else { place.limits.size };
            for start in (0..rows.max(1)).step_by(most.max(1)) {
                let count = most.min(rows - start);
                let parts = tensors.iter().map(|tensor| part(&step.device, tensor, start, count));
                let parts = parts.collect::<Result<Vec<_>>>()?;
                let work = |tasks| call(&place, &function, &captured, tasks, &step);
                results.push(batcher.run(&place.limits, parts, count, work).await?);
            }
            let whole = |at: usize| {
                let parts: Vec<&Tensor> = results.iter().map(|outputs| &outputs[at]).collect();
                if parts.len() == 1 { Ok(parts[0].clone()) } else { joined(&step.device, &parts) }
            };
            let outputs = (0..results[0].len()).map(whole).collect::<Result<Vec<Tensor>>>()?;
            Ok(outputs.into())
        }
    })
}

/// Calls a function with the rows of all tasks, and cuts its results into the parts of each.
async fn call(
    place: &Place,
    function: &Arc<dyn Callable>,
    captured: &[Tensor],
    tasks: Vec<(u64, Vec<Tensor>, usize)>,
    step: &Arc<StepCx>,
) -> Result<Vec<Vec<Tensor>>> {
    let size: usize = tasks.iter().map(|(_, _, rows)| *rows).sum();
    let padding = place.padded(size) - size;
    let mut arguments = gathered(&step.device, &tasks, padding)?;
    arguments.extend(captured.iter().cloned());
    let outputs = function.clone().call(arguments, step.clone()).await?;
    for output in &outputs {
        ensure!(output.rank() > 0, FailedPrecondition, "Batched output tensor has 0 dimensions");
        ensure!(
            output.shape().dim(0) == size + padding,
            FailedPrecondition,
            "Batched output tensor's 0th dimension does not equal the sum of the 0th dimension sizes of the input \
             tensors. 0th dimension size: {}; batch size: {size}; unbatched tasks size: 0; padding size: {padding}",
            output.shape().dim(0)
        );
    }
    let mut start = 0;
    let mut results = Vec::with_capacity(tasks.len());
    for (_, _, rows) in tasks {
        let parts = outputs.iter().map(|output| part(&step.device, output, start, rows));
        results.push(parts.collect::<Result<Vec<Tensor>>>()?);
        start += rows;
    }
    Ok(results)
}

/// The outputs of `Batch`: the first task has the tensors of all and says whose rows are where, the others nothing.
fn batch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let place = Place::new(init)?;
    Kernel::future(move |mut cx: FutureCx| {
        let place = place.clone();
        async move {
            let batcher = place.batcher::<Vec<Tensor>>(&cx.cx())?;
            let tensors = cx.take_all()?;
            let device = cx.step().device.clone();
            let rows = check_rows(&tensors)?;
            let work = |tasks: Vec<(u64, Vec<Tensor>, usize)>| async {
                let tasks = tasks;
                let size: usize = tasks.iter().map(|(_, _, rows)| *rows).sum();
                let whole = gathered(&device, &tasks, place.padded(size) - size)?;
                let mut start = 0i64;
                let mut index = Vec::new();
                for (id, _, rows) in &tasks {
                    index.extend([*id as i64, start, start + *rows as i64]);
                    start += *rows as i64;
                }
                let outputs = |at: usize, id: u64| -> Result<Vec<Tensor>> {
                    let (own, index) = match at {
                        0 => (whole.clone(), index.clone()),
                        _ => {
                            let empty = whole.iter().map(|tensor| part(&device, tensor, 0, 0));
                            (empty.collect::<Result<Vec<_>>>()?, Vec::new())
                        }
                    };
                    let index = Tensor::new(Shape::matrix(index.len() / 3, 3), index)?;
                    Ok(own.into_iter().chain([index, Tensor::scalar(id as i64)]).collect())
                };
                tasks.iter().enumerate().map(|(at, (id, _, _))| outputs(at, *id)).collect()
            };
            Ok(batcher.run(&place.limits, tensors, rows, work).await?.into())
        }
    })
}

/// Tensors that wait for the steps that they belong to, by the numbers of these, each until its deadline.
type Waiting = HashMap<i64, (Instant, Tensor)>;

/// Where parts of batches are exchanged between steps.
struct Exchange(Arc<Watched<Waiting>>);

impl Resource for Exchange {
    fn type_name(&self) -> &'static str {
        "BatchExchange"
    }

    fn cancel_waiters(&self) {
        self.0.abandon();
    }
}

fn exchange(cx: &KernelCx<'_>, container: &str, name: &str) -> Result<Arc<Watched<Waiting>>> {
    let new = || Ok(Exchange(Arc::new(Watched::new(Waiting::new()))));
    Ok(cx.step().resources.lookup_or_create(container, name, new)?.0.clone())
}

/// Whose rows are where: rows of number, start and end.
fn index_rows(index: &Tensor) -> Result<Vec<[i64; 3]>> {
    ensure!(
        index.rank() == 2 && index.shape().dim(1) == 3,
        InvalidArgument,
        "Wrong shape for index tensor. Expected 1st dimension size to be 3 ; Got: {}.",
        index.shape()
    );
    Ok(index.flat::<i64>()?.chunks(3).map(|row| [row[0], row[1], row[2]]).collect())
}

fn number(tensor: &Tensor) -> Result<i64> {
    ensure!(tensor.rank() == 0, InvalidArgument, "Input id should be scalar; Got: {}.", tensor.shape());
    tensor.to_scalar()
}

fn unbatch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (container, name) = init.resource_name()?;
    let timeout = Duration::from_micros(init.attr::<i64>("timeout_micros")?.max(0) as u64);
    Kernel::future(move |mut cx: FutureCx| {
        let (container, name) = (container.clone(), name.clone());
        async move {
            let exchange = exchange(&cx.cx(), &container, &name)?;
            let inputs = cx.take_all()?;
            let [data, index, id] = inputs.as_slice() else { bail!(Internal, "three inputs were expected") };
            ensure!(data.rank() > 0, InvalidArgument, "a batch must have at least one dimension");
            let (index, id) = (index_rows(index)?, number(id)?);
            ensure!(
                index.len() <= data.shape().dim(0),
                InvalidArgument,
                "Wrong shape for index tensor. Expected 0th dimension size to be no greater than {}; Got: {}.",
                data.shape().dim(0),
                index.len()
            );
            let deadline = Instant::now() + timeout;
            let mut start = 0usize;
            let mut parts = Vec::new();
            for [owner, from, to] in &index {
                let count = to.checked_sub(*from).and_then(|count| usize::try_from(count).ok());
                let count = count.filter(|count| start + count <= data.shape().dim(0)).ok_or_else(|| {
                    status!(InvalidArgument, "rows {from} to {to} of the index are not in {}", data.shape())
                })?;
                parts.push((*owner, part(&cx.step().device, data, start, count)?));
                start += count;
            }
            exchange.change(|waiting| -> Result<()> {
                let now = Instant::now();
                waiting.retain(|_, (deadline, _)| *deadline >= now);
                for (owner, part) in parts {
                    ensure!(
                        waiting.insert(owner, (deadline, part)).is_none(),
                        AlreadyExists,
                        "Multiple tensors returned for same batch key."
                    );
                }
                Ok(())
            })?;
            let taken = take(&exchange, id, deadline).await?;
            Ok(taken.into())
        }
    })
}

/// Waits for the tensor of a step until a deadline.
async fn take(exchange: &Watched<Waiting>, id: i64, deadline: Instant) -> Result<Tensor> {
    let mut due = pin!(sleep_until(deadline));
    let mut arrived = pin!(exchange.until("A batch", |waiting| match waiting.remove(&id) {
        Some((_, tensor)) => Poll::Ready(Ok(tensor)),
        None => Poll::Pending,
    }));
    poll_fn(|context| {
        let arrived = arrived.as_mut().poll(context);
        if arrived.is_pending() && due.as_mut().poll(context).is_ready() {
            return Poll::Ready(Err(status!(
                DeadlineExceeded,
                "Batched data did not arrive within timeout window."
            )));
        }
        arrived
    })
    .await
}

/// The way back: the step that had the batch waits for the gradients of all its parts.
fn unbatch_grad_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (container, name) = init.resource_name()?;
    Kernel::future(move |mut cx: FutureCx| {
        let (container, name) = (container.clone(), name.clone());
        async move {
            let exchange = exchange(&cx.cx(), &container, &name)?;
            let inputs = cx.take_all()?;
            let [data, index, grad, id] = inputs.as_slice() else {
                bail!(Internal, "four inputs were expected")
            };
            ensure!(grad.rank() > 0, InvalidArgument, "a gradient must have at least one dimension");
            let id = number(id)?;
            let far = Instant::now() + Duration::from_secs(3600);
            let is_new = exchange.change(|waiting| waiting.insert(id, (far, grad.clone())).is_none());
            ensure!(is_new, InvalidArgument, "Two runs with the same batch key.");
            if data.elements() == 0 {
                return Ok(part(&cx.step().device, grad, 0, 0)?.into());
            }
            let index = index_rows(index)?;
            ensure!(!index.is_empty(), InvalidArgument, "batch_index is empty while the tensor isn't.");
            let gathered = exchange.until("A batch", |waiting| {
                if !index.iter().all(|[owner, _, _]| waiting.contains_key(owner)) {
                    return Poll::Pending;
                }
                let parts = index.iter().filter_map(|[owner, _, _]| waiting.remove(owner));
                Poll::Ready(Ok(parts.map(|(_, tensor)| tensor).collect::<Vec<Tensor>>()))
            });
            let parts = gathered.await?;
            Ok(joined(&cx.step().device, &parts.iter().collect::<Vec<_>>())?.into())
        }
    })
}

//! Barriers: values for keys arrive component by component, and leave as tuples once they are complete, first come,
//! first served.

use crate::state::queue::{Order, Queue, QueueSpec, list};
use crate::state::ref_handle;
use crate::state::resource_name::ResourceName;
use crate::support::rows;
use ferroflow_core::kernel::{FutureCx, Init, Kernel, KernelCx, Outputs, Str, Value};
use ferroflow_core::op::{Op, OpClass, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::resource::{Resource, ResourceHandle, Variable};
use ferroflow_core::{DType, PartialShape, Result, Tensor, bail, ensure, kernels};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

pub(crate) const OPS: &[&Op] = &[
    &BARRIER,
    &BARRIER_INSERT_MANY,
    &BARRIER_TAKE_MANY,
    &BARRIER_CLOSE,
    &BARRIER_READY_SIZE,
    &BARRIER_INCOMPLETE_SIZE,
    &FAKE_QUEUE,
];

static BARRIER: Op = Op {
    name: "Barrier",
    outputs: &["handle: Ref(string)"],
    attrs: &[
        "component_types: list(type) >= 1",
        "shapes: list(shape) >= 0 = []",
        "capacity: int = -1",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    shape: reference_shape,
    kernels: kernels![any barrier_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static BARRIER_INSERT_MANY: Op = Op {
    name: "BarrierInsertMany",
    inputs: &["handle: Ref(string)", "keys: string", "values: T"],
    attrs: &["T: type", "component_index: int"],
    shape: insert_shape,
    kernels: kernels![any insert_kernel],
    ..Op::PURE
};

static BARRIER_TAKE_MANY: Op = Op {
    name: "BarrierTakeMany",
    inputs: &["handle: Ref(string)", "num_elements: int32"],
    outputs: &["indices: int64", "keys: string", "values: component_types"],
    attrs: &[
        "component_types: list(type) >= 1",
        "allow_small_batch: bool = false",
        "wait_for_incomplete: bool = false",
        "timeout_ms: int = -1",
    ],
    kernels: kernels![any take_kernel],
    ..Op::PURE
};

static BARRIER_CLOSE: Op = Op {
    name: "BarrierClose",
    inputs: &["handle: Ref(string)"],
    attrs: &["cancel_pending_enqueues: bool = false"],
    kernels: kernels![any close_kernel],
    ..Op::PURE
};

static BARRIER_READY_SIZE: Op = Op {
    name: "BarrierReadySize",
    inputs: &["handle: Ref(string)"],
    outputs: &["size: int32"],
    shape: shapes::scalar,
    kernels: kernels![any ready_size_kernel],
    ..Op::PURE
};

static BARRIER_INCOMPLETE_SIZE: Op =
    Op { name: "BarrierIncompleteSize", kernels: kernels![any incomplete_size_kernel], ..BARRIER_READY_SIZE };

static FAKE_QUEUE: Op = Op {
    name: "FakeQueue",
    inputs: &["resource: resource"],
    outputs: &["handle: Ref(string)"],
    shape: reference_shape,
    kernels: kernels![any fake_queue_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn reference_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [2])
}

fn insert_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (keys, values) = (s.rank(1, 1)?, s.rank_at_least(2, 1)?);
    let first = |shape: &PartialShape| shape.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    s.merge_dims(first(&keys), first(&values))?;
    Ok(())
}

struct Barrier {
    name: String,
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
    /// Complete tuples, before them the number of their first insertion and their key.
    ready: Arc<Queue>,
    /// Guards what is not complete yet; held for moments only.
    state: Mutex<State>,
}

struct State {
    closed: bool,
    queue_closed: bool,
    queue_cancelled: bool,
    cancel_pending: bool,
    /// The number of the next insertion with new keys.
    next: i64,
    incomplete: HashMap<Str, (i64, Vec<Option<Tensor>>)>,
}

impl Resource for Barrier {
    fn type_name(&self) -> &'static str {
        "N10tensorflow7barrier7BarrierE"
    }

    fn cancel_waiters(&self) {
        self.ready.cancel_waiters();
    }
}

impl Barrier {
    fn new(name: &str, types: &[DType], shapes: &[PartialShape]) -> Barrier {
        let scalar = PartialShape::scalar();
        let spec = QueueSpec {
            name: format!("{name}_queue"),
            order: Order::Priority,
            types: [DType::Int64, DType::String].into_iter().chain(types.iter().copied()).collect(),
            shapes: [scalar.clone(), scalar].into_iter().chain(shapes.iter().cloned()).collect(),
            capacity: usize::MAX,
            memory_limit: usize::MAX,
            padding: false,
        };
        let state = State {
            closed: false,
            queue_closed: false,
            queue_cancelled: false,
            cancel_pending: false,
            next: i64::MIN,
            incomplete: HashMap::new(),
        };
        Barrier {
            name: name.to_owned(),
            types: types.to_vec(),
            shapes: shapes.to_vec(),
            ready: Arc::new(Queue::new(spec)),
            state: Mutex::new(state),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// Puts values of one component in; returns the tuples that are complete now.
    fn insert(&self, keys: &[Str], values: Vec<Tensor>, component: usize) -> Result<Vec<Vec<Tensor>>> {
        let (name, mut state) = (&self.name, self.lock());
        let state = &mut *state;
        if state.closed {
            ensure!(
                !state.cancel_pending && (keys.is_empty() || !state.incomplete.is_empty()),
                Cancelled,
                "Barrier {name} is closed.  Pending enqueues cancelled: {}.  Number of new insertions: {}.  Number of \
                 incomplete keys: {}.",
                u8::from(state.cancel_pending),
                keys.len(),
                state.incomplete.len()
            );
        }
        let (mut ready, mut new_keys) = (Vec::new(), false);
        for (i, (key, value)) in keys.iter().zip(values).enumerate() {
            let shown = || String::from_utf8_lossy(key).into_owned();
            if state.closed && !state.incomplete.contains_key(key) {
                bail!(
                    Cancelled,
                    "Barrier {name} is closed, but attempted to insert a brand new key: {}.  Pending enqueues \
                     cancelled: {}.  Insertion index: {i}.  Number of incomplete keys: {}.",
                    shown(),
                    u8::from(state.cancel_pending),
                    state.incomplete.len()
                );
            }
            let (index, components) = (state.next, self.types.len());
            let (_, parts) = state.incomplete.entry(key.clone()).or_insert_with(|| {
                new_keys = true;
                (index, vec![None; components])
            });
            ensure!(
                parts[component].is_none(),
                InvalidArgument,
                "Key {} already has a value for component {component} in barrier {name}",
                shown()
            );
            parts[component] = Some(value);
            if !parts.iter().all(Option::is_some) {
                continue;
            }
            if let Some((index, parts)) = state.incomplete.remove(key) {
                let head = [Tensor::scalar(index), Tensor::scalar(key.clone())];
                let tuple: Vec<Tensor> = head.into_iter().chain(parts.into_iter().flatten()).collect();
                self.ready.check_tuple(&tuple, None)?;
                ready.push(tuple);
            }
        }
        if new_keys {
            state.next += 1;
        }
        Ok(ready)
    }

    /// The number of tuples that a request is for, or that it is for too many.
    fn requested(&self, count: usize, allow_small: bool) -> Result<usize> {
        let state = self.lock();
        if !state.closed {
            return Ok(count);
        }
        let ready = self.ready.size();
        let (asked, available) =
            if allow_small { (count.min(ready), ready) } else { (count, ready + state.incomplete.len()) };
        ensure!(
            available >= asked.max(1),
            OutOfRange,
            "Barrier '{}' is closed and has insufficient elements (requested {asked}, total size {available})",
            self.name
        );
        Ok(asked)
    }

    /// Closes the barrier; returns how its queue is to be closed, if it is.
    fn close(&self, cancel: bool) -> Result<Option<bool>> {
        let mut state = self.lock();
        ensure!(
            !(state.closed && (state.cancel_pending || !cancel)),
            Cancelled,
            "Barrier '{}' is already closed.",
            self.name
        );
        (state.cancel_pending, state.closed) = (cancel, true);
        if !cancel && !state.incomplete.is_empty() {
            return Ok(None);
        }
        state.incomplete.clear();
        if if cancel { state.queue_cancelled } else { state.queue_closed } {
            return Ok(None);
        }
        state.queue_closed = true;
        state.queue_cancelled |= cancel;
        Ok((!self.ready.is_closed()).then_some(cancel))
    }
}

fn barrier_kernel(init: &Init<'_>) -> Result<Kernel> {
    let types: Vec<DType> = init.attr("component_types")?;
    let mut shapes: Vec<PartialShape> = init.attr("shapes")?;
    ensure!(shapes.len() == types.len(), InvalidArgument, "All of the component shapes must be specified");
    // Python's class passes unknown shapes unless the program gives some, and stock takes those for scalars.
    for shape in shapes.iter_mut().filter(|shape| shape.rank().is_none()) {
        *shape = PartialShape::scalar();
    }
    if let Some(shape) = shapes.iter().find(|shape| shape.to_shape().is_none()) {
        bail!(InvalidArgument, "Shape {shape} is not fully defined");
    }
    ensure!(
        init.attr::<i64>("capacity")? == -1,
        InvalidArgument,
        "Barrier only accepts capacity=-1.  Feed the inputs to your Barrier through a queue to enforce a limited \
         capacity."
    );
    let place = ResourceName::<Barrier>::new(init)?;
    let handle: OnceLock<Value> = OnceLock::new();
    Kernel::sync(move |cx| {
        let barrier = place.lookup_or_create(cx, || Ok(Barrier::new(&place.name, &types, &shapes)))?;
        ensure!(
            barrier.types == types,
            InvalidArgument,
            "Shared barrier '{}' has component types {} but requested component types were {}",
            place.name,
            list(&barrier.types),
            list(&types)
        );
        ensure!(
            barrier.shapes == shapes,
            InvalidArgument,
            "Shared barrier '{}' has component shapes [{}] but requested component shapes were [{}]",
            place.name,
            list(&barrier.shapes),
            list(&shapes)
        );
        if let Some(handle) = handle.get() {
            return Ok(handle.clone().into());
        }
        let device = cx.device().name();
        let made = ref_handle::make(device, &place.container, &place.name, &*barrier, true)?;
        Ok(handle.get_or_init(|| made).clone().into())
    })
}

fn barrier(cx: &KernelCx<'_>) -> Result<Arc<Barrier>> {
    ref_handle::resolve(cx, &cx.step().resources)
}

fn insert_kernel(init: &Init<'_>) -> Result<Kernel> {
    let component: i64 = init.attr("component_index")?;
    Kernel::future(move |mut cx| async move {
        let (barrier, ready) = insert_inputs(&mut cx, component)?;
        if !ready.is_empty() {
            barrier.ready.enqueue(ready).await?;
        }
        Ok(Outputs::None)
    })
}

fn insert_inputs(cx: &mut FutureCx, component: i64) -> Result<(Arc<Barrier>, Vec<Vec<Tensor>>)> {
    let cx = cx.cx();
    let barrier = barrier(&cx)?;
    let count = barrier.types.len();
    ensure!(
        (0..count as i64).contains(&component),
        InvalidArgument,
        "The component ID is out of range {component} > num_components (= {count})"
    );
    let (keys, values, component) = (cx.input(1)?, cx.input(2)?, component as usize);
    ensure!(
        values.dtype() == barrier.types[component],
        InvalidArgument,
        "Signature mismatch, have: string_ref, string, {}-> expected: string_ref, string, {}->",
        values.dtype(),
        barrier.types[component]
    );
    ensure!(
        keys.elements() == 0 || values.elements() > 0,
        InvalidArgument,
        "Tensors with no elements are not supported {}: received shape {}",
        barrier.name,
        values.shape()
    );
    ensure!(
        values.rank() > 0 && values.shape().dim(0) == keys.elements(),
        InvalidArgument,
        "{} keys cannot have values of shape {}",
        keys.elements(),
        values.shape()
    );
    let parts = (0..keys.elements()).map(|row| rows::row(cx.device(), values, row));
    let parts = parts.collect::<Result<Vec<Tensor>>>()?;
    let ready = barrier.insert(keys.flat()?, parts, component)?;
    Ok((barrier, ready))
}

fn take_kernel(init: &Init<'_>) -> Result<Kernel> {
    ensure!(init.attr::<i64>("timeout_ms")? == -1, InvalidArgument, "Timeout not supported yet.");
    let allow_small: bool = init.attr("allow_small_batch")?;
    let declared: Arc<[DType]> = init.output_types.into();
    Kernel::future(move |mut cx| {
        let declared = declared.clone();
        async move {
            let (barrier, count) = {
                let cx = cx.cx();
                ensure!(cx.input(1)?.rank() == 0, InvalidArgument, "num_elements must be a scalar.");
                (barrier(&cx)?, cx.scalar::<i32>(1)?)
            };
            let types = &barrier.ready.spec.types;
            ensure!(
                types.as_slice() == &*declared,
                InvalidArgument,
                "Signature mismatch, have: string_ref, int32->{} expected: string_ref, int32->{}",
                list(&declared),
                list(types)
            );
            ensure!(count >= 0, InvalidArgument, "DequeueManyOp requested {count} < 0 elements");
            let count = barrier.requested(count as usize, allow_small)?;
            let taken =
                if count == 0 { Vec::new() } else { barrier.ready.dequeue(count, allow_small).await? };
            let device = cx.step().device.clone();
            let mut outputs = Vec::with_capacity(types.len());
            for (i, (dtype, shape)) in types.iter().zip(&barrier.ready.spec.shapes).enumerate() {
                let parts: Vec<&Tensor> = taken.iter().map(|tuple| &tuple[i]).collect();
                let shape = rows::stacked(parts.len(), shape.dims().unwrap_or_default())?;
                outputs.push(rows::join(&device, *dtype, shape, &parts)?);
            }
            Ok(outputs.into())
        }
    })
}

fn close_kernel(init: &Init<'_>) -> Result<Kernel> {
    let cancel: bool = init.attr("cancel_pending_enqueues")?;
    Kernel::future(move |mut cx| async move {
        let barrier = barrier(&cx.cx())?;
        if let Some(cancel) = barrier.close(cancel)? {
            barrier.ready.close(cancel).await?;
        }
        Ok(Outputs::None)
    })
}

fn ready_size_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(barrier(cx)?.ready.size() as i32).into()))
}

fn incomplete_size_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(barrier(cx)?.lock().incomplete.len() as i32).into()))
}

/// A queue's handle as a reference to its name, for ops of the first generation.
fn fake_queue_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let handle: &ResourceHandle = cx.handle(0)?;
        let names = [handle.container(), handle.name()].map(|text| Str::copy_from_slice(text.as_bytes()));
        let variable = Variable::new(DType::String, handle.name());
        variable.assign(Tensor::vector(names.to_vec()))?;
        Ok(Value::Ref(Arc::new(variable)).into())
    })
}

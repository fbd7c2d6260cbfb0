//! Queues of every kind, under a handle or under a reference to their name.

use crate::state::queue::{Order, Queue, QueueSpec, list};
use crate::state::ref_handle;
use crate::state::resource_name::ResourceName;
use ferroflow_core::kernel::{Init, Kernel, Value};
use ferroflow_core::op::{Op, OpClass, ShapeCx};
use ferroflow_core::resource::HandleShape;
use ferroflow_core::{DType, PartialShape, Result, bail, ensure, kernels};
use std::sync::OnceLock;

pub(crate) const OPS: &[&Op] = &[
    &FIFO_QUEUE_V2,
    &PADDING_FIFO_QUEUE_V2,
    &RANDOM_SHUFFLE_QUEUE_V2,
    &PRIORITY_QUEUE_V2,
    &FIFO_QUEUE,
    &PADDING_FIFO_QUEUE,
    &RANDOM_SHUFFLE_QUEUE,
    &PRIORITY_QUEUE,
];

static FIFO_QUEUE_V2: Op = Op {
    name: "FIFOQueueV2",
    outputs: &["handle: resource"],
    attrs: &[
        "component_types: list(type) >= 1",
        "shapes: list(shape) >= 0 = []",
        "capacity: int = -1",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    shape: queue_shape,
    kernels: kernels![any fifo_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static PADDING_FIFO_QUEUE_V2: Op =
    Op { name: "PaddingFIFOQueueV2", kernels: kernels![any padding_kernel], ..FIFO_QUEUE_V2 };

static RANDOM_SHUFFLE_QUEUE_V2: Op = Op {
    name: "RandomShuffleQueueV2",
    attrs: &[
        "component_types: list(type) >= 1",
        "shapes: list(shape) >= 0 = []",
        "capacity: int = -1",
        "min_after_dequeue: int = 0",
        "seed: int = 0",
        "seed2: int = 0",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    kernels: kernels![any shuffle_kernel],
    ..FIFO_QUEUE_V2
};

static PRIORITY_QUEUE_V2: Op = Op {
    name: "PriorityQueueV2",
    attrs: &[
        "component_types: list(type) >= 0 = []",
        "shapes: list(shape) >= 0",
        "capacity: int = -1",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    kernels: kernels![any priority_kernel],
    ..FIFO_QUEUE_V2
};

static FIFO_QUEUE: Op = Op { name: "FIFOQueue", outputs: &["handle: Ref(string)"], ..FIFO_QUEUE_V2 };

static PADDING_FIFO_QUEUE: Op =
    Op { name: "PaddingFIFOQueue", outputs: &["handle: Ref(string)"], ..PADDING_FIFO_QUEUE_V2 };

static RANDOM_SHUFFLE_QUEUE: Op =
    Op { name: "RandomShuffleQueue", outputs: &["handle: Ref(string)"], ..RANDOM_SHUFFLE_QUEUE_V2 };

static PRIORITY_QUEUE: Op =
    Op { name: "PriorityQueue", outputs: &["handle: Ref(string)"], ..PRIORITY_QUEUE_V2 };

/// Batches can be inferred only from what the queue says of its elements.
fn queue_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if s.output_type(0) == DType::String {
        return s.output(0, [2]);
    }
    let (types, shapes): (Vec<DType>, Vec<PartialShape>) = (s.attr("component_types")?, s.attr("shapes")?);
    s.set(0, PartialShape::scalar());
    if types.len() == shapes.len() {
        let handles = types.into_iter().zip(shapes).map(|(dtype, shape)| HandleShape { dtype, shape });
        s.set_handles(0, handles.collect());
    }
    Ok(())
}

fn fifo_kernel(init: &Init<'_>) -> Result<Kernel> {
    queue_kernel(init, Order::First, false)
}

fn padding_kernel(init: &Init<'_>) -> Result<Kernel> {
    queue_kernel(init, Order::First, true)
}

fn shuffle_kernel(init: &Init<'_>) -> Result<Kernel> {
    let keep: i64 = init.attr("min_after_dequeue")?;
    let capacity: i64 = init.attr("capacity")?;
    ensure!(keep >= 0, InvalidArgument, "min_after_dequeue {keep} must be >= 0");
    ensure!(
        capacity < 0 || keep < capacity,
        InvalidArgument,
        "min_after_dequeue {keep} must be < capacity {capacity}"
    );
    let seeds = (init.attr("seed")?, init.attr("seed2")?);
    queue_kernel(init, Order::Shuffled { keep: keep as usize, seeds }, false)
}

fn priority_kernel(init: &Init<'_>) -> Result<Kernel> {
    queue_kernel(init, Order::Priority, false)
}

fn queue_kernel(init: &Init<'_>, order: Order, padding: bool) -> Result<Kernel> {
    let mut types: Vec<DType> = init.attr("component_types")?;
    let mut shapes: Vec<PartialShape> = init.attr("shapes")?;
    if padding {
        ensure!(
            !shapes.is_empty(),
            InvalidArgument,
            "Shapes must be provided for all components, but received {} dtypes and {} shapes.",
            types.len(),
            shapes.len()
        );
        if let Some(shape) = shapes.iter().find(|shape| shape.rank().is_none()) {
            bail!(InvalidArgument, "shape {shape} must have known rank.");
        }
    } else {
        for shape in &mut shapes {
            // Stock reads a shape of unknown rank as that of a scalar here.
            if shape.rank().is_none() {
                *shape = PartialShape::scalar();
            }
            ensure!(shape.to_shape().is_some(), InvalidArgument, "Shape {shape} is not fully defined");
        }
    }
    let given = shapes.len();
    if matches!(order, Order::Priority) {
        // The priority is a component of its own, before those that the graph declares.
        types.insert(0, DType::Int64);
        shapes.insert(0, PartialShape::scalar());
        ensure!(
            given > 0 || types.len() == 1,
            InvalidArgument,
            "a priority queue needs the shapes of its components"
        );
    }
    ensure!(
        given == 0 || shapes.len() == types.len(),
        InvalidArgument,
        "Different number of component types.  Types: {}, Shapes: [{}]",
        list(&types),
        list(&shapes)
    );
    let capacity = usize::try_from(init.attr::<i64>("capacity")?).unwrap_or(usize::MAX);
    let place = ResourceName::<Queue>::new(init)?;
    let (op, by_reference) = (init.op.to_owned(), init.output_types[0] == DType::String);
    let handle: OnceLock<Value> = OnceLock::new();
    Kernel::sync(move |cx| {
        let spec = || QueueSpec {
            name: place.name.clone(),
            order: order.clone(),
            types: types.clone(),
            shapes: shapes.clone(),
            capacity,
            memory_limit: usize::MAX,
            padding,
        };
        let queue = place.lookup_or_create(cx, || Ok(Queue::new(spec())))?;
        queue.check_same(&op, &spec())?;
        if let Some(handle) = handle.get() {
            return Ok(handle.clone().into());
        }
        let device = cx.device().name();
        let made = ref_handle::make(device, &place.container, &place.name, &*queue, by_reference)?;
        Ok(handle.get_or_init(|| made).clone().into())
    })
}

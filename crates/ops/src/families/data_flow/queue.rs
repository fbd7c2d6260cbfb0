//! Ops on queues of any kind: enqueue, dequeue, count, close.

use crate::state::queue::{Queue, Tuple};
use crate::state::ref_handle;
use crate::support::rows;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::{FutureCx, Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{DType, Result, Shape, Tensor, Unit, bail, ensure, kernels};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &QUEUE_ENQUEUE_V2,
    &QUEUE_ENQUEUE_MANY_V2,
    &QUEUE_DEQUEUE_V2,
    &QUEUE_DEQUEUE_MANY_V2,
    &QUEUE_DEQUEUE_UP_TO_V2,
    &QUEUE_SIZE_V2,
    &QUEUE_CLOSE_V2,
    &QUEUE_IS_CLOSED_V2,
    &QUEUE_ENQUEUE,
    &QUEUE_ENQUEUE_MANY,
    &QUEUE_DEQUEUE,
    &QUEUE_DEQUEUE_MANY,
    &QUEUE_DEQUEUE_UP_TO,
    &QUEUE_SIZE,
    &QUEUE_CLOSE,
    &QUEUE_IS_CLOSED,
];

static QUEUE_ENQUEUE_V2: Op = Op {
    name: "QueueEnqueueV2",
    gradient: Gradient::Stop,
    inputs: &["handle: resource", "components: Tcomponents"],
    attrs: &["Tcomponents: list(type) >= 1", "timeout_ms: int = -1"],
    kernels: kernels![any enqueue_kernel],
    ..Op::STATEFUL
};

static QUEUE_ENQUEUE_MANY_V2: Op =
    Op { name: "QueueEnqueueManyV2", kernels: kernels![any enqueue_many_kernel], ..QUEUE_ENQUEUE_V2 };

static QUEUE_DEQUEUE_V2: Op = Op {
    name: "QueueDequeueV2",
    gradient: Gradient::Stop,
    inputs: &["handle: resource"],
    outputs: &["components: component_types"],
    attrs: &["component_types: list(type) >= 1", "timeout_ms: int = -1"],
    shape: dequeue_shape,
    kernels: kernels![any dequeue_kernel],
    ..Op::STATEFUL
};

static QUEUE_DEQUEUE_MANY_V2: Op = Op {
    name: "QueueDequeueManyV2",
    inputs: &["handle: resource", "n: int32"],
    shape: dequeue_many_shape,
    kernels: kernels![any dequeue_many_kernel],
    ..QUEUE_DEQUEUE_V2
};

static QUEUE_DEQUEUE_UP_TO_V2: Op = Op {
    name: "QueueDequeueUpToV2",
    shape: dequeue_up_to_shape,
    kernels: kernels![any dequeue_up_to_kernel],
    ..QUEUE_DEQUEUE_MANY_V2
};

static QUEUE_SIZE_V2: Op = Op {
    name: "QueueSizeV2",
    gradient: Gradient::Stop,
    inputs: &["handle: resource"],
    outputs: &["size: int32"],
    shape: shapes::scalar,
    kernels: kernels![any size_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static QUEUE_CLOSE_V2: Op = Op {
    name: "QueueCloseV2",
    gradient: Gradient::Stop,
    inputs: &["handle: resource"],
    attrs: &["cancel_pending_enqueues: bool = false"],
    kernels: kernels![any close_kernel],
    ..Op::STATEFUL
};

static QUEUE_IS_CLOSED_V2: Op = Op {
    name: "QueueIsClosedV2",
    inputs: &["handle: resource"],
    outputs: &["is_closed: bool"],
    shape: shapes::scalar,
    kernels: kernels![any is_closed_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static QUEUE_ENQUEUE: Op = Op {
    name: "QueueEnqueue",
    inputs: &["handle: Ref(string)", "components: Tcomponents"],
    stateful: false,
    ..QUEUE_ENQUEUE_V2
};

static QUEUE_ENQUEUE_MANY: Op = Op {
    name: "QueueEnqueueMany",
    inputs: &["handle: Ref(string)", "components: Tcomponents"],
    stateful: false,
    ..QUEUE_ENQUEUE_MANY_V2
};

static QUEUE_DEQUEUE: Op =
    Op { name: "QueueDequeue", inputs: &["handle: Ref(string)"], stateful: false, ..QUEUE_DEQUEUE_V2 };

static QUEUE_DEQUEUE_MANY: Op = Op {
    name: "QueueDequeueMany",
    inputs: &["handle: Ref(string)", "n: int32"],
    stateful: false,
    ..QUEUE_DEQUEUE_MANY_V2
};

static QUEUE_DEQUEUE_UP_TO: Op = Op {
    name: "QueueDequeueUpTo",
    inputs: &["handle: Ref(string)", "n: int32"],
    stateful: false,
    ..QUEUE_DEQUEUE_UP_TO_V2
};

static QUEUE_SIZE: Op =
    Op { name: "QueueSize", inputs: &["handle: Ref(string)"], stateful: false, ..QUEUE_SIZE_V2 };

static QUEUE_CLOSE: Op =
    Op { name: "QueueClose", inputs: &["handle: Ref(string)"], stateful: false, ..QUEUE_CLOSE_V2 };

static QUEUE_IS_CLOSED: Op =
    Op { name: "QueueIsClosed", inputs: &["handle: Ref(string)"], stateful: false, ..QUEUE_IS_CLOSED_V2 };

fn dequeue_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shapes: Vec<_> = s.handles(0).iter().map(|handle| handle.shape.clone()).collect();
    if shapes.len() == s.num_outputs() {
        for (output, shape) in shapes.into_iter().enumerate() {
            s.set(output, shape);
        }
    }
    Ok(())
}

fn batch_shape(s: &mut ShapeCx<'_>, batch: i64) -> Result<()> {
    let shapes: Vec<_> = s.handles(0).iter().map(|handle| handle.shape.clone()).collect();
    if shapes.len() != s.num_outputs() {
        return Ok(());
    }
    for (output, shape) in shapes.iter().enumerate() {
        if let Some(dims) = shape.dims() {
            s.output(output, std::iter::once(batch).chain(dims.iter().copied()))?;
        }
    }
    Ok(())
}

fn dequeue_many_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let batch = s.constant_i64(1)?.filter(|n| *n >= 0).unwrap_or(UNKNOWN_DIM);
    batch_shape(s, batch)
}

fn dequeue_up_to_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    batch_shape(s, UNKNOWN_DIM)
}

fn queue(cx: &KernelCx<'_>) -> Result<Arc<Queue>> {
    ref_handle::resolve(cx, &cx.step().resources)
}

fn types_text(types: &[DType]) -> String {
    types.iter().map(|dtype| dtype.name()).collect::<Vec<_>>().join(",")
}

/// The queue and the tuple to put into it.
fn enqueue_inputs(cx: &mut FutureCx) -> Result<(Arc<Queue>, Tuple)> {
    let mut cx = cx.cx();
    let queue = queue(&cx)?;
    let tuple = (1..cx.num_inputs()).map(|input| cx.take(input)).collect::<Result<Tuple>>()?;
    let have: Vec<DType> = tuple.iter().map(Tensor::dtype).collect();
    ensure!(
        have == queue.spec.types,
        InvalidArgument,
        "Signature mismatch, have: resource,{}-> expected: resource,{}->",
        types_text(&have),
        types_text(&queue.spec.types)
    );
    Ok((queue, tuple))
}

fn enqueue_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let (queue, tuple) = enqueue_inputs(&mut cx)?;
        queue.check_tuple(&tuple, None)?;
        queue.enqueue(vec![tuple]).await?;
        Ok(Outputs::None)
    })
}

fn enqueue_many_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let (queue, tuple) = enqueue_inputs(&mut cx)?;
        let batch = tuple[0].shape().first().copied().unwrap_or(0);
        queue.check_tuple(&tuple, Some(batch))?;
        let device = cx.step().device.clone();
        let element = |i: usize| tuple.iter().map(|tensor| rows::row(&device, tensor, i)).collect();
        let elements = (0..batch as usize).map(element).collect::<Result<Vec<Tuple>>>()?;
        queue.enqueue(elements).await?;
        Ok(Outputs::None)
    })
}

fn check_outputs(queue: &Queue, declared: &[DType]) -> Result<()> {
    ensure!(
        queue.spec.types == declared,
        InvalidArgument,
        "Signature mismatch, have: resource->{} expected: resource->{}",
        types_text(declared),
        types_text(&queue.spec.types)
    );
    Ok(())
}

fn dequeue_kernel(init: &Init<'_>) -> Result<Kernel> {
    let declared: Arc<[DType]> = init.output_types.into();
    Kernel::future(move |mut cx| {
        let declared = declared.clone();
        async move {
            let queue = queue(&cx.cx())?;
            check_outputs(&queue, &declared)?;
            let taken = queue.dequeue(1, false).await?;
            Ok(taken.into_iter().next().unwrap_or_default().into())
        }
    })
}

fn dequeue_many_kernel(init: &Init<'_>) -> Result<Kernel> {
    batch_kernel(init, false)
}

fn dequeue_up_to_kernel(init: &Init<'_>) -> Result<Kernel> {
    batch_kernel(init, true)
}

fn batch_kernel(init: &Init<'_>, up_to: bool) -> Result<Kernel> {
    let declared: Arc<[DType]> = init.output_types.into();
    Kernel::future(move |mut cx| {
        let declared = declared.clone();
        async move {
            let (queue, count) = {
                let cx = cx.cx();
                (queue(&cx)?, cx.scalar_i64(1)?)
            };
            let op = if up_to { "DequeueUpToOp" } else { "DequeueManyOp" };
            ensure!(count >= 0, InvalidArgument, "{op} requested {count} < 0 elements");
            check_outputs(&queue, &declared)?;
            if queue.spec.shapes.is_empty() {
                bail!(
                    InvalidArgument,
                    "{}'s DequeueMany and DequeueUpTo require the components to have specified shapes.",
                    queue.kind()
                );
            }
            let taken = if count == 0 { Vec::new() } else { queue.dequeue(count as usize, up_to).await? };
            Ok(batch(&cx.step().device, &queue, &taken)?.into())
        }
    })
}

/// One tensor per component, a row per element; smaller elements are padded at their ends.
fn batch(device: &Device, queue: &Queue, taken: &[Tuple]) -> Result<Vec<Tensor>> {
    let mut components = Vec::with_capacity(queue.spec.types.len());
    for (i, (dtype, shape)) in queue.spec.types.iter().zip(&queue.spec.shapes).enumerate() {
        let rows: Vec<&Tensor> = taken.iter().map(|tuple| &tuple[i]).collect();
        let mut dims: Vec<i64> = match shape.dims() {
            Some(dims) => dims.iter().map(|dim| (*dim).max(0)).collect(),
            None => rows.first().map(|row| row.shape().dims().to_vec()).unwrap_or_default(),
        };
        for row in &rows {
            ensure!(
                row.rank() == dims.len(),
                InvalidArgument,
                "elements of component {i} have ranks {} and {}",
                dims.len(),
                row.rank()
            );
            dims.iter_mut().zip(row.shape().dims()).for_each(|(dim, size)| *dim = *size.max(dim));
        }
        let shape = rows::stacked(rows.len(), &dims)?;
        components.push(if rows.iter().all(|row| row.shape().dims() == dims) {
            rows::join(device, *dtype, shape, &rows)?
        } else {
            device.check_allocation(*dtype, &shape)?;
            crate::support::units::by_unit!(*dtype, U => padded::<U>(*dtype, shape, &rows)?)
        });
    }
    Ok(components)
}

fn padded<U: Unit>(dtype: DType, shape: Shape, rows: &[&Tensor]) -> Result<Tensor> {
    let mut out = vec![U::default(); shape.elements()];
    let dims = &shape.dims()[1..];
    let stride: usize = dims.iter().product::<i64>() as usize;
    for (i, row) in rows.iter().enumerate() {
        let units = row.units::<U>()?;
        let sizes = row.shape().dims();
        for (at, unit) in units.iter().enumerate() {
            let (mut rest, mut offset, mut step) = (at, 0, 1);
            for (size, dim) in sizes.iter().zip(dims).rev() {
                offset += rest % *size as usize * step;
                rest /= *size as usize;
                step *= *dim as usize;
            }
            out[i * stride + offset] = unit.clone();
        }
    }
    Tensor::from_units(dtype, shape, out)
}

fn size_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(queue(cx)?.size() as i32).into()))
}

fn is_closed_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(queue(cx)?.is_closed()).into()))
}

fn close_kernel(init: &Init<'_>) -> Result<Kernel> {
    let cancel_pending: bool = init.attr("cancel_pending_enqueues")?;
    Kernel::future(move |mut cx| async move {
        let queue = queue(&cx.cx())?;
        queue.close(cancel_pending).await?;
        Ok(Outputs::None)
    })
}

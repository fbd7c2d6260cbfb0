//! Staging areas: where one step leaves tensors for a later one. They are queues that nobody closes.

use crate::state::queue::{Order, Queue, QueueSpec, Tuple};
use crate::support::declared_types::DeclaredTypes;
use ferroflow_core::kernel::{FutureCx, Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::resource::Resource;
use ferroflow_core::{Result, Tensor, ensure, kernels, status};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&STAGE, &UNSTAGE, &STAGE_PEEK, &STAGE_SIZE, &STAGE_CLEAR];

static STAGE: Op = Op {
    name: "Stage",
    inputs: &["values: dtypes"],
    attrs: &[
        "capacity: int >= 0 = 0",
        "memory_limit: int >= 0 = 0",
        "dtypes: list(type) >= 1",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    kernels: kernels![any stage_kernel],
    ..Op::STATEFUL
};

static UNSTAGE: Op = Op {
    name: "Unstage",
    inputs: &[],
    outputs: &["values: dtypes"],
    kernels: kernels![any unstage_kernel],
    ..STAGE
};

static STAGE_PEEK: Op =
    Op { name: "StagePeek", inputs: &["index: int32"], kernels: kernels![any peek_kernel], ..UNSTAGE };

static STAGE_SIZE: Op = Op {
    name: "StageSize",
    outputs: &["size: int32"],
    attrs: &[
        "capacity: int >= 0 = 0",
        "memory_limit: int >= 0 = 0",
        "dtypes: list(type)",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    shape: shapes::scalar,
    kernels: kernels![any size_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static STAGE_CLEAR: Op = Op {
    name: "StageClear",
    outputs: &[],
    shape: shapes::unknown,
    kernels: kernels![any clear_kernel],
    ..STAGE_SIZE
};

/// A staging area; its own type, so that it may share a name with a queue.
struct Staging(Arc<Queue>);

impl Resource for Staging {
    fn type_name(&self) -> &'static str {
        "Staging"
    }

    fn cancel_waiters(&self) {
        self.0.cancel_waiters();
    }
}

/// The container and name of an op's staging area.
struct Area {
    container: String,
    name: String,
    capacity: usize,
    memory_limit: usize,
}

impl Area {
    fn new(init: &Init<'_>) -> Result<Area> {
        let (container, name) = init.resource_name()?;
        // Zero stands for no limit.
        let limit =
            |attr: &str| init.attr::<usize>(attr).map(|limit| if limit == 0 { usize::MAX } else { limit });
        Ok(Area { container, name, capacity: limit("capacity")?, memory_limit: limit("memory_limit")? })
    }

    fn get(&self, cx: &KernelCx<'_>) -> Result<Arc<Queue>> {
        let staging = cx.step().resources.lookup_or_create(&self.container, &self.name, || {
            Ok(Staging(Arc::new(Queue::new(QueueSpec {
                name: self.name.clone(),
                order: Order::First,
                types: Vec::new(),
                shapes: Vec::new(),
                capacity: self.capacity,
                memory_limit: self.memory_limit,
                padding: false,
            }))))
        })?;
        Ok(staging.0.clone())
    }
}

fn stage_kernel(init: &Init<'_>) -> Result<Kernel> {
    let area = Area::new(init)?;
    Kernel::future(move |mut cx| {
        let queue = area.get(&cx.cx());
        let limit = area.memory_limit;
        async move {
            let (queue, tuple) = (queue?, cx.take_all()?);
            let bytes: usize = tuple.iter().map(Tensor::byte_size).sum();
            ensure!(
                bytes <= limit,
                ResourceExhausted,
                "Attempted to insert tensors with combined size of '{bytes}' bytes into Staging Area with a memory \
                 limit of '{limit}'."
            );
            queue.enqueue(vec![tuple]).await?;
            Ok(Outputs::None)
        }
    })
}

/// The elements of a tuple as outputs, if they are as many and of the types that the node declares.
fn outputs(tuple: Tuple, declared: &DeclaredTypes) -> Result<Outputs> {
    ensure!(
        tuple.len() == declared.len(),
        InvalidArgument,
        "Mismatch stage/unstage: {} vs. {}",
        tuple.len(),
        declared.len()
    );
    declared.check(&tuple)?;
    Ok(tuple.into())
}

fn unstage_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (area, declared) = (Area::new(init)?, DeclaredTypes::new(init));
    Kernel::future(move |mut cx| {
        let (queue, declared) = (area.get(&cx.cx()), declared.clone());
        async move {
            let taken = queue?.dequeue(1, false).await?;
            outputs(taken.into_iter().next().unwrap_or_default(), &declared)
        }
    })
}

fn peek_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (area, declared) = (Area::new(init)?, DeclaredTypes::new(init));
    Kernel::future(move |mut cx: FutureCx| {
        let (queue, index) = (area.get(&cx.cx()), peek_index(&cx.cx()));
        let declared = declared.clone();
        async move { outputs(queue?.peek(index?).await?, &declared) }
    })
}

fn peek_index(cx: &KernelCx<'_>) -> Result<usize> {
    let index = cx.input(0)?;
    ensure!(index.rank() == 0, InvalidArgument, "index must be scalar");
    let index = index.to_scalar::<i32>()?;
    usize::try_from(index)
        .map_err(|_| status!(InvalidArgument, "index of StagePeek must not be negative, got {index}"))
}

fn size_kernel(init: &Init<'_>) -> Result<Kernel> {
    let area = Area::new(init)?;
    Kernel::sync(move |cx| Ok(Tensor::scalar(area.get(cx)?.size() as i32).into()))
}

fn clear_kernel(init: &Init<'_>) -> Result<Kernel> {
    let area = Area::new(init)?;
    Kernel::sync(move |cx| {
        area.get(cx)?.clear();
        Ok(Outputs::None)
    })
}

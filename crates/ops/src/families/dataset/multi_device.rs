//! Iterators that deal the elements of one dataset out to several devices, in turn.

use super::iterators::{Components, component_shapes, handle_from_string, named_handle};
use super::order::scalars;
use crate::data::iterator::{check_element, check_shapes, check_types};
use crate::data::{Dataset, Element, IteratorCx, Source, SourceCx, scalar};
use crate::state::anonymous;
use crate::state::resource_name::ResourceName;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, OpClass, shapes};
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};
use prost::Message;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker};

pub(crate) const OPS: &[&Op] = &[
    &MULTI_DEVICE_ITERATOR,
    &ANONYMOUS_MULTI_DEVICE_ITERATOR,
    &ANONYMOUS_MULTI_DEVICE_ITERATOR_V3,
    &MULTI_DEVICE_ITERATOR_INIT,
    &MULTI_DEVICE_ITERATOR_GET_NEXT_FROM_SHARD,
    &MULTI_DEVICE_ITERATOR_TO_STRING_HANDLE,
    &MULTI_DEVICE_ITERATOR_FROM_STRING_HANDLE,
    &DELETE_MULTI_DEVICE_ITERATOR,
];

static MULTI_DEVICE_ITERATOR: Op = Op {
    name: "MultiDeviceIterator",
    outputs: &["handle: resource"],
    attrs: &[
        "devices: list(string) >= 1",
        "shared_name: string",
        "container: string",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any multi_device_kernel],
    cheap: true,
    class: OpClass::Variable,
    ..Op::STATEFUL
};

static ANONYMOUS_MULTI_DEVICE_ITERATOR: Op = Op {
    name: "AnonymousMultiDeviceIterator",
    outputs: &["handle: resource", "deleter: variant"],
    attrs: &[
        "devices: list(string) >= 1",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: scalars,
    kernels: kernels![any anonymous_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static ANONYMOUS_MULTI_DEVICE_ITERATOR_V3: Op = Op {
    name: "AnonymousMultiDeviceIteratorV3",
    outputs: &["handle: resource"],
    attrs: &[
        "devices: list(string) >= 1",
        "output_types: list(type) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any anonymous_v3_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static MULTI_DEVICE_ITERATOR_INIT: Op = Op {
    name: "MultiDeviceIteratorInit",
    inputs: &["dataset: variant", "multi_device_iterator: resource", "max_buffer_size: int64"],
    outputs: &["incarnation_id: int64"],
    shape: shapes::scalar,
    kernels: kernels![any init_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static MULTI_DEVICE_ITERATOR_GET_NEXT_FROM_SHARD: Op = Op {
    name: "MultiDeviceIteratorGetNextFromShard",
    inputs: &["multi_device_iterator: resource", "shard_num: int32", "incarnation_id: int64"],
    outputs: &["components: output_types"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: component_shapes,
    kernels: kernels![any get_next_kernel],
    ..Op::STATEFUL
};

static MULTI_DEVICE_ITERATOR_TO_STRING_HANDLE: Op = Op {
    name: "MultiDeviceIteratorToStringHandle",
    inputs: &["multi_device_iterator: resource"],
    outputs: &["string_handle: string"],
    shape: shapes::scalar,
    kernels: kernels![any to_string_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static MULTI_DEVICE_ITERATOR_FROM_STRING_HANDLE: Op = Op {
    name: "MultiDeviceIteratorFromStringHandle",
    inputs: &["string_handle: string"],
    outputs: &["multi_device_iterator: resource"],
    attrs: &["output_types: list(type) >= 0 = []", "output_shapes: list(shape) >= 0 = []"],
    shape: shapes::scalar,
    kernels: kernels![any from_string_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DELETE_MULTI_DEVICE_ITERATOR: Op = Op {
    name: "DeleteMultiDeviceIterator",
    inputs: &["multi_device_iterator: resource", "iterators: N * resource", "deleter: variant"],
    attrs: &["N: int >= 0"],
    kernels: kernels![any delete_kernel],
    cheap: true,
    ..Op::STATEFUL
};

/// An iterator for several devices.
struct MultiDeviceIterator {
    types: Vec<DType>,
    shapes: Vec<PartialShape>,
    devices: usize,
    dealt: Mutex<(i64, Option<Arc<Dealt>>)>,
}

const UNPOISONED: &str = "no panic while elements are dealt out";

/// The elements of one run of a dataset, dealt out to shards.
struct Dealt(Mutex<Deal>, Arc<IteratorCx>);

struct Deal {
    source: Box<dyn Source>,
    shards: Vec<VecDeque<Result<Element>>>,
    /// The shard that the next element belongs to.
    next: usize,
    limit: usize,
    ended: bool,
    waiting: Vec<Waker>,
}

impl MultiDeviceIterator {
    fn lock(&self) -> MutexGuard<'_, (i64, Option<Arc<Dealt>>)> {
        self.dealt.lock().expect(UNPOISONED)
    }
}

impl Resource for MultiDeviceIterator {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data12_GLOBAL__N_119MultiDeviceIteratorE"
    }

    fn cancel_waiters(&self) {
        self.lock().1 = None;
    }
}

/// Wakes the other shards when one stops to poll: the source knows only the waker of the last one.
struct WakeOthers<'a>(&'a Dealt);

impl Drop for WakeOthers<'_> {
    fn drop(&mut self) {
        let waiting = std::mem::take(&mut self.0.0.lock().expect(UNPOISONED).waiting);
        waiting.into_iter().for_each(Waker::wake);
    }
}

impl Dealt {
    /// The next element of a shard; `None` at the end.
    async fn next(&self, shard: usize) -> Result<Option<Element>> {
        let _others = WakeOthers(self);
        let mut consumer = self.1.consumer();
        let next = poll_fn(|task| self.poll(shard, task)).await;
        consumer.served = true;
        next
    }

    fn poll(&self, shard: usize, task: &mut Context<'_>) -> Poll<Result<Option<Element>>> {
        let mut deal = self.0.lock().expect(UNPOISONED);
        let deal = &mut *deal;
        loop {
            if let Some(element) = deal.shards[shard].pop_front() {
                return Poll::Ready(element.map(Some));
            }
            if deal.ended {
                return Poll::Ready(Ok(None));
            }
            let next = deal.next;
            if next != shard && deal.shards[next].len() >= deal.limit {
                // Another device is behind; memory is bounded, so this one waits for it.
                deal.waiting.push(task.waker().clone());
                return Poll::Pending;
            }
            let element = match deal.source.poll_next(&mut SourceCx::new(task)) {
                Poll::Pending => {
                    deal.waiting.push(task.waker().clone());
                    return Poll::Pending;
                }
                Poll::Ready(Ok(None)) => {
                    deal.ended = true;
                    continue;
                }
                Poll::Ready(Ok(Some(element))) => Ok(element),
                Poll::Ready(Err(error)) => Err(error),
            };
            deal.shards[next].push_back(element);
            deal.next = (next + 1) % deal.shards.len();
        }
    }
}

fn make(init: &Init<'_>) -> Result<impl Fn() -> MultiDeviceIterator + Send + Sync + 'static> {
    let Components { types, shapes } = Components::new(init)?;
    let devices = init.attr::<Vec<String>>("devices")?.len();
    Ok(move || MultiDeviceIterator {
        types: types.clone(),
        shapes: shapes.clone(),
        devices,
        dealt: Mutex::new((0, None)),
    })
}

fn multi_device_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (make, name) = (make(init)?, ResourceName::<MultiDeviceIterator>::new(init)?);
    Kernel::sync(move |cx| {
        let iterator = name.lookup_or_create(cx, || Ok(make()))?;
        Ok(named_handle(cx, &name.container, &name.name, iterator.type_name())?.into())
    })
}

fn anonymous_kernel(init: &Init<'_>) -> Result<Kernel> {
    let make = make(init)?;
    Kernel::sync(move |cx| anonymous::with_deleter(cx, "AnonymousMultiDeviceIterator", Arc::new(make())))
}

fn anonymous_v3_kernel(init: &Init<'_>) -> Result<Kernel> {
    let make = make(init)?;
    Kernel::sync(
        move |cx| Ok(anonymous::handle(cx, "AnonymousMultiDeviceIterator", Arc::new(make()))?.into()),
    )
}

fn init_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (dataset, iterator) = (Dataset::input(cx, 0)?, cx.resource::<MultiDeviceIterator>(1)?);
        let limit: i64 = scalar(cx, 2, "max_buffer_size")?;
        check_types(&iterator.types, dataset.types())?;
        check_shapes(&iterator.shapes, dataset.shapes())?;
        let context =
            IteratorCx::new(cx.step(), &Arc::default(), &format!("iterator {}", cx.handle(1)?.name()));
        let deal = Deal {
            source: dataset.open(&context)?,
            shards: (0..iterator.devices).map(|_| VecDeque::new()).collect(),
            next: 0,
            limit: usize::try_from(limit).unwrap_or(1).max(1),
            ended: false,
            waiting: Vec::new(),
        };
        let mut dealt = iterator.lock();
        dealt.0 += 1;
        let before = dealt.1.replace(Arc::new(Dealt(Mutex::new(deal), context)));
        let incarnation = dealt.0;
        drop(dealt);
        drop(before);
        Ok(Tensor::scalar(incarnation).into())
    })
}

fn get_next_kernel(init: &Init<'_>) -> Result<Kernel> {
    let components = Arc::new(Components::new(init)?);
    Kernel::future(move |mut cx| {
        let components = components.clone();
        let mut found = || {
            let cx = cx.cx();
            let iterator = cx.resource::<MultiDeviceIterator>(0)?;
            let (shard, incarnation): (i32, i64) =
                (scalar(&cx, 1, "shard_num")?, scalar(&cx, 2, "incarnation_id")?);
            let (current, dealt) = &*iterator.lock();
            let Some(dealt) = dealt else {
                bail!(FailedPrecondition, "the multi-device iterator has not been initialized")
            };
            ensure!(
                *current == incarnation,
                InvalidArgument,
                "Invalid incarnation id. Provided: {incarnation}; Expected: {current}"
            );
            let at = usize::try_from(shard).ok().filter(|shard| *shard < iterator.devices);
            match at {
                Some(at) => Ok((dealt.clone(), at)),
                None => bail!(InvalidArgument, "there is no shard {shard} of {}", iterator.devices),
            }
        };
        let found = found();
        async move {
            let (dealt, shard) = found?;
            let Some(element) = dealt.next(shard).await? else { bail!(OutOfRange, "End of sequence") };
            check_element(&components.types, &components.shapes, &element)?;
            Ok(element.into())
        }
    })
}

fn to_string_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (iterator, handle) = (cx.resource::<MultiDeviceIterator>(0)?, cx.handle(0)?);
        anonymous::alias(cx, handle, &iterator);
        Ok(Tensor::scalar::<Str>(handle.to_proto().encode_to_vec().into()).into())
    })
}

fn from_string_kernel(init: &Init<'_>) -> Result<Kernel> {
    let components = Components::new(init)?;
    Kernel::sync(move |cx| {
        let handle = handle_from_string(cx)?;
        let (handle, iterator): (_, Arc<MultiDeviceIterator>) = anonymous::resolve(cx, handle)?;
        if !components.types.is_empty() {
            check_types(&components.types, &iterator.types)?;
        }
        if !components.shapes.is_empty() {
            check_shapes(&components.shapes, &iterator.shapes)?;
        }
        Ok(Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])?.into())
    })
}

fn delete_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let handle = cx.handle(0)?;
        cx.resource::<MultiDeviceIterator>(0)?.cancel_waiters();
        let _ = cx.step().resources.delete::<MultiDeviceIterator>(handle.container(), handle.name());
        Ok(().into())
    })
}

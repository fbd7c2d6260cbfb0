//! Staging areas with keys: one step leaves tensors under a number, a later one takes them, all at once or one by one.

use crate::state::watched::Watched;
use crate::support::declared_types::DeclaredTypes;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;
use std::task::Poll;

pub(crate) const OPS: &[&Op] = &[
    &MAP_STAGE,
    &MAP_UNSTAGE,
    &MAP_UNSTAGE_NO_KEY,
    &MAP_PEEK,
    &MAP_SIZE,
    &MAP_INCOMPLETE_SIZE,
    &MAP_CLEAR,
    &ORDERED_MAP_STAGE,
    &ORDERED_MAP_UNSTAGE,
    &ORDERED_MAP_UNSTAGE_NO_KEY,
    &ORDERED_MAP_PEEK,
    &ORDERED_MAP_SIZE,
    &ORDERED_MAP_INCOMPLETE_SIZE,
    &ORDERED_MAP_CLEAR,
];

static MAP_STAGE: Op = Op {
    name: "MapStage",
    inputs: &["key: int64", "indices: int32", "values: fake_dtypes"],
    attrs: &[
        "capacity: int >= 0 = 0",
        "memory_limit: int >= 0 = 0",
        "dtypes: list(type)",
        "fake_dtypes: list(type) >= 1",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    kernels: kernels![any stage_kernel],
    ..Op::STATEFUL
};

static MAP_UNSTAGE: Op = Op {
    name: "MapUnstage",
    inputs: &["key: int64", "indices: int32"],
    outputs: &["values: dtypes"],
    attrs: &[
        "capacity: int >= 0 = 0",
        "memory_limit: int >= 0 = 0",
        "dtypes: list(type) >= 1",
        "container: string = ''",
        "shared_name: string = ''",
    ],
    kernels: kernels![any unstage_kernel],
    ..Op::STATEFUL
};

static MAP_UNSTAGE_NO_KEY: Op = Op {
    name: "MapUnstageNoKey",
    inputs: &["indices: int32"],
    outputs: &["key: int64", "values: dtypes"],
    kernels: kernels![any unstage_any_kernel],
    ..MAP_UNSTAGE
};

static MAP_PEEK: Op = Op { name: "MapPeek", kernels: kernels![any peek_kernel], ..MAP_UNSTAGE };

static MAP_SIZE: Op = Op {
    name: "MapSize",
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

static MAP_INCOMPLETE_SIZE: Op =
    Op { name: "MapIncompleteSize", kernels: kernels![any incomplete_size_kernel], ..MAP_SIZE };

static MAP_CLEAR: Op = Op {
    name: "MapClear",
    outputs: &[],
    shape: shapes::unknown,
    kernels: kernels![any clear_kernel],
    ..MAP_SIZE
};

static ORDERED_MAP_STAGE: Op = Op { name: "OrderedMapStage", ..MAP_STAGE };
static ORDERED_MAP_UNSTAGE: Op = Op { name: "OrderedMapUnstage", ..MAP_UNSTAGE };
static ORDERED_MAP_UNSTAGE_NO_KEY: Op = Op { name: "OrderedMapUnstageNoKey", ..MAP_UNSTAGE_NO_KEY };
static ORDERED_MAP_PEEK: Op = Op { name: "OrderedMapPeek", ..MAP_PEEK };
static ORDERED_MAP_SIZE: Op = Op { name: "OrderedMapSize", ..MAP_SIZE };
static ORDERED_MAP_INCOMPLETE_SIZE: Op = Op { name: "OrderedMapIncompleteSize", ..MAP_INCOMPLETE_SIZE };
static ORDERED_MAP_CLEAR: Op = Op { name: "OrderedMapClear", ..MAP_CLEAR };

/// The tensors under one key; those that are not there yet, or no more, are `None`.
type Slots = Vec<Option<Tensor>>;

/// Both kinds keep their keys in order: which one an area without order gives away first is not defined.
#[derive(Default)]
struct Contents {
    complete: BTreeMap<i64, Slots>,
    incomplete: BTreeMap<i64, Slots>,
    bytes: usize,
}

/// A staging area with keys. The two kinds are different types in stock, so they may share a name.
struct StagingMap<const ORDERED: bool> {
    area: Arc<Area>,
}

struct Area {
    types: usize,
    capacity: usize,
    memory_limit: usize,
    contents: Watched<Contents>,
}

impl<const ORDERED: bool> Resource for StagingMap<ORDERED> {
    fn type_name(&self) -> &'static str {
        if ORDERED { "OrderedStagingMap" } else { "StagingMap" }
    }

    fn cancel_waiters(&self) {
        self.area.contents.abandon();
    }
}

const WHAT: &str = "A staging map";

impl Area {
    /// Adds tensors; waits while the area is full.
    async fn put(&self, key: i64, indices: Vec<usize>, values: Vec<Tensor>) -> Result<()> {
        let bytes: usize = values.iter().map(Tensor::byte_size).sum();
        ensure!(
            bytes <= self.memory_limit,
            ResourceExhausted,
            "Attempted to insert tensors with combined size of '{bytes}' bytes into Staging Area with a memory limit \
             of '{}'.",
            self.memory_limit
        );
        let whole = indices.len() == self.types;
        let mut values = Some(values);
        let attempt = |contents: &mut Contents| {
            let full = contents.bytes.saturating_add(bytes) > self.memory_limit
                || (whole && contents.complete.len() >= self.capacity);
            if full {
                return Poll::Pending;
            }
            Poll::Ready(self.insert(contents, key, &indices, values.take().unwrap_or_default()))
        };
        self.contents.until(WHAT, attempt).await
    }

    fn insert(
        &self,
        contents: &mut Contents,
        key: i64,
        indices: &[usize],
        values: Vec<Tensor>,
    ) -> Result<()> {
        let bytes: usize = values.iter().map(Tensor::byte_size).sum();
        let present = contents.incomplete.get(&key);
        for index in indices {
            self.check(key, *index)?;
            ensure!(
                indices.len() == self.types || present.is_none_or(|slots| slots[*index].is_none()),
                InvalidArgument,
                "The tensor for index '{index}' for key '{key}' was already initialized '{}'.",
                self.types
            );
        }
        let mut slots: Slots = vec![None; self.types];
        if indices.len() < self.types
            && let Some(present) = contents.incomplete.remove(&key)
        {
            slots = present;
        }
        for (index, value) in indices.iter().zip(values) {
            slots[*index] = Some(value);
        }
        contents.bytes += bytes;
        if slots.iter().any(Option::is_none) {
            contents.incomplete.insert(key, slots);
        } else {
            // The first to come stays.
            let dropped: usize = slots.iter().flatten().map(Tensor::byte_size).sum();
            match contents.complete.entry(key) {
                Entry::Vacant(place) => {
                    place.insert(slots);
                }
                Entry::Occupied(_) => contents.bytes = contents.bytes.saturating_sub(dropped),
            }
        }
        Ok(())
    }

    fn check(&self, key: i64, index: usize) -> Result<()> {
        ensure!(
            index < self.types,
            InvalidArgument,
            "Index '{index}' for key '{key}' was out of bounds '{}'.",
            self.types
        );
        Ok(())
    }

    /// Takes tensors, or looks at them, as soon as there is an element; without a key, at the first one.
    async fn get(&self, key: Option<i64>, indices: Vec<usize>, take: bool) -> Result<(i64, Vec<Tensor>)> {
        let attempt = |contents: &mut Contents| {
            let found = match key {
                Some(key) => contents.complete.contains_key(&key).then_some(key),
                None => contents.complete.keys().next().copied(),
            };
            let Some(key) = found else { return Poll::Pending };
            Poll::Ready(self.read(contents, key, &indices, take).map(|values| (key, values)))
        };
        self.contents.until(WHAT, attempt).await
    }

    fn read(&self, contents: &mut Contents, key: i64, indices: &[usize], take: bool) -> Result<Vec<Tensor>> {
        let Some(slots) = contents.complete.get_mut(&key) else { return Ok(Vec::new()) };
        let mut values = Vec::with_capacity(indices.len());
        for index in indices {
            self.check(key, *index)?;
            let Some(value) = &slots[*index] else {
                bail!(InvalidArgument, "Tensor at index '{index}' for key '{key}' has already been removed.");
            };
            values.push(value.clone());
        }
        if take {
            indices.iter().for_each(|index| slots[*index] = None);
            let bytes: usize = values.iter().map(Tensor::byte_size).sum();
            contents.bytes = contents.bytes.saturating_sub(bytes);
            if slots.iter().all(Option::is_none) {
                contents.complete.remove(&key);
            }
        }
        Ok(values)
    }
}

/// The container and name of an op's area, and how to make it.
#[derive(Clone)]
struct Place {
    container: String,
    name: String,
    types: usize,
    capacity: usize,
    memory_limit: usize,
    ordered: bool,
}

impl Place {
    fn new(init: &Init<'_>) -> Result<Place> {
        let (container, name) = init.resource_name()?;
        // Zero stands for no limit.
        let limit =
            |attr: &str| init.attr::<usize>(attr).map(|limit| if limit == 0 { usize::MAX } else { limit });
        Ok(Place {
            container,
            name,
            types: init.attr::<Vec<DType>>("dtypes")?.len(),
            capacity: limit("capacity")?,
            memory_limit: limit("memory_limit")?,
            ordered: init.op.starts_with("Ordered"),
        })
    }

    fn get(&self, cx: &KernelCx<'_>) -> Result<Arc<Area>> {
        if self.ordered { self.find::<true>(cx) } else { self.find::<false>(cx) }
    }

    fn find<const ORDERED: bool>(&self, cx: &KernelCx<'_>) -> Result<Arc<Area>> {
        let map = cx.step().resources.lookup_or_create(&self.container, &self.name, || {
            Ok(StagingMap::<ORDERED> {
                area: Arc::new(Area {
                    types: self.types,
                    capacity: self.capacity,
                    memory_limit: self.memory_limit,
                    contents: Watched::new(Contents::default()),
                }),
            })
        })?;
        Ok(map.area.clone())
    }
}

fn key(cx: &KernelCx<'_>) -> Result<i64> {
    let key = cx.input(0)?;
    ensure!(key.rank() == 0, InvalidArgument, "key must be an int64 scalar: {}", key.shape());
    key.to_scalar()
}

/// The indices of some input, in order.
fn indices(cx: &KernelCx<'_>, input: usize) -> Result<Vec<usize>> {
    let indices = cx.flat::<i32>(input)?;
    ensure!(!indices.is_empty(), InvalidArgument, "Indices are empty");
    ensure!(
        indices.windows(2).all(|pair| pair[0] < pair[1]),
        InvalidArgument,
        "Indices are not strictly ordered"
    );
    Ok(indices.iter().map(|index| *index as isize as usize).collect())
}

fn stage_kernel(init: &Init<'_>) -> Result<Kernel> {
    let place = Place::new(init)?;
    Kernel::future(move |mut cx| {
        let place = place.clone();
        async move {
            let area = place.get(&cx.cx())?;
            let key = cx.cx().input(0)?.clone();
            ensure!(key.elements() > 0, InvalidArgument, "key must not be empty");
            ensure!(
                key.elements() == 1,
                InvalidArgument,
                "key must be an int64 scalar, got tensor with shape: {}",
                key.shape()
            );
            let key = key.reshaped(Shape::scalar())?.to_scalar()?;
            let indices = indices(&cx.cx(), 1)?;
            let values = cx.take_all()?.split_off(2);
            ensure!(
                values.len() == indices.len(),
                InvalidArgument,
                "there are {} indices for {} values",
                indices.len(),
                values.len()
            );
            area.put(key, indices, values).await?;
            Ok(Outputs::None)
        }
    })
}

fn unstage_kernel(init: &Init<'_>) -> Result<Kernel> {
    get_kernel(init, true)
}

fn peek_kernel(init: &Init<'_>) -> Result<Kernel> {
    get_kernel(init, false)
}

/// Refuses a node with more or fewer outputs than it asks for.
fn check_outputs(indices: &[usize], outputs: usize) -> Result<()> {
    ensure!(
        indices.len() == outputs,
        InvalidArgument,
        "output/indices size mismatch: {outputs} vs. {}",
        indices.len()
    );
    Ok(())
}

fn get_kernel(init: &Init<'_>, take: bool) -> Result<Kernel> {
    let (place, declared) = (Place::new(init)?, DeclaredTypes::new(init));
    Kernel::future(move |mut cx| {
        let (place, declared) = (place.clone(), declared.clone());
        async move {
            let (area, key, indices) = (place.get(&cx.cx())?, key(&cx.cx())?, indices(&cx.cx(), 1)?);
            check_outputs(&indices, declared.len())?;
            let (_, values) = area.get(Some(key), indices, take).await?;
            declared.check(&values)?;
            Ok(values.into())
        }
    })
}

fn unstage_any_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (place, declared) = (Place::new(init)?, DeclaredTypes::new(init));
    Kernel::future(move |mut cx| {
        let (place, declared) = (place.clone(), declared.clone());
        async move {
            let (area, indices) = (place.get(&cx.cx())?, indices(&cx.cx(), 0)?);
            check_outputs(&indices, declared.len() - 1)?;
            let (key, values) = area.get(None, indices, true).await?;
            let outputs: Vec<Tensor> = [Tensor::scalar(key)].into_iter().chain(values).collect();
            declared.check(&outputs)?;
            Ok(outputs.into())
        }
    })
}

fn size_kernel(init: &Init<'_>) -> Result<Kernel> {
    let place = Place::new(init)?;
    Kernel::sync(move |cx| {
        let size = place.get(cx)?.contents.look(|contents| contents.complete.len());
        Ok(Tensor::scalar(size as i32).into())
    })
}

fn incomplete_size_kernel(init: &Init<'_>) -> Result<Kernel> {
    let place = Place::new(init)?;
    Kernel::sync(move |cx| {
        let size = place.get(cx)?.contents.look(|contents| contents.incomplete.len());
        Ok(Tensor::scalar(size as i32).into())
    })
}

fn clear_kernel(init: &Init<'_>) -> Result<Kernel> {
    let place = Place::new(init)?;
    Kernel::sync(move |cx| {
        place.get(cx)?.contents.change(|contents| *contents = Contents::default());
        Ok(Outputs::None)
    })
}

//! The contents of dense tables: buckets of keys and values, laid out as stock's, because checkpoints have all buckets
//! and their readers look for a key where its hash says.

use super::Keys;
use super::column::{Column, gather};
use crate::numeric::hash::murmur64;
use ferroflow_core::device::{Device, Threads};
use ferroflow_core::kernel::Str;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};

/// The description of a dense table.
pub(crate) struct DenseSpec {
    /// The key that marks a bucket which nothing was ever in.
    pub(crate) empty_key: Tensor,
    /// The key that marks a bucket whose key was removed; tables of the first generation have none.
    pub(crate) deleted_key: Option<Tensor>,
    pub(crate) value_shape: Shape,
    pub(crate) buckets: i64,
    pub(crate) max_load: f32,
}

pub(super) struct Dense {
    spec: DenseSpec,
    key_size: usize,
    value_type: DType,
    value_size: usize,
    empty: Key,
    deleted: Option<Key>,
    buckets: usize,
    entries: usize,
    keys: BucketKeys,
    values: Column,
}

/// The keys of all buckets, `key_size` elements each.
enum BucketKeys {
    Ints(Vec<i64>),
    Texts(Vec<Str>),
}

/// One key, with its hash.
struct Key {
    hash: u64,
    elements: BucketKeys,
}

impl BucketKeys {
    fn new(tensor: &Tensor) -> Result<BucketKeys> {
        Ok(match tensor.dtype() {
            DType::String => BucketKeys::Texts(tensor.flat::<Str>()?.to_vec()),
            DType::Int32 => {
                BucketKeys::Ints(tensor.flat::<i32>()?.iter().map(|key| i64::from(*key)).collect())
            }
            DType::Int64 => BucketKeys::Ints(tensor.flat::<i64>()?.to_vec()),
            other => bail!(InvalidArgument, "tables have no keys of type {other}"),
        })
    }

    /// This one key in every one of `buckets`.
    fn repeated(&self, buckets: usize) -> BucketKeys {
        match self {
            BucketKeys::Ints(key) => BucketKeys::Ints(key.repeat(buckets)),
            BucketKeys::Texts(key) => {
                let cycle = key.iter().cycle().take(key.len() * buckets);
                BucketKeys::Texts(cycle.cloned().collect())
            }
        }
    }

    fn as_keys(&self) -> Keys<'_> {
        match self {
            BucketKeys::Ints(keys) => Keys::Int64(keys),
            BucketKeys::Texts(keys) => Keys::Texts(keys),
        }
    }
}

fn hash_element(keys: Keys<'_>, at: usize) -> u64 {
    match keys {
        Keys::Texts(keys) => murmur64(&keys[at]),
        keys => keys.int(at) as u64,
    }
}

/// Stock's hash of key number `at`.
fn hash(keys: Keys<'_>, at: usize, size: usize) -> u64 {
    if size == 1 {
        return hash_element(keys, at);
    }
    (0..size).fold(0u64, |hash, element| {
        let next = hash_element(keys, at * size + element).wrapping_add(0x9e37_79b9_7f4a_7800);
        hash ^ next.wrapping_add(hash << 10).wrapping_add(hash >> 4)
    })
}

/// Whether two keys are equal.
fn is_equal(a: Keys<'_>, at: usize, b: Keys<'_>, bt: usize, size: usize) -> bool {
    let (a_range, b_range) = (at * size..(at + 1) * size, bt * size..(bt + 1) * size);
    match (a, b) {
        (Keys::Texts(a), Keys::Texts(b)) => a[a_range] == b[b_range],
        (Keys::Int64(a), Keys::Int64(b)) => a[a_range] == b[b_range],
        (a, b) => a_range.zip(b_range).all(|(at, bt)| a.int(at) == b.int(bt)),
    }
}

/// The bucket that a probe ends at.
enum Probe {
    Found(usize),
    /// The first bucket that a key could be put into.
    Free(usize),
}

impl Dense {
    pub(super) fn new(device: &Device, value_type: DType, spec: DenseSpec) -> Result<Dense> {
        ensure!(
            spec.max_load > 0.0 && spec.max_load < 1.0,
            InvalidArgument,
            "max_load_factor must be between 0 and 1, got: {}",
            crate::support::text::float(spec.max_load)
        );
        ensure!(
            spec.value_shape.rank() <= 1,
            InvalidArgument,
            "Empty value must be a scalar or a vector, got shape {}",
            spec.value_shape
        );
        let key_shape = spec.empty_key.shape().clone();
        ensure!(
            key_shape.rank() <= 1,
            InvalidArgument,
            "Empty key must be a scalar or a vector, got shape {key_shape}"
        );
        let key_size = key_shape.elements();
        let key = |tensor: &Tensor| -> Result<Key> {
            let elements = BucketKeys::new(tensor)?;
            Ok(Key { hash: hash(elements.as_keys(), 0, key_size), elements })
        };
        let empty = key(&spec.empty_key)?;
        let mut deleted = None;
        if let Some(tensor) = &spec.deleted_key {
            ensure!(
                *tensor.shape() == key_shape,
                InvalidArgument,
                "Empty and deleted keys must have same shape, got shapes: {key_shape} and {}",
                tensor.shape()
            );
            let key = key(tensor)?;
            ensure!(
                !is_equal(key.elements.as_keys(), 0, empty.elements.as_keys(), 0, key_size),
                InvalidArgument,
                "Empty and deleted keys cannot be equal"
            );
            deleted = Some(key);
        }
        let mut dense = Dense {
            key_size,
            value_type,
            value_size: spec.value_shape.elements(),
            empty,
            deleted,
            buckets: 0,
            entries: 0,
            keys: BucketKeys::Ints(Vec::new()),
            values: Column::new(value_type),
            spec,
        };
        dense.allocate(device, dense.spec.buckets)?;
        Ok(dense)
    }

    fn key_type(&self) -> DType {
        self.spec.empty_key.dtype()
    }

    pub(super) fn len(&self) -> usize {
        self.entries
    }

    /// Makes new buckets, all of them empty.
    fn allocate(&mut self, device: &Device, buckets: i64) -> Result<()> {
        let buckets = check_buckets(buckets)?;
        device.check_allocation(self.key_type(), &Shape::matrix(buckets, self.key_size))?;
        device.check_allocation(self.value_type, &Shape::matrix(buckets, self.value_size))?;
        (self.buckets, self.entries) = (buckets, 0);
        self.keys = self.empty.elements.repeated(buckets);
        self.values.clear();
        self.values.grow(buckets * self.value_size);
        Ok(())
    }

    fn is_marked(&self, bucket: usize, key: &Key) -> bool {
        is_equal(self.keys.as_keys(), bucket, key.elements.as_keys(), 0, self.key_size)
    }

    fn is_deleted(&self, bucket: usize) -> bool {
        self.deleted.as_ref().is_some_and(|deleted| self.is_marked(bucket, deleted))
    }

    /// Follows the buckets of a key. `reuse` ends at buckets of removed keys, too.
    fn probe(&self, keys: Keys<'_>, at: usize, hash: u64, reuse: bool, what: &str) -> Result<Probe> {
        let mask = self.buckets - 1;
        let mut bucket = hash as usize & mask;
        for probes in 1..=self.buckets {
            if is_equal(self.keys.as_keys(), bucket, keys, at, self.key_size) {
                return Ok(Probe::Found(bucket));
            }
            if self.is_marked(bucket, &self.empty) || (reuse && self.is_deleted(bucket)) {
                return Ok(Probe::Free(bucket));
            }
            bucket = (bucket + probes) & mask;
        }
        bail!(Internal, "Internal error in MutableDenseHashTable {what}")
    }

    /// The hash of a key that may be used; none if it is one of the two marks and those are passed over.
    fn checked_hash(&self, keys: Keys<'_>, at: usize, pass_marks: bool) -> Result<Option<u64>> {
        let hash = hash(keys, at, self.key_size);
        let marks = [(Some(&self.empty), "empty_key"), (self.deleted.as_ref(), "deleted_key")];
        for (mark, name) in marks {
            let Some(mark) = mark else { continue };
            if mark.hash == hash && is_equal(keys, at, mark.elements.as_keys(), 0, self.key_size) {
                ensure!(pass_marks, InvalidArgument, "Using the {name} as a table key is not allowed");
                return Ok(None);
            }
        }
        Ok(Some(hash))
    }

    /// The number of keys in a tensor.
    fn count(&self, keys: &Tensor) -> Result<usize> {
        let count = keys.shape().first().map_or(1, |count| *count as usize);
        if keys.elements() != count * self.key_size {
            let key_shape = self.spec.empty_key.shape();
            let expected = Shape::new(std::iter::once(count as i64).chain(key_shape.dims().iter().copied()))?;
            bail!(InvalidArgument, "Expected key shape {expected} got {}", keys.shape());
        }
        Ok(count)
    }

    pub(super) fn find(
        &self,
        threads: Threads<'_>,
        keys: &Tensor,
        default: &Tensor,
        shape: Shape,
    ) -> Result<Tensor> {
        self.count(keys)?;
        let mut out = threads.device().allocate(self.value_type, shape)?;
        let keys = Keys::new(keys)?;
        let bucket = |at: usize| {
            let hash = self.checked_hash(keys, at, false)?.unwrap_or_default();
            Ok(match self.probe(keys, at, hash, false, "lookup")? {
                Probe::Found(bucket) => Some(bucket),
                Probe::Free(_) => None,
            })
        };
        gather(&self.values, self.value_size, &mut out, default, true, &bucket)?;
        Ok(out)
    }

    pub(super) fn insert(&mut self, device: &Device, keys: &Tensor, values: &Tensor) -> Result<()> {
        let count = self.count(keys)?;
        let most = |buckets: usize| buckets as f32 * self.spec.max_load;
        let pending = self.entries + count;
        if pending as f32 > most(self.buckets) {
            let mut buckets = self.buckets;
            while pending as f32 > most(buckets) {
                buckets <<= 1;
            }
            let old = self.export()?;
            self.allocate(device, buckets as i64)?;
            self.insert_all(&old[0], &old[1], true)?;
        }
        self.insert_all(keys, values, false)
    }

    fn insert_all(&mut self, keys: &Tensor, values: &Tensor, pass_marks: bool) -> Result<()> {
        let (count, size) = (self.count(keys)?, self.key_size);
        let keys = Keys::new(keys)?;
        for at in 0..count {
            let Some(hash) = self.checked_hash(keys, at, pass_marks)? else { continue };
            let bucket = match self.probe(keys, at, hash, true, "insert")? {
                Probe::Found(bucket) => bucket,
                Probe::Free(bucket) => {
                    self.entries += 1;
                    match (&mut self.keys, keys) {
                        (BucketKeys::Texts(out), Keys::Texts(keys)) => {
                            for element in 0..size {
                                out[bucket * size + element] =
                                    Str::copy_from_slice(&keys[at * size + element]);
                            }
                        }
                        (BucketKeys::Ints(out), keys) => {
                            (0..size).for_each(|i| out[bucket * size + i] = keys.int(at * size + i));
                        }
                        _ => {}
                    }
                    bucket
                }
            };
            self.values.set(self.value_size, bucket, values, at)?;
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, keys: &Tensor) -> Result<()> {
        let (count, size) = (self.count(keys)?, self.key_size);
        let keys = Keys::new(keys)?;
        for at in 0..count {
            let hash = self.checked_hash(keys, at, false)?.unwrap_or_default();
            let Probe::Found(bucket) = self.probe(keys, at, hash, false, "remove")? else { continue };
            let Some(deleted) = &self.deleted else {
                bail!(InvalidArgument, "the table has no key for removed ones");
            };
            self.entries -= 1;
            match (&mut self.keys, &deleted.elements) {
                (BucketKeys::Texts(out), BucketKeys::Texts(mark)) => {
                    out[bucket * size..(bucket + 1) * size].clone_from_slice(mark);
                }
                (BucketKeys::Ints(out), BucketKeys::Ints(mark)) => {
                    out[bucket * size..(bucket + 1) * size].copy_from_slice(mark);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Takes over all buckets of another table.
    pub(super) fn import(&mut self, device: &Device, keys: &Tensor, values: &Tensor) -> Result<()> {
        let at_least_one = |shape: &Shape| if shape.rank() == 0 { vec![1] } else { shape.dims().to_vec() };
        let (key_dims, value_dims) =
            (at_least_one(self.spec.empty_key.shape()), at_least_one(&self.spec.value_shape));
        ensure!(
            keys.shape().dims().ends_with(self.spec.empty_key.shape().dims()),
            InvalidArgument,
            "Input key shape {} must end with the table's key shape {}",
            keys.shape(),
            self.spec.empty_key.shape()
        );
        let outer = keys.rank().saturating_sub(key_dims.len());
        let expected = Shape::new(keys.shape().dims()[..outer].iter().chain(&value_dims).copied())?;
        ensure!(
            *values.shape() == expected,
            InvalidArgument,
            "Expected shape {expected} for value, got {}",
            values.shape()
        );
        let buckets = check_buckets(keys.shape().first().copied().unwrap_or(0))?;
        ensure!(
            keys.elements() == buckets * self.key_size && values.elements() == buckets * self.value_size,
            InvalidArgument,
            "{buckets} buckets have keys of shape {} and values of shape {}",
            keys.shape(),
            values.shape()
        );
        device.check_allocation(self.value_type, values.shape())?;
        self.buckets = buckets;
        self.keys = BucketKeys::new(keys)?;
        self.values = Column::from_tensor(values)?;
        let is_used = |bucket: &usize| !self.is_marked(*bucket, &self.empty) && !self.is_deleted(*bucket);
        self.entries = (0..buckets).filter(is_used).count();
        Ok(())
    }

    /// Keys and values of all buckets.
    pub(super) fn export(&self) -> Result<[Tensor; 2]> {
        let shape = Shape::matrix(self.buckets, self.key_size);
        let keys = match (&self.keys, self.key_type()) {
            (BucketKeys::Texts(keys), _) => Tensor::new(shape, keys.clone())?,
            (BucketKeys::Ints(keys), DType::Int32) => {
                Tensor::new(shape, keys.iter().map(|key| *key as i32).collect())?
            }
            (BucketKeys::Ints(keys), _) => Tensor::new(shape, keys.clone())?,
        };
        let shape = Shape::matrix(self.buckets, self.value_size);
        Ok([keys, self.values.rows(self.value_type, self.value_size, shape, 0..self.buckets)?])
    }
}

fn check_buckets(buckets: i64) -> Result<usize> {
    ensure!(
        buckets >= 4 && buckets & (buckets - 1) == 0,
        InvalidArgument,
        "Number of buckets must be at least 4 and a power of 2, got: {buckets}"
    );
    Ok(buckets as usize)
}

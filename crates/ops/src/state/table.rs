//! Lookup tables: what the handles of hash tables of all kinds lead to.
//!
//! A table maps keys (integers, strings, in dense tables also vectors of them) to values of one type and shape. Static
//! tables are filled once and read from then on; others change at any time, one change at a time. Lookups of many keys
//! are shared among threads.

mod buckets;
mod column;
mod dense;
mod map;
mod texts;

pub(crate) use dense::DenseSpec;

use dense::Dense;
use ferroflow_core::device::{Device, Threads};
use ferroflow_core::kernel::Str;
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use map::Map;
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A lookup table.
pub(crate) struct Table {
    pub(crate) key_type: DType,
    pub(crate) value_type: DType,
    key_shape: Shape,
    value_shape: Shape,
    contents: RwLock<Contents>,
}

enum Contents {
    /// Filled once; the flag says if it is.
    Static(Map, bool),
    Mutable(Map),
    Dense(Dense),
}

impl Resource for Table {
    fn type_name(&self) -> &'static str {
        "N10tensorflow6lookup15LookupInterfaceE"
    }
}

impl Table {
    /// A table that is to be filled once.
    pub(crate) fn new_static(key_type: DType, value_type: DType) -> Table {
        let map = Map::new(key_type, value_type, None);
        Table::new(key_type, value_type, Shape::scalar(), Shape::scalar(), Contents::Static(map, false))
    }

    /// A table of scalars that may change.
    pub(crate) fn new_mutable(key_type: DType, value_type: DType) -> Table {
        let map = Map::new(key_type, value_type, None);
        Table::new(key_type, value_type, Shape::scalar(), Shape::scalar(), Contents::Mutable(map))
    }

    /// A table of vectors that may change.
    pub(crate) fn new_of_tensors(key_type: DType, value_type: DType, shape: Shape) -> Result<Table> {
        ensure!(shape.is_vector(), InvalidArgument, "Default value must be a vector, got shape {shape}");
        let map = Map::new(key_type, value_type, Some(shape.elements()));
        Ok(Table::new(key_type, value_type, Shape::scalar(), shape, Contents::Mutable(map)))
    }

    /// A table that lays out its keys as stock does.
    pub(crate) fn new_dense(device: &Device, value_type: DType, spec: DenseSpec) -> Result<Table> {
        let (key_type, key_shape) = (spec.empty_key.dtype(), spec.empty_key.shape().clone());
        let value_shape = spec.value_shape.clone();
        let contents = Contents::Dense(Dense::new(device, value_type, spec)?);
        Ok(Table::new(key_type, value_type, key_shape, value_shape, contents))
    }

    fn new(
        key_type: DType,
        value_type: DType,
        key_shape: Shape,
        value_shape: Shape,
        contents: Contents,
    ) -> Table {
        Table { key_type, value_type, key_shape, value_shape, contents: RwLock::new(contents) }
    }

    fn read(&self) -> RwLockReadGuard<'_, Contents> {
        self.contents.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Contents> {
        self.contents.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of entries.
    pub(crate) fn size(&self) -> usize {
        match &*self.read() {
            Contents::Static(map, filled) => {
                if *filled {
                    map.len()
                } else {
                    0
                }
            }
            Contents::Mutable(map) => map.len(),
            Contents::Dense(dense) => dense.len(),
        }
    }

    /// The shape of the values of these keys.
    fn values_shape(&self, keys: &Shape) -> Result<Shape> {
        let (dims, suffix) = (keys.dims(), self.key_shape.dims());
        ensure!(
            dims.ends_with(suffix),
            InvalidArgument,
            "Input key shape {keys} must end with the table's key shape {}",
            self.key_shape
        );
        let outer = &dims[..dims.len() - suffix.len()];
        Shape::new(outer.iter().chain(self.value_shape.dims()).copied())
    }

    /// The values of keys, and the default value for those that have none: one for all, or one for each.
    pub(crate) fn find(&self, threads: Threads<'_>, keys: &Tensor, default: &Tensor) -> Result<Tensor> {
        let shape = self.values_shape(keys.shape())?;
        ensure!(
            *default.shape() == self.value_shape || *default.shape() == shape,
            InvalidArgument,
            "Expected shape {} or {shape} for default value, got {}",
            self.value_shape,
            default.shape()
        );
        let contents = self.read();
        match &*contents {
            Contents::Static(map, filled) => {
                ensure!(*filled, FailedPrecondition, "Table not initialized.");
                map.find(threads, keys, default, true, shape)
            }
            Contents::Mutable(map) => map.find(threads, keys, default, false, shape),
            Contents::Dense(dense) => dense.find(threads, keys, default, shape),
        }
    }

    fn check_values(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        let shape = self.values_shape(keys.shape())?;
        ensure!(
            *values.shape() == shape,
            InvalidArgument,
            "Expected shape {shape} for value, got {}",
            values.shape()
        );
        Ok(())
    }

    /// Sets the values of keys.
    pub(crate) fn insert(&self, device: &Device, keys: &Tensor, values: &Tensor) -> Result<()> {
        self.check_values(keys, values)?;
        match &mut *self.write() {
            Contents::Static(..) => {
                bail!(Unimplemented, "Insert not supported by InitializableLookupTable implementations")
            }
            Contents::Mutable(map) => map.insert(keys, values),
            Contents::Dense(dense) => dense.insert(device, keys, values),
        }
    }

    /// Removes keys; those that are not there do not matter.
    pub(crate) fn remove(&self, keys: &Tensor) -> Result<()> {
        self.values_shape(keys.shape())?;
        match &mut *self.write() {
            Contents::Static(..) => {
                bail!(Unimplemented, "Remove not supported by InitializableLookupTable implementations")
            }
            Contents::Mutable(map) => map.remove(keys),
            Contents::Dense(dense) => dense.remove(keys),
        }
    }

    /// Replaces all entries. Static tables take this as their one time.
    pub(crate) fn import(&self, device: &Device, keys: &Tensor, values: &Tensor) -> Result<()> {
        if let Contents::Dense(dense) = &mut *self.write() {
            return dense.import(device, keys, values);
        }
        self.check_values(keys, values)?;
        if let Contents::Mutable(map) = &mut *self.write() {
            map.clear();
            return map.insert(keys, values);
        }
        self.initialize(keys, values)
    }

    /// All keys and values; of dense tables all buckets.
    pub(crate) fn export(&self, device: &Device) -> Result<[Tensor; 2]> {
        match &*self.read() {
            Contents::Static(map, filled) => {
                ensure!(*filled, Aborted, "HashTable is not initialized.");
                map.export(device)
            }
            Contents::Mutable(map) => map.export(device),
            Contents::Dense(dense) => dense.export(),
        }
    }

    /// Whether the table is one that is filled once.
    pub(crate) fn is_initializable(&self) -> bool {
        matches!(&*self.read(), Contents::Static(..))
    }

    /// Whether the table is one that is filled once, and is.
    pub(crate) fn is_filled(&self) -> bool {
        matches!(&*self.read(), Contents::Static(_, true))
    }

    /// Fills a static table. If it is filled, it must have as many entries.
    pub(crate) fn initialize(&self, keys: &Tensor, values: &Tensor) -> Result<()> {
        ensure!(
            keys.rank() == values.rank(),
            InvalidArgument,
            "keys and values should have the same dimension.{} vs {}",
            keys.shape(),
            values.shape()
        );
        ensure!(keys.elements() > 0, InvalidArgument, "keys and values cannot be empty tensors.");
        self.check_values(keys, values)?;
        self.fill(keys.elements(), false, |insert| insert(keys, values))
    }

    /// Fills a static table with what `produce` inserts. If it is filled it stays as it is, which is a mistake if it has
    /// another number of entries than `expected`, unless that `may_differ`. Like stock's, a table that could not be
    /// filled keeps what was inserted.
    pub(crate) fn fill(
        &self,
        expected: usize,
        may_differ: bool,
        produce: impl FnOnce(&mut dyn FnMut(&Tensor, &Tensor) -> Result<()>) -> Result<()>,
    ) -> Result<()> {
        let mut contents = self.write();
        let Contents::Static(map, filled) = &mut *contents else {
            bail!(InvalidArgument, "the table is not initializable");
        };
        if *filled {
            ensure!(
                may_differ || map.len() == expected,
                FailedPrecondition,
                "Table was already initialized with different data."
            );
            return Ok(());
        }
        map.reserve(expected);
        produce(&mut |keys, values| map.insert_new(keys, values))?;
        *filled = true;
        Ok(())
    }
}

/// Keys of one of the three types.
#[derive(Clone, Copy)]
enum Keys<'a> {
    Int32(&'a [i32]),
    Int64(&'a [i64]),
    Texts(&'a [Str]),
}

impl Keys<'_> {
    fn new(keys: &Tensor) -> Result<Keys<'_>> {
        Ok(match keys.dtype() {
            DType::Int32 => Keys::Int32(keys.flat()?),
            DType::Int64 => Keys::Int64(keys.flat()?),
            DType::String => Keys::Texts(keys.flat()?),
            other => bail!(InvalidArgument, "tables have no keys of type {other}"),
        })
    }

    fn len(&self) -> usize {
        match self {
            Keys::Int32(keys) => keys.len(),
            Keys::Int64(keys) => keys.len(),
            Keys::Texts(keys) => keys.len(),
        }
    }

    /// An integer key.
    fn int(&self, at: usize) -> i64 {
        match self {
            Keys::Int32(keys) => keys[at].into(),
            Keys::Int64(keys) => keys[at],
            Keys::Texts(_) => 0,
        }
    }
}

/// Work of a lookup, in units of a simple operation.
const LOOKUP_WORK: usize = 10;

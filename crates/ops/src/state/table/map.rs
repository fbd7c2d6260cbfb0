//! The contents of tables that are ordinary hash maps. Values of up to eight bytes stand beside their keys, others in
//! rows of a column.

use super::column::{Column, gather};
use super::texts::Texts;
use super::{Keys, LOOKUP_WORK};
use crate::support::text;
use ferroflow_core::device::{Device, Threads};
use ferroflow_core::kernel::Str;
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure};
use foldhash::fast::RandomState;
use std::collections::HashMap;

pub(super) struct Map {
    key_type: DType,
    value_type: DType,
    index: Index,
    rows: Option<Rows>,
}

/// Keys, with the bits of their value or the number of its row.
enum Index {
    Ints(HashMap<i64, u64, RandomState>),
    Texts(Texts),
}

impl Index {
    /// Sets the values of keys that they stand beside.
    fn set<U: Bits>(&mut self, keys: Keys<'_>, values: &[U]) {
        let values = values.iter().map(|value| value.to_bits());
        match (self, keys) {
            (Index::Ints(map), Keys::Int64(keys)) => {
                // `extend` would make place for all of them, as if none were there.
                keys.iter().zip(values).for_each(|(key, value)| _ = map.insert(*key, value));
            }
            (Index::Ints(map), Keys::Int32(keys)) => {
                keys.iter().zip(values).for_each(|(key, value)| _ = map.insert(i64::from(*key), value));
            }
            (Index::Texts(map), Keys::Texts(keys)) => {
                keys.iter().zip(values).for_each(|(key, value)| map.set(key, value));
            }
            _ => {}
        }
    }
}

/// Values that do not stand beside their keys.
struct Rows {
    /// Elements per row; of a table of scalars none.
    width: Option<usize>,
    column: Column,
    used: usize,
    /// Rows of removed keys.
    free: Vec<usize>,
}

impl Rows {
    fn width(&self) -> usize {
        self.width.unwrap_or(1)
    }

    /// Puts row `from` of `values` into the row that `place` names, or a new one.
    fn put(&mut self, place: Option<u64>, values: &Tensor, from: usize) -> Result<u64> {
        let row = place.map(|row| row as usize).or_else(|| self.free.pop()).unwrap_or_else(|| {
            self.used += 1;
            self.used - 1
        });
        self.column.set(self.width(), row, values, from)?;
        Ok(row as u64)
    }
}

impl Map {
    /// An empty map; of vectors if it has a width.
    pub(super) fn new(key_type: DType, value_type: DType, width: Option<usize>) -> Map {
        let index = match key_type {
            DType::String => Index::Texts(Texts::new()),
            _ => Index::Ints(HashMap::default()),
        };
        let beside = value_type.is_plain() && width.is_none();
        let rows =
            (!beside).then(|| Rows { width, column: Column::new(value_type), used: 0, free: Vec::new() });
        Map { key_type, value_type, index, rows }
    }

    pub(super) fn len(&self) -> usize {
        match &self.index {
            Index::Ints(map) => map.len(),
            Index::Texts(map) => map.len(),
        }
    }

    pub(super) fn reserve(&mut self, entries: usize) {
        match &mut self.index {
            Index::Ints(map) => map.reserve(entries),
            Index::Texts(map) => map.reserve(entries),
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Map::new(self.key_type, self.value_type, self.rows.as_ref().and_then(|rows| rows.width));
    }

    pub(super) fn find(
        &self,
        threads: Threads<'_>,
        keys: &Tensor,
        default: &Tensor,
        one_default: bool,
        shape: Shape,
    ) -> Result<Tensor> {
        let one_default = one_default || default.elements() != shape.elements();
        let mut out = threads.device().allocate(self.value_type, shape)?;
        let keys = Keys::new(keys)?;
        if keys.len() == 0 {
            return Ok(out);
        }
        if let Some(rows) = &self.rows {
            let row = |at: usize| Ok(self.get(&keys, at).map(|row| row as usize));
            gather(&rows.column, rows.width(), &mut out, default, one_default, &row)?;
            return Ok(out);
        }
        ensure!(default.elements() > 0, InvalidArgument, "the default value has no elements");
        match self.value_type.size() {
            1 => self.find_beside::<u8>(threads, keys, out.units_mut()?, default.units()?, one_default),
            4 => self.find_beside::<u32>(threads, keys, out.units_mut()?, default.units()?, one_default),
            _ => self.find_beside::<u64>(threads, keys, out.units_mut()?, default.units()?, one_default),
        }
        Ok(out)
    }

    /// Looks up values that stand beside their keys.
    fn find_beside<U: Bits>(
        &self,
        threads: Threads<'_>,
        keys: Keys<'_>,
        out: &mut [U],
        default: &[U],
        one_default: bool,
    ) {
        fn look_up<K: Sync, U: Bits>(
            threads: Threads<'_>,
            keys: &[K],
            out: &mut [U],
            default: &[U],
            one_default: bool,
            get: impl Fn(&K) -> Option<u64> + Sync,
        ) {
            threads.parallel_rows(out, 1, LOOKUP_WORK, |first, out| {
                let keys = &keys[first..first + out.len()];
                for (at, (out, key)) in out.iter_mut().zip(keys).enumerate() {
                    let missing = || default[if one_default { 0 } else { first + at }];
                    *out = get(key).map_or_else(missing, U::from_bits);
                }
            });
        }
        match (&self.index, keys) {
            (Index::Ints(map), Keys::Int64(keys)) => {
                look_up(threads, keys, out, default, one_default, |key| map.get(key).copied());
            }
            (Index::Ints(map), Keys::Int32(keys)) => {
                look_up(threads, keys, out, default, one_default, |key| map.get(&i64::from(*key)).copied());
            }
            (Index::Texts(map), Keys::Texts(keys)) => {
                look_up(threads, keys, out, default, one_default, |key| map.get(key));
            }
            _ => {}
        }
    }

    fn get(&self, keys: &Keys<'_>, at: usize) -> Option<u64> {
        match (&self.index, keys) {
            (Index::Ints(map), _) => map.get(&keys.int(at)).copied(),
            (Index::Texts(map), Keys::Texts(keys)) => map.get(&keys[at]),
            _ => None,
        }
    }

    /// The bits of a value that stands beside its key.
    fn bits(values: &Tensor, at: usize) -> Result<u64> {
        Ok(match values.dtype().size() {
            1 => values.units::<u8>()?[at].into(),
            4 => values.units::<u32>()?[at].into(),
            _ => values.units::<u64>()?[at],
        })
    }

    /// Sets the values of keys.
    pub(super) fn insert(&mut self, keys: &Tensor, values: &Tensor) -> Result<()> {
        let keys = Keys::new(keys)?;
        let Some(rows) = &mut self.rows else {
            match self.value_type.size() {
                1 => self.index.set::<u8>(keys, values.units()?),
                4 => self.index.set::<u32>(keys, values.units()?),
                _ => self.index.set::<u64>(keys, values.units()?),
            }
            return Ok(());
        };
        for at in 0..keys.len() {
            match (&mut self.index, keys) {
                (Index::Ints(map), keys) => {
                    let place = rows.put(map.get(&keys.int(at)).copied(), values, at)?;
                    map.insert(keys.int(at), place);
                }
                (Index::Texts(map), Keys::Texts(keys)) => {
                    let place = rows.put(map.get(&keys[at]), values, at)?;
                    map.set(&keys[at], place);
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Sets the values of keys that have none yet, or the same one. Keys share the memory they came in.
    pub(super) fn insert_new(&mut self, keys: &Tensor, values: &Tensor) -> Result<()> {
        let all = Keys::new(keys)?;
        for at in 0..all.len() {
            let Some(present) = self.get(&all, at) else {
                let value = match &mut self.rows {
                    Some(rows) => rows.put(None, values, at)?,
                    None => Map::bits(values, at)?,
                };
                match (&mut self.index, all) {
                    (Index::Ints(map), keys) => _ = map.insert(keys.int(at), value),
                    (Index::Texts(map), Keys::Texts(keys)) => map.add(&keys[at], true, value),
                    _ => {}
                }
                continue;
            };
            let old = self.value(present)?;
            if !is_same(&old, values, at)? {
                bail!(
                    FailedPrecondition,
                    "HashTable has different value for same key. Key {} has {} and trying to add value {}",
                    shown(keys, at)?,
                    shown(&old, 0)?,
                    shown(values, at)?
                );
            }
        }
        Ok(())
    }

    /// A value of a table of scalars.
    fn value(&self, place: u64) -> Result<Tensor> {
        match &self.rows {
            Some(rows) => {
                rows.column.rows(self.value_type, 1, Shape::scalar(), std::iter::once(place as usize))
            }
            None => beside(self.value_type, Shape::scalar(), std::iter::once(place)),
        }
    }

    pub(super) fn remove(&mut self, keys: &Tensor) -> Result<()> {
        let keys = Keys::new(keys)?;
        for at in 0..keys.len() {
            let removed = match (&mut self.index, keys) {
                (Index::Ints(map), keys) => map.remove(&keys.int(at)),
                (Index::Texts(map), Keys::Texts(keys)) => map.remove(&keys[at]),
                _ => None,
            };
            if let (Some(row), Some(rows)) = (removed, &mut self.rows) {
                let width = rows.width();
                rows.column.clear_row(width, row as usize);
                rows.free.push(row as usize);
            }
        }
        Ok(())
    }

    pub(super) fn export(&self, device: &Device) -> Result<[Tensor; 2]> {
        let length = self.len();
        let shape = Shape::vector(length);
        device.check_allocation(self.key_type, &shape)?;
        let (keys, places): (Tensor, Vec<u64>) = match &self.index {
            Index::Texts(map) => {
                let (keys, places) = map.all();
                (Tensor::vector(keys), places)
            }
            Index::Ints(map) => {
                let (keys, places): (Vec<i64>, Vec<u64>) =
                    map.iter().map(|(key, place)| (*key, *place)).unzip();
                let keys = match self.key_type {
                    DType::Int32 => Tensor::vector(keys.into_iter().map(|key| key as i32).collect()),
                    _ => Tensor::vector(keys),
                };
                (keys, places)
            }
        };
        let values = match &self.rows {
            None => beside(self.value_type, shape, places.into_iter())?,
            Some(rows) => {
                let shape = match rows.width {
                    Some(width) => Shape::matrix(length, width),
                    None => shape,
                };
                device.check_allocation(self.value_type, &shape)?;
                let places = places.into_iter().map(|place| place as usize);
                rows.column.rows(self.value_type, rows.width(), shape, places)?
            }
        };
        Ok([keys, values])
    }
}

/// Values that stood beside their keys.
fn beside(dtype: DType, shape: Shape, bits: impl Iterator<Item = u64>) -> Result<Tensor> {
    match dtype.size() {
        1 => Tensor::from_units(dtype, shape, bits.map(|bits| bits as u8).collect()),
        4 => Tensor::from_units(dtype, shape, bits.map(|bits| bits as u32).collect()),
        _ => Tensor::from_units(dtype, shape, bits.collect()),
    }
}

/// A unit that fits into the eight bytes beside a key.
trait Bits: Copy + Send + Sync {
    fn from_bits(bits: u64) -> Self;
    fn to_bits(self) -> u64;
}

impl Bits for u8 {
    fn from_bits(bits: u64) -> u8 {
        bits as u8
    }

    fn to_bits(self) -> u64 {
        self.into()
    }
}

impl Bits for u32 {
    fn from_bits(bits: u64) -> u32 {
        bits as u32
    }

    fn to_bits(self) -> u64 {
        self.into()
    }
}

impl Bits for u64 {
    fn from_bits(bits: u64) -> u64 {
        bits
    }

    fn to_bits(self) -> u64 {
        self
    }
}

/// Whether the only element of `old` equals one of `values`.
fn is_same(old: &Tensor, values: &Tensor, at: usize) -> Result<bool> {
    Ok(match values.dtype() {
        DType::Float => old.flat::<f32>()?[0] == values.flat::<f32>()?[at],
        DType::Double => old.flat::<f64>()?[0] == values.flat::<f64>()?[at],
        DType::String => old.flat::<Str>()?[0] == values.flat::<Str>()?[at],
        _ => Map::bits(old, 0)? == Map::bits(values, at)?,
    })
}

/// An element as messages show it.
fn shown(tensor: &Tensor, at: usize) -> Result<String> {
    Ok(match tensor.dtype() {
        DType::Int32 => tensor.flat::<i32>()?[at].to_string(),
        DType::Int64 => tensor.flat::<i64>()?[at].to_string(),
        DType::Float => text::float(tensor.flat::<f32>()?[at]),
        DType::Double => text::double(tensor.flat::<f64>()?[at]),
        DType::Bool => u8::from(tensor.flat::<bool>()?[at]).to_string(),
        DType::String => String::from_utf8_lossy(&tensor.flat::<Str>()?[at]).into_owned(),
        other => other.to_string(),
    })
}

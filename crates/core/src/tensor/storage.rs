//! The four kinds of storage for elements: plain bytes, strings, handles and variants.

use super::buffer::{Buffer, BufferPool};
use crate::DType;
use crate::resource::ResourceHandle;
use crate::variant::Variant;
use bytes::Bytes;
use std::sync::Arc;

/// The memory of a tensor's elements. Cloning shares.
#[derive(Clone)]
pub enum Storage {
    /// Elements of a fixed size, row-major, little-endian.
    Plain(Buffer),
    /// Byte strings.
    Strings(Arc<Vec<Bytes>>),
    /// Handles of variables, queues, tables.
    Resources(Arc<Vec<ResourceHandle>>),
    /// Values of op-defined types.
    Variants(Arc<Vec<Variant>>),
}

#[derive(PartialEq, Eq)]
pub(super) enum Kind {
    Plain,
    Strings,
    Resources,
    Variants,
}

impl Storage {
    #[inline]
    pub(super) fn kind_of(dtype: DType) -> Kind {
        match dtype {
            DType::String => Kind::Strings,
            DType::Resource => Kind::Resources,
            DType::Variant => Kind::Variants,
            _ => Kind::Plain,
        }
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Storage {
        let mut buffer = Buffer::zeroed(bytes.len());
        buffer.get_mut().expect("a new buffer has one owner").copy_from_slice(bytes);
        Storage::Plain(buffer)
    }

    /// Default elements (zeros, empty strings, empty handles); plain elements are unspecified unless `zero` is set.
    /// `None` if there is no memory for them.
    pub(super) fn new(
        dtype: DType,
        elements: usize,
        pool: Option<&Arc<BufferPool>>,
        zero: bool,
    ) -> Option<Storage> {
        fn filled<T: Default + Clone>(elements: usize) -> Option<Arc<Vec<T>>> {
            let mut values = Vec::new();
            values.try_reserve_exact(elements).ok()?;
            values.resize(elements, T::default());
            Some(Arc::new(values))
        }
        Some(match Storage::kind_of(dtype) {
            Kind::Strings => Storage::Strings(filled(elements)?),
            Kind::Resources => Storage::Resources(filled(elements)?),
            Kind::Variants => Storage::Variants(filled(elements)?),
            Kind::Plain => {
                let bytes = elements.checked_mul(dtype.size())?;
                let mut buffer = match pool {
                    Some(pool) => pool.try_allocate(bytes)?,
                    None => return Buffer::try_zeroed(bytes).map(Storage::Plain),
                };
                if zero {
                    buffer.get_mut().expect("a new buffer has one owner").fill(0);
                }
                Storage::Plain(buffer)
            }
        })
    }

    #[inline]
    pub(super) fn is_unique(&self) -> bool {
        match self {
            Storage::Plain(buffer) => buffer.is_unique(),
            Storage::Strings(values) => Arc::strong_count(values) == 1,
            Storage::Resources(values) => Arc::strong_count(values) == 1,
            Storage::Variants(values) => Arc::strong_count(values) == 1,
        }
    }
}

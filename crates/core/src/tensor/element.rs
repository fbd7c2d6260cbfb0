//! Rust types of tensor elements, and units, the coarser view that data movement needs.

use super::Tensor;
use super::storage::Storage;
use crate::DType;
use crate::resource::ResourceHandle;
use crate::variant::Variant;
use bytes::Bytes;
use half::{bf16, f16};
use num_complex::Complex;

/// Single-precision complex numbers.
pub type C64 = Complex<f32>;
/// Double-precision complex numbers.
pub type C128 = Complex<f64>;

mod sealed {
    use super::Storage;

    pub trait Stored: Clone + Send + Sync + 'static {
        fn view(storage: &Storage) -> Option<&[Self]>;
        fn view_mut(storage: &mut Storage) -> Option<&mut [Self]>;
        fn store(values: Vec<Self>) -> Storage;
        fn store_one(value: Self) -> Storage {
            Self::store(vec![value])
        }
    }
}
pub(super) use sealed::Stored;

/// A type that tensors hold. Arithmetic kernels are generic over it.
pub trait Element: Stored + Default + std::fmt::Debug + PartialEq {
    /// The element type of a tensor of these.
    const DTYPE: DType;
}

/// An element as data movement sees it: its width, or its owned value. Kernels that only move elements are generic over
/// units, which takes a third of the code of being generic over element types.
pub trait Unit: Stored + Default {
    /// Returns whether tensors of this type consist of such units.
    fn fits(dtype: DType) -> bool;
}

macro_rules! plain {
    ($($type:ty => $dtype:ident),+ $(,)?) => {$(
        impl Element for $type {
            const DTYPE: DType = DType::$dtype;
        }
    )+};
}
plain! {
    f16 => Half, bf16 => Bfloat16, f32 => Float, f64 => Double,
    i8 => Int8, i16 => Int16, i32 => Int32, i64 => Int64,
    u8 => Uint8, u16 => Uint16, u32 => Uint32, u64 => Uint64,
    C64 => Complex64, C128 => Complex128, bool => Bool,
    Bytes => String,
}

macro_rules! stored_plain {
    ($($type:ty),+ $(,)?) => {$(
        impl Stored for $type {
            #[inline]
            fn view(storage: &Storage) -> Option<&[$type]> {
                match storage {
                    Storage::Plain(buffer) => bytemuck::try_cast_slice(buffer.as_slice()).ok(),
                    _ => None,
                }
            }
            #[inline]
            fn view_mut(storage: &mut Storage) -> Option<&mut [$type]> {
                match storage {
                    Storage::Plain(buffer) => bytemuck::try_cast_slice_mut(buffer.make_mut()).ok(),
                    _ => None,
                }
            }
            fn store(values: Vec<$type>) -> Storage {
                Storage::from_bytes(bytemuck::cast_slice(&values))
            }
            #[inline]
            fn store_one(value: $type) -> Storage {
                Storage::from_bytes(bytemuck::bytes_of(&value))
            }
        }
    )+};
}
stored_plain!(f16, bf16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, u128, C64, C128);

impl Stored for bool {
    #[inline]
    fn view(storage: &Storage) -> Option<&[bool]> {
        match storage {
            Storage::Plain(buffer) => Some(buffer.as_bools()),
            _ => None,
        }
    }
    #[inline]
    fn view_mut(storage: &mut Storage) -> Option<&mut [bool]> {
        match storage {
            Storage::Plain(buffer) => {
                buffer.make_mut();
                buffer.as_bools_mut()
            }
            _ => None,
        }
    }
    fn store(values: Vec<bool>) -> Storage {
        Storage::from_bytes(bytemuck::cast_slice(&values))
    }
    fn store_one(value: bool) -> Storage {
        Storage::from_bytes(&[value as u8])
    }
}

macro_rules! stored_owned {
    ($($type:ty => $variant:ident),+ $(,)?) => {$(
        impl Stored for $type {
            #[inline]
            fn view(storage: &Storage) -> Option<&[$type]> {
                match storage {
                    Storage::$variant(values) => Some(values),
                    _ => None,
                }
            }
            #[inline]
            fn view_mut(storage: &mut Storage) -> Option<&mut [$type]> {
                match storage {
                    Storage::$variant(values) => Some(std::sync::Arc::make_mut(values).as_mut_slice()),
                    _ => None,
                }
            }
            fn store(values: Vec<$type>) -> Storage {
                Storage::$variant(std::sync::Arc::new(values))
            }
        }
        impl Unit for $type {
            fn fits(dtype: DType) -> bool {
                matches!(Storage::kind_of(dtype), super::storage::Kind::$variant)
            }
        }
    )+};
}
stored_owned!(Bytes => Strings, ResourceHandle => Resources, Variant => Variants);

macro_rules! unit_plain {
    ($($type:ty),+) => {$(
        impl Unit for $type {
            #[inline]
            fn fits(dtype: DType) -> bool {
                dtype.size() == size_of::<$type>()
            }
        }
    )+};
}
unit_plain!(u8, u16, u32, u64, u128);

impl<T: Element> From<T> for Tensor {
    fn from(value: T) -> Tensor {
        Tensor::scalar(value)
    }
}

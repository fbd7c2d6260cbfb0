//! Element types, with the numbers they have on the wire. The Rust types of elements are in [`crate::tensor`].

use crate::{Result, bail};
use std::fmt;

macro_rules! dtypes {
    ($($variant:ident = $number:literal, $name:literal, $size:literal;)+) => {
        /// The type of a tensor's elements. Discriminants are the wire's `DataType` numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DType {
            $(#[doc = concat!("`", $name, "`")] $variant = $number,)+
        }

        impl DType {
            /// Every element type.
            pub const ALL: &'static [DType] = &[$(DType::$variant),+];

            /// The name as `tf.as_dtype` and op signatures spell it.
            pub fn name(self) -> &'static str {
                match self { $(DType::$variant => $name,)+ }
            }

            /// Bytes per element; 0 for strings, resources and variants.
            #[inline]
            pub fn size(self) -> usize {
                match self { $(DType::$variant => $size,)+ }
            }
        }
    };
}

dtypes! {
    Float = 1, "float", 4;
    Double = 2, "double", 8;
    Int32 = 3, "int32", 4;
    Uint8 = 4, "uint8", 1;
    Int16 = 5, "int16", 2;
    Int8 = 6, "int8", 1;
    String = 7, "string", 0;
    Complex64 = 8, "complex64", 8;
    Int64 = 9, "int64", 8;
    Bool = 10, "bool", 1;
    Qint8 = 11, "qint8", 1;
    Quint8 = 12, "quint8", 1;
    Qint32 = 13, "qint32", 4;
    Bfloat16 = 14, "bfloat16", 2;
    Qint16 = 15, "qint16", 2;
    Quint16 = 16, "quint16", 2;
    Uint16 = 17, "uint16", 2;
    Complex128 = 18, "complex128", 16;
    Half = 19, "half", 2;
    Resource = 20, "resource", 0;
    Variant = 21, "variant", 0;
    Uint32 = 22, "uint32", 4;
    Uint64 = 23, "uint64", 8;
    Float8E5M2 = 24, "float8_e5m2", 1;
    Float8E4M3Fn = 25, "float8_e4m3fn", 1;
    Float8E4M3FnUz = 26, "float8_e4m3fnuz", 1;
    Float8E4M3B11FnUz = 27, "float8_e4m3b11fnuz", 1;
    Float8E5M2FnUz = 28, "float8_e5m2fnuz", 1;
    Int4 = 29, "int4", 1;
    Uint4 = 30, "uint4", 1;
    Int2 = 31, "int2", 1;
    Uint2 = 32, "uint2", 1;
}

/// The offset that marks a reference type on the wire.
const REF_OFFSET: i32 = 100;

impl DType {
    /// The type with this wire number; reference types and unknown numbers are errors.
    pub fn from_wire(number: i32) -> Result<DType> {
        match DType::ALL.iter().find(|dtype| **dtype as i32 == number) {
            Some(dtype) => Ok(*dtype),
            None => bail!(InvalidArgument, "{number} is not the number of a DataType"),
        }
    }

    /// Splits a wire number into the base type and whether it is a reference.
    pub fn from_wire_maybe_ref(number: i32) -> Result<(DType, bool)> {
        if number > REF_OFFSET {
            return Ok((DType::from_wire(number - REF_OFFSET)?, true));
        }
        Ok((DType::from_wire(number)?, false))
    }

    /// The wire number.
    pub fn to_wire(self) -> i32 {
        self as i32
    }

    /// The wire number of the type, or of a reference to it.
    pub fn to_wire_maybe_ref(self, is_ref: bool) -> i32 {
        self as i32 + if is_ref { REF_OFFSET } else { 0 }
    }

    /// The type with this name (`float`, `int64`, ...).
    pub fn from_name(name: &str) -> Option<DType> {
        match name {
            "float32" => Some(DType::Float),
            "float64" => Some(DType::Double),
            "float16" => Some(DType::Half),
            _ => DType::ALL.iter().copied().find(|dtype| dtype.name() == name),
        }
    }

    /// Returns whether elements are plain bytes that may be copied and sent without conversion.
    #[inline]
    pub fn is_plain(self) -> bool {
        self.size() != 0
    }

    /// Returns whether this is a real floating-point type.
    pub fn is_floating(self) -> bool {
        matches!(self, DType::Half | DType::Bfloat16 | DType::Float | DType::Double)
    }

    /// Returns whether this is a complex type.
    pub fn is_complex(self) -> bool {
        matches!(self, DType::Complex64 | DType::Complex128)
    }

    /// Returns whether this is an integer type, quantized ones excluded.
    pub fn is_integer(self) -> bool {
        use DType::*;
        matches!(self, Int4 | Int8 | Int16 | Int32 | Int64 | Uint4 | Uint8 | Uint16 | Uint32 | Uint64)
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

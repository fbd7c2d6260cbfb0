//! Element types as numbers: what arithmetic kernels may ask of the type they are generic over.
//!
//! The traits nest: [`Num`] is every number, [`Real`] those with an order, [`Int`] the integers and [`Float`] the
//! floating-point types. Integer arithmetic wraps, as stock's does on every machine it runs on. The 16-bit floats
//! compute in `f32` and round after every operation; loops that want to keep precision go through [`Num::Wide`].

pub(crate) mod dual_loss;
pub(crate) mod hash;
pub mod histogram;
pub(crate) mod mersenne;
pub(crate) mod minimum_degree;
pub mod philox;
pub(crate) mod sampling;
pub(crate) mod sobol;

use ferroflow_core::{C64, C128, Element, bf16, f16};

/// Any number: integers, floats, complex numbers.
pub(crate) trait Num: Element + Copy {
    /// The type that sums are kept in: `f32` for the 16-bit floats, the type itself otherwise.
    type Wide: Num<Wide = Self::Wide>;

    /// Zero.
    const ZERO: Self;
    /// One.
    const ONE: Self;

    /// The sum; wraps.
    fn add(self, other: Self) -> Self;
    /// The difference; wraps.
    fn sub(self, other: Self) -> Self;
    /// The product; wraps.
    fn mul(self, other: Self) -> Self;
    /// The negative; wraps.
    fn neg(self) -> Self;
    /// The quotient: truncated for integers, for which zero divisors give zero (callers report them).
    fn div(self, other: Self) -> Self;
    /// The nearest value of this type (integers: truncated and saturated).
    fn from_f64(value: f64) -> Self;
    /// The value as a sum keeps it.
    fn widen(self) -> Self::Wide;
    /// The nearest value to a sum.
    fn narrow(wide: Self::Wide) -> Self;

    /// Whether this is zero.
    fn is_zero(self) -> bool {
        self == Self::ZERO
    }

    /// One divided by this; zero for infinities, complex ones included.
    fn reciprocal(self) -> Self {
        Self::ONE.div(self)
    }

    /// The complex conjugate; the value itself for real numbers.
    fn conj(self) -> Self {
        self
    }
}

/// A number with an order: integers and floats.
pub(crate) trait Real: Num + PartialOrd {
    /// The least value (−∞ for floats): what a maximum starts from.
    const LOWEST: Self;
    /// The least finite value.
    const LEAST: Self;
    /// The greatest finite value.
    const GREATEST: Self;
    /// The greatest value (+∞ for floats): what a minimum starts from.
    const HIGHEST: Self;

    /// The value in double precision, rounded if need be.
    fn to_f64(self) -> f64;
    /// The absolute value; wraps.
    fn abs(self) -> Self;
    /// −1, 0 (never the negative one) or 1; NaN stays.
    fn sign(self) -> Self;
    /// Whether this is not a number.
    fn is_nan(self) -> bool;
    /// The place in the order of the type, from 0 on: numbers that are equal have one place, and types of up to 32 bits
    /// have places of 32 bits. NaN has none.
    fn place(self) -> u64;

    /// The larger of two; NaN if either is NaN.
    #[inline(always)]
    fn maximum(self, other: Self) -> Self {
        // The first choice is one instruction.
        let larger = if self > other { self } else { other };
        if self.is_nan() { self } else { larger }
    }

    /// The smaller of two; NaN if either is NaN.
    #[inline(always)]
    fn minimum(self, other: Self) -> Self {
        let smaller = if self < other { self } else { other };
        if self.is_nan() { self } else { smaller }
    }

    /// The larger of two; the first if it is not less, or if they have no order.
    #[inline(always)]
    fn raised(self, other: Self) -> Self {
        if self < other { other } else { self }
    }

    /// The smaller of two; the first if it is not greater, or if they have no order.
    #[inline(always)]
    fn lowered(self, other: Self) -> Self {
        if other < self { other } else { self }
    }
}

/// An integer.
pub(crate) trait Int: Real + Ord {
    /// Bits per value.
    const BITS: u32;
    /// Whether values may be negative.
    const SIGNED: bool;

    /// The value, wrapped into 64 bits (unsigned 64-bit values above the middle become negative).
    fn to_i64(self) -> i64;
    /// The low bits of a wider value.
    fn from_i64(value: i64) -> Self;
    /// Bits set in both.
    fn and(self, other: Self) -> Self;
    /// Bits set in either.
    fn or(self, other: Self) -> Self;
    /// Bits set in one alone.
    fn xor(self, other: Self) -> Self;
    /// Every bit flipped.
    fn not(self) -> Self;
    /// Shifted left by this many bits, fewer than the width.
    fn shift_left(self, bits: u32) -> Self;
    /// Shifted right by this many bits, fewer than the width; the sign is kept.
    fn shift_right(self, bits: u32) -> Self;
    /// The remainder of the truncated quotient; zero for zero divisors (callers report them).
    fn rem(self, other: Self) -> Self;
}

/// A floating-point number. Functions of [`Float::Math`] do the work; the 16-bit types round their results.
pub(crate) trait Float: Real {
    /// The type that functions are computed in: `f64` for `f64`, `f32` otherwise.
    type Math: Math;

    /// The value as functions take it.
    fn to_math(self) -> Self::Math;
    /// The nearest value to a function's result.
    fn from_math(value: Self::Math) -> Self;
    /// Whether this is neither infinite nor NaN.
    fn is_finite(self) -> bool;
}

/// A type with a full set of functions: `f32` and `f64`.
pub(crate) trait Math: Float<Math = Self> + num_traits::Float {}
impl Math for f32 {}
impl Math for f64 {}

macro_rules! integers {
    ($($type:ty, $signed:literal, $abs:expr, $sign:expr;)+) => {$(
        impl Num for $type {
            type Wide = $type;
            const ZERO: $type = 0;
            const ONE: $type = 1;
            #[inline(always)]
            fn add(self, other: $type) -> $type { self.wrapping_add(other) }
            #[inline(always)]
            fn sub(self, other: $type) -> $type { self.wrapping_sub(other) }
            #[inline(always)]
            fn mul(self, other: $type) -> $type { self.wrapping_mul(other) }
            #[inline(always)]
            fn neg(self) -> $type { self.wrapping_neg() }
            #[inline(always)]
            fn div(self, other: $type) -> $type { if other == 0 { 0 } else { self.wrapping_div(other) } }
            #[inline(always)]
            fn from_f64(value: f64) -> $type { value as $type }
            #[inline(always)]
            fn widen(self) -> $type { self }
            #[inline(always)]
            fn narrow(wide: $type) -> $type { wide }
        }
        impl Real for $type {
            const LOWEST: $type = <$type>::MIN;
            const LEAST: $type = <$type>::MIN;
            const GREATEST: $type = <$type>::MAX;
            const HIGHEST: $type = <$type>::MAX;
            #[inline(always)]
            fn to_f64(self) -> f64 { self as f64 }
            #[inline(always)]
            fn abs(self) -> $type { $abs(self) }
            #[inline(always)]
            fn sign(self) -> $type { $sign(self) }
            #[inline(always)]
            fn is_nan(self) -> bool { false }
            #[inline(always)]
            fn place(self) -> u64 { (self as u64).wrapping_sub(<$type>::MIN as u64) }
        }
        impl Int for $type {
            const BITS: u32 = <$type>::BITS;
            const SIGNED: bool = $signed;
            #[inline(always)]
            fn to_i64(self) -> i64 { self as i64 }
            #[inline(always)]
            fn from_i64(value: i64) -> $type { value as $type }
            #[inline(always)]
            fn and(self, other: $type) -> $type { self & other }
            #[inline(always)]
            fn or(self, other: $type) -> $type { self | other }
            #[inline(always)]
            fn xor(self, other: $type) -> $type { self ^ other }
            #[inline(always)]
            fn not(self) -> $type { !self }
            #[inline(always)]
            fn shift_left(self, bits: u32) -> $type { self.wrapping_shl(bits) }
            #[inline(always)]
            fn shift_right(self, bits: u32) -> $type { self.wrapping_shr(bits) }
            #[inline(always)]
            fn rem(self, other: $type) -> $type { if other == 0 { 0 } else { self.wrapping_rem(other) } }
        }
    )+};
}
integers! {
    i8, true, i8::wrapping_abs, i8::signum;
    i16, true, i16::wrapping_abs, i16::signum;
    i32, true, i32::wrapping_abs, i32::signum;
    i64, true, i64::wrapping_abs, i64::signum;
    u8, false, std::convert::identity, |x: u8| x.min(1);
    u16, false, std::convert::identity, |x: u16| x.min(1);
    u32, false, std::convert::identity, |x: u32| x.min(1);
    u64, false, std::convert::identity, |x: u64| x.min(1);
}

/// A float by way of the type it computes in: `$to` and `$from` convert.
macro_rules! floats {
    ($($type:ty, $wide:ty, $zero:expr, $one:expr, $lowest:expr, $highest:expr, $to:expr, $from:expr;)+) => {$(
        impl Num for $type {
            type Wide = $wide;
            const ZERO: $type = $zero;
            const ONE: $type = $one;
            #[inline(always)]
            fn add(self, other: $type) -> $type { $from($to(self) + $to(other)) }
            #[inline(always)]
            fn sub(self, other: $type) -> $type { $from($to(self) - $to(other)) }
            #[inline(always)]
            fn mul(self, other: $type) -> $type { $from($to(self) * $to(other)) }
            #[inline(always)]
            fn neg(self) -> $type { -self }
            #[inline(always)]
            fn div(self, other: $type) -> $type { $from($to(self) / $to(other)) }
            #[inline(always)]
            fn from_f64(value: f64) -> $type { $from(value as $wide) }
            #[inline(always)]
            fn widen(self) -> $wide { $to(self) }
            #[inline(always)]
            fn narrow(wide: $wide) -> $type { $from(wide) }
        }
        impl Real for $type {
            const LOWEST: $type = $lowest;
            const LEAST: $type = <$type>::MIN;
            const GREATEST: $type = <$type>::MAX;
            const HIGHEST: $type = $highest;
            #[inline(always)]
            fn to_f64(self) -> f64 { $to(self) as f64 }
            #[inline(always)]
            fn abs(self) -> $type { $from($to(self).abs()) }
            #[inline(always)]
            fn sign(self) -> $type {
                let x = $to(self);
                if x > 0.0 { Self::ONE } else if x < 0.0 { -Self::ONE } else if x == 0.0 { Self::ZERO } else { self }
            }
            #[inline(always)]
            fn is_nan(self) -> bool { <$type>::is_nan(self) }
            #[inline(always)]
            fn place(self) -> u64 {
                // The sum makes zeros positive, and subnormal numbers zeros where they count as such.
                let bits = ($to(self) + 0.0).to_bits();
                let sign = 1 << (8 * size_of::<$wide>() - 1);
                (if bits & sign == 0 { bits | sign } else { !bits }).into()
            }
        }
        impl Float for $type {
            type Math = $wide;
            #[inline(always)]
            fn to_math(self) -> $wide { $to(self) }
            #[inline(always)]
            fn from_math(value: $wide) -> $type { $from(value) }
            #[inline(always)]
            fn is_finite(self) -> bool { <$type>::is_finite(self) }
        }
    )+};
}
floats! {
    f32, f32, 0.0, 1.0, f32::NEG_INFINITY, f32::INFINITY, std::convert::identity::<f32>, std::convert::identity::<f32>;
    f64, f64, 0.0, 1.0, f64::NEG_INFINITY, f64::INFINITY, std::convert::identity::<f64>, std::convert::identity::<f64>;
    f16, f32, f16::ZERO, f16::ONE, f16::NEG_INFINITY, f16::INFINITY, f16::to_f32, f16::from_f32;
    bf16, f32, bf16::ZERO, bf16::ONE, bf16::NEG_INFINITY, bf16::INFINITY, bf16::to_f32, bf16::from_f32;
}

macro_rules! complexes {
    ($($type:ty, $part:ty;)+) => {$(
        impl Num for $type {
            type Wide = $type;
            const ZERO: $type = <$type>::new(0.0, 0.0);
            const ONE: $type = <$type>::new(1.0, 0.0);
            #[inline(always)]
            fn add(self, other: $type) -> $type { self + other }
            #[inline(always)]
            fn sub(self, other: $type) -> $type { self - other }
            #[inline(always)]
            fn mul(self, other: $type) -> $type { self * other }
            #[inline(always)]
            fn neg(self) -> $type { -self }
            #[inline(always)]
            fn div(self, other: $type) -> $type {
                // Scaled by the larger part, so that squares neither overflow nor vanish.
                let scale = other.re.abs().max(other.im.abs());
                let scaled = other.unscale(scale);
                (self * scaled.conj()).unscale(scaled.norm_sqr()).unscale(scale)
            }
            #[inline(always)]
            fn from_f64(value: f64) -> $type { <$type>::new(value as $part, 0.0) }
            #[inline(always)]
            fn widen(self) -> $type { self }
            #[inline(always)]
            fn narrow(wide: $type) -> $type { wide }
            #[inline(always)]
            fn reciprocal(self) -> $type {
                if self.re.is_infinite() || self.im.is_infinite() { Self::ZERO } else { Self::ONE.div(self) }
            }
            #[inline(always)]
            fn conj(self) -> $type { <$type>::conj(&self) }
        }
    )+};
}
complexes! {
    C64, f32;
    C128, f64;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_wrap_and_never_trap() {
        assert_eq!(Num::add(i8::MAX, 1), i8::MIN);
        assert_eq!(Num::div(i32::MIN, -1), i32::MIN);
        assert_eq!(Num::div(5i32, 0), 0);
        assert_eq!(Int::rem(i64::MIN, -1), 0);
        assert_eq!(Real::abs(i16::MIN), i16::MIN);
    }

    #[test]
    fn extremes_pass_nan_on() {
        assert!(Real::maximum(f32::NAN, 1.0).is_nan());
        assert!(Real::minimum(1.0, f32::NAN).is_nan());
        assert_eq!(Real::maximum(1.0f32, 2.0), 2.0);
    }

    #[test]
    fn places_have_the_order_of_their_numbers() {
        fn ascend<T: Real>(numbers: &[T]) {
            let places: Vec<u64> = numbers.iter().map(|x| x.place()).collect();
            assert!(places.is_sorted_by(|a, b| a < b), "{places:?}");
            assert!(size_of::<T>() > 4 || places.iter().all(|place| *place <= u32::MAX.into()), "{places:?}");
        }
        ascend(&[i8::MIN, -1, 0, 1, i8::MAX]);
        ascend(&[i64::MIN, -1, 0, 1, i64::MAX]);
        ascend(&[0, 1, u32::MAX]);
        ascend(&[f32::NEG_INFINITY, f32::MIN, -1.5, -1.0, 0.0, 1.0, 1.5, f32::MAX, f32::INFINITY]);
        ascend(&[f64::NEG_INFINITY, -1.0, 0.0, 1.0, f64::INFINITY]);
        ascend(&[f16::NEG_INFINITY, f16::NEG_ONE, f16::ZERO, f16::ONE, f16::INFINITY]);
        assert_eq!(Real::place(-0.0f32), Real::place(0.0f32));
    }
}

//! The numbers that matrices are made of: real and complex, in two precisions.

use crate::linalg::product::Subtract;
use crate::numeric::Num;
use ferroflow_core::{C64, C128};
use num_complex::Complex;
use std::ops::{Add, AddAssign, Div, Mul, Neg, Sub, SubAssign};

/// A number with a real and an imaginary part, the latter zero for real types.
pub(crate) trait Scalar:
    Num
    + Subtract
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
{
    /// The type of the parts.
    type Real: Scalar<Real = Self::Real> + num_traits::Float;
    /// The same precision with an imaginary part.
    type Complex: Scalar<Real = Self::Real, Complex = Self::Complex>;

    /// Whether there is an imaginary part.
    const COMPLEX: bool;

    fn real(self) -> Self::Real;
    fn imaginary(self) -> Self::Real;
    /// The number of these parts; a real type has no place for the second.
    fn from_parts(real: Self::Real, imaginary: Self::Real) -> Self;
    /// The square of the absolute value.
    fn square(self) -> Self::Real;
    /// The product with a real number.
    fn scaled(self, factor: Self::Real) -> Self;
    /// The number with more digits.
    fn to_double(self) -> C128;
    /// The nearest number to one with more digits.
    fn from_double(value: C128) -> Self;

    /// The value of failures: not a number, or zero if complex, because stock's language has no other there.
    fn failure() -> Self {
        if Self::COMPLEX { Self::ZERO } else { Self::from_real(num_traits::Float::nan()) }
    }

    fn from_real(real: Self::Real) -> Self {
        Self::from_parts(real, Self::Real::ZERO)
    }

    /// The absolute value.
    fn modulus(self) -> Self::Real {
        num_traits::Float::hypot(self.real(), self.imaginary())
    }

    /// The sum of the absolute values of the parts.
    fn size(self) -> Self::Real {
        num_traits::Float::abs(self.real()) + num_traits::Float::abs(self.imaginary())
    }

    fn is_finite(self) -> bool {
        num_traits::Float::is_finite(self.real()) && num_traits::Float::is_finite(self.imaginary())
    }

    /// The number of absolute value one in this one's direction; one for zero.
    fn phase(self) -> Self {
        let modulus = self.modulus();
        // The reciprocal of a huge absolute value would be too small a number.
        let part = |part: Self::Real| part / modulus;
        if modulus == Self::Real::ZERO {
            Self::ONE
        } else {
            Self::from_parts(part(self.real()), part(self.imaginary()))
        }
    }
}

macro_rules! scalars {
    ($($real:ty, $complex:ty);+) => {$(
        impl Scalar for $real {
            type Real = $real;
            type Complex = $complex;
            const COMPLEX: bool = false;
            #[inline(always)]
            fn real(self) -> $real { self }
            #[inline(always)]
            fn imaginary(self) -> $real { 0.0 }
            #[inline(always)]
            fn from_parts(real: $real, _: $real) -> $real { real }
            #[inline(always)]
            fn square(self) -> $real { self * self }
            #[inline(always)]
            fn scaled(self, factor: $real) -> $real { self * factor }
            fn to_double(self) -> C128 { Complex::new(self.into(), 0.0) }
            fn from_double(value: C128) -> $real { value.re as $real }
            fn modulus(self) -> $real { self.abs() }
            fn phase(self) -> $real { if self == 0.0 { 1.0 } else { self.signum() } }
            fn size(self) -> $real { self.abs() }
        }
        impl Scalar for $complex {
            type Real = $real;
            type Complex = $complex;
            const COMPLEX: bool = true;
            #[inline(always)]
            fn real(self) -> $real { self.re }
            #[inline(always)]
            fn imaginary(self) -> $real { self.im }
            #[inline(always)]
            fn from_parts(real: $real, imaginary: $real) -> $complex { Complex::new(real, imaginary) }
            #[inline(always)]
            fn square(self) -> $real { self.re * self.re + self.im * self.im }
            #[inline(always)]
            fn scaled(self, factor: $real) -> $complex { Complex::new(self.re * factor, self.im * factor) }
            fn to_double(self) -> C128 { Complex::new(self.re.into(), self.im.into()) }
            fn from_double(value: C128) -> $complex { Complex::new(value.re as $real, value.im as $real) }
        }
    )+};
}

scalars!(f32, C64; f64, C128);

/// Sums that a product of vectors is kept in, so that it need not wait for one addition after the other.
const LANES: usize = 16;

/// The sum of products of elements; both have as many.
#[inline(always)]
pub(super) fn dot<T: Scalar>(x: &[T], y: &[T]) -> T {
    let ((x_lanes, x_rest), (y_lanes, y_rest)) = (x.as_chunks::<LANES>(), y.as_chunks::<LANES>());
    let mut rest = T::ZERO;
    for (x, y) in x_rest.iter().zip(y_rest) {
        rest += *x * *y;
    }
    if x_lanes.is_empty() {
        return rest;
    }
    let mut sums = [T::ZERO; LANES];
    for (x, y) in x_lanes.iter().zip(y_lanes) {
        for lane in 0..LANES {
            sums[lane] += x[lane] * y[lane];
        }
    }
    sums.into_iter().fold(rest, |sum, x| sum + x)
}

/// Subtracts a multiple of one row from another.
#[inline(always)]
pub(super) fn subtract_multiple<T: Scalar>(row: &mut [T], factor: T, other: &[T]) {
    for (x, y) in row.iter_mut().zip(other) {
        *x -= factor * *y;
    }
}

/// The largest [`Scalar::size`]; not finite if one of them is not.
#[allow(clippy::neg_cmp_op_on_partial_ord)]
pub(super) fn largest<T: Scalar>(values: &[T]) -> T::Real {
    let mut most = T::Real::ZERO;
    for value in values {
        let size = value.size();
        // Written so that what is not a number stays.
        if !(size <= most) {
            most = size;
            if !value.is_finite() {
                break;
            }
        }
    }
    most
}

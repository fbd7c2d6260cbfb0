//! Functions of one number, for floats and complex numbers alike. The 16-bit floats compute in
//! `f32` and round once, but for the sigmoid.

use super::complex;
use super::elementary::Elementary;
use crate::numeric::{Float, Num};
use ferroflow_core::{C64, C128, bf16, f16};

/// Functions that stock has for floats and for complex numbers.
pub(crate) trait Functions: Num {
    /// The square root.
    fn sqrt(self) -> Self;
    /// One over the square root.
    fn rsqrt(self) -> Self;
    /// One over the number.
    fn recip(self) -> Self;
    /// eˣ.
    fn exp(self) -> Self;
    /// eˣ − 1.
    fn exp_m1(self) -> Self;
    /// The natural logarithm.
    fn ln(self) -> Self;
    /// ln(1 + x).
    fn ln_1p(self) -> Self;
    /// The sine.
    fn sin(self) -> Self;
    /// The cosine.
    fn cos(self) -> Self;
    /// The tangent.
    fn tan(self) -> Self;
    /// The inverse sine.
    fn asin(self) -> Self;
    /// The inverse cosine.
    fn acos(self) -> Self;
    /// The inverse tangent.
    fn atan(self) -> Self;
    /// The hyperbolic sine.
    fn sinh(self) -> Self;
    /// The hyperbolic cosine.
    fn cosh(self) -> Self;
    /// The hyperbolic tangent.
    fn tanh(self) -> Self;
    /// The inverse hyperbolic sine.
    fn asinh(self) -> Self;
    /// The inverse hyperbolic cosine.
    fn acosh(self) -> Self;
    /// The inverse hyperbolic tangent.
    fn atanh(self) -> Self;
    /// 1 / (1 + e⁻ˣ).
    fn sigmoid(self) -> Self;
    /// The number over its absolute value; zero for zero.
    fn unit(self) -> Self;
    /// `self` to the power of `exponent`.
    fn pow(self, exponent: Self) -> Self;
    /// The sine of a small angle.
    fn small_sin(self) -> Self;
    /// The cosine of a small angle.
    fn small_cos(self) -> Self;
}

/// Beyond this, the inverse hyperbolic functions are logarithms to the last bit.
const SQUARABLE: f32 = 1e9;
const LN_2: f64 = std::f64::consts::LN_2;

macro_rules! float_functions {
    (@methods $type:ty: $($name:ident => $inner:ident),+ $(,)?) => {$(
        #[inline(always)]
        fn $name(self) -> $type {
            <$type>::from_math(self.to_math().$inner())
        }
    )+};
    ($($type:ty: $sigmoid:path),+ $(,)?) => {$(
        impl Functions for $type {
            float_functions!(@methods $type:
                sqrt => sqrt, recip => recip, exp => fast_exp, exp_m1 => fast_exp_m1, ln => fast_ln,
                ln_1p => fast_ln_1p, sin => sin, cos => cos, tan => tan, asin => asin, acos => acos, atan => atan,
                sinh => sinh, cosh => cosh, tanh => fast_tanh, atanh => atanh,
                small_sin => fast_sin, small_cos => fast_cos,
            );
            #[inline(always)]
            fn sigmoid(self) -> $type {
                $sigmoid(self)
            }
            #[inline(always)]
            fn rsqrt(self) -> $type {
                <$type>::from_math(self.to_math().sqrt().recip())
            }
            fn asinh(self) -> $type {
                let x = self.to_math();
                let large = (x.abs().ln() + LN_2 as <$type as Float>::Math).copysign(x);
                <$type>::from_math(if x.abs() > SQUARABLE.into() { large } else { x.asinh() })
            }
            fn acosh(self) -> $type {
                let x = self.to_math();
                <$type>::from_math(if x > SQUARABLE.into() { x.ln() + LN_2 as <$type as Float>::Math } else { x.acosh() })
            }
            #[inline(always)]
            fn unit(self) -> $type {
                crate::numeric::Real::sign(self)
            }
            #[inline(always)]
            fn pow(self, exponent: $type) -> $type {
                let (x, exponent) = (self.to_math(), exponent.to_math());
                // Squares and their derivatives are most of the powers that programs write.
                <$type>::from_math(match exponent {
                    1.0 => x,
                    2.0 => x * x,
                    _ => x.powf(exponent),
                })
            }
        }
    )+};
}
float_functions!(
    f16: sigmoid_in_steps, bf16: sigmoid_in_steps, f32: Elementary::fast_sigmoid, f64: Elementary::fast_sigmoid,
);

/// The sigmoid of a 16-bit float: stock rounds the exponential and the sum to 16 bits, too.
#[inline(always)]
fn sigmoid_in_steps<T: Float>(x: T) -> T
where
    T::Math: Elementary,
{
    let power = T::from_math(x.to_math().fast_exp());
    let sum = Num::add(power, T::ONE);
    // Where the exponential overflows the quotient is not a number.
    if x > T::ONE && !sum.is_finite() { T::ONE } else { Num::div(power, sum) }
}

macro_rules! complex_functions {
    (@methods $type:ty: $($name:ident => $inner:ident),+ $(,)?) => {$(
        #[inline(always)]
        fn $name(self) -> $type {
            <$type>::$inner(self)
        }
    )+};
    (@inverse $type:ty, $part:ty: $($name:ident),+) => {$(
        fn $name(self) -> $type {
            let value = complex::$name(C128::new(self.re.into(), self.im.into()));
            <$type>::new(value.re as $part, value.im as $part)
        }
    )+};
    ($($type:ty, $part:ty);+) => {$(
        impl Functions for $type {
            complex_functions!(@methods $type:
                sqrt => sqrt, exp => exp, small_sin => sin, small_cos => cos,
            );
            fn sin(self) -> $type {
                match complex::far_along(self.im, self.re) {
                    Some((cos, sin)) => <$type>::new(sin, cos * self.im.signum()),
                    None => <$type>::sin(self),
                }
            }
            fn cos(self) -> $type {
                match complex::far_along(self.im, self.re) {
                    Some((cos, sin)) => <$type>::new(cos, -sin * self.im.signum()),
                    None => <$type>::cos(self),
                }
            }
            fn sinh(self) -> $type {
                match complex::far_along(self.re, self.im) {
                    Some((cos, sin)) => <$type>::new(cos * self.re.signum(), sin),
                    None => <$type>::sinh(self),
                }
            }
            fn cosh(self) -> $type {
                match complex::far_along(self.re, self.im) {
                    Some((cos, sin)) => <$type>::new(cos, sin * self.re.signum()),
                    None => <$type>::cosh(self),
                }
            }
            complex_functions!(@inverse $type, $part: asin, acos, atan, asinh, acosh, atanh);
            fn tan(self) -> $type {
                let turned = Functions::tanh(<$type>::new(-self.im, self.re));
                <$type>::new(turned.im, -turned.re)
            }
            #[inline(always)]
            fn ln(self) -> $type {
                <$type>::new(self.re.hypot(self.im).ln(), self.im.atan2(self.re))
            }
            fn exp_m1(self) -> $type {
                // e^(x + iy) − 1 = (eˣ − 1) cos y − 2 sin²(y/2) + i eˣ sin y, without cancellation near zero.
                let half = (self.im * 0.5).sin();
                let grown = self.re.exp_m1();
                <$type>::new(grown * self.im.cos() - 2.0 * half * half, (grown + 1.0) * self.im.sin())
            }
            fn ln_1p(self) -> $type {
                let sum = <$type>::new(1.0 + self.re, self.im);
                if sum.re == 1.0 && sum.im.abs() < <$part>::EPSILON {
                    return self;
                }
                // ln|1 + z| from |1 + z|² − 1 = 2x + x² + y².
                let squared = self.re * (2.0 + self.re) + self.im * self.im;
                let magnitude = if squared.abs() < 0.5 {
                    0.5 * squared.ln_1p()
                } else {
                    sum.re.hypot(sum.im).ln()
                };
                <$type>::new(magnitude, sum.im.atan2(sum.re))
            }
            fn tanh(self) -> $type {
                // The quotient of large sinh and cosh overflows; past this point the result is ±1 to the last bit.
                if self.re.abs() > 20.0 {
                    return <$type>::new((1.0 as $part).copysign(self.re), 0.0);
                }
                // By the tangent, which stays finite beside the poles, where a quotient of sums would divide by zero.
                let (tangent, sinh) = (self.im.tan(), self.re.sinh());
                let slope = 1.0 + tangent * tangent;
                let below = 1.0 + slope * sinh * sinh;
                <$type>::new(slope * (1.0 + sinh * sinh).sqrt() * sinh / below, tangent / below)
            }
            #[inline(always)]
            fn recip(self) -> $type {
                Num::div(<$type>::ONE, self)
            }
            #[inline(always)]
            fn rsqrt(self) -> $type {
                if self.re.is_infinite() || self.im.is_infinite() {
                    return <$type>::ZERO;
                }
                Functions::recip(<$type>::sqrt(self))
            }
            #[inline(always)]
            fn sigmoid(self) -> $type {
                Num::div(<$type>::ONE, <$type>::ONE + <$type>::exp(-self))
            }
            #[inline(always)]
            fn unit(self) -> $type {
                let size = self.re.hypot(self.im);
                if size == 0.0 { <$type>::ZERO } else { self.unscale(size) }
            }
            #[inline(always)]
            fn pow(self, exponent: $type) -> $type {
                if self == <$type>::ZERO {
                    // By way of the logarithm, as in stock: zero to the power of zero is not a number.
                    return if exponent.re > 0.0 { <$type>::ZERO } else { <$type>::new(<$part>::NAN, <$part>::NAN) };
                }
                if exponent == <$type>::ZERO && !self.is_finite() {
                    return <$type>::new(<$part>::NAN, <$part>::NAN);
                }
                self.powc(exponent)
            }
        }
    )+};
}
complex_functions!(C64, f32; C128, f64);

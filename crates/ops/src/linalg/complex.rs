//! Functions of complex numbers: the inverse ones in double precision, with the cuts of C's library, and large ones.
//!
//! After W. Kahan, "Branch cuts for complex elementary functions": products of square roots do not lose digits where
//! the square of the argument would.

use ferroflow_core::C128;
use num_traits::Float;
use std::f64::consts::{FRAC_PI_2, FRAC_PI_4, LN_2, PI};

/// Beyond this size squares are not taken.
const LARGE: f64 = 1e150;

/// The cosine and the sine of an angle times `cosh(far)`, where that alone overflows although the products need not;
/// `None` elsewhere.
pub(crate) fn far_along<T: Float>(far: T, angle: T) -> Option<(T, T)> {
    let largest = T::max_value().ln();
    if far.abs() <= largest || !far.is_finite() {
        return None;
    }
    let two = T::one() + T::one();
    // In two factors, each of which is finite: nothing is left of larger ones but infinity.
    let root = (far.abs().min(largest + largest - two) / two).exp();
    let (sin, cos) = angle.sin_cos();
    Some((cos / two * root * root, sin / two * root * root))
}

/// The inverse sine.
pub(crate) fn asin(z: C128) -> C128 {
    if z.re.is_nan() || z.im.is_nan() {
        return match (z.re == 0.0, z.re.is_infinite() || z.im.is_infinite()) {
            (true, _) => z,
            (_, true) => C128::new(f64::NAN, f64::INFINITY.copysign(z.im)),
            _ => C128::new(f64::NAN, f64::NAN),
        };
    }
    if is_far(z) {
        let turned = asinh_far(C128::new(-z.im, z.re));
        return C128::new(turned.im, -turned.re);
    }
    let (below, above) = (sqrt(from_one(z)), sqrt(1.0 + z));
    C128::new(z.re.atan2((below * above).re), (below.conj() * above).im.asinh())
}

/// The inverse cosine.
pub(crate) fn acos(z: C128) -> C128 {
    if !z.is_finite() {
        let other = asin(z);
        return C128::new(FRAC_PI_2 - other.re, -other.im);
    }
    if is_far(z) {
        return C128::new(z.im.abs().atan2(z.re), ln_double(z).copysign(-z.im));
    }
    let (below, above) = (sqrt(from_one(z)), sqrt(1.0 + z));
    C128::new(2.0 * below.re.atan2(above.re), (above.conj() * below).im.asinh())
}

/// The inverse hyperbolic sine.
pub(crate) fn asinh(z: C128) -> C128 {
    if is_far(z) {
        return asinh_far(z);
    }
    let turned = asin(C128::new(-z.im, z.re));
    C128::new(turned.im, -turned.re)
}

/// The inverse hyperbolic cosine.
pub(crate) fn acosh(z: C128) -> C128 {
    if z.im.is_infinite() {
        let angle = match z.re {
            re if re.is_nan() => f64::NAN,
            f64::INFINITY => FRAC_PI_4,
            f64::NEG_INFINITY => PI - FRAC_PI_4,
            _ => FRAC_PI_2,
        };
        return C128::new(f64::INFINITY, angle.copysign(z.im));
    }
    if z.re.is_infinite() {
        let angle: f64 = if z.re < 0.0 { PI } else { 0.0 };
        return C128::new(f64::INFINITY, if z.im.is_nan() { f64::NAN } else { angle.copysign(z.im) });
    }
    if z.re.is_nan() || z.im.is_nan() {
        return C128::new(f64::NAN, if z.re == 0.0 { FRAC_PI_2 } else { f64::NAN });
    }
    if is_far(z) {
        return C128::new(ln_double(z), z.im.atan2(z.re));
    }
    let (below, above) = (sqrt(z - 1.0), sqrt(z + 1.0));
    C128::new((below.conj() * above).re.asinh(), 2.0 * below.im.atan2(above.re))
}

/// Whether a number has no finite square, or is none.
fn is_far(z: C128) -> bool {
    !z.is_finite() || z.re.abs() > LARGE || z.im.abs() > LARGE
}

/// The logarithm of twice a large number's size.
fn ln_double(z: C128) -> f64 {
    (z.re / 2.0).hypot(z.im / 2.0).ln() + 2.0 * LN_2
}

/// The inverse hyperbolic sine far from zero, and of what is not a number, as C's standard has it.
fn asinh_far(z: C128) -> C128 {
    if z.im.is_infinite() {
        let angle = if z.re.is_infinite() { FRAC_PI_4 } else { FRAC_PI_2 };
        let im = if z.re.is_nan() { f64::NAN } else { angle.copysign(z.im) };
        return C128::new(f64::INFINITY.copysign(z.re), im);
    }
    if !z.re.is_finite() {
        let is_real = (z.re.is_infinite() && z.im.is_finite()) || z.im == 0.0;
        return C128::new(z.re, if is_real { 0.0f64.copysign(z.im) } else { f64::NAN });
    }
    if z.im.is_nan() {
        return C128::new(f64::NAN, f64::NAN);
    }
    C128::new(ln_double(z).copysign(z.re), z.im.atan2(z.re.abs()))
}

/// The inverse hyperbolic tangent.
pub(crate) fn atanh(z: C128) -> C128 {
    if z.re.is_nan() || z.im.is_nan() {
        return C128::new(f64::NAN, f64::NAN);
    }
    if z.re.abs().max(z.im.abs()) > LARGE {
        return C128::new((1.0 / z.re.hypot(z.im)).copysign(z.re), FRAC_PI_2.copysign(z.im));
    }
    let beside = 1.0 - z.re;
    let re = 0.25 * (4.0 * z.re / (beside * beside + z.im * z.im)).ln_1p();
    C128::new(re, 0.5 * (2.0 * z.im).atan2(beside * (1.0 + z.re) - z.im * z.im))
}

/// The inverse tangent.
pub(crate) fn atan(z: C128) -> C128 {
    let turned = atanh(C128::new(-z.im, z.re));
    C128::new(turned.im, -turned.re)
}

/// 1 − z, with the sign of a zero that tells the sides of a cut apart.
fn from_one(z: C128) -> C128 {
    C128::new(1.0 - z.re, -z.im)
}

fn sqrt(z: C128) -> C128 {
    if z.re == f64::INFINITY && z.im.is_finite() {
        return C128::new(f64::INFINITY, 0.0f64.copysign(z.im));
    }
    z.sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_undo_their_inverses() {
        for (re, im) in [(0.3, -0.2), (88.0, -10.5), (-15.0, 12.0), (1000.0, 1.0), (-0.5, 1e-8)] {
            let z = C128::new(re, im);
            let near = |w: C128| assert!((w - z).norm() < 1e-12 * (1.0 + z.norm()), "{w} is not {z}");
            near(asin(z).sin());
            near(acos(z).cos());
            near(asinh(z).sinh());
            near(acosh(z).cosh());
        }
        for z in [C128::new(0.3, -0.2), C128::new(3.0, 4.0), C128::new(-2.0, 0.5)] {
            assert!((atan(z).tan() - z).norm() < 1e-12 && (atanh(z).tanh() - z).norm() < 1e-12);
        }
    }

    #[test]
    fn tiny_numbers_keep_their_size() {
        let z = C128::new(0.0, 1e-30);
        assert_eq!((asin(z), atan(z)), (z, z));
        assert_eq!(atan(C128::new(f64::INFINITY, 0.0)).re, FRAC_PI_2);
    }

    #[test]
    fn the_largest_numbers_have_finite_inverses() {
        for (re, im) in [(f64::MAX, 1.0), (-1e160, 1e160), (2.0, f64::MIN)] {
            let z = C128::new(re, im);
            for w in [asin(z), acos(z), asinh(z), acosh(z)] {
                assert!(w.is_finite() && w.re.abs().max(w.im.abs()) > 300.0, "{w}");
            }
        }
    }
}

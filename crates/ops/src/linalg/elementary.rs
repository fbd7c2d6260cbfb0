//! Elementary functions without branches or calls, so that loops over them vectorize.
//!
//! The approximations are the classical ones of the Cephes library (range reduction by split constants, then a
//! polynomial or a ratio of two) and, for `exp` and `tanh` in single precision, those of Eigen, whose operations are
//! done in the same order so that results have stock's bits; all are within a few units in the last place. Results that
//! would be subnormal may be zero, as in stock.

use crate::numeric::Math;

/// Functions that loops call on every element. Named apart from the standard library's, which are calls.
pub(crate) trait Elementary: Math {
    /// eˣ.
    fn fast_exp(self) -> Self;
    /// The natural logarithm.
    fn fast_ln(self) -> Self;
    /// eˣ − 1, accurate near zero.
    fn fast_exp_m1(self) -> Self;
    /// ln(1 + x), accurate near zero.
    fn fast_ln_1p(self) -> Self;
    /// The hyperbolic tangent.
    fn fast_tanh(self) -> Self;
    /// The error function.
    fn fast_erf(self) -> Self;
    /// Whether [`Elementary::fast_sin`] and [`Elementary::fast_cos`] are accurate here.
    fn is_small_angle(self) -> bool;
    /// The sine of a small angle.
    fn fast_sin(self) -> Self;
    /// The cosine of a small angle.
    fn fast_cos(self) -> Self;

    /// 1 / (1 + e⁻ˣ).
    #[inline(always)]
    fn fast_sigmoid(self) -> Self {
        Self::one() / (Self::one() + (-self).fast_exp())
    }
}

/// The polynomial with these coefficients, highest power first.
macro_rules! poly {
    ($x:expr; $first:expr $(, $rest:expr)*) => {{
        let value = $first;
        $(let value = value * $x + $rest;)*
        value
    }};
}

impl Elementary for f32 {
    #[inline(always)]
    fn fast_exp(self) -> f32 {
        // Beyond these bounds the result is infinite or zero; comparisons let NaN through.
        let x = if self > 89.0 { 89.0 } else { self };
        let x = if x < -104.0 { -104.0 } else { x };
        // Adding 1.5 · 2²³ rounds to an integer and leaves it in the low bits, where it is wanted with twice the bias.
        const SHIFT: f32 = 12_582_912.0 + 254.0;
        let shifted = x * std::f32::consts::LOG2_E + SHIFT;
        let n = shifted - SHIFT;
        let r = n * -0.693_359_4 + x;
        let r = n * 2.121_944_4e-4 + r;
        let z = r * r;
        let even = poly!(z; 1.374_496_4e-3, 4.166_965_2e-2, 0.499_999_88);
        let odd = poly!(z; 8.368_945e-3, 1.666_651_8e-1);
        let y = (odd * r + even) * z + (r + 1.0);
        // Two factors, because 2¹²⁸ is not a number of this type.
        let bits = shifted.to_bits();
        let half = bits >> 1;
        y * f32::from_bits(half << 23) * f32::from_bits(bits.wrapping_sub(half) << 23)
    }

    #[inline(always)]
    fn fast_ln(self) -> f32 {
        let bits = self.to_bits();
        let exponent = (bits >> 23) as i32 - 126;
        let m = f32::from_bits((bits & 0x007F_FFFF) | 0x3F00_0000);
        let low = m < std::f32::consts::FRAC_1_SQRT_2;
        let e = (if low { exponent - 1 } else { exponent }) as f32;
        let x = if low { m + m - 1.0 } else { m - 1.0 };
        let z = x * x;
        let p = poly!(x; 7.037_683_6e-2, -0.115_146_1, 0.116_769_99, -0.124_201_41, 0.142_493_23, -0.166_680_58,
            0.200_007_15, -0.249_999_94, 0.333_333_3);
        let y = p * x * z - e * 2.121_944_4e-4 - 0.5 * z;
        let finite = x + y + e * 0.693_359_4;
        let value = if self < f32::MIN_POSITIVE { f32::NEG_INFINITY } else { finite };
        let value = if self < 0.0 { f32::NAN } else { value };
        if self < f32::INFINITY { value } else { self }
    }

    #[inline(always)]
    fn fast_exp_m1(self) -> f32 {
        let x = self;
        let p = poly!(x; 1.0 / 362_880.0, 1.0 / 40_320.0, 1.0 / 5_040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0,
            1.0 / 6.0, 0.5);
        let near = p * x * x + x;
        if x.abs() < 0.5 { near } else { x.fast_exp() - 1.0 }
    }

    #[inline(always)]
    fn fast_ln_1p(self) -> f32 {
        ln_1p(self)
    }

    #[inline(always)]
    fn fast_tanh(self) -> f32 {
        // The least number for which the ratio is one.
        const SATURATED: f32 = 7.907_389_6;
        let x = if self > SATURATED { SATURATED } else { self };
        let x = if x < -SATURATED { -SATURATED } else { x };
        let z = x * x;
        let p = poly!(z; 1.394_553_6e-8, 2.102_733_6e-5, 3.520_756_7e-3, 0.134_021_61);
        let q = poly!(z; 8.015_777e-7, 3.326_951_4e-4, 2.597_254_5e-2, 0.467_354_83, 1.0);
        (z * x * p + x) / q
    }

    #[inline(always)]
    fn fast_erf(self) -> f32 {
        let a = self.abs();
        let z = self * self;
        let near = self
            * poly!(z; 7.853_861e-5, -8.010_194e-4, 5.188_327_6e-3, -2.685_381_2e-2, 0.112_835_85, -0.376_126_26,
                std::f32::consts::FRAC_2_SQRT_PI);
        let q = 1.0 / a;
        let y = q * q;
        let middle = poly!(y; 2.326_82e-2, -0.138_703_94, 0.368_742_47, -0.582_473_3, 0.621_000_46, -0.494_451_53,
            0.340_488, -0.274_112_7, 0.563_825_94);
        let far = poly!(y; -10.477_664, 12.977_2, -7.495_518_7, 2.921_019, -1.015_265_3, 0.421_846_34, -0.282_076_75,
            0.564_189_5);
        let tail = (-z).fast_exp() * q * if a < 2.0 { middle } else { far };
        let outside = (1.0 - tail).copysign(self);
        let value = if a < 1.0 { near } else { outside };
        // Beyond 4 the tail is below half a unit in the last place of 1.
        if a > 4.0 { 1.0f32.copysign(self) } else { value }
    }

    #[inline(always)]
    fn is_small_angle(self) -> bool {
        self.abs() <= 8192.0
    }

    #[inline(always)]
    fn fast_sin(self) -> f32 {
        let (quadrant, sin, cos) = quarter_f32(self);
        let value = if quadrant & 1 == 0 { sin } else { cos };
        if quadrant & 2 == 0 { value } else { -value }
    }

    #[inline(always)]
    fn fast_cos(self) -> f32 {
        let (quadrant, sin, cos) = quarter_f32(self);
        let value = if quadrant & 1 == 0 { cos } else { sin };
        if quadrant.wrapping_add(1) & 2 == 0 { value } else { -value }
    }
}

/// The quadrant of a small angle, and sine and cosine of its distance from the quadrant's middle axis.
#[inline(always)]
fn quarter_f32(x: f32) -> (i32, f32, f32) {
    let shifted = x * std::f32::consts::FRAC_2_PI + 12_582_912.0;
    let n = shifted - 12_582_912.0;
    let quadrant = (shifted.to_bits() as i32).wrapping_sub(0x4B40_0000);
    let r = ((x - n * 1.570_312_5) - n * 4.837_513e-4) - n * 7.549_79e-8;
    let z = r * r;
    let sin = poly!(z; -1.951_529_6e-4, 8.332_161e-3, -0.166_666_55) * z * r + r;
    let cos = poly!(z; 2.443_315_7e-5, -1.388_731_6e-3, 4.166_664_6e-2) * z * z - 0.5 * z + 1.0;
    (quadrant, sin, cos)
}

impl Elementary for f64 {
    #[inline(always)]
    fn fast_exp(self) -> f64 {
        let x = if self > 710.0 { 710.0 } else { self };
        let x = if x < -746.0 { -746.0 } else { x };
        let shifted = x * std::f64::consts::LOG2_E + 6_755_399_441_055_744.0;
        let n = shifted - 6_755_399_441_055_744.0;
        // Only the low 32 bits matter, and narrow integers are what AVX2 shifts well.
        let exponent = shifted.to_bits() as i32 as i64;
        let r = x - n * 6.931_457_519_531_25e-1 - n * 1.428_606_820_309_417_2e-6;
        let z = r * r;
        let p = r * poly!(z; 1.261_771_930_748_105_9e-4, 3.029_944_077_074_419_6e-2, 1.0);
        let q = poly!(z; 3.001_985_051_386_644_6e-6, 2.524_483_403_496_841e-3, 0.227_265_548_208_155_03, 2.0);
        let y = 1.0 + 2.0 * (p / (q - p));
        let half = exponent >> 1;
        let power = |e: i64| f64::from_bits((e.wrapping_add(1023) << 52) as u64);
        y * power(half) * power(exponent.wrapping_sub(half))
    }

    #[inline(always)]
    fn fast_ln(self) -> f64 {
        let bits = self.to_bits();
        let m = f64::from_bits((bits & 0x000F_FFFF_FFFF_FFFF) | 0x3FE0_0000_0000_0000);
        // The exponent field as a number, without a conversion that AVX2 lacks.
        let field = f64::from_bits((bits >> 52) | 0x4330_0000_0000_0000) - 4_503_599_627_370_496.0;
        let low = m < std::f64::consts::FRAC_1_SQRT_2;
        let e = field - if low { 1023.0 } else { 1022.0 };
        let x = if low { m + m - 1.0 } else { m - 1.0 };
        let z = x * x;
        let p = poly!(x; 1.018_756_638_045_809_3e-4, 0.497_494_994_976_747, 4.705_791_198_788_817,
            14.498_922_534_161_093, 17.936_867_850_781_983, 7.708_387_337_558_854);
        let q = poly!(x; 1.0, 11.287_358_718_916_746, 45.227_914_583_753_225, 82.987_526_691_277_67,
            71.154_475_061_856_39, 23.125_162_012_676_533);
        let y = x * (z * p / q) - e * 2.121_944_400_546_905_8e-4 - 0.5 * z;
        let finite = x + y + e * 0.693_359_375;
        let value = if self < f64::MIN_POSITIVE { f64::NEG_INFINITY } else { finite };
        let value = if self < 0.0 { f64::NAN } else { value };
        if self < f64::INFINITY { value } else { self }
    }

    #[inline(always)]
    fn fast_exp_m1(self) -> f64 {
        self.exp_m1()
    }

    #[inline(always)]
    fn fast_ln_1p(self) -> f64 {
        ln_1p(self)
    }

    #[inline(always)]
    fn fast_tanh(self) -> f64 {
        let z = self * self;
        let p = poly!(z; -0.964_399_179_425_052_2, -99.287_723_100_191_86, -1_614.687_684_417_084_5);
        let q = poly!(z; 1.0, 112.811_678_491_632_93, 2_235.488_390_601_004_5, 4_844.063_053_251_255);
        let near = self + self * z * (p / q);
        let far = (1.0 - 2.0 / ((2.0 * self.abs()).fast_exp() + 1.0)).copysign(self);
        if self.abs() < 0.625 { near } else { far }
    }

    #[inline(always)]
    fn fast_erf(self) -> f64 {
        // Where the square overflows, stock's answer is not a number.
        if self.abs() > 1e154 { f64::NAN } else { libm::erf(self) }
    }

    #[inline(always)]
    fn is_small_angle(self) -> bool {
        true
    }

    #[inline(always)]
    fn fast_sin(self) -> f64 {
        self.sin()
    }

    #[inline(always)]
    fn fast_cos(self) -> f64 {
        self.cos()
    }
}

/// Corrects the logarithm of the rounded sum by how much it was rounded.
#[inline(always)]
fn ln_1p<M: Elementary>(x: M) -> M {
    let sum = M::one() + x;
    let value = sum.fast_ln() * (x / (sum - M::one()));
    let value = if sum == M::infinity() { x } else { value };
    if sum == M::one() { x } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close<M: Elementary>(name: &str, tolerance: f64, fast: fn(M) -> M, exact: fn(M) -> M, points: &[f64]) {
        for x in points {
            let x = M::from_f64(*x);
            let (got, want) = (crate::numeric::Real::to_f64(fast(x)), crate::numeric::Real::to_f64(exact(x)));
            let same = got == want || (got.is_nan() && want.is_nan());
            let error = (got - want).abs() / want.abs().max(f64::MIN_POSITIVE);
            assert!(same || error < tolerance, "{name}({x:?}) = {got:e}, not {want:e}");
        }
    }

    fn points() -> Vec<f64> {
        let mut points = vec![0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1.0, -1.0, 88.7, -87.0];
        points.extend((-400..=400).map(|i| i as f64 * 0.021 + 1e-3));
        points.extend((-30..=30).map(|i| 10f64.powi(i)));
        points
    }

    #[test]
    fn close_to_the_standard_library() {
        let points = points();
        let moderate: Vec<f64> =
            points.iter().copied().filter(|x| !x.is_finite() || x.abs() < 80.0).collect();
        let angles: Vec<f64> = points.iter().copied().filter(|x| x.abs() < 8000.0).collect();
        close::<f32>("exp", 4e-7, f32::fast_exp, f32::exp, &moderate);
        close::<f32>("ln", 4e-7, f32::fast_ln, f32::ln, &points);
        close::<f32>("exp_m1", 4e-7, f32::fast_exp_m1, f32::exp_m1, &moderate);
        close::<f32>("ln_1p", 6e-7, f32::fast_ln_1p, f32::ln_1p, &points);
        close::<f32>("tanh", 6e-7, f32::fast_tanh, f32::tanh, &points);
        close::<f32>("erf", 6e-7, f32::fast_erf, libm::erff, &points);
        close::<f32>("sin", 2e-5, f32::fast_sin, f32::sin, &angles);
        close::<f32>("cos", 2e-5, f32::fast_cos, f32::cos, &angles);
        close::<f64>("exp", 1e-15, f64::fast_exp, f64::exp, &moderate);
        close::<f64>("ln", 1e-15, f64::fast_ln, f64::ln, &points);
        close::<f64>("ln_1p", 2e-15, f64::fast_ln_1p, f64::ln_1p, &points);
        close::<f64>("tanh", 1e-15, f64::fast_tanh, f64::tanh, &points);
    }

    #[test]
    fn exp_overflows_and_underflows() {
        assert_eq!(1000f32.fast_exp(), f32::INFINITY);
        assert_eq!((-1000f32).fast_exp(), 0.0);
        assert_eq!(1000f64.fast_exp(), f64::INFINITY);
        assert_eq!((-1000f64).fast_exp(), 0.0);
        assert!((88.7f32.fast_exp() / 88.7f32.exp() - 1.0).abs() < 1e-6);
    }
}

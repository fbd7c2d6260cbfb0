//! Special functions in double precision: the gamma family, the normal distribution, integrals.
//!
//! Series, continued fractions and asymptotic expansions with their textbook coefficients; no fitted tables. All are
//! accurate to about 1e-13, which the narrower types round away. Answers outside a function's domain are stock's.

use std::f64::consts::{FRAC_PI_2, LN_2, PI, SQRT_2};

const EULER: f64 = 0.577_215_664_901_532_9;
const EPSILON: f64 = 1e-16;
const EPSILON_SINGLE: f64 = 6e-8;
/// More terms than any series here needs within its range.
const MAX_TERMS: usize = 2000;

/// The logarithm of the absolute value of the gamma function.
pub(crate) fn ln_gamma(x: f64) -> f64 {
    if x == f64::NEG_INFINITY { f64::INFINITY } else { libm::lgamma(x) }
}

/// The derivative of [`ln_gamma`]; NaN at its poles.
pub(crate) fn digamma(x: f64) -> f64 {
    if x <= 0.0 {
        if x == x.floor() {
            return f64::NAN;
        }
        return digamma(1.0 - x) - PI / (PI * x).tan();
    }
    let (mut x, mut shift) = (x, 0.0);
    while x < 12.0 {
        shift += 1.0 / x;
        x += 1.0;
    }
    let z = 1.0 / (x * x);
    let tail =
        [1.0 / 12.0, -691.0 / 32_760.0, 1.0 / 132.0, -1.0 / 240.0, 1.0 / 252.0, -1.0 / 120.0, 1.0 / 12.0];
    x.ln() - 0.5 / x - tail.iter().fold(0.0, |sum, c| (sum + c) * z) - shift
}

/// The Hurwitz zeta function Σ (q + k)⁻ˣ, by the Euler–Maclaurin formula; `short` for results in single precision.
pub(crate) fn zeta(x: f64, q: f64, short: bool) -> f64 {
    // (2k)! over the Bernoulli number B₂ₖ.
    const RATIOS: [f64; 12] = [
        12.0,
        -720.0,
        30_240.0,
        -1_209_600.0,
        47_900_160.0,
        -1_892_437_580.318_379_2,
        74_724_249_600.0,
        -2_950_130_727_918.164,
        116_467_828_143_500.67,
        -4_597_978_722_407_473.0,
        181_521_054_019_435_460.0,
        -7_166_165_256_175_667_000.0,
    ];
    if x == 1.0 {
        return f64::INFINITY;
    }
    if x.is_nan() || q.is_nan() || x < 1.0 {
        return f64::NAN;
    }
    if q <= 0.0 {
        if x != x.floor() {
            return f64::NAN;
        }
        if q == q.floor() {
            return if x.is_finite() && x % 2.0 != 0.0 { f64::NAN } else { f64::INFINITY };
        }
    }
    // Below the poles on the left the single-precision form stops short of the positive numbers, as in stock.
    let power = |base: f64| {
        let power = base.powf(-x);
        // Single precision has no smaller numbers.
        if short && power.abs() < f64::from(f32::MIN_POSITIVE) { 0.0 } else { power }
    };
    let mut base = q;
    let mut last = power(base);
    let mut sum = last;
    for term in 0..MAX_TERMS {
        if term >= 9 && (short || base > 9.0) {
            break;
        }
        base += 1.0;
        last = power(base);
        sum += last;
        if (last / sum).abs() < if short { EPSILON_SINGLE } else { EPSILON } {
            return sum;
        }
    }
    if sum == 0.0 {
        return sum;
    }
    sum += last * base / (x - 1.0) - 0.5 * last;
    let (mut factor, mut power) = (x, last / base);
    for (k, ratio) in RATIOS.iter().enumerate() {
        let term = factor * power / ratio;
        sum += term;
        if (term / sum).abs() < EPSILON {
            break;
        }
        let k = 2.0 * k as f64;
        factor *= (x + k + 1.0) * (x + k + 2.0);
        power /= base * base;
    }
    sum
}

/// The derivative of order `n + 1` of [`ln_gamma`], as factors: the result's type decides what overflows.
pub(crate) fn polygamma(n: f64, x: f64, short: bool) -> (f64, f64) {
    if n == 0.0 {
        return (1.0, digamma(x));
    }
    if n < 0.0 || n != n.floor() {
        return (f64::NAN, 1.0);
    }
    let order = n + 1.0;
    let sign = if order % 2.0 == 1.0 { -1.0 } else { 1.0 };
    (sign * ln_gamma(order).exp(), zeta(order, x, short))
}

/// One way to a regularized incomplete gamma function: its factor e^(a ln x − x) / Γ, a sum, and its derivative.
struct Incomplete {
    sum: f64,
    /// The derivative of `sum` with respect to `a`.
    slope: f64,
}

/// Σ xⁿ / ((a + 1) … (a + n)), the lower function over xᵃ e⁻ˣ / Γ(a + 1).
fn lower_series(a: f64, x: f64, terms: usize) -> Incomplete {
    let (mut term, mut harmonic, mut sum, mut slope) = (1.0, 0.0, 1.0, 0.0);
    for n in 1..=terms {
        let k = a + n as f64;
        term *= x / k;
        harmonic += 1.0 / k;
        sum += term;
        slope -= term * harmonic;
        if term * (1.0 + harmonic) < EPSILON * sum {
            break;
        }
    }
    Incomplete { sum, slope }
}

/// The continued fraction of the upper function over xᵃ e⁻ˣ / Γ(a), by Lentz's method, with derivatives carried along.
fn upper_fraction(a: f64, x: f64) -> Incomplete {
    let mut b = x + 1.0 - a;
    let (mut c, mut c_slope) = (1e300, 0.0);
    let (mut d, mut d_slope) = (1.0 / b, 1.0 / (b * b));
    let (mut h, mut h_slope) = (d, d_slope);
    for i in 1..MAX_TERMS {
        let i = i as f64;
        let (numerator, numerator_slope) = (-i * (i - a), i);
        b += 2.0;
        // The slope of b is −1 throughout.
        let (denominator, denominator_slope) =
            (numerator * d + b, numerator_slope * d + numerator * d_slope - 1.0);
        d = 1.0 / denominator;
        d_slope = -denominator_slope * d * d;
        c_slope = numerator_slope / c - numerator * c_slope / (c * c) - 1.0;
        c = b + numerator / c;
        let (delta, delta_slope) = (c * d, c_slope * d + c * d_slope);
        h_slope = h_slope * delta + h * delta_slope;
        h *= delta;
        if (delta - 1.0).abs() < EPSILON && delta_slope.abs() < 1e-15 {
            break;
        }
    }
    Incomplete { sum: h, slope: h_slope }
}

/// [`ln_gamma`] of a positive number as C's library has it in single precision: from 8 on by Stirling's formula, whose
/// product is rounded.
fn ln_gamma_single(a: f64) -> f32 {
    if a < 8.0 {
        return ln_gamma(a) as f32;
    }
    let z = 1.0 / (a * a);
    let tail = (1.0 / 12.0 - z * (1.0 / 360.0 - z * (1.0 / 1260.0 - z / 1680.0))) / a;
    let rest = 0.5 * (2.0 * PI).ln() - 0.5 + tail;
    (a as f32 - 0.5) * (a.ln() as f32 - 1.0) + rest as f32
}

/// xᵃ e⁻ˣ / Γ(a); zero if it is no normal number. The exponent is a small difference of large numbers, which are rounded
/// in the result's precision, as in stock.
fn density_factor(a: f64, x: f64, short: bool) -> f64 {
    let (exponent, least) = if short {
        let exponent = a as f32 * x.ln() as f32 - x as f32 - ln_gamma_single(a);
        (exponent as f64, f32::MIN_POSITIVE as f64)
    } else {
        (a * x.ln() - x - ln_gamma(a), f64::MIN_POSITIVE)
    };
    let factor = exponent.exp();
    if factor >= least { factor } else { 0.0 }
}

/// The regularized lower incomplete gamma function, `short` for results in single precision.
pub(crate) fn igamma(a: f64, x: f64, short: bool) -> f64 {
    match gamma_domain(a, x) {
        Some(answer) => answer,
        None if x <= 1.0 || x <= a => density_factor(a, x, short) / a * lower_series(a, x, MAX_TERMS).sum,
        None => 1.0 - density_factor(a, x, short) * upper_fraction(a, x).sum,
    }
}

/// The regularized upper incomplete gamma function, `short` for results in single precision.
pub(crate) fn igammac(a: f64, x: f64, short: bool) -> f64 {
    match gamma_domain(a, x) {
        _ if x == f64::INFINITY && a > 0.0 => 0.0,
        Some(answer) if x > 0.0 || a > 0.0 => 1.0 - answer,
        Some(_) => f64::NAN,
        None if x < 1.0 || x < a => 1.0 - density_factor(a, x, short) / a * lower_series(a, x, MAX_TERMS).sum,
        None => density_factor(a, x, short) * upper_fraction(a, x).sum,
    }
}

/// The lower function where it needs no computing.
fn gamma_domain(a: f64, x: f64) -> Option<f64> {
    /// Beyond, the logarithm of the gamma function overflows.
    const LARGEST: f64 = 1e305;
    if x == 0.0 {
        // Whatever the shape, even if it is no shape.
        return Some(0.0);
    }
    if a.is_nan() || x.is_nan() || x < 0.0 || a <= 0.0 {
        return Some(f64::NAN);
    }
    if x == f64::INFINITY || a > LARGEST {
        return Some((x > a) as u8 as f64);
    }
    None
}

/// The derivative of [`igamma`] with respect to `a`.
pub(crate) fn igamma_grad_a(a: f64, x: f64, short: bool) -> f64 {
    match (gamma_domain(a, x), density_factor(a, x, short)) {
        (Some(answer), _) => answer * 0.0,
        (None, 0.0) => 0.0,
        (None, factor) => -sample_grad_over_x(a, x, short) * factor,
    }
}

/// The derivative by `a` of a sample of the gamma distribution with shape `a`; zero where the density vanishes, as in
/// stock.
pub(crate) fn random_gamma_grad(a: f64, x: f64, short: bool) -> f64 {
    match gamma_domain(a, x) {
        Some(answer) => answer * 0.0,
        None if density_factor(a, x, short) == 0.0 => 0.0,
        None => sample_grad_over_x(a, x, short) * x,
    }
}

/// −∂P(a, x)/∂a over xᵃ e⁻ˣ / Γ(a).
fn sample_grad_over_x(a: f64, x: f64, short: bool) -> f64 {
    if x <= 1.0 || x <= a {
        // Stock stops here, though the series of large shapes has not ended.
        let series = lower_series(a, x, if short { 200 } else { 500 });
        return -((x.ln() - digamma(a + 1.0)) * series.sum + series.slope) / a;
    }
    let fraction = upper_fraction(a, x);
    (x.ln() - digamma(a)) * fraction.sum + fraction.slope
}

/// The regularized incomplete beta function.
pub(crate) fn betainc(a: f64, b: f64, x: f64) -> f64 {
    // The ends have values even for parameters that are no numbers, as in stock.
    if a <= 0.0 || b <= 0.0 || !(0.0..=1.0).contains(&x) {
        return f64::NAN;
    }
    if x == 0.0 || x == 1.0 {
        return x.abs();
    }
    if a.is_nan() || b.is_nan() {
        return f64::NAN;
    }
    // A tiny parameter is divided by where it is a logarithm: the quotient is a number of ordinary size.
    let front = ln_gamma(a + b) + a * x.ln() + b * (-x).ln_1p();
    if x < (a + 1.0) / (a + b + 2.0) {
        (front - ln_gamma(a + 1.0) - ln_gamma(b)).exp() * beta_fraction(a, b, x)
    } else {
        1.0 - (front - ln_gamma(a) - ln_gamma(b + 1.0)).exp() * beta_fraction(b, a, 1.0 - x)
    }
}

fn beta_fraction(a: f64, b: f64, x: f64) -> f64 {
    let guard = |value: f64| if value.abs() < 1e-300 { 1e-300 } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / guard(1.0 - (a + b) * x / (a + 1.0));
    let mut h = d;
    for m in 1..MAX_TERMS {
        let m = m as f64;
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut delta = 1.0;
        for numerator in [even, odd] {
            d = 1.0 / guard(1.0 + numerator * d);
            c = guard(1.0 + numerator / c);
            delta = c * d;
            h *= delta;
        }
        if (delta - 1.0).abs() < EPSILON {
            break;
        }
    }
    h
}

/// The inverse of the normal distribution function.
pub(crate) fn ndtri(p: f64) -> f64 {
    if p.is_nan() || !(0.0..=1.0).contains(&p) {
        return f64::NAN;
    }
    if p == 0.5 {
        return 0.0;
    }
    let tail = p.min(1.0 - p);
    if tail == 0.0 {
        return if p == 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    // A guess good to three digits (Abramowitz and Stegun 26.2.23); each of Halley's steps triples them.
    let t = (-2.0 * tail.ln()).sqrt();
    let ratio = (2.515_517 + t * (0.802_853 + t * 0.010_328))
        / (1.0 + t * (1.432_788 + t * (0.189_269 + t * 0.001_308)));
    let mut x = ratio - t;
    if tail < 1e-200 {
        // Here the distribution function is φ(x) / |x| times Mills' series; solved for x², with a contraction of 1 / x².
        for _ in 0..8 {
            let z = 1.0 / (x * x);
            let series = 1.0 - z * (1.0 - z * (3.0 - z * (15.0 - z * 105.0)));
            x = -(2.0 * (series.ln() - tail.ln() - (-x * (2.0 * PI).sqrt()).ln())).sqrt();
        }
        return if p < 0.5 { x } else { -x };
    }
    for _ in 0..3 {
        // Near the middle, what is asked for is as small as the distance from it, and so must be the error.
        let error = if tail > 0.25 {
            0.5 * libm::erf(x / SQRT_2) - (tail - 0.5)
        } else {
            0.5 * libm::erfc(-x / SQRT_2) - tail
        };
        let step = error * (2.0 * PI).sqrt() * (0.5 * x * x).exp();
        x -= step / (1.0 + 0.5 * x * step);
    }
    if p < 0.5 { x } else { -x }
}

/// Dawson's integral.
pub(crate) fn dawson(x: f64) -> f64 {
    let a = x.abs();
    if a < 0.5 {
        let (mut term, mut sum) = (x, x);
        for k in 1..40 {
            term *= -2.0 * x * x / (2 * k + 1) as f64;
            sum += term;
        }
        return sum;
    }
    if a > 12.0 {
        let z = 0.5 / (x * x);
        let (mut term, mut sum) = (1.0, 1.0);
        for k in 1..12 {
            term *= (2 * k - 1) as f64 * z;
            sum += term;
        }
        return sum * 0.5 / x;
    }
    // Rybicki's sum of Gaussians at the odd multiples of a step; the error falls like exp(−(π / 2h)²).
    const STEP: f64 = 0.2;
    let center = 2 * (0.5 * a / STEP).round() as i64;
    let sum: f64 = (center - 41..=center + 41)
        .step_by(2)
        .map(|n| {
            let distance = a - n as f64 * STEP;
            (-distance * distance).exp() / n as f64
        })
        .sum();
    (sum / PI.sqrt()).copysign(x)
}

/// The exponential integral Ei of a positive number.
pub(crate) fn expint(x: f64) -> f64 {
    if x == 0.0 {
        return f64::NEG_INFINITY;
    }
    if x.is_nan() || x < 0.0 || x == f64::INFINITY {
        return f64::NAN;
    }
    let (mut term, mut sum) = (1.0, 0.0);
    if x < 40.0 {
        for k in 1..MAX_TERMS {
            let k = k as f64;
            term *= x / k;
            sum += term / k;
            if term / k < EPSILON * sum {
                break;
            }
        }
        return EULER + x.ln() + sum;
    }
    x.exp() * scaled_expint(x)
}

/// Ei(x) e⁻ˣ for large x.
pub(crate) fn scaled_expint(x: f64) -> f64 {
    let (mut term, mut sum) = (1.0, 0.0);
    for k in 1..MAX_TERMS {
        sum += term;
        let next = term * k as f64 / x;
        if next > term || next < EPSILON {
            break;
        }
        term = next;
    }
    sum / x
}

/// The Fresnel integrals of cos(πt²/2) and sin(πt²/2) from 0 to `x`.
pub(crate) fn fresnel(x: f64) -> (f64, f64) {
    let a = x.abs();
    if a.is_nan() {
        return (x, x);
    }
    if a > 1e8 {
        return (0.5f64.copysign(x), 0.5f64.copysign(x));
    }
    let square = FRAC_PI_2 * a * a;
    let (cos, sin) = if a < 1.5 {
        // Terms (i πx²/2)ᵏ x / (k! (2k + 1)) go to the cosine and the sine in turn.
        let (mut cos, mut sin, mut term) = (0.0, 0.0, a);
        for k in 0..60 {
            if k > 0 {
                term *= square / k as f64;
            }
            let value = term / (2 * k + 1) as f64;
            match k % 4 {
                0 => cos += value,
                1 => sin += value,
                2 => cos -= value,
                _ => sin -= value,
            }
        }
        (cos, sin)
    } else {
        use num_complex::Complex64;
        // The continued fraction of the complementary error function of a complex number.
        let one = Complex64::new(1.0, 0.0);
        let mut b = Complex64::new(1.0, -PI * a * a);
        let mut c = Complex64::new(1e300, 0.0);
        let mut d = one / b;
        let mut h = d;
        for k in 1..MAX_TERMS {
            let n = (2 * k - 1) as f64;
            let numerator = -n * (n + 1.0);
            b += 4.0;
            d = one / (d * numerator + b);
            c = b + Complex64::new(numerator, 0.0) / c;
            let delta = c * d;
            h *= delta;
            if (delta - one).norm() < EPSILON {
                break;
            }
        }
        h *= Complex64::new(a, -a);
        let value = Complex64::new(0.5, 0.5) * (one - Complex64::new(square.cos(), square.sin()) * h);
        (value.re, value.im)
    };
    (cos.copysign(x), sin.copysign(x))
}

/// Spence's integral: the dilogarithm of 1 − x.
pub(crate) fn spence(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    dilogarithm(1.0 - x)
}

fn dilogarithm(z: f64) -> f64 {
    const AT_ONE: f64 = PI * PI / 6.0;
    if z == 1.0 {
        return AT_ONE;
    }
    if z < -1.0 {
        let log = (-z).ln();
        return -AT_ONE - 0.5 * log * log - dilogarithm(1.0 / z);
    }
    if z < 0.0 {
        let log = (-z).ln_1p();
        return -dilogarithm(z / (z - 1.0)) - 0.5 * log * log;
    }
    if z > 0.5 {
        return AT_ONE - z.ln() * (-z).ln_1p() - dilogarithm(1.0 - z);
    }
    let (mut power, mut sum) = (1.0, 0.0);
    for k in 1..60 {
        power *= z;
        sum += power / (k * k) as f64;
    }
    sum
}

/// Bessel functions.
pub(crate) mod bessel {
    use super::*;

    /// e^(−|x|) I₀(x) or I₁(x).
    pub(crate) fn scaled_i(order: u8, x: f64) -> f64 {
        let a = x.abs();
        let value = if a <= 20.0 {
            power_series(order, a) * (-a).exp()
        } else if a == f64::INFINITY {
            0.0
        } else {
            asymptotic(order, -a) / (2.0 * PI).sqrt() / a.sqrt()
        };
        if order == 1 { value.copysign(x) } else { value }
    }

    /// eˣ K₀(x) or eˣ K₁(x); infinite for x ≤ 0.
    pub(crate) fn scaled_k(order: u8, x: f64) -> f64 {
        if x <= 0.0 {
            return f64::INFINITY;
        }
        if x <= 1.0 {
            return small_k(order, x) * x.exp();
        }
        if x > 30.0 {
            return if x == f64::INFINITY { 0.0 } else { asymptotic(order, x) * FRAC_PI_2.sqrt() / x.sqrt() };
        }
        // ∫ exp(−x (cosh t − 1)) cosh(νt) dt; the trapezoidal rule converges exponentially.
        const STEP: f64 = 0.1;
        let mut sum = 0.5;
        for n in 1..200 {
            let t = n as f64 * STEP;
            let exponent = x * (t.cosh() - 1.0);
            if exponent > 45.0 {
                break;
            }
            sum += (-exponent).exp() * if order == 0 { 1.0 } else { t.cosh() };
        }
        sum * STEP
    }

    /// K₀(x) or K₁(x).
    pub(crate) fn k(order: u8, x: f64) -> f64 {
        if x == f64::INFINITY { 0.0 } else { scaled_k(order, x) * (-x).exp() }
    }

    /// Y₀(x) or Y₁(x); −∞ for x ≤ 0 and NaN at infinity.
    pub(crate) fn y(order: u8, x: f64) -> f64 {
        match order {
            _ if x <= 0.0 => f64::NEG_INFINITY,
            _ if x == f64::INFINITY => f64::NAN,
            0 => libm::y0(x),
            _ => libm::y1(x),
        }
    }

    /// J₀(x) or J₁(x); NaN at the infinities.
    pub(crate) fn j(order: u8, x: f64) -> f64 {
        match order {
            _ if x.is_infinite() => f64::NAN,
            0 => libm::j0(x),
            _ => libm::j1(x),
        }
    }

    /// Σ (x/2)^(2k + ν) / (k! (k + ν)!).
    fn power_series(order: u8, x: f64) -> f64 {
        let z = 0.25 * x * x;
        let mut term = if order == 0 { 1.0 } else { 0.5 * x };
        let mut sum = term;
        for k in 1..MAX_TERMS {
            term *= z / (k * (k + order as usize)) as f64;
            sum += term;
            if term <= EPSILON * sum {
                break;
            }
        }
        sum
    }

    /// Hankel's expansion Σ aₖ(ν) / xᵏ; for I, `x` is negated.
    fn asymptotic(order: u8, x: f64) -> f64 {
        let mu = 4.0 * order as f64;
        let (mut term, mut sum) = (1.0f64, 1.0);
        for k in 1..100 {
            let odd = (2 * k - 1) as f64;
            let next = term * (mu - odd * odd) / (8.0 * k as f64 * x);
            if next.abs() > term.abs() || next.abs() < EPSILON {
                break;
            }
            term = next;
            sum += term;
        }
        sum
    }

    /// The ascending series of K near zero.
    fn small_k(order: u8, x: f64) -> f64 {
        let z = 0.25 * x * x;
        let log = x.ln() - LN_2 + EULER;
        if order == 0 {
            let (mut term, mut harmonic, mut sum) = (1.0, 0.0, 0.0);
            for k in 1..30 {
                term *= z / (k * k) as f64;
                harmonic += 1.0 / k as f64;
                sum += term * harmonic;
            }
            return sum - log * power_series(0, x);
        }
        let (mut term, mut harmonic, mut sum) = (0.5 * x, 0.0, 0.0);
        for k in 0..30 {
            if k > 0 {
                term *= z / (k * (k + 1)) as f64;
                harmonic += 1.0 / k as f64;
            }
            sum += term * (harmonic + 0.5 / (k + 1) as f64);
        }
        1.0 / x + log * power_series(1, x) - sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn close(got: f64, want: f64) {
        assert!((got - want).abs() <= 1e-12 * want.abs(), "{got:e}, not {want:e}");
    }

    #[test]
    fn branches_meet() {
        for (low, high) in [(0.499_999_999, 0.500_000_001), (11.999_999_999, 12.000_000_001)] {
            assert!((dawson(low) - dawson(high)).abs() < 1e-8);
        }
        assert!((expint(39.999_999_999_9) / expint(40.000_000_000_1) - 1.0).abs() < 1e-8);
        assert!((fresnel(1.499_999_999).0 - fresnel(1.500_000_001).0).abs() < 1e-8);
        for order in [0, 1] {
            assert!(
                (bessel::scaled_k(order, 0.999_999_999) / bessel::scaled_k(order, 1.000_000_001) - 1.0).abs()
                    < 1e-8
            );
            assert!(
                (bessel::scaled_k(order, 29.999_999_9) / bessel::scaled_k(order, 30.000_000_1) - 1.0).abs()
                    < 1e-8
            );
            assert!(
                (bessel::scaled_i(order, 19.999_999_9) / bessel::scaled_i(order, 20.000_000_1) - 1.0).abs()
                    < 1e-8
            );
        }
    }

    #[test]
    fn known_values() {
        close(bessel::k(0, 2.0), 0.113_893_872_749_533_44);
        close(bessel::k(1, 0.5), 1.656_441_120_003_301);
        close(bessel::scaled_i(1, 10.0) * 10f64.exp(), 2_670.988_303_701_254_7);
        close(zeta(2.0, 1.0, false), PI * PI / 6.0);
        close(polygamma(1.0, 1.0, false).1, PI * PI / 6.0);
        close(spence(2.0), -PI * PI / 12.0);
        close(ndtri(0.975), 1.959_963_984_540_054);
        close(igamma(2.0, 3.0, false) + igammac(2.0, 3.0, false), 1.0);
        close(expint(1.0), 1.895_117_816_355_936_8);
        close(betainc(2.0, 3.0, 0.5), 0.6875);
        close(digamma(1.0), -EULER);
    }

    #[test]
    fn the_derivative_of_the_incomplete_gamma_function() {
        for (a, x) in [(0.5, 0.25), (2.0, 3.0), (5.0, 4.0), (3.0, 9.0)] {
            let numeric = (igamma(a + 1e-5, x, false) - igamma(a - 1e-5, x, false)) / 2e-5;
            assert!((igamma_grad_a(a, x, false) / numeric - 1.0).abs() < 1e-6);
        }
    }
}

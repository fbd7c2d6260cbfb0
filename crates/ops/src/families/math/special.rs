//! Special functions. All are computed in double precision and rounded.

use crate::builders as ops;
use crate::linalg::elementwise::Loop;
use crate::linalg::special::{self, bessel};
use crate::numeric::{Num, Real};
use crate::support::cwise::{self, FUNCTION, loops, rows};
use crate::support::gradient::{unary_grads, unbroadcast, unbroadcast_both};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{DType, Element, Result, ensure};
use std::f64::consts::{FRAC_PI_2, PI};

pub(crate) const OPS: &[&Op] = &[
    &LGAMMA,
    &DIGAMMA,
    &ERFINV,
    &NDTRI,
    &BESSEL_I0,
    &BESSEL_I0E,
    &BESSEL_I1,
    &BESSEL_I1E,
    &BESSEL_J0,
    &BESSEL_J1,
    &BESSEL_K0,
    &BESSEL_K0E,
    &BESSEL_K1,
    &BESSEL_K1E,
    &BESSEL_Y0,
    &BESSEL_Y1,
    &DAWSN,
    &EXPINT,
    &FRESNEL_COS,
    &FRESNEL_SIN,
    &SPENCE,
    &IGAMMA,
    &IGAMMAC,
    &IGAMMA_GRAD_A,
    &RANDOM_GAMMA_GRAD,
    &ZETA,
    &POLYGAMMA,
    &BETAINC,
];

const UNARY: Op = Op {
    inputs: &["x: T"],
    outputs: &["y: T"],
    attrs: &["T: {bfloat16, half, float, double}"],
    shape: shapes::unchanged,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};
static LGAMMA: Op = Op {
    name: "Lgamma",
    gradient: Gradient::Fn(lgamma_grad),
    kernels: rows![lgamma: Half, Float, Double],
    ..UNARY
};
static DIGAMMA: Op = Op {
    name: "Digamma",
    gradient: Gradient::Fn(digamma_grad),
    kernels: rows![digamma: Half, Float, Double],
    ..UNARY
};
static ERFINV: Op = Op {
    name: "Erfinv",
    gradient: Gradient::Fn(erfinv_grad),
    kernels: rows![erfinv: Float, Double],
    ..UNARY
};
static NDTRI: Op =
    Op { name: "Ndtri", gradient: Gradient::Fn(ndtri_grad), kernels: rows![ndtri: Float, Double], ..UNARY };
static BESSEL_I0: Op = Op {
    name: "BesselI0",
    gradient: Gradient::Fn(bessel_i0_grad),
    kernels: rows![bessel_i0: Half, Float, Double],
    ..UNARY
};
static BESSEL_I0E: Op = Op {
    name: "BesselI0e",
    gradient: Gradient::Fn(bessel_i0e_grad),
    kernels: rows![bessel_i0e: Half, Float, Double],
    ..UNARY
};
static BESSEL_I1: Op = Op {
    name: "BesselI1",
    gradient: Gradient::Fn(bessel_i1_grad),
    kernels: rows![bessel_i1: Half, Float, Double],
    ..UNARY
};
static BESSEL_I1E: Op = Op {
    name: "BesselI1e",
    gradient: Gradient::Fn(bessel_i1e_grad),
    kernels: rows![bessel_i1e: Half, Float, Double],
    ..UNARY
};
static BESSEL_J0: Op = Op {
    name: "BesselJ0",
    gradient: Gradient::Fn(bessel_j0_grad),
    kernels: rows![bessel_j0: Half, Float, Double],
    ..UNARY
};
static BESSEL_J1: Op = Op {
    name: "BesselJ1",
    gradient: Gradient::Fn(bessel_j1_grad),
    kernels: rows![bessel_j1: Half, Float, Double],
    ..UNARY
};
static BESSEL_K0: Op = Op {
    name: "BesselK0",
    gradient: Gradient::Fn(bessel_k0_grad),
    kernels: rows![bessel_k0: Half, Float, Double],
    ..UNARY
};
static BESSEL_K0E: Op = Op {
    name: "BesselK0e",
    gradient: Gradient::Fn(bessel_k0e_grad),
    kernels: rows![bessel_k0e: Half, Float, Double],
    ..UNARY
};
static BESSEL_K1: Op = Op {
    name: "BesselK1",
    gradient: Gradient::Fn(bessel_k1_grad),
    kernels: rows![bessel_k1: Half, Float, Double],
    ..UNARY
};
static BESSEL_K1E: Op = Op {
    name: "BesselK1e",
    gradient: Gradient::Fn(bessel_k1e_grad),
    kernels: rows![bessel_k1e: Half, Float, Double],
    ..UNARY
};
static BESSEL_Y0: Op = Op {
    name: "BesselY0",
    gradient: Gradient::Fn(bessel_y0_grad),
    kernels: rows![bessel_y0: Half, Float, Double],
    ..UNARY
};
static BESSEL_Y1: Op = Op {
    name: "BesselY1",
    gradient: Gradient::Fn(bessel_y1_grad),
    kernels: rows![bessel_y1: Half, Float, Double],
    ..UNARY
};
static DAWSN: Op =
    Op { name: "Dawsn", gradient: Gradient::Fn(dawsn_grad), kernels: rows![dawsn: Float, Double], ..UNARY };
static EXPINT: Op = Op {
    name: "Expint",
    gradient: Gradient::Fn(expint_grad),
    kernels: rows![expint: Float, Double],
    ..UNARY
};
static FRESNEL_COS: Op = Op {
    name: "FresnelCos",
    gradient: Gradient::Fn(fresnel_cos_grad),
    kernels: rows![fresnel_cos: Float, Double],
    ..UNARY
};
static FRESNEL_SIN: Op = Op {
    name: "FresnelSin",
    gradient: Gradient::Fn(fresnel_sin_grad),
    kernels: rows![fresnel_sin: Float, Double],
    ..UNARY
};
static SPENCE: Op = Op {
    name: "Spence",
    gradient: Gradient::Fn(spence_grad),
    kernels: rows![spence: Float, Double],
    ..UNARY
};

const BINARY: Op = Op {
    inputs: &["a: T", "x: T"],
    outputs: &["z: T"],
    attrs: &["T: {float, double}"],
    shape: shapes::broadcast_binary,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};
static IGAMMA: Op = Op {
    name: "Igamma",
    gradient: Gradient::Fn(igamma_grad),
    attrs: &["T: {bfloat16, half, float, double}"],
    kernels: rows![igamma: Float, Double],
    ..BINARY
};
static IGAMMAC: Op = Op {
    name: "Igammac",
    gradient: Gradient::Fn(igammac_grad),
    attrs: &["T: {bfloat16, half, float, double}"],
    kernels: rows![igammac: Float, Double],
    ..BINARY
};
static IGAMMA_GRAD_A: Op = Op { name: "IgammaGradA", kernels: rows![igamma_grad_a: Float, Double], ..BINARY };
static RANDOM_GAMMA_GRAD: Op = Op {
    name: "RandomGammaGrad",
    inputs: &["alpha: T", "sample: T"],
    outputs: &["output: T"],
    kernels: rows![random_gamma_grad: Float, Double],
    ..BINARY
};
static ZETA: Op = Op {
    name: "Zeta",
    gradient: Gradient::Fn(zeta_grad),
    inputs: &["x: T", "q: T"],
    kernels: rows![zeta: Float, Double],
    ..BINARY
};
static POLYGAMMA: Op = Op {
    name: "Polygamma",
    gradient: Gradient::Fn(polygamma_grad),
    kernels: rows![polygamma: Float, Double],
    ..BINARY
};
static BETAINC: Op = Op {
    name: "Betainc",
    gradient: Gradient::Fn(betainc_grad),
    inputs: &["a: T", "b: T", "x: T"],
    shape: betainc_shape,
    kernels: rows![betainc: Float, Double],
    ..BINARY
};

macro_rules! unary_kernels {
    ($($kernel:ident: $function:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            unary(init, $function)
        }
    )+};
}
unary_kernels! {
    lgamma: special::ln_gamma;
    digamma: special::digamma;
    ndtri: special::ndtri;
    bessel_i0e: |x| bessel::scaled_i(0, x);
    bessel_i1e: |x| bessel::scaled_i(1, x);
    bessel_j0: |x| bessel::j(0, x);
    bessel_j1: |x| bessel::j(1, x);
    bessel_y0: |x| bessel::y(0, x);
    dawsn: special::dawson;
    fresnel_cos: |x| special::fresnel(x).0;
    fresnel_sin: |x| special::fresnel(x).1;
}

/// A kernel of a function in double precision.
fn unary(init: &Init<'_>, f: fn(f64) -> f64) -> Result<Kernel> {
    let function = loops![init; floats; T => Loop::map_each(move |x: T| T::from_f64(f(x.to_f64())))]?;
    cwise::kernel(init, FUNCTION, function)
}

/// Kernels of functions whose answers at the ends of the range depend on the precision of the result.
macro_rules! ranged_kernels {
    ($($kernel:ident: |$x:ident: $T:ident| $value:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            let function = loops![init; floats; $T => Loop::map_each(|$x: $T| $value)]?;
            cwise::kernel(init, FUNCTION, function)
        }
    )+};
}
ranged_kernels! {
    bessel_i0: |x: T| T::from_f64(bessel::scaled_i(0, x.to_f64())) * x.abs().exp();
    bessel_i1: |x: T| T::from_f64(bessel::scaled_i(1, x.to_f64())) * x.abs().exp();
    bessel_k0: |x: T| if vanishes(x) { T::INFINITY } else { T::from_f64(bessel::k(0, x.to_f64())) };
    bessel_k0e: |x: T| if vanishes(x) { T::INFINITY } else { T::from_f64(bessel::scaled_k(0, x.to_f64())) };
    bessel_k1: |x: T| if vanishes(x) { T::NAN } else { T::from_f64(bessel::k(1, x.to_f64())) };
    bessel_k1e: |x: T| if vanishes(x) { T::NAN } else { T::from_f64(bessel::scaled_k(1, x.to_f64())) };
    // Only double precision looks at zero by itself.
    bessel_y1: |x: T| if x == 0.0 && T::MANTISSA_DIGITS < 53 { T::NAN } else { T::from_f64(bessel::y(1, x.to_f64())) };
    // Stock multiplies by the exponential last.
    expint: |x: T| if x > 50.0 {
        T::from_f64(special::scaled_expint(x.to_f64())) * x.exp()
    } else {
        T::from_f64(special::expint(x.to_f64()))
    };
    spence: |x: T| if x > 1.0 && 1.0 / x == 0.0 { T::NAN } else { T::from_f64(special::spence(x.to_f64())) };
}

/// Whether half of a positive number is no normal number any more, and its logarithm infinite.
fn vanishes<T: num_traits::Float>(x: T) -> bool {
    x > T::zero() && x < T::min_positive_value() + T::min_positive_value()
}

fn zeta(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide; T => Loop::zip_each(|x: T, q: T| {
        T::from_f64(special::zeta(x.to_f64(), q.to_f64(), T::DTYPE == DType::Float))
    })]?;
    cwise::kernel(init, FUNCTION, function)
}

fn polygamma(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide; T => Loop::zip_each(|n: T, x: T| {
        let (factor, value) = special::polygamma(n.to_f64(), x.to_f64(), T::DTYPE == DType::Float);
        T::from_f64(factor) * T::from_f64(value)
    })]?;
    cwise::kernel(init, FUNCTION, function)
}

/// Goes through [`special::ndtri`] of the halved sum in the type's own precision, as stock does.
fn erfinv(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; floats; T => Loop::map_each(|x: T| {
        let p = (x + 1.0) * 0.5;
        T::from_f64(special::ndtri(p.to_f64()) * std::f64::consts::FRAC_1_SQRT_2)
    })]?;
    cwise::kernel(init, FUNCTION, function)
}

macro_rules! binary_kernels {
    ($($kernel:ident: $function:expr;)+) => {$(
        fn $kernel(init: &Init<'_>) -> Result<Kernel> {
            binary(init, $function)
        }
    )+};
}
binary_kernels! {
    igamma: special::igamma;
    igammac: special::igammac;
    igamma_grad_a: special::igamma_grad_a;
    random_gamma_grad: special::random_gamma_grad;
}

/// A kernel of a function of two numbers in double precision, which is told whether the result's is single.
fn binary(init: &Init<'_>, f: fn(f64, f64, bool) -> f64) -> Result<Kernel> {
    let function = loops![init; wide; T => Loop::zip_each(move |x: T, y: T| {
        T::from_f64(f(x.to_f64(), y.to_f64(), T::DTYPE == DType::Float))
    })]?;
    cwise::kernel(init, FUNCTION, function)
}

fn betainc_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    // Scalars go with any shape; the others must be equal.
    let mut shape = None;
    for input in 0..3 {
        let given = s.input(input);
        match given.rank() {
            None => return Ok(()),
            Some(0) => {}
            Some(_) => {
                shape = Some(match shape {
                    Some(known) => s.merge(&known, &given)?,
                    None => given,
                })
            }
        }
    }
    s.set(0, shape.unwrap_or_else(|| s.input(0)));
    Ok(())
}

fn betainc(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide; T => Loop::zip3(|a: T, b: T, x: T| {
        T::from_f64(special::betainc(a.to_f64(), b.to_f64(), x.to_f64()))
    })]?;
    cwise::checked_kernel(init, FUNCTION, function, |cx| {
        for (left, right, names) in [(0, 1, "a and b"), (1, 2, "b and x"), (0, 2, "a and x")] {
            let (left, right) = (cx.input(left)?, cx.input(right)?);
            ensure!(
                left.rank() == 0 || right.rank() == 0 || left.shape() == right.shape(),
                InvalidArgument,
                "Shapes of {names} are inconsistent: {} vs. {}",
                left.shape(),
                right.shape()
            );
        }
        Ok(())
    })
}

unary_grads! {
    lgamma_grad: |s, x, _, dy| ops::mul(s, dy, ops::digamma(s, x));
    digamma_grad: |s, x, _, dy| ops::mul(s, dy, ops::polygamma(s, 1, x));
    erfinv_grad: |s, _, y, dy| {
        ops::mul(s, ops::mul(s, dy, PI.sqrt() / 2.0), ops::exp(s, ops::square(s, y)))
    };
    ndtri_grad: |s, _, y, dy| {
        let bell = ops::exp(s, ops::real_div(s, ops::square(s, y), 2));
        ops::mul(s, ops::mul(s, dy, (2.0 * PI).sqrt()), bell)
    };
    dawsn_grad: |s, x, y, dy| ops::mul(s, dy, ops::sub(s, 1, ops::mul(s, ops::mul(s, 2, x), y)));
    expint_grad: |s, x, _, dy| ops::real_div(s, ops::mul(s, dy, ops::exp(s, x)), x);
    fresnel_cos_grad: |s, x, _, dy| {
        ops::mul(s, dy, ops::cos(s, ops::mul(s, FRAC_PI_2, ops::square(s, x))))
    };
    fresnel_sin_grad: |s, x, _, dy| {
        ops::mul(s, dy, ops::sin(s, ops::mul(s, FRAC_PI_2, ops::square(s, x))))
    };
    spence_grad: |s, x, _, dy| {
        let slope = ops::real_div(s, ops::log(s, x), ops::sub(s, 1, x));
        let at_one = ops::neg(s, ops::ones_like(s, x));
        ops::mul(s, dy, ops::select(s, ops::equal(s, x, 1), at_one, slope))
    };
    bessel_i0_grad: |s, x, _, dy| ops::mul(s, dy, ops::bessel_i1(s, x));
    bessel_i0e_grad: |s, x, y, dy| {
        ops::mul(s, dy, ops::sub(s, ops::bessel_i1e(s, x), ops::mul(s, ops::sign(s, x), y)))
    };
    bessel_i1_grad: |s, x, y, dy| {
        let slope = ops::sub(s, ops::bessel_i0(s, x), ops::real_div(s, y, x));
        ops::mul(s, dy, ops::select_v2(s, ops::equal(s, x, 0), 1, slope))
    };
    bessel_i1e_grad: |s, x, y, dy| {
        let factor = ops::add_v2(s, ops::sign(s, x), ops::reciprocal(s, x));
        let slope = ops::sub(s, ops::bessel_i0e(s, x), ops::mul(s, y, factor));
        ops::mul(s, dy, ops::select_v2(s, ops::equal(s, x, 0), 0.5, slope))
    };
    bessel_k0_grad: |s, x, _, dy| ops::mul(s, dy, ops::neg(s, ops::bessel_k1(s, x)));
    bessel_k0e_grad: |s, x, y, dy| ops::mul(s, dy, ops::sub(s, y, ops::bessel_k1e(s, x)));
    bessel_k1_grad: |s, x, y, dy| {
        ops::mul(s, dy, ops::sub(s, ops::neg(s, ops::bessel_k0(s, x)), ops::real_div(s, y, x)))
    };
    bessel_k1e_grad: |s, x, y, dy| {
        let scaled = ops::mul(s, y, ops::sub(s, 1, ops::reciprocal(s, x)));
        ops::mul(s, dy, ops::sub(s, scaled, ops::bessel_k0e(s, x)))
    };
    bessel_j0_grad: |s, x, _, dy| ops::mul(s, dy, ops::neg(s, ops::bessel_j1(s, x)));
    bessel_j1_grad: |s, x, y, dy| {
        let slope = ops::sub(s, ops::bessel_j0(s, x), ops::real_div(s, y, x));
        ops::mul(s, dy, ops::select_v2(s, ops::equal(s, x, 0), 0.5, slope))
    };
    bessel_y0_grad: |s, x, _, dy| ops::mul(s, dy, ops::neg(s, ops::bessel_y1(s, x)));
    bessel_y1_grad: |s, x, y, dy| ops::mul(s, dy, ops::sub(s, ops::bessel_y0(s, x), ops::real_div(s, y, x)));
}

/// The slopes of `igamma`, as logarithms until the end because gamma functions grow fast.
fn igamma_slopes(g: &GradCx<'_>) -> Result<(Output, Output)> {
    let (s, a, x, dy) = (g.scope(), g.input(0), g.input(1), g.dy(0)?);
    let powers = ops::mul(s, ops::sub(s, a, 1), ops::log(s, x));
    let log = ops::sub(s, ops::add_v2(s, ops::neg(s, x), powers), ops::lgamma(s, a));
    Ok((ops::mul(s, ops::igamma_grad_a(s, a, x), &dy)?, ops::mul(s, ops::exp(s, log), &dy)?))
}

fn igamma_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (da, dx) = igamma_slopes(g)?;
    unbroadcast_both(g, da, dx)
}

fn igammac_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, (da, dx)) = (g.scope(), igamma_slopes(g)?);
    unbroadcast_both(g, ops::neg(s, da)?, ops::neg(s, dx)?)
}

/// Only with respect to `x`, as in stock.
fn betainc_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, a, b, x) = (g.scope(), g.input(0), g.input(1), g.input(2));
    let log_beta = ops::add_v2(s, ops::lgamma(s, a), ops::lgamma(s, b));
    let log_beta = ops::sub(s, log_beta, ops::lgamma(s, ops::add_v2(s, a, b)));
    let below = ops::xlog1py(s, ops::sub(s, b, 1), ops::neg(s, x));
    let above = ops::xlogy(s, ops::sub(s, a, 1), x);
    let slope = ops::exp(s, ops::sub(s, ops::add_v2(s, below, above), log_beta));
    let dx = unbroadcast(s, ops::mul(s, slope, g.dy(0)?)?, x, a)?;
    Ok([None, None, Some(dx)].into())
}

/// Only with respect to `q`, as in stock.
fn zeta_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, q) = (g.scope(), g.input(0), g.input(1));
    let slope = ops::mul(s, ops::neg(s, x), ops::zeta(s, ops::add_v2(s, x, 1), q));
    let dq = unbroadcast(s, ops::mul(s, slope, g.dy(0)?)?, q, x)?;
    Ok([None, Some(dq)].into())
}

/// Only with respect to `x`, as in stock.
fn polygamma_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, n, x) = (g.scope(), g.input(0), g.input(1));
    let slope = ops::polygamma(s, ops::add_v2(s, n, 1), x);
    let dx = unbroadcast(s, ops::mul(s, slope, g.dy(0)?)?, x, n)?;
    Ok([None, Some(dx)].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{infer, infer_err};
    use ferroflow_core::Code;

    #[test]
    fn shapes() {
        infer("Lgamma", "[2,?]", "[2,?]");
        infer("Zeta", "[2,1];[3]", "[2,3]");
        infer("Betainc", "[];[];[3]", "[3]");
        infer_err("Betainc", "[2];[3];[]", Code::InvalidArgument);
    }
}

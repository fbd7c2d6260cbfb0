//! Learning rates that change with the step, computed by the graph.
//!
//! The step is a counter such as [`crate::global_step`], or any scalar output.
//!
//! ```
//! use ferroflow::optimizers::{GradientDescent, Optimizer};
//! use ferroflow::{Graph, global_step, schedules};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! let s = graph.scope();
//! let step = global_step(&s)?;
//! let rate = schedules::exponential_decay(&s, 0.1, &step, 1000, 0.96, true)?;
//! assert_eq!(rate.name(), "ExponentialDecay:0");
//! let optimizer = GradientDescent::new(&rate);
//! # let _ = optimizer.rule()?;
//! # Ok(())
//! # }
//! ```

use crate::arithmetic::{add, cast, div, mul, sub};
use crate::optimizers::Scalar;
use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, ensure};
use ferroflow_ops::builders as ops;
use std::f64::consts::PI;

const RATE: &str = "initial_learning_rate";

/// Returns the step and the number of steps of a decay, as floats.
fn progress(inner: &Scope, step: impl Into<Input>, steps: u64) -> Result<(Output, Output)> {
    ensure!(steps > 0, InvalidArgument, "the number of decay steps must be positive, but is 0");
    let steps = inner.named_constant("decay_steps", steps as f32)?;
    Ok((ops::cast(inner, step, DType::Float)?, steps))
}

/// Returns the step divided by the number of steps, rounded down if `staircase` is set.
fn quotient(inner: &Scope, step: impl Into<Input>, steps: u64, staircase: bool) -> Result<Output> {
    let (step, steps) = progress(inner, step, steps)?;
    let quotient = div(inner, &step, &steps)?;
    if staircase { ops::floor(inner, &quotient) } else { Ok(quotient) }
}

/// `(1 + cos(π · done)) / 2`.
fn half_wave(inner: &Scope, done: &Output) -> Result<Output> {
    let wave = ops::cos(inner, mul(inner, PI, done))?;
    mul(inner, 0.5, add(inner, 1.0, &wave))
}

/// Returns `rate · decay_rate ^ (step / decay_steps)`, with the exponent rounded down if `staircase` is set.
#[track_caller]
pub fn exponential_decay(
    scope: &Scope,
    rate: impl Into<Scalar>,
    step: impl Into<Input>,
    decay_steps: u64,
    decay_rate: impl Into<Scalar>,
    staircase: bool,
) -> Result<Output> {
    let inner = scope.scope("ExponentialDecay");
    let rate = rate.into().node(&inner, RATE)?;
    let base = decay_rate.into().node(&inner, "decay_rate")?;
    let power = quotient(&inner, step, decay_steps, staircase)?;
    ops::Mul::new().name(inner.prefix()).build(&inner, &rate, ops::pow(&inner, &base, &power))
}

/// Returns `rate · e ^ (-decay_rate · step / decay_steps)`, with the quotient rounded down if `staircase` is set.
#[track_caller]
pub fn natural_exp_decay(
    scope: &Scope,
    rate: impl Into<Scalar>,
    step: impl Into<Input>,
    decay_steps: u64,
    decay_rate: impl Into<Scalar>,
    staircase: bool,
) -> Result<Output> {
    let decay_rate = decay_rate.into().node(scope, "decay_rate")?;
    let base = ops::exp(scope, ops::neg(scope, &decay_rate))?;
    exponential_decay(scope, rate, step, decay_steps, &base, staircase)
}

/// Returns `rate / (1 + decay_rate · step / decay_steps)`, with the quotient rounded down if `staircase` is set.
#[track_caller]
pub fn inverse_time_decay(
    scope: &Scope,
    rate: impl Into<Scalar>,
    step: impl Into<Input>,
    decay_steps: u64,
    decay_rate: impl Into<Scalar>,
    staircase: bool,
) -> Result<Output> {
    let inner = scope.scope("InverseTimeDecay");
    let rate = rate.into().node(&inner, RATE)?;
    let decay_rate = decay_rate.into().node(&inner, "decay_rate")?;
    let quotient = quotient(&inner, step, decay_steps, staircase)?;
    let divisor = add(&inner, 1.0, mul(&inner, &decay_rate, &quotient))?;
    ops::RealDiv::new().name(inner.prefix()).build(&inner, &rate, &divisor)
}

/// Returns one of `rates`: the first up to and including step `boundaries[0]`, the second up to `boundaries[1]`, and so
/// on.
///
/// ```
/// # use ferroflow::{Graph, global_step, schedules};
/// # fn main() -> ferroflow::Result<()> {
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// let rate = schedules::piecewise_constant(&s, &global_step(&s)?, &[1000, 5000], &[0.1, 0.01, 0.001])?;
/// let error = schedules::piecewise_constant(&s, &global_step(&s)?, &[1000], &[0.1]).unwrap_err();
/// assert!(error.message().contains("2 rates"));
/// # let _ = rate;
/// # Ok(())
/// # }
/// ```
#[track_caller]
pub fn piecewise_constant(
    scope: &Scope,
    step: impl Into<Input>,
    boundaries: &[i64],
    rates: &[f64],
) -> Result<Output> {
    ensure!(
        rates.len() == boundaries.len() + 1,
        InvalidArgument,
        "{} boundaries separate {} rates, but {} were given",
        boundaries.len(),
        boundaries.len() + 1,
        rates.len()
    );
    ensure!(
        boundaries.is_sorted_by(|a, b| a < b),
        InvalidArgument,
        "boundaries must be in increasing order, but are {boundaries:?}"
    );
    let inner = scope.scope("PiecewiseConstant");
    let step = ops::cast(&inner, step, DType::Int64)?;
    let passed = ops::greater(&inner, &step, Tensor::vector(boundaries.to_vec()))?;
    let count = ops::sum(&inner, ops::cast(&inner, &passed, DType::Int32), [0])?;
    let rates = rates.iter().map(|rate| *rate as f32).collect();
    ops::gather_v2(&inner, Tensor::vector(rates), &count, 0)
}

/// Decays from `rate` to `end_rate` within `decay_steps`, along a polynomial of degree `power`. If `cycle` is set, the
/// decay starts again with a longer period whenever it is over.
#[track_caller]
pub fn polynomial_decay(
    scope: &Scope,
    rate: impl Into<Scalar>,
    step: impl Into<Input>,
    decay_steps: u64,
    end_rate: impl Into<Scalar>,
    power: impl Into<Scalar>,
    cycle: bool,
) -> Result<Output> {
    let inner = scope.scope("PolynomialDecay");
    let rate = rate.into().node(&inner, RATE)?;
    let end = end_rate.into().node(&inner, "end_learning_rate")?;
    let power = power.into().node(&inner, "power")?;
    let (now, steps) = progress(&inner, step, decay_steps)?;
    let (now, steps) = if cycle {
        // Step 0 belongs to the first cycle.
        let cycles = ops::maximum(&inner, ops::ceil(&inner, div(&inner, &now, &steps)), 1.0)?;
        (now, mul(&inner, &steps, &cycles)?)
    } else {
        (ops::minimum(&inner, &now, &steps)?, steps)
    };
    let rest = sub(&inner, 1.0, div(&inner, &now, &steps))?;
    let part = mul(&inner, sub(&inner, &rate, &end), ops::pow(&inner, &rest, &power))?;
    ops::AddV2::new().name(inner.prefix()).build(&inner, &part, &end)
}

/// Decays from `rate` to `alpha · rate` within `decay_steps`, along half a period of the cosine.
#[track_caller]
pub fn cosine_decay(
    scope: &Scope,
    rate: impl Into<Scalar>,
    step: impl Into<Input>,
    decay_steps: u64,
    alpha: f64,
) -> Result<Output> {
    let inner = scope.scope("CosineDecay");
    let rate = rate.into().node(&inner, RATE)?;
    let (now, steps) = progress(&inner, step, decay_steps)?;
    let done = div(&inner, ops::minimum(&inner, &now, &steps), &steps)?;
    let wave = half_wave(&inner, &done)?;
    let part = add(&inner, mul(&inner, 1.0 - alpha, &wave), alpha)?;
    mul(&inner, &rate, &part)
}

/// Repeats [`cosine_decay`]: the first time within `first_decay_steps`, then each time within `t_mul` times as many steps,
/// starting from `m_mul` times the rate.
#[track_caller]
pub fn cosine_decay_restarts(
    scope: &Scope,
    rate: impl Into<Scalar>,
    step: impl Into<Input>,
    first_decay_steps: u64,
    t_mul: f64,
    m_mul: f64,
    alpha: f64,
) -> Result<Output> {
    ensure!(t_mul >= 1.0, InvalidArgument, "t_mul must be at least 1, but is {t_mul}");
    let inner = scope.scope("SGDRDecay");
    let rate = rate.into().node(&inner, RATE)?;
    let done = quotient(&inner, step, first_decay_steps, false)?;
    let (restarts, done) = if t_mul == 1.0 {
        let whole = ops::floor(&inner, &done)?;
        let part = sub(&inner, &done, &whole)?;
        (whole, part)
    } else {
        let t_mul = inner.named_constant("t_mul", t_mul as f32)?;
        let growth = sub(&inner, 1.0, &t_mul)?;
        let lengths = sub(&inner, 1.0, mul(&inner, &done, &growth))?;
        let count = div(&inner, ops::log(&inner, &lengths), ops::log(&inner, &t_mul))?;
        let restarts = ops::floor(&inner, &count)?;
        let length = ops::pow(&inner, &t_mul, &restarts)?;
        let before = div(&inner, sub(&inner, 1.0, &length), &growth)?;
        let part = div(&inner, sub(&inner, &done, &before), &length)?;
        (restarts, part)
    };
    let height = mul(&inner, 0.5, ops::pow(&inner, inner.named_constant("m_mul", m_mul as f32), &restarts))?;
    let wave = ops::cos(&inner, mul(&inner, PI, &done))?;
    let wave = mul(&inner, &height, add(&inner, 1.0, &wave))?;
    let part = add(&inner, mul(&inner, 1.0 - alpha, &wave), alpha)?;
    ops::Mul::new().name(inner.prefix()).build(&inner, &rate, &part)
}

/// Decays linearly to zero within `decay_steps`, multiplied by a cosine of `num_periods` periods:
/// `rate · ((alpha + 1 - done) · (1 + cos(2π · num_periods · done)) / 2 + beta)` with `done = step / decay_steps`.
#[track_caller]
pub fn linear_cosine_decay(
    scope: &Scope,
    rate: impl Into<Scalar>,
    step: impl Into<Input>,
    decay_steps: u64,
    num_periods: f64,
    alpha: f64,
    beta: f64,
) -> Result<Output> {
    let inner = scope.scope("LinearCosineDecay");
    let rate = rate.into().node(&inner, RATE)?;
    let (now, steps) = progress(&inner, step, decay_steps)?;
    let now = ops::minimum(&inner, &now, &steps)?;
    let fall = div(&inner, sub(&inner, &steps, &now), &steps)?;
    let turns = mul(&inner, 2.0 * num_periods, div(&inner, &now, &steps))?;
    let wave = half_wave(&inner, &turns)?;
    let part = mul(&inner, add(&inner, alpha, &fall), &wave)?;
    let part = cast(&inner, &add(&inner, &part, beta)?, rate.dtype())?;
    ops::Mul::new().name(inner.prefix()).build(&inner, &rate, &part)
}

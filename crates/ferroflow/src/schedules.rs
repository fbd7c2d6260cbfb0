//! Learning rates that change with the step, computed by the graph.
//!
//! ```
//! use ferroflow::optimizers::{GradientDescent, Optimizer};
//! use ferroflow::{Graph, global_step, schedules};
//! # fn main() -> ferroflow::Result<()> {
//! let graph = Graph::new();
//! let s = graph.scope();
//! let step = global_step(&s)?;
//! let rate = schedules::exponential_decay(&s, 0.1, &step, 1000, 0.96, true)?;
//! let optimizer = GradientDescent::new(&rate);
//! # let _ = optimizer.rule();
//! # Ok(())
//! # }
//! ```

use crate::variables::Variable;
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, Result, Tensor, ensure};
use ferroflow_ops::build as ops;

fn scalar(scope: &Scope, name: &str, value: f64) -> Result<Output> {
    scope.named_constant(name, Tensor::scalar(value as f32))
}

/// The step as a float, and over `steps`.
fn progress(scope: &Scope, step: &Variable, steps: f64) -> Result<Output> {
    let step = ops::cast(scope, step.read(scope), DType::Float)?;
    ops::real_div(scope, &step, steps)
}

/// `rate · decay_rate ^ (step / decay_steps)`, with whole powers if it is a staircase.
#[track_caller]
pub fn exponential_decay(
    scope: &Scope,
    rate: f64,
    step: &Variable,
    decay_steps: u64,
    decay_rate: f64,
    staircase: bool,
) -> Result<Output> {
    let inner = scope.scope("ExponentialDecay");
    let base = scalar(&inner, "decay_rate", decay_rate)?;
    decayed(&inner, rate, step, decay_steps, &base, staircase)
}

/// `rate · e ^ (-decay_rate · step / decay_steps)`, with whole powers if it is a staircase.
#[track_caller]
pub fn natural_exp_decay(
    scope: &Scope,
    rate: f64,
    step: &Variable,
    decay_steps: u64,
    decay_rate: f64,
    staircase: bool,
) -> Result<Output> {
    let base = ops::exp(scope, ops::neg(scope, scalar(scope, "decay_rate", decay_rate)))?;
    decayed(&scope.scope("ExponentialDecay"), rate, step, decay_steps, &base, staircase)
}

fn decayed(
    inner: &Scope,
    rate: f64,
    step: &Variable,
    decay_steps: u64,
    base: &Output,
    staircase: bool,
) -> Result<Output> {
    let rate = scalar(inner, "initial_learning_rate", rate)?;
    let mut power = progress(inner, step, decay_steps as f64)?;
    if staircase {
        power = ops::floor(inner, &power)?;
    }
    ops::Mul::new().name(inner.prefix()).build(inner, &rate, ops::pow(inner, base, &power))
}

/// `rate / (1 + decay_rate · step / decay_steps)`, with a whole quotient if it is a staircase.
#[track_caller]
pub fn inverse_time_decay(
    scope: &Scope,
    rate: f64,
    step: &Variable,
    decay_steps: u64,
    decay_rate: f64,
    staircase: bool,
) -> Result<Output> {
    let inner = scope.scope("InverseTimeDecay");
    let rate = scalar(&inner, "initial_learning_rate", rate)?;
    let mut quotient = progress(&inner, step, decay_steps as f64)?;
    if staircase {
        quotient = ops::floor(&inner, &quotient)?;
    }
    let bottom = ops::add_v2(&inner, 1.0, ops::mul(&inner, decay_rate, &quotient))?;
    ops::RealDiv::new().name(inner.prefix()).build(&inner, &rate, &bottom)
}

/// One of `rates`: the first up to and including the step `boundaries[0]`, and so on.
#[track_caller]
pub fn piecewise_constant(
    scope: &Scope,
    step: &Variable,
    boundaries: &[i64],
    rates: &[f64],
) -> Result<Output> {
    ensure!(
        rates.len() == boundaries.len() + 1 && boundaries.is_sorted(),
        InvalidArgument,
        "{} rates need {} boundaries in rising order, got {boundaries:?}",
        rates.len(),
        rates.len().saturating_sub(1)
    );
    let inner = scope.scope("PiecewiseConstant");
    let step = ops::cast(&inner, step.read(&inner), DType::Int64)?;
    let passed = ops::greater(&inner, &step, Tensor::vector(boundaries.to_vec()))?;
    let count = ops::sum(&inner, ops::cast(&inner, &passed, DType::Int32), [0])?;
    let rates = rates.iter().map(|rate| *rate as f32).collect();
    ops::gather_v2(&inner, Tensor::vector(rates), &count, 0)
}

/// From `rate` to `end_rate` in `decay_steps`, along a polynomial of degree `power`; in cycles, each longer than the
/// last, if `cycle` says so.
#[track_caller]
pub fn polynomial_decay(
    scope: &Scope,
    rate: f64,
    step: &Variable,
    decay_steps: u64,
    end_rate: f64,
    power: f64,
    cycle: bool,
) -> Result<Output> {
    let inner = scope.scope("PolynomialDecay");
    let rate = scalar(&inner, "initial_learning_rate", rate)?;
    let end = scalar(&inner, "Cast", end_rate)?;
    let now = ops::cast(&inner, step.read(&inner), DType::Float)?;
    let steps = scalar(&inner, "decay_steps", decay_steps as f64)?;
    let (now, steps) = if cycle {
        let rounds = ops::ceil(&inner, ops::real_div(&inner, &now, &steps))?;
        let rounds = ops::maximum(&inner, &rounds, 1.0)?;
        (now, ops::mul(&inner, &steps, &rounds)?)
    } else {
        (ops::minimum(&inner, &now, &steps)?, steps)
    };
    let rest = ops::sub(&inner, 1.0, ops::real_div(&inner, &now, &steps))?;
    let range = ops::sub(&inner, &rate, &end)?;
    let part = ops::mul(&inner, &range, ops::pow(&inner, &rest, power))?;
    ops::AddV2::new().name(inner.prefix()).build(&inner, &part, &end)
}

/// From `rate` to `alpha · rate` in `decay_steps`, along half a wave of the cosine.
#[track_caller]
pub fn cosine_decay(
    scope: &Scope,
    rate: f64,
    step: &Variable,
    decay_steps: u64,
    alpha: f64,
) -> Result<Output> {
    let inner = scope.scope("CosineDecay");
    let rate = scalar(&inner, "initial_learning_rate", rate)?;
    let now = ops::cast(&inner, step.read(&inner), DType::Float)?;
    let now = ops::minimum(&inner, &now, decay_steps as f64)?;
    let done = ops::real_div(&inner, &now, decay_steps as f64)?;
    let wave = ops::cos(&inner, ops::mul(&inner, std::f64::consts::PI, &done))?;
    let wave = ops::mul(&inner, 0.5, ops::add_v2(&inner, 1.0, &wave))?;
    let part = ops::add_v2(&inner, ops::mul(&inner, 1.0 - alpha, &wave), alpha)?;
    ops::mul(&inner, &rate, &part)
}

//! Arithmetic in a given scope, with the node names of TensorFlow's Python operators.

use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{DType, Result};
use ferroflow_ops::builders as ops;

#[track_caller]
fn binary(scope: &Scope, op: &str, name: &str, x: impl Into<Input>, y: impl Into<Input>) -> Result<Output> {
    scope.op(op).name(name).input(x).input(y).build()?.output(0)
}

/// `x + y`.
#[track_caller]
pub(crate) fn add(scope: &Scope, x: impl Into<Input>, y: impl Into<Input>) -> Result<Output> {
    binary(scope, "AddV2", "add", x, y)
}

/// `x - y`.
#[track_caller]
pub(crate) fn sub(scope: &Scope, x: impl Into<Input>, y: impl Into<Input>) -> Result<Output> {
    binary(scope, "Sub", "sub", x, y)
}

/// `x · y`.
#[track_caller]
pub(crate) fn mul(scope: &Scope, x: impl Into<Input>, y: impl Into<Input>) -> Result<Output> {
    binary(scope, "Mul", "mul", x, y)
}

/// `x / y`.
#[track_caller]
pub(crate) fn div(scope: &Scope, x: impl Into<Input>, y: impl Into<Input>) -> Result<Output> {
    binary(scope, "RealDiv", "truediv", x, y)
}

/// Casts to another type; returns the same output if it has that type already.
#[track_caller]
pub(crate) fn cast(scope: &Scope, x: &Output, dtype: DType) -> Result<Output> {
    if x.dtype() == dtype { Ok(x.clone()) } else { ops::cast(scope, x, dtype) }
}

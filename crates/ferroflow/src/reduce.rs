//! Reductions over all dimensions of an output.

use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{DType, Result, Tensor};
use ferroflow_ops::builders as ops;

/// Returns the numbers of all dimensions.
pub(crate) fn axes(scope: &Scope, x: &Output) -> Result<Input> {
    match x.shape().rank() {
        Some(rank) => Ok(Tensor::vector((0..rank as i32).collect()).into()),
        None => Ok(ops::range(scope, 0, ops::rank(scope, x), 1)?.into()),
    }
}

/// Adds the sum of all elements.
#[track_caller]
pub(crate) fn sum_all(scope: &Scope, x: impl Into<Output>) -> Result<Output> {
    let x = x.into();
    ops::sum(scope, &x, axes(scope, &x)?)
}

/// Adds the number of elements of `x`, in the given type.
#[track_caller]
pub(crate) fn count(scope: &Scope, x: &Output, dtype: DType) -> Result<Output> {
    ops::cast(scope, ops::size(scope, x), dtype)
}

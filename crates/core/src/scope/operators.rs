//! `+`, `-`, `*`, `/` and unary `-` on outputs. Nodes get the names that stock's Python operators give.

use super::constant::InputKind;
use super::{Input, Output, Scope};
use crate::{DType, Result};
use std::ops::{Add, Div, Mul, Neg, Sub};

/// The op for `/`, with the meaning it has in Rust: exact for floating-point numbers, rounding toward zero for
/// integers.
fn quotient(dtype: DType) -> &'static str {
    if dtype.is_integer() { "TruncateDiv" } else { "RealDiv" }
}

#[track_caller]
fn binary(scope: &Scope, op: &str, name: &str, x: impl Into<Input>, y: impl Into<Input>) -> Result<Output> {
    let (x, y) = (x.into(), y.into());
    // In a function body, the left operand may be an outer output.
    let scope = match &y.0 {
        InputKind::Output(right)
            if right.graph().is_within(scope.graph()) && !right.graph().is_same(scope.graph()) =>
        {
            right.scope().clone()
        }
        _ => scope.clone(),
    };
    scope.op(op).name(name).input(x).input(y).build()?.output(0)
}

macro_rules! operators {
    ($($trait:ident, $method:ident, $name:literal, $op:expr;)+) => {$(
        impl<R: Into<Input>> $trait<R> for &Output {
            type Output = Result<Output>;
            #[track_caller]
            fn $method(self, right: R) -> Result<Output> {
                let op: fn(DType) -> &'static str = $op;
                binary(self.scope(), op(self.dtype()), $name, self, right)
            }
        }
        impl<R: Into<Input>> $trait<R> for Output {
            type Output = Result<Output>;
            #[track_caller]
            fn $method(self, right: R) -> Result<Output> {
                $trait::$method(&self, right)
            }
        }
        operators!(@left $trait, $method, $name, $op; f32, f64, i32, i64);
    )+};
    (@left $trait:ident, $method:ident, $name:literal, $op:expr; $($number:ty),+) => {$(
        impl $trait<&Output> for $number {
            type Output = Result<Output>;
            #[track_caller]
            fn $method(self, right: &Output) -> Result<Output> {
                let op: fn(DType) -> &'static str = $op;
                binary(right.scope(), op(right.dtype()), $name, self, right)
            }
        }
        impl $trait<Output> for $number {
            type Output = Result<Output>;
            #[track_caller]
            fn $method(self, right: Output) -> Result<Output> {
                $trait::$method(self, &right)
            }
        }
    )+};
}

operators! {
    Add, add, "add", |dtype| if dtype == DType::String { "Add" } else { "AddV2" };
    Sub, sub, "sub", |_| "Sub";
    Mul, mul, "mul", |_| "Mul";
    Div, div, "truediv", quotient;
}

impl Neg for &Output {
    type Output = Result<Output>;
    #[track_caller]
    fn neg(self) -> Result<Output> {
        self.scope().op("Neg").input(self).build()?.output(0)
    }
}

impl Neg for Output {
    type Output = Result<Output>;
    #[track_caller]
    fn neg(self) -> Result<Output> {
        -&self
    }
}

//! A typed builder for every op: a short function that leaves optional attributes at their defaults, and a struct that
//! sets them.
//!
//! `mat_mul(&s, &a, &b)?` and `MatMul::new().transpose_a(true).build(&s, &a, &b)?` add the same op. Names of functions
//! are those of stock's raw ops in Python. Inputs come first, then attributes that have no default; type and count
//! attributes that follow from inputs are never asked for. An op with several outputs returns a struct of them.

// Every group imports the same names.
#[allow(
    unused_imports,
    clippy::too_many_arguments,
    clippy::wrong_self_convention,
    clippy::new_without_default,
    clippy::large_types_passed_by_value
)]
mod generated;

pub use generated::*;

//! Numeric routines without op knowledge: products, broadcasting, reductions. The only place of this crate with
//! `unsafe` code.

pub mod product;

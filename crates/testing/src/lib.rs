//! Parts that tests share: the goldens that stock wrote, how results are compared with them, and the runtimes to run them on.
//!
//! This crate is handed an op registry; it knows no op, and it is never linked into a server.

pub mod compare;
pub mod golden;
pub mod local;
pub mod remote;
pub mod suite;
pub mod text;

//! Tests that need more than one crate: goldens on every runtime, and declarations against stock's.

//! What a user of Ferroflow imports.

pub use ferroflow_core::op;
pub use ferroflow_ops::registry;

//! State that outlives a step: named, typed, and kept in containers on a device. Variables are defined here; queues,
//! tables and other resources beside their ops.

mod handle;
mod manager;
mod variable;

pub use handle::{HandleShape, ResourceHandle};
pub use manager::{CachedLookup, Resource, ResourceManager};
pub use variable::{RefVariable, Variable, View};

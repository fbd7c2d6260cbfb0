//! The graph that a program builds, over the ops of this build.

use std::ops::Deref;

/// A graph under construction over all ops of this build. Cloning shares.
///
/// ```
/// use ferroflow::{Graph, Result, gradients, ops};
///
/// fn main() -> Result<()> {
///     let graph = Graph::new();
///     let s = graph.scope();
///     let x = s.constant(3.0f32)?;
///     let y = (ops::square(&s, &x)? + 1.0)?;
///     let slope = gradients(&s, [&y], [&x])?;
///     assert!(slope[0].is_some());
///     assert_eq!(y.name(), "add:0");
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
pub struct Graph(ferroflow_core::scope::Graph);

impl Graph {
    /// An empty graph.
    pub fn new() -> Graph {
        Graph(ferroflow_core::scope::Graph::over(ferroflow_ops::registry()))
    }
}

impl Default for Graph {
    fn default() -> Graph {
        Graph::new()
    }
}

impl Deref for Graph {
    type Target = ferroflow_core::scope::Graph;

    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

//! Follows shapes through a graph and refuses what can never fit.

use ferroflow_core::Result;
use ferroflow_core::graph::{Graph, Inference};

/// Infers the shapes of every node's outputs.
pub(super) fn infer_shapes(graph: &Graph) -> Result<()> {
    let mut known = Inference::default();
    for id in graph.topological_order()? {
        known.infer(graph, id).map_err(|error| error.at_node(&graph.node(id).data.name))?;
    }
    Ok(())
}

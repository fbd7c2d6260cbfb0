//! Shape inference over a planned graph, the last planning pass. It only refuses nodes whose inputs can never fit; the
//! inferred shapes are not kept.

use ferroflow_core::Result;
use ferroflow_core::graph::{Graph, Inference};

/// Infers the output shapes of every node.
pub(super) fn infer_shapes(graph: &Graph) -> Result<()> {
    let mut known = Inference::default();
    for id in graph.topological_order()? {
        known.infer(graph, id).map_err(|error| error.at_node(&graph.node(id).data.name))?;
    }
    Ok(())
}

//! Planning: from a graph and what is fed and fetched to the nodes that will run. Pure functions on graphs, tested as
//! text; only constant folding runs kernels.

mod fold;
mod infer;
pub mod place;
mod prune;
mod share;
#[cfg(test)]
mod tests;

pub use prune::{Signature, parse_tensor_name};

use crate::env::RuntimeEnv;
use ferroflow_core::graph::{FunctionBody, Graph, NodeId, Output};
use ferroflow_core::{DType, Result};
use std::sync::Arc;

/// Choices that the session's configuration makes.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Whether constants are folded and common subexpressions shared.
    pub optimize: bool,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions { optimize: true }
    }
}

/// What planning produces.
pub(crate) struct Planned {
    pub(crate) graph: Graph,
    pub(crate) arg_names: Vec<String>,
    pub(crate) arg_types: Vec<DType>,
    pub(crate) fetches: Vec<Output>,
    pub(crate) fetch_names: Vec<String>,
    /// Nodes that run although no fetch needs them.
    pub(crate) targets: Vec<NodeId>,
}

/// Plans a graph for a signature.
pub(crate) fn plan(
    graph: &Graph,
    signature: &Signature,
    options: &PlanOptions,
    env: &Arc<RuntimeEnv>,
) -> Result<Planned> {
    finish(prune::prune(graph, signature)?, options, env)
}

/// Plans a function's body: results, control results and everything with an effect.
pub(crate) fn plan_function(body: FunctionBody, env: &Arc<RuntimeEnv>) -> Result<Planned> {
    let effects = body.graph.ids().filter(|id| body.graph.node(*id).data.is_stateful());
    let mut targets: Vec<NodeId> = effects.chain(body.controls.iter().copied()).collect();
    targets.sort();
    targets.dedup();
    let planned = Planned {
        arg_names: body.arg_types.iter().enumerate().map(|(i, _)| format!("arg{i}")).collect(),
        arg_types: body.arg_types,
        fetch_names: (0..body.returns.len()).map(|i| format!("Retval[{i}]")).collect(),
        fetches: body.returns,
        targets,
        graph: body.graph,
    };
    finish(prune::keep_needed(planned), &PlanOptions::default(), env)
}

fn finish(mut planned: Planned, options: &PlanOptions, env: &Arc<RuntimeEnv>) -> Result<Planned> {
    if options.optimize {
        planned = fold::fold_constants(planned, env)?;
        planned = share::share_common(planned)?;
        planned = prune::keep_needed(planned);
    }
    infer::infer_shapes(&planned.graph)?;
    Ok(planned)
}

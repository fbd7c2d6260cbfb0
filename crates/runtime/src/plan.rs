//! Planning: turns a graph and a signature (feeds, fetches, targets) into the nodes that will run. [`plan`] calls the
//! passes in order. They are pure functions on graphs, tested as text; only constant folding runs kernels.

mod call;
mod fold;
mod infer;
pub mod lower;
pub mod partition;
pub mod place;
mod prune;
mod results;
mod share;
#[cfg(test)]
mod tests;

pub use call::{Call, PackedArg, plan_component, plan_op};
pub use prune::{Signature, parse_tensor_name};

use crate::env::RuntimeEnv;
use ferroflow_core::graph::{FunctionBody, Graph, NodeId, NodeKind, Output};
use ferroflow_core::{DType, Result, bail};
use std::sync::Arc;

/// Options from the session's configuration.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// True if constants are folded and common subexpressions are eliminated.
    pub optimize: bool,
}

impl Default for PlanOptions {
    fn default() -> PlanOptions {
        PlanOptions { optimize: true }
    }
}

/// The result of planning: the nodes that will run, each with its device.
pub struct Planned {
    pub(crate) graph: Graph,
    pub(crate) arg_names: Vec<String>,
    pub(crate) arg_types: Vec<DType>,
    pub(crate) fetches: Vec<Output>,
    pub(crate) fetch_names: Vec<String>,
    /// Full names of the devices that keep the fetches; empty if the client's device has all of them.
    pub(crate) fetch_devices: Vec<String>,
    /// Nodes that run even if no fetch needs them.
    pub(crate) targets: Vec<NodeId>,
    /// The options that the plan was made with; they apply to the functions it calls as well.
    pub(crate) options: PlanOptions,
}

impl Planned {
    /// The nodes that will run.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The body of a function as it is: its arguments are fed, its results fetched.
    pub(crate) fn of_body(body: FunctionBody) -> Planned {
        Planned {
            arg_names: (0..body.arg_types.len()).map(|i| format!("arg{i}")).collect(),
            arg_types: body.arg_types,
            fetch_names: (0..body.returns.len()).map(|i| format!("Retval[{i}]")).collect(),
            fetches: body.returns,
            fetch_devices: Vec::new(),
            targets: body.controls,
            graph: body.graph,
            options: PlanOptions::default(),
        }
    }

    /// The part of another device of the same plan, which takes the same arguments and has the results that stay there.
    pub fn beside(&self, part: partition::Part) -> Planned {
        Planned {
            graph: part.graph,
            arg_names: self.arg_names.clone(),
            arg_types: self.arg_types.clone(),
            fetch_names: part.fetches.iter().map(|(number, _)| format!("Retval[{number}]")).collect(),
            fetches: part.fetches.into_iter().map(|(_, output)| output).collect(),
            fetch_devices: Vec::new(),
            targets: Vec::new(),
            options: self.options.clone(),
        }
    }

    /// A plan that runs every node of a graph once, without feeds or fetches.
    pub(crate) fn whole(graph: Graph) -> Planned {
        Planned {
            graph,
            arg_names: Vec::new(),
            arg_types: Vec::new(),
            fetches: Vec::new(),
            fetch_names: Vec::new(),
            fetch_devices: Vec::new(),
            targets: Vec::new(),
            options: PlanOptions::default(),
        }
    }

    /// The device that keeps a fetch.
    pub(crate) fn fetch_device<'a>(&'a self, number: usize, client: &'a str) -> &'a str {
        self.fetch_devices.get(number).map_or(client, String::as_str)
    }
}

/// Plans a placed graph for a signature. Feeds and fetches are on the device of `env`.
pub fn plan(
    graph: &Graph,
    signature: &Signature,
    options: &PlanOptions,
    env: &Arc<RuntimeEnv>,
) -> Result<Planned> {
    let planned = prune::prune(graph, signature, env.device.name())?;
    refuse_removed_ops(&planned.graph)?;
    optimize_and_check(Planned { options: options.clone(), ..planned }, env)
}

/// Refuses ops that were removed at or before the graph's version if they would run, as stock does.
fn refuse_removed_ops(graph: &Graph) -> Result<()> {
    for node in graph.nodes() {
        if let NodeKind::Op(entry) = &node.data.kind
            && let Some(version) = entry.op.deprecated_at
            && graph.producer() >= version
        {
            bail!(
                Unimplemented,
                "Op {} is not available in GraphDef version {}. It was removed in version {version}. (node '{}')",
                entry.op.name,
                graph.producer(),
                node.data.name
            );
        }
    }
    Ok(())
}

/// Plans a function's body: the nodes that its results and control results need. An effect that neither needs does not
/// happen, as in stock, which inlines functions before it prunes. If the function's name is given, calls within are
/// inlined.
pub(crate) fn plan_function(
    mut body: FunctionBody,
    inlined: Option<&str>,
    env: &Arc<RuntimeEnv>,
) -> Result<Planned> {
    if let Some(name) = inlined {
        lower::lower_body(&mut body.graph, name)?;
    }
    optimize_and_check(prune::keep_needed(Planned::of_body(body)), env)
}

fn optimize_and_check(mut planned: Planned, env: &Arc<RuntimeEnv>) -> Result<Planned> {
    if planned.options.optimize {
        planned = fold::fold_constants(planned, env)?;
        planned = share::share_common(planned)?;
        planned = prune::keep_needed(planned);
    }
    infer::infer_shapes(&planned.graph)?;
    Ok(planned)
}

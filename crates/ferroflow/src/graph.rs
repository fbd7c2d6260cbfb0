//! The graph that a program builds, over the ops of this build.

use std::ops::Deref;

/// A graph under construction over all ops of this build. Cloning shares.
///
/// Nodes are added in a [`Scope`](crate::Scope), by operators on outputs or by the builders in [`ops`](crate::ops). What
/// does not fit is an error at the line that asked for it.
///
/// ```
/// use ferroflow::{Graph, Result, gradients, ops};
///
/// # fn main() -> Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let x = s.constant(3.0f32)?;
/// let y = (ops::square(&s, &x)? + 1.0)?;
/// assert_eq!(y.name(), "add:0");
/// let slope = gradients(&s, [&y], [&x])?;
/// assert!(slope[0].is_some());
///
/// let vector = s.constant([1.0f32, 2.0])?;
/// let error = (&vector + &s.constant([1.0f32, 2.0, 3.0])?).unwrap_err();
/// assert!(error.message().starts_with("Dimensions must be equal, but are 2 and 3 for '{{node add_1}} = AddV2"));
/// # Ok(())
/// # }
/// ```
///
/// Scopes give nodes names, devices, things to wait for and company:
///
/// ```
/// # use ferroflow::{Graph, Result, ops};
/// # fn main() -> Result<()> {
/// # let graph = Graph::new();
/// let s = graph.scope().scope("hidden").device("/job:ps/task:0");
/// let w = s.named_constant("w", 1.0f32)?;
/// assert_eq!((w.name().as_str(), w.op().device().as_str()), ("hidden/w:0", "/job:ps/task:0"));
/// let ready = s.op("NoOp").name("ready").build()?;
/// let after = s.control([&ready]).colocate_with(&w);
/// let doubled = ops::mul(&after, &w, 2.0)?;
/// assert_eq!(doubled.op().control_inputs(), [ready]);
/// # Ok(())
/// # }
/// ```
///
/// Branches and loops are closures; gradients go through them:
///
/// ```
/// # use ferroflow::{Graph, Result, Session, cond, gradients, ops, while_loop};
/// # fn main() -> Result<()> {
/// # let graph = Graph::new();
/// # let s = graph.scope();
/// let x = s.constant(2.0f32)?;
/// let powers = while_loop(
///     &s,
///     [&s.constant(0i32)?, &x],
///     |s, v| ops::less(s, &v[0], 3),
///     |_, v| Ok(vec![(&v[0] + 1)?, (&v[1] * &x)?]),
/// )?;
/// let y = cond(&s, ops::greater(&s, &x, 0.0), |_| Ok(vec![powers[1].clone()]), |_| Ok(vec![x.clone()]))?;
/// let slope = gradients(&s, &y, [&x])?.remove(0).expect("y depends on x");
/// let session = Session::new(&graph)?;
/// assert_eq!(session.eval(slope.values())?.to_scalar::<f32>()?, 4.0 * 8.0);
/// # Ok(())
/// # }
/// ```
///
/// Graphs go to stock TensorFlow and come from it:
///
/// ```
/// # use ferroflow::{Graph, Import, MetaGraph, Result};
/// # fn main() -> Result<()> {
/// # let graph = Graph::new();
/// graph.scope().named_constant("x", 1.0f32)?;
/// let message = graph.to_meta_graph_def(&MetaGraph::default());
/// let copy = Graph::new();
/// copy.import_meta_graph(&message)?;
/// let again = Import::new().prefix("again").outputs(["x:0"]).build(&copy.scope(), &graph.to_graph_def())?;
/// assert_eq!(again[0].name(), "again/x:0");
/// # Ok(())
/// # }
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

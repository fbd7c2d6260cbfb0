//! The graph that a program builds, with all ops of this build.

use ferroflow_core::scope::MetaGraph;
use ferroflow_core::{Result, status};
use ferroflow_proto::tensorflow::{GraphDef, MetaGraphDef};
use prost::Message;
use std::ops::Deref;
use std::path::Path;

/// A graph under construction. Cloning shares the graph.
///
/// Nodes are added in a [`Scope`](crate::Scope), by operators on outputs or by the builders in [`ops`](crate::ops). A type
/// or shape that does not fit is an error of the line that adds the node.
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
/// Scopes give nodes names, devices, control dependencies and colocation:
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
/// Branches and loops are closures. They can be differentiated:
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
/// Graphs can be exported to TensorFlow and imported from it:
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
    /// Creates an empty graph.
    pub fn new() -> Graph {
        Graph(ferroflow_core::scope::Graph::over(ferroflow_ops::registry()))
    }

    /// Writes nodes and functions to a file, like TensorFlow's `tf.io.write_graph(…, as_text=False)`.
    ///
    /// ```
    /// # use ferroflow::{Graph, Result};
    /// # fn main() -> Result<()> {
    /// # let path = std::env::temp_dir().join(format!("graph-{}.pb", std::process::id()));
    /// let graph = Graph::new();
    /// graph.scope().named_constant("x", 1.0f32)?;
    /// graph.write_graph(&path)?;
    /// let copy = Graph::new();
    /// copy.import_graph_file(&path)?;
    /// assert_eq!(copy.output("x:0")?.shape().rank(), Some(0));
    /// # std::fs::remove_file(path).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn write_graph(&self, path: impl AsRef<Path>) -> Result<()> {
        write(path.as_ref(), &self.to_graph_def())
    }

    /// Adds the nodes and functions of a file that [`Graph::write_graph`] or TensorFlow wrote.
    ///
    /// # Errors
    ///
    /// `NotFound` without the file, `DataLoss` if it is not a binary `GraphDef`.
    pub fn import_graph_file(&self, path: impl AsRef<Path>) -> Result<()> {
        self.import(&read::<GraphDef>(path.as_ref(), "GraphDef")?)
    }

    /// Writes the graph with its collections and other metadata, like TensorFlow's `export_meta_graph`.
    pub fn write_meta_graph(&self, path: impl AsRef<Path>, meta: &MetaGraph) -> Result<()> {
        write(path.as_ref(), &self.to_meta_graph_def(meta))
    }

    /// Adds the graph of a file that [`Graph::write_meta_graph`], a [`Saver`](crate::train::Saver) or TensorFlow wrote, and
    /// returns its metadata. A program that did not build the model can continue from its checkpoint this way.
    ///
    /// # Errors
    ///
    /// `NotFound` without the file, `DataLoss` if it is not a binary `MetaGraphDef`.
    ///
    /// ```
    /// use ferroflow::train::Saver;
    /// use ferroflow::{Graph, Session};
    /// # use ferroflow::{Result, Variable, variables::global_variables_initializer};
    /// # fn main() -> Result<()> {
    /// # let directory = std::env::temp_dir().join(format!("meta-graph-{}", std::process::id()));
    /// # std::fs::create_dir_all(&directory).unwrap();
    /// # let (prefix, built) = (directory.join("model"), Graph::new());
    /// # Variable::with_value(&built.scope(), "w", 3.0f32)?;
    /// # let init = global_variables_initializer(&built.scope())?;
    /// # let saver = Saver::new(&built)?;
    /// # let session = Session::new(&built)?;
    /// # session.execute(&init)?;
    /// # let path = saver.save(&session, &prefix, None)?;
    ///
    /// let graph = Graph::new();
    /// let meta = graph.import_meta_graph_file(format!("{path}.meta"))?;
    /// let saver = Saver::from_def(&graph, &meta.saver.expect("checkpoints carry their saver"))?;
    /// let session = Session::new(&graph)?;
    /// saver.restore(&session, &path)?;
    /// assert_eq!(session.eval(&graph.output("w/Read/ReadVariableOp:0")?)?.to_scalar::<f32>()?, 3.0);
    /// # std::fs::remove_dir_all(directory).unwrap();
    /// # Ok(())
    /// # }
    /// ```
    pub fn import_meta_graph_file(&self, path: impl AsRef<Path>) -> Result<MetaGraph> {
        self.import_meta_graph(&read::<MetaGraphDef>(path.as_ref(), "MetaGraphDef")?)
    }
}

fn write(path: &Path, message: &impl Message) -> Result<()> {
    ferroflow_io::file::write(path, &message.encode_to_vec())
}

fn read<M: Message + Default>(path: &Path, what: &str) -> Result<M> {
    let bytes = ferroflow_io::file::read(path)?;
    M::decode(bytes.as_slice())
        .map_err(|error| status!(DataLoss, "{} is not a binary {what}: {error}", path.display()))
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

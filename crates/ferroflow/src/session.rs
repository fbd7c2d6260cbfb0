//! Sessions: a graph of this program registered with a master, in this process or on a server, and the steps that run it.

mod callable;
mod connection;
mod options;
mod partial_run;

pub use callable::Callable;
pub use options::{RunOptions, SessionOptions};
pub use partial_run::PartialRun;

use crate::target::Target;
use connection::Connection;
use ferroflow_core::scope::{Graph, Operation, Output};
use ferroflow_core::{Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{DeviceAttributes, RunMetadata};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// A connection to a master that runs steps of a graph.
///
/// Cloning shares the session. It can be used from several threads, whose steps run concurrently. It is closed when the
/// last clone is dropped.
///
/// Nodes that are added to the graph later are sent before the next step.
///
/// ```
/// use ferroflow::{Graph, Session};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let sum = (&s.constant(2.0f32)? + 3.0)?;
/// let session = Session::new(&graph)?;
/// assert_eq!(session.eval(&sum)?.to_scalar::<f32>()?, 5.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[derive(Clone)]
pub struct Session(Arc<Inner>);

struct Inner {
    graph: Graph,
    /// Number of nodes of the graph that the master has.
    sent: AtomicUsize,
    /// Number of changes to existing nodes when the last nodes were sent.
    rewrites: AtomicUsize,
    /// Held while nodes are sent.
    sending: Mutex<()>,
    connection: Arc<Connection>,
}

impl Session {
    /// Opens a session in this process, without a server. It has its own variables.
    pub fn new(graph: &Graph) -> Result<Session> {
        Session::connect(&Target::local()?, graph)
    }

    /// Opens a session on a server, given as `grpc://host:port` or as a [`Target`]. Waits up to two minutes for the tasks
    /// of its cluster.
    ///
    /// # Errors
    ///
    /// `Unavailable` or `DeadlineExceeded` if a task cannot be reached, `InvalidArgument` if the target is malformed or the
    /// graph is not valid.
    pub fn connect(target: impl Into<Target>, graph: &Graph) -> Result<Session> {
        Session::with_options(target, graph, SessionOptions::new())
    }

    /// Opens a session with options; see [`Session::connect`].
    pub fn with_options(
        target: impl Into<Target>,
        graph: &Graph,
        options: SessionOptions,
    ) -> Result<Session> {
        let client = target.into().client()?;
        let rewrites = AtomicUsize::new(graph.rewrites());
        let def = graph.to_graph_def();
        let sent = AtomicUsize::new(def.node.len());
        let connection = Arc::new(Connection::open(client, def, options)?);
        let (graph, sending) = (graph.clone(), Mutex::default());
        Ok(Session(Arc::new(Inner { graph, sent, rewrites, sending, connection })))
    }

    /// Returns the graph that the session runs.
    pub fn graph(&self) -> &Graph {
        &self.0.graph
    }

    /// Returns the address of the master; empty for a session in this process without a server.
    pub fn target(&self) -> &str {
        self.0.connection.client().target()
    }

    /// Computes `fetches` from `feeds`, and returns the tensors in the order of `fetches`.
    pub fn run(&self, feeds: &[(&Output, Tensor)], fetches: &[&Output]) -> Result<Vec<Tensor>> {
        self.run_step(feeds, fetches, &[])
    }

    /// Feeds tensors, computes outputs and runs operations in one step. Returns the tensors in the order of `fetches`.
    ///
    /// ```
    /// use ferroflow::{DType, Graph, Session, Variable, ops};
    ///
    /// let graph = Graph::new();
    /// let s = graph.scope();
    /// let x = ops::placeholder(&s, DType::Float)?;
    /// let doubled = (&x * 2.0)?;
    /// let total = Variable::with_value(&s, "total", 1.0f32)?;
    /// let add = total.assign_add(&s, &doubled)?;
    /// let session = Session::new(&graph)?;
    /// session.execute(total.initializer())?;
    /// let values = session.run_step(&[(&x, 3.0f32.into())], &[&doubled], &[&add])?;
    /// assert_eq!(values[0].to_scalar::<f32>()?, 6.0);
    /// assert_eq!(session.eval(total.value())?.to_scalar::<f32>()?, 7.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if a fed tensor has another type or shape than its output, or an output or operation belongs to
    /// another graph; otherwise the first error of a node.
    pub fn run_step(
        &self,
        feeds: &[(&Output, Tensor)],
        fetches: &[&Output],
        targets: &[&Operation],
    ) -> Result<Vec<Tensor>> {
        let mut step = self.step();
        for (output, value) in feeds {
            step = step.feed(output, value.clone());
        }
        for output in fetches {
            step = step.fetch(output);
        }
        for operation in targets {
            step = step.target(*operation);
        }
        Ok(step.run()?.values)
    }

    /// Computes one output.
    pub fn eval(&self, output: &Output) -> Result<Tensor> {
        let values = self.run(&[], &[output])?;
        values
            .into_iter()
            .next()
            .ok_or_else(|| status!(Internal, "the step did not return {}", output.name()))
    }

    /// Runs an operation, such as an initializer or a training step.
    pub fn execute(&self, operation: impl Into<Operation>) -> Result<()> {
        self.step().target(operation).run().map(drop)
    }

    /// Starts the description of a step, for options such as a timeout or a trace.
    pub fn step(&self) -> Step<'_> {
        Step {
            session: self,
            feeds: Vec::new(),
            fetches: Vec::new(),
            targets: Vec::new(),
            options: RunOptions::new(),
        }
    }

    /// Prepares a step that runs repeatedly: its names are resolved once.
    ///
    /// ```
    /// # use ferroflow::{DType, Graph, Session};
    /// # let graph = Graph::new();
    /// # let s = graph.scope();
    /// let x = s.op("Placeholder").attr("dtype", DType::Float).build()?.output(0)?;
    /// let doubled = (&x * 2.0)?;
    /// let session = Session::new(&graph)?;
    /// let double = session.prepare(&[&x], &[&doubled], &[])?;
    /// assert_eq!(double.run(&[21.0f32.into()])?[0].to_scalar::<f32>()?, 42.0);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn prepare(
        &self,
        feeds: &[&Output],
        fetches: &[&Output],
        targets: &[&Operation],
    ) -> Result<Callable> {
        let mut step = self.step();
        for output in fetches {
            step = step.fetch(output);
        }
        for operation in targets {
            step = step.target(*operation);
        }
        step.prepare(feeds)
    }

    /// Starts a step that is fed and fetched over several calls. All feeds and fetches are declared here; `targets` run as
    /// soon as they can.
    ///
    /// ```
    /// # use ferroflow::{DType, Graph, Session, ops};
    /// # let graph = Graph::new();
    /// # let s = graph.scope();
    /// # let (a, b) = (ops::placeholder(&s, DType::Float)?, ops::placeholder(&s, DType::Float)?);
    /// let doubled = (&a * 2.0)?;
    /// let sum = (&doubled + &b)?;
    /// let session = Session::new(&graph)?;
    /// let run = session.partial_run(&[&a, &b], &[&doubled, &sum], &[])?;
    /// let first = run.run(&[(&a, 3.0f32.into())], &[&doubled])?[0].to_scalar::<f32>()?;
    /// let last = run.run(&[(&b, (first + 1.0).into())], &[&sum])?[0].to_scalar::<f32>()?;
    /// assert_eq!((first, last), (6.0, 13.0));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn partial_run(
        &self,
        feeds: &[&Output],
        fetches: &[&Output],
        targets: &[&Operation],
    ) -> Result<PartialRun> {
        self.0.connection.check_open()?;
        let mut step = self.step();
        for output in fetches {
            step = step.fetch(output);
        }
        for operation in targets {
            step = step.target(*operation);
        }
        for output in feeds {
            self.check_output(output, "feed")?;
        }
        let (fetches, targets) = step.names()?;
        self.extend()?;
        PartialRun::new(&self.0.connection, self.graph(), feeds, fetches, targets)
    }

    /// Clears containers of a server and of the tasks of its cluster (the default container if none is named): variables,
    /// queues and tables lose their values, and all sessions of the server are closed. The device filters of `options`
    /// select the tasks.
    ///
    /// ```
    /// use ferroflow::{Code, Graph, Server, Session, SessionOptions, Variable};
    ///
    /// let graph = Graph::new();
    /// let w = Variable::with_value(&graph.scope(), "w", 1.0f32)?;
    /// let server = Server::local()?;
    /// let session = Session::connect(&server, &graph)?;
    /// session.execute(w.initializer())?;
    /// Session::reset(&server, &[], &SessionOptions::new())?;
    /// assert_eq!(session.eval(w.value()).unwrap_err().code(), Code::Aborted);
    /// let another = Session::connect(&server, &graph)?;
    /// assert_eq!(another.eval(w.value()).unwrap_err().code(), Code::FailedPrecondition);
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn reset(target: impl Into<Target>, containers: &[&str], options: &SessionOptions) -> Result<()> {
        connection::reset(&target.into().client()?, containers, options)
    }

    /// Returns the devices that nodes of the session can run on.
    ///
    /// ```
    /// # let graph = ferroflow::Graph::new();
    /// let session = ferroflow::Session::new(&graph)?;
    /// let devices = session.devices()?;
    /// assert_eq!(devices[0].name, "/job:localhost/replica:0/task:0/device:CPU:0");
    /// assert_eq!(devices[0].device_type, "CPU");
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn devices(&self) -> Result<Vec<DeviceAttributes>> {
        self.0.connection.devices()
    }

    /// Cancels the steps in flight and closes the session, for all its clones.
    ///
    /// # Errors
    ///
    /// `FailedPrecondition` if it is closed already.
    pub fn close(&self) -> Result<()> {
        self.0.connection.close()
    }

    /// Sends the nodes that the master does not have yet.
    fn extend(&self) -> Result<()> {
        let inner = &*self.0;
        if inner.graph.node_count() == inner.sent.load(Ordering::Acquire) {
            return Ok(());
        }
        let _sending = inner.sending.lock().expect("nothing panics while nodes are sent");
        let sent = inner.sent.load(Ordering::Acquire);
        let (rewrites, seen) = (inner.graph.rewrites(), inner.rewrites.load(Ordering::Acquire));
        if let Some(changed) = inner.graph.rewritten(seen).iter().find(|op| op.position() < sent) {
            bail!(
                FailedPrecondition,
                "operation '{}' ({}) was changed by a gradient after it was sent to this session; add gradients through calls, \
                 conditionals and loops before opening the session",
                changed.name(),
                changed.op_type()
            );
        }
        let def = inner.graph.to_graph_def_from(sent);
        let added = def.node.len();
        if added > 0 {
            inner.connection.extend(def)?;
            inner.rewrites.store(rewrites, Ordering::Release);
            inner.sent.store(sent + added, Ordering::Release);
        }
        Ok(())
    }

    fn check_output(&self, output: &Output, role: &str) -> Result<()> {
        check_graph(output, self.graph(), role)
    }
}

/// Rejects an output of another graph than the session's.
fn check_graph(output: &Output, graph: &Graph, role: &str) -> Result<()> {
    ensure!(
        output.graph().is_same(graph),
        InvalidArgument,
        "cannot {role} '{}': it belongs to another graph than the session; open a session on its graph",
        output.name()
    );
    Ok(())
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Session({:?})", self.target())
    }
}

/// Description of one step: its feeds, fetches, target operations and options.
///
/// ```
/// use ferroflow::{DType, Graph, Session, Tensor, Variable, ops};
///
/// let graph = Graph::new();
/// let s = graph.scope();
/// let x = ops::placeholder(&s, DType::Float)?;
/// let total = Variable::with_value(&s, "total", 0.0f32)?;
/// let add = total.assign_add(&s, &x)?;
/// let session = Session::new(&graph)?;
/// session.execute(total.initializer())?;
/// let doubled = (&x * 2.0)?;
/// let outcome = session.step().feed(&x, Tensor::scalar(2.0f32)).fetch(&doubled).target(&add).run()?;
/// assert_eq!(outcome.values[0].to_scalar::<f32>()?, 4.0);
/// assert_eq!(session.eval(total.value())?.to_scalar::<f32>()?, 2.0);
/// # Ok::<(), ferroflow::Status>(())
/// ```
#[must_use = "a step runs when `run` is called"]
pub struct Step<'a> {
    session: &'a Session,
    feeds: Vec<(Output, Tensor)>,
    fetches: Vec<Output>,
    targets: Vec<Operation>,
    options: RunOptions,
}

/// Results of a step.
#[derive(Debug)]
pub struct StepOutcome {
    /// Fetched tensors, in the order of the fetches.
    pub values: Vec<Tensor>,
    /// Metadata that the options asked for: traces and partitioned graphs.
    pub metadata: RunMetadata,
}

impl Step<'_> {
    /// Feeds a tensor in place of an output.
    pub fn feed(mut self, output: &Output, value: impl Into<Tensor>) -> Self {
        self.feeds.push((output.clone(), value.into()));
        self
    }

    /// Fetches the value of an output.
    pub fn fetch(mut self, output: &Output) -> Self {
        self.fetches.push(output.clone());
        self
    }

    /// Runs an operation.
    pub fn target(mut self, operation: impl Into<Operation>) -> Self {
        self.targets.push(operation.into());
        self
    }

    /// Sets the timeout and the trace of the step.
    ///
    /// ```
    /// # use ferroflow::{Graph, RunOptions, Session};
    /// # let graph = Graph::new();
    /// let y = (&graph.scope().constant([1.0f32, 2.0])? * 2.0)?;
    /// let session = Session::new(&graph)?;
    /// let outcome = session.step().fetch(&y).options(RunOptions::new().trace(true)).run()?;
    /// let stats = outcome.metadata.step_stats.expect("the step was traced");
    /// assert!(stats.dev_stats.iter().any(|device| !device.node_stats.is_empty()));
    /// # Ok::<(), ferroflow::Status>(())
    /// ```
    pub fn options(mut self, options: RunOptions) -> Self {
        self.options = options;
        self
    }

    /// Runs the step; see [`Session::run_step`] for errors.
    pub fn run(self) -> Result<StepOutcome> {
        let session = self.session;
        session.0.connection.check_open()?;
        for (output, value) in &self.feeds {
            session.check_output(output, "feed")?;
            check_feed(output, value)?;
        }
        let (fetches, targets) = self.names()?;
        session.extend()?;
        let feeds = self.feeds.into_iter().map(|(output, value)| (output.name(), value)).collect();
        let (values, metadata) = session.0.connection.run(feeds, fetches, targets, &self.options)?;
        Ok(StepOutcome { values, metadata })
    }

    /// Prepares the step for repeated runs, which pass the values of `feeds`.
    pub fn prepare(self, feeds: &[&Output]) -> Result<Callable> {
        let session = self.session;
        ensure!(
            self.feeds.is_empty(),
            InvalidArgument,
            "a prepared step gets the values of its feeds when it runs; pass the outputs to Step::prepare instead of calling \
             Step::feed"
        );
        for output in feeds {
            session.check_output(output, "feed")?;
        }
        let (fetches, targets) = self.names()?;
        session.extend()?;
        Callable::new(&session.0.connection, feeds, fetches, targets, &self.options)
    }

    fn names(&self) -> Result<(Vec<String>, Vec<String>)> {
        for output in &self.fetches {
            self.session.check_output(output, "fetch")?;
        }
        for operation in &self.targets {
            if !operation.graph().is_same(self.session.graph()) {
                bail!(
                    InvalidArgument,
                    "cannot run '{}': it belongs to another graph than the session; open a session on its graph",
                    operation.name()
                );
            }
        }
        let fetches = self.fetches.iter().map(Output::name).collect();
        Ok((fetches, self.targets.iter().map(Operation::name).collect()))
    }
}

/// Rejects a value of another type or shape than the output's.
fn check_feed(output: &Output, value: &Tensor) -> Result<()> {
    let (wanted, given) = (output.dtype(), value.dtype());
    ensure!(
        wanted == given,
        InvalidArgument,
        "cannot feed a tensor of {given} for '{}', whose type is {wanted}; convert it first",
        output.name()
    );
    let shape = output.shape();
    ensure!(
        shape.admits(value.shape()),
        InvalidArgument,
        "Cannot feed value of shape {} for Tensor '{}', which has shape {shape}",
        value.shape(),
        output.name()
    );
    Ok(())
}

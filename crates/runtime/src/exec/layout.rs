//! A plan laid out for execution: nodes, edges and loop frames in dense arrays, with every node's kernel. Made once per
//! plan; nothing in it changes while steps run.

use crate::env::RuntimeEnv;
use crate::functions::Functions;
use ferroflow_core::graph::{Graph, NodeData, NodeId, NodeKind, Output};
use ferroflow_core::kernel::{FunctionLibrary, Init, Kernel, KernelCx, NoFunctions, Outputs};
use ferroflow_core::op::OpClass;
use ferroflow_core::{Code, Result, Tensor, bail, ensure};
use std::sync::Arc;

/// The immutable part of a plan that all its steps share.
pub(crate) struct Layout {
    /// The planned graph, whose node ids index `nodes`. For traces and cost models; the executor does not use it.
    pub(crate) graph: Graph,
    pub(crate) nodes: Vec<ExecNode>,
    /// Outgoing edges, grouped by node, then by output, control edges last.
    pub(crate) edges: Vec<Edge>,
    /// Loop frames; the first is the graph outside loops.
    pub(crate) frames: Vec<FrameLayout>,
    /// Nodes that have no inputs to wait for.
    pub(crate) roots: Vec<u32>,
    /// Names of the fetches, for messages.
    pub(crate) fetches: Vec<String>,
}

/// A node, as the executor sees it.
pub(crate) struct ExecNode {
    pub(crate) class: OpClass,
    pub(crate) work: Work,
    /// The frame that the node runs in.
    pub(crate) frame: u32,
    /// Index of its counter within an iteration of the frame.
    pub(crate) counter: u32,
    /// Index of its first input slot within an iteration of the frame.
    pub(crate) slot: u32,
    pub(crate) inputs: u32,
    /// Its range of [`Layout::edges`].
    pub(crate) edges: (u32, u32),
    /// True if an input may be a reference to a variable, or a view of its memory.
    pub(crate) refs: bool,
    /// True if the kernel may be worth another thread, depending on its inputs.
    pub(crate) may_be_large: bool,
    /// The logarithm of the bytes of inputs from which on it is.
    large_bits: u8,
    /// True if the kernel may be stopped when its output turns out to be large, and restarted.
    pub(crate) may_stop: bool,
    /// Fields that most steps do not use, kept apart so that the others stay in the cache.
    pub(crate) details: Box<NodeDetails>,
}

/// The rarely used fields of a node.
pub(crate) struct NodeDetails {
    /// For `Enter` nodes: the frame that is entered, and whether the value is a loop invariant.
    pub(crate) enters: Option<(u32, bool)>,
    pub(crate) data: Arc<NodeData>,
}

/// The logarithm of the nodes that a kernel counts for which is as good as large.
pub(crate) const CHECK_BITS: u8 = 6;

impl ExecNode {
    /// Whether inputs of this size make the kernel large, i.e. worth another thread.
    #[inline]
    pub(crate) fn is_large(&self, bytes: usize) -> bool {
        bytes >> self.large_bits > 0
    }

    /// The number of nodes that the kernel counts for with inputs of this size.
    #[inline]
    pub(crate) fn nodes_worth(&self, bytes: usize) -> usize {
        bytes >> self.large_bits.saturating_sub(CHECK_BITS)
    }

    /// The node in the graph.
    pub(crate) fn data(&self) -> &NodeData {
        &self.details.data
    }
}

/// The work of a node.
pub(crate) enum Work {
    /// Run by the executor itself, according to the class.
    Native,
    Constant(Tensor),
    Arg(usize),
    Kernel(Arc<Kernel>),
}

/// One edge, with everything about its consumer that the arrival of a value needs.
pub(crate) struct Edge {
    /// Index of the output; [`CONTROL`] for control edges.
    pub(crate) output: u32,
    /// Index of the consumer.
    pub(crate) target: u32,
    /// The consumer's input slot, or the index of the fetch.
    pub(crate) slot: u32,
    /// The consumer's counter.
    pub(crate) counter: u32,
    pub(crate) consumer: Consumer,
    /// True if no later edge carries the same output: the value is moved, not cloned.
    pub(crate) last: bool,
}

/// The way in which a consumer treats arrivals.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Consumer {
    /// Waits for all inputs and is dead if one of them is.
    All,
    /// Waits for all inputs and runs even if one of them is dead.
    Trigger,
    /// Waits for the first live input.
    Merge,
    /// A fetch of the step.
    Fetch,
}

pub(crate) const CONTROL: u32 = u32::MAX;

/// A loop frame, or the graph outside loops.
pub(crate) struct FrameLayout {
    pub(crate) name: String,
    /// Counters at the start of an iteration.
    pub(crate) counters: Vec<Counter>,
    pub(crate) slots: u32,
    /// The number of nodes that enter the frame.
    pub(crate) enters: u32,
    pub(crate) parallel_iterations: u32,
}

/// The inputs that a node still waits for in one iteration.
#[derive(Clone, Copy, Default)]
pub(crate) struct Counter {
    /// Inputs that have not arrived. For merges: twice the control inputs, plus one until a live input arrives.
    pub(crate) pending: u32,
    /// Dead inputs that have arrived.
    pub(crate) dead: u32,
}

impl Layout {
    /// Lays out the nodes of a plan and makes their kernels. `fetch_names` are the names of `fetches`.
    pub(crate) fn new(
        graph: Graph,
        fetches: &[Output],
        fetch_names: Vec<String>,
        env: &Arc<RuntimeEnv>,
        scope: &KernelScope,
    ) -> Result<Layout> {
        let graph = graph.without_names();
        let mut may_not_run = None;
        let frames = assign_frames(&graph)?;
        let mut layouts = frames.layouts;
        let mut nodes = Vec::with_capacity(graph.node_count());
        let views = derive_from_refs(&graph);
        for id in graph.ids() {
            let node = graph.node(id);
            let data = &node.data;
            let frame = frames.of_node[id.index()];
            let layout = &mut layouts[frame as usize];
            let slot = layout.slots;
            layout.slots += node.inputs.len() as u32;
            let counter = layout.counters.len() as u32;
            let is_merge = is_merge(data.class());
            let pending =
                if is_merge { 1 + 2 * node.controls.len() } else { node.inputs.len() + node.controls.len() };
            layout.counters.push(Counter { pending: pending as u32, dead: 0 });
            let work = match make_work(data, env, scope) {
                Ok(work) => work,
                // An op that this server lacks is refused here if it is certain to run, otherwise by the step that
                // reaches it.
                Err(error) if error.code() == Code::Unimplemented => {
                    if may_not_run.is_none() {
                        may_not_run = Some(nodes_that_may_not_run(&graph)?);
                    }
                    if !may_not_run.as_ref().is_some_and(|may_not| may_not[id.index()]) {
                        return Err(error.at_node(&data.name));
                    }
                    Work::Kernel(Arc::new(Kernel::sync(move |_| Err(error.clone()))?))
                }
                Err(error) => return Err(error.at_node(&data.name)),
            };
            let (cheap, large_from, effects) = match &data.kind {
                NodeKind::Op(entry) => {
                    (entry.op.cheap, entry.op.large_from, entry.op.stateful && !entry.op.restartable)
                }
                _ => (true, usize::MAX, true),
            };
            let may_be_large =
                !cheap && matches!(&work, Work::Kernel(kernel) if matches!(**kernel, Kernel::Sync(_)));
            nodes.push(ExecNode {
                class: data.class(),
                may_be_large,
                large_bits: large_from.max(1).ilog2() as u8,
                may_stop: may_be_large && !effects,
                work,
                frame,
                counter,
                slot,
                inputs: node.inputs.len() as u32,
                edges: (0, 0),
                refs: views[id.index()],
                details: Box::new(NodeDetails {
                    enters: frames.entered[id.index()]
                        .map(|frame| (frame, data.attrs.get::<bool>("is_constant").unwrap_or_default())),
                    data: data.clone(),
                }),
            });
        }
        let edges = lay_out_edges(&graph, fetches, &mut nodes);
        let waits = |node: &ExecNode| layouts[node.frame as usize].counters[node.counter as usize].pending;
        let roots = (0..nodes.len() as u32)
            .filter(|i| {
                let node = &nodes[*i as usize];
                waits(node) == 0 && !is_merge(node.class)
            })
            .collect();
        Ok(Layout { graph, nodes, edges, frames: layouts, roots, fetches: fetch_names })
    }

    /// `name = Op(inputs)`, from which timeline viewers draw edges.
    pub(crate) fn label(&self, node: u32) -> String {
        let node = self.graph.node(NodeId(node));
        let inputs: Vec<String> = node.inputs.iter().map(|input| self.graph.output_name(*input)).collect();
        format!("{} = {}({})", node.data.name, node.data.op_name(), inputs.join(", "))
    }
}

/// For each node, whether an input is a reference or derives from one: an op that takes a reference as a value may
/// output a view of it, and its consumers may do the same.
fn derive_from_refs(graph: &Graph) -> Vec<bool> {
    let is_ref = |input: &Output| graph.node(input.node).data.output_types[input.index as usize].1;
    let mut below: Vec<bool> = graph.ids().map(|id| graph.node(id).inputs.iter().any(is_ref)).collect();
    if !below.contains(&true) {
        return below;
    }
    let mut consumers = vec![Vec::new(); graph.node_count()];
    for id in graph.ids() {
        for input in &graph.node(id).inputs {
            consumers[input.node.index()].push(id.index());
        }
    }
    let mut reached: Vec<usize> = (0..below.len()).filter(|node| below[*node]).collect();
    while let Some(node) = reached.pop() {
        for consumer in &consumers[node] {
            if !std::mem::replace(&mut below[*consumer], true) {
                reached.push(*consumer);
            }
        }
    }
    below
}

pub(crate) fn is_merge(class: OpClass) -> bool {
    matches!(class, OpClass::Merge | OpClass::RefMerge)
}

fn lay_out_edges(graph: &Graph, fetches: &[Output], nodes: &mut [ExecNode]) -> Vec<Edge> {
    let mut outgoing: Vec<Vec<Edge>> = (0..nodes.len()).map(|_| Vec::new()).collect();
    for id in graph.ids() {
        let node = graph.node(id);
        let ExecNode { class, slot, counter, .. } = nodes[id.index()];
        let consumer = match class {
            OpClass::ControlTrigger => Consumer::Trigger,
            class if is_merge(class) => Consumer::Merge,
            _ => Consumer::All,
        };
        let edge = |output, slot| Edge { output, target: id.0, slot, counter, consumer, last: false };
        for (i, input) in node.inputs.iter().enumerate() {
            outgoing[input.node.index()].push(edge(input.index, slot + i as u32));
        }
        for control in &node.controls {
            outgoing[control.index()].push(edge(CONTROL, 0));
        }
    }
    for (i, fetch) in fetches.iter().enumerate() {
        let (output, consumer) = (fetch.index, Consumer::Fetch);
        let edge = Edge { output, target: 0, slot: i as u32, counter: 0, consumer, last: false };
        outgoing[fetch.node.index()].push(edge);
    }
    let mut edges = Vec::new();
    for (node, mut list) in nodes.iter_mut().zip(outgoing) {
        list.sort_by_key(|edge| edge.output);
        for i in 0..list.len() {
            list[i].last = list.get(i + 1).is_none_or(|next| next.output != list[i].output);
        }
        node.edges.0 = edges.len() as u32;
        edges.extend(list);
        node.edges.1 = edges.len() as u32;
    }
    edges
}

fn make_work(data: &Arc<NodeData>, env: &Arc<RuntimeEnv>, scope: &KernelScope) -> Result<Work> {
    match (&data.kind, data.class()) {
        (NodeKind::Constant(value), _) => Ok(Work::Constant(value.clone())),
        (NodeKind::Arg(index), _) => Ok(Work::Arg(*index)),
        (
            NodeKind::Op(_),
            OpClass::Switch
            | OpClass::RefSwitch
            | OpClass::Merge
            | OpClass::RefMerge
            | OpClass::Enter
            | OpClass::Exit
            | OpClass::NextIteration
            | OpClass::ControlTrigger,
        ) => Ok(Work::Native),
        (NodeKind::Op(_), OpClass::Identity) if data.output_types.len() == 1 => Ok(Work::Native),
        (_, OpClass::Constant) => Ok(Work::Constant(constant_value(data, env)?)),
        _ => Ok(Work::Kernel(scope.kernel(data, env)?)),
    }
}

/// The part of the session that a plan's nodes belong to, which determines whose state their kernels share.
pub(crate) struct KernelScope {
    /// The functions that the plan calls.
    pub(crate) functions: Arc<Functions>,
    /// True if the plan is a function's body, whose kernels are its own. Kernels of the session's graph are shared by
    /// all plans that contain the node.
    pub(crate) in_function: bool,
}

impl KernelScope {
    /// The kernel of a node.
    fn kernel(&self, data: &Arc<NodeData>, env: &Arc<RuntimeEnv>) -> Result<Arc<Kernel>> {
        let make = || make_kernel(data, env, &self.functions.for_node(data));
        // Sends and receives have no state, and one name may mean different edges in different plans. Calls have no
        // state either: the called functions belong to the plan.
        let stateless = matches!(data.class(), OpClass::Send | OpClass::Recv | OpClass::Call);
        if data.is_stateful() && !stateless && !self.in_function {
            return env.stateful_kernel(&data.name, data.class() == OpClass::Variable, make);
        }
        Ok(Arc::new(make()?))
    }
}

/// Makes a new kernel for a node.
fn make_kernel(
    data: &Arc<NodeData>,
    env: &Arc<RuntimeEnv>,
    library: &Arc<dyn FunctionLibrary>,
) -> Result<Kernel> {
    match &data.kind {
        NodeKind::Op(entry) => {
            let types =
                |types: &[(ferroflow_core::DType, bool)]| types.iter().map(|t| t.0).collect::<Vec<_>>();
            let (input_types, output_types) = (types(&data.input_types), types(&data.output_types));
            let init = Init {
                node: &data.name,
                op: entry.op.name,
                attrs: &data.attrs,
                input_types: &input_types,
                output_types: &output_types,
                device: &env.device,
                resources: &env.resources,
                library,
            };
            (entry.kernel(&data.name, &data.attrs)?.make)(&init)
        }
        NodeKind::Function(name) => crate::functions::call_kernel(library, name, &data.attrs),
        NodeKind::Unsupported(spec) => Err(env.registry.refuse_unsupported(spec, &data.name, &data.attrs)),
        NodeKind::Arg(_) | NodeKind::Constant(_) => bail!(Internal, "{} does not have a kernel", data.name),
    }
}

/// The kernel of a node that is computed during planning: it has no state and calls no function.
pub(crate) fn pure_kernel(data: &Arc<NodeData>, env: &Arc<RuntimeEnv>) -> Result<Kernel> {
    make_kernel(data, env, &(Arc::new(NoFunctions) as Arc<dyn FunctionLibrary>))
}

/// For each node, whether it may never run, because it depends on a switch or on a value from another task, which may
/// be dead.
fn nodes_that_may_not_run(graph: &Graph) -> Result<Vec<bool>> {
    let mut may_not = vec![false; graph.node_count()];
    for id in graph.topological_order()? {
        let node = graph.node(id);
        let class = node.data.class();
        let splits = matches!(class, OpClass::Switch | OpClass::RefSwitch | OpClass::SwitchN | OpClass::Recv);
        may_not[id.index()] = splits || node.sources().any(|source| may_not[source.index()]);
    }
    Ok(may_not)
}

/// The value of a constant node.
fn constant_value(data: &Arc<NodeData>, env: &Arc<RuntimeEnv>) -> Result<Tensor> {
    let kernel = pure_kernel(data, env)?;
    let Kernel::Sync(run) = &kernel else { bail!(Internal, "the kernel of a constant must not wait") };
    let step = crate::executable::planning_step(env);
    match run(&mut KernelCx::new(&mut [], &step, Default::default(), false))? {
        Outputs::One(value) => value.read(),
        _ => bail!(Internal, "a constant must have one output"),
    }
}

/// The assignment of nodes to loop frames.
pub(crate) struct FrameAssignment {
    /// The frame that each node runs in.
    of_node: Vec<u32>,
    /// For `Enter` nodes, the frame that is entered.
    entered: Vec<Option<u32>>,
    /// The enclosing frame of each frame.
    pub(crate) parents: Vec<u32>,
    pub(crate) layouts: Vec<FrameLayout>,
}

impl FrameAssignment {
    /// The frame that a node runs in.
    pub(crate) fn of(&self, id: NodeId) -> u32 {
        self.of_node[id.index()]
    }

    /// The frame that a node's outputs are in.
    pub(crate) fn after(&self, graph: &Graph, id: NodeId) -> u32 {
        let frame = self.of(id);
        match (self.entered[id.index()], graph.node(id).data.class()) {
            (Some(child), _) => child,
            (None, OpClass::Exit) => self.parents[frame as usize],
            _ => frame,
        }
    }

    /// The frame named by `enter` within `parent`; added if it is new.
    fn child(&mut self, parent: u32, enter: &NodeData) -> Result<u32> {
        let name: String = enter.attrs.get("frame_name")?;
        let known =
            (1..self.layouts.len()).find(|i| self.parents[*i] == parent && self.layouts[*i].name == name);
        if let Some(known) = known {
            return Ok(known as u32);
        }
        let parallel = enter.attrs.get::<usize>("parallel_iterations").unwrap_or(10).max(1) as u32;
        self.parents.push(parent);
        self.layouts.push(FrameLayout {
            name,
            counters: Vec::new(),
            slots: 0,
            enters: 0,
            parallel_iterations: parallel,
        });
        Ok(self.layouts.len() as u32 - 1)
    }
}

/// Finds the loop frame of every node: that of its inputs, except that `Enter` goes into a named frame and `Exit` back
/// to the enclosing one.
pub(crate) fn assign_frames(graph: &Graph) -> Result<FrameAssignment> {
    let count = graph.node_count();
    let outside = FrameLayout {
        name: String::new(),
        counters: Vec::new(),
        slots: 0,
        enters: 0,
        parallel_iterations: 1,
    };
    let mut frames = FrameAssignment {
        of_node: vec![0; count],
        entered: vec![None; count],
        parents: vec![0],
        layouts: vec![outside],
    };
    for id in graph.topological_order()? {
        let node = graph.node(id);
        let mut frame = None;
        for source in sources(graph, id) {
            let source_frame = frames.after(graph, source);
            match frame {
                None => frame = Some(source_frame),
                // Edges into a loop must go through `Enter`.
                Some(known) => ensure!(
                    known == source_frame,
                    InvalidArgument,
                    "{} has inputs from different frames. The input {} is in frame '{}'. Another input is in frame \
                     '{}'.",
                    format_args!("{{{{node {}}}}}", node.data.name),
                    format_args!("{{{{node {}}}}}", graph.node(source).data.name),
                    frames.layouts[source_frame as usize].name,
                    frames.layouts[known as usize].name
                ),
            }
        }
        let frame = frame.unwrap_or(0);
        frames.of_node[id.index()] = frame;
        if node.data.class() == OpClass::Enter {
            let child = frames.child(frame, &node.data)?;
            frames.layouts[child as usize].enters += 1;
            frames.entered[id.index()] = Some(child);
        } else if node.data.class() == OpClass::Exit {
            ensure!(frame != 0, InvalidArgument, "Exit node '{}' is not in a loop", node.data.name);
        }
    }
    Ok(frames)
}

/// Inputs and control inputs, without the back edges of loops.
fn sources(graph: &Graph, id: NodeId) -> impl Iterator<Item = NodeId> + '_ {
    let node = graph.node(id);
    let merge = is_merge(node.data.class());
    let all = node.inputs.iter().map(|input| input.node).chain(node.controls.iter().copied());
    all.filter(move |source| !(merge && graph.node(*source).data.class() == OpClass::NextIteration))
}

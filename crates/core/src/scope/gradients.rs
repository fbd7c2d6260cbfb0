//! Reverse-mode differentiation: walks a graph backward from `ys` to `xs` and adds the nodes of the gradients.

use super::{Graph, Operation, Output, Scope};
use crate::graph::{self, NodeId, NodeKind};
use crate::op::{Grad, GradCx, Gradient, IndexedSlices, InputGrads};
use crate::{DType, Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::NameAttrList;
use std::collections::{HashMap, HashSet, VecDeque};

/// The gradients of the sum of `ys` with respect to each of `xs`; `None` where no `y` depends on the `x`. A variable is
/// given by its handle. See [`Gradients`] for options.
#[track_caller]
pub fn gradients<Y, X>(scope: &Scope, ys: Y, xs: X) -> Result<Vec<Option<Grad>>>
where
    Y: IntoIterator,
    Y::Item: Into<Output>,
    X: IntoIterator,
    X::Item: Into<Output>,
{
    Gradients::new().build(scope, ys, xs)
}

/// Options of [`gradients`].
#[derive(Clone, Debug, Default)]
pub struct Gradients {
    grad_ys: Vec<Option<Grad>>,
    stops: Vec<Output>,
    colocate: bool,
    name: Option<String>,
}

impl Gradients {
    /// The defaults: `ys` add up, nothing is held constant.
    pub fn new() -> Gradients {
        Gradients::default()
    }

    /// The gradients that arrive at `ys`, in order; ones where `None` or not given.
    #[must_use]
    pub fn grad_ys(mut self, grads: impl IntoIterator<Item = Option<Grad>>) -> Gradients {
        self.grad_ys = grads.into_iter().collect();
        self
    }

    /// Outputs to hold constant.
    #[must_use]
    pub fn stop<I>(mut self, outputs: I) -> Gradients
    where
        I: IntoIterator,
        I::Item: Into<Output>,
    {
        self.stops.extend(outputs.into_iter().map(Into::into));
        self
    }

    /// Colocates the gradient of each operation with the operation.
    #[must_use]
    pub fn colocate_with_ops(mut self, colocate: bool) -> Gradients {
        self.colocate = colocate;
        self
    }

    /// The name of the scope that holds the nodes; `gradients` by default.
    #[must_use]
    pub fn name(mut self, name: &str) -> Gradients {
        self.name = Some(name.to_owned());
        self
    }

    /// Adds the nodes.
    #[track_caller]
    pub fn build<Y, X>(self, scope: &Scope, ys: Y, xs: X) -> Result<Vec<Option<Grad>>>
    where
        Y: IntoIterator,
        Y::Item: Into<Output>,
        X: IntoIterator,
        X::Item: Into<Output>,
    {
        let ys: Vec<Output> = ys.into_iter().map(Into::into).collect();
        let xs: Vec<Output> = xs.into_iter().map(Into::into).collect();
        let graph = ys.first().map_or(scope.graph(), Output::graph);
        for output in ys.iter().chain(&xs).chain(&self.stops) {
            ensure!(
                output.graph().is_same(graph) && scope.graph().is_within(graph),
                InvalidArgument,
                "output '{}' belongs to another graph; ys, xs and stopped outputs must belong to the graph that gradients are added to",
                output.name()
            );
        }
        ensure!(
            self.grad_ys.len() <= ys.len(),
            InvalidArgument,
            "{} gradients were given for {} ys",
            self.grad_ys.len(),
            ys.len()
        );
        replace(graph, &ys, !scope.graph().is_same(graph))?;
        let scope = scope.scope(self.name.as_deref().unwrap_or("gradients"));
        Walk::new(&scope, graph, &ys, &xs, &self.stops)?.run(&self, &ys, &xs)
    }
}

/// The nodes that `ys` depend on.
fn dependencies(graph: &graph::Graph, ys: &[Output]) -> HashSet<NodeId> {
    let mut dependencies = HashSet::new();
    let mut ahead: Vec<NodeId> = ys.iter().map(|y| y.op().id()).collect();
    while let Some(id) = ahead.pop() {
        if dependencies.insert(id) {
            ahead.extend(graph.node(id).inputs.iter().map(|input| input.node));
        }
    }
    dependencies
}

/// Replaces operations that cannot be differentiated with ones that can, until none is left. `elsewhere` is set if the
/// gradients are added to another graph.
fn replace(graph: &Graph, ys: &[Output], elsewhere: bool) -> Result<()> {
    let root = graph.scope();
    loop {
        let mut ids: Vec<NodeId> = dependencies(&graph.lock().graph, ys).into_iter().collect();
        ids.sort_unstable();
        let mut replaced = false;
        for operation in ids.into_iter().map(|id| Operation::new(&root, id)) {
            let done = match operation.entry().map(|entry| entry.op.gradient) {
                Some(Gradient::Replace(replace)) => replace(&operation).map(|()| true),
                Some(Gradient::Conditional(_, replace)) if elsewhere => replace(&operation),
                _ => continue,
            };
            replaced = done.map_err(|error| in_gradient_of(&operation, error))?;
            // A replacement changes the set of operations that `ys` depend on.
            if replaced {
                break;
            }
        }
        if !replaced {
            return Ok(());
        }
    }
}

fn in_gradient_of(operation: &Operation, error: Status) -> Status {
    error.map_message(|text| {
        format!("gradient of operation '{}' ({}): {text}", operation.name(), operation.op_type())
    })
}

struct Walk {
    /// The scope that nodes are added to: in the graph itself or, for the gradient of a function, in a body within it.
    scope: Scope,
    graph: Graph,
    /// Every node that a `y` depends on and that depends on an `x`, consumers first.
    order: Vec<NodeId>,
    /// Nodes that depend on an `x`.
    active: HashSet<NodeId>,
    /// The gradients that have arrived so far.
    grads: HashMap<Output, Vec<Grad>>,
}

impl Walk {
    fn new(scope: &Scope, graph: &Graph, ys: &[Output], xs: &[Output], stops: &[Output]) -> Result<Walk> {
        let state = graph.lock();
        let dependencies = dependencies(&state.graph, ys);
        let stops: HashSet<NodeId> = stops.iter().map(|stop| stop.op().id()).collect();
        let sources: HashSet<NodeId> = xs.iter().map(|x| x.op().id()).collect();
        let mut active = HashSet::new();
        let mut order = Vec::new();
        for id in state.graph.topological_order()? {
            if !dependencies.contains(&id) {
                continue;
            }
            let node = state.graph.node(id);
            let depends =
                !stops.contains(&id) && node.inputs.iter().any(|input| active.contains(&input.node));
            if depends || sources.contains(&id) {
                active.insert(id);
            }
            if depends {
                order.push(id);
            }
        }
        order.reverse();
        let order = in_stock_order(&state.graph, order, &active, ys);
        drop(state);
        Ok(Walk { scope: scope.clone(), graph: graph.clone(), order, active, grads: HashMap::new() })
    }

    fn run(mut self, options: &Gradients, ys: &[Output], xs: &[Output]) -> Result<Vec<Option<Grad>>> {
        for (i, y) in ys.iter().enumerate() {
            let grad = match options.grad_ys.get(i).cloned().flatten() {
                Some(grad) => {
                    ensure!(
                        grad.dtype() == y.dtype() || y.dtype() == DType::Resource,
                        InvalidArgument,
                        "the gradient given for '{}' is {}, but it is {}",
                        y.name(),
                        grad.dtype(),
                        y.dtype()
                    );
                    grad
                }
                None => self.ones(y, i)?,
            };
            self.grads.entry(y.clone()).or_default().push(grad);
        }
        let root = self.graph.scope();
        for id in std::mem::take(&mut self.order) {
            self.differentiate(&Operation::new(&root, id), options)?;
        }
        xs.iter().map(|x| self.sum_of_grads(x)).collect()
    }

    fn ones(&self, y: &Output, index: usize) -> Result<Grad> {
        let dtype = y.dtype();
        ensure!(
            dtype.is_floating(),
            InvalidArgument,
            "the gradient of '{}', which is {dtype}, needs a gradient that arrives there; give one with `grad_ys`",
            y.name()
        );
        let name = format!("grad_ys_{index}");
        Ok(self.scope.op("OnesLike").name(&name).input(y).build()?.output(0)?.into())
    }

    /// The sum of the gradients that have arrived at an output.
    fn sum_of_grads(&mut self, output: &Output) -> Result<Option<Grad>> {
        let Some(mut grads) = self.grads.remove(output) else { return Ok(None) };
        if grads.len() > 1 {
            grads = vec![sum(&self.scope, output, &grads)?];
        }
        let grad = grads.into_iter().next();
        // The sum may be needed again: an `x` may be given twice, or lead to another `x`.
        if let Some(grad) = &grad {
            self.grads.insert(output.clone(), vec![grad.clone()]);
        }
        Ok(grad)
    }

    fn differentiate(&mut self, operation: &Operation, options: &Gradients) -> Result<()> {
        let dys =
            operation.outputs().iter().map(|output| self.sum_of_grads(output)).collect::<Result<Vec<_>>>()?;
        if dys.iter().all(Option::is_none) {
            return Ok(());
        }
        let inputs = operation.inputs();
        let needed: Vec<bool> = inputs.iter().map(|input| self.active.contains(&input.op().id())).collect();
        let called = matches!(operation.data().kind, NodeKind::Function(_));
        let undeclared = if called { Gradient::Fn(call_grad) } else { Gradient::Undefined };
        let gradient = operation.entry().map_or(undeclared, |entry| entry.op.gradient);
        let grads = match gradient {
            Gradient::Stop => return Ok(()),
            // Operations with replacements have been replaced by now.
            Gradient::Undefined | Gradient::Replace(_) => bail!(
                NotFound,
                "No gradient defined for operation '{}' (op type: {}). Hold it constant with ops::stop_gradient or \
                 Gradients::stop, or leave out what it depends on.",
                operation.name(),
                operation.op_type()
            ),
            Gradient::Fn(gradient) | Gradient::Conditional(gradient, _) => {
                let base = operation.name();
                let base = base.rsplit_once('/').map_or(base.as_str(), |(_, last)| last);
                let mut scope = self.scope.scope(&format!("{base}_grad"));
                if options.colocate {
                    scope = scope.colocate_with(operation);
                }
                gradient(&GradCx::new(&scope, operation, &dys, &needed))
            }
        };
        let InputGrads(grads) = grads.map_err(|error| in_gradient_of(operation, error))?;
        ensure!(
            grads.len() == inputs.len(),
            Internal,
            "the gradient of {} gave {} gradients for {} inputs",
            operation.op_type(),
            grads.len(),
            inputs.len()
        );
        for ((input, grad), needed) in inputs.into_iter().zip(grads).zip(needed) {
            let Some(grad) = grad else { continue };
            if !needed {
                continue;
            }
            check_fits(operation, &input, &grad)?;
            self.grads.entry(input).or_default().push(grad);
        }
        Ok(())
    }
}

/// The gradient of a node whose op is a function's name: a node that differentiates the function when it runs, as in
/// stock, which has the same answer for functions with a gradient of their own and for recursive ones.
fn call_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let data = g.op().data();
    let function = NameAttrList { name: data.op_name().to_owned(), attr: data.attrs.map().clone() };
    let dys = (0..g.num_outputs()).map(|output| g.dy(output)).collect::<Result<Vec<_>>>()?;
    let types: Vec<DType> = g.inputs().iter().map(Output::dtype).collect();
    let gradient = g
        .scope()
        .op("SymbolicGradient")
        .inputs(g.inputs().iter().chain(&dys))
        .attr("Tout", types)
        .attr("f", function);
    let continuous = |dx: Output| (dx.dtype().is_floating() || dx.dtype().is_complex()).then_some(dx);
    Ok(gradient.build()?.outputs().into_iter().map(continuous).collect::<Vec<_>>().into())
}

/// The nodes in the order in which stock visits them, which determines the order of sums: each node after all its
/// consumers, first come, first served. Loops keep the given order.
fn in_stock_order(
    graph: &graph::Graph,
    order: Vec<NodeId>,
    active: &HashSet<NodeId>,
    ys: &[Output],
) -> Vec<NodeId> {
    let mut waiting: HashMap<NodeId, usize> = HashMap::new();
    for id in &order {
        for input in graph.node(*id).inputs.iter().filter(|input| active.contains(&input.node)) {
            *waiting.entry(input.node).or_default() += 1;
        }
    }
    let mut ready = VecDeque::new();
    for id in ys.iter().map(|y| y.op().id()) {
        if !waiting.contains_key(&id) && !ready.contains(&id) {
            ready.push_back(id);
        }
    }
    let mut left: HashSet<NodeId> = order.iter().copied().collect();
    let mut walked = Vec::with_capacity(order.len());
    while let Some(id) = ready.pop_front() {
        if !left.remove(&id) {
            continue;
        }
        walked.push(id);
        for input in &graph.node(id).inputs {
            if let Some(consumers) = waiting.get_mut(&input.node) {
                *consumers -= 1;
                if *consumers == 0 {
                    ready.push_back(input.node);
                }
            }
        }
    }
    walked.extend(order.into_iter().filter(|id| left.contains(id)));
    walked
}

/// Checks that a gradient has its input's type and shape; otherwise the op's gradient function is wrong.
fn check_fits(operation: &Operation, input: &Output, grad: &Grad) -> Result<()> {
    if matches!(input.dtype(), DType::Resource | DType::Variant) {
        return Ok(());
    }
    ensure!(
        grad.dtype() == input.dtype(),
        Internal,
        "the gradient of {} with respect to '{}' is {}, not {}",
        operation.op_type(),
        input.name(),
        grad.dtype(),
        input.dtype()
    );
    if let Grad::Dense(output) = grad {
        // The input's shape may be known where the gradient's is not.
        output.set_shape(input.shape()).map_err(|_| {
            status!(
                Internal,
                "the gradient of {} with respect to '{}' has shape {}, not {}",
                operation.op_type(),
                input.name(),
                output.shape(),
                input.shape()
            )
        })?;
    }
    Ok(())
}

/// Adds up the gradients of one output; the sum is sparse if all are.
fn sum(scope: &Scope, output: &Output, grads: &[Grad]) -> Result<Grad> {
    let rows: Option<Vec<&IndexedSlices>> = grads.iter().map(Grad::sparse).collect();
    if let Some(rows) = rows {
        return Ok(concat_rows(scope, &rows)?.into());
    }
    let dense = grads.iter().map(|grad| grad.to_dense(scope)).collect::<Result<Vec<_>>>()?;
    let sum = scope.op("AddN").inputs(&dense).build()?.output(0)?;
    // A sparse gradient that was made dense gets its shape from the output it belongs to.
    let _ = sum.set_shape(output.shape());
    Ok(sum.into())
}

fn concat_rows(scope: &Scope, rows: &[&IndexedSlices]) -> Result<IndexedSlices> {
    let wide = rows.iter().any(|slices| slices.indices.dtype() != rows[0].indices.dtype());
    let mut indices = Vec::with_capacity(rows.len());
    for slices in rows {
        indices.push(if wide && slices.indices.dtype() != DType::Int64 {
            scope.op("Cast").input(&slices.indices).attr("DstT", DType::Int64).build()?.output(0)?
        } else {
            slices.indices.clone()
        });
    }
    let concat =
        |parts: Vec<&Output>| scope.op("ConcatV2").name("concat").inputs(parts).input(0).build()?.output(0);
    Ok(IndexedSlices {
        values: concat(rows.iter().map(|slices| &slices.values).collect())?,
        indices: concat(indices.iter().collect())?,
        dense_shape: rows.iter().find_map(|slices| slices.dense_shape.clone()),
    })
}

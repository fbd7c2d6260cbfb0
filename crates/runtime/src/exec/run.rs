//! One step: runs nodes as they become ready, on the thread that polls it. `StepRun` wraps it for callers; the state of
//! loops is in `frames`.

use super::frames::{Ready, StepFrames, Token};
use super::inbox::{Event, Inbox, KernelWaker};
use super::layout::{CHECK_BITS, ExecNode, Layout, Work};
use super::turn::{begin, current_trace};
use crate::partial::PartialHub;
use crate::pool::ComputePool;
use crate::trace::StepTrace;
use ferroflow_core::graph::NodeKind;
use ferroflow_core::kernel::{FutureCx, Kernel, KernelCx, Outputs, Value};
use ferroflow_core::memory::is_out_of_memory;
use ferroflow_core::op::OpClass;
use ferroflow_core::resource::View;
use ferroflow_core::step::StepCx;
use ferroflow_core::tensor::Storage;
use ferroflow_core::turn::Turn;
use ferroflow_core::{BoxFuture, Result, Status, Tensor, bail, status};
use smallvec::SmallVec;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

/// The number of nodes between checks of the clock and of cancellation. A kernel counts for more nodes the nearer its
/// inputs come to making it large.
const CHECK_EVERY: u32 = 1 << CHECK_BITS;

/// Memory of a step other than tensors; reused by the next step of the same plan.
pub(crate) struct Scratch {
    frames: StepFrames,
    ready: Vec<Token>,
    /// Sends of references and views, which run only when nothing else is ready.
    late: Vec<Token>,
    /// The number of late sends at the bottom of the `ready` stack.
    late_ready: usize,
    fetched: Vec<(u32, Value)>,
}

impl Scratch {
    pub(crate) fn new(layout: &Layout) -> Scratch {
        Scratch {
            frames: StepFrames::new(layout),
            ready: Vec::with_capacity(64),
            late: Vec::new(),
            late_ready: 0,
            fetched: Vec::new(),
        }
    }

    /// The node to run next.
    #[inline]
    fn next(&mut self) -> Option<Token> {
        if self.ready.is_empty() && !self.late.is_empty() {
            std::mem::swap(&mut self.ready, &mut self.late);
            self.late_ready = self.ready.len();
        }
        self.ready.pop()
    }
}

/// A running step.
pub(crate) struct Run {
    layout: Arc<Layout>,
    step: Arc<StepCx>,
    pool: Arc<ComputePool>,
    trace: Option<Arc<StepTrace>>,
    hub: Option<Arc<PartialHub>>,
    args: Vec<Option<Tensor>>,
    /// Values fetched so far. References and views are read when the step ends, as in stock.
    results: Vec<Value>,
    scratch: Option<Scratch>,
    inbox: Arc<Inbox>,
    /// Kernels that have returned `Poll::Pending`.
    pending: Vec<Option<PendingKernel>>,
    /// The number of kernels that are pending or run on other threads.
    outstanding: usize,
    /// The number of nodes that may run before the next check of the clock and of cancellation.
    nodes_until_check: u32,
    stage: Stage,
    /// The turn that the current poll belongs to.
    turn: Turn,
    /// The node that is running, for reporting a panic.
    current: u32,
    /// The start of the current node, if the step is traced.
    since: Instant,
}

/// The stage of a run, which says on which thread the run is and who drives it.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Not driven yet.
    New,
    /// On the thread that took the request, which also serves other requests.
    Inline,
    /// On the compute threads.
    Compute,
    /// The body of a function, not driven yet.
    NewCall,
    /// The body of a function. The calling step drives it, on its own turns, and drops it if it is cancelled.
    Call,
}

impl Stage {
    fn is_call(self) -> bool {
        matches!(self, Stage::NewCall | Stage::Call)
    }
}

/// A kernel that waits, polled again when its waker is called.
struct PendingKernel {
    token: Token,
    future: BoxFuture<Result<Outputs>>,
    waker: Waker,
    since: Option<Instant>,
}

/// The outcome of driving a step.
enum Progress {
    /// Nothing is left to run.
    Done,
    /// Only kernels that are pending or run on other threads are left.
    Wait,
    /// Ready nodes remain, but this thread should do something else first.
    Yield,
}

impl Run {
    pub(crate) fn new(
        layout: Arc<Layout>,
        scratch: Scratch,
        args: Vec<Option<Tensor>>,
        step: Arc<StepCx>,
        pool: Arc<ComputePool>,
        trace: Option<Arc<StepTrace>>,
        hub: Option<Arc<PartialHub>>,
    ) -> Run {
        let results = vec![Value::None; layout.fetches.len()];
        Run {
            layout,
            step,
            pool,
            trace,
            hub,
            args,
            results,
            scratch: Some(scratch),
            inbox: Arc::default(),
            pending: Vec::new(),
            outstanding: 0,
            nodes_until_check: CHECK_EVERY,
            stage: Stage::New,
            turn: Turn::new(true),
            current: 0,
            since: Instant::now(),
        }
    }

    /// Marks this as the run of a function body, which the calling step drives.
    pub(crate) fn into_call(mut self) -> Run {
        self.stage = Stage::NewCall;
        self
    }

    /// Returns whether the step should move from the thread that took the request to the compute threads.
    pub(crate) fn needs_compute_thread(&self) -> bool {
        self.stage == Stage::Compute
    }

    /// Returns the step's memory for reuse after it has succeeded.
    pub(crate) fn take_scratch(&mut self) -> Option<Scratch> {
        let mut scratch = self.scratch.take()?;
        scratch.ready.clear();
        scratch.late.clear();
        scratch.late_ready = 0;
        scratch.fetched.clear();
        scratch.frames.reset(&self.layout).then_some(scratch)
    }

    /// Runs the step as far as possible.
    pub(crate) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Vec<Tensor>>> {
        self.inbox.register(context.waker());
        let cancellation = &self.step.cancellation;
        if cancellation.is_cancelled()
            || (!self.stage.is_call() && cancellation.wake_on_cancel(context.waker()))
        {
            return Poll::Ready(Err(self.cancelled()));
        }
        let driven = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| self.take_turn()));
        let progress = driven.unwrap_or_else(|panic| Err(self.panicked(&*panic)));
        match progress {
            Ok(Progress::Done) => Poll::Ready(self.take_results()),
            Ok(Progress::Wait) => Poll::Pending,
            Ok(Progress::Yield) => {
                if !self.stage.is_call() {
                    self.stage = Stage::Compute;
                }
                context.waker().wake_by_ref();
                Poll::Pending
            }
            Err(error) => {
                if let Some(hub) = &self.hub {
                    hub.fail(error.clone());
                }
                Poll::Ready(Err(error))
            }
        }
    }

    /// Drives the step until it cannot go on or its turn is over.
    fn take_turn(&mut self) -> Result<Progress> {
        let is_new = matches!(self.stage, Stage::New | Stage::NewCall);
        if !self.stage.is_call() {
            self.turn = Turn::new(self.stage != Stage::Compute);
            if is_new {
                self.stage = Stage::Inline;
            }
            let _current = begin(self.turn, &self.trace);
            return self.drive(is_new);
        }
        self.turn = Turn::current();
        if self.turn.is_over() {
            return Ok(Progress::Yield);
        }
        if is_new {
            self.stage = Stage::Call;
            self.trace = current_trace();
        }
        self.drive(is_new)
    }

    fn drive(&mut self, is_new: bool) -> Result<Progress> {
        let layout = self.layout.clone();
        // Taken out so that it can be borrowed separately from `self`.
        let mut scratch = self.scratch.take().expect("a step is driven until it ends");
        let progress = self.drive_with(&layout, &mut scratch, is_new);
        self.scratch = Some(scratch);
        progress
    }

    fn drive_with(&mut self, layout: &Layout, scratch: &mut Scratch, is_new: bool) -> Result<Progress> {
        if is_new {
            scratch.frames.start(layout.roots.len() as u32);
            let root = |node: &u32| Token::new(*node, 0, 0, false);
            scratch.ready.extend(layout.roots.iter().rev().map(root));
        }
        // An inline poll handles events that arrived before it, once; later ones are left to the compute threads.
        let mut may_take_events = !(self.turn.inline && is_new);
        loop {
            while let Some(token) = scratch.next() {
                self.nodes_until_check = self.nodes_until_check.saturating_sub(1);
                if self.nodes_until_check == 0 {
                    self.nodes_until_check = CHECK_EVERY;
                    if self.step.cancellation.is_cancelled() {
                        return Err(self.cancelled());
                    }
                    if self.turn.is_over() {
                        scratch.ready.push(token);
                        return Ok(Progress::Yield);
                    }
                }
                if let Some(progress) = self.run_node(layout, scratch, token)? {
                    return Ok(progress);
                }
            }
            if self.outstanding == 0 {
                return Ok(Progress::Done);
            }
            let goes_on =
                if self.turn.inline { std::mem::take(&mut may_take_events) } else { !self.turn.is_over() };
            if !goes_on {
                return Ok(if self.inbox.is_empty() { Progress::Wait } else { Progress::Yield });
            }
            let events = self.inbox.take();
            if events.is_empty() {
                return Ok(Progress::Wait);
            }
            for event in events {
                self.handle(layout, scratch, event)?;
            }
        }
    }

    /// Runs one node; returns progress if this thread should stop driving.
    #[inline]
    fn run_node(&mut self, layout: &Layout, scratch: &mut Scratch, token: Token) -> Result<Option<Progress>> {
        let node = &layout.nodes[token.node() as usize];
        self.current = token.node();
        if token.dead() && node.class != OpClass::Send {
            self.finish_dead(layout, scratch, token);
            return Ok(None);
        }
        if self.trace.is_some() {
            self.since = Instant::now();
        }
        // A single tensor is passed on in a register; `Outputs` would be copied several times.
        let outputs = match &node.work {
            Work::Constant(value) => {
                return self.finish_one(layout, scratch, token, value.clone());
            }
            Work::Arg(index) => match self.args.get_mut(*index).and_then(Option::take) {
                Some(value) => return self.finish_one(layout, scratch, token, value),
                None => return self.wait_for_feed(layout, scratch, token, *index).map(|()| None),
            },
            Work::Native => {
                let inputs = scratch.frames.inputs(layout, token);
                match native(node, inputs).map_err(|error| error.at_node(&node.data().name))? {
                    Outputs::One(Value::Tensor(value)) => {
                        return self.finish_one(layout, scratch, token, value);
                    }
                    outputs => outputs,
                }
            }
            Work::Kernel(kernel) => {
                let position = scratch.frames.position(token);
                let inputs = scratch.frames.inputs(layout, token);
                let mut views = Views::new();
                if node.refs {
                    // In stock, the receiver's request arrives a little after the send and sees updates that ran in
                    // between. Here, updates that can run at once run before the value is sent.
                    if node.class == OpClass::Send && matches!(inputs, [Value::Ref(_) | Value::View(_)]) {
                        if scratch.ready.len() >= scratch.late_ready {
                            scratch.late.push(token);
                            return Ok(None);
                        }
                        scratch.late_ready = scratch.ready.len();
                    }
                    read_refs(node, inputs, &mut views).map_err(|error| error.at_node(&node.data().name))?;
                }
                match &**kernel {
                    Kernel::Sync(run) => {
                        if node.may_be_large {
                            let bytes = input_bytes(inputs);
                            if node.is_large(bytes) {
                                if self.turn.inline {
                                    scratch.ready.push(token);
                                    return Ok(Some(Progress::Yield));
                                }
                                if !scratch.ready.is_empty() || !scratch.late.is_empty() {
                                    let inputs = inputs.iter_mut().map(std::mem::take).collect();
                                    self.run_elsewhere(kernel, inputs, token, position);
                                    return Ok(None);
                                }
                            }
                            let counts = u32::try_from(node.nodes_worth(bytes)).unwrap_or(u32::MAX);
                            self.nodes_until_check = self.nodes_until_check.saturating_sub(counts);
                        }
                        let mut cx = KernelCx::new(inputs, &self.step, position, token.dead());
                        if node.may_stop && self.turn.inline {
                            cx.stop_if_large();
                        }
                        let outputs = run(&mut cx);
                        let outputs = cx.conclude(outputs);
                        if outputs.is_err() && cx.was_stopped() {
                            scratch.ready.push(token);
                            return Ok(Some(Progress::Yield));
                        }
                        clear(inputs);
                        match outputs {
                            Ok(outputs) if !views.is_empty() => view_again(node, outputs, &views),
                            Ok(Outputs::One(Value::Tensor(value))) => {
                                return self.finish_one(layout, scratch, token, value);
                            }
                            outputs => outputs.map_err(|error| error.at_node(&node.data().name))?,
                        }
                    }
                    Kernel::Future(run) => {
                        let inputs = inputs.iter_mut().map(std::mem::take).collect();
                        let future = run(FutureCx::new(inputs, self.step.clone(), position, token.dead()));
                        let since = self.trace.as_ref().map(|_| self.since);
                        return self.wait(layout, scratch, token, future, since).map(|()| None);
                    }
                }
            }
        };
        if let Some(trace) = &self.trace {
            trace.record(layout, token.node(), self.since, Instant::now(), outputs.values());
        }
        self.finish(layout, scratch, token, outputs)?;
        Ok(None)
    }

    /// Passes on a node's only output, a tensor.
    #[inline]
    fn finish_one(
        &mut self,
        layout: &Layout,
        scratch: &mut Scratch,
        token: Token,
        value: Tensor,
    ) -> Result<Option<Progress>> {
        if let Some(trace) = &self.trace {
            let output = Value::Tensor(value.clone());
            trace.record(layout, token.node(), self.since, Instant::now(), &[output]);
        }
        let mut ready = Ready { tokens: &mut scratch.ready, fetches: &mut scratch.fetched };
        scratch.frames.propagate(layout, token, &mut [Value::Tensor(value)], &mut ready);
        if !scratch.fetched.is_empty() {
            self.keep_fetches(layout, scratch)?;
        }
        Ok(None)
    }

    /// Passes a node's outputs to its consumers.
    fn finish(
        &mut self,
        layout: &Layout,
        scratch: &mut Scratch,
        token: Token,
        outputs: Outputs,
    ) -> Result<()> {
        let mut ready = Ready { tokens: &mut scratch.ready, fetches: &mut scratch.fetched };
        match outputs {
            Outputs::One(mut value) => {
                let outputs = std::slice::from_mut(&mut value);
                scratch.frames.propagate(layout, token, outputs, &mut ready);
            }
            Outputs::None => scratch.frames.propagate(layout, token, &mut [], &mut ready),
            Outputs::Many(mut values) => scratch.frames.propagate(layout, token, &mut values, &mut ready),
            Outputs::Dead => {
                self.finish_dead(layout, scratch, token.as_dead());
            }
        }
        if scratch.fetched.is_empty() {
            return Ok(());
        }
        self.keep_fetches(layout, scratch)
    }

    fn finish_dead(&mut self, layout: &Layout, scratch: &mut Scratch, token: Token) {
        let node = &layout.nodes[token.node() as usize];
        clear(scratch.frames.inputs(layout, token));
        let mut outputs: SmallVec<[Value; 4]> =
            node.data().output_types.iter().map(|_| Value::None).collect();
        let mut ready = Ready { tokens: &mut scratch.ready, fetches: &mut scratch.fetched };
        scratch.frames.propagate(layout, token, &mut outputs, &mut ready);
    }

    fn keep_fetches(&mut self, layout: &Layout, scratch: &mut Scratch) -> Result<()> {
        for (fetch, value) in scratch.fetched.drain(..) {
            // A dead fetch is reported by `take_results`.
            if let Value::None = value {
                continue;
            }
            if let Value::Ref(variable) = &value
                && !variable.is_initialized()
            {
                let node = &layout.nodes[self.current as usize].data().name;
                return Err(variable.uninitialized().at_node(node));
            }
            if let Some(hub) = &self.hub {
                hub.set_fetch(fetch as usize, value.read());
            }
            self.results[fetch as usize] = value;
        }
        Ok(())
    }

    fn take_results(&mut self) -> Result<Vec<Tensor>> {
        let mut results = Vec::with_capacity(self.results.len());
        for (i, result) in std::mem::take(&mut self.results).into_iter().enumerate() {
            match result {
                Value::Tensor(tensor) => results.push(tensor),
                Value::Ref(_) | Value::View(_) => results.push(result.read()?),
                Value::None => {
                    let name = &self.layout.fetches[i];
                    let error = if self.stage.is_call() {
                        status!(InvalidArgument, "{name} does not have value")
                    } else {
                        status!(Internal, "The tensor returned for {name} was not valid.")
                    };
                    if let Some(hub) = &self.hub {
                        hub.set_fetch(i, Err(error.clone()));
                    }
                    return Err(error);
                }
            }
        }
        Ok(results)
    }

    fn run_elsewhere(
        &mut self,
        kernel: &Arc<Kernel>,
        mut inputs: Vec<Value>,
        token: Token,
        position: ferroflow_core::kernel::FrameIteration,
    ) {
        self.outstanding += 1;
        let since = self.trace.as_ref().map(|_| self.since);
        let (kernel, step, inbox) = (kernel.clone(), self.step.clone(), self.inbox.clone());
        self.pool.run(move || {
            let Kernel::Sync(run) = &*kernel else { return };
            if inbox.is_closed() || step.cancellation.is_cancelled() {
                let cancelled = status!(Cancelled, "Step {} was cancelled.", step.step_id).derived();
                return inbox.push(Event::Done(token, Err(cancelled), since));
            }
            let work = || {
                let mut cx = KernelCx::new(&mut inputs, &step, position, token.dead());
                let outputs = run(&mut cx);
                cx.conclude(outputs)
            };
            let outputs = std::panic::catch_unwind(std::panic::AssertUnwindSafe(work));
            let outputs = outputs.unwrap_or_else(|panic| Err(panic_status(&*panic)));
            inbox.push(Event::Done(token, outputs, since));
        });
    }

    fn wait_for_feed(
        &mut self,
        layout: &Layout,
        scratch: &mut Scratch,
        token: Token,
        feed: usize,
    ) -> Result<()> {
        let Some(hub) = &self.hub else { bail!(Internal, "argument {feed} was used twice") };
        let fed = hub.wait_feed(feed);
        let future = Box::pin(async move { Ok(Outputs::from(fed.await?)) });
        self.wait(layout, scratch, token, future, None)
    }

    /// Polls the future of a kernel, and keeps it if it is pending.
    fn wait(
        &mut self,
        layout: &Layout,
        scratch: &mut Scratch,
        token: Token,
        mut future: BoxFuture<Result<Outputs>>,
        since: Option<Instant>,
    ) -> Result<()> {
        let free = self.pending.iter().position(Option::is_none).unwrap_or(self.pending.len());
        let waker = Waker::from(Arc::new(KernelWaker { inbox: self.inbox.clone(), kernel: free as u32 }));
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(outputs) => self.complete(layout, scratch, token, outputs, since),
            Poll::Pending => {
                let pending = Some(PendingKernel { token, future, waker, since });
                if free == self.pending.len() {
                    self.pending.push(pending);
                } else {
                    self.pending[free] = pending;
                }
                self.outstanding += 1;
                Ok(())
            }
        }
    }

    fn handle(&mut self, layout: &Layout, scratch: &mut Scratch, event: Event) -> Result<()> {
        match event {
            Event::Done(token, outputs, since) => {
                self.outstanding -= 1;
                self.complete(layout, scratch, token, outputs, since)
            }
            Event::Poll(index) => {
                // A kernel may be woken after it has completed.
                let Some(Some(pending)) = self.pending.get_mut(index as usize) else { return Ok(()) };
                self.current = pending.token.node();
                let polled = pending.future.as_mut().poll(&mut Context::from_waker(&pending.waker));
                let Poll::Ready(outputs) = polled else { return Ok(()) };
                let (token, since) = (pending.token, pending.since);
                self.pending[index as usize] = None;
                self.outstanding -= 1;
                self.complete(layout, scratch, token, outputs, since)
            }
        }
    }

    fn complete(
        &mut self,
        layout: &Layout,
        scratch: &mut Scratch,
        token: Token,
        outputs: Result<Outputs>,
        since: Option<Instant>,
    ) -> Result<()> {
        let node = &layout.nodes[token.node() as usize];
        self.current = token.node();
        let outputs = outputs.map_err(|error| error.at_node(&node.data().name))?;
        if let (Some(trace), Some(since)) = (&self.trace, since) {
            trace.record(layout, token.node(), since, Instant::now(), outputs.values());
        }
        self.finish(layout, scratch, token, outputs)
    }

    fn cancelled(&self) -> Status {
        let reason = self.step.cancellation.reason();
        reason.unwrap_or_else(|| status!(Cancelled, "Step {} was cancelled.", self.step.step_id).derived())
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> Status {
        panic_status(panic).at_node(&self.layout.nodes[self.current as usize].data().name)
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        self.inbox.close();
    }
}

fn panic_status(panic: &(dyn std::any::Any + Send)) -> Status {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
    if is_out_of_memory(&text) {
        return status!(ResourceExhausted, "{text}");
    }
    status!(Internal, "a kernel panicked, which is a bug in the server: {text}")
}

/// Runs a node that has no kernel: control flow and identity.
#[inline]
fn native(node: &ExecNode, inputs: &mut [Value]) -> Result<Outputs> {
    let take = |inputs: &mut [Value], i: usize| std::mem::take(&mut inputs[i]);
    Ok(match node.class {
        OpClass::Switch | OpClass::RefSwitch => {
            let predicate = read_predicate(&take(inputs, 1))?;
            let mut data = take(inputs, 0);
            if node.class == OpClass::Switch {
                data = data.dereferenced()?;
            }
            let outputs = if predicate { vec![Value::None, data] } else { vec![data, Value::None] };
            Outputs::Many(outputs)
        }
        OpClass::Merge | OpClass::RefMerge => {
            let live = inputs.iter().position(|value| !matches!(value, Value::None));
            let Some(live) = live else { return Ok(Outputs::Dead) };
            let mut data = take(inputs, live);
            if node.class == OpClass::Merge {
                data = data.dereferenced()?;
            }
            clear(inputs);
            Outputs::Many(vec![data, Value::Tensor(Tensor::scalar(live as i32))])
        }
        OpClass::ControlTrigger => Outputs::None,
        _ => {
            // Identity, Enter, Exit, NextIteration: the input is passed on, dereferenced unless the output is a
            // reference.
            let value = take(inputs, 0);
            match node.data().output_types.first() {
                Some((_, false)) => Outputs::One(value.dereferenced()?),
                _ => Outputs::One(value),
            }
        }
    })
}

/// Drops the inputs that a kernel has not taken. Most are tensors, or taken.
#[inline]
fn clear(inputs: &mut [Value]) {
    for input in inputs {
        match std::mem::take(input) {
            Value::None => {}
            Value::Tensor(tensor) => drop(tensor),
            reference => drop_reference(reference),
        }
    }
}

#[cold]
fn drop_reference(reference: Value) {
    drop(reference);
}

fn read_predicate(value: &Value) -> Result<bool> {
    let tensor = value.read()?;
    match tensor.flat::<bool>()? {
        [predicate] if tensor.rank() == 0 => Ok(*predicate),
        _ => bail!(InvalidArgument, "The second input must be a scalar, but it has shape {}", tensor.shape()),
    }
}

/// The views among a node's inputs, with the values they showed when the node ran.
type Views = SmallVec<[(Arc<View>, Tensor); 2]>;

/// Replaces references and views with values unless the op takes references, and checks that referenced variables are
/// initialized.
fn read_refs(node: &ExecNode, inputs: &mut [Value], views: &mut Views) -> Result<()> {
    // A send passes the reference on: the value is read on delivery.
    let sends = node.class == OpClass::Send;
    let allows_uninitialized = match &node.data().kind {
        NodeKind::Op(entry) => entry.op.allows_uninitialized_input,
        _ => false,
    };
    for (input, (_, wants_ref)) in inputs.iter_mut().zip(&node.data().input_types) {
        if matches!(input, Value::Ref(_)) && !wants_ref && !sends {
            *input = std::mem::take(input).dereferenced()?;
        }
        match input {
            Value::View(view) if !sends => {
                let (view, shown) = (view.clone(), view.read()?);
                *input = Value::Tensor(shown.clone());
                views.push((view, shown));
            }
            Value::Ref(variable) if !allows_uninitialized && !variable.is_initialized() => {
                return Err(variable.uninitialized());
            }
            _ => {}
        }
    }
    Ok(())
}

/// Turns outputs that share memory with a view among the inputs into views: in stock they keep showing updates.
fn view_again(node: &ExecNode, outputs: Outputs, views: &Views) -> Outputs {
    let reinterprets = matches!(&node.data().kind, NodeKind::Op(entry) if entry.op.reinterprets);
    let again = |value: Value| {
        let Value::Tensor(tensor) = &value else { return value };
        let is_form_of = |shown: &Tensor| {
            let same_units =
                shown.elements() == tensor.elements() && shown.dtype().size() == tensor.dtype().size();
            same_units && (reinterprets || tensor.shares_memory_with(shown))
        };
        match views.iter().find(|(_, shown)| is_form_of(shown)) {
            Some((view, _)) => Value::View(Arc::new(view.in_form_of(tensor))),
            None => value,
        }
    };
    match outputs {
        Outputs::One(value) => Outputs::One(again(value)),
        Outputs::Many(values) => Outputs::Many(values.into_iter().map(again).collect()),
        outputs => outputs,
    }
}

/// The size of the inputs, from which the duration of a kernel is estimated.
fn input_bytes(inputs: &[Value]) -> usize {
    let bytes = |value: &Value| match value {
        Value::Tensor(tensor) => match tensor.storage() {
            Storage::Plain(buffer) => buffer.len(),
            _ => tensor.elements() * 32,
        },
        // The size of a variable is not known here, and an update may touch few rows. Views have been read by now.
        Value::Ref(_) | Value::View(_) | Value::None => 0,
    };
    inputs.iter().map(bytes).sum()
}

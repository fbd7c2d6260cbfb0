//! Loop frames of one step: the iterations with their counters and inputs, when they begin and when they end. Outside
//! loops there is one frame with one iteration.

use super::layout::{CONTROL, Consumer, Counter, Edge, FrameLayout, Layout};
use ferroflow_core::kernel::{FrameIteration, Value};
use ferroflow_core::op::OpClass;
use std::collections::VecDeque;

/// A node that may run now, in one iteration of a frame. Two words, because tokens are pushed and popped for every
/// node, and processors stall when they load a value whole that was stored in smaller parts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token {
    /// The node in the low half, and in the high half 1 if it is dead.
    what: u64,
    /// The iteration in the low half, the frame in the high half.
    place: u64,
}

impl Token {
    #[inline]
    pub(crate) fn new(node: u32, frame: u32, iteration: u32, dead: bool) -> Token {
        Token { what: node as u64 | (dead as u64) << 32, place: iteration as u64 | (frame as u64) << 32 }
    }

    #[inline]
    pub(crate) fn node(self) -> u32 {
        self.what as u32
    }

    #[inline]
    pub(crate) fn dead(self) -> bool {
        self.what >> 32 != 0
    }

    #[inline]
    pub(crate) fn frame(self) -> u32 {
        (self.place >> 32) as u32
    }

    #[inline]
    pub(crate) fn iteration(self) -> u32 {
        self.place as u32
    }

    /// The same node, dead.
    pub(crate) fn as_dead(self) -> Token {
        Token::new(self.node(), self.frame(), self.iteration(), true)
    }
}

/// The frames of one step.
pub(crate) struct StepFrames {
    /// The only iteration of frame 0, the graph outside loops.
    root: Iteration,
    frames: Vec<Option<Frame>>,
    /// Iterations for reuse, by frame layout.
    spare: Vec<Vec<Iteration>>,
}

struct Frame {
    layout: u32,
    /// The iteration that this frame was entered from.
    parent: Option<(u32, u32)>,
    id: u64,
    /// Active iterations, oldest first.
    iterations: VecDeque<Iteration>,
    /// The number of the oldest active iteration.
    oldest: u32,
    /// The number of `Enter` nodes that have not run yet.
    pending_enters: u32,
    /// Values that are the same in every iteration; `None` if dead.
    invariants: Vec<(u32, Value)>,
    /// Values for the next iteration, which waits until an older one ends.
    deferred: Vec<(u32, Value)>,
    /// Exits that were dead in the newest iteration: unless the loop goes on, it has no value for them.
    dead_exits: Vec<u32>,
}

pub(crate) struct Iteration {
    counters: Box<[Counter]>,
    slots: Box<[Value]>,
    /// Nodes that are ready or running.
    outstanding: u32,
    /// StepFrames entered from here that are still running.
    children: Vec<(u32, u32)>,
}

/// The results of propagation: nodes that may run, and fetched values.
pub(crate) struct Ready<'a> {
    pub(crate) tokens: &'a mut Vec<Token>,
    pub(crate) fetches: &'a mut Vec<(u32, Value)>,
}

impl StepFrames {
    /// The frame outside loops, with one iteration.
    pub(crate) fn new(layout: &Layout) -> StepFrames {
        let root = Iteration::new(&layout.frames[0]);
        let frame = Frame::new(layout, 0, None, 0);
        StepFrames {
            root,
            frames: vec![Some(frame)],
            spare: layout.frames.iter().map(|_| Vec::new()).collect(),
        }
    }

    /// The inputs of a node that may run.
    #[inline]
    pub(crate) fn inputs(&mut self, layout: &Layout, token: Token) -> &mut [Value] {
        let node = &layout.nodes[token.node() as usize];
        let iteration = self.iteration(token.frame(), token.iteration());
        &mut iteration.slots[node.slot as usize..][..node.inputs as usize]
    }

    /// The frame id and iteration that the node runs in, the same in every task.
    #[inline]
    pub(crate) fn position(&self, token: Token) -> FrameIteration {
        match &self.frames[token.frame() as usize] {
            Some(frame) if token.frame() != 0 => {
                FrameIteration { frame: frame.id, iteration: token.iteration() as u64 }
            }
            _ => FrameIteration::default(),
        }
    }

    /// Counts this many nodes of the root frame as running.
    pub(crate) fn start(&mut self, tokens: u32) {
        self.root.outstanding += tokens;
    }

    /// Passes a node's outputs to its consumers, and ends iterations and frames that have nothing left to run.
    /// `Value::None` is a dead output.
    #[inline]
    pub(crate) fn propagate(
        &mut self,
        layout: &Layout,
        token: Token,
        outputs: &mut [Value],
        ready: &mut Ready<'_>,
    ) {
        let node = &layout.nodes[token.node() as usize];
        match node.class {
            OpClass::Enter => self.enter(layout, token, outputs, ready),
            OpClass::Exit => self.exit(layout, token, outputs, ready),
            OpClass::NextIteration => self.next_iteration(layout, token, outputs, ready),
            _ => {
                let at = (token.frame(), token.iteration());
                self.activate(layout, token.node(), at, outputs, token.dead(), ready)
            }
        }
        if token.frame() != 0 {
            let iteration = self.iteration(token.frame(), token.iteration());
            iteration.outstanding -= 1;
            if iteration.outstanding == 0 {
                self.clean_up(layout, token.frame(), ready);
            }
        }
    }

    fn enter(&mut self, layout: &Layout, token: Token, outputs: &mut [Value], ready: &mut Ready<'_>) {
        let node = &layout.nodes[token.node() as usize];
        let (child_layout, is_constant) = node.details.enters.expect("entering nodes know their frame");
        let child = self.child(layout, token, child_layout);
        if is_constant {
            let value = outputs[0].clone();
            let frame = self.frame(child);
            frame.invariants.push((token.node(), value.clone()));
            let (oldest, count) = (frame.oldest, frame.iterations.len() as u32);
            for iteration in oldest..oldest + count {
                let mut outputs = [value.clone()];
                self.activate(layout, token.node(), (child, iteration), &mut outputs, token.dead(), ready);
            }
        } else {
            self.activate(layout, token.node(), (child, 0), outputs, token.dead(), ready);
        }
        self.frame(child).pending_enters -= 1;
        self.clean_up(layout, child, ready);
    }

    fn exit(&mut self, layout: &Layout, token: Token, outputs: &mut [Value], ready: &mut Ready<'_>) {
        let frame = self.frame(token.frame());
        if token.dead() || matches!(outputs[0], Value::None) {
            if token.iteration() == frame.newest() {
                frame.dead_exits.push(token.node());
            }
            return;
        }
        let parent = frame.parent.expect("exits are in a loop");
        self.activate(layout, token.node(), parent, outputs, false, ready);
    }

    fn next_iteration(
        &mut self,
        layout: &Layout,
        token: Token,
        outputs: &mut [Value],
        ready: &mut Ready<'_>,
    ) {
        if token.dead() || matches!(outputs[0], Value::None) {
            return;
        }
        let frame = self.frame(token.frame());
        if token.iteration() == frame.newest() {
            let limit = layout.frames[frame.layout as usize].parallel_iterations;
            if frame.iterations.len() as u32 >= limit {
                frame.deferred.push((token.node(), std::mem::take(&mut outputs[0])));
                return;
            }
            self.begin_iteration(layout, token.frame(), ready);
        }
        let at = (token.frame(), token.iteration() + 1);
        self.activate(layout, token.node(), at, outputs, false, ready);
    }

    /// Adds an iteration, and passes it the loop invariants and the values that waited for it.
    fn begin_iteration(&mut self, layout: &Layout, frame_id: u32, ready: &mut Ready<'_>) {
        let layout_index = self.frame(frame_id).layout;
        let iteration = self.fresh_iteration(layout, layout_index);
        let frame = self.frame(frame_id);
        frame.iterations.push_back(iteration);
        let number = frame.newest();
        let invariants = frame.invariants.clone();
        let deferred = std::mem::take(&mut frame.deferred);
        // The loop goes on, so exits that were dead in the previous iteration may still get values.
        frame.dead_exits.clear();
        for (node, value) in invariants {
            let dead = matches!(value, Value::None);
            self.activate(layout, node, (frame_id, number), &mut [value], dead, ready);
        }
        for (node, value) in deferred {
            self.activate(layout, node, (frame_id, number), &mut [value], false, ready);
        }
    }

    /// Ends iterations that have nothing left to run, and the frame after its last iteration.
    fn clean_up(&mut self, layout: &Layout, frame_id: u32, ready: &mut Ready<'_>) {
        if frame_id == 0 {
            return;
        }
        loop {
            let frame = self.frame(frame_id);
            let done = frame.iterations.front().is_some_and(|iteration| {
                iteration.outstanding == 0
                    && iteration.children.is_empty()
                    && (frame.oldest > 0 || frame.pending_enters == 0)
            });
            if !done {
                break;
            }
            let mut iteration = frame.iterations.pop_front().expect("checked above");
            iteration.slots.fill_with(Value::default);
            frame.oldest += 1;
            let (layout_index, deferred) = (frame.layout, !frame.deferred.is_empty());
            self.spare[layout_index as usize].push(iteration);
            if deferred {
                self.begin_iteration(layout, frame_id, ready);
            }
        }
        let frame = self.frame(frame_id);
        if !frame.iterations.is_empty() || frame.pending_enters > 0 {
            return;
        }
        let ended = self.frames[frame_id as usize].take().expect("the frame exists");
        let parent = ended.parent.expect("loops are inside something");
        for node in ended.dead_exits {
            self.activate(layout, node, parent, &mut [Value::None], true, ready);
        }
        let iteration = self.iteration(parent.0, parent.1);
        iteration.children.retain(|(_, child)| *child != frame_id);
        if iteration.outstanding == 0 && iteration.children.is_empty() {
            self.clean_up(layout, parent.0, ready);
        }
    }

    /// Passes outputs to consumers in one iteration and collects those that may run.
    #[inline]
    fn activate(
        &mut self,
        layout: &Layout,
        source: u32,
        (frame, iteration_number): (u32, u32),
        outputs: &mut [Value],
        dead: bool,
        ready: &mut Ready<'_>,
    ) {
        let (start, end) = layout.nodes[source as usize].edges;
        let iteration = self.iteration(frame, iteration_number);
        for edge in &layout.edges[start as usize..end as usize] {
            let control = edge.output == CONTROL;
            let lives = |value: Option<&Value>| !matches!(value, None | Some(Value::None));
            let edge_dead = dead || !(control || lives(outputs.get(edge.output as usize)));
            let target_dead = match edge.consumer {
                Consumer::All | Consumer::Trigger => {
                    let counter = &mut iteration.counters[edge.counter as usize];
                    counter.pending -= 1;
                    counter.dead += edge_dead as u32;
                    let (waits, dead) = (counter.pending > 0, counter.dead > 0);
                    if !control && !edge_dead {
                        put(&mut iteration.slots[edge.slot as usize], take(outputs, edge));
                    }
                    if waits {
                        continue;
                    }
                    dead && edge.consumer == Consumer::All
                }
                Consumer::Merge => {
                    let inputs = layout.nodes[edge.target as usize].inputs;
                    // A loop entered with a dead value never iterates, so the merge gets no other input.
                    let entered = layout.nodes[source as usize].class == OpClass::Enter;
                    let deaths = if edge_dead && entered { inputs } else { edge_dead as u32 };
                    match iteration.arrive_at_merge(edge, deaths, inputs, outputs) {
                        Some(target_dead) => target_dead,
                        None => continue,
                    }
                }
                Consumer::Fetch => {
                    ready.fetches.push((edge.slot, take(outputs, edge)));
                    continue;
                }
            };
            iteration.outstanding += 1;
            ready.tokens.push(Token::new(edge.target, frame, iteration_number, target_dead));
        }
    }

    fn child(&mut self, layout: &Layout, token: Token, child_layout: u32) -> u32 {
        let parent = self.iteration(token.frame(), token.iteration());
        if let Some((_, child)) = parent.children.iter().find(|(layout, _)| *layout == child_layout) {
            return *child;
        }
        let name = &layout.frames[child_layout as usize].name;
        let parent_id = self.frame(token.frame()).id;
        let id = child_frame_id(parent_id, token.iteration() as u64, name);
        let child = self.add(layout, child_layout, Some((token.frame(), token.iteration())), id);
        self.iteration(token.frame(), token.iteration()).children.push((child_layout, child));
        child
    }

    fn add(&mut self, layout: &Layout, frame_layout: u32, parent: Option<(u32, u32)>, id: u64) -> u32 {
        let mut frame = Frame::new(layout, frame_layout, parent, id);
        frame.iterations.push_back(self.fresh_iteration(layout, frame_layout));
        match self.frames.iter().position(Option::is_none) {
            Some(free) => {
                self.frames[free] = Some(frame);
                free as u32
            }
            None => {
                self.frames.push(Some(frame));
                self.frames.len() as u32 - 1
            }
        }
    }

    fn fresh_iteration(&mut self, layout: &Layout, frame_layout: u32) -> Iteration {
        let plan = &layout.frames[frame_layout as usize];
        match self.spare[frame_layout as usize].pop() {
            Some(mut iteration) => {
                iteration.counters.copy_from_slice(&plan.counters);
                iteration
            }
            None => Iteration::new(plan),
        }
    }

    /// Resets the memory of a completed step for the next one. Returns false if the step did not end cleanly.
    pub(crate) fn reset(&mut self, layout: &Layout) -> bool {
        if self.frames.iter().skip(1).any(Option::is_some) {
            return false;
        }
        let iteration = &mut self.root;
        iteration.counters.copy_from_slice(&layout.frames[0].counters);
        iteration.slots.fill_with(Value::default);
        iteration.outstanding = 0;
        iteration.children.clear();
        true
    }

    #[inline]
    fn frame(&mut self, frame: u32) -> &mut Frame {
        self.frames[frame as usize].as_mut().expect("frames live while their nodes run")
    }

    #[inline]
    fn iteration(&mut self, frame: u32, iteration: u32) -> &mut Iteration {
        if frame == 0 {
            return &mut self.root;
        }
        let frame = self.frame(frame);
        let index = iteration - frame.oldest;
        &mut frame.iterations[index as usize]
    }
}

impl Iteration {
    fn new(plan: &FrameLayout) -> Iteration {
        Iteration {
            counters: plan.counters.clone().into_boxed_slice(),
            slots: std::iter::repeat_with(Value::default).take(plan.slots as usize).collect(),
            outstanding: 0,
            children: Vec::new(),
        }
    }

    /// Counts an arrival at a merge with this many inputs: a live value, or `deaths` dead inputs. If the merge may run
    /// now, returns whether it is dead.
    fn arrive_at_merge(
        &mut self,
        edge: &Edge,
        deaths: u32,
        inputs: u32,
        outputs: &mut [Value],
    ) -> Option<bool> {
        let counter = &mut self.counters[edge.counter as usize];
        if edge.output == CONTROL {
            counter.pending -= 2;
            let all_dead = counter.dead == inputs;
            return (counter.pending == 0 || (counter.pending == 1 && all_dead)).then_some(all_dead);
        }
        if deaths > 0 {
            counter.dead = (counter.dead + deaths).min(inputs);
            return (counter.pending == 1 && counter.dead == inputs).then_some(true);
        }
        // Only the first live input is used.
        let first = counter.pending & 1 == 1;
        counter.pending &= !1;
        let runs = first && counter.pending == 0;
        if first {
            put(&mut self.slots[edge.slot as usize], take(outputs, edge));
        }
        runs.then_some(false)
    }
}

impl Frame {
    /// A frame without iterations.
    fn new(layout: &Layout, frame_layout: u32, parent: Option<(u32, u32)>, id: u64) -> Frame {
        Frame {
            layout: frame_layout,
            parent,
            id,
            iterations: VecDeque::new(),
            oldest: 0,
            pending_enters: layout.frames[frame_layout as usize].enters,
            invariants: Vec::new(),
            deferred: Vec::new(),
            dead_exits: Vec::new(),
        }
    }

    fn newest(&self) -> u32 {
        self.oldest + self.iterations.len() as u32 - 1
    }
}

#[inline]
fn take(outputs: &mut [Value], edge: &Edge) -> Value {
    match outputs.get_mut(edge.output as usize) {
        Some(value) if edge.last => std::mem::take(value),
        Some(value) => value.clone(),
        None => Value::None,
    }
}

/// Stores a value in one word-sized write per field. Copied as a whole, it would be loaded from words that were just
/// stored separately, which stalls processors.
#[inline]
fn put(slot: &mut Value, value: Value) {
    match value {
        Value::Tensor(tensor) => *slot = Value::Tensor(tensor),
        other => *slot = other,
    }
}

/// The id of a loop frame, which every task computes alike, so that sends and receives inside loops agree.
fn child_frame_id(parent: u64, iteration: u64, name: &str) -> u64 {
    combine(parent, combine(iteration, murmur64(name.as_bytes(), 0x00DE_CAFC_AFFE)))
}

fn combine(a: u64, b: u64) -> u64 {
    a ^ b.wrapping_add(0x9e37_79b9_7f4a_7800).wrapping_add(a << 10).wrapping_add(a >> 4)
}

/// MurmurHash64A, which stock uses for frame names.
fn murmur64(bytes: &[u8], seed: u64) -> u64 {
    const MULTIPLIER: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = seed ^ (bytes.len() as u64).wrapping_mul(MULTIPLIER);
    let (words, tail) = bytes.as_chunks::<8>();
    for word in words {
        let mut k = u64::from_le_bytes(*word).wrapping_mul(MULTIPLIER);
        k ^= k >> SHIFT;
        hash = (hash ^ k.wrapping_mul(MULTIPLIER)).wrapping_mul(MULTIPLIER);
    }
    if !tail.is_empty() {
        let mut last = [0u8; 8];
        last[..tail.len()].copy_from_slice(tail);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(MULTIPLIER);
    }
    hash ^= hash >> SHIFT;
    hash = hash.wrapping_mul(MULTIPLIER);
    hash ^ (hash >> SHIFT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frame_ids_equal_those_of_stock_tasks() {
        assert_eq!(child_frame_id(0, 0, "while"), 6315961604705615773);
        assert_eq!(child_frame_id(0, 0, "while/while_context"), 18186195969791715286);
    }
}

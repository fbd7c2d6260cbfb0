//! Fused cells of long short-term memory: one step, or a whole sequence, and their gradients.

use crate::builders as ops;
use crate::linalg::functions::Functions;
use crate::linalg::product::{Gemm, MatrixView};
use crate::numeric::Real;
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &LSTM_BLOCK_CELL,
    &LSTM_BLOCK_CELL_GRAD,
    &BLOCK_LSTM,
    &BLOCK_LSTM_V2,
    &BLOCK_LSTM_GRAD,
    &BLOCK_LSTM_GRAD_V2,
];

static LSTM_BLOCK_CELL: Op = Op {
    name: "LSTMBlockCell",
    inputs: &["x: T", "cs_prev: T", "h_prev: T", "w: T", "wci: T", "wcf: T", "wco: T", "b: T"],
    outputs: &["i: T", "cs: T", "f: T", "o: T", "ci: T", "co: T", "h: T"],
    attrs: &[
        "forget_bias: float = 1.0",
        "cell_clip: float = 3.0",
        "use_peephole: bool = false",
        "T: {half, float}",
    ],
    shape: cell_shape,
    kernels: kernels![cell_kernel: f16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static LSTM_BLOCK_CELL_GRAD: Op = Op {
    name: "LSTMBlockCellGrad",
    inputs: &[
        "x: T",
        "cs_prev: T",
        "h_prev: T",
        "w: T",
        "wci: T",
        "wcf: T",
        "wco: T",
        "b: T",
        "i: T",
        "cs: T",
        "f: T",
        "o: T",
        "ci: T",
        "co: T",
        "cs_grad: T",
        "h_grad: T",
    ],
    outputs: &["cs_prev_grad: T", "dicfo: T", "wci_grad: T", "wcf_grad: T", "wco_grad: T"],
    attrs: &["use_peephole: bool", "T: {half, float}"],
    shape: cell_grad_shape,
    kernels: kernels![cell_grad_kernel: f16, f32],
    ..LSTM_BLOCK_CELL
};

static BLOCK_LSTM: Op = Op {
    name: "BlockLSTM",
    inputs: &[
        "seq_len_max: int64",
        "x: T",
        "cs_prev: T",
        "h_prev: T",
        "w: T",
        "wci: T",
        "wcf: T",
        "wco: T",
        "b: T",
    ],
    shape: block_shape,
    kernels: kernels![block_kernel: f16, f32],
    gradient: Gradient::Fn(block_grad),
    ..LSTM_BLOCK_CELL
};

static BLOCK_LSTM_V2: Op = Op {
    name: "BlockLSTMV2",
    attrs: &["cell_clip: float = 0.0", "use_peephole: bool = false", "T: {half, float}"],
    ..BLOCK_LSTM
};

static BLOCK_LSTM_GRAD: Op = Op {
    name: "BlockLSTMGrad",
    inputs: &[
        "seq_len_max: int64",
        "x: T",
        "cs_prev: T",
        "h_prev: T",
        "w: T",
        "wci: T",
        "wcf: T",
        "wco: T",
        "b: T",
        "i: T",
        "cs: T",
        "f: T",
        "o: T",
        "ci: T",
        "co: T",
        "h: T",
        "cs_grad: T",
        "h_grad: T",
    ],
    outputs: &[
        "x_grad: T",
        "cs_prev_grad: T",
        "h_prev_grad: T",
        "w_grad: T",
        "wci_grad: T",
        "wcf_grad: T",
        "wco_grad: T",
        "b_grad: T",
    ],
    attrs: &["use_peephole: bool", "T: {half, float}"],
    shape: block_grad_shape,
    kernels: kernels![block_grad_kernel: f16, f32],
    ..LSTM_BLOCK_CELL
};

static BLOCK_LSTM_GRAD_V2: Op = Op { name: "BlockLSTMGradV2", ..BLOCK_LSTM_GRAD };

/// Batch and cell size, from `x` and `cs_prev`.
fn batch_and_cells(s: &ShapeCx<'_>) -> Result<[i64; 2]> {
    let (x, cs_prev) = (s.rank(0, 2)?, s.rank(1, 2)?);
    let dim =
        |shape: &ferroflow_core::PartialShape, at: usize| shape.dims().map_or(UNKNOWN_DIM, |dims| dims[at]);
    Ok([dim(&x, 0), dim(&cs_prev, 1)])
}

fn cell_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = batch_and_cells(s)?;
    (0..7).try_for_each(|output| s.output(output, shape))
}

fn cell_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let [batch, cells] = batch_and_cells(s)?;
    s.output(0, [batch, cells])?;
    s.output(1, [batch, if cells == UNKNOWN_DIM { cells } else { cells.saturating_mul(4) }])?;
    (2..5).try_for_each(|output| s.output(output, [cells]))
}

fn block_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (x, b) = (s.rank(1, 3)?, s.rank(8, 1)?);
    let gates = b.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    ensure!(
        gates == UNKNOWN_DIM || gates % 4 == 0,
        InvalidArgument,
        "Dimension size must be evenly divisible by 4 but is {gates}"
    );
    let cells = if gates == UNKNOWN_DIM { gates } else { gates / 4 };
    let (time, batch) = x.dims().map_or((UNKNOWN_DIM, UNKNOWN_DIM), |dims| (dims[0], dims[1]));
    (0..7).try_for_each(|output| s.output(output, [time, batch, cells]))
}

fn block_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for (output, rank) in [3, 2, 2, 2, 1, 1, 1, 1].into_iter().enumerate() {
        let shape = s.rank(output + 1, rank)?;
        s.set(output, shape);
    }
    Ok(())
}

/// The sizes of a cell.
#[derive(Clone, Copy)]
struct Sizes {
    batch: usize,
    input: usize,
    cells: usize,
}

impl Sizes {
    /// The number of elements of a state.
    fn state(self) -> usize {
        self.batch * self.cells
    }
}

/// Where the gates lie in a row: always the input gate first and the output gate last.
#[derive(Clone, Copy)]
struct Layout {
    cell: usize,
    forget: usize,
}

const ICFO: Layout = Layout { cell: 1, forget: 2 };
const IFCO: Layout = Layout { cell: 2, forget: 1 };

/// The weights, checked.
struct Weights<'a, T> {
    w: &'a [T],
    /// Weights from the state to the input, forget and output gate, if there are any.
    peepholes: Option<[&'a [T]; 3]>,
    b: &'a [T],
    layout: Layout,
}

/// Checks a dimension and names it as stock does.
fn check_dim(name: &str, of: &str, actual: usize, expected: usize) -> Result<()> {
    ensure!(actual == expected, InvalidArgument, "{name} != {of}: {actual} vs. {expected}");
    Ok(())
}

fn check_rank(name: &str, tensor: &Tensor, rank: usize) -> Result<()> {
    ensure!(
        tensor.rank() == rank,
        InvalidArgument,
        "{name} must be rank {rank} but is rank {}.",
        tensor.rank()
    );
    Ok(())
}

/// Checks `x`, which may have a dimension of time in front, the states and the weights, of which `x` is input `first`.
fn checked<'a, T: Gemm>(
    cx: &'a KernelCx<'_>,
    first: usize,
    peephole: bool,
    layout: Layout,
) -> Result<(Sizes, Weights<'a, T>)> {
    let input = |at: usize| cx.input(first + at);
    let (x, w, b) = (input(0)?, input(3)?, input(7)?);
    check_rank("x", x, 2 + first)?;
    for (at, name) in [(1, "cs_prev"), (2, "h_prev")] {
        check_rank(name, input(at)?, 2)?;
    }
    check_rank("w", w, 2)?;
    let sizes = Sizes {
        batch: x.shape().dim(first),
        input: x.shape().dim(first + 1),
        cells: input(1)?.shape().dim(1),
    };
    for (at, name) in [(1, "cs_prev"), (2, "h_prev")] {
        let shape = input(at)?.shape();
        check_dim(&format!("{name}.dims(0)"), "batch_size", shape.dim(0), sizes.batch)?;
        check_dim(&format!("{name}.dims(1)"), "cell_size", shape.dim(1), sizes.cells)?;
    }
    check_dim("w.dim_size(0)", "input_size + cell_size", w.shape().dim(0), sizes.input + sizes.cells)?;
    check_dim("w.dim_size(1)", "cell_size * 4", w.shape().dim(1), sizes.cells * 4)?;
    check_rank("b", b, 1)?;
    check_dim("b.dim_size(0)", "cell_size * 4", b.shape().dim(0), sizes.cells * 4)?;
    let mut peepholes = [&[][..]; 3];
    for (slot, (at, name)) in peepholes.iter_mut().zip([(4, "wci"), (5, "wcf"), (6, "wco")]) {
        let weights = input(at)?;
        check_rank(name, weights, 1)?;
        // Of one step they are not looked at unless they are used.
        if peephole || first > 0 {
            check_dim(&format!("{name}.dim_size(0)"), "cell_size", weights.shape().dim(0), sizes.cells)?;
        }
        *slot = weights.flat::<T>()?;
    }
    ensure!(
        sizes.state() > 0 || first > 0,
        InvalidArgument,
        "cs_prev_tensor is empty, has shape: ({},{}).",
        sizes.batch,
        sizes.cells
    );
    let weights = Weights { w: w.flat()?, peepholes: peephole.then_some(peepholes), b: b.flat()?, layout };
    Ok((sizes, weights))
}

/// The values that one step starts from.
struct Before<'a, T> {
    x: &'a [T],
    cs: &'a [T],
    h: &'a [T],
}

impl<T: Copy> Before<'_, T> {
    /// Rows of the input, each followed by the row of the hidden state.
    fn joined(&self, sizes: Sizes) -> Vec<T> {
        let (input, cells) = (sizes.input, sizes.cells);
        let mut rows = Vec::with_capacity(sizes.batch * (input + cells));
        for row in 0..sizes.batch {
            rows.extend_from_slice(&self.x[row * input..][..input]);
            rows.extend_from_slice(&self.h[row * cells..][..cells]);
        }
        rows
    }
}

/// Numbers that are added to the forget gate and that bound the state.
#[derive(Clone, Copy)]
struct Settings<T> {
    forget_bias: T,
    clip: Option<T>,
}

impl<T: Real> Settings<T> {
    fn new(init: &Init<'_>) -> Result<Settings<T>> {
        // The second version has no bias of its own.
        let bias = if init.attrs.has("forget_bias") { init.attr::<f32>("forget_bias")? } else { 0.0 };
        let clip: f32 = init.attr("cell_clip")?;
        Ok(Settings {
            forget_bias: T::from_f64(bias as f64),
            clip: (clip > 0.0).then(|| T::from_f64(clip as f64)),
        })
    }
}

/// A step forward: fills i, cs, f, o, ci, co and h.
fn forward<T: Gemm + Functions + Real>(
    threads: Threads<'_>,
    sizes: Sizes,
    weights: &Weights<'_, T>,
    settings: Settings<T>,
    before: &Before<'_, T>,
    outputs: [&mut [T]; 7],
) {
    let (batch, cells) = (sizes.batch, sizes.cells);
    let width = sizes.input + cells;
    let rows = before.joined(sizes);
    let mut gates = vec![T::ZERO; batch * cells * 4];
    T::multiply(
        threads,
        MatrixView::new(&rows, batch, width, false),
        MatrixView::new(weights.w, width, cells * 4, false),
        &mut gates,
    );
    let [i, cs, f, o, ci, co, h] = outputs;
    for at in 0..batch * cells {
        let (row, cell) = (at / cells, at % cells);
        let gate = |gate: usize| {
            let column = gate * cells + cell;
            gates[row * cells * 4 + column].add(weights.b[column])
        };
        let peep = |sum: T, which: usize, state: T| match weights.peepholes {
            Some(peepholes) => sum.add(state.mul(peepholes[which][cell])),
            None => sum,
        };
        let previous = before.cs[at];
        i[at] = peep(gate(0), 0, previous).sigmoid();
        ci[at] = gate(weights.layout.cell).tanh();
        f[at] = peep(gate(weights.layout.forget).add(settings.forget_bias), 1, previous).sigmoid();
        let mut state = i[at].mul(ci[at]).add(f[at].mul(previous));
        if let Some(clip) = settings.clip {
            state = state.raised(clip.neg()).lowered(clip);
        }
        cs[at] = state;
        co[at] = state.tanh();
        o[at] = peep(gate(3), 2, state).sigmoid();
        h[at] = o[at].mul(co[at]);
    }
}

fn cell_kernel<T: Gemm + Functions + Real>(init: &Init<'_>) -> Result<Kernel> {
    let (settings, peephole) = (Settings::<T>::new(init)?, init.attr("use_peephole")?);
    Kernel::sync(move |cx| {
        let (sizes, weights) = checked::<T>(cx, 0, peephole, ICFO)?;
        let before = Before { x: cx.flat(0)?, cs: cx.flat(1)?, h: cx.flat(2)? };
        let mut tensors = Vec::with_capacity(7);
        for _ in 0..7 {
            tensors.push(cx.alloc::<T>(Shape::matrix(sizes.batch, sizes.cells))?);
        }
        forward(cx.threads(), sizes, &weights, settings, &before, slices(&mut tensors, 0)?);
        Ok(tensors.into())
    })
}

/// The elements of seven tensors from `start` on.
fn slices<T: Real>(tensors: &mut [Tensor], start: usize) -> Result<[&mut [T]; 7]> {
    let mut slices = tensors.iter_mut().map(|tensor| Ok(&mut tensor.flat_mut::<T>()?[start..]));
    let mut next = || slices.next().unwrap_or(Ok(&mut []));
    Ok([next()?, next()?, next()?, next()?, next()?, next()?, next()?])
}

/// The number of steps that a sequence takes, of those that there are.
fn steps(cx: &KernelCx<'_>, time: usize) -> Result<usize> {
    let steps = cx.input(0)?;
    ensure!(
        steps.rank() == 0,
        InvalidArgument,
        "`seq_len_max_tensor` must be rank 0 but is rank {}",
        steps.rank()
    );
    let steps = steps.to_scalar::<i64>()?;
    ensure!(steps >= 0, InvalidArgument, "seq_len_max must be >= 0: {steps}");
    ensure!(
        steps <= time as i64,
        InvalidArgument,
        "seq_len_max must be <= timelen (x.dim_size(0)): {steps} vs. {time}"
    );
    Ok(steps as usize)
}

fn layout_of(init: &Init<'_>) -> Layout {
    if init.op.ends_with("V2") { IFCO } else { ICFO }
}

fn block_kernel<T: Gemm + Functions + Real>(init: &Init<'_>) -> Result<Kernel> {
    let (settings, peephole) = (Settings::<T>::new(init)?, init.attr("use_peephole")?);
    let layout = layout_of(init);
    Kernel::sync(move |cx| {
        let (sizes, weights) = checked::<T>(cx, 1, peephole, layout)?;
        let time = cx.input(1)?.shape().dim(0);
        let steps = steps(cx, time)?;
        let shape = Shape::new([time, sizes.batch, sizes.cells].map(|dim| dim as i64))?;
        let mut tensors = Vec::with_capacity(7);
        for _ in 0..7 {
            tensors.push(cx.zeros(T::DTYPE, shape.clone())?);
        }
        let (x, state) = (cx.flat::<T>(1)?, sizes.state());
        let (mut cs, mut h) = (cx.flat::<T>(2)?.to_vec(), cx.flat::<T>(3)?.to_vec());
        for step in 0..steps {
            cx.step().check_cancelled()?;
            let inputs = sizes.batch * sizes.input;
            let before = Before { x: &x[step * inputs..][..inputs], cs: &cs, h: &h };
            let outputs = slices(&mut tensors, step * state)?;
            forward(cx.threads(), sizes, &weights, settings, &before, outputs);
            cs.copy_from_slice(&tensors[1].flat::<T>()?[step * state..][..state]);
            h.copy_from_slice(&tensors[6].flat::<T>()?[step * state..][..state]);
        }
        Ok(tensors.into())
    })
}

/// The values that a step made, and the gradients that arrive at it.
struct After<'a, T> {
    i: &'a [T],
    cs: &'a [T],
    f: &'a [T],
    o: &'a [T],
    ci: &'a [T],
    co: &'a [T],
    cs_grad: &'a [T],
    h_grad: &'a [T],
}

/// A step back: fills the gradients of the previous state and of the gates, and adds to those of the peepholes.
fn backward<T: Functions + Real>(
    sizes: Sizes,
    weights: &Weights<'_, T>,
    cs_prev: &[T],
    after: &After<'_, T>,
    cs_prev_grad: &mut [T],
    gates: &mut [T],
    peephole_grads: &mut [Vec<T>; 3],
) {
    let cells = sizes.cells;
    for at in 0..sizes.state() {
        let (row, cell) = (at / cells, at % cells);
        let (i, f, o, ci, co) = (after.i[at], after.f[at], after.o[at], after.ci[at], after.co[at]);
        let rest = |gate: T| gate.mul(T::ONE.sub(gate));
        let d_o = rest(o).mul(after.h_grad[at]).mul(co);
        let mut d_cs = T::ONE.sub(co.mul(co)).mul(after.h_grad[at]).mul(o).add(after.cs_grad[at]);
        if let Some(peepholes) = weights.peepholes {
            d_cs = d_cs.add(d_o.mul(peepholes[2][cell]));
        }
        let d_ci = T::ONE.sub(ci.mul(ci)).mul(d_cs).mul(i);
        let d_f = rest(f).mul(d_cs).mul(cs_prev[at]);
        let d_i = rest(i).mul(d_cs).mul(ci);
        let layout = weights.layout;
        for (gate, value) in [(0, d_i), (layout.cell, d_ci), (layout.forget, d_f), (3, d_o)] {
            gates[row * cells * 4 + gate * cells + cell] = value;
        }
        cs_prev_grad[at] = d_cs.mul(f);
        if let Some(peepholes) = weights.peepholes {
            let through = d_i.mul(peepholes[0][cell]);
            cs_prev_grad[at] = cs_prev_grad[at].add(through).add(d_f.mul(peepholes[1][cell]));
            let [wci, wcf, wco] = peephole_grads;
            for (slot, term) in
                [(wci, d_i.mul(cs_prev[at])), (wcf, d_f.mul(cs_prev[at])), (wco, d_o.mul(after.cs[at]))]
            {
                slot[cell] = slot[cell].add(term);
            }
        }
    }
}

/// Checks that an input has this shape.
fn check_state(cx: &KernelCx<'_>, input: usize, name: &str, expected: &Shape) -> Result<()> {
    let shape = cx.input(input)?.shape();
    ensure!(
        shape == expected,
        InvalidArgument,
        "{name} must have the shape of a state: {shape} vs. {expected}"
    );
    Ok(())
}

const STATES: [&str; 6] = ["i", "cs", "f", "o", "ci", "co"];

fn cell_grad_kernel<T: Gemm + Functions + Real>(init: &Init<'_>) -> Result<Kernel> {
    let peephole = init.attr("use_peephole")?;
    Kernel::sync(move |cx| {
        let (sizes, weights) = checked::<T>(cx, 0, peephole, ICFO)?;
        let shape = Shape::matrix(sizes.batch, sizes.cells);
        for (input, name) in (8..).zip(STATES.into_iter().chain(["cs_grad_tensor", "h_grad_tensor"])) {
            check_state(cx, input, name, &shape)?;
        }
        let mut cs_prev_grad = cx.alloc::<T>(shape)?;
        let mut gates = cx.alloc::<T>(Shape::matrix(sizes.batch, sizes.cells * 4))?;
        let mut peepholes = [4, 5, 6].map(|input| vec![T::ZERO; cx.input(input).map_or(0, Tensor::elements)]);
        let after = after(cx, 8, 14, 0, sizes.state())?;
        let (slot, gate_slots) = (cs_prev_grad.flat_mut()?, gates.flat_mut()?);
        backward(sizes, &weights, cx.flat(1)?, &after, slot, gate_slots, &mut peepholes);
        let [wci, wcf, wco] = peepholes.map(Tensor::vector);
        Ok([cs_prev_grad, gates, wci, wcf, wco].into())
    })
}

/// The states of one step, of which `first` is the input of the first, and the gradients at `grads`.
fn after<'a, T: Real>(
    cx: &'a KernelCx<'_>,
    first: usize,
    grads: usize,
    start: usize,
    state: usize,
) -> Result<After<'a, T>> {
    let part = |input: usize| Ok(&cx.flat::<T>(input)?[start..start + state]);
    Ok(After {
        i: part(first)?,
        cs: part(first + 1)?,
        f: part(first + 2)?,
        o: part(first + 3)?,
        ci: part(first + 4)?,
        co: part(first + 5)?,
        cs_grad: part(grads)?,
        h_grad: part(grads + 1)?,
    })
}

fn block_grad_kernel<T: Gemm + Functions + Real>(init: &Init<'_>) -> Result<Kernel> {
    let (peephole, layout) = (init.attr("use_peephole")?, layout_of(init));
    Kernel::sync(move |cx| block_backward::<T>(cx, peephole, layout))
}

fn block_backward<T: Gemm + Functions + Real>(
    cx: &KernelCx<'_>,
    peephole: bool,
    layout: Layout,
) -> Result<Outputs> {
    let (sizes, weights) = checked::<T>(cx, 1, peephole, layout)?;
    let x_shape = cx.input(1)?.shape();
    let steps = steps(cx, x_shape.dim(0))?;
    let shape = Shape::new([x_shape.dim(0), sizes.batch, sizes.cells].map(|dim| dim as i64))?;
    for (input, name) in (9..).zip(STATES.into_iter().chain(["h", "cs_grad", "h_grad"])) {
        check_state(cx, input, name, &shape)?;
    }
    let (state, width, gates_width) = (sizes.state(), sizes.input + sizes.cells, sizes.cells * 4);
    let mut x_grad = cx.zeros(T::DTYPE, x_shape.clone())?;
    let mut w_grad = cx.zeros(T::DTYPE, Shape::matrix(width, gates_width))?;
    let (mut cs_prev_grad, mut h_prev_grad) = (vec![T::ZERO; state], vec![T::ZERO; state]);
    let mut peepholes = [0; 3].map(|_| vec![T::ZERO; sizes.cells]);
    let mut b_grad = vec![T::ZERO; gates_width];
    let mut gates = vec![T::ZERO; sizes.batch * gates_width];
    let (mut xh_grad, mut w_part) = (vec![T::ZERO; sizes.batch * width], vec![T::ZERO; width * gates_width]);
    let sum = |a: &[T], b: &[T]| -> Vec<T> { a.iter().zip(b).map(|(a, b)| a.add(*b)).collect() };
    for step in (0..steps).rev() {
        cx.step().check_cancelled()?;
        let at = |input: usize, step: usize| Ok(&cx.flat::<T>(input)?[step * state..][..state]);
        let before = Before {
            x: &cx.flat::<T>(1)?[step * sizes.batch * sizes.input..][..sizes.batch * sizes.input],
            cs: if step == 0 { cx.flat(2)? } else { at(10, step - 1)? },
            h: if step == 0 { cx.flat(3)? } else { at(15, step - 1)? },
        };
        let now = after(cx, 9, 16, step * state, state)?;
        let (cs_grad, h_grad) = (sum(&cs_prev_grad, now.cs_grad), sum(&h_prev_grad, now.h_grad));
        let now = After { cs_grad: &cs_grad, h_grad: &h_grad, ..now };
        backward(sizes, &weights, before.cs, &now, &mut cs_prev_grad, &mut gates, &mut peepholes);
        let gates_matrix = MatrixView::new(&gates, sizes.batch, gates_width, false);
        let w = MatrixView::new(weights.w, width, gates_width, true);
        T::multiply(cx.threads(), gates_matrix, w, &mut xh_grad);
        let x_rows = &mut x_grad.flat_mut::<T>()?[step * sizes.batch * sizes.input..];
        for (row, joined) in xh_grad.chunks(width).enumerate() {
            x_rows[row * sizes.input..][..sizes.input].copy_from_slice(&joined[..sizes.input]);
            h_prev_grad[row * sizes.cells..][..sizes.cells].copy_from_slice(&joined[sizes.input..]);
        }
        let joined = before.joined(sizes);
        T::multiply(
            cx.threads(),
            MatrixView::new(&joined, sizes.batch, width, true),
            gates_matrix,
            &mut w_part,
        );
        for (sum, part) in w_grad.flat_mut::<T>()?.iter_mut().zip(&w_part) {
            *sum = sum.add(*part);
        }
        for row in gates.chunks(gates_width) {
            for (sum, part) in b_grad.iter_mut().zip(row) {
                *sum = sum.add(*part);
            }
        }
    }
    let state_shape = Shape::matrix(sizes.batch, sizes.cells);
    let [wci, wcf, wco] = peepholes.map(Tensor::vector);
    let cs_prev_grad = Tensor::new(state_shape.clone(), cs_prev_grad)?;
    let h_prev_grad = Tensor::new(state_shape, h_prev_grad)?;
    Ok([x_grad, cs_prev_grad, h_prev_grad, w_grad, wci, wcf, wco, Tensor::vector(b_grad)].into())
}

/// Both versions are given the gradient of the first, as in stock.
fn block_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let i = |at: usize| g.input(at).clone();
    let (o, peephole): (_, bool) = (|at: usize| g.output(at), g.attr("use_peephole")?);
    let grads = ops::block_lstm_grad(
        g.scope(),
        i(0),
        i(1),
        i(2),
        i(3),
        i(4),
        i(5),
        i(6),
        i(7),
        i(8),
        o(0)?,
        o(1)?,
        o(2)?,
        o(3)?,
        o(4)?,
        o(5)?,
        o(6)?,
        g.dy(1)?,
        g.dy(6)?,
        peephole,
    )?;
    Ok([
        None,
        Some(grads.x_grad),
        Some(grads.cs_prev_grad),
        Some(grads.h_prev_grad),
        Some(grads.w_grad),
        Some(grads.wci_grad),
        Some(grads.wcf_grad),
        Some(grads.wco_grad),
        Some(grads.b_grad),
    ]
    .into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, DType, Shape, Tensor};

    #[test]
    fn shapes() {
        infer("LSTMBlockCell", "[2,3];[?,4];?;?;?;?;?;?", &["[2,4]"; 7].join(";"));
        infer("BlockLSTM", "[];[5,2,3];?;?;?;?;?;?;[16]", &["[5,2,4]"; 7].join(";"));
        infer_err("BlockLSTM", "[];[5,2,3];?;?;?;?;?;?;[15]", Code::InvalidArgument);
    }

    #[test]
    fn steps_are_among_those_that_there_are() {
        let zeros = |dims: &[i64]| Tensor::zeros(DType::Float, Shape::new(dims.iter().copied()).unwrap());
        let run = |steps: i64| {
            let weights = [zeros(&[3, 8]), zeros(&[2]), zeros(&[2]), zeros(&[2]), zeros(&[8])];
            let states = [Tensor::scalar(steps), zeros(&[2, 1, 1]), zeros(&[1, 2]), zeros(&[1, 2])];
            Node::new("BlockLSTM").run(states.into_iter().chain(weights))
        };
        assert_eq!(run(2).unwrap()[6].elements(), 4);
        assert_eq!(run(-1).unwrap_err().message(), "seq_len_max must be >= 0: -1");
        assert_eq!(run(3).unwrap_err().code(), Code::InvalidArgument);
    }
}

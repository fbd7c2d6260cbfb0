//! The fused cell of a gated recurrent unit, and its gradient.

use crate::linalg::functions::Functions;
use crate::linalg::product::{Gemm, MatrixView};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&GRU_BLOCK_CELL, &GRU_BLOCK_CELL_GRAD];

static GRU_BLOCK_CELL: Op = Op {
    name: "GRUBlockCell",
    inputs: &["x: T", "h_prev: T", "w_ru: T", "w_c: T", "b_ru: T", "b_c: T"],
    outputs: &["r: T", "u: T", "c: T", "h: T"],
    attrs: &["T: {float}"],
    shape: cell_shape,
    kernels: kernels![any cell_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static GRU_BLOCK_CELL_GRAD: Op = Op {
    name: "GRUBlockCellGrad",
    inputs: &[
        "x: T",
        "h_prev: T",
        "w_ru: T",
        "w_c: T",
        "b_ru: T",
        "b_c: T",
        "r: T",
        "u: T",
        "c: T",
        "d_h: T",
    ],
    outputs: &["d_x: T", "d_h_prev: T", "d_c_bar: T", "d_r_bar_u_bar: T"],
    shape: cell_grad_shape,
    kernels: kernels![any cell_grad_kernel],
    ..GRU_BLOCK_CELL
};

fn dim(s: &ShapeCx<'_>, input: usize, at: usize) -> Result<i64> {
    Ok(s.rank(input, 2)?.dims().map_or(UNKNOWN_DIM, |dims| dims[at]))
}

fn cell_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = [dim(s, 0, 0)?, dim(s, 1, 1)?];
    (0..4).try_for_each(|output| s.output(output, shape))
}

fn cell_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (batch, cells, both) = (dim(s, 0, 0)?, dim(s, 1, 1)?, dim(s, 2, 1)?);
    s.set(0, s.input(0));
    s.output(1, [batch, cells])?;
    s.output(2, [batch, cells])?;
    s.output(3, [batch, both])
}

/// The inputs that a step and its gradient share, checked.
struct Cell<'a> {
    batch: usize,
    input: usize,
    cells: usize,
    x: &'a [f32],
    h_prev: &'a [f32],
    w_ru: &'a [f32],
    w_c: &'a [f32],
}

fn check_rank(name: &str, tensor: &Tensor, rank: usize) -> Result<()> {
    ensure!(tensor.rank() == rank, InvalidArgument, "Rank of {name} must be {rank}, got {}", tensor.rank());
    Ok(())
}

fn check_dim(name: &str, of: &str, actual: usize, expected: usize) -> Result<()> {
    ensure!(actual == expected, InvalidArgument, "{name} != {of}: {actual} vs. {expected}");
    Ok(())
}

impl<'a> Cell<'a> {
    fn new(cx: &'a KernelCx<'_>) -> Result<Cell<'a>> {
        let (x, h_prev, w_ru, w_c) = (cx.input(0)?, cx.input(1)?, cx.input(2)?, cx.input(3)?);
        let (b_ru, b_c) = (cx.input(4)?, cx.input(5)?);
        check_rank("x", x, 2)?;
        check_rank("h_prev", h_prev, 2)?;
        let (batch, input, cells) = (x.shape().dim(0), x.shape().dim(1), h_prev.shape().dim(1));
        check_dim("h_prev.dims(0)", "batch_size", h_prev.shape().dim(0), batch)?;
        check_rank("w_ru_", w_ru, 2)?;
        check_dim("w_ru.dim_size(0)", "input_size + cell_size", w_ru.shape().dim(0), input + cells)?;
        check_dim("w_ru.dim_size(1)", "cell_size * 2", w_ru.shape().dim(1), cells * 2)?;
        check_rank("w_c", w_c, 2)?;
        check_dim("w_c.dim_size(0)", "input_size + cell_size", w_c.shape().dim(0), input + cells)?;
        check_dim("w_c.dim_size(1)", "cell_size", w_c.shape().dim(1), cells)?;
        check_rank("b_ru", b_ru, 1)?;
        check_dim("b_ru.dim_size(0)", "cell_size * 2", b_ru.shape().dim(0), cells * 2)?;
        check_rank("b_c", b_c, 1)?;
        check_dim("b_c.dim_size(0)", "cell_size", b_c.shape().dim(0), cells)?;
        let (x, h_prev, w_ru, w_c) = (x.flat()?, h_prev.flat()?, w_ru.flat()?, w_c.flat()?);
        Ok(Cell { batch, input, cells, x, h_prev, w_ru, w_c })
    }

    /// Rows of the input, each followed by the row of a state, times a matrix of weights.
    fn product(&self, cx: &KernelCx<'_>, state: &[f32], weights: &[f32], columns: usize) -> Vec<f32> {
        let width = self.input + self.cells;
        let mut rows = Vec::with_capacity(self.batch * width);
        for row in 0..self.batch {
            rows.extend_from_slice(&self.x[row * self.input..][..self.input]);
            rows.extend_from_slice(&state[row * self.cells..][..self.cells]);
        }
        let mut out = vec![0.0; self.batch * columns];
        let rows = MatrixView::new(&rows, self.batch, width, false);
        f32::multiply(cx.threads(), rows, MatrixView::new(weights, width, columns, false), &mut out);
        out
    }

    /// A gradient times the transpose of a matrix of weights: a row for the input and one for the state.
    fn back(&self, cx: &KernelCx<'_>, gradient: &[f32], weights: &[f32], columns: usize) -> Vec<f32> {
        let width = self.input + self.cells;
        let mut out = vec![0.0; self.batch * width];
        let gradient = MatrixView::new(gradient, self.batch, columns, false);
        f32::multiply(cx.threads(), gradient, MatrixView::new(weights, width, columns, true), &mut out);
        out
    }
}

fn cell_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let cell = Cell::new(cx)?;
        let shape = Shape::matrix(cell.batch, cell.cells);
        let [mut r, mut u, mut c, mut h] = [
            cx.alloc::<f32>(shape.clone())?,
            cx.alloc::<f32>(shape.clone())?,
            cx.alloc::<f32>(shape.clone())?,
            cx.alloc::<f32>(shape)?,
        ];
        let (b_ru, b_c) = (cx.flat::<f32>(4)?, cx.flat::<f32>(5)?);
        let gates = cell.product(cx, cell.h_prev, cell.w_ru, 2 * cell.cells);
        let (r_slots, u_slots) = (r.flat_mut::<f32>()?, u.flat_mut::<f32>()?);
        for at in 0..cell.batch * cell.cells {
            let (row, column) = (at / cell.cells, at % cell.cells);
            let gate =
                |column: usize| Functions::sigmoid(gates[row * 2 * cell.cells + column] + b_ru[column]);
            r_slots[at] = gate(column);
            u_slots[at] = gate(cell.cells + column);
        }
        let reset: Vec<f32> = cell.h_prev.iter().zip(&*r_slots).map(|(h, r)| h * r).collect();
        let proposed = cell.product(cx, &reset, cell.w_c, cell.cells);
        let (c_slots, h_slots) = (c.flat_mut::<f32>()?, h.flat_mut::<f32>()?);
        for at in 0..cell.batch * cell.cells {
            let c = Functions::tanh(proposed[at] + b_c[at % cell.cells]);
            c_slots[at] = c;
            h_slots[at] = u_slots[at] * (cell.h_prev[at] - c) + c;
        }
        Ok([r, u, c, h].into())
    })
}

fn cell_grad_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let cell = Cell::new(cx)?;
        for (input, name) in (6..).zip(["r", "u", "c", "d_h"]) {
            let tensor = cx.input(input)?;
            check_rank(name, tensor, 2)?;
            check_dim(&format!("{name}.dims(0)"), "batch_size", tensor.shape().dim(0), cell.batch)?;
            check_dim(&format!("{name}.dims(1)"), "cell_size", tensor.shape().dim(1), cell.cells)?;
        }
        let (r, u) = (cx.flat::<f32>(6)?, cx.flat::<f32>(7)?);
        let (c, d_h) = (cx.flat::<f32>(8)?, cx.flat::<f32>(9)?);
        let (batch, input, cells) = (cell.batch, cell.input, cell.cells);
        let mut d_x = cx.alloc::<f32>(Shape::matrix(batch, input))?;
        let mut d_h_prev = cx.alloc::<f32>(Shape::matrix(batch, cells))?;
        let mut d_c_bar = cx.alloc::<f32>(Shape::matrix(batch, cells))?;
        let mut d_gates = cx.alloc::<f32>(Shape::matrix(batch, 2 * cells))?;
        for (at, slot) in d_c_bar.flat_mut::<f32>()?.iter_mut().enumerate() {
            *slot = (d_h[at] * (1.0 - u[at])) * (1.0 - c[at] * c[at]);
        }
        let width = input + cells;
        let through_c = cell.back(cx, d_c_bar.flat()?, cell.w_c, cells);
        let d_reset = |at: usize| through_c[at / cells * width + input + at % cells];
        let slots = d_gates.flat_mut::<f32>()?;
        for at in 0..batch * cells {
            let place = at / cells * 2 * cells + at % cells;
            slots[place] = (d_reset(at) * cell.h_prev[at] * r[at]) * (1.0 - r[at]);
            slots[place + cells] = d_h[at] * (cell.h_prev[at] - c[at]) * u[at] * (1.0 - u[at]);
        }
        let through_gates = cell.back(cx, d_gates.flat()?, cell.w_ru, 2 * cells);
        for (at, slot) in d_x.flat_mut::<f32>()?.iter_mut().enumerate() {
            let place = at / input * width + at % input;
            *slot = through_gates[place] + through_c[place];
        }
        for (at, slot) in d_h_prev.flat_mut::<f32>()?.iter_mut().enumerate() {
            let place = at / cells * width + input + at % cells;
            *slot = through_gates[place] + d_reset(at) * r[at] + d_h[at] * u[at];
        }
        Ok([d_x, d_h_prev, d_c_bar, d_gates].into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::infer;

    #[test]
    fn shapes() {
        infer("GRUBlockCell", "[2,3];[?,4];?;?;?;?", &["[2,4]"; 4].join(";"));
        infer("GRUBlockCellGrad", "[2,3];[2,4];[7,8];?;?;?;?;?;?;?", "[2,3];[2,4];[2,4];[2,8]");
    }
}

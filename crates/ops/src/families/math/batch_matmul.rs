//! Products of batches of matrices.

use crate::builders as ops;
use crate::linalg::product::{Gemm, MatrixView, multiply_batch};
use crate::numeric::{Int, Num};
use crate::support::batches::{Batches, leading, unbroadcast};
use crate::support::gradient::product_factors;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{
    Accuracy, Dim, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM, no_kernel, shapes,
};
use ferroflow_core::{C64, C128, DType, PartialShape, Result, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&BATCH_MAT_MUL, &BATCH_MAT_MUL_V2, &BATCH_MAT_MUL_V3];

const PRODUCT: Op =
    Op { inputs: &["x: T", "y: T"], outputs: &["output: T"], accuracy: Accuracy::Rounding, ..Op::PURE };

static BATCH_MAT_MUL: Op = Op {
    name: "BatchMatMul",
    gradient: Gradient::Fn(batch_mat_mul_grad),
    attrs: &[
        "T: {bfloat16, half, float, double, int32, int64, complex64, complex128}",
        "adj_x: bool = false",
        "adj_y: bool = false",
        "grad_x: bool = false",
        "grad_y: bool = false",
    ],
    shape: batch_shape,
    kernels: kernels![strict_kernel: bf16, f16, f32, f64, i32, i64, C64, C128],
    ..PRODUCT
};

static BATCH_MAT_MUL_V2: Op = Op {
    name: "BatchMatMulV2",
    gradient: Gradient::Fn(batch_mat_mul_grad),
    attrs: &[
        "T: {bfloat16, half, float, double, int16, int32, int64, uint8, uint16, uint32, uint64, complex64, \
         complex128}",
        "adj_x: bool = false",
        "adj_y: bool = false",
        "grad_x: bool = false",
        "grad_y: bool = false",
    ],
    shape: broadcast_shape,
    kernels: kernels![broadcast_kernel: bf16, f16, f32, f64, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..PRODUCT
};

static BATCH_MAT_MUL_V3: Op = Op {
    name: "BatchMatMulV3",
    gradient: Gradient::Fn(batch_mat_mul_grad),
    inputs: &["x: Ta", "y: Tb"],
    outputs: &["output: Tout"],
    attrs: &[
        "Ta: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}",
        "Tb: {bfloat16, half, float, double, uint8, int8, int16, int32, int64, complex64, complex128}",
        "Tout: {bfloat16, half, float, double, int16, int32, int64, complex64, complex128}",
        "adj_x: bool = false",
        "adj_y: bool = false",
        "grad_x: bool = false",
        "grad_y: bool = false",
    ],
    shape: broadcast_shape,
    kernels: kernels!["Tout" => mixed_kernel: bf16, f16, f32, f64, i16, i32, i64, C64, C128],
    ..PRODUCT
};

fn batch_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (x, y) = (s.rank_at_least(0, 2)?, s.rank_at_least(1, 2)?);
    let (Some(x), Some(y)) = (x.dims(), y.dims()) else { return Ok(()) };
    let batch = s.merge(&leading(x)?, &leading(y)?)?;
    set_product(s, &batch, x, y)
}

fn broadcast_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (x, y) = (s.rank_at_least(0, 2)?, s.rank_at_least(1, 2)?);
    let (Some(x), Some(y)) = (x.dims(), y.dims()) else { return Ok(()) };
    let batch = shapes::broadcast(&leading(x)?, &leading(y)?)?;
    set_product(s, &batch, x, y)
}

fn set_product(s: &mut ShapeCx<'_>, batch: &PartialShape, x: &[Dim], y: &[Dim]) -> Result<()> {
    let (adj_x, adj_y) = (s.attr::<bool>("adj_x")?, s.attr::<bool>("adj_y")?);
    let matrix = |dims: &[Dim], adjoint: bool| match (dims, adjoint) {
        ([.., rows, columns], false) | ([.., columns, rows], true) => (*rows, *columns),
        _ => (UNKNOWN_DIM, UNKNOWN_DIM),
    };
    let ((rows, inner), (other_inner, columns)) = (matrix(x, adj_x), matrix(y, adj_y));
    s.merge_dims(inner, other_inner)?;
    let batch = batch.dims().unwrap_or_default().iter().copied();
    s.output(0, batch.chain([rows, columns]).collect::<Vec<Dim>>())
}

/// The first version asks for equal batch dimensions.
fn strict_kernel<T: Gemm + Num>(init: &Init<'_>) -> Result<Kernel> {
    let (adj_x, adj_y): (bool, bool) = (init.attr("adj_x")?, init.attr("adj_y")?);
    Kernel::sync(move |cx| {
        let (x, y) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            x.rank() == y.rank(),
            InvalidArgument,
            "In[0] and In[1] has different ndims: {} vs. {}",
            x.shape(),
            y.shape()
        );
        ensure!(x.rank() >= 2, InvalidArgument, "In[0] and In[1] ndims must be >= 2: {}", x.rank());
        for axis in 0..x.rank() - 2 {
            ensure!(
                x.shape().dim(axis) == y.shape().dim(axis),
                InvalidArgument,
                "In[0].dim({axis}) and In[1].dim({axis}) must be the same: {} vs {}",
                x.shape(),
                y.shape()
            );
        }
        multiply::<T>(cx, x, y, adj_x, adj_y)
    })
}

fn broadcast_kernel<T: Gemm + Num>(init: &Init<'_>) -> Result<Kernel> {
    let (adj_x, adj_y): (bool, bool) = (init.attr("adj_x")?, init.attr("adj_y")?);
    Kernel::sync(move |cx| multiply::<T>(cx, cx.input(0)?, cx.input(1)?, adj_x, adj_y))
}

/// Operands of other types than the result's are converted first; stock has these for small integers only.
fn mixed_kernel<T: Gemm + Num>(init: &Init<'_>) -> Result<Kernel> {
    let (adj_x, adj_y): (bool, bool) = (init.attr("adj_x")?, init.attr("adj_y")?);
    let (a, b): (DType, DType) = (init.attr("Ta")?, init.attr("Tb")?);
    if a == T::DTYPE && b == T::DTYPE {
        return broadcast_kernel::<T>(init);
    }
    let small = |dtype| matches!(dtype, DType::Int8 | DType::Uint8);
    let fits = |dtype| small(dtype) || dtype == T::DTYPE;
    let known = match T::DTYPE {
        DType::Int32 => small(a) && small(b),
        DType::Bfloat16 => fits(a) && fits(b) && !(small(a) && small(b)),
        _ => false,
    };
    if !known {
        return Err(no_kernel(init.op, init.node, &format!("Ta={a}, Tb={b}, Tout={}", T::DTYPE)));
    }
    Kernel::sync(move |cx| {
        let (x, y) = (converted::<T>(cx.input(0)?)?, converted::<T>(cx.input(1)?)?);
        multiply::<T>(cx, &x, &y, adj_x, adj_y)
    })
}

fn converted<T: Num>(tensor: &Tensor) -> Result<Tensor> {
    fn from<T: Num, U: Int>(tensor: &Tensor) -> Result<Tensor> {
        let values = tensor.flat::<U>()?.iter().map(|x| T::from_f64(x.to_f64())).collect();
        Tensor::new(tensor.shape().clone(), values)
    }
    match tensor.dtype() {
        DType::Int8 => from::<T, i8>(tensor),
        DType::Uint8 => from::<T, u8>(tensor),
        _ => Ok(tensor.clone()),
    }
}

fn multiply<T: Gemm + Num>(
    cx: &KernelCx<'_>,
    x: &Tensor,
    y: &Tensor,
    adj_x: bool,
    adj_y: bool,
) -> Result<Outputs> {
    ensure!(x.rank() >= 2, InvalidArgument, "In[0] ndims must be >= 2: {}", x.rank());
    ensure!(y.rank() >= 2, InvalidArgument, "In[1] ndims must be >= 2: {}", y.rank());
    let (x_batch, x_matrix) = x.shape().dims().split_at(x.rank() - 2);
    let (y_batch, y_matrix) = y.shape().dims().split_at(y.rank() - 2);
    let batches = Batches::new(x.shape(), y.shape())?;
    let oriented = |matrix: &[i64], adjoint: bool| {
        let (rows, columns) = (matrix[0], matrix[1]);
        if adjoint { (columns, rows) } else { (rows, columns) }
    };
    let ((rows, inner), (other_inner, columns)) = (oriented(x_matrix, adj_x), oriented(y_matrix, adj_y));
    ensure!(
        inner == other_inner,
        InvalidArgument,
        "Matrix size-incompatible: In[0]: {}, In[1]: {}",
        x.shape(),
        y.shape()
    );
    let mut output = cx.alloc::<T>(batches.shape_of(rows, columns)?)?;
    let out = output.flat_mut::<T>()?;
    let (left, right) = (x.flat::<T>()?, y.flat::<T>()?);
    let (x_rows, x_columns) = (x_matrix[0] as usize, x_matrix[1] as usize);
    let (y_rows, y_columns) = (y_matrix[0] as usize, y_matrix[1] as usize);
    if !adj_x && y_batch.iter().all(|dim| *dim == 1) {
        // One right matrix for all: the left ones are rows of a single tall matrix.
        let tall: usize = x_batch.iter().product::<i64>() as usize * x_rows;
        let left = MatrixView::new(left, tall, x_columns, false);
        T::multiply(cx.threads(), left, MatrixView::adjoint(right, y_rows, y_columns, adj_y), out);
        return Ok(output.into());
    }
    let (x_size, y_size) = (x_rows * x_columns, y_rows * y_columns);
    multiply_batch(
        cx.threads(),
        batches.layout(),
        |at| MatrixView::adjoint(&left[at * x_size..(at + 1) * x_size], x_rows, x_columns, adj_x),
        |at| MatrixView::adjoint(&right[at * y_size..(at + 1) * y_size], y_rows, y_columns, adj_y),
        out,
    );
    Ok(output.into())
}

fn batch_mat_mul_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, y) = (g.scope(), g.input(0), g.input(1));
    let operands = [x.clone(), y.clone(), g.dy(0)?];
    let product = |(left, right, adj_x, adj_y): (usize, usize, bool, bool)| {
        ops::BatchMatMulV2::new().adj_x(adj_x).adj_y(adj_y).build(s, &operands[left], &operands[right])
    };
    let [dx, dy] = product_factors(g.attr("adj_x")?, g.attr("adj_y")?);
    let (dx, dy) = (product(dx)?, product(dy)?);
    unbroadcast(g, dx, dy)
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{C64, Code, Shape, Tensor};

    #[test]
    fn batches_are_merged_or_broadcast() {
        infer("BatchMatMul", "[2,3,4];[2,4,5]", "[2,3,5]");
        infer_err("BatchMatMul", "[2,3,4];[1,4,5]", Code::InvalidArgument);
        infer("BatchMatMulV2", "[2,1,3,4];[7,4,5]", "[2,7,3,5]");
        infer_err("BatchMatMulV2", "[4];[4,5]", Code::InvalidArgument);
    }

    #[test]
    fn adjoints_are_conjugated() {
        let x = Tensor::new(Shape::matrix(1, 1), vec![C64::new(0.0, 1.0)]).unwrap();
        let out = Node::new("BatchMatMulV2").attr("adj_x", true).run([x.clone(), x]).unwrap();
        assert_eq!(out[0].flat::<C64>().unwrap(), [C64::new(1.0, 0.0)]);
    }

    #[test]
    fn repeated_matrices_are_not_copied() {
        let x = Tensor::new(Shape::new([2, 1, 1, 1]).unwrap(), vec![2i32, 3]).unwrap();
        let y = Tensor::new(Shape::new([2, 1, 1]).unwrap(), vec![5i32, 7]).unwrap();
        let out = Node::new("BatchMatMulV2").run([x, y]).unwrap();
        assert_eq!(out[0].flat::<i32>().unwrap(), [10, 14, 15, 21]);
    }
}

//! Matrix products.

use crate::builders as ops;
use crate::linalg::product::{Gemm, MatrixView};
use crate::support::gradient::{conj, product_factors};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx};
use ferroflow_core::{C64, C128, DType, Result, Shape, Tensor, bf16, ensure, f16, kernels};
use std::borrow::Cow;

pub(crate) const OPS: &[&Op] = &[&MAT_MUL, &SPARSE_MAT_MUL];

static MAT_MUL: Op = Op {
    name: "MatMul",
    inputs: &["a: T", "b: T"],
    outputs: &["product: T"],
    attrs: &[
        "transpose_a: bool = false",
        "transpose_b: bool = false",
        "T: {bfloat16, half, float, double, int32, int64, uint8, uint16, uint32, uint64, complex64, complex128}",
        "grad_a: bool = false",
        "grad_b: bool = false",
    ],
    shape: mat_mul_shape,
    gradient: Gradient::Fn(mat_mul_grad),
    kernels: kernels![mat_mul_kernel: bf16, f16, f32, f64, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static SPARSE_MAT_MUL: Op = Op {
    name: "SparseMatMul",
    gradient: Gradient::Fn(sparse_mat_mul_grad),
    inputs: &["a: Ta", "b: Tb"],
    outputs: &["product: float"],
    attrs: &[
        "transpose_a: bool = false",
        "transpose_b: bool = false",
        "a_is_sparse: bool = false",
        "b_is_sparse: bool = false",
        "Ta: {float, bfloat16} = DT_FLOAT",
        "Tb: {float, bfloat16} = DT_FLOAT",
    ],
    shape: mat_mul_shape,
    kernels: kernels![any sparse_mat_mul_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

pub(super) fn mat_mul_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (ta, tb) = (s.attr::<bool>("transpose_a")? as usize, s.attr::<bool>("transpose_b")? as usize);
    let (a, b) = (s.rank(0, 2)?, s.rank(1, 2)?);
    let (a, b) = (a.dims().unwrap_or_default(), b.dims().unwrap_or_default());
    s.merge_dims(a[1 - ta], b[tb])?;
    s.output(0, [a[ta], b[1 - tb]])
}

fn mat_mul_kernel<T: Gemm>(init: &Init<'_>) -> Result<Kernel> {
    let (ta, tb): (bool, bool) = (init.attr("transpose_a")?, init.attr("transpose_b")?);
    Kernel::sync(move |cx| Ok(product::<T>(cx, ta, tb)?.into()))
}

/// Products of more multiplications than this are made in bands of rows, between which a cancelled step ends.
const BAND_WORK: usize = 1 << 31;

/// The product of the first two inputs.
pub(super) fn product<T: Gemm>(cx: &KernelCx<'_>, ta: bool, tb: bool) -> Result<Tensor> {
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    ensure!(
        a.rank() == b.rank(),
        InvalidArgument,
        "In[0] and In[1] has different ndims: {} vs. {}",
        a.shape(),
        b.shape()
    );
    ensure!(a.rank() == 2, InvalidArgument, "In[0] and In[1] ndims must be == 2: {}", a.rank());
    let left = MatrixView::new(a.flat::<T>()?, a.shape().dim(0), a.shape().dim(1), ta);
    let right = MatrixView::new(b.flat::<T>()?, b.shape().dim(0), b.shape().dim(1), tb);
    ensure!(
        left.columns() == right.rows(),
        InvalidArgument,
        "Matrix size-incompatible: In[0]: {}, In[1]: {}",
        a.shape(),
        b.shape()
    );
    let mut product = cx.alloc::<T>(Shape::matrix(left.rows(), right.columns()))?;
    let (rows, width) = (left.rows(), right.columns());
    let band = (BAND_WORK / (left.columns() * width).max(1)).max(1);
    if band >= rows {
        T::multiply(cx.threads(), left, right, product.flat_mut()?);
        return Ok(product);
    }
    for (at, out) in product.flat_mut::<T>()?.chunks_mut(band * width).enumerate() {
        cx.step().check_cancelled()?;
        let rows = at * band..(at * band + band).min(rows);
        T::multiply(cx.threads(), left.band(rows), right.band(0..right.rows()), out);
    }
    Ok(product)
}

/// The hints about zeros are not used for speed: a dense product is faster unless nearly all elements are zero. But what
/// is no finite number meets no zeros of the sparse side, which stock leaves out.
fn sparse_mat_mul_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (ta, tb): (bool, bool) = (init.attr("transpose_a")?, init.attr("transpose_b")?);
    let (a_is_sparse, b_is_sparse): (bool, bool) = (init.attr("a_is_sparse")?, init.attr("b_is_sparse")?);
    Kernel::sync(move |cx| {
        let (a, b) = (cx.input(0)?, cx.input(1)?);
        ensure!(a.rank() == 2, InvalidArgument, "a is not a matrix");
        ensure!(b.rank() == 2, InvalidArgument, "b is not a matrix");
        let (a_data, b_data) = (widened(a)?, widened(b)?);
        let left = MatrixView::new(&a_data, a.shape().dim(0), a.shape().dim(1), ta);
        let right = MatrixView::new(&b_data, b.shape().dim(0), b.shape().dim(1), tb);
        ensure!(
            left.columns() == right.rows(),
            InvalidArgument,
            "Matrix size incompatible: a: {}, b: {}",
            a.shape(),
            b.shape()
        );
        let mut product = cx.alloc::<f32>(Shape::matrix(left.rows(), right.columns()))?;
        let others = if a_is_sparse { &b_data } else { &a_data };
        if !(a_is_sparse || b_is_sparse) || others.iter().all(|value| value.is_finite()) {
            f32::multiply(cx.threads(), left, right, product.flat_mut()?);
        } else {
            multiply_without_zeros(left, right, a_is_sparse, product.flat_mut()?);
        }
        Ok(product.into())
    })
}

/// A product without the terms in which the factor of the sparse side, left or right, is zero.
fn multiply_without_zeros(
    left: MatrixView<'_, f32>,
    right: MatrixView<'_, f32>,
    left_is_sparse: bool,
    out: &mut [f32],
) {
    for (place, sum) in out.iter_mut().enumerate() {
        let (row, column) = (place / right.columns(), place % right.columns());
        let factors = (0..right.rows()).map(|k| (*left.at(row, k), *right.at(k, column)));
        let kept = factors.filter(|(a, b)| if left_is_sparse { *a != 0.0 } else { *b != 0.0 });
        *sum = kept.fold(0.0, |sum, (a, b)| sum + a * b);
    }
}

fn widened(tensor: &Tensor) -> Result<Cow<'_, [f32]>> {
    Ok(match tensor.dtype() {
        DType::Bfloat16 => tensor.flat::<bf16>()?.iter().map(|x| x.to_f32()).collect(),
        _ => Cow::Borrowed(tensor.flat::<f32>()?),
    })
}

fn mat_mul_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let operands = [conj(s, g.input(0))?, conj(s, g.input(1))?, g.dy(0)?];
    let [da, db] = product_factors(g.attr("transpose_a")?, g.attr("transpose_b")?);
    let product = |(left, right, transpose_a, transpose_b): (usize, usize, bool, bool)| {
        let node = ops::MatMul::new().transpose_a(transpose_a).transpose_b(transpose_b);
        (node, operands[left].clone(), operands[right].clone())
    };
    let (node, left, right) = product(da);
    let da = node.grad_a(true).build(s, left, right)?;
    let (node, left, right) = product(db);
    let db = node.grad_b(true).build(s, left, right)?;
    Ok([da, db].into())
}

fn sparse_mat_mul_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    // What passed through a rectifier has many zeros.
    let sparse = [g.attr("a_is_sparse")?, g.attr("b_is_sparse")?, dy.op().op_type() == "ReluGrad"];
    let operands = [g.input(0).clone(), g.input(1).clone(), dy];
    let product = |(left, right, transpose_a, transpose_b): (usize, usize, bool, bool), dtype: DType| {
        let a = operands[left].clone();
        let b =
            if transpose_b { ops::transpose(s, &operands[right], [1, 0])? } else { operands[right].clone() };
        let product = if sparse[left] || sparse[right] || a.dtype() != b.dtype() {
            let node = ops::SparseMatMul::new().a_is_sparse(sparse[left]).b_is_sparse(sparse[right]);
            node.transpose_a(transpose_a).build(s, a, b)?
        } else {
            ops::MatMul::new().transpose_a(transpose_a).build(s, a, b)?
        };
        if product.dtype() == dtype { Ok(product) } else { ops::cast(s, product, dtype) }
    };
    let [da, db] = product_factors(g.attr("transpose_a")?, g.attr("transpose_b")?);
    Ok([product(da, g.input(0).dtype())?, product(db, g.input(1).dtype())?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn shapes_follow_the_transposes() {
        infer("MatMul", "[2,3];[3,?]", "[2,?]");
        infer_err("MatMul", "[2,3];[4,5]", Code::InvalidArgument);
        infer_err("MatMul", "[2];[2,5]", Code::InvalidArgument);
    }

    #[test]
    fn a_transposed_product() {
        let a = Tensor::new(Shape::matrix(2, 2), vec![1.0f32, 2.0, 3.0, 4.0]).unwrap();
        let out = Node::new("MatMul").attr("transpose_a", true).run([a.clone(), a]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [10.0, 14.0, 14.0, 20.0]);
    }
}

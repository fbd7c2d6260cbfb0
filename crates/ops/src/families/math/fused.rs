//! The ops that stock's optimizer makes out of several: matrix products with what follows them, and chains of
//! element-wise functions.

use super::matmul::{mat_mul_shape, product};
use crate::linalg::elementary::Elementary;
use crate::linalg::product::Gemm;
use crate::numeric::Float;
use crate::support::cwise::rows;
use crate::support::epilogue::Epilogue;
use ferroflow_core::kernel::{Init, Kernel, Outputs, Value};
use ferroflow_core::op::{Accuracy, Op, shapes};
use ferroflow_core::{Result, bail, bf16, ensure, f16, kernels, status};

pub(crate) const OPS: &[&Op] = &[&FUSED_MAT_MUL, &UNARY_OPS_COMPOSITION];

static FUSED_MAT_MUL: Op = Op {
    name: "_FusedMatMul",
    inputs: &["a: T", "b: T", "args: num_args * T"],
    outputs: &["product: T"],
    attrs: &[
        "transpose_a: bool = false",
        "transpose_b: bool = false",
        "T: {bfloat16, half, float}",
        "num_args: int >= 0",
        "fused_ops: list(string) = []",
        "epsilon: float = 0.0001",
        "leakyrelu_alpha: float = 0.2",
    ],
    shape: mat_mul_shape,
    kernels: kernels![fused_mat_mul_kernel: bf16, f16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static UNARY_OPS_COMPOSITION: Op = Op {
    name: "_UnaryOpsComposition",
    inputs: &["x: T"],
    outputs: &["y: T"],
    attrs: &["T: {float, half, double}", "op_names: list(string)"],
    shape: shapes::unchanged,
    kernels: rows![composition: Float, Half, Double],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// The functions that a chain may be made of.
const COMPOSED: &[&str] = &[
    "Abs",
    "Acos",
    "Acosh",
    "Asin",
    "Asinh",
    "Atan",
    "Atanh",
    "Ceil",
    "Cos",
    "Cosh",
    "Elu",
    "Exp",
    "Expm1",
    "Floor",
    "Inv",
    "Log",
    "Log1p",
    "Neg",
    "Reciprocal",
    "Relu",
    "Relu6",
    "Rint",
    "Round",
    "Rsqrt",
    "Selu",
    "Sigmoid",
    "Sin",
    "Sinh",
    "Sqrt",
    "Square",
    "Tan",
    "Tanh",
];

/// Runs the kernels of the ops in the chain one after the other, each in the memory of the one before.
fn composition(init: &Init<'_>) -> Result<Kernel> {
    let names: Vec<String> = init.attr("op_names")?;
    ensure!(!names.is_empty(), InvalidArgument, "Unary op composition must have at least one op");
    let dtype = init.output_types[0];
    let mut chain = Vec::with_capacity(names.len());
    for name in &names {
        let known = COMPOSED.contains(&name.as_str());
        let row = crate::kernel_row(name, dtype).filter(|_| known);
        let row = row.ok_or_else(|| {
            status!(InvalidArgument, "Do not have a compute function registered for op: {name}")
        })?;
        let Kernel::Sync(run) = (row.make)(&Init { op: name, ..*init })? else {
            bail!(Internal, "{name} waits, so that it cannot be part of a chain");
        };
        chain.push(run);
    }
    Kernel::sync(move |cx| {
        for run in &chain {
            match run(cx)? {
                Outputs::One(Value::Tensor(value)) => cx.put(0, value),
                _ => bail!(Internal, "an element-wise function gave no value"),
            }
        }
        Ok(cx.take(0)?.into())
    })
}

fn fused_mat_mul_kernel<T: Gemm + Float>(init: &Init<'_>) -> Result<Kernel>
where
    T::Math: Elementary,
{
    let (ta, tb): (bool, bool) = (init.attr("transpose_a")?, init.attr("transpose_b")?);
    let epilogue = Epilogue::new(init, "MatMul")?;
    Kernel::sync(move |cx| {
        let mut product = product::<T>(cx, ta, tb)?;
        if cx.input(0)?.elements() == 0 {
            // A product of nothing is zero, and in stock nothing follows it.
            return Ok(product.into());
        }
        let arguments = (0..epilogue.arguments).map(|i| cx.input(2 + i)).collect::<Result<Vec<_>>>()?;
        let width = product.shape().dim(1);
        epilogue.apply::<T>(cx.threads(), product.flat_mut()?, width, &arguments)?;
        Ok(product.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Code, Shape, Tensor};

    fn matrix(rows: usize, columns: usize, values: impl Fn(usize) -> f32) -> Tensor {
        Tensor::new(Shape::matrix(rows, columns), (0..rows * columns).map(values).collect()).unwrap()
    }

    fn fused(ops: &[&str], arguments: &[Tensor]) -> ferroflow_core::Result<Vec<f32>> {
        let inputs = [matrix(2, 3, |i| i as f32 / 3.0 - 1.0), matrix(3, 2, |i| 1.0 - i as f32 / 2.0)];
        let ops: Vec<String> = ops.iter().map(|op| op.to_string()).collect();
        let node = Node::new("_FusedMatMul").attr("fused_ops", ops).attr("num_args", arguments.len() as i64);
        let out = node.run(inputs.into_iter().chain(arguments.iter().cloned()))?;
        Ok(out[0].flat::<f32>()?.to_vec())
    }

    /// Stock knows these only with oneDNN, which no golden is made with.
    #[test]
    fn fusions_of_onednn() {
        let bias = Tensor::vector(vec![0.5f32, -0.25]);
        let plain = fused(&["BiasAdd"], std::slice::from_ref(&bias)).unwrap();
        let gelu = fused(&["BiasAdd", "GeluExact"], std::slice::from_ref(&bias)).unwrap();
        let approximate = fused(&["BiasAdd", "GeluApproximate"], std::slice::from_ref(&bias)).unwrap();
        for ((x, exact), approximate) in plain.iter().zip(gelu).zip(approximate) {
            let expected = 0.5 * x * (1.0 + libm::erff(x / 2f32.sqrt()));
            assert!((expected - exact).abs() < 1e-5 && (expected - approximate).abs() < 1e-3, "{x}");
        }
        let side = matrix(2, 2, |i| i as f32);
        let sum = fused(&["BiasAdd", "Add"], &[bias, side]).unwrap();
        assert!(sum.iter().zip(&plain).enumerate().all(|(i, (sum, x))| *sum == x + i as f32));
    }

    #[test]
    fn a_bias_of_another_length_is_refused() {
        let refused = fused(&["BiasAdd"], &[Tensor::vector(vec![1.0f32; 3])]);
        assert_eq!(refused.unwrap_err().code(), Code::InvalidArgument);
    }
}

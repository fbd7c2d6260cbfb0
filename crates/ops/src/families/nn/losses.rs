//! Losses over a whole tensor.

use crate::builders as ops;
use crate::linalg::reduce::{Axis, SumOfSquares, fold};
use crate::numeric::Num;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, shapes};
use ferroflow_core::{Result, Tensor, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&L2_LOSS];

static L2_LOSS: Op = Op {
    name: "L2Loss",
    gradient: Gradient::Fn(l2_loss_gradient),
    inputs: &["t: T"],
    outputs: &["output: T"],
    attrs: &["T: {half, bfloat16, float, double}"],
    shape: shapes::scalar,
    kernels: kernels![l2_loss_kernel: f16, bf16, f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// Half the sum of squares.
fn l2_loss_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.flat::<T>(0)?;
        let mut sum = [T::Wide::ZERO];
        let axis = Axis { outer: 1, n: input.len(), inner: 1 };
        fold::<SumOfSquares<T>>(cx.threads(), input, axis, &mut sum);
        Ok(Tensor::scalar(T::narrow(sum[0].mul(<T::Wide as Num>::from_f64(0.5)))).into())
    })
}

fn l2_loss_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::mul(g.scope(), g.input(0), g.dy(0)?)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::Tensor;

    #[test]
    fn half_the_sum_of_squares() {
        let out = Node::new("L2Loss").run([Tensor::vector(vec![3.0f32, 4.0])]).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [12.5]);
    }
}

//! Numbers by the bucket that they fall into.

use crate::numeric::Real;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Gradient, Op, shapes};
use ferroflow_core::{Result, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&BUCKETIZE];

static BUCKETIZE: Op = Op {
    name: "Bucketize",
    gradient: Gradient::Stop,
    inputs: &["input: T"],
    outputs: &["output: int32"],
    attrs: &["T: {int32, int64, float, double}", "boundaries: list(float)"],
    shape: shapes::unchanged,
    kernels: kernels![integers_kernel: i32, i64; floats_kernel: f32, f64],
    ..Op::PURE
};

/// Integers are compared as single-precision numbers, as in stock.
fn integers_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    kernel::<T>(init, |value| value.to_f64() as f32 as f64)
}

fn floats_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    kernel::<T>(init, T::to_f64)
}

fn kernel<T: Real>(init: &Init<'_>, number: fn(T) -> f64) -> Result<Kernel> {
    let boundaries: Vec<f32> = init.attr("boundaries")?;
    ensure!(boundaries.is_sorted(), InvalidArgument, "Expected sorted boundaries");
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let mut out = cx.alloc::<i32>(input.shape().clone())?;
        let values = input.flat::<T>()?;
        // Each value is compared with some boundaries; a not-a-number is beyond all of them.
        let cost = 4 + boundaries.len().checked_ilog2().unwrap_or(0) as usize;
        cx.threads().parallel_rows(out.flat_mut()?, 1, cost, |first, out| {
            for (out, value) in out.iter_mut().zip(&values[first..]) {
                let value = number(*value);
                *out = boundaries.partition_point(|bound| value.is_nan() || value >= *bound as f64) as i32;
            }
        });
        Ok(out.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::Tensor;
    use ferroflow_proto::tensorflow::attr_value::{ListValue, Value};

    #[test]
    fn a_boundary_belongs_to_the_upper_bucket() {
        let boundaries = ListValue { f: vec![0.0, 10.0], ..Default::default() };
        let node = Node::new("Bucketize").attr("boundaries", Value::List(Box::new(boundaries)));
        let out = node.run([Tensor::vector(vec![-1.0f32, 0.0, 5.0, 10.0, f32::NAN])]).unwrap();
        assert_eq!(out[0].flat::<i32>().unwrap(), [0, 1, 1, 2, 2]);
    }
}

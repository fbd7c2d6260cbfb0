//! Points of Sobol's sequence, which fill a cube evenly.

use crate::numeric::Float;
use crate::numeric::sobol::{DIMENSIONS, direction_numbers};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&SOBOL_SAMPLE];

static SOBOL_SAMPLE: Op = Op {
    name: "SobolSample",
    inputs: &["dim: int32", "num_results: int32", "skip: int32"],
    outputs: &["samples: dtype"],
    attrs: &["dtype: {float, double} = DT_FLOAT"],
    shape: sobol_shape,
    kernels: kernels!["dtype" => sobol_kernel: f32, f64],
    ..Op::PURE
};

fn sobol_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    (0..3).try_for_each(|input| s.rank(input, 0).map(drop))?;
    let known = |value: Option<i64>| value.filter(|value| *value >= 0).unwrap_or(UNKNOWN_DIM);
    let (dim, count) = (known(s.constant_i64(0)?), known(s.constant_i64(1)?));
    s.output(0, [count, dim])
}

fn sobol_kernel<T: Float>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        for (input, name) in ["dim", "num_results", "skip"].into_iter().enumerate() {
            ensure!(cx.input(input)?.rank() == 0, InvalidArgument, "{name} must be a scalar");
        }
        let (dim, count, skip) = (cx.scalar_i64(0)?, cx.scalar_i64(1)?, cx.scalar_i64(2)?);
        let most = i64::from(i32::MAX);
        ensure!(dim >= 1, InvalidArgument, "dim must be at least one");
        ensure!(dim <= 21200, InvalidArgument, "dim must be at most 21200");
        ensure!(count >= 1, InvalidArgument, "num_results must be at least one");
        ensure!(skip >= 0, InvalidArgument, "skip must be non-negative");
        ensure!(count < most - skip, InvalidArgument, "num_results+skip must be less than {most}");
        ensure!(count < most / dim, InvalidArgument, "num_results*dim must be less than {most}");
        let (dim, count, skip) = (dim as usize, count as usize, skip as usize);
        ensure!(
            dim <= DIMENSIONS,
            Unimplemented,
            "SobolSample with dim {dim}: direction numbers of more than {DIMENSIONS} dimensions are not included"
        );
        let mut output = cx.alloc::<T>(Shape::matrix(count, dim))?;
        let numbers = direction_numbers(dim);
        let digits = usize::BITS - (skip + count + 1).leading_zeros();
        let scale = T::from_f64(0.5f64.powi(digits as i32));
        let direction = |axis: usize, k: u32| numbers[axis][k as usize] << (digits - k - 1);
        cx.threads().parallel_rows(output.flat_mut::<T>()?, dim, 2, |first, part| {
            // The point before is made of the bits of its number's Gray code; each next one differs by one of them.
            let number = first + skip;
            let gray = number ^ (number >> 1);
            let mut point: Vec<u32> = (0..dim)
                .map(|axis| {
                    let bits = (0..digits).filter(|k| (gray >> k) & 1 == 1);
                    bits.fold(0, |sum, k| sum ^ direction(axis, k))
                })
                .collect();
            for (row, out) in part.chunks_exact_mut(dim).enumerate() {
                let k = (number + row).trailing_ones();
                for (axis, (x, out)) in point.iter_mut().zip(out).enumerate() {
                    *x ^= direction(axis, k);
                    *out = T::from_f64(f64::from(*x)).mul(scale);
                }
            }
        });
        Ok(output.into())
    })
}

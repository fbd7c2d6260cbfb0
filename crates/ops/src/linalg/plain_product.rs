//! Matrix products without `gemm`, for processors whose features it does not expect.
//!
//! `gemm` takes FMA for a promise of AVX2 and F16C, and panics where that is not kept: on AMD's processors of 2012
//! to 2015, and on virtual machines that hide features.

use super::product::MatrixView;
use crate::numeric::Num;

/// Whether the kernels that `gemm` chooses run on this processor.
pub(super) fn gemm_runs() -> bool {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        !has!("fma") || (has!("avx2") && has!("f16c"))
    }
    #[cfg(not(target_arch = "x86_64"))]
    true
}

/// Writes rows of `a · b`, from `first` on, into the row-major `out`, or adds them.
pub(super) fn multiply_rows<T: Num>(
    a: MatrixView<'_, T>,
    b: MatrixView<'_, T>,
    first: usize,
    out: &mut [T],
    add: bool,
) {
    let (depth, width) = (a.columns(), b.columns());
    if width == 0 {
        return;
    }
    let mut sums = vec![T::Wide::ZERO; width];
    for (i, row) in out.chunks_mut(width).enumerate() {
        for (sum, out) in sums.iter_mut().zip(&*row) {
            *sum = if add { out.widen() } else { T::Wide::ZERO };
        }
        for inner in 0..depth {
            let left = a.value(first + i, inner).widen();
            for (j, sum) in sums.iter_mut().enumerate() {
                *sum = sum.add(left.mul(b.value(inner, j).widen()));
            }
        }
        for (out, sum) in row.iter_mut().zip(&sums) {
            *out = T::narrow(*sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linalg::product::Tile;
    use ferroflow_core::{C64, f16};

    #[test]
    fn plain_products_equal_those_of_gemm() {
        let (m, k, n) = (5, 7, 3);
        let left: Vec<f64> = (0..m * k).map(|i| (i % 11) as f64 - 4.0).collect();
        let right: Vec<f64> = (0..k * n).map(|i| (i % 5) as f64 + 0.5).collect();
        for (transpose_a, transpose_b) in [(false, false), (true, false), (false, true), (true, true)] {
            let shape = |rows, columns, transpose| if transpose { (columns, rows) } else { (rows, columns) };
            let ((ar, ac), (br, bc)) = (shape(m, k, transpose_a), shape(k, n, transpose_b));
            let a = MatrixView::new(&left, ar, ac, transpose_a);
            let b = MatrixView::new(&right, br, bc, transpose_b);
            for add in [false, true] {
                let (mut expected, mut actual) = (vec![1.5; m * n], vec![1.5; m * n]);
                f64::multiply_tile(a, b, &mut expected, add);
                multiply_rows(a, b, 0, &mut actual, add);
                assert_eq!(expected, actual, "{transpose_a} {transpose_b} {add}");
                // A part of the rows is the same part of the product.
                multiply_rows(a, b, 2, &mut actual[2 * n..3 * n], false);
                if !add {
                    assert_eq!(expected, actual);
                }
            }
        }
    }

    #[test]
    fn adjoints_are_conjugated_and_halves_are_summed_in_single_precision() {
        let (i, one) = (C64::new(0.0, 1.0), C64::new(1.0, 0.0));
        let mut out = [C64::new(0.0, 0.0)];
        multiply_rows(
            MatrixView::adjoint(&[i], 1, 1, true),
            MatrixView::new(&[one], 1, 1, false),
            0,
            &mut out,
            false,
        );
        assert_eq!(out[0], -i);
        // In half precision the sum would stay at 2048.
        let ones = vec![f16::ONE; 4096];
        let mut sum = [f16::ZERO];
        multiply_rows(
            MatrixView::new(&ones, 1, 4096, false),
            MatrixView::new(&ones, 4096, 1, false),
            0,
            &mut sum,
            false,
        );
        assert_eq!(sum[0].to_f32(), 4096.0);
    }
}

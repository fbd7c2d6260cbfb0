//! Flat positions as coordinates.

use crate::support::index::int_tensor;
use crate::support::sparse::wide;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{DType, Result, Shape, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&UNRAVEL_INDEX];

static UNRAVEL_INDEX: Op = Op {
    name: "UnravelIndex",
    inputs: &["indices: Tidx", "dims: Tidx"],
    outputs: &["output: Tidx"],
    attrs: &["Tidx: {int32, int64} = DT_INT32"],
    shape: unravel_shape,
    kernels: kernels![any unravel_kernel],
    ..Op::PURE
};

fn unravel_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (indices, dims) = (s.input(0), s.rank(1, 1)?);
    let rank = dims.dims().map_or(UNKNOWN_DIM, |dims| dims[0]);
    match indices.rank() {
        None => Ok(()),
        Some(0) => s.output(0, [rank]),
        Some(_) => {
            let count = indices.to_shape().map_or(UNKNOWN_DIM, |shape| shape.elements() as i64);
            s.output(0, [rank, count])
        }
    }
}

fn unravel_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("Tidx")?;
    let most = if dtype == DType::Int64 { i64::MAX } else { i32::MAX as i64 };
    Kernel::sync(move |cx| {
        let (indices, dims) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            indices.rank() <= 1,
            InvalidArgument,
            "The indices can only be scalar or vector, got \"{}\"",
            indices.shape()
        );
        ensure!(indices.elements() > 0, InvalidArgument, "received empty tensor indices: {indices:?}");
        ensure!(dims.rank() == 1, InvalidArgument, "The indices can only be 1-D, got \"{}\"", dims.shape());
        let (indices_wide, sizes) = (wide(indices)?, wide(dims)?);
        let mut product = 1i64;
        for (i, dim) in sizes.iter().enumerate() {
            ensure!(
                *dim != 0,
                InvalidArgument,
                "Input dims cannot contain a dim of zero, but dims contains zero at index {i}"
            );
            ensure!(*dim > 0, InvalidArgument, "Input dims cannot be negative. Got dim = {dim} at index {i}");
            ensure!(
                product <= most / dim,
                InvalidArgument,
                "Input dims product is causing integer overflow: ({sizes:?})"
            );
            product *= dim;
        }
        ensure!(
            indices_wide.iter().all(|index| *index < product),
            InvalidArgument,
            "index is out of bound as with dims"
        );
        let (rank, count) = (sizes.len(), indices.elements());
        let shape = if indices.rank() == 0 { Shape::vector(rank) } else { Shape::matrix(rank, count) };
        // The sizes of the elements of each dimension, and of the dimensions themselves.
        let mut strides = vec![1i64; rank + 1];
        for axis in (0..rank).rev() {
            strides[axis] = strides[axis + 1] * sizes[axis];
        }
        let places = (0..rank).flat_map(|axis| {
            let (whole, each) = (strides[axis], strides[axis + 1]);
            indices_wide.iter().map(move |index| index % whole / each)
        });
        Ok(int_tensor(dtype, shape, places)?.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::Tensor;

    #[test]
    fn coordinates_are_columns() {
        infer("UnravelIndex", "[4];[2]", "[2,4]");
        infer("UnravelIndex", "[];[3]", "[3]");
        let out =
            Node::new("UnravelIndex").run([Tensor::vector(vec![5i32, 2]), Tensor::vector(vec![2i32, 3])]);
        assert_eq!(out.unwrap()[0].flat::<i32>().unwrap(), [1, 0, 2, 2]);
    }
}

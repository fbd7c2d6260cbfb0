//! A tensor with some of its rows replaced or changed.

use crate::numeric::Num;
use crate::support::index::input_ints;
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, Op, shapes};
use ferroflow_core::{C64, C128, DType, Result, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&INPLACE_UPDATE, &INPLACE_ADD, &INPLACE_SUB];

const INPLACE: Op = Op {
    inputs: &["x: T", "i: int32", "v: T"],
    outputs: &["y: T"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    ..Op::PURE
};

static INPLACE_UPDATE: Op =
    Op { name: "InplaceUpdate", kernels: kernels![any inplace_update_kernel], ..INPLACE };

static INPLACE_ADD: Op = Op {
    name: "InplaceAdd",
    kernels: kernels![inplace_add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..INPLACE
};

static INPLACE_SUB: Op = Op {
    name: "InplaceSub",
    kernels: kernels![inplace_sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    accuracy: Accuracy::Rounding,
    ..INPLACE
};

/// Checks the inputs; returns the rows to change and the elements per row. Row numbers wrap around, as in stock.
fn rows(cx: &KernelCx<'_>) -> Result<(Vec<usize>, usize)> {
    let (x, i, v) = (cx.input(0)?.shape(), cx.input(1)?.shape(), cx.input(2)?.shape());
    ensure!(i.rank() == 1, InvalidArgument, "i must be a vector. {i}");
    ensure!(x.rank() == v.rank(), InvalidArgument, "x and v shape doesn't match (ranks differ): {x} vs. {v}");
    ensure!(x.rank() > 0, InvalidArgument, "x must be at least a vector. {x}");
    for d in 1..x.rank() {
        ensure!(x[d] == v[d], InvalidArgument, "x and v shape doesn't match at index {d} : {x} vs. {v}");
    }
    ensure!(i[0] == v[0], InvalidArgument, "i and x shape doesn't match at index 0: {i} vs. {v}");
    let count = x[0];
    let width = x[1..].iter().product::<i64>() as usize;
    if count == 0 || width == 0 {
        return Ok((Vec::new(), width));
    }
    Ok((input_ints(cx, 1)?.iter().map(|row| row.rem_euclid(count) as usize).collect(), width))
}

fn inplace_update_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("T")?;
    Kernel::sync(move |cx| {
        let (rows, width) = rows(cx)?;
        let mut out = cx.take(0)?;
        by_unit!(dtype, U => {
            let (units, values) = (out.units_mut::<U>()?, cx.input(2)?.units::<U>()?);
            for (i, row) in rows.into_iter().enumerate() {
                units[row * width..][..width].clone_from_slice(&values[i * width..][..width]);
            }
        });
        Ok(out.into())
    })
}

fn inplace<T: Num>(combine: impl Fn(T, T) -> T + Send + Sync + 'static) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let (rows, width) = rows(cx)?;
        let mut out = cx.take(0)?;
        let (target, values) = (out.flat_mut::<T>()?, cx.flat::<T>(2)?);
        for (i, row) in rows.into_iter().enumerate() {
            let line = target[row * width..][..width].iter_mut();
            for (target, value) in line.zip(&values[i * width..]) {
                *target = combine(*target, *value);
            }
        }
        Ok(out.into())
    })
}

fn inplace_add_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    inplace::<T>(|a, b| a.add(b))
}

fn inplace_sub_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    inplace::<T>(|a, b| a.sub(b))
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::Tensor;

    #[test]
    fn the_input_of_others_stays_as_it_was() {
        let x = Tensor::vector(vec![1.0f32, 2.0]);
        let inputs = [x.clone(), Tensor::vector(vec![-1i32]), Tensor::vector(vec![5.0f32])];
        let out = Node::new("InplaceAdd").run(inputs).unwrap();
        assert_eq!(out[0].flat::<f32>().unwrap(), [1.0, 7.0]);
        assert_eq!(x.flat::<f32>().unwrap(), [1.0, 2.0]);
    }
}

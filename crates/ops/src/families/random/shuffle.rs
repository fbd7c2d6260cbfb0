//! Random permutations of rows.

use crate::numeric::philox::{KernelStream, Philox, Words, from_key_inputs};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, Gradient, Op, ShapeCx, shapes};
use ferroflow_core::{Result, Unit, kernels};

pub(crate) const OPS: &[&Op] = &[&RANDOM_SHUFFLE, &STATELESS_SHUFFLE];

static RANDOM_SHUFFLE: Op = Op {
    name: "RandomShuffle",
    gradient: Gradient::Stop,
    inputs: &["value: T"],
    outputs: &["output: T"],
    attrs: &["seed: int = 0", "seed2: int = 0", "T: type"],
    shape: shapes::unchanged,
    kernels: kernels![units shuffle_kernel],
    accuracy: Accuracy::Random,
    ..Op::STATEFUL
};

static STATELESS_SHUFFLE: Op = Op {
    name: "StatelessShuffle",
    inputs: &["value: T", "key: uint64", "counter: uint64", "alg: int32"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: stateless_shape,
    kernels: kernels![units stateless_shuffle_kernel],
    ..Op::PURE
};

fn stateless_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 1)?;
    s.rank(2, 1)?;
    s.rank(3, 0)?;
    s.set(0, s.input(0));
    Ok(())
}

fn shuffle_kernel<U: Unit>(init: &Init<'_>) -> Result<Kernel> {
    let stream = KernelStream::new(init)?;
    Kernel::sync(move |cx| {
        // One word per row but the last.
        shuffle::<U>(cx, |rows| Ok(stream.reserve((rows as u64 - 1).div_ceil(4))))
    })
}

fn stateless_shuffle_kernel<U: Unit>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let philox = from_key_inputs(cx, 1, true)?;
        shuffle::<U>(cx, |_| Ok(philox))
    })
}

fn shuffle<U: Unit>(cx: &mut KernelCx<'_>, stream: impl FnOnce(usize) -> Result<Philox>) -> Result<Outputs> {
    let mut value = cx.take(0)?;
    let rows = value.shape().first().map_or(1, |rows| *rows as usize);
    if value.elements() <= 1 || rows <= 1 {
        return Ok(value.into());
    }
    let mut words = Words::new(stream(rows)?);
    let mut pick = |at: usize| at + (words.next() % (rows - at) as u32) as usize;
    if value.rank() == 1 {
        let elements = value.units_mut::<U>()?;
        (0..rows - 1).for_each(|at| elements.swap(at, pick(at)));
        return Ok(value.into());
    }
    let mut order: Vec<usize> = (0..rows).collect();
    (0..rows - 1).for_each(|at| order.swap(at, pick(at)));
    let width = value.elements() / rows;
    let mut out = cx.alloc_dtype(value.dtype(), value.shape().clone())?;
    let source = value.units::<U>()?;
    for (row, from) in out.units_mut::<U>()?.chunks_mut(width).zip(order) {
        row.clone_from_slice(&source[from * width..][..width]);
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn rows_stay_whole() {
        let value = Tensor::new(Shape::matrix(5, 2), (0..10i32).collect()).unwrap();
        let out = Node::new("RandomShuffle").attr("seed", 3i64).run([value]).unwrap();
        let mut rows: Vec<Vec<i32>> = out[0].flat().unwrap().chunks(2).map(<[i32]>::to_vec).collect();
        rows.sort();
        assert_eq!(rows.concat(), (0..10).collect::<Vec<i32>>());
    }
}

//! Sums of many tensors.

use crate::numeric::Num;
use crate::support::variants;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, KernelRow, Op, ShapeCx, shapes};
use ferroflow_core::variant::Variant;
use ferroflow_core::{C64, C128, DType, PartialShape, Result, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&ADD_N, &ACCUMULATE_N_V2];

static ADD_N: Op = Op {
    name: "AddN",
    gradient: Gradient::Fn(add_n_grad),
    inputs: &["inputs: N * T"],
    outputs: &["sum: T"],
    attrs: &[
        "N: int >= 1",
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, \
         quint16, uint16, complex128, half, uint32, uint64, variant}",
    ],
    shape: add_n_shape,
    kernels: &[
        row::<f32>(),
        row::<f64>(),
        row::<i32>(),
        row::<u8>(),
        row::<i16>(),
        row::<i8>(),
        row::<C64>(),
        row::<i64>(),
        row::<bf16>(),
        row::<u16>(),
        row::<C128>(),
        row::<f16>(),
        row::<u32>(),
        row::<u64>(),
        KernelRow::new("T", DType::Variant, sum_variants),
    ],
    accuracy: Accuracy::Rounding,
    commutative: true,
    aggregate: true,
    ..Op::PURE
};

static ACCUMULATE_N_V2: Op = Op {
    name: "AccumulateNV2",
    gradient: Gradient::Fn(add_n_grad),
    inputs: &["inputs: N * T"],
    outputs: &["sum: T"],
    attrs: &["N: int >= 1", "T: numbertype", "shape: shape"],
    shape: accumulate_shape,
    kernels: kernels![sum: f32, f64, i32, u8, i16, i8, C64, i64, bf16, u16, C128, f16, u32, u64],
    accuracy: Accuracy::Rounding,
    commutative: true,
    aggregate: true,
    ..Op::PURE
};

const fn row<T: Num>() -> KernelRow {
    KernelRow::new("T", T::DTYPE, sum::<T>)
}

fn add_n_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    shapes::same(s)?;
    if s.output_type(0) == DType::Variant {
        s.set_handles(0, s.handles(0).to_vec());
    }
    Ok(())
}

fn accumulate_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape: PartialShape = s.attr("shape")?;
    ensure!(shape.to_shape().is_some(), InvalidArgument, "shape attr must be fully defined.");
    let mut sum = shape;
    for input in 0..s.num_inputs() {
        sum = s.merge(&sum, &s.input(input))?;
    }
    s.set(0, sum);
    Ok(())
}

/// Elements per pass: all inputs of a block are added while it is in the cache.
const BLOCK: usize = 4096;

fn sum<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let (node, op) = (init.node.to_owned(), init.op.to_owned());
    Kernel::sync(move |cx| {
        let count = cx.num_inputs();
        check_shapes(cx, &node, &op)?;
        if count == 1 {
            return Ok(cx.take(0)?.into());
        }
        let shape = cx.input(0)?.shape().clone();
        let all: smallvec::SmallVec<[usize; 8]> = (0..count).collect();
        let (first, mut out) = match cx.take_reusable(&all, T::DTYPE, shape.elements()) {
            Some(reused) => reused,
            None => {
                let mut out = cx.alloc::<T>(shape)?;
                out.flat_mut::<T>()?.copy_from_slice(cx.flat::<T>(0)?);
                (0, out)
            }
        };
        let others = all.iter().filter(|input| **input != first).map(|input| cx.flat::<T>(*input));
        let others = others.collect::<Result<smallvec::SmallVec<[&[T]; 8]>>>()?;
        cx.threads().parallel_rows(out.flat_mut::<T>()?, 1, count, |start, part| {
            for (block, out) in part.chunks_mut(BLOCK).enumerate() {
                let start = start + block * BLOCK;
                for other in &others {
                    let other = &other[start..start + out.len()];
                    for (sum, x) in out.iter_mut().zip(other) {
                        *sum = sum.add(*x);
                    }
                }
            }
        });
        Ok(out.into())
    })
}

fn sum_variants(init: &Init<'_>) -> Result<Kernel> {
    let (node, op) = (init.node.to_owned(), init.op.to_owned());
    Kernel::sync(move |cx| {
        check_shapes(cx, &node, &op)?;
        let shape = cx.input(0)?.shape().clone();
        let mut sums = cx.input(0)?.units::<Variant>()?.to_vec();
        for input in 1..cx.num_inputs() {
            for (sum, other) in sums.iter_mut().zip(cx.input(input)?.units::<Variant>()?) {
                *sum = variants::sum(sum, other)?;
            }
        }
        Ok(Outputs::from(Tensor::from_units(DType::Variant, shape, sums)?))
    })
}

fn check_shapes(cx: &KernelCx<'_>, node: &str, op: &str) -> Result<()> {
    let first = cx.input(0)?.shape();
    for input in 1..cx.num_inputs() {
        let shape = cx.input(input)?.shape();
        ensure!(
            shape == first,
            InvalidArgument,
            "Inputs to operation {node} of type {op} must have the same size and shape.  Input 0: {first} != input \
             {input}: {shape}"
        );
    }
    Ok(())
}

/// Every input gets what arrives; rows stay rows.
fn add_n_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok(InputGrads(vec![g.grad(0).cloned(); g.num_inputs()]))
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn every_input_has_one_shape() {
        infer("AddN", "[2,?];[?,3]", "[2,3]");
        infer_err("AddN", "[2];[3]", Code::InvalidArgument);
    }

    #[test]
    fn long_inputs_are_added_block_by_block() {
        let vector = |k: i64| Tensor::vector((0..10_000).map(|i| i * k).collect::<Vec<i64>>());
        let out = Node::new("AddN").run([vector(1), vector(10), vector(100)]).unwrap();
        assert!(out[0].flat::<i64>().unwrap().iter().enumerate().all(|(i, x)| *x == i as i64 * 111));
    }
}

//! Choosing between tensors by condition, and clipping.

use crate::builders as ops;
use crate::linalg::broadcast::Broadcast;
use crate::linalg::elementwise::Loop;
use crate::numeric::Real;
use crate::support::cwise::{self, loops, rows};
use crate::support::gradient::unbroadcast;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{C64, C128, DType, Result, Shape, Tensor, Unit, ensure, kernels, status};

pub(crate) const OPS: &[&Op] = &[&SELECT, &SELECT_V2, &CLIP_BY_VALUE];

static SELECT: Op = Op {
    name: "Select",
    gradient: Gradient::Fn(select_grad),
    inputs: &["condition: bool", "t: T", "e: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: select_shape,
    kernels: kernels![units select],
    ..Op::PURE
};
static SELECT_V2: Op = Op {
    name: "SelectV2",
    gradient: Gradient::Fn(select_v2_grad),
    inputs: &["condition: bool", "t: T", "e: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: select_v2_shape,
    kernels: kernels![units select_v2],
    ..Op::PURE
};
static CLIP_BY_VALUE: Op = Op {
    name: "ClipByValue",
    gradient: Gradient::Fn(clip_grad),
    inputs: &["t: T", "clip_value_min: T", "clip_value_max: T"],
    outputs: &["output: T"],
    attrs: &["T: numbertype"],
    shape: shapes::unchanged,
    kernels: rows![
        clip: Float, Double, Int32, Uint8, Int16, Int8, Complex64, Int64, Bfloat16, Uint16, Complex128, Half, Uint32,
            Uint64
    ],
    ..Op::PURE
};

fn select_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let data = s.merge(&s.input(1), &s.input(2))?;
    let condition = s.input(0);
    if let (Some(flags), Some(dims)) = (condition.dims(), data.dims()) {
        match flags.len() {
            0 => {}
            // A vector chooses whole rows.
            1 if dims.len() > 1 => {
                s.merge_dims(flags[0], dims[0])?;
            }
            _ => {
                let shape = s.merge(&condition, &data)?;
                s.set(0, shape);
                return Ok(());
            }
        }
    }
    s.set_handles(0, s.handles(1).to_vec());
    s.set(0, data);
    Ok(())
}

fn select_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let data = shapes::broadcast(&s.input(1), &s.input(2))?;
    let shape = shapes::broadcast(&s.input(0), &data)?;
    s.set_handles(0, s.handles(1).to_vec());
    s.set(0, shape);
    Ok(())
}

fn select<U: Unit>(init: &Init<'_>) -> Result<Kernel> {
    let (node, op) = (init.node.to_owned(), init.op.to_owned());
    Kernel::sync(move |cx| {
        let (condition, yes, no) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let different = |input: usize, shape: &Shape| {
            status!(
                InvalidArgument,
                "Inputs to operation {node} of type {op} must have the same size and shape.  Input 0: {} != input \
                 {input}: {shape}",
                condition.shape()
            )
        };
        if condition.rank() == 0 {
            ensure!(
                yes.shape() == no.shape(),
                InvalidArgument,
                "'then' and 'else' must have the same size.  but received: {} vs. {}",
                yes.shape(),
                no.shape()
            );
            return choose(cx);
        }
        if condition.rank() == 1 && yes.rank() != 1 {
            ensure!(
                yes.rank() >= 1,
                InvalidArgument,
                "'then' must be at least a vector, but saw shape: {}",
                yes.shape()
            );
            ensure!(
                yes.shape().dim(0) == condition.elements(),
                InvalidArgument,
                "Number of batches of 'then' must match size of 'cond', but saw: {} vs. {}",
                yes.shape().dim(0),
                condition.elements()
            );
            ensure!(
                yes.shape() == no.shape(),
                InvalidArgument,
                "'then' and 'else' must have the same size.  but received: {} vs. {}",
                yes.shape(),
                no.shape()
            );
            // Flags that stand for whole rows are a broadcast of a column.
            let column = (0..yes.rank()).map(|i| if i == 0 { yes.shape()[0] } else { 1 });
            let column = Shape::new(column)?;
            let plan = Broadcast::new([&column, yes.shape(), no.shape()]).expect("checked above");
            return merge::<U>(cx, plan);
        }
        if yes.shape() != condition.shape() {
            return Err(different(1, yes.shape()));
        }
        if no.shape() != condition.shape() {
            return Err(different(2, no.shape()));
        }
        let plan = Broadcast::new([condition.shape(), yes.shape(), no.shape()]).expect("equal shapes");
        merge::<U>(cx, plan)
    })
}

fn select_v2<U: Unit>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (condition, yes, no) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        if condition.rank() == 0 && yes.shape() == no.shape() {
            return choose(cx);
        }
        let plan = Broadcast::new([condition.shape(), yes.shape(), no.shape()]).ok_or_else(|| {
            status!(
                InvalidArgument,
                "condition {}, then {}, and else {} must be broadcastable",
                condition.shape(),
                yes.shape(),
                no.shape()
            )
        })?;
        merge::<U>(cx, plan)
    })
}

/// Passes one of two tensors on.
fn choose(cx: &mut KernelCx<'_>) -> Result<Outputs> {
    let flag = cx.scalar::<bool>(0)?;
    Ok(cx.take(if flag { 1 } else { 2 })?.into())
}

fn merge<U: Unit>(cx: &mut KernelCx<'_>, plan: Broadcast<3>) -> Result<Outputs> {
    let (flags, yes, no) = (cx.flat::<bool>(0)?, cx.input(1)?, cx.input(2)?);
    let (yes, no) = (yes.units::<U>()?, no.units::<U>()?);
    let dtype = cx.input(1)?.dtype();
    let mut out = cx.alloc_dtype(dtype, plan.shape().clone())?;
    if plan.elements() == 0 {
        return Ok(out.into());
    }
    let width = plan.columns();
    let moves = plan.moves();
    let [flag_step, yes_step, no_step] = moves.map(usize::from);
    cx.threads().parallel_rows(out.units_mut::<U>()?, width, 1, |first, part| {
        plan.for_rows(first..first + part.len() / width, |row, [f, y, n]| {
            let out = &mut part[(row - first) * width..][..width];
            match moves {
                [true, true, true] => {
                    let sources = flags[f..].iter().zip(&yes[y..]).zip(&no[n..]);
                    for (out, ((flag, yes), no)) in out.iter_mut().zip(sources) {
                        *out = if *flag { yes.clone() } else { no.clone() };
                    }
                }
                [false, true, true] => {
                    out.clone_from_slice(if flags[f] { &yes[y..y + width] } else { &no[n..n + width] })
                }
                _ => {
                    for (i, out) in out.iter_mut().enumerate() {
                        let source = if flags[f + i * flag_step] {
                            &yes[y + i * yes_step]
                        } else {
                            &no[n + i * no_step]
                        };
                        *out = source.clone();
                    }
                }
            }
        });
    });
    Ok(out.into())
}

fn clip(init: &Init<'_>) -> Result<Kernel> {
    let function = match init.input_types[0] {
        // The parts of complex numbers are clipped by themselves, as in stock.
        DType::Complex64 => Loop::zip3(|x: C64, low, high| {
            C64::new(between(x.re, low.re, high.re), between(x.im, low.im, high.im))
        }),
        DType::Complex128 => Loop::zip3(|x: C128, low, high| {
            C128::new(between(x.re, low.re, high.re), between(x.im, low.im, high.im))
        }),
        _ => loops![init; floats, signed, unsigned; T => Loop::zip3(between::<T>)]?,
    };
    cwise::checked_kernel(init, 2, function, |cx| {
        let (x, low, high) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let fits = |bound: &Tensor| bound.rank() == 0 || bound.shape() == x.shape();
        ensure!(
            fits(low) && fits(high),
            InvalidArgument,
            "clip_value_min and clip_value_max must be either of the same shape as input, or a scalar. input shape: \
             {}clip_value_min shape: {}clip_value_max shape: {}",
            x.shape(),
            low.shape(),
            high.shape()
        );
        Ok(())
    })
}

/// The value within bounds; the lower one wins, and NaN stays.
#[inline(always)]
fn between<T: Real>(x: T, low: T, high: T) -> T {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

fn select_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, condition, dy) = (g.scope(), g.input(0), g.dy(0)?);
    let zeros = ops::zeros_like(s, g.input(1))?;
    let dt = ops::select(s, condition, &dy, &zeros)?;
    let de = ops::select(s, condition, &zeros, &dy)?;
    Ok([None, Some(dt), Some(de)].into())
}

fn select_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, condition, dy, output) = (g.scope(), g.input(0), g.dy(0)?, g.output(0)?);
    let dt = ops::select_v2(s, condition, &dy, 0)?;
    let de = ops::select_v2(s, condition, 0, &dy)?;
    let (dt, de) = (unbroadcast(s, dt, g.input(1), &output)?, unbroadcast(s, de, g.input(2), &output)?);
    Ok([None, Some(dt), Some(de)].into())
}

fn clip_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, low, high, dy) = (g.scope(), g.input(0), g.input(1), g.input(2), g.dy(0)?);
    let (below, above) = (ops::less(s, x, low)?, ops::greater(s, x, high)?);
    let zeros = ops::zeros_like(s, &dy)?;
    let dx = ops::select(s, ops::logical_or(s, &below, &above), &zeros, &dy)?;
    let dlow = ops::select(s, &below, &dy, &zeros)?;
    let dhigh = ops::select(s, &above, &dy, &zeros)?;
    Ok([dx, unbroadcast(s, dlow, low, x)?, unbroadcast(s, dhigh, high, x)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn conditions_fit_their_data() {
        infer("Select", "[];[2,3];[2,?]", "[2,3]");
        infer("Select", "[2];[2,3];[2,3]", "[2,3]");
        infer_err("Select", "[3];[2,3];[2,3]", Code::InvalidArgument);
        infer("SelectV2", "[2,1];[3];[]", "[2,3]");
        infer_err("SelectV2", "[2];[3];[3]", Code::InvalidArgument);
    }

    #[test]
    fn strings_are_chosen_too() {
        let text = |words: [&'static str; 2]| Tensor::vector(words.map(bytes::Bytes::from).to_vec());
        let flags = Tensor::vector(vec![true, false]);
        let out = Node::new("SelectV2").run([flags, text(["a", "b"]), text(["c", "d"])]).unwrap();
        assert_eq!(out[0].flat::<bytes::Bytes>().unwrap(), ["a", "d"]);
    }
}

//! Quantization as training sees it: numbers take the values that a few bits can have, and stay floats.

use crate::builders as ops;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{PartialShape, Result, Shape, Tensor, ensure, kernels};
use multiversion::multiversion;

pub(crate) const OPS: &[&Op] =
    &[&ARGS, &ARGS_GRADIENT, &VARS, &VARS_GRADIENT, &VARS_PER_CHANNEL, &VARS_PER_CHANNEL_GRADIENT];

static ARGS: Op = Op {
    name: "FakeQuantWithMinMaxArgs",
    inputs: &["inputs: float"],
    outputs: &["outputs: float"],
    attrs: &["min: float = -6.0", "max: float = 6.0", "num_bits: int = 8", "narrow_range: bool = false"],
    shape: shapes::unchanged,
    gradient: Gradient::Fn(args_gradient),
    kernels: kernels![any args_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static ARGS_GRADIENT: Op = Op {
    name: "FakeQuantWithMinMaxArgsGradient",
    inputs: &["gradients: float", "inputs: float"],
    outputs: &["backprops: float"],
    shape: shapes::same,
    gradient: Gradient::Stop,
    kernels: kernels![any args_gradient_kernel],
    ..ARGS
};

static VARS: Op = Op {
    name: "FakeQuantWithMinMaxVars",
    inputs: &["inputs: float", "min: float", "max: float"],
    attrs: &["num_bits: int = 8", "narrow_range: bool = false"],
    shape: vars_shape,
    gradient: Gradient::Fn(vars_gradient),
    kernels: kernels![any vars_kernel],
    ..ARGS
};

static VARS_GRADIENT: Op = Op {
    name: "FakeQuantWithMinMaxVarsGradient",
    inputs: &["gradients: float", "inputs: float", "min: float", "max: float"],
    outputs: &["backprops_wrt_input: float", "backprop_wrt_min: float", "backprop_wrt_max: float"],
    shape: vars_gradient_shape,
    gradient: Gradient::Stop,
    kernels: kernels![any vars_gradient_kernel],
    ..VARS
};

static VARS_PER_CHANNEL: Op = Op {
    name: "FakeQuantWithMinMaxVarsPerChannel",
    shape: channels_shape,
    gradient: Gradient::Fn(channels_gradient),
    kernels: kernels![any channels_kernel],
    ..VARS
};

static VARS_PER_CHANNEL_GRADIENT: Op = Op {
    name: "FakeQuantWithMinMaxVarsPerChannelGradient",
    shape: channels_gradient_shape,
    kernels: kernels![any channels_gradient_kernel],
    ..VARS_GRADIENT
};

fn vars_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 0)?;
    s.rank(2, 0)?;
    shapes::unchanged(s)
}

fn vars_gradient_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.merge(&s.input(0), &s.input(1))?;
    s.rank(2, 0)?;
    s.rank(3, 0)?;
    s.set(0, shape);
    s.set(1, PartialShape::scalar());
    s.set(2, PartialShape::scalar());
    Ok(())
}

/// The shape of numbers whose last dimension has a range each, and of the ranges.
fn per_channel(s: &ShapeCx<'_>, shape: PartialShape, first: usize) -> Result<[PartialShape; 2]> {
    let ranges = s.merge(&s.rank(first, 1)?, &s.rank(first + 1, 1)?)?;
    let (Some([.., last]), Some([count])) = (shape.dims(), ranges.dims()) else { return Ok([shape, ranges]) };
    let count = s.merge_dims(*last, *count)?;
    let mut dims = shape.dims().unwrap_or_default().to_vec();
    if let Some(last) = dims.last_mut() {
        *last = count;
    }
    Ok([PartialShape::new(dims)?, PartialShape::new([count])?])
}

fn channels_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let input = s.rank_at_least(0, 1)?;
    let [shape, _] = per_channel(s, input, 1)?;
    s.set(0, shape);
    Ok(())
}

fn channels_gradient_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let inputs = s.merge(&s.rank_at_least(0, 1)?, &s.rank_at_least(1, 1)?)?;
    let [shape, ranges] = per_channel(s, inputs, 2)?;
    s.set(0, shape);
    s.set(1, ranges.clone());
    s.set(2, ranges);
    Ok(())
}

/// The integers that numbers are mapped to.
#[derive(Clone, Copy)]
struct Steps {
    least: f32,
    most: f32,
}

impl Steps {
    fn new(init: &Init<'_>) -> Result<Steps> {
        let (bits, narrow): (i64, bool) = (init.attr("num_bits")?, init.attr("narrow_range")?);
        ensure!((2..=16).contains(&bits), InvalidArgument, "num_bits must be between 2 and 16, inclusive");
        Ok(Steps { least: if narrow { 1.0 } else { 0.0 }, most: ((1 << bits) - 1) as f32 })
    }

    /// The range moved a little, so that zero is one of the values.
    fn nudged(self, min: f32, max: f32) -> Range {
        let scale = (max - min) / (self.most - self.least);
        let inverse = (self.most - self.least) / (max - min);
        let zero = self.least - min / scale;
        let zero = if zero < self.least {
            self.least
        } else if zero > self.most {
            self.most
        } else {
            zero.round()
        };
        let (min, max) = ((self.least - zero) * scale, (self.most - zero) * scale);
        Range { min, max, scale, inverse, zero: (-min * inverse + 0.5).floor() }
    }

    /// The range that a pair of variables gives; none if both are zero.
    fn range(self, min: f32, max: f32) -> Option<Range> {
        (min != 0.0 || max != 0.0).then(|| self.nudged(min, max))
    }
}

#[derive(Clone, Copy)]
struct Range {
    min: f32,
    max: f32,
    scale: f32,
    inverse: f32,
    zero: f32,
}

impl Range {
    #[inline(always)]
    fn contains(&self, x: f32) -> bool {
        x >= self.min && x <= self.max
    }

    #[inline(always)]
    fn shifted(&self, x: f32) -> f32 {
        let x = if x < self.max { x } else { self.max };
        (if x > self.min { x } else { self.min }) - self.min
    }

    #[inline(always)]
    fn by_product(&self, x: f32) -> f32 {
        (self.shifted(x) * self.inverse - self.zero + 0.5).floor() * self.scale
    }

    /// Stock divides where both ends are variables for the whole tensor.
    #[inline(always)]
    fn by_quotient(&self, x: f32) -> f32 {
        (self.shifted(x) / self.scale - self.zero + 0.5).floor() * self.scale
    }
}

/// Instructions per number, about.
const COST: usize = 4;

#[multiversion(targets("x86_64+avx2+fma"))]
fn quantize(range: Range, divide: bool, x: &[f32], out: &mut [f32]) {
    if divide {
        for (out, x) in out.iter_mut().zip(x) {
            *out = range.by_quotient(*x);
        }
    } else {
        for (out, x) in out.iter_mut().zip(x) {
            *out = range.by_product(*x);
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn pass(range: Range, grads: &[f32], x: &[f32], out: &mut [f32]) {
    for ((out, grad), x) in out.iter_mut().zip(grads).zip(x) {
        *out = *grad * if range.contains(*x) { 1.0 } else { 0.0 };
    }
}

fn args_range(init: &Init<'_>) -> Result<Range> {
    let (min, max): (f32, f32) = (init.attr("min")?, init.attr("max")?);
    ensure!(min < max, InvalidArgument, "min has to be smaller than max, was: {min} >= {max}");
    Ok(Steps::new(init)?.nudged(min, max))
}

fn args_kernel(init: &Init<'_>) -> Result<Kernel> {
    let range = args_range(init)?;
    Kernel::sync(move |cx| {
        let mut output = cx.alloc::<f32>(cx.input(0)?.shape().clone())?;
        let x = cx.flat::<f32>(0)?;
        cx.threads().parallel_rows(output.flat_mut()?, 1, COST, |first, out| {
            quantize(range, false, &x[first..][..out.len()], out);
        });
        Ok(output.into())
    })
}

fn check_gradient(grads: &Tensor, x: &Tensor) -> Result<()> {
    ensure!(grads.shape() == x.shape(), InvalidArgument, "gradient and input must be the same size");
    Ok(())
}

fn args_gradient_kernel(init: &Init<'_>) -> Result<Kernel> {
    let range = args_range(init)?;
    Kernel::sync(move |cx| {
        check_gradient(cx.input(0)?, cx.input(1)?)?;
        let mut output = cx.alloc::<f32>(cx.input(0)?.shape().clone())?;
        let (grads, x) = (cx.flat::<f32>(0)?, cx.flat::<f32>(1)?);
        cx.threads().parallel_rows(output.flat_mut()?, 1, 2, |first, out| {
            pass(range, &grads[first..][..out.len()], &x[first..][..out.len()], out);
        });
        Ok(output.into())
    })
}

/// The ends of a range, each a scalar.
fn scalar_range(min: &Tensor, max: &Tensor) -> Result<(f32, f32)> {
    for (name, tensor) in [("min", min), ("max", max)] {
        ensure!(tensor.rank() == 0, InvalidArgument, "`{name}` must be rank 0 but is rank {}", tensor.rank());
    }
    Ok((min.flat::<f32>()?[0], max.flat::<f32>()?[0]))
}

fn vars_kernel(init: &Init<'_>) -> Result<Kernel> {
    let steps = Steps::new(init)?;
    Kernel::sync(move |cx| {
        let (min, max) = scalar_range(cx.input(1)?, cx.input(2)?)?;
        let mut output = cx.alloc::<f32>(cx.input(0)?.shape().clone())?;
        let x = cx.flat::<f32>(0)?;
        match steps.range(min, max) {
            None => output.flat_mut::<f32>()?.fill(0.0),
            Some(range) => cx.threads().parallel_rows(output.flat_mut()?, 1, COST, |first, out| {
                quantize(range, true, &x[first..][..out.len()], out);
            }),
        }
        Ok(output.into())
    })
}

fn vars_gradient_kernel(init: &Init<'_>) -> Result<Kernel> {
    let steps = Steps::new(init)?;
    Kernel::sync(move |cx| {
        check_gradient(cx.input(0)?, cx.input(1)?)?;
        let (min, max) = scalar_range(cx.input(2)?, cx.input(3)?)?;
        let mut output = cx.alloc::<f32>(cx.input(0)?.shape().clone())?;
        let (grads, x) = (cx.flat::<f32>(0)?, cx.flat::<f32>(1)?);
        let (mut below, mut above) = (0.0f32, 0.0f32);
        match steps.range(min, max) {
            None => output.flat_mut::<f32>()?.copy_from_slice(grads),
            Some(range) => {
                cx.threads().parallel_rows(output.flat_mut()?, 1, 2, |first, out| {
                    pass(range, &grads[first..][..out.len()], &x[first..][..out.len()], out);
                });
                (below, above) = outside(range, grads, x);
            }
        }
        Ok([output, Tensor::scalar(below), Tensor::scalar(above)].into())
    })
}

/// The sums of gradients of numbers below and above a range, pairwise so that little is lost to rounding.
fn outside(range: Range, grads: &[f32], x: &[f32]) -> (f32, f32) {
    const PIECE: usize = 1 << 10;
    if x.len() > PIECE {
        let middle = (x.len() / 2).next_multiple_of(PIECE);
        let (left, right) =
            (outside(range, &grads[..middle], &x[..middle]), outside(range, &grads[middle..], &x[middle..]));
        return (left.0 + right.0, left.1 + right.1);
    }
    let (mut below, mut above) = (0.0, 0.0);
    for (grad, x) in grads.iter().zip(x) {
        below += if *x < range.min { *grad } else { 0.0 };
        above += if *x > range.max { *grad } else { 0.0 };
    }
    (below, above)
}

/// The ranges of channels, one per element of the last dimension.
fn channel_ranges(steps: Steps, shape: &Shape, min: &Tensor, max: &Tensor) -> Result<Vec<Option<Range>>> {
    ensure!(!shape.dims().is_empty(), InvalidArgument, "input must be at least rank 1");
    let depth = shape.dims()[shape.dims().len() - 1];
    for (name, tensor) in [("min", min), ("max", max)] {
        ensure!(tensor.rank() == 1, InvalidArgument, "`{name}` must be rank 1 but is rank {}", tensor.rank());
        ensure!(
            tensor.elements() as i64 == depth,
            InvalidArgument,
            "{name} has incorrect size, expected {depth} was {}",
            tensor.elements()
        );
    }
    let pairs = min.flat::<f32>()?.iter().zip(max.flat::<f32>()?);
    Ok(pairs.map(|(min, max)| steps.range(*min, *max)).collect())
}

fn channels_kernel(init: &Init<'_>) -> Result<Kernel> {
    let steps = Steps::new(init)?;
    Kernel::sync(move |cx| {
        let ranges = channel_ranges(steps, cx.input(0)?.shape(), cx.input(1)?, cx.input(2)?)?;
        let mut output = cx.alloc::<f32>(cx.input(0)?.shape().clone())?;
        let (x, depth) = (cx.flat::<f32>(0)?, ranges.len());
        cx.threads().parallel_rows(output.flat_mut()?, depth, COST, |first, out| {
            quantize_channels(&ranges, &x[first * depth..][..out.len()], out);
        });
        Ok(output.into())
    })
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn quantize_channels(ranges: &[Option<Range>], x: &[f32], out: &mut [f32]) {
    for (out, x) in out.chunks_exact_mut(ranges.len()).zip(x.chunks_exact(ranges.len())) {
        for ((out, x), range) in out.iter_mut().zip(x).zip(ranges) {
            *out = range.map_or(0.0, |range| range.by_product(*x));
        }
    }
}

fn channels_gradient_kernel(init: &Init<'_>) -> Result<Kernel> {
    let steps = Steps::new(init)?;
    Kernel::sync(move |cx| {
        check_gradient(cx.input(0)?, cx.input(1)?)?;
        let ranges = channel_ranges(steps, cx.input(1)?.shape(), cx.input(2)?, cx.input(3)?)?;
        let mut output = cx.alloc::<f32>(cx.input(0)?.shape().clone())?;
        let (grads, x, depth) = (cx.flat::<f32>(0)?, cx.flat::<f32>(1)?, ranges.len());
        cx.threads().parallel_rows(output.flat_mut()?, depth, 2, |first, out| {
            for (at, out) in out.iter_mut().enumerate() {
                let place = first * depth + at;
                let passes = ranges[at % depth].is_none_or(|range| range.contains(x[place]));
                *out = grads[place] * if passes { 1.0 } else { 0.0 };
            }
        });
        let (mut below, mut above) = (vec![0.0f32; depth], vec![0.0f32; depth]);
        for (at, (grad, x)) in grads.iter().zip(x).enumerate() {
            let channel = at % depth;
            if let Some(range) = ranges[channel] {
                below[channel] += if *x < range.min { *grad } else { 0.0 };
                above[channel] += if *x > range.max { *grad } else { 0.0 };
            }
        }
        Ok([output, Tensor::vector(below), Tensor::vector(above)].into())
    })
}

fn args_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::FakeQuantWithMinMaxArgsGradient::new()
        .min(g.attr::<f32>("min")?)
        .max(g.attr::<f32>("max")?)
        .num_bits(g.attr("num_bits")?)
        .narrow_range(g.attr("narrow_range")?);
    Ok([node.build(g.scope(), g.dy(0)?, g.input(0))?].into())
}

fn vars_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::FakeQuantWithMinMaxVarsGradient::new()
        .num_bits(g.attr("num_bits")?)
        .narrow_range(g.attr("narrow_range")?);
    let grads = node.build(g.scope(), g.dy(0)?, g.input(0), g.input(1), g.input(2))?;
    Ok([grads.backprops_wrt_input, grads.backprop_wrt_min, grads.backprop_wrt_max].into())
}

fn channels_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::FakeQuantWithMinMaxVarsPerChannelGradient::new()
        .num_bits(g.attr("num_bits")?)
        .narrow_range(g.attr("narrow_range")?);
    let grads = node.build(g.scope(), g.dy(0)?, g.input(0), g.input(1), g.input(2))?;
    Ok([grads.backprops_wrt_input, grads.backprop_wrt_min, grads.backprop_wrt_max].into())
}

//! Batch normalization, for training and inference, and its gradients.

use crate::builders as ops;
use crate::linalg::batch_norm::Channels;
use crate::numeric::Num;
use crate::support::windows::Format;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Value};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, KernelRow, Only, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Gradients, Output};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &FUSED_BATCH_NORM,
    &FUSED_BATCH_NORM_V2,
    &FUSED_BATCH_NORM_V3,
    &FUSED_BATCH_NORM_EX,
    &FUSED_BATCH_NORM_GRAD,
    &FUSED_BATCH_NORM_GRAD_V2,
    &FUSED_BATCH_NORM_GRAD_V3,
];

const EPSILON: &str = "epsilon: float = 0.0001";
const FACTOR: &str = "exponential_avg_factor: float = 1.0";
const IMAGES: &str = "data_format: {'NHWC', 'NCHW'} = 'NHWC'";
const IMAGES_OR_VOLUMES: &str = "data_format: {'NHWC', 'NCHW', 'NDHWC', 'NCDHW'} = 'NHWC'";
const TRAINING: &str = "is_training: bool = true";

static FUSED_BATCH_NORM: Op = Op {
    name: "FusedBatchNorm",
    gradient: Gradient::Fn(normalize_gradient),
    inputs: &["x: T", "scale: T", "offset: T", "mean: T", "variance: T"],
    outputs: &["y: T", "batch_mean: T", "batch_variance: T", "reserve_space_1: T", "reserve_space_2: T"],
    attrs: &["T: {float}", EPSILON, FACTOR, IMAGES, TRAINING],
    shape: normalized_shape,
    kernels: kernels![normalize_kernel: f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static FUSED_BATCH_NORM_V2: Op = Op {
    name: "FusedBatchNormV2",
    gradient: Gradient::Fn(normalize_v2_gradient),
    inputs: &["x: T", "scale: U", "offset: U", "mean: U", "variance: U"],
    outputs: &["y: T", "batch_mean: U", "batch_variance: U", "reserve_space_1: U", "reserve_space_2: U"],
    attrs: &["T: {half, bfloat16, float}", "U: {float}", EPSILON, FACTOR, IMAGES, TRAINING],
    shape: normalized_shape,
    kernels: kernels![normalize_kernel: f16, bf16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static FUSED_BATCH_NORM_V3: Op = Op {
    name: "FusedBatchNormV3",
    gradient: Gradient::Fn(normalize_v3_gradient),
    inputs: &["x: T", "scale: U", "offset: U", "mean: U", "variance: U"],
    outputs: &[
        "y: T",
        "batch_mean: U",
        "batch_variance: U",
        "reserve_space_1: U",
        "reserve_space_2: U",
        "reserve_space_3: U",
    ],
    attrs: &[
        "T: {half, bfloat16, float}",
        "U: {bfloat16, float}",
        EPSILON,
        FACTOR,
        IMAGES_OR_VOLUMES,
        TRAINING,
    ],
    shape: normalized_shape,
    kernels: &KernelRow::each_only(
        *kernels![normalize_kernel: f16, bf16, f32],
        "U",
        Only::Type(DType::Float),
    ),
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

// Made by stock's optimizer in processes with oneDNN, whose masters send it to other tasks.
static FUSED_BATCH_NORM_EX: Op = Op {
    name: "_FusedBatchNormEx",
    gradient: Gradient::Undefined,
    inputs: &["x: T", "scale: U", "offset: U", "mean: U", "variance: U", "side_input: num_side_inputs * T"],
    attrs: &[
        "T: {half, float, bfloat16}",
        "U: {float}",
        EPSILON,
        FACTOR,
        "num_side_inputs: int >= 0 = 0",
        "activation_mode: string = 'Identity'",
        IMAGES,
        TRAINING,
    ],
    kernels: &KernelRow::each_only(
        *kernels![normalize_and_activate_kernel: bf16, f32],
        "U",
        Only::Type(DType::Float),
    ),
    ..FUSED_BATCH_NORM_V3
};

static FUSED_BATCH_NORM_GRAD: Op = Op {
    name: "FusedBatchNormGrad",
    gradient: Gradient::Fn(second_gradient),
    inputs: &["y_backprop: T", "x: T", "scale: T", "reserve_space_1: T", "reserve_space_2: T"],
    outputs: &[
        "x_backprop: T",
        "scale_backprop: T",
        "offset_backprop: T",
        "reserve_space_3: T",
        "reserve_space_4: T",
    ],
    attrs: &["T: {float}", EPSILON, IMAGES, TRAINING],
    shape: gradient_shape,
    kernels: kernels![gradient_kernel: f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static FUSED_BATCH_NORM_GRAD_V2: Op = Op {
    name: "FusedBatchNormGradV2",
    gradient: Gradient::Fn(second_gradient),
    inputs: &["y_backprop: T", "x: T", "scale: float", "reserve_space_1: U", "reserve_space_2: U"],
    outputs: &[
        "x_backprop: T",
        "scale_backprop: U",
        "offset_backprop: U",
        "reserve_space_3: U",
        "reserve_space_4: U",
    ],
    attrs: &["T: {half, bfloat16, float}", "U: {float}", EPSILON, IMAGES, TRAINING],
    shape: gradient_shape,
    kernels: kernels![gradient_kernel: f16, bf16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static FUSED_BATCH_NORM_GRAD_V3: Op = Op {
    name: "FusedBatchNormGradV3",
    gradient: Gradient::Fn(second_gradient),
    inputs: &[
        "y_backprop: T",
        "x: T",
        "scale: float",
        "reserve_space_1: U",
        "reserve_space_2: U",
        "reserve_space_3: U",
    ],
    outputs: &[
        "x_backprop: T",
        "scale_backprop: U",
        "offset_backprop: U",
        "reserve_space_4: U",
        "reserve_space_5: U",
    ],
    attrs: &["T: {half, bfloat16, float}", "U: {float}", EPSILON, IMAGES_OR_VOLUMES, TRAINING],
    shape: gradient_shape,
    kernels: kernels![gradient_kernel: f16, bf16, f32],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// The shape of a tensor whose channels are as many as vectors at these inputs have elements, and that number.
fn with_channels(s: &ShapeCx<'_>, input: usize, vectors: &[usize]) -> Result<(PartialShape, i64)> {
    let Some(format) = Format::parse(&s.attr::<String>("data_format")?) else {
        return Ok((PartialShape::unknown(), UNKNOWN_DIM));
    };
    let shape = s.rank(input, format.rank)?;
    let mut dims = shape.dims().unwrap_or_default().to_vec();
    let mut channels = dims[format.channel];
    for vector in vectors {
        let vector = s.rank(*vector, 1)?;
        channels = s.merge_dims(channels, vector.dims().unwrap_or_default()[0])?;
    }
    dims[format.channel] = channels;
    Ok((PartialShape::new(dims)?, channels))
}

fn normalized_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let training: bool = s.attr("is_training")?;
    // While training, the running statistics may be empty.
    let (shape, channels) = with_channels(s, 0, if training { &[1, 2] } else { &[1, 2, 3, 4] })?;
    s.set(0, shape);
    for output in 1..5 {
        s.output(output, [channels])?;
    }
    Ok(())
}

fn gradient_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (shape, channels) = with_channels(s, 0, &[2, 3, 4])?;
    // Shapes that differ are left to the kernel, as in stock.
    let shape = s.merge(&shape, &s.input(1)).unwrap_or(shape);
    s.set(0, shape);
    s.output(1, [channels])?;
    s.output(2, [channels])?;
    s.output(3, [0])?;
    s.output(4, [0])
}

/// The attributes.
struct Settings {
    epsilon: f32,
    training: bool,
    /// Whether channels come right after the batch.
    channels_first: bool,
}

impl Settings {
    fn read(init: &Init<'_>) -> Result<Settings> {
        Ok(Settings {
            epsilon: init.attr("epsilon")?,
            training: init.attr("is_training")?,
            channels_first: init.attr::<String>("data_format")?.starts_with("NC"),
        })
    }

    fn channels(&self, shape: &Shape) -> Result<Channels> {
        ensure!(matches!(shape.rank(), 4 | 5), InvalidArgument, "input must be 4 or 5-dimensional{shape}");
        let product = |dims: &[i64]| dims.iter().product::<i64>() as usize;
        let at = if self.channels_first { 1 } else { shape.rank() - 1 };
        let (before, after) = (&shape[..at], &shape[at + 1..]);
        Ok(Channels { outer: product(before), channels: shape.dim(at), inner: product(after) })
    }
}

/// A vector input with an element per channel.
fn vector<'a>(cx: &'a KernelCx<'_>, input: usize, what: &str, channels: usize) -> Result<&'a [f32]> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 1, InvalidArgument, "{what} must be 1-dimensional{}", tensor.shape());
    ensure!(
        tensor.elements() == channels,
        InvalidArgument,
        "{what} must have the same number of elements as the channels of x, got {} and {channels}",
        tensor.elements()
    );
    tensor.flat()
}

/// The factor of each channel.
fn factors(scale: &[f32], variance: &[f32], epsilon: f32) -> Vec<f32> {
    scale.iter().zip(variance).map(|(scale, variance)| scale / (variance + epsilon).sqrt()).collect()
}

/// The normalized value, by mean, factor and offset of the channel.
fn normalized(x: f32, _: f32, [mean, factor, offset]: [f32; 3]) -> f32 {
    (x - mean) * factor + offset
}

fn normalize_kernel<T: Num<Wide = f32>>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::read(init)?;
    let factor: f32 = init.attr("exponential_avg_factor")?;
    let outputs = init.output_types.len();
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let layout = settings.channels(input.shape())?;
        let channels = layout.channels;
        let (scale, offset) = (vector(cx, 1, "scale", channels)?, vector(cx, 2, "offset", channels)?);
        let running = [("mean", cx.input(3)?), ("variance", cx.input(4)?)];
        for (what, tensor) in running {
            ensure!(
                tensor.rank() == 1,
                InvalidArgument,
                "estimated_{what} must be 1-dimensional{}",
                tensor.shape()
            );
            let needed = if !settings.training {
                "is_training=false"
            } else if factor != 1.0 {
                "exponential_avg_factor != 1"
            } else {
                continue;
            };
            ensure!(
                tensor.elements() == channels,
                InvalidArgument,
                "When {needed}, {what} must have the same number of elements as the channels of x, got {} and \
                 {channels}",
                tensor.elements()
            );
        }
        let mut out = cx.alloc::<T>(input.shape().clone())?;
        let x = input.flat::<T>()?;
        let threads = cx.threads();
        let mut results = Vec::with_capacity(outputs);
        let statistics =
            |mean: Vec<f32>, variance: Vec<f32>| [Tensor::vector(mean), Tensor::vector(variance)];
        if x.is_empty() {
            results.push(out);
            results.extend(statistics(vec![f32::NAN; channels], vec![f32::NAN; channels]));
            results.extend(statistics(vec![0.0; channels], vec![0.0; channels]));
        } else if settings.training {
            let rest = layout.rest() as f32;
            let [mut mean] = layout.sums(threads, x, x, [], |x, _, []| [x]);
            for mean in mean.iter_mut() {
                *mean /= rest;
            }
            let [mut variance] =
                layout.sums(threads, x, x, [&mean], |x, _, [mean]| [(x - mean) * (x - mean)]);
            for variance in variance.iter_mut() {
                *variance /= rest;
            }
            let factors = factors(scale, &variance, settings.epsilon);
            layout.map(threads, x, x, [&mean, &factors, offset], out.flat_mut()?, normalized);
            // What leaves for the running statistics is the estimate without bias.
            let unbiased = rest / (rest - 1.0).max(1.0);
            let (mut batch_mean, mut batch_variance) = (mean.clone(), variance.clone());
            if factor == 1.0 {
                for variance in batch_variance.iter_mut() {
                    *variance *= unbiased;
                }
            } else {
                blend(&mut batch_mean, factor, running[0].1.flat()?, 1.0 - factor);
                blend(&mut batch_variance, factor * unbiased, running[1].1.flat()?, 1.0 - factor);
            }
            results.push(out);
            results.extend(statistics(batch_mean, batch_variance));
            results.extend(statistics(mean, variance));
        } else {
            let (mean, variance) = (running[0].1.flat::<f32>()?, running[1].1.flat::<f32>()?);
            let factors = factors(scale, variance, settings.epsilon);
            layout.map(threads, x, x, [mean, &factors, offset], out.flat_mut()?, normalized);
            results.push(out);
            // Stock leaves what it keeps for the gradient as it finds it.
            for _ in 0..2 {
                results.extend(running.map(|(_, tensor)| tensor.clone()));
            }
        }
        if outputs == 6 {
            results.push(Tensor::scalar(0.0f32));
        }
        Ok(Outputs::from(results))
    })
}

/// A normalization, to which another tensor may be added, and of which only the positive part may stay.
fn normalize_and_activate_kernel<T: Num<Wide = f32>>(init: &Init<'_>) -> Result<Kernel> {
    let (sides, activation): (i64, String) = (init.attr("num_side_inputs")?, init.attr("activation_mode")?);
    ensure!(sides <= 1, InvalidArgument, "FusedBatchNorm accepts at most one side input, got {sides}");
    let positive = match activation.as_str() {
        "Identity" => false,
        "Relu" => true,
        other => bail!(Unimplemented, "_FusedBatchNormEx with activation_mode {other} is not supported"),
    };
    let Kernel::Sync(normalize) = normalize_kernel::<T>(init)? else {
        bail!(Internal, "a normalization does not wait");
    };
    Kernel::sync(move |cx| {
        let side = if sides == 1 { Some(cx.input(5)?.clone()) } else { None };
        let shape = cx.input(0)?.shape().clone();
        ensure!(
            side.as_ref().is_none_or(|side| *side.shape() == shape),
            InvalidArgument,
            "side_input shape must be equal to input shape: {} != {shape}",
            side.as_ref().map_or(&shape, Tensor::shape)
        );
        let Outputs::Many(mut outputs) = normalize(cx)? else {
            bail!(Internal, "a normalization has several outputs");
        };
        if let Some(Value::Tensor(out)) = outputs.first_mut() {
            let values = out.flat_mut::<T>()?;
            if let Some(side) = &side {
                let added = values.iter_mut().zip(side.flat::<T>()?);
                for (value, side) in added {
                    *value = value.add(*side);
                }
            }
            if positive {
                for value in values.iter_mut().filter(|value| value.widen() < 0.0) {
                    *value = T::ZERO;
                }
            }
        }
        Ok(Outputs::Many(outputs))
    })
}

/// Moves new values towards the old ones, by the weights of both.
fn blend(new: &mut [f32], of_new: f32, old: &[f32], of_old: f32) {
    for (new, old) in new.iter_mut().zip(old) {
        *new = of_old * old + of_new * *new;
    }
}

fn gradient_kernel<T: Num<Wide = f32>>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings::read(init)?;
    Kernel::sync(move |cx| {
        let (gradient, input) = (cx.input(0)?, cx.input(1)?);
        let layout = settings.channels(input.shape())?;
        ensure!(
            gradient.shape() == input.shape(),
            InvalidArgument,
            "x and y_backprop must have same shape, but x has shape {} and y_backprop has shape {}",
            input.shape(),
            gradient.shape()
        );
        let channels = layout.channels;
        let scale = vector(cx, 2, "scale", channels)?;
        let mean = vector(cx, 3, "reserve_space_1", channels)?;
        let variance = vector(cx, 4, "reserve_space_2", channels)?;
        ensure!(
            settings.training || !settings.channels_first,
            InvalidArgument,
            "The implementation of FusedBatchNormGrad with is_training=False only support NHWC tensor format for now."
        );
        let mut out = cx.alloc::<T>(input.shape().clone())?;
        let (dy, x) = (gradient.flat::<T>()?, input.flat::<T>()?);
        let threads = cx.threads();
        let deviations = variance.iter().map(|variance| 1.0 / (variance + settings.epsilon).sqrt());
        let deviations: Vec<f32> = deviations.collect();
        let factors: Vec<f32> =
            scale.iter().zip(&deviations).map(|(scale, inverse)| scale * inverse).collect();
        // In stock's order, which matters where a step leaves the range of numbers.
        let (scale_gradient, offset_gradient) = if settings.training {
            let terms = |dy: f32, x: f32, [mean, inverse]: [f32; 2]| {
                [dy, dy * (x - mean), dy * ((x - mean) * inverse)]
            };
            let [sums, products, scaled] = layout.sums(threads, dy, x, [mean, &deviations], terms);
            let rest = layout.rest().max(1) as f32;
            let means: Vec<f32> = sums.iter().map(|sum| sum / rest).collect();
            let slopes = products.iter().zip(&deviations);
            let slopes: Vec<f32> = slopes.map(|(sum, inverse)| inverse * inverse * (sum / rest)).collect();
            let constants = [&factors, &means, mean, &slopes];
            let slope = |dy: f32, x: f32, [factor, mean_dy, mean, slope]: [f32; 4]| {
                factor * (dy - mean_dy - (x - mean) * slope)
            };
            layout.map(threads, dy, x, constants, out.flat_mut()?, slope);
            (scaled, sums)
        } else {
            let terms = |dy: f32, x: f32, [mean]: [f32; 1]| [dy, dy * (x - mean)];
            let [sums, mut products] = layout.sums(threads, dy, x, [mean], terms);
            for (product, inverse) in products.iter_mut().zip(&deviations) {
                *product *= inverse;
            }
            layout.map(threads, dy, x, [&factors], out.flat_mut()?, |dy, _, [factor]| dy * factor);
            (products, sums)
        };
        let nothing = Tensor::vector(Vec::<f32>::new());
        Ok(Outputs::from(vec![
            out,
            Tensor::vector(scale_gradient),
            Tensor::vector(offset_gradient),
            nothing.clone(),
            nothing,
        ]))
    })
}

fn normalize_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, &FUSED_BATCH_NORM_GRAD)
}

fn normalize_v2_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, &FUSED_BATCH_NORM_GRAD_V2)
}

fn normalize_v3_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    gradient(g, &FUSED_BATCH_NORM_GRAD_V3)
}

/// While training, by the statistics of the batch that the op kept; else by the running ones, with channels last.
fn gradient(g: &GradCx<'_>, op: &Op) -> Result<InputGrads> {
    let (s, mut x, mut dy) = (g.scope(), g.input(0).clone(), g.dy(0)?);
    let training: bool = g.attr("is_training")?;
    let mut format: String = g.attr("data_format")?;
    let moved = !training && format.starts_with("NC");
    // Axes that put the channels last, and those that put them back.
    let (last, back) = if format.len() == 4 {
        (vec![0, 2, 3, 1], vec![0, 3, 1, 2])
    } else {
        (vec![0, 2, 3, 4, 1], vec![0, 4, 1, 2, 3])
    };
    if moved {
        (x, dy) = (ops::transpose(s, x, last.clone())?, ops::transpose(s, dy, last)?);
        format = if format.len() == 4 { "NHWC".to_owned() } else { "NDHWC".to_owned() };
    }
    let [mean, variance] =
        if training { [g.output(3)?, g.output(4)?] } else { [g.input(3).clone(), g.input(4).clone()] };
    let mut node = s.op(op.name).attr("epsilon", g.attr::<f32>("epsilon")?).attr("is_training", training);
    node = node.attr("data_format", format);
    node = node.input(dy).input(x).input(g.input(1)).input(mean).input(variance);
    if g.num_outputs() == 6 {
        node = node.input(g.output(5)?);
    }
    let node = node.build()?;
    let dx = node.output(0)?;
    let dx = if moved { ops::transpose(s, dx, back)? } else { dx };
    Ok([Some(dx), Some(node.output(1)?), Some(node.output(2)?), None, None].into())
}

/// The gradient of the gradient: its formula in plain ops, differentiated. The statistics that were kept count as given,
/// because the formula has its own.
fn second_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    // Nodes of their own, so that nothing before them is differentiated.
    let dy = ops::identity(s, g.input(0))?;
    let x = ops::identity(s, g.input(1))?;
    let scale = ops::identity(s, g.input(2))?;
    let formula = first_gradient(g, &dy, &x, &scale)?;
    let (mut ys, mut grads) = (Vec::new(), Vec::new());
    for (index, y) in formula.iter().enumerate() {
        if let Some(grad) = g.grad(index) {
            ys.push(y);
            grads.push(Some(grad.clone()));
        }
    }
    let mut all = Gradients::new().name("second").grad_ys(grads).build(s, ys, [&dy, &x, &scale])?;
    all.resize(g.num_inputs(), None);
    Ok(InputGrads(all))
}

/// The gradients that the op computes for x, scale and offset.
fn first_gradient(g: &GradCx<'_>, dy: &Output, x: &Output, scale: &Output) -> Result<[Output; 3]> {
    let s = g.scope();
    let (epsilon, format): (f32, String) = (g.attr("epsilon")?, g.attr("data_format")?);
    let channels_last = format.ends_with('C');
    let rank = format.len() as i32;
    let axes: Vec<i32> = (0..rank).filter(|axis| *axis != if channels_last { rank - 1 } else { 1 }).collect();
    // One element per channel, in a shape that goes with the whole.
    let per_channel = |vector: &Output| {
        if channels_last {
            Ok(vector.clone())
        } else {
            ops::reshape(
                s,
                vector,
                (0..rank).map(|axis| if axis == 1 { -1 } else { 1 }).collect::<Vec<i32>>(),
            )
        }
    };
    let dtype = x.dtype();
    let (dy, x) = (ops::cast(s, dy, DType::Float)?, ops::cast(s, x, DType::Float)?);
    let mean = |value: &Output| ops::mean(s, value, axes.clone());
    let sum = |value: &Output| ops::sum(s, value, axes.clone());
    let offset = sum(&dy)?;
    let (center, variance) = if g.attr("is_training")? {
        let center = mean(&x)?;
        let variance = mean(&ops::squared_difference(s, &x, per_channel(&center))?)?;
        (center, variance)
    } else {
        (g.input(3).clone(), g.input(4).clone())
    };
    let variance = ops::add_v2(s, variance, epsilon)?;
    let inverse = ops::rsqrt(s, &variance)?;
    let centered = ops::sub(s, &x, per_channel(&center))?;
    let products = ops::mul(s, &dy, &centered)?;
    let scale_gradient = ops::mul(s, sum(&products)?, &inverse)?;
    let factor = per_channel(&ops::mul(s, scale, &inverse)?)?;
    let inner = if g.attr("is_training")? {
        let slope = ops::div(s, mean(&products)?, &variance)?;
        let tilted = ops::mul(s, per_channel(&slope), &centered)?;
        ops::sub(s, ops::sub(s, &dy, per_channel(&mean(&dy)?)), &tilted)?
    } else {
        dy
    };
    Ok([ops::cast(s, ops::mul(s, &factor, &inner), dtype)?, scale_gradient, offset])
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn statistics_have_an_element_per_channel() {
        Node::new("FusedBatchNormV3").infer("[?,3,2,?];[5];[?];[0];[0]", "[?,3,2,5];[5];[5];[5];[5];?");
        let first = Node::new("FusedBatchNormV3").attr("data_format", "NCHW").attr("is_training", false);
        first.infer("[?,?,3,2];[?];[?];[5];[?]", "[?,5,3,2];[5];[5];[5];[5];?");
    }

    /// Stock makes this op only with oneDNN, which no golden is made with; its parts have goldens.
    #[test]
    fn a_normalization_with_an_activation_is_its_parts() {
        let tensor = |start: f32| {
            let numbers = (0..24).map(|i| (i % 7) as f32 / 2.0 - start).collect();
            Tensor::new(Shape::new([2, 2, 3, 2]).unwrap(), numbers).unwrap()
        };
        let vector = |a: f32, b: f32| Tensor::vector(vec![a, b]);
        let inputs = [tensor(1.0), vector(1.5, 0.5), vector(0.1, -0.2), vector(0.0, 0.0), vector(1.0, 1.0)];
        let plain = Node::new("FusedBatchNormV3").run(inputs.clone()).unwrap();
        let added = Node::new("AddV2").run([plain[0].clone(), tensor(2.0)]).unwrap();
        let parts = Node::new("Relu").run([added[0].clone()]).unwrap();
        let fused =
            Node::new("_FusedBatchNormEx").attr("num_side_inputs", 1i64).attr("activation_mode", "Relu");
        let fused = fused.run(inputs.into_iter().chain([tensor(2.0)])).unwrap();
        assert_eq!(fused[0].flat::<f32>().unwrap(), parts[0].flat::<f32>().unwrap());
        assert_eq!(fused[1].flat::<f32>().unwrap(), plain[1].flat::<f32>().unwrap());
        assert_eq!(fused.len(), 6);
    }
}

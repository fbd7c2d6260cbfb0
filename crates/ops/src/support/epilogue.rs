//! The last part of a fused op, applied to its product: add a bias or another tensor, apply an activation.
//!
//! Stock's optimizer makes such ops out of nodes that follow each other, so an epilogue is a list of those nodes' ops.

use crate::linalg::elementary::Elementary;
use crate::numeric::{Float, Num, Real};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::Init;
use ferroflow_core::{Result, Tensor, bail, ensure};
use std::borrow::Cow;

/// One of the ops that follow the product.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Stage {
    /// Adds a vector to every row.
    Bias,
    /// Adds a tensor of the product's own shape.
    Add,
    /// Scales and shifts every channel by statistics that are known: scale, offset, mean, variance.
    BatchNorm(f32),
    Relu,
    Relu6,
    Elu,
    LeakyRelu(f32),
    Tanh,
    Sigmoid,
    GeluApproximate,
    GeluExact,
}

impl Stage {
    /// The number of further inputs that the stage takes.
    fn arguments(&self) -> usize {
        match self {
            Stage::Bias | Stage::Add => 1,
            Stage::BatchNorm(_) => 4,
            _ => 0,
        }
    }
}

/// Everything that happens to a product.
pub(crate) struct Epilogue {
    stages: Vec<Stage>,
    /// The number of further inputs that the stages take.
    pub(crate) arguments: usize,
}

impl Epilogue {
    /// The epilogue that a fused op's attributes ask for; `product` names the op in error texts.
    pub(crate) fn new(init: &Init<'_>, product: &str) -> Result<Epilogue> {
        let fused: Vec<String> = init.attr("fused_ops")?;
        ensure!(!fused.is_empty(), InvalidArgument, "Fused {product} must have at least one fused op.");
        let mut stages = Vec::with_capacity(fused.len());
        for op in &fused {
            stages.push(match op.as_str() {
                "BiasAdd" => Stage::Bias,
                "Add" | "AddV2" => Stage::Add,
                "FusedBatchNorm" => Stage::BatchNorm(init.attr("epsilon")?),
                "Relu" => Stage::Relu,
                "Relu6" => Stage::Relu6,
                "Elu" => Stage::Elu,
                "LeakyRelu" => Stage::LeakyRelu(init.attr("leakyrelu_alpha")?),
                "Tanh" => Stage::Tanh,
                "Sigmoid" => Stage::Sigmoid,
                "GeluApproximate" => Stage::GeluApproximate,
                "GeluExact" => Stage::GeluExact,
                _ => bail!(Unimplemented, "Fusion is not implemented: [{}]", fused.join(",")),
            });
        }
        let arguments = stages.iter().map(Stage::arguments).sum();
        let given: i64 = init.attr("num_args")?;
        ensure!(
            !matches!(stages[0], Stage::BatchNorm(_)) || given == arguments as i64,
            InvalidArgument,
            "Fused {product} with FusedBatchNorm must have four extra arguments: scale, offset, mean, variance."
        );
        ensure!(
            given == arguments as i64,
            InvalidArgument,
            "Fused {product} with BiasAdd must have one extra argument: bias or 4 extra arguments: bias, side_input, \
             conv_input_scale and side_input_scale"
        );
        Ok(Epilogue { stages, arguments })
    }

    /// Changes a product in place; `arguments` are the further inputs in order, `width` is the length of a row.
    pub(crate) fn apply<T: Float>(
        &self,
        threads: Threads<'_>,
        product: &mut [T],
        width: usize,
        arguments: &[&Tensor],
    ) -> Result<()>
    where
        T::Math: Elementary,
    {
        let mut next = arguments.iter();
        let mut stages = Vec::with_capacity(self.stages.len());
        for stage in &self.stages {
            let mut operands = Vec::with_capacity(stage.arguments());
            for tensor in next.by_ref().take(stage.arguments()) {
                let expected = if *stage == Stage::Add { product.len() } else { width };
                ensure!(
                    tensor.elements() == expected,
                    InvalidArgument,
                    "a fused {stage:?} needs {expected} elements, got {}",
                    tensor.elements()
                );
                operands.push(tensor.flat::<T>()?);
            }
            stages.push((*stage, operands));
        }
        let stages: Vec<(Stage, Cow<'_, [T]>, Vec<T>)> = stages.into_iter().map(Self::prepared).collect();
        threads.parallel_rows(product, width, 4 * width, |first, rows| {
            for (row, values) in rows.chunks_mut(width.max(1)).enumerate() {
                for (stage, operand, factor) in &stages {
                    match stage {
                        Stage::Bias => add(values, operand),
                        Stage::BatchNorm(_) => scale_and_add(values, factor, operand),
                        Stage::Add => add(values, &operand[(first + row) * width..][..values.len()]),
                        other => activate(*other, values),
                    }
                }
            }
        });
        Ok(())
    }

    /// A stage with what it adds and what it multiplies by: statistics become one factor and one sum per channel.
    fn prepared<'a, T: Float>((stage, operands): (Stage, Vec<&'a [T]>)) -> (Stage, Cow<'a, [T]>, Vec<T>) {
        let (Stage::BatchNorm(epsilon), [scale, offset, mean, variance]) = (stage, operands.as_slice())
        else {
            return (stage, Cow::Borrowed(operands.first().copied().unwrap_or_default()), Vec::new());
        };
        let epsilon = T::Math::from_f64(f64::from(epsilon));
        let factor = |(scale, variance): (&T, &T)| {
            let deviation = num_traits::Float::sqrt(Num::add(variance.to_math(), epsilon));
            T::from_math(Num::div(scale.to_math(), deviation))
        };
        let factors: Vec<T> = scale.iter().zip(*variance).map(factor).collect();
        let shift = |((offset, mean), factor): ((&T, &T), &T)| offset.sub(mean.mul(*factor));
        let shifts: Vec<T> = offset.iter().zip(*mean).zip(&factors).map(shift).collect();
        (stage, Cow::Owned(shifts), factors)
    }
}

fn scale_and_add<T: Float>(values: &mut [T], factor: &[T], operand: &[T]) {
    for ((value, factor), operand) in values.iter_mut().zip(factor).zip(operand) {
        *value = value.mul(*factor).add(*operand);
    }
}

fn add<T: Float>(values: &mut [T], operand: &[T]) {
    for (value, operand) in values.iter_mut().zip(operand) {
        *value = value.add(*operand);
    }
}

fn activate<T: Float>(stage: Stage, values: &mut [T])
where
    T::Math: Elementary,
{
    let number = <T::Math as Num>::from_f64;
    let (zero, one, half) = (number(0.0), number(1.0), number(0.5));
    match stage {
        Stage::Bias | Stage::Add | Stage::BatchNorm(_) => {}
        Stage::Relu => map(values, |x| Real::maximum(x, zero)),
        Stage::Relu6 => {
            let six = number(6.0);
            map(values, |x| Real::minimum(Real::maximum(x, zero), six));
        }
        Stage::Elu => map(values, |x| if x < zero { x.fast_exp() - one } else { x }),
        Stage::LeakyRelu(alpha) => {
            let alpha = number(f64::from(alpha));
            map(values, |x| if x > zero { x } else { x * alpha });
        }
        Stage::Tanh => map(values, Elementary::fast_tanh),
        Stage::Sigmoid => map(values, Elementary::fast_sigmoid),
        Stage::GeluApproximate => {
            let (scale, cubic) = (number((2.0 / std::f64::consts::PI).sqrt()), number(0.044_715));
            map(values, |x| half * x * (one + (scale * (x + cubic * x * x * x)).fast_tanh()));
        }
        Stage::GeluExact => {
            let scale = number(std::f64::consts::FRAC_1_SQRT_2);
            map(values, |x| half * x * (one + (x * scale).fast_erf()));
        }
    }
}

#[inline(always)]
fn map<T: Float>(values: &mut [T], f: impl Fn(T::Math) -> T::Math) {
    for value in values.iter_mut() {
        *value = T::from_math(f(value.to_math()));
    }
}

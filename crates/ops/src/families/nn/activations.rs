//! Activation functions and their gradients.

use crate::builders as ops;
use crate::linalg::elementary::Elementary;
use crate::linalg::elementwise::Loop;
use crate::numeric::{Float, Num, Real};
use crate::support::cwise::{self, ARITHMETIC, POLYNOMIAL, loops, rows};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, shapes};
use ferroflow_core::scope::Output;
use ferroflow_core::{DType, Result, ensure};

pub(crate) const OPS: &[&Op] = &[
    &RELU,
    &RELU_GRAD,
    &RELU6,
    &RELU6_GRAD,
    &LEAKY_RELU,
    &LEAKY_RELU_GRAD,
    &ELU,
    &ELU_GRAD,
    &SELU,
    &SELU_GRAD,
    &SOFTPLUS,
    &SOFTPLUS_GRAD,
    &SOFTSIGN,
    &SOFTSIGN_GRAD,
];

const ACTIVATION: Op = Op {
    inputs: &["features: T"],
    outputs: &["activations: T"],
    attrs: &["T: {half, bfloat16, float, double}"],
    shape: shapes::unchanged,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

const GRADIENT: Op = Op {
    inputs: &["gradients: T", "features: T"],
    outputs: &["backprops: T"],
    attrs: &["T: {half, bfloat16, float, double}"],
    shape: shapes::same,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

const BY_OUTPUT: Op = Op { inputs: &["gradients: T", "outputs: T"], ..GRADIENT };

static RELU: Op = Op {
    name: "Relu",
    gradient: Gradient::Fn(relu_gradient),
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, int64, bfloat16, uint16, half, uint32, uint64, qint8}",
    ],
    kernels: rows![relu: Half, Bfloat16, Float, Double, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    accuracy: Accuracy::Exact,
    ..ACTIVATION
};

static RELU_GRAD: Op = Op {
    name: "ReluGrad",
    gradient: Gradient::Fn(relu_grad_gradient),
    attrs: &["T: realnumbertype"],
    kernels: rows![relu_grad: Half, Bfloat16, Float, Double, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    accuracy: Accuracy::Exact,
    ..GRADIENT
};

static RELU6: Op = Op {
    name: "Relu6",
    gradient: Gradient::Fn(relu6_gradient),
    attrs: &["T: realnumbertype"],
    kernels: rows![relu6: Half, Bfloat16, Float, Double, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    accuracy: Accuracy::Exact,
    ..ACTIVATION
};

static RELU6_GRAD: Op = Op {
    name: "Relu6Grad",
    gradient: Gradient::Fn(relu6_grad_gradient),
    attrs: &["T: realnumbertype"],
    kernels: rows![relu6_grad: Half, Bfloat16, Float, Double, Int8, Int16, Int32, Int64, Uint8, Uint16, Uint32, Uint64],
    accuracy: Accuracy::Exact,
    ..GRADIENT
};

const LEAKY_ATTRS: &[&str] =
    &["alpha: float = 0.20000000298023224", "T: {half, bfloat16, float, double} = DT_FLOAT"];

static LEAKY_RELU: Op = Op {
    name: "LeakyRelu",
    gradient: Gradient::Fn(leaky_relu_gradient),
    attrs: LEAKY_ATTRS,
    kernels: rows![leaky_relu: Half, Bfloat16, Float, Double],
    accuracy: Accuracy::Exact,
    ..ACTIVATION
};

static LEAKY_RELU_GRAD: Op = Op {
    name: "LeakyReluGrad",
    gradient: Gradient::Fn(leaky_relu_grad_gradient),
    attrs: LEAKY_ATTRS,
    kernels: rows![leaky_relu_grad: Half, Bfloat16, Float, Double],
    accuracy: Accuracy::Exact,
    ..GRADIENT
};

static ELU: Op = Op {
    name: "Elu",
    gradient: Gradient::Fn(elu_gradient),
    kernels: rows![elu: Half, Bfloat16, Float, Double],
    ..ACTIVATION
};

static ELU_GRAD: Op = Op {
    name: "EluGrad",
    gradient: Gradient::Fn(elu_grad_gradient),
    kernels: rows![elu_grad: Half, Bfloat16, Float, Double],
    ..BY_OUTPUT
};

static SELU: Op = Op {
    name: "Selu",
    gradient: Gradient::Fn(selu_gradient),
    kernels: rows![selu: Half, Bfloat16, Float, Double],
    ..ACTIVATION
};

static SELU_GRAD: Op = Op {
    name: "SeluGrad",
    gradient: Gradient::Fn(selu_grad_gradient),
    kernels: rows![selu_grad: Half, Bfloat16, Float, Double],
    ..BY_OUTPUT
};

static SOFTPLUS: Op = Op {
    name: "Softplus",
    gradient: Gradient::Fn(softplus_gradient),
    kernels: rows![softplus: Half, Bfloat16, Float, Double],
    ..ACTIVATION
};

static SOFTPLUS_GRAD: Op = Op {
    name: "SoftplusGrad",
    gradient: Gradient::Fn(softplus_grad_gradient),
    kernels: rows![softplus_grad: Half, Bfloat16, Float, Double],
    ..GRADIENT
};

static SOFTSIGN: Op = Op {
    name: "Softsign",
    gradient: Gradient::Fn(softsign_gradient),
    kernels: rows![softsign: Half, Bfloat16, Float, Double],
    ..ACTIVATION
};

static SOFTSIGN_GRAD: Op =
    Op { name: "SoftsignGrad", kernels: rows![softsign_grad: Half, Bfloat16, Float, Double], ..GRADIENT };

/// A kernel for a gradient, whose two inputs must have one shape.
fn gradient(init: &Init<'_>, cost: usize, function: Loop<2>) -> Result<Kernel> {
    let (node, op) = (init.node.to_owned(), init.op.to_owned());
    cwise::checked_kernel(init, cost, function, move |cx| {
        let (gradients, features) = (cx.input(0)?, cx.input(1)?);
        ensure!(
            gradients.shape() == features.shape(),
            InvalidArgument,
            "Inputs to operation {node} of type {op} must have the same size and shape.  Input 0: {} != input 1: {}",
            gradients.shape(),
            features.shape()
        );
        Ok(())
    })
}

/// NaN passes. A negative zero stays one in 16 bits only, as in stock.
fn relu(init: &Init<'_>) -> Result<Kernel> {
    let function =
        loops![init; wide, signed, unsigned; T => Loop::wide_map(|x: T| Real::maximum(x, T::ZERO))].or_else(
            |_| loops![init; halves; T => Loop::map(|x: T| if x < T::ZERO { T::ZERO } else { x })],
        )?;
    cwise::kernel(init, ARITHMETIC, function)
}

/// A product with zero or one, so that a gradient of NaN is never hidden.
fn relu_grad(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; floats, signed, unsigned; T => Loop::wide_zip(|g: T, x: T| {
        g.mul(if x > T::ZERO { T::ONE } else { T::ZERO })
    })]?;
    gradient(init, ARITHMETIC, function)
}

fn relu6(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide, signed, unsigned; T => Loop::wide_map(|x: T| {
        Real::minimum(Real::maximum(x, T::ZERO), T::from_f64(6.0))
    })]
    .or_else(|_| {
        loops![init; halves; T => Loop::map(|x: T| {
            Real::minimum(if x < T::ZERO { T::ZERO } else { x }, T::from_f64(6.0))
        })]
    })?;
    cwise::kernel(init, ARITHMETIC, function)
}

fn relu6_grad(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; floats, signed, unsigned; T => Loop::wide_zip(|g: T, x: T| {
        g.mul(if x > T::ZERO && x < T::from_f64(6.0) { T::ONE } else { T::ZERO })
    })]?;
    gradient(init, ARITHMETIC, function)
}

/// The slope is rounded to the element type first, as in stock.
fn leaky_relu(init: &Init<'_>) -> Result<Kernel> {
    let alpha = init.attr::<f32>("alpha")? as f64;
    let function = loops![init; wide, halves; T => {
        let alpha = T::from_f64(alpha);
        Loop::wide_map(move |x: T| if x > T::ZERO { x } else { x.mul(alpha) })
    }]?;
    cwise::kernel(init, ARITHMETIC, function)
}

fn leaky_relu_grad(init: &Init<'_>) -> Result<Kernel> {
    let alpha = init.attr::<f32>("alpha")? as f64;
    let function = loops![init; wide, halves; T => {
        let alpha = T::from_f64(alpha);
        Loop::wide_zip(move |g: T, x: T| if x > T::ZERO { g } else { g.mul(alpha) })
    }]?;
    gradient(init, ARITHMETIC, function)
}

/// Every part is rounded to the element type, as in stock: near zero an exponential of 16 bits is one.
fn elu(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide, halves; T => Loop::wide_map(|x: T| {
        let below = Num::sub(T::from_math(x.to_math().fast_exp()), T::ONE);
        if x < T::ZERO { below } else { x }
    })]?;
    cwise::kernel(init, POLYNOMIAL, function)
}

fn elu_grad(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide, halves; T => Loop::zip(|g: T, y: T| {
        if y < T::ZERO { Num::mul(Num::add(y, T::ONE), g) } else { g }
    })]?;
    gradient(init, ARITHMETIC, function)
}

/// The constants for which activations keep zero mean and unit variance.
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;
const SELU_SCALE_ALPHA: f64 = 1.758_099_340_847_376_5;

fn selu(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide, halves; T => {
        let (scale, scale_alpha) = (T::from_f64(SELU_SCALE), T::from_f64(SELU_SCALE_ALPHA));
        Loop::wide_map(move |x: T| {
            let below = Num::mul(scale_alpha, Num::sub(T::from_math(x.to_math().fast_exp()), T::ONE));
            if x < T::ZERO { below } else { Num::mul(scale, x) }
        })
    }]?;
    cwise::kernel(init, POLYNOMIAL, function)
}

fn selu_grad(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide, halves; T => {
        let (scale, scale_alpha) = (T::from_f64(SELU_SCALE), T::from_f64(SELU_SCALE_ALPHA));
        Loop::zip(move |g: T, y: T| {
            if y < T::ZERO { Num::mul(g, Num::add(y, scale_alpha)) } else { Num::mul(g, scale) }
        })
    }]?;
    gradient(init, ARITHMETIC, function)
}

fn softplus(init: &Init<'_>) -> Result<Kernel> {
    cwise::kernel(init, 2 * POLYNOMIAL, loops![init; wide, halves; T => Loop::wide_map(softplus_of::<T>)]?)
}

/// ln(1 + eˣ), without the sum where one of its terms is lost in rounding. In 16 bits every step is rounded, as in stock.
#[inline(always)]
fn softplus_of<T: Float>(x: T) -> T
where
    T::Math: Elementary,
{
    // ln ε + 2, with stock's ε, which of halves is an eighth of theirs.
    let threshold = T::from_f64(match T::DTYPE {
        DType::Double => -34.043_653_389_117_15,
        DType::Float => -13.942_385,
        DType::Half => -7.007_812_5,
        _ => -2.843_75,
    });
    let power = T::from_math(x.to_math().fast_exp());
    let value = if x < threshold { power } else { T::from_math(power.to_math().fast_ln_1p()) };
    if x > Num::neg(threshold) { x } else { value }
}

/// The exponential may overflow in 16 bits, which stock's does.
fn softplus_grad(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide, halves; T => Loop::wide_zip(|g: T, x: T| {
        let power = T::from_math((-x.to_math()).fast_exp());
        Num::div(g, Num::add(power, T::ONE))
    })]?;
    gradient(init, POLYNOMIAL, function)
}

fn softsign(init: &Init<'_>) -> Result<Kernel> {
    // Stock rounds the sum to 16 bits, too.
    let function =
        loops![init; wide, halves; T => Loop::map(|x: T| Num::div(x, Num::add(Real::abs(x), T::ONE)))]?;
    cwise::kernel(init, ARITHMETIC, function)
}

/// The square may overflow in 16 bits, which stock's does.
fn softsign_grad(init: &Init<'_>) -> Result<Kernel> {
    let function = loops![init; wide, halves; T => Loop::zip(|g: T, x: T| {
        let sum = Num::add(Real::abs(x), T::ONE);
        Num::div(g, Num::mul(sum, sum))
    })]?;
    gradient(init, ARITHMETIC, function)
}

fn relu_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::relu_grad(g.scope(), g.dy(0)?, g.output(0)?)?].into())
}

/// The slope does not depend on the features.
fn relu_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, features) = (g.scope(), g.input(1));
    Ok([ops::relu_grad(s, g.dy(0)?, features)?, ops::zeros_like(s, features)?].into())
}

fn relu6_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::relu6_grad(g.scope(), g.dy(0)?, g.output(0)?)?].into())
}

fn relu6_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, features) = (g.scope(), g.input(1));
    Ok([ops::relu6_grad(s, g.dy(0)?, features)?, ops::zeros_like(s, features)?].into())
}

fn leaky_relu_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let slope = ops::LeakyReluGrad::new().alpha(g.attr::<f32>("alpha")?);
    Ok([slope.build(g.scope(), g.dy(0)?, g.input(0))?].into())
}

fn leaky_relu_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, features) = (g.scope(), g.input(1));
    let slope = ops::LeakyReluGrad::new().alpha(g.attr::<f32>("alpha")?);
    Ok([slope.build(s, g.dy(0)?, features)?, ops::zeros_like(s, features)?].into())
}

fn elu_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::elu_grad(g.scope(), g.dy(0)?, g.output(0)?)?].into())
}

fn elu_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::elu_grad(g.scope(), g.dy(0)?, g.input(1))?, below_zero(g)?].into())
}

fn selu_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::selu_grad(g.scope(), g.dy(0)?, g.output(0)?)?].into())
}

fn selu_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::selu_grad(g.scope(), g.dy(0)?, g.input(1))?, below_zero(g)?].into())
}

/// The product of both gradients where the activation is below zero, else zero.
fn below_zero(g: &GradCx<'_>) -> Result<Output> {
    let (s, outputs) = (g.scope(), g.input(1));
    let product = ops::mul(s, g.dy(0)?, g.input(0))?;
    ops::select_v2(s, ops::less(s, outputs, 0), product, ops::zeros_like(s, outputs))
}

fn softplus_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    Ok([ops::mul(s, g.dy(0)?, ops::sigmoid(s, g.input(0)))?].into())
}

fn softplus_grad_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, x) = (g.scope(), g.dy(0)?, g.input(1));
    let sum = ops::add_v2(s, ops::exp(s, ops::neg(s, x)), 2)?;
    let product = ops::mul(s, &dy, g.input(0))?;
    let curvature = ops::real_div(s, product, ops::add_v2(s, sum, ops::exp(s, x)))?;
    Ok([ops::softplus_grad(s, &dy, x)?, curvature].into())
}

fn softsign_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([ops::softsign_grad(g.scope(), g.dy(0)?, g.input(0))?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Tensor};

    #[test]
    fn gradients_have_the_features_shape() {
        infer("Relu", "[2,?]", "[2,?]");
        infer("ReluGrad", "[2,?];[?,3]", "[2,3]");
        infer_err("EluGrad", "[2];[3]", Code::InvalidArgument);
    }

    #[test]
    fn nan_is_never_hidden() {
        let nan = || Tensor::vector(vec![f32::NAN; 3]);
        let zero = Tensor::vector(vec![0.0f32; 3]);
        for out in [Node::new("Relu").run([nan()]), Node::new("ReluGrad").run([nan(), zero])] {
            assert!(out.unwrap()[0].flat::<f32>().unwrap().iter().all(|x| x.is_nan()));
        }
    }
}

//! Ops that pass their input on, some after a look at it.

use crate::builders as ops;
use crate::numeric::Float;
use ferroflow_core::kernel::{Init, Kernel, Outputs, Value};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, OpClass, ShapeCx, shapes};
use ferroflow_core::{PartialShape, Result, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &IDENTITY,
    &IDENTITY_N,
    &SNAPSHOT,
    &STOP_GRADIENT,
    &PREVENT_GRADIENT,
    &GUARANTEE_CONST,
    &CHECK_NUMERICS,
    &CHECK_NUMERICS_V2,
    &DEEP_COPY,
    &COPY,
    &COPY_HOST,
    &ENSURE_SHAPE,
];

const PASS: Op = Op {
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    kernels: kernels![any pass_kernel],
    cheap: true,
    ..Op::PURE
};

static IDENTITY: Op =
    Op { name: "Identity", class: OpClass::Identity, gradient: Gradient::Fn(identity_grad), ..PASS };
static SNAPSHOT: Op = Op { name: "Snapshot", kernels: kernels![any snapshot_kernel], ..PASS };
static STOP_GRADIENT: Op = Op { name: "StopGradient", gradient: Gradient::Stop, ..PASS };
static PREVENT_GRADIENT: Op = Op {
    name: "PreventGradient",
    gradient: Gradient::Fn(prevented),
    attrs: &["T: type", "message: string = ''"],
    ..PASS
};
static GUARANTEE_CONST: Op =
    Op { name: "GuaranteeConst", kernels: kernels![any guarantee_const_kernel], stateful: true, ..PASS };

static IDENTITY_N: Op = Op {
    name: "IdentityN",
    gradient: Gradient::Fn(identity_n_grad),
    attrs: &["T: list(type) >= 1"],
    shape: identity_n_shape,
    kernels: kernels![any identity_n_kernel],
    class: OpClass::Identity,
    ..PASS
};

const CHECK: Op = Op {
    inputs: &["tensor: T"],
    outputs: &["output: T"],
    attrs: &["T: {bfloat16, half, float, double}", "message: string"],
    shape: shapes::unchanged,
    ..Op::STATEFUL
};

static CHECK_NUMERICS: Op = Op {
    name: "CheckNumerics",
    gradient: Gradient::Fn(check_numerics_grad),
    kernels: kernels![check_numerics_kernel: bf16, f16, f32, f64],
    ..CHECK
};
static CHECK_NUMERICS_V2: Op = Op {
    name: "CheckNumericsV2",
    gradient: Gradient::Fn(check_numerics_v2_grad),
    kernels: kernels![check_numerics_v2_kernel: bf16, f16, f32, f64],
    ..CHECK
};

static DEEP_COPY: Op = Op {
    name: "DeepCopy",
    inputs: &["x: T"],
    outputs: &["y: T"],
    kernels: kernels![any deep_copy_kernel],
    cheap: false,
    stateful: true,
    ..PASS
};

/// Ops that the debugger puts on edges that it watches. Without a debugger they copy.
const WATCH: Op = Op {
    attrs: &["T: type", "tensor_name: string = ''", "debug_ops_spec: list(string) = []"],
    kernels: kernels![any deep_copy_kernel],
    allows_uninitialized_input: true,
    cheap: false,
    ..PASS
};
static COPY: Op = Op { name: "Copy", ..WATCH };
static COPY_HOST: Op = Op { name: "CopyHost", ..WATCH };

static ENSURE_SHAPE: Op = Op {
    name: "EnsureShape",
    gradient: Gradient::Fn(identity_grad),
    attrs: &["shape: shape", "T: type"],
    shape: ensure_shape_shape,
    kernels: kernels![any ensure_shape_kernel],
    ..PASS
};

fn pass_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.take(0)?.into()))
}

/// A value that later updates of a ref variable do not change.
fn snapshot_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let value = cx.take(0)?;
        Ok(if value.is_unique() { value } else { value.deep_copy() }.into())
    })
}

fn identity_n_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    ensure!(
        s.num_inputs() == s.num_outputs(),
        InvalidArgument,
        "Input and output counts do not match: {} vs. {}",
        s.num_inputs(),
        s.num_outputs()
    );
    for i in 0..s.num_inputs() {
        s.set(i, s.input(i));
        s.set_handles(i, s.handles(i).to_vec());
    }
    Ok(())
}

fn identity_n_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let values: Result<Vec<Value>> =
            (0..cx.num_inputs()).map(|i| Ok(Value::Tensor(cx.take(i)?))).collect();
        Ok(Outputs::Many(values?))
    })
}

fn deep_copy_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.input(0)?.deep_copy().into()))
}

/// The kinds of values that are not finite in a tensor: −∞, +∞, NaN.
fn oddities<T: Float>(values: &[T]) -> [bool; 3] {
    let mut found = [false; 3];
    // One cheap pass over each block decides almost always.
    for block in values.chunks(1024) {
        if block.iter().fold(true, |all, value| all & value.is_finite()) {
            continue;
        }
        for value in block.iter().filter(|value| !value.is_finite()) {
            found[if value.is_nan() { 2 } else { (*value > T::ZERO) as usize }] = true;
        }
    }
    found
}

fn check_numerics_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let message: String = init.attr("message")?;
    Kernel::sync(move |cx| {
        let [negative, positive, nan] = oddities::<T>(cx.flat(0)?);
        let what = match (negative || positive, nan) {
            (false, false) => return Ok(cx.take(0)?.into()),
            (true, false) => "Inf",
            (false, true) => "NaN",
            (true, true) => "Inf and NaN",
        };
        bail!(InvalidArgument, "{message} : Tensor had {what} values")
    })
}

fn check_numerics_v2_kernel<T: Float>(init: &Init<'_>) -> Result<Kernel> {
    let message: String = init.attr("message")?;
    Kernel::sync(move |cx| {
        let found = oddities::<T>(cx.flat(0)?);
        let names = ["-Inf", "+Inf", "NaN"];
        let names: Vec<&str> =
            names.into_iter().zip(found).filter_map(|(name, here)| here.then_some(name)).collect();
        let what = match names.as_slice() {
            [] => return Ok(cx.take(0)?.into()),
            [one] => (*one).to_owned(),
            [one, two] => format!("{one} and {two}"),
            _ => "-Inf, +Inf, and NaN".to_owned(),
        };
        bail!(InvalidArgument, "{message} : Tensor had {what} values")
    })
}

fn ensure_shape_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.merge(&s.input(0), &s.attr("shape")?)?;
    s.set(0, shape);
    s.set_handles(0, s.handles(0).to_vec());
    Ok(())
}

fn ensure_shape_kernel(init: &Init<'_>) -> Result<Kernel> {
    let expected: PartialShape = init.attr("shape")?;
    let node = init.node.to_owned();
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?.shape();
        ensure!(
            expected.admits(shape),
            InvalidArgument,
            "Shape of tensor {node} {shape} is not compatible with expected shape {expected}."
        );
        Ok(cx.take(0)?.into())
    })
}

/// Passes the gradient on as it is, rows included.
pub(crate) fn identity_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok(InputGrads(vec![g.grad(0).cloned()]))
}

/// Outputs that nothing depends on have zeros, as in stock, unless they are no numbers with a slope.
fn identity_n_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let grad = |output: usize| {
        let dtype = g.output(output)?.dtype();
        match g.grad(output) {
            None if dtype.is_floating() || dtype.is_complex() => Ok(Some(g.dy(output)?.into())),
            grad => Ok(grad.cloned()),
        }
    };
    Ok(InputGrads((0..g.num_outputs()).map(grad).collect::<Result<_>>()?))
}

fn prevented(g: &GradCx<'_>) -> Result<InputGrads> {
    bail!(NotFound, "Gradient explicitly disabled. Reason: {}", g.attr::<String>("message")?)
}

/// The prefix of messages of the gradient's own check.
const IN_GRADIENT: &str = "Not a number (NaN) or infinity (Inf) values detected in gradient.";

fn check_numerics_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let message = format!("{IN_GRADIENT} {}", g.attr::<String>("message")?);
    Ok([ops::check_numerics(g.scope(), g.dy(0)?, &message)?].into())
}

fn check_numerics_v2_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let message = format!("{IN_GRADIENT} {}", g.attr::<String>("message")?);
    Ok([ops::check_numerics_v2(g.scope(), g.dy(0)?, &message)?].into())
}

/// A handle is no promise for what it leads to, so stock refuses it.
fn guarantee_const_kernel(init: &Init<'_>) -> Result<Kernel> {
    if init.input_types[0] == ferroflow_core::DType::Resource {
        return Kernel::sync(|_| {
            bail!(InvalidArgument, "Input tensor cannot be a resource variable handle.")
        });
    }
    pass_kernel(init)
}

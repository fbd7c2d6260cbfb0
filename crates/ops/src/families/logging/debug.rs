//! Ops that debuggers put beside tensors. Values are counted and passed on; publishing them to a debugger's address or
//! files is not supported.

use crate::numeric::Real;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, shapes};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[
    &DEBUG_IDENTITY,
    &DEBUG_IDENTITY_V2,
    &DEBUG_IDENTITY_V3,
    &DEBUG_NAN_COUNT,
    &DEBUG_NUMERIC_SUMMARY,
    &DEBUG_NUMERIC_SUMMARY_V2,
    &DEBUG_GRADIENT_IDENTITY,
    &DEBUG_GRADIENT_REF_IDENTITY,
];

static DEBUG_IDENTITY: Op = Op {
    name: "DebugIdentity",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: type",
        "device_name: string = ''",
        "tensor_name: string = ''",
        "debug_urls: list(string) = []",
        "gated_grpc: bool = false",
    ],
    shape: shapes::unchanged,
    kernels: kernels![any identity_kernel],
    allows_uninitialized_input: true,
    ..Op::PURE
};

static DEBUG_IDENTITY_V2: Op = Op {
    name: "DebugIdentityV2",
    gradient: Gradient::Fn(pass_gradient),
    attrs: &[
        "T: type",
        "tfdbg_context_id: string = ''",
        "op_name: string = ''",
        "output_slot: int = -1",
        "tensor_debug_mode: int = -1",
        "debug_urls: list(string) = []",
        "circular_buffer_size: int = 1000",
        "tfdbg_run_id: string = ''",
    ],
    stateful: true,
    allows_uninitialized_input: false,
    ..DEBUG_IDENTITY
};

static DEBUG_IDENTITY_V3: Op = Op {
    name: "DebugIdentityV3",
    attrs: &[
        "T: type",
        "device_name: string = ''",
        "tensor_name: string = ''",
        "io_of_node: string = ''",
        "is_input: bool = false",
        "io_index: int = -1",
        "debug_urls: list(string) = []",
        "gated_grpc: bool = false",
    ],
    stateful: true,
    ..DEBUG_IDENTITY
};

static DEBUG_NAN_COUNT: Op = Op {
    name: "DebugNanCount",
    outputs: &["output: int64"],
    shape: shapes::unknown,
    kernels: kernels![nan_count_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64],
    ..DEBUG_IDENTITY
};

static DEBUG_NUMERIC_SUMMARY: Op = Op {
    name: "DebugNumericSummary",
    outputs: &["output: double"],
    attrs: &[
        "T: type",
        "device_name: string = ''",
        "tensor_name: string = ''",
        "debug_urls: list(string) = []",
        "lower_bound: float = -inf",
        "upper_bound: float = inf",
        "mute_if_healthy: bool = false",
        "gated_grpc: bool = false",
    ],
    shape: shapes::unknown,
    kernels: kernels![any summary_kernel],
    ..DEBUG_IDENTITY
};

static DEBUG_NUMERIC_SUMMARY_V2: Op = Op {
    name: "DebugNumericSummaryV2",
    inputs: &["input: T"],
    outputs: &["output: output_dtype"],
    attrs: &[
        "output_dtype: {float, double} = DT_FLOAT",
        "T: type",
        "tensor_debug_mode: int = -1",
        "tensor_id: int = -1",
    ],
    shape: shapes::unknown,
    kernels: kernels![any summary_v2_kernel],
    ..Op::PURE
};

static DEBUG_GRADIENT_IDENTITY: Op = Op {
    name: "DebugGradientIdentity",
    gradient: Gradient::Fn(pass_gradient),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    kernels: kernels![any pass_kernel],
    allows_uninitialized_input: true,
    ..Op::PURE
};

static DEBUG_GRADIENT_REF_IDENTITY: Op = Op {
    name: "DebugGradientRefIdentity",
    inputs: &["input: Ref(T)"],
    outputs: &["output: Ref(T)"],
    ..DEBUG_GRADIENT_IDENTITY
};

fn pass_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let mut grads = InputGrads::none(1);
    grads.0[0] = g.grad(0).cloned();
    Ok(grads)
}

/// Refuses to publish tensors, of which nothing is told otherwise.
fn check_unpublished(init: &Init<'_>) -> Result<()> {
    let urls: Vec<String> = init.attr("debug_urls")?;
    let gated = init.attrs.has("gated_grpc") && init.attr("gated_grpc")?;
    ensure!(
        urls.is_empty() && !gated,
        Unimplemented,
        "{} cannot publish tensors to {}: debug_urls and gated_grpc are not supported",
        init.op,
        if urls.is_empty() { "a debugger".to_owned() } else { urls.join(", ") }
    );
    if init.attrs.has("tensor_name") {
        let name: String = init.attr("tensor_name")?;
        let slot = match name.split(':').collect::<Vec<&str>>()[..] {
            [""] => bail!(InvalidArgument, "Failed to parse tensor name: \"\""),
            [_] => "0",
            [_, slot] => slot,
            _ => bail!(InvalidArgument, "Failed to parse tensor name: \"{name}\""),
        };
        ensure!(
            slot.parse::<i32>().is_ok(),
            InvalidArgument,
            "Invalid string value for output_slot: \"{slot}\""
        );
    }
    Ok(())
}

fn pass_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.take_value(0)?.into()))
}

fn identity_kernel(init: &Init<'_>) -> Result<Kernel> {
    check_unpublished(init)?;
    pass_kernel(init)
}

fn nan_count_kernel<T: Real>(init: &Init<'_>) -> Result<Kernel> {
    check_unpublished(init)?;
    Kernel::sync(|cx| {
        let count = cx.flat::<T>(0)?.iter().filter(|x| x.is_nan()).count();
        Ok(Tensor::vector(vec![count as i64]).into())
    })
}

/// The elements in double precision.
fn doubles(tensor: &Tensor) -> Result<Vec<f64>> {
    fn wide<T: Real>(tensor: &Tensor) -> Result<Vec<f64>> {
        Ok(tensor.flat::<T>()?.iter().map(|x| x.to_f64()).collect())
    }
    match tensor.dtype() {
        DType::Bool => Ok(tensor.flat::<bool>()?.iter().map(|x| f64::from(u8::from(*x))).collect()),
        DType::Half => wide::<f16>(tensor),
        DType::Bfloat16 => wide::<bf16>(tensor),
        DType::Float => wide::<f32>(tensor),
        DType::Double => wide::<f64>(tensor),
        DType::Int8 => wide::<i8>(tensor),
        DType::Int16 => wide::<i16>(tensor),
        DType::Int32 => wide::<i32>(tensor),
        DType::Int64 => wide::<i64>(tensor),
        DType::Uint8 => wide::<u8>(tensor),
        DType::Uint16 => wide::<u16>(tensor),
        DType::Uint32 => wide::<u32>(tensor),
        DType::Uint64 => wide::<u64>(tensor),
        other => bail!(Unimplemented, "numbers of type {other} cannot be summarized"),
    }
}

/// Counts of values by kind.
#[derive(Default)]
struct Counts {
    nan: f64,
    lowest: f64,
    negative: f64,
    zero: f64,
    positive: f64,
    highest: f64,
}

impl Counts {
    /// Counts values; those at the bounds or beyond count as infinite.
    fn of(values: &[f64], low: f64, high: f64) -> Counts {
        let mut counts = Counts::default();
        for x in values {
            let count = match *x {
                x if x.is_nan() => &mut counts.nan,
                x if x == f64::NEG_INFINITY || (low.is_finite() && x <= low) => &mut counts.lowest,
                x if x == f64::INFINITY || (high.is_finite() && x >= high) => &mut counts.highest,
                x if x < 0.0 => &mut counts.negative,
                x if x > 0.0 => &mut counts.positive,
                _ => &mut counts.zero,
            };
            *count += 1.0;
        }
        counts
    }
}

fn summary_kernel(init: &Init<'_>) -> Result<Kernel> {
    check_unpublished(init)?;
    let (low, high): (f32, f32) = (init.attr("lower_bound")?, init.attr("upper_bound")?);
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let values = doubles(input)?;
        let counts = Counts::of(&values, f64::from(low), f64::from(high));
        let finite = || values.iter().filter(|x| x.is_finite());
        let count = finite().count() as f64;
        let (mut mean, mut variance) = (f64::NAN, f64::NAN);
        if count > 0.0 {
            mean = finite().sum::<f64>() / count;
            variance = finite().map(|x| (x - mean) * (x - mean)).sum::<f64>() / count;
        }
        let mut out = vec![
            1.0,
            values.len() as f64,
            counts.nan,
            counts.lowest,
            counts.negative,
            counts.zero,
            counts.positive,
            counts.highest,
            finite().fold(f64::INFINITY, |low, x| low.min(*x)),
            finite().fold(f64::NEG_INFINITY, |high, x| high.max(*x)),
            mean,
            variance,
            f64::from(input.dtype().to_wire()),
            input.rank() as f64,
        ];
        out.extend(input.shape().dims().iter().map(|dim| *dim as f64));
        Ok(Tensor::vector(out).into())
    })
}

fn summary_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (mode, id): (i64, i64) = (init.attr("tensor_debug_mode")?, init.attr("tensor_id")?);
    let wide = init.output_types[0] == DType::Double;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let values = doubles(input)?;
        let counts = Counts::of(&values, f64::NEG_INFINITY, f64::INFINITY);
        let digits = if wide { 53 } else { 24 };
        ensure!(
            mode == 8 || id <= 1 << digits,
            InvalidArgument,
            "DebugNumericSummaryV2Op requires tensor_id to be less than or equal to (2^{digits}). Given tensor_id:{id}"
        );
        let (id, elements) = (id as f64, values.len() as f64);
        let (dtype, rank) = (f64::from(input.dtype().to_wire()), input.rank() as f64);
        let spoiled = counts.lowest + counts.highest + counts.nan > 0.0;
        let shown = |there: f64, value: f64| if there > 0.0 { value } else { 0.0 };
        let out = match mode {
            2 => vec![id, f64::from(u8::from(spoiled))],
            3 => vec![id, elements, counts.lowest, counts.highest, counts.nan],
            4 => vec![
                id,
                -1.0,
                dtype,
                rank,
                elements,
                counts.lowest,
                counts.highest,
                counts.nan,
                counts.negative,
                counts.zero,
                counts.positive,
            ],
            5 => {
                // The last six dimensions, zeros after those that there are.
                let dims = input.shape().dims();
                let shown = dims[dims.len().saturating_sub(6)..].iter().map(|dim| *dim as f64);
                [id, dtype, rank, elements].into_iter().chain(shown).chain([0.0; 6]).take(10).collect()
            }
            8 => vec![
                shown(counts.lowest, f64::NEG_INFINITY),
                shown(counts.highest, f64::INFINITY),
                shown(counts.nan, f64::NAN),
            ],
            _ => bail!(Unimplemented, "Unimplemented tensor debug mode: {mode}"),
        };
        let shape = Shape::vector(out.len());
        Ok(if wide {
            Tensor::new(shape, out)?.into()
        } else {
            Tensor::new(shape, out.iter().map(|x| *x as f32).collect::<Vec<f32>>())?.into()
        })
    })
}

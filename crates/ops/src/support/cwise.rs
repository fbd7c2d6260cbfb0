//! Kernels of element-wise functions: broadcasting, reuse of operand memory, and a short path for scalars.
//!
//! A family turns an element type into a [`Loop`] with `loops!` and lists its types with `rows!`; what is here is
//! compiled once for all of them.

use crate::linalg::broadcast::Broadcast;
use crate::linalg::elementwise::Loop;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::{DType, Element, Result, Shape, Status, Tensor, status};

/// The work of an addition, in the units of [`ferroflow_core::device::Threads::parallel_for`].
pub(crate) const ARITHMETIC: usize = 1;
/// The work of a vectorized function such as `exp`.
pub(crate) const POLYNOMIAL: usize = 4;
/// The work of a function that is computed one element at a time.
pub(crate) const FUNCTION: usize = 16;

/// Kernel rows that share one function: `rows![add: Float, Double]`.
macro_rules! rows {
    ($($make:ident: $($dtype:ident),+);+ $(;)?) => {
        &[$($(ferroflow_core::op::KernelRow::new("T", ferroflow_core::DType::$dtype, $make),)+)+]
    };
}
pub(crate) use rows;

/// The loop for a node's element type: `loops![init; floats, signed; T => Loop::zip(<T as Num>::add)]`. The kinds are
/// `floats` (16-bit ones by way of `f32`), `halves` (16-bit floats that round after every operation), `wide` (`f32` and
/// `f64`), `complex`, `signed`, `unsigned`, and `bits` (integers of either sign, computed as signed ones).
macro_rules! loops {
    ($init:expr; $($kind:ident),+; $T:ident => $loop:expr) => {{
        let dtype = $init.input_types[0];
        let made = None;
        $(let made = made.or_else(|| $crate::support::cwise::loops!(@$kind dtype, $T, $loop));)+
        made.ok_or_else(|| $crate::support::cwise::no_loop($init))
    }};
    (@floats $dtype:ident, $T:ident, $loop:expr) => {
        match $dtype {
            ferroflow_core::DType::Double => Some({ type $T = f64; $loop }),
            ferroflow_core::DType::Float | ferroflow_core::DType::Half | ferroflow_core::DType::Bfloat16 => {
                let single = { type $T = f32; $loop };
                Some(match $dtype {
                    ferroflow_core::DType::Half => single.widened::<ferroflow_core::f16>(),
                    ferroflow_core::DType::Bfloat16 => single.widened::<ferroflow_core::bf16>(),
                    _ => single,
                })
            }
            _ => None,
        }
    };
    (@wide $dtype:ident, $T:ident, $loop:expr) => {
        $crate::support::cwise::loops!(@match $dtype, $T, $loop; Float: f32, Double: f64)
    };
    (@halves $dtype:ident, $T:ident, $loop:expr) => {
        $crate::support::cwise::loops!(@match $dtype, $T, $loop; Half: ferroflow_core::f16, Bfloat16: ferroflow_core::bf16)
    };
    (@complex $dtype:ident, $T:ident, $loop:expr) => {
        $crate::support::cwise::loops!(
            @match $dtype, $T, $loop; Complex64: ferroflow_core::C64, Complex128: ferroflow_core::C128
        )
    };
    (@signed $dtype:ident, $T:ident, $loop:expr) => {
        $crate::support::cwise::loops!(@match $dtype, $T, $loop; Int8: i8, Int16: i16, Int32: i32, Int64: i64)
    };
    (@unsigned $dtype:ident, $T:ident, $loop:expr) => {
        $crate::support::cwise::loops!(@match $dtype, $T, $loop; Uint8: u8, Uint16: u16, Uint32: u32, Uint64: u64)
    };
    (@bits $dtype:ident, $T:ident, $loop:expr) => {
        match $dtype {
            ferroflow_core::DType::Int8 | ferroflow_core::DType::Uint8 => Some({ type $T = i8; $loop }),
            ferroflow_core::DType::Int16 | ferroflow_core::DType::Uint16 => Some({ type $T = i16; $loop }),
            ferroflow_core::DType::Int32 | ferroflow_core::DType::Uint32 => Some({ type $T = i32; $loop }),
            ferroflow_core::DType::Int64 | ferroflow_core::DType::Uint64 => Some({ type $T = i64; $loop }),
            _ => None,
        }
    };
    (@match $dtype:ident, $T:ident, $loop:expr; $($variant:ident: $type:ty),+) => {
        match $dtype {
            $(ferroflow_core::DType::$variant => Some({ type $T = $type; $loop }),)+
            _ => None,
        }
    };
}
pub(crate) use loops;

/// An op whose kernel rows and loops disagree.
pub(crate) fn no_loop(init: &Init<'_>) -> Status {
    status!(Unimplemented, "{} is not supported for T={}", init.op, init.input_types[0])
}

/// A kernel that runs a loop over the broadcast of its inputs, in place where it may.
pub(crate) fn kernel<const N: usize>(init: &Init<'_>, cost: usize, function: Loop<N>) -> Result<Kernel> {
    with_output(init.output_types[0], cost, function)
}

/// Like [`kernel`], for a known type of the result.
pub(crate) fn with_output<const N: usize>(dtype: DType, cost: usize, function: Loop<N>) -> Result<Kernel> {
    Kernel::sync(move |cx| apply(cx, dtype, cost, &function))
}

/// Like [`kernel`], for loops that may only run on inputs that `check` accepts.
pub(crate) fn checked_kernel<const N: usize>(
    init: &Init<'_>,
    cost: usize,
    function: Loop<N>,
    check: impl Fn(&KernelCx<'_>) -> Result<()> + Send + Sync + 'static,
) -> Result<Kernel> {
    let dtype = init.output_types[0];
    Kernel::sync(move |cx| {
        check(cx)?;
        apply(cx, dtype, cost, &function)
    })
}

/// Runs a loop over the broadcast of the first `N` inputs.
pub(crate) fn apply<const N: usize>(
    cx: &mut KernelCx<'_>,
    dtype: DType,
    cost: usize,
    function: &Loop<N>,
) -> Result<Outputs> {
    let mut scalars = true;
    for i in 0..N {
        scalars &= cx.input(i)?.rank() == 0;
    }
    let candidates: [usize; N] = std::array::from_fn(|i| i);
    if scalars {
        let (replaced, mut out) = match cx.take_reusable(&candidates, dtype, 1) {
            Some((input, tensor)) => (Some(input), tensor),
            None => (None, cx.alloc_dtype(dtype, Shape::scalar())?),
        };
        function.run_one(&mut out, operands(cx, replaced)?)?;
        return Ok(out.into());
    }
    let plan = plan::<N>(cx)?;
    let (replaced, mut out) = output(cx, &candidates, dtype, plan.shape().clone())?;
    function.run(cx.threads(), cost, &plan, &mut out, operands(cx, replaced)?)?;
    Ok(out.into())
}

/// Memory for the result, and which input it was taken from.
fn output(
    cx: &mut KernelCx<'_>,
    candidates: &[usize],
    dtype: DType,
    shape: Shape,
) -> Result<(Option<usize>, Tensor)> {
    match cx.take_reusable(candidates, dtype, shape.elements()) {
        Some((input, tensor)) => Ok((Some(input), tensor.reshaped(shape)?)),
        None => Ok((None, cx.alloc_dtype(dtype, shape)?)),
    }
}

fn operands<'a, const N: usize>(
    cx: &'a KernelCx<'_>,
    replaced: Option<usize>,
) -> Result<[Option<&'a Tensor>; N]> {
    let mut operands = [None; N];
    for (i, operand) in operands.iter_mut().enumerate() {
        if replaced != Some(i) {
            *operand = Some(cx.input(i)?);
        }
    }
    Ok(operands)
}

fn plan<const N: usize>(cx: &KernelCx<'_>) -> Result<Broadcast<N>> {
    let first = cx.input(0)?.shape();
    let mut shapes = [first; N];
    for (i, shape) in shapes.iter_mut().enumerate() {
        *shape = cx.input(i)?.shape();
    }
    Broadcast::new(shapes).ok_or_else(|| incompatible(first, shapes[N - 1]))
}

/// A kernel that computes `f(x, y)` over the broadcast of two inputs whose elements are not plain (strings).
pub(crate) fn binary_owned<T, U, F>(f: F) -> Result<Kernel>
where
    T: Element,
    U: Element,
    F: Fn(&T, &T) -> U + Send + Sync + 'static,
{
    Kernel::sync(move |cx| {
        let plan = plan::<2>(cx)?;
        let (x, y) = (cx.flat::<T>(0)?, cx.flat::<T>(1)?);
        let mut values = Vec::with_capacity(plan.elements());
        let [step_x, step_y] = plan.moves().map(usize::from);
        if plan.elements() > 0 {
            plan.for_rows(0..plan.rows(), |_, [i, j]| {
                values.extend((0..plan.columns()).map(|k| f(&x[i + k * step_x], &y[j + k * step_y])));
            });
        }
        Ok(Tensor::new(plan.into_shape(), values)?.into())
    })
}

/// Whether two inputs can be broadcast.
pub(crate) fn fit(a: &Tensor, b: &Tensor) -> bool {
    Broadcast::new([a.shape(), b.shape()]).is_some()
}

/// The error for two shapes that cannot be broadcast, in stock's words.
pub(crate) fn incompatible(a: &Shape, b: &Shape) -> Status {
    status!(InvalidArgument, "Incompatible shapes: {a} vs. {b}")
}

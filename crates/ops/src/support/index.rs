//! Reading small integer inputs: axes, sizes, paddings, permutations.

use ferroflow_core::kernel::KernelCx;
use ferroflow_core::op::ShapeCx;
use ferroflow_core::{DType, Result, Tensor, bail};
use smallvec::SmallVec;

/// A few integers, inline if there are at most eight.
pub(crate) type Ints = SmallVec<[i64; 8]>;

/// The elements of a tensor of any integer type, widened.
pub(crate) fn ints(tensor: &Tensor) -> Result<Ints> {
    Ok(match tensor.dtype() {
        DType::Int32 => tensor.flat::<i32>()?.iter().map(|v| *v as i64).collect(),
        DType::Int64 => Ints::from_slice(tensor.flat::<i64>()?),
        DType::Int16 => tensor.flat::<i16>()?.iter().map(|v| *v as i64).collect(),
        DType::Int8 => tensor.flat::<i8>()?.iter().map(|v| *v as i64).collect(),
        DType::Uint8 => tensor.flat::<u8>()?.iter().map(|v| *v as i64).collect(),
        DType::Uint16 => tensor.flat::<u16>()?.iter().map(|v| *v as i64).collect(),
        other => bail!(InvalidArgument, "expected integers, got {other}"),
    })
}

/// An input's elements, widened.
pub(crate) fn input_ints(cx: &KernelCx<'_>, input: usize) -> Result<Ints> {
    ints(cx.input(input)?)
}

/// An input's elements, widened, if they are known before running.
pub(crate) fn constant_ints(s: &ShapeCx<'_>, input: usize) -> Result<Option<Ints>> {
    s.constant(input).map(ints).transpose()
}

/// An input's only element, if it is known before running.
pub(crate) fn constant_int(s: &ShapeCx<'_>, input: usize) -> Result<Option<i64>> {
    Ok(match constant_ints(s, input)?.as_deref() {
        Some([value]) => Some(*value),
        _ => None,
    })
}

/// The axis counted from the front, if it is one of `rank` axes.
pub(crate) fn axis(axis: i64, rank: usize) -> Option<usize> {
    let rank = rank as i64;
    (-rank..rank).contains(&axis).then(|| (if axis < 0 { axis + rank } else { axis }) as usize)
}

/// An integer output of the type that an attribute chose, int32 or int64.
pub(crate) fn int_tensor(
    dtype: DType,
    shape: ferroflow_core::Shape,
    values: impl Iterator<Item = i64>,
) -> Result<Tensor> {
    let mut out = Tensor::zeros(if dtype == DType::Int64 { dtype } else { DType::Int32 }, shape);
    match dtype {
        DType::Int64 => out.flat_mut::<i64>()?.iter_mut().zip(values).for_each(|(out, value)| *out = value),
        _ => out.flat_mut::<i32>()?.iter_mut().zip(values).for_each(|(out, value)| *out = value as i32),
    }
    Ok(out)
}

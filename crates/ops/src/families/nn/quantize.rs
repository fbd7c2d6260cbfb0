//! Floats to and from integers of few bits, and both steps at once.

use crate::builders as ops;
use crate::numeric::Num;
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, kernels};
use multiversion::multiversion;

pub(crate) const OPS: &[&Op] = &[
    &QUANTIZE_AND_DEQUANTIZE,
    &QUANTIZE_AND_DEQUANTIZE_V2,
    &QUANTIZE_AND_DEQUANTIZE_V3,
    &QUANTIZE_AND_DEQUANTIZE_V4,
    &QUANTIZE_AND_DEQUANTIZE_V4_GRAD,
    &QUANTIZE_V2,
    &DEQUANTIZE,
];

static QUANTIZE_AND_DEQUANTIZE: Op = Op {
    name: "QuantizeAndDequantize",
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &[
        "signed_input: bool = true",
        "num_bits: int = 8",
        "range_given: bool = false",
        "input_min: float = 0.0",
        "input_max: float = 0.0",
        "T: {bfloat16, half, float, double}",
    ],
    shape: shapes::unchanged,
    deprecated_at: Some(22),
    gradient: Gradient::Fn(straight_through),
    kernels: kernels![v1_kernel: f32, f64],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static QUANTIZE_AND_DEQUANTIZE_V2: Op = Op {
    name: "QuantizeAndDequantizeV2",
    inputs: &["input: T", "input_min: T", "input_max: T"],
    attrs: &[
        "signed_input: bool = true",
        "num_bits: int = 8",
        "range_given: bool = false",
        "T: {bfloat16, half, float, double}",
        "round_mode: {'HALF_TO_EVEN', 'HALF_UP'} = 'HALF_TO_EVEN'",
        "narrow_range: bool = false",
        "axis: int = -1",
    ],
    shape: ranged_shape,
    deprecated_at: None,
    kernels: kernels![v2_kernel: f32, f64],
    ..QUANTIZE_AND_DEQUANTIZE
};

static QUANTIZE_AND_DEQUANTIZE_V3: Op = Op {
    name: "QuantizeAndDequantizeV3",
    inputs: &["input: T", "input_min: T", "input_max: T", "num_bits: int32"],
    attrs: &[
        "signed_input: bool = true",
        "range_given: bool = true",
        "T: {bfloat16, half, float, double}",
        "narrow_range: bool = false",
        "axis: int = -1",
    ],
    shape: ranged_shape,
    deprecated_at: None,
    kernels: kernels![v3_kernel: f32, f64],
    ..QUANTIZE_AND_DEQUANTIZE
};

static QUANTIZE_AND_DEQUANTIZE_V4: Op =
    Op { name: "QuantizeAndDequantizeV4", gradient: Gradient::Fn(v4_gradient), ..QUANTIZE_AND_DEQUANTIZE_V2 };

static QUANTIZE_AND_DEQUANTIZE_V4_GRAD: Op = Op {
    name: "QuantizeAndDequantizeV4Grad",
    inputs: &["gradients: T", "input: T", "input_min: T", "input_max: T"],
    outputs: &["input_backprop: T", "input_min_backprop: T", "input_max_backprop: T"],
    attrs: &["T: {bfloat16, half, float, double}", "axis: int = -1"],
    shape: v4_gradient_shape,
    deprecated_at: None,
    gradient: Gradient::Fn(v4_gradient_gradient),
    kernels: kernels![v4_gradient_kernel: f32, f64],
    ..QUANTIZE_AND_DEQUANTIZE
};

static QUANTIZE_V2: Op = Op {
    name: "QuantizeV2",
    inputs: &["input: float", "min_range: float", "max_range: float"],
    outputs: &["output: T", "output_min: float", "output_max: float"],
    attrs: &[
        "T: {qint8, quint8, qint32, qint16, quint16}",
        "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'",
        "round_mode: {'HALF_AWAY_FROM_ZERO', 'HALF_TO_EVEN'} = 'HALF_AWAY_FROM_ZERO'",
        "narrow_range: bool = false",
        "axis: int = -1",
        "ensure_minimum_range: float = 0.01",
    ],
    shape: quantize_shape,
    kernels: kernels![any quantize_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static DEQUANTIZE: Op = Op {
    name: "Dequantize",
    inputs: &["input: T", "min_range: float", "max_range: float"],
    outputs: &["output: dtype"],
    attrs: &[
        "T: {qint8, quint8, qint32, qint16, quint16}",
        "mode: {'MIN_COMBINED', 'MIN_FIRST', 'SCALED'} = 'MIN_COMBINED'",
        "narrow_range: bool = false",
        "axis: int = -1",
        "dtype: {bfloat16, float} = DT_FLOAT",
    ],
    shape: dequantize_shape,
    kernels: kernels![any dequantize_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// The number of ranges: one for all, or as many as elements along a dimension.
fn check_ranges(s: &ShapeCx<'_>, input: &PartialShape, axis: i64, ranges: [usize; 2]) -> Result<()> {
    let rank = if axis == -1 { 0 } else { 1 };
    let (min, max) = (s.rank(ranges[0], rank)?, s.rank(ranges[1], rank)?);
    let merged = s.merge(&min, &max)?;
    if axis == -1 {
        return Ok(());
    }
    ensure!(axis >= -1, InvalidArgument, "axis should be at least -1, got {axis}");
    let Some(dims) = input.dims() else { return Ok(()) };
    ensure!(
        (axis as usize) < dims.len(),
        InvalidArgument,
        "Shape must be at least rank {} but is rank {}",
        axis + 1,
        dims.len()
    );
    if let Some([count]) = merged.dims() {
        s.merge_dims(*count, dims[axis as usize])?;
    }
    Ok(())
}

fn ranged_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    check_ranges(s, &s.input(0), s.attr("axis")?, [1, 2])?;
    if s.num_inputs() > 3 {
        s.rank(3, 0)?;
    }
    shapes::unchanged(s)
}

fn v4_gradient_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.merge(&s.input(0), &s.input(1))?;
    check_ranges(s, &shape, s.attr("axis")?, [2, 3])?;
    s.set(0, shape);
    s.set(1, s.input(2));
    s.set(2, s.input(3));
    Ok(())
}

/// A real number that is rounded to few values.
trait Rounded: Num + PartialOrd + num_traits::Float {
    fn nearest_even(self) -> Self;
}

impl Rounded for f32 {
    #[inline(always)]
    fn nearest_even(self) -> f32 {
        self.round_ties_even()
    }
}

impl Rounded for f64 {
    #[inline(always)]
    fn nearest_even(self) -> f64 {
        self.round_ties_even()
    }
}

/// The attributes of both steps at once.
#[derive(Clone, Copy)]
struct Settings {
    signed: bool,
    narrow: bool,
    range_given: bool,
    half_up: bool,
    axis: i64,
}

/// A range scaled to integers, which may have moved one of its ends.
#[derive(Clone, Copy)]
struct Scaled<T> {
    min: T,
    max: T,
    scale: T,
    inverse: T,
}

impl Settings {
    fn check_bits(self, bits: i64, name: &str) -> Result<i64> {
        ensure!(
            bits > 0 && bits < if self.signed { 62 } else { 63 },
            InvalidArgument,
            "num_bits is out of range: {bits} with {name} {}",
            self.signed as u8
        );
        Ok(bits)
    }

    /// Scales as much as the integers of this many bits allow, with zero at zero.
    fn scaled<T: Rounded>(self, bits: i64, min: T, max: T) -> Scaled<T> {
        let least = match (self.signed, self.narrow) {
            (false, _) => 0,
            (true, true) => 1 - (1i64 << (bits - 1)),
            (true, false) => -(1i64 << (bits - 1)),
        };
        let most = if self.signed { (1i64 << (bits - 1)) - 1 } else { (1i64 << bits) - 1 };
        let (least, most) = (<T as Num>::from_f64(least as f64), <T as Num>::from_f64(most as f64));
        let side = |end: T, limit: T| if limit * end > T::ZERO { limit / end } else { T::max_value() };
        let (from_min, from_max) = (side(min, least), side(max, most));
        if from_min < from_max {
            let inverse = min / least;
            Scaled { min, max: most * inverse, scale: from_min, inverse }
        } else {
            let inverse = max / most;
            Scaled { min: least * inverse, max, scale: from_max, inverse }
        }
    }
}

#[multiversion(targets("x86_64+avx2+fma"))]
fn round_all<T: Rounded>(range: Scaled<T>, clamp: bool, half_up: bool, x: &[T], out: &mut [T]) {
    let half = <T as Num>::from_f64(0.5);
    for (out, x) in out.iter_mut().zip(x) {
        let mut x = *x;
        if clamp {
            x = if x < range.max { x } else { range.max };
            x = if x > range.min { x } else { range.min };
        }
        let scaled = x * range.scale;
        let rounded = if half_up { (scaled + half).floor() } else { scaled.nearest_even() };
        *out = rounded * range.inverse;
    }
}

/// A tensor as elements before, along and after a dimension; one range for all if there is none.
fn blocks(shape: &Shape, axis: i64) -> (usize, usize) {
    if axis < 0 {
        return (1, shape.elements());
    }
    let dims = shape.dims();
    let after = dims[axis as usize + 1..].iter().product::<i64>();
    (dims[axis as usize] as usize, after as usize)
}

/// Quantizes and dequantizes with the ranges of `ends`, or those of the input.
fn both_steps<T: Rounded>(
    cx: &KernelCx<'_>,
    settings: Settings,
    bits: i64,
    ends: Option<(&[T], &[T])>,
) -> Result<Tensor> {
    let input = cx.input(0)?;
    let mut output = cx.alloc::<T>(input.shape().clone())?;
    let x = input.flat::<T>()?;
    let (channels, length) = blocks(input.shape(), settings.axis);
    if x.is_empty() {
        return Ok(output);
    }
    let ranges: Vec<Scaled<T>> = match ends {
        Some((min, max)) => min.iter().zip(max).map(|(min, max)| settings.scaled(bits, *min, *max)).collect(),
        None => {
            let mut found = vec![(T::infinity(), T::neg_infinity()); channels];
            for (at, row) in x.chunks(length).enumerate() {
                let (min, max) = &mut found[at % channels];
                for x in row {
                    (*min, *max) = (num_traits::Float::min(*min, *x), num_traits::Float::max(*max, *x));
                }
            }
            found.into_iter().map(|(min, max)| settings.scaled(bits, min, max)).collect()
        }
    };
    // One range: cut anywhere; several: by rows.
    let width = if channels == 1 { 1 } else { length };
    cx.threads().parallel_rows(output.flat_mut()?, width, 4, |first, out| {
        let x = &x[first * width..][..out.len()];
        if channels == 1 {
            return round_all(ranges[0], settings.range_given, settings.half_up, x, out);
        }
        for (at, (x, out)) in x.chunks(width).zip(out.chunks_mut(width)).enumerate() {
            round_all(ranges[(first + at) % channels], settings.range_given, settings.half_up, x, out);
        }
    });
    Ok(output)
}

fn v1_kernel<T: Rounded>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings {
        signed: init.attr("signed_input")?,
        narrow: false,
        range_given: init.attr("range_given")?,
        half_up: false,
        axis: -1,
    };
    let bits = settings.check_bits(init.attr("num_bits")?, "signed_input_")?;
    let (min, max): (f32, f32) = (init.attr("input_min")?, init.attr("input_max")?);
    ensure!(
        !settings.range_given || min <= max,
        InvalidArgument,
        "Invalid range: input_min {min} > input_max {max}"
    );
    let (min, max) = (<T as Num>::from_f64(min.into()), <T as Num>::from_f64(max.into()));
    Kernel::sync(move |cx| {
        let ends = settings.range_given.then_some(([min], [max]));
        let ends = ends.as_ref().map(|(min, max)| (&min[..], &max[..]));
        Ok(both_steps(cx, settings, bits, ends)?.into())
    })
}

/// The ends of ranges that inputs give, checked.
fn given_ends<'a, T: Rounded>(
    cx: &'a KernelCx<'_>,
    settings: Settings,
) -> Result<Option<(&'a [T], &'a [T])>> {
    let (input, axis) = (cx.input(0)?, settings.axis);
    let rank = input.rank() as i64;
    ensure!(
        axis == -1 || (0..rank).contains(&axis),
        InvalidArgument,
        "Axis requested is larger than input dimensions. Axis: {axis} Input Dimensions: {rank}"
    );
    if !settings.range_given {
        return Ok(None);
    }
    let (min, max) = (cx.input(1)?, cx.input(2)?);
    if axis == -1 {
        ensure!(
            min.elements() == 1 && max.elements() == 1,
            InvalidArgument,
            "the ends of the range must be scalars"
        );
        let (low, high) = (min.flat::<T>()?[0], max.flat::<T>()?[0]);
        ensure!(low <= high, InvalidArgument, "Invalid range: input_min {low:?} > input_max {high:?}");
    } else {
        let depth = input.shape().dims()[axis as usize];
        for (name, tensor) in [("min", min), ("max", max)] {
            ensure!(
                tensor.rank() == 1,
                InvalidArgument,
                "Shape must be rank 1 for input_{name}_tensor when the axis is specified"
            );
            ensure!(
                tensor.elements() as i64 == depth,
                InvalidArgument,
                "input_{name}_tensor has incorrect size, was {} expected {depth} to match dim {axis} of the input {}",
                tensor.elements(),
                tensor.shape()
            );
        }
    }
    Ok(Some((min.flat::<T>()?, max.flat::<T>()?)))
}

fn v2_kernel<T: Rounded>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings {
        signed: init.attr("signed_input")?,
        narrow: init.attr("narrow_range")?,
        range_given: init.attr("range_given")?,
        half_up: init.attr::<String>("round_mode")? == "HALF_UP",
        axis: init.attr("axis")?,
    };
    let bits = settings.check_bits(init.attr("num_bits")?, "signed_input_")?;
    Kernel::sync(move |cx| {
        // Whatever the axis, as in stock.
        for (input, name) in [(1, "input_min"), (2, "input_max")] {
            let scalar = !settings.range_given || cx.input(input)?.rank() == 0;
            ensure!(scalar, InvalidArgument, "{name} must be a scalar.");
        }
        let ends = given_ends::<T>(cx, settings)?;
        Ok(both_steps(cx, settings, bits, ends)?.into())
    })
}

fn v3_kernel<T: Rounded>(init: &Init<'_>) -> Result<Kernel> {
    let settings = Settings {
        signed: init.attr("signed_input")?,
        narrow: init.attr("narrow_range")?,
        range_given: init.attr("range_given")?,
        half_up: false,
        axis: init.attr("axis")?,
    };
    Kernel::sync(move |cx| {
        let bits = cx.input(3)?;
        ensure!(
            bits.rank() == 0,
            InvalidArgument,
            "Invalid shape. The `num_bits` tensor should be a scalar. Got dimensions: {}",
            bits.rank()
        );
        let bits = settings.check_bits(cx.scalar_i64(3)?, "`signed_input_`")?;
        let ends = given_ends::<T>(cx, settings)?;
        Ok(both_steps(cx, settings, bits, ends)?.into())
    })
}

fn v4_gradient_kernel<T: Rounded>(init: &Init<'_>) -> Result<Kernel> {
    let axis: i64 = init.attr("axis")?;
    Kernel::sync(move |cx| {
        let (grads, input) = (cx.input(0)?, cx.input(1)?);
        ensure!(axis >= -1, InvalidArgument, "Axis must be at least -1. Found {axis}");
        ensure!(
            axis < input.rank() as i64,
            InvalidArgument,
            "Axis should be -1 or 0 or a positive value less than {}but given axis value was {axis}",
            input.rank()
        );
        ensure!(grads.shape() == input.shape(), InvalidArgument, "gradient and input must be the same size");
        let (channels, length) = blocks(input.shape(), axis);
        let (min, max) = (cx.input(2)?, cx.input(3)?);
        for (name, tensor) in [("min", min), ("max", max)] {
            if axis == -1 {
                ensure!(
                    tensor.rank() == 0,
                    InvalidArgument,
                    "input_{name} must be a scalar if axis is unspecified"
                );
                continue;
            }
            ensure!(
                tensor.rank() == 1,
                InvalidArgument,
                "Shape must be rank 1 for input_{name}_tensor when the axis is specified"
            );
            ensure!(
                tensor.elements() == channels,
                InvalidArgument,
                "{name} has incorrect size, expected {channels} was {}",
                tensor.elements()
            );
        }
        let (x, grads) = (input.flat::<T>()?, grads.flat::<T>()?);
        let (low, high) = (min.flat::<T>()?, max.flat::<T>()?);
        let mut output = cx.alloc::<T>(input.shape().clone())?;
        let length = length.max(1);
        cx.threads().parallel_rows(output.flat_mut::<T>()?, 1, 3, |first, out| {
            for (at, out) in (first..).zip(out) {
                let channel = at / length % channels;
                let inside = x[at] >= low[channel] && x[at] <= high[channel];
                *out = grads[at] * if inside { T::ONE } else { T::ZERO };
            }
        });
        let zeros = |like: &Tensor| cx.zeros(T::DTYPE, like.shape().clone());
        Ok([output, zeros(min)?, zeros(max)?].into())
    })
}

fn quantize_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let axis: i64 = s.attr("axis")?;
    let input = s.input(0);
    check_ranges_of(s, &input, axis)?;
    shapes::unchanged(s)?;
    let ranges = if axis == -1 { PartialShape::scalar() } else { s.input(1) };
    s.set(1, ranges.clone());
    s.set(2, ranges);
    Ok(())
}

fn dequantize_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    check_ranges_of(s, &s.input(0), s.attr("axis")?)?;
    shapes::unchanged(s)
}

/// As [`check_ranges`], but a single range may have any shape.
fn check_ranges_of(s: &ShapeCx<'_>, input: &PartialShape, axis: i64) -> Result<()> {
    ensure!(axis >= -1, InvalidArgument, "axis should be at least -1, got {axis}");
    if axis == -1 { Ok(()) } else { check_ranges(s, input, axis, [1, 2]) }
}

/// The integers of a type: the least, the greatest, and the number of bits.
#[derive(Clone, Copy)]
struct Limits {
    dtype: DType,
    least: i64,
    most: i64,
    bits: u32,
}

impl Limits {
    fn of(dtype: DType) -> Result<Limits> {
        let (least, most, bits) = match dtype {
            DType::Qint8 => (i8::MIN as i64, i8::MAX as i64, 8),
            DType::Quint8 => (0, u8::MAX as i64, 8),
            DType::Qint16 => (i16::MIN as i64, i16::MAX as i64, 16),
            DType::Quint16 => (0, u16::MAX as i64, 16),
            DType::Qint32 => (i32::MIN as i64, i32::MAX as i64, 32),
            _ => bail!(Unimplemented, "quantization has no kernel for T={}", dtype.name()),
        };
        Ok(Limits { dtype, least, most, bits })
    }

    /// Half of the integers, if some are negative.
    fn half(self) -> f64 {
        if self.least == 0 { 0.0 } else { (self.most as f64 - self.least as f64 + 1.0) / 2.0 }
    }

    /// The rounded value as one of the integers. Values beyond are stock's: conversions go through 32 bits.
    fn write(self, value: f32) -> i64 {
        (value as i32 as i64).clamp(self.least, self.most)
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    MinCombined,
    MinFirst,
    Scaled,
}

impl Mode {
    fn new(init: &Init<'_>) -> Result<Mode> {
        Ok(match init.attr::<String>("mode")?.as_str() {
            "MIN_COMBINED" => Mode::MinCombined,
            "MIN_FIRST" => Mode::MinFirst,
            _ => Mode::Scaled,
        })
    }
}

/// The integer of each number of a range, and the range's ends.
fn quantized(
    limits: Limits,
    (mode, half_to_even, narrow): (Mode, bool, bool),
    (min, max): (f32, f32),
    least_range: f32,
) -> Result<(impl Fn(f32) -> i64 + Sync, f32, f32)> {
    // What is not a number passes, as in stock.
    let falls = max < min;
    ensure!(!falls, InvalidArgument, "input_max_range must be larger than input_min_range.");
    let epsilon = f32::max(1.0, min.abs().max(max.abs())) * least_range;
    let mut low = min.min(0.0);
    let mut high = max.max(low + epsilon).max(0.0);
    let steps = limits.most as f64 - limits.least as f64;
    let scale = match mode {
        Mode::MinCombined => (steps / f64::from(high - low)) as f32,
        Mode::MinFirst if low == high => 0.0,
        Mode::MinFirst => (((1u64 << limits.bits) as f64 - 1.0) / f64::from(high - low)) as f32,
        Mode::Scaled => {
            let (least, most) = ((limits.least + i64::from(narrow)) as f32, limits.most as f32);
            let side = |limit: f32, end: f32| if limit * end > 0.0 { limit / end } else { f32::MAX };
            let scale = side(least, low).min(side(most, high));
            (low, high) = (least / scale, most / scale);
            scale
        }
    };
    let (half, rounded_min) = (limits.half() as f32, (low * scale).round());
    let (lower, upper) = ((limits.least as f32).max(-2.147_483_6e9), (limits.most as f32).min(2.147_483_5e9));
    let convert = move |x: f32| {
        let clamped = x.min(high).max(low);
        let value = match mode {
            Mode::MinCombined if limits.least < 0 => ((clamped - low) * scale - half).round(),
            Mode::MinCombined => (clamped - low) * scale + 0.5,
            Mode::MinFirst => {
                ((x * scale).round() - (rounded_min - limits.least as f32)).max(lower).min(upper)
            }
            Mode::Scaled if half_to_even => (clamped * scale).round_ties_even(),
            Mode::Scaled => (clamped * scale).round(),
        };
        limits.write(value)
    };
    Ok((convert, low, high))
}

fn quantize_kernel(init: &Init<'_>) -> Result<Kernel> {
    let limits = Limits::of(init.attr("T")?)?;
    let mode = Mode::new(init)?;
    let half_to_even = init.attr::<String>("round_mode")? == "HALF_TO_EVEN";
    ensure!(
        !half_to_even || mode == Mode::Scaled,
        InvalidArgument,
        "Round mode 'HALF_TO_EVEN' only supported for mode 'SCALED', but mode is '{}'.",
        init.attr::<String>("mode")?
    );
    let (narrow, axis, least_range): (bool, i64, f32) =
        (init.attr("narrow_range")?, init.attr("axis")?, init.attr("ensure_minimum_range")?);
    Kernel::sync(move |cx| {
        let (input, min, max) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        let rank = input.rank() as i64;
        ensure!(
            axis < rank || axis == -1,
            InvalidArgument,
            "Axis is on a zero-based index, so its value must always be less than number of input's dims, but given axis value was {axis} and input's dims was {rank}"
        );
        let (channels, length) = blocks(input.shape(), axis);
        for (name, tensor) in [("min_range", min), ("max_range", max)] {
            if axis == -1 {
                ensure!(
                    tensor.elements() == 1,
                    InvalidArgument,
                    "If axis is not specified, {name} must contain a single float element, but it contains {} elements",
                    tensor.elements()
                );
                continue;
            }
            let rule =
                "must be a 1-D tensor whose size matches the axis dimension of the input and output tensors";
            ensure!(
                tensor.rank() == 1,
                InvalidArgument,
                "If axis is specified, {name} {rule}, but {name} dims are {}",
                tensor.rank()
            );
            ensure!(
                tensor.elements() == channels,
                InvalidArgument,
                "If axis is specified, {name} {rule}, but {name} is a 1-D tensor of size {} and input's axis dimension is of size {channels}",
                tensor.elements()
            );
        }
        ensure!(
            channels == 1 || mode != Mode::MinFirst,
            Unimplemented,
            "MIN_FIRST mode is not implemented for Quantize with axis != -1."
        );
        let mut output = cx.alloc_dtype(limits.dtype, input.shape().clone())?;
        let ends = if channels == 1 { Shape::scalar() } else { min.shape().clone() };
        let (mut lows, mut highs) = (cx.alloc::<f32>(ends.clone())?, cx.alloc::<f32>(ends)?);
        let (x, min, max) = (input.flat::<f32>()?, min.flat::<f32>()?, max.flat::<f32>()?);
        let (lows_out, highs_out) = (lows.flat_mut::<f32>()?, highs.flat_mut::<f32>()?);
        let length = length.max(1);
        for channel in 0..channels {
            let kind = (mode, half_to_even, narrow);
            let (convert, low, high) = quantized(limits, kind, (min[channel], max[channel]), least_range)?;
            (lows_out[channel], highs_out[channel]) = (low, high);
            let rows = x.chunks(length).enumerate().skip(channel).step_by(channels);
            for (row, x) in rows {
                let start = row * length;
                let pairs = x.iter().map(|x| convert(*x));
                match limits.bits {
                    8 => write(&mut output.units_mut::<u8>()?[start..], pairs.map(|x| x as u8)),
                    16 => write(&mut output.units_mut::<u16>()?[start..], pairs.map(|x| x as u16)),
                    _ => write(&mut output.units_mut::<u32>()?[start..], pairs.map(|x| x as u32)),
                }
            }
        }
        Ok([output, lows, highs].into())
    })
}

fn write<U>(out: &mut [U], values: impl Iterator<Item = U>) {
    for (out, value) in out.iter_mut().zip(values) {
        *out = value;
    }
}

fn dequantize_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (limits, out_type) = (Limits::of(init.attr("T")?)?, init.attr::<DType>("dtype")?);
    let mode = Mode::new(init)?;
    ensure!(
        out_type == DType::Float || mode == Mode::MinCombined,
        InvalidArgument,
        "When output type is bfloat16, Mode string must be 'MIN_COMBINED', is '{}'",
        init.attr::<String>("mode")?
    );
    let (narrow, axis): (bool, i64) = (init.attr("narrow_range")?, init.attr("axis")?);
    Kernel::sync(move |cx| {
        let (input, min, max) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
        ensure!(
            axis < input.rank() as i64,
            InvalidArgument,
            "Axis must be less than input dimension({}), got {axis}",
            input.rank()
        );
        let (channels, length) = blocks(input.shape(), axis);
        for (name, tensor) in [("min", min), ("max", max)] {
            ensure!(
                tensor.elements() == channels,
                InvalidArgument,
                "input_{name}_tensor must have as many elements as input on the dequantization axis ({axis}), got {}, expected {channels}",
                tensor.elements()
            );
        }
        ensure!(
            channels == 1 || mode != Mode::MinFirst,
            Unimplemented,
            "MIN_FIRST mode is not implemented for Dequantize with axis != -1."
        );
        let mut integers: Vec<f32> = match limits.dtype {
            DType::Qint8 => input.units::<u8>()?.iter().map(|x| f32::from(*x as i8)).collect(),
            DType::Quint8 => input.units::<u8>()?.iter().map(|x| f32::from(*x)).collect(),
            DType::Qint16 => input.units::<u16>()?.iter().map(|x| f32::from(*x as i16)).collect(),
            DType::Quint16 => input.units::<u16>()?.iter().map(|x| f32::from(*x)).collect(),
            _ => input.units::<u32>()?.iter().map(|x| *x as i32 as f32).collect(),
        };
        if mode == Mode::Scaled && channels == 1 && limits.bits == 32 {
            // Stock's way leads through a float back to an integer, which the greatest ones leave at the other end.
            integers.iter_mut().filter(|x| **x >= 2_147_483_648.0).for_each(|x| *x = -*x);
        }
        let mut output = cx.alloc::<f32>(input.shape().clone())?;
        let (min, max, length) = (min.flat::<f32>()?, max.flat::<f32>()?, length.max(1));
        let rows = output.flat_mut::<f32>()?.chunks_mut(length).zip(integers.chunks(length));
        let lines: Vec<Line> =
            min.iter().zip(max).map(|(min, max)| Line::new(limits, mode, narrow, *min, *max)).collect();
        for (row, (out, x)) in rows.enumerate() {
            let line = lines[row % channels];
            for (out, x) in out.iter_mut().zip(x) {
                *out = (*x + line.shift) * line.scale + line.offset;
            }
        }
        if out_type == DType::Float {
            return Ok(output.into());
        }
        let mut narrow = cx.alloc::<bf16>(output.shape().clone())?;
        write(narrow.flat_mut::<bf16>()?, output.flat::<f32>()?.iter().map(|x| bf16::from_f32(*x)));
        Ok(narrow.into())
    })
}

/// The line that takes integers back to numbers.
#[derive(Clone, Copy)]
struct Line {
    shift: f32,
    scale: f32,
    offset: f32,
}

impl Line {
    fn new(limits: Limits, mode: Mode, narrow: bool, min: f32, max: f32) -> Line {
        let steps = limits.most as f32 - limits.least as f32;
        match mode {
            Mode::MinCombined => {
                Line { shift: limits.half() as f32, scale: (max - min) / steps, offset: min }
            }
            Mode::MinFirst => {
                let count = (1u64 << limits.bits) as f64 - 1.0;
                let scale = (f64::from(max - min) / count) as f32;
                let rounded = if max == min { min } else { (min / scale).round() * scale };
                Line { shift: 0.0, scale, offset: rounded - limits.least as f32 * scale }
            }
            Mode::Scaled => {
                let from_max = max / limits.most as f32;
                let scale = if limits.least == 0 {
                    from_max
                } else {
                    (min / (limits.least + i64::from(narrow)) as f32).max(from_max)
                };
                Line { shift: 0.0, scale, offset: 0.0 }
            }
        }
    }
}

/// Rounding is as if it were not there; ranges and bits have no gradient.
fn straight_through(g: &GradCx<'_>) -> Result<InputGrads> {
    let mut grads = vec![None; g.num_inputs()];
    grads[0] = Some(g.dy(0)?);
    Ok(grads.into())
}

fn v4_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::QuantizeAndDequantizeV4Grad::new().axis(g.attr("axis")?);
    let grads = node.build(g.scope(), g.dy(0)?, g.input(0), g.input(1), g.input(2))?;
    Ok([grads.input_backprop, grads.input_min_backprop, grads.input_max_backprop].into())
}

/// Gradients pass where they passed before. Stock's function for this op gives one gradient too few.
fn v4_gradient_gradient(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = ops::QuantizeAndDequantizeV4Grad::new().axis(g.attr("axis")?);
    let grads = node.build(g.scope(), g.dy(0)?, g.input(1), g.input(2), g.input(3))?;
    Ok([Some(grads.input_backprop), None, None, None].into())
}

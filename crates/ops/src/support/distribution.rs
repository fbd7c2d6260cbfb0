//! Random words to uniform and normal numbers, in stock's order and rounding, and loops that fill tensors with them.

use crate::numeric::philox::{Block, Philox};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::KernelCx;
use ferroflow_core::op::ShapeCx;
use ferroflow_core::{Element, Result, Shape, bf16, ensure, f16};

/// A float type that distributions yield.
pub(crate) trait Sample: Element + Copy {
    /// The number of values that one block of words yields.
    const GROUP: usize;
    /// The type that normal numbers are computed in.
    type Wide: Copy;
    /// Uniform numbers in `[0, 1)`; only the first `GROUP` count.
    fn uniform(block: Block) -> [Self; 4];
    /// Normal numbers; only the first `GROUP` count.
    fn normal(block: Block) -> [Self::Wide; 4];
    /// Rounds.
    fn narrow(value: Self::Wide) -> Self;
    /// Whether a value lies within two standard deviations.
    fn is_central(value: Self::Wide) -> bool;
}

macro_rules! sample_f32 {
    ($type:ty, $uniform:expr, $narrow:expr) => {
        impl Sample for $type {
            const GROUP: usize = 4;
            type Wide = f32;
            #[inline(always)]
            fn uniform(block: Block) -> [$type; 4] {
                block.map($uniform)
            }
            #[inline(always)]
            fn normal(block: Block) -> [f32; 4] {
                let [(a, b), (c, d)] = [box_muller(block[0], block[1]), box_muller(block[2], block[3])];
                [a, b, c, d]
            }
            #[inline(always)]
            fn narrow(value: f32) -> $type {
                $narrow(value)
            }
            #[inline(always)]
            fn is_central(value: f32) -> bool {
                value.abs() < 2.0
            }
        }
    };
}
sample_f32!(f32, uniform_f32, |value: f32| value);
// Mantissa bits under the exponent of 1, minus 1: exact in either type.
sample_f32!(f16, |word: u32| f16::from_bits(15 << 10 | word as u16 & 0x3ff) - f16::ONE, f16::from_f32);
sample_f32!(bf16, |word: u32| bf16::from_bits(127 << 7 | word as u16 & 0x7f) - bf16::ONE, bf16::from_f32);

impl Sample for f64 {
    const GROUP: usize = 2;
    type Wide = f64;
    #[inline(always)]
    fn uniform(block: Block) -> [f64; 4] {
        [uniform_f64(block[0], block[1]), uniform_f64(block[2], block[3]), 0.0, 0.0]
    }
    #[inline(always)]
    fn normal(block: Block) -> [f64; 4] {
        let radius = (-2.0 * uniform_f64(block[0], block[1]).max(1.0e-7).ln()).sqrt();
        let (sin, cos) = (std::f64::consts::TAU * uniform_f64(block[2], block[3])).sin_cos();
        [sin * radius, cos * radius, 0.0, 0.0]
    }
    #[inline(always)]
    fn narrow(value: f64) -> f64 {
        value
    }
    #[inline(always)]
    fn is_central(value: f64) -> bool {
        value.abs() < 2.0
    }
}

#[inline(always)]
pub(crate) fn uniform_f32(word: u32) -> f32 {
    f32::from_bits(127 << 23 | word & 0x7f_ffff) - 1.0
}

#[inline(always)]
fn uniform_f64(high: u32, low: u32) -> f64 {
    f64::from_bits(1023 << 52 | ((high & 0xf_ffff) as u64) << 32 | low as u64) - 1.0
}

#[inline(always)]
fn box_muller(x: u32, y: u32) -> (f32, f32) {
    let radius = (-2.0 * uniform_f32(x).max(1.0e-7).ln()).sqrt();
    // Stock multiplies by a double and rounds once.
    let angle = (std::f64::consts::TAU * uniform_f32(y) as f64) as f32;
    let (sin, cos) = angle.sin_cos();
    (sin * radius, cos * radius)
}

/// An integer type that distributions yield.
pub(crate) trait IntSample: Element + Copy {
    /// The number of values that one block of words yields.
    const GROUP: usize;
    /// Values of full range; only the first `GROUP` count.
    fn full(block: Block) -> [Self; 4];
}

/// An integer type with bounded uniform values.
pub(crate) trait BoundedSample: IntSample + PartialOrd + std::fmt::Display {
    /// Maps values of full range into `low..high`.
    fn bounded(low: Self, high: Self) -> impl Fn(Self) -> Self + Sync;
}

macro_rules! int_sample {
    ($($type:ty, $group:literal, $block:ident => $full:expr;)+) => {$(
        impl IntSample for $type {
            const GROUP: usize = $group;
            #[inline(always)]
            fn full($block: Block) -> [$type; 4] {
                $full
            }
        }
    )+};
}
int_sample! {
    u32, 4, block => block;
    i32, 4, block => block.map(|word| word as i32);
    u64, 2, block => [join(block[0], block[1]), join(block[2], block[3]), 0, 0];
    i64, 2, block => [join(block[0], block[1]) as i64, join(block[2], block[3]) as i64, 0, 0];
}

macro_rules! bounded_sample {
    ($($type:ty, $unsigned:ty;)+) => {$(
        impl BoundedSample for $type {
            fn bounded(low: $type, high: $type) -> impl Fn($type) -> $type + Sync {
                let range = (high as $unsigned).wrapping_sub(low as $unsigned);
                move |value| low.wrapping_add((value as $unsigned % range) as $type)
            }
        }
    )+};
}
bounded_sample! { i32, u32; i64, u64; }

#[inline(always)]
fn join(low: u32, high: u32) -> u64 {
    low as u64 | (high as u64) << 32
}

/// Fills `out`, block by block: block `i` yields values `group * i ..`, on however many threads.
pub(crate) fn fill<T: Element + Copy>(
    threads: Threads<'_>,
    philox: Philox,
    out: &mut [T],
    group: usize,
    cost: usize,
    convert: impl Fn(Block) -> [T; 4] + Sync,
) {
    const BATCH: usize = 32;
    threads.parallel_rows(out, group, cost, |first, part| {
        let mut philox = philox.skipped(first as u64);
        let mut blocks = [[0; 4]; BATCH];
        for batch in part.chunks_mut(BATCH * group) {
            let count = batch.len().div_ceil(group);
            philox.blocks(&mut blocks[..count]);
            for (values, block) in batch.chunks_mut(group).zip(&blocks) {
                let converted = convert(*block);
                // Whole groups are stored without a call.
                match values {
                    [a, b, c, d] => [*a, *b, *c, *d] = converted,
                    [a, b] => [*a, *b] = [converted[0], converted[1]],
                    rest => rest.copy_from_slice(&converted[..rest.len()]),
                }
            }
        }
    });
}

/// Fills `out` with uniform numbers in `[0, 1)`.
pub(crate) fn fill_uniform<T: Sample>(threads: Threads<'_>, philox: Philox, out: &mut [T]) {
    fill(threads, philox, out, T::GROUP, 2, T::uniform);
}

/// Fills `out` with normal numbers.
pub(crate) fn fill_normal<T: Sample>(threads: Threads<'_>, philox: Philox, out: &mut [T]) {
    fill(threads, philox, out, T::GROUP, 20, |block| {
        let values = T::normal(block);
        [T::narrow(values[0]), T::narrow(values[1]), T::narrow(values[2]), T::narrow(values[3])]
    });
}

/// Fills `out` with normal numbers within two standard deviations. Each group of values draws from a stretch of the
/// stream of its own, as long as it needs.
pub(crate) fn fill_truncated<T: Sample>(threads: Threads<'_>, philox: Philox, out: &mut [T]) {
    let stretch = T::GROUP as u64 * 64;
    threads.parallel_rows(out, T::GROUP, 30, |first, part| {
        for (group, values) in part.chunks_mut(T::GROUP).enumerate() {
            let mut philox = philox.skipped((first + group) as u64 * stretch);
            let mut filled = 0;
            while filled < values.len() {
                let normals = T::normal(philox.block());
                for normal in normals.into_iter().take(T::GROUP).filter(|value| T::is_central(*value)) {
                    if let Some(slot) = values.get_mut(filled) {
                        *slot = T::narrow(normal);
                        filled += 1;
                    }
                }
            }
        }
    });
}

/// Fills `out` with integers of full range.
pub(crate) fn fill_full_int<T: IntSample>(threads: Threads<'_>, philox: Philox, out: &mut [T]) {
    fill(threads, philox, out, T::GROUP, 2, T::full);
}

/// Fills `out` with integers in `low..high`, which must not be empty.
pub(crate) fn fill_int<T: BoundedSample>(
    threads: Threads<'_>,
    philox: Philox,
    out: &mut [T],
    low: T,
    high: T,
) {
    let bounded = T::bounded(low, high);
    fill(threads, philox, out, T::GROUP, 4, |block| T::full(block).map(&bounded));
}

/// Numbers drawn one at a time, the last of each block first, as stock's rejection samplers do.
pub(crate) struct Backward<T> {
    values: [T; 4],
    left: usize,
}

impl<T: Sample> Backward<T> {
    pub(crate) fn new() -> Backward<T> {
        Backward { values: [T::default(); 4], left: 0 }
    }

    pub(crate) fn next(&mut self, philox: &mut Philox, draw: impl Fn(Block) -> [T; 4]) -> T {
        if self.left == 0 {
            self.values = draw(philox.block());
            self.left = T::GROUP;
        }
        self.left -= 1;
        self.values[self.left]
    }
}

/// The shape that a vector input describes.
pub(crate) fn shape_input(cx: &KernelCx<'_>, input: usize) -> Result<Shape> {
    let shape = cx.input(input)?;
    ensure!(
        shape.rank() == 1,
        InvalidArgument,
        "shape must be a vector of {{int32,int64}}, got shape {}",
        shape.shape()
    );
    Shape::new(shape.to_i64s()?)
}

/// The bounds of integers: two scalar inputs, the first below the second.
pub(crate) fn bounds_inputs<T: BoundedSample>(cx: &KernelCx<'_>, first: usize) -> Result<(T, T)> {
    for (input, name) in [(first, "minval"), (first + 1, "maxval")] {
        let shape = cx.input(input)?.shape();
        ensure!(shape.is_scalar(), InvalidArgument, "{name} must be 0-D, got shape {shape}");
    }
    let (low, high) = (cx.scalar::<T>(first)?, cx.scalar::<T>(first + 1)?);
    ensure!(low < high, InvalidArgument, "Need minval < maxval, got {low} >= {high}");
    Ok((low, high))
}

/// The shape function of ops whose first input is the shape of their output.
pub(crate) fn infer_from_shape_input(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.constant_shape(0)?;
    s.set(0, shape);
    Ok(())
}

/// The shape of samples for every element of a parameter: the first input, then the shape of the second.
pub(crate) fn infer_appended(s: &mut ShapeCx<'_>) -> Result<()> {
    let (samples, parameter) = (s.constant_shape(0)?, s.input(1));
    match (samples.dims(), parameter.dims()) {
        (Some(outer), Some(inner)) => s.output(0, outer.iter().chain(inner).copied()),
        _ => Ok(()),
    }
}

/// Checks that an input may be a pair of seeds.
pub(crate) fn infer_seed(s: &ShapeCx<'_>, input: usize) -> Result<()> {
    if let Some(dims) = s.rank(input, 1)?.dims() {
        s.merge_dims(dims[0], 2)?;
    }
    Ok(())
}

/// A parameter's values, repeated so that there is one for each element of a shape that it broadcasts to.
pub(crate) fn broadcast_parameter<T: Copy>(values: &[T], from: &Shape, to: &Shape) -> Vec<T> {
    if values.len() == to.elements() {
        return values.to_vec();
    }
    let missing = to.rank() - from.rank();
    let index = |mut flat: usize| {
        let (mut at, mut stride) = (0, 1);
        for axis in (0..to.rank()).rev() {
            let coordinate = flat % to.dim(axis);
            flat /= to.dim(axis);
            if axis >= missing {
                let dim = from.dim(axis - missing);
                at += if dim == 1 { 0 } else { coordinate * stride };
                stride *= dim;
            }
        }
        at
    };
    (0..to.elements()).map(|flat| values[index(flat)]).collect()
}

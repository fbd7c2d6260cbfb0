//! Conversions between element types.
//!
//! The pairs that models use are converted directly; the others go through the widest type of the source's kind, a
//! small block at a time, which keeps the number of loops linear in the number of types.

use crate::builders as ops;
use crate::linalg::elementwise::Loop;
use crate::linalg::float8::Float8;
use crate::numeric::{Float, Int};
use crate::support::cwise::{self, ARITHMETIC};
use ferroflow_core::kernel::{Init, Kernel, Outputs};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, shapes};
use ferroflow_core::{C64, C128, DType, Element, Result, Tensor, bail, bf16, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&CAST, &HOST_CAST];

static CAST: Op = Op {
    name: "Cast",
    gradient: Gradient::Fn(cast_grad),
    inputs: &["x: SrcT"],
    outputs: &["y: DstT"],
    attrs: &["SrcT: type", "DstT: type", "Truncate: bool = false"],
    shape: shapes::unchanged,
    kernels: kernels![any cast],
    ..Op::PURE
};

/// The same; stock keeps the memory of its operands on the host.
static HOST_CAST: Op = Op { name: "_HostCast", gradient: Gradient::Undefined, ..CAST };

fn cast(init: &Init<'_>) -> Result<Kernel> {
    let (from, to) = (init.input_types[0], init.output_types[0]);
    if from == to {
        return Kernel::sync(|cx| Ok(cx.take(0)?.into()));
    }
    let (source, target) = (plain(from), plain(to));
    if source == target {
        return Kernel::sync(move |cx| Ok(cx.take(0)?.bitcast(to)?.into()));
    }
    let kernel = match convert(source, target, init.attr("Truncate")?)? {
        Some(kernel) => kernel,
        None => bail!(Unimplemented, "Cast {from} to {to} is not supported"),
    };
    if (source, target) == (from, to) {
        return Ok(kernel);
    }
    let Kernel::Sync(run) = kernel else { return Ok(kernel) };
    Kernel::sync(move |cx| {
        if source != from {
            let input = cx.take(0)?.bitcast(source)?;
            cx.put(0, input);
        }
        match run(cx)? {
            Outputs::One(value) if target != to => Ok(value.read()?.bitcast(to)?.into()),
            outputs => Ok(outputs),
        }
    })
}

/// Quantized values have the bits of the plain type of the same width.
fn plain(dtype: DType) -> DType {
    match dtype {
        DType::Qint8 => DType::Int8,
        DType::Quint8 => DType::Uint8,
        DType::Qint16 => DType::Int16,
        DType::Quint16 => DType::Uint16,
        DType::Qint32 => DType::Int32,
        other => other,
    }
}

fn convert(from: DType, to: DType, truncate: bool) -> Result<Option<Kernel>> {
    use DType::*;
    if truncate && let Some(kernel) = truncating(from, to)? {
        return Ok(Some(kernel));
    }
    let direct = |function| cwise::with_output(to, ARITHMETIC, function).map(Some);
    match (from, to) {
        (Float, Double) => return direct(Loop::map(|x: f32| x as f64)),
        (Double, Float) => return direct(Loop::map(|x: f64| x as f32)),
        (Float, Int32) => return direct(Loop::map(|x: f32| x.to_i32())),
        (Float, Int64) => return direct(Loop::map(|x: f32| x.to_i64())),
        (Float, Bool) => return direct(Loop::map(|x: f32| x != 0.0)),
        (Float, Uint8) => return direct(Loop::map(|x: f32| x.to_i32() as u8)),
        (Float, Half) => return direct(Loop::map(f16::from_f32)),
        (Float, Bfloat16) => return direct(Loop::map(bf16::from_f32)),
        (Half, Float) => return direct(Loop::map(f16::to_f32)),
        (Bfloat16, Float) => return direct(Loop::map(bf16::to_f32)),
        (Int32, Float) => return direct(Loop::map(|x: i32| x as f32)),
        (Int64, Float) => return direct(Loop::map(|x: i64| x as f32)),
        (Uint8, Float) => return direct(Loop::map(|x: u8| x as f32)),
        (Bool, Float) => return direct(Loop::map(|x: bool| x as u8 as f32)),
        (Bool, Int32) => return direct(Loop::map(|x: bool| x as i32)),
        (Bool, Int64) => return direct(Loop::map(|x: bool| x as i64)),
        (Int32, Int64) => return direct(Loop::map(|x: i32| x as i64)),
        (Int64, Int32) => return direct(Loop::map(|x: i64| x as i32)),
        (Complex64, Complex128) => return direct(Loop::map(|x: C64| C128::new(x.re as f64, x.im as f64))),
        (Complex128, Complex64) => return direct(Loop::map(|x: C128| C64::new(x.re as f32, x.im as f32))),
        _ => {}
    }
    let floating =
        |dtype: DType| matches!(dtype, Half | Bfloat16 | Float | Double | Float8E5M2 | Float8E4M3Fn);
    let known = match (from, to) {
        // Stock makes these types of their own kind only, and numbers of four bits stay among integers.
        (Int4 | Uint4, to) => to.is_integer(),
        (from, Int4 | Uint4) => from.is_integer(),
        (from, Float8E5M2 | Float8E4M3Fn) => floating(from),
        _ => true,
    };
    if !known {
        return Ok(None);
    }
    let kernel = match from {
        Float8E5M2 => through(read_e5m2, to),
        Float8E4M3Fn => through(read_e4m3fn, to),
        Int4 => through(read_signed_nibbles, to),
        Uint4 => through(read_nibbles, to),
        Bool => through(read_bools, to),
        Int8 => through(read_ints::<i8>, to),
        Int16 => through(read_ints::<i16>, to),
        Int32 => through(read_ints::<i32>, to),
        Int64 => through(read_ints::<i64>, to),
        Uint8 => through(read_ints::<u8>, to),
        Uint16 => through(read_ints::<u16>, to),
        Uint32 => through(read_ints::<u32>, to),
        // Above the middle, 64 unsigned bits are another number than 64 signed ones.
        Uint64 if to.is_floating() || to.is_complex() => through(read_unsigned, to),
        Uint64 => through(read_ints::<u64>, to),
        Half => through(read_floats::<f16>, to),
        Bfloat16 => through(read_floats::<bf16>, to),
        Float => through(read_floats::<f32>, to),
        Double => through(read_doubles, to),
        Complex64 => through(read_single_parts, to),
        Complex128 => through(read_double_parts, to),
        _ => return Ok(None),
    };
    kernel.transpose()
}

/// Conversions that drop digits instead of rounding: the digits are cleared first.
fn truncating(from: DType, to: DType) -> Result<Option<Kernel>> {
    use DType::*;
    let direct = |function| cwise::with_output(to, ARITHMETIC, function).map(Some);
    let single = |x: f32, bits: u32| f32::from_bits(x.to_bits() & (u32::MAX << bits));
    let double = |x: f64, bits: u32| f64::from_bits(x.to_bits() & (u64::MAX << bits));
    match (from, to) {
        (Double, Float) => direct(Loop::map(move |x: f64| double(x, 29) as f32)),
        (Double, Half) => direct(Loop::map(move |x: f64| f16::from_f32(double(x, 42) as f32))),
        (Float, Half) => direct(Loop::map(move |x: f32| f16::from_f32(single(x, 13)))),
        (Float, Bfloat16) => direct(Loop::map(move |x: f32| bf16::from_f32(single(x, 16)))),
        // Stock rounds here all the same.
        _ => Ok(None),
    }
}

/// A type that conversions go through.
trait Wide: Element + Copy {
    fn to_i32(self) -> i32;
    fn to_i64(self) -> i64;
    fn to_f32(self) -> f32;
    fn to_f64(self) -> f64;
    fn is_set(self) -> bool;
}

macro_rules! wide_floats {
    ($($type:ty),+) => {$(
        impl Wide for $type {
            // Numbers out of range, and NaN, give the least integer: what the x86 instruction answers.
            #[inline(always)]
            fn to_i32(self) -> i32 {
                if (-2_147_483_648.0..2_147_483_648.0).contains(&self) { self as i32 } else { i32::MIN }
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                if self >= i64::MIN as $type && self < i64::MAX as $type { self as i64 } else { i64::MIN }
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn is_set(self) -> bool {
                self != 0.0
            }
        }
    )+};
}
wide_floats!(f32, f64);

macro_rules! wide_integers {
    ($($type:ty),+) => {$(
        impl Wide for $type {
            #[inline(always)]
            fn to_i32(self) -> i32 {
                self as i32
            }
            #[inline(always)]
            fn to_i64(self) -> i64 {
                self as i64
            }
            #[inline(always)]
            fn to_f32(self) -> f32 {
                self as f32
            }
            #[inline(always)]
            fn to_f64(self) -> f64 {
                self as f64
            }
            #[inline(always)]
            fn is_set(self) -> bool {
                self != 0
            }
        }
    )+};
}
wide_integers!(i64, u64);

/// Elements per block.
const BLOCK: usize = 512;

/// Fills a block from the elements that begin at an index.
type Read<W> = fn(&Tensor, usize, &mut [W]) -> Result<()>;
/// Stores a block at an index.
type Write<W> = fn(&mut Tensor, usize, &[W]) -> Result<()>;

/// A kernel that reads blocks of `W` and writes them as `to`; none if there is no such conversion.
fn through<W: Wide>(read: Read<W>, to: DType) -> Option<Result<Kernel>> {
    use DType::*;
    let write: Write<W> = match to {
        Bool => |out, at, block| put::<u8, W>(out.units_mut()?, at, block, |x| x.is_set() as u8),
        Int8 => |out, at, block| put::<i8, W>(out.flat_mut()?, at, block, |x| x.to_i32() as i8),
        Int16 => |out, at, block| put::<i16, W>(out.flat_mut()?, at, block, |x| x.to_i32() as i16),
        Int32 => |out, at, block| put::<i32, W>(out.flat_mut()?, at, block, W::to_i32),
        Int64 => |out, at, block| put::<i64, W>(out.flat_mut()?, at, block, W::to_i64),
        Uint8 => |out, at, block| put::<u8, W>(out.flat_mut()?, at, block, |x| x.to_i32() as u8),
        Uint16 => |out, at, block| put::<u16, W>(out.flat_mut()?, at, block, |x| x.to_i32() as u16),
        Uint32 => |out, at, block| put::<u32, W>(out.flat_mut()?, at, block, |x| x.to_i64() as u32),
        Uint64 => |out, at, block| put::<u64, W>(out.flat_mut()?, at, block, to_u64),
        Int4 | Uint4 => {
            |out, at, block| put::<u8, W>(out.units_mut()?, at, block, |x| x.to_i64() as u8 & 0xf)
        }
        Float8E5M2 => {
            |out, at, block| put::<u8, W>(out.units_mut()?, at, block, |x| Float8::E5M2.encode(x.to_f64()))
        }
        Float8E4M3Fn => {
            |out, at, block| put::<u8, W>(out.units_mut()?, at, block, |x| Float8::E4M3Fn.encode(x.to_f64()))
        }
        Half => |out, at, block| put::<f16, W>(out.flat_mut()?, at, block, |x| f16::from_f32(x.to_f32())),
        Bfloat16 => {
            |out, at, block| put::<bf16, W>(out.flat_mut()?, at, block, |x| bf16::from_f32(x.to_f32()))
        }
        Float => |out, at, block| put::<f32, W>(out.flat_mut()?, at, block, W::to_f32),
        Double => |out, at, block| put::<f64, W>(out.flat_mut()?, at, block, W::to_f64),
        Complex64 => {
            |out, at, block| put::<C64, W>(out.flat_mut()?, at, block, |x| C64::new(x.to_f32(), 0.0))
        }
        Complex128 => {
            |out, at, block| put::<C128, W>(out.flat_mut()?, at, block, |x| C128::new(x.to_f64(), 0.0))
        }
        _ => return None,
    };
    Some(Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let mut out = cx.alloc_dtype(to, input.shape().clone())?;
        let mut block = [W::default(); BLOCK];
        for start in (0..input.elements()).step_by(BLOCK) {
            let block = &mut block[..BLOCK.min(input.elements() - start)];
            read(input, start, block)?;
            write(&mut out, start, block)?;
        }
        Ok(out.into())
    }))
}

/// Floats above the signed range keep their value; negative ones wrap.
#[inline(always)]
fn to_u64<W: Wide>(x: W) -> u64 {
    const MIDDLE: f64 = 9_223_372_036_854_775_808.0;
    if W::DTYPE.is_floating() && x.to_f64() >= MIDDLE { x.to_f64() as u64 } else { x.to_i64() as u64 }
}

#[inline(always)]
fn put<D, W: Wide>(out: &mut [D], at: usize, block: &[W], f: impl Fn(W) -> D) -> Result<()> {
    for (out, x) in out[at..at + block.len()].iter_mut().zip(block) {
        *out = f(*x);
    }
    Ok(())
}

#[inline(always)]
fn get<S: Element, W>(input: &Tensor, at: usize, block: &mut [W], f: impl Fn(&S) -> W) -> Result<()> {
    let source = &input.flat::<S>()?[at..at + block.len()];
    for (out, x) in block.iter_mut().zip(source) {
        *out = f(x);
    }
    Ok(())
}

/// Like [`get`], for types without an element type of their own.
#[inline(always)]
fn get_bytes<W>(input: &Tensor, at: usize, block: &mut [W], f: impl Fn(u8) -> W) -> Result<()> {
    let source = &input.units::<u8>()?[at..at + block.len()];
    for (out, x) in block.iter_mut().zip(source) {
        *out = f(*x);
    }
    Ok(())
}

fn read_e5m2(input: &Tensor, at: usize, block: &mut [f32]) -> Result<()> {
    get_bytes(input, at, block, |x| Float8::E5M2.decode(x))
}

fn read_e4m3fn(input: &Tensor, at: usize, block: &mut [f32]) -> Result<()> {
    get_bytes(input, at, block, |x| Float8::E4M3Fn.decode(x))
}

fn read_signed_nibbles(input: &Tensor, at: usize, block: &mut [i64]) -> Result<()> {
    get_bytes(input, at, block, |x| ((x << 4) as i8 >> 4) as i64)
}

fn read_nibbles(input: &Tensor, at: usize, block: &mut [i64]) -> Result<()> {
    get_bytes(input, at, block, |x| (x & 0xf) as i64)
}

fn read_bools(input: &Tensor, at: usize, block: &mut [i64]) -> Result<()> {
    get(input, at, block, |x: &bool| *x as i64)
}

fn read_ints<T: Int>(input: &Tensor, at: usize, block: &mut [i64]) -> Result<()> {
    get(input, at, block, |x: &T| Int::to_i64(*x))
}

fn read_unsigned(input: &Tensor, at: usize, block: &mut [u64]) -> Result<()> {
    get(input, at, block, |x: &u64| *x)
}

fn read_floats<T: Float<Math = f32>>(input: &Tensor, at: usize, block: &mut [f32]) -> Result<()> {
    get(input, at, block, |x: &T| x.to_math())
}

fn read_doubles(input: &Tensor, at: usize, block: &mut [f64]) -> Result<()> {
    get(input, at, block, |x: &f64| *x)
}

fn read_single_parts(input: &Tensor, at: usize, block: &mut [f32]) -> Result<()> {
    get(input, at, block, |x: &C64| x.re)
}

fn read_double_parts(input: &Tensor, at: usize, block: &mut [f64]) -> Result<()> {
    get(input, at, block, |x: &C128| x.re)
}

fn cast_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (from, dy) = (g.input(0).dtype(), g.dy(0)?);
    let continuous = |dtype: DType| dtype.is_floating() || dtype.is_complex();
    if !continuous(from) || !continuous(dy.dtype()) {
        return Ok(InputGrads::none(1));
    }
    Ok([ops::cast(g.scope(), dy, from)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{DType, Tensor};

    #[test]
    fn unsigned_values_above_the_middle_stay_positive() {
        let x = Tensor::vector(vec![u64::MAX, 1]);
        let out = Node::new("Cast").attr("DstT", DType::Double).run([x]).unwrap();
        assert_eq!(out[0].flat::<f64>().unwrap(), [18_446_744_073_709_551_615.0, 1.0]);
        let x = Tensor::vector(vec![1e19f64, 3.5]);
        let out = Node::new("Cast").attr("DstT", DType::Uint64).run([x]).unwrap();
        assert_eq!(out[0].flat::<u64>().unwrap(), [10_000_000_000_000_000_000, 3]);
    }
}

//! Kernels of element-wise functions: broadcasting, reuse of operand memory, and a short path for scalars.

use crate::linalg::broadcast::Broadcast;
use crate::linalg::elementwise::{self, Target};
use ferroflow_core::kernel::{Kernel, KernelCx, Outputs};
use ferroflow_core::{Code, Element, Result, Shape, Status, Tensor, status};

/// The work of an addition, in the units of [`ferroflow_core::device::Device::parallel_for`].
pub const ARITHMETIC: usize = 1;
/// The work of a vectorized function such as `exp`.
pub const POLYNOMIAL: usize = 4;
/// The work of a function that is computed one element at a time.
pub const FUNCTION: usize = 16;

/// A kernel that computes `f(x)` for each element, in place where it may.
pub fn unary<T, F>(cost: usize, f: F) -> Result<Kernel>
where
    T: Element + Copy,
    F: Fn(T) -> T + Copy + Send + Sync + 'static,
{
    Kernel::sync(move |cx| apply_unary(cx, cost, f))
}

/// A kernel that computes `fast(x)` for each element if all of them pass `guard`, else `slow(x)`. For functions whose
/// vectorized form has a limited domain.
pub fn unary_guarded<T, G, F, S>(guard: G, fast: F, slow: S) -> Result<Kernel>
where
    T: Element + Copy,
    G: Fn(T) -> bool + Send + Sync + 'static,
    F: Fn(T) -> T + Copy + Send + Sync + 'static,
    S: Fn(T) -> T + Copy + Send + Sync + 'static,
{
    Kernel::sync(move |cx| {
        let data = cx.flat::<T>(0)?;
        let all = |block: &[T]| block.iter().fold(true, |all, x| all & guard(*x));
        if data.chunks(4096).all(all) {
            apply_unary(cx, POLYNOMIAL, fast)
        } else {
            apply_unary(cx, FUNCTION, slow)
        }
    })
}

fn apply_unary<T, F>(cx: &mut KernelCx<'_>, cost: usize, f: F) -> Result<Outputs>
where
    T: Element + Copy,
    F: Fn(T) -> T + Copy + Sync,
{
    let input = cx.input(0)?;
    if let [x] = *input.flat::<T>()? {
        let shape = input.shape().clone();
        return single(cx, &[0], shape, f(x));
    }
    let elements = input.elements();
    if let Some((_, mut data)) = cx.take_reusable(&[0], T::DTYPE, elements) {
        elementwise::map_in_place(cx.device(), cost, data.flat_mut::<T>()?, f);
        return Ok(data.into());
    }
    let input = cx.input(0)?;
    let mut out = cx.alloc::<T>(input.shape().clone())?;
    elementwise::map(cx.device(), cost, input.flat::<T>()?, out.flat_mut::<T>()?, f);
    Ok(out.into())
}

/// A kernel that computes `f(x)` of another type for each element.
pub fn convert<T, U, F>(cost: usize, f: F) -> Result<Kernel>
where
    T: Element + Copy,
    U: Element + Copy,
    F: Fn(T) -> U + Copy + Send + Sync + 'static,
{
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let mut out = cx.alloc::<U>(input.shape().clone())?;
        elementwise::map(cx.device(), cost, input.flat::<T>()?, out.flat_mut::<U>()?, f);
        Ok(out.into())
    })
}

/// A kernel that computes `f(x, y)` over the broadcast of two inputs, in place where it may.
pub fn binary<T, F>(cost: usize, f: F) -> Result<Kernel>
where
    T: Element + Copy,
    F: Fn(T, T) -> T + Copy + Send + Sync + 'static,
{
    Kernel::sync(move |cx| apply_binary(cx, cost, f))
}

/// Why a kernel refuses an operand.
pub type Refusal = (Code, &'static str);

/// Like [`binary`], but first refuses results that would need a right operand for which `valid` is false.
pub fn binary_checked<T, V, F>(cost: usize, valid: V, refusal: Refusal, f: F) -> Result<Kernel>
where
    T: Element + Copy,
    V: Fn(T) -> bool + Send + Sync + 'static,
    F: Fn(T, T) -> T + Copy + Send + Sync + 'static,
{
    Kernel::sync(move |cx| {
        let right = cx.input(1)?;
        let all = |block: &[T]| block.iter().fold(true, |all, y| all & valid(*y));
        if !right.flat::<T>()?.chunks(4096).all(all) {
            // An empty result needs none of them; shapes that do not fit are reported first.
            let plan = plan(cx.input(0)?, right)?;
            if plan.elements() > 0 {
                return Err(Status::new(refusal.0, refusal.1));
            }
        }
        apply_binary(cx, cost, f)
    })
}

/// Runs [`binary`]'s loop on the first two inputs.
pub fn apply_binary<T, F>(cx: &mut KernelCx<'_>, cost: usize, f: F) -> Result<Outputs>
where
    T: Element + Copy,
    F: Fn(T, T) -> T + Copy + Sync,
{
    let (a, b) = (cx.input(0)?, cx.input(1)?);
    if a.rank() == 0
        && b.rank() == 0
        && let ([x], [y]) = (a.flat::<T>()?, b.flat::<T>()?)
    {
        let value = f(*x, *y);
        return single(cx, &[0, 1], Shape::scalar(), value);
    }
    let plan = plan(a, b)?;
    let reused = cx.take_reusable(&[0, 1], T::DTYPE, plan.elements());
    let device = cx.device();
    let out = match reused {
        Some((0, mut left)) => {
            let target = Target::Left(left.flat_mut::<T>()?, cx.flat::<T>(1)?);
            elementwise::zip(device, cost, &plan, target, f);
            left
        }
        Some((_, mut right)) => {
            let target = Target::Right(cx.flat::<T>(0)?, right.flat_mut::<T>()?);
            elementwise::zip(device, cost, &plan, target, f);
            right
        }
        None => {
            let mut out = cx.alloc::<T>(plan.shape().clone())?;
            let target = Target::Separate(cx.flat::<T>(0)?, cx.flat::<T>(1)?, out.flat_mut::<T>()?);
            elementwise::zip(device, cost, &plan, target, f);
            out
        }
    };
    Ok(out.reshaped(plan.into_shape())?.into())
}

/// A kernel that computes `f(x, y)` of another type over the broadcast of two inputs.
pub fn compare<T, U, F>(cost: usize, f: F) -> Result<Kernel>
where
    T: Element + Copy,
    U: Element + Copy,
    F: Fn(T, T) -> U + Copy + Send + Sync + 'static,
{
    Kernel::sync(move |cx| {
        let (a, b) = (cx.input(0)?, cx.input(1)?);
        let plan = plan(a, b)?;
        let mut out = cx.alloc::<U>(plan.shape().clone())?;
        let target = Target::Separate(a.flat::<T>()?, b.flat::<T>()?, out.flat_mut::<U>()?);
        elementwise::zip(cx.device(), cost, &plan, target, f);
        Ok(out.into())
    })
}

/// A kernel that computes `f(x, y)` over the broadcast of two inputs whose elements are not plain (strings).
pub fn binary_owned<T, U, F>(f: F) -> Result<Kernel>
where
    T: Element,
    U: Element,
    F: Fn(&T, &T) -> U + Send + Sync + 'static,
{
    Kernel::sync(move |cx| {
        let (a, b) = (cx.input(0)?, cx.input(1)?);
        let plan = plan(a, b)?;
        let (x, y) = (a.flat::<T>()?, b.flat::<T>()?);
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

/// The broadcast of two operands.
pub fn plan(a: &Tensor, b: &Tensor) -> Result<Broadcast<2>> {
    Broadcast::new([a.shape(), b.shape()]).ok_or_else(|| incompatible(a.shape(), b.shape()))
}

/// What stock says when two shapes cannot be broadcast.
pub fn incompatible(a: &Shape, b: &Shape) -> Status {
    status!(InvalidArgument, "Incompatible shapes: {a} vs. {b}")
}

/// A result of one element, in the memory of one of the candidates if possible.
fn single<T: Element + Copy>(
    cx: &mut KernelCx<'_>,
    candidates: &[usize],
    shape: Shape,
    value: T,
) -> Result<Outputs> {
    let mut out = cx.reuse_or_alloc::<T>(candidates, shape)?;
    out.flat_mut::<T>()?[0] = value;
    Ok(out.into())
}

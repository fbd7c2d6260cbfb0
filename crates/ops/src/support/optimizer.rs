//! Parts shared by all optimizer updates: finding and locking the variables, checking shapes, and running one formula
//! over
//! all elements or over the rows that indices name. Ref and resource versions are one kernel.

use crate::linalg::functions::Functions;
use crate::numeric::{Float, Num};
use ferroflow_core::device::Device;
use ferroflow_core::kernel::{Init, KernelCx, Outputs};
use ferroflow_core::op::{Accuracy, Op, ShapeCx};
use ferroflow_core::resource::Variable;
use ferroflow_core::{C64, C128, DType, Result, Shape, Tensor, bf16, ensure, f16, status};
use multiversion::multiversion;
use num_traits::Float as _;
use smallvec::SmallVec;
use std::sync::Arc;

/// The declaration shared by dense updates of ref variables.
pub(crate) const REF_UPDATE: Op = Op {
    outputs: &["out: Ref(T)"],
    attrs: &["T: numbertype", "use_locking: bool = false"],
    shape: infer_update,
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// Of resource variables.
pub(crate) const RESOURCE_UPDATE: Op =
    Op { attrs: REF_UPDATE.attrs, shape: infer_update, accuracy: Accuracy::Rounding, ..Op::STATEFUL };

const SPARSE_ATTRS: &[&str] = &["T: numbertype", "Tindices: {int32, int64}", "use_locking: bool = false"];

/// Of rows of ref variables.
pub(crate) const SPARSE_REF_UPDATE: Op = Op { attrs: SPARSE_ATTRS, ..REF_UPDATE };

/// Of rows of resource variables.
pub(crate) const SPARSE_RESOURCE_UPDATE: Op = Op { attrs: SPARSE_ATTRS, ..RESOURCE_UPDATE };

/// A number that optimizers take roots of.
pub(crate) trait Trained: Num {
    /// The square root.
    fn sqrt(self) -> Self;
    /// One over the square root.
    #[inline(always)]
    fn rsqrt(self) -> Self {
        Self::ONE.div(Trained::sqrt(self))
    }
}

macro_rules! trained {
    ($($type:ty, $value:ident => $sqrt:expr $(, $rsqrt:expr)?;)+) => {$(
        impl Trained for $type {
            #[inline(always)]
            fn sqrt(self) -> $type {
                let $value = self;
                $sqrt
            }
            $(#[inline(always)]
            fn rsqrt(self) -> $type {
                let $value = self;
                $rsqrt
            })?
        }
    )+};
}
trained! {
    f32, x => f32::sqrt(x);
    f64, x => f64::sqrt(x);
    f16, x => f16::from_f32(x.to_f32().sqrt());
    bf16, x => bf16::from_f32(x.to_f32().sqrt());
    C64, x => x.sqrt(), Functions::rsqrt(x);
    C128, x => x.sqrt(), Functions::rsqrt(x);
}

/// `base` to a power, rounded to the element type.
#[inline(always)]
pub(crate) fn power<T: Float>(base: T, exponent: T) -> T {
    T::from_math(base.to_math().powf(exponent.to_math()))
}

/// The exponential, rounded to the element type.
#[inline(always)]
pub(crate) fn exponential<T: Float>(exponent: T) -> T {
    T::from_math(exponent.to_math().exp())
}

/// The positions of an update's inputs, by the op's declaration: variables, then scalars, the gradient, indices if
/// the update
/// is sparse, and more scalars.
#[derive(Clone, Copy)]
pub(crate) struct Layout<const N: usize> {
    /// The variables' names in error texts; the first is always `var`.
    roles: [&'static str; N],
    gradient: usize,
    gradient_name: &'static str,
    sparse: bool,
    /// Whether rows without elements are refused.
    refuses_empty_rows: bool,
    returns_ref: bool,
}

impl<const N: usize> Layout<N> {
    /// The layout of an op with these variables and this many scalars before the gradient. An op that declares a type of
    /// indices updates the rows that they name.
    pub(crate) fn new(init: &Init<'_>, roles: [&'static str; N], scalars_before: usize) -> Layout<N> {
        Layout {
            roles,
            gradient: N + scalars_before,
            gradient_name: "grad",
            sparse: init.attrs.has("Tindices"),
            refuses_empty_rows: false,
            returns_ref: !init.output_types.is_empty(),
        }
    }

    /// The same for an op whose errors call the gradient something else.
    pub(crate) fn naming_gradient(self, gradient_name: &'static str) -> Layout<N> {
        Layout { gradient_name, ..self }
    }

    /// The same for an op whose sparse form refuses rows without elements, as some of stock's do.
    pub(crate) fn refusing_empty_rows(self) -> Layout<N> {
        Layout { refuses_empty_rows: self.sparse, ..self }
    }

    /// Whether only rows that indices name are updated.
    pub(crate) fn is_sparse(&self) -> bool {
        self.sparse
    }

    /// The elements of a row of a sparse update's gradient.
    pub(crate) fn row_width(&self, cx: &KernelCx<'_>) -> Result<usize> {
        let gradient = cx.input(self.gradient)?.shape();
        Ok((1..gradient.rank()).map(|axis| gradient.dim(axis)).product())
    }

    /// The `index`th scalar before the gradient.
    pub(crate) fn before<T: Num>(&self, cx: &KernelCx<'_>, index: usize, name: &str) -> Result<T> {
        scalar(cx, N + index, name)
    }

    /// The `index`th scalar after the gradient (and the indices).
    pub(crate) fn after<T: Num>(&self, cx: &KernelCx<'_>, index: usize, name: &str) -> Result<T> {
        scalar(cx, self.gradient + 1 + self.sparse as usize + index, name)
    }

    /// Applies `formula` to every element that the gradient speaks of, in the variables' order, under their locks.
    pub(crate) fn apply<T: Num>(
        &self,
        cx: &mut KernelCx<'_>,
        formula: impl Fn([T; N], T) -> [T; N] + Sync,
    ) -> Result<Outputs> {
        self.change(cx, &|slices, gradient| each(slices, gradient, &formula))
    }

    /// The same for a formula that is already a loop: what is around it is compiled once per type.
    fn change<T: Num>(&self, cx: &mut KernelCx<'_>, each: &Each<'_, T, N>) -> Result<Outputs> {
        let variables = self.variables(cx)?;
        let variables = variables.each_ref().map(Arc::as_ref);
        let gradient = cx.input(self.gradient)?;
        let indices = if self.sparse { Some(cx.input(self.gradient + 1)?) } else { None };
        Variable::update_all(&variables, &mut |values| {
            let shape = values[0].shape().clone();
            match indices {
                None => {
                    self.check_dense(values, gradient)?;
                    run(cx.device(), elements::<T, N>(values)?, gradient.flat()?, each);
                }
                Some(indices) => {
                    let rows = self.check_sparse(values, gradient, indices)?;
                    let width = shape.elements() / shape.dim(0).max(1);
                    let mut slices = elements::<T, N>(values)?;
                    let gradient = gradient.flat::<T>()?;
                    for (group, gradient) in
                        rows.chunks(GROUP_ROWS).zip(gradient.chunks(GROUP_ROWS * width.max(1)))
                    {
                        for row in group {
                            for slice in slices.iter() {
                                touch(&slice[row * width..][..width]);
                            }
                        }
                        for (at, row) in group.iter().enumerate() {
                            let rows = slices.each_mut().map(|slice| &mut slice[row * width..][..width]);
                            each(rows, &gradient[at * width..][..width]);
                        }
                    }
                }
            }
            Ok(())
        })?;
        if self.returns_ref { Ok(cx.forward(0)?.into()) } else { Ok(Outputs::None) }
    }

    fn check_dense(&self, values: &[&mut Tensor], gradient: &Tensor) -> Result<()> {
        self.check_shapes(values)?;
        let shape = values[0].shape();
        ensure!(
            gradient.shape() == shape,
            InvalidArgument,
            "var and {} do not have the same shape{shape} {}",
            self.gradient_name,
            gradient.shape()
        );
        Ok(())
    }

    /// The rows to change.
    fn check_sparse(
        &self,
        values: &[&mut Tensor],
        gradient: &Tensor,
        indices: &Tensor,
    ) -> Result<Vec<usize>> {
        self.check_shapes(values)?;
        let shape = values[0].shape();
        let rows = check_rows(shape, gradient, indices)?;
        ensure!(
            !self.refuses_empty_rows || shape[1..].iter().all(|dim| *dim > 0),
            InvalidArgument,
            "Inner dimension should be greater than zero."
        );
        Ok(rows)
    }

    fn check_shapes(&self, values: &[&mut Tensor]) -> Result<()> {
        let shape = values[0].shape();
        for (value, role) in values.iter().zip(self.roles).skip(1) {
            ensure!(
                value.shape() == shape,
                InvalidArgument,
                "var and {role} do not have the same shape{shape} {}",
                value.shape()
            );
        }
        Ok(())
    }

    fn variables(&self, cx: &KernelCx<'_>) -> Result<[Arc<Variable>; N]> {
        let mut found: SmallVec<[Arc<Variable>; N]> = SmallVec::new();
        for input in 0..N {
            // Stock says no more than this about a missing variable.
            let variable =
                cx.variable(input).map_err(|_| status!(Internal, "Invalid variable reference."))?;
            found.push(variable);
        }
        Ok(found.into_inner().unwrap_or_else(|_| unreachable!("N variables were pushed")))
    }
}

fn scalar<T: Num>(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<T> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "{name} is not a scalar: {}", tensor.shape());
    tensor.to_scalar()
}

fn elements<'a, T: Num, const N: usize>(values: &'a mut [&mut Tensor]) -> Result<[&'a mut [T]; N]> {
    let slices: Result<SmallVec<[&'a mut [T]; N]>> =
        values.iter_mut().map(|value| value.flat_mut::<T>()).collect();
    Ok(slices?.into_inner().unwrap_or_else(|_| unreachable!("there are N variables")))
}

/// The rows that a sparse update changes.
fn check_rows(shape: &Shape, gradient: &Tensor, indices: &Tensor) -> Result<Vec<usize>> {
    ensure!(shape.rank() >= 1, InvalidArgument, "var must be at least 1 dimensional");
    ensure!(indices.rank() == 1, InvalidArgument, "indices must be one-dimensional");
    ensure!(
        gradient.rank() == shape.rank(),
        InvalidArgument,
        "var and grad must have the same number of dimensions: {shape} vs. {}",
        gradient.shape()
    );
    for axis in 1..shape.rank() {
        ensure!(
            shape[axis] == gradient.shape()[axis],
            InvalidArgument,
            "var and grad must match in dimension {axis}"
        );
    }
    ensure!(
        gradient.shape().dim(0) == indices.elements(),
        InvalidArgument,
        "grad must be the same size as indices in the first dimension."
    );
    let mut rows = Vec::with_capacity(indices.elements());
    for (at, index) in indices.to_i64s()?.into_iter().enumerate() {
        ensure!(
            (0..shape[0]).contains(&index),
            InvalidArgument,
            "Index {index} at offset {at} in indices is out of range"
        );
        rows.push(index as usize);
    }
    Ok(rows)
}

/// Applies a formula to elements of the variables and of the gradient that lie side by side.
type Each<'a, T, const N: usize> = dyn Fn([&mut [T]; N], &[T]) + Sync + 'a;

/// The work of an update of one element: reads and writes of several variables, a root or a quotient.
const UPDATE: usize = 4;

/// Runs an update to its end: a variable is never left half updated.
fn run<T: Num, const N: usize>(
    device: &Device,
    mut slices: [&mut [T]; N],
    gradient: &[T],
    each: &Each<'_, T, N>,
) {
    let threads = device.threads();
    let length = threads.part_length(gradient.len(), UPDATE);
    if length >= gradient.len() {
        return each(slices, gradient);
    }
    let parts = gradient.chunks(length).map(|gradient| {
        let parts = slices.each_mut().map(|slice| {
            let (part, rest) = std::mem::take(slice).split_at_mut(gradient.len());
            *slice = rest;
            part
        });
        (parts, gradient)
    });
    threads.run_each(parts.collect(), &|_, (parts, gradient)| each(parts, gradient));
}

/// Rows of a large variable are far from each other and from any cache. Those of a group are fetched side by side.
const GROUP_ROWS: usize = 8;
const CACHE_LINE: usize = 64;

/// Reads something of each of a row's cache lines, without waiting for one before the next.
#[inline]
fn touch<T: Num>(row: &[T]) {
    for value in row.iter().step_by((CACHE_LINE / size_of::<T>()).max(1)) {
        std::hint::black_box(*value);
    }
}

/// Elements that a formula is applied to at a time.
const LANES: usize = 16;

/// Applies a formula to elements that lie side by side.
fn each<T: Num, const N: usize, F: Fn([T; N], T) -> [T; N]>(
    slices: [&mut [T]; N],
    gradient: &[T],
    formula: &F,
) {
    if const { matches!(T::DTYPE, DType::Float | DType::Double) } {
        each_wide(slices, gradient, formula);
    } else {
        each_singly(slices, 0, gradient, formula);
    }
}

/// The same with wide registers, for the types that models are trained in.
#[multiversion(targets("x86_64+avx2+fma"))]
fn each_wide<T: Num, const N: usize, F: Fn([T; N], T) -> [T; N]>(
    slices: [&mut [T]; N],
    gradient: &[T],
    formula: &F,
) {
    each_in_blocks(slices, gradient, formula);
}

/// Blocks are read whole, computed and written whole, which is what vectors are made from. Always inlined, so that it
/// uses the instructions that the caller may.
#[inline(always)]
fn each_in_blocks<T: Num, const N: usize, F: Fn([T; N], T) -> [T; N]>(
    mut slices: [&mut [T]; N],
    gradient: &[T],
    formula: &F,
) {
    let (blocks, rest) = gradient.as_chunks::<LANES>();
    for (block, gradient) in blocks.iter().enumerate() {
        let mut values = [[T::ZERO; LANES]; N];
        for (values, slice) in values.iter_mut().zip(&slices) {
            values.copy_from_slice(&slice[block * LANES..][..LANES]);
        }
        for lane in 0..LANES {
            // Loops, not closures: these are compiled for every formula.
            let mut old = [T::ZERO; N];
            for (old, values) in old.iter_mut().zip(&values) {
                *old = values[lane];
            }
            for (values, new) in values.iter_mut().zip(formula(old, gradient[lane])) {
                values[lane] = new;
            }
        }
        for (values, slice) in values.iter().zip(&mut slices) {
            slice[block * LANES..][..LANES].copy_from_slice(values);
        }
    }
    each_singly(slices, blocks.len() * LANES, rest, formula);
}

/// One element after another, from `start` on: the rest of blocks, and types that are there for completeness.
#[inline(always)]
fn each_singly<T: Num, const N: usize, F: Fn([T; N], T) -> [T; N]>(
    mut slices: [&mut [T]; N],
    start: usize,
    gradient: &[T],
    formula: &F,
) {
    for (at, gradient) in gradient.iter().enumerate() {
        let mut old = [T::ZERO; N];
        for (old, slice) in old.iter_mut().zip(&slices) {
            *old = slice[start + at];
        }
        for (slice, new) in slices.iter_mut().zip(formula(old, *gradient)) {
            slice[start + at] = new;
        }
    }
}

/// The shape function of updates: the variables and a dense gradient have one shape, which the returned ref has too.
fn infer_update(s: &mut ShapeCx<'_>) -> Result<()> {
    if s.num_outputs() > 0 {
        s.set(0, s.input(0));
    }
    Ok(())
}

//! Parts shared by ops on variables: changing a value element by element, and finding resource variables.

use crate::numeric::Num;
use ferroflow_core::Result;
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::{KernelCx, Outputs};
use ferroflow_core::resource::Variable;
use std::sync::Arc;

/// Changes `target` by `change`, in parts on several threads if it is large.
pub(crate) fn change<T: Num>(
    threads: Threads<'_>,
    target: &mut [T],
    update: &[T],
    change: fn(&mut [T], &[T]),
) {
    threads.parallel_rows(target, 1, 1, |first, part| change(part, &update[first..][..part.len()]));
}

/// Adds element by element.
pub(crate) fn add_assign<T: Num>(target: &mut [T], update: &[T]) {
    target.iter_mut().zip(update).for_each(|(target, update)| *target = target.add(*update));
}

/// Subtracts element by element.
pub(crate) fn sub_assign<T: Num>(target: &mut [T], update: &[T]) {
    target.iter_mut().zip(update).for_each(|(target, update)| *target = target.sub(*update));
}

/// The variable behind a reference or a handle; a missing resource is reported as such, which is what stock's updates
/// and gathers do (reads say more).
pub(crate) fn existing(cx: &KernelCx<'_>, input: usize) -> Result<Arc<Variable>> {
    if cx.is_ref(input) { cx.variable(input) } else { cx.resource::<Variable>(input) }
}

/// The result of an update: the reference it was given, or nothing if that was a handle.
pub(crate) fn returned(cx: &mut KernelCx<'_>, returns_ref: bool) -> Result<Outputs> {
    if returns_ref { Ok(cx.forward(0)?.into()) } else { Ok(Outputs::None) }
}

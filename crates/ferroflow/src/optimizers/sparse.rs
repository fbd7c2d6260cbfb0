//! Updates of rows by several nodes, for optimizers whose op updates whole variables only.

use super::apply::{ApplyCx, deduplicated};
use crate::variables::Variable;
use ferroflow_core::Result;
use ferroflow_core::op::IndexedSlices;
use ferroflow_core::scope::{Operation, Output, Scope};
use ferroflow_ops::build as ops;

/// Which update it is; numbers refer to the rule's slots, powers and hyperparameters.
#[derive(Clone, Copy, Debug)]
pub(super) enum SparseUpdate {
    /// Adds scaled rows.
    GradientDescent,
    /// Moments of all rows decay, those of the given rows also grow. With the largest second moment if asked.
    Adam { amsgrad: bool },
    /// Moments of the given rows only.
    AdaMax,
    /// Rows are scaled by whether they agree with the average direction.
    AddSign,
    /// Rows are scaled by a power of that.
    PowerSign,
}

impl SparseUpdate {
    pub(super) fn build(
        self,
        cx: &ApplyCx<'_>,
        place: &Scope,
        rows: &IndexedSlices,
        variable: &Variable,
        slots: &[Variable],
    ) -> Result<Operation> {
        match self {
            SparseUpdate::GradientDescent => {
                let rate = cx.hyper(place, 0, variable.dtype())?;
                let down = ops::mul(place, ops::neg(place, &rows.values), &rate)?;
                variable.scatter_add(place, &rows.indices, &down)
            }
            SparseUpdate::Adam { amsgrad } => adam(cx, place, rows, variable, slots, amsgrad),
            SparseUpdate::AdaMax => ada_max(cx, place, rows, variable, slots),
            SparseUpdate::AddSign | SparseUpdate::PowerSign => {
                let power = matches!(self, SparseUpdate::PowerSign);
                sign(cx, place, rows, variable, slots, power)
            }
        }
    }
}

/// Lets a slot decay and adds rows to it; the value after that.
fn decay_and_add(
    place: &Scope,
    slot: &Variable,
    decay: &Output,
    indices: &Output,
    rows: &Output,
) -> Result<Output> {
    let decayed = slot.assign(place, ops::mul(place, slot.read(place), decay))?;
    let added = slot.scatter_add(&place.control([&decayed]), indices, rows)?;
    slot.read(&place.control([&added]))
}

fn adam(
    cx: &ApplyCx<'_>,
    place: &Scope,
    rows: &IndexedSlices,
    variable: &Variable,
    slots: &[Variable],
    amsgrad: bool,
) -> Result<Operation> {
    let dtype = variable.dtype();
    let (values, indices) = deduplicated(place, rows)?;
    let hyper = |index| cx.hyper(place, index, dtype);
    let (rate, beta1, beta2, epsilon) = (hyper(0)?, hyper(1)?, hyper(2)?, hyper(3)?);
    let rest2 = ops::sub(place, 1.0, cx.power(place, 1, dtype))?;
    let rest1 = ops::sub(place, 1.0, cx.power(place, 0, dtype))?;
    let rate = ops::real_div(place, ops::mul(place, &rate, ops::sqrt(place, &rest2)), &rest1)?;
    let first = ops::mul(place, &values, ops::sub(place, 1.0, &beta1))?;
    let m = decay_and_add(place, &slots[0], &beta1, &indices, &first)?;
    let second = ops::mul(place, ops::mul(place, &values, &values), ops::sub(place, 1.0, &beta2))?;
    let mut v = decay_and_add(place, &slots[1], &beta2, &indices, &second)?;
    let mut waits: Vec<Operation> = vec![m.op().clone(), v.op().clone()];
    if amsgrad {
        let largest = ops::maximum(place, slots[2].read(place), &v)?;
        waits.push(slots[2].assign(place, &largest)?);
        v = largest;
    }
    let bottom = ops::add_v2(place, ops::sqrt(place, &v), &epsilon)?;
    let down = ops::real_div(place, ops::mul(place, &rate, &m), &bottom)?;
    waits.push(variable.assign_sub(place, &down)?);
    place.group(&waits)
}

/// Replaces rows of a slot.
fn scatter_update(place: &Scope, slot: &Variable, indices: &Output, rows: &Output) -> Result<Operation> {
    let op = if slot.is_resource() { "ResourceScatterUpdate" } else { "ScatterUpdate" };
    let node = place.op(op).input(slot.handle()).input(indices).input(rows);
    if slot.is_resource() { node.attr("dtype", slot.dtype()).build() } else { node.build() }
}

fn ada_max(
    cx: &ApplyCx<'_>,
    place: &Scope,
    rows: &IndexedSlices,
    variable: &Variable,
    slots: &[Variable],
) -> Result<Operation> {
    let dtype = variable.dtype();
    let (values, indices) = deduplicated(place, rows)?;
    let hyper = |index| cx.hyper(place, index, dtype);
    let (rate, beta1, beta2, epsilon) = (hyper(0)?, hyper(1)?, hyper(2)?, hyper(3)?);
    let grown = ops::mul(place, &values, ops::sub(place, 1.0, &beta1))?;
    let m = ops::add_v2(place, ops::mul(place, slots[0].gather(place, &indices), &beta1), &grown)?;
    let decayed = ops::mul(place, slots[1].gather(place, &indices), &beta2)?;
    let u = ops::maximum(place, &decayed, ops::abs(place, &values))?;
    let updates =
        [scatter_update(place, &slots[0], &indices, &m)?, scatter_update(place, &slots[1], &indices, &u)?];
    let rate = ops::real_div(place, ops::neg(place, &rate), ops::sub(place, 1.0, cx.power(place, 0, dtype)))?;
    let down = ops::mul(place, &rate, ops::real_div(place, &m, ops::add_v2(place, &u, &epsilon)))?;
    let [first, second] = updates;
    let step = variable.scatter_add(place, &indices, &down)?;
    place.group([step, first, second])
}

fn sign(
    cx: &ApplyCx<'_>,
    place: &Scope,
    rows: &IndexedSlices,
    variable: &Variable,
    slots: &[Variable],
    power: bool,
) -> Result<Operation> {
    let dtype = variable.dtype();
    let (values, indices) = deduplicated(place, rows)?;
    let hyper = |index| cx.hyper(place, index, dtype);
    let (rate, base, decay, beta) = (hyper(0)?, hyper(1)?, hyper(2)?, hyper(3)?);
    let grown = ops::mul(place, &values, ops::sub(place, 1.0, &beta))?;
    let m = decay_and_add(place, &slots[0], &beta, &indices, &grown)?;
    let average = ops::gather_v2(place, ops::sign(place, &m), &indices, 0)?;
    let agree = ops::mul(place, &decay, ops::mul(place, &average, ops::sign(place, &values)))?;
    let scale = match power {
        true => ops::exp(place, ops::mul(place, &base, &agree))?,
        false => ops::add_v2(place, &base, &agree)?,
    };
    let down = ops::neg(place, ops::mul(place, ops::mul(place, &rate, &scale), &values))?;
    let step = variable.scatter_add(place, &indices, &down)?;
    place.group([step, m.op().clone()])
}

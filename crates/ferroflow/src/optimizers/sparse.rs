//! Sparse updates by several nodes, for optimizers whose op updates whole variables only.

use super::apply::{ApplyCx, Target, deduplicated};
use super::slots::value;
use crate::arithmetic::{add, div, mul, sub};
use ferroflow_core::Result;
use ferroflow_core::op::IndexedSlices;
use ferroflow_core::scope::{Operation, Output, Scope};
use ferroflow_ops::builders as ops;

/// Kind of update. The code below relies on the order of the rule's slots, powers and hyperparameters.
#[derive(Clone, Copy, Debug)]
pub(super) enum SparseUpdate {
    /// Subtracts scaled rows.
    GradientDescent,
    /// Decays the moments of all rows, and adds to those of the given rows; scales by the largest second moment if
    /// `amsgrad` is set.
    Adam { amsgrad: bool },
    /// Updates the moments of the given rows only.
    AdaMax,
    /// Scales rows by the agreement with the average direction, or by a power of it.
    Sign { power: bool },
}

impl SparseUpdate {
    pub(super) fn build(
        self,
        cx: &ApplyCx<'_>,
        place: &Scope,
        rows: &IndexedSlices,
        target: Target<'_>,
    ) -> Result<Operation> {
        let prepared = || {
            let (values, indices) = deduplicated(place, rows)?;
            let power = |index| cx.power(place, index, target.variable.dtype());
            let powers = (0..cx.powers.len()).map(power).collect::<Result<Vec<_>>>()?;
            let number = |index| cx.hyper(place, index, target.variable.dtype());
            let numbers = [number(0)?, number(1)?, number(2)?, number(3)?];
            Ok((Rows { place, values, indices, powers, locking: cx.rule.use_locking }, numbers))
        };
        match self {
            SparseUpdate::GradientDescent => gradient_descent(cx, place, rows, target),
            SparseUpdate::Adam { amsgrad } => {
                prepared().and_then(|(rows, n)| adam(&rows, &n, target, amsgrad))
            }
            SparseUpdate::AdaMax => prepared().and_then(|(rows, n)| ada_max(&rows, &n, target)),
            SparseUpdate::Sign { power } => prepared().and_then(|(rows, n)| sign(&rows, &n, target, power)),
        }
    }
}

/// Rows of a gradient with distinct indices, and the scope of the nodes.
struct Rows<'a> {
    place: &'a Scope,
    values: Output,
    indices: Output,
    powers: Vec<Output>,
    locking: bool,
}

impl Rows<'_> {
    /// Decays a slot and adds rows to it; returns the value after that.
    fn decay_and_add(&self, slot: Target<'_>, decay: &Output, rows: &Output) -> Result<Output> {
        let place = self.place;
        let decayed = mul(place, value(place, slot.variable), decay)?;
        let decayed = slot.assign(place, "Assign", &decayed, self.locking)?;
        let after = place.control([&decayed]);
        let added = slot.scatter(&after, "ScatterAdd", &self.indices, rows, self.locking)?;
        slot.after(place, &added)
    }
}

/// Adds rows without deduplication: repeated rows add up in the variable itself.
fn gradient_descent(
    cx: &ApplyCx<'_>,
    place: &Scope,
    rows: &IndexedSlices,
    target: Target<'_>,
) -> Result<Operation> {
    let rate = cx.hyper(place, 0, target.variable.dtype())?;
    let locking = cx.rule.use_locking;
    if target.variable.is_resource() {
        let down = mul(place, ops::neg(place, &rows.values), &rate)?;
        return target.scatter(place, "ScatterAdd", &rows.indices, &down, locking);
    }
    let step = mul(place, &rows.values, &rate)?;
    target.scatter(place, "ScatterSub", &rows.indices, &step, locking)
}

fn adam(
    rows: &Rows<'_>,
    [rate, beta1, beta2, epsilon]: &[Output; 4],
    target: Target<'_>,
    amsgrad: bool,
) -> Result<Operation> {
    let place = rows.place;
    let rest = ops::sqrt(place, sub(place, 1.0, &rows.powers[1]))?;
    let rate = mul(place, rate, &rest)?;
    let rate = div(place, &rate, sub(place, 1.0, &rows.powers[0]))?;
    let grown = mul(place, &rows.values, sub(place, 1.0, beta1))?;
    let m = rows.decay_and_add(target.slot(0), beta1, &grown)?;
    let squares = mul(place, &rows.values, &rows.values)?;
    let grown = mul(place, &squares, sub(place, 1.0, beta2))?;
    let v = rows.decay_and_add(target.slot(1), beta2, &grown)?;
    let mut scale = v.clone();
    let mut ends: Vec<Operation> = Vec::new();
    if amsgrad {
        let slot = target.slot(2);
        scale = ops::maximum(place, value(place, slot.variable), &v)?;
        ends.push(slot.assign(place, "Assign", &scale, rows.locking)?);
    }
    let root = ops::sqrt(place, &scale)?;
    let down = div(place, mul(place, &rate, &m), add(place, &root, epsilon))?;
    let update = target.assign(place, "AssignSub", &down, rows.locking)?;
    ends.splice(0..0, [update, m.op().clone(), v.op().clone()]);
    place.group(ends)
}

fn ada_max(
    rows: &Rows<'_>,
    [rate, beta1, beta2, epsilon]: &[Output; 4],
    target: Target<'_>,
) -> Result<Operation> {
    let place = rows.place;
    let (m, u) = (target.slot(0), target.slot(1));
    let old = mul(place, m.variable.gather(place, &rows.indices), beta1)?;
    let m_rows = add(place, &old, mul(place, &rows.values, sub(place, 1.0, beta1)))?;
    let m_update =
        m.scatter(&place.control([&m_rows]), "ScatterUpdate", &rows.indices, &m_rows, rows.locking)?;
    let old = mul(place, u.variable.gather(place, &rows.indices), beta2)?;
    let u_rows = ops::maximum(place, &old, ops::abs(place, &rows.values))?;
    let u_update =
        u.scatter(&place.control([&u_rows]), "ScatterUpdate", &rows.indices, &u_rows, rows.locking)?;
    let rest = sub(place, 1.0, &rows.powers[0])?;
    let rate = div(place, ops::neg(place, rate), &rest)?;
    let down = mul(place, &rate, div(place, &m_rows, add(place, &u_rows, epsilon)))?;
    let update = target.scatter(place, "ScatterAdd", &rows.indices, &down, rows.locking)?;
    place.group([update, m_update, u_update])
}

fn sign(
    rows: &Rows<'_>,
    [rate, beta, base, decay]: &[Output; 4],
    target: Target<'_>,
    power: bool,
) -> Result<Operation> {
    let place = rows.place;
    let grown = mul(place, &rows.values, sub(place, 1.0, beta))?;
    let m = rows.decay_and_add(target.slot(0), beta, &grown)?;
    let direction = ops::gather_v2(place, ops::sign(place, &m), &rows.indices, 0)?;
    let agreement = mul(place, &direction, ops::sign(place, &rows.values))?;
    let scale = if power {
        ops::exp(place, mul(place, mul(place, base, decay), &agreement))?
    } else {
        add(place, base, mul(place, decay, &agreement))?
    };
    let step = mul(place, mul(place, rate, &scale), &rows.values)?;
    let down = ops::neg(place, &step)?;
    let update = target.scatter(place, "ScatterAdd", &rows.indices, &down, rows.locking)?;
    place.group([update, m.op().clone()])
}

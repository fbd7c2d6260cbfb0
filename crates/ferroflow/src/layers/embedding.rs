//! Lookups in large tables that are partitioned over several tasks.

use crate::variables::PartitionedVariable;
use ferroflow_core::scope::{Input, Output, Scope};
use ferroflow_core::{DType, Result, Tensor, ensure};
use ferroflow_ops::builders as ops;

/// Mapping of rows to the parts of a table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PartitionStrategy {
    /// Row `i` is row `i / parts` of part `i % parts`.
    #[default]
    Mod,
    /// Parts hold consecutive rows, as in a checkpoint of the whole table.
    Div,
}

/// Looks up rows by their ids. Each part gathers its own rows on its own device, so only these rows travel; gradients
/// stay sparse.
///
/// ```
/// use ferroflow::layers::{PartitionStrategy, embedding_lookup};
/// use ferroflow::variables::Partitioner;
/// use ferroflow::{Graph, Variable};
/// # fn main() -> ferroflow::Result<()> {
/// let graph = Graph::new();
/// let s = graph.scope();
/// let table = Variable::spec("table", [1000, 16]).partitioned(&s, Partitioner::fixed(2))?;
/// let rows = embedding_lookup(&s, &table, [3i64, 999, 3], PartitionStrategy::Div)?;
/// assert_eq!(rows.shape().dims(), Some(&[3, 16][..]));
/// # Ok(())
/// # }
/// ```
///
/// # Errors
///
/// `InvalidArgument` if the table is partitioned along another dimension than the first.
#[track_caller]
pub fn embedding_lookup(
    scope: &Scope,
    table: impl Into<PartitionedVariable>,
    ids: impl Into<Input>,
    strategy: PartitionStrategy,
) -> Result<Output> {
    let table = table.into();
    let inner = scope.scope("embedding_lookup");
    let parts = table.parts();
    ensure!(
        table.axis() == 0 && table.shape().rank() > 0,
        InvalidArgument,
        "rows of table '{}' of shape {} cannot be looked up: it is partitioned along dimension {} instead of 0",
        table.name(),
        table.shape(),
        table.axis()
    );
    if let [part] = parts {
        return part.gather(&inner.colocate_with(part.op()), ids);
    }
    let ids = ops::identity(&inner, ids)?;
    let count = parts.len() as i64;
    let flat = ops::reshape(&inner, &ids, [-1])?;
    let positions = ops::range(&inner, 0, ops::size(&inner, &flat), 1)?;
    let (part, row) = match strategy {
        PartitionStrategy::Mod => {
            (ops::floor_mod(&inner, &flat, count)?, ops::floor_div(&inner, &flat, count)?)
        }
        PartitionStrategy::Div => consecutive(&inner, &flat, table.shape().dim(0) as i64, count)?,
    };
    let part = if part.dtype() == DType::Int32 { part } else { ops::cast(&inner, &part, DType::Int32)? };
    let rows = ops::dynamic_partition(&inner, &row, &part, count)?;
    let places = ops::dynamic_partition(&inner, &positions, &part, count)?;
    let mut found = Vec::new();
    for (variable, rows) in parts.iter().zip(&rows) {
        found.push(variable.gather(&inner.colocate_with(variable.op()), rows)?);
    }
    let stitched = ops::parallel_dynamic_stitch(&inner, &places, &found)?;
    let width: Vec<i32> = table.shape().dims()[1..].iter().map(|dim| *dim as i32).collect();
    let dims = [ops::shape(&inner, &ids)?, inner.constant(Tensor::vector(width))?];
    let joined = ops::reshape(&inner, &stitched, ops::concat_v2(&inner, &dims, 0))?;
    if let Some(outer) = ids.shape().dims() {
        let whole = outer.iter().chain(&table.shape().dims()[1..]).copied();
        joined.set_shape(whole.collect::<Vec<i64>>())?;
    }
    Ok(joined)
}

/// Returns part and row of each id in a table whose first parts hold one row more than the others.
fn consecutive(scope: &Scope, ids: &Output, rows: i64, parts: i64) -> Result<(Output, Output)> {
    let (each, longer) = (rows / parts, rows % parts);
    let early = ops::floor_div(scope, ids, each + 1)?;
    let rest = ops::sub(scope, ids, longer)?;
    let late = ops::floor_div(scope, &rest, each.max(1))?;
    let part = ops::maximum(scope, &early, &late)?;
    let is_early = ops::less(scope, &part, longer)?;
    let row_early = ops::floor_mod(scope, ids, each + 1)?;
    let row_late = ops::floor_mod(scope, &rest, each.max(1))?;
    Ok((part, ops::select_v2(scope, &is_early, &row_early, &row_late)?))
}

//! Elements of datasets by their place, without running what comes before them.

use super::{Dataset, Element, IteratorCx};
use crate::data::stack;
use crate::support::rows;

use ferroflow_core::{BoxFuture, DType, Result, bail, ensure, status};

use std::sync::Arc;

/// The iterator that elements are computed for.
#[derive(Clone)]
pub(crate) struct Access {
    pub(crate) cx: Arc<IteratorCx>,
}

/// The op's name without its version.
fn base(op: &str) -> &str {
    op.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end_matches('V')
}

/// Refuses a dataset whose elements can only be had in order.
pub(crate) fn check(dataset: &Dataset) -> Result<()> {
    let known = matches!(
        base(dataset.op()),
        "RangeDataset"
            | "TensorDataset"
            | "TensorSliceDataset"
            | "ListDataset"
            | "MapDataset"
            | "ParallelMapDataset"
            | "BatchDataset"
            | "ParallelBatchDataset"
            | "TakeDataset"
            | "SkipDataset"
            | "ShardDataset"
            | "ConcatenateDataset"
            | "ZipDataset"
            | "RepeatDataset"
            | "PrefetchDataset"
            | "CacheDataset"
            | "OptionsDataset"
            | "ModelDataset"
            | "FinalizeDataset"
    );
    ensure!(known, Unimplemented, "Random access is not implemented for dataset {}.", dataset.op());
    dataset.inputs().try_for_each(|input| check(&input))
}

fn number(dataset: &Dataset, argument: usize) -> Result<i64> {
    match dataset.arguments().and_then(|arguments| arguments.get(argument)) {
        Some(tensor) => tensor.to_scalar(),
        None => bail!(Internal, "{} has no argument {argument}", dataset.op()),
    }
}

/// The element at a place.
pub(crate) fn element(access: Access, dataset: Dataset, index: i64) -> BoxFuture<Result<Element>> {
    Box::pin(async move {
        let count = dataset.cardinality();
        let out = || status!(OutOfRange, "Index out of range [0, {count}):{index}");
        if index < 0 || (count >= 0 && index >= count) {
            return Err(out());
        }
        let input =
            |at: usize| dataset.inputs().nth(at).ok_or_else(|| status!(Internal, "an input is missing"));
        let tensors = dataset.arguments().unwrap_or_default();
        match base(dataset.op()) {
            "RangeDataset" => {
                let (start, step) = (number(&dataset, 0)?, number(&dataset, 2)?);
                let dtype = dataset.types().first().copied().unwrap_or(DType::Int64);
                let value = start.wrapping_add(step.wrapping_mul(index));
                Ok(vec![crate::families::dataset::sources::number(dtype, value)?])
            }
            "TensorDataset" => Ok(tensors.to_vec()),
            "TensorSliceDataset" => {
                let device = access.cx.device();
                tensors.iter().map(|component| rows::row(device, component, index as usize)).collect()
            }
            "ListDataset" => {
                let width = dataset.types().len();
                let start = index as usize * width;
                Ok(tensors.get(start..start + width).ok_or_else(out)?.to_vec())
            }
            "MapDataset" | "ParallelMapDataset" => {
                let element = element(access.clone(), input(0)?, index).await?;
                let Some(function) = dataset.functions().next() else {
                    bail!(Internal, "{} has no function", dataset.op())
                };
                // Parallel maps have the number of calls behind what is captured.
                let end = tensors.len() - usize::from(base(dataset.op()) == "ParallelMapDataset");
                let function = super::Function::new(function.clone(), tensors[1..end].to_vec());
                function.caller(&access.cx)?.call(element).await
            }
            "BatchDataset" | "ParallelBatchDataset" => {
                let (size, input) = (number(&dataset, 1)?, input(0)?);
                let mut elements = Vec::new();
                for at in index * size..(index + 1).saturating_mul(size) {
                    match element(access.clone(), input.clone(), at).await {
                        Ok(element) => elements.push(element),
                        Err(error) if error.code() == ferroflow_core::Code::OutOfRange => break,
                        Err(error) => return Err(error),
                    }
                }
                let drops = tensors.last().is_some_and(|drops| drops.to_scalar::<bool>().unwrap_or(false));
                if elements.is_empty() || (drops && (elements.len() as i64) < size) {
                    return Err(out());
                }
                stack::batch(access.cx.device(), &elements)
            }
            "SkipDataset" => element(access, input(0)?, index.saturating_add(number(&dataset, 1)?)).await,
            "ShardDataset" => {
                let place = index.saturating_mul(number(&dataset, 1)?).saturating_add(number(&dataset, 2)?);
                element(access, input(0)?, place).await
            }
            "ConcatenateDataset" => {
                let first = input(0)?;
                match first.cardinality() {
                    count @ 0.. if index >= count => element(access, input(1)?, index - count).await,
                    _ => element(access, first, index).await,
                }
            }
            "ZipDataset" => {
                let mut whole = Vec::new();
                for input in dataset.inputs() {
                    whole.extend(element(access.clone(), input, index).await?);
                }
                Ok(whole)
            }
            "RepeatDataset" => {
                let input = input(0)?;
                match input.cardinality() {
                    count @ 1.. => element(access, input, index % count).await,
                    _ => element(access, input, index).await,
                }
            }
            "TakeDataset" | "PrefetchDataset" | "CacheDataset" | "OptionsDataset" | "ModelDataset"
            | "FinalizeDataset" => element(access, input(0)?, index).await,
            op => {
                bail!(Unimplemented, "Random access is not implemented for dataset {op}.")
            }
        }
    })
}

//! Maps that keep sparse tensors between steps, by number: queues carry the numbers, batches take the tensors out.

use super::sparse_serialization::{any_sparse, separate_rows, stacked};
use crate::support::sparse::{Sparse, sparse_ranks};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, kernels, status};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

pub(crate) const OPS: &[&Op] =
    &[&ADD_SPARSE_TO_TENSORS_MAP, &ADD_MANY_SPARSE_TO_TENSORS_MAP, &TAKE_MANY_SPARSE_FROM_TENSORS_MAP];

static ADD_SPARSE_TO_TENSORS_MAP: Op = Op {
    name: "AddSparseToTensorsMap",
    inputs: &["sparse_indices: int64", "sparse_values: T", "sparse_shape: int64"],
    outputs: &["sparse_handle: int64"],
    attrs: &["T: type", "container: string = ''", "shared_name: string = ''"],
    shape: add_shape,
    kernels: kernels![any add_kernel],
    ..Op::STATEFUL
};

static ADD_MANY_SPARSE_TO_TENSORS_MAP: Op = Op {
    name: "AddManySparseToTensorsMap",
    outputs: &["sparse_handles: int64"],
    shape: add_many_shape,
    kernels: kernels![any add_many_kernel],
    ..ADD_SPARSE_TO_TENSORS_MAP
};

static TAKE_MANY_SPARSE_FROM_TENSORS_MAP: Op = Op {
    name: "TakeManySparseFromTensorsMap",
    inputs: &["sparse_handles: int64"],
    outputs: &["sparse_indices: int64", "sparse_values: dtype", "sparse_shape: int64"],
    attrs: &["dtype: type", "container: string = ''", "shared_name: string = ''"],
    shape: take_shape,
    kernels: kernels![any take_kernel],
    ..Op::STATEFUL
};

fn add_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    sparse_ranks(s, 0)?;
    s.set(0, PartialShape::scalar());
    Ok(())
}

fn add_many_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    sparse_ranks(s, 0)?;
    s.output(0, [UNKNOWN_DIM])
}

fn take_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 1)?;
    any_sparse(s)
}

/// Sparse tensors (indices, values, shape) by number.
#[derive(Default)]
struct TensorsMap {
    /// The next number, and the tensors that nobody has taken yet.
    state: Mutex<(i64, HashMap<i64, [Tensor; 3]>)>,
}

const UNPOISONED: &str = "nothing panics with the lock held";

impl TensorsMap {
    fn add(&self, tensor: [Tensor; 3]) -> i64 {
        let mut state = self.state.lock().expect(UNPOISONED);
        let number = state.0;
        state.0 += 1;
        state.1.insert(number, tensor);
        number
    }

    fn take(&self, name: &str, numbers: &[i64]) -> Result<Vec<[Tensor; 3]>> {
        let mut state = self.state.lock().expect(UNPOISONED);
        let missing =
            |number: &i64| status!(InvalidArgument, "Unable to find SparseTensor: {number} in map: {name}");
        numbers.iter().map(|number| state.1.remove(number).ok_or_else(|| missing(number))).collect()
    }
}

impl Resource for TensorsMap {
    fn type_name(&self) -> &'static str {
        "SparseTensorsMap"
    }
}

/// Finds a node's map.
struct MapName {
    container: String,
    name: String,
}

impl MapName {
    fn new(init: &Init<'_>) -> Result<MapName> {
        let (container, name) = init.resource_name()?;
        Ok(MapName { container, name })
    }

    fn find(&self, cx: &KernelCx<'_>) -> Result<Arc<TensorsMap>> {
        cx.step().resources.lookup_or_create(&self.container, &self.name, || Ok(TensorsMap::default()))
    }
}

fn add_kernel(init: &Init<'_>) -> Result<Kernel> {
    let name = MapName::new(init)?;
    Kernel::sync(move |cx| {
        let sparse = Sparse::input(cx, 0)?;
        sparse.dense_shape()?;
        let parts = [cx.input(0)?.clone(), cx.input(1)?.clone(), cx.input(2)?.clone()];
        Ok(Tensor::scalar(name.find(cx)?.add(parts)).into())
    })
}

fn add_many_kernel(init: &Init<'_>) -> Result<Kernel> {
    let name = MapName::new(init)?;
    Kernel::sync(move |cx| {
        let rows = separate_rows(cx, &Sparse::input(cx, 0)?)?;
        let map = name.find(cx)?;
        let mut numbers = vec![0; rows.len()];
        // Rows without entries come last, as in stock.
        let (empty, filled): (Vec<_>, Vec<_>) =
            rows.into_iter().enumerate().partition(|(_, row)| row[1].elements() == 0);
        for (row, parts) in filled.into_iter().chain(empty) {
            numbers[row] = map.add(parts);
        }
        Ok(Tensor::vector(numbers).into())
    })
}

fn take_kernel(init: &Init<'_>) -> Result<Kernel> {
    let name = MapName::new(init)?;
    let dtype: DType = init.attr("dtype")?;
    Kernel::sync(move |cx| {
        let numbers = cx.input(0)?;
        ensure!(
            numbers.rank() == 1,
            InvalidArgument,
            "sparse_handles should be a vector but received shape {}",
            numbers.shape()
        );
        ensure!(
            numbers.elements() > 0,
            InvalidArgument,
            "Must have at least 1 serialized SparseTensor, but input matrix has 0 rows"
        );
        let parts = name.find(cx)?.take(&name.name, numbers.flat()?)?;
        for (i, part) in parts.iter().enumerate() {
            ensure!(
                part[1].dtype() == dtype,
                InvalidArgument,
                "Requested SparseTensor of type {dtype} but SparseTensor[{i}].values.dtype() == {}",
                part[1].dtype()
            );
        }
        stacked(cx, &[parts.len() as i64], &parts)
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::resource::ResourceManager;
    use ferroflow_core::{DType, Shape, Tensor};

    #[test]
    fn a_tensor_is_taken_once() {
        let resources = ResourceManager::new("localhost");
        let node = |op| Node::new(op).attr("shared_name", "map").resources(&resources);
        let indices = Tensor::new(Shape::matrix(1, 2), vec![1i64, 4]).unwrap();
        let inputs = [indices, Tensor::vector(vec![1.0f32]), Tensor::vector(vec![2i64, 5])];
        let numbers = node("AddManySparseToTensorsMap").run(inputs).unwrap().remove(0);
        assert_eq!(numbers.flat::<i64>().unwrap(), [1, 0]);
        let take = || node("TakeManySparseFromTensorsMap").attr("dtype", DType::Float);
        let out = take().run([numbers.clone()]).unwrap();
        assert_eq!(out[0].flat::<i64>().unwrap(), [1, 4]);
        assert!(take().run([numbers]).is_err());
    }
}

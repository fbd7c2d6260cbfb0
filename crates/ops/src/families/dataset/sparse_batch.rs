//! Batches of dense elements of different sizes, as sparse tensors.

use super::parse::sparse_variant;
use crate::data::{
    Dataset, END, INFINITE, IteratorCx, Next, Source, SourceCx, Spec, UNKNOWN, kernel_of, scalar,
};
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, ensure, kernels};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[&DENSE_TO_SPARSE_BATCH_DATASET, &EXPERIMENTAL_DENSE_TO_SPARSE_BATCH_DATASET];

static DENSE_TO_SPARSE_BATCH_DATASET: Op = Op {
    name: "DenseToSparseBatchDataset",
    inputs: &["input_dataset: variant", "batch_size: int64", "row_shape: int64"],
    outputs: &["handle: variant"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: shapes::scalar,
    kernels: kernels![any sparse_batch_kernel],
    cheap: true,
    ..Op::PURE
};

static EXPERIMENTAL_DENSE_TO_SPARSE_BATCH_DATASET: Op =
    Op { name: "ExperimentalDenseToSparseBatchDataset", ..DENSE_TO_SPARSE_BATCH_DATASET };

fn sparse_batch_kernel(init: &Init<'_>) -> Result<Kernel> {
    let mut spec = Spec::new(init)?;
    spec.types = vec![DType::Variant];
    kernel_of(spec, |cx, spec| {
        let input = Dataset::input(cx, 0)?;
        ensure!(
            input.types().len() == 1,
            InvalidArgument,
            "DenseToSparseDataset only supports inputs with a single component."
        );
        let size: i64 = scalar(cx, 1, "batch_size")?;
        ensure!(size > 0, InvalidArgument, "Batch size must be greater than zero.");
        let row = cx.input(2)?;
        ensure!(row.rank() == 1, InvalidArgument, "row_shape must be a vector");
        let row: Arc<[i64]> = row.flat::<i64>()?.into();
        PartialShape::new(row.iter().copied())?;
        let cardinality = match input.cardinality() {
            special @ (INFINITE | UNKNOWN) => special,
            known => known.div_euclid(size) + (known % size != 0) as i64,
        };
        Ok(Dataset::new(spec, cardinality, move |cx| {
            Ok(Box::new(SparseBatch {
                input: Some(input.open(cx)?),
                size: size as usize,
                row: row.clone(),
                pending: Vec::new(),
                cx: cx.clone(),
            }))
        }))
    })
}

struct SparseBatch {
    input: Option<Box<dyn Source>>,
    size: usize,
    row: Arc<[i64]>,
    pending: Vec<Tensor>,
    cx: Arc<IteratorCx>,
}

impl Source for SparseBatch {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        while let Some(input) = &mut self.input
            && self.pending.len() < self.size
        {
            match ready!(input.poll_next(cx))? {
                Some(element) => {
                    let tensor = element.into_iter().next().unwrap_or_else(|| Tensor::scalar(0i64));
                    if let Err(error) = self.check(&tensor) {
                        self.pending.clear();
                        return Poll::Ready(Err(error));
                    }
                    self.pending.push(tensor);
                }
                None => self.input = None,
            }
        }
        if self.pending.is_empty() {
            return END;
        }
        let batch = std::mem::take(&mut self.pending);
        Poll::Ready(self.batch(&batch).map(|tensor| Some(vec![tensor])))
    }
}

impl SparseBatch {
    fn check(&self, tensor: &Tensor) -> Result<()> {
        let row = PartialShape::new(self.row.iter().copied())?;
        ensure!(
            tensor.rank() == self.row.len(),
            InvalidArgument,
            "Input element had shape ({}) that is incompatible with the row shape ({row}).",
            tensor.shape()
        );
        let fits = tensor.shape().dims().iter().zip(&*self.row).all(|(have, most)| *most < 0 || have <= most);
        ensure!(
            fits,
            DataLoss,
            "Input element had shape ({}) that is larger than the row shape ({row}).",
            tensor.shape()
        );
        Ok(())
    }

    fn batch(&self, elements: &[Tensor]) -> Result<Tensor> {
        let mut dense: Vec<i64> = self.row.iter().map(|dim| (*dim).max(0)).collect();
        let mut indices = Vec::new();
        for (row, tensor) in elements.iter().enumerate() {
            let dims = tensor.shape().dims();
            for (axis, dim) in dims.iter().enumerate() {
                if self.row[axis] < 0 {
                    dense[axis] = dense[axis].max(*dim);
                }
            }
            let mut place = vec![0i64; dims.len()];
            for _ in 0..tensor.elements() {
                indices.push(row as i64);
                indices.extend_from_slice(&place);
                for axis in (0..dims.len()).rev() {
                    place[axis] += 1;
                    if place[axis] < dims[axis] {
                        break;
                    }
                    place[axis] = 0;
                }
            }
        }
        dense.insert(0, elements.len() as i64);
        let count: usize = elements.iter().map(Tensor::elements).sum();
        let pieces: Vec<&Tensor> = elements.iter().filter(|tensor| tensor.elements() > 0).collect();
        let dtype = elements.first().map_or(DType::Float, Tensor::dtype);
        let values = rows::join(self.cx.device(), dtype, Shape::vector(count), &pieces)?;
        let indices = Tensor::new(Shape::matrix(count, dense.len()), indices)?;
        sparse_variant([indices, values, Tensor::vector(dense)])
    }
}

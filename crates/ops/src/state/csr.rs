//! Sparse matrices by rows: one or a batch of them as one value, and its wire form.

use super::variant_tensors::{VariantKind, VariantTensors};
use ferroflow_core::kernel::KernelCx;
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, Result, Tensor, ensure, status};

/// A matrix, or a batch of matrices of one shape. Pointers and columns are within bounds.
#[derive(Clone)]
pub(crate) struct Csr {
    /// Rows and columns, after the number of matrices if it is a batch.
    pub(crate) shape: Vec<i64>,
    /// The first entry of each matrix, and the end of the last one.
    pub(crate) batches: Vec<i32>,
    /// For each matrix, the first entry of each row among its own entries, and the end of the last row.
    pub(crate) rows: Vec<i32>,
    /// The column of each entry.
    pub(crate) columns: Vec<i32>,
    /// One value per entry.
    pub(crate) values: Tensor,
}

/// One matrix of a batch.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    pub(crate) rows: &'a [i32],
    pub(crate) columns: &'a [i32],
    /// The first entry among all of the batch.
    pub(crate) begin: usize,
}

impl Part<'_> {
    /// The entries of a row, counted within the matrix.
    pub(crate) fn row(&self, row: usize) -> std::ops::Range<usize> {
        self.rows[row] as usize..self.rows[row + 1] as usize
    }
}

impl Csr {
    /// A matrix of entries that are sorted by matrix and row.
    pub(crate) fn from_entries(shape: &[i64], indices: &[i64], values: Tensor) -> Result<Csr> {
        let rank = shape.len();
        let [rows, columns] = [shape[rank - 2], shape[rank - 1]];
        let count = if rank == 3 { shape[0] } else { 1 };
        let most = i32::MAX as i64;
        ensure!(
            count < most,
            InvalidArgument,
            "dense_shape batch_size must be < Int32Max, but the input value is {count}"
        );
        let pointers = rows.checked_add(1).and_then(|rows| rows.checked_mul(count));
        ensure!(
            pointers.is_some_and(|pointers| (0..=most).contains(&pointers))
                && values.elements() as i64 <= most,
            InvalidArgument,
            "The csr row index size, computed based on the dense_shape, must be <= Int32Max, but is too large"
        );
        let mut csr = Csr {
            shape: shape.to_vec(),
            batches: Vec::with_capacity(count as usize + 1),
            rows: vec![0; pointers.unwrap_or_default() as usize],
            columns: Vec::with_capacity(values.elements()),
            values,
        };
        for entry in 0..csr.values.elements() {
            let place = &indices[entry * rank..(entry + 1) * rank];
            let batch = if rank == 3 { place[0] } else { 0 };
            let [row, column] = [place[rank - 2], place[rank - 1]];
            for (what, at, size) in [("Batch", batch, count), ("Row", row, rows), ("Column", column, columns)]
            {
                ensure!(
                    (0..size).contains(&at),
                    InvalidArgument,
                    "{what} index {at} is outside of valid range [0, {size})"
                );
            }
            csr.rows[(batch * (rows + 1) + row + 1) as usize] += 1;
            csr.columns.push(column as i32);
            while csr.batches.len() as i64 <= batch {
                csr.batches.push(entry as i32);
            }
        }
        csr.batches.resize(count as usize + 1, csr.columns.len() as i32);
        if count == 1 {
            csr.batches[0] = 0;
        }
        for part in csr.rows.chunks_exact_mut(rows as usize + 1) {
            let mut total = 0;
            for pointer in part {
                total += *pointer;
                *pointer = total;
            }
        }
        Ok(csr)
    }

    /// The matrix that an input holds.
    pub(crate) fn input(cx: &KernelCx<'_>, input: usize) -> Result<Csr> {
        let tensor = cx.input(input)?;
        ensure!(
            tensor.rank() == 0,
            InvalidArgument,
            "Input variant should be a scalar, but saw shape: {}",
            tensor.shape()
        );
        let variant = &tensor.units::<Variant>()?[0];
        let value = VariantTensors::of(variant, VariantKind::Csr)?.ok_or_else(|| {
            status!(
                InvalidArgument,
                "Unable to retrieve 'variant' input {input} as a CSRSparseMatrix: it is a {variant:?}"
            )
        })?;
        Csr::from_tensors(&value.tensors)
    }

    fn from_tensors(tensors: &[Tensor]) -> Result<Csr> {
        let [shape, batches, rows, columns, values] = tensors else {
            return Err(status!(InvalidArgument, "a CSRSparseMatrix of {} tensors", tensors.len()));
        };
        let csr = Csr {
            shape: shape.flat::<i64>()?.to_vec(),
            batches: batches.flat::<i32>()?.to_vec(),
            rows: rows.flat::<i32>()?.to_vec(),
            columns: columns.flat::<i32>()?.to_vec(),
            values: values.clone(),
        };
        csr.check()?;
        Ok(csr)
    }

    /// Refuses pointers and columns that are out of bounds, which only other processes make.
    fn check(&self) -> Result<()> {
        let entries = self.columns.len();
        let ends = |pointers: &[i32], end: usize| {
            pointers.first() == Some(&0) && pointers.last() == Some(&(end as i32)) && pointers.is_sorted()
        };
        let bad = || status!(InvalidArgument, "CSRSparseMatrix::Validate: pointers are inconsistent");
        let rank = self.shape.len();
        ensure!((2..=3).contains(&rank), InvalidArgument, "{}", bad().message());
        let count = if rank == 3 { self.shape[0] } else { 1 };
        let pointers = self.shape[rank - 2].checked_add(1).and_then(|rows| rows.checked_mul(count));
        let fits = self.shape.iter().all(|dim| *dim >= 0)
            && self.batches.len() as i64 == count + 1
            && pointers == Some(self.rows.len() as i64)
            && self.values.rank() == 1
            && self.values.elements() == entries
            && ends(&self.batches, entries)
            && self.columns.iter().all(|column| (0..self.shape[rank - 1]).contains(&(*column as i64)))
            && (0..count as usize).all(|batch| {
                let part = self.part(batch);
                ends(part.rows, part.columns.len())
            });
        ensure!(fits, InvalidArgument, "{}", bad().message());
        Ok(())
    }

    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        let dtype = self.values.dtype();
        // As in stock: a flag that the value is valid, and after padding the type.
        let mut metadata = vec![1, 0, 0, 0];
        metadata.extend_from_slice(&dtype.to_wire().to_le_bytes());
        let tensors = vec![
            Tensor::vector(self.shape),
            Tensor::vector(self.batches),
            Tensor::vector(self.rows),
            Tensor::vector(self.columns),
            self.values,
        ];
        VariantTensors { kind: VariantKind::Csr, metadata: metadata.into(), tensors }.into_scalar()
    }

    pub(crate) fn dtype(&self) -> DType {
        self.values.dtype()
    }

    /// The number of matrices.
    pub(crate) fn count(&self) -> usize {
        self.batches.len() - 1
    }

    pub(crate) fn num_rows(&self) -> usize {
        self.shape[self.shape.len() - 2] as usize
    }

    pub(crate) fn num_columns(&self) -> usize {
        self.shape[self.shape.len() - 1] as usize
    }

    pub(crate) fn part(&self, batch: usize) -> Part<'_> {
        let (begin, end) = (self.batches[batch] as usize, self.batches[batch + 1] as usize);
        let rows = self.num_rows() + 1;
        Part { rows: &self.rows[batch * rows..(batch + 1) * rows], columns: &self.columns[begin..end], begin }
    }

    /// The coordinates of every entry: matrix if it is a batch, row and column.
    pub(crate) fn indices(&self) -> Vec<i64> {
        let mut indices = Vec::with_capacity(self.columns.len() * self.shape.len());
        for batch in 0..self.count() {
            let part = self.part(batch);
            for row in 0..self.num_rows() {
                for entry in part.row(row) {
                    indices.extend((self.shape.len() == 3).then_some(batch as i64));
                    indices.extend([row as i64, part.columns[entry] as i64]);
                }
            }
        }
        indices
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pointers_count_entries() {
        let values = Tensor::vector(vec![1.0f32, 2.0, 3.0]);
        let csr = Csr::from_entries(&[2, 2, 3], &[0, 1, 2, 1, 0, 0, 1, 1, 1], values).unwrap();
        assert_eq!((csr.batches.as_slice(), csr.rows.as_slice()), (&[0, 1, 3][..], &[0, 0, 1, 0, 1, 2][..]));
        assert_eq!(csr.indices(), [0, 1, 2, 1, 0, 0, 1, 1, 1]);
        csr.check().unwrap();
        let mut bad = csr.clone();
        bad.columns[0] = 9;
        assert!(bad.check().is_err());
        let mut bad = csr;
        bad.rows[2] = -7;
        assert!(bad.check().is_err());
    }
}

//! Tensors as numpy sees them. Arrays that Python receives use the tensor's own memory, by numpy's array interface, which
//! every version of numpy has and which needs nothing of numpy here.

use crate::errors::Result;
use bytes::Bytes;
use ferroflow::{DType, Shape, Status, Tensor};
use ferroflow_core::tensor::{Buffer, Storage};
use ferroflow_core::{bail, status};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};

/// A tensor from Python: the name of its type, its shape, and its elements.
#[derive(FromPyObject)]
pub(crate) struct GivenTensor(String, Vec<usize>, Elements);

/// Elements in the order of rows.
#[derive(FromPyObject)]
enum Elements {
    Plain(PyBackedBytes),
    Strings(Vec<PyBackedBytes>),
}

impl GivenTensor {
    /// Makes a tensor with a copy of the elements.
    pub(crate) fn into_tensor(self) -> Result<Tensor, Status> {
        let GivenTensor(name, dims, elements) = self;
        let dtype = DType::from_name(&name)
            .ok_or_else(|| status!(InvalidArgument, "'{name}' is not the name of an element type"))?;
        let shape = Shape::new(dims.into_iter().map(|dim| dim as i64))?;
        if dtype.is_plain() == matches!(elements, Elements::Strings(_)) || dtype == DType::Resource {
            bail!(InvalidArgument, "an array cannot be a tensor of {dtype}");
        }
        match elements {
            Elements::Plain(content) => {
                let Some(mut buffer) = Buffer::try_zeroed(content.len()) else {
                    bail!(ResourceExhausted, "there is no memory for a tensor of {} bytes", content.len());
                };
                buffer.make_mut().copy_from_slice(&content);
                Tensor::from_buffer(dtype, shape, buffer)
            }
            Elements::Strings(texts) => {
                Tensor::new(shape, texts.iter().map(|text| Bytes::copy_from_slice(text)).collect())
            }
        }
    }
}

/// The memory of a tensor, which numpy makes an array of without a copy.
#[pyclass(frozen, module = "ferroflow._ferroflow")]
pub(crate) struct TensorMemory(Tensor);

impl From<Tensor> for TensorMemory {
    fn from(tensor: Tensor) -> TensorMemory {
        TensorMemory(tensor)
    }
}

#[pymethods]
impl TensorMemory {
    /// The name of the element type, as TensorFlow spells it.
    #[getter]
    fn dtype(&self) -> &'static str {
        self.0.dtype().name()
    }

    /// The size of each dimension.
    #[getter]
    fn shape(&self) -> Vec<usize> {
        dims(self.0.shape())
    }

    /// The elements of a tensor of strings.
    fn strings<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyList>> {
        let Storage::Strings(texts) = self.0.storage() else {
            return Err(status!(InvalidArgument, "the elements are {}, not strings", self.0.dtype()).into());
        };
        Ok(PyList::new(py, texts.iter().map(|text| PyBytes::new(py, text)))?)
    }

    /// The address of the elements, for numpy. They can be written if nobody else holds the tensor: a fetched variable
    /// may share its memory with the server.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> Result<Bound<'py, PyDict>> {
        let memory = self.0.bytes()?;
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("shape", PyTuple::new(py, self.shape())?)?;
        interface.set_item("typestr", type_string(self.0.dtype()))?;
        interface.set_item("data", (memory.as_ptr() as usize, !self.0.is_unique()))?;
        Ok(interface)
    }
}

fn dims(shape: &Shape) -> Vec<usize> {
    shape.dims().iter().map(|dim| *dim as usize).collect()
}

/// Describes a type and its shape.
pub(crate) fn described(dtype: DType, shape: &Shape) -> (&'static str, Vec<usize>) {
    (dtype.name(), dims(shape))
}

/// Returns the type in the array interface's words; types that numpy does not have are numbers of their width.
fn type_string(dtype: DType) -> String {
    let kind = match dtype {
        DType::Bool => 'b',
        _ if dtype.is_complex() => 'c',
        DType::Float | DType::Double | DType::Half => 'f',
        DType::Int8 | DType::Int16 | DType::Int32 | DType::Int64 | DType::Int4 | DType::Int2 => 'i',
        DType::Qint8 | DType::Qint16 | DType::Qint32 => 'i',
        _ => 'u',
    };
    let order = if dtype.size() == 1 { '|' } else { '<' };
    format!("{order}{kind}{}", dtype.size())
}

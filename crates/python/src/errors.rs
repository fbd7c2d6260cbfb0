//! Statuses as Python exceptions: a class for every code, which the package's `errors.py` defines.

use ferroflow_core::Status;
use pyo3::prelude::*;

/// A result whose error becomes an exception.
pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// An error on its way to Python.
pub(crate) enum Error {
    Status(Status),
    Python(PyErr),
}

impl From<Status> for Error {
    fn from(status: Status) -> Error {
        Error::Status(status)
    }
}

impl From<PyErr> for Error {
    fn from(error: PyErr) -> Error {
        Error::Python(error)
    }
}

impl From<Error> for PyErr {
    fn from(error: Error) -> PyErr {
        match error {
            Error::Python(error) => error,
            Error::Status(status) => {
                Python::attach(|py| exception(py, &status).unwrap_or_else(|error| error))
            }
        }
    }
}

fn exception(py: Python<'_>, status: &Status) -> PyResult<PyErr> {
    let make = py.import("ferroflow.errors")?.getattr("from_code")?;
    Ok(PyErr::from_value(make.call1((status.code() as i32, status.message()))?))
}

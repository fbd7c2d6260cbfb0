//! Checkpoints and event files, read and written without a server.

use crate::arrays::{GivenTensor, TensorMemory, described};
use crate::errors::{Error, Result};
use ferroflow::{Status, Tensor};
use ferroflow_core::bail;
use ferroflow_core::tensor::Storage;
use ferroflow_io::bundle::{BundleReader, BundleWriter};
use ferroflow_io::events::FlushPolicy;
use ferroflow_io::table::TableReader;
use ferroflow_proto::tensorflow::event::What;
use ferroflow_proto::tensorflow::summary::value::Value;
use ferroflow_proto::tensorflow::{Event, Summary, TensorProto, summary};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

/// A checkpoint that is read a tensor at a time.
#[pyclass(frozen, module = "ferroflow._ferroflow")]
pub(crate) struct CheckpointReader {
    reader: BundleReader,
    names: Vec<String>,
}

#[pymethods]
impl CheckpointReader {
    /// Opens the checkpoint with this prefix.
    #[new]
    fn new(py: Python<'_>, prefix: &str) -> Result<CheckpointReader> {
        py.detach(|| {
            let (reader, names) = (BundleReader::open(prefix)?, names(prefix)?);
            Ok(CheckpointReader { reader, names })
        })
        .map_err(Error::Status)
    }

    /// The names of all tensors, in order.
    fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// A tensor's type and shape.
    fn describe(&self, py: Python<'_>, name: &str) -> Result<(&'static str, Vec<usize>)> {
        let (dtype, shape) = py.detach(|| self.reader.lookup(name))?;
        Ok(described(dtype, &shape))
    }

    /// Reads a tensor.
    fn read(&self, py: Python<'_>, name: &str) -> Result<TensorMemory> {
        Ok(py.detach(|| self.reader.read(name))?.into())
    }
}

/// Reads the names of all tensors from a checkpoint's index.
fn names(prefix: &str) -> Result<Vec<String>, Status> {
    let mut names = Vec::new();
    TableReader::open(Path::new(&format!("{prefix}.index")))?.for_each(|key, _| {
        // The empty key is the header's. Keys of slices of partitioned tensors begin with a zero; the whole tensor has an
        // entry, too.
        if !key.is_empty() && key[0] != 0 {
            names.push(String::from_utf8_lossy(key).into_owned());
        }
        Ok(())
    })?;
    Ok(names)
}

/// Writes a checkpoint with these tensors.
#[pyfunction]
pub(crate) fn write_checkpoint(
    py: Python<'_>,
    prefix: &str,
    tensors: Vec<(String, GivenTensor)>,
) -> Result<()> {
    py.detach(|| {
        let mut writer = BundleWriter::create(prefix)?;
        for (name, given) in tensors {
            writer.add(&name, &given.into_tensor()?)?;
        }
        writer.finish()
    })
    .map_err(Error::Status)
}

/// Returns the prefix of the latest checkpoint of a directory.
#[pyfunction]
pub(crate) fn latest_checkpoint(py: Python<'_>, directory: &str) -> Result<Option<String>> {
    py.detach(|| ferroflow::train::latest_checkpoint(directory)).map_err(Error::Status)
}

/// The value of a summary: a number, a tensor, or encoded bytes.
type SummaryValue = (String, Py<PyAny>);

/// An event: its time, its step, and the values of its summary by their tags.
type ReadEvent = (f64, i64, Vec<SummaryValue>);

/// Reads the events of a file that carry summaries. Images and sounds are the bytes of their files, and histograms the
/// bytes of the message `HistogramProto`.
#[pyfunction]
pub(crate) fn read_events(py: Python<'_>, path: &str) -> Result<Vec<ReadEvent>> {
    let events = py.detach(|| {
        let mut events = Vec::new();
        for event in ferroflow_io::events::read_events(path)? {
            let event = event?;
            if let Some(What::Summary(summary)) = event.what {
                events.push((event.wall_time, event.step, summary));
            }
        }
        Ok::<_, Error>(events)
    })?;
    let mut read = Vec::with_capacity(events.len());
    for (time, step, summary) in events {
        let mut values = Vec::with_capacity(summary.value.len());
        for value in summary.value {
            let Some(kind) = value.value else { continue };
            values.push((value.tag, to_python(py, kind)?));
        }
        read.push((time, step, values));
    }
    Ok(read)
}

/// A writer of an event file.
#[pyclass(frozen, module = "ferroflow._ferroflow")]
pub(crate) struct EventWriter {
    path: String,
    /// `None` once the file is closed.
    writer: Mutex<Option<ferroflow_io::events::EventWriter>>,
}

/// A summary's value from Python.
#[derive(FromPyObject)]
pub(crate) enum GivenSummary {
    Number(f32),
    Tensor(GivenTensor),
}

#[pymethods]
impl EventWriter {
    /// Creates an event file in a directory.
    #[new]
    fn new(py: Python<'_>, directory: &str, suffix: &str) -> Result<EventWriter> {
        let policy = FlushPolicy::default();
        let writer = py.detach(|| ferroflow_io::events::EventWriter::create(directory, suffix, policy))?;
        let path = writer.path().display().to_string();
        Ok(EventWriter { path, writer: Mutex::new(Some(writer)) })
    }

    /// The file's path.
    #[getter]
    fn path(&self) -> &str {
        &self.path
    }

    /// Writes the summaries of a step.
    fn write(
        &self,
        py: Python<'_>,
        step: i64,
        wall_time: f64,
        values: Vec<(String, GivenSummary)>,
    ) -> Result<()> {
        py.detach(|| {
            let mut summary = Summary::default();
            for (tag, given) in values {
                let value = match given {
                    GivenSummary::Number(number) => Value::SimpleValue(number),
                    GivenSummary::Tensor(tensor) => Value::Tensor(message(&tensor.into_tensor()?)?),
                };
                summary.value.push(summary::Value { tag, value: Some(value), ..Default::default() });
            }
            let event = Event { wall_time, step, what: Some(What::Summary(summary)), ..Default::default() };
            self.with(|writer| writer.write(&event))
        })
        .map_err(Error::Status)
    }

    /// Flushes all events to the file.
    fn flush(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| self.with(ferroflow_io::events::EventWriter::flush)).map_err(Error::Status)
    }

    /// Closes the file; closing it again does nothing.
    fn close(&self, py: Python<'_>) -> Result<()> {
        py.detach(|| {
            let writer = self.writer.lock().unwrap_or_else(PoisonError::into_inner).take();
            writer.map_or(Ok(()), ferroflow_io::events::EventWriter::finish)
        })
        .map_err(Error::Status)
    }
}

impl EventWriter {
    fn with(
        &self,
        act: impl FnOnce(&mut ferroflow_io::events::EventWriter) -> Result<(), Status>,
    ) -> Result<(), Status> {
        match &mut *self.writer.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(writer) => act(writer),
            None => bail!(FailedPrecondition, "the event file {} is closed; open another one", self.path),
        }
    }
}

/// Makes a message that TensorFlow's Python reads, too: it expects strings in a field of their own.
fn message(tensor: &Tensor) -> Result<TensorProto, Status> {
    match tensor.storage() {
        Storage::Strings(texts) => Ok(TensorProto { string_val: texts.to_vec(), ..tensor.header_proto() }),
        _ => tensor.to_proto(),
    }
}

fn to_python(py: Python<'_>, value: Value) -> Result<Py<PyAny>> {
    use prost::Message;
    let content = match value {
        Value::SimpleValue(number) => {
            return Ok(f64::from(number).into_pyobject(py).map_err(PyErr::from)?.into_any().unbind());
        }
        Value::Tensor(tensor) => {
            let memory = TensorMemory::from(Tensor::from_proto(&tensor)?);
            return Ok(Py::new(py, memory)?.into_any());
        }
        Value::Image(image) => image.encoded_image_string,
        Value::Audio(audio) => audio.encoded_audio_string,
        Value::Histo(histogram) => histogram.encode_to_vec().into(),
        Value::ObsoleteOldStyleHistogram(content) => content,
    };
    Ok(PyBytes::new(py, &content).into_any().unbind())
}

//! Datasets of the records of CSV files.

use crate::data::files::{self, Files, Input, OpenRecords, Records};
use crate::data::{Dataset, Element, UNKNOWN, kernel, scalar};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, kernels, status};
use std::io::BufRead;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&CSV_DATASET, &CSV_DATASET_V2, &EXPERIMENTAL_CSV_DATASET];

static CSV_DATASET: Op = Op {
    name: "CSVDataset",
    inputs: &[
        "filenames: string",
        "compression_type: string",
        "buffer_size: int64",
        "header: bool",
        "field_delim: string",
        "use_quote_delim: bool",
        "na_value: string",
        "select_cols: int64",
        "record_defaults: output_types",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list({float, double, int32, int64, string}) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any csv_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static CSV_DATASET_V2: Op = Op {
    name: "CSVDatasetV2",
    inputs: &[
        "filenames: string",
        "compression_type: string",
        "buffer_size: int64",
        "header: bool",
        "field_delim: string",
        "use_quote_delim: bool",
        "na_value: string",
        "select_cols: int64",
        "record_defaults: output_types",
        "exclude_cols: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &[
        "output_types: list({float, double, int32, int64, string}) >= 1",
        "output_shapes: list(shape) >= 1",
    ],
    shape: shapes::scalar,
    kernels: kernels![any csv_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_CSV_DATASET: Op = Op { name: "ExperimentalCSVDataset", ..CSV_DATASET };

/// The form of the files, the same for all of them.
struct Form {
    types: Vec<DType>,
    /// One value for fields that are missing, or none.
    defaults: Vec<Tensor>,
    delimiter: u8,
    quotes: bool,
    missing: Str,
    selected: Vec<i64>,
    excluded: Vec<i64>,
}

fn csv_kernel(init: &Init<'_>) -> Result<Kernel> {
    kernel(init, |cx, spec| {
        let names = files::names(cx, 0)?;
        let compression = files::compression(cx, 1)?;
        let buffer: i64 = scalar(cx, 2, "buffer_size")?;
        ensure!(buffer > 0, InvalidArgument, "buffer_size should be positive");
        let header: bool = scalar(cx, 3, "header")?;
        let form = Arc::new(Form::new(cx, &spec.types)?);
        let buffer = buffer.clamp(512, 64 << 20) as usize;
        let open: Arc<OpenRecords> = Arc::new(move |_, name, cx| {
            let input = files::open(name, compression, buffer, cx)?;
            let mut rows = CsvRows { input, name: name.to_owned(), form: form.clone() };
            if header {
                rows.skip_header()?;
            }
            Ok(Box::new(rows))
        });
        Ok(Dataset::new(spec, UNKNOWN, move |cx| Ok(Box::new(Files::new(&names, &open, cx)))))
    })
}

impl Form {
    fn new(cx: &KernelCx<'_>, types: &[DType]) -> Result<Form> {
        let delimiter: Str = scalar(cx, 4, "field_delim")?;
        ensure!(delimiter.len() == 1, InvalidArgument, "field_delim should be only 1 char");
        let columns = |input: usize, name: &str| -> Result<Vec<i64>> {
            let tensor = cx.input(input)?;
            ensure!(tensor.rank() == 1, InvalidArgument, "`{name}` must be a vector.");
            let columns = tensor.to_i64s()?;
            ensure!(
                columns.windows(2).all(|pair| pair[0] < pair[1]),
                InvalidArgument,
                "{name} should be strictly increasing indices"
            );
            ensure!(
                columns.first().is_none_or(|first| *first >= 0),
                InvalidArgument,
                "{name} should be non-negative indices"
            );
            Ok(columns)
        };
        let selected = columns(7, "select_cols")?;
        ensure!(
            selected.is_empty() || selected.len() == types.len(),
            InvalidArgument,
            "select_cols should match output size"
        );
        let mut defaults = Vec::with_capacity(types.len());
        for field in 0..types.len() {
            let default = cx.input(8 + field)?;
            ensure!(default.rank() <= 1, InvalidArgument, "Each record default should be at most rank 1");
            ensure!(
                default.elements() < 2,
                InvalidArgument,
                "There should only be 1 default per field but field {field} has {}",
                default.elements()
            );
            defaults.push(default.clone());
        }
        let excluded_at = 8 + types.len();
        let excluded =
            if cx.num_inputs() > excluded_at { columns(excluded_at, "exclude_cols")? } else { Vec::new() };
        ensure!(
            selected.is_empty() || excluded.is_empty(),
            InvalidArgument,
            "Either select_cols or exclude_cols should be empty"
        );
        Ok(Form {
            types: types.to_vec(),
            defaults,
            delimiter: delimiter[0],
            quotes: scalar(cx, 5, "use_quote_delim")?,
            missing: scalar(cx, 6, "na_value")?,
            selected,
            excluded,
        })
    }

    fn includes(&self, column: i64) -> bool {
        if !self.selected.is_empty() {
            return self.selected.binary_search(&column).is_ok();
        }
        self.excluded.binary_search(&column).is_err()
    }

    /// Adds a field to the record.
    fn add(&self, text: &[u8], record: &mut Element) -> Result<()> {
        let at = record.len();
        let Some(dtype) = self.types.get(at) else {
            bail!(InvalidArgument, "Expect {} fields but have more in record", self.types.len())
        };
        if text.is_empty() || text == &*self.missing {
            let default = &self.defaults[at];
            ensure!(
                default.elements() == 1,
                InvalidArgument,
                "Field {at} is required but missing in record!"
            );
            record.push(default.clone().reshaped(ferroflow_core::Shape::scalar())?);
            return Ok(());
        }
        let number = std::str::from_utf8(text).unwrap_or_default().trim();
        let invalid = || {
            let text = String::from_utf8_lossy(text);
            status!(InvalidArgument, "Field {at} in record is not a valid {dtype}: {text}")
        };
        record.push(match dtype {
            DType::Int32 => Tensor::scalar(number.parse::<i32>().map_err(|_| invalid())?),
            DType::Int64 => Tensor::scalar(number.parse::<i64>().map_err(|_| invalid())?),
            DType::Float => Tensor::scalar(number.parse::<f32>().map_err(|_| invalid())?),
            DType::Double => Tensor::scalar(number.parse::<f64>().map_err(|_| invalid())?),
            DType::String => Tensor::scalar(Str::copy_from_slice(text)),
            other => bail!(InvalidArgument, "csv: data type {other} not supported in field {at}"),
        });
        Ok(())
    }
}

/// The records of one file.
struct CsvRows {
    input: Input,
    name: String,
    form: Arc<Form>,
}

impl CsvRows {
    /// The next byte without taking it.
    fn peek(&mut self) -> Result<Option<u8>> {
        let buffered = self.input.fill_buf().map_err(|error| files::broken(&self.name, &error))?;
        Ok(buffered.first().copied())
    }

    /// Takes the next byte.
    fn take(&mut self) -> Result<Option<u8>> {
        let next = self.peek()?;
        self.input.consume(next.is_some() as usize);
        Ok(next)
    }

    /// Reads a field; the verdict is an error in its form, which does not keep the rest of the record from being read.
    /// Returns whether the record ends with it.
    fn field(&mut self, text: &mut Vec<u8>, verdict: &mut Result<()>) -> Result<bool> {
        let (delimiter, quotes) = (self.form.delimiter, self.form.quotes);
        if quotes && self.peek()? == Some(b'"') {
            self.take()?;
            return self.quoted(text, verdict);
        }
        loop {
            match self.take()? {
                None => return Ok(true),
                Some(byte) if byte == delimiter => return Ok(false),
                Some(b'\n') => return Ok(true),
                Some(b'\r') => return self.end_line(),
                Some(byte) => {
                    if byte == b'"' && quotes && verdict.is_ok() {
                        *verdict = Err(status!(InvalidArgument, "Unquoted fields cannot have quotes inside"));
                    }
                    text.push(byte);
                }
            }
        }
    }

    fn quoted(&mut self, text: &mut Vec<u8>, verdict: &mut Result<()>) -> Result<bool> {
        loop {
            match self.take()? {
                None => {
                    bail!(InvalidArgument, "Reached end of file without closing quoted field in record")
                }
                Some(b'"') => match self.take()? {
                    None => return Ok(true),
                    Some(byte) if byte == self.form.delimiter => return Ok(false),
                    Some(b'\n') => return Ok(true),
                    Some(b'\r') => return self.end_line(),
                    Some(b'"') => text.push(b'"'),
                    Some(byte) => {
                        if verdict.is_ok() {
                            *verdict = Err(status!(
                                InvalidArgument,
                                "Quote inside a string has to be escaped by another quote"
                            ));
                        }
                        text.push(byte);
                    }
                },
                Some(byte) => text.push(byte),
            }
        }
    }

    /// Takes the second half of a line end of two bytes.
    fn end_line(&mut self) -> Result<bool> {
        if self.peek()? == Some(b'\n') {
            self.take()?;
        }
        Ok(true)
    }

    fn skip_header(&mut self) -> Result<()> {
        ensure!(self.peek()?.is_some(), InvalidArgument, "Can't read header of file");
        let (mut text, mut verdict) = (Vec::new(), Ok(()));
        while !self.field(&mut text, &mut verdict)? {
            text.clear();
        }
        Ok(())
    }
}

impl Records for CsvRows {
    fn next(&mut self) -> Result<Option<Element>> {
        if self.peek()?.is_none() {
            return Ok(None);
        }
        let (mut record, mut text, mut verdict) = (Vec::new(), Vec::new(), Ok(()));
        let form = self.form.clone();
        for column in 0.. {
            text.clear();
            let ended = self.field(&mut text, &mut verdict)?;
            if form.includes(column) && verdict.is_ok() {
                verdict = form.add(&text, &mut record);
            }
            if ended {
                break;
            }
        }
        verdict?;
        ensure!(
            record.len() == form.types.len(),
            InvalidArgument,
            "Expect {} fields but have {} in record",
            form.types.len(),
            record.len()
        );
        Ok(Some(record))
    }

    fn goes_on_after_errors(&self) -> bool {
        true
    }
}

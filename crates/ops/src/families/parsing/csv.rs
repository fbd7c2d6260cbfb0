//! Lines of comma-separated values, a tensor per column.

use crate::families::string::numbers::Parse;
use crate::support::text::trim;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{Op, ShapeCx};
use ferroflow_core::{DType, Element, Result, Tensor, bail, ensure, kernels, status};
use std::borrow::Cow;

pub(crate) const OPS: &[&Op] = &[&DECODE_CSV];

static DECODE_CSV: Op = Op {
    name: "DecodeCSV",
    inputs: &["records: string", "record_defaults: OUT_TYPE"],
    outputs: &["output: OUT_TYPE"],
    attrs: &[
        "OUT_TYPE: list({float, double, int32, int64, string}) >= 1",
        "field_delim: string = ','",
        "use_quote_delim: bool = true",
        "na_value: string = ''",
        "select_cols: list(int) = []",
    ],
    shape: decode_csv_shape,
    kernels: kernels![any decode_csv_kernel],
    ..Op::PURE
};

fn decode_csv_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    for input in 1..s.num_inputs() {
        let default = s.rank_at_most(input, 1)?;
        let fits = default.dims().is_none_or(|dims| dims.iter().all(|dim| *dim <= 1));
        ensure!(
            fits,
            InvalidArgument,
            "Shape of a default must be a length-0 or length-1 vector, or a scalar."
        );
    }
    for output in 0..s.num_outputs() {
        s.set(output, s.input(0));
    }
    Ok(())
}

/// The rules by which lines are cut into fields.
pub(crate) struct Layout {
    pub(crate) delimiter: u8,
    pub(crate) quotes: bool,
    /// The columns that are wanted, in order; all if it is empty.
    pub(crate) columns: Vec<i64>,
}

impl Layout {
    /// Cuts a line. Oddities are stock's: line ends are ignored between fields, and a line ends with the last wanted
    /// column.
    pub(crate) fn fields<'a>(&self, line: &'a [u8], fields: &mut Vec<Cow<'a, [u8]>>) -> Result<()> {
        let (mut at, mut column) = (0, 0);
        let wanted = |column: i64, found: usize| self.columns.is_empty() || self.columns[found] == column;
        while at < line.len() {
            if matches!(line[at], b'\n' | b'\r') {
                at += 1;
                continue;
            }
            let field = if self.quotes && line[at] == b'"' {
                let (field, end) = self.quoted(line, at + 1)?;
                at = end;
                field
            } else {
                let rest = &line[at..];
                let end = rest.iter().position(|byte| *byte == self.delimiter).unwrap_or(rest.len());
                let field = &rest[..end];
                let odd = |byte: &u8| self.quotes && *byte == b'"' || matches!(byte, b'\n' | b'\r');
                ensure!(
                    !field.iter().any(odd),
                    InvalidArgument,
                    "Unquoted fields cannot have quotes/CRLFs inside"
                );
                at += end + 1;
                Cow::Borrowed(field)
            };
            if wanted(column, fields.len()) {
                fields.push(field);
                if fields.len() == self.columns.len() {
                    return Ok(());
                }
            }
            column += 1;
        }
        if line.last() == Some(&self.delimiter) && wanted(column, fields.len()) {
            fields.push(Cow::Borrowed(&[]));
        }
        Ok(())
    }

    /// The field whose text starts at `at`, after its quote, and where the next one starts.
    fn quoted<'a>(&self, line: &'a [u8], mut at: usize) -> Result<(Cow<'a, [u8]>, usize)> {
        let (start, mut text) = (at, None::<Vec<u8>>);
        let ends = |at: usize| line[at] == b'"' && line[at + 1] == self.delimiter;
        while at + 1 < line.len() && !ends(at) {
            if line[at] == b'"' {
                ensure!(
                    line[at + 1] == b'"',
                    InvalidArgument,
                    "Quote inside a string has to be escaped by another quote"
                );
                // From here on the text differs from the line's.
                text.get_or_insert_with(|| line[start..at].to_vec()).push(b'"');
                at += 2;
            } else {
                if let Some(text) = &mut text {
                    text.push(line[at]);
                }
                at += 1;
            }
        }
        ensure!(
            line.get(at) == Some(&b'"'),
            InvalidArgument,
            "Quoted field has to end with quote followed by delim or end"
        );
        Ok((text.map_or(Cow::Borrowed(&line[start..at]), Cow::Owned), at + 2))
    }
}

fn decode_csv_kernel(init: &Init<'_>) -> Result<Kernel> {
    let types: Vec<DType> = init.attr("OUT_TYPE")?;
    let (delimiter, na): (Str, Str) = (init.attr("field_delim")?, init.attr("na_value")?);
    let (quotes, columns): (bool, Vec<i64>) = (init.attr("use_quote_delim")?, init.attr("select_cols")?);
    ensure!(
        columns.is_empty() || columns.len() == types.len(),
        InvalidArgument,
        "select_cols should match output size"
    );
    ensure!(
        columns.is_sorted_by(|a, b| a < b),
        InvalidArgument,
        "select_cols should be strictly increasing indices"
    );
    ensure!(
        columns.first().is_none_or(|column| *column >= 0),
        InvalidArgument,
        "select_cols should be non-negative indices"
    );
    ensure!(delimiter.len() == 1, InvalidArgument, "field_delim should be only 1 char");
    let layout = Layout { delimiter: delimiter[0], quotes, columns };
    Kernel::sync(move |cx| {
        let records = cx.input(0)?;
        let mut values = Vec::with_capacity(types.len());
        for (f, dtype) in types.iter().enumerate() {
            let default = cx.input(f + 1)?;
            ensure!(default.rank() <= 1, InvalidArgument, "Each record default should be at most rank 1");
            ensure!(
                default.elements() < 2,
                InvalidArgument,
                "There should only be 1 default per field but field {f} has {}",
                default.elements()
            );
            values.push(Values::new(*dtype, default, records.elements())?);
        }
        let mut fields = Vec::with_capacity(types.len());
        for (i, record) in records.flat::<Str>()?.iter().enumerate() {
            fields.clear();
            layout.fields(record, &mut fields)?;
            ensure!(
                fields.len() == types.len(),
                InvalidArgument,
                "Expect {} fields but have {} in record {i}",
                types.len(),
                fields.len()
            );
            for (f, (field, values)) in fields.iter().zip(&mut values).enumerate() {
                let (missing, is_part) =
                    (field.is_empty() || **field == *na, matches!(field, Cow::Borrowed(_)));
                values.push(record, field, is_part, missing).map_err(|complaint| match complaint {
                    Complaint::Missing => {
                        status!(InvalidArgument, "Field {f} is required but missing in record {i}!")
                    }
                    Complaint::Invalid(dtype) => status!(
                        InvalidArgument,
                        "Field {f} in record {i} is not a valid {dtype}: {}",
                        String::from_utf8_lossy(field)
                    ),
                })?;
            }
        }
        let tensors = values.into_iter().map(|values| values.finish(records));
        Ok(tensors.collect::<Result<Vec<Tensor>>>()?.into())
    })
}

/// The mistakes of a field.
enum Complaint {
    Missing,
    Invalid(DType),
}

/// The values of a column so far, and the one of an empty field, if there is one.
enum Values {
    Int32(Vec<i32>, Option<i32>),
    Int64(Vec<i64>, Option<i64>),
    Float(Vec<f32>, Option<f32>),
    Double(Vec<f64>, Option<f64>),
    Text(Vec<Str>, Option<Str>),
}

impl Values {
    fn new(dtype: DType, default: &Tensor, records: usize) -> Result<Values> {
        fn column<T: Element>(default: &Tensor, records: usize) -> Result<(Vec<T>, Option<T>)> {
            Ok((Vec::with_capacity(records), default.flat::<T>()?.first().cloned()))
        }
        macro_rules! of {
            ($variant:ident) => {{
                let (values, default) = column(default, records)?;
                Values::$variant(values, default)
            }};
        }
        Ok(match dtype {
            DType::Int32 => of!(Int32),
            DType::Int64 => of!(Int64),
            DType::Float => of!(Float),
            DType::Double => of!(Double),
            DType::String => of!(Text),
            other => bail!(InvalidArgument, "csv: data type {other} not supported"),
        })
    }

    /// Appends a field, which may be a part of its record's memory.
    fn push(&mut self, record: &Str, field: &[u8], is_part: bool, missing: bool) -> Result<(), Complaint> {
        macro_rules! number {
            ($values:ident, $default:ident, $dtype:ident) => {{
                let value = if missing {
                    $default.ok_or(Complaint::Missing)?
                } else {
                    let text = std::str::from_utf8(trim(field)).ok();
                    text.and_then(Parse::parse).ok_or(Complaint::Invalid(DType::$dtype))?
                };
                $values.push(value)
            }};
        }
        match self {
            Values::Int32(values, default) => number!(values, default, Int32),
            Values::Int64(values, default) => number!(values, default, Int64),
            Values::Float(values, default) => number!(values, default, Float),
            Values::Double(values, default) => number!(values, default, Double),
            Values::Text(values, default) => values.push(if missing {
                default.clone().ok_or(Complaint::Missing)?
            } else if is_part {
                record.slice_ref(field)
            } else {
                Str::copy_from_slice(field)
            }),
        }
        Ok(())
    }

    fn finish(self, records: &Tensor) -> Result<Tensor> {
        let shape = records.shape().clone();
        match self {
            Values::Int32(values, _) => Tensor::new(shape, values),
            Values::Int64(values, _) => Tensor::new(shape, values),
            Values::Float(values, _) => Tensor::new(shape, values),
            Values::Double(values, _) => Tensor::new(shape, values),
            Values::Text(values, _) => Tensor::new(shape, values),
        }
    }
}

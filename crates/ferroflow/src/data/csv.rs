//! CSV files: rows as typed columns, or as the user's structs.

use super::Features;
use super::dataset::{Dataset, Elements, failed};
use ::csv::{ReaderBuilder, StringRecord};
use bytes::Bytes;
use ferroflow_core::{Code, DType, Result, Status, Tensor, bail, ensure, status};
use std::path::{Path, PathBuf};

/// Reads the rows of a file as values of any type that serde deserializes, such as a struct with a field per column.
///
/// ```no_run
/// use ferroflow::data::csv_rows;
///
/// #[derive(serde::Deserialize)]
/// struct House {
///     rooms: u32,
///     price: f32,
/// }
///
/// let houses = csv_rows::<House>("houses.csv").map(|house| ([house.rooms as f32], house.price)).batch(32);
/// ```
///
/// The program needs `serde` with its feature `derive`. A file without rows is an error.
pub fn csv_rows<T: serde::de::DeserializeOwned + Send + 'static>(path: impl Into<PathBuf>) -> Dataset<T> {
    let path = path.into();
    Dataset::new(move |_| {
        let path = path.clone();
        match ::csv::Reader::from_path(&path) {
            Ok(reader) => {
                let (rows, file) = (reader.into_deserialize(), path.clone());
                let rows = rows.map(move |row| row.map_err(|error| unreadable(&file, &error)));
                at_least_one(rows, path, true)
            }
            Err(error) => failed(move || Err(unreadable(&path, &error))),
        }
    })
}

/// Starts the description of a CSV file whose columns become features; see [`CsvFile`].
pub fn csv(path: impl Into<PathBuf>) -> CsvFile {
    CsvFile {
        path: path.into(),
        header: true,
        delimiter: b',',
        quote: Some(b'"'),
        missing: String::new(),
        columns: Vec::new(),
    }
}

/// Type of a column, and the value of its empty fields.
#[derive(Clone, Debug)]
pub struct Column {
    dtype: DType,
    default: Option<Tensor>,
}

impl Column {
    /// Describes a column without empty fields, of type float, double, int32, int64 or string.
    pub fn required(dtype: DType) -> Column {
        Column { dtype, default: None }
    }

    /// Describes a column of the type of `default`, which replaces empty fields.
    pub fn or(default: Tensor) -> Column {
        Column { dtype: default.dtype(), default: Some(default) }
    }
}

impl From<DType> for Column {
    fn from(dtype: DType) -> Column {
        Column::required(dtype)
    }
}

/// Description of a CSV file. With a header, columns are found by name, and those not named here are ignored; without
/// one, name every column of the file in order.
///
/// ```
/// use ferroflow::data::{Column, csv};
/// use ferroflow::{DType, Tensor};
/// # fn main() -> ferroflow::Result<()> {
/// # let path = std::env::temp_dir().join(format!("houses-{}.csv", std::process::id()));
/// std::fs::write(&path, "rooms,street,price\n3,\"Main, North\",1.5\n,Side,2\n").unwrap();
/// let houses = csv(&path)
///     .column("price", DType::Float)
///     .column("rooms", Column::or(Tensor::scalar(1i64)))
///     .dataset()?;
/// let batch = &houses.batch(2).collect()?[0];
/// assert_eq!(batch["price"].flat::<f32>()?, [1.5, 2.0]);
/// assert_eq!(batch["rooms"].flat::<i64>()?, [3, 1]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct CsvFile {
    path: PathBuf,
    header: bool,
    delimiter: u8,
    quote: Option<u8>,
    missing: String,
    columns: Vec<(String, Column)>,
}

impl CsvFile {
    /// Sets whether the first row names the columns; `true` by default.
    pub fn header(mut self, header: bool) -> CsvFile {
        self.header = header;
        self
    }

    /// Sets the separator of fields; a comma by default.
    pub fn delimiter(mut self, delimiter: u8) -> CsvFile {
        self.delimiter = delimiter;
        self
    }

    /// Sets the quote character: `"` by default, `None` for files where quotes are ordinary text.
    pub fn quote(mut self, quote: Option<u8>) -> CsvFile {
        self.quote = quote;
        self
    }

    /// Sets a text that means "no value", in addition to an empty field.
    pub fn missing(mut self, text: impl Into<String>) -> CsvFile {
        self.missing = text.into();
        self
    }

    /// Adds a column: a type if its fields must have values, or a [`Column`] with a default.
    pub fn column(mut self, name: impl Into<String>, column: impl Into<Column>) -> CsvFile {
        self.columns.push((name.into(), column.into()));
        self
    }

    /// Returns the rows, each with a scalar per column. Every pass opens the file.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` if no column is named, a type is not supported or a default is not a scalar. A file that is missing,
    /// has no rows or has a field of another type is an error of the pass.
    pub fn dataset(self) -> Result<Dataset<Features>> {
        ensure!(
            !self.columns.is_empty(),
            InvalidArgument,
            "no column of {} is named; name at least one with CsvFile::column",
            self.path.display()
        );
        for (name, column) in &self.columns {
            ensure!(
                matches!(
                    column.dtype,
                    DType::Float | DType::Double | DType::Int32 | DType::Int64 | DType::String
                ),
                InvalidArgument,
                "column '{name}': {} is not a type of CSV fields; use float, double, int32, int64 or string",
                column.dtype
            );
            let scalar = column.default.as_ref().is_none_or(|default| default.rank() == 0);
            ensure!(
                scalar,
                InvalidArgument,
                "column '{name}': the default is not a scalar; pass Tensor::scalar(…)"
            );
        }
        Ok(Dataset::new(move |_| self.open().unwrap_or_else(|status| failed(move || Err(status)))))
    }

    fn open(&self) -> Result<Elements<Features>> {
        let mut builder = ReaderBuilder::new();
        builder.has_headers(self.header).delimiter(self.delimiter).flexible(true);
        match self.quote {
            Some(quote) => builder.quote(quote),
            None => builder.quoting(false),
        };
        let opened = builder.from_path(&self.path);
        let mut reader = opened.map_err(|error| unreadable(&self.path, &error))?;
        let places: Vec<usize> = if self.header {
            let header = reader.headers().map_err(|error| unreadable(&self.path, &error))?;
            ensure!(!header.is_empty(), InvalidArgument, "{}", no_rows(&self.path, true));
            let place = |name: &str| {
                let place = header.iter().position(|column| column == name);
                place.ok_or_else(|| {
                    let (path, all) = (self.path.display(), header.iter().collect::<Vec<_>>().join(", "));
                    status!(InvalidArgument, "{path} does not have a column '{name}'; its columns are {all}")
                })
            };
            self.columns.iter().map(|(name, _)| place(name)).collect::<Result<_>>()?
        } else {
            (0..self.columns.len()).collect()
        };
        let file = self.clone();
        let rows = reader.into_records().enumerate();
        let rows = rows.map(move |(number, row)| {
            let row = row.map_err(|error| unreadable(&file.path, &error))?;
            if !file.header {
                ensure!(
                    row.len() == places.len(),
                    InvalidArgument,
                    "Expect {} fields but have {} in record {number} of {}",
                    places.len(),
                    row.len(),
                    file.path.display()
                );
            }
            file.parse(&row, &places, number)
        });
        Ok(at_least_one(rows, self.path.clone(), self.header))
    }

    fn parse(&self, row: &StringRecord, places: &[usize], number: usize) -> Result<Features> {
        let parse = |((name, column), place): (&(String, Column), &usize)| {
            let text = row.get(*place).unwrap_or_default();
            if text.is_empty() || text == self.missing {
                return match &column.default {
                    Some(default) => Ok((name.clone(), default.clone())),
                    None => {
                        bail!(
                            InvalidArgument,
                            "Field {place} is required but missing in record {number}! Column '{name}' of {} has no \
                             default; give it one with Column::or.",
                            self.path.display()
                        )
                    }
                };
            }
            let value = parse_field(text, column.dtype).ok_or_else(|| {
                let (dtype, path) = (column.dtype, self.path.display());
                status!(
                    InvalidArgument,
                    "Field {place} in record {number} is not a valid {dtype}: {text} (column '{name}' of {path})"
                )
            })?;
            Ok((name.clone(), value))
        };
        self.columns.iter().zip(places).map(parse).collect()
    }
}

fn parse_field(text: &str, dtype: DType) -> Option<Tensor> {
    let trimmed = text.trim();
    match dtype {
        DType::Float => trimmed.parse().ok().map(Tensor::scalar::<f32>),
        DType::Double => trimmed.parse().ok().map(Tensor::scalar::<f64>),
        DType::Int32 => trimmed.parse().ok().map(Tensor::scalar::<i32>),
        DType::Int64 => trimmed.parse().ok().map(Tensor::scalar::<i64>),
        _ => Some(Tensor::scalar(Bytes::copy_from_slice(text.as_bytes()))),
    }
}

/// Passes rows on, or an error if there are none: training on an empty file would end at once and look like success.
fn at_least_one<T: Send + 'static>(
    rows: impl Iterator<Item = Result<T>> + Send + 'static,
    path: PathBuf,
    header: bool,
) -> Elements<T> {
    let mut rows = rows.peekable();
    let mut first = true;
    Box::new(std::iter::from_fn(move || {
        let empty = std::mem::take(&mut first) && rows.peek().is_none();
        if empty {
            Some(Err(Status::new(Code::InvalidArgument, no_rows(&path, header))))
        } else {
            rows.next()
        }
    }))
}

fn no_rows(path: &Path, header: bool) -> String {
    let expected = if header { "a header and at least one row below it" } else { "at least one row" };
    format!("{} has no rows; expected {expected}", path.display())
}

fn unreadable(path: &Path, error: &::csv::Error) -> Status {
    match error.kind() {
        ::csv::ErrorKind::Io(error) => ferroflow_io::file::status(path, error),
        _ => Status::new(Code::InvalidArgument, format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(text: &str, read: impl Fn(CsvFile) -> CsvFile) -> Vec<Result<Features>> {
        let unique = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_nanos();
        let path = std::env::temp_dir().join(format!("ferroflow-csv-{}-{unique}", std::process::id()));
        std::fs::write(&path, text).unwrap();
        let rows = read(csv(&path)).dataset().unwrap().iter().collect();
        std::fs::remove_file(path).unwrap();
        rows
    }

    fn message(row: &Result<Features>) -> &str {
        row.as_ref().unwrap_err().message()
    }

    #[test]
    fn a_bad_field_is_named_and_the_next_row_is_read() {
        let rows = rows("x,1\n2,\n3,4,5\n6,7\n", |file| {
            file.header(false).column("a", DType::Int32).column("b", DType::Float)
        });
        assert!(message(&rows[0]).starts_with("Field 0 in record 0 is not a valid int32: x (column 'a' of "));
        assert!(message(&rows[1]).starts_with("Field 1 is required but missing in record 1! Column 'b' of "));
        assert!(message(&rows[2]).starts_with("Expect 2 fields but have 3 in record 2 of "));
        assert_eq!(rows[3].as_ref().unwrap()["b"].to_scalar::<f32>().unwrap(), 7.0);
    }

    #[test]
    fn quotes_delimiters_and_missing_texts() {
        let quoted = rows("name;n\n\"a;\"\"b\"\nNA;2\n", |file| {
            file.delimiter(b';').missing("NA").column("name", Column::or(Tensor::scalar(Bytes::from("none"))))
        });
        let name = |row: &Result<Features>| row.as_ref().unwrap()["name"].to_scalar::<Bytes>().unwrap();
        assert_eq!(quoted.iter().map(name).collect::<Vec<_>>(), ["a;\"b", "none"]);
        let missing = rows("a,b\n1,2\n", |file| file.column("c", DType::Float));
        assert!(message(&missing[0]).ends_with("does not have a column 'c'; its columns are a, b"));
        for empty in ["", "a,b\n"] {
            let rows = rows(empty, |file| file.column("a", DType::Float));
            let message = rows.first().map(message).unwrap_or_default();
            assert!(
                message.ends_with(" has no rows; expected a header and at least one row below it"),
                "{message}"
            );
            assert_eq!(rows.len(), 1);
        }
        let bare = rows("", |file| file.header(false).column("a", DType::Float));
        assert!(message(&bare[0]).ends_with("has no rows; expected at least one row"));
        let status = csv("no/such/file").column("a", DType::Float).dataset().unwrap().collect().unwrap_err();
        assert_eq!(status.code(), Code::NotFound);
    }
}

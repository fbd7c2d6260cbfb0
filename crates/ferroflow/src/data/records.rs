//! TFRecord files as datasets.

use super::dataset::{Dataset, Elements, failed};
use bytes::Bytes;
use ferroflow_io::record::{Compression, RecordReader};
use std::path::PathBuf;

/// Reads the records of TFRecord files, one file after another.
///
/// ```
/// use ferroflow::data::{Compression, RecordWriter, tf_record};
/// # fn main() -> ferroflow::Result<()> {
/// let path = std::env::temp_dir().join(format!("records-{}", std::process::id()));
/// let mut writer = RecordWriter::create(&path, Compression::None)?;
/// writer.write(b"first")?;
/// writer.finish()?;
/// assert_eq!(tf_record([&path]).collect()?, ["first"]);
/// # std::fs::remove_file(path).unwrap();
/// # Ok(())
/// # }
/// ```
pub fn tf_record<P: Into<PathBuf>>(paths: impl IntoIterator<Item = P>) -> Dataset<Bytes> {
    tf_record_compressed(paths, Compression::None)
}

/// Reads the records of compressed TFRecord files, one file after another.
pub fn tf_record_compressed<P: Into<PathBuf>>(
    paths: impl IntoIterator<Item = P>,
    compression: Compression,
) -> Dataset<Bytes> {
    let paths: Vec<PathBuf> = paths.into_iter().map(Into::into).collect();
    Dataset::new(move |_| {
        let records = paths.clone().into_iter().flat_map(move |path| -> Elements<Bytes> {
            match RecordReader::open(&path, compression) {
                Ok(records) => Box::new(records.map(move |record| {
                    record.map_err(|error| error.map_message(|text| format!("{}: {text}", path.display())))
                })),
                Err(status) => failed(move || Err(status)),
            }
        });
        Box::new(records)
    })
}

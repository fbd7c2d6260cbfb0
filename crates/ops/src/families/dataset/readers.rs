//! Datasets of the records and lines of files, and of the names of files.

use crate::data::Spec;
use crate::data::files::{self, Files, Input, OpenRecords, Records, string_element};
use crate::data::{Dataset, END, Element, IteratorCx, Next, Source, SourceCx, UNKNOWN, kernel_of, scalar};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Str};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{DType, PartialShape, Result, ensure, kernels, status};
use ferroflow_io::record::{Compression, RecordReader};
use std::collections::VecDeque;
use std::io::{BufRead, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::task::{Poll, ready};

pub(crate) const OPS: &[&Op] = &[
    &TF_RECORD_DATASET,
    &TF_RECORD_DATASET_V2,
    &TEXT_LINE_DATASET,
    &FIXED_LENGTH_RECORD_DATASET,
    &FIXED_LENGTH_RECORD_DATASET_V2,
    &MATCHING_FILES_DATASET,
    &EXPERIMENTAL_MATCHING_FILES_DATASET,
];

static TF_RECORD_DATASET: Op = Op {
    name: "TFRecordDataset",
    inputs: &["filenames: string", "compression_type: string", "buffer_size: int64"],
    outputs: &["handle: variant"],
    attrs: &["metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any tf_record_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TF_RECORD_DATASET_V2: Op = Op {
    name: "TFRecordDatasetV2",
    inputs: &["filenames: string", "compression_type: string", "buffer_size: int64", "byte_offsets: int64"],
    outputs: &["handle: variant"],
    attrs: &["metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any tf_record_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static TEXT_LINE_DATASET: Op = Op {
    name: "TextLineDataset",
    inputs: &["filenames: string", "compression_type: string", "buffer_size: int64"],
    outputs: &["handle: variant"],
    attrs: &["metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any text_line_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static FIXED_LENGTH_RECORD_DATASET: Op = Op {
    name: "FixedLengthRecordDataset",
    inputs: &[
        "filenames: string",
        "header_bytes: int64",
        "record_bytes: int64",
        "footer_bytes: int64",
        "buffer_size: int64",
    ],
    outputs: &["handle: variant"],
    attrs: &["metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any fixed_length_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static FIXED_LENGTH_RECORD_DATASET_V2: Op = Op {
    name: "FixedLengthRecordDatasetV2",
    inputs: &[
        "filenames: string",
        "header_bytes: int64",
        "record_bytes: int64",
        "footer_bytes: int64",
        "buffer_size: int64",
        "compression_type: string",
    ],
    outputs: &["handle: variant"],
    attrs: &["metadata: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any fixed_length_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static MATCHING_FILES_DATASET: Op = Op {
    name: "MatchingFilesDataset",
    inputs: &["patterns: string"],
    outputs: &["handle: variant"],
    shape: shapes::scalar,
    kernels: kernels![any matching_files_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static EXPERIMENTAL_MATCHING_FILES_DATASET: Op =
    Op { name: "ExperimentalMatchingFilesDataset", ..MATCHING_FILES_DATASET };

/// A kernel of a dataset whose elements are one string each.
fn strings_kernel(
    init: &Init<'_>,
    make: impl Fn(&mut KernelCx<'_>, &Arc<Spec>) -> Result<Dataset> + Send + Sync + 'static,
) -> Result<Kernel> {
    let mut spec = Spec::new(init)?;
    (spec.types, spec.shapes) = (vec![DType::String], vec![PartialShape::scalar()]);
    kernel_of(spec, make)
}

/// A scalar string of an input as text.
pub(super) fn path_of(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<String> {
    files::text(&scalar::<Str>(cx, input, name)?)
}

fn tf_record_kernel(init: &Init<'_>) -> Result<Kernel> {
    strings_kernel(init, |cx, spec| {
        // Stock takes what it does not know for no compression.
        let compression = path_of(cx, 1, "compression_type").and_then(|name| Compression::from_name(&name));
        let (names, compression) = (files::names(cx, 0)?, compression.unwrap_or_default());
        let buffer = files::buffer_size(cx, 2, " (0 == no buffering)")?;
        let mut offsets = Vec::new();
        if cx.num_inputs() > 3 {
            let tensor = cx.input(3)?;
            ensure!(tensor.rank() <= 1, InvalidArgument, "`byte_offsets` must be a scalar or a vector.");
            offsets = tensor.to_i64s()?;
            ensure!(
                offsets.is_empty() || offsets.len() == names.len(),
                InvalidArgument,
                "`byte_offsets` must be of same size as `filenames`"
            );
        }
        let has_offsets = !offsets.is_empty();
        let open: Arc<OpenRecords> = Arc::new(move |file, name, cx| {
            let mut plain = files::open_plain(name, buffer, cx)?;
            if let Some(offset) = offsets.get(file).filter(|offset| **offset > 0) {
                let moved = plain.seek(SeekFrom::Start(*offset as u64));
                moved.map_err(|error| files::broken(name, &error))?;
            }
            Ok(Box::new(TfRecords(RecordReader::new(plain, compression))))
        });
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            // Offsets of another kind are not part of stock's state.
            let stage = (!has_offsets).then_some("TFRecord");
            Ok(Box::new(Files::new(&names, &open, cx).named(stage)))
        }))
    })
}

struct TfRecords(RecordReader);

impl Records for TfRecords {
    fn next(&mut self) -> Result<Option<Element>> {
        Ok(self.0.read()?.map(string_element))
    }

    fn place(&self) -> Option<(&'static str, &'static str, u64)> {
        Some(("TFRecord", "offset", self.0.position()))
    }

    fn go_to(&mut self, place: u64) -> Result<()> {
        while self.0.position() < place && self.0.read()?.is_some() {}
        Ok(())
    }
}

fn text_line_kernel(init: &Init<'_>) -> Result<Kernel> {
    strings_kernel(init, |cx, spec| {
        let (names, compression) = (files::names(cx, 0)?, files::compression(cx, 1)?);
        let buffer = files::buffer_size(cx, 2, " (0 == default)")?;
        let open: Arc<OpenRecords> = Arc::new(move |_, name, cx| {
            let input = files::open(name, compression, buffer, cx)?;
            Ok(Box::new(Lines { input, name: name.to_owned(), place: 0 }))
        });
        Ok(Dataset::new(spec, UNKNOWN, move |cx| {
            Ok(Box::new(Files::new(&names, &open, cx).named(Some("TextLine"))))
        }))
    })
}

struct Lines {
    input: Input,
    name: String,
    /// The number of bytes that were read.
    place: u64,
}

impl Records for Lines {
    fn next(&mut self) -> Result<Option<Element>> {
        let mut line = Vec::new();
        let read = self.input.read_until(b'\n', &mut line);
        let read = read.map_err(|error| files::broken(&self.name, &error))?;
        self.place += read as u64;
        if read == 0 {
            return Ok(None);
        }
        let ended = line.last() == Some(&b'\n');
        // Stock drops every carriage return, wherever it is.
        line.retain(|byte| !matches!(byte, b'\n' | b'\r'));
        Ok((ended || !line.is_empty()).then(|| string_element(line)))
    }

    fn place(&self) -> Option<(&'static str, &'static str, u64)> {
        Some(("TextLine", "current_pos", self.place))
    }

    fn go_to(&mut self, place: u64) -> Result<()> {
        let skipped = std::io::copy(&mut self.input.by_ref().take(place), &mut std::io::sink());
        self.place = skipped.map_err(|error| files::broken(&self.name, &error))?;
        Ok(())
    }
}

fn fixed_length_kernel(init: &Init<'_>) -> Result<Kernel> {
    let compressed = init.op.ends_with("V2");
    strings_kernel(init, move |cx, spec| {
        let names = files::names(cx, 0)?;
        let (header, record): (i64, i64) = (scalar(cx, 1, "header_bytes")?, scalar(cx, 2, "record_bytes")?);
        let footer: i64 = scalar(cx, 3, "footer_bytes")?;
        ensure!(header >= 0, InvalidArgument, "`header_bytes` must be >= 0");
        ensure!(record > 0, InvalidArgument, "`record_bytes` must be > 0");
        ensure!(footer >= 0, InvalidArgument, "`footer_bytes` must be >= 0");
        let buffer = files::buffer_size(cx, 4, "")?;
        let compression = if compressed { files::compression(cx, 5)? } else { Compression::None };
        let layout = FixedLayout { header: header as u64, record: record as u64, footer: footer as u64 };
        let open: Arc<OpenRecords> = Arc::new(move |_, name, cx| {
            Ok(Box::new(FixedRecords::open(name, compression, buffer, layout, cx)?))
        });
        Ok(Dataset::new(spec, UNKNOWN, move |cx| Ok(Box::new(Files::new(&names, &open, cx)))))
    })
}

#[derive(Clone, Copy)]
struct FixedLayout {
    header: u64,
    record: u64,
    footer: u64,
}

/// Records of one length between a header and a footer.
struct FixedRecords {
    input: Input,
    name: String,
    layout: FixedLayout,
    /// Records that are left, if the file tells.
    left: Option<u64>,
    /// Bytes that were read and may belong to the footer.
    ahead: Vec<u8>,
    read: u64,
}

impl FixedRecords {
    fn open(
        name: &str,
        compression: Compression,
        buffer: usize,
        layout: FixedLayout,
        cx: &Arc<IteratorCx>,
    ) -> Result<FixedRecords> {
        let FixedLayout { header, record, footer } = layout;
        let mut left = None;
        if compression == Compression::None {
            let size = ferroflow_io::file::Source::open(name)?.length();
            ensure!(
                size >= header + footer,
                InvalidArgument,
                "Input file \"{name}\" has length {size} bytes, which is smaller than the sum of the header ({header} \
                 bytes) and footer ({footer} bytes)."
            );
            let body = size - header - footer;
            ensure!(
                body % record == 0,
                InvalidArgument,
                "Excluding the header ({header} bytes) and footer ({footer} bytes), input file \"{name}\" has body \
                 length {body} bytes, which is not an exact multiple of the record length ({record} bytes)."
            );
            left = Some(body / record);
        }
        let mut input = files::open(name, compression, buffer, cx)?;
        let skipped = std::io::copy(&mut input.by_ref().take(header), &mut std::io::sink());
        skipped.map_err(|error| files::broken(name, &error))?;
        Ok(FixedRecords { input, name: name.to_owned(), layout, left, ahead: Vec::new(), read: 0 })
    }

    /// Reads on until this many bytes are ahead, or the file ends.
    fn fill(&mut self, wanted: u64) -> Result<()> {
        let missing = wanted.saturating_sub(self.ahead.len() as u64);
        let read = self.input.by_ref().take(missing).read_to_end(&mut self.ahead);
        self.read += read.map_err(|error| files::broken(&self.name, &error))? as u64;
        Ok(())
    }
}

impl Records for FixedRecords {
    fn next(&mut self) -> Result<Option<Element>> {
        let FixedLayout { header, record, footer } = self.layout;
        if let Some(left) = &mut self.left {
            if *left == 0 {
                return Ok(None);
            }
            *left -= 1;
            self.fill(record)?;
        } else {
            self.fill(record + footer)?;
            let held = self.ahead.len() as u64;
            if held <= footer {
                return Ok(None);
            }
            if held < record + footer {
                return Err(status!(
                    DataLoss,
                    "Excluding the header ({header} bytes) and footer ({footer} bytes), input file \"{}\" has body \
                     length {} bytes, which is not an exact multiple of the record length ({record} bytes).",
                    self.name,
                    self.read - footer
                ));
            }
        }
        let rest = self.ahead.split_off((record as usize).min(self.ahead.len()));
        let bytes = std::mem::replace(&mut self.ahead, rest);
        ensure!(
            bytes.len() as u64 == record,
            OutOfRange,
            "reached end of file: {} is shorter than it was",
            self.name
        );
        Ok(Some(string_element(bytes)))
    }
}

fn matching_files_kernel(init: &Init<'_>) -> Result<Kernel> {
    strings_kernel(init, |cx, spec| {
        let patterns = cx.input(0)?;
        ensure!(patterns.rank() <= 1, InvalidArgument, "`patterns` must be a scalar or a vector.");
        let patterns: Result<Arc<[String]>> = patterns.units::<Str>()?.iter().map(files::text).collect();
        let patterns = patterns?;
        Ok(Dataset::new(spec, UNKNOWN, move |_| {
            Ok(Box::new(MatchingFiles { patterns: patterns.clone(), found: None }))
        }))
    })
}

/// Names of files: those of one pattern in alphabetical order, then those of the next.
struct MatchingFiles {
    patterns: Arc<[String]>,
    found: Option<VecDeque<String>>,
}

impl Source for MatchingFiles {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        if self.found.is_none() {
            ready!(cx.leave_io_thread());
            let mut found = Vec::new();
            for pattern in &*self.patterns {
                // Stock lists the folder before it matches names. Object stores have none that could be missing.
                let folder = ferroflow_io::path::resolve_path(pattern)?;
                if let Some(folder) = folder.parent().filter(|folder| !folder.as_os_str().is_empty())
                    && !ferroflow_io::path::is_remote(folder)
                {
                    std::fs::metadata(folder).map_err(|error| ferroflow_io::file::status(folder, &error))?;
                }
                for path in ferroflow_io::file::matching(pattern)? {
                    found.push(path.to_string_lossy().into_owned());
                }
            }
            self.found = Some(found.into());
        }
        match self.found.as_mut().and_then(VecDeque::pop_front) {
            Some(name) => Poll::Ready(Ok(Some(string_element(name.into_bytes())))),
            None => END,
        }
    }
}

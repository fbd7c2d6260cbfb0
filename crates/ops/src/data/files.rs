//! Files of datasets: opened one after the other, decompressed on the way.

use super::state::{Restorer, Saver};
use super::{Activity, END, Element, IteratorCx, Next, Source, SourceCx};
use ferroflow_core::kernel::{KernelCx, Str};
use ferroflow_core::{Result, Status, Tensor, bail, ensure};
use ferroflow_io::file::SequentialReader;
use ferroflow_io::framed_snappy::FramedReader;
use ferroflow_io::record::Compression;
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::task::{Poll, ready};

/// The size of the buffer of a reader if nobody asks for another.
const BUFFER: usize = 256 << 10;
/// The largest buffer that a node may ask for.
const MAX_BUFFER: i64 = 64 << 20;

/// A file that is read from its beginning to its end.
pub(crate) type Input = Box<dyn BufRead + Send>;

/// The names of files that an input has: one, or a vector of them.
pub(crate) fn names(cx: &KernelCx<'_>, input: usize) -> Result<Arc<[String]>> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() <= 1, InvalidArgument, "`filenames` must be a scalar or a vector.");
    tensor.units::<Str>()?.iter().map(text).collect()
}

/// A string of an input as text.
pub(crate) fn text(bytes: &Str) -> Result<String> {
    match String::from_utf8(bytes.to_vec()) {
        Ok(text) => Ok(text),
        Err(_) => bail!(InvalidArgument, "the name of a file must be UTF-8 text"),
    }
}

/// The compression that an input names.
pub(crate) fn compression(cx: &KernelCx<'_>, input: usize) -> Result<Compression> {
    match &*super::scalar::<Str>(cx, input, "compression_type")? {
        b"" => Ok(Compression::None),
        b"GZIP" => Ok(Compression::Gzip),
        b"ZLIB" => Ok(Compression::Zlib),
        _ => bail!(InvalidArgument, "Unsupported compression_type."),
    }
}

/// The size of the buffer that an input asks for.
pub(crate) fn buffer_size(cx: &KernelCx<'_>, input: usize, hint: &str) -> Result<usize> {
    let size: i64 = super::scalar(cx, input, "buffer_size")?;
    // A TFRecord dataset may leave the size to us.
    ensure!(
        size >= 0 || (size == -1 && hint.contains("no buffering")),
        InvalidArgument,
        "`buffer_size` must be >= 0{hint}"
    );
    Ok(if size <= 0 { BUFFER } else { size.min(MAX_BUFFER) as usize })
}

/// A file that notes what it does, for those who wait for its contents.
pub(crate) struct NotedFile {
    file: SequentialReader,
    name: Arc<str>,
    cx: Arc<IteratorCx>,
}

impl Read for NotedFile {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        let _note = self.cx.note(Activity::File(self.name.clone()));
        self.file.read(buffer)
    }
}

impl Seek for NotedFile {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(to)
    }
}

/// Opens a file as it is, for a stage.
pub(crate) fn open_plain(name: &str, buffer: usize, cx: &Arc<IteratorCx>) -> Result<BufReader<NotedFile>> {
    let (path, name): (&str, Arc<str>) = (name, name.into());
    let note = cx.note(Activity::File(name.clone()));
    let file = SequentialReader::open(path)?;
    drop(note);
    Ok(BufReader::with_capacity(buffer, NotedFile { file, name, cx: cx.clone() }))
}

/// Opens a file and decompresses what is read from it.
pub(crate) fn open(
    name: &str,
    compression: Compression,
    buffer: usize,
    cx: &Arc<IteratorCx>,
) -> Result<Input> {
    Ok(decompressed(open_plain(name, buffer, cx)?, compression))
}

/// The contents of a file that was compressed.
pub(crate) fn decompressed(file: impl BufRead + Send + 'static, compression: Compression) -> Input {
    match compression {
        Compression::None => Box::new(file),
        Compression::Gzip => Box::new(BufReader::new(MultiGzDecoder::new(file))),
        Compression::Zlib => Box::new(BufReader::new(ZlibDecoder::new(file))),
        Compression::Snappy => Box::new(BufReader::new(FramedReader::new(file))),
    }
}

/// The status for a file whose contents cannot be read.
pub(crate) fn broken(name: &str, error: &std::io::Error) -> ferroflow_core::Status {
    use std::io::ErrorKind::{InvalidData, InvalidInput, UnexpectedEof};
    match error.kind() {
        InvalidData | InvalidInput | UnexpectedEof => {
            ferroflow_core::status!(DataLoss, "inflate() failed in {name}: {error}")
        }
        _ => ferroflow_io::file::status(name, error),
    }
}

/// A reader of the records of one file.
pub(crate) trait Records: Send {
    /// The next record; `None` at the end of the file.
    fn next(&mut self) -> Result<Option<Element>>;

    /// Returns whether the next record can be found after one that is malformed.
    fn goes_on_after_errors(&self) -> bool {
        false
    }

    /// Stock's names of the stage and of the place in the file, and the place; `None` if it is not saved.
    fn place(&self) -> Option<(&'static str, &'static str, u64)> {
        None
    }

    /// Goes on at a place.
    fn go_to(&mut self, _place: u64) -> Result<()> {
        bail!(Unimplemented, "")
    }
}

/// Opens a file by its number and name, for a stage.
pub(crate) type OpenRecords = dyn Fn(usize, &str, &Arc<IteratorCx>) -> Result<Box<dyn Records>> + Send + Sync;

/// The records of several files, one file after the other. A file with a damaged record is left; one that cannot be
/// opened is tried again, as in stock.
pub(crate) struct Files {
    names: Arc<[String]>,
    next: usize,
    current: Option<Box<dyn Records>>,
    open: Arc<OpenRecords>,
    cx: Arc<IteratorCx>,
    /// Stock's name of the stage, if its state can be exchanged.
    stage: Option<&'static str>,
}

impl Files {
    /// Reads these files with readers that `open` makes of their place in the list and name.
    pub(crate) fn new(names: &Arc<[String]>, open: &Arc<OpenRecords>, cx: &Arc<IteratorCx>) -> Files {
        Files {
            names: names.clone(),
            next: 0,
            current: None,
            open: open.clone(),
            cx: cx.clone(),
            stage: None,
        }
    }

    /// The files with stock's name of the stage, for its state.
    pub(crate) fn named(self, stage: Option<&'static str>) -> Files {
        Files { stage, ..self }
    }
}

impl Source for Files {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        ready!(cx.leave_io_thread());
        loop {
            if let Some(current) = &mut self.current {
                let record = current.next();
                let goes_on = match &record {
                    Ok(record) => record.is_some(),
                    Err(_) => current.goes_on_after_errors(),
                };
                let file = self.next;
                if !goes_on {
                    self.current = None;
                    self.next += 1;
                }
                let record = record.map_err(|error| located(error, &self.names[file]))?;
                if let Some(record) = record {
                    return Poll::Ready(Ok(Some(record)));
                }
                ready!(cx.tick());
            }
            let Some(name) = self.names.get(self.next) else { return END };
            self.current = Some((self.open)(self.next, name, &self.cx)?);
        }
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, _: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let stage = match (&self.current, self.stage) {
            (Some(current), _) => current.place().map(|(stage, ..)| stage),
            (None, stage) => stage,
        };
        let Some(stage) = stage else { return Poll::Ready(Err(super::stateless())) };
        let mut to = to.stage(stage);
        to.number("current_file_index", self.next as i64);
        if let Some((_, key, place)) = self.current.as_ref().and_then(|current| current.place()) {
            to.number(key, place as i64);
        }
        Poll::Ready(Ok(()))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&[self.stage.ok_or_else(super::stateless)?])?;
        self.next = from.count("current_file_index")?;
        let key = if from.contains("offset") { "offset" } else { "current_pos" };
        if let (true, Some(name)) = (from.contains(key), self.names.get(self.next)) {
            let mut current = (self.open)(self.next, name, &self.cx)?;
            current.go_to(from.number(key)?.max(0) as u64).map_err(|error| located(error, name))?;
            self.current = Some(current);
        }
        Ok(())
    }
}

/// An error of a file, with the file's name unless it says it already.
fn located(error: Status, name: &str) -> Status {
    error.map_message(|text| if text.contains(name) { text } else { format!("{text}, in {name}") })
}

/// An element of one string.
pub(crate) fn string_element(bytes: impl Into<Str>) -> Element {
    vec![Tensor::scalar::<Str>(bytes.into())]
}

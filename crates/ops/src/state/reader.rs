//! Readers of the queue era: they take names of files from a queue, one after the other, and give their records.
//!
//! A reader serves one read at a time. Files are read ahead, some records at once, on a thread that may wait for a disk;
//! what was read ahead is served from memory.

use crate::state::queue::Queue;
use crate::support::blocking;
use bytes::Bytes;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::kernel::Str;
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, Result, Status, bail, ensure, status};
use ferroflow_io::file::{self, SequentialReader};
use ferroflow_io::lines::Lines;
use ferroflow_io::record::{Compression, RecordReader};
use flate2::bufread::{MultiGzDecoder, ZlibDecoder};
use prost::Message;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::io::{BufReader, Read};
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Poll, Waker};

/// The kind of a reader, with its attributes.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ReaderKind {
    /// The names themselves.
    Identity,
    WholeFile,
    Lines {
        skip: usize,
    },
    Records {
        compression: String,
    },
    FixedLength {
        header: u64,
        record: usize,
        footer: usize,
        hop: usize,
        encoding: String,
    },
}

impl ReaderKind {
    fn name(&self) -> &'static str {
        match self {
            ReaderKind::Identity => "IdentityReader",
            ReaderKind::WholeFile => "WholeFileReader",
            ReaderKind::Lines { .. } => "TextLineReader",
            ReaderKind::Records { .. } => "TFRecordReader",
            ReaderKind::FixedLength { .. } => "FixedLengthRecordReader",
        }
    }
}

/// A record and the key that says where it is from.
pub(crate) type Pair = (Str, Str);

/// A reader.
pub(crate) struct Reader {
    pub(crate) kind: ReaderKind,
    /// The name of the node that made it, for messages.
    node: String,
    /// Who reads now, and who waits to.
    turn: Arc<Turn>,
    /// Guards numbers and what was read ahead; held for moments only.
    state: Mutex<State>,
}

impl Resource for Reader {
    fn type_name(&self) -> &'static str {
        "N10tensorflow15ReaderInterfaceE"
    }
}

#[derive(Default)]
struct State {
    started: i64,
    finished: i64,
    produced: i64,
    /// The name that was taken from the queue last.
    work: Str,
    ahead: Ahead,
    /// The file, unless a thread reads from it.
    source: Option<Source>,
    /// Counts resets: what a thread read ahead before one is dropped.
    resets: u64,
}

/// Records that were read ahead, and what comes after them.
#[derive(Default)]
struct Ahead {
    records: VecDeque<Pair>,
    end: Option<Result<()>>,
}

/// The state of a reader in a checkpoint, as stock's message has it.
#[derive(Clone, PartialEq, Message)]
struct ReaderBaseState {
    #[prost(int64, tag = "1")]
    work_started: i64,
    #[prost(int64, tag = "2")]
    work_finished: i64,
    #[prost(int64, tag = "3")]
    num_records_produced: i64,
    #[prost(bytes = "bytes", tag = "4")]
    current_work: Bytes,
}

impl Reader {
    pub(crate) fn new(kind: ReaderKind, node: &str) -> Reader {
        Reader { kind, node: node.to_owned(), turn: Arc::default(), state: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    pub(crate) fn records_produced(&self) -> i64 {
        self.lock().produced
    }

    pub(crate) fn units_completed(&self) -> i64 {
        self.lock().finished
    }

    /// Forgets everything.
    pub(crate) fn reset(&self) {
        let mut state = self.lock();
        *state = State { resets: state.resets + 1, ..State::default() };
    }

    fn has_state(&self) -> bool {
        matches!(self.kind, ReaderKind::Identity | ReaderKind::WholeFile)
    }

    /// The state that can be restored later; only readers of whole files have one.
    pub(crate) fn serialize(&self) -> Result<Str> {
        ensure!(self.has_state(), Unimplemented, "Reader SerializeState");
        let state = self.lock();
        let message = ReaderBaseState {
            work_started: state.started,
            work_finished: state.finished,
            num_records_produced: state.produced,
            current_work: state.work.clone(),
        };
        Ok(message.encode_to_vec().into())
    }

    /// Restores a state. A reader whose state cannot be restored is reset.
    pub(crate) fn restore(&self, serialized: &Str) -> Result<()> {
        self.reset();
        ensure!(self.has_state(), Unimplemented, "Reader RestoreState");
        let name = format!("{} '{}'", self.kind.name(), self.node);
        let Ok(message) = ReaderBaseState::decode(serialized.clone()) else {
            bail!(
                InvalidArgument,
                "Could not parse state for {name}: {}",
                String::from_utf8_lossy(serialized).escape_default()
            );
        };
        let (started, finished) = (message.work_started, message.work_finished);
        ensure!(
            started >= 0 && finished >= 0 && message.num_records_produced >= 0,
            InvalidArgument,
            "Unexpected negative value when restoring in {name}: {message:?}"
        );
        ensure!(
            started <= finished,
            InvalidArgument,
            "Inconsistent work started vs. finished when restoring in {name}: {message:?}"
        );
        let mut state = self.lock();
        (state.started, state.finished) = (started, finished);
        (state.produced, state.work) = (message.num_records_produced, message.current_work);
        Ok(())
    }

    /// Reads up to `count` records; fewer if a file ends after some. Waits for names in the queue.
    pub(crate) async fn read(self: &Arc<Reader>, queue: &Arc<Queue>, count: usize) -> Result<Vec<Pair>> {
        let mut turn = self.turn.clone().take().await;
        let mut read = Vec::new();
        while read.len() < count {
            if !self.in_progress() {
                // A name that could not be taken is forgotten, as the one before it is.
                self.lock().work = Str::new();
                let work = next_work(queue).await?;
                turn = self.start(work, turn).await?;
            }
            if let Some(pair) = self.take_ready() {
                read.push(pair);
                // Files that are one record end with it.
                if self.has_state() {
                    self.finish();
                    return Ok(read);
                }
                continue;
            }
            let end = self.lock().ahead.end.clone();
            match end {
                Some(Err(error)) => {
                    // A whole file is tried again; a place that could not be read stays so.
                    if self.kind == ReaderKind::WholeFile {
                        self.lock().ahead = Ahead::default();
                    }
                    return Err(error);
                }
                Some(Ok(())) => {
                    self.finish();
                    if !read.is_empty() {
                        return Ok(read);
                    }
                }
                None => turn = self.read_ahead(turn).await?,
            }
        }
        Ok(read)
    }

    fn in_progress(&self) -> bool {
        let state = self.lock();
        state.finished < state.started
    }

    fn take_ready(&self) -> Option<Pair> {
        let mut state = self.lock();
        let pair = state.ahead.records.pop_front()?;
        state.produced += 1;
        Some(pair)
    }

    fn finish(&self) {
        let mut state = self.lock();
        state.finished = state.started;
        (state.source, state.ahead) = (None, Ahead::default());
    }

    /// Opens the file that a name stands for.
    async fn start(self: &Arc<Reader>, work: Str, turn: TurnGuard) -> Result<TurnGuard> {
        let resets = {
            let mut state = self.lock();
            state.work = work.clone();
            state.resets
        };
        let reader = self.clone();
        self.off_thread("open file", turn, move |_| {
            let source = Source::open(&reader.kind, &work)?;
            let mut state = reader.lock();
            if state.resets == resets {
                (state.source, state.ahead) = (Some(source), Ahead::default());
                state.started += 1;
            }
            Ok(())
        })
        .await
    }

    /// Reads some records of the current file.
    async fn read_ahead(self: &Arc<Reader>, turn: TurnGuard) -> Result<TurnGuard> {
        let (reader, (source, resets)) = (self.clone(), {
            let mut state = self.lock();
            (state.source.take(), state.resets)
        });
        let Some(mut source) = source else {
            bail!(Aborted, "{} '{}' was reset while it read", self.kind.name(), self.node);
        };
        self.off_thread("read records", turn, move |cancellation| {
            let ahead = source.read_some(cancellation);
            let mut state = reader.lock();
            if state.resets == resets {
                (state.source, state.ahead) = (Some(source), ahead);
            }
            Ok(())
        })
        .await
    }

    /// Runs work that may wait for a disk. It has the turn until its end, even if nobody waits for it any more, so that a
    /// step that is cancelled loses no records.
    async fn off_thread(
        &self,
        name: &'static str,
        turn: TurnGuard,
        work: impl FnOnce(&Cancellation) -> Result<()> + Send + 'static,
    ) -> Result<TurnGuard> {
        if self.kind == ReaderKind::Identity {
            work(&Cancellation::new())?;
            return Ok(turn);
        }
        blocking::run(name, move |cancellation| work(&cancellation).map(|()| turn)).await
    }
}

async fn next_work(queue: &Arc<Queue>) -> Result<Str> {
    let mut taken = queue.dequeue(1, false).await?;
    let tuple = taken.pop().unwrap_or_default();
    let [name] = tuple.as_slice() else {
        bail!(InvalidArgument, "Expected single component queue");
    };
    ensure!(name.dtype() == DType::String, InvalidArgument, "Expected queue with single string component");
    ensure!(name.elements() == 1, InvalidArgument, "Expected to dequeue a one-element string tensor");
    name.to_scalar()
}

/// An open file.
enum Source {
    Identity(Option<Str>),
    /// The name, and whether the file is still to be read.
    Whole(Str, bool),
    Lines(Str, Lines, usize),
    Records(Str, Box<RecordReader>),
    Fixed(Str, Fixed),
}

/// A file of records of one length.
struct Fixed {
    stream: Box<dyn Read + Send>,
    name: String,
    record: usize,
    footer: usize,
    hop: usize,
    /// The bytes from the start of the current record on that were read.
    window: Vec<u8>,
    number: u64,
}

/// Bytes and records that are read ahead at once.
const AHEAD_BYTES: usize = 1 << 18;
const AHEAD_RECORDS: usize = 4096;

impl Source {
    fn open(kind: &ReaderKind, work: &Str) -> Result<Source> {
        let name = String::from_utf8(work.to_vec())
            .map_err(|_| status!(InvalidArgument, "the name of a file must be UTF-8 text"))?;
        Ok(match kind {
            ReaderKind::Identity => Source::Identity(Some(work.clone())),
            ReaderKind::WholeFile => Source::Whole(work.clone(), true),
            ReaderKind::Lines { skip } => {
                let mut lines = Lines::open(&name)?;
                for _ in 0..*skip {
                    if lines.next()?.is_none() {
                        break;
                    }
                }
                Source::Lines(work.clone(), lines, *skip)
            }
            ReaderKind::Records { compression } => {
                // Stock reads what it has no name for as plain records.
                let compression = Compression::from_name(compression).unwrap_or_default();
                Source::Records(work.clone(), Box::new(RecordReader::open(&name, compression)?))
            }
            ReaderKind::FixedLength { header, record, footer, hop, encoding } => {
                let file = BufReader::with_capacity(AHEAD_BYTES, SequentialReader::open(&name)?);
                let mut stream: Box<dyn Read + Send> = match encoding.as_str() {
                    "ZLIB" => Box::new(ZlibDecoder::new(file)),
                    "GZIP" => Box::new(MultiGzDecoder::new(file)),
                    _ => Box::new(file),
                };
                let skipped = std::io::copy(&mut stream.by_ref().take(*header), &mut std::io::sink());
                let skipped = skipped.map_err(|error| file::status(&name, &error))?;
                ensure!(skipped == *header, OutOfRange, "reached end of file");
                let hop = if *hop == 0 { *record } else { *hop };
                let (record, footer) = (*record, *footer);
                let window = Vec::new();
                Source::Fixed(work.clone(), Fixed { stream, name, record, footer, hop, window, number: 0 })
            }
        })
    }

    /// Reads until there is enough, or the file ends.
    fn read_some(&mut self, cancellation: &Cancellation) -> Ahead {
        let mut ahead = Ahead::default();
        let mut bytes = 0;
        while bytes < AHEAD_BYTES && ahead.records.len() < AHEAD_RECORDS && !cancellation.is_cancelled() {
            match self.next() {
                Ok(Some(pair)) => {
                    bytes += pair.1.len();
                    ahead.records.push_back(pair);
                }
                end => {
                    ahead.end = Some(end.map(|_| ()));
                    break;
                }
            }
        }
        ahead
    }

    fn next(&mut self) -> Result<Option<Pair>> {
        let key = |work: &Str, place: u64| {
            let mut key = work.to_vec();
            key.extend_from_slice(format!(":{place}").as_bytes());
            Str::from(key)
        };
        Ok(match self {
            Source::Identity(work) => work.take().map(|work| (work.clone(), work)),
            Source::Whole(_, false) => None,
            Source::Whole(work, unread) => {
                let contents = file::read(&*String::from_utf8_lossy(work))?;
                *unread = false;
                Some((work.clone(), contents.into()))
            }
            Source::Lines(work, lines, number) => lines.next()?.map(|line| {
                *number += 1;
                (key(work, *number as u64), line)
            }),
            Source::Records(work, records) => {
                let place = RecordReader::position(records);
                records.read()?.map(|record| (key(work, place), record))
            }
            Source::Fixed(work, fixed) => fixed.next()?.map(|(number, record)| (key(work, number), record)),
        })
    }
}

impl Fixed {
    fn next(&mut self) -> Result<Option<(u64, Str)>> {
        if self.number > 0 {
            let kept = self.window.len().saturating_sub(self.hop);
            let missing = self.hop.saturating_sub(self.window.len());
            self.window.drain(..self.window.len() - kept);
            let skipped = std::io::copy(&mut self.stream.by_ref().take(missing as u64), &mut std::io::sink());
            if skipped.map_err(|error| self.broken(&error))? < missing as u64 {
                return Ok(None);
            }
        }
        let whole = self.record + self.footer;
        let missing = whole.saturating_sub(self.window.len());
        let got = self.stream.by_ref().take(missing as u64).read_to_end(&mut self.window);
        if got.map_err(|error| self.broken(&error))? < missing || (whole == 0 && self.number > 0) {
            return Ok(None);
        }
        self.number += 1;
        Ok(Some((self.number - 1, Str::copy_from_slice(&self.window[..self.record]))))
    }

    fn broken(&self, error: &std::io::Error) -> Status {
        match error.kind() {
            std::io::ErrorKind::InvalidData | std::io::ErrorKind::InvalidInput => {
                status!(DataLoss, "inflate() failed with error -3: {error}")
            }
            _ => file::status(&self.name, error),
        }
    }
}

/// The right to read, which one read has at a time; a read that is dropped passes it on.
#[derive(Default)]
struct Turn(Mutex<(bool, Vec<Waker>)>);

struct TurnGuard(Arc<Turn>);

impl Turn {
    fn lock(&self) -> MutexGuard<'_, (bool, Vec<Waker>)> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    async fn take(self: Arc<Turn>) -> TurnGuard {
        poll_fn(|context| {
            let mut state = self.lock();
            if state.0 {
                state.1.push(context.waker().clone());
                return Poll::Pending;
            }
            state.0 = true;
            Poll::Ready(TurnGuard(self.clone()))
        })
        .await
    }
}

impl Drop for TurnGuard {
    fn drop(&mut self) {
        let wakers = {
            let mut state = self.0.lock();
            state.0 = false;
            std::mem::take(&mut state.1)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

//! Event files for TensorBoard: records of `Event` messages.
//!
//! A file is named `events.out.tfevents.<seconds>.<host>` and starts with an event that gives the format's version, as
//! in stock.

use crate::file;
use crate::path::resolve_path;
use crate::record::{Compression, RecordReader, RecordWriter};
use ferroflow_core::{Code, Result, status};
use ferroflow_proto::tensorflow::event::What;
use ferroflow_proto::tensorflow::{Event, SourceMetadata};
use prost::Message;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const VERSION: &str = "brain.Event:2";
const WRITER: &str = "tensorflow.core.util.events_writer";

/// The policy for flushing written events to the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushPolicy {
    /// The maximum number of events that are not flushed.
    pub max_queue: usize,
    /// An event written at least this long after the last flush causes a flush.
    pub interval: Duration,
}

impl Default for FlushPolicy {
    /// Stock's policy: ten events, or two minutes.
    fn default() -> FlushPolicy {
        FlushPolicy { max_queue: 10, interval: Duration::from_secs(120) }
    }
}

/// A writer of one event file.
pub struct EventWriter {
    records: RecordWriter,
    policy: FlushPolicy,
    waiting: usize,
    flushed: Instant,
}

impl EventWriter {
    /// Creates an event file in a directory, which is created if it is missing. The name ends in `suffix`.
    pub fn create(directory: impl AsRef<Path>, suffix: &str, policy: FlushPolicy) -> Result<EventWriter> {
        let directory = resolve_path(directory)?;
        file::create_directories(&directory)?;
        let seconds = wall_time() as u64;
        let host = gethostname::gethostname();
        let name = format!("events.out.tfevents.{seconds:010}.{}{suffix}", host.to_string_lossy());
        let records = create_unique(&directory.join(name))?;
        let mut writer = EventWriter { records, policy, waiting: 0, flushed: Instant::now() };
        writer.write(&Event {
            wall_time: seconds as f64,
            what: Some(What::FileVersion(VERSION.to_owned())),
            source_metadata: Some(SourceMetadata { writer: WRITER.to_owned() }),
            ..Default::default()
        })?;
        writer.flush()?;
        Ok(writer)
    }

    /// The file's path.
    pub fn path(&self) -> &Path {
        self.records.path()
    }

    /// Appends an event.
    pub fn write(&mut self, event: &Event) -> Result<()> {
        self.write_encoded(&event.encode_to_vec())
    }

    /// Appends an event that is encoded already.
    pub fn write_encoded(&mut self, event: &[u8]) -> Result<()> {
        self.records.write(event)?;
        self.waiting += 1;
        if self.waiting >= self.policy.max_queue || self.flushed.elapsed() >= self.policy.interval {
            self.flush()?;
        }
        Ok(())
    }

    /// Flushes all events to the file.
    pub fn flush(&mut self) -> Result<()> {
        self.records.flush()?;
        self.waiting = 0;
        self.flushed = Instant::now();
        Ok(())
    }

    /// Closes the file.
    pub fn finish(self) -> Result<()> {
        self.records.finish()
    }
}

/// Creates a file with a number in its name if another writer has created one in the same second.
fn create_unique(path: &Path) -> Result<RecordWriter> {
    let mut name = path.to_owned();
    let mut number = 0;
    loop {
        match RecordWriter::create_new(&name, Compression::None) {
            Err(status) if status.code() == Code::AlreadyExists => {
                number += 1;
                let mut numbered = path.as_os_str().to_owned();
                numbered.push(format!(".{number}"));
                name = PathBuf::from(numbered);
            }
            created => return created,
        }
    }
}

/// Seconds since the Unix epoch.
pub fn wall_time() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

/// The events of a file in order.
pub fn read_events(path: impl AsRef<Path>) -> Result<impl Iterator<Item = Result<Event>> + Send> {
    let records = RecordReader::open(path, Compression::None)?;
    Ok(records.map(|record| {
        Event::decode(record?).map_err(|error| status!(DataLoss, "a record is not an event: {error}"))
    }))
}

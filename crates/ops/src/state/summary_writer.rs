//! Writers of event files that live on a server.

use ferroflow_core::Result;
use ferroflow_core::resource::Resource;
use ferroflow_io::events::{EventWriter, FlushPolicy, wall_time};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

/// The type's name, as handles carry it.
pub(crate) const SUMMARY_WRITER_TYPE: &str = "N10tensorflow22SummaryWriterInterfaceE";

/// A writer of one event file.
pub(crate) struct SummaryWriter(Mutex<EventWriter>);

impl SummaryWriter {
    /// Creates a file whose name no other writer of this process or another has.
    pub(crate) fn create(
        directory: &str,
        max_queue: i32,
        flush_millis: i32,
        suffix: &str,
    ) -> Result<SummaryWriter> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let dot = if suffix.starts_with('.') { "" } else { "." };
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let suffix = format!(".{}.{number}{dot}{suffix}", std::process::id());
        let policy = FlushPolicy {
            max_queue: usize::try_from(max_queue).unwrap_or(0).saturating_add(1),
            interval: Duration::from_millis(u64::try_from(flush_millis).unwrap_or(0)),
        };
        Ok(SummaryWriter(Mutex::new(EventWriter::create(directory, &suffix, policy)?)))
    }

    /// Writes an event of now whose content is one encoded field.
    pub(crate) fn write(&self, step: i64, field: u32, content: &[u8]) -> Result<()> {
        let mut event = Vec::with_capacity(content.len() + 32);
        prost::encoding::double::encode(1, &wall_time(), &mut event);
        if step != 0 {
            prost::encoding::int64::encode(2, &step, &mut event);
        }
        prost::encoding::bytes::encode(field, &content.to_vec(), &mut event);
        self.file().write_encoded(&event)
    }

    /// Writes an event as it is.
    pub(crate) fn import(&self, event: &[u8]) -> Result<()> {
        self.file().write_encoded(event)
    }

    pub(crate) fn flush(&self) -> Result<()> {
        self.file().flush()
    }

    fn file(&self) -> MutexGuard<'_, EventWriter> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Drop for SummaryWriter {
    fn drop(&mut self) {
        // Nobody is left to hear of an error.
        let _ = self.flush();
    }
}

impl Resource for SummaryWriter {
    fn type_name(&self) -> &'static str {
        SUMMARY_WRITER_TYPE
    }
}

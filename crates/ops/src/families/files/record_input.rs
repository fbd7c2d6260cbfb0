//! Batches of records from files that are shuffled: the files of an epoch by a seed, their records in a buffer.
//!
//! Stock fills the buffer on threads of its own while steps take records from it, so its order is only fixed as long as
//! an epoch fits into half of the buffer, one thread reads, and each pattern names one file (it takes what one matches in
//! the order of the directory, here they are sorted). There the order here is the same. The buffer is filled
//! when it is half empty, by the step that finds it so; there is no thread that waits between steps.

use crate::numeric::hash::murmur64_seeded;
use crate::numeric::mersenne::Mersenne;
use crate::support::blocking;
use bytes::Bytes;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::kernel::{Init, Kernel, Outputs};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Code, Result, Status, Tensor, ensure, kernels, status};
use ferroflow_io::bundle::check_cancelled;
use ferroflow_io::file;
use ferroflow_io::record::{Compression, RecordReader};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

pub(crate) const OPS: &[&Op] = &[&RECORD_INPUT];

static RECORD_INPUT: Op = Op {
    name: "RecordInput",
    outputs: &["records: string"],
    attrs: &[
        "file_pattern: string",
        "file_random_seed: int = 301",
        "file_shuffle_shift_ratio: float = 0.0",
        "file_buffer_size: int = 10000",
        "file_parallelism: int = 16",
        "batch_size: int = 32",
        "compression_type: string = ''",
    ],
    shape: shapes::unknown,
    kernels: kernels![any record_input_kernel],
    ..Op::STATEFUL
};

/// Records that are read from one file before the next file gets its turn.
const GROUP: usize = 16;

struct Settings {
    patterns: String,
    seed: u64,
    shift: f32,
    parallelism: usize,
    compression: Compression,
}

/// The files that one of stock's threads would read.
struct Shard {
    files: VecDeque<PathBuf>,
    open: Option<RecordReader>,
    /// Records that are read but not in the buffer yet; the last one goes first.
    pending: Vec<Bytes>,
}

struct Yielder {
    settings: Settings,
    epoch: u64,
    shards: VecDeque<Shard>,
    capacity: usize,
    random: Mersenne,
    buffer: Vec<Bytes>,
    /// Whether every record of the epoch is or was in the buffer.
    epoch_read: bool,
    added: usize,
    /// The first failure; all later steps get it, too.
    failed: Option<Status>,
}

fn record_input_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (parallelism, batch): (i64, i64) = (init.attr("file_parallelism")?, init.attr("batch_size")?);
    ensure!(parallelism >= 0, InvalidArgument, "file_parallelism should >= 0, got {parallelism}");
    ensure!(batch >= 0, InvalidArgument, "batch_size must be non-negative but got {batch}");
    let seed = init.attr::<i64>("file_random_seed")? as u64;
    let yielder = Arc::new(Mutex::new(Yielder {
        settings: Settings {
            patterns: init.attr("file_pattern")?,
            seed,
            shift: init.attr("file_shuffle_shift_ratio")?,
            parallelism: parallelism.clamp(1, 1024) as usize,
            // Stock takes what it does not know as no compression.
            compression: Compression::from_name(&init.attr::<String>("compression_type")?)
                .unwrap_or_default(),
        },
        epoch: 0,
        shards: VecDeque::new(),
        capacity: init.attr::<i64>("file_buffer_size")?.max(1) as usize,
        random: Mersenne::new(seed),
        buffer: Vec::new(),
        epoch_read: true,
        added: 0,
        failed: None,
    }));
    let batch = batch as usize;
    Kernel::future(move |_| {
        let yielder = yielder.clone();
        async move {
            let ready = yielder.try_lock().ok().and_then(|mut yielder| yielder.take_ready(batch));
            let records = match ready {
                Some(records) => records,
                None => {
                    let read = move |cancellation| {
                        let mut yielder = yielder.lock().unwrap_or_else(PoisonError::into_inner);
                        yielder.take(batch, &cancellation)
                    };
                    blocking::run("read records", read).await?
                }
            };
            Ok(Outputs::from(Tensor::vector(records)))
        }
    })
}

impl Yielder {
    /// A batch, if nothing must be read for it.
    fn take_ready(&mut self, batch: usize) -> Option<Vec<Bytes>> {
        let low = if self.epoch_read { 0 } else { (self.capacity / 2).max(1) - 1 };
        let rest = self.buffer.len().checked_sub(batch)?;
        (self.failed.is_none() && rest >= low)
            .then(|| self.buffer.split_off(rest).into_iter().rev().collect())
    }

    fn take(&mut self, batch: usize, cancellation: &Cancellation) -> Result<Vec<Bytes>> {
        let mut records = Vec::with_capacity(batch.min(1 << 16));
        while records.len() < batch {
            if let Some(failed) = &self.failed {
                return Err(failed.clone());
            }
            let enough = if self.epoch_read {
                !self.buffer.is_empty()
            } else {
                self.buffer.len() >= (self.capacity / 2).max(1)
            };
            if enough {
                records.extend(self.buffer.pop());
            } else if let Err(error) = self.fill(cancellation) {
                if error.code() != Code::Cancelled {
                    self.failed = Some(error.clone());
                }
                return Err(error);
            }
        }
        Ok(records)
    }

    /// Reads until the buffer is full or the epoch ends.
    fn fill(&mut self, cancellation: &Cancellation) -> Result<()> {
        if self.epoch_read {
            self.start_epoch()?;
        }
        while self.buffer.len() < self.capacity {
            check_cancelled(cancellation)?;
            let Some(mut shard) = self.shards.pop_front() else {
                self.epoch_read = true;
                self.capacity = self.capacity.min(self.added);
                ensure!(
                    self.added > 0,
                    OutOfRange,
                    "The files that match {} have no records",
                    self.settings.patterns
                );
                return Ok(());
            };
            let more = shard.pending.len() >= GROUP || shard.read_group(self.settings.compression)?;
            self.add(&mut shard.pending);
            if more || !shard.pending.is_empty() {
                self.shards.push_back(shard);
            }
        }
        Ok(())
    }

    fn start_epoch(&mut self) -> Result<()> {
        self.epoch += 1;
        let mut files = Vec::new();
        for pattern in self.settings.patterns.split(',') {
            files.extend(file::matching(pattern)?);
        }
        ensure!(!files.is_empty(), NotFound, "Found no files at {}", self.settings.patterns);
        Mersenne::new(murmur64_seeded(&self.epoch.to_le_bytes(), self.settings.seed)).shuffle(&mut files);
        if (0.0..1.0).contains(&self.settings.shift) {
            let shift = (self.settings.shift * files.len() as f32) as usize;
            let count = files.len();
            files.rotate_left(shift.min(count));
        }
        let count = self.settings.parallelism.min(files.len());
        let empty = || Shard { files: VecDeque::new(), open: None, pending: Vec::new() };
        self.shards = (0..count).map(|_| empty()).collect();
        for (number, file) in files.into_iter().enumerate() {
            self.shards[number % count].files.push_back(file);
        }
        (self.epoch_read, self.added) = (false, 0);
        Ok(())
    }

    /// Moves records to random places of the buffer, as many as fit.
    fn add(&mut self, records: &mut Vec<Bytes>) {
        while self.buffer.len() < self.capacity
            && let Some(record) = records.pop()
        {
            let place = (self.random.next() % (self.buffer.len() as u64 + 1)) as usize;
            self.buffer.push(record);
            let last = self.buffer.len() - 1;
            self.buffer.swap(place, last);
            self.added += 1;
        }
    }
}

impl Shard {
    /// Reads up to a group of records; false if there are no more.
    fn read_group(&mut self, compression: Compression) -> Result<bool> {
        loop {
            let reader = match &mut self.open {
                Some(reader) => reader,
                None => {
                    let Some(path) = self.files.pop_front() else { return Ok(false) };
                    let opened = RecordReader::open(&path, compression);
                    let opened = opened.map_err(|error| {
                        status!(InvalidArgument, "Can't open {}: {}", path.display(), error.message())
                    })?;
                    self.open.insert(opened)
                }
            };
            match reader.read()? {
                Some(record) => self.pending.push(record),
                None => self.open = None,
            }
            if self.pending.len() >= GROUP {
                return Ok(true);
            }
        }
    }
}

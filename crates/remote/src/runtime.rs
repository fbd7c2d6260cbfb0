//! The thread that drives connections, and how other threads wait for what it does.

use ferroflow_core::{Result, Status, status};
use std::sync::OnceLock;
use std::time::Duration;
use tokio::runtime::{Builder, Handle, Runtime};

static RUNTIME: OnceLock<Result<Runtime, Status>> = OnceLock::new();

/// The time for a call, repetitions included, beside the time that its bytes take.
const LIMIT: Duration = Duration::from_secs(120);
/// The slowest connection that is worth waiting for, in bytes per second.
const SLOWEST: u64 = 100 << 10;

/// Waits for a call that moves few bytes.
pub(crate) fn wait<T: Send>(call: impl Future<Output = T> + Send) -> Result<T> {
    wait_for_bytes(0, call)
}

/// Waits, on the calling thread, for a call that moves this many bytes.
pub(crate) fn wait_for_bytes<T: Send>(bytes: u64, call: impl Future<Output = T> + Send) -> Result<T> {
    let limit = LIMIT + Duration::from_secs(bytes / SLOWEST);
    drive(async { tokio::time::timeout(limit, call).await })?.map_err(|_| {
        status!(DeadlineExceeded, "a request for a remote file was not answered within {} s", limit.as_secs())
    })
}

fn drive<T: Send>(call: impl Future<Output = T> + Send) -> Result<T> {
    let runtime = RUNTIME.get_or_init(|| {
        let mut builder = Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("remote files").enable_all().build();
        runtime.map_err(|error| status!(ResourceExhausted, "no thread for remote files: {error}"))
    });
    let runtime = runtime.as_ref().map_err(Clone::clone)?;
    if Handle::try_current().is_err() {
        return Ok(runtime.block_on(call));
    }
    // A thread that runs asynchronous work of its own may not wait for other asynchronous work.
    let waited = std::thread::scope(|scope| scope.spawn(|| runtime.block_on(call)).join());
    waited.map_err(|_| status!(Internal, "a request for a remote file panicked"))
}

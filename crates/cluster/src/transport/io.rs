//! The I/O threads. Each has a single-threaded runtime of its own, so that a connection and its calls stay on one
//! thread.

use ferroflow_core::{Result, Status, status};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Poll;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{EnterGuard, Handle, Runtime};
use tokio::sync::watch;

thread_local! {
    /// The index of the current I/O thread.
    static INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// An I/O thread that has not been started.
pub(crate) struct IoThread {
    index: usize,
    runtime: Runtime,
    ended: Ended,
}

/// True if a thread's runtime has ended or is about to. Its timers panic afterwards, so they may be polled only while
/// this is read-locked and false.
type Ended = Arc<RwLock<bool>>;

impl Drop for IoThread {
    fn drop(&mut self) {
        *self.ended.write().unwrap_or_else(PoisonError::into_inner) = true;
    }
}

/// Handles to the I/O threads of a server. Work for a thread that has not started is queued; work for one that has
/// ended is dropped.
pub(crate) struct Io {
    handles: Vec<Handle>,
    ended: Vec<Ended>,
}

impl Io {
    /// Creates this many threads, at least one.
    pub(crate) fn prepare(threads: usize) -> Result<(Vec<IoThread>, Arc<Io>)> {
        let make = |index| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| status!(Internal, "cannot start an I/O thread: {error}"))?;
            Ok(IoThread { index, runtime, ended: Ended::default() })
        };
        let threads: Vec<IoThread> = (0..threads.max(1)).map(make).collect::<Result<_>>()?;
        let handles = threads.iter().map(|thread| thread.runtime.handle().clone()).collect();
        let ended = threads.iter().map(|thread| thread.ended.clone()).collect();
        Ok((threads, Arc::new(Io { handles, ended })))
    }

    /// Returns the number of threads.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// Chooses a thread for the caller: its own if it is an I/O thread, and otherwise one by `hint`.
    #[inline]
    pub(crate) fn choose(&self, hint: u64) -> usize {
        match INDEX.get() {
            Some(index) if index < self.handles.len() => index,
            _ => (hint % self.handles.len() as u64) as usize,
        }
    }

    /// Spawns a future on a thread. It must end by itself once it is no longer needed.
    pub(crate) fn spawn(&self, index: usize, future: impl Future<Output = ()> + Send + 'static) {
        self.handles[index].spawn(future);
    }

    /// Runs a future on a thread and returns its result to any other; dropping the returned future cancels it.
    pub(crate) fn run<T, F>(
        &self,
        index: usize,
        future: F,
    ) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let mut task = AbortOnDrop(self.handles[index].spawn(future));
        async move { (&mut task.0).await.unwrap_or_else(|_| Err(server_stopping())) }
    }

    /// Enters the runtime of the first thread, so that the calling thread can use its timers.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.handles.first().map(Handle::enter)
    }

    /// Sleeps; can be awaited on any thread. Fails if the I/O thread ends first.
    pub(crate) fn sleep(
        &self,
        index: usize,
        length: Duration,
    ) -> impl Future<Output = Result<()>> + Send + use<> {
        let timer = {
            let _entered = self.handles[index].enter();
            tokio::time::sleep(length)
        };
        let ended = self.ended[index].clone();
        async move {
            let mut timer = pin!(timer);
            poll_fn(|cx| {
                let ended = ended.read().unwrap_or_else(PoisonError::into_inner);
                if *ended { Poll::Ready(Err(server_stopping())) } else { timer.as_mut().poll(cx).map(Ok) }
            })
            .await
        }
    }
}

/// The status of work whose I/O threads have stopped.
pub(crate) fn server_stopping() -> Status {
    status!(Unavailable, "this server is stopping")
}

/// I/O threads that only run what others spawn on them, until this is dropped.
pub(crate) struct Carrier {
    stop: watch::Sender<()>,
}

impl Carrier {
    /// Starts the threads.
    pub(crate) fn start(threads: Vec<IoThread>) -> Result<Carrier> {
        let (stop, stopped) = watch::channel(());
        for thread in threads {
            let mut stopped = stopped.clone();
            // Fails when the sender is dropped, which is the signal.
            let until_stopped = move || async move { while stopped.changed().await.is_ok() {} };
            drop(thread.start(until_stopped)?);
        }
        Ok(Carrier { stop })
    }

    /// Returns a receiver that fails once the threads stop.
    pub(crate) fn stopped(&self) -> watch::Receiver<()> {
        self.stop.subscribe()
    }
}

struct AbortOnDrop<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl IoThread {
    /// Enters the thread's runtime, for objects that must be created within one.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Starts a thread that runs the future made by `serve` within its runtime.
    pub(crate) fn start<F: Future<Output = ()>>(
        self,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        std::thread::Builder::new()
            .name(format!("io-{}", self.index))
            .spawn(move || {
                INDEX.set(Some(self.index));
                self.runtime.block_on(async { serve().await });
            })
            .map_err(|error| status!(Internal, "cannot start an I/O thread: {error}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;
    use futures_util::FutureExt;

    #[test]
    fn a_wait_ends_with_the_thread_that_times_it() {
        let (threads, io) = Io::prepare(1).unwrap();
        let carrier = Carrier::start(threads).unwrap();
        let week = Duration::from_secs(7 * 24 * 3600);
        let mut begun = pin!(io.sleep(0, week));
        assert!(begun.as_mut().now_or_never().is_none());
        drop(carrier);
        let waiting = tokio::runtime::Builder::new_current_thread().build().unwrap();
        assert_eq!(waiting.block_on(begun).unwrap_err().code(), Code::Unavailable);
        assert_eq!(waiting.block_on(io.sleep(0, week)).unwrap_err().code(), Code::Unavailable);
    }
}

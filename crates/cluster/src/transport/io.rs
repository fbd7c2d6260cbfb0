//! The threads that carry bytes. Each has a single-threaded runtime of its own, so that a connection and the calls on it
//! stay on one thread.

use ferroflow_core::{Result, status};
use std::cell::Cell;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{EnterGuard, Handle, Runtime};
use tokio::sync::watch;

thread_local! {
    /// Which I/O thread this is, if it is one.
    static INDEX: Cell<Option<usize>> = const { Cell::new(None) };
}

/// An I/O thread that has not started yet.
pub(crate) struct IoThread {
    index: usize,
    runtime: Runtime,
}

/// The I/O threads of a server, as whoever wants something done on them sees them. Work for a thread that has not started
/// waits for it; work for one that has ended is dropped.
pub(crate) struct Io {
    handles: Vec<Handle>,
}

impl Io {
    /// Prepares this many threads, at least one.
    pub(crate) fn prepare(threads: usize) -> Result<(Vec<IoThread>, Arc<Io>)> {
        let make = |index| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|error| status!(Internal, "cannot start an I/O thread: {error}"))?;
            Ok(IoThread { index, runtime })
        };
        let threads: Vec<IoThread> = (0..threads.max(1)).map(make).collect::<Result<_>>()?;
        let handles = threads.iter().map(|thread| thread.runtime.handle().clone()).collect();
        Ok((threads, Arc::new(Io { handles })))
    }

    /// The number of threads.
    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// The thread that should work for the caller: the caller's own if it is one of them, else one chosen by `hint`.
    #[inline]
    pub(crate) fn choose(&self, hint: u64) -> usize {
        match INDEX.get() {
            Some(index) if index < self.handles.len() => index,
            _ => (hint % self.handles.len() as u64) as usize,
        }
    }

    /// Runs a future on a thread until it ends. It must end by itself once nobody needs it.
    pub(crate) fn spawn(&self, index: usize, future: impl Future<Output = ()> + Send + 'static) {
        self.handles[index].spawn(future);
    }

    /// Runs a future on a thread and gives its result anywhere; dropping what this returns cancels the work.
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
        async move {
            let stopped = |_| Err(status!(Unavailable, "this server stops"));
            (&mut task.0).await.unwrap_or_else(stopped)
        }
    }

    /// Lets the calling thread use the timers of the first thread.
    pub(crate) fn enter(&self) -> Option<EnterGuard<'_>> {
        self.handles.first().map(Handle::enter)
    }

    /// Waits; works on any thread.
    pub(crate) fn sleep(&self, index: usize, length: Duration) -> tokio::time::Sleep {
        let _entered = self.handles[index].enter();
        tokio::time::sleep(length)
    }
}

/// I/O threads that serve nobody: they carry what others put on them, until this is dropped.
pub(crate) struct Carrier {
    stop: watch::Sender<()>,
}

impl Carrier {
    /// Starts the threads.
    pub(crate) fn start(threads: Vec<IoThread>) -> Result<Carrier> {
        let (stop, stopped) = watch::channel(());
        for thread in threads {
            let mut stopped = stopped.clone();
            // Fails when the sender is gone, which is the signal.
            let until_stopped = move || async move { while stopped.changed().await.is_ok() {} };
            drop(thread.start(until_stopped)?);
        }
        Ok(Carrier { stop })
    }

    /// Fails to tell of changes once the threads stop.
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
    /// Makes the thread's runtime the current one, for whatever must be made within it.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.runtime.enter()
    }

    /// Runs what `serve` makes within the thread's runtime, in a thread of its own.
    pub(crate) fn start<F: Future<Output = ()>>(
        self,
        serve: impl FnOnce() -> F + Send + 'static,
    ) -> Result<JoinHandle<()>> {
        let IoThread { index, runtime } = self;
        std::thread::Builder::new()
            .name(format!("io-{index}"))
            .spawn(move || {
                INDEX.set(Some(index));
                runtime.block_on(async { serve().await });
            })
            .map_err(|error| status!(Internal, "cannot start an I/O thread: {error}"))
    }
}

//! Transformations on background threads: prefetching and parallel mapping.
//!
//! A pass owns its threads. When it is dropped, it waits until each thread has finished its current element, so no thread
//! outlives it. A panic on such a thread reaches the consumer as an error in place of the element.

use super::dataset::{Dataset, Elements};
use ferroflow_cluster::logged_wait::LoggedWait;
use ferroflow_core::{Code, Result, Status};
use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

/// Name of a dataset in log lines about waiting consumers.
const SOURCE: &str = "a dataset";

impl<T: Send + 'static> Dataset<T> {
    /// Makes elements on a background thread, up to `count` elements ahead of the consumer.
    pub fn prefetch(&self, count: usize) -> Dataset<T> {
        let source = self.clone();
        Dataset::new(move |epoch| {
            let source = source.clone();
            Box::new(Prefetch::start(move || source.epoch(epoch), count.max(1)))
        })
    }

    /// Applies a function to every element on `threads` background threads; elements keep their order.
    ///
    /// ```
    /// use ferroflow::data::Dataset;
    /// # fn main() -> ferroflow::Result<()> {
    /// let squares = Dataset::from_fn(|| 0..100u64).par_map(4, |x| Ok(x * x));
    /// assert_eq!(squares.collect()?[99], 99 * 99);
    /// # Ok(())
    /// # }
    /// ```
    pub fn par_map<U: Send + 'static>(
        &self,
        threads: usize,
        f: impl Fn(T) -> Result<U> + Send + Sync + 'static,
    ) -> Dataset<U> {
        let (source, f) = (self.clone(), Arc::new(f));
        Dataset::new(move |epoch| {
            let (source, f) = (source.clone(), f.clone());
            Box::new(ParallelMap::start(move || source.epoch(epoch), threads.max(1), f))
        })
    }
}

/// Returns the status for a panic of a user's closure.
fn panicked(payload: Box<dyn Any + Send>) -> Status {
    let text = payload.downcast_ref::<&str>().map(|text| (*text).to_owned());
    let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
    Status::new(Code::Internal, format!("a dataset's function panicked: {text}"))
}

/// Returns the next element, or an error if making it panicked.
fn next<T>(elements: &mut Elements<T>) -> Option<Result<T>> {
    catch_unwind(AssertUnwindSafe(|| elements.next())).unwrap_or_else(|payload| Some(Err(panicked(payload))))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>> {
    let spawned = Builder::new().name(name.to_owned()).spawn(work);
    spawned.map_err(|error| {
        Status::new(Code::ResourceExhausted, format!("cannot start a thread of a dataset: {error}"))
    })
}

/// Waits for a thread that has been told to end.
fn join(thread: JoinHandle<()>) {
    let (mut waiting, mut pause) = (LoggedWait::new(), Duration::from_micros(100));
    while !thread.is_finished() {
        waiting.log(SOURCE, "its function has not finished the current element");
        std::thread::park_timeout(pause);
        pause = (pause * 2).min(Duration::from_millis(50));
    }
    let _ = thread.join();
}

struct Prefetch<T> {
    /// Dropped before the thread is joined, which makes the thread's next send fail.
    elements: Option<Receiver<Result<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Prefetch<T> {
    fn start(open: impl FnOnce() -> Elements<T> + Send + 'static, count: usize) -> Prefetch<T> {
        let (sender, receiver) = sync_channel(count);
        let failure = sender.clone();
        let work = move || {
            let mut elements = match catch_unwind(AssertUnwindSafe(open)) {
                Ok(elements) => elements,
                Err(payload) => {
                    let _ = sender.send(Err(panicked(payload)));
                    return;
                }
            };
            while let Some(element) = next(&mut elements) {
                if sender.send(element).is_err() {
                    return;
                }
            }
        };
        match spawn("dataset-prefetch", work) {
            Ok(thread) => Prefetch { elements: Some(receiver), thread: Some(thread) },
            Err(status) => {
                let _ = failure.send(Err(status));
                Prefetch { elements: Some(receiver), thread: None }
            }
        }
    }
}

impl<T> Iterator for Prefetch<T> {
    type Item = Result<T>;

    fn next(&mut self) -> Option<Result<T>> {
        let elements = self.elements.as_ref()?;
        if let Ok(element) = elements.try_recv() {
            return Some(element);
        }
        let mut waiting = LoggedWait::for_work();
        loop {
            match elements.recv_timeout(waiting.until_next()) {
                Ok(element) => return Some(element),
                Err(RecvTimeoutError::Timeout) => waiting.log(SOURCE, "the next element is not ready"),
                // Ends when the thread does: it holds the only sender.
                Err(RecvTimeoutError::Disconnected) => return None,
            }
        }
    }
}

impl<T> Drop for Prefetch<T> {
    fn drop(&mut self) {
        self.elements = None;
        self.thread.take().into_iter().for_each(join);
    }
}

struct ParallelMap<T, U> {
    shared: Arc<Shared<T, U>>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared<T, U> {
    /// The source. The thread that holds the lock takes the next element. Locked before `progress`.
    source: Mutex<Option<Elements<T>>>,
    progress: Mutex<Progress<U>>,
    /// Notified of every change of `progress`.
    changed: Condvar,
    /// Maximum number of elements taken from the source and not yet given to the consumer.
    window: u64,
}

struct Progress<U> {
    taken: u64,
    given: u64,
    ready: BTreeMap<u64, Result<U>>,
    /// Number of threads that may still take elements.
    running: usize,
    closed: bool,
}

impl<T, U> Shared<T, U> {
    fn progress(&self) -> MutexGuard<'_, Progress<U>> {
        self.progress.lock().expect("nothing panics under this lock")
    }

    /// Returns the next element of the source with its number, once the consumer is within the window.
    fn take(&self) -> Option<(u64, Result<T>)> {
        let mut source = self.source.lock().expect("panics of the source are caught");
        let mut progress = self.progress();
        while !progress.closed && progress.taken - progress.given >= self.window {
            progress = self.changed.wait(progress).expect("nothing panics under this lock");
        }
        if progress.closed {
            return None;
        }
        drop(progress);
        let element = next(source.as_mut()?);
        let Some(element) = element else {
            *source = None;
            return None;
        };
        let mut progress = self.progress();
        progress.taken += 1;
        Some((progress.taken - 1, element))
    }

    fn work(&self, f: &impl Fn(T) -> Result<U>) {
        while let Some((number, element)) = self.take() {
            let result = element.and_then(|element| {
                catch_unwind(AssertUnwindSafe(|| f(element))).unwrap_or_else(|payload| Err(panicked(payload)))
            });
            self.progress().ready.insert(number, result);
            self.changed.notify_all();
        }
        self.progress().running -= 1;
        self.changed.notify_all();
    }
}

impl<T: Send + 'static, U: Send + 'static> ParallelMap<T, U> {
    fn start<F>(open: impl FnOnce() -> Elements<T>, threads: usize, f: Arc<F>) -> ParallelMap<T, U>
    where
        F: Fn(T) -> Result<U> + Send + Sync + 'static,
    {
        let progress = Progress { taken: 0, given: 0, ready: BTreeMap::new(), running: 0, closed: false };
        let shared = Arc::new(Shared {
            source: Mutex::new(Some(open())),
            progress: Mutex::new(progress),
            changed: Condvar::new(),
            window: 2 * threads as u64,
        });
        let mut map = ParallelMap { shared, threads: Vec::new() };
        for _ in 0..threads {
            let (shared, f) = (map.shared.clone(), f.clone());
            map.shared.progress().running += 1;
            match spawn("dataset-map", move || shared.work(&*f)) {
                Ok(thread) => map.threads.push(thread),
                Err(status) => {
                    let mut progress = map.shared.progress();
                    progress.running -= 1;
                    // One thread is enough; without any, the error is the only element.
                    if map.threads.is_empty() {
                        progress.taken = 1;
                        progress.ready.insert(0, Err(status));
                    }
                    break;
                }
            }
        }
        map
    }
}

impl<T, U> Iterator for ParallelMap<T, U> {
    type Item = Result<U>;

    fn next(&mut self) -> Option<Result<U>> {
        let (mut progress, mut waiting) = (self.shared.progress(), LoggedWait::for_work());
        loop {
            let number = progress.given;
            if let Some(result) = progress.ready.remove(&number) {
                progress.given += 1;
                self.shared.changed.notify_all();
                return Some(result);
            }
            if progress.running == 0 {
                return None;
            }
            waiting.log(SOURCE, format_args!("element {number} is not ready"));
            let changed = self.shared.changed.wait_timeout(progress, waiting.until_next());
            progress = changed.expect("nothing panics under this lock").0;
        }
    }
}

impl<T, U> Drop for ParallelMap<T, U> {
    fn drop(&mut self) {
        self.shared.progress().closed = true;
        self.shared.changed.notify_all();
        self.threads.drain(..).for_each(join);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[test]
    fn parallel_elements_keep_their_order() {
        let squares = Dataset::from_fn(|| 0..1000u64).par_map(4, |x| Ok(x * x)).prefetch(3);
        assert_eq!(squares.collect().unwrap(), (0..1000).map(|x| x * x).collect::<Vec<u64>>());
    }

    #[test]
    fn panics_and_errors_arrive_in_the_place_of_their_elements() {
        let fussy = |x: i32| match x {
            3 => panic!("no threes"),
            4 => Err(Status::new(Code::NotFound, "no fours")),
            x => Ok(x),
        };
        let codes = |dataset: Dataset<i32>| -> Vec<Result<i32, Code>> {
            dataset.iter().map(|element| element.map_err(|status| status.code())).collect()
        };
        let expected = vec![Ok(2), Err(Code::Internal), Err(Code::NotFound), Ok(5)];
        assert_eq!(codes(Dataset::from_fn(|| 2..6).par_map(2, fussy)), expected);
        assert_eq!(codes(Dataset::from_fn(|| 2..6).try_map(fussy).prefetch(1)), expected);
    }

    #[test]
    fn a_dropped_pass_ends_its_threads() {
        let made = Arc::new(AtomicUsize::new(0));
        let counter = made.clone();
        let endless = Dataset::from_fn(|| 0..).map(move |x: u64| {
            counter.fetch_add(1, Ordering::SeqCst);
            x
        });
        for dataset in [endless.prefetch(2), endless.par_map(3, Ok), endless.par_map(3, Ok).prefetch(2)] {
            let mut elements = dataset.iter();
            assert_eq!(elements.next().unwrap().unwrap(), 0);
            drop(elements);
        }
        // No thread is left to count, and none ran far ahead.
        assert!(made.load(Ordering::SeqCst) < 40);
        assert_eq!(Arc::strong_count(&made), 2);
    }
}

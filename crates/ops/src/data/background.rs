//! Work ahead of the consumer, on the compute threads: a buffer that a task fills, and calls that run in parallel.

use super::state::{Restorer, Saver};
use super::{Caller, Element, IteratorCx, MapStage, Next, Note, PendingCall, Source, SourceCx};
use ferroflow_core::device::BackgroundTask;
use ferroflow_core::kernel::Str;
use ferroflow_core::turn::Turn;
use ferroflow_core::{Result, Tensor, status};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{Context, Poll, Waker, ready};
use std::time::{Duration, Instant};

const UNPOISONED: &str = "no panic while a buffer is locked";

/// The most elements that a buffer of unspecified size grows to.
const MAX_TUNED: usize = 64;

/// A source whose elements are made ahead of the consumer, in order.
pub(crate) struct Prefetch {
    shared: Arc<Shared>,
    cx: Arc<IteratorCx>,
    task: Option<BackgroundTask>,
    /// True if the size of the buffer is ours to choose.
    tuned: bool,
}

struct Shared {
    buffer: Mutex<Buffer>,
    /// Locked while somebody polls it, the task or the consumer.
    source: Mutex<Box<dyn Source>>,
}

struct Buffer {
    elements: VecDeque<Result<Element>>,
    limit: usize,
    ended: bool,
    stage: Stage,
    consumer: Option<Waker>,
}

/// The stage of the task that fills the buffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// There is no task.
    Idle,
    /// The task waits for a thread.
    Scheduled,
    /// The task polls the source, or waits for it.
    Polling,
}

impl Prefetch {
    /// Makes the elements of a source ahead of time: `size` of them, or as many as turn out to be of use.
    pub(crate) fn new(source: Box<dyn Source>, size: Option<usize>, cx: &Arc<IteratorCx>) -> Prefetch {
        let buffer = Buffer {
            elements: VecDeque::new(),
            limit: size.unwrap_or(2).max(1),
            ended: false,
            stage: Stage::Idle,
            consumer: None,
        };
        let shared = Shared { buffer: Mutex::new(buffer), source: Mutex::new(source) };
        Prefetch { shared: Arc::new(shared), cx: cx.clone(), task: None, tuned: size.is_none() }
    }

    /// Starts to make elements now, not when the first one is asked for.
    pub(crate) fn started(mut self) -> Prefetch {
        let shared = self.shared.clone();
        self.schedule(shared.lock());
        self
    }

    /// Starts the task unless it runs or has nothing to do.
    fn schedule(&mut self, mut buffer: MutexGuard<'_, Buffer>) {
        // Waiting until half of the buffer is free makes one hop serve many elements.
        let full = buffer.elements.len() > buffer.limit / 2;
        if buffer.ended || full || buffer.stage != Stage::Idle {
            return;
        }
        buffer.stage = Stage::Scheduled;
        drop(buffer);
        let shared = self.shared.clone();
        let task = self.cx.spawn(Box::pin(poll_fn(move |task| {
            let _turn = Turn::new(false).begin();
            shared.fill(task)
        })));
        if task.is_none() {
            self.shared.lock().stage = Stage::Idle;
        }
        self.task = task;
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Buffer> {
        self.buffer.lock().expect(UNPOISONED)
    }

    /// Fills the buffer until it is full, the source is pending, or the turn is over.
    fn fill(&self, task: &mut Context<'_>) -> Poll<()> {
        // If the consumer polls the source at this moment, it takes what comes first and starts a new task.
        let Ok(mut source) = self.source.try_lock() else {
            self.lock().stage = Stage::Idle;
            return Poll::Ready(());
        };
        self.lock().stage = Stage::Polling;
        let mut cx = SourceCx::new(task);
        loop {
            let next = source.poll_next(&mut cx);
            let mut buffer = self.lock();
            match next {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(None)) => buffer.ended = true,
                Poll::Ready(Ok(Some(element))) => buffer.elements.push_back(Ok(element)),
                Poll::Ready(Err(error)) => buffer.elements.push_back(Err(error)),
            }
            let consumer = buffer.consumer.take();
            let full = buffer.ended || buffer.elements.len() >= buffer.limit;
            if full {
                buffer.stage = Stage::Idle;
            }
            drop(buffer);
            if let Some(consumer) = consumer {
                consumer.wake();
            }
            if full {
                return Poll::Ready(());
            }
            if cx.tick().is_pending() {
                return Poll::Pending;
            }
        }
    }
}

impl Source for Prefetch {
    fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
        let shared = self.shared.clone();
        let mut buffer = shared.lock();
        if let Some(element) = buffer.elements.pop_front() {
            self.schedule(buffer);
            return Poll::Ready(element.map(Some));
        }
        if buffer.ended {
            return Poll::Ready(Ok(None));
        }
        if self.tuned && buffer.limit < MAX_TUNED {
            // The consumer is ahead: a larger buffer evens out what varies.
            buffer.limit *= 2;
        }
        if buffer.stage == Stage::Polling {
            buffer.consumer = Some(cx.task.waker().clone());
            return Poll::Pending;
        }
        drop(buffer);
        // Nobody has started to make the next element.
        if let Ok(mut source) = shared.source.try_lock() {
            let mut buffer = shared.lock();
            if let Some(element) = buffer.elements.pop_front() {
                drop(source);
                self.schedule(buffer);
                return Poll::Ready(element.map(Some));
            }
            if buffer.stage == Stage::Polling || buffer.ended {
                // The task came first, and waits for the source now, or has ended.
                buffer.consumer = Some(cx.task.waker().clone());
                let ended = buffer.ended;
                return if ended { Poll::Ready(Ok(None)) } else { Poll::Pending };
            }
            buffer.consumer = Some(cx.task.waker().clone());
            drop(buffer);
            let next = source.poll_next(cx);
            drop(source);
            let mut buffer = shared.lock();
            if let Poll::Ready(Ok(None)) = next {
                buffer.ended = true;
            }
            if next.is_ready() {
                buffer.consumer = None;
                self.schedule(buffer);
            }
            return next;
        }
        let mut buffer = shared.lock();
        if let Some(element) = buffer.elements.pop_front() {
            return Poll::Ready(element.map(Some));
        }
        if buffer.ended {
            return Poll::Ready(Ok(None));
        }
        buffer.consumer = Some(cx.task.waker().clone());
        if buffer.stage == Stage::Idle {
            // The task gave up for us between the two looks.
            cx.task.waker().wake_by_ref();
        }
        Poll::Pending
    }

    fn poll_save(&mut self, to: &mut Saver<'_>, cx: &mut SourceCx<'_, '_>) -> Poll<Result<()>> {
        let shared = self.shared.clone();
        // The task, if there is one, is within the source for no longer than its turn.
        let mut source = shared.source.lock().expect(UNPOISONED);
        let amid = shared.lock().stage == Stage::Polling;
        if amid {
            // An element is being made: it comes first.
            let next = ready!(source.poll_next(cx));
            let mut buffer = shared.lock();
            match next {
                Ok(None) => buffer.ended = true,
                Ok(Some(element)) => buffer.elements.push_back(Ok(element)),
                Err(error) => buffer.elements.push_back(Err(error)),
            }
            // The source knows our waker now, not the task's: another task goes on.
            buffer.stage = Stage::Idle;
            drop(buffer);
            self.task = None;
        }
        let mut to = to.stage("Prefetch");
        ready!(source.poll_save(&mut to, cx))?;
        drop(source);
        let buffer = shared.lock();
        save_buffer(buffer.elements.iter(), &mut to);
        drop(buffer);
        self.schedule(shared.lock());
        Poll::Ready(Ok(()))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        let from = from.stage(&["Prefetch"])?;
        self.shared.source.lock().expect(UNPOISONED).restore(&from)?;
        self.shared.lock().elements = restored_buffer(&from)?;
        Ok(())
    }

    fn works_ahead(&mut self) -> bool {
        true
    }

    fn is_prefetch(&self) -> bool {
        true
    }
}

/// Writes the elements that a prefetch has ready.
pub(super) fn save_buffer<'a>(
    elements: impl ExactSizeIterator<Item = &'a Result<Element>>,
    to: &mut Saver<'_>,
) {
    to.number("buffer_size", elements.len() as i64);
    for (i, element) in elements.enumerate() {
        let mut to = to.at(&format!("::{i}"));
        match element {
            Ok(element) => {
                to.number("status.code", 0);
                to.number("buffer.size", element.len() as i64);
                to.components("buffer", element);
            }
            Err(error) => {
                to.number("status.code", error.code() as i64);
                let message = Str::copy_from_slice(error.message().as_bytes());
                to.tensor("status.error_message", Tensor::scalar(message));
            }
        }
    }
}

/// The elements that a prefetch had ready.
pub(super) fn restored_buffer(from: &Restorer) -> Result<VecDeque<Result<Element>>> {
    let mut elements = VecDeque::new();
    for i in 0..from.count("buffer_size")? {
        let from = from.at(&format!("::{i}"));
        let code = from.number("status.code")?;
        elements.push_back(if code == 0 {
            Ok(from.components("buffer", from.count("buffer.size")?)?)
        } else {
            Err(from.failure(code, "status.error_message"))
        });
    }
    Ok(elements)
}

/// Calls that take longer than this are worth another thread.
const LONG_CALL: Duration = Duration::from_micros(40);
/// The number of short calls between measurements.
const MEASURE_EVERY: u32 = 16;

/// Calls of a function on the elements of a source, several at a time. Results come in the order of the elements, or,
/// if that does not matter, those first that are there first.
///
/// Short calls are made on the polling thread one by one: passing them to another thread would take longer.
pub(crate) struct ParallelCalls {
    input: Box<dyn Source>,
    caller: Caller,
    window: VecDeque<Slot>,
    limit: usize,
    in_order: bool,
    ended: bool,
    /// Keep the arguments of each call with its result, for predicates.
    keeps_arguments: bool,
    /// True if the last measured call was long.
    long: bool,
    until_measured: u32,
}

/// The results of a call, and its arguments if they are kept.
pub(crate) type Called = (Result<Element>, Element);

enum Slot {
    Done(Called),
    /// A call on another thread.
    Elsewhere(Arc<Mutex<Outcome>>, Option<BackgroundTask>, Element, Option<Note>),
    /// A call that waits for something and is polled here, because there are no other threads.
    Here(PendingCall, Element),
    /// An error of the input.
    Failed(ferroflow_core::Status),
}

#[derive(Default)]
struct Outcome {
    results: Option<Result<Element>>,
    waker: Option<Waker>,
}

impl ParallelCalls {
    /// At most `limit` calls at a time, or as many as there are threads.
    pub(crate) fn new(
        input: Box<dyn Source>,
        caller: Caller,
        limit: Option<usize>,
        in_order: bool,
        keeps_arguments: bool,
    ) -> ParallelCalls {
        let limit = limit.unwrap_or_else(|| caller.cx().parallelism()).max(1);
        let window = VecDeque::new();
        ParallelCalls {
            input,
            caller,
            window,
            limit,
            in_order,
            ended: false,
            keeps_arguments,
            long: false,
            until_measured: 1,
        }
    }

    /// Puts results of an earlier run before all others.
    pub(crate) fn restore_results(&mut self, results: Vec<Element>) {
        self.window = results.into_iter().map(|results| Slot::Done((Ok(results), Vec::new()))).collect();
    }

    fn start(&mut self, element: Element, cx: &mut SourceCx<'_, '_>) {
        let kept = if self.keeps_arguments { element.clone() } else { Vec::new() };
        let mut call = self.caller.call(element);
        if !self.long {
            self.until_measured -= 1;
            let since = (self.until_measured == 0).then(Instant::now);
            let polled = call.as_mut().poll(cx.task);
            if let Some(since) = since {
                self.until_measured = MEASURE_EVERY;
                self.long = since.elapsed() > LONG_CALL;
            }
            if let Poll::Ready(results) = polled {
                self.window.push_back(Slot::Done((results, kept)));
                return;
            }
        }
        if self.caller.cx().device().background().is_none() {
            self.window.push_back(Slot::Here(call, kept));
            return;
        }
        let outcome = Arc::new(Mutex::new(Outcome::default()));
        let filled = outcome.clone();
        let task = self.caller.cx().spawn(Box::pin(async move {
            let results = poll_fn(|task| {
                let _turn = Turn::new(false).begin();
                call.as_mut().poll(task)
            })
            .await;
            let mut outcome = filled.lock().expect(UNPOISONED);
            outcome.results = Some(results);
            let waker = outcome.waker.take();
            drop(outcome);
            if let Some(waker) = waker {
                waker.wake();
            }
        }));
        self.window.push_back(Slot::Elsewhere(outcome, task, kept, None));
    }

    /// The next call's results.
    pub(crate) fn poll_called(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<Option<Called>>> {
        loop {
            let reach = if self.in_order { 1 } else { self.window.len() };
            for place in 0..reach.min(self.window.len()) {
                if let Poll::Ready(called) = poll_slot(&mut self.window[place], &self.caller, cx) {
                    self.window.remove(place);
                    return Poll::Ready(called.map(Some));
                }
            }
            if self.window.len() >= self.limit {
                return Poll::Pending;
            }
            if self.ended {
                return if self.window.is_empty() { Poll::Ready(Ok(None)) } else { Poll::Pending };
            }
            match self.input.poll_next(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(Some(element))) => self.start(element, cx),
                Poll::Ready(Ok(None)) => self.ended = true,
                Poll::Ready(Err(error)) => self.window.push_back(Slot::Failed(error)),
            }
        }
    }
}

impl MapStage for ParallelCalls {
    fn poll_results(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<Vec<Element>>> {
        let mut results = Vec::with_capacity(self.window.len());
        for slot in &mut self.window {
            let called = ready!(poll_slot(slot, &self.caller, cx));
            match called {
                Ok((Ok(element), kept)) => {
                    results.push(element.clone());
                    *slot = Slot::Done((Ok(element), kept));
                }
                Ok((Err(error), kept)) => {
                    *slot = Slot::Done((Err(error), kept));
                    return Poll::Ready(Err(status!(Unimplemented, "")));
                }
                Err(_) => return Poll::Ready(Err(status!(Unimplemented, ""))),
            }
        }
        Poll::Ready(Ok(results))
    }

    fn input(&mut self) -> &mut Box<dyn Source> {
        &mut self.input
    }
}

fn poll_slot(slot: &mut Slot, caller: &Caller, cx: &mut SourceCx<'_, '_>) -> Poll<Result<Called>> {
    match slot {
        Slot::Done((results, kept)) => {
            let results = std::mem::replace(results, Ok(Vec::new()));
            Poll::Ready(Ok((results, std::mem::take(kept))))
        }
        Slot::Here(call, kept) => {
            let results = ready!(call.as_mut().poll(cx.task));
            Poll::Ready(Ok((results, std::mem::take(kept))))
        }
        Slot::Elsewhere(outcome, task, kept, note) => {
            let mut outcome = outcome.lock().expect(UNPOISONED);
            if let Some(results) = outcome.results.take() {
                return Poll::Ready(Ok((results, std::mem::take(kept))));
            }
            if task.is_none() {
                return Poll::Ready(Err(status!(Internal, "there is no thread for a call")));
            }
            outcome.waker = Some(cx.task.waker().clone());
            if note.is_none() {
                *note = caller.note_call();
            }
            Poll::Pending
        }
        Slot::Failed(error) => Poll::Ready(Err(error.clone())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{step, wait};
    use ferroflow_core::BoxFuture;
    use ferroflow_core::device::Background;
    use ferroflow_core::resource::ResourceManager;

    /// A thread per future.
    struct Threads;

    impl Background for Threads {
        fn spawn(&self, work: BoxFuture<()>) -> BackgroundTask {
            BackgroundTask::new(std::thread::spawn(move || wait(work)))
        }

        fn parallelism(&self) -> usize {
            2
        }
    }

    /// Numbers, one of which fails; before every seventh the source is pending once.
    struct Count(i64, bool);

    impl Source for Count {
        fn poll_next(&mut self, cx: &mut SourceCx<'_, '_>) -> Next {
            if self.0 % 7 == 0 && !std::mem::replace(&mut self.1, true) {
                cx.task.waker().wake_by_ref();
                return Poll::Pending;
            }
            self.1 = false;
            self.0 += 1;
            match self.0 {
                500 => Poll::Ready(Err(status!(DataLoss, "lost"))),
                1001.. => Poll::Ready(Ok(None)),
                at => Poll::Ready(Ok(Some(vec![Tensor::scalar(at)]))),
            }
        }
    }

    #[test]
    fn elements_and_errors_come_in_order_whoever_makes_them() {
        let step = step(&ResourceManager::new("localhost"));
        step.device.set_background(Arc::new(Threads));
        let cx = IteratorCx::new(&step, &Arc::default(), "a test");
        for size in [Some(1), Some(5), None] {
            let mut source = Prefetch::new(Box::new(Count(0, false)), size, &cx);
            for at in 1..=1000 {
                let next = wait(poll_fn(|task| source.poll_next(&mut SourceCx::new(task))));
                match next {
                    Ok(Some(element)) => assert_eq!(element[0].to_scalar::<i64>().unwrap(), at),
                    Ok(None) => panic!("the source ended at {at}"),
                    Err(error) => assert_eq!((at, error.message()), (500, "lost")),
                }
            }
            let end = wait(poll_fn(|task| source.poll_next(&mut SourceCx::new(task))));
            assert!(end.unwrap().is_none());
        }
    }
}

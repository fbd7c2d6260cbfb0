//! Batches that are gathered from several steps: the first task of a batch waits for others, then works for all.

use crate::state::watched::Watched;
use crate::support::timer::sleep_until;
use ferroflow_core::resource::Resource;
use ferroflow_core::{Result, Tensor, ensure};
use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The limits of batches.
#[derive(Clone)]
pub(crate) struct BatchLimits {
    /// The most rows.
    pub(crate) size: usize,
    /// The time that the first task of a batch waits for others.
    pub(crate) timeout: Duration,
}

/// The part of a batch that one step brings.
pub(crate) struct Task<R> {
    pub(crate) id: u64,
    pub(crate) tensors: Vec<Tensor>,
    pub(crate) rows: usize,
    /// The outcome, once somebody has worked for it.
    result: Option<Result<R>>,
}

struct Batch<R> {
    tasks: Vec<Task<R>>,
    rows: usize,
    deadline: Instant,
    /// No task may be added.
    closed: bool,
    /// Somebody works on it.
    taken: bool,
}

/// Batches by number; the last one may be open.
struct Batches<R> {
    batches: HashMap<u64, Batch<R>>,
    open: Option<u64>,
    next: u64,
}

/// Gathers tasks to batches; `R` is what each task gets.
pub(crate) struct Batcher<R>(Arc<Watched<Batches<R>>>);

impl<R: Send + 'static> Resource for Batcher<R> {
    fn type_name(&self) -> &'static str {
        "Batcher"
    }

    fn cancel_waiters(&self) {
        self.0.abandon();
    }
}

const WHAT: &str = "A batch";

/// A task's place in a batch. Dropped before its result is there, it leaves, and another task takes over its work.
struct Place<R> {
    batches: Arc<Watched<Batches<R>>>,
    batch: u64,
    id: u64,
    works: bool,
}

impl<R> Drop for Place<R> {
    fn drop(&mut self) {
        self.batches.change(|batches| {
            let Some(batch) = batches.batches.get_mut(&self.batch) else { return };
            let before = batch.tasks.len();
            batch.tasks.retain(|task| task.id != self.id);
            if before != batch.tasks.len() && self.works {
                batch.taken = false;
            }
            if batch.tasks.is_empty() {
                batches.batches.remove(&self.batch);
                batches.open = batches.open.filter(|open| *open != self.batch);
            }
        });
    }
}

/// The next thing that a task does.
enum Turn<R> {
    /// Works for these tasks: their numbers, tensors and rows.
    Work(Vec<(u64, Vec<Tensor>, usize)>),
    Done(Result<R>),
}

impl<R: Send + 'static> Batcher<R> {
    pub(crate) fn new() -> Batcher<R> {
        let batches = Batches { batches: HashMap::new(), open: None, next: 0 };
        Batcher(Arc::new(Watched::new(batches)))
    }

    /// Adds a task and waits for its result. The first task of a batch calls `work` with all of them when the batch is
    /// full or old enough; it returns a result for each, in order.
    pub(crate) async fn run<W, F>(
        &self,
        limits: &BatchLimits,
        tensors: Vec<Tensor>,
        rows: usize,
        work: W,
    ) -> Result<R>
    where
        W: FnOnce(Vec<(u64, Vec<Tensor>, usize)>) -> F,
        F: Future<Output = Result<Vec<R>>>,
    {
        ensure!(
            rows <= limits.size,
            InvalidArgument,
            "Task size {rows} is larger than maximum input batch size {}",
            limits.size
        );
        let mut place = self.enter(limits, tensors, rows);
        let (batch, id) = (place.batch, place.id);
        let deadline = self.0.look(|batches| batches.batches[&batch].deadline);
        let mut due = pin!(sleep_until(deadline));
        let mut turns = pin!(self.0.until(WHAT, |batches| turn(batches, batch, id)));
        let mut is_due = false;
        let turn = poll_fn(|context| {
            // The moment comes first, so that the task finds its batch old enough.
            is_due = is_due || due.as_mut().poll(context).is_ready();
            turns.as_mut().poll(context)
        });
        match turn.await? {
            Turn::Done(result) => result,
            Turn::Work(tasks) => {
                place.works = true;
                let ids: Vec<u64> = tasks.iter().map(|(id, _, _)| *id).collect();
                let results = work(tasks).await;
                self.finish(batch, id, &ids, results)
            }
        }
    }

    fn enter(&self, limits: &BatchLimits, tensors: Vec<Tensor>, rows: usize) -> Place<R> {
        let (batch, id) = self.0.change(|batches| {
            batches.next += 1;
            let id = batches.next;
            let fits = |batch: &Batch<R>| !batch.closed && batch.rows + rows <= limits.size;
            let open = batches.open.filter(|open| batches.batches.get(open).is_some_and(fits));
            if open.is_none()
                && let Some(full) = batches.open.and_then(|open| batches.batches.get_mut(&open))
            {
                full.closed = true;
            }
            let number = open.unwrap_or(id);
            let batch = batches.batches.entry(number).or_insert_with(|| Batch {
                tasks: Vec::new(),
                rows: 0,
                deadline: Instant::now() + limits.timeout,
                closed: false,
                taken: false,
            });
            batch.tasks.push(Task { id, tensors, rows, result: None });
            batch.rows += rows;
            batch.closed |= batch.rows == limits.size;
            batches.open = (!batch.closed).then_some(number);
            (number, id)
        });
        Place { batches: self.0.clone(), batch, id, works: false }
    }

    /// Hands out results; returns that of task `own`.
    fn finish(&self, batch: u64, own: u64, ids: &[u64], results: Result<Vec<R>>) -> Result<R> {
        self.0.change(|batches| {
            let mut mine = None;
            let results: Vec<Result<R>> = match results {
                Ok(results) => results.into_iter().map(Ok).collect(),
                Err(error) => ids.iter().map(|_| Err(error.clone())).collect(),
            };
            let tasks = batches.batches.get_mut(&batch).map(|batch| &mut batch.tasks);
            let mut tasks = tasks.map(|tasks| tasks.iter_mut()).into_iter().flatten().collect::<Vec<_>>();
            for (id, result) in ids.iter().zip(results) {
                if *id == own {
                    mine = Some(result);
                } else if let Some(task) = tasks.iter_mut().find(|task| task.id == *id) {
                    task.result = Some(result);
                }
            }
            mine.unwrap_or_else(|| ferroflow_core::bail!(Internal, "a task had no result"))
        })
    }
}

fn turn<R>(batches: &mut Batches<R>, number: u64, id: u64) -> Poll<Result<Turn<R>>> {
    let Some(batch) = batches.batches.get_mut(&number) else {
        return Poll::Ready(Err(ferroflow_core::status!(Internal, "a batch is gone that a task waits for")));
    };
    let own = batch.tasks.iter_mut().find(|task| task.id == id);
    if let Some(result) = own.and_then(|task| task.result.take()) {
        return Poll::Ready(Ok(Turn::Done(result)));
    }
    // The first of those that have no result works for all of them.
    let first = batch.tasks.iter().find(|task| task.result.is_none()).map(|task| task.id);
    let is_ready = batch.closed || Instant::now() >= batch.deadline;
    if first != Some(id) || !is_ready || batch.taken {
        return Poll::Pending;
    }
    (batch.closed, batch.taken) = (true, true);
    batches.open = batches.open.filter(|open| *open != number);
    let waiting = batch.tasks.iter().filter(|task| task.result.is_none());
    let tasks = waiting.map(|task| (task.id, task.tensors.clone(), task.rows)).collect();
    Poll::Ready(Ok(Turn::Work(tasks)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait;
    use futures_util::FutureExt;
    use futures_util::future::join;

    fn limits(size: usize, millis: u64) -> BatchLimits {
        BatchLimits { size, timeout: Duration::from_millis(millis) }
    }

    async fn ids(tasks: Vec<(u64, Vec<Tensor>, usize)>) -> Result<Vec<Vec<u64>>> {
        let all: Vec<u64> = tasks.iter().map(|(id, _, _)| *id).collect();
        Ok(vec![all.clone(); all.len()])
    }

    #[test]
    fn a_full_batch_does_not_wait() {
        let (batcher, limits) = (Batcher::new(), limits(2, 1_000_000));
        let one = || batcher.run(&limits, Vec::new(), 1, ids);
        let (a, b) = wait(join(one(), one()));
        assert_eq!((a.unwrap(), b.unwrap()), (vec![1, 2], vec![1, 2]));
    }

    #[test]
    fn a_batch_that_nobody_joins_goes_alone() {
        let (batcher, limits) = (Batcher::new(), limits(2, 2));
        assert_eq!(wait(batcher.run(&limits, Vec::new(), 1, ids)).unwrap(), [1]);
        let large = wait(batcher.run(&limits, Vec::new(), 3, ids)).unwrap_err();
        assert!(large.message().contains("Task size 3 is larger"), "{large}");
    }

    #[test]
    fn another_task_takes_over_when_the_first_one_goes() {
        let (batcher, limits) = (Batcher::new(), limits(3, 1_000_000));
        let one = || Box::pin(batcher.run(&limits, Vec::new(), 1, ids));
        let (mut first, mut second) = (one(), one());
        assert!((&mut first).now_or_never().is_none() && (&mut second).now_or_never().is_none());
        drop(first);
        let large = Box::pin(batcher.run(&limits, Vec::new(), 3, ids));
        assert_eq!(large.now_or_never().unwrap().unwrap(), [3], "it does not fit, so the others go before");
        assert_eq!(second.now_or_never().unwrap().unwrap(), [2]);
    }
}

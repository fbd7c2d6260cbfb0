//! Compute threads, which run steps and large kernels. I/O never runs here.

use ferroflow_core::device::{Background, BackgroundTask};
use ferroflow_core::{BoxFuture, Result, status};
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

/// A closure for a compute thread.
type Job = Box<dyn FnOnce() + Send>;

/// A fixed number of threads with one queue. Threads are started when there is work for them and exit with the pool.
pub struct ComputePool {
    shared: Arc<Shared>,
}

struct Shared {
    threads: usize,
    prepare: Box<dyn Fn() + Send + Sync>,
    queue: Mutex<Queue>,
    arrived: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    started: usize,
    idle: usize,
    closed: bool,
}

const UNPOISONED: &str = "no panic while the queue is locked";

impl ComputePool {
    /// A pool of at most this many threads.
    pub fn new(threads: usize) -> Arc<ComputePool> {
        ComputePool::prepared(threads, || {})
    }

    /// A pool of at most this many threads, each of which calls `prepare` first.
    pub fn prepared(threads: usize, prepare: impl Fn() + Send + Sync + 'static) -> Arc<ComputePool> {
        let (queue, prepare) = (Mutex::default(), Box::new(prepare));
        let shared = Shared { threads: threads.max(1), prepare, queue, arrived: Condvar::new() };
        Arc::new(ComputePool { shared: Arc::new(shared) })
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.shared.threads
    }

    /// Runs a job on a compute thread.
    pub fn run(&self, job: impl FnOnce() + Send + 'static) {
        submit(&self.shared, Box::new(job));
    }

    /// Runs a future on compute threads. Dropping the task cancels it.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> async_task::Task<T> {
        let shared = self.shared.clone();
        let schedule = move |runnable: async_task::Runnable| {
            submit(
                &shared,
                Box::new(move || {
                    runnable.run();
                }),
            )
        };
        let (runnable, task) = async_task::spawn(future, schedule);
        runnable.schedule();
        task
    }
}

impl ComputePool {
    /// Runs a future on compute threads, starting now; a panic becomes a status. Dropping the returned future cancels
    /// the work.
    pub fn complete<T, F>(&self, future: F) -> impl Future<Output = Result<T>> + Send + use<T, F>
    where
        T: Send + 'static,
        F: Future<Output = Result<T>> + Send + 'static,
    {
        let task = self.spawn(future).fallible();
        async move { task.await.unwrap_or_else(|| Err(status!(Internal, "the work ended with a panic"))) }
    }
}

impl Background for ComputePool {
    fn spawn(&self, work: BoxFuture<()>) -> BackgroundTask {
        BackgroundTask::new(ComputePool::spawn(self, work))
    }

    fn parallelism(&self) -> usize {
        self.shared.threads
    }
}

impl Drop for ComputePool {
    fn drop(&mut self) {
        self.shared.queue.lock().expect(UNPOISONED).closed = true;
        self.shared.arrived.notify_all();
    }
}

fn submit(shared: &Arc<Shared>, job: Job) {
    let mut queue = shared.queue.lock().expect(UNPOISONED);
    if queue.closed {
        return;
    }
    queue.jobs.push_back(job);
    if queue.idle == 0 && queue.started < shared.threads {
        queue.started += 1;
        let name = format!("compute-{}", queue.started);
        let worker = shared.clone();
        let spawned = std::thread::Builder::new().name(name).spawn(move || work(&worker));
        if spawned.is_err() {
            // The existing threads will run the job; if there are none, it runs here.
            queue.started -= 1;
            if queue.started == 0 {
                let job = queue.jobs.pop_back();
                drop(queue);
                job.into_iter().for_each(|job| job());
                return;
            }
        }
    }
    drop(queue);
    shared.arrived.notify_one();
}

fn work(shared: &Shared) {
    (shared.prepare)();
    let mut queue = shared.queue.lock().expect(UNPOISONED);
    loop {
        if let Some(job) = queue.jobs.pop_front() {
            drop(queue);
            // Steps catch panics of kernels themselves; this catches any other, so that the thread survives.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(job));
            queue = shared.queue.lock().expect(UNPOISONED);
        } else if queue.closed {
            return;
        } else {
            queue.idle += 1;
            queue = shared.arrived.wait(queue).expect(UNPOISONED);
            queue.idle -= 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn futures_and_jobs_run() {
        let pool = ComputePool::new(2);
        assert_eq!(crate::testing::block_on(pool.spawn(async { 6 * 7 })), 42);
        let (send, receive) = std::sync::mpsc::channel();
        pool.run(move || send.send(1).expect("the test waits"));
        assert_eq!(receive.recv(), Ok(1));
    }
}

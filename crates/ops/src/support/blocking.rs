//! Work that waits for disks. It runs on a thread of its own: compute threads and those that serve requests must stay
//! free for other steps while a large checkpoint is written.

use ferroflow_core::cancel::Cancellation;
use ferroflow_core::{Result, status};
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// State shared by the thread and the step: the outcome, once there is one, and whom to wake.
struct Shared<T>(Mutex<(Option<Result<T>>, Option<Waker>)>);

const UNPOISONED: &str = "no panic while the outcome is passed on";

impl<T> Shared<T> {
    /// The first outcome stays.
    fn finish(&self, outcome: Result<T>) {
        let mut state = self.0.lock().expect(UNPOISONED);
        if state.0.is_none() {
            state.0 = Some(outcome);
        }
        if let Some(waker) = state.1.take() {
            waker.wake();
        }
    }
}

/// Reports a panic of the work as what it is.
struct Finished<T>(Arc<Shared<T>>, &'static str);

impl<T> Drop for Finished<T> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.finish(Err(status!(Internal, "{} panicked", self.1)));
        }
    }
}

/// Tells the work that nobody waits for it any more.
struct Abandoned(Cancellation);

impl Drop for Abandoned {
    fn drop(&mut self) {
        self.0.cancel(status!(Cancelled, "the step ended"));
    }
}

/// Runs `work` on a thread and waits for it. The cancellation that `work` is given comes when the wait is dropped, that
/// is when the step ends early; `work` should look at it from time to time.
pub(crate) async fn run<T: Send + 'static>(
    name: &'static str,
    work: impl FnOnce(Cancellation) -> Result<T> + Send + 'static,
) -> Result<T> {
    let shared = Arc::new(Shared(Mutex::new((None, None))));
    let abandoned = Abandoned(Cancellation::new());
    let (finished, cancellation) = (Finished(shared.clone(), name), abandoned.0.clone());
    std::thread::Builder::new()
        .name(name.to_owned())
        .spawn(move || {
            let outcome = work(cancellation);
            finished.0.finish(outcome);
        })
        .map_err(|error| status!(ResourceExhausted, "no thread for {name}: {error}"))?;
    poll_fn(|context| {
        let mut state = shared.0.lock().expect(UNPOISONED);
        match state.0.take() {
            Some(outcome) => Poll::Ready(outcome),
            None => {
                state.1 = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::wait;
    use ferroflow_core::Code;
    use futures_util::FutureExt;

    #[test]
    fn the_outcome_comes_back() {
        assert_eq!(wait(run("sum", |_| Ok(1 + 1))).unwrap(), 2);
        let failed = wait(run::<()>("failure", |_| Err(status!(DataLoss, "lost"))));
        assert_eq!(failed.unwrap_err().code(), Code::DataLoss);
    }

    #[test]
    fn a_panic_is_an_error() {
        let failed = wait(run::<()>("panic", |_| panic!("on purpose")));
        assert_eq!(failed.unwrap_err().code(), Code::Internal);
    }

    #[test]
    fn dropping_the_wait_tells_the_work() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let mut future = Box::pin(run("long", move |cancellation| {
            while !cancellation.is_cancelled() {
                std::thread::yield_now();
            }
            sender.send(()).map_err(|_| status!(Internal, "nobody listens"))
        }));
        assert!(future.as_mut().now_or_never().is_none());
        drop(future);
        receiver.recv().unwrap();
    }
}

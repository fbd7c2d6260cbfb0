//! The order of operations in an asynchronous context. They run one after the other, and those without outputs are
//! answered before they are done. The first that fails is the answer to everything after it, as in stock, for as long as
//! the context lives.

use super::account::Account;
use ferroflow_core::{Result, Status};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use tokio::sync::{Mutex as Turn, OwnedMutexGuard};
use tokio::task::JoinSet;

/// Memory charged for an operation that waits for its turn.
const WAITING_BYTES: usize = 4 << 10;

const POISON: &str = "Encountered when executing an operation using EagerExecutor. This error cancels all future \
                      operations and poisons their output tensors.";

const UNPOISONED: &str = "no panic while a queue is locked";

/// The operations of an asynchronous context.
#[derive(Default)]
pub(super) struct Queue {
    /// Held by the operation that runs; the others wait for it in their order.
    turn: Arc<Turn<()>>,
    failed: Arc<Mutex<Option<Status>>>,
    unanswered: Mutex<JoinSet<()>>,
}

impl Queue {
    /// Fails if an operation has.
    pub(super) fn check(&self) -> Result<()> {
        self.failed.lock().expect(UNPOISONED).clone().map_or(Ok(()), Err)
    }

    /// Runs an operation when it is its turn.
    pub(super) async fn run<T>(&self, operation: impl Future<Output = Result<T>>) -> Result<T> {
        let _turn = self.turn.clone().lock_owned().await;
        self.check()?;
        operation.await.inspect_err(|error| fail(&self.failed, error))
    }

    /// Has an operation run when it is its turn; nobody waits for it.
    pub(super) async fn run_unanswered(
        &self,
        account: &Arc<Account>,
        operation: impl Future<Output = Result<()>> + Send + 'static,
    ) -> Result<()> {
        self.check()?;
        let share = account.charge(WAITING_BYTES)?;
        let mut turn = Box::pin(self.turn.clone().lock_owned());
        // Asked once, it has its place before anything that comes later.
        let first = poll_fn(|cx| Poll::Ready(turn.as_mut().poll(cx))).await;
        let failed = self.failed.clone();
        let mut unanswered = self.unanswered.lock().expect(UNPOISONED);
        while unanswered.try_join_next().is_some() {}
        unanswered.spawn(async move {
            let _turn: OwnedMutexGuard<()> = match first {
                Poll::Ready(turn) => turn,
                Poll::Pending => turn.await,
            };
            if failed.lock().expect(UNPOISONED).is_none()
                && let Err(error) = pin!(operation).await
            {
                fail(&failed, &error);
            }
            drop(share);
        });
        Ok(())
    }

    /// Waits until everything that has been enqueued is done.
    pub(super) async fn done(&self) -> Result<()> {
        self.check()?;
        drop(self.turn.clone().lock_owned().await);
        self.check()
    }

    /// Gives up what has not been done.
    pub(super) fn end(&self) {
        self.unanswered.lock().expect(UNPOISONED).abort_all();
    }
}

fn fail(failed: &Mutex<Option<Status>>, error: &Status) {
    let mut failed = failed.lock().expect(UNPOISONED);
    if failed.is_none() {
        *failed = Some(error.clone().map_message(|message| format!("{message}\n{POISON}")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::memory::MemoryBudget;
    use ferroflow_core::status;
    use tokio::sync::oneshot;

    #[tokio::test]
    async fn operations_run_in_order_until_one_fails() {
        let (queue, order) = (Queue::default(), Arc::new(Mutex::new(Vec::new())));
        let account = Account::new(MemoryBudget::process().part(1 << 20));
        let (open, gate) = oneshot::channel::<()>();
        let note = |number: i32| {
            let order = order.clone();
            async move {
                order.lock().unwrap().push(number);
                Ok(())
            }
        };
        let blocked = note(1);
        let first = async move {
            gate.await.unwrap();
            blocked.await
        };
        queue.run_unanswered(&account, first).await.unwrap();
        queue.run_unanswered(&account, note(2)).await.unwrap();
        assert!(order.lock().unwrap().is_empty());
        open.send(()).unwrap();
        queue.run(note(3)).await.unwrap();
        assert_eq!(*order.lock().unwrap(), [1, 2, 3]);
        queue.done().await.unwrap();
        queue.run_unanswered(&account, async { Err(status!(Internal, "broken")) }).await.unwrap();
        assert!(queue.done().await.unwrap_err().message().starts_with("broken"));
        assert!(queue.run(note(4)).await.is_err() && queue.run_unanswered(&account, note(5)).await.is_err());
        assert_eq!(order.lock().unwrap().len(), 3);
    }
}

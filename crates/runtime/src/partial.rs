//! Partial runs: feeds arrive and fetches leave while the step is running. The executor waits here for feeds; the
//! master's partial runs supply them.

use ferroflow_core::{BoxFuture, Result, Status, Tensor, status};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// The exchange between a partial run and its callers. Feeds and fetches are numbered as in the signature.
pub struct PartialHub {
    state: Mutex<State>,
}

struct State {
    feeds: Vec<Option<Tensor>>,
    fetches: Vec<Option<Result<Tensor>>>,
    /// The failure that ended the run.
    failed: Option<Status>,
    wakers: Vec<Waker>,
}

const UNPOISONED: &str = "no panic while the hub is locked";

impl PartialHub {
    /// A hub for this many feeds and fetches.
    pub fn new(feeds: usize, fetches: usize) -> Arc<PartialHub> {
        let state = State {
            feeds: vec![None; feeds],
            fetches: (0..fetches).map(|_| None).collect(),
            failed: None,
            wakers: Vec::new(),
        };
        Arc::new(PartialHub { state: Mutex::new(state) })
    }

    /// Supplies a feed.
    pub fn feed(&self, index: usize, value: Tensor) {
        self.change(|state| state.feeds[index] = Some(value));
    }

    /// Supplies a fetched value.
    pub fn set_fetch(&self, index: usize, value: Result<Tensor>) {
        self.change(|state| state.fetches[index] = Some(value));
    }

    /// Fails all waits with this status.
    pub fn fail(&self, reason: Status) {
        self.change(|state| {
            state.failed.get_or_insert(reason);
        });
    }

    /// Waits for a feed.
    pub fn wait_feed(self: &Arc<Self>, index: usize) -> BoxFuture<Result<Tensor>> {
        self.wait(move |state| state.feeds[index].clone().map(Ok))
    }

    /// Waits for a fetch.
    pub fn wait_fetch(self: &Arc<Self>, index: usize) -> BoxFuture<Result<Tensor>> {
        self.wait(move |state| state.fetches[index].clone())
    }

    fn wait(
        self: &Arc<Self>,
        look: impl Fn(&State) -> Option<Result<Tensor>> + Send + 'static,
    ) -> BoxFuture<Result<Tensor>> {
        let hub = self.clone();
        Box::pin(std::future::poll_fn(move |context| {
            let mut state = hub.state.lock().expect(UNPOISONED);
            if let Some(found) = look(&state) {
                return Poll::Ready(found);
            }
            if let Some(reason) = &state.failed {
                return Poll::Ready(Err(status!(Cancelled, "{}", reason.message()).derived()));
            }
            if !state.wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                state.wakers.push(context.waker().clone());
            }
            Poll::Pending
        }))
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        let wakers = {
            let mut state = self.state.lock().expect(UNPOISONED);
            change(&mut state);
            std::mem::take(&mut state.wakers)
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

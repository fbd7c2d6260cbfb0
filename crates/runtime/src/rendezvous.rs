//! The meeting place of one step within this process.

use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::{BoxFuture, Result, Status, bail};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};

/// Parcels by key; senders and receivers may come in any order.
#[derive(Clone, Default)]
pub struct LocalRendezvous(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    parcels: HashMap<RendezvousKey, Parcel>,
    waiting: HashMap<RendezvousKey, Vec<Waker>>,
    aborted: Option<Status>,
}

const UNPOISONED: &str = "no panic while the rendezvous is locked";

impl Rendezvous for LocalRendezvous {
    fn send(&self, key: &RendezvousKey, parcel: Parcel) -> Result<()> {
        let wakers = {
            let mut state = self.0.lock().expect(UNPOISONED);
            if let Some(reason) = &state.aborted {
                return Err(reason.clone());
            }
            if state.parcels.contains_key(key) {
                bail!(Aborted, "Duplicated send: {key}");
            }
            state.parcels.insert(key.clone(), parcel);
            state.waiting.remove(key)
        };
        wakers.into_iter().flatten().for_each(Waker::wake);
        Ok(())
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        let (shared, key) = (self.0.clone(), key.clone());
        Box::pin(std::future::poll_fn(move |context| {
            let mut state = shared.lock().expect(UNPOISONED);
            if let Some(parcel) = state.parcels.remove(&key) {
                return Poll::Ready(Ok(parcel));
            }
            if let Some(reason) = &state.aborted {
                return Poll::Ready(Err(reason.clone()));
            }
            let waiting = state.waiting.entry(key.clone()).or_default();
            if !waiting.iter().any(|waker| waker.will_wake(context.waker())) {
                waiting.push(context.waker().clone());
            }
            Poll::Pending
        }))
    }

    fn abort(&self, reason: Status) {
        let wakers: Vec<Waker> = {
            let mut state = self.0.lock().expect(UNPOISONED);
            state.aborted.get_or_insert(reason);
            state.waiting.drain().flat_map(|(_, wakers)| wakers).collect()
        };
        wakers.into_iter().for_each(Waker::wake);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::{Tensor, status};
    use futures_util::FutureExt;

    fn key(edge: &str) -> RendezvousKey {
        RendezvousKey::parse(&format!("/job:a;0;/job:a;{edge};0:0")).unwrap()
    }

    #[test]
    fn a_parcel_is_delivered_once_in_any_order() {
        let rendezvous = LocalRendezvous::default();
        let mut early = rendezvous.recv(&key("x"));
        assert!((&mut early).now_or_never().is_none());
        let parcel = Parcel { tensor: Tensor::scalar(1i32), dead: false };
        rendezvous.send(&key("x"), parcel.clone()).unwrap();
        assert!(early.now_or_never().unwrap().is_ok());
        assert!(rendezvous.recv(&key("x")).now_or_never().is_none());
        rendezvous.abort(status!(Cancelled, "over"));
        assert!(rendezvous.recv(&key("x")).now_or_never().unwrap().is_err());
        assert!(rendezvous.send(&key("y"), parcel).is_err());
    }
}

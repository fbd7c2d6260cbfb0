//! The in-process rendezvous of one step, for parts on devices of one task. The cluster builds on it for tensors that
//! cross tasks.

use ferroflow_core::rendezvous::{Parcel, Rendezvous, RendezvousKey};
use ferroflow_core::{BoxFuture, Result, Status, bail};
use std::collections::HashMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};

/// Parcels by key; senders and receivers may arrive in any order.
#[derive(Clone, Default)]
pub struct LocalRendezvous(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    parcels: HashMap<RendezvousKey, Parcel>,
    receivers: HashMap<RendezvousKey, Vec<(u64, Waker)>>,
    /// The next receiver's number. A receiver that is dropped removes its waker by number.
    next_receiver: u64,
    aborted: Option<Status>,
}

const UNPOISONED: &str = "no panic while the rendezvous is locked";

impl LocalRendezvous {
    /// The number of parcels without a receiver, and of receivers without a parcel.
    pub fn pending(&self) -> (usize, usize) {
        let state = self.0.lock().expect(UNPOISONED);
        (state.parcels.len(), state.receivers.values().map(Vec::len).sum())
    }

    /// The keys that receivers are waiting for.
    pub fn awaited(&self) -> Vec<RendezvousKey> {
        self.0.lock().expect(UNPOISONED).receivers.keys().cloned().collect()
    }

    /// The reason for which the rendezvous was aborted, if it was.
    pub fn aborted(&self) -> Option<Status> {
        self.0.lock().expect(UNPOISONED).aborted.clone()
    }

    /// Takes the parcel if it has arrived.
    pub fn try_recv(&self, key: &RendezvousKey) -> Option<Result<Parcel>> {
        self.0.lock().expect(UNPOISONED).take(key)
    }
}

impl State {
    fn take(&mut self, key: &RendezvousKey) -> Option<Result<Parcel>> {
        match &self.aborted {
            Some(reason) => Some(Err(reason.clone())),
            None => self.parcels.remove(key).map(Parcel::delivered),
        }
    }
}

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
            state.receivers.remove(key)
        };
        wakers.into_iter().flatten().for_each(|(_, waker)| waker.wake());
        Ok(())
    }

    fn recv(&self, key: &RendezvousKey) -> BoxFuture<Result<Parcel>> {
        Box::pin(PendingRecv { rendezvous: self.clone(), key: key.clone(), receiver: None })
    }

    /// Keeps the first reason, unless that one was derived and the new one is a root cause.
    fn abort(&self, reason: Status) {
        let (wakers, parcels) = {
            let mut state = self.0.lock().expect(UNPOISONED);
            if state.aborted.as_ref().is_none_or(|known| known.is_derived() && !reason.is_derived()) {
                state.aborted = Some(reason);
            }
            (std::mem::take(&mut state.receivers), std::mem::take(&mut state.parcels))
        };
        wakers.into_values().flatten().for_each(|(_, waker)| waker.wake());
        // Dropped outside the lock, because tensors return memory to their pool.
        drop(parcels);
    }
}

/// A pending receive.
struct PendingRecv {
    rendezvous: LocalRendezvous,
    key: RendezvousKey,
    receiver: Option<u64>,
}

impl Future for PendingRecv {
    type Output = Result<Parcel>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let pending = &mut *self;
        let mut state = pending.rendezvous.0.lock().expect(UNPOISONED);
        let state = &mut *state;
        if let Some(parcel) = state.take(&pending.key) {
            return Poll::Ready(parcel);
        }
        let receiver = *pending.receiver.get_or_insert_with(|| {
            state.next_receiver += 1;
            state.next_receiver
        });
        let waker = context.waker();
        let waiting = state.receivers.entry(pending.key.clone()).or_default();
        match waiting.iter_mut().find(|(number, _)| *number == receiver) {
            Some((_, known)) => known.clone_from(waker),
            None => waiting.push((receiver, waker.clone())),
        }
        Poll::Pending
    }
}

impl Drop for PendingRecv {
    fn drop(&mut self) {
        let Some(receiver) = self.receiver else { return };
        let mut state = self.rendezvous.0.lock().expect(UNPOISONED);
        if let Some(waiting) = state.receivers.get_mut(&self.key) {
            waiting.retain(|(number, _)| *number != receiver);
            if waiting.is_empty() {
                state.receivers.remove(&self.key);
            }
        }
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

    fn parcel() -> Parcel {
        Parcel::new(Tensor::scalar(1i32))
    }

    #[test]
    fn a_parcel_is_delivered_once_in_any_order() {
        let rendezvous = LocalRendezvous::default();
        let mut early = rendezvous.recv(&key("x"));
        assert!((&mut early).now_or_never().is_none());
        rendezvous.send(&key("x"), parcel()).unwrap();
        assert!(early.now_or_never().unwrap().is_ok());
        assert!(rendezvous.recv(&key("x")).now_or_never().is_none());
        rendezvous.abort(status!(Cancelled, "over"));
        assert!(rendezvous.recv(&key("x")).now_or_never().unwrap().is_err());
        assert!(rendezvous.send(&key("y"), parcel()).is_err());
    }

    #[test]
    fn receivers_that_are_given_up_leave_nothing() {
        let rendezvous = LocalRendezvous::default();
        let mut receivers: Vec<_> = (0..1000).map(|_| rendezvous.recv(&key("x"))).collect();
        receivers.iter_mut().for_each(|receiver| assert!(receiver.now_or_never().is_none()));
        assert_eq!(rendezvous.pending(), (0, 1000));
        drop(receivers);
        assert_eq!(rendezvous.pending(), (0, 0));
    }

    #[test]
    fn a_cause_replaces_what_it_caused_and_nothing_else_does() {
        let rendezvous = LocalRendezvous::default();
        rendezvous.send(&key("x"), parcel()).unwrap();
        rendezvous.abort(status!(Cancelled, "consequence").derived());
        rendezvous.abort(status!(Internal, "cause"));
        rendezvous.abort(status!(Internal, "later"));
        assert_eq!(rendezvous.aborted().unwrap().message(), "cause");
        assert_eq!(rendezvous.pending(), (0, 0));
    }
}

//! Connections to one address, one per I/O thread, each made on first use.
//!
//! The same code serves HTTP/2 and direct connections.

use super::super::io::Io;
use ferroflow_core::{BoxFuture, Result, status};
use futures_util::FutureExt;
use futures_util::future::Shared;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::oneshot;

/// The time limit for connecting.
const CONNECT_WAIT: Duration = Duration::from_secs(10);

/// The connections of all I/O threads; `L` is the shared handle of one connection.
pub(super) struct Lanes<L: Clone + Send + Sync + 'static> {
    address: Arc<str>,
    io: Arc<Io>,
    lanes: Vec<Mutex<Lane<L>>>,
}

/// The connection of one I/O thread.
struct Lane<L: Clone + Send + Sync + 'static> {
    /// Incremented for every connection attempt.
    generation: u64,
    state: LaneState<L>,
}

enum LaneState<L: Clone + Send + Sync + 'static> {
    Idle,
    Connecting(Connecting<L>),
    Open(L),
}

type Connecting<L> = Shared<BoxFuture<Result<L>>>;

const UNPOISONED: &str = "no panic while a connection is handed out";

impl<L: Clone + Send + Sync + 'static> Lanes<L> {
    /// Creates lanes to `address`. Connects on first use.
    pub(super) fn new(address: Arc<str>, io: Arc<Io>) -> Lanes<L> {
        let lane = |_| Mutex::new(Lane { generation: 0, state: LaneState::Idle });
        let lanes = (0..io.len()).map(lane).collect();
        Lanes { address, io, lanes }
    }

    /// Returns the open connection of a lane.
    pub(super) fn open(&self, lane: usize) -> Option<(u64, L)> {
        let lane = self.lanes[lane].lock().expect(UNPOISONED);
        match &lane.state {
            LaneState::Open(link) => Some((lane.generation, link.clone())),
            _ => None,
        }
    }

    /// Returns the lane's connection and its generation. If there is none, awaits `connect`, which yields the
    /// connection and the future that runs it on the lane's thread.
    pub(super) async fn get<F, C>(&self, lane: usize, connect: impl FnOnce() -> F) -> Result<(u64, L)>
    where
        F: Future<Output = Result<(L, C)>> + Send + 'static,
        C: Future<Output = ()> + Send + 'static,
    {
        let (generation, connecting) = {
            let mut lane_state = self.lanes[lane].lock().expect(UNPOISONED);
            let Lane { generation, state } = &mut *lane_state;
            match state {
                LaneState::Open(link) => return Ok((*generation, link.clone())),
                LaneState::Connecting(connecting) => (*generation, connecting.clone()),
                LaneState::Idle => {
                    let connecting = self.connect(lane, connect());
                    *generation += 1;
                    *state = LaneState::Connecting(connecting.clone());
                    (*generation, connecting)
                }
            }
        };
        let connected = connecting.await;
        let mut lane = self.lanes[lane].lock().expect(UNPOISONED);
        if lane.generation == generation && matches!(lane.state, LaneState::Connecting(_)) {
            lane.state = match &connected {
                Ok(link) => LaneState::Open(link.clone()),
                Err(_) => LaneState::Idle,
            };
        }
        connected.map(|link| (generation, link))
    }

    /// Discards the connection of this generation.
    pub(super) fn forget(&self, lane: usize, generation: u64) {
        let mut lane = self.lanes[lane].lock().expect(UNPOISONED);
        if lane.generation == generation {
            lane.state = LaneState::Idle;
        }
    }

    /// Connects on the lane's thread, which then runs the connection.
    fn connect<C>(
        &self,
        lane: usize,
        connect: impl Future<Output = Result<(L, C)>> + Send + 'static,
    ) -> Connecting<L>
    where
        C: Future<Output = ()> + Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let address = self.address.clone();
        self.io.spawn(lane, async move {
            let connected = tokio::time::timeout(CONNECT_WAIT, connect).await;
            let connected = connected.unwrap_or_else(|_| {
                Err(status!(Unavailable, "no answer from {address} within {} s", CONNECT_WAIT.as_secs()))
            });
            match connected {
                Ok((link, carried)) => {
                    let _ = sender.send(Ok(link));
                    carried.await;
                }
                Err(status) => {
                    let _ = sender.send(Err(status));
                }
            }
        });
        let address = self.address.clone();
        let receiver = async move {
            let stopping =
                |_| Err(status!(Unavailable, "this server is stopping and no longer calls {address}"));
            receiver.await.unwrap_or_else(stopping)
        };
        receiver.boxed().shared()
    }
}

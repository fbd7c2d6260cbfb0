//! The address from which a call came, for whoever has to name the caller.

use std::net::SocketAddr;

tokio::task_local! {
    static PEER: SocketAddr;
}

/// Answers a call of the client at this address.
pub(crate) fn on_behalf_of<F: Future>(peer: Option<SocketAddr>, call: F) -> impl Future<Output = F::Output> {
    use futures_util::future::Either;
    match peer {
        Some(peer) => Either::Left(PEER.scope(peer, call)),
        None => Either::Right(call),
    }
}

/// Where the call comes from that this task answers; `None` for a client of this process.
pub(crate) fn peer() -> Option<SocketAddr> {
    PEER.try_with(|peer| *peer).ok()
}

//! The address of the client whose call is being served, for log messages and errors that name the caller.

use std::net::SocketAddr;

tokio::task_local! {
    static PEER: SocketAddr;
}

/// Runs a call with this client's address as its [`peer`].
pub(crate) fn on_behalf_of<F: Future>(peer: Option<SocketAddr>, call: F) -> impl Future<Output = F::Output> {
    use futures_util::future::Either;
    match peer {
        Some(peer) => Either::Left(PEER.scope(peer, call)),
        None => Either::Right(call),
    }
}

/// Returns the client's address of the call that is being served; `None` for a client in this process.
pub(crate) fn peer() -> Option<SocketAddr> {
    PEER.try_with(|peer| *peer).ok()
}

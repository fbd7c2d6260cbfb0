//! Socket options and HTTP/2 settings, the same for clients and servers.

use std::time::Duration;
use tokio::net::TcpStream;

/// Flow-control windows that a fast network does not exhaust within a round trip.
pub(crate) const STREAM_WINDOW: u32 = 16 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 64 << 20;
pub(crate) const FRAME_BYTES: u32 = 1 << 20;
pub(crate) const HEADER_LIST_BYTES: u32 = 64 << 10;

/// The idle time after which the kernel probes a peer.
const SILENCE: Duration = Duration::from_secs(10);
/// The interval between probes.
const QUESTION_INTERVAL: Duration = Duration::from_secs(5);
/// The number of unanswered probes after which the peer counts as gone.
const QUESTIONS: u32 = 4;
/// The time within which sent data must be acknowledged.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Makes the kernel detect a peer that vanished without closing its connection. HTTP/2 pings would do it too, but
/// stock's servers close a connection that is pinged more often than every five minutes while it is otherwise idle.
pub(crate) fn watch_for_silence(stream: &TcpStream) -> std::io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    let keep_alive = socket2::TcpKeepalive::new().with_time(SILENCE);
    socket.set_tcp_keepalive(&keep_alive.with_interval(QUESTION_INTERVAL).with_retries(QUESTIONS))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

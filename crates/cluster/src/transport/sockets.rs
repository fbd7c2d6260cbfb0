//! Options of connections, the same at both ends.

use std::time::Duration;
use tokio::net::TcpStream;

/// Windows that a fast link does not exhaust within a round trip.
pub(crate) const STREAM_WINDOW: u32 = 16 << 20;
pub(crate) const CONNECTION_WINDOW: u32 = 64 << 20;
pub(crate) const FRAME_BYTES: u32 = 1 << 20;
pub(crate) const HEADER_LIST_BYTES: u32 = 64 << 10;

/// A peer that is silent this long is asked whether it is there,
const SILENCE: Duration = Duration::from_secs(10);
/// again after each of these,
const QUESTION_INTERVAL: Duration = Duration::from_secs(5);
/// and is gone after so many questions without an answer.
const QUESTIONS: u32 = 4;
/// What is sent must be acknowledged within this time.
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Lets the kernel notice a peer that vanished without a word. HTTP/2 pings would do it too, but stock's servers close a
/// connection on which pings come more often than every five minutes while nothing else happens.
pub(crate) fn watch_for_silence(stream: &TcpStream) -> std::io::Result<()> {
    let socket = socket2::SockRef::from(stream);
    let keep_alive = socket2::TcpKeepalive::new().with_time(SILENCE);
    socket.set_tcp_keepalive(&keep_alive.with_interval(QUESTION_INTERVAL).with_retries(QUESTIONS))?;
    #[cfg(target_os = "linux")]
    socket.set_tcp_user_timeout(Some(UNACKNOWLEDGED))?;
    Ok(())
}

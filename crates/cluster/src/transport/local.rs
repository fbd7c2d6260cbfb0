//! Sockets by which tasks of one machine reach each other without a network in between: direct connections take half the
//! time there. They have names instead of addresses, and a name leads nowhere on any other machine.

use std::io::Result;
use std::os::unix::net::SocketAddr;
use tokio::net::{UnixListener, UnixStream};

/// What may wait between the two ends. The usual size makes them wait for each other all the time.
const BUFFER_BYTES: usize = 4 << 20;

/// The name of the socket of the process with this incarnation.
pub(crate) fn name(incarnation: u64) -> String {
    format!("ferroflow-{incarnation:016x}")
}

#[cfg(target_os = "linux")]
fn address(name: &str) -> Result<SocketAddr> {
    <SocketAddr as std::os::linux::net::SocketAddrExt>::from_abstract_name(name)
}

#[cfg(not(target_os = "linux"))]
fn address(_: &str) -> Result<SocketAddr> {
    Err(std::io::ErrorKind::Unsupported.into())
}

/// Listens under a name.
pub(crate) fn listen(name: &str) -> Result<std::os::unix::net::UnixListener> {
    let listener = std::os::unix::net::UnixListener::bind_addr(&address(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to whoever listens under a name on this machine. Within a runtime.
pub(crate) fn connect(name: &str) -> Result<UnixStream> {
    let stream = std::os::unix::net::UnixStream::connect_addr(&address(name)?)?;
    stream.set_nonblocking(true)?;
    prepare(UnixStream::from_std(stream)?)
}

/// Accepts a connection.
pub(crate) async fn accept(listener: &UnixListener) -> Result<UnixStream> {
    let (stream, _) = listener.accept().await?;
    prepare(stream)
}

fn prepare(stream: UnixStream) -> Result<UnixStream> {
    socket2::SockRef::from(&stream).set_send_buffer_size(BUFFER_BYTES)?;
    Ok(stream)
}

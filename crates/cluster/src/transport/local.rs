//! Local sockets for direct connections between tasks of one machine, which take half as long as over TCP. A socket has
//! a name in the abstract namespace, which leads nowhere on another machine.

use std::io::Result;
use std::os::unix::net::SocketAddr;
use tokio::net::{UnixListener, UnixStream};

/// The send buffer. With the default size the two ends wait for each other all the time.
const BUFFER_BYTES: usize = 4 << 20;

/// Returns the name of the socket of the process with this incarnation.
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

/// Listens on a name.
pub(crate) fn listen(name: &str) -> Result<std::os::unix::net::UnixListener> {
    let listener = std::os::unix::net::UnixListener::bind_addr(&address(name)?)?;
    listener.set_nonblocking(true)?;
    Ok(listener)
}

/// Connects to a name on this machine. Must be called within a runtime.
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

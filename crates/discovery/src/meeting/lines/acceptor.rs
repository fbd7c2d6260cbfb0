//! A thread that accepts connections and can be stopped without closing the socket.

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread::JoinHandle;

/// The pause after a connection could not be accepted, for example because the process has no file descriptors left.
const RETRY: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Accepts connections until it is dropped.
pub(super) struct Acceptor {
    /// Closed to stop the thread.
    alive: Option<UnixStream>,
    thread: Option<JoinHandle<()>>,
}

impl Acceptor {
    pub(super) fn start(
        listener: &TcpListener,
        accepted: impl Fn(TcpStream) + Send + 'static,
    ) -> io::Result<Acceptor> {
        let listener = listener.try_clone()?;
        // A connection may be gone between the poll and the accept.
        listener.set_nonblocking(true)?;
        let (alive, stopped) = UnixStream::pair()?;
        let accept = move || accept_all(&listener, &stopped, accepted);
        let thread = std::thread::Builder::new().name("meeting-accept".to_owned()).spawn(accept)?;
        Ok(Acceptor { alive: Some(alive), thread: Some(thread) })
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        drop(self.alive.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn accept_all(listener: &TcpListener, stopped: &UnixStream, accepted: impl Fn(TcpStream)) {
    loop {
        let mut ready = [PollFd::new(stopped, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        // Interrupted by a signal: nothing is ready.
        if poll(&mut ready, None).is_err() {
            continue;
        }
        if !ready[0].revents().is_empty() {
            return;
        }
        let stream = listener.accept().and_then(|(stream, _)| {
            stream.set_nonblocking(false)?;
            Ok(stream)
        });
        match stream {
            Ok(stream) => accepted(stream),
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::ConnectionAborted) => {}
            Err(_) => {
                let _ = poll(&mut [PollFd::new(stopped, PollFlags::IN)], Some(&RETRY));
            }
        }
    }
}

//! The first bytes of a connection, which tell its protocol and must arrive promptly.

use super::{direct, http1};
use crate::listeners::PortSharer;
use std::io::{Error, ErrorKind, Result};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// The time limit for the first bytes. Clients send them right after connecting.
pub(crate) const GREETING_WAIT: Duration = Duration::from_secs(10);

/// The connection preface of HTTP/2.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The protocol that a caller speaks.
pub(crate) enum Greeted<S> {
    /// HTTP/2; the bytes that were read are read again.
    Http2(Rewound<S>),
    /// The direct protocol between Ferroflow tasks.
    Direct(S),
    /// HTTP/1, of which nothing was read yet.
    Http1(S),
    /// Another protocol, which has taken the connection over.
    TakenOver,
}

/// Reads the first bytes of a connection and detects its protocol.
pub(crate) async fn greet<S: AsyncRead + Unpin>(socket: S) -> Result<Greeted<S>> {
    timeout(GREETING_WAIT, read_greeting(socket)).await?
}

/// Detects the protocol of a connection to the server's port, which another protocol may share; HTTP/1 is one of them
/// if `http` says so.
pub(crate) async fn greet_at_shared_port(
    socket: TcpStream,
    sharer: Option<&dyn PortSharer>,
    http: bool,
) -> Result<Greeted<TcpStream>> {
    let greeting = async {
        let mut first = [0];
        if socket.peek(&mut first).await? == 1 {
            if http && http1::speaks(first[0]) {
                return Ok(Greeted::Http1(socket));
            }
            if let Some(sharer) = sharer.filter(|sharer| sharer.speaks(first[0])) {
                let socket = socket.into_std()?;
                socket.set_nonblocking(false)?;
                sharer.serve(socket);
                return Ok(Greeted::TakenOver);
            }
        }
        read_greeting(socket).await
    };
    timeout(GREETING_WAIT, greeting).await?
}

async fn read_greeting<S: AsyncRead + Unpin>(mut socket: S) -> Result<Greeted<S>> {
    let mut first = [0; direct::GREETING.len()];
    socket.read_exact(&mut first).await?;
    if first == *direct::GREETING {
        return Ok(Greeted::Direct(socket));
    }
    let mut preface = [0; PREFACE.len()];
    preface[..first.len()].copy_from_slice(&first);
    if PREFACE.starts_with(&first) {
        socket.read_exact(&mut preface[first.len()..]).await?;
    }
    if preface == *PREFACE {
        Ok(Greeted::Http2(Rewound { unread: PREFACE, socket }))
    } else {
        Err(Error::new(ErrorKind::InvalidData, "neither HTTP/2 nor a Ferroflow task"))
    }
}

/// A connection that replays the bytes that were read from it.
pub(crate) struct Rewound<S> {
    unread: &'static [u8],
    socket: S,
}

impl<S: AsyncRead + Unpin> AsyncRead for Rewound<S> {
    #[inline]
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, out: &mut ReadBuf<'_>) -> Poll<Result<()>> {
        if self.unread.is_empty() {
            return Pin::new(&mut self.socket).poll_read(cx, out);
        }
        let (now, later) = self.unread.split_at(self.unread.len().min(out.remaining()));
        out.put_slice(now);
        self.unread = later;
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Rewound<S> {
    #[inline]
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<Result<usize>> {
        Pin::new(&mut self.socket).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<()>> {
        Pin::new(&mut self.socket).poll_shutdown(cx)
    }

    #[inline]
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[std::io::IoSlice<'_>],
    ) -> Poll<Result<usize>> {
        Pin::new(&mut self.socket).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::sync::mpsc;
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio::time::Instant;

    /// Greets a caller that sends these bytes and then waits.
    async fn greeted(says: &[u8]) -> Result<Greeted<tokio::io::DuplexStream>> {
        let (mut caller, socket) = duplex(64);
        caller.write_all(says).await.unwrap();
        let greeted = greet(socket).await;
        drop(caller);
        greeted
    }

    #[tokio::test(start_paused = true)]
    async fn callers_are_told_apart() {
        let Ok(Greeted::Http2(mut rewound)) = greeted(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore").await else {
            panic!("HTTP/2 is not recognized")
        };
        let mut all = String::new();
        rewound.read_to_string(&mut all).await.unwrap();
        assert_eq!(all, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nmore");
        assert!(matches!(greeted(direct::GREETING).await, Ok(Greeted::Direct(_))));
        assert!(greeted(b"GET / HTTP/1.1\r\n\r\n").await.is_err());
    }

    /// A protocol whose connections begin with `{`, and those that it was given.
    struct Braces(mpsc::Sender<std::net::TcpStream>);

    impl PortSharer for Braces {
        fn speaks(&self, first_byte: u8) -> bool {
            first_byte == b'{'
        }

        fn serve(&self, connection: std::net::TcpStream) {
            self.0.send(connection).unwrap();
        }

        fn hand_over(&self, _: Box<dyn Fn(std::net::TcpStream) + Send + Sync>) {}
    }

    #[tokio::test]
    async fn another_protocol_gets_its_connections_unread() {
        let (sender, served) = mpsc::channel();
        let sharer: &dyn PortSharer = &Braces(sender);
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        for says in [&b"{}\n"[..], direct::GREETING, b"GET / HTTP/1.1\r\n"] {
            let mut caller = TcpStream::connect(address).await.unwrap();
            caller.write_all(says).await.unwrap();
            caller.shutdown().await.unwrap();
            let (socket, _) = listener.accept().await.unwrap();
            match greet_at_shared_port(socket, Some(sharer), true).await.unwrap() {
                Greeted::TakenOver => {
                    let mut all = Vec::new();
                    served.try_recv().unwrap().read_to_end(&mut all).unwrap();
                    assert_eq!(all, says);
                }
                Greeted::Direct(_) => assert_eq!(says, direct::GREETING),
                Greeted::Http1(_) => assert!(says.starts_with(b"GET")),
                Greeted::Http2(_) => panic!("not HTTP/2"),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn callers_that_never_finish_are_let_go() {
        for says in [&b""[..], b"P", b"Ferro", b"PRI * HTTP/2.0\r\n\r\nSM\r\n"] {
            let start = Instant::now();
            let refused = greeted(says).await.err().expect("nothing follows");
            assert_eq!(refused.kind(), ErrorKind::TimedOut);
            assert_eq!(start.elapsed(), GREETING_WAIT);
        }
    }
}

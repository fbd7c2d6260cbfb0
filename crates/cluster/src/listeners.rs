//! The sockets that a server accepts connections on, and another protocol that may share their port.

use std::fmt;
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;

/// The sockets of a server.
pub struct Listeners {
    /// Sockets that listen already; at least one.
    pub sockets: Vec<TcpListener>,
    /// Another protocol on the same port.
    pub sharer: Option<Arc<dyn PortSharer>>,
}

/// Another protocol on the port of a server. The first byte of a connection tells which protocol it speaks.
pub trait PortSharer: Send + Sync {
    /// Whether a connection that begins with this byte speaks the other protocol.
    fn speaks(&self, first_byte: u8) -> bool;

    /// Takes over a connection that speaks the other protocol, with all its bytes unread. Does not block.
    fn serve(&self, connection: TcpStream);

    /// Stops accepting connections, because the server does so from now on, and passes to `server` those that were
    /// accepted before and speak the server's protocols.
    fn hand_over(&self, server: Box<dyn Fn(TcpStream) + Send + Sync>);
}

impl From<Vec<TcpListener>> for Listeners {
    fn from(sockets: Vec<TcpListener>) -> Listeners {
        Listeners { sockets, sharer: None }
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.sharer.is_some();
        f.debug_struct("Listeners").field("sockets", &self.sockets).field("shared", &shared).finish()
    }
}

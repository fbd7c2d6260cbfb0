//! The user whose process holds the other end of a TCP connection within this machine, as the kernel tells it.

use std::io::{Error, ErrorKind, Result};
use std::net::{IpAddr, SocketAddr};

/// Returns the user who holds the other end of a connection between these two addresses of this machine.
///
/// An end that no process holds any more has no user, and is an error of kind `NotFound`: the kernel says root for it,
/// but anybody may have sent what is still to be read.
pub(crate) fn owner_of_peer(local: SocketAddr, peer: SocketAddr) -> Result<u32> {
    // The kernel keeps mapped addresses as those of the older version.
    let canonical = |address: SocketAddr| SocketAddr::new(address.ip().to_canonical(), address.port());
    let (local, peer) = (canonical(local), canonical(peer));
    match diagnosis::owner(peer, local) {
        Err(error) if error.kind() != ErrorKind::NotFound => table::owner(peer, local),
        found => found,
    }
}

fn gone() -> Error {
    Error::new(ErrorKind::NotFound, "no process holds the other end any more")
}

/// The kernel's door for questions about one socket.
#[cfg(target_os = "linux")]
mod diagnosis {
    use super::*;
    use nix::sys::socket::{AddressFamily, MsgFlags, SockFlag, SockProtocol, SockType, recv, send, socket};
    use std::os::fd::AsRawFd;

    /// `SOCK_DIAG_BY_FAMILY`, the type of the question and of its answer.
    const BY_FAMILY: u16 = 20;
    /// `NLM_F_REQUEST`.
    const REQUEST: u16 = 1;
    const HEADER: usize = 16;
    const QUESTION: usize = HEADER + 56;
    /// Places in an answer: of the user, and of the number of the socket's file.
    const USER: usize = HEADER + 64;
    const FILE: usize = HEADER + 68;

    /// Asks for the socket at `at` that is connected to `to`.
    pub(super) fn owner(at: SocketAddr, to: SocketAddr) -> Result<u32> {
        let kind = SockType::Datagram;
        let protocol = SockProtocol::NetlinkSockDiag;
        let kernel = socket(AddressFamily::Netlink, kind, SockFlag::SOCK_CLOEXEC, protocol)?;
        send(kernel.as_raw_fd(), &question(at, to), MsgFlags::empty())?;
        let mut answer = [0; 1024];
        // The kernel answers before the question returns.
        let length = recv(kernel.as_raw_fd(), &mut answer, MsgFlags::MSG_DONTWAIT)?;
        read(&answer[..length])
    }

    pub(super) fn question(at: SocketAddr, to: SocketAddr) -> [u8; QUESTION] {
        let mut bytes = [0; QUESTION];
        let mut next = 0;
        let mut put = |piece: &[u8]| {
            bytes[next..next + piece.len()].copy_from_slice(piece);
            next += piece.len();
        };
        put(&(QUESTION as u32).to_ne_bytes());
        put(&BY_FAMILY.to_ne_bytes());
        put(&REQUEST.to_ne_bytes());
        put(&[0; 8]);
        let family = if at.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        put(&[family as u8, SockProtocol::Tcp as u8, 0, 0]);
        // In any state, of which the file's number tells enough.
        put(&u32::MAX.to_ne_bytes());
        put(&at.port().to_be_bytes());
        put(&to.port().to_be_bytes());
        for address in [at.ip(), to.ip()] {
            match address {
                IpAddr::V4(address) => {
                    put(&address.octets());
                    put(&[0; 12]);
                }
                IpAddr::V6(address) => put(&address.octets()),
            }
        }
        put(&[0; 4]);
        // No cookie: any socket at these addresses.
        put(&[0xff; 8]);
        bytes
    }

    fn read(answer: &[u8]) -> Result<u32> {
        let number = |at: usize| {
            let bytes = answer.get(at..at + 4).and_then(|bytes| bytes.try_into().ok());
            bytes.map(u32::from_ne_bytes).ok_or_else(|| Error::from(ErrorKind::UnexpectedEof))
        };
        // The type is the first half of the second word.
        let kind = answer.get(4..6).and_then(|bytes| bytes.try_into().ok()).map(u16::from_ne_bytes);
        if kind != Some(BY_FAMILY) {
            return Err(Error::from_raw_os_error((number(HEADER)? as i32).wrapping_neg()));
        }
        if number(FILE)? == 0 { Err(gone()) } else { number(USER) }
    }
}

/// The kernel's list of all sockets, for kernels without the door above.
#[cfg(target_os = "linux")]
mod table {
    use super::*;

    /// Looks for the socket at `at` that is connected to `to`.
    pub(super) fn owner(at: SocketAddr, to: SocketAddr) -> Result<u32> {
        let path = if at.is_ipv4() { "/proc/self/net/tcp" } else { "/proc/self/net/tcp6" };
        find(&std::fs::read_to_string(path)?, at, to).ok_or_else(gone)
    }

    pub(super) fn find(table: &str, at: SocketAddr, to: SocketAddr) -> Option<u32> {
        let (at, to) = (written(at), written(to));
        table.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip(1);
            let ends = (words.next()?, words.next()?);
            let (user, file) = (words.nth(4)?, words.nth(1)?);
            (ends == (at.as_str(), to.as_str()) && file != "0").then(|| user.parse().ok())?
        })
    }

    /// An address as the kernel writes it: words in the machine's order, then the port.
    pub(super) fn written(address: SocketAddr) -> String {
        let octets = match address.ip() {
            IpAddr::V4(address) => address.octets().to_vec(),
            IpAddr::V6(address) => address.octets().to_vec(),
        };
        let words =
            octets.chunks_exact(4).map(|word| u32::from_ne_bytes([word[0], word[1], word[2], word[3]]));
        let words: String = words.map(|word| format!("{word:08X}")).collect();
        format!("{words}:{:04X}", address.port())
    }
}

#[cfg(not(target_os = "linux"))]
mod diagnosis {
    use super::*;

    pub(super) fn owner(_: SocketAddr, _: SocketAddr) -> Result<u32> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[cfg(not(target_os = "linux"))]
mod table {
    use super::*;

    pub(super) fn owner(_: SocketAddr, _: SocketAddr) -> Result<u32> {
        Err(ErrorKind::Unsupported.into())
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};

    /// Both ends of a connection to an address.
    fn connected(address: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(address).unwrap();
        let port = listener.local_addr().unwrap().port();
        let name = if address.starts_with("[::1]") { "::1" } else { "127.0.0.1" };
        let client = TcpStream::connect((name, port)).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn the_kernel_tells_who_is_connected_in_both_ways() {
        let this = nix::unistd::getuid().as_raw();
        for address in ["127.0.0.1:0", "0.0.0.0:0", "[::1]:0", "[::]:0"] {
            // A machine may have no IPv6.
            if TcpListener::bind(address).is_err() {
                continue;
            }
            let (_client, server) = connected(address);
            let (local, peer) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
            assert_eq!(owner_of_peer(local, peer).unwrap(), this, "{address}");
            let plain = |end: SocketAddr| SocketAddr::new(end.ip().to_canonical(), end.port());
            assert_eq!(diagnosis::owner(plain(peer), plain(local)).unwrap(), this, "{address}");
            assert_eq!(table::owner(plain(peer), plain(local)).unwrap(), this, "{address}");
        }
    }

    #[test]
    fn an_end_that_was_left_behind_has_no_user() {
        let (mut client, server) = connected("127.0.0.1:0");
        let (local, peer) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        client.write_all(b"last words").unwrap();
        drop(client);
        for found in [diagnosis::owner(peer, local), table::owner(peer, local), owner_of_peer(local, peer)] {
            assert_eq!(found.unwrap_err().kind(), ErrorKind::NotFound);
        }
    }
}

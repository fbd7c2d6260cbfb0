//! Ports that are a task's own from the moment they are chosen.
//!
//! A port that is picked, closed and bound again can be taken in between. So a task listens before it publishes its
//! address, and for a program that will listen by itself the port is kept by a socket that is bound but does not listen:
//! no other program is given that port, and connections are refused, but a server that sets `SO_REUSEADDR`, as stock's
//! does, can listen on it.

use crate::owner_of_port;
use ferroflow_core::{Result, Status, ensure, status};
use socket2::{Domain, Protocol, Socket, Type};
use std::io::{self, ErrorKind};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener};
use std::str::FromStr;

/// Connections that wait until they are accepted.
const BACKLOG: i32 = 1024;

/// A choice of port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PortChoice {
    /// Any free one.
    #[default]
    Any,
    /// This one.
    Fixed(u16),
    /// A free one between these two, both included.
    Range(u16, u16),
}

/// A port kept for a program of this user that listens on it later. It is free for others when this value is dropped.
#[derive(Debug)]
pub struct ReservedPort {
    port: u16,
    _socket: Socket,
}

impl ReservedPort {
    /// Keeps a port of this address, or of all addresses.
    pub fn new(host: Option<IpAddr>, choice: PortChoice) -> Result<ReservedPort> {
        let (socket, address) = bind(host, choice, |_| Ok(()))?;
        Ok(ReservedPort { port: address.port(), _socket: socket })
    }

    /// Its number.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// Listens on a port of this address, or of all addresses of both families.
pub fn listen_on(host: Option<IpAddr>, choice: PortChoice) -> Result<TcpListener> {
    // Where two sockets may be bound to a port, it is listening that shows whose it is.
    bind(host, choice, |socket| socket.listen(BACKLOG)).map(|(socket, _)| socket.into())
}

fn bind(
    host: Option<IpAddr>,
    choice: PortChoice,
    claim: impl Fn(&Socket) -> io::Result<()>,
) -> Result<(Socket, SocketAddr)> {
    let refused = |port, error| refusal(host, port, &error);
    let attempt = |port| -> io::Result<(Socket, SocketAddr)> {
        let socket = match host {
            Some(host) => bound(SocketAddr::new(host, port)),
            // A machine without IPv6 has no such socket.
            None => bound((Ipv6Addr::UNSPECIFIED, port).into()).or_else(|error| match error.kind() {
                ErrorKind::AddrInUse => Err(error),
                _ => bound((Ipv4Addr::UNSPECIFIED, port).into()),
            }),
        }?;
        claim(&socket)?;
        let address = socket.local_addr()?.as_socket();
        Ok((socket, address.ok_or_else(|| io::Error::other("the socket has no address"))?))
    };
    match choice {
        PortChoice::Any => attempt(0).map_err(|error| refused(0, error)),
        PortChoice::Fixed(port) => attempt(port).map_err(|error| refused(port, error)),
        PortChoice::Range(first, last) => {
            let count = u32::from(last) - u32::from(first) + 1;
            // Tasks that start together begin at different ports.
            let start = getrandom::u32().unwrap_or(std::process::id()) % count;
            for offset in 0..count {
                let port = first + ((start + offset) % count) as u16;
                match attempt(port) {
                    Ok(found) => return Ok(found),
                    Err(error) if error.kind() == ErrorKind::AddrInUse => {}
                    Err(error) => return Err(refused(port, error)),
                }
            }
            Err(status!(Unavailable, "every port from {first} to {last} is in use; choose a larger range"))
        }
    }
}

fn bound(address: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    socket.set_reuse_address(true)?;
    if address.ip() == Ipv6Addr::UNSPECIFIED {
        socket.set_only_v6(false)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

fn refusal(host: Option<IpAddr>, port: u16, error: &io::Error) -> Status {
    let place = host.map_or_else(|| "this machine".to_owned(), |host| host.to_string());
    match (port, error.kind()) {
        (0, _) => status!(Unavailable, "cannot listen on any port of {place}: {error}"),
        (_, ErrorKind::AddrInUse) => {
            let owner = owner_of_port(port).map_or_else(String::new, |owner| format!(" by {owner}"));
            status!(
                Unavailable,
                "port {port} of {place} is in use{owner}; choose another, or none for any free one"
            )
        }
        _ => status!(Unavailable, "cannot listen on port {port} of {place}: {error}"),
    }
}

impl FromStr for PortChoice {
    type Err = Status;

    /// Reads `0`, `2222` or `20000-20099`.
    fn from_str(text: &str) -> Result<PortChoice> {
        let number = |text: &str| {
            let number = text.trim().parse::<u16>();
            number.map_err(|_| {
                status!(
                    InvalidArgument,
                    "'{text}' is not a port, expected a number up to 65535, or a range such as 20000-20099"
                )
            })
        };
        match text.split_once('-') {
            None => Ok(match number(text)? {
                0 => PortChoice::Any,
                port => PortChoice::Fixed(port),
            }),
            Some((first, last)) => {
                let (first, last) = (number(first)?, number(last)?);
                ensure!(0 < first && first <= last, InvalidArgument, "'{text}' is not a range of ports");
                Ok(PortChoice::Range(first, last))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpStream;

    #[test]
    fn a_reserved_port_is_nobody_elses_until_its_program_listens() {
        let reserved = ReservedPort::new(None, PortChoice::Any).unwrap();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, reserved.port()));
        assert_eq!(TcpStream::connect(address).unwrap_err().kind(), ErrorKind::ConnectionRefused);
        // As a program does that sets the option, while the port is still kept.
        let program = listen_on(None, PortChoice::Fixed(reserved.port())).unwrap();
        assert!(TcpStream::connect(address).is_ok());
        let other = listen_on(None, PortChoice::Fixed(reserved.port())).unwrap_err();
        assert!(other.message().contains("is in use"), "{other}");
        drop(program);
    }

    #[test]
    fn ranges_are_searched_and_mistakes_named() {
        let first = listen_on(None, PortChoice::Any).unwrap().local_addr().unwrap().port();
        let taken = listen_on(None, PortChoice::Fixed(first)).unwrap();
        let full = listen_on(None, PortChoice::Range(first, first)).unwrap_err();
        assert!(full.message().contains("every port from"), "{full}");
        drop(taken);
        assert_eq!("7-9".parse::<PortChoice>().unwrap(), PortChoice::Range(7, 9));
        assert_eq!("0".parse::<PortChoice>().unwrap(), PortChoice::Any);
        assert!("9-7".parse::<PortChoice>().unwrap_err().message().contains("not a range"));
        assert!("x".parse::<PortChoice>().unwrap_err().message().contains("not a port"));
    }
}

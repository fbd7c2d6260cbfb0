//! Listening sockets of a task: at the address of its entry in the cluster, unless the user chooses another.

use ferroflow_core::{Result, Status, status};
use ferroflow_discovery::owner_of_port;
use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, ToSocketAddrs};

/// Address to listen on: from the task's entry in the cluster, or chosen by the user.
pub struct ListenConfig<'a> {
    /// Entry of the task in the cluster, as `host:port`.
    pub entry: Option<&'a str>,
    /// Interface that the user chose.
    pub bind: Option<IpAddr>,
    /// Port that the user chose.
    pub port: Option<u16>,
}

/// Listens on every address that `config` means: a name such as `localhost` may have one of each family. Without an entry
/// and a choice it is port 2222 of the loopback interface.
///
/// # Errors
///
/// `Unknown`, as in TensorFlow, if an address cannot be used; the message names the process that has the port.
pub fn listen(config: &ListenConfig<'_>) -> Result<Vec<TcpListener>> {
    let (host, entry_port) = match config.entry.and_then(|entry| entry.rsplit_once(':')) {
        Some((host, port)) => (Some(host), port.parse().ok()),
        None => (None, None),
    };
    let port = config.port.or(entry_port).unwrap_or(2222);
    match (config.bind, host) {
        (Some(address), _) => Ok(vec![bind(SocketAddr::new(address, port))?]),
        (None, None) => Ok(vec![bind((Ipv4Addr::LOCALHOST, port).into())?]),
        (None, Some(host)) => listen_as(host, port),
    }
}

/// Listens on the addresses of a host name, or on all interfaces if the name does not belong to this machine.
fn listen_as(host: &str, port: u16) -> Result<Vec<TcpListener>> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let mut addresses: Vec<SocketAddr> = match (bare, port).to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            tracing::warn!(host, %error, "The host name of this task's entry cannot be resolved; listening on all interfaces.");
            return everywhere(port);
        }
    };
    addresses.sort();
    addresses.dedup();
    let mut listeners = Vec::new();
    for address in addresses {
        match TcpListener::bind(address) {
            Ok(listener) => listeners.push(listener),
            Err(error) if error.kind() == ErrorKind::AddrInUse => return Err(refusal(address, &error)),
            Err(error) => tracing::debug!(%address, %error, "An address of this task's entry is not local."),
        }
    }
    if listeners.is_empty() {
        tracing::warn!(
            host,
            "The host name of this task's entry does not belong to this machine; listening on all interfaces."
        );
        return everywhere(port);
    }
    Ok(listeners)
}

/// Listens on all interfaces. An IPv6 socket takes connections of both families where the system allows it.
fn everywhere(port: u16) -> Result<Vec<TcpListener>> {
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    match both {
        Ok(listener) => Ok(vec![listener]),
        Err(_) => Ok(vec![bind((Ipv4Addr::UNSPECIFIED, port).into())?]),
    }
}

fn bind(address: SocketAddr) -> Result<TcpListener> {
    TcpListener::bind(address).map_err(|error| refusal(address, &error))
}

fn refusal(address: SocketAddr, error: &std::io::Error) -> Status {
    let hint = match error.kind() {
        ErrorKind::AddrInUse => {
            let owner = owner_of_port(address.port());
            let owner = owner.map_or_else(String::new, |owner| format!(" (by {owner})"));
            format!("{owner}; choose another port, or 0 for any free one")
        }
        _ => String::new(),
    };
    // The code of TensorFlow's servers, which only say that they could not start.
    status!(Unknown, "cannot listen on port {} of {}: {error}{hint}", address.port(), address.ip())
}

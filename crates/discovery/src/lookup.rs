//! Looking up names of hosts, which may take long and says so.

use ferroflow_cluster::waiting::aloud;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// The addresses of a host, which may be one already.
pub(crate) fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
        Err(_) => aloud("the name server", format_args!("it looks up {host}"), || {
            (host, port).to_socket_addrs().map(Iterator::collect)
        }),
    }
}

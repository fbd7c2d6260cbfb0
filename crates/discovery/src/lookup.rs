//! Lookup of host names, which may take long and is logged then.

use ferroflow_cluster::logged_wait::log_while;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};

/// Returns the addresses of a host, which may be an address already.
pub(crate) fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    match host.parse::<IpAddr>() {
        Ok(address) => Ok(vec![SocketAddr::new(address, port)]),
        Err(_) => log_while("the name server", format_args!("it looks up {host}"), || {
            (host, port).to_socket_addrs().map(Iterator::collect)
        }),
    }
}

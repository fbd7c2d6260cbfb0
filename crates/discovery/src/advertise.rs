//! The addresses of this machine that a task publishes, and the reason for the choice.
//!
//! An address that the user names is taken as it is. Otherwise every address is published that others may reach, the
//! likeliest first; the task that forms the cluster tries them in that order. The loopback address comes last and counts
//! only among tasks of one machine.

use crate::lookup::look_up;
use ferroflow_core::{Result, ensure, status};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};

/// Interfaces of containers, virtual machines and fabrics without ordinary traffic.
const INNER: [&str; 5] = ["docker", "virbr", "cni", "veth", "ib"];

/// An address that routes lead to and no machine has: asking for the way there sends nothing.
const ELSEWHERE: (Ipv4Addr, u16) = (Ipv4Addr::new(203, 0, 113, 1), 9);

/// Preferences of the user and of the meeting place.
#[derive(Clone, Copy, Debug, Default)]
pub struct Wishes<'a> {
    /// A host name or address, with a port if the task is reached by another one than it listens on.
    pub advertise: Option<&'a str>,
    /// An interface whose addresses to publish.
    pub interface: Option<&'a str>,
    /// A host that the tasks talk to anyway.
    pub peer: Option<&'a str>,
}

/// The addresses to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Advertised {
    /// Hosts without ports, the likeliest first.
    pub hosts: Vec<String>,
    /// The port that others use, if the user named one.
    pub port: Option<u16>,
    /// The address to listen on; all of them if there is none.
    pub bind: Option<IpAddr>,
    /// The reason for the first host, for the log.
    pub reason: String,
}

/// Chooses the addresses at which others may reach this machine.
pub fn advertise(wishes: &Wishes<'_>) -> Result<Advertised> {
    if let Some(wish) = wishes.advertise {
        return as_wished(wish);
    }
    let mut found = Candidates::default();
    match wishes.interface {
        Some(name) => {
            found.interfaces(|interface| interface == name, &format!("it is {name}'s, as --interface asks"));
            ensure!(
                !found.hosts.is_empty(),
                InvalidArgument,
                "--interface: {name} has no address that others can reach; this machine has {}",
                interface_names()
            );
        }
        None => {
            found.of_manager();
            found.towards(wishes.peer);
            found.of_host_name();
            let inner = |name: &str| INNER.iter().any(|prefix| name.starts_with(prefix));
            found.interfaces(|name| !inner(name), "an interface has it");
        }
    }
    if found.hosts.is_empty() {
        found.reason = "this machine has no other address, so all tasks must be on it".to_owned();
    }
    found.hosts.push(Ipv4Addr::LOCALHOST.to_string());
    Ok(Advertised { hosts: found.hosts, port: None, bind: None, reason: found.reason })
}

fn as_wished(wish: &str) -> Result<Advertised> {
    let (host, port) = match wish.rsplit_once(':') {
        // More colons are an address of IPv6 without a port.
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let number = port.parse::<u16>().ok().filter(|port| *port > 0);
            let wrong = || {
                status!(InvalidArgument, "--advertise: '{port}' is not a port, expected host or host:port")
            };
            (host, Some(number.ok_or_else(wrong)?))
        }
        _ => (wish, None),
    };
    ensure!(
        !host.is_empty(),
        InvalidArgument,
        "--advertise: '{wish}' names no host, expected host or host:port"
    );
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let resolved: Vec<IpAddr> = resolve(host);
    // A task that publishes the loopback address is to be reached from this machine alone.
    let inside = !resolved.is_empty() && resolved.iter().all(IpAddr::is_loopback);
    Ok(Advertised {
        hosts: vec![host.to_owned()],
        port,
        bind: resolved
            .iter()
            .find(|address| address.is_ipv4())
            .or(resolved.first())
            .copied()
            .filter(|_| inside),
        reason: "--advertise says so".to_owned(),
    })
}

/// Addresses found so far, the likeliest first.
#[derive(Default)]
struct Candidates {
    hosts: Vec<String>,
    reason: String,
}

impl Candidates {
    fn add(&mut self, address: IpAddr, reason: &str) {
        let local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            // An address of one link means nothing without the name of the link.
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        let text = address.to_string();
        if address.is_loopback() || address.is_unspecified() || local || self.hosts.contains(&text) {
            return;
        }
        if self.hosts.is_empty() {
            self.reason = reason.to_owned();
        }
        self.hosts.push(text);
    }

    /// Adds the addresses of the name that a manager gave this node, if it leads here.
    fn of_manager(&mut self) {
        let Ok(node) = std::env::var("SLURMD_NODENAME") else { return };
        for address in resolve(&node).into_iter().filter(|address| is_local(*address)) {
            self.add(address, &format!("Slurm calls this node {node}"));
        }
    }

    /// Adds the addresses from which a peer, and any other machine, would be called.
    fn towards(&mut self, peer: Option<&str>) {
        for address in peer.map(resolve).unwrap_or_default() {
            if let Some(own) = source_towards((address, ELSEWHERE.1).into()) {
                self.add(own, &format!("the way to {} starts there", peer.unwrap_or_default()));
            }
        }
        if let Some(own) = source_towards(ELSEWHERE.into()) {
            self.add(own, "the default route starts there");
        }
    }

    fn of_host_name(&mut self) {
        let name = gethostname::gethostname().to_string_lossy().into_owned();
        for address in resolve(&name).into_iter().filter(|address| is_local(*address)) {
            self.add(address, &format!("this machine's name, {name}, leads to it"));
        }
    }

    fn interfaces(&mut self, wanted: impl Fn(&str) -> bool, reason: &str) {
        let interfaces = if_addrs::get_if_addrs().unwrap_or_default();
        // Every machine reaches addresses of version 4.
        let (four, six): (Vec<_>, Vec<_>) = interfaces
            .into_iter()
            .filter(|found| wanted(&found.name))
            .partition(|found| found.ip().is_ipv4());
        for interface in four.into_iter().chain(six) {
            self.add(interface.ip(), reason);
        }
    }
}

fn resolve(host: &str) -> Vec<IpAddr> {
    look_up(host, 0).unwrap_or_default().iter().map(SocketAddr::ip).collect()
}

/// Returns whether an address belongs to this machine: only then can it be bound.
fn is_local(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

fn source_towards(target: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = match target {
        SocketAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
        SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
    };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    socket.connect(target).ok()?;
    Some(socket.local_addr().ok()?.ip())
}

fn interface_names() -> String {
    let mut names: Vec<String> =
        if_addrs::get_if_addrs().unwrap_or_default().into_iter().map(|interface| interface.name).collect();
    names.dedup();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_users_word_is_taken_and_mistakes_are_named() {
        let told = |wish| advertise(&Wishes { advertise: Some(wish), ..Wishes::default() });
        let named = told("gateway.example:7000").unwrap();
        assert_eq!(
            (named.hosts, named.port, named.bind),
            (vec!["gateway.example".to_owned()], Some(7000), None)
        );
        let inside = told("127.0.0.1").unwrap();
        assert_eq!((inside.port, inside.bind), (None, Some(Ipv4Addr::LOCALHOST.into())));
        assert_eq!(told("[::1]:80").unwrap().hosts, ["::1"]);
        assert!(told("host:0").unwrap_err().message().contains("'0' is not a port"));
        assert!(told(":80").unwrap_err().message().contains("names no host"));
        let missing = advertise(&Wishes { interface: Some("none0"), ..Wishes::default() }).unwrap_err();
        assert!(missing.message().contains("none0 has no address"), "{missing}");
    }

    #[test]
    fn loopback_comes_last() {
        let found = advertise(&Wishes::default()).unwrap();
        assert_eq!(found.hosts.last().unwrap(), "127.0.0.1");
        assert_eq!(found.hosts.iter().filter(|host| host.starts_with("127.")).count(), 1);
        assert!(!found.reason.is_empty());
    }
}

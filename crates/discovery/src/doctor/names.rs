//! Names of hosts, and ports that can be a task's.

use super::{Finding, Verdict};
use crate::Role;
use crate::lookup::look_up;
use crate::role::short;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The usual range of ports of outgoing connections, where the system does not say.
const EPHEMERAL: (u16, u16) = (32768, 60999);

pub(super) fn check(role: &Role) -> Vec<Finding> {
    let mut tasks_of: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (task, address) in role.cluster.tasks() {
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        tasks_of.entry(host).or_default().push(short(&task));
    }
    let own = role.address().map(|entry| entry.rsplit_once(':').map_or(entry, |(host, _)| host));
    let mut findings = Vec::new();
    let mut found = BTreeMap::new();
    for (host, tasks) in &tasks_of {
        let (names, tasks) = (addresses(host), tasks.join(", "));
        match &names {
            Ok(addresses) => {
                findings.push(Finding::fine("name", host, format!("is {} ({tasks})", join(addresses))));
            }
            // Tasks that are asked there say so themselves.
            Err(_) if own != Some(*host) => {}
            Err(why) => findings.push(Finding::faulty(
                Verdict::Wrong,
                "name",
                host,
                format!("does not resolve on this machine: {why} ({tasks})"),
                "write an address instead, or add the name to DNS or /etc/hosts of this machine",
            )),
        }
        found.insert(*host, names.unwrap_or_default());
    }
    findings.extend(own_entry(role, &found));
    findings
}

/// Checks this task's own entry, as the others will use it.
fn own_entry(role: &Role, found: &BTreeMap<&str, Vec<IpAddr>>) -> Vec<Finding> {
    let Some((host, port)) = role.address().and_then(|entry| entry.rsplit_once(':')) else {
        return Vec::new();
    };
    let mut findings = Vec::new();
    let own = found.get(host).map(Vec::as_slice).unwrap_or_default();
    let elsewhere = found.iter().any(|(other, addresses)| {
        *other != host && addresses.iter().any(|address| !address.is_loopback() && !is_local(*address))
    });
    if !own.is_empty() && own.iter().all(IpAddr::is_loopback) && elsewhere {
        findings.push(Finding::faulty(
            Verdict::Wrong,
            "name",
            host,
            format!("is {}, which only this machine reaches, and the cluster has other machines", join(own)),
            "write the address by which the others reach this machine",
        ));
    } else if !own.is_empty() && !own.iter().any(|address| is_local(*address)) {
        findings.push(Finding::faulty(
            Verdict::Doubtful,
            "name",
            host,
            format!("is {}, which is not an address of this machine", join(own)),
            "right if something forwards connections; otherwise this is the wrong task for this machine",
        ));
    }
    let port: u16 = port.parse().unwrap_or_default();
    let (first, last) = ephemeral();
    if port < 1024 {
        let text = "is a port that only privileged processes may listen on";
        findings.push(Finding::faulty(Verdict::Doubtful, "port", port, text, "choose one from 1024 on"));
    } else if (first..=last).contains(&port) {
        let text = format!("may be taken by any outgoing connection, which get {first} to {last} here");
        findings.push(Finding::faulty(
            Verdict::Doubtful,
            "port",
            port,
            text,
            format!("choose one below {first}"),
        ));
    }
    findings
}

fn addresses(host: &str) -> Result<Vec<IpAddr>, String> {
    let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    let found = look_up(bare, 0).map_err(|error| error.to_string())?;
    let mut addresses: Vec<IpAddr> = found.iter().map(SocketAddr::ip).collect();
    addresses.sort();
    addresses.dedup();
    Ok(addresses)
}

fn join(addresses: &[IpAddr]) -> String {
    addresses.iter().map(IpAddr::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns whether an address belongs to this machine: only then can it be bound.
fn is_local(address: IpAddr) -> bool {
    address.is_loopback() || UdpSocket::bind(SocketAddr::new(address, 0)).is_ok()
}

/// The ports of outgoing connections.
fn ephemeral() -> (u16, u16) {
    let read = || {
        let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").ok()?;
        let mut numbers = text.split_whitespace().filter_map(|number| number.parse().ok());
        Some((numbers.next()?, numbers.next()?))
    };
    read().unwrap_or(EPHEMERAL)
}

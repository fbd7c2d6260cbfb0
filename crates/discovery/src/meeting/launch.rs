//! A meeting place for tasks that a launcher started together: the first of them hosts it, and the launcher's own exchange
//! tells the others where.

use super::claim::machine;
use super::{Host, Url};
use crate::advertise::{Wishes, advertise};
use crate::lookup::look_up;
use crate::{PortChoice, pmi};
use ferroflow_core::{Result, ensure, status};
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, TcpStream};
use std::time::Duration;

/// The time that the network has to let a task through to the host.
const PATIENCE: Duration = Duration::from_secs(3);

/// The address of the meeting place, which the first process gives to all.
#[derive(Serialize, Deserialize)]
struct PlaceAddress {
    hosts: Vec<String>,
    port: u16,
    machine: String,
}

/// Meets where the first process of a launch says; that one gets the host to enter with. Waits until every process of the
/// launch has called it, at most five minutes.
pub fn meet_through_launcher(wishes: &Wishes<'_>, port: PortChoice) -> Result<(Url, Option<Host>)> {
    let first = std::env::var("PMI_RANK").is_ok_and(|rank| rank.trim() == "0");
    let host = match port {
        _ if !first => None,
        PortChoice::Range(..) => Some(Host::anywhere(port)?),
        // A fixed port is the task's own.
        PortChoice::Any | PortChoice::Fixed(_) => Some(Host::anywhere(PortChoice::Any)?),
    };
    let own = match &host {
        None => String::new(),
        Some(host) => {
            let hosts = advertise(wishes)?.hosts;
            let place = PlaceAddress { hosts, port: host.port(), machine: machine() };
            serde_json::to_string(&place).map_err(|error| status!(Internal, "{error}"))?
        }
    };
    let published = pmi::exchange(&own)?;
    let first = published.first().map(String::as_str).unwrap_or_default();
    let place: PlaceAddress = serde_json::from_str(first).map_err(|error| {
        status!(FailedPrecondition, "the first process of this launch published no place to meet: {error}")
    })?;
    let (name, port) = (reachable(&place)?, place.port);
    Ok((Url::Tcp { host: name, port, run: String::new() }, host))
}

/// Returns the first of the place's hosts that accepts a connection.
fn reachable(place: &PlaceAddress) -> Result<String> {
    let own = place.machine == machine();
    let outside = |host: &&String| own || !host.parse::<IpAddr>().is_ok_and(|host| host.is_loopback());
    let answers = |host: &&String| {
        let mut addresses = look_up(host, place.port).into_iter().flatten();
        addresses.any(|address| TcpStream::connect_timeout(&address, PATIENCE).is_ok())
    };
    let found = place.hosts.iter().filter(outside).find(answers);
    ensure!(
        found.is_some(),
        Unavailable,
        "the first process of this launch cannot be reached at {}, port {}; name a rendezvous in a shared directory instead",
        place.hosts.join(", "),
        place.port
    );
    Ok(found.cloned().unwrap_or_default())
}

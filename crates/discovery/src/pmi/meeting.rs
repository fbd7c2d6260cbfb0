//! Where the tasks of a launch meet: at a free port of the first one's machine, of which the others learn through PMI.
//!
//! From there on it is a rendezvous like any other: whoever comes first hosts it, and how tasks end is told.

use super::Launch;
use crate::rendezvous::Url;
use crate::{PortChoice, ReservedPort, Wishes, advertise};
use ferroflow_core::{Result, Status};

/// What those say who do not choose the place.
const NO_PLACE: &str = "-";

/// A place that all processes of a launch know. The first one keeps its port until this value is dropped.
#[derive(Debug)]
pub struct MeetingPlace {
    /// The same for all.
    pub url: Url,
    _port: Option<ReservedPort>,
}

/// Agrees with all processes of this launch on a place, which is the machine of the first one, reached as `wishes` say.
///
/// Waits until every process of the launch has called it, at most five minutes.
pub fn meeting_place(wishes: &Wishes<'_>, port: PortChoice) -> Result<MeetingPlace> {
    let launch = Launch::of_process()?;
    let mut place = NO_PLACE.to_owned();
    let mut kept = None;
    if launch.rank == 0 {
        // The task itself listens on a port that somebody fixed.
        let port = match port {
            PortChoice::Range(..) => port,
            PortChoice::Any | PortChoice::Fixed(_) => PortChoice::Any,
        };
        let reserved = ReservedPort::new(None, port)?;
        let host = advertise(wishes)?.hosts.swap_remove(0);
        let run = launch.job.clone().unwrap_or_default();
        place = Url::Tcp { host, port: reserved.port(), run }.to_string();
        kept = Some(reserved);
    }
    let told = launch.tell(&place)?;
    let url = told[0].parse().map_err(|error: Status| {
        error.map_message(|message| format!("rank 0 told no place to meet at: {message}"))
    })?;
    Ok(MeetingPlace { url, _port: kept })
}

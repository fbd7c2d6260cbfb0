//! Ports that nobody else is given while the tests run.
//!
//! A port that is picked and closed again may be taken by any connection before its server listens on it, or while its
//! server is away.

use ferroflow::discovery::{PortChoice, ReservedPort};
use std::net::Ipv4Addr;
use std::sync::{Mutex, PoisonError};

/// Kept until the process ends.
static RESERVED: Mutex<Vec<ReservedPort>> = Mutex::new(Vec::new());

/// An address of this machine that nobody listens on, but a server may.
pub(crate) fn address() -> String {
    let reserved =
        ReservedPort::new(Some(Ipv4Addr::LOCALHOST.into()), PortChoice::Any).expect("some port is free");
    let address = format!("127.0.0.1:{}", reserved.port());
    RESERVED.lock().unwrap_or_else(PoisonError::into_inner).push(reserved);
    address
}

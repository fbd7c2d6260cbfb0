//! The users of this machine who may connect to a server.

use crate::transport::socket_owner::owner_of_peer;
use ferroflow_core::{Result, bail};
use std::io::ErrorKind;
use std::net::SocketAddr;

/// The users of this machine who may connect to a server. Connections from other machines are not concerned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LocalUsers {
    /// The user that the server runs as, and root.
    #[default]
    Same,
    /// Every user.
    All,
}

const ROOT: u32 = 0;

impl LocalUsers {
    /// Refuses a TCP connection within this machine whose other end belongs to another user.
    pub(crate) fn admit_connection(self, local: SocketAddr, peer: SocketAddr) -> Result<()> {
        if self == LocalUsers::All || !within_this_machine(local, peer) {
            return Ok(());
        }
        match owner_of_peer(local, peer) {
            Ok(user) => self.admit(user),
            // Systems that do not tell.
            Err(error) if error.kind() == ErrorKind::Unsupported => Ok(()),
            Err(error) => bail!(
                PermissionDenied,
                "cannot tell which user the connection from {peer} belongs to: {error}; {}",
                cure()
            ),
        }
    }

    /// Refuses another user.
    pub(crate) fn admit(self, user: u32) -> Result<()> {
        let own = nix::unistd::geteuid().as_raw();
        if self == LocalUsers::All || user == own || user == ROOT {
            return Ok(());
        }
        bail!(
            PermissionDenied,
            "the connection belongs to user {user} of this machine, and the server to user {own}; {}",
            cure()
        )
    }
}

fn cure() -> &'static str {
    "a server accepts connections of its own user and of root; --allow-local-users admits every user of its machine"
}

/// Whether both ends of a connection are on this machine, as far as their addresses tell.
fn within_this_machine(local: SocketAddr, peer: SocketAddr) -> bool {
    let (local, peer) = (local.ip().to_canonical(), peer.ip().to_canonical());
    peer.is_loopback() || peer == local
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroflow_core::Code;

    #[test]
    fn the_servers_user_and_root_are_admitted() {
        let own = nix::unistd::geteuid().as_raw();
        let other = own + 4711;
        assert!(LocalUsers::Same.admit(own).is_ok() && LocalUsers::Same.admit(ROOT).is_ok());
        assert!(LocalUsers::All.admit(other).is_ok());
        let refused = LocalUsers::Same.admit(other).unwrap_err();
        assert_eq!(refused.code(), Code::PermissionDenied);
        assert!(refused.message().contains(&format!("user {other}")), "{refused}");
    }

    #[test]
    fn connections_of_other_machines_are_not_concerned() {
        let address = |text: &str| text.parse::<SocketAddr>().unwrap();
        let local = address("10.0.0.1:2222");
        assert!(!within_this_machine(local, address("10.0.0.2:4000")));
        assert!(within_this_machine(local, address("10.0.0.1:4000")));
        assert!(within_this_machine(address("[::ffff:127.0.0.1]:2222"), address("[::ffff:127.0.0.1]:4000")));
    }
}

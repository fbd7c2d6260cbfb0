//! Reads the memory of a peer on the same machine, so that a large content is copied once, from tensor to tensor,
//! instead of into the kernel's buffers and out again.
//!
//! The kernel allows it between processes of one user unless an administrator has forbidden it, so each side verifies
//! its access before it is relied on.

use super::frames::Proof;
use std::io::Result;
use tokio::net::UnixStream;

/// The process at the other end of a local socket.
#[derive(Clone, Copy)]
pub(crate) struct PeerMemory {
    process: i32,
}

impl PeerMemory {
    /// Returns the memory of the peer process if it belongs to the same user.
    pub(crate) fn of(socket: &UnixStream) -> Option<PeerMemory> {
        let peer = socket.peer_cred().ok()?;
        let process = peer.pid().filter(|process| *process > 0)?;
        is_own_user(peer.uid()).then_some(PeerMemory { process })
    }

    /// Returns whether the peer's memory can be read: the value that the peer wrote is found at its address.
    pub(super) fn shows(self, proof: &Proof) -> bool {
        let mut found = [0; size_of::<u64>()];
        self.read(proof.address, &mut found).is_ok() && u64::from_ne_bytes(found) == proof.value
    }

    /// Fills `out` from an address in the peer's memory.
    #[cfg(target_os = "linux")]
    pub(super) fn read(self, address: u64, out: &mut [u8]) -> Result<()> {
        use nix::sys::uio::{RemoteIoVec, process_vm_readv};
        let mut filled = 0;
        while filled < out.len() {
            let there = RemoteIoVec { base: address as usize + filled, len: out.len() - filled };
            let here = std::io::IoSliceMut::new(&mut out[filled..]);
            match process_vm_readv(nix::unistd::Pid::from_raw(self.process), &mut [here], &[there]) {
                Ok(0) => return Err(std::io::ErrorKind::UnexpectedEof.into()),
                Ok(count) => filled += count,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn read(self, _address: u64, _out: &mut [u8]) -> Result<()> {
        let _ = self.process;
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

#[cfg(target_os = "linux")]
fn is_own_user(user: u32) -> bool {
    nix::unistd::geteuid().as_raw() == user
}

#[cfg(not(target_os = "linux"))]
fn is_own_user(_user: u32) -> bool {
    false
}

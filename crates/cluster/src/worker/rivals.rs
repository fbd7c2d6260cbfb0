//! Detection of two processes that were started as the same task.
//!
//! A master that opens a session under a known name but with another incarnation has either restarted or is a second
//! process beside one that is alive. The address of the earlier one tells which: either that process still answers
//! there, or it does not.

use super::Worker;
use crate::transport::caller;
use crate::transport::client::{Naming, Peers};
use ferroflow_core::{Result, bail};
use ferroflow_proto::tensorflow::CreateWorkerSessionRequest;
use std::time::Duration;

/// The time within which a process must show that it is alive.
const ALIVE_WITHIN: Duration = Duration::from_secs(2);

/// A master that has sessions on this worker.
pub(super) struct KnownMaster {
    pub(super) incarnation: i64,
    /// The address of its server, as the master reported it; empty for stock's masters.
    pub(super) address: String,
}

impl Worker {
    /// Refuses a master while another process of the same name, which has sessions here, is alive. `address` is the one
    /// that the master reports for its server; empty for stock's masters.
    pub(crate) async fn refuse_rival(
        &self,
        request: &CreateWorkerSessionRequest,
        address: &str,
    ) -> Result<()> {
        let (name, incarnation) = (&request.master_task, request.master_incarnation);
        let Some(earlier) = self.sessions.other_incarnation(name, incarnation) else { return Ok(()) };
        if let Some(there) = self.find_master(name, &earlier).await {
            let from = match (address, caller::peer()) {
                ("", Some(peer)) => format!("the process that calls from {peer}"),
                ("", None) => "another process".to_owned(),
                (address, _) => format!("the process at {address}"),
            };
            tracing::warn!(master = name, "Refused: {from} is not {name}, which is alive at {there}.");
            bail!(
                AlreadyExists,
                "{name} is alive at {there}, and {from} was started as the same task. Give it another task \
                 index, or stop the one at {there}"
            );
        }
        Ok(())
    }

    /// The address at which a master answers with its incarnation; `None` if it answers nowhere. Tries the address that
    /// it reported and the one that the cluster lists.
    pub(super) async fn find_master(&self, name: &str, master: &KnownMaster) -> Option<String> {
        let listed = {
            let known = self.known.borrow();
            let mut tasks = known.cluster.tasks();
            tasks.find(|(task, _)| task.to_string() == name).map(|(_, address)| address.to_owned())
        };
        let mut addresses: Vec<String> = listed.into_iter().collect();
        if !master.address.is_empty() && !addresses.contains(&master.address) {
            addresses.insert(0, master.address.clone());
        }
        for address in addresses {
            if self.is_at(master.incarnation, &address).await {
                return Some(address);
            }
        }
        None
    }

    /// Returns whether the process at this address has this incarnation, under whatever name.
    async fn is_at(&self, incarnation: i64, address: &str) -> bool {
        let peers = Peers::new(&self.channels, [(self.task.clone(), address.to_owned())], Naming::Given);
        let Some(peer) = peers.ok().and_then(|peers| peers.worker(&self.task).cloned()) else { return false };
        let Ok(Ok(status)) = peer.try_get_status(&self.status_request(), ALIVE_WITHIN).await else {
            return false;
        };
        status.device_attributes.iter().any(|device| device.incarnation as i64 == incarnation)
    }
}

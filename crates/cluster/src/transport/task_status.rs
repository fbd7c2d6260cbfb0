//! `GetStatus` with the fields that Ferroflow adds to stock's messages, by which tasks learn about each other. Field
//! numbers are listed in `docs/wire.md`.

use ferroflow_proto::tensorflow::{ClusterDef, DeviceAttributes};
use prost::Message;

/// A `GetStatusRequest` with Ferroflow's fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskStatusRequest {
    /// The task that asks; empty if it is not a Ferroflow task.
    #[prost(string, tag = "61001")]
    pub(crate) task: String,
    /// The cluster as the asking task knows it.
    #[prost(message, optional, tag = "61002")]
    pub(crate) cluster: Option<ClusterDef>,
    /// True if the server should check which other tasks it can reach.
    #[prost(bool, tag = "61003")]
    pub(crate) try_others: bool,
    /// The version of the cluster that a rendezvous formed; 0 for a cluster that never changes.
    #[prost(uint64, tag = "61004")]
    pub(crate) epoch: u64,
}

/// A `GetStatusResponse` with Ferroflow's fields.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskStatusResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) device_attributes: Vec<DeviceAttributes>,
    /// The server's version; empty if it is not a Ferroflow task.
    #[prost(string, tag = "61001")]
    pub(crate) version: String,
    /// The cluster as the server knows it.
    #[prost(message, optional, tag = "61002")]
    pub(crate) cluster: Option<ClusterDef>,
    /// The server's clock, in microseconds since 1970.
    #[prost(int64, tag = "61003")]
    pub(crate) clock: i64,
    /// The other tasks that the server tried to reach.
    #[prost(message, repeated, tag = "61004")]
    pub(crate) reached: Vec<Reachability>,
    /// The version of the cluster that a rendezvous formed; 0 for a cluster that never changes.
    #[prost(uint64, tag = "61005")]
    pub(crate) epoch: u64,
    /// Tasks whose masters had sessions open here and have closed them.
    #[prost(string, repeated, tag = "61006")]
    pub(crate) done_with: Vec<String>,
    /// True if no program of the server's process opens sessions: it serves others and ends with them, or when told to.
    #[prost(bool, tag = "61007")]
    pub(crate) serves_only: bool,
}

/// Returns whether clusters of these epochs may differ because one task has not yet learned of a move.
pub(crate) fn is_settling(here: u64, there: u64) -> bool {
    here != there && here > 0 && there > 0
}

/// The outcome of an attempt to reach another task.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reachability {
    #[prost(string, tag = "1")]
    pub(crate) task: String,
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    /// The reason of a failure; empty if the task was reached.
    #[prost(string, tag = "3")]
    pub(crate) failure: String,
}

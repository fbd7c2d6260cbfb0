//! What tasks of ours say about themselves when they first speak: fields of `GetStatus` that stock does not know.

use ferroflow_proto::tensorflow::{ClusterDef, DeviceAttributes};
use prost::Message;

/// A `GetStatusRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskStatusRequest {
    /// Who asks; empty for anybody who is no task of ours.
    #[prost(string, tag = "61001")]
    pub(crate) task: String,
    /// The cluster as the one who asks knows it.
    #[prost(message, optional, tag = "61002")]
    pub(crate) cluster: Option<ClusterDef>,
    /// Whether to find out which other tasks can be reached.
    #[prost(bool, tag = "61003")]
    pub(crate) try_others: bool,
    /// Which of the clusters that a rendezvous formed it is; 0 for one that stays as it is.
    #[prost(uint64, tag = "61004")]
    pub(crate) epoch: u64,
}

/// A `GetStatusResponse`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TaskStatusResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) device_attributes: Vec<DeviceAttributes>,
    /// The version of the program; empty for tasks that are not ours.
    #[prost(string, tag = "61001")]
    pub(crate) version: String,
    /// The cluster as the one who answers knows it.
    #[prost(message, optional, tag = "61002")]
    pub(crate) cluster: Option<ClusterDef>,
    /// What its clock says, in microseconds since 1970.
    #[prost(int64, tag = "61003")]
    pub(crate) clock: i64,
    /// Which other tasks can be reached from there.
    #[prost(message, repeated, tag = "61004")]
    pub(crate) reached: Vec<Reachability>,
    /// Which of the clusters that a rendezvous formed it is; 0 for one that stays as it is.
    #[prost(uint64, tag = "61005")]
    pub(crate) epoch: u64,
    /// Masters that had sessions open here, and have closed them.
    #[prost(string, repeated, tag = "61006")]
    pub(crate) done_with: Vec<String>,
    /// Whether no program of the process opens sessions: it serves others, and ends with them or when it is told to.
    #[prost(bool, tag = "61007")]
    pub(crate) serves_only: bool,
}

/// Whether clusters of these epochs may differ because one task has yet to hear of another that moved.
pub(crate) fn is_settling(here: u64, there: u64) -> bool {
    here != there && here > 0 && there > 0
}

/// Whether a task is reached from another one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Reachability {
    #[prost(string, tag = "1")]
    pub(crate) task: String,
    #[prost(string, tag = "2")]
    pub(crate) address: String,
    /// Why not; empty if it is.
    #[prost(string, tag = "3")]
    pub(crate) failure: String,
}

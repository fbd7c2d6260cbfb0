//! The coordination service of another task.

use super::channel::Channel;
use super::method::{Method, methods};
use ferroflow_core::Result;
use ferroflow_proto::tensorflow::{
    CoordinatedTask, HeartbeatRequest, HeartbeatResponse, RegisterTaskRequest, RegisterTaskResponse,
};
use std::sync::Arc;
use std::time::Duration;

/// Limit of one call.
const LIMIT: Option<Duration> = Some(Duration::from_secs(10));

/// The coordination service of a leader.
pub(crate) struct RemoteCoordination {
    channel: Arc<Channel>,
    methods: Methods,
}

methods! {
    "/tensorflow.CoordinationService/"
    register "RegisterTask" LIMIT,
    heartbeat "Heartbeat" LIMIT,
}

impl RemoteCoordination {
    pub(super) fn new(channel: Arc<Channel>) -> Result<RemoteCoordination> {
        let methods = Methods::new(channel.address())?;
        Ok(RemoteCoordination { channel, methods })
    }

    /// Makes a task known to its leader.
    pub(crate) async fn register(&self, task: &CoordinatedTask, incarnation: u64) -> Result<()> {
        let request = RegisterTaskRequest { incarnation, source_task: Some(task.clone()) };
        let call = self.methods.register.unary::<RegisterTaskResponse>(&self.channel, &request, incarnation);
        Box::pin(call).await.map(drop)
    }

    /// Tells the leader that a task lives.
    pub(crate) async fn heartbeat(&self, task: &CoordinatedTask, incarnation: u64) -> Result<()> {
        let request = HeartbeatRequest { incarnation, source_task: Some(task.clone()) };
        let call = self.methods.heartbeat.unary::<HeartbeatResponse>(&self.channel, &request, incarnation);
        Box::pin(call).await.map(drop)
    }
}

//! Single `GetStatus` calls to servers, without a server or a cluster of one's own.

use super::super::intake::Intake;
use super::super::io::{Carrier, Io};
use super::super::task_status::{TaskStatusRequest, TaskStatusResponse};
use super::channel::Channel;
use super::method::Method;
use ferroflow_core::Result;
use ferroflow_core::tensor::BufferPool;
use std::sync::Arc;
use std::time::Duration;

/// The memory limit for responses.
const MAX_RESPONSE: usize = 64 << 20;

/// A client with an I/O thread of its own.
pub(crate) struct StatusClient {
    io: Arc<Io>,
    intake: Arc<Intake>,
    _carrier: Carrier,
}

impl StatusClient {
    /// Starts the I/O thread.
    pub(crate) fn new() -> Result<StatusClient> {
        let (threads, io) = Io::prepare(1)?;
        let intake = Intake::new(BufferPool::new(0), MAX_RESPONSE);
        Ok(StatusClient { io, intake, _carrier: Carrier::start(threads)? })
    }

    /// Asks the server at `host:port` for its status.
    pub(crate) async fn ask(
        &self,
        address: &str,
        request: &TaskStatusRequest,
        limit: Duration,
    ) -> Result<TaskStatusResponse> {
        let channel = Channel::new(address, self.io.clone(), &self.intake);
        let method = Method::new(address, "/tensorflow.WorkerService/GetStatus", Some(limit))?;
        method.unary(&channel, request, 0).await
    }
}

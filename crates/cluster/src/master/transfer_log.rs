//! Logs of transferred tensors: while a step is traced, its tasks log the tensors that they receive from each other.

use super::plan::RemotePart;
use crate::worker::Worker;
use ferroflow_proto::tensorflow::{DeviceStepStats, LoggingRequest, LoggingResponse};
use futures_util::future::join_all;
use std::sync::Arc;

/// The logs of a step's tasks. They are stopped on drop unless they were read before.
pub(super) struct TransferLog<'a> {
    worker: &'a Worker,
    remote: &'a [RemotePart],
    wanted: bool,
}

impl<'a> TransferLog<'a> {
    /// Starts the logs of this task and of those that run parts.
    pub(super) async fn start(worker: &'a Arc<Worker>, remote: &'a [RemotePart]) -> TransferLog<'a> {
        let log = TransferLog { worker, remote, wanted: true };
        log.send(&LoggingRequest { enable_rpc_logging: true, ..Default::default() }).await;
        log
    }

    /// Stops the logs and returns their records of the step. Tasks that do not respond are left out.
    pub(super) async fn read(mut self, step_id: i64) -> Vec<DeviceStepStats> {
        self.wanted = false;
        let request =
            LoggingRequest { disable_rpc_logging: true, fetch_step_id: vec![step_id], ..Default::default() };
        let responses = self.send(&request).await;
        let steps = responses.into_iter().flat_map(|response| response.step);
        steps.filter_map(|step| step.step_stats).flat_map(|stats| stats.dev_stats).collect()
    }

    async fn send(&self, request: &LoggingRequest) -> Vec<LoggingResponse> {
        let calls = self.remote.iter().map(|part| part.worker.logging(request));
        let mut responses = vec![self.worker.logging(request)];
        for (part, response) in self.remote.iter().zip(join_all(calls).await) {
            match response {
                Ok(response) => responses.push(response),
                Err(error) => {
                    tracing::debug!(task = %part.worker.task(), %error, "A task did not return its transfer log.");
                }
            }
        }
        responses
    }
}

impl Drop for TransferLog<'_> {
    fn drop(&mut self) {
        if self.wanted {
            self.worker.logging(&LoggingRequest { disable_rpc_logging: true, ..Default::default() });
            self.remote.iter().for_each(|part| part.worker.stop_logging());
        }
    }
}

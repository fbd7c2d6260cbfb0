//! Asks any server who it is, without being a task of a cluster. `ferroflow doctor` and the watch for the chief use it.

use crate::client::block_on;
use crate::client::calls::Call;
use crate::spec::{ClusterSpec, TaskName};
use crate::transport::client::StatusClient;
use crate::transport::task_status::{TaskStatusRequest, TaskStatusResponse};
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::{Result, status};
use futures_util::future::join_all;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// A request for the identity of servers.
pub struct Probe<'a> {
    /// The task on whose behalf servers are asked.
    pub task: &'a TaskName,
    /// The cluster as that task knows it.
    pub cluster: &'a ClusterSpec,
    /// True if the servers should check which other tasks they can reach.
    pub try_others: bool,
    /// The time limit of each server.
    pub limit: Duration,
}

/// A server's description of itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The task that it is.
    pub task: Option<TaskName>,
    /// Its version; `None` for a server that is not Ferroflow, which leaves the remaining fields empty.
    pub version: Option<String>,
    /// The cluster as the server knows it; empty for a server that runs alone.
    pub cluster: ClusterSpec,
    /// Seconds by which its clock is ahead of the local one, give or take half the round trip.
    pub clock_ahead: f64,
    /// The time that the response took.
    pub round_trip: Duration,
    /// Tasks that it tried to reach: name, address, and the failure if there was one.
    pub reached: Vec<(String, String, Option<String>)>,
    /// Tasks whose masters had sessions open on the server and have closed them.
    pub done_with: Vec<String>,
    /// True if no program of the server's process opens sessions.
    pub serves_only: bool,
}

impl Probe<'_> {
    /// Asks the servers at these addresses concurrently and blocks until all have responded or timed out.
    pub fn ask(&self, addresses: &[String]) -> Result<Vec<Result<Identity>>> {
        // Every request has its own limit; this bound only covers their sum.
        let bound = self.limit.saturating_mul(4) + Duration::from_secs(5);
        block_on(Some(bound), None, self.answers(addresses))
            .unwrap_or_else(|| Err(status!(DeadlineExceeded, "no responses in time")))
    }

    /// The asynchronous form of [`Probe::ask`].
    pub async fn answers(&self, addresses: &[String]) -> Result<Vec<Result<Identity>>> {
        self.boxed_answers(addresses).await
    }

    /// Boxed, so that callers in other crates do not compile all of it again.
    #[inline(never)]
    fn boxed_answers<'a>(&'a self, addresses: &'a [String]) -> Call<'a, Vec<Result<Identity>>> {
        Box::pin(self.ask_all(addresses))
    }

    async fn ask_all(&self, addresses: &[String]) -> Result<Vec<Result<Identity>>> {
        let cluster = (!self.cluster.is_empty()).then(|| self.cluster.to_def());
        let request =
            TaskStatusRequest { task: self.task.to_string(), cluster, try_others: self.try_others, epoch: 0 };
        let client = StatusClient::new()?;
        let sent = addresses.iter().map(|address| async {
            let (sent, clock) = (Instant::now(), now());
            let response = client.ask(address, &request, self.limit).await?;
            Ok(identity(response, clock, sent.elapsed()))
        });
        Ok(join_all(sent).await)
    }
}

fn identity(response: TaskStatusResponse, sent: f64, round_trip: Duration) -> Identity {
    let device = response.device_attributes.first().and_then(|device| DeviceSpec::parse(&device.name).ok());
    let reached = response.reached.into_iter().map(|reach| {
        let failure = Some(reach.failure).filter(|failure| !failure.is_empty());
        (reach.task, reach.address, failure)
    });
    Identity {
        task: device.as_ref().and_then(TaskName::of_device),
        version: Some(response.version).filter(|version| !version.is_empty()),
        cluster: response.cluster.and_then(|def| ClusterSpec::from_def(&def).ok()).unwrap_or_default(),
        // The server read its clock somewhere between the request and the response.
        clock_ahead: response.clock as f64 / 1e6 - (sent + round_trip.as_secs_f64() / 2.0),
        round_trip,
        reached: reached.collect(),
        done_with: response.done_with,
        serves_only: response.serves_only,
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

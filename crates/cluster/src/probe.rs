//! Asking any server who it is, without being a task oneself.

use crate::client::block_on;
use crate::client::calls::Call;
use crate::spec::{ClusterSpec, TaskName};
use crate::transport::client::Inquiry;
use crate::transport::introduction::{Answer, Question};
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::{Result, status};
use futures_util::future::join_all;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Who asks, and what about.
pub struct Probe<'a> {
    /// The task in whose place the question is asked.
    pub task: &'a TaskName,
    /// The cluster as that task knows it.
    pub cluster: &'a ClusterSpec,
    /// Whether the servers are to find out which others they reach.
    pub try_others: bool,
    /// How long an answer may take.
    pub limit: Duration,
}

/// What a server says about itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Which task it is.
    pub task: Option<TaskName>,
    /// The version of the program; `None` for a server that is not ours, which tells nothing of what follows.
    pub version: Option<String>,
    /// The cluster as it knows it; empty for one that is alone.
    pub cluster: ClusterSpec,
    /// How far its clock is ahead of the one here, in seconds, give or take half the time that the answer took.
    pub clock_ahead: f64,
    /// How long the answer took.
    pub round_trip: Duration,
    /// Which other tasks it reaches: their names and addresses, and why not.
    pub reached: Vec<(String, String, Option<String>)>,
    /// The tasks whose masters had sessions open there, and have closed them.
    pub done_with: Vec<String>,
    /// Whether it says that no program of its process opens sessions.
    pub serves_only: bool,
}

impl Probe<'_> {
    /// Asks the servers at these addresses, all at once.
    pub fn ask(&self, addresses: &[String]) -> Result<Vec<Result<Identity>>> {
        // Every answer has its own limit; this one only bounds the sum.
        let bound = self.limit.saturating_mul(4) + Duration::from_secs(5);
        block_on(Some(bound), None, self.answers(addresses))
            .unwrap_or_else(|| Err(status!(DeadlineExceeded, "no answers in time")))
    }

    /// The same for callers that do not wait here.
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
        let question =
            Question { task: self.task.to_string(), cluster, try_others: self.try_others, epoch: 0 };
        let inquiry = Inquiry::new()?;
        let asked = addresses.iter().map(|address| async {
            let (asked, clock) = (Instant::now(), now());
            let answer = inquiry.ask(address, &question, self.limit).await?;
            Ok(identity(answer, clock, asked.elapsed()))
        });
        Ok(join_all(asked).await)
    }
}

fn identity(answer: Answer, asked: f64, round_trip: Duration) -> Identity {
    let device = answer.device_attributes.first().and_then(|device| DeviceSpec::parse(&device.name).ok());
    let reached = answer.reached.into_iter().map(|reach| {
        let failure = Some(reach.failure).filter(|failure| !failure.is_empty());
        (reach.task, reach.address, failure)
    });
    Identity {
        task: device.as_ref().and_then(TaskName::of_device),
        version: Some(answer.version).filter(|version| !version.is_empty()),
        cluster: answer.cluster.and_then(|def| ClusterSpec::from_def(&def).ok()).unwrap_or_default(),
        // The question arrived somewhere between being asked and being answered.
        clock_ahead: answer.clock as f64 / 1e6 - (asked + round_trip.as_secs_f64() / 2.0),
        round_trip,
        reached: reached.collect(),
        done_with: answer.done_with,
        serves_only: answer.serves_only,
    }
}

fn now() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs_f64()
}

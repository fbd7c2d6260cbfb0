//! Repeated attempts to reach a task that may not be up yet.

use super::channel::Channel;
use crate::logged_wait::LoggedWait;
use ferroflow_core::{Code, Result, Status, status};
use std::time::{Duration, Instant};

/// The time limit of one attempt.
pub(super) const ATTEMPT_WAIT: Duration = Duration::from_secs(10);
/// The first and the longest pause between attempts.
const PAUSES: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(1));
/// The longest part of the deadline that is reserved for reporting the failure.
const MOST_MARGIN: Duration = Duration::from_millis(500);

/// Attempts to reach one task, with growing pauses and log messages about the wait.
pub(super) struct Attempts<'a> {
    whom: String,
    channel: &'a Channel,
    deadline: Option<Instant>,
    waiting: LoggedWait,
    pause: Duration,
    /// The reason why the attempt before failed.
    reason: Option<String>,
}

impl<'a> Attempts<'a> {
    /// Attempts to reach `whom` through `channel` until `deadline`.
    pub(super) fn new(whom: String, channel: &'a Channel, deadline: Option<Instant>) -> Attempts<'a> {
        // The client has a deadline of its own, and the reason should reach it before that expires.
        let now = Instant::now();
        let deadline = deadline.map(|deadline| {
            let margin = (deadline.saturating_duration_since(now) / 20).min(MOST_MARGIN);
            deadline.checked_sub(margin).unwrap_or(deadline)
        });
        Attempts { whom, channel, deadline, waiting: LoggedWait::new(), pause: PAUSES.0, reason: None }
    }

    fn left(&self) -> Option<Duration> {
        self.deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()))
    }

    /// Returns the time limit of the next attempt.
    pub(super) fn limit(&self) -> Duration {
        self.left().map_or(ATTEMPT_WAIT, |left| left.min(ATTEMPT_WAIT))
    }

    /// Pauses after a failed attempt; fails if the deadline has passed.
    pub(super) async fn failed(&mut self, failure: &Status) -> Result<()> {
        // The deadline may cut the last attempt short, which then says less than the one before.
        let is_cut = self.left().is_some_and(|left| left.is_zero());
        let why = match failure.code() {
            Code::DeadlineExceeded => match self.reason.take().filter(|_| is_cut) {
                Some(reason) => reason,
                None => format!("no answer from {}", self.channel.address()),
            },
            _ => failure.message().split("\nAdditional GRPC error").next().unwrap_or_default().to_owned(),
        };
        if self.left().is_some_and(|left| left <= self.pause) {
            let (whom, waited) = (&self.whom, self.waiting.elapsed().as_secs_f64());
            return Err(status!(DeadlineExceeded, "{whom} did not come up within {waited:.1} s: {why}"));
        }
        self.waiting.log(&self.whom, &why);
        self.reason = Some(why);
        let io = self.channel.io();
        io.sleep(io.choose(0), self.pause).await?;
        self.pause = (self.pause * 2).min(PAUSES.1);
        Ok(())
    }
}

//! Logs long steps and long waits for tensors and for elements of iterators. The server's steps are inspected every few
//! seconds, so that steps themselves need not measure time.

use super::Master;
use crate::logged_wait::LoggedWait;
use ferroflow_core::device::Wait;
use ferroflow_core::rendezvous::RendezvousKey;
use std::collections::HashMap;
use std::time::{Duration, Instant};

/// The interval between inspections.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The steps and tensors of the last inspection, with their waits.
#[derive(Default)]
pub(crate) struct LongWaits {
    steps: HashMap<(String, u64), LoggedWait>,
    tensors: HashMap<(i64, RendezvousKey), LoggedWait>,
    /// Waits for whatever runs beside steps, by whom they are for and since when.
    others: HashMap<(String, Instant), LoggedWait>,
}

impl LongWaits {
    /// Inspects the master's steps periodically; never returns.
    pub(crate) async fn watch(master: &Master) {
        let mut waits = LongWaits::default();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            waits.look(master);
        }
    }

    fn look(&mut self, master: &Master) {
        let mut steps = HashMap::new();
        for (session, step) in master.running() {
            let key = (session, step);
            let mut waiting = self.steps.remove(&key).unwrap_or_else(LoggedWait::for_work);
            let whom = format_args!("step {} of session {}", key.1, key.0).to_string();
            waiting.log(whom, "its nodes compute, or wait for a queue, a barrier, an iterator or a tensor");
            steps.insert(key, waiting);
        }
        let own = master.worker.task().to_string();
        let mut tensors = HashMap::new();
        for (step, tensor) in master.worker.awaited() {
            let key = (step, tensor);
            let mut waiting = self.tensors.remove(&key).unwrap_or_else(LoggedWait::for_work);
            let (step, tensor) = &key;
            let from = tensor.source();
            let here = from.strip_prefix(&own).is_some_and(|rest| rest.starts_with("/device:"));
            let why = if here { "no node here has sent it yet" } else { "it has not arrived yet" };
            let edge = tensor.edge();
            waiting
                .log(format_args!("tensor {edge} of step {step} from {from} for {}", tensor.target()), why);
            tensors.insert(key, waiting);
        }
        let mut others = HashMap::new();
        for Wait { whom, why, since } in master.worker.waits() {
            let key = (whom, since);
            let mut waiting = self.others.remove(&key).unwrap_or_else(|| LoggedWait::for_work_since(since));
            waiting.log(&key.0, why);
            others.insert(key, waiting);
        }
        *self = LongWaits { steps, tensors, others };
    }
}

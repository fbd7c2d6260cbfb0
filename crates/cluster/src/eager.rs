//! Ops and functions that clients run on this task one at a time, outside sessions.
//!
//! A client has a *context* on every task of its cluster. In it, outputs of operations are kept under the number that the
//! client gave the operation, until the client lets go of them. An operation names its inputs the same way, so that
//! values stay where they are. Functions are planned once per signature, by the planner and for the executor that steps
//! of sessions use.

pub mod api;

mod account;
mod across;
mod barriers;
mod context;
mod coordination;
mod execute;
mod functions;
mod handles;
mod plans;
mod queue;
mod remote_call;
#[cfg(test)]
mod tests;

use crate::worker::Worker;
use api::{ContextUpdate, EagerApi, Item, NewContext, Operation, Outcome};
pub(crate) use barriers::Arrival;
use context::Context;
pub(crate) use coordination::coordinated;
use coordination::{Coordination, Membership};
use ferroflow_core::{Result, Status, ensure, status};
use ferroflow_proto::tensorflow::DeviceAttributes;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Notify;

/// Interval between looks for contexts whose clients are gone.
const EXPIRY_LOOK: Duration = Duration::from_secs(1);

/// Memory charged for an empty context.
const CONTEXT_BYTES: usize = 64 << 10;

const UNPOISONED: &str = "no panic while contexts are locked";

/// The contexts of clients on one task.
pub struct Eager {
    worker: Arc<Worker>,
    contexts: Mutex<HashMap<u64, Arc<Context>>>,
    created: Notify,
    coordination: Arc<Coordination>,
    /// Calls under way.
    calls: AtomicUsize,
    /// Calls since the server started.
    total_calls: AtomicU64,
}

/// Number of contexts of a task, and of the things that they keep.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EagerCount {
    /// Contexts.
    pub contexts: usize,
    /// Outputs of operations.
    pub values: usize,
    /// Functions of clients.
    pub functions: usize,
    /// Parts of functions that other tasks have registered.
    pub parts: usize,
    /// Plans of ops and functions.
    pub plans: usize,
}

impl Eager {
    /// No contexts yet.
    pub(crate) fn new(worker: Arc<Worker>) -> Result<Arc<Eager>> {
        let coordination = Coordination::new(worker.device().memory().budget().clone())?;
        Ok(Arc::new(Eager {
            worker,
            contexts: Mutex::default(),
            created: Notify::new(),
            coordination,
            calls: AtomicUsize::new(0),
            total_calls: AtomicU64::new(0),
        }))
    }

    /// The task's coordination service.
    pub(crate) fn coordination(&self) -> &Arc<Coordination> {
        &self.coordination
    }

    /// Number of calls in flight that run something.
    pub(crate) fn running_calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    /// Number of calls since the server started that ran something.
    pub(crate) fn total_calls(&self) -> u64 {
        self.total_calls.load(Ordering::Relaxed)
    }

    fn call_began(&self) -> CallCount<'_> {
        self.total_calls.fetch_add(1, Ordering::Relaxed);
        CallCount::new(&self.calls)
    }

    /// Counts the contexts and what they keep.
    pub fn count(&self) -> EagerCount {
        let contexts: Vec<_> = self.contexts.lock().expect(UNPOISONED).values().cloned().collect();
        let sum = |of: fn(&Context) -> usize| contexts.iter().map(|context| of(context)).sum();
        EagerCount {
            contexts: contexts.len(),
            values: sum(|context| context.handles.len()),
            functions: sum(|context| context.functions.len()),
            parts: sum(|context| context.functions.component_count()),
            plans: sum(|context| context.view().plans.len()),
        }
    }

    /// Ends contexts whose clients have been silent for too long, for as long as it is polled. When the last one is
    /// over, memory that was kept for the next steps is given back, too.
    pub(crate) async fn expire(&self) {
        loop {
            let is_over = self.contexts.lock().expect(UNPOISONED).is_empty() && self.running_calls() == 0;
            if is_over {
                self.worker.device().memory().trim();
                self.created.notified().await;
            }
            tokio::time::sleep(EXPIRY_LOOK).await;
            let expired: Vec<_> = {
                let mut contexts = self.contexts.lock().expect(UNPOISONED);
                contexts.extract_if(|_, context| context.is_expired()).collect()
            };
            for (id, context) in expired {
                tracing::info!(context = id, "A client has been silent for too long; its context ends.");
                context.end();
            }
        }
    }

    /// Ends every context.
    pub(crate) fn end(&self) {
        let contexts = std::mem::take(&mut *self.contexts.lock().expect(UNPOISONED));
        contexts.into_values().for_each(|context| context.end());
    }

    fn context(&self, id: u64) -> Result<Arc<Context>> {
        let context = self.contexts.lock().expect(UNPOISONED).get(&id).cloned();
        let context = context.ok_or_else(|| unknown_context(id))?;
        context.touch();
        Ok(context)
    }
}

fn unknown_context(id: u64) -> Status {
    status!(
        Aborted,
        "Unable to find a context_id matching the specified one ({id}). Perhaps the worker was restarted, or the context \
         was GC'd?"
    )
}

impl EagerApi for Eager {
    async fn create_context(&self, new: NewContext) -> Result<Vec<DeviceAttributes>> {
        self.worker.check_not_draining()?;
        if new.clear_existing {
            self.end();
        }
        let (id, view) = (new.id, new.view);
        let older = |context: &Arc<Context>| context.view_id() <= view;
        let exists = || {
            status!(InvalidArgument, "EagerService:CreateContext failed. Context id: <{id}> already exists.")
        };
        let known = self.contexts.lock().expect(UNPOISONED).get(&id).cloned();
        if !known.as_ref().is_none_or(older) {
            return Err(exists());
        }
        // What it leaves goes first: steps and resources have the same names in both.
        if let Some(known) = known {
            self.contexts.lock().expect(UNPOISONED).remove(&id);
            known.end();
        }
        let charge = self.worker.device().memory().budget().charge(CONTEXT_BYTES)?;
        let joining = new.coordination.clone().zip(new.cluster.clone());
        let context = Context::new(&self.worker, new, charge)?;
        if let Some((config, cluster)) = joining {
            let joined = Membership::join(&self.coordination, &context, &cluster, &config).await;
            context.join(joined.inspect_err(|_| context.end())?);
        }
        let devices = context.device_attributes();
        let unwanted = match self.contexts.lock().expect(UNPOISONED).entry(id) {
            Entry::Vacant(vacant) => {
                vacant.insert(context);
                None
            }
            // Another call was faster.
            Entry::Occupied(_) => Some(context),
        };
        if let Some(context) = unwanted {
            context.end();
            return Err(exists());
        }
        self.created.notify_one();
        Ok(devices)
    }

    fn update_context(&self, update: ContextUpdate) -> Result<Vec<DeviceAttributes>> {
        self.context(update.id)?.update(update)
    }

    fn keep_alive(&self, context: u64) -> Result<u64> {
        Ok(self.context(context)?.view_id())
    }

    fn close_context(&self, context: u64, view: u64) {
        let closed = {
            let mut contexts = self.contexts.lock().expect(UNPOISONED);
            // After a restart clients open a new context and close the old one, whose number is the same, later.
            match contexts.get(&context) {
                Some(known) if known.view_id() <= view => contexts.remove(&context),
                _ => None,
            }
        };
        closed.into_iter().for_each(|context| context.end());
    }

    async fn wait_queue_done(&self, context: u64, ops: &[i64]) -> Result<()> {
        let context = self.context(context)?;
        ensure!(
            ops.is_empty(),
            Unimplemented,
            "EagerServiceImpl::WaitQueueDone is not implemented for particular op IDs."
        );
        // In other contexts, items are answered when they are done.
        match &context.queue {
            Some(queue) => context.until_ended(queue.done()).await,
            None => Ok(()),
        }
    }

    async fn enqueue(
        &self,
        context: u64,
        items: impl Iterator<Item = Result<Item>> + Send,
        on_stream: bool,
    ) -> Result<Vec<Outcome>> {
        let context = self.context(context)?;
        let _call = self.call_began();
        let mut outcomes = Vec::with_capacity(items.size_hint().0);
        for item in items {
            outcomes.push(context.run_item(item?, on_stream).await?);
        }
        Ok(outcomes)
    }

    fn forget_components(&self, context: u64, functions: &[String]) -> Result<()> {
        self.context(context)?.forget_components(functions);
        Ok(())
    }

    async fn run_component(&self, context: u64, operation: Operation, outputs: Vec<i32>) -> Result<Outcome> {
        let context = self.context(context)?;
        let _call = self.call_began();
        context.run_component(operation, Some(outputs)).await
    }
}

struct CallCount<'a>(&'a AtomicUsize);

impl<'a> CallCount<'a> {
    fn new(count: &'a AtomicUsize) -> CallCount<'a> {
        count.fetch_add(1, Ordering::Relaxed);
        CallCount(count)
    }
}

impl Drop for CallCount<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

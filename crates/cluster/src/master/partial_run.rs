//! Partial runs: one step whose feeds and fetches are exchanged over several calls.

use super::parts::from_task;
use super::plan_cache::{Prepared, full_name};
use super::session::MasterSession;
use super::step::{OwnParts, StepGuard};
use crate::api::{RunStep, StepOutcome};
use ferroflow_core::graph::{Graph, Output};
use ferroflow_core::{Code, Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{ExecutorOpts, PartialRunSetupRequest};
use ferroflow_runtime::plan::parse_tensor_name;
use ferroflow_runtime::{LocalRendezvous, PartialHub, Signature};
use futures_util::FutureExt;
use futures_util::future::{BoxFuture, Shared};
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};

/// The partial runs of a session. Handles count up from 0.
#[derive(Default)]
pub(crate) struct PartialRuns(Mutex<Table>);

#[derive(Default)]
struct Table {
    runs: HashMap<String, Arc<PartialRun>>,
    next: u64,
}

/// A running partial run. Dropping it cancels the step.
struct PartialRun {
    prepared: Arc<Prepared>,
    graph: Arc<Graph>,
    hub: Arc<PartialHub>,
    /// The outcome of the step.
    done: Shared<BoxFuture<'static, Result<()>>>,
    progress: Mutex<Progress>,
    _guard: StepGuard,
}

/// The feeds and fetches exchanged so far, by position in the signature.
struct Progress {
    fed: Vec<bool>,
    fetched: Vec<bool>,
}

const UNPOISONED: &str = "no panic while partial runs are locked";

impl PartialRuns {
    /// Cancels and removes all runs.
    pub(super) fn clear(&self) {
        let runs = std::mem::take(&mut self.0.lock().expect(UNPOISONED).runs);
        drop(runs);
    }

    /// Returns the number of runs that are not complete.
    pub(super) fn count(&self) -> usize {
        self.0.lock().expect(UNPOISONED).runs.len()
    }

    fn get(&self, handle: &str) -> Result<Arc<PartialRun>> {
        let found = self.0.lock().expect(UNPOISONED).runs.get(handle).cloned();
        found.ok_or_else(|| {
            status!(InvalidArgument, "Must run PartialRunSetup before performing partial runs")
        })
    }

    fn insert(&self, run: PartialRun) -> String {
        let mut table = self.0.lock().expect(UNPOISONED);
        let handle = table.next.to_string();
        table.next += 1;
        table.runs.insert(handle.clone(), Arc::new(run));
        handle
    }

    fn remove(&self, handle: &str) {
        let removed = self.0.lock().expect(UNPOISONED).runs.remove(handle);
        drop(removed);
    }
}

impl MasterSession {
    /// Starts a partial run and returns its handle.
    pub(super) async fn set_up_partial_run(
        self: &Arc<Self>,
        request: PartialRunSetupRequest,
    ) -> Result<String> {
        let PartialRunSetupRequest { feed, fetch, target, .. } = request;
        let prepared = self.prepare(Signature { feeds: feed, fetches: fetch, targets: target }).await?;
        let (feeds, fetches) = (prepared.signature.feeds.len(), prepared.signature.fetches.len());
        let guard = self.steps.begin()?;
        let hub = PartialHub::new(feeds, fetches);
        let done = self.start_partial(&prepared, &guard, &hub);
        Ok(self.partial_runs.insert(PartialRun {
            prepared,
            graph: self.graph(),
            hub,
            done: done.shared(),
            progress: Mutex::new(Progress { fed: vec![false; feeds], fetched: vec![false; fetches] }),
            _guard: guard,
        }))
    }

    /// Starts all parts of a partial run. Feeds and fetches belong to the local part; the other parts wait for what it
    /// sends.
    fn start_partial(
        self: &Arc<Self>,
        prepared: &Arc<Prepared>,
        guard: &StepGuard,
        hub: &Arc<PartialHub>,
    ) -> BoxFuture<'static, Result<()>> {
        let (session, prepared, hub) = (self.clone(), prepared.clone(), hub.clone());
        let pool = self.env().pool.clone();
        if prepared.plan.remote.is_empty() {
            let (place, rendezvous) = (guard.id_and_cancellation(), Arc::new(LocalRendezvous::default()));
            let done = async move {
                let own = OwnParts::new(&prepared.plan, place, rendezvous);
                let done =
                    own.run_partially(hub.clone()).await.map_err(|error| from_task(error, &session.task));
                // A caller that waits for a fetch must learn of a failure on another device too.
                done.map(drop).inspect_err(|error| hub.fail(error.clone().derived()))
            };
            return pool.complete(done).boxed();
        }
        let (place, on_worker) = (guard.id_and_cancellation(), self.start_on_worker(guard));
        let done = async move {
            let cancellation = place.1.clone();
            let rendezvous = on_worker.rendezvous(session.context.members.own());
            let own = OwnParts::new(&prepared.plan, place, rendezvous);
            let local = own.run_partially(hub.clone());
            let run = session.parts_run(&on_worker, &cancellation, ExecutorOpts::default());
            let done = run.run(&prepared.plan, local).await;
            // A caller that waits for a fetch must learn of a failure elsewhere too.
            done.map(|_| ()).inspect_err(|error| hub.fail(error.clone().derived()))
        };
        pool.complete(done).boxed()
    }

    /// Exchanges some feeds and fetches of a partial run. The run ends when everything is exchanged or something fails;
    /// a request that is invalid leaves it unchanged.
    pub(super) async fn continue_partial_run(&self, step: RunStep) -> Result<StepOutcome> {
        let run = self.partial_runs.get(&step.partial_run_handle)?;
        let (wanted, complete) = run.accept(&step)?;
        // A cancelled call cancels the run, because its feeds are consumed.
        let mut ending =
            ForgetOnDrop { runs: &self.partial_runs, handle: &step.partial_run_handle, end: true };
        match run.exchange(wanted, complete).await {
            Ok(fetches) => {
                ending.end = complete;
                Ok(StepOutcome { fetches, ..Default::default() })
            }
            // The step's own outcome has the cause.
            Err(error) if error.is_derived() || error.code() == Code::Cancelled => {
                Err(self.explain(run.done.clone().await.err().unwrap_or(error)))
            }
            Err(error) => Err(self.explain(from_task(error, &self.task))),
        }
    }
}

/// Removes a partial run on drop if `end` is set.
struct ForgetOnDrop<'a> {
    runs: &'a PartialRuns,
    handle: &'a str,
    end: bool,
}

impl Drop for ForgetOnDrop<'_> {
    fn drop(&mut self) {
        if self.end {
            self.runs.remove(self.handle);
        }
    }
}

impl PartialRun {
    /// Validates a call and hands over its feeds. Returns the requested fetches and whether this completes the
    /// exchange.
    fn accept(&self, step: &RunStep) -> Result<(Vec<(String, usize)>, bool)> {
        let signature = &self.prepared.signature;
        let mut progress = self.progress.lock().expect(UNPOISONED);
        let mut fed = progress.fed.clone();
        let mut feeds = Vec::with_capacity(step.feeds.len());
        for (name, value) in &step.feeds {
            let Ok(position) = signature.feeds.binary_search(&full_name(name)) else {
                bail!(InvalidArgument, "The feed {name} was not specified in partial_run_setup.")
            };
            ensure!(!fed[position], InvalidArgument, "The feed {name} has already been fed.");
            self.prepared.plan.local.check_feed(position, value)?;
            fed[position] = true;
            feeds.push((position, value));
        }
        let mut fetched = progress.fetched.clone();
        let mut fetches = Vec::with_capacity(step.fetches.len());
        for name in &step.fetches {
            let Ok(position) = signature.fetches.binary_search(&full_name(name)) else {
                bail!(InvalidArgument, "The fetch {name} was not specified in partial_run_setup.")
            };
            let earlier = progress.fetched[position];
            ensure!(!earlier, InvalidArgument, "The fetch {name} has already been fetched.");
            if !std::mem::replace(&mut fetched[position], true) {
                fetches.push((name.clone(), position));
            }
        }
        self.check_reachable(&fetches, &fed)?;
        for (position, value) in feeds {
            self.hub.feed(position, value.clone());
        }
        let complete = fed.iter().chain(&fetched).all(|exchanged| *exchanged);
        *progress = Progress { fed, fetched };
        Ok((fetches, complete))
    }

    /// Refuses fetches that depend on a feed that has not been fed.
    fn check_reachable(&self, fetches: &[(String, usize)], fed: &[bool]) -> Result<()> {
        let signature = &self.prepared.signature;
        let output = |name: &String| {
            let (node, index) = parse_tensor_name(name);
            Some(Output { node: self.graph.find(node)?, index })
        };
        let feeds: HashMap<Output, usize> =
            signature.feeds.iter().enumerate().filter_map(|(i, name)| Some((output(name)?, i))).collect();
        let fetched = fetches.iter().filter_map(|(_, position)| output(&signature.fetches[*position]));
        let mut stack: Vec<_> = fetched.map(|output| output.node).collect();
        let mut seen: HashSet<_> = stack.iter().copied().collect();
        while let Some(node) = stack.pop() {
            let node = self.graph.node(node);
            stack.extend(node.controls.iter().copied().filter(|control| seen.insert(*control)));
            for input in &node.inputs {
                match feeds.get(input) {
                    // Stock names the missing feed where its message says "Fetch".
                    Some(&feed) => ensure!(
                        fed[feed],
                        InvalidArgument,
                        "Fetch {} can't be computed from the feeds that have been fed so far.",
                        signature.feeds[feed]
                    ),
                    None if seen.insert(input.node) => stack.push(input.node),
                    None => {}
                }
            }
        }
        Ok(())
    }

    async fn exchange(&self, wanted: Vec<(String, usize)>, complete: bool) -> Result<Vec<(String, Tensor)>> {
        let mut fetches = Vec::with_capacity(wanted.len());
        for (name, position) in wanted {
            fetches.push((name, self.hub.wait_fetch(position).await?));
        }
        if complete {
            self.done.clone().await?;
        }
        Ok(fetches)
    }
}

//! Callables: steps whose feeds and fetches are named once and then run by handle.

use super::plan_cache::Prepared;
use super::session::MasterSession;
use super::step::run_plan;
use crate::api::CallableOutcome;
use ferroflow_core::graph::{Graph, Output};
use ferroflow_core::{Result, Tensor, ensure, status};
use ferroflow_proto::tensorflow::{CallableOptions, RunOptions, TensorConnection};
use ferroflow_runtime::Signature;
use ferroflow_runtime::plan::parse_tensor_name;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// A step with fixed names.
struct Callable {
    prepared: Arc<Prepared>,
    options: RunOptions,
}

/// The callables of a session. Handles count up from 0.
#[derive(Default)]
pub(crate) struct Callables(Mutex<Table>);

#[derive(Default)]
struct Table {
    callables: HashMap<i64, Arc<Callable>>,
    next: i64,
}

const UNPOISONED: &str = "no panic while callables are locked";

impl MasterSession {
    /// Names the feeds and fetches of a step and plans it; returns the callable's handle.
    pub(super) async fn make_callable(self: &Arc<Self>, options: CallableOptions) -> Result<i64> {
        let CallableOptions { feed, fetch, target, run_options, tensor_connection, .. } = options;
        let request = Signature { feeds: feed, fetches: fetch, targets: target };
        let prepared = if tensor_connection.is_empty() {
            self.prepare(request).await?
        } else {
            // The plan belongs to a modified graph, so it must not enter the session's cache.
            let session = self.clone();
            let connected = async move {
                let graph = connect(&session.graph(), &tensor_connection)?;
                Prepared::new(request, async |signature| session.build(&graph, signature).await).await
            };
            self.env().pool.complete(connected).await?
        };
        let callable = Callable { prepared, options: run_options.unwrap_or_default() };
        Ok(self.callables.insert(callable))
    }

    /// Runs a callable; feeds and fetches are in the order of its names.
    pub(super) async fn run_callable(&self, handle: i64, feeds: Vec<Tensor>) -> Result<CallableOutcome> {
        let callable = self.callables.get(handle)?;
        let prepared = &callable.prepared;
        ensure!(
            feeds.len() == prepared.feed_count(),
            InvalidArgument,
            "RunCallable expects {} feeds for callable {handle}, got {}",
            prepared.feed_count(),
            feeds.len()
        );
        let feeds = prepared.order_feeds(feeds);
        let ran = run_plan(self, &prepared.plan, feeds, &callable.options).await;
        let (values, metadata) = ran.inspect_err(|error| self.log_refusal(error, &prepared.signature))?;
        let fetches = prepared.fetch_positions().iter().map(|&position| values[position].clone());
        Ok(CallableOutcome { fetches: fetches.collect(), metadata })
    }
}

impl Callables {
    fn insert(&self, callable: Callable) -> i64 {
        let mut table = self.0.lock().expect(UNPOISONED);
        let handle = table.next;
        table.next += 1;
        table.callables.insert(handle, Arc::new(callable));
        handle
    }

    /// Removes a callable; an unknown handle is ignored.
    pub(super) fn release(&self, handle: i64) {
        self.0.lock().expect(UNPOISONED).callables.remove(&handle);
    }

    fn get(&self, handle: i64) -> Result<Arc<Callable>> {
        let table = self.0.lock().expect(UNPOISONED);
        if let Some(callable) = table.callables.get(&handle) {
            return Ok(callable.clone());
        }
        Err(if (0..table.next).contains(&handle) {
            status!(InvalidArgument, "Attempted to run callable after handle was released: {handle}")
        } else {
            status!(InvalidArgument, "No such callable handle: {handle}")
        })
    }
}

/// Returns the graph with every reader of a `to_tensor` rewired to its `from_tensor`.
fn connect(graph: &Graph, connections: &[TensorConnection]) -> Result<Graph> {
    let mut connected = graph.clone();
    for connection in connections {
        let (from, from_type) = find(graph, &connection.from_tensor)?;
        let (to, to_type) = find(graph, &connection.to_tensor)?;
        ensure!(
            from_type == to_type,
            InvalidArgument,
            "tensor_connection: {} and {} have different types",
            connection.from_tensor,
            connection.to_tensor
        );
        for (id, input) in graph.bypassing(to) {
            connected.node_mut(*id).inputs[*input] = from;
        }
        for id in graph.ids() {
            let inputs = &mut connected.node_mut(id).inputs;
            inputs.iter_mut().filter(|input| **input == to).for_each(|input| *input = from);
        }
    }
    connected.topological_order()?;
    Ok(connected)
}

fn find(graph: &Graph, name: &str) -> Result<(Output, (ferroflow_core::DType, bool))> {
    let (node, index) = parse_tensor_name(name);
    let found = graph.find(node).and_then(|node| {
        let output_type = graph.node(node).data.output_types.get(index as usize)?;
        Some((Output { node, index }, *output_type))
    });
    found.ok_or_else(|| status!(NotFound, "tensor_connection: unable to find tensor {name}"))
}

//! Steps that are fed and fetched over several calls.

use super::connection::Connection;
use super::{check_feed, check_graph};
use ferroflow_core::scope::{Graph, Output};
use ferroflow_core::{Result, Tensor, ensure};
use std::sync::Arc;

/// A step that is fed and fetched over several calls: what one call fetched may decide what the next one feeds. Every node
/// runs at most once. Made by [`Session::partial_run`](super::Session::partial_run).
///
/// The run ends when all declared feeds and fetches are done, when something fails, or with its session.
pub struct PartialRun {
    connection: Arc<Connection>,
    graph: Graph,
    handle: String,
    feeds: Vec<String>,
    fetches: Vec<String>,
}

impl PartialRun {
    pub(super) fn new(
        connection: &Arc<Connection>,
        graph: &Graph,
        feeds: &[&Output],
        fetches: Vec<String>,
        targets: Vec<String>,
    ) -> Result<PartialRun> {
        let feeds: Vec<String> = feeds.iter().map(|output| output.name()).collect();
        let handle = connection.set_up_partial_run(feeds.clone(), fetches.clone(), targets)?;
        Ok(PartialRun { connection: connection.clone(), graph: graph.clone(), handle, feeds, fetches })
    }

    /// Feeds some of the declared outputs and waits for some of the fetches. Each can be fed once and fetched once.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a feed or fetch that was not declared or does not fit.
    pub fn run(&self, feeds: &[(&Output, Tensor)], fetches: &[&Output]) -> Result<Vec<Tensor>> {
        let mut values = Vec::with_capacity(feeds.len());
        for (output, value) in feeds {
            check_graph(output, &self.graph, "feed")?;
            check_feed(output, value)?;
            declared("feed", &output.name(), &self.feeds)?;
            values.push((output.name(), value.clone()));
        }
        for output in fetches {
            check_graph(output, &self.graph, "fetch")?;
            declared("fetch", &output.name(), &self.fetches)?;
        }
        let fetches = fetches.iter().map(|output| output.name()).collect();
        self.connection.continue_partial_run(&self.handle, values, fetches)
    }
}

/// Checks that a name was declared. TensorFlow's servers would end the run over such a mistake.
fn declared(role: &str, name: &str, known: &[String]) -> Result<()> {
    ensure!(
        known.iter().any(|known| known == name),
        InvalidArgument,
        "The {role} {name} was not specified in partial_run_setup: declare it in Session::partial_run, which has {}",
        if known.is_empty() { "none".to_owned() } else { known.join(", ") }
    );
    Ok(())
}

impl std::fmt::Debug for PartialRun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PartialRun({:?} -> {:?})", self.feeds, self.fetches)
    }
}

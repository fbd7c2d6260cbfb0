//! Runs goldens on a runtime and says what differs.

use crate::compare::{Closeness, difference};
use crate::golden::{GoldenCase, GoldenStep};
use ferroflow_core::op::Registry;
use ferroflow_core::{Result, Tensor};
use ferroflow_proto::tensorflow::GraphDef;
use std::collections::BTreeSet;

/// Something that can run graphs as a server does: with sessions, feeds, fetches and targets.
pub trait Runtime {
    /// Opens a session that shares no state with any other.
    fn session(&self, graph: &GraphDef) -> Result<Box<dyn Session>>;

    /// Whether the runtime is meant to run this graph.
    fn supports(&self, _: &GraphDef) -> bool {
        true
    }
}

/// One session.
pub trait Session {
    /// Runs a step; returns the fetched tensors in order.
    fn run(
        &mut self,
        feeds: Vec<(String, Tensor)>,
        fetches: &[String],
        targets: &[String],
    ) -> Result<Vec<Tensor>>;
}

/// The outcome of a case.
#[derive(Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It agrees with stock.
    Passed,
    /// The runtime is not meant to run it.
    Skipped,
    /// It does not, and this is why.
    Failed(String),
}

/// Runs a case and compares every answer.
pub fn run(runtime: &dyn Runtime, case: &GoldenCase) -> Outcome {
    let Some(graph) = &case.graph else {
        return Outcome::Failed("the case has no graph".to_owned());
    };
    if !runtime.supports(graph) {
        return Outcome::Skipped;
    }
    let mut session = match (runtime.session(graph), case.status()) {
        (Ok(session), ferroflow_proto::tensorflow::error::Code::Ok) => session,
        (Ok(_), wanted) => {
            return Outcome::Failed(format!("the session opens, but stock says {}", wanted.as_str_name()));
        }
        (Err(status), _) if status.code() as i32 == case.status => {
            return Outcome::Passed;
        }
        // What stock finds in the first step may be refused when the session opens.
        (Err(status), _) if case.step.first().is_some_and(|step| step.status == status.code() as i32) => {
            return Outcome::Passed;
        }
        (Err(status), wanted) => {
            return Outcome::Failed(format!(
                "opening the session: stock says {}, got {status}",
                wanted.as_str_name()
            ));
        }
    };
    let closeness = Closeness::from_golden(&case.accuracy);
    for (number, step) in case.step.iter().enumerate() {
        if let Err(reason) = run_step(session.as_mut(), step, closeness) {
            return Outcome::Failed(format!("step {number}: {reason}"));
        }
    }
    Outcome::Passed
}

fn run_step(session: &mut dyn Session, step: &GoldenStep, closeness: Closeness) -> Result<(), String> {
    let answer = feeds(step).and_then(|feeds| session.run(feeds, &step.fetch, &step.target));
    let fetched = match answer {
        Ok(_) if step.status != 0 => {
            return Err(format!("succeeds, but stock says {}", step.status().as_str_name()));
        }
        Ok(fetched) => fetched,
        Err(status) if status.code() as i32 != step.status => {
            return Err(format!("stock says {}, got {status}", step.status().as_str_name()));
        }
        Err(status) if !status.message().contains(&step.message_contains) => {
            return Err(format!("{:?} is not in {:?}", step.message_contains, status.message()));
        }
        Err(_) => return Ok(()),
    };
    if fetched.len() != step.fetch.len() {
        return Err(format!("{} fetches, {} answers", step.fetch.len(), fetched.len()));
    }
    for ((name, expected), actual) in step.fetch.iter().zip(&step.expected).zip(&fetched) {
        let expected = Tensor::from_proto(expected).map_err(|status| format!("golden {name}: {status}"))?;
        if let Some(difference) = difference(&expected, actual, closeness) {
            return Err(format!("{name}: {difference}"));
        }
    }
    Ok(())
}

/// The tensors that a step is fed.
pub fn feeds(step: &GoldenStep) -> Result<Vec<(String, Tensor)>> {
    let feed = |feed: &ferroflow_proto::tensorflow::NamedTensorProto| {
        let tensor = Tensor::from_proto(&feed.tensor.clone().unwrap_or_default())?;
        Ok((feed.name.clone(), tensor))
    };
    step.feed.iter().map(feed).collect()
}

/// The ops that a graph uses, in its functions too, and that the registry lacks.
pub fn missing_ops(graph: &GraphDef, registry: &Registry) -> BTreeSet<String> {
    let library = graph.library.as_ref();
    let functions = library.map(|library| library.function.as_slice()).unwrap_or_default();
    let nodes = graph.node.iter().chain(functions.iter().flat_map(|function| &function.node_def));
    let own: BTreeSet<&str> =
        functions.iter().filter_map(|function| Some(function.signature.as_ref()?.name.as_str())).collect();
    nodes
        .map(|node| node.op.as_str())
        .filter(|op| registry.get(op).is_none() && !own.contains(op))
        .map(str::to_owned)
        .collect()
}

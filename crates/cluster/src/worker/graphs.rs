//! The graphs that masters have registered: this task's parts of the steps to come.

use super::sessions::WorkerSession;
use ferroflow_core::device::{Device, DeviceSpec};
use ferroflow_core::graph::{Graph, Library};
use ferroflow_core::{Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::GraphDef;
use ferroflow_runtime::{Executable, RuntimeEnv};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Graphs by handle; handles count from 1.
#[derive(Default)]
pub(super) struct Graphs(Mutex<Table>);

#[derive(Default)]
struct Table {
    graphs: HashMap<String, Arc<Executable>>,
    last: u64,
}

const UNPOISONED: &str = "no panic while graphs are locked";

impl Graphs {
    fn insert(&self, graph: Arc<Executable>) -> String {
        let mut table = self.0.lock().expect(UNPOISONED);
        table.last += 1;
        let handle = format!("{:016x}", table.last);
        table.graphs.insert(handle.clone(), graph);
        handle
    }

    fn get(&self, handle: &str) -> Option<Arc<Executable>> {
        self.0.lock().expect(UNPOISONED).graphs.get(handle).cloned()
    }

    fn remove(&self, handle: &str) -> Option<Arc<Executable>> {
        self.0.lock().expect(UNPOISONED).graphs.remove(handle)
    }

    /// How many are registered.
    pub(super) fn len(&self) -> usize {
        self.0.lock().expect(UNPOISONED).graphs.len()
    }
}

impl WorkerSession {
    /// Makes a graph ready to run, which may take a while, and returns its handle.
    pub(super) fn register(&self, def: &GraphDef) -> Result<String> {
        let env = self.env_for(def)?;
        check_devices(def, &env.device)?;
        let mut graph = Graph::new(env.registry.clone());
        graph.extend_planned(def)?;
        Ok(self.graphs.insert(Executable::for_part(graph, &env)?))
    }

    /// A registered graph.
    pub(super) fn graph(&self, handle: &str) -> Result<Arc<Executable>> {
        self.graphs.get(handle).ok_or_else(|| unknown(handle))
    }

    /// Forgets a graph.
    pub(super) fn deregister(&self, handle: &str) -> Result<()> {
        match self.graphs.remove(handle) {
            Some(_) => Ok(()),
            None => Err(unknown(handle)
                .map_message(|message| format!("{message}. Possibly, this worker just restarted."))),
        }
    }

    /// The session's surroundings with the graph's functions in them. A function that differs from an earlier one of the
    /// same name, which stock's optimizers may send with another graph, needs surroundings of its own.
    fn env_for(&self, def: &GraphDef) -> Result<Arc<RuntimeEnv>> {
        let Some(functions) = &def.library else { return Ok(self.env().clone()) };
        let _extending = self.extending_library.lock().expect(UNPOISONED);
        let env = self.env();
        match env.library().with(functions, &env.registry) {
            Ok(library) => {
                env.set_library(Arc::new(library));
                Ok(env.clone())
            }
            Err(_) => {
                let library = Library::default().with(functions, &env.registry)?;
                Ok(env.with_library(Arc::new(library)))
            }
        }
    }
}

fn unknown(handle: &str) -> Status {
    status!(Aborted, "Graph handle is not found: {handle}")
}

/// Every node must name a device of this task.
fn check_devices(def: &GraphDef, device: &Device) -> Result<()> {
    let mut known = "";
    for node in &def.node {
        if node.device == known && !known.is_empty() {
            continue;
        }
        ensure!(
            !node.device.is_empty(),
            InvalidArgument,
            "Node '{}' is missing a device specification",
            node.name
        );
        match DeviceSpec::parse(&node.device) {
            Ok(spec) if spec.matches(device.spec()) => known = &node.device,
            _ => bail!(InvalidArgument, "{} unknown device.", node.device),
        }
    }
    Ok(())
}

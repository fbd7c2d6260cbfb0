//! The graphs that masters have registered: this task's parts of future steps.

use super::sessions::WorkerSession;
use ferroflow_core::device::DeviceSpec;
use ferroflow_core::graph::{Graph, Library};
use ferroflow_core::{Result, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::GraphDef;
use ferroflow_runtime::plan::partition::{Borders, split};
use ferroflow_runtime::{Executable, RuntimeEnv};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Graphs by handle. Handles count up from 1.
#[derive(Default)]
pub(super) struct Graphs(Mutex<Table>);

#[derive(Default)]
struct Table {
    graphs: HashMap<String, Arc<TaskGraph>>,
    last: u64,
}

/// A registered graph: one part per device of the task.
pub(super) struct TaskGraph {
    pub(super) parts: Vec<Arc<Executable>>,
    /// True if its master may ask for the costs of a run.
    pub(super) models_costs: bool,
}

const UNPOISONED: &str = "no panic while graphs are locked";

impl Graphs {
    fn insert(&self, graph: TaskGraph) -> String {
        let mut table = self.0.lock().expect(UNPOISONED);
        table.last += 1;
        let handle = format!("{:016x}", table.last);
        table.graphs.insert(handle.clone(), Arc::new(graph));
        handle
    }

    fn get(&self, handle: &str) -> Option<Arc<TaskGraph>> {
        self.0.lock().expect(UNPOISONED).graphs.get(handle).cloned()
    }

    fn remove(&self, handle: &str) -> Option<Arc<TaskGraph>> {
        self.0.lock().expect(UNPOISONED).graphs.remove(handle)
    }

    /// Returns the number of registered graphs.
    pub(super) fn len(&self) -> usize {
        self.0.lock().expect(UNPOISONED).graphs.len()
    }
}

impl WorkerSession {
    /// Prepares a graph to run, which may take a while, and returns its handle.
    pub(super) fn register(&self, def: &GraphDef, models_costs: bool) -> Result<String> {
        let envs = self.envs_for(def)?;
        check_devices(def, &envs)?;
        let mut graph = Graph::new(self.env().registry.clone());
        graph.extend_planned(def)?;
        self.name_devices(&mut graph);
        let [first, others @ ..] = &envs[..] else { bail!(Internal, "a session has a device") };
        if others.is_empty() {
            let parts = vec![Executable::for_part(graph, first)?];
            return Ok(self.graphs.insert(TaskGraph { parts, models_costs }));
        }
        let borders = Borders {
            client: first.device.name(),
            incarnation: &|device| self.env_on(device).map_or(0, |env| env.device.incarnation()),
            next_id: &self.next_edge,
            bfloat16: false,
        };
        let parts = split(graph, &borders)?.into_iter().map(|part| {
            let env = envs.iter().find(|env| env.device.name() == part.device);
            Executable::for_part(part.graph, env.ok_or_else(|| unknown_device(&part.device))?)
        });
        let parts = parts.collect::<Result<_>>()?;
        Ok(self.graphs.insert(TaskGraph { parts, models_costs }))
    }

    /// Completes abbreviated device names.
    fn name_devices(&self, graph: &mut Graph) {
        for id in graph.ids() {
            let device = &graph.node(id).data.device;
            if self.env_on(device).is_some() {
                continue;
            }
            let Ok(spec) = DeviceSpec::parse(device) else { continue };
            if let Some(env) = self.envs().iter().find(|env| spec.matches(env.device.spec())) {
                graph.set_device(id, env.device.name());
            }
        }
    }

    /// Returns a registered graph.
    pub(super) fn graph(&self, handle: &str) -> Result<Arc<TaskGraph>> {
        self.graphs.get(handle).ok_or_else(|| unknown(handle))
    }

    /// Removes a graph.
    pub(super) fn deregister(&self, handle: &str) -> Result<()> {
        match self.graphs.remove(handle) {
            Some(_) => Ok(()),
            None => Err(unknown(handle)
                .map_message(|message| format!("{message}. Possibly, this worker just restarted."))),
        }
    }

    /// Returns the session's environments with the graph's functions added. A function that differs from an earlier one
    /// of the same name, which stock's optimizers may send with another graph, requires environments of its own.
    fn envs_for(&self, def: &GraphDef) -> Result<Vec<Arc<RuntimeEnv>>> {
        let Some(functions) = &def.library else { return Ok(self.envs().to_vec()) };
        let _extending = self.extending_library.lock().expect(UNPOISONED);
        let env = self.env();
        match env.library().with(functions, &env.registry) {
            Ok(library) => {
                self.set_library(&Arc::new(library));
                Ok(self.envs().to_vec())
            }
            Err(_) => {
                let library = Arc::new(Library::default().with(functions, &env.registry)?);
                Ok(self.envs().iter().map(|env| env.with_library(library.clone())).collect())
            }
        }
    }
}

fn unknown(handle: &str) -> Status {
    status!(Aborted, "Graph handle is not found: {handle}")
}

fn unknown_device(device: &str) -> Status {
    status!(InvalidArgument, "{device} unknown device.")
}

/// Fails unless every node names a device of this task.
fn check_devices(def: &GraphDef, envs: &[Arc<RuntimeEnv>]) -> Result<()> {
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
            Ok(spec) if envs.iter().any(|env| spec.matches(env.device.spec())) => known = &node.device,
            _ => return Err(unknown_device(&node.device)),
        }
    }
    Ok(())
}

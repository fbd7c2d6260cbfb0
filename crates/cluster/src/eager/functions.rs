//! The functions that a client has registered in a context.

use super::account::Share;
use super::api::{NewComponent, Registrar};
use super::context::Context;
use ferroflow_core::graph::Library;
use ferroflow_core::{Result, bail, status};
use ferroflow_proto::tensorflow::attr_value::Value;
use ferroflow_proto::tensorflow::{FunctionDef, FunctionDefLibrary, NodeDef};
use prost::Message;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

const UNPOISONED: &str = "no panic while functions are locked";

/// Bytes of memory charged for each byte of a function's encoding.
const DECODED: usize = 8;

/// Functions by name. Those that clients call are also in the library of the context's devices.
#[derive(Default)]
pub(super) struct Functions {
    registered: Mutex<HashMap<String, Registered>>,
    components: Mutex<HashMap<String, Arc<Component>>>,
}

struct Registered {
    /// Registrations that the client has not removed since.
    count: usize,
    _share: Share,
}

/// A part of a function that another task has cut, and what it calls.
pub(super) struct Component {
    pub(super) definition: FunctionDef,
    pub(super) library: Arc<Library>,
    registrar: Option<Registrar>,
    /// Devices of other tasks that send it tensors, with the incarnations that they had when it was cut.
    senders: Vec<(String, u64)>,
    _share: Share,
}

impl Functions {
    /// A part of a function.
    pub(super) fn component(&self, name: &str) -> Result<Arc<Component>> {
        let component = self.components.lock().expect(UNPOISONED).get(name).cloned();
        component.ok_or_else(|| {
            status!(Internal, "Could not find function library for registered component function: {name}")
        })
    }

    /// Forgets parts that receive tensors of tasks that have been started again or are gone. They were cut by such a
    /// task, or by one that cuts anew because its cluster has changed.
    pub(super) fn forget_lost_components(&self, incarnations: &HashMap<String, u64>) {
        let is_there = |(device, incarnation): &(String, u64)| incarnations.get(device) == Some(incarnation);
        self.take_components(|component| !component.senders.iter().all(is_there));
    }

    /// Forgets all parts.
    pub(super) fn clear_components(&self) {
        self.take_components(|_| true);
    }

    /// Number of functions that the client has registered.
    pub(super) fn len(&self) -> usize {
        self.registered.lock().expect(UNPOISONED).len()
    }

    /// Number of parts of functions that other tasks have registered.
    pub(super) fn component_count(&self) -> usize {
        self.components.lock().expect(UNPOISONED).len()
    }

    fn take_components(&self, is_over: impl Fn(&Component) -> bool) -> Vec<String> {
        let mut components = self.components.lock().expect(UNPOISONED);
        let taken: Vec<_> = components.extract_if(|_, component| is_over(component)).collect();
        drop(components);
        taken.into_iter().map(|(name, _)| name).collect()
    }
}

impl Context {
    /// Makes a function known, or a part of one with what it calls.
    pub(super) fn register(&self, definition: FunctionDef, component: Option<NewComponent>) -> Result<()> {
        let Some(name) = definition.signature.as_ref().map(|signature| signature.name.clone()) else {
            bail!(InvalidArgument, "a function has no signature")
        };
        let env = self.session.env();
        let charge = |bytes: usize| self.account.charge(bytes * DECODED);
        if let Some(NewComponent { mut library, registrar }) = component {
            let share = charge(definition.encoded_len() + library.encoded_len())?;
            let is_here = |device: &str| self.session.env_on(device).is_some();
            let senders = definition.node_def.iter().filter_map(sender);
            let senders = senders.filter(|(device, _)| !is_here(device)).collect();
            library.function.retain(|function| {
                function.signature.as_ref().is_some_and(|signature| signature.name != name)
            });
            let library = Arc::new(Library::default().with(&library, &env.registry)?);
            let component = Component { definition, library, registrar, senders, _share: share };
            self.register_component(name, component);
            return Ok(());
        }
        // Held while the library grows, so that none of two that come at once is lost.
        let mut registered = self.functions.registered.lock().expect(UNPOISONED);
        let more = FunctionDefLibrary { function: vec![definition], ..Default::default() };
        let library = env.library().with(&more, &env.registry).map_err(|error| {
            if !registered.contains_key(&name) {
                return error;
            }
            status!(
                InvalidArgument,
                "Attempting to add a duplicate function with name: {name} where the previous and current definitions \
                 differ."
            )
        })?;
        match registered.get_mut(&name) {
            Some(known) => known.count += 1,
            None => {
                let share = charge(more.encoded_len())?;
                registered.insert(name, Registered { count: 1, _share: share });
            }
        }
        self.session.set_library(&Arc::new(library));
        Ok(())
    }

    fn register_component(&self, name: String, component: Component) {
        // A task that was lost, or whose context was replaced, cannot say what it does not need any more.
        let outdated = match &component.registrar {
            None => Vec::new(),
            Some(registrar) => self.functions.take_components(|known| {
                let known = known.registrar.as_ref();
                known.is_some_and(|known| known.task == registrar.task && known.number != registrar.number)
            }),
        };
        let replaced =
            self.functions.components.lock().expect(UNPOISONED).insert(name.clone(), Arc::new(component));
        drop(replaced);
        let plans = &self.view().plans;
        outdated.iter().chain([&name]).for_each(|name| plans.forget(name));
    }

    /// Forgets parts of functions; those that are not known are fine.
    pub(super) fn forget_components(&self, names: &[String]) {
        let plans = &self.view().plans;
        for name in names {
            let forgotten = self.functions.components.lock().expect(UNPOISONED).remove(name);
            if forgotten.is_some() {
                plans.forget(name);
            }
        }
    }

    /// Forgets a function once it has been removed as often as it was registered.
    pub(super) fn remove_function(&self, name: &str) -> Result<()> {
        let mut registered = self.functions.registered.lock().expect(UNPOISONED);
        let Some(known) = registered.get_mut(name) else {
            bail!(InvalidArgument, "Tried to remove non-existent function '{name}'.")
        };
        known.count -= 1;
        if known.count > 0 {
            return Ok(());
        }
        registered.remove(name);
        let library = self.session.env().library().without(name);
        self.session.set_library(&Arc::new(library));
        drop(registered);
        self.view().plans.forget(name);
        Ok(())
    }
}

/// The device that sends a node its tensor, and that device's incarnation.
fn sender(node: &NodeDef) -> Option<(String, u64)> {
    if !matches!(node.op.as_str(), "_Recv" | "_HostRecv") {
        return None;
    }
    let value = |name: &str| node.attr.get(name)?.value.as_ref();
    match (value("send_device")?, value("send_device_incarnation")?) {
        (Value::S(device), Value::I(incarnation)) => {
            Some((String::from_utf8_lossy(device).into_owned(), *incarnation as u64))
        }
        _ => None,
    }
}

//! The functions that a client has registered in a context.

use super::account::Share;
use super::context::Context;
use ferroflow_core::graph::Library;
use ferroflow_core::{Result, bail, status};
use ferroflow_proto::tensorflow::{FunctionDef, FunctionDefLibrary};
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
}

impl Context {
    /// Makes a function known, or a part of one with what it calls.
    pub(super) fn register(
        &self,
        definition: FunctionDef,
        component: Option<FunctionDefLibrary>,
    ) -> Result<()> {
        let Some(name) = definition.signature.as_ref().map(|signature| signature.name.clone()) else {
            bail!(InvalidArgument, "a function has no signature")
        };
        let env = self.session.env();
        let charge = |bytes: usize| self.account.charge(bytes * DECODED);
        if let Some(mut library) = component {
            let share = charge(definition.encoded_len() + library.encoded_len())?;
            library.function.retain(|function| {
                function.signature.as_ref().is_some_and(|signature| signature.name != name)
            });
            let library = Arc::new(Library::default().with(&library, &env.registry)?);
            let component = Arc::new(Component { definition, library, _share: share });
            self.functions.components.lock().expect(UNPOISONED).insert(name.clone(), component);
            self.plans.forget(&name);
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
        self.plans.forget(name);
        Ok(())
    }
}

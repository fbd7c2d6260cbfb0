//! The environment that all plans of a session share on one device: ops, state, threads, stateful kernels and
//! functions. Created with the session, before any plan.

use crate::pool::ComputePool;
use ferroflow_core::device::Device;
use ferroflow_core::graph::Library;
use ferroflow_core::kernel::Kernel;
use ferroflow_core::op::Registry;
use ferroflow_core::resource::ResourceManager;
use ferroflow_core::{BoxFuture, Result, Tensor};
use ferroflow_proto::tensorflow::NameAttrList;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};

/// Functions that other devices run, as far as the session knows any.
pub trait OtherDevices: Send + Sync {
    /// Runs a function on a device and returns its results.
    fn call(
        self: Arc<Self>,
        function: NameAttrList,
        device: String,
        arguments: Vec<Tensor>,
    ) -> BoxFuture<Result<Vec<Tensor>>>;
}

/// The environment of every plan of one session on one device.
pub struct RuntimeEnv {
    /// The ops.
    pub registry: Registry,
    /// The device that runs the nodes.
    pub device: Arc<Device>,
    /// State that outlives steps.
    pub resources: Arc<ResourceManager>,
    /// Threads for long steps and large kernels.
    pub pool: Arc<ComputePool>,
    /// Kernels of stateful nodes of the session's graph, by node name. Made once, so that, for example, a random stream
    /// continues no matter which signature runs the node. Names inside a function are local to it, so kernels there
    /// belong to the plan's instance of the function.
    kernels: Mutex<HashMap<String, Arc<Kernel>>>,
    /// Kernels of nodes that own a resource, by node name. Shared by all environments of a session, because the kernel
    /// may be the resource's only owner.
    holders: Arc<Mutex<HashMap<String, Arc<Kernel>>>>,
    /// The function library, which grows with the session's graph.
    library: Mutex<Arc<Library>>,
    /// Runs functions on other devices; shared by all environments of a session.
    others: Arc<OnceLock<Weak<dyn OtherDevices>>>,
}

const UNPOISONED: &str = "no panic while the session's tables are locked";

impl RuntimeEnv {
    /// An environment without functions.
    pub fn new(
        registry: Registry,
        device: Arc<Device>,
        resources: Arc<ResourceManager>,
        pool: Arc<ComputePool>,
    ) -> Arc<RuntimeEnv> {
        device.set_background(pool.clone());
        Arc::new(RuntimeEnv {
            registry,
            device,
            resources,
            pool,
            kernels: Mutex::default(),
            holders: Arc::default(),
            library: Mutex::default(),
            others: Arc::default(),
        })
    }

    /// An environment of the same session with other functions.
    pub fn with_library(&self, library: Arc<Library>) -> Arc<RuntimeEnv> {
        Arc::new(RuntimeEnv {
            registry: self.registry.clone(),
            device: self.device.clone(),
            resources: self.resources.clone(),
            pool: self.pool.clone(),
            kernels: Mutex::default(),
            holders: self.holders.clone(),
            library: Mutex::new(library),
            others: self.others.clone(),
        })
    }

    /// An environment with these functions for a value that may outlive the session: it knows none of the session's
    /// kernels, which may own the value.
    pub(crate) fn detached(&self, library: Arc<Library>) -> Arc<RuntimeEnv> {
        Arc::new(RuntimeEnv {
            registry: self.registry.clone(),
            device: self.device.clone(),
            resources: self.resources.clone(),
            pool: self.pool.clone(),
            kernels: Mutex::default(),
            holders: Arc::default(),
            library: Mutex::new(library),
            others: self.others.clone(),
        })
    }

    /// Has functions that are called on other devices run there. Only the first call counts.
    pub fn connect(&self, others: Weak<dyn OtherDevices>) {
        let _ = self.others.set(others);
    }

    /// Returns the part that runs functions on other devices.
    pub(crate) fn others(&self) -> Option<Arc<dyn OtherDevices>> {
        self.others.get()?.upgrade()
    }

    /// Replaces the function library after the graph has grown.
    pub fn set_library(&self, library: Arc<Library>) {
        *self.library.lock().expect(UNPOISONED) = library;
    }

    /// The current function library.
    pub fn library(&self) -> Arc<Library> {
        self.library.lock().expect(UNPOISONED).clone()
    }

    /// The kernel of a stateful node of the session's graph; created by `make` the first time.
    pub(crate) fn stateful_kernel(
        &self,
        node: &str,
        holds_resource: bool,
        make: impl FnOnce() -> Result<Kernel>,
    ) -> Result<Arc<Kernel>> {
        let kernels = if holds_resource { &*self.holders } else { &self.kernels };
        if let Some(kernel) = kernels.lock().expect(UNPOISONED).get(node) {
            return Ok(kernel.clone());
        }
        // Created outside the lock: creating a kernel may instantiate functions.
        let kernel = Arc::new(make()?);
        Ok(kernels.lock().expect(UNPOISONED).entry(node.to_owned()).or_insert(kernel).clone())
    }
}

//! Functions: found by name, planned on the first call, run as steps within a step.

use crate::env::RuntimeEnv;
use crate::executable::Executable;
use ferroflow_core::attr::Attrs;
use ferroflow_core::graph::FunctionBody;
use ferroflow_core::kernel::{Callable, FunctionLibrary, Kernel, Outputs};
use ferroflow_core::step::StepCx;
use ferroflow_core::{BoxFuture, Result, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::{AttrValue, FunctionDef, NameAttrList};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock, Weak};

/// Deeper calls than this are taken for a recursion without end. Each takes a part of the thread's stack.
const MAX_CALL_DEPTH: usize = 200;

/// A function with its attributes bound.
pub(crate) struct FunctionInstance {
    name: String,
    definition: Arc<FunctionDef>,
    attrs: BTreeMap<String, AttrValue>,
    /// Weak, because the session's kernels hold instances and the session holds its kernels.
    env: Weak<RuntimeEnv>,
    executable: OnceLock<Result<Arc<Executable>>>,
}

impl FunctionInstance {
    fn executable(&self) -> Result<Arc<Executable>> {
        let plan = || {
            let Some(env) = self.env.upgrade() else {
                bail!(Cancelled, "the session of {} is closed", self.name)
            };
            let body = FunctionBody::new(&env.registry, &env.library(), &self.definition, &self.attrs)?;
            Executable::from_function(body, &env)
        };
        self.executable.get_or_init(plan).clone()
    }
}

impl Callable for FunctionInstance {
    fn call(self: Arc<Self>, arguments: Vec<Tensor>, step: Arc<StepCx>) -> BoxFuture<Result<Vec<Tensor>>> {
        Box::pin(async move {
            let depth = step.depth;
            ensure!(
                depth < MAX_CALL_DEPTH,
                ResourceExhausted,
                "function {} is called {depth} levels deep, which looks like a recursion without end",
                self.name
            );
            self.executable()?.call(arguments, step.nested())?.await
        })
    }

    fn name(&self) -> &str {
        &self.name
    }
}

struct EnvLibrary(Weak<RuntimeEnv>);

/// The session's functions as kernels see them.
pub(crate) fn library(env: &Arc<RuntimeEnv>) -> Arc<dyn FunctionLibrary> {
    Arc::new(EnvLibrary(Arc::downgrade(env)))
}

impl FunctionLibrary for EnvLibrary {
    fn instantiate(&self, function: &NameAttrList) -> Result<Arc<dyn Callable>> {
        let Some(env) = self.0.upgrade() else {
            bail!(Cancelled, "the session of {} is closed", function.name)
        };
        let definition = env.library().get(&function.name).cloned();
        let definition =
            definition.ok_or_else(|| status!(NotFound, "Function {} is not defined.", function.name))?;
        let key = format!("{} {:?}", function.name, function.attr);
        let mut instances = env.instances.lock().expect("no panic while instances are locked");
        let instance = instances.entry(key).or_insert_with(|| {
            Arc::new(FunctionInstance {
                name: function.name.clone(),
                definition,
                attrs: function.attr.clone(),
                env: self.0.clone(),
                executable: OnceLock::new(),
            })
        });
        Ok(instance.clone())
    }
}

/// The kernel of a node whose op is a function's name.
pub(crate) fn call_kernel(library: &Arc<dyn FunctionLibrary>, name: &str, attrs: &Attrs) -> Result<Kernel> {
    let function = library.instantiate(&NameAttrList { name: name.to_owned(), attr: attrs.0.clone() })?;
    Kernel::future(move |mut cx| {
        let function = function.clone();
        async move {
            let arguments = cx.take_all()?;
            Ok(Outputs::from(function.call(arguments, cx.step().clone()).await?))
        }
    })
}

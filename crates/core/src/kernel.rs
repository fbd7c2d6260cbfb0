//! Kernels: functions from attributes to a closure. Attributes are read once, when a plan is made; the closure runs in
//! every step, called by the executor with a context.

mod cx;
mod function;
mod init;
mod value;

pub use cx::{FrameIteration, FutureCx, KernelCx};
pub use function::{Callable, CapturedFunction, FunctionLibrary, NoFunctions};
pub use init::Init;
pub use value::{Outputs, Value};

use crate::{BoxFuture, Result};

/// A string element.
pub type Str = bytes::Bytes;

type SyncFn = dyn Fn(&mut KernelCx<'_>) -> Result<Outputs> + Send + Sync;
type FutureFn = dyn Fn(FutureCx) -> BoxFuture<Result<Outputs>> + Send + Sync;

/// The closure that runs when a node runs.
pub enum Kernel {
    /// Computes and returns; never waits.
    Sync(Box<SyncFn>),
    /// May wait. The executor polls the future and drops it if the step is cancelled, so every await in it must be safe
    /// to drop.
    Future(Box<FutureFn>),
}

impl Kernel {
    /// A kernel that computes and returns.
    pub fn sync(
        run: impl Fn(&mut KernelCx<'_>) -> Result<Outputs> + Send + Sync + 'static,
    ) -> Result<Kernel> {
        Ok(Kernel::Sync(Box::new(run)))
    }

    /// A kernel that may wait: a queue, a receive, a function call.
    pub fn future<F>(run: impl Fn(FutureCx) -> F + Send + Sync + 'static) -> Result<Kernel>
    where
        F: Future<Output = Result<Outputs>> + Send + 'static,
    {
        Ok(Kernel::Future(Box::new(move |cx| Box::pin(run(cx)))))
    }
}

//! Mutexes of graphs: a lock is a value, and is held as long as anybody holds the value.

use crate::state::watched::Watched;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Op, OpClass, shapes};
use ferroflow_core::resource::{Resource, ResourceHandle};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use std::sync::Arc;
use std::task::Poll;

pub(crate) const OPS: &[&Op] = &[&MUTEX_V2, &MUTEX_LOCK, &CONSUME_MUTEX_LOCK];

static MUTEX_V2: Op = Op {
    name: "MutexV2",
    outputs: &["resource: resource"],
    attrs: &["container: string = ''", "shared_name: string = ''"],
    shape: shapes::scalar,
    kernels: kernels![any mutex_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static MUTEX_LOCK: Op = Op {
    name: "MutexLock",
    inputs: &["mutex: resource"],
    outputs: &["mutex_lock: variant"],
    shape: shapes::scalar,
    kernels: kernels![any lock_kernel],
    ..Op::STATEFUL
};

static CONSUME_MUTEX_LOCK: Op = Op {
    name: "ConsumeMutexLock",
    inputs: &["mutex_lock: variant"],
    kernels: kernels![any consume_kernel],
    cheap: true,
    ..Op::STATEFUL
};

/// Whether a mutex is locked, and who waits for it.
struct GraphMutex(Arc<Watched<bool>>);

impl Resource for GraphMutex {
    fn type_name(&self) -> &'static str {
        MUTEX
    }

    fn cancel_waiters(&self) {
        self.0.abandon();
    }
}

/// Unlocks when dropped.
struct Lock(Arc<Watched<bool>>);

impl Drop for Lock {
    fn drop(&mut self) {
        self.0.change(|locked| *locked = false);
    }
}

const MUTEX: &str = "N10tensorflow12_GLOBAL__N_15MutexE";
const LOCK: &str = "tensorflow::LockReleaser";

impl VariantValue for Lock {
    fn type_name(&self) -> &str {
        LOCK
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        bail!(InvalidArgument, "the lock of a mutex cannot leave the task that has the mutex")
    }
}

fn mutex_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (container, name) = init.resource_name()?;
    Kernel::sync(move |cx| {
        let mutex = cx
            .step()
            .resources
            .lookup_or_create(&container, &name, || Ok(GraphMutex(Arc::new(Watched::new(false)))))?;
        let device = cx.device().name();
        let handle = ResourceHandle::named(device, &container, &name, mutex.type_name(), Vec::new());
        Ok(Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])?.into())
    })
}

/// The mutex behind the only input; the first lock makes it.
fn mutex(cx: &KernelCx<'_>) -> Result<Arc<Watched<bool>>> {
    let handle = cx.handle(0)?;
    ensure!(handle.type_name() == MUTEX, InvalidArgument, "{} is not the handle of a mutex", handle.name());
    let new = || Ok(GraphMutex(Arc::new(Watched::new(false))));
    let mutex = cx.step().resources.lookup_or_create(handle.container(), handle.name(), new)?;
    Ok(mutex.0.clone())
}

fn lock_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let mutex = mutex(&cx.cx())?;
        let acquired = mutex.until("A mutex", |locked| {
            if *locked {
                return Poll::Pending;
            }
            *locked = true;
            Poll::Ready(Ok(()))
        });
        acquired.await?;
        let lock = Variant::new(Lock(mutex));
        Ok(Tensor::from_units(DType::Variant, Shape::scalar(), vec![lock])?.into())
    })
}

/// Takes the lock so that it lives until here.
fn consume_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let lock = cx.take(0)?;
        ensure!(
            lock.units::<Variant>()?.first().is_some_and(|lock| lock.downcast::<Lock>().is_some()),
            InvalidArgument,
            "Expected input to contain a SharedLockReleaser object, but saw variant: '{lock:?}'"
        );
        Ok(Outputs::None)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;

    #[test]
    fn a_lock_that_is_dropped_lets_the_next_one_in() {
        let mutex = Arc::new(Watched::new(true));
        let held = Lock(mutex.clone());
        let free = |locked: &mut bool| if *locked { Poll::Pending } else { Poll::Ready(Ok(())) };
        let mut next = Box::pin(mutex.until("it", free));
        assert!((&mut next).now_or_never().is_none());
        drop(held);
        assert!(next.now_or_never().unwrap().is_ok());
    }
}

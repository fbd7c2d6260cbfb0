//! Iterators: resources that run a dataset.

use super::background::{restored_buffer, save_buffer};
use super::context::Instances;
use super::seeds::{DrawnSeeds, SeedLog};
use super::state::{Restorer, Saver, StateWriter};
use super::{Dataset, Element, IteratorCx, Source, SourceCx};
use ferroflow_core::resource::Resource;
use ferroflow_core::step::StepCx;
use ferroflow_core::{Code, DType, PartialShape, Result, Tensor, bail, ensure, status};
use futures_util::lock::Mutex as AsyncMutex;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

/// A running dataset.
pub(crate) struct Running {
    /// Held by one consumer at a time, across its waits.
    inside: AsyncMutex<Inside>,
    dataset: Dataset,
    /// Declared after the source, so that it ends last.
    cx: Arc<IteratorCx>,
    /// The number of elements that were taken; `None` if it goes on from a state that does not say.
    taken: Mutex<Option<u64>>,
}

/// The pipeline of an iterator.
struct Inside {
    source: Box<dyn Source>,
    /// Elements that were made before they were asked for: stock has a prefetch there.
    ahead: VecDeque<Result<Element>>,
    /// True while an element is being made, also after the consumer who wanted it has gone.
    amid: bool,
}

impl Running {
    /// Runs a dataset.
    pub(crate) fn new(
        dataset: &Dataset,
        step: &StepCx,
        instances: &Arc<Instances>,
        name: &str,
    ) -> Result<Arc<Running>> {
        Running::open(dataset, IteratorCx::new(step, instances, name))
    }

    fn open(dataset: &Dataset, cx: Arc<IteratorCx>) -> Result<Arc<Running>> {
        let inside = Inside { source: dataset.open(&cx)?, ahead: VecDeque::new(), amid: false };
        let (inside, taken) = (AsyncMutex::new(inside), Mutex::new(Some(0)));
        Ok(Arc::new(Running { inside, dataset: dataset.clone(), cx, taken }))
    }

    /// The next element; `None` at the end. Consumers take turns.
    pub(crate) async fn next(&self) -> Result<Option<Element>> {
        let mut consumer = self.cx.consumer();
        let mut inside = self.inside.lock().await;
        let next = match inside.ahead.pop_front() {
            Some(element) => element.map(Some),
            None => {
                inside.amid = true;
                let next = poll_fn(|task| inside.source.poll_next(&mut SourceCx::new(task))).await;
                inside.amid = false;
                next
            }
        };
        consumer.served = true;
        let next = next?;
        if next.is_some()
            && let Some(taken) = &mut *self.taken.lock().expect("no panic while counting")
        {
            *taken += 1;
        }
        Ok(next)
    }

    /// The state, from which an iterator over the same dataset can go on.
    pub(crate) async fn save(&self) -> Result<Saved> {
        let mut inside = self.inside.lock().await;
        let saved = poll_fn(|task| inside.poll_save(&mut SourceCx::new(task))).await;
        let taken = *self.taken.lock().expect("no panic while counting");
        match (saved, taken) {
            (Ok(state), _) => Ok(Saved::State(state)),
            (Err(error), Some(taken)) if error.code() == Code::Unimplemented => {
                Ok(Saved::Position(Position { taken, seeds: self.cx.seeds().drawn() }))
            }
            (Err(error), _) => Err(error),
        }
    }
}

impl Inside {
    fn poll_save(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<StateWriter>> {
        ready!(cx.leave_io_thread());
        if self.amid {
            let next = ready!(self.source.poll_next(cx));
            self.amid = false;
            self.ahead.extend(next.transpose());
        }
        let mut state = StateWriter::default();
        let mut to = Saver::root(&mut state);
        if self.source.works_ahead() {
            if !self.ahead.is_empty() {
                let refusal = status!(Unimplemented, "the state has an element that stock has no place for");
                return Poll::Ready(Err(refusal));
            }
            ready!(self.source.poll_save(&mut to, cx))?;
        } else {
            // Stock adds a prefetch to pipelines that do not work ahead.
            let mut to = to.stage("Prefetch");
            ready!(self.source.poll_save(&mut to, cx))?;
            save_buffer(self.ahead.iter(), &mut to);
        }
        Poll::Ready(Ok(state))
    }

    fn restore(&mut self, from: &Restorer) -> Result<()> {
        if self.source.is_prefetch() || !from.has("Prefetch") {
            return self.source.restore(from);
        }
        let from = from.stage(&["Prefetch"])?;
        self.source.restore(&from)?;
        self.ahead = restored_buffer(&from)?;
        Ok(())
    }
}

/// The state of an iterator.
pub(crate) enum Saved {
    /// The states of all stages, as stock has them.
    State(StateWriter),
    /// The place, where a stage has a state that stock cannot read.
    Position(Position),
}

/// A place in the elements of a dataset: how many were taken, and the seeds of its order.
pub(crate) struct Position {
    pub(crate) taken: u64,
    pub(crate) seeds: Vec<DrawnSeeds>,
}

/// Runs a dataset once, from a kernel.
pub(crate) struct OneRun {
    source: Box<dyn Source>,
    pub(crate) cx: Arc<IteratorCx>,
}

impl OneRun {
    /// Runs a dataset for an op.
    pub(crate) fn new(dataset: &Dataset, step: &StepCx, op: &str) -> Result<OneRun> {
        let cx = IteratorCx::new(step, &Arc::default(), &format!("the dataset of {op}"));
        Ok(OneRun { source: dataset.open(&cx)?, cx })
    }

    /// The context of a run without a source.
    pub(crate) fn context(step: &StepCx) -> Arc<IteratorCx> {
        IteratorCx::new(step, &Arc::default(), "a dataset")
    }

    /// The next element; `None` at the end.
    pub(crate) async fn next(&mut self) -> Result<Option<Element>> {
        let mut consumer = self.cx.consumer();
        let next = poll_fn(|task| self.source.poll_next(&mut SourceCx::new(task))).await;
        consumer.served = true;
        next
    }
}

/// An iterator under a name or in a handle. It may be initialized again and again.
pub(crate) struct IteratorResource {
    pub(crate) types: Vec<DType>,
    pub(crate) shapes: Vec<PartialShape>,
    running: Mutex<Option<Arc<Running>>>,
    instances: Arc<Instances>,
}

impl IteratorResource {
    /// An iterator that is not initialized.
    pub(crate) fn new(types: &[DType], shapes: &[PartialShape]) -> IteratorResource {
        IteratorResource {
            types: types.to_vec(),
            shapes: shapes.to_vec(),
            running: Mutex::default(),
            instances: Arc::default(),
        }
    }

    /// Starts to run a dataset from its beginning, as an iterator of this name.
    pub(crate) fn initialize(&self, dataset: &Dataset, step: &StepCx, name: &str) -> Result<Arc<Running>> {
        check_types(&self.types, dataset.types())?;
        check_shapes(&self.shapes, dataset.shapes())?;
        let name = format!("iterator {name}");
        let running = Running::new(dataset, step, &self.instances, &name)?;
        let before = self.lock().replace(running.clone());
        // Outside of the lock: it may end much.
        drop(before);
        Ok(running)
    }

    /// Runs the dataset again up to a position, and goes on from there.
    pub(crate) async fn restore(&self, position: Position, step: &StepCx) -> Result<()> {
        let before = self.running("Restore", "restoring it")?;
        let (dataset, name) = (before.dataset.clone(), before.cx.waits().name());
        let seeds = SeedLog::replaying(position.seeds);
        let running = Running::open(&dataset, IteratorCx::with_seeds(step, &Arc::default(), seeds, name))?;
        for _ in 0..position.taken {
            step.check_cancelled()?;
            // An element that failed counts as well as one that came.
            if let Ok(None) = running.next().await {
                break;
            }
        }
        drop(self.lock().replace(running));
        Ok(())
    }

    /// Goes on from the states of all stages.
    pub(crate) async fn restore_state(&self, from: &Restorer, step: &StepCx) -> Result<()> {
        let before = self.running("Restore", "restoring it")?;
        let (dataset, name) = (before.dataset.clone(), before.cx.waits().name());
        let running = Running::open(&dataset, IteratorCx::new(step, &Arc::default(), name))?;
        running.inside.lock().await.restore(from)?;
        *running.taken.lock().expect("no panic while counting") = None;
        drop(self.lock().replace(running));
        Ok(())
    }

    /// The dataset that runs.
    pub(crate) fn running(&self, call: &str, purpose: &str) -> Result<Arc<Running>> {
        match &*self.lock() {
            Some(running) => Ok(running.clone()),
            None => bail!(
                FailedPrecondition,
                "{call}() failed because the iterator has not been initialized. Ensure that you have run the \
                 initializer operation for this iterator before {purpose}."
            ),
        }
    }

    /// The next element; `None` at the end.
    pub(crate) async fn next(&self) -> Result<Option<Element>> {
        self.running("GetNext", "getting the next element")?.next().await
    }

    /// Ends what runs.
    pub(crate) fn stop(&self) {
        drop(self.lock().take());
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Arc<Running>>> {
        self.running.lock().expect("no panic while an iterator is replaced")
    }
}

impl Resource for IteratorResource {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data16IteratorResourceE"
    }

    fn cancel_waiters(&self) {
        self.stop();
    }
}

/// Refuses types other than the expected ones.
pub(crate) fn check_types(expected: &[DType], got: &[DType]) -> Result<()> {
    ensure!(
        expected.len() == got.len(),
        InvalidArgument,
        "Number of components does not match: expected {} types but got {}.",
        expected.len(),
        got.len()
    );
    for (i, (want, have)) in expected.iter().zip(got).enumerate() {
        ensure!(
            want == have,
            InvalidArgument,
            "Data type mismatch at component {i}: expected {want} but got {have}."
        );
    }
    Ok(())
}

/// Refuses shapes that do not fit the expected ones.
pub(crate) fn check_shapes(expected: &[PartialShape], got: &[PartialShape]) -> Result<()> {
    ensure!(
        expected.len() == got.len(),
        InvalidArgument,
        "Number of components does not match: expected {} shapes but got {}.",
        expected.len(),
        got.len()
    );
    for (i, (want, have)) in expected.iter().zip(got).enumerate() {
        ensure!(
            want.is_compatible_with(have),
            InvalidArgument,
            "Incompatible shapes at component {i}: expected {want} but got {have}."
        );
    }
    Ok(())
}

/// Refuses an element that does not have these types and shapes.
pub(crate) fn check_element(types: &[DType], shapes: &[PartialShape], element: &[Tensor]) -> Result<()> {
    ensure!(
        types.len() == element.len(),
        InvalidArgument,
        "Number of components does not match: expected {} types but got {}.",
        types.len(),
        element.len()
    );
    for (i, tensor) in element.iter().enumerate() {
        ensure!(
            tensor.dtype() == types[i],
            InvalidArgument,
            "Data type mismatch at component {i}: expected {} but got {}.",
            types[i],
            tensor.dtype()
        );
        ensure!(
            shapes.get(i).is_none_or(|shape| shape.admits(tensor.shape())),
            InvalidArgument,
            "Incompatible shapes at component {i}: expected {} but got {}.",
            shapes[i],
            tensor.shape()
        );
    }
    Ok(())
}

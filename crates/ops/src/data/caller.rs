//! Captured functions and their calls.

use super::{Activity, Element, IteratorCx, Note, SourceCx};
use ferroflow_core::kernel::{Callable, CapturedFunction};
use ferroflow_core::step::StepCx;
use ferroflow_core::{BoxFuture, Result, Tensor, ensure};
use std::sync::{Arc, Mutex};
use std::task::{Poll, ready};

/// A function with the tensors that it captures.
#[derive(Clone)]
pub(crate) struct Function {
    function: Arc<dyn CapturedFunction>,
    captured: Arc<[Tensor]>,
}

impl Function {
    pub(super) fn new(function: Arc<dyn CapturedFunction>, captured: Vec<Tensor>) -> Function {
        Function { function, captured: captured.into() }
    }

    /// The identity of the function, whatever it captures.
    pub(super) fn address(&self) -> usize {
        Arc::as_ptr(&self.function).cast::<()>() as usize
    }

    pub(super) fn instantiate(&self) -> Result<Arc<dyn Callable>> {
        self.function.instantiate()
    }

    /// A caller for a source of this iterator.
    pub(crate) fn caller(&self, cx: &Arc<IteratorCx>) -> Result<Caller> {
        Ok(Caller {
            callable: cx.instance(self)?,
            captured: self.captured.clone(),
            step: Mutex::new(cx.new_step()),
            cx: cx.clone(),
            pending: None,
            name: self.function.reference().name.as_str().into(),
            note: None,
        })
    }
}

/// A call that runs.
pub(crate) type PendingCall = BoxFuture<Result<Element>>;

/// Calls one function, on the polling thread.
pub(crate) struct Caller {
    callable: Arc<dyn Callable>,
    captured: Arc<[Tensor]>,
    /// The step of the calls, the same one as long as no call leaves state in it.
    step: Mutex<Arc<StepCx>>,
    cx: Arc<IteratorCx>,
    pending: Option<PendingCall>,
    name: Arc<str>,
    /// Set while the call waits for something.
    note: Option<Note>,
}

impl Caller {
    /// Makes a call; the result is to be polled.
    pub(crate) fn call(&self, mut arguments: Element) -> PendingCall {
        arguments.extend(self.captured.iter().cloned());
        let mut step = self.step.lock().expect("no panic while a step is made");
        if !step.step_resources.is_empty() {
            *step = self.cx.new_step();
        }
        self.callable.clone().call(arguments, step.clone())
    }

    /// Returns whether no call is being made.
    #[inline]
    pub(crate) fn is_idle(&self) -> bool {
        self.pending.is_none()
    }

    /// Starts a call, which [`Caller::poll`] drives.
    pub(crate) fn start(&mut self, arguments: Element) {
        self.pending = Some(self.call(arguments));
    }

    /// Drives the call that was started.
    #[inline]
    pub(crate) fn poll(&mut self, cx: &mut SourceCx<'_, '_>) -> Poll<Result<Element>> {
        let Some(pending) = &mut self.pending else { return Poll::Ready(Ok(Vec::new())) };
        let Poll::Ready(results) = pending.as_mut().poll(cx.task) else {
            if self.note.is_none() {
                self.note = self.note_call();
            }
            return Poll::Pending;
        };
        (self.pending, self.note) = (None, None);
        Poll::Ready(results)
    }

    /// Drives the call of a predicate.
    pub(crate) fn poll_bool(&mut self, cx: &mut SourceCx<'_, '_>, what: &str) -> Poll<Result<bool>> {
        let results = ready!(self.poll(cx))?;
        Poll::Ready(predicate(&results, what))
    }

    /// A note that a call waits for something.
    pub(super) fn note_call(&self) -> Option<Note> {
        self.cx.note(Activity::Call(self.name.clone()))
    }

    /// The iterator that the calls are made for.
    pub(crate) fn cx(&self) -> &Arc<IteratorCx> {
        &self.cx
    }
}

/// The verdict of a predicate.
pub(crate) fn predicate(results: &[Tensor], what: &str) -> Result<bool> {
    let is_bool = matches!(results, [verdict, ..]
        if verdict.dtype() == ferroflow_core::DType::Bool && verdict.rank() == 0);
    ensure!(is_bool, InvalidArgument, "{what} must return a scalar bool.");
    results[0].to_scalar()
}

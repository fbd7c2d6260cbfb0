//! Variables. Ref edges (`VariableV2`) and resource handles (`VarHandleOp`) are two ways to reach the same thing.
//!
//! A read shares the value, and a writer copies only if a reader still holds it. Stock copies at every read of a
//! variable whose rows were ever updated; here a table that is saved while nobody updates it is not copied.
//!
//! A read over a ref edge gives a [`View`]: it shows updates until a kernel computes with it, as in stock, where it is
//! the variable's own memory. `docs/reference-variables.md` has the rules.

use super::Resource;
use crate::{DType, Result, Shape, Status, Tensor, ensure, status};
use smallvec::SmallVec;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

/// A mutable tensor with a name.
pub struct Variable {
    dtype: DType,
    name: String,
    /// The shape that the first value must have, if one was declared.
    declared: Option<Shape>,
    /// Locked while an update runs.
    content: RwLock<Content>,
}

#[derive(Default)]
struct Content {
    value: Option<Tensor>,
    /// The identity of the memory in which stock would keep the value; views refer to it.
    memory: Arc<Memory>,
    /// Last values of memory that was replaced while it had views.
    replaced: Vec<(Weak<Memory>, Tensor)>,
}

/// A block of memory that stock would write updates to. Only its address matters.
#[derive(Default)]
struct Memory {
    /// Keeps the type from being zero-sized: allocations of such types may share an address.
    _address: u8,
}

impl Variable {
    /// An uninitialized variable.
    pub fn new(dtype: DType, name: &str) -> Variable {
        Variable { dtype, name: name.to_owned(), declared: None, content: RwLock::default() }
    }

    /// An uninitialized variable that was declared with a shape.
    pub fn declared(dtype: DType, name: &str, shape: Shape) -> Variable {
        Variable { declared: Some(shape), ..Variable::new(dtype, name) }
    }

    /// The shape it was declared with.
    pub fn declared_shape(&self) -> Option<&Shape> {
        self.declared.as_ref()
    }

    /// The element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// The name, for messages.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether a value has been assigned.
    pub fn is_initialized(&self) -> bool {
        self.reading().value.is_some()
    }

    /// The value, which later updates do not change; `None` if uninitialized.
    pub fn snapshot(&self) -> Option<Tensor> {
        self.reading().value.clone()
    }

    /// The value, or stock's error for an uninitialized variable.
    pub fn read(&self) -> Result<Tensor> {
        self.snapshot().ok_or_else(|| self.uninitialized())
    }

    /// Replaces the value.
    pub fn assign(&self, value: Tensor) -> Result<()> {
        ensure!(
            value.dtype() == self.dtype,
            InvalidArgument,
            "Trying to assign variable with wrong dtype. Expected {} got {}",
            self.dtype,
            value.dtype()
        );
        self.modify(|slot| {
            *slot = Some(value);
            Ok(())
        })
    }

    /// Passes the value to a function without cloning it, for gathers from large tables.
    pub fn with<R>(&self, look: impl FnOnce(&Tensor) -> Result<R>) -> Result<R> {
        look(self.reading().value.as_ref().ok_or_else(|| self.uninitialized())?)
    }

    /// Changes the value in place, under the variable's lock.
    pub fn update<R>(&self, change: impl FnOnce(&mut Tensor) -> Result<R>) -> Result<R> {
        change(self.writing().value.as_mut().ok_or_else(|| self.uninitialized())?)
    }

    /// Creates, replaces or clears the value under the lock. Views show a replacement with the same number of elements,
    /// because stock would write it to the same memory; otherwise they keep the old value.
    pub fn modify<R>(&self, change: impl FnOnce(&mut Option<Tensor>) -> Result<R>) -> Result<R> {
        let content = &mut *self.writing();
        let viewed = Arc::strong_count(&content.memory) > 1;
        let before = content.value.clone().filter(|_| viewed);
        let changed = change(&mut content.value);
        if let Some(before) = before
            && content.value.as_ref().is_none_or(|value| value.elements() != before.elements())
        {
            content.replaced.retain(|(memory, _)| memory.strong_count() > 0);
            content.replaced.push((Arc::downgrade(&content.memory), before));
            content.memory = Arc::default();
        }
        changed
    }

    /// Changes several variables at once. Locks are taken in address order, so that concurrent updates cannot deadlock;
    /// a variable may not appear twice.
    pub fn update_all(
        variables: &[&Variable],
        change: &mut dyn FnMut(&mut [&mut Tensor]) -> Result<()>,
    ) -> Result<()> {
        let mut order: SmallVec<[usize; 4]> = (0..variables.len()).collect();
        order.sort_by_key(|i| std::ptr::from_ref(variables[*i]));
        ensure!(
            order.windows(2).all(|pair| !std::ptr::eq(variables[pair[0]], variables[pair[1]])),
            InvalidArgument,
            "the same variable was given for two roles of one update"
        );
        let mut guards: SmallVec<[(usize, RwLockWriteGuard<'_, Content>); 4]> =
            order.into_iter().map(|i| (i, variables[i].writing())).collect();
        guards.sort_by_key(|(i, _)| *i);
        let mut values: SmallVec<[&mut Tensor; 4]> = SmallVec::new();
        for (i, guard) in &mut guards {
            values.push(guard.value.as_mut().ok_or_else(|| variables[*i].uninitialized())?);
        }
        change(&mut values)
    }

    /// The error for a read before the first assignment.
    pub fn uninitialized(&self) -> Status {
        status!(FailedPrecondition, "Attempting to use uninitialized value {}", self.name)
    }

    fn reading(&self) -> RwLockReadGuard<'_, Content> {
        // A kernel that panics during an update leaves a valid, possibly partly updated value.
        self.content.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Content> {
        self.content.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

/// A value read over a ref edge. It shows what the variable's memory holds when it is read, not when the view was made.
pub struct View {
    variable: Arc<Variable>,
    memory: Arc<Memory>,
    dtype: DType,
    shape: Shape,
}

impl View {
    /// A view of a variable's current memory; an error if the variable is uninitialized.
    pub fn new(variable: Arc<Variable>) -> Result<View> {
        let (memory, shape) = {
            let content = variable.reading();
            let value = content.value.as_ref().ok_or_else(|| variable.uninitialized())?;
            (content.memory.clone(), value.shape().clone())
        };
        Ok(View { dtype: variable.dtype, shape, memory, variable })
    }

    /// The same memory with the shape and type of `tensor`, which an op made from what this view showed.
    pub fn in_form_of(&self, tensor: &Tensor) -> View {
        View {
            variable: self.variable.clone(),
            memory: self.memory.clone(),
            dtype: tensor.dtype(),
            shape: tensor.shape().clone(),
        }
    }

    /// The current value, which later updates do not change.
    pub fn read(&self) -> Result<Tensor> {
        let mut tensor = self.shown()?;
        if *tensor.shape() != self.shape {
            tensor = tensor.reshaped(self.shape.clone())?;
        }
        if tensor.dtype() != self.dtype { tensor.bitcast(self.dtype) } else { Ok(tensor) }
    }

    fn shown(&self) -> Result<Tensor> {
        let content = self.variable.reading();
        let shown = if Arc::ptr_eq(&content.memory, &self.memory) {
            content.value.clone()
        } else {
            let mine = |(memory, _): &&(Weak<Memory>, Tensor)| memory.as_ptr() == Arc::as_ptr(&self.memory);
            content.replaced.iter().find(mine).map(|(_, value)| value.clone())
        };
        shown.ok_or_else(|| self.variable.uninitialized())
    }
}

impl Resource for Variable {
    fn type_name(&self) -> &'static str {
        // The mangled C++ name that stock puts into handles of variables.
        "N10tensorflow3VarE"
    }
}

/// A variable reached over ref edges. A separate resource type, as in stock, so names do not clash.
pub struct RefVariable(pub Arc<Variable>);

impl Resource for RefVariable {
    fn type_name(&self) -> &'static str {
        "N10tensorflow9LegacyVarE"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_read_value_does_not_change_under_later_updates() {
        let variable = Variable::new(DType::Float, "v");
        assert!(variable.read().is_err());
        variable.assign(Tensor::scalar(1.0f32)).unwrap();
        let before = variable.read().unwrap();
        variable
            .update(|value| {
                value.flat_mut::<f32>()?[0] += 1.0;
                Ok(())
            })
            .unwrap();
        assert_eq!(before.to_scalar::<f32>().unwrap(), 1.0);
        assert_eq!(variable.read().unwrap().to_scalar::<f32>().unwrap(), 2.0);
    }

    #[test]
    fn a_view_shows_updates_until_the_memory_is_replaced() {
        let variable = Arc::new(Variable::new(DType::Float, "v"));
        assert!(View::new(variable.clone()).is_err());
        let first = |view: &View| view.read().unwrap().flat::<f32>().unwrap()[0];
        variable.assign(Tensor::vector(vec![1.0f32, 1.0])).unwrap();
        let view = View::new(variable.clone()).unwrap();
        let column = Tensor::vector(vec![0.0f32; 2]).reshaped(Shape::new([2, 1]).unwrap()).unwrap();
        let reshaped = view.in_form_of(&column);
        variable
            .update(|value| {
                value.flat_mut::<f32>()?[0] += 1.0;
                Ok(())
            })
            .unwrap();
        assert_eq!((first(&view), first(&reshaped)), (2.0, 2.0));
        variable.assign(Tensor::vector(vec![3.0f32, 3.0])).unwrap();
        assert_eq!(first(&view), 3.0);
        assert_eq!(reshaped.read().unwrap().shape(), column.shape());
        variable.assign(Tensor::scalar(4.0f32)).unwrap();
        variable.assign(Tensor::vector(vec![5.0f32, 5.0])).unwrap();
        assert_eq!((first(&view), first(&reshaped)), (3.0, 3.0));
        drop((view, reshaped));
        let later = View::new(variable.clone()).unwrap();
        variable.assign(Tensor::scalar(6.0f32)).unwrap();
        assert_eq!(first(&later), 5.0);
        assert_eq!(variable.reading().replaced.len(), 1);
    }

    #[test]
    fn several_variables_are_updated_together_but_never_twice() {
        let (a, b) = (Variable::new(DType::Float, "a"), Variable::new(DType::Float, "b"));
        a.assign(Tensor::scalar(1.0f32)).unwrap();
        b.assign(Tensor::scalar(2.0f32)).unwrap();
        Variable::update_all(&[&b, &a], &mut |values| {
            let first = values[0].clone();
            *values[0] = values[1].clone();
            *values[1] = first;
            Ok(())
        })
        .unwrap();
        assert_eq!(a.read().unwrap().to_scalar::<f32>().unwrap(), 2.0);
        assert!(Variable::update_all(&[&a, &a], &mut |_| Ok(())).is_err());
    }
}

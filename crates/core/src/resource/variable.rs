//! Variables. Ref edges (`VariableV2`) and resource handles (`VarHandleOp`) are two ways to reach the same thing.
//!
//! A read shares the value, and a writer copies only if a reader still holds it then. Stock copies at every read of a
//! variable whose rows were once updated; a table that is saved while nobody updates it is not copied here.

use super::Resource;
use crate::{DType, Result, Shape, Status, Tensor, ensure, status};
use smallvec::SmallVec;
use std::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// A mutable tensor with a name.
pub struct Variable {
    dtype: DType,
    name: String,
    /// The shape that the first value must have, if that was declared.
    declared: Option<Shape>,
    /// Locked while an update runs.
    value: RwLock<Option<Tensor>>,
}

impl Variable {
    /// An uninitialized variable.
    pub fn new(dtype: DType, name: &str) -> Variable {
        Variable { dtype, name: name.to_owned(), declared: None, value: RwLock::default() }
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

    /// The name that error texts use.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether a value has been assigned.
    pub fn is_initialized(&self) -> bool {
        self.reading().is_some()
    }

    /// The value; later updates do not change what is returned. `None` if uninitialized.
    pub fn snapshot(&self) -> Option<Tensor> {
        self.reading().clone()
    }

    /// The value, or the error that stock gives for an uninitialized variable.
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
        *self.writing() = Some(value);
        Ok(())
    }

    /// Looks at the value without taking a reference: for gathers from large tables.
    pub fn with<R>(&self, look: impl FnOnce(&Tensor) -> Result<R>) -> Result<R> {
        look(self.reading().as_ref().ok_or_else(|| self.uninitialized())?)
    }

    /// Changes the value in place, under the variable's lock.
    pub fn update<R>(&self, change: impl FnOnce(&mut Tensor) -> Result<R>) -> Result<R> {
        change(self.writing().as_mut().ok_or_else(|| self.uninitialized())?)
    }

    /// Creates, replaces or clears the value under the lock.
    pub fn modify<R>(&self, change: impl FnOnce(&mut Option<Tensor>) -> Result<R>) -> Result<R> {
        change(&mut self.writing())
    }

    /// Changes several variables together. Locks are taken in address order, so that no two updates can deadlock; the
    /// same variable may not appear twice.
    pub fn update_all<R>(
        variables: &[&Variable],
        change: impl FnOnce(&mut [&mut Tensor]) -> Result<R>,
    ) -> Result<R> {
        let mut order: SmallVec<[usize; 4]> = (0..variables.len()).collect();
        order.sort_by_key(|i| std::ptr::from_ref(variables[*i]));
        ensure!(
            order.windows(2).all(|pair| !std::ptr::eq(variables[pair[0]], variables[pair[1]])),
            InvalidArgument,
            "the same variable was given for two roles of one update"
        );
        let mut guards: SmallVec<[(usize, RwLockWriteGuard<'_, Option<Tensor>>); 4]> =
            order.into_iter().map(|i| (i, variables[i].writing())).collect();
        guards.sort_by_key(|(i, _)| *i);
        let mut values: SmallVec<[&mut Tensor; 4]> = SmallVec::new();
        for (i, guard) in &mut guards {
            values.push(guard.as_mut().ok_or_else(|| variables[*i].uninitialized())?);
        }
        change(&mut values)
    }

    /// The status for a read before the first assignment.
    pub fn uninitialized(&self) -> Status {
        status!(FailedPrecondition, "Attempting to use uninitialized value {}", self.name)
    }

    fn reading(&self) -> RwLockReadGuard<'_, Option<Tensor>> {
        // A kernel that panics inside an update leaves a whole, if partly updated, value.
        self.value.read().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn writing(&self) -> RwLockWriteGuard<'_, Option<Tensor>> {
        self.value.write().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl Resource for Variable {
    fn type_name(&self) -> &'static str {
        // The mangled name that stock puts into handles of variables.
        "N10tensorflow3VarE"
    }
}

/// A variable reached over ref edges; a namespace of its own, as in stock.
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
    fn several_variables_are_updated_together_but_never_twice() {
        let (a, b) = (Variable::new(DType::Float, "a"), Variable::new(DType::Float, "b"));
        a.assign(Tensor::scalar(1.0f32)).unwrap();
        b.assign(Tensor::scalar(2.0f32)).unwrap();
        Variable::update_all(&[&b, &a], |values| {
            let first = values[0].clone();
            *values[0] = values[1].clone();
            *values[1] = first;
            Ok(())
        })
        .unwrap();
        assert_eq!(a.read().unwrap().to_scalar::<f32>().unwrap(), 2.0);
        assert!(Variable::update_all(&[&a, &a], |_| Ok(())).is_err());
    }
}

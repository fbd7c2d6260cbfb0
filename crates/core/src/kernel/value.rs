//! What travels along edges, and what a kernel returns.

use crate::resource::{Variable, View};
use crate::{Result, Tensor};
use std::sync::Arc;

/// What an edge carries.
#[derive(Clone, Default)]
pub enum Value {
    /// Nothing yet, or already taken.
    #[default]
    None,
    /// A value.
    Tensor(Tensor),
    /// A reference to a variable; a consumer that wants a value reads the variable when it runs.
    Ref(Arc<Variable>),
    /// The memory that a reference led to when an op took it for a value. Updates show until a consumer runs.
    View(Arc<View>),
}

impl Value {
    /// The value for an op that passes it on as a value: a reference becomes a view.
    #[inline]
    pub fn dereferenced(self) -> Result<Value> {
        match self {
            Value::Ref(variable) => Ok(Value::View(Arc::new(View::new(variable)?))),
            value => Ok(value),
        }
    }

    /// The value; a reference is read now.
    pub fn read(&self) -> Result<Tensor> {
        match self {
            Value::Tensor(tensor) => Ok(tensor.clone()),
            Value::Ref(variable) => variable.read(),
            Value::View(view) => view.read(),
            Value::None => Err(crate::status!(Internal, "an edge without a value was read")),
        }
    }
}

impl From<Tensor> for Value {
    fn from(tensor: Tensor) -> Value {
        Value::Tensor(tensor)
    }
}

/// What a kernel returns.
pub enum Outputs {
    /// No outputs.
    None,
    /// One output.
    One(Value),
    /// Several outputs, in order. [`Value::None`] marks a dead output (only control-flow ops do that).
    Many(Vec<Value>),
    /// Every output is dead.
    Dead,
}

impl Outputs {
    /// The outputs, in order; none of a node that is dead.
    pub fn values(&self) -> &[Value] {
        match self {
            Outputs::One(value) => std::slice::from_ref(value),
            Outputs::Many(values) => values,
            Outputs::None | Outputs::Dead => &[],
        }
    }
}

impl From<()> for Outputs {
    fn from((): ()) -> Outputs {
        Outputs::None
    }
}

impl From<Tensor> for Outputs {
    fn from(tensor: Tensor) -> Outputs {
        Outputs::One(Value::Tensor(tensor))
    }
}

impl From<Value> for Outputs {
    fn from(value: Value) -> Outputs {
        Outputs::One(value)
    }
}

impl From<Vec<Tensor>> for Outputs {
    fn from(tensors: Vec<Tensor>) -> Outputs {
        Outputs::Many(tensors.into_iter().map(Value::Tensor).collect())
    }
}

impl<const N: usize> From<[Tensor; N]> for Outputs {
    fn from(tensors: [Tensor; N]) -> Outputs {
        Outputs::Many(tensors.into_iter().map(Value::Tensor).collect())
    }
}

//! The values on graph edges, and the outputs of a kernel.

use crate::resource::{Variable, View};
use crate::{Result, Tensor};
use std::sync::Arc;

/// The value on an edge.
#[derive(Clone, Default)]
pub enum Value {
    /// No value: not produced yet, taken already, or dead.
    #[default]
    None,
    /// A tensor.
    Tensor(Tensor),
    /// A reference to a variable; a consumer that wants a value reads the variable when it runs.
    Ref(Arc<Variable>),
    /// The memory behind a reference at the time an op took it as a value. Shows updates until a consumer runs.
    View(Arc<View>),
}

impl Value {
    /// The value without a reference: a reference becomes a view.
    #[inline]
    pub fn dereferenced(self) -> Result<Value> {
        match self {
            Value::Ref(variable) => Ok(Value::View(Arc::new(View::new(variable)?))),
            value => Ok(value),
        }
    }

    /// The tensor; a reference or a view is read now.
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

/// The outputs of a kernel.
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
    /// The live outputs, in order; empty if the node is dead.
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

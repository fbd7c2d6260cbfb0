//! Inputs of nodes: an output, or a value that becomes a constant.

use super::{Output, Scope};
use crate::{C64, C128, DType, Element, PartialShape, Result, Shape, Status, Tensor, bail};
use half::{bf16, f16};

/// An input of a node: an [`Output`] (or the `Result` of making one), a [`Tensor`], or plain numbers.
///
/// Numbers (`2.0`, `[0, 1]`, `vec![..]`) take the type of the op's other inputs. If nothing else determines it,
/// integers are `int32` (`int64` from `i64`) and floating-point numbers are `float`, as in stock's Python. Text becomes
/// a string tensor.
#[derive(Clone, Debug)]
pub struct Input(pub(super) InputKind);

#[derive(Clone, Debug)]
pub(super) enum InputKind {
    Output(Output),
    Value(Tensor),
    Numbers(Numbers),
    Failed(Status),
}

impl Input {
    /// The output, or a constant with the value, added to this scope.
    pub fn into_output(self, scope: &Scope) -> Result<Output> {
        match self.0 {
            InputKind::Output(output) => scope.capture(&output),
            InputKind::Value(value) => scope.constant(value),
            InputKind::Numbers(numbers) => scope.constant(numbers.to_tensor(numbers.natural)?),
            InputKind::Failed(error) => Err(error),
        }
    }

    /// The output, if this is one.
    pub fn output(&self) -> Option<&Output> {
        match &self.0 {
            InputKind::Output(output) => Some(output),
            _ => None,
        }
    }

    /// The shape, as far as it is known.
    pub fn known_shape(&self) -> PartialShape {
        match &self.0 {
            InputKind::Output(output) => output.shape(),
            InputKind::Value(value) => value.shape().into(),
            InputKind::Numbers(numbers) => (&numbers.shape).into(),
            InputKind::Failed(_) => PartialShape::unknown(),
        }
    }
}

/// Numbers whose element type the op determines.
#[derive(Clone, Debug)]
pub(super) struct Numbers {
    shape: Shape,
    values: Values,
    /// The type that they have if nothing else determines it.
    pub(super) natural: DType,
}

#[derive(Clone, Debug)]
enum Values {
    Ints(Vec<i64>),
    Floats(Vec<f64>),
}

impl Numbers {
    /// The numbers converted to this element type.
    pub(super) fn to_tensor(&self, dtype: DType) -> Result<Tensor> {
        macro_rules! elements {
            ($values:expr, $($variant:ident => $type:ty, $convert:expr;)+) => {
                match dtype {
                    $(DType::$variant => {
                        let convert = $convert;
                        let converted: Option<Vec<$type>> = $values.iter().map(|v| convert(*v)).collect();
                        match converted {
                            Some(values) => return Tensor::new(self.shape.clone(), values),
                            None => bail!(InvalidArgument, "a number is out of the range of {dtype}"),
                        }
                    })+
                    _ => {}
                }
            };
        }
        match &self.values {
            Values::Ints(values) => {
                elements! { values,
                    Int8 => i8, |v: i64| v.try_into().ok();
                    Int16 => i16, |v: i64| v.try_into().ok();
                    Int32 => i32, |v: i64| v.try_into().ok();
                    Int64 => i64, |v: i64| Some(v);
                    Uint8 => u8, |v: i64| v.try_into().ok();
                    Uint16 => u16, |v: i64| v.try_into().ok();
                    Uint32 => u32, |v: i64| v.try_into().ok();
                    Uint64 => u64, |v: i64| v.try_into().ok();
                };
                let floats = Values::Floats(values.iter().map(|v| *v as f64).collect());
                if dtype.is_floating() || dtype.is_complex() {
                    return Numbers { values: floats, ..self.clone() }.to_tensor(dtype);
                }
            }
            Values::Floats(values) => {
                elements! { values,
                    Half => f16, |v: f64| Some(f16::from_f64(v));
                    Bfloat16 => bf16, |v: f64| Some(bf16::from_f64(v));
                    Float => f32, |v: f64| Some(v as f32);
                    Double => f64, |v: f64| Some(v);
                    Complex64 => C64, |v: f64| Some(C64::new(v as f32, 0.0));
                    Complex128 => C128, |v: f64| Some(C128::new(v, 0.0));
                };
            }
        }
        let kind = match self.values {
            Values::Ints(_) => "integers",
            Values::Floats(_) => "floating-point numbers",
        };
        bail!(InvalidArgument, "{kind} cannot be converted to {dtype}; pass a tensor of that type")
    }
}

impl From<Output> for Input {
    fn from(output: Output) -> Input {
        Input(InputKind::Output(output))
    }
}

impl From<&Output> for Input {
    fn from(output: &Output) -> Input {
        Input(InputKind::Output(output.clone()))
    }
}

impl From<&Input> for Input {
    fn from(input: &Input) -> Input {
        input.clone()
    }
}

impl From<Result<Output>> for Input {
    fn from(output: Result<Output>) -> Input {
        Input(output.map_or_else(InputKind::Failed, InputKind::Output))
    }
}

impl From<Tensor> for Input {
    fn from(value: Tensor) -> Input {
        Input(InputKind::Value(value))
    }
}

impl From<&Tensor> for Input {
    fn from(value: &Tensor) -> Input {
        Input(InputKind::Value(value.clone()))
    }
}

impl From<bool> for Input {
    fn from(value: bool) -> Input {
        Tensor::scalar(value).into()
    }
}

impl From<&str> for Input {
    fn from(text: &str) -> Input {
        Tensor::scalar(bytes::Bytes::copy_from_slice(text.as_bytes())).into()
    }
}

impl From<String> for Input {
    fn from(text: String) -> Input {
        Tensor::scalar(bytes::Bytes::from(text)).into()
    }
}

macro_rules! numbers {
    ($($type:ty, $values:ident as $wide:ty, $natural:ident;)+) => {$(
        impl From<$type> for Input {
            fn from(value: $type) -> Input {
                let values = Values::$values(vec![value as $wide]);
                Input(InputKind::Numbers(Numbers { shape: Shape::scalar(), values, natural: DType::$natural }))
            }
        }
        impl From<&[$type]> for Input {
            fn from(list: &[$type]) -> Input {
                let values = Values::$values(list.iter().map(|value| *value as $wide).collect());
                let shape = Shape::vector(list.len());
                Input(InputKind::Numbers(Numbers { shape, values, natural: DType::$natural }))
            }
        }
        impl From<Vec<$type>> for Input {
            fn from(list: Vec<$type>) -> Input {
                list.as_slice().into()
            }
        }
        impl From<&Vec<$type>> for Input {
            fn from(list: &Vec<$type>) -> Input {
                list.as_slice().into()
            }
        }
        impl<const N: usize> From<[$type; N]> for Input {
            fn from(list: [$type; N]) -> Input {
                list.as_slice().into()
            }
        }
        impl<const N: usize, const M: usize> From<[[$type; N]; M]> for Input {
            fn from(rows: [[$type; N]; M]) -> Input {
                let values = Values::$values(rows.iter().flatten().map(|value| *value as $wide).collect());
                let shape = Shape::matrix(M, N);
                Input(InputKind::Numbers(Numbers { shape, values, natural: DType::$natural }))
            }
        }
        impl<const N: usize> From<&[$type; N]> for Input {
            fn from(list: &[$type; N]) -> Input {
                list.as_slice().into()
            }
        }
    )+};
}
numbers! {
    i32, Ints as i64, Int32;
    i64, Ints as i64, Int64;
    f32, Floats as f64, Float;
    f64, Floats as f64, Float;
}

impl<T: Element, const N: usize> From<[T; N]> for Tensor {
    fn from(values: [T; N]) -> Tensor {
        Tensor::vector(values.into())
    }
}

impl<T: Element, const N: usize, const M: usize> From<[[T; N]; M]> for Tensor {
    fn from(rows: [[T; N]; M]) -> Tensor {
        Tensor::new(Shape::matrix(M, N), rows.into_iter().flatten().collect())
            .expect("rows of an array are equally long")
    }
}

impl<T: Element> From<Vec<T>> for Tensor {
    fn from(values: Vec<T>) -> Tensor {
        Tensor::vector(values)
    }
}

impl<T: Element> From<&[T]> for Tensor {
    fn from(values: &[T]) -> Tensor {
        Tensor::vector(values.to_vec())
    }
}

impl From<&str> for Tensor {
    fn from(text: &str) -> Tensor {
        Tensor::scalar(bytes::Bytes::copy_from_slice(text.as_bytes()))
    }
}

impl From<&Tensor> for Tensor {
    fn from(tensor: &Tensor) -> Tensor {
        tensor.clone()
    }
}

//! Attributes of a node, with the op's defaults filled in. Graphs are checked against the op's declaration elsewhere
//! (`graph/build.rs`); this file only reads and writes values.

use crate::{DType, PartialShape, Result, Shape, Tensor, bail, status};
use bytes::Bytes;
use ferroflow_proto::tensorflow::attr_value::{ListValue, Value};
use ferroflow_proto::tensorflow::{AttrValue, NameAttrList, TensorShapeProto};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Attributes by name. Nodes whose attributes are the same share them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Attrs(Arc<BTreeMap<String, AttrValue>>);

impl From<BTreeMap<String, AttrValue>> for Attrs {
    fn from(map: BTreeMap<String, AttrValue>) -> Attrs {
        Attrs(Arc::new(map))
    }
}

impl Attrs {
    /// All attributes, by name.
    pub fn map(&self) -> &BTreeMap<String, AttrValue> {
        &self.0
    }

    /// All attributes, for changing them. Copies them first if another node shares them.
    pub fn map_mut(&mut self) -> &mut BTreeMap<String, AttrValue> {
        Arc::make_mut(&mut self.0)
    }

    /// The attribute's value as a Rust type.
    pub fn get<T: FromAttr>(&self, name: &str) -> Result<T> {
        let value = self.0.get(name).and_then(|attr| attr.value.as_ref());
        let value = value.ok_or_else(|| status!(InvalidArgument, "attribute '{name}' is missing"))?;
        T::from_attr(value).map_err(|error| error.map_message(|text| format!("attribute '{name}': {text}")))
    }

    /// The raw value.
    pub fn raw(&self, name: &str) -> Option<&Value> {
        self.0.get(name)?.value.as_ref()
    }

    /// Returns whether the attribute is present.
    pub fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sets an attribute.
    pub fn set(&mut self, name: &str, value: Value) {
        self.map_mut().insert(name.to_owned(), AttrValue { value: Some(value) });
    }
}

/// A Rust type that an attribute can be read as.
pub trait FromAttr: Sized {
    /// Reads the value; the error names the expected and the actual kind.
    fn from_attr(value: &Value) -> Result<Self>;
}

/// The name of an attribute value's kind, as op signatures spell it.
pub fn kind_name(value: &Value) -> &'static str {
    match value {
        Value::List(_) => "list",
        Value::S(_) => "string",
        Value::I(_) => "int",
        Value::F(_) => "float",
        Value::B(_) => "bool",
        Value::Type(_) => "type",
        Value::Shape(_) => "shape",
        Value::Tensor(_) => "tensor",
        Value::Placeholder(_) => "placeholder",
        Value::Func(_) => "func",
    }
}

/// An attribute's value as stock prints it in messages. Tensors print as type and shape, functions as their name.
pub fn attr_text(value: &Value) -> String {
    let dtype = |number: &i32| match DType::from_wire_maybe_ref(*number) {
        Ok((dtype, is_ref)) => {
            format!("DT_{}{}", dtype.name().to_uppercase(), if is_ref { "_REF" } else { "" })
        }
        Err(_) => format!("type {number}"),
    };
    let shape = |shape: &TensorShapeProto| PartialShape::from_proto(shape).unwrap_or_default().to_string();
    let quoted = |text: &Bytes| format!("\"{}\"", text.escape_ascii());
    match value {
        Value::S(text) => quoted(text),
        Value::I(number) => number.to_string(),
        Value::F(number) => number.to_string(),
        Value::B(value) => value.to_string(),
        Value::Type(number) => dtype(number),
        Value::Shape(value) => shape(value),
        Value::Tensor(value) => format!(
            "Tensor<type: {} shape: {}>",
            DType::from_wire(value.dtype).map_or("?", DType::name),
            value.tensor_shape.as_ref().map(shape).unwrap_or_default()
        ),
        Value::Func(function) => function.name.clone(),
        Value::Placeholder(name) => format!("${name}"),
        Value::List(list) => {
            let mut texts: Vec<String> = list.s.iter().map(quoted).collect();
            texts.extend(list.i.iter().map(i64::to_string));
            texts.extend(list.f.iter().map(f32::to_string));
            texts.extend(list.b.iter().map(bool::to_string));
            texts.extend(list.r#type.iter().map(dtype));
            texts.extend(list.shape.iter().map(shape));
            texts.extend(list.func.iter().map(|function| function.name.clone()));
            format!("[{}]", texts.join(", "))
        }
    }
}

fn wrong_kind<T>(want: &str, value: &Value) -> Result<T> {
    bail!(InvalidArgument, "expected a value of kind {want}, got {}", kind_name(value))
}

macro_rules! from_attr {
    ($($type:ty, $kind:literal, $variant:ident($value:ident) => $convert:expr;)+) => {$(
        impl FromAttr for $type {
            fn from_attr(value: &Value) -> Result<Self> {
                match value {
                    Value::$variant($value) => $convert,
                    other => wrong_kind($kind, other),
                }
            }
        }
    )+};
}

from_attr! {
    bool, "bool", B(v) => Ok(*v);
    i64, "int", I(v) => Ok(*v);
    f32, "float", F(v) => Ok(*v);
    Bytes, "string", S(v) => Ok(v.clone());
    String, "string", S(v) => utf8(v);
    DType, "type", Type(v) => DType::from_wire(*v);
    PartialShape, "shape", Shape(v) => PartialShape::from_proto(v);
    Shape, "shape", Shape(v) => Shape::from_proto(v);
    Tensor, "tensor", Tensor(v) => Tensor::from_proto(v);
    NameAttrList, "func", Func(v) => Ok((**v).clone());
    Vec<i64>, "list(int)", List(v) => Ok(v.i.clone());
    Vec<f32>, "list(float)", List(v) => Ok(v.f.clone());
    Vec<bool>, "list(bool)", List(v) => Ok(v.b.clone());
    Vec<Bytes>, "list(string)", List(v) => Ok(v.s.clone());
    Vec<String>, "list(string)", List(v) => v.s.iter().map(utf8).collect();
    Vec<DType>, "list(type)", List(v) => v.r#type.iter().map(|t| DType::from_wire(*t)).collect();
    Vec<PartialShape>, "list(shape)", List(v) => v.shape.iter().map(PartialShape::from_proto).collect();
    Vec<Tensor>, "list(tensor)", List(v) => v.tensor.iter().map(Tensor::from_proto).collect();
    Vec<NameAttrList>, "list(func)", List(v) => Ok(v.func.clone());
}

impl FromAttr for usize {
    fn from_attr(value: &Value) -> Result<usize> {
        let number = i64::from_attr(value)?;
        usize::try_from(number).or_else(|_| bail!(InvalidArgument, "expected a count, got {number}"))
    }
}

fn utf8(bytes: &Bytes) -> Result<String> {
    String::from_utf8(bytes.to_vec()).or_else(|_| bail!(InvalidArgument, "expected UTF-8 text"))
}

/// A Rust value that an attribute can be set to. A value that cannot be converted, such as an invalid shape, is an
/// error.
pub trait ToAttr {
    /// The attribute's value.
    fn to_attr(self) -> Result<Value>;
}

macro_rules! to_attr {
    ($($type:ty, $value:ident => $convert:expr;)+) => {$(
        impl ToAttr for $type {
            fn to_attr(self) -> Result<Value> {
                let $value = self;
                Ok($convert)
            }
        }
    )+};
}

to_attr! {
    Value, v => v;
    bool, v => Value::B(v);
    i32, v => Value::I(v.into());
    i64, v => Value::I(v);
    usize, v => Value::I(v as i64);
    f32, v => Value::F(v);
    f64, v => Value::F(v as f32);
    &str, v => Value::S(Bytes::copy_from_slice(v.as_bytes()));
    &String, v => Value::S(Bytes::copy_from_slice(v.as_bytes()));
    String, v => Value::S(v.into());
    Bytes, v => Value::S(v);
    DType, v => Value::Type(v.to_wire());
    PartialShape, v => Value::Shape(v.to_proto());
    &PartialShape, v => Value::Shape(v.to_proto());
    Shape, v => Value::Shape(v.to_proto());
    &Shape, v => Value::Shape(v.to_proto());
    Tensor, v => Value::Tensor(Box::new(v.to_proto()?));
    &Tensor, v => Value::Tensor(Box::new(v.to_proto()?));
    NameAttrList, v => Value::Func(Box::new(v));
    &NameAttrList, v => Value::Func(Box::new(v.clone()));
}

impl<T: ToAttr> ToAttr for Vec<T> {
    fn to_attr(self) -> Result<Value> {
        let mut list = ListValue::default();
        for item in self {
            match item.to_attr()? {
                Value::S(v) => list.s.push(v),
                Value::I(v) => list.i.push(v),
                Value::F(v) => list.f.push(v),
                Value::B(v) => list.b.push(v),
                Value::Type(v) => list.r#type.push(v),
                Value::Shape(v) => list.shape.push(v),
                Value::Tensor(v) => list.tensor.push(*v),
                Value::Func(v) => list.func.push(*v),
                other => bail!(
                    InvalidArgument,
                    "a list attribute cannot hold values of kind {}",
                    kind_name(&other)
                ),
            }
        }
        Ok(Value::List(Box::new(list)))
    }
}

impl<T: ToAttr + Clone> ToAttr for &[T] {
    fn to_attr(self) -> Result<Value> {
        self.to_vec().to_attr()
    }
}

impl<T: ToAttr, const N: usize> ToAttr for [T; N] {
    fn to_attr(self) -> Result<Value> {
        Vec::from(self).to_attr()
    }
}

impl<T: ToAttr + Clone, const N: usize> ToAttr for &[T; N] {
    fn to_attr(self) -> Result<Value> {
        self.to_vec().to_attr()
    }
}

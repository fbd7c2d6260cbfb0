//! Tensor maps: values with copy semantics that hold tensors under tensors.

use crate::builders as ops;
use crate::flow::cond;
use crate::support::declared_types::DeclaredTypes;
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel, Str};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, shapes, zeros_like};
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels, status};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use std::collections::HashMap;

pub(crate) const OPS: &[&Op] = &[
    &EMPTY_TENSOR_MAP,
    &TENSOR_MAP_SIZE,
    &TENSOR_MAP_LOOKUP,
    &TENSOR_MAP_INSERT,
    &TENSOR_MAP_ERASE,
    &TENSOR_MAP_HAS_KEY,
    &TENSOR_MAP_STACK_KEYS,
];

static EMPTY_TENSOR_MAP: Op = Op {
    name: "EmptyTensorMap",
    outputs: &["handle: variant"],
    shape: shapes::scalar,
    kernels: kernels![any empty_kernel],
    gradient: Gradient::Stop,
    cheap: true,
    ..Op::PURE
};

static TENSOR_MAP_SIZE: Op = Op {
    name: "TensorMapSize",
    inputs: &["input_handle: variant"],
    outputs: &["size: int32"],
    shape: shapes::scalar,
    kernels: kernels![any size_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_MAP_LOOKUP: Op = Op {
    name: "TensorMapLookup",
    inputs: &["input_handle: variant", "key: key_dtype"],
    outputs: &["value: value_dtype"],
    attrs: &["key_dtype: type", "value_dtype: type"],
    kernels: kernels![any lookup_kernel],
    gradient: Gradient::Fn(lookup_grad),
    cheap: true,
    ..Op::PURE
};

static TENSOR_MAP_INSERT: Op = Op {
    name: "TensorMapInsert",
    inputs: &["input_handle: variant", "key: key_dtype", "value: value_dtype"],
    outputs: &["output_handle: variant"],
    attrs: &["key_dtype: type", "value_dtype: type"],
    shape: shapes::scalar,
    kernels: kernels![any insert_kernel],
    gradient: Gradient::Fn(insert_grad),
    cheap: true,
    ..Op::PURE
};

static TENSOR_MAP_ERASE: Op = Op {
    name: "TensorMapErase",
    inputs: &["input_handle: variant", "key: key_dtype"],
    outputs: &["output_handle: variant"],
    attrs: &["key_dtype: type", "value_dtype: type"],
    shape: shapes::scalar,
    kernels: kernels![any erase_kernel],
    gradient: Gradient::Fn(erase_grad),
    cheap: true,
    ..Op::PURE
};

static TENSOR_MAP_HAS_KEY: Op = Op {
    name: "TensorMapHasKey",
    inputs: &["input_handle: variant", "key: key_dtype"],
    outputs: &["has_key: bool"],
    attrs: &["key_dtype: type"],
    shape: shapes::scalar,
    kernels: kernels![any has_key_kernel],
    cheap: true,
    ..Op::PURE
};

static TENSOR_MAP_STACK_KEYS: Op = Op {
    name: "TensorMapStackKeys",
    inputs: &["input_handle: variant"],
    outputs: &["keys: key_dtype"],
    attrs: &["key_dtype: type"],
    kernels: kernels![any stack_keys_kernel],
    ..Op::PURE
};

/// A tensor as a key: its type, shape and contents.
#[derive(Clone, Hash, PartialEq, Eq)]
struct Key {
    dtype: i32,
    shape: Shape,
    contents: Vec<u8>,
}

impl Key {
    fn new(tensor: &Tensor) -> Result<Key> {
        let contents = match tensor.dtype() {
            DType::String => {
                let strings = tensor.flat::<Str>()?.iter();
                strings
                    .flat_map(|text| (text.len() as u64).to_le_bytes().into_iter().chain(text.to_vec()))
                    .collect()
            }
            DType::Variant | DType::Resource => {
                bail!(Unimplemented, "a tensor of type {} cannot be the key of a map", tensor.dtype())
            }
            _ => tensor.bytes()?.to_vec(),
        };
        Ok(Key { dtype: tensor.dtype().to_wire(), shape: tensor.shape().clone(), contents })
    }
}

/// A map from tensors to tensors, in the order in which keys came.
#[derive(Clone, Default)]
pub(crate) struct TensorMap {
    entries: Vec<(Tensor, Tensor)>,
    places: HashMap<Key, usize>,
}

pub(crate) const TYPE_NAME: &str = "tensorflow::TensorMap";

impl TensorMap {
    /// The map in a scalar variant tensor; not copied if nobody else holds it.
    fn take(mut tensor: Tensor) -> Result<TensorMap> {
        check_scalar(&tensor)?;
        let variant = &mut tensor.units_mut::<Variant>()?[0];
        match variant.downcast_mut::<TensorMap>() {
            Some(map) => Ok(std::mem::take(map)),
            None => TensorMap::from_variant(variant),
        }
    }

    /// Looks at the map in a scalar variant tensor.
    fn with<R>(tensor: &Tensor, look: impl FnOnce(&TensorMap) -> Result<R>) -> Result<R> {
        check_scalar(tensor)?;
        let variant = &tensor.units::<Variant>()?[0];
        match variant.downcast::<TensorMap>() {
            Some(map) => look(map),
            None => look(&TensorMap::from_variant(variant)?),
        }
    }

    fn from_variant(variant: &Variant) -> Result<TensorMap> {
        if let Some(map) = variant.downcast::<TensorMap>() {
            return Ok(map.clone());
        }
        match variant.as_opaque() {
            Some(proto) if proto.type_name == TYPE_NAME => TensorMap::from_proto(proto),
            _ => bail!(InvalidArgument, "Input handle is not a map. Saw: '{variant:?}'"),
        }
    }

    pub(crate) fn from_proto(proto: &VariantTensorDataProto) -> Result<TensorMap> {
        ensure!(
            proto.tensors.len().is_multiple_of(2),
            InvalidArgument,
            "a tensor map has as many keys as values, but {} tensors came",
            proto.tensors.len()
        );
        let mut map = TensorMap::default();
        for pair in proto.tensors.chunks(2) {
            map.insert(Tensor::from_proto(&pair[0])?, Tensor::from_proto(&pair[1])?)?;
        }
        Ok(map)
    }

    fn into_tensor(self) -> Result<Tensor> {
        Tensor::from_units(DType::Variant, Shape::scalar(), vec![Variant::new(self)])
    }

    fn get(&self, key: &Tensor) -> Result<Option<&Tensor>> {
        Ok(self.places.get(&Key::new(key)?).map(|place| &self.entries[*place].1))
    }

    fn insert(&mut self, key: Tensor, value: Tensor) -> Result<()> {
        let place = *self.places.entry(Key::new(&key)?).or_insert(self.entries.len());
        match self.entries.get_mut(place) {
            Some(entry) => entry.1 = value,
            None => self.entries.push((key, value)),
        }
        Ok(())
    }

    /// Removes a key; the last one takes its place.
    fn remove(&mut self, key: &Tensor) -> Result<bool> {
        let Some(place) = self.places.remove(&Key::new(key)?) else { return Ok(false) };
        self.entries.swap_remove(place);
        if let Some((moved, _)) = self.entries.get(place) {
            self.places.insert(Key::new(moved)?, place);
        }
        Ok(true)
    }
}

fn check_scalar(tensor: &Tensor) -> Result<()> {
    ensure!(tensor.rank() == 0, InvalidArgument, "Input map must be a scalar. Saw: {}", tensor.shape());
    Ok(())
}

impl VariantValue for TensorMap {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        let tensors = self.entries.iter().flat_map(|(key, value)| [key.to_proto(), value.to_proto()]);
        Ok(VariantTensorDataProto {
            type_name: TYPE_NAME.to_owned(),
            tensors: tensors.collect::<Result<_>>()?,
            ..Default::default()
        })
    }

    /// A map without keys: one that is not there counts as zero.
    fn zeros_like(&self) -> Result<Variant> {
        Ok(Variant::new(TensorMap::default()))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        let mut sum = self.clone();
        for (key, value) in TensorMap::from_variant(other)?.entries {
            let value = match sum.get(&key)? {
                Some(own) => rows::add(value, own)?,
                None => value,
            };
            sum.insert(key, value)?;
        }
        Ok(Variant::new(sum))
    }
}

fn empty_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| Ok(TensorMap::default().into_tensor()?.into()))
}

fn size_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let size = TensorMap::with(cx.input(0)?, |map| Ok(map.entries.len()))?;
        Ok(Tensor::scalar(size as i32).into())
    })
}

fn lookup_kernel(init: &Init<'_>) -> Result<Kernel> {
    let declared = DeclaredTypes::new(init);
    Kernel::sync(move |cx| {
        let key = cx.input(1)?;
        let value = TensorMap::with(cx.input(0)?, |map| Ok(map.get(key)?.cloned()))?;
        let value = value.ok_or_else(|| {
            status!(InvalidArgument, "Trying to lookup non-existent key. Could not find key {key:?}.")
        })?;
        declared.check(std::slice::from_ref(&value))?;
        Ok(value.into())
    })
}

fn insert_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (key, value) = (cx.take(1)?, cx.take(2)?);
        let mut map = TensorMap::take(cx.take(0)?)?;
        map.insert(key, value)?;
        Ok(map.into_tensor()?.into())
    })
}

fn erase_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let key = cx.take(1)?;
        let mut map = TensorMap::take(cx.take(0)?)?;
        ensure!(
            map.remove(&key)?,
            InvalidArgument,
            "Trying to erase non-existent item. Could not find key {key:?}."
        );
        Ok(map.into_tensor()?.into())
    })
}

fn has_key_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let key = cx.input(1)?;
        Ok(Tensor::scalar(TensorMap::with(cx.input(0)?, |map| Ok(map.get(key)?.is_some()))?).into())
    })
}

fn stack_keys_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype = init.output_types[0];
    Kernel::sync(move |cx| {
        TensorMap::with(cx.input(0)?, |map| {
            let Some((first, _)) = map.entries.first() else {
                bail!(InvalidArgument, "TensorMapStackKeys cannot be called on empty map.")
            };
            let keys: Vec<&Tensor> = map.entries.iter().map(|(key, _)| key).collect();
            ensure!(
                keys.iter().all(|key| key.dtype() == dtype),
                InvalidArgument,
                "Key does not match requested dtype."
            );
            ensure!(
                keys.iter().all(|key| key.shape() == first.shape()),
                InvalidArgument,
                "Keys must all have the same shape."
            );
            let shape = rows::stacked(keys.len(), first.shape())?;
            Ok(rows::join(cx.device(), dtype, shape, &keys)?.into())
        })
    })
}

fn lookup_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let s = g.scope();
    let empty = ops::empty_tensor_map(s)?;
    Ok([Some(ops::tensor_map_insert(s, empty, g.input(1), g.dy(0)?)?), None].into())
}

/// The gradient of what was inserted, if it was used, and of the rest.
fn insert_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, key, value, map) = (g.scope(), g.input(1), g.input(2), g.dy(0)?);
    let used = ops::tensor_map_has_key(s, &map, key)?;
    let grads = cond(
        s,
        used,
        |s| {
            let dtype = value.dtype();
            Ok(vec![
                ops::tensor_map_lookup(s, &map, key, dtype)?,
                ops::tensor_map_erase(s, &map, key, dtype)?,
            ])
        },
        |s| Ok(vec![zeros_like(s, value)?, ops::identity(s, &map)?]),
    )?;
    Ok([Some(grads[1].clone()), None, Some(grads[0].clone())].into())
}

fn erase_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    Ok([Some(g.dy(0)?), None].into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_keep_their_entries_over_the_wire_and_when_keys_go() {
        let mut map = TensorMap::default();
        for key in 0..3i32 {
            map.insert(Tensor::scalar(key), Tensor::scalar(key as f32)).unwrap();
        }
        assert!(map.remove(&Tensor::scalar(0i32)).unwrap() && !map.remove(&Tensor::scalar(0i32)).unwrap());
        let map = TensorMap::from_proto(&map.to_proto().unwrap()).unwrap();
        for key in 1..3i32 {
            let value = map.get(&Tensor::scalar(key)).unwrap().unwrap();
            assert_eq!(value.to_scalar::<f32>().unwrap(), key as f32);
        }
        assert!(map.get(&Tensor::scalar(1i64)).unwrap().is_none(), "keys have types");
        let odd = VariantTensorDataProto { tensors: vec![Default::default()], ..Default::default() };
        assert!(TensorMap::from_proto(&odd).is_err());
    }
}

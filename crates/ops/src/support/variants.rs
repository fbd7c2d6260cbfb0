//! Arithmetic of variants of whatever type: sums, zeros, conjugates. Values that came from another task are decoded first.

use crate::families::data_flow::{optional, tensor_map};
use crate::state::tensor_list::{self, TensorList};
use crate::state::variant_tensors::{VariantKind, VariantTensors};
use ferroflow_core::variant::Variant;
use ferroflow_core::{C64, C128, DType, Result, Tensor, bail};

/// A variant whose type's own functions can be called: one that came over the wire is a message until an op decodes it.
fn decoded(variant: &Variant) -> Result<Variant> {
    let Some(proto) = variant.as_opaque() else { return Ok(variant.clone()) };
    Ok(match proto.type_name.as_str() {
        tensor_list::TYPE_NAME => Variant::new(TensorList::from_proto(proto)?),
        optional::TYPE_NAME => Variant::new(optional::Optional::from_proto(proto)?),
        tensor_map::TYPE_NAME => Variant::new(tensor_map::TensorMap::from_proto(proto)?),
        name => match VariantKind::named(name) {
            Some(kind) => VariantTensors::of(variant, kind)?.map_or_else(|| variant.clone(), Variant::new),
            None => variant.clone(),
        },
    })
}

/// The sum of two values of one type.
pub(crate) fn sum(a: &Variant, b: &Variant) -> Result<Variant> {
    match decoded(a)?.get() {
        Some(value) => value.add(b),
        None => bail!(InvalidArgument, "AddN of an empty variant"),
    }
}

/// The zero that gradients start from.
pub(crate) fn zeros_like(variant: &Variant) -> Result<Variant> {
    match decoded(variant)?.get() {
        Some(value) => value.zeros_like(),
        None => bail!(InvalidArgument, "ZerosLike of an empty variant"),
    }
}

/// The conjugate, which only sparse matrices have.
pub(crate) fn conjugate(variant: &Variant) -> Result<Variant> {
    let Some(mut matrix) = VariantTensors::of(variant, VariantKind::Csr)? else {
        bail!(
            Internal,
            "No unary variant unary_op function found for op CONJ Variant type_name: {} for device type: CPU",
            variant.get().map_or("", |value| value.type_name())
        )
    };
    if let Some(values) = matrix.tensors.last_mut() {
        let shape = values.shape().clone();
        match values.dtype() {
            DType::Complex64 => {
                let conjugates = values.flat::<C64>()?.iter().map(C64::conj).collect::<Vec<_>>();
                *values = Tensor::new(shape, conjugates)?;
            }
            DType::Complex128 => {
                let conjugates = values.flat::<C128>()?.iter().map(C128::conj).collect::<Vec<_>>();
                *values = Tensor::new(shape, conjugates)?;
            }
            _ => {}
        }
    }
    Ok(Variant::new(matrix))
}

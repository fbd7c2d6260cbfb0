//! Every `TensorProto`, well formed or not, is read as a tensor or refused.

use crate::{assert_modest, config};
use ferroflow_core::Tensor;
use ferroflow_proto::tensorflow::tensor_shape_proto::Dim;
use ferroflow_proto::tensorflow::{TensorProto, TensorShapeProto};
use proptest::collection::vec;
use proptest::prelude::*;
use prost::Message;

/// Small dims, which may fit what follows, and absurd ones, which nothing fits.
pub(crate) fn dim() -> impl Strategy<Value = i64> {
    prop_oneof![
        6 => 0i64..5,
        1 => Just(-1),
        1 => prop_oneof![Just(i64::MAX), Just(i64::MIN), Just(1 << 48), Just((1 << 48) - 1)],
    ]
}

pub(crate) fn shape() -> impl Strategy<Value = TensorShapeProto> {
    let dims = prop_oneof![9 => vec(dim(), 0..5), 1 => vec(Just(1i64), 200..400)];
    (dims, prop::bool::weighted(0.05)).prop_map(|(dims, unknown_rank)| TensorShapeProto {
        dim: dims.into_iter().map(|size| Dim { size, ..Default::default() }).collect(),
        unknown_rank,
    })
}

/// A tensor whose parts need not agree with each other.
pub(crate) fn tensor() -> impl Strategy<Value = TensorProto> {
    let dtype = prop_oneof![9 => 1i32..24, 1 => -2i32..140];
    let content = prop_oneof![3 => Just(Vec::new()), 2 => vec(any::<u8>(), 0..64)];
    let integers = (vec(any::<i32>(), 0..5), vec(any::<i64>(), 0..5), vec(any::<u32>(), 0..5));
    let others = (vec(any::<f32>(), 0..5), vec(any::<f64>(), 0..5), vec(any::<bool>(), 0..5));
    let strings = vec(vec(any::<u8>(), 0..6), 0..5);
    (dtype, shape(), content, integers, others, strings).prop_map(
        |(dtype, shape, content, (ints, longs, unsigned), (floats, doubles, bools), strings)| TensorProto {
            dtype,
            tensor_shape: Some(shape),
            tensor_content: content.into(),
            half_val: ints.clone(),
            int_val: ints,
            int64_val: longs,
            uint32_val: unsigned,
            scomplex_val: floats.clone(),
            float_val: floats,
            dcomplex_val: doubles.clone(),
            double_val: doubles,
            bool_val: bools,
            string_val: strings.into_iter().map(Into::into).collect(),
            ..Default::default()
        },
    )
}

/// Whether a tensor is of a size that some machines hold and others do not: one value, repeated so often, is a few bytes
/// on the wire. Whether it is read says nothing about the decoder.
pub(crate) fn depends_on_the_machine(proto: &TensorProto) -> bool {
    const SMALL: u64 = 1 << 20;
    const ABSURD: u64 = 1 << 47;
    let dims = proto.tensor_shape.iter().flat_map(|shape| &shape.dim);
    let elements =
        dims.map(|dim| u64::try_from(dim.size).ok()).try_fold(1u64, |all, dim| all.checked_mul(dim?));
    elements.is_some_and(|elements| (SMALL..ABSURD).contains(&elements))
}

/// Reads a tensor; what can be read can be written and read again.
fn check(proto: &TensorProto) -> Result<(), TestCaseError> {
    if depends_on_the_machine(proto) {
        return Ok(());
    }
    let Ok(tensor) = Tensor::from_proto(proto) else { return Ok(()) };
    let Ok(written) = tensor.to_proto() else { return Ok(()) };
    let again = Tensor::from_proto(&written);
    prop_assert!(again.is_ok(), "{proto:?} is read but {written:?} is not");
    prop_assert_eq!(again.expect("just checked").to_proto().expect("written before"), written);
    Ok(())
}

#[test]
fn any_tensor_is_read_or_refused() {
    proptest!(config(3000), |(proto in tensor())| check(&proto)?);
    assert_modest(4 << 30);
}

#[test]
fn any_bytes_are_a_tensor_or_not() {
    proptest!(config(3000), |(bytes in vec(any::<u8>(), 0..200))| {
        if let Ok(proto) = TensorProto::decode(bytes.as_slice()) {
            check(&proto)?;
        }
    });
}

#[test]
fn a_damaged_tensor_is_read_or_refused() {
    proptest!(config(3000), |(proto in tensor(), at in any::<prop::sample::Index>(), byte in any::<u8>())| {
        let mut bytes = proto.encode_to_vec();
        if !bytes.is_empty() {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Ok(proto) = TensorProto::decode(bytes.as_slice()) {
            check(&proto)?;
        }
    });
    assert_modest(4 << 30);
}

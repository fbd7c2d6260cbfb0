//! Sparse tensors as three strings or variants each, which queues and datasets carry, and back.

use crate::state::variant_tensors::VariantTensors;
use crate::support::sparse::{Sparse, check_parts, picked, sparse_ranks};
use crate::support::units::by_unit;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels, status};
use ferroflow_proto::tensorflow::TensorProto;
use prost::Message;

pub(crate) const OPS: &[&Op] =
    &[&SERIALIZE_SPARSE, &SERIALIZE_MANY_SPARSE, &DESERIALIZE_SPARSE, &DESERIALIZE_MANY_SPARSE];

static SERIALIZE_SPARSE: Op = Op {
    name: "SerializeSparse",
    inputs: &["sparse_indices: int64", "sparse_values: T", "sparse_shape: int64"],
    outputs: &["serialized_sparse: out_type"],
    attrs: &["T: type", "out_type: {string, variant} = DT_STRING"],
    shape: serialize_shape,
    kernels: kernels![any serialize_kernel],
    ..Op::PURE
};

static SERIALIZE_MANY_SPARSE: Op = Op {
    name: "SerializeManySparse",
    shape: serialize_many_shape,
    kernels: kernels![any serialize_many_kernel],
    ..SERIALIZE_SPARSE
};

static DESERIALIZE_SPARSE: Op = Op {
    name: "DeserializeSparse",
    inputs: &["serialized_sparse: Tserialized"],
    outputs: &["sparse_indices: int64", "sparse_values: dtype", "sparse_shape: int64"],
    attrs: &["dtype: type", "Tserialized: {string, variant} = DT_STRING"],
    shape: deserialize_shape,
    kernels: kernels![any deserialize_kernel],
    ..Op::PURE
};

static DESERIALIZE_MANY_SPARSE: Op = Op {
    name: "DeserializeManySparse",
    inputs: &["serialized_sparse: string"],
    attrs: &["dtype: type"],
    shape: deserialize_many_shape,
    ..DESERIALIZE_SPARSE
};

fn serialize_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    sparse_ranks(s, 0)?;
    s.output(0, [3])
}

fn serialize_many_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    sparse_ranks(s, 0)?;
    s.output(0, [UNKNOWN_DIM, 3])
}

fn deserialize_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if let Some(last) = s.rank_at_least(0, 1)?.dims().and_then(<[i64]>::last) {
        s.merge_dims(*last, 3)?;
    }
    any_sparse(s)
}

fn deserialize_many_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 2)?;
    deserialize_shape(s)
}

pub(crate) fn any_sparse(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [UNKNOWN_DIM, UNKNOWN_DIM])?;
    s.output(1, [UNKNOWN_DIM])?;
    s.output(2, [UNKNOWN_DIM])
}

/// Tensors as strings or as variants.
fn encoded(dtype: DType, shape: Shape, tensors: Vec<Tensor>) -> Result<Tensor> {
    if dtype == DType::Variant {
        let variants = tensors.into_iter().map(VariantTensors::tensor).collect();
        return Tensor::from_units(DType::Variant, shape, variants);
    }
    let text = |tensor: &Tensor| Ok(Str::from(tensor.to_proto()?.encode_to_vec()));
    Tensor::new(shape, tensors.iter().map(text).collect::<Result<Vec<Str>>>()?)
}

fn serialize_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    Kernel::sync(move |cx| {
        let parts = [cx.input(0)?, cx.input(1)?, cx.input(2)?];
        for (part, (name, rank, kind)) in
            parts.iter().zip([("indices", 2, "matrix"), ("values", 1, "vector"), ("shape", 1, "vector")])
        {
            ensure!(
                part.rank() == rank,
                InvalidArgument,
                "Input {name} should be a {kind} but received shape {}",
                part.shape()
            );
        }
        Ok(encoded(dtype, Shape::vector(3), parts.map(Tensor::clone).to_vec())?.into())
    })
}

fn serialize_many_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_type")?;
    Kernel::sync(move |cx| {
        let sparse = Sparse::input(cx, 0)?;
        let rows = separate_rows(cx, &sparse)?;
        let count = rows.len();
        Ok(encoded(dtype, Shape::matrix(count, 3), rows.into_iter().flatten().collect())?.into())
    })
}

/// The rows of a sparse tensor as sparse tensors, of indices, values and shape each.
pub(crate) fn separate_rows(cx: &KernelCx<'_>, sparse: &Sparse<'_>) -> Result<Vec<[Tensor; 3]>> {
    let rank = sparse.rank();
    ensure!(rank > 1, InvalidArgument, "Rank of input SparseTensor should be > 1, but saw rank: {rank}");
    let whole = sparse.dense_shape()?;
    sparse.check_order()?;
    cx.device().check_allocation(DType::Variant, &Shape::new([whole[0], 3])?)?;
    let inner = Tensor::vector(whole[1..].to_vec());
    let none = [Tensor::new(Shape::matrix(0, rank - 1), Vec::<i64>::new())?, picked(cx, sparse.values, &[])?];
    let mut rows: Vec<[Tensor; 3]> =
        std::iter::repeat_n([none[0].clone(), none[1].clone(), inner.clone()], whole.dim(0)).collect();
    for group in sparse.groups(1) {
        let mut indices = Vec::with_capacity(group.len() * (rank - 1));
        for entry in group.clone() {
            indices.extend_from_slice(&sparse.row(entry)[1..]);
        }
        let row = sparse.row(group.start)[0] as usize;
        let values = picked(cx, sparse.values, &group.clone().collect::<Vec<_>>())?;
        rows[row][0] = Tensor::new(Shape::matrix(group.len(), rank - 1), indices)?;
        rows[row][1] = values;
    }
    Ok(rows)
}

fn deserialize_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    Kernel::sync(move |cx| {
        let serialized = cx.input(0)?;
        let Some((last, outer)) = serialized.shape().split_last() else {
            return Err(status!(
                InvalidArgument,
                "Serialized sparse should have non-zero rank {}",
                serialized.shape()
            ));
        };
        ensure!(
            *last == 3,
            InvalidArgument,
            "Serialized sparse should have 3 as the last dimension {}",
            serialized.shape()
        );
        ensure!(
            serialized.elements() > 0,
            InvalidArgument,
            "Serialized sparse should have at least 1 serialized tensor, but has a zero dimension {}",
            serialized.shape()
        );
        let mut parts = Vec::with_capacity(serialized.elements() / 3);
        for index in 0..serialized.elements() / 3 {
            let mut tensors = Vec::with_capacity(3);
            for part in 0..3 {
                tensors.push(
                    match serialized.dtype() {
                        DType::Variant => decoded_variant(&serialized.units::<Variant>()?[3 * index + part])?,
                        _ => Some(decoded_text(&serialized.flat::<Str>()?[3 * index + part])?),
                    }
                    .ok_or_else(|| {
                        let place = format!("serialized_sparse[{index}, {part}]");
                        status!(InvalidArgument, "Could not get a tensor from {place}")
                    })?,
                );
            }
            let parts_of: [Tensor; 3] =
                tensors.try_into().map_err(|_| status!(Internal, "a sparse tensor has three parts"))?;
            check_serialized(index, dtype, &parts_of)?;
            parts.push(parts_of);
        }
        if outer.is_empty() {
            return Ok(parts.swap_remove(0).into());
        }
        stacked(cx, outer, &parts)
    })
}

fn decoded_variant(variant: &Variant) -> Result<Option<Tensor>> {
    VariantTensors::tensor_of(variant)
}

fn decoded_text(text: &Str) -> Result<Tensor> {
    let proto = TensorProto::decode(text.clone())
        .map_err(|_| status!(InvalidArgument, "Could not parse serialized proto"))?;
    Tensor::from_proto(&proto).map_err(|error| {
        status!(InvalidArgument, "Could not construct tensor from proto: {}", error.message())
    })
}

fn check_serialized(index: usize, dtype: DType, [indices, values, shape]: &[Tensor; 3]) -> Result<()> {
    for (part, tensor) in [(0, indices), (2, shape)] {
        ensure!(
            tensor.dtype() == DType::Int64,
            InvalidArgument,
            "Expected serialized_sparse[{index}, {part}] to be of DT_INT64 but received dtype {}",
            tensor.dtype()
        );
    }
    ensure!(
        indices.rank() == 2,
        InvalidArgument,
        "Expected serialized_sparse[{index}, 0] to represent an index matrix but received shape {}",
        indices.shape()
    );
    ensure!(
        values.rank() == 1,
        InvalidArgument,
        "Expected serialized_sparse[{index}, 1] to represent a values vector but received shape {}",
        values.shape()
    );
    ensure!(
        values.dtype() == dtype,
        InvalidArgument,
        "Requested SparseTensor of type {dtype} but SparseTensor[{index}].values.dtype() == {}",
        values.dtype()
    );
    ensure!(
        indices.shape().dim(0) == values.elements(),
        InvalidArgument,
        "Expected row counts of SparseTensor[{index}].indices and SparseTensor[{index}].values to match but they do not: {} vs. {}",
        indices.shape().dim(0),
        values.elements()
    );
    ensure!(
        shape.rank() == 1,
        InvalidArgument,
        "Expected serialized_sparse[{index}, 1] to be a shape vector but its shape is {}",
        shape.shape()
    );
    ensure!(
        indices.shape().dim(1) == shape.elements(),
        InvalidArgument,
        "Expected column counts of SparseTensor[{index}].indices to match size of SparseTensor[{index}].shape but they do not: {} vs. {}",
        indices.shape().dim(1),
        shape.elements()
    );
    check_parts(indices, values, shape)
}

/// Sparse tensors of one rank stacked into one whose outer dimensions number them. Its shape covers all of theirs.
pub(crate) fn stacked(cx: &KernelCx<'_>, outer: &[i64], parts: &[[Tensor; 3]]) -> Result<Outputs> {
    let mut shape =
        parts.first().map_or(Ok(Vec::new()), |part| part[2].flat::<i64>().map(<[i64]>::to_vec))?;
    let inner = shape.len();
    for (i, part) in parts.iter().enumerate() {
        let other = part[2].flat::<i64>()?;
        ensure!(
            other.len() == inner,
            InvalidArgument,
            "Inconsistent shape across SparseTensors: rank prior to SparseTensor[{i}] was: {inner} but rank of SparseTensor[{i}] is: {}",
            other.len()
        );
        for (dim, other) in shape.iter_mut().zip(other) {
            *dim = (*dim).max(*other);
        }
    }
    let entries = parts.iter().map(|part| part[1].elements()).sum();
    let rank = outer.len() + inner;
    let mut indices = cx.alloc::<i64>(Shape::matrix(entries, rank))?;
    let mut rows = indices.flat_mut::<i64>()?.chunks_exact_mut(rank.max(1));
    for (number, part) in parts.iter().enumerate() {
        let from = part[0].flat::<i64>()?;
        for entry in 0..part[1].elements() {
            let Some(row) = rows.next() else { break };
            let mut rest = number as i64;
            for (place, dim) in row[..outer.len()].iter_mut().zip(outer).rev() {
                (*place, rest) = (rest % dim, rest / dim);
            }
            row[outer.len()..].copy_from_slice(&from[entry * inner..(entry + 1) * inner]);
        }
    }
    let dtype = parts.first().map_or(DType::Float, |part| part[1].dtype());
    let mut values = cx.alloc_dtype(dtype, Shape::vector(entries))?;
    by_unit!(dtype, U => {
        let mut rest = values.units_mut::<U>()?;
        for part in parts {
            let (head, later) = rest.split_at_mut(part[1].elements());
            head.clone_from_slice(part[1].units::<U>()?);
            rest = later;
        }
    });
    let shape = outer.iter().copied().chain(shape).collect();
    Ok([indices, values, Tensor::vector(shape)].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Node, infer};

    #[test]
    fn rows_come_back_as_one_tensor() {
        infer("DeserializeSparse", "[7,3]", "[?,?];[?];[?]");
        let indices = Tensor::new(Shape::matrix(2, 2), vec![0i64, 4, 2, 1]).unwrap();
        let inputs = [indices, Tensor::vector(vec![1.0f32, 2.0]), Tensor::vector(vec![3i64, 5])];
        for out_type in [DType::String, DType::Variant] {
            let node = Node::new("SerializeManySparse").attr("out_type", out_type);
            let rows = node.run(inputs.clone()).unwrap().remove(0);
            assert_eq!(rows.shape().dims(), [3, 3]);
            let out = Node::new("DeserializeSparse").attr("dtype", DType::Float).run([rows]).unwrap();
            assert_eq!(out[0].flat::<i64>().unwrap(), [0, 4, 2, 1]);
            assert_eq!(out[1].flat::<f32>().unwrap(), [1.0, 2.0]);
            assert_eq!(out[2].flat::<i64>().unwrap(), [3, 5]);
        }
    }

    #[test]
    fn bytes_that_are_no_tensors_are_refused() {
        let texts = Tensor::vector(vec![Str::from_static(b"\xff"); 3]);
        let error = Node::new("DeserializeSparse").attr("dtype", DType::Float).run([texts]).unwrap_err();
        assert_eq!(error.code(), ferroflow_core::Code::InvalidArgument);
    }
}

//! Constants whose contents are a file.

use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx};
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, kernels, status};
use ferroflow_io::file;
use ferroflow_io::path::resolve_path;
use ferroflow_proto::tensorflow::TensorProto;

pub(crate) const OPS: &[&Op] = &[&IMMUTABLE_CONST];

static IMMUTABLE_CONST: Op = Op {
    name: "ImmutableConst",
    outputs: &["tensor: dtype"],
    attrs: &["dtype: type", "shape: shape", "memory_region_name: string"],
    shape: immutable_const_shape,
    kernels: kernels![any immutable_const_kernel],
    ..Op::PURE
};

fn immutable_const_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape: PartialShape = s.attr("shape")?;
    s.set(0, shape);
    Ok(())
}

/// The file is read in every step, as in stock, which maps it.
fn immutable_const_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (dtype, shape): (DType, PartialShape) = (init.attr("dtype")?, init.attr("shape")?);
    let name: String = init.attr("memory_region_name")?;
    ensure!(
        dtype != DType::Resource && dtype != DType::Variant,
        InvalidArgument,
        "Resource and variant dtypes are invalid for this op."
    );
    let shape = shape.to_shape().ok_or_else(|| {
        status!(InvalidArgument, "the shape of an ImmutableConst must be known, got {shape}")
    })?;
    Kernel::sync(move |cx| {
        let path = resolve_path(&name)?;
        let mut contents = file::read(&path)?;
        ensure!(
            dtype != DType::String,
            Unimplemented,
            "Sorry, DT_STRING is not currently supported for ImmutableConstOp."
        );
        cx.device().check_allocation(dtype, &shape)?;
        let bytes = shape.elements() * dtype.size();
        ensure!(
            contents.len() >= bytes,
            Internal,
            "Tried to allocate {bytes} bytes, while only {} bytes exist in the region {name}",
            contents.len()
        );
        contents.truncate(bytes);
        let proto = TensorProto {
            dtype: dtype.to_wire(),
            tensor_shape: Some(shape.to_proto()),
            tensor_content: contents.into(),
            ..Default::default()
        };
        Ok(Tensor::from_proto(&proto)?.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{Code, DType, PartialShape};

    #[test]
    fn contents_come_from_a_file() {
        let path = std::env::temp_dir().join(format!("immutable-{}", std::process::id()));
        std::fs::write(&path, [1.5f32.to_le_bytes(), 2.5f32.to_le_bytes()].concat()).unwrap();
        let node = |length: i64| {
            Node::new("ImmutableConst")
                .attr("dtype", DType::Float)
                .attr("shape", PartialShape::new([length]).unwrap())
                .attr("memory_region_name", path.to_str().unwrap())
        };
        assert_eq!(node(2).run([]).unwrap()[0].flat::<f32>().unwrap(), [1.5, 2.5]);
        assert_eq!(node(3).run([]).unwrap_err().code(), Code::Internal);
        std::fs::remove_file(&path).unwrap();
        assert_eq!(node(2).run([]).unwrap_err().code(), Code::NotFound);
    }
}

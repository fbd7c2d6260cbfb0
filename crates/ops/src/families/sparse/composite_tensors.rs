//! Values made of several tensors, such as ragged tensors and those of users' own types, as one variant.

use crate::state::variant_tensors::{VariantKind, VariantTensors};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, shapes};
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, Result, Tensor, ensure, kernels, status};
use ferroflow_proto::tensorflow::TypeSpecProto;
use ferroflow_proto::tensorflow::type_spec_proto::TypeSpecClass;
use prost::Message;

pub(crate) const OPS: &[&Op] =
    &[&COMPOSITE_TENSOR_VARIANT_FROM_COMPONENTS, &COMPOSITE_TENSOR_VARIANT_TO_COMPONENTS];

static COMPOSITE_TENSOR_VARIANT_FROM_COMPONENTS: Op = Op {
    name: "CompositeTensorVariantFromComponents",
    gradient: Gradient::Fn(from_components_grad),
    inputs: &["components: Tcomponents"],
    outputs: &["encoded: variant"],
    attrs: &["metadata: string", "Tcomponents: list(type) >= 0"],
    shape: shapes::scalar,
    kernels: kernels![any from_components_kernel],
    ..Op::PURE
};

static COMPOSITE_TENSOR_VARIANT_TO_COMPONENTS: Op = Op {
    name: "CompositeTensorVariantToComponents",
    gradient: Gradient::Fn(to_components_grad),
    inputs: &["encoded: variant"],
    outputs: &["components: Tcomponents"],
    attrs: &["metadata: string", "Tcomponents: list(type) >= 0"],
    shape: shapes::unknown,
    kernels: kernels![any to_components_kernel],
    ..Op::PURE
};

/// The message in the attribute `metadata`.
#[derive(Clone, PartialEq, Message)]
struct Metadata {
    #[prost(message, optional, tag = "1")]
    type_spec_proto: Option<TypeSpecProto>,
}

impl Metadata {
    fn class(&self) -> TypeSpecClass {
        self.type_spec_proto.as_ref().map_or(TypeSpecClass::Unknown, TypeSpecProto::type_spec_class)
    }
}

fn metadata(init: &Init<'_>) -> Result<(bytes::Bytes, Metadata)> {
    let text: bytes::Bytes = init.attr("metadata")?;
    let parsed = Metadata::decode(text.clone());
    Ok((text, parsed.map_err(|_| status!(InvalidArgument, "Error parsing metadata"))?))
}

fn from_components_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (metadata, _) = metadata(init)?;
    Kernel::sync(move |cx| {
        let tensors: Vec<Tensor> =
            (0..cx.num_inputs()).map(|input| Ok(cx.input(input)?.clone())).collect::<Result<_>>()?;
        let value = VariantTensors { kind: VariantKind::Composite, metadata: metadata.clone(), tensors };
        Ok(value.into_scalar()?.into())
    })
}

fn to_components_kernel(init: &Init<'_>) -> Result<Kernel> {
    let expected = metadata(init)?.1.class();
    let types: Vec<DType> = init.attr("Tcomponents")?;
    Kernel::sync(move |cx| {
        let encoded = cx.input(0)?;
        let first = encoded.units::<Variant>()?.first().ok_or_else(|| {
            status!(
                InvalidArgument,
                "Input `encoded` must not be an empty variant tensor, but got {encoded:?}"
            )
        })?;
        let value = VariantTensors::of(first, VariantKind::Composite)?.ok_or_else(|| {
            status!(
                InvalidArgument,
                "The input `encoded` is not a valid CompositeTensorVariant tensor, got {first:?}"
            )
        })?;
        let actual = Metadata::decode(value.metadata.clone()).unwrap_or_default().class();
        ensure!(
            expected == actual,
            InvalidArgument,
            "Expected a {} (based on `type_spec`), but `encoded` contains a {}",
            expected.as_str_name(),
            actual.as_str_name()
        );
        ensure!(
            types.len() == value.tensors.len(),
            InvalidArgument,
            "Encoded value has {} tensor components; expected {} components based on type_spec",
            value.tensors.len(),
            types.len()
        );
        for (i, (expected, component)) in types.iter().zip(&value.tensors).enumerate() {
            ensure!(
                *expected == component.dtype(),
                InvalidArgument,
                "Tensor component {i} had dtype {}; expected dtype {expected}",
                component.dtype()
            );
        }
        Ok(value.tensors.into())
    })
}

fn from_components_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let node = g.scope().op("CompositeTensorVariantToComponents").input(g.dy(0)?);
    let node = node.attr("metadata", g.attr::<bytes::Bytes>("metadata")?);
    let node = node.attr("Tcomponents", g.attr::<Vec<DType>>("Tcomponents")?).build()?;
    (0..g.num_inputs()).map(|i| node.output(i)).collect::<Result<Vec<_>>>().map(Into::into)
}

/// Components that have no gradients, such as the splits of a ragged tensor, stay as they are.
fn to_components_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let grads = (0..g.num_outputs()).map(|i| {
        let output = g.output(i)?;
        let continuous = output.dtype().is_floating() || output.dtype().is_complex();
        if continuous { g.dy(i) } else { Ok(output) }
    });
    let grads = grads.collect::<Result<Vec<_>>>()?;
    let node = g.scope().op("CompositeTensorVariantFromComponents").inputs(&grads);
    let node = node.attr("metadata", g.attr::<bytes::Bytes>("metadata")?);
    let node = node.attr("Tcomponents", g.attr::<Vec<DType>>("Tcomponents")?);
    Ok([node.build()?.output(0)?].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{DType, Tensor};

    #[test]
    fn components_come_back_of_their_type_only() {
        let node = |op| Node::new(op).attr("metadata", "").attr("Tcomponents", vec![DType::Float]);
        let encoded = node("CompositeTensorVariantFromComponents").run([Tensor::scalar(2.0f32)]).unwrap();
        let to = |metadata: &str| node("CompositeTensorVariantToComponents").attr("metadata", metadata);
        let out = to("").run(encoded.clone()).unwrap();
        assert_eq!(out[0].to_scalar::<f32>().unwrap(), 2.0);
        // The metadata of a sparse tensor.
        assert!(to("\n\u{2}\u{8}\u{1}").run(encoded).is_err());
    }
}

//! Optionals: a tuple of tensors or nothing, as one value. Gradients of functional conditionals carry what only one
//! branch computed in them.

use crate::builders as ops;
use crate::support::rows;
use bytes::Bytes;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{GradCx, Gradient, InputGrads, Op, ShapeCx, shapes};
use ferroflow_core::resource::HandleShape;
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};
use ferroflow_proto::tensorflow::VariantTensorDataProto;

pub(crate) const OPS: &[&Op] =
    &[&OPTIONAL_NONE, &OPTIONAL_FROM_VALUE, &OPTIONAL_HAS_VALUE, &OPTIONAL_GET_VALUE];

static OPTIONAL_NONE: Op = Op {
    name: "OptionalNone",
    gradient: Gradient::Stop,
    outputs: &["optional: variant"],
    shape: shapes::scalar,
    kernels: kernels![any none_kernel],
    cheap: true,
    ..Op::PURE
};

static OPTIONAL_FROM_VALUE: Op = Op {
    name: "OptionalFromValue",
    gradient: Gradient::Fn(from_value_grad),
    inputs: &["components: Toutput_types"],
    outputs: &["optional: variant"],
    attrs: &["Toutput_types: list(type) >= 1"],
    shape: from_value_shape,
    kernels: kernels![any from_value_kernel],
    cheap: true,
    ..Op::PURE
};

static OPTIONAL_HAS_VALUE: Op = Op {
    name: "OptionalHasValue",
    gradient: Gradient::Stop,
    inputs: &["optional: variant"],
    outputs: &["has_value: bool"],
    shape: shapes::scalar,
    kernels: kernels![any has_value_kernel],
    cheap: true,
    ..Op::PURE
};

static OPTIONAL_GET_VALUE: Op = Op {
    name: "OptionalGetValue",
    gradient: Gradient::Fn(get_value_grad),
    inputs: &["optional: variant"],
    outputs: &["components: output_types"],
    attrs: &["output_types: list(type) >= 1", "output_shapes: list(shape) >= 1"],
    shape: get_value_shape,
    kernels: kernels![any get_value_kernel],
    cheap: true,
    ..Op::PURE
};

pub(crate) const TYPE_NAME: &str = "tensorflow::data::Optional";

/// The tensors, if there are any.
pub(crate) struct Optional(pub(crate) Option<Vec<Tensor>>);

impl Optional {
    pub(crate) fn into_tensor(self) -> Tensor {
        let variants = vec![Variant::new(self)];
        Tensor::from_units(DType::Variant, Shape::scalar(), variants).expect("one variant is a scalar")
    }

    /// Looks at an optional, decoded if it came over the wire; `op` is who asks.
    fn with<R>(variant: &Variant, op: &str, look: impl FnOnce(&Optional) -> Result<R>) -> Result<R> {
        if let Some(optional) = variant.downcast::<Optional>() {
            return look(optional);
        }
        match variant.as_opaque() {
            Some(proto) if proto.type_name == TYPE_NAME => look(&Optional::from_proto(proto)?),
            _ => bail!(
                InvalidArgument,
                "Input to {op} must be an OptionalVariant object. It is a {variant:?}."
            ),
        }
    }

    /// Looks at the optional that a tensor holds.
    fn with_tensor<R>(tensor: &Tensor, op: &str, look: impl FnOnce(&Optional) -> Result<R>) -> Result<R> {
        ensure!(
            tensor.rank() == 0,
            InvalidArgument,
            "Input to {op} must be a scalar tensor containing an OptionalVariant object. Its shape is {}.",
            tensor.shape()
        );
        Optional::with(&tensor.units::<Variant>()?[0], op, look)
    }

    pub(crate) fn from_proto(proto: &VariantTensorDataProto) -> Result<Optional> {
        match proto.metadata[..] {
            [0] => Ok(Optional(None)),
            [_] => Ok(Optional(Some(proto.tensors.iter().map(Tensor::from_proto).collect::<Result<_>>()?))),
            _ => bail!(
                InvalidArgument,
                "malformed metadata of an optional: expected 1 byte, got {}",
                proto.metadata.len()
            ),
        }
    }
}

impl VariantValue for Optional {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        let tensors: Result<Vec<_>> = self.0.iter().flatten().map(Tensor::to_proto).collect();
        Ok(VariantTensorDataProto {
            type_name: TYPE_NAME.to_owned(),
            metadata: Bytes::from(vec![self.0.is_some() as u8]),
            tensors: tensors?,
        })
    }

    fn zeros_like(&self) -> Result<Variant> {
        let zeros = |values: &Vec<Tensor>| values.iter().map(rows::zeros_like).collect::<Result<_>>();
        Ok(Variant::new(Optional(self.0.as_ref().map(zeros).transpose()?)))
    }

    fn add(&self, other: &Variant) -> Result<Variant> {
        Optional::with(other, "AddN", |other| {
            let (a, b) = match (&self.0, &other.0) {
                (None, None) => return Ok(Variant::new(Optional(None))),
                (Some(a), Some(b)) => (a, b),
                _ => bail!(
                    InvalidArgument,
                    "Cannot add optionals because one has a value and the other doesn't."
                ),
            };
            ensure!(
                a.len() == b.len(),
                InvalidArgument,
                "Cannot add optionals because they have different numbers of components ({} vs. {}).",
                a.len(),
                b.len()
            );
            let sums = a.iter().zip(b).map(|(a, b)| rows::add(a.clone(), b)).collect::<Result<_>>()?;
            Ok(Variant::new(Optional(Some(sums))))
        })
    }
}

fn from_value_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let types: Vec<DType> = s.attr("Toutput_types")?;
    let component = |(input, dtype)| HandleShape { dtype, shape: s.input(input) };
    let components = types.into_iter().enumerate().map(component).collect();
    s.set(0, PartialShape::scalar());
    s.set_handles(0, components);
    Ok(())
}

fn get_value_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shapes: Vec<PartialShape> = s.attr("output_shapes")?;
    ensure!(
        shapes.len() == s.num_outputs(),
        InvalidArgument,
        "`output_shapes` must be the same length as `output_types` ({} vs. {})",
        shapes.len(),
        s.num_outputs()
    );
    for (output, shape) in shapes.into_iter().enumerate() {
        s.set(output, shape);
    }
    Ok(())
}

fn none_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| Ok(Optional(None).into_tensor().into()))
}

fn from_value_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let components = (0..cx.num_inputs()).map(|input| cx.take(input)).collect::<Result<_>>()?;
        Ok(Optional(Some(components)).into_tensor().into())
    })
}

fn has_value_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let has_value =
            Optional::with_tensor(cx.input(0)?, "OptionalHasValue", |optional| Ok(optional.0.is_some()))?;
        Ok(Tensor::scalar(has_value).into())
    })
}

fn get_value_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (types, shapes): (Vec<DType>, Vec<PartialShape>) =
        (init.attr("output_types")?, init.attr("output_shapes")?);
    ensure!(
        types.len() == shapes.len(),
        InvalidArgument,
        "output_types and output_shapes must be same length, got:\noutput_types: {}\noutput_shapes: {}",
        types.len(),
        shapes.len()
    );
    Kernel::sync(move |cx| {
        Optional::with_tensor(cx.input(0)?, "OptionalGetValue", |optional| {
            let Some(components) = &optional.0 else {
                bail!(InvalidArgument, "The given optional does not have a value.")
            };
            ensure!(
                components.len() == types.len(),
                InvalidArgument,
                "The given optional has {} components, expected {}",
                components.len(),
                types.len()
            );
            for (i, (component, (dtype, shape))) in
                components.iter().zip(types.iter().zip(&shapes)).enumerate()
            {
                let expected = format_args!("The given optional does not match the expected");
                ensure!(
                    component.dtype() == *dtype,
                    InvalidArgument,
                    "{expected} type for component {i}. Expected: {dtype}. Actual: {}.",
                    component.dtype()
                );
                ensure!(
                    shape.admits(component.shape()),
                    InvalidArgument,
                    "{expected} shape for component {i}. Expected: {shape}. Actual: {}.",
                    component.shape()
                );
            }
            Ok(components.clone().into())
        })
    })
}

fn from_value_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let types: Vec<DType> = g.inputs().iter().map(|input| input.dtype()).collect();
    let shapes: Vec<PartialShape> = g.inputs().iter().map(|input| input.shape()).collect();
    Ok(ops::optional_get_value(g.scope(), g.dy(0)?, types, shapes)?.into())
}

fn get_value_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let components = (0..g.num_outputs()).map(|output| g.dy(output)).collect::<Result<Vec<_>>>()?;
    Ok([ops::optional_from_value(g.scope(), &components)?].into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Node;
    use ferroflow_core::Code;

    #[test]
    fn optionals_survive_the_wire() {
        for optional in [Optional(None), Optional(Some(vec![Tensor::scalar(2.0f32), Tensor::scalar(true)]))] {
            let back = Optional::from_proto(&optional.to_proto().unwrap()).unwrap();
            assert_eq!(back.0.as_ref().map(Vec::len), optional.0.as_ref().map(Vec::len));
        }
    }

    #[test]
    fn other_values_are_refused() {
        let list = Tensor::from_units(DType::Variant, Shape::scalar(), vec![Variant::default()]).unwrap();
        let refusal = Node::new("OptionalHasValue").run([list]).map(|_| ()).unwrap_err();
        assert_eq!(refusal.code(), Code::InvalidArgument);
    }
}

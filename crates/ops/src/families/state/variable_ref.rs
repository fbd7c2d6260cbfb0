//! Ref variables: the reference itself travels along edges, and a node that takes a value reads it when it runs.

use crate::numeric::{Int, Num};
use crate::state::variable::{add_assign, sub_assign};
use ferroflow_core::kernel::{Init, Kernel, Outputs, Value};
use ferroflow_core::op::{Gradient, Op, OpClass, ShapeCx, shapes};
use ferroflow_core::resource::{CachedLookup, RefVariable, Variable};
use ferroflow_core::{
    C64, C128, DType, PartialShape, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels,
};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &VARIABLE_V2,
    &VARIABLE,
    &IS_VARIABLE_INITIALIZED,
    &ASSIGN,
    &ASSIGN_ADD,
    &ASSIGN_SUB,
    &COUNT_UP_TO,
    &RESOURCE_COUNT_UP_TO,
];

static VARIABLE_V2: Op = Op {
    name: "VariableV2",
    outputs: &["ref: Ref(dtype)"],
    attrs: &["shape: shape", "dtype: type", "container: string = ''", "shared_name: string = ''"],
    shape: variable_shape,
    kernels: kernels![any variable_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static VARIABLE: Op = Op {
    name: "Variable",
    outputs: &["ref: Ref(dtype)"],
    attrs: &["shape: shape", "dtype: type", "container: string = ''", "shared_name: string = ''"],
    shape: old_variable_shape,
    kernels: kernels![any variable_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static IS_VARIABLE_INITIALIZED: Op = Op {
    name: "IsVariableInitialized",
    inputs: &["ref: Ref(dtype)"],
    outputs: &["is_initialized: bool"],
    attrs: &["dtype: type"],
    shape: shapes::scalar,
    kernels: kernels![any is_initialized_kernel],
    cheap: true,
    allows_uninitialized_input: true,
    ..Op::PURE
};

static ASSIGN: Op = Op {
    name: "Assign",
    gradient: Gradient::Stop,
    inputs: &["ref: Ref(T)", "value: T"],
    outputs: &["output_ref: Ref(T)"],
    attrs: &["T: type", "validate_shape: bool = true", "use_locking: bool = true"],
    shape: assign_shape,
    kernels: kernels![any assign_kernel],
    allows_uninitialized_input: true,
    ..Op::PURE
};

static ASSIGN_ADD: Op = Op {
    name: "AssignAdd",
    gradient: Gradient::Stop,
    inputs: &["ref: Ref(T)", "value: T"],
    outputs: &["output_ref: Ref(T)"],
    attrs: &["T: numbertype", "use_locking: bool = false"],
    shape: update_shape,
    kernels: kernels![add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::PURE
};

static ASSIGN_SUB: Op = Op {
    name: "AssignSub",
    gradient: Gradient::Stop,
    inputs: &["ref: Ref(T)", "value: T"],
    outputs: &["output_ref: Ref(T)"],
    attrs: &["T: numbertype", "use_locking: bool = false"],
    shape: update_shape,
    kernels: kernels![sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::PURE
};

static COUNT_UP_TO: Op = Op {
    name: "CountUpTo",
    inputs: &["ref: Ref(T)"],
    outputs: &["output: T"],
    attrs: &["limit: int", "T: {int32, int64}"],
    shape: count_shape,
    kernels: kernels![count_kernel: i32, i64],
    cheap: true,
    ..Op::PURE
};

static RESOURCE_COUNT_UP_TO: Op = Op {
    name: "ResourceCountUpTo",
    inputs: &["resource: resource"],
    outputs: &["output: T"],
    attrs: &["limit: int", "T: {int32, int64}"],
    shape: resource_count_shape,
    kernels: kernels![count_kernel: i32, i64],
    cheap: true,
    ..Op::STATEFUL
};

fn variable_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.attr::<PartialShape>("shape")?;
    s.set(0, shape);
    Ok(())
}

/// In the old op an empty shape means that nothing is known.
fn old_variable_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.attr::<PartialShape>("shape")?;
    if shape.rank() != Some(0) {
        s.set(0, shape);
    }
    Ok(())
}

fn assign_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let value = s.input(1);
    let shape = if s.attr("validate_shape")? { s.merge(&s.input(0), &value)? } else { value };
    s.set(0, shape);
    Ok(())
}

fn update_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.merge(&s.input(0), &s.input(1))?;
    s.set(0, shape);
    Ok(())
}

fn count_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.output(0, [])
}

fn resource_count_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.output(0, [])
}

fn variable_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (container, name) = init.resource_name()?;
    let (dtype, shape) = (init.attr::<DType>("dtype")?, init.attr::<Shape>("shape")?);
    let node = init.node.to_owned();
    let remembered = CachedLookup::default();
    Kernel::sync(move |cx| {
        let resources = &cx.step().resources;
        let variable = resources.lookup_cached(&remembered, &container, &name).or_else(|_| {
            resources.lookup_or_create(&container, &name, || {
                Ok(RefVariable(Arc::new(Variable::declared(dtype, &name, shape.clone()))))
            })
        })?;
        let found = variable.0.dtype();
        ensure!(
            found == dtype,
            Internal,
            "Output 0 of type {found}_ref does not match declared output type {dtype}_ref for node {{{{node {node}}}}}"
        );
        Ok(Value::Ref(variable.0.clone()).into())
    })
}

fn is_initialized_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(cx.variable(0)?.is_initialized()).into()))
}

fn assign_kernel(init: &Init<'_>) -> Result<Kernel> {
    let validate_shape: bool = init.attr("validate_shape")?;
    Kernel::sync(move |cx| {
        let variable = cx.variable(0)?;
        let value = cx.take(1)?;
        if value.dtype() != variable.dtype() {
            bail!(
                InvalidArgument,
                "Trying to assign variable with wrong dtype. Expected {} got {}",
                variable.dtype(),
                value.dtype()
            );
        }
        variable.modify(|slot| {
            let shape = slot.as_ref().map(Tensor::shape).or(variable.declared_shape());
            if let (true, Some(shape)) = (validate_shape, shape) {
                ensure!(
                    shape == value.shape(),
                    InvalidArgument,
                    "Assign requires shapes of both tensors to match. lhs shape= {shape} rhs shape= {}",
                    value.shape()
                );
            }
            *slot = Some(value);
            Ok(())
        })?;
        Ok(cx.forward(0)?.into())
    })
}

fn add_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    changed::<T>(add_assign)
}

fn sub_kernel<T: Num>(_: &Init<'_>) -> Result<Kernel> {
    changed::<T>(sub_assign)
}

fn changed<T: Num>(change: fn(&mut [T], &[T])) -> Result<Kernel> {
    Kernel::sync(move |cx| {
        let value = cx.input(1)?;
        cx.variable(0)?.update(|variable| {
            ensure!(
                variable.shape() == value.shape(),
                InvalidArgument,
                "Parameters and update must be the same size"
            );
            crate::state::variable::change(
                cx.device().threads(),
                variable.flat_mut()?,
                value.flat()?,
                change,
            );
            Ok(())
        })?;
        Ok(cx.forward(0)?.into())
    })
}

/// Counts a scalar up and returns what it was; also for resource variables.
fn count_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    let limit: i64 = init.attr("limit")?;
    Kernel::sync(move |cx| {
        let before = cx.variable(0)?.update(|value| {
            ensure!(value.rank() == 0, InvalidArgument, "input is not a scalar: {}", value.shape());
            let slot = &mut value.flat_mut::<T>()?[0];
            let before = *slot;
            ensure!(before.to_i64() < limit, OutOfRange, "Reached limit of {limit}");
            *slot = before.add(T::ONE);
            Ok(before)
        })?;
        Ok(Outputs::from(Tensor::scalar(before)))
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::kernel::Value;
    use ferroflow_core::resource::ResourceManager;
    use ferroflow_core::{Code, DType, Tensor};

    #[test]
    fn assignments_keep_the_shape_unless_told_otherwise() {
        infer("Assign", "[2,?];[?,3]", "[2,3]");
        infer_err("Assign", "[2];[3]", Code::InvalidArgument);
        Node::new("Assign").attr("validate_shape", false).infer("[2];[3]", "[3]");
    }

    #[test]
    fn the_first_value_must_have_the_declared_shape() {
        let resources = ResourceManager::new("localhost");
        let shape = ferroflow_core::PartialShape::new([2]).unwrap();
        let node = Node::new("VariableV2").attr("dtype", DType::Float).attr("shape", shape);
        let variable = node.resources(&resources).run_values(Vec::new()).unwrap().remove(0);
        let assign =
            |value: Tensor| Node::new("Assign").run_values(vec![variable.clone(), Value::Tensor(value)]);
        assert!(assign(Tensor::vector(vec![1.0f32])).is_err());
        assign(Tensor::vector(vec![1.0f32, 2.0])).unwrap();
        assert_eq!(variable.read().unwrap().flat::<f32>().unwrap(), [1.0, 2.0]);
    }
}

//! Resource variables: a handle names the variable, which comes to be when it is first assigned.

use crate::families::array::identity::identity_grad;
use crate::numeric::Num;
use crate::state::variable::{add_assign, existing, sub_assign};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Gradient, Op, OpClass, ShapeCx, shapes};
use ferroflow_core::resource::{HandleShape, Resource, ResourceHandle, Variable};
use ferroflow_core::{C64, C128, DType, PartialShape, Result, Shape, Tensor, bf16, ensure, f16, kernels};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &VAR_HANDLE_OP,
    &VAR_HANDLES_OP,
    &READ_VARIABLE_OP,
    &READ_VARIABLES_OP,
    &ASSIGN_VARIABLE_OP,
    &ASSIGN_ADD_VARIABLE_OP,
    &ASSIGN_SUB_VARIABLE_OP,
    &VAR_IS_INITIALIZED_OP,
    &VARIABLE_SHAPE,
    &DESTROY_RESOURCE_OP,
    &DISABLE_COPY_ON_READ,
];

static VAR_HANDLE_OP: Op = Op {
    name: "VarHandleOp",
    outputs: &["resource: resource"],
    attrs: &[
        "container: string = ''",
        "shared_name: string = ''",
        "debug_name: string = ''",
        "dtype: type",
        "shape: shape",
        "allowed_devices: list(string) = []",
    ],
    shape: handle_shape,
    kernels: kernels![any handle_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static VAR_HANDLES_OP: Op = Op {
    name: "_VarHandlesOp",
    outputs: &["resources: N * resource"],
    attrs: &[
        "containers: list(string)",
        "shared_names: list(string)",
        "N: int >= 0",
        "dtypes: list(type)",
        "shapes: list(shape)",
    ],
    shape: handles_shape,
    kernels: kernels![any handles_kernel],
    class: OpClass::Variable,
    cheap: true,
    ..Op::STATEFUL
};

static READ_VARIABLE_OP: Op = Op {
    name: "ReadVariableOp",
    gradient: Gradient::Fn(identity_grad),
    inputs: &["resource: resource"],
    outputs: &["value: dtype"],
    attrs: &["dtype: type"],
    shape: read_shape,
    kernels: kernels![any read_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static READ_VARIABLES_OP: Op = Op {
    name: "_ReadVariablesOp",
    inputs: &["resources: N * resource"],
    outputs: &["values: dtypes"],
    attrs: &["N: int >= 0", "dtypes: list(type) >= 1"],
    shape: shapes::unknown,
    kernels: kernels![any read_all_kernel],
    ..Op::STATEFUL
};

static ASSIGN_VARIABLE_OP: Op = Op {
    name: "AssignVariableOp",
    inputs: &["resource: resource", "value: dtype"],
    attrs: &["dtype: type", "validate_shape: bool = false"],
    shape: assign_shape,
    kernels: kernels![any assign_kernel],
    ..Op::STATEFUL
};

static ASSIGN_ADD_VARIABLE_OP: Op = Op {
    name: "AssignAddVariableOp",
    inputs: &["resource: resource", "value: dtype"],
    attrs: &["dtype: type"],
    shape: assign_shape,
    kernels: kernels!["dtype" => add_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::STATEFUL
};

static ASSIGN_SUB_VARIABLE_OP: Op = Op {
    name: "AssignSubVariableOp",
    inputs: &["resource: resource", "value: dtype"],
    attrs: &["dtype: type"],
    shape: assign_shape,
    kernels: kernels!["dtype" => sub_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128],
    ..Op::STATEFUL
};

static VAR_IS_INITIALIZED_OP: Op = Op {
    name: "VarIsInitializedOp",
    gradient: Gradient::Stop,
    inputs: &["resource: resource"],
    outputs: &["is_initialized: bool"],
    shape: shapes::scalar,
    kernels: kernels![any is_initialized_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static VARIABLE_SHAPE: Op = Op {
    name: "VariableShape",
    gradient: Gradient::Stop,
    inputs: &["input: resource"],
    outputs: &["output: out_type"],
    attrs: &["out_type: {int32, int64} = DT_INT32"],
    shape: variable_shape_shape,
    kernels: kernels![any shape_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DESTROY_RESOURCE_OP: Op = Op {
    name: "DestroyResourceOp",
    inputs: &["resource: resource"],
    attrs: &["ignore_lookup_error: bool = true"],
    shape: shapes::unknown,
    kernels: kernels![any destroy_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DISABLE_COPY_ON_READ: Op = Op {
    name: "DisableCopyOnRead",
    inputs: &["resource: resource"],
    shape: shapes::unknown,
    kernels: kernels![any disable_copy_on_read_kernel],
    cheap: true,
    ..Op::STATEFUL
};

fn handle_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let (dtype, shape) = (s.attr("dtype")?, s.attr("shape")?);
    s.set_handles(0, vec![HandleShape { dtype, shape }]);
    s.output(0, [])
}

fn handles_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let dtypes: Vec<DType> = s.attr("dtypes")?;
    let declared: Vec<PartialShape> = s.attr("shapes")?;
    for (output, (dtype, shape)) in dtypes.into_iter().zip(declared).enumerate() {
        s.set_handles(output, vec![HandleShape { dtype, shape }]);
        s.output(output, [])?;
    }
    Ok(())
}

fn read_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if let Some(handle) = s.handle(0).cloned() {
        let dtype: DType = s.attr("dtype")?;
        ensure!(
            handle.dtype == dtype,
            InvalidArgument,
            "Trying to read variable with wrong dtype. Expected {} got {dtype}",
            handle.dtype
        );
        s.set(0, handle.shape);
    }
    Ok(())
}

fn assign_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if let Some(handle) = s.handle(0) {
        let dtype: DType = s.attr("dtype")?;
        ensure!(
            handle.dtype == dtype,
            InvalidArgument,
            "Trying to assign variable with wrong dtype. Expected {} got {dtype}",
            handle.dtype
        );
        // Only an assignment may replace the shape, unless it is told not to; updates keep it.
        if s.attr("validate_shape").unwrap_or(true) {
            s.merge(&handle.shape, &s.input(1))?;
        }
    }
    Ok(())
}

fn variable_shape_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rank = s.handle(0).and_then(|handle| handle.shape.rank());
    s.output(0, [rank.map_or(ferroflow_core::op::UNKNOWN_DIM, |rank| rank as i64)])
}

/// The shared name that stands for "a new variable at every execution, owned by its handle".
const ANONYMOUS: &str = "cd2c89b7-88b7-44c8-ad83-06c2a9158347";
/// The type's name in handles, as stock spells it.
const VARIABLE_TYPE: &str = "N10tensorflow3VarE";

/// A named handle is made once, here; an anonymous one with its variable whenever the node runs.
fn handle_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (container, name) = init.resource_name()?;
    let shapes = vec![HandleShape { dtype: init.attr("dtype")?, shape: init.attr("shape")? }];
    let device = init.device.name().to_owned();
    if name == ANONYMOUS {
        return Kernel::sync(move |_| {
            let variable: Arc<dyn Resource> = Arc::new(Variable::new(shapes[0].dtype, ANONYMOUS));
            let handle = ResourceHandle::owned(&device, ANONYMOUS, shapes.clone(), variable);
            Ok(handle_tensor(handle)?.into())
        });
    }
    let handle = handle_tensor(ResourceHandle::named(&device, &container, &name, VARIABLE_TYPE, shapes))?;
    Kernel::sync(move |_| Ok(handle.clone().into()))
}

fn handles_kernel(init: &Init<'_>) -> Result<Kernel> {
    let names: Vec<String> = init.attr("shared_names")?;
    let containers: Vec<String> = init.attr("containers")?;
    let dtypes: Vec<DType> = init.attr("dtypes")?;
    let shapes: Vec<PartialShape> = init.attr("shapes")?;
    let count = init.output_types.len();
    ensure!(
        [names.len(), containers.len(), dtypes.len(), shapes.len()] == [count; 4],
        InvalidArgument,
        "_VarHandlesOp with {count} outputs needs as many names, containers, dtypes and shapes"
    );
    let mut handles = Vec::with_capacity(count);
    for (((name, container), dtype), shape) in names.iter().zip(&containers).zip(dtypes).zip(shapes) {
        let container = init.resources.container_or_default(container);
        let shapes = vec![HandleShape { dtype, shape }];
        let device = init.device.name();
        handles.push(handle_tensor(ResourceHandle::named(device, container, name, VARIABLE_TYPE, shapes))?);
    }
    Kernel::sync(move |_| Ok(handles.clone().into()))
}

fn handle_tensor(handle: ResourceHandle) -> Result<Tensor> {
    Tensor::from_units(DType::Resource, Shape::scalar(), vec![handle])
}

fn read_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dtype")?;
    Kernel::sync(move |cx| Ok(read(cx, 0, dtype)?.into()))
}

fn read_all_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtypes: Vec<DType> = init.attr("dtypes")?;
    Kernel::sync(move |cx| {
        let mut values = Vec::with_capacity(dtypes.len());
        let mut missing = Vec::new();
        for (input, dtype) in dtypes.iter().enumerate() {
            match cx.resource::<Variable>(input).ok().filter(|variable| variable.is_initialized()) {
                Some(_) => values.push(read(cx, input, *dtype)?),
                None => missing.push(cx.handle(input)?.name()),
            }
        }
        ensure!(
            missing.is_empty(),
            FailedPrecondition,
            "In ReadVariablesOp the following variables were found uninitialized: {}",
            missing.join(", ")
        );
        Ok(Outputs::from(values))
    })
}

fn read(cx: &KernelCx<'_>, input: usize, dtype: DType) -> Result<Tensor> {
    let variable = cx.variable(input)?;
    let Some(value) = variable.snapshot() else {
        return Err(uninitialized(cx.handle(input)?));
    };
    ensure!(
        value.dtype() == dtype,
        InvalidArgument,
        "Trying to read variable with wrong dtype. Expected {dtype} got {}",
        value.dtype()
    );
    Ok(value)
}

/// The error for a variable that exists but was never assigned, in stock's words.
fn uninitialized(handle: &ResourceHandle) -> ferroflow_core::Status {
    ferroflow_core::status!(
        FailedPrecondition,
        "Could not find variable {}. This could mean that the variable has been deleted. In TF1, it can also mean the \
         variable is uninitialized. Debug info: container={}, status error message=Resource {}/{}/{VARIABLE_TYPE} does \
         not exist.",
        handle.name(),
        handle.container(),
        handle.container(),
        handle.name()
    )
}

fn assign_kernel(init: &Init<'_>) -> Result<Kernel> {
    let validate_shape: bool = init.attr("validate_shape")?;
    Kernel::sync(move |cx| {
        let value = cx.take(1)?;
        let handle = cx.handle(0)?;
        let variable = match cx.resource::<Variable>(0) {
            Err(_) if handle.owned_resource().is_none() => {
                cx.step().resources.lookup_or_create(handle.container(), handle.name(), || {
                    Ok(Variable::new(value.dtype(), handle.name()))
                })?
            }
            found => found?,
        };
        if validate_shape {
            variable.modify(|slot| {
                if let Some(old) = slot {
                    ensure!(
                        old.shape() == value.shape(),
                        InvalidArgument,
                        "Trying to assign to variable with tensor with wrong shape. Expected {} got {}",
                        old.shape(),
                        value.shape()
                    );
                }
                Ok(())
            })?;
        }
        variable.assign(value)?;
        Ok(Outputs::None)
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
        existing(cx, 0)?.update(|variable| {
            ensure!(
                variable.shape() == value.shape(),
                InvalidArgument,
                "Cannot update variable with shape {} using a Tensor with shape {}, shapes must be equal.",
                variable.shape(),
                value.shape()
            );
            crate::state::variable::change(
                cx.device().threads(),
                variable.flat_mut()?,
                value.flat()?,
                change,
            );
            Ok(())
        })?;
        Ok(Outputs::None)
    })
}

fn is_initialized_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let ready = cx.resource::<Variable>(0).is_ok_and(|variable| variable.is_initialized());
        Ok(Tensor::scalar(ready).into())
    })
}

fn shape_kernel(init: &Init<'_>) -> Result<Kernel> {
    let out_type: DType = init.attr("out_type")?;
    Kernel::sync(move |cx| {
        let dims = existing(cx, 0)?.with(|value| Ok(value.shape().to_vec()))?;
        Ok(match out_type {
            DType::Int64 => Tensor::vector(dims),
            _ => Tensor::vector(dims.into_iter().map(|dim| dim as i32).collect()),
        }
        .into())
    })
}

fn destroy_kernel(init: &Init<'_>) -> Result<Kernel> {
    let ignore_lookup_error: bool = init.attr("ignore_lookup_error")?;
    Kernel::sync(move |cx| {
        let removed = cx.step().resources.delete_by_handle(cx.handle(0)?);
        if !ignore_lookup_error {
            removed?;
        }
        Ok(Outputs::None)
    })
}

fn disable_copy_on_read_kernel(_: &Init<'_>) -> Result<Kernel> {
    // Reads never copy here; the variable has to be there all the same.
    Kernel::sync(|cx| cx.variable(0).map(|_| Outputs::None))
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::{DType, PartialShape, Tensor};

    #[test]
    fn an_anonymous_variable_ends_with_its_handle() {
        let node = Node::new("VarHandleOp").attr("shared_name", super::ANONYMOUS);
        let node = node.attr("dtype", DType::Float).attr("shape", PartialShape::unknown());
        let handle = node.run([]).unwrap().remove(0);
        let assign = Node::new("AssignVariableOp").attr("dtype", DType::Float);
        assign.run([handle.clone(), Tensor::scalar(3.0f32)]).unwrap();
        let read = Node::new("ReadVariableOp").attr("dtype", DType::Float).run([handle]).unwrap();
        assert_eq!(read[0].to_scalar::<f32>().unwrap(), 3.0);
    }
}

//! Temporary variables: memory that a step makes, fills in several places and turns into a value, as `accumulate_n`
//! of TensorFlow 1 does. They end with their step, and each iteration of a loop has its own.

use ferroflow_core::kernel::{Init, Kernel, KernelCx, Value};
use ferroflow_core::op::{Op, ShapeCx, shapes};
use ferroflow_core::resource::{RefVariable, Variable};
use ferroflow_core::{DType, PartialShape, Result, ensure, kernels, status};
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&TEMPORARY_VARIABLE, &DESTROY_TEMPORARY_VARIABLE];

static TEMPORARY_VARIABLE: Op = Op {
    name: "TemporaryVariable",
    outputs: &["ref: Ref(dtype)"],
    attrs: &["shape: shape", "dtype: type", "var_name: string = ''"],
    shape: declared_shape,
    kernels: kernels![any temporary_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static DESTROY_TEMPORARY_VARIABLE: Op = Op {
    name: "DestroyTemporaryVariable",
    inputs: &["ref: Ref(T)"],
    outputs: &["value: T"],
    attrs: &["T: type", "var_name: string"],
    shape: shapes::unchanged,
    kernels: kernels![any destroy_temporary_kernel],
    cheap: true,
    ..Op::PURE
};

/// The container of temporary variables among a step's resources.
const TEMPORARY: &str = "tmp_var";

fn declared_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.attr::<PartialShape>("shape")?;
    s.set(0, shape);
    Ok(())
}

/// The name within the step, with stock's spelling of the iteration.
fn name_in_step(cx: &KernelCx<'_>, name: &str) -> String {
    let at = cx.frame();
    format!("{name}/frame:{}/iter:{}", at.frame, at.iteration)
}

/// A temporary variable has a value from the start. Stock leaves its memory as it was found; here it is zeros.
fn temporary_kernel(init: &Init<'_>) -> Result<Kernel> {
    let given: String = init.attr("var_name")?;
    let name = if given.is_empty() { init.node.to_owned() } else { given };
    let dtype: DType = init.attr("dtype")?;
    let shape: PartialShape = init.attr("shape")?;
    let full = || status!(InvalidArgument, "Shape {shape} is not fully defined");
    let shape = shape.to_shape().ok_or_else(full)?;
    Kernel::sync(move |cx| {
        let variable = Arc::new(Variable::declared(dtype, &name, shape.clone()));
        variable.assign(cx.zeros(dtype, shape.clone())?)?;
        let kept = Arc::new(RefVariable(variable.clone()));
        cx.step().step_resources.create(TEMPORARY, &name_in_step(cx, &name), kept)?;
        Ok(Value::Ref(variable).into())
    })
}

fn destroy_temporary_kernel(init: &Init<'_>) -> Result<Kernel> {
    let name: String = init.attr("var_name")?;
    ensure!(!name.is_empty(), InvalidArgument, "Missing var_name attribute");
    Kernel::sync(move |cx| {
        let value = cx.take_value(0)?.read()?;
        cx.step().step_resources.delete::<RefVariable>(TEMPORARY, &name_in_step(cx, &name))?;
        Ok(value.into())
    })
}

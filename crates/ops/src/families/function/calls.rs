//! Calls of functions, and control flow whose branches and bodies are functions.

use crate::flow::{call_grad, case_grad, if_grad, while_grad};
use ferroflow_core::attr::Attrs;
use ferroflow_core::kernel::{Callable, Init, Kernel, KernelCx, Outputs, Value};
use ferroflow_core::op::{Gradient, Op, OpClass, ShapeCx, shapes};
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, kernels};
use ferroflow_proto::tensorflow::NameAttrList;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &PARTITIONED_CALL,
    &STATEFUL_PARTITIONED_CALL,
    &IF,
    &STATELESS_IF,
    &CASE,
    &STATELESS_CASE,
    &WHILE,
    &STATELESS_WHILE,
    &FOR,
    &FIRST_IF,
    &FIRST_WHILE,
    &ARG,
    &RETVAL,
    &DEVICE_ARG,
    &DEVICE_RETVAL,
    &LIST_TO_ARRAY,
    &ARRAY_TO_LIST,
    &TO_BOOL,
    &FAKE_PARAM,
];

static PARTITIONED_CALL: Op = Op {
    name: "PartitionedCall",
    gradient: Gradient::Fn(call_grad),
    inputs: &["args: Tin"],
    outputs: &["output: Tout"],
    attrs: &[
        "Tin: list(type) >= 0",
        "Tout: list(type) >= 0",
        "f: func",
        "config: string = ''",
        "config_proto: string = ''",
        "executor_type: string = ''",
    ],
    kernels: kernels![any call_kernel],
    class: OpClass::Call,
    ..Op::PURE
};

static STATEFUL_PARTITIONED_CALL: Op =
    Op { name: "StatefulPartitionedCall", stateful: true, distributed: true, ..PARTITIONED_CALL };

static IF: Op = Op {
    name: "If",
    gradient: Gradient::Fn(if_grad),
    inputs: &["cond: Tcond", "input: Tin"],
    outputs: &["output: Tout"],
    attrs: &[
        "Tcond: type",
        "Tin: list(type) >= 0",
        "Tout: list(type) >= 0",
        "then_branch: func",
        "else_branch: func",
        "output_shapes: list(shape) = []",
    ],
    shape: declared_shapes,
    kernels: kernels![any if_kernel],
    class: OpClass::Call,
    ..Op::STATEFUL
};

static STATELESS_IF: Op = Op { name: "StatelessIf", stateful: false, ..IF };

static CASE: Op = Op {
    name: "Case",
    gradient: Gradient::Fn(case_grad),
    inputs: &["branch_index: int32", "input: Tin"],
    outputs: &["output: Tout"],
    attrs: &[
        "Tin: list(type) >= 0",
        "Tout: list(type) >= 0",
        "branches: list(func) >= 1",
        "output_shapes: list(shape) = []",
    ],
    shape: declared_shapes,
    kernels: kernels![any case_kernel],
    class: OpClass::Call,
    ..Op::STATEFUL
};

static STATELESS_CASE: Op = Op { name: "StatelessCase", stateful: false, ..CASE };

static WHILE: Op = Op {
    name: "While",
    gradient: Gradient::Fn(while_grad),
    inputs: &["input: T"],
    outputs: &["output: T"],
    attrs: &[
        "T: list(type) >= 0",
        "cond: func",
        "body: func",
        "output_shapes: list(shape) = []",
        "parallel_iterations: int = 10",
    ],
    shape: loop_shapes,
    kernels: kernels![any while_kernel],
    class: OpClass::Call,
    ..Op::STATEFUL
};

static STATELESS_WHILE: Op = Op { name: "StatelessWhile", stateful: false, ..WHILE };

/// Conditionals of the first generation, without declared shapes.
static FIRST_IF: Op = Op {
    name: "_If",
    attrs: &[
        "Tcond: type",
        "Tin: list(type) >= 1",
        "Tout: list(type) >= 1",
        "then_branch: func",
        "else_branch: func",
    ],
    gradient: Gradient::Undefined,
    shape: shapes::unknown,
    ..IF
};

/// Loops of the first generation, whose variables keep their shapes.
static FIRST_WHILE: Op = Op {
    name: "_While",
    attrs: &["T: list(type) >= 0", "cond: func", "body: func"],
    gradient: Gradient::Undefined,
    shape: shapes::unknown,
    ..WHILE
};

static FOR: Op = Op {
    name: "For",
    inputs: &["start: int32", "limit: int32", "delta: int32", "input: T"],
    outputs: &["output: T"],
    attrs: &["T: list(type) >= 0", "body: func"],
    kernels: kernels![any for_kernel],
    class: OpClass::Call,
    ..Op::PURE
};

static ARG: Op = Op {
    name: "_Arg",
    outputs: &["output: T"],
    attrs: &["T: type", "index: int >= 0"],
    class: OpClass::Arg,
    cheap: true,
    ..Op::STATEFUL
};

static RETVAL: Op = Op {
    name: "_Retval",
    inputs: &["input: T"],
    attrs: &["T: type", "index: int >= 0"],
    class: OpClass::Retval,
    cheap: true,
    ..Op::STATEFUL
};

static DEVICE_ARG: Op = Op { name: "_DeviceArg", ..ARG };

static DEVICE_RETVAL: Op = Op { name: "_DeviceRetval", ..RETVAL };

static LIST_TO_ARRAY: Op = Op {
    name: "_ListToArray",
    inputs: &["input: Tin"],
    outputs: &["output: N * T"],
    attrs: &["Tin: list(type) >= 1", "T: type", "N: int >= 1"],
    shape: each_unchanged,
    kernels: kernels![any pass_all_kernel],
    cheap: true,
    ..Op::PURE
};

static ARRAY_TO_LIST: Op = Op {
    name: "_ArrayToList",
    inputs: &["input: N * T"],
    outputs: &["output: out_types"],
    attrs: &["T: type", "N: int >= 1", "out_types: list(type) >= 1"],
    shape: each_unchanged,
    kernels: kernels![any pass_all_kernel],
    cheap: true,
    ..Op::PURE
};

static TO_BOOL: Op = Op {
    name: "ToBool",
    inputs: &["input: T"],
    outputs: &["output: bool"],
    attrs: &["T: type"],
    shape: shapes::scalar,
    kernels: kernels![any to_bool_kernel],
    cheap: true,
    ..Op::PURE
};

static FAKE_PARAM: Op = Op {
    name: "FakeParam",
    outputs: &["output: dtype"],
    attrs: &["dtype: type", "shape: shape"],
    shape: fake_param_shape,
    kernels: kernels![any fake_param_kernel],
    cheap: true,
    ..Op::PURE
};

/// Output shapes are what the attribute says; the bodies are not looked into.
fn declared_shapes(s: &mut ShapeCx<'_>) -> Result<()> {
    let declared: Vec<PartialShape> = s.attr("output_shapes")?;
    if declared.is_empty() {
        return Ok(());
    }
    ensure!(
        declared.len() == s.num_outputs(),
        InvalidArgument,
        "`output_shapes` must be the same length as num outputs ({} vs. {})",
        declared.len(),
        s.num_outputs()
    );
    for (output, shape) in declared.into_iter().enumerate() {
        s.set(output, shape);
    }
    Ok(())
}

/// As declared; a handle or a list stays what it is.
fn loop_shapes(s: &mut ShapeCx<'_>) -> Result<()> {
    declared_shapes(s)?;
    for output in 0..s.num_outputs() {
        s.set_handles(output, s.handles(output).to_vec());
    }
    Ok(())
}

fn each_unchanged(s: &mut ShapeCx<'_>) -> Result<()> {
    for output in 0..s.num_outputs() {
        s.set(output, s.input(output));
        s.set_handles(output, s.handles(output).to_vec());
    }
    Ok(())
}

fn fake_param_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.attr("shape")?;
    s.set(0, shape);
    Ok(())
}

fn call_kernel(init: &Init<'_>) -> Result<Kernel> {
    let function = init.function("f")?;
    Kernel::future(move |mut cx| {
        let function = function.clone();
        async move {
            let arguments = cx.take_all()?;
            Ok(function.call(arguments, cx.step().clone()).await?.into())
        }
    })
}

fn if_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (then_branch, else_branch) = (init.function("then_branch")?, init.function("else_branch")?);
    let outputs = init.output_types.len();
    Kernel::future(move |mut cx| {
        let (then_branch, else_branch) = (then_branch.clone(), else_branch.clone());
        async move {
            let mut arguments = cx.take_all()?;
            let branch = if is_true(&arguments.remove(0))? { then_branch } else { else_branch };
            let results = branch.call(arguments, cx.step().clone()).await?;
            check_branch(outputs, results.len())?;
            Ok(results.into())
        }
    })
}

fn case_kernel(init: &Init<'_>) -> Result<Kernel> {
    let branches = functions(init.attrs, init, "branches")?;
    let outputs = init.output_types.len();
    Kernel::future(move |mut cx| {
        let branches = branches.clone();
        async move {
            let mut arguments = cx.take_all()?;
            let index = arguments.remove(0).to_scalar::<i32>()?;
            // An index out of range selects the last branch, as in stock.
            let last = branches.len() - 1;
            let branch = &branches[usize::try_from(index).unwrap_or(last).min(last)];
            let results = branch.clone().call(arguments, cx.step().clone()).await?;
            check_branch(outputs, results.len())?;
            Ok(results.into())
        }
    })
}

fn functions(attrs: &Attrs, init: &Init<'_>, name: &str) -> Result<Arc<[Arc<dyn Callable>]>> {
    let functions: Vec<NameAttrList> = attrs.get(name)?;
    functions.iter().map(|function| init.library.instantiate(function)).collect()
}

fn while_kernel(init: &Init<'_>) -> Result<Kernel> {
    let (condition, body) = (init.function("cond")?, init.function("body")?);
    Kernel::future(move |mut cx| {
        let (condition, body) = (condition.clone(), body.clone());
        async move {
            let step = cx.step().clone();
            let mut variables = cx.take_all()?;
            loop {
                step.check_cancelled()?;
                let verdict = condition.clone().call(variables.clone(), step.clone()).await?;
                let [verdict] = verdict.as_slice() else {
                    bail!(
                        InvalidArgument,
                        "Expected a single scalar return value from WhileOp cond, got {} tensors.",
                        verdict.len()
                    );
                };
                if !is_true(verdict)? {
                    return Ok(variables.into());
                }
                let count = variables.len();
                variables = body.clone().call(variables, step.clone()).await?;
                ensure!(
                    variables.len() == count,
                    InvalidArgument,
                    "While loop body returned {} arguments. Expected: {count}.",
                    variables.len()
                );
            }
        }
    })
}

fn for_kernel(init: &Init<'_>) -> Result<Kernel> {
    let body = init.function("body")?;
    Kernel::future(move |mut cx| {
        let body = body.clone();
        async move {
            let step = cx.step().clone();
            let mut variables = cx.take_all()?;
            let mut bounds = [0i32; 3];
            for (bound, name) in bounds.iter_mut().zip(["start", "limit", "delta"]) {
                let tensor = variables.remove(0);
                ensure!(
                    tensor.rank() == 0,
                    InvalidArgument,
                    "{name} must be a scalar, got shape {}",
                    tensor.shape()
                );
                *bound = tensor.to_scalar()?;
            }
            let [start, limit, delta] = bounds;
            let reaches = start == limit || (delta > 0 && start <= limit) || (delta < 0 && start >= limit);
            ensure!(reaches, InvalidArgument, "Invalid start/limit/delta: {start} {limit} {delta}");
            let mut i = start;
            while (delta > 0 && i < limit) || (delta < 0 && i > limit) {
                step.check_cancelled()?;
                let count = variables.len();
                variables.insert(0, Tensor::scalar(i));
                variables = body.clone().call(variables, step.clone()).await?;
                let received = variables.len();
                ensure!(
                    received <= count,
                    InvalidArgument,
                    "For loop body returned {received} arguments. Expected: {count}"
                );
                check_results(count, received)?;
                i = match i.checked_add(delta) {
                    Some(next) => next,
                    None => break,
                };
            }
            Ok(variables.into())
        }
    })
}

fn check_branch(expected: usize, received: usize) -> Result<()> {
    // Stock says "only" of too many, too.
    ensure!(expected == received, Internal, "Expect to produce {expected} tensors, but only get {received}");
    Ok(())
}

fn check_results(expected: usize, received: usize) -> Result<()> {
    ensure!(expected == received, InvalidArgument, "Expected {expected} arguments, but received {received}.");
    Ok(())
}

fn pass_all_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let values: Result<Vec<Value>> = (0..cx.num_inputs()).map(|input| cx.take_value(input)).collect();
        Ok(Outputs::Many(values?))
    })
}

fn to_bool_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(Tensor::scalar(is_true(cx.input(0)?)?).into()))
}

/// The truth of a condition: a number that is not zero, a string or a tensor of some rank that is not empty. Stock
/// refuses scalars of the element types that are missing here.
fn is_true(tensor: &Tensor) -> Result<bool> {
    if tensor.rank() > 0 {
        return Ok(tensor.elements() > 0);
    }
    fn at<T: ferroflow_core::Element>(tensor: &Tensor) -> Result<bool> {
        Ok(tensor.to_scalar::<T>()? != T::default())
    }
    use DType::*;
    match tensor.dtype() {
        Bool => at::<bool>(tensor),
        Float => at::<f32>(tensor),
        Double => at::<f64>(tensor),
        Int8 => at::<i8>(tensor),
        Int16 => at::<i16>(tensor),
        Int32 => at::<i32>(tensor),
        Int64 => at::<i64>(tensor),
        Uint8 => at::<u8>(tensor),
        String => at::<ferroflow_core::kernel::Str>(tensor),
        other => bail!(InvalidArgument, "{other} cannot be converted to a boolean"),
    }
}

/// A value that is never looked at; unknown dimensions are taken as 0.
fn fake_param_kernel(init: &Init<'_>) -> Result<Kernel> {
    let shape: PartialShape = init.attr("shape")?;
    let shape = Shape::new(shape.dims().unwrap_or_default().iter().map(|dim| (*dim).max(0)))?;
    let dtype = init.output_types[0];
    Kernel::sync(move |cx: &mut KernelCx<'_>| Ok(cx.zeros(dtype, shape.clone())?.into()))
}

#[cfg(test)]
mod tests {
    use super::is_true;
    use ferroflow_core::{Shape, Tensor};

    #[test]
    fn truth_follows_value_then_size() {
        assert!(is_true(&Tensor::scalar(0.5f32)).unwrap());
        assert!(!is_true(&Tensor::scalar(0i64)).unwrap());
        assert!(!is_true(&Tensor::scalar(bytes::Bytes::new())).unwrap());
        assert!(is_true(&Tensor::vector(vec![0i32])).unwrap());
        assert!(!is_true(&Tensor::zeros(ferroflow_core::DType::Int32, Shape::vector(0))).unwrap());
    }
}

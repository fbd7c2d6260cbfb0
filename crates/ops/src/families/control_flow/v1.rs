//! Control flow made of single nodes: switches, merges and the borders of loop frames.
//!
//! The executor runs most of these itself, by class; a kernel stands here only where the op runs like any other.

use crate::families::array::identity::identity_grad;
use crate::flow::{in_frame_grad, merge_grad, replace_conditional, replace_loop, switch_grad};
use ferroflow_core::kernel::{Init, Kernel, Outputs, Value};
use ferroflow_core::op::{Gradient, Op, OpClass, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{PartialShape, Result, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &SWITCH,
    &REF_SWITCH,
    &SWITCH_N,
    &MERGE,
    &REF_MERGE,
    &ENTER,
    &REF_ENTER,
    &EXIT,
    &REF_EXIT,
    &NEXT_ITERATION,
    &REF_NEXT_ITERATION,
    &LOOP_COND,
    &CONTROL_TRIGGER,
    &NO_OP,
    &SYNC_DEVICE,
    &ABORT,
    &REF_IDENTITY,
    &REF_SELECT,
];

static SWITCH: Op = Op {
    name: "Switch",
    gradient: Gradient::Fn(switch_grad),
    inputs: &["data: T", "pred: bool"],
    outputs: &["output_false: T", "output_true: T"],
    attrs: &["T: type"],
    shape: switch_shape,
    class: OpClass::Switch,
    cheap: true,
    ..Op::PURE
};

static REF_SWITCH: Op = Op {
    name: "RefSwitch",
    gradient: Gradient::Fn(switch_grad),
    inputs: &["data: Ref(T)", "pred: bool"],
    outputs: &["output_false: Ref(T)", "output_true: Ref(T)"],
    attrs: &["T: type"],
    shape: switch_shape,
    class: OpClass::RefSwitch,
    cheap: true,
    allows_uninitialized_input: true,
    ..Op::PURE
};

static SWITCH_N: Op = Op {
    name: "_SwitchN",
    inputs: &["data: T", "output_index: int32"],
    outputs: &["outputs: num_outs * T"],
    attrs: &["num_outs: int >= 1", "T: type"],
    shape: switch_shape,
    kernels: kernels![any switch_n_kernel],
    class: OpClass::SwitchN,
    cheap: true,
    ..Op::PURE
};

static MERGE: Op = Op {
    name: "Merge",
    gradient: Gradient::Conditional(merge_grad, replace_conditional),
    inputs: &["inputs: N * T"],
    outputs: &["output: T", "value_index: int32"],
    attrs: &["T: type", "N: int >= 1"],
    shape: merge_shape,
    class: OpClass::Merge,
    cheap: true,
    ..Op::PURE
};

static REF_MERGE: Op = Op {
    name: "RefMerge",
    gradient: Gradient::Conditional(merge_grad, replace_conditional),
    inputs: &["inputs: Ref(N * T)"],
    outputs: &["output: Ref(T)", "value_index: int32"],
    attrs: &["T: type", "N: int >= 1"],
    shape: merge_shape,
    class: OpClass::RefMerge,
    cheap: true,
    ..Op::PURE
};

const ENTER_ATTRS: &[&str] =
    &["T: type", "frame_name: string", "is_constant: bool = false", "parallel_iterations: int = 10"];

static ENTER: Op = Op {
    name: "Enter",
    gradient: Gradient::Fn(in_frame_grad),
    inputs: &["data: T"],
    outputs: &["output: T"],
    attrs: ENTER_ATTRS,
    shape: enter_shape,
    class: OpClass::Enter,
    cheap: true,
    ..Op::PURE
};

static REF_ENTER: Op = Op {
    name: "RefEnter",
    gradient: Gradient::Fn(in_frame_grad),
    inputs: &["data: Ref(T)"],
    outputs: &["output: Ref(T)"],
    attrs: ENTER_ATTRS,
    shape: shapes::unchanged,
    class: OpClass::Enter,
    cheap: true,
    ..Op::PURE
};

static EXIT: Op = Op {
    name: "Exit",
    gradient: Gradient::Replace(replace_loop),
    inputs: &["data: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    class: OpClass::Exit,
    cheap: true,
    ..Op::PURE
};

static REF_EXIT: Op = Op {
    name: "RefExit",
    gradient: Gradient::Replace(replace_loop),
    inputs: &["data: Ref(T)"],
    outputs: &["output: Ref(T)"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    class: OpClass::Exit,
    cheap: true,
    ..Op::PURE
};

static NEXT_ITERATION: Op = Op {
    name: "NextIteration",
    gradient: Gradient::Fn(in_frame_grad),
    inputs: &["data: T"],
    outputs: &["output: T"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    class: OpClass::NextIteration,
    cheap: true,
    ..Op::PURE
};

static REF_NEXT_ITERATION: Op = Op {
    name: "RefNextIteration",
    gradient: Gradient::Fn(in_frame_grad),
    inputs: &["data: Ref(T)"],
    outputs: &["output: Ref(T)"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    class: OpClass::NextIteration,
    cheap: true,
    ..Op::PURE
};

static LOOP_COND: Op = Op {
    name: "LoopCond",
    gradient: Gradient::Fn(in_frame_grad),
    inputs: &["input: bool"],
    outputs: &["output: bool"],
    shape: loop_cond_shape,
    kernels: kernels![any pass_kernel],
    class: OpClass::LoopCond,
    cheap: true,
    ..Op::PURE
};

static CONTROL_TRIGGER: Op = Op {
    name: "ControlTrigger",
    kernels: kernels![any no_op_kernel],
    class: OpClass::ControlTrigger,
    cheap: true,
    ..Op::PURE
};

static NO_OP: Op = Op { name: "NoOp", kernels: kernels![any no_op_kernel], cheap: true, ..Op::PURE };

// A CPU has nothing in flight that would have to be waited for.
static SYNC_DEVICE: Op = Op { name: "SyncDevice", stateful: true, ..NO_OP };

static ABORT: Op = Op {
    name: "Abort",
    attrs: &["error_msg: string = ''", "exit_without_error: bool = false"],
    kernels: kernels![any abort_kernel],
    cheap: true,
    ..Op::PURE
};

static REF_IDENTITY: Op = Op {
    name: "RefIdentity",
    gradient: Gradient::Fn(identity_grad),
    inputs: &["input: Ref(T)"],
    outputs: &["output: Ref(T)"],
    attrs: &["T: type"],
    shape: shapes::unchanged,
    kernels: kernels![any pass_kernel],
    cheap: true,
    allows_uninitialized_input: true,
    ..Op::PURE
};

static REF_SELECT: Op = Op {
    name: "RefSelect",
    inputs: &["index: int32", "inputs: Ref(N * T)"],
    outputs: &["output: Ref(T)"],
    attrs: &["T: type", "N: int >= 1"],
    shape: ref_select_shape,
    kernels: kernels![any ref_select_kernel],
    cheap: true,
    ..Op::PURE
};

fn switch_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(1, 0)?;
    shapes::unchanged(s)
}

/// Dimensions on which all inputs agree; the others are open.
fn merge_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let mut merged = s.input(0).dims().map(<[i64]>::to_vec);
    for input in 1..s.num_inputs() {
        let shape = s.input(input);
        merged = match (merged, shape.dims()) {
            (Some(a), Some(b)) if a.len() == b.len() => {
                Some(a.iter().zip(b).map(|(x, y)| if x == y { *x } else { UNKNOWN_DIM }).collect())
            }
            _ => None,
        };
    }
    if let Some(dims) = merged {
        s.output(0, dims)?;
    }
    s.set(1, PartialShape::scalar());
    Ok(())
}

/// Only a loop invariant is sure to keep its shape; a loop variable may change it in later iterations.
fn enter_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set_handles(0, s.handles(0).to_vec());
    if s.attr("is_constant")? {
        s.set(0, s.input(0));
    }
    Ok(())
}

fn loop_cond_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.set(0, PartialShape::scalar());
    Ok(())
}

fn ref_select_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    let first = s.input(1);
    if (2..s.num_inputs()).all(|input| s.input(input) == first) {
        s.set(0, first);
    }
    Ok(())
}

fn pass_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| Ok(cx.forward(0)?.into()))
}

fn no_op_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|_| Ok(Outputs::None))
}

fn switch_n_kernel(init: &Init<'_>) -> Result<Kernel> {
    let count = init.output_types.len();
    Kernel::sync(move |cx| {
        let index = cx.scalar_i64(1)?;
        // An index out of range selects the last output, as in stock.
        let chosen = usize::try_from(index).unwrap_or(count).min(count - 1);
        let mut outputs = vec![Value::None; count];
        outputs[chosen] = cx.take_value(0)?;
        Ok(Outputs::Many(outputs))
    })
}

/// Stock ends its process; a server that others use refuses and fails the step instead.
fn abort_kernel(init: &Init<'_>) -> Result<Kernel> {
    let message: String = init.attr("error_msg")?;
    let silent: bool = init.attr("exit_without_error")?;
    Kernel::sync(move |_| {
        if silent {
            bail!(Aborted, "Abort_op asked the server to exit, which it does not do for a graph");
        }
        bail!(Aborted, "Abort_op intentional failure; {message}")
    })
}

fn ref_select_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let index = cx.input(0)?;
        ensure!(
            index.rank() == 0,
            InvalidArgument,
            "Index must be a scalar, but it has shape {}",
            index.shape()
        );
        let (index, count) = (cx.scalar_i64(0)?, cx.num_inputs() - 1);
        ensure!(
            index >= 0 && (index as usize) < count,
            InvalidArgument,
            "Index must be in the range [0, {count}) but got {index}"
        );
        Ok(cx.take_value(index as usize + 1)?.into())
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::Tensor;

    #[test]
    fn a_merge_keeps_what_its_inputs_share() {
        infer("Merge", "[2,3];[2,4]", "[2,?];[]");
        infer("Merge", "[2,3];[2]", "?;[]");
        infer("Switch", "[2,?];[]", "[2,?];[2,?]");
    }

    #[test]
    fn no_op_gives_nothing() {
        assert!(Node::new("NoOp").run([]).unwrap().is_empty());
        let passed = Node::new("LoopCond").run([Tensor::scalar(true)]).unwrap();
        assert!(passed[0].to_scalar::<bool>().unwrap());
    }
}

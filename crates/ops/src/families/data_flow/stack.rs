//! Stacks: where a loop leaves values for its gradient. They end with their step.

use crate::state::ref_handle;
use crate::support::declared_types::DeclaredTypes;
use crate::support::rows;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs};
use ferroflow_core::op::{Gradient, Op, ShapeCx};
use ferroflow_core::resource::Resource;
use ferroflow_core::{DType, PartialShape, Result, Tensor, ensure, kernels, status};
use std::sync::{Arc, Mutex, MutexGuard};

pub(crate) const OPS: &[&Op] = &[
    &STACK_V2,
    &STACK_PUSH_V2,
    &STACK_POP_V2,
    &STACK_CLOSE_V2,
    &STACK,
    &STACK_PUSH,
    &STACK_POP,
    &STACK_CLOSE,
];

static STACK_V2: Op = Op {
    name: "StackV2",
    gradient: Gradient::Stop,
    inputs: &["max_size: int32"],
    outputs: &["handle: resource"],
    attrs: &["elem_type: type", "stack_name: string = ''"],
    shape: create_shape,
    kernels: kernels![any create_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static STACK_PUSH_V2: Op = Op {
    name: "StackPushV2",
    gradient: Gradient::Stop,
    inputs: &["handle: resource", "elem: T"],
    outputs: &["output: T"],
    attrs: &["T: type", "swap_memory: bool = false"],
    shape: push_shape,
    kernels: kernels![any push_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static STACK_POP_V2: Op = Op {
    name: "StackPopV2",
    gradient: Gradient::Stop,
    inputs: &["handle: resource"],
    outputs: &["elem: elem_type"],
    attrs: &["elem_type: type"],
    kernels: kernels![any pop_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static STACK_CLOSE_V2: Op = Op {
    name: "StackCloseV2",
    gradient: Gradient::Stop,
    inputs: &["handle: resource"],
    kernels: kernels![any close_kernel],
    cheap: true,
    ..Op::STATEFUL
};

static STACK: Op = Op { name: "Stack", inputs: &[], outputs: &["handle: Ref(string)"], ..STACK_V2 };

static STACK_PUSH: Op =
    Op { name: "StackPush", inputs: &["handle: Ref(string)", "elem: T"], stateful: false, ..STACK_PUSH_V2 };

static STACK_POP: Op =
    Op { name: "StackPop", inputs: &["handle: Ref(string)"], stateful: false, ..STACK_POP_V2 };

static STACK_CLOSE: Op =
    Op { name: "StackClose", inputs: &["handle: Ref(string)"], stateful: false, ..STACK_CLOSE_V2 };

struct Stack {
    name: String,
    dtype: DType,
    /// The most elements it takes; `None` for any number.
    max_size: Option<usize>,
    /// The elements, or `None` once closed.
    elements: Mutex<Option<Vec<Tensor>>>,
}

impl Resource for Stack {
    fn type_name(&self) -> &'static str {
        "N10tensorflow5StackE"
    }
}

impl Stack {
    fn lock(&self) -> MutexGuard<'_, Option<Vec<Tensor>>> {
        self.elements.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn with<R>(&self, change: impl FnOnce(&mut Vec<Tensor>) -> Result<R>) -> Result<R> {
        let mut elements = self.lock();
        let closed = || status!(InvalidArgument, "Stack[{}] has already been closed.", self.name);
        change(elements.as_mut().ok_or_else(closed)?)
    }
}

/// The container of stacks among a step's resources; the name is stock's.
const STACKS: &str = "_stacks";

fn create_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if s.output_type(0) == DType::String {
        return s.output(0, [2]);
    }
    s.set(0, PartialShape::scalar());
    Ok(())
}

fn push_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.set(0, s.input(1));
    s.set_handles(0, s.handles(1).to_vec());
    Ok(())
}

fn create_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("elem_type")?;
    let given: String = init.attr("stack_name")?;
    let base = if given.is_empty() { init.node.to_owned() } else { given };
    let by_reference = init.output_types[0] == DType::String;
    Kernel::sync(move |cx| {
        let max_size =
            if cx.num_inputs() == 0 { -1 } else { rows::scalar::<i32>(cx.input(0)?, "Stack size")? };
        // Every stack has a name of its own, in this step and in others: loops and programs make several of one name.
        let name = format!("{base}_{}", cx.step().resources.unique_number());
        let stack = Arc::new(Stack {
            name: name.clone(),
            dtype,
            max_size: usize::try_from(max_size).ok(),
            elements: Mutex::new(Some(Vec::new())),
        });
        cx.step().step_resources.create(STACKS, &name, stack.clone())?;
        Ok(ref_handle::make(cx.device().name(), STACKS, &name, &*stack, by_reference)?.into())
    })
}

fn stack(cx: &KernelCx<'_>) -> Result<Arc<Stack>> {
    ref_handle::resolve(cx, &cx.step().step_resources)
}

fn push_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let (stack, element) = (stack(cx)?, cx.take(1)?);
        ensure!(
            element.dtype() == stack.dtype,
            InvalidArgument,
            "Must have type {} but got {}",
            stack.dtype.to_wire(),
            element.dtype().to_wire()
        );
        stack.with(|elements| {
            ensure!(
                stack.max_size.is_none_or(|max_size| elements.len() < max_size),
                InvalidArgument,
                "Stack[{}] overflowed its max_size ({})",
                stack.name,
                stack.max_size.unwrap_or_default()
            );
            elements.push(element.clone());
            Ok(())
        })?;
        Ok(element.into())
    })
}

fn pop_kernel(init: &Init<'_>) -> Result<Kernel> {
    let declared = DeclaredTypes::new(init);
    Kernel::sync(move |cx| {
        let stack = stack(cx)?;
        let popped = stack.with(|elements| {
            let empty = || status!(InvalidArgument, "Stack[{}] is empty when calling Pop().", stack.name);
            elements.pop().ok_or_else(empty)
        })?;
        declared.check(std::slice::from_ref(&popped))?;
        Ok(popped.into())
    })
}

fn close_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        *stack(cx)?.lock() = None;
        Ok(Outputs::None)
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::DType;
    use ferroflow_core::kernel::Str;
    use ferroflow_core::resource::ResourceManager;

    /// Programs tell stacks apart by their handles, also between steps.
    #[test]
    fn stacks_of_one_name_have_handles_of_their_own() {
        let resources = ResourceManager::new("localhost");
        let name = || {
            let node = Node::new("Stack").attr("elem_type", DType::Float).attr("stack_name", "shared");
            let handle = node.resources(&resources).run_values(Vec::new()).unwrap().remove(0);
            handle.read().unwrap().flat::<Str>().unwrap()[1].clone()
        };
        assert_ne!(name(), name());
    }
}

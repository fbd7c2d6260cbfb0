//! The declaration of an op: one plain value with everything the system knows about it.
//!
//! Building, placement, planning and execution all read the same declaration. Concrete ops are declared in the `ops`
//! crate, or by a user with the same type.

mod gradient;
mod registry;
mod shape_cx;
mod spec;

pub use gradient::{Grad, GradCx, Gradient, GradientFn, IndexedSlices, InputGrads, zeros_like};
pub use registry::{OpEntry, Registry, no_kernel};
pub use shape_cx::{Dim, ShapeCx, UNKNOWN_DIM, shapes};
pub use spec::{ArgSpec, ArgType, AttrKind, AttrSpec, OpSpec};

use crate::kernel::{Init, Kernel};
use crate::{DType, Result};

/// The declaration of one op. Strings use TensorFlow's signature language; see [`OpSpec::parse`].
pub struct Op {
    /// The op type's name.
    pub name: &'static str,
    /// Inputs, e.g. `"a: T"`, `"values: N * T"`, `"ref: Ref(T)"`.
    pub inputs: &'static [&'static str],
    /// Outputs, in the same language.
    pub outputs: &'static [&'static str],
    /// Attributes, e.g. `"T: {float, double} = DT_FLOAT"`, `"N: int >= 1"`.
    pub attrs: &'static [&'static str],
    /// The shape function: infers output shapes before the op runs and rejects inputs that can never fit.
    pub shape: fn(&mut ShapeCx<'_>) -> Result<()>,
    /// Kernels by element type; written with [`crate::kernels!`].
    pub kernels: &'static [KernelRow],
    /// The gradient of the op.
    pub gradient: Gradient,
    /// The accuracy to which results agree with stock's.
    pub accuracy: Accuracy,
    /// The class, which is all that the planner and the executor know of the op.
    pub class: OpClass,
    /// True if the kernel is too small to be worth another thread, whatever its inputs.
    pub cheap: bool,
    /// The bytes of inputs from which on the kernel is large, i.e. worth another thread; a power of two. A text counts as
    /// 32 bytes, however long it is.
    pub large_from: usize,
    /// True if the op has state or effects: it is never folded, deduplicated or skipped.
    pub stateful: bool,
    /// True if the kernel of a stateful op may be stopped when it asks for memory for its outputs and restarted,
    /// because it touches its state only afterwards. Stateless kernels may always be stopped there.
    pub restartable: bool,
    /// True if the inputs may be swapped.
    pub commutative: bool,
    /// True if the op uses only its input's shape: it is placed with the input, which need not be sent.
    pub metadata: bool,
    /// True if the op adds up any number of inputs.
    pub aggregate: bool,
    /// True if the first output is the memory of the first input under another shape or type.
    pub reinterprets: bool,
    /// True if ref inputs may be uninitialized.
    pub allows_uninitialized_input: bool,
    /// True if the op communicates with other tasks.
    pub distributed: bool,
    /// The graph version from which on the op is rejected.
    pub deprecated_at: Option<i32>,
}

impl Op {
    /// The defaults for ops that are computed from their inputs alone.
    pub const PURE: Op = Op {
        name: "",
        inputs: &[],
        outputs: &[],
        attrs: &[],
        shape: shapes::unknown,
        kernels: &[],
        gradient: Gradient::Undefined,
        accuracy: Accuracy::Exact,
        class: OpClass::Plain,
        cheap: false,
        large_from: 128 * 1024,
        stateful: false,
        restartable: false,
        commutative: false,
        metadata: false,
        aggregate: false,
        reinterprets: false,
        allows_uninitialized_input: false,
        distributed: false,
        deprecated_at: None,
    };

    /// The bytes from which on a kernel is large that does much with each of them: one that decomposes matrices.
    pub const LARGE_IF_COSTLY: usize = 8 * 1024;

    /// The defaults for ops with state or effects.
    pub const STATEFUL: Op = Op { stateful: true, ..Op::PURE };
}

/// The accuracy to which results agree with stock's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accuracy {
    /// Bit for bit.
    Exact,
    /// Up to rounding of a few units in the last place, or of a reordered sum.
    Rounding,
    /// Values are random; only type and shape are compared unless seeds are given.
    Random,
}

/// The class of an op, which is all that the planner and the executor know of it. Only an op's own file compares op
/// names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OpClass {
    /// Runs when all inputs have arrived; dead if any input is dead.
    Plain,
    /// A value in the graph.
    Constant,
    /// Must be fed.
    Placeholder,
    /// Passes its first input on; may be skipped if nothing depends on the node itself.
    Identity,
    /// Sends its first input to one of two outputs and a dead value to the other.
    Switch,
    /// Switch on a reference.
    RefSwitch,
    /// Sends its first input to one of many outputs and dead values to the others.
    SwitchN,
    /// Passes on the first live input.
    Merge,
    /// Merge on references.
    RefMerge,
    /// Starts a loop frame.
    Enter,
    /// Leaves a loop frame.
    Exit,
    /// Starts the next iteration.
    NextIteration,
    /// Decides whether a loop goes on.
    LoopCond,
    /// Runs even if inputs are dead.
    ControlTrigger,
    /// Leaves a tensor for another device; runs even if its input is dead.
    Send,
    /// Waits for a tensor from another device.
    Recv,
    /// A function's argument.
    Arg,
    /// A function's result.
    Retval,
    /// Calls a function.
    Call,
    /// Makes a ref variable, or a handle to a resource.
    Variable,
}

impl OpClass {
    /// Returns whether the executor runs the op itself, or a function call binds its values.
    pub fn runs_without_kernel(self) -> bool {
        use OpClass::*;
        matches!(
            self,
            Switch
                | RefSwitch
                | Merge
                | RefMerge
                | Enter
                | Exit
                | NextIteration
                | ControlTrigger
                | Identity
                | Arg
                | Retval
        )
    }
}

/// A kernel for one element type.
#[derive(Clone, Copy)]
pub struct KernelRow {
    /// The type attribute that selects the row; empty if the kernel takes every type.
    pub attr: &'static str,
    /// The element type; unused if `attr` is empty.
    pub dtype: DType,
    /// A second attribute and the only value of it that the kernel takes.
    pub only: Option<(&'static str, Only)>,
    /// Reads attributes once and returns the kernel that runs in every step.
    pub make: fn(&Init<'_>) -> Result<Kernel>,
}

/// An attribute value that a kernel requires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Only {
    /// An element type.
    Type(DType),
    /// A string.
    Text(&'static str),
}

impl KernelRow {
    /// A kernel for elements of type `dtype`, selected by the attribute `attr`.
    pub const fn new(attr: &'static str, dtype: DType, make: fn(&Init<'_>) -> Result<Kernel>) -> KernelRow {
        KernelRow { attr, dtype, only: None, make }
    }

    /// This kernel, restricted to one value of a second attribute.
    #[must_use]
    pub const fn only(self, attr: &'static str, value: Only) -> KernelRow {
        KernelRow { only: Some((attr, value)), ..self }
    }

    /// These kernels, each restricted to one value of a second attribute: `kernels:
    /// &KernelRow::each_only(*kernels![..], ..)`.
    #[must_use]
    pub const fn each_only<const N: usize>(
        mut rows: [KernelRow; N],
        attr: &'static str,
        value: Only,
    ) -> [KernelRow; N] {
        let mut row = 0;
        while row < N {
            rows[row] = rows[row].only(attr, value);
            row += 1;
        }
        rows
    }
}

/// Builds an op's kernel table.
///
/// - `kernels![f: f32, f64]`: `f::<f32>` and `f::<f64>`, selected by the attribute `T`.
/// - `kernels!["dtype" => f: f32]`: selected by another attribute.
/// - `kernels![units f]`, `kernels![units "Tparams" => f]`: `f::<U>` for every element type, by width.
/// - `kernels![any f]`: one function for every type.
/// - Groups may follow each other, separated by `;`.
#[macro_export]
macro_rules! kernels {
    (@rows [$($rows:tt)*]) => { &[$($rows)*] };
    (@rows [$($rows:tt)*] ; $($rest:tt)*) => { $crate::kernels!(@rows [$($rows)*] $($rest)*) };
    (@rows [$($rows:tt)*] any $make:ident $($rest:tt)*) => {
        $crate::kernels!(@rows [$($rows)*
            $crate::op::KernelRow::new("", $crate::DType::Float, $make),
        ] $($rest)*)
    };
    (@rows [$($rows:tt)*] units $make:ident $($rest:tt)*) => {
        $crate::kernels!(@rows [$($rows)*] units "T" => $make $($rest)*)
    };
    (@rows [$($rows:tt)*] units $attr:literal => $make:ident $($rest:tt)*) => {
        $crate::kernels!(@rows [$($rows)*
            $crate::kernels!(@unit $attr, $make, u8: Uint8), $crate::kernels!(@unit $attr, $make, u8: Int8),
            $crate::kernels!(@unit $attr, $make, u8: Bool), $crate::kernels!(@unit $attr, $make, u8: Qint8),
            $crate::kernels!(@unit $attr, $make, u8: Quint8), $crate::kernels!(@unit $attr, $make, u8: Float8E5M2),
            $crate::kernels!(@unit $attr, $make, u8: Float8E4M3Fn), $crate::kernels!(@unit $attr, $make, u8: Int4),
            $crate::kernels!(@unit $attr, $make, u8: Uint4), $crate::kernels!(@unit $attr, $make, u8: Int2),
            $crate::kernels!(@unit $attr, $make, u8: Uint2),
            $crate::kernels!(@unit $attr, $make, u8: Float8E4M3FnUz),
            $crate::kernels!(@unit $attr, $make, u8: Float8E4M3B11FnUz),
            $crate::kernels!(@unit $attr, $make, u8: Float8E5M2FnUz),
            $crate::kernels!(@unit $attr, $make, u16: Int16), $crate::kernels!(@unit $attr, $make, u16: Uint16),
            $crate::kernels!(@unit $attr, $make, u16: Half), $crate::kernels!(@unit $attr, $make, u16: Bfloat16),
            $crate::kernels!(@unit $attr, $make, u16: Qint16), $crate::kernels!(@unit $attr, $make, u16: Quint16),
            $crate::kernels!(@unit $attr, $make, u32: Float), $crate::kernels!(@unit $attr, $make, u32: Int32),
            $crate::kernels!(@unit $attr, $make, u32: Uint32), $crate::kernels!(@unit $attr, $make, u32: Qint32),
            $crate::kernels!(@unit $attr, $make, u64: Double), $crate::kernels!(@unit $attr, $make, u64: Int64),
            $crate::kernels!(@unit $attr, $make, u64: Uint64), $crate::kernels!(@unit $attr, $make, u64: Complex64),
            $crate::kernels!(@unit $attr, $make, u128: Complex128),
            $crate::op::KernelRow::new($attr, $crate::DType::String, $make::<$crate::kernel::Str>),
            $crate::op::KernelRow::new($attr, $crate::DType::Resource, $make::<$crate::resource::ResourceHandle>),
            $crate::op::KernelRow::new($attr, $crate::DType::Variant, $make::<$crate::variant::Variant>),
        ] $($rest)*)
    };
    (@rows [$($rows:tt)*] $attr:literal => $make:ident : $($type:ty),+ $(; $($rest:tt)*)?) => {
        $crate::kernels!(@rows [$($rows)*
            $($crate::op::KernelRow::new($attr, <$type as $crate::Element>::DTYPE, $make::<$type>),)+
        ] $($($rest)*)?)
    };
    (@rows [$($rows:tt)*] $make:ident : $($type:ty),+ $(; $($rest:tt)*)?) => {
        $crate::kernels!(@rows [$($rows)*] "T" => $make : $($type),+ $(; $($rest)*)?)
    };
    (@unit $attr:literal, $make:ident, $unit:ty: $dtype:ident) => {
        $crate::op::KernelRow::new($attr, $crate::DType::$dtype, $make::<$unit>)
    };
    ($($groups:tt)+) => { $crate::kernels!(@rows [] $($groups)+) };
}

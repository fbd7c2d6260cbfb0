//! Restoring from checkpoints of the first format.

use super::v2::{check_full_shape, parse_spec, text};
use crate::support::blocking;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, kernels};
use ferroflow_io::bundle::{SliceSpec, TensorSlice};
use ferroflow_io::v1::V1Reader;

pub(crate) const OPS: &[&Op] = &[&RESTORE, &RESTORE_SLICE];

static RESTORE: Op = Op {
    name: "Restore",
    inputs: &["file_pattern: string", "tensor_name: string"],
    outputs: &["tensor: dt"],
    attrs: &["dt: type", "preferred_shard: int = -1"],
    kernels: kernels![any restore_kernel],
    ..Op::STATEFUL
};

static RESTORE_SLICE: Op = Op {
    name: "RestoreSlice",
    inputs: &["file_pattern: string", "tensor_name: string", "shape_and_slice: string"],
    shape: restore_slice_shape,
    ..RESTORE
};

fn restore_slice_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let spec = s.constant(2).and_then(|spec| spec.to_scalar::<Str>().ok());
    if let Some(spec) = spec.and_then(|spec| parse_spec(&spec).ok().flatten()) {
        s.set(0, (&spec.shape).into());
    }
    Ok(())
}

fn restore_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("dt")?;
    let sliced = init.input_types.len() > 2;
    Kernel::future(move |mut cx| async move {
        let (pattern, name, spec) = {
            let cx = cx.cx();
            let spec = if sliced { parse_spec(&single(&cx, 2, "shape_and_slice")?)? } else { None };
            (single(&cx, 0, "file_pattern")?, single(&cx, 1, "tensor_name")?, spec)
        };
        let (pattern, name) = (text(&pattern, "file_pattern")?, text(&name, "tensor_name")?);
        let tensor = blocking::run("restore checkpoint", move |_| {
            restore_v1(&V1Reader::open(&pattern)?, &pattern, &name, spec.as_ref(), dtype)
        });
        Ok(Outputs::from(tensor.await?))
    })
}

fn single(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<Str> {
    let tensor = cx.input(input)?;
    ensure!(
        tensor.elements() == 1,
        InvalidArgument,
        "Input {input} ({name}) must be a string scalar; got a tensor of {}elements",
        tensor.elements()
    );
    tensor.to_scalar()
}

/// One tensor, or a slice of it.
pub(super) fn restore_v1(
    reader: &V1Reader,
    pattern: &str,
    name: &str,
    spec: Option<&SliceSpec>,
    dtype: DType,
) -> Result<Tensor> {
    let Some((stored, full)) = reader.lookup(name) else {
        bail!(NotFound, "Tensor name \"{name}\" not found in checkpoint files {pattern}")
    };
    ensure!(
        stored == dtype,
        InvalidArgument,
        "Expected to restore a tensor of type {dtype}, got a tensor of type {stored} instead: tensor_name = {name}"
    );
    let Some(spec) = spec else { return reader.read_slice(name, &TensorSlice::whole(full.rank())) };
    check_full_shape(name, spec, full)?;
    reader.read_slice(name, &spec.slice)
}

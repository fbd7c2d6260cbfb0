//! Checkpoints of the first format: one file with all tensors.

use super::v2::{Named, check_full_shape, check_slice_shape, parse_spec, text};
use crate::support::blocking;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx};
use ferroflow_core::{DType, Result, Tensor, bail, ensure, kernels};
use ferroflow_io::bundle::check_cancelled;
use ferroflow_io::bundle::{SliceSpec, TensorSlice};
use ferroflow_io::v1::{V1Reader, V1Writer};

pub(crate) const OPS: &[&Op] = &[&SAVE, &SAVE_SLICES, &RESTORE, &RESTORE_SLICE];

static SAVE: Op = Op {
    name: "Save",
    inputs: &["filename: string", "tensor_names: string", "data: T"],
    attrs: &["T: list(type) >= 1"],
    shape: save_shape,
    kernels: kernels![any save_kernel],
    ..Op::STATEFUL
};

static SAVE_SLICES: Op = Op {
    name: "SaveSlices",
    inputs: &["filename: string", "tensor_names: string", "shapes_and_slices: string", "data: T"],
    shape: save_slices_shape,
    kernels: kernels![any save_slices_kernel],
    ..SAVE
};

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

fn save_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    named_inputs(s, 1)
}

fn save_slices_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    named_inputs(s, 2)
}

/// A file's name, and lists of as many texts as there are tensors.
fn named_inputs(s: &ShapeCx<'_>, lists: usize) -> Result<()> {
    s.rank(0, 0)?;
    let tensors = s.num_inputs() - 1 - lists;
    for list in 1..=lists {
        if let Some(dims) = s.rank(list, 1)?.dims() {
            s.merge_dims(dims[0], tensors as i64)?;
        }
    }
    Ok(())
}

fn save_kernel(init: &Init<'_>) -> Result<Kernel> {
    saving(init, 2)
}

fn save_slices_kernel(init: &Init<'_>) -> Result<Kernel> {
    saving(init, 3)
}

/// A kernel that saves the inputs from `first` on.
fn saving(init: &Init<'_>, first: usize) -> Result<Kernel> {
    let inputs = init.input_types.len();
    Kernel::future(move |mut cx| async move {
        let (path, named) = {
            let cx = cx.cx();
            let path = text(&single(&cx, 0, "filename")?, "filename")?;
            (path, names_and_slices(&cx, first, inputs)?)
        };
        let tensors = cx.take_all()?.split_off(first);
        blocking::run("save checkpoint", move |cancellation| {
            let mut order: Vec<usize> = (0..named.len()).collect();
            order.sort_by_key(|i| named[*i].0.as_str());
            let mut writer = V1Writer::default();
            for i in order {
                check_cancelled(&cancellation)?;
                let ((name, spec), tensor) = (&named[i], &tensors[i]);
                if let Some(spec) = spec {
                    check_slice_shape(spec, tensor)?;
                }
                writer.add(name, spec.as_ref(), tensor)?;
            }
            writer.finish(&path)
        })
        .await?;
        Ok(Outputs::None)
    })
}

/// Names of tensors, and which slices they are.
fn names_and_slices(cx: &KernelCx<'_>, first: usize, inputs: usize) -> Result<Vec<Named>> {
    let names = cx.flat::<Str>(1)?;
    let specs = if first > 2 { Some(cx.flat::<Str>(2)?) } else { None };
    ensure!(
        specs.is_none_or(|specs| specs.len() == names.len()),
        InvalidArgument,
        "Expected {} elements for the tensor shapes and slices but got {}",
        names.len(),
        specs.map_or(0, <[Str]>::len)
    );
    ensure!(
        names.len() + first == inputs,
        InvalidArgument,
        "Expected totally {} inputs as input #1 (which is a string tensor of saved names) contains {} names, but \
         received {inputs} inputs",
        names.len() + first,
        names.len()
    );
    let named = |(i, name): (usize, &Str)| {
        let spec = specs.map_or(Ok(None), |specs| parse_spec(&specs[i]))?;
        Ok((text(name, "tensor_names")?, spec))
    };
    names.iter().enumerate().map(named).collect()
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

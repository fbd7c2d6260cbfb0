//! Saving and restoring checkpoints in the bundle format, whole tensors and slices of partitioned ones.

use super::v1::restore_v1;
use crate::support::blocking;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, shapes};
use ferroflow_core::{DType, Result, Shape, Tensor, ensure, kernels, status};
use ferroflow_io::bundle::{self, BundleReader, BundleWriter, SliceSpec};
use ferroflow_io::file;
use ferroflow_io::path::resolve_path;
use ferroflow_io::v1::V1Reader;
use std::path::Path;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] =
    &[&SAVE_V2, &RESTORE_V2, &MERGE_V2_CHECKPOINTS, &SHARDED_FILENAME, &SHARDED_FILESPEC];

static SAVE_V2: Op = Op {
    name: "SaveV2",
    inputs: &["prefix: string", "tensor_names: string", "shape_and_slices: string", "tensors: dtypes"],
    attrs: &["dtypes: list(type) >= 1"],
    kernels: kernels![any save_kernel],
    ..Op::STATEFUL
};

static RESTORE_V2: Op = Op {
    name: "RestoreV2",
    inputs: &["prefix: string", "tensor_names: string", "shape_and_slices: string"],
    outputs: &["tensors: dtypes"],
    attrs: &["dtypes: list(type) >= 1"],
    shape: restore_shape,
    kernels: kernels![any restore_kernel],
    ..Op::STATEFUL
};

static MERGE_V2_CHECKPOINTS: Op = Op {
    name: "MergeV2Checkpoints",
    inputs: &["checkpoint_prefixes: string", "destination_prefix: string"],
    attrs: &["delete_old_dirs: bool = true", "allow_missing_files: bool = false"],
    kernels: kernels![any merge_kernel],
    ..Op::STATEFUL
};

static SHARDED_FILENAME: Op = Op {
    name: "ShardedFilename",
    inputs: &["basename: string", "shard: int32", "num_shards: int32"],
    outputs: &["filename: string"],
    shape: shapes::scalar,
    kernels: kernels![any sharded_filename_kernel],
    cheap: true,
    ..Op::PURE
};

static SHARDED_FILESPEC: Op = Op {
    name: "ShardedFilespec",
    inputs: &["basename: string", "num_shards: int32"],
    outputs: &["filename: string"],
    shape: shapes::scalar,
    kernels: kernels![any sharded_filespec_kernel],
    cheap: true,
    ..Op::PURE
};

/// Slices say what shape they will have; whole tensors are known only to the checkpoint.
fn restore_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let Some(specs) = s.constant(2) else { return Ok(()) };
    let parsed: Vec<Option<SliceSpec>> =
        specs.flat::<Str>()?.iter().map(|spec| parse_spec(spec).ok().flatten()).collect();
    for (output, spec) in parsed.into_iter().enumerate() {
        if let Some(spec) = spec {
            s.set(output, (&spec.shape).into());
        }
    }
    Ok(())
}

pub(super) fn text(bytes: &[u8], what: &str) -> Result<String> {
    let text = std::str::from_utf8(bytes);
    Ok(text.map_err(|_| status!(InvalidArgument, "{what} must be UTF-8 text"))?.to_owned())
}

pub(super) fn parse_spec(bytes: &[u8]) -> Result<Option<SliceSpec>> {
    if bytes.is_empty() { Ok(None) } else { SliceSpec::parse(&text(bytes, "shape_and_slices")?).map(Some) }
}

/// A tensor's name and, if it is a slice, which one.
pub(super) type Named = (String, Option<SliceSpec>);

/// The prefix and the named slices that both ops take, checked as stock checks them.
fn checkpoint_inputs(cx: &KernelCx<'_>, tensors: usize) -> Result<(String, Vec<Named>)> {
    let (prefix, names, specs) = (cx.input(0)?, cx.input(1)?, cx.input(2)?);
    ensure!(
        prefix.elements() == 1,
        InvalidArgument,
        "Input prefix should have a single element, got {} instead.",
        prefix.elements()
    );
    for (name, tensor) in [("tensor_names", names), ("shape_and_slices", specs)] {
        ensure!(
            tensor.rank() == 1,
            InvalidArgument,
            "Input {name} should be an 1-D tensor, got {} instead.",
            tensor.shape()
        );
    }
    ensure!(
        names.elements() == specs.elements(),
        InvalidArgument,
        "tensor_names and shape_and_slices have different number of elements: {} vs. {}",
        names.elements(),
        specs.elements()
    );
    ensure!(
        names.elements() == tensors,
        InvalidArgument,
        "Got {} tensor names but {tensors} tensors.",
        names.elements()
    );
    let mut named = Vec::with_capacity(tensors);
    for (name, spec) in names.flat::<Str>()?.iter().zip(specs.flat::<Str>()?) {
        named.push((text(name, "tensor_names")?, parse_spec(spec)?));
    }
    Ok((text(&prefix.flat::<Str>()?[0], "prefix")?, named))
}

fn save_kernel(init: &Init<'_>) -> Result<Kernel> {
    const FIRST_TENSOR: usize = 3;
    let count = init.input_types.len() - FIRST_TENSOR;
    Kernel::future(move |mut cx| async move {
        let (prefix, named) = checkpoint_inputs(&cx.cx(), count)?;
        let tensors = cx.take_all()?.split_off(FIRST_TENSOR);
        blocking::run("save checkpoint", move |cancellation| save(&prefix, &named, &tensors, cancellation))
            .await?;
        Ok(Outputs::None)
    })
}

fn save(prefix: &str, named: &[Named], tensors: &[Tensor], cancellation: Cancellation) -> Result<()> {
    let mut order: Vec<usize> = (0..named.len()).collect();
    order.sort_by_key(|i| named[*i].0.as_str());
    let mut writer = BundleWriter::create(prefix)?.cancelled_by(cancellation);
    for i in order {
        let ((name, spec), tensor) = (&named[i], &tensors[i]);
        let Some(spec) = spec else {
            writer.add(name, tensor)?;
            continue;
        };
        check_slice_shape(spec, tensor)?;
        writer.add_slice(name, spec, tensor)?;
    }
    writer.finish()
}

/// Refuses a tensor that does not have the shape of the slice that it is saved as.
pub(super) fn check_slice_shape(spec: &SliceSpec, tensor: &Tensor) -> Result<()> {
    ensure!(
        tensor.shape() == &spec.shape,
        InvalidArgument,
        // The two spaces are stock's.
        "Slice in shape_and_slice specification does not match the shape of the tensor to  save: {}, tensor: {}",
        spec_text(spec),
        tensor.shape()
    );
    Ok(())
}

fn spec_text(spec: &SliceSpec) -> String {
    let dims: String = spec.full.dims().iter().map(|dim| format!("{dim} ")).collect();
    format!("{dims}{}", spec.slice)
}

fn restore_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtypes: Arc<[DType]> = init.attr::<Vec<DType>>("dtypes")?.into();
    Kernel::future(move |mut cx| {
        let dtypes = dtypes.clone();
        async move {
            let (prefix, named) = checkpoint_inputs(&cx.cx(), dtypes.len())?;
            let tensors = blocking::run("restore checkpoint", move |cancellation| {
                restore_all(&prefix, &named, &dtypes, cancellation)
            });
            Ok(tensors.await?.into())
        }
    })
}

fn restore_all(
    prefix: &str,
    named: &[Named],
    dtypes: &[DType],
    cancellation: Cancellation,
) -> Result<Vec<Tensor>> {
    if !bundle::exists(prefix)? {
        // Savers restore with this op whatever format they write; without an index it is the first one.
        let reader = V1Reader::open(prefix)?;
        let restore = |((name, spec), dtype): (&Named, &DType)| {
            restore_v1(&reader, prefix, name, spec.as_ref(), *dtype)
        };
        return named.iter().zip(dtypes).map(restore).collect();
    }
    let reader = BundleReader::open(prefix)?.cancelled_by(cancellation);
    let mut order: Vec<usize> = (0..named.len()).collect();
    order.sort_by_key(|i| named[*i].0.as_str());
    let mut tensors = vec![None; named.len()];
    for i in order {
        tensors[i] = Some(restore(&reader, &named[i], dtypes[i])?);
    }
    Ok(tensors.into_iter().flatten().collect())
}

fn restore(reader: &BundleReader, (name, spec): &Named, dtype: DType) -> Result<Tensor> {
    let (stored, full) = reader.lookup(name)?;
    ensure!(
        stored == dtype,
        InvalidArgument,
        "tensor_name = {name}; expected dtype {dtype} does not equal original dtype {stored}"
    );
    let Some(spec) = spec else { return reader.read(name) };
    check_full_shape(name, spec, &full)?;
    reader.read_slice(name, &spec.slice)
}

/// Refuses a slice of another shape than the stored tensor's.
pub(super) fn check_full_shape(name: &str, spec: &SliceSpec, full: &Shape) -> Result<()> {
    ensure!(
        spec.full == *full,
        InvalidArgument,
        "tensor_name = {name}; shape in shape_and_slice spec {} does not match the shape stored in checkpoint: {full}",
        spec.full
    );
    Ok(())
}

fn merge_kernel(init: &Init<'_>) -> Result<Kernel> {
    let delete_directories: bool = init.attr("delete_old_dirs")?;
    let allow_missing: bool = init.attr("allow_missing_files")?;
    Kernel::future(move |mut cx| async move {
        let (prefixes, destination) = merge_inputs(&cx.cx())?;
        blocking::run("merge checkpoints", move |_| {
            bundle::merge(&prefixes, &destination, allow_missing)?;
            if delete_directories {
                delete_parts(&prefixes, &destination);
            }
            Ok(())
        })
        .await?;
        Ok(Outputs::None)
    })
}

fn merge_inputs(cx: &KernelCx<'_>) -> Result<(Vec<String>, String)> {
    let (prefixes, destination) = (cx.input(0)?, cx.input(1)?);
    ensure!(
        prefixes.rank() == 1,
        InvalidArgument,
        "Input checkpoint_prefixes should be an 1-D tensor, got {} instead.",
        prefixes.shape()
    );
    ensure!(
        destination.rank() == 0,
        InvalidArgument,
        "Input destination_prefix should be a scalar tensor, got {} instead.",
        destination.shape()
    );
    let prefixes = prefixes.flat::<Str>()?.iter().map(|prefix| text(prefix, "prefix"));
    Ok((prefixes.collect::<Result<_>>()?, text(&destination.to_scalar::<Str>()?, "prefix")?))
}

/// Directories that others still use stay, as in stock.
fn delete_parts(prefixes: &[String], destination: &str) {
    let directory =
        |prefix: &str| resolve_path(prefix).ok().and_then(|path| path.parent().map(Path::to_owned));
    let own = directory(destination);
    for directory in prefixes.iter().filter_map(|prefix| directory(prefix)) {
        if Some(&directory) != own.as_ref() {
            file::remove_empty_directory(&directory);
        }
    }
}

fn scalar_text(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<Str> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "{name} must be a scalar, got shape {}", tensor.shape());
    tensor.to_scalar()
}

fn scalar_count(cx: &KernelCx<'_>, input: usize, name: &str) -> Result<i32> {
    let tensor = cx.input(input)?;
    ensure!(tensor.rank() == 0, InvalidArgument, "{name} must be a scalar, got shape {}", tensor.shape());
    tensor.to_scalar()
}

fn with_suffix(base: Str, suffix: String) -> Outputs {
    // Stock formats the base as a C string, which ends at a zero byte.
    let mut name: Vec<u8> = base.iter().copied().take_while(|byte| *byte != 0).collect();
    name.extend_from_slice(suffix.as_bytes());
    Tensor::scalar(Str::from(name)).into()
}

fn sharded_filename_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let base = scalar_text(cx, 0, "basename")?;
        let (shard, shards) = (scalar_count(cx, 1, "shard")?, scalar_count(cx, 2, "num_shards")?);
        Ok(with_suffix(base, format!("-{shard:05}-of-{shards:05}")))
    })
}

fn sharded_filespec_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let base = scalar_text(cx, 0, "basename")?;
        Ok(with_suffix(base, format!("-?????-of-{:05}", scalar_count(cx, 1, "num_shards")?)))
    })
}

#[cfg(test)]
mod tests {
    use crate::testing::Node;
    use ferroflow_core::kernel::Str;
    use ferroflow_core::{Code, DType, Shape, Tensor};

    fn strings(values: &[&str]) -> Tensor {
        Tensor::vector(values.iter().map(|value| Str::from(value.to_string())).collect::<Vec<Str>>())
    }

    /// Stock takes it and writes hidden files into the server's own directory.
    #[test]
    fn an_empty_path_is_refused() {
        let one = || Node::new("SaveV2").attr("dtypes", vec![DType::Float]);
        for path in ["", "file://"] {
            let prefix = Tensor::scalar(Str::from(path.to_owned()));
            let inputs = [prefix.clone(), strings(&["v"]), strings(&[""]), Tensor::scalar(1.0f32)];
            assert_eq!(one().run(inputs).unwrap_err().code(), Code::InvalidArgument);
            let restore = Node::new("RestoreV2").attr("dtypes", vec![DType::Float]);
            let refused = restore.run([prefix, strings(&["v"]), strings(&[""])]).unwrap_err();
            assert_eq!(refused.code(), Code::InvalidArgument);
            assert!(refused.message().contains("path of a checkpoint is empty"), "{}", refused.message());
        }
    }

    #[test]
    fn what_is_saved_is_restored() {
        let directory = std::env::temp_dir().join(format!("ferroflow-save-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let prefix = Tensor::scalar(Str::from(directory.join("model").to_str().unwrap().to_owned()));
        let (names, specs) = (strings(&["v", "a"]), strings(&["4 0,2", ""]));
        let v = Tensor::vector(vec![1.0f32, 2.0]);
        let save = [prefix.clone(), names, specs, v, Tensor::scalar(7i64)];
        Node::new("SaveV2").attr("dtypes", vec![DType::Float, DType::Int64]).run(save).unwrap();
        let restore = Node::new("RestoreV2").attr("dtypes", vec![DType::Int64, DType::Float]);
        let inputs = [prefix, strings(&["a", "v"]), strings(&["", "4 1,1"])];
        let restored = restore.run(inputs).unwrap();
        assert_eq!(restored[0].to_scalar::<i64>().unwrap(), 7);
        assert_eq!(restored[1].shape(), &Shape::vector(1));
        assert_eq!(restored[1].flat::<f32>().unwrap(), [2.0]);
        std::fs::remove_dir_all(directory).unwrap();
    }
}

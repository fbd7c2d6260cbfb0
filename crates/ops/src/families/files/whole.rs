//! Whole files: read, written, found by a pattern.

use crate::support::blocking;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::device::Device;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{PartialShape, Result, Status, Tensor, bail, ensure, kernels, status};
use ferroflow_io::file::{self, SequentialReader};
use ferroflow_io::path::{is_remote, resolve_path};
use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStringExt;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[&READ_FILE, &WRITE_FILE, &MATCHING_FILES, &FILE_SYSTEM_SET_CONFIGURATION];

static READ_FILE: Op = Op {
    name: "ReadFile",
    inputs: &["filename: string"],
    outputs: &["contents: string"],
    shape: read_shape,
    kernels: kernels![any read_kernel],
    ..Op::PURE
};

static WRITE_FILE: Op = Op {
    name: "WriteFile",
    inputs: &["filename: string", "contents: string"],
    shape: write_shape,
    kernels: kernels![any write_kernel],
    ..Op::STATEFUL
};

static MATCHING_FILES: Op = Op {
    name: "MatchingFiles",
    inputs: &["pattern: string"],
    outputs: &["filenames: string"],
    shape: matching_shape,
    kernels: kernels![any matching_kernel],
    ..Op::PURE
};

static FILE_SYSTEM_SET_CONFIGURATION: Op = Op {
    name: "FileSystemSetConfiguration",
    inputs: &["scheme: string", "key: string", "value: string"],
    shape: configuration_shape,
    kernels: kernels![any configuration_kernel],
    ..Op::STATEFUL
};

fn configuration_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    (0..3).try_for_each(|input| s.rank(input, 0).map(drop))
}

/// No file system of stock has options that a graph could set either, and it refuses in the same way.
fn configuration_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        for (input, name) in ["scheme", "key", "value"].into_iter().enumerate() {
            let tensor = cx.input(input)?;
            ensure!(
                tensor.rank() == 0,
                InvalidArgument,
                "{name} must be scalar, got shape {}",
                tensor.shape()
            );
        }
        let text = |input| Ok::<_, Status>(String::from_utf8_lossy(&cx.scalar::<Str>(input)?).into_owned());
        let (scheme, key) = (text(0)?, text(1)?);
        let known = ["", "file", "s3", "gs", "http", "https"].contains(&scheme.as_str());
        ensure!(known, Unimplemented, "File system scheme '{scheme}' not found to set configuration");
        bail!(
            Unimplemented,
            "SetOption: the file system of scheme '{scheme}' has no option '{key}'; set environment variables of the \
             server instead"
        )
    })
}

fn read_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.set(0, PartialShape::scalar());
    Ok(())
}

fn write_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.rank(1, 0)?;
    Ok(())
}

fn matching_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank_at_most(0, 1)?;
    s.output(0, [UNKNOWN_DIM])
}

/// The name of a file.
pub(super) fn name_text(name: &Str) -> Result<String> {
    String::from_utf8(name.to_vec())
        .map_err(|_| status!(InvalidArgument, "the name of a file must be UTF-8 text"))
}

fn scalar(cx: &KernelCx<'_>, input: usize, what: &str) -> Result<Str> {
    let tensor = cx.input(input)?;
    ensure!(
        tensor.rank() == 0,
        InvalidArgument,
        "{what} tensor must be scalar, but had shape: {}",
        tensor.shape()
    );
    tensor.to_scalar()
}

fn read_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let name = name_text(&scalar(&cx.cx(), 0, "Input filename")?)?;
        let device = cx.step().device.clone();
        let contents =
            blocking::run("read file", move |cancellation| read_whole(&device, &name, &cancellation)).await?;
        Ok(Tensor::scalar(contents).into())
    })
}

/// All bytes of a file. Memory grows with what is read, not with what the system says of the file's size.
pub(crate) fn read_whole(device: &Arc<Device>, name: &str, cancellation: &Cancellation) -> Result<Str> {
    let path = resolve_path(name)?;
    let mut source = SequentialReader::open(&path)?;
    let mut contents = Vec::new();
    loop {
        if let Some(reason) = cancellation.reason() {
            return Err(reason);
        }
        let step = contents.len().clamp(1 << 16, 1 << 24);
        device.check_text(contents.len() + step)?;
        let got = Read::by_ref(&mut source).take(step as u64).read_to_end(&mut contents);
        if got.map_err(|error| file::status(&path, &error))? == 0 {
            return Ok(contents.into());
        }
    }
}

fn write_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let (name, contents) = {
            let cx = cx.cx();
            (name_text(&scalar(&cx, 0, "Input filename")?)?, scalar(&cx, 1, "Contents")?)
        };
        blocking::run("write file", move |_| {
            let path = resolve_path(&name)?;
            if let Some(directory) = path.parent().filter(|directory| !directory.as_os_str().is_empty()) {
                file::create_directories(directory)?;
            }
            if is_remote(&path) {
                return file::write(&path, &contents);
            }
            // In place, so that names of devices and pipes work.
            let written = File::create(&path).and_then(|mut file| file.write_all(&contents));
            written.map_err(|error| file::status(&path, &error))
        })
        .await?;
        Ok(Outputs::None)
    })
}

fn matching_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(|mut cx| async move {
        let patterns = cx.cx().take(0)?;
        ensure!(
            patterns.rank() <= 1,
            InvalidArgument,
            "Input patterns tensor must be scalar or vector, but had shape: {}",
            patterns.shape()
        );
        let names = blocking::run("find files", move |_| {
            let mut names = Vec::new();
            for pattern in patterns.flat::<Str>()? {
                let found = file::matching(&name_text(pattern)?)?;
                names.extend(found.into_iter().map(|path| Str::from(path.into_os_string().into_vec())));
            }
            names.sort();
            Ok(names)
        });
        Ok(Tensor::vector(names.await?).into())
    })
}

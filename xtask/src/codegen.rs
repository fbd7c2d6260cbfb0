//! Turns `crates/proto/protos` into checked-in Rust: message types for `ferroflow-proto` and their descriptors; the
//! golden messages of `ferroflow-testing`; and the typed builders of ops.
//!
//! The output is checked in so that building needs neither protoc nor a build script; `--check` proves that it
//! is what the `.proto` files and declarations say.

mod builders;
mod outputs;

use std::iter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use prost::Message;
use prost_build::Module;
use prost_types::{FileDescriptorProto, FileDescriptorSet};

use crate::workspace;
use outputs::Outputs;

const PROTOS: &str = "crates/proto/protos";
const MESSAGES: &str = "crates/proto/src/generated";
const GOLDEN_PROTOS: &str = "crates/testing/protos";
const GOLDEN_MESSAGES: &str = "crates/testing/src/generated";

/// Options of `cargo xtask codegen`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Write nothing; fail if a checked-in file differs from what would be generated
    #[arg(long)]
    pub(crate) check: bool,
}

/// Writes the generated files, or compares them with the checked-in ones.
pub(crate) fn run(args: &Args) -> Result<()> {
    let root = workspace::root();
    let protos = root.join(PROTOS);
    let descriptors = compile(&protos, &[])?;
    let goldens = compile(&root.join(GOLDEN_PROTOS), &[protos])?;
    let mut outputs = Outputs::new(root.clone());
    messages(&descriptors, &mut outputs)?;
    golden_messages(&goldens, &mut outputs)?;
    builders::builders(&root, &descriptors.encode_to_vec(), &mut outputs)?;
    if args.check { outputs.check() } else { outputs.write() }
}

/// Compiles every `.proto` file below `directory`, and what they import from there or from `imports`.
fn compile(directory: &Path, imports: &[PathBuf]) -> Result<FileDescriptorSet> {
    let mut files = Vec::new();
    collect_protos(directory, &mut files)?;
    // The order of files decides the order of items in the output.
    files.sort();
    Ok(protox::Compiler::new(iter::once(directory).chain(imports.iter().map(PathBuf::as_path)))?
        .include_imports(true)
        .include_source_info(false)
        .open_files(&files)?
        .file_descriptor_set())
}

fn collect_protos(directory: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    let entries = directory.read_dir().with_context(|| format!("cannot list {}", directory.display()))?;
    for entry in entries {
        let path = entry?.path();
        if path.is_dir() {
            collect_protos(&path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "proto") {
            files.push(path);
        }
    }
    Ok(())
}

fn messages(descriptors: &FileDescriptorSet, outputs: &mut Outputs) -> Result<()> {
    // Ordered maps make equal messages encode to equal bytes; shared bytes let tensors alias what was received.
    let mut config = prost_build::Config::new();
    config.btree_map(["."]).bytes(["."]).enable_type_names();
    // Nearly all attributes are types and numbers; large kinds kept inside would make every one of them large.
    for kind in ["tensor", "list", "func"] {
        config.boxed(format!(".tensorflow.AttrValue.value.{kind}"));
    }

    // Well-known types yield no code (`prost-types` has them), but prost asks about their fields.
    let request = |file: &FileDescriptorProto| {
        (Module::from_protobuf_package_name(file.package()), without_services(file))
    };
    let requests = descriptors.file.iter().map(request);
    for (module, code) in config.generate(requests.collect())? {
        let name = format!("{}.rs", module.parts().collect::<Vec<_>>().join("."));
        // These files are included, where inner doc comments are not allowed.
        outputs.rust(Path::new(MESSAGES).join(name), "//", &code)?;
    }
    outputs.bytes(Path::new(MESSAGES).join("descriptors.bin"), descriptors.encode_to_vec());
    Ok(())
}

fn golden_messages(descriptors: &FileDescriptorSet, outputs: &mut Outputs) -> Result<()> {
    let mut config = prost_build::Config::new();
    config.extern_path(".tensorflow", "::ferroflow_proto::tensorflow");
    let is_own = |file: &FileDescriptorProto| file.package().starts_with("ferroflow.");
    let request = |file: &FileDescriptorProto| {
        (Module::from_protobuf_package_name(file.package()), without_services(file))
    };
    // Imported files are part of the request, because prost asks about their fields, but their code is elsewhere.
    for (module, code) in config.generate(descriptors.file.iter().map(request).collect())? {
        if module.parts().next() == Some("ferroflow") {
            let name = format!("{}.rs", module.parts().collect::<Vec<_>>().join("."));
            outputs.rust(Path::new(GOLDEN_MESSAGES).join(name), "//", &code)?;
        }
    }
    let own =
        FileDescriptorSet { file: descriptors.file.iter().filter(|file| is_own(file)).cloned().collect() };
    outputs.bytes(Path::new(GOLDEN_MESSAGES).join("descriptors.bin"), own.encode_to_vec());
    Ok(())
}

fn without_services(file: &FileDescriptorProto) -> FileDescriptorProto {
    FileDescriptorProto { service: Vec::new(), ..file.clone() }
}

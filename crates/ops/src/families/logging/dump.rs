//! Tensors that a quantizer wants to see, written to files as a graph runs.

use ferroflow_core::kernel::{Init, Kernel, Outputs};
use ferroflow_core::op::Op;
use ferroflow_core::{Result, kernels};
use ferroflow_io::file;
use ferroflow_io::path::resolve_path;
use ferroflow_io::record::{Compression, RecordWriter};
use prost::Message;
use std::sync::{Mutex, PoisonError};

pub(crate) const OPS: &[&Op] = &[&DUMP_TENSOR];

static DUMP_TENSOR: Op = Op {
    name: "DumpTensor",
    inputs: &["tensor_data: T"],
    attrs: &[
        "log_dir_path: string",
        "file_name: string",
        "T: type",
        "enabled: bool",
        "func_name: string",
        "node_name: string",
    ],
    kernels: kernels![any dump_kernel],
    ..Op::STATEFUL
};

/// Stock's message `QuantizationUnit`: the place of the tensor in the program.
#[derive(Clone, PartialEq, Message)]
struct QuantizationUnit {
    #[prost(string, tag = "2")]
    node_name: String,
    #[prost(string, tag = "3")]
    func_name: String,
}

/// The files are made with the kernel, even if nothing is written to them; they are complete when it is gone.
fn dump_kernel(init: &Init<'_>) -> Result<Kernel> {
    let directory = resolve_path(init.attr::<String>("log_dir_path")?)?;
    file::create_directories(&directory)?;
    let name: String = init.attr("file_name")?;
    let writer = RecordWriter::create(directory.join(name), Compression::Zlib)?;
    let unit = QuantizationUnit { node_name: init.attr("node_name")?, func_name: init.attr("func_name")? };
    file::write(directory.join("quant_unit.pb"), &unit.encode_to_vec())?;
    let (writer, enabled) = (Mutex::new(writer), init.attr::<bool>("enabled")?);
    Kernel::sync(move |cx| {
        if enabled {
            let record = cx.input(0)?.to_proto()?.encode_to_vec();
            writer.lock().unwrap_or_else(PoisonError::into_inner).write(&record)?;
        }
        Ok(Outputs::None)
    })
}

//! Graphs in files: the messages `GraphDef` and `MetaGraphDef`, in protobuf's binary form and as text.

use crate::errors::Result;
use ferroflow::Status;
use ferroflow::proto::{GraphDef, MetaGraphDef};
use ferroflow_core::{bail, status};
use prost::Message;
use prost_reflect::text_format::FormatOptions;
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor};
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::LazyLock;

static DESCRIPTORS: LazyLock<DescriptorPool> = LazyLock::new(|| {
    DescriptorPool::decode(ferroflow_proto::FILE_DESCRIPTOR_SET)
        .expect("the descriptors are generated with the messages")
});

/// Returns the graph of a binary or text `GraphDef` or `MetaGraphDef` as a binary `GraphDef`.
#[pyfunction]
#[pyo3(name = "read_graph")]
pub(crate) fn graph_to_binary<'py>(py: Python<'py>, encoded: &[u8]) -> Result<Bound<'py, PyBytes>> {
    let graph = py.detach(|| read_graph(encoded))?;
    Ok(PyBytes::new(py, &graph.encode_to_vec()))
}

/// Returns such a graph as text.
#[pyfunction]
pub(crate) fn graph_to_text(py: Python<'_>, encoded: &[u8]) -> Result<String> {
    Ok(py.detach(|| {
        let graph = read_graph(encoded)?.encode_to_vec();
        let message = DynamicMessage::decode(descriptor("tensorflow.GraphDef")?, graph.as_slice());
        let message =
            message.map_err(|error| status!(Internal, "the graph's descriptor does not fit: {error}"))?;
        Ok::<_, Status>(message.to_text_format_with_options(&FormatOptions::new().pretty(true)))
    })?)
}

/// Reads a `GraphDef`, or the graph of a `MetaGraphDef`. The messages have no mark that tells them apart, but the bytes
/// of one make no nodes of the other, and neither is text.
pub(crate) fn read_graph(encoded: &[u8]) -> Result<GraphDef, Status> {
    let is_graph = |graph: &GraphDef| {
        !graph.node.is_empty() && graph.node.iter().all(|node| !node.op.is_empty() && !node.name.is_empty())
    };
    let meta = MetaGraphDef::decode(encoded).ok().and_then(|meta| meta.graph_def);
    if let Some(graph) = meta.filter(is_graph) {
        return Ok(graph);
    }
    match (GraphDef::decode(encoded), std::str::from_utf8(encoded)) {
        (Ok(graph), _) if is_graph(&graph) || encoded.is_empty() => Ok(graph),
        (_, Ok(text)) => read_text(text),
        (Ok(_), _) => bail!(DataLoss, "the graph has no nodes; expected a GraphDef or MetaGraphDef"),
        (Err(error), _) => bail!(DataLoss, "expected a GraphDef or MetaGraphDef, binary or as text: {error}"),
    }
}

/// Reads the text of either message.
fn read_text(text: &str) -> Result<GraphDef, Status> {
    let fields = |name| {
        let message = DynamicMessage::parse_text_format(descriptor(name)?, text);
        message.map_err(|error| status!(DataLoss, "expected the text of a {name}: {error}"))
    };
    let broken = |error| status!(DataLoss, "expected a GraphDef or MetaGraphDef: {error}");
    if let Ok(meta) = fields("tensorflow.MetaGraphDef") {
        return Ok(meta.transcode_to::<MetaGraphDef>().map_err(broken)?.graph_def.unwrap_or_default());
    }
    fields("tensorflow.GraphDef")?.transcode_to().map_err(broken)
}

fn descriptor(name: &str) -> Result<MessageDescriptor, Status> {
    let found = DESCRIPTORS.get_message_by_name(name);
    found.ok_or_else(|| status!(Internal, "no message is called {name}"))
}

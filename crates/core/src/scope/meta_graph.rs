//! Meta graphs: a graph with its collections, saver and signatures, in the message that stock reads and writes.

use super::{CollectionItem, Graph, Import, Scope};
use crate::Result;
use crate::graph::NodeKind;
use ferroflow_proto::tensorflow::collection_def::{self, Kind};
use ferroflow_proto::tensorflow::meta_graph_def::MetaInfoDef;
use ferroflow_proto::tensorflow::{
    CollectionDef, MetaGraphDef, OpDef, OpList, SaverDef, SignatureDef, TensorInfo, tensor_info,
};
use std::collections::BTreeMap;

/// The stock release that written meta graphs name.
const TENSORFLOW_VERSION: &str = "2.21.0";

/// The parts of a meta graph besides nodes, functions and collections.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MetaGraph {
    /// The nodes that save and restore checkpoints.
    pub saver: Option<SaverDef>,
    /// The signatures of a served model, by name.
    pub signatures: BTreeMap<String, SignatureDef>,
    /// Tags such as `serve`.
    pub tags: Vec<String>,
}

impl Graph {
    /// The graph, its collections and `meta` as a message that stock's `import_meta_graph` reads.
    pub fn to_meta_graph_def(&self, meta: &MetaGraph) -> MetaGraphDef {
        let collections = self.collection_names().into_iter().filter_map(|name| {
            let def = collection_def(&self.collection(&name))?;
            Some((name, def))
        });
        MetaGraphDef {
            meta_info_def: Some(MetaInfoDef {
                tags: meta.tags.clone(),
                tensorflow_version: TENSORFLOW_VERSION.to_owned(),
                stripped_op_list: Some(OpList { op: self.used_ops() }),
                ..Default::default()
            }),
            graph_def: Some(self.to_graph_def()),
            saver_def: meta.saver.clone(),
            collection_def: collections.collect(),
            signature_def: meta.signatures.clone(),
            ..Default::default()
        }
    }

    fn used_ops(&self) -> Vec<OpDef> {
        let state = self.lock();
        let ops = state.graph.nodes().iter().filter_map(|node| match &node.data.kind {
            NodeKind::Op(entry) => Some((entry.op.name, entry)),
            _ => None,
        });
        let ops: BTreeMap<_, _> = ops.collect();
        ops.into_values().map(|entry| entry.spec().to_proto(entry.op)).collect()
    }

    /// Adds the nodes, functions and collections of a message and returns the rest.
    pub fn import_meta_graph(&self, def: &MetaGraphDef) -> Result<MetaGraph> {
        import_meta_graph(&self.scope(), "", def)
    }
}

/// Like [`Graph::import_meta_graph`], under a prefix, which is also added to names in collections, the saver and
/// signatures.
pub fn import_meta_graph(scope: &Scope, prefix: &str, def: &MetaGraphDef) -> Result<MetaGraph> {
    let (scope, prefix) = match prefix {
        "" => (scope.clone(), scope.prefix().to_owned()),
        _ => {
            let inner = scope.scope(prefix);
            (inner.clone(), inner.prefix().to_owned())
        }
    };
    let graph = scope.graph();
    Import::new().build(&scope, &def.graph_def.clone().unwrap_or_default())?;
    for (name, collection) in &def.collection_def {
        for item in items(collection) {
            let item = match item {
                CollectionItem::Node(node) => CollectionItem::Node(format!("{prefix}{node}")),
                other => other,
            };
            graph.add_to_collection(name, item);
        }
    }
    let mut saver = def.saver_def.clone();
    if let Some(saver) = &mut saver {
        for name in [&mut saver.filename_tensor_name, &mut saver.save_tensor_name, &mut saver.restore_op_name]
        {
            *name = format!("{prefix}{name}");
        }
    }
    let mut signatures = def.signature_def.clone();
    for signature in signatures.values_mut() {
        for info in signature.inputs.values_mut().chain(signature.outputs.values_mut()) {
            rename(info, &prefix);
        }
    }
    let tags = def.meta_info_def.as_ref().map(|info| info.tags.clone()).unwrap_or_default();
    Ok(MetaGraph { saver, signatures, tags })
}

fn rename(info: &mut TensorInfo, prefix: &str) {
    match &mut info.encoding {
        Some(tensor_info::Encoding::Name(name)) => *name = format!("{prefix}{name}"),
        Some(tensor_info::Encoding::CooSparse(sparse)) => {
            for name in [
                &mut sparse.values_tensor_name,
                &mut sparse.indices_tensor_name,
                &mut sparse.dense_shape_tensor_name,
            ] {
                *name = format!("{prefix}{name}");
            }
        }
        Some(tensor_info::Encoding::CompositeTensor(composite)) => {
            composite.components.iter_mut().for_each(|part| rename(part, prefix));
        }
        None => {}
    }
}

/// The wire form. All items have the kind of the first one.
fn collection_def(items: &[CollectionItem]) -> Option<CollectionDef> {
    let kind = match items.first()? {
        CollectionItem::Node(_) => {
            let node = |item: &CollectionItem| match item {
                CollectionItem::Node(name) => Some(name.clone()),
                _ => None,
            };
            Kind::NodeList(collection_def::NodeList { value: items.iter().filter_map(node).collect() })
        }
        CollectionItem::Bytes(_) => {
            let bytes = |item: &CollectionItem| match item {
                CollectionItem::Bytes(bytes) => Some(bytes.clone()),
                _ => None,
            };
            Kind::BytesList(collection_def::BytesList { value: items.iter().filter_map(bytes).collect() })
        }
        CollectionItem::Int(_) => {
            let int = |item: &CollectionItem| match item {
                CollectionItem::Int(number) => Some(*number),
                _ => None,
            };
            Kind::Int64List(collection_def::Int64List { value: items.iter().filter_map(int).collect() })
        }
        CollectionItem::Float(_) => {
            let float = |item: &CollectionItem| match item {
                CollectionItem::Float(number) => Some(*number),
                _ => None,
            };
            Kind::FloatList(collection_def::FloatList { value: items.iter().filter_map(float).collect() })
        }
    };
    Some(CollectionDef { kind: Some(kind) })
}

fn items(def: &CollectionDef) -> Vec<CollectionItem> {
    match &def.kind {
        Some(Kind::NodeList(list)) => list.value.iter().cloned().map(CollectionItem::Node).collect(),
        Some(Kind::BytesList(list)) => list.value.iter().cloned().map(CollectionItem::Bytes).collect(),
        Some(Kind::Int64List(list)) => list.value.iter().copied().map(CollectionItem::Int).collect(),
        Some(Kind::FloatList(list)) => list.value.iter().copied().map(CollectionItem::Float).collect(),
        // `Any` messages mean nothing without the program that wrote them.
        Some(Kind::AnyList(_)) | None => Vec::new(),
    }
}

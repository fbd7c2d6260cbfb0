//! Collections: named lists that a graph carries, such as its variables.

use super::Graph;
use bytes::Bytes;

/// One item of a collection.
#[derive(Clone, Debug, PartialEq)]
pub enum CollectionItem {
    /// The name of a node or of an output (`w`, `loss:0`).
    Node(String),
    /// A serialized message, e.g. a `VariableDef`.
    Bytes(Bytes),
    /// An integer.
    Int(i64),
    /// A floating-point number.
    Float(f32),
}

impl Graph {
    /// Adds an item to a collection.
    pub fn add_to_collection(&self, name: &str, item: CollectionItem) {
        self.lock().collections.entry(name.to_owned()).or_default().push(item);
    }

    /// The items of a collection, in the order they were added.
    pub fn collection(&self, name: &str) -> Vec<CollectionItem> {
        self.lock().collections.get(name).cloned().unwrap_or_default()
    }

    /// The names of all collections.
    pub fn collection_names(&self) -> Vec<String> {
        self.lock().collections.keys().cloned().collect()
    }
}

//! The elements that a dataset keeps in memory after its first complete run.

use super::Element;
use ferroflow_core::resource::Resource;
use std::sync::{Arc, Mutex};

/// A cache that is empty until a run has reached its end.
#[derive(Default)]
pub(crate) struct MemoryCache(Mutex<Option<Arc<[Element]>>>);

impl MemoryCache {
    /// The elements of a complete run, if there was one.
    pub(crate) fn get(&self) -> Option<Arc<[Element]>> {
        self.0.lock().expect("no panic while a cache is locked").clone()
    }

    /// Keeps the elements of the first complete run.
    pub(crate) fn complete(&self, elements: Vec<Element>) {
        self.0.lock().expect("no panic while a cache is locked").get_or_insert_with(|| elements.into());
    }
}

impl Resource for MemoryCache {
    fn type_name(&self) -> &'static str {
        "N10tensorflow4data18MemoryCacheManagerE"
    }
}

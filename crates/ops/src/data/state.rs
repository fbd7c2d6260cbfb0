//! States of iterators as stock saves them: tensors by key, in parts that have the names of stages.
//!
//! A stage's name is that of the stage that it feeds, `::`, and its own: `Iterator::Root::Prefetch::BatchV2`. Stock
//! rewrites pipelines before it runs them (it fuses maps with batches and shuffles with repeats, makes maps parallel and
//! adds a prefetch at the end), so that stages here write the state that the rewritten pipeline looks for, and read
//! either. See stock's `core/data/serialization_utils.cc`, and `SaveInternal` of the datasets in `core/kernels/data`.

use super::Element;
use super::compressed::{self, Compressed};
use ferroflow_core::kernel::Str;
use ferroflow_core::variant::{Variant, VariantValue};
use ferroflow_core::{Code, DType, Result, Shape, Status, Tensor, bail, ensure, status};
use ferroflow_proto::tensorflow::VariantTensorDataProto;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The name of the stage above all others.
pub(crate) const ROOT: &str = "Iterator::Root";
pub(crate) const TYPE_NAME: &str = "tensorflow::Iterator";
const DELIMITER: &str = "@@";
/// The words that stock puts before keys that have a stage's name in them.
const FULL_NAME: &str = "60d899aa0d8ce4351e7c3b419e92d25b|";

/// One part of a state: its name, keys, and their tensors.
pub(crate) struct Part {
    name: String,
    keys: Vec<String>,
    tensors: Vec<Tensor>,
}

impl VariantValue for Part {
    fn type_name(&self) -> &str {
        TYPE_NAME
    }

    fn to_proto(&self) -> Result<VariantTensorDataProto> {
        let names: Vec<&str> =
            std::iter::once(self.name.as_str()).chain(self.keys.iter().map(String::as_str)).collect();
        let tensors: Result<_> = self.tensors.iter().map(Tensor::to_proto).collect();
        Ok(VariantTensorDataProto {
            type_name: TYPE_NAME.to_owned(),
            metadata: names.join(DELIMITER).into_bytes().into(),
            tensors: tensors?,
        })
    }
}

/// A state that is being written.
#[derive(Default)]
pub(crate) struct StateWriter(BTreeMap<String, Part>);

impl StateWriter {
    /// The parts as a vector of variants.
    pub(crate) fn into_tensor(self) -> Result<Tensor> {
        let parts: Vec<Variant> = self.0.into_values().map(Variant::new).collect();
        Tensor::from_units(DType::Variant, Shape::vector(parts.len()), parts)
    }
}

/// The place of a stage in a state that is being written.
pub(crate) struct Saver<'a> {
    writer: &'a mut StateWriter,
    name: String,
}

impl Saver<'_> {
    /// The place of the last stage.
    pub(crate) fn root(writer: &mut StateWriter) -> Saver<'_> {
        Saver { writer, name: ROOT.to_owned() }
    }

    /// The place of a stage that feeds this one.
    pub(crate) fn stage(&mut self, name: &str) -> Saver<'_> {
        self.at(&format!("::{name}"))
    }

    /// A place whose name begins with that of this one.
    pub(crate) fn at(&mut self, suffix: &str) -> Saver<'_> {
        Saver { name: format!("{}{suffix}", self.name), writer: self.writer }
    }

    pub(crate) fn tensor(&mut self, key: &str, value: Tensor) {
        let part = self.writer.0.entry(self.name.clone()).or_insert_with(|| Part {
            name: self.name.clone(),
            keys: Vec::new(),
            tensors: Vec::new(),
        });
        part.keys.push(key.to_owned());
        part.tensors.push(value);
    }

    pub(crate) fn number(&mut self, key: &str, value: i64) {
        self.tensor(key, Tensor::scalar(value));
    }

    /// A number under a key that has the place's name in it.
    pub(crate) fn full_number(&mut self, key: &str, value: i64) {
        let key = format!("{FULL_NAME}{}:{key}", self.name);
        self.number(&key, value);
    }

    /// A place that is named by the words before such keys.
    pub(crate) fn full_place(&mut self, key: &str) -> Saver<'_> {
        Saver { name: format!("{FULL_NAME}{}:{key}", self.name), writer: self.writer }
    }

    /// A key that says something by being there.
    pub(crate) fn mark(&mut self, key: &str) {
        self.tensor(key, Tensor::scalar::<Str>(Str::new()));
    }

    /// Components under `before[i]after`.
    pub(crate) fn components(&mut self, before: &str, element: &[Tensor]) {
        for (i, component) in element.iter().enumerate() {
            self.tensor(&format!("{before}[{i}]"), component.clone());
        }
    }
}

/// A state that was read.
struct StateReader(BTreeMap<String, HashMap<String, Tensor>>);

/// The place of a stage in a state that was read.
#[derive(Clone)]
pub(crate) struct Restorer {
    reader: Arc<StateReader>,
    name: String,
}

impl Restorer {
    /// The place of the last stage in the state that a vector of variants has; `None` if it is not one of stock's.
    pub(crate) fn root(variants: &[Variant]) -> Result<Option<Restorer>> {
        let mut parts = BTreeMap::new();
        for variant in variants {
            let (names, tensors) = if let Some(part) = variant.downcast::<Part>() {
                let names = std::iter::once(&part.name).chain(&part.keys).cloned().collect();
                (names, part.tensors.clone())
            } else if let Some(proto) = variant.as_opaque().filter(|proto| proto.type_name == TYPE_NAME) {
                let text = String::from_utf8_lossy(&proto.metadata);
                let names: Vec<String> = text.split(DELIMITER).map(ToOwned::to_owned).collect();
                (names, decoded(proto)?)
            } else {
                return Ok(None);
            };
            let Some((name, keys)) = names.split_first() else { continue };
            ensure!(
                keys.len() == tensors.len(),
                InvalidArgument,
                "the state of an iterator has {} tensors for the {} keys of {name}",
                tensors.len(),
                keys.len()
            );
            parts.insert(name.clone(), keys.iter().cloned().zip(tensors).collect());
        }
        Ok(Some(Restorer { reader: Arc::new(StateReader(parts)), name: ROOT.to_owned() }))
    }

    /// Returns whether the state has a stage of this name here.
    pub(crate) fn has(&self, stage: &str) -> bool {
        let name = format!("{}::{stage}", self.name);
        let below = self.reader.0.range(name.clone()..).take_while(|(part, _)| part.starts_with(&name));
        let follows = |part: &str| matches!(part.as_bytes().get(name.len()), None | Some(b':' | b'[' | b'_'));
        below.into_iter().any(|(part, _)| follows(part))
    }

    /// The first of these stages that the state has here.
    pub(crate) fn stage(&self, names: &[&str]) -> Result<Restorer> {
        match names.iter().find(|name| self.has(name)) {
            Some(name) => Ok(self.at(&format!("::{name}"))),
            None => bail!(
                InvalidArgument,
                "the state has no {} below {}: it was saved by an iterator over another dataset, or over one that was \
                 rewritten in a way that is not known here",
                names.join(" or "),
                self.name
            ),
        }
    }

    /// A place whose name begins with that of this one.
    pub(crate) fn at(&self, suffix: &str) -> Restorer {
        Restorer { reader: self.reader.clone(), name: format!("{}{suffix}", self.name) }
    }

    /// A place that is named by the words before keys that have a place's name in them.
    pub(crate) fn full_place(&self, key: &str) -> Restorer {
        Restorer { reader: self.reader.clone(), name: format!("{FULL_NAME}{}:{key}", self.name) }
    }

    fn find(&self, key: &str) -> Option<&Tensor> {
        self.reader.0.get(&self.name)?.get(key)
    }

    pub(crate) fn contains(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    pub(crate) fn tensor(&self, key: &str) -> Result<Tensor> {
        let missing = || status!(InvalidArgument, "the state of the iterator has no {key} of {}", self.name);
        self.find(key).cloned().ok_or_else(missing)
    }

    pub(crate) fn number(&self, key: &str) -> Result<i64> {
        self.tensor(key)?.to_scalar()
    }

    /// A count of things, of which no state has more than this.
    pub(crate) fn count(&self, key: &str) -> Result<usize> {
        let count = self.number(key)?;
        ensure!(
            (0..1 << 32).contains(&count),
            InvalidArgument,
            "{key} of {} is {count} in the state of the iterator",
            self.name
        );
        Ok(count as usize)
    }

    pub(crate) fn flag(&self, key: &str) -> Result<bool> {
        Ok(self.number(key)? != 0)
    }

    /// A number under a key that has the place's name in it.
    pub(crate) fn full_number(&self, key: &str) -> Result<i64> {
        self.number(&format!("{FULL_NAME}{}:{key}", self.name))
    }

    /// Components under `before[i]`.
    pub(crate) fn components(&self, before: &str, count: usize) -> Result<Element> {
        (0..count).map(|i| self.tensor(&format!("{before}[{i}]"))).collect()
    }

    /// An error under these keys.
    pub(crate) fn failure(&self, code: i64, message: &str) -> Status {
        let text: Str = self.tensor(message).and_then(|text| text.to_scalar()).unwrap_or_default();
        let code = Code::from_number(code as i32).unwrap_or(Code::Unknown);
        Status::new(code, String::from_utf8_lossy(&text).into_owned())
    }
}

/// The tensors of a part, which stock compresses.
fn decoded(proto: &VariantTensorDataProto) -> Result<Vec<Tensor>> {
    let tensors: Result<Vec<Tensor>> = proto.tensors.iter().map(Tensor::from_proto).collect();
    let tensors = tensors?;
    match tensors.as_slice() {
        [only] if only.dtype() == DType::Variant && only.rank() == 0 => {
            compressed::uncompress(&Compressed::from_variant(&only.units::<Variant>()?[0])?)
        }
        _ => Ok(tensors),
    }
}

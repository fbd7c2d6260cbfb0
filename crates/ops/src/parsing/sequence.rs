//! `tf.SequenceExample` messages: features of the whole, and lists of features, one per step of a sequence.

use super::example::{Parsed, splits_tensor};
use super::values::{Column, check_type};
use super::wire::{Wire, delimited};
use ferroflow_core::kernel::Str;
use ferroflow_core::{DType, PartialShape, Result, Shape, Tensor, bail, ensure, status};
use std::collections::HashMap;

/// A feature that is wanted, of the whole (context) or of the steps (list).
pub(crate) struct Wanted {
    pub(crate) key: Str,
    pub(crate) dtype: DType,
    pub(crate) form: Form,
}

/// The form that values get.
pub(crate) enum Form {
    /// A tensor of this shape; of lists one per step.
    Dense {
        shape: Shape,
        /// The values of a context feature that is missing; none if it is empty.
        default: Tensor,
        /// Whether a missing list counts as one without steps.
        may_miss: bool,
    },
    Sparse,
    /// With this type of splits.
    Ragged(DType),
}

/// The tensors of parsed sequences.
pub(crate) struct ParsedSequences {
    context: Parsed,
    lists: Parsed,
    lengths: Vec<Tensor>,
    outer_splits: Vec<Tensor>,
}

impl ParsedSequences {
    /// All tensors, in the order of the parse ops' outputs.
    pub(crate) fn into_outputs(self) -> Vec<Tensor> {
        let mut outputs = self.context.into_outputs();
        let lists = self.lists;
        outputs.extend(lists.sparse_indices.into_iter().chain(lists.sparse_values));
        outputs.extend(lists.sparse_shapes.into_iter().chain(lists.dense_values).chain(self.lengths));
        outputs.extend(lists.ragged_values.into_iter().chain(self.outer_splits).chain(lists.ragged_splits));
        outputs
    }
}

/// A parser for features of the whole and of steps, each in the order sparse, ragged, dense.
pub(crate) struct SequenceParser {
    context: Features,
    lists: Features,
}

struct Features {
    wanted: Vec<Wanted>,
    index: HashMap<Str, Vec<usize>>,
}

impl Features {
    fn new(wanted: Vec<Wanted>, what: &str) -> Result<Features> {
        let mut index: HashMap<Str, Vec<usize>> = HashMap::new();
        for (at, feature) in wanted.iter().enumerate() {
            check_type(feature.dtype)?;
            let others = index.entry(feature.key.clone()).or_default();
            for other in others.iter() {
                let (key, other) = (String::from_utf8_lossy(&feature.key), &wanted[*other].form);
                match (&feature.form, other) {
                    (Form::Ragged(_), Form::Sparse) => {
                        bail!(InvalidArgument, "{what} feature {key} cannot be both ragged and sparse")
                    }
                    (Form::Dense { .. }, Form::Sparse | Form::Ragged(_)) => {
                        bail!(InvalidArgument, "{what} feature {key} cannot be both dense and sparse")
                    }
                    _ => {}
                }
            }
            others.push(at);
        }
        Ok(Features { wanted, index })
    }
}

/// The serialized features of one record, by place of the wanted one; none if missing.
type Found<'a> = Vec<Option<&'a [u8]>>;

/// The values of a feature in all records.
struct Values {
    column: Column,
    /// Values per step; of a context feature per record that has it.
    steps: Vec<usize>,
    /// Steps per record; none if the record has no such feature.
    records: Vec<Option<usize>>,
}

/// The records that are parsed together.
struct Batch<'a> {
    records: &'a [Str],
    names: &'a [Str],
    /// Whether outputs have a dimension for the records; else there is one.
    is_batch: bool,
}

impl Batch<'_> {
    fn name(&self, record: usize) -> String {
        self.names.get(record).map_or("<unknown>".into(), |name| String::from_utf8_lossy(name).into_owned())
    }

    /// A shape below the dimension of records, if they have one.
    fn shape(&self, dims: impl IntoIterator<Item = i64>) -> Result<Shape> {
        Shape::new(self.is_batch.then_some(self.records.len() as i64).into_iter().chain(dims))
    }

    /// The shape of a sparse tensor.
    fn sparse_shape(&self, dims: &[usize]) -> Tensor {
        let records = self.is_batch.then_some(self.records.len());
        Tensor::vector(records.iter().chain(dims).map(|dim| *dim as i64).collect())
    }

    /// The splits between records; of a single one stock leaves a scalar that means nothing.
    fn splits(&self, dtype: DType, splits: Vec<i64>) -> Tensor {
        match (self.is_batch, dtype) {
            (true, _) => splits_tensor(dtype, splits),
            (false, DType::Int32) => Tensor::scalar(0i32),
            (false, _) => Tensor::scalar(0i64),
        }
    }
}

impl SequenceParser {
    pub(crate) fn new(context: Vec<Wanted>, lists: Vec<Wanted>) -> Result<SequenceParser> {
        for feature in &context {
            if let Form::Dense { shape, default, .. } = &feature.form {
                ensure!(
                    default.elements() == 0 || default.shape() == shape,
                    InvalidArgument,
                    "Default value for context feature {} has an incorrect shape: saw {} but expected {shape}",
                    String::from_utf8_lossy(&feature.key),
                    default.shape()
                );
            }
        }
        Ok(SequenceParser {
            context: Features::new(context, "Context")?,
            lists: Features::new(lists, "Sequence")?,
        })
    }

    /// Parses records. `names` says what messages call them and is empty if they have no names.
    pub(crate) fn parse(&self, records: &[Str], names: &[Str], is_batch: bool) -> Result<ParsedSequences> {
        ensure!(
            names.is_empty() || names.len() == records.len(),
            InvalidArgument,
            "example_names must be empty or have the correct number of elements"
        );
        let batch = Batch { records, names, is_batch };
        let found = records
            .iter()
            .enumerate()
            .map(|(at, record)| {
                self.find(record).ok_or_else(|| {
                    let name = batch.name(at);
                    status!(InvalidArgument, "Invalid protocol message input, example id: {name}")
                })
            })
            .collect::<Result<Vec<(Found<'_>, Found<'_>)>>>()?;
        let context = self.context.wanted.iter().enumerate().map(|(slot, wanted)| {
            context_values(&batch, wanted, &mut found.iter().map(|(context, _)| context[slot]))
        });
        let context = context.collect::<Result<Vec<Values>>>()?;
        let lists = self.lists.wanted.iter().enumerate().map(|(slot, wanted)| {
            list_values(&batch, wanted, &mut found.iter().map(|(_, lists)| lists[slot]))
        });
        let lists = lists.collect::<Result<Vec<Values>>>()?;
        let mut parsed = ParsedSequences {
            context: Parsed::default(),
            lists: Parsed::default(),
            lengths: Vec::new(),
            outer_splits: Vec::new(),
        };
        // Dense features first: stock finds their mistakes first.
        for dense in [true, false] {
            let values = self.context.wanted.iter().zip(&context);
            for (wanted, values) in values.filter(|(wanted, _)| wanted.form.is_dense() == dense) {
                finish_context(&batch, wanted, values, &mut parsed.context)?;
            }
        }
        for dense in [true, false] {
            let values = self.lists.wanted.iter().zip(&lists);
            for (wanted, values) in values.filter(|(wanted, _)| wanted.form.is_dense() == dense) {
                finish_list(&batch, wanted, values, &mut parsed)?;
            }
        }
        Ok(parsed)
    }

    /// The wanted features of a record; none if it cannot be read.
    fn find<'a>(&self, record: &'a Str) -> Option<(Found<'a>, Found<'a>)> {
        let mut found = (vec![None; self.context.wanted.len()], vec![None; self.lists.wanted.len()]);
        let mut message = Wire(record);
        while !message.is_empty() {
            let (features, found) = if message.expect(delimited(1)) {
                (&self.context, &mut found.0)
            } else if message.expect(delimited(2)) {
                (&self.lists, &mut found.1)
            } else if message.skip_field() {
                continue;
            } else {
                return None;
            };
            let mut entries = message.limited()?;
            while !entries.is_empty() {
                let mut entry = if entries.expect(delimited(1)) { entries.limited()? } else { return None };
                let key = if entry.expect(delimited(1)) { entry.whole()? } else { return None };
                let value = if entry.expect(delimited(2)) { entry.whole()? } else { return None };
                if !entry.is_empty() {
                    return None;
                }
                for slot in features.index.get(key).into_iter().flatten() {
                    found[*slot] = Some(value);
                }
            }
        }
        Some(found)
    }
}

impl Form {
    fn is_dense(&self) -> bool {
        matches!(self, Form::Dense { .. })
    }
}

fn context_values(
    batch: &Batch<'_>,
    wanted: &Wanted,
    found: &mut dyn Iterator<Item = Option<&[u8]>>,
) -> Result<Values> {
    let mut values = Values { column: Column::new(wanted.dtype), steps: Vec::new(), records: Vec::new() };
    for (at, feature) in found.enumerate() {
        let count = match feature {
            None | Some([]) => Some(0),
            Some(feature) => values.column.extend_typed(&batch.records[at], feature),
        };
        let Some(count) = count else {
            bail!(
                InvalidArgument,
                "Name: {}, Context feature: {}.  Data types don't match. Expected type: {}",
                batch.name(at),
                String::from_utf8_lossy(&wanted.key),
                wanted.dtype
            );
        };
        values.steps.push(count);
        values.records.push(feature.map(|_| 1));
    }
    Ok(values)
}

fn list_values(
    batch: &Batch<'_>,
    wanted: &Wanted,
    found: &mut dyn Iterator<Item = Option<&[u8]>>,
) -> Result<Values> {
    let mut values = Values { column: Column::new(wanted.dtype), steps: Vec::new(), records: Vec::new() };
    let key = String::from_utf8_lossy(&wanted.key);
    for (at, list) in found.enumerate() {
        let broken =
            || status!(InvalidArgument, "Error in sequence feature {key} in example {}", batch.name(at));
        let mut steps = Wire(list.unwrap_or_default());
        let mut count = 0;
        while !steps.is_empty() {
            let step = if steps.expect(delimited(1)) { steps.limited() } else { None };
            let step = step.ok_or_else(broken)?.0;
            let length = match step.len() {
                0 => Some(0),
                1 => return Err(broken()),
                _ => values.column.extend_typed(&batch.records[at], step),
            };
            let Some(length) = length else {
                bail!(
                    InvalidArgument,
                    "Name: {}, Feature list: {key}, Index: {count}.  Data types don't match. Expected type: {}",
                    batch.name(at),
                    wanted.dtype
                );
            };
            values.steps.push(length);
            count += 1;
        }
        values.records.push(list.map(|_| count));
    }
    Ok(values)
}

/// All values as a vector.
fn vector(values: &Values) -> Result<Tensor> {
    values.column.clone().into_tensor(Shape::vector(values.column.len()))
}

fn finish_context(batch: &Batch<'_>, wanted: &Wanted, values: &Values, parsed: &mut Parsed) -> Result<()> {
    let key = String::from_utf8_lossy(&wanted.key);
    match &wanted.form {
        Form::Dense { shape, default, .. } => {
            let most = values.steps.iter().copied().max().unwrap_or(0).max(default.elements());
            ensure!(
                most == shape.elements(),
                InvalidArgument,
                "Inconsistent max number of elements for feature {key}: expected {}, but found {most}",
                shape.elements()
            );
            let mut out = Column::new(wanted.dtype);
            let mut start = 0;
            for (at, (count, present)) in values.steps.iter().zip(&values.records).enumerate() {
                if present.is_none() {
                    ensure!(
                        default.elements() > 0,
                        InvalidArgument,
                        "Feature: {key} (data type: {}) is required but could not be found.",
                        wanted.dtype
                    );
                    out.extend_tensor(default)?;
                    continue;
                }
                ensure!(
                    *count == most,
                    InvalidArgument,
                    "Unexpected number of elements in example {}",
                    batch.name(at)
                );
                out.extend_range(&values.column, start..start + count);
                start += count;
            }
            parsed.dense_values.push(out.into_tensor(batch.shape(shape.dims().iter().copied())?)?);
        }
        Form::Sparse => {
            let mut indices = Vec::new();
            for (record, count) in values.steps.iter().enumerate() {
                for at in 0..*count {
                    indices.extend(batch.is_batch.then_some(record as i64));
                    indices.push(at as i64);
                }
            }
            let width = if batch.is_batch { 2 } else { 1 };
            parsed.sparse_indices.push(Tensor::new(Shape::matrix(values.column.len(), width), indices)?);
            parsed.sparse_values.push(vector(values)?);
            let most = values.steps.iter().copied().max().unwrap_or(0);
            parsed.sparse_shapes.push(batch.sparse_shape(&[most]));
        }
        Form::Ragged(splits) => {
            parsed.ragged_values.push(vector(values)?);
            parsed.ragged_splits.push(batch.splits(*splits, running_total(&values.steps)));
        }
    }
    Ok(())
}

fn finish_list(
    batch: &Batch<'_>,
    wanted: &Wanted,
    values: &Values,
    parsed: &mut ParsedSequences,
) -> Result<()> {
    match &wanted.form {
        Form::Dense { shape, may_miss, .. } => {
            let (tensor, lengths) = dense_list(batch, wanted, values, shape, *may_miss)?;
            parsed.lists.dense_values.push(tensor);
            parsed.lengths.push(Tensor::new(batch.shape([])?, lengths)?);
        }
        Form::Sparse => {
            let (mut indices, mut step) = (Vec::new(), 0);
            for (record, steps) in values.records.iter().enumerate() {
                for row in 0..steps.unwrap_or(0) {
                    for at in 0..values.steps[step] {
                        indices.extend(batch.is_batch.then_some(record as i64));
                        indices.extend([row as i64, at as i64]);
                    }
                    step += 1;
                }
            }
            let width = if batch.is_batch { 3 } else { 2 };
            let indices = Tensor::new(Shape::matrix(values.column.len(), width), indices)?;
            parsed.lists.sparse_indices.push(indices);
            parsed.lists.sparse_values.push(vector(values)?);
            let rows = values.records.iter().flatten().copied().max().unwrap_or(0);
            let most = values.steps.iter().copied().max().unwrap_or(0);
            parsed.lists.sparse_shapes.push(batch.sparse_shape(&[rows, most]));
        }
        Form::Ragged(splits) => {
            parsed.lists.ragged_values.push(vector(values)?);
            parsed.lists.ragged_splits.push(splits_tensor(*splits, running_total(&values.steps)));
            let records: Vec<usize> = values.records.iter().map(|steps| steps.unwrap_or(0)).collect();
            parsed.outer_splits.push(batch.splits(*splits, running_total(&records)));
        }
    }
    Ok(())
}

/// The steps of every record, filled up with zeros or empty strings to as many as the longest has; and their numbers.
fn dense_list(
    batch: &Batch<'_>,
    wanted: &Wanted,
    values: &Values,
    shape: &Shape,
    may_miss: bool,
) -> Result<(Tensor, Vec<i64>)> {
    let key = String::from_utf8_lossy(&wanted.key);
    let (row, mut starts, mut step) = (shape.elements(), vec![0], 0);
    for steps in &values.records {
        let steps = steps.unwrap_or(0);
        starts.push(starts[starts.len() - 1] + values.steps[step..step + steps].iter().sum::<usize>());
        step += steps;
    }
    let most = starts.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or(0);
    if most.checked_rem(row).is_none_or(|rest| rest != 0) {
        let total = PartialShape::new(std::iter::once(-1).chain(shape.dims().iter().copied()))?;
        bail!(
            InvalidArgument,
            "Feature list '{key}' has an unexpected number of values.  Total values size: {most} is not consistent \
             with output shape: {total}"
        );
    }
    let mut out = Column::new(wanted.dtype);
    let (mut lengths, mut step) = (Vec::new(), 0);
    for (at, steps) in values.records.iter().enumerate() {
        ensure!(
            steps.is_some() || may_miss,
            InvalidArgument,
            "Name: {}, Feature list '{key}' is required but could not be found.  Did you mean to include it in \
             feature_list_dense_missing_assumed_empty or feature_list_dense_defaults?",
            batch.name(at)
        );
        for index in 0..steps.unwrap_or(0) {
            ensure!(
                values.steps[step] == row,
                InvalidArgument,
                "Name: {}, Key: {key}, Index: {index}.  Number of values != expected.  values size: {} but output \
                 shape: {shape}",
                batch.name(at),
                values.steps[step]
            );
            step += 1;
        }
        lengths.push(steps.unwrap_or(0) as i64);
        out.extend_range(&values.column, starts[at]..starts[at + 1]);
        out.pad((at + 1) * most);
    }
    let dims = std::iter::once((most / row) as i64).chain(shape.dims().iter().copied());
    Ok((out.into_tensor(batch.shape(dims)?)?, lengths))
}

fn running_total(lengths: &[usize]) -> Vec<i64> {
    let sums = lengths.iter().scan(0, |sum, length| {
        *sum += *length as i64;
        Some(*sum)
    });
    std::iter::once(0).chain(sums).collect()
}

//! `tf.Example` messages: maps from names to lists of values, of which a parser takes the features it was made for.
//!
//! Like stock's parser it takes the last entry of a name, in a message and in messages that were put one after the other.

use super::values::{self, Column, check_type, shared, typed};
use super::wire::{Floats, Wire, delimited, ints, texts};
use ferroflow_core::device::Threads;
use ferroflow_core::kernel::Str;
use ferroflow_core::{DType, PartialShape, Result, Shape, Status, Tensor, bail, ensure, status};
use std::collections::HashMap;

/// A feature that a parser takes.
pub(crate) struct Feature {
    pub(crate) key: Str,
    pub(crate) dtype: DType,
    pub(crate) kind: Kind,
}

/// The form that a feature's values get.
pub(crate) enum Kind {
    Dense(Dense),
    Sparse,
    /// With this type of splits.
    Ragged(DType),
}

/// A feature whose values form a tensor of one shape, or of several rows if the first dimension is open.
pub(crate) struct Dense {
    pub(crate) shape: PartialShape,
    /// The values of a record without the feature; none if it is empty. Of an open shape the value that short rows are
    /// filled up with.
    pub(crate) default: Tensor,
    /// Whether the first dimension is open.
    pub(crate) variable: bool,
    /// The number of values, of an open shape those of one row.
    pub(crate) stride: usize,
}

impl Dense {
    /// The open first dimension and the number of values of a shape; `index` is its place among all, for messages.
    pub(crate) fn new(index: usize, shape: PartialShape, default: Tensor) -> Result<Dense> {
        let (variable, stride) = strides(index, &shape)?;
        Ok(Dense { shape, default, variable, stride })
    }
}

/// Whether the first dimension of a dense shape is open, and its number of values (of a row if it is).
pub(crate) fn strides(index: usize, shape: &PartialShape) -> Result<(bool, usize)> {
    let dims = shape.dims().filter(|dims| dims.iter().skip(1).all(|dim| *dim >= 0));
    let Some(dims) = dims else {
        bail!(InvalidArgument, "dense_shapes[{index}] has unknown rank or unknown inner dimensions: {shape}");
    };
    let variable = dims.first().is_some_and(|dim| *dim < 0);
    let fixed = if variable { &dims[1..] } else { dims };
    Ok((variable, Shape::new(fixed.iter().copied())?.elements()))
}

/// The tensors of parsed records, in the order of the features that were asked for.
#[derive(Default)]
pub(crate) struct Parsed {
    pub(crate) sparse_indices: Vec<Tensor>,
    pub(crate) sparse_values: Vec<Tensor>,
    pub(crate) sparse_shapes: Vec<Tensor>,
    pub(crate) dense_values: Vec<Tensor>,
    pub(crate) ragged_values: Vec<Tensor>,
    pub(crate) ragged_splits: Vec<Tensor>,
}

impl Parsed {
    /// All tensors, in the order of the parse ops' outputs.
    pub(crate) fn into_outputs(self) -> Vec<Tensor> {
        let lists = [self.sparse_indices, self.sparse_values, self.sparse_shapes, self.dense_values];
        lists.into_iter().chain([self.ragged_values, self.ragged_splits]).flatten().collect()
    }
}

/// A parser for a set of features.
pub(crate) struct ExampleParser {
    features: Vec<Feature>,
    index: HashMap<Str, u32>,
}

/// Stands for a name that nobody asked for.
const NOT_WANTED: u32 = u32::MAX;

/// Stands for the name of a record that has none.
const NAMELESS: &[u8] = b"<unknown>";

impl ExampleParser {
    /// A parser for these features; outputs of a kind have the order of the features of that kind.
    pub(crate) fn new(features: Vec<Feature>) -> Result<ExampleParser> {
        let mut index = HashMap::with_capacity(features.len());
        for (slot, feature) in features.iter().enumerate() {
            check_type(feature.dtype)?;
            if let Kind::Ragged(splits) = feature.kind {
                let known = matches!(splits, DType::Int32 | DType::Int64);
                ensure!(known, InvalidArgument, "Invalid ragged_split_type: {splits}");
            }
            index.insert(feature.key.clone(), slot as u32);
        }
        // If two features have one name, stock finds none of any name.
        if index.len() < features.len() {
            index.clear();
        }
        Ok(ExampleParser { features, index })
    }

    /// Parses records; `names` says what messages call them and is empty if they have no names.
    pub(crate) fn parse_batch(
        &self,
        threads: Threads<'_>,
        serialized: &[Str],
        names: &[Str],
    ) -> Result<Parsed> {
        let device = threads.device();
        let mut fixed = Vec::with_capacity(self.features.len());
        for feature in &self.features {
            fixed.push(match &feature.kind {
                Kind::Dense(dense) if !dense.variable => {
                    let dims = dense.shape.dims().unwrap_or_default().iter().copied();
                    let shape = Shape::new(std::iter::once(serialized.len() as i64).chain(dims))?;
                    Some(device.allocate(feature.dtype, shape)?)
                }
                _ => None,
            });
        }
        let bytes: usize = serialized.iter().map(|record| record.len()).sum();
        let length = threads.part_length(serialized.len(), RECORD_WORK + bytes / serialized.len().max(1));
        let mut outs = self.cut(&mut fixed, length, serialized.len().div_ceil(length))?;
        let mut done: Vec<Done> = outs.iter().map(|_| Done::default()).collect();
        let parts = serialized.chunks(length).zip(outs.drain(..)).zip(&mut done);
        threads.run_each(parts.collect(), &|part, ((records, outs), done)| {
            let first = part * length;
            *done = self.parse_part(records, outs, first, names.get(first..).unwrap_or_default());
        });
        for part in &mut done {
            part.outcome.take().unwrap_or_else(|| Err(status!(Cancelled, "the step has ended").derived()))?;
        }
        self.merge(threads, fixed, done, serialized.len())
    }

    /// The fixed outputs of every part.
    fn cut<'a>(
        &self,
        fixed: &'a mut [Option<Tensor>],
        length: usize,
        parts: usize,
    ) -> Result<Vec<Vec<Option<Out<'a>>>>> {
        fn pieces<T>(mut values: &mut [T], length: usize, parts: usize) -> impl Iterator<Item = &mut [T]> {
            (0..parts).map(move |_| {
                let end = length.min(values.len());
                let (piece, rest) = std::mem::take(&mut values).split_at_mut(end);
                values = rest;
                piece
            })
        }
        let mut cut: Vec<Vec<Option<Out<'a>>>> = (0..parts).map(|_| Vec::new()).collect();
        for (tensor, feature) in fixed.iter_mut().zip(&self.features) {
            let (Some(tensor), Kind::Dense(dense)) = (tensor, &feature.kind) else {
                cut.iter_mut().for_each(|outs| outs.push(None));
                continue;
            };
            let length = length * dense.stride;
            macro_rules! push {
                ($type:ty, $variant:ident) => {
                    pieces(tensor.flat_mut::<$type>()?, length, parts)
                        .zip(&mut cut)
                        .for_each(|(piece, outs)| outs.push(Some(Out::$variant(piece))))
                };
            }
            match feature.dtype {
                DType::Int64 => push!(i64, Ints),
                DType::Float => push!(f32, Floats),
                _ => push!(Str, Texts),
            }
        }
        Ok(cut)
    }

    fn parse_part(&self, records: &[Str], outs: Vec<Option<Out<'_>>>, first: usize, names: &[Str]) -> Done {
        let columns = self.features.iter().map(|feature| Column::new(feature.dtype)).collect();
        let mut part = Part {
            parser: self,
            outs,
            done: Done { columns, ends: vec![Vec::new(); self.features.len()], outcome: None },
            seen: vec![0; self.features.len()],
            guesses: Vec::new(),
            entries: Vec::new(),
        };
        let mut outcome = Ok(());
        for (at, record) in records.iter().enumerate() {
            let name = names.get(at).map_or(NAMELESS, |name| name);
            outcome = part.parse(record, at, first + at, name);
            if outcome.is_err() {
                break;
            }
        }
        Done { outcome: Some(outcome), ..part.done }
    }

    fn merge(
        &self,
        threads: Threads<'_>,
        mut fixed: Vec<Option<Tensor>>,
        mut done: Vec<Done>,
        records: usize,
    ) -> Result<Parsed> {
        let device = threads.device();
        let mut parsed = Parsed::default();
        for (slot, feature) in self.features.iter().enumerate() {
            let longest = |done: &[Done]| {
                let lengths = done.iter().flat_map(|part| {
                    let starts = std::iter::once(&0).chain(&part.ends[slot]);
                    part.ends[slot].iter().zip(starts).map(|(end, start)| end - start)
                });
                lengths.max().unwrap_or(0)
            };
            match &feature.kind {
                Kind::Dense(dense) if !dense.variable => {
                    let tensor = fixed[slot].take();
                    parsed.dense_values.push(tensor.unwrap_or_else(|| Tensor::zeros(feature.dtype, [0])));
                }
                Kind::Dense(dense) => {
                    let rows = longest(&done).checked_div(dense.stride).unwrap_or(0);
                    let inner = dense.shape.dims().unwrap_or_default().iter().skip(1).copied();
                    let shape = Shape::new([records as i64, rows as i64].into_iter().chain(inner))?;
                    let parts: Vec<(&Column, &[usize])> =
                        done.iter().map(|part| (&part.columns[slot], part.ends[slot].as_slice())).collect();
                    let width = rows * dense.stride;
                    let values = values::padded(device, feature.dtype, shape, width, &dense.default, &parts)?;
                    parsed.dense_values.push(values);
                }
                Kind::Sparse => {
                    let total = done.iter().map(|part| part.columns[slot].len()).sum();
                    let mut indices = device.allocate(DType::Int64, Shape::matrix(total, 2))?;
                    let mut rest = indices.flat_mut::<i64>()?.chunks_exact_mut(2);
                    let mut row = 0;
                    for part in &done {
                        let mut start = 0;
                        for end in &part.ends[slot] {
                            for (column, pair) in rest.by_ref().take(end - start).enumerate() {
                                pair.copy_from_slice(&[row, column as i64]);
                            }
                            start = *end;
                            row += 1;
                        }
                    }
                    parsed.sparse_indices.push(indices);
                    parsed.sparse_shapes.push(Tensor::vector(vec![records as i64, longest(&done) as i64]));
                    let mut columns: Vec<&mut Column> =
                        done.iter_mut().map(|part| &mut part.columns[slot]).collect();
                    parsed.sparse_values.push(values::joined(device, feature.dtype, &mut columns)?);
                }
                Kind::Ragged(splits) => {
                    let mut ends = Vec::with_capacity(records + 1);
                    ends.push(0);
                    for part in &done {
                        let start = ends[ends.len() - 1];
                        ends.extend(part.ends[slot].iter().map(|end| start + *end as i64));
                    }
                    parsed.ragged_splits.push(splits_tensor(*splits, ends));
                    let mut columns: Vec<&mut Column> =
                        done.iter_mut().map(|part| &mut part.columns[slot]).collect();
                    parsed.ragged_values.push(values::joined(device, feature.dtype, &mut columns)?);
                }
            }
        }
        Ok(parsed)
    }

    /// Parses one record.
    pub(crate) fn parse_one(&self, record: &Str) -> Result<Parsed> {
        let mut entries = Vec::new();
        let known = walk(record, &mut |name, feature| {
            if let Some(slot) = self.index.get(name) {
                entries.push((*slot, name, feature));
            }
        });
        if !known {
            return Err(unreadable(record));
        }
        let mut columns: Vec<Option<Column>> = vec![None; self.features.len()];
        for (slot, name, feature) in entries.into_iter().rev() {
            let Some((dtype, list)) = typed(feature)? else { continue };
            let (wanted, column) = (&self.features[slot as usize], &mut columns[slot as usize]);
            if column.is_some() {
                continue;
            }
            let key = || format!("Key: {}.  ", String::from_utf8_lossy(name));
            check_type_of(wanted, dtype)
                .map_err(|complaint| status!(InvalidArgument, "{}{complaint}", key()))?;
            let kind = match dtype {
                DType::Int64 => "int64_list",
                DType::Float => "float_list",
                _ => "bytes_list",
            };
            let broken =
                |what: &str| status!(InvalidArgument, "{}Can't parse serialized Example: {what}", key());
            let mut values = Column::new(dtype);
            let whole = values.extend(record, list, false);
            match &wanted.kind {
                Kind::Dense(dense) if !dense.variable => {
                    // Stock stops to read strings when all have been found.
                    let whole = whole && !(dtype == DType::String && values.len() > dense.stride);
                    if !whole {
                        return Err(broken(&format!("Parsing {kind} failed.")));
                    }
                    if values.len() != dense.stride {
                        return Err(broken(&format!("Some {kind} slice was not parsed.")));
                    }
                }
                other => {
                    if !whole {
                        let failed = if dtype == DType::String {
                            "Could not get num elements in bytes_list.".to_owned()
                        } else {
                            format!("Parsing {kind} failed.")
                        };
                        return Err(broken(&failed));
                    }
                    let divisor = if let Kind::Dense(dense) = other { dense.stride } else { 1 };
                    ensure!(
                        values.len().checked_rem(divisor).unwrap_or(values.len()) == 0,
                        InvalidArgument,
                        "Error while parsing feature with key {}: number of elements should be divisible by \
                         {divisor}, found {} instead",
                        String::from_utf8_lossy(name),
                        values.len()
                    );
                }
            }
            *column = Some(values);
        }
        self.single(columns)
    }

    fn single(&self, columns: Vec<Option<Column>>) -> Result<Parsed> {
        let mut parsed = Parsed::default();
        for (feature, column) in self.features.iter().zip(columns) {
            let values = |column: Option<Column>| column.unwrap_or_else(|| Column::new(feature.dtype));
            match &feature.kind {
                Kind::Dense(dense) if !dense.variable => {
                    let Some(column) = column else {
                        ensure!(dense.default.elements() > 0, InvalidArgument, "{}", missing(feature));
                        parsed.dense_values.push(dense.default.clone());
                        continue;
                    };
                    let shape = Shape::new(dense.shape.dims().unwrap_or_default().iter().copied())?;
                    parsed.dense_values.push(column.into_tensor(shape)?);
                }
                Kind::Dense(dense) => {
                    let column = values(column);
                    let rows = column.len().checked_div(dense.stride).unwrap_or(0);
                    let inner = dense.shape.dims().unwrap_or_default().iter().skip(1).copied();
                    let shape = Shape::new(std::iter::once(rows as i64).chain(inner))?;
                    parsed.dense_values.push(column.into_tensor(shape)?);
                }
                Kind::Sparse => {
                    let column = values(column);
                    let length = column.len();
                    let indices = (0..length as i64).collect();
                    parsed.sparse_indices.push(Tensor::new(Shape::matrix(length, 1), indices)?);
                    parsed.sparse_shapes.push(Tensor::vector(vec![length as i64]));
                    parsed.sparse_values.push(column.into_tensor(Shape::vector(length))?);
                }
                Kind::Ragged(splits) => {
                    let column = values(column);
                    let length = column.len();
                    parsed.ragged_splits.push(splits_tensor(*splits, Vec::new()));
                    parsed.ragged_values.push(column.into_tensor(Shape::vector(length))?);
                }
            }
        }
        Ok(parsed)
    }
}

/// The work of a record beside that of its bytes.
const RECORD_WORK: usize = 200;

/// Row splits of one of the two types.
pub(super) fn splits_tensor(dtype: DType, splits: Vec<i64>) -> Tensor {
    match dtype {
        DType::Int32 => Tensor::vector(splits.into_iter().map(|split| split as i32).collect()),
        _ => Tensor::vector(splits),
    }
}

/// A part of a fixed output.
enum Out<'a> {
    Ints(&'a mut [i64]),
    Floats(&'a mut [f32]),
    Texts(&'a mut [Str]),
}

/// The outcome of a part, with values and where those of each record end, per feature that is not fixed.
#[derive(Default)]
struct Done {
    columns: Vec<Column>,
    ends: Vec<Vec<usize>>,
    /// Not there if the part was not run.
    outcome: Option<Result<()>>,
}

/// A run of records that one thread parses.
struct Part<'p, 'r> {
    parser: &'p ExampleParser,
    outs: Vec<Option<Out<'p>>>,
    done: Done,
    /// Per feature, one more than the place of the last record that has it.
    seen: Vec<usize>,
    /// Name and slot of every entry of the last record: most often the next one has the same ones in the same order.
    guesses: Vec<(&'r [u8], u32)>,
    /// The entries of a record that are wanted.
    entries: Vec<(u32, &'r [u8])>,
}

impl<'r> Part<'_, 'r> {
    /// Parses the record at place `at` of the part, which is number `index` of the batch.
    fn parse(&mut self, record: &'r Str, at: usize, index: usize, name: &[u8]) -> Result<()> {
        let (guesses, entries, wanted) = (&mut self.guesses, &mut self.entries, &self.parser.index);
        entries.clear();
        let mut place = 0;
        let known = walk(record, &mut |name, feature| {
            let slot = match guesses.get(place) {
                Some((guess, slot)) if *guess == name => *slot,
                _ => {
                    let slot = wanted.get(name).copied().unwrap_or(NOT_WANTED);
                    guesses.truncate(place);
                    guesses.push((name, slot));
                    slot
                }
            };
            place += 1;
            if slot != NOT_WANTED {
                entries.push((slot, feature));
            }
        });
        if !known {
            return Err(unreadable(record));
        }
        for entry in (0..self.entries.len()).rev() {
            let (slot, feature) = self.entries[entry];
            self.parse_feature(record, at, index, name, slot as usize, feature)?;
        }
        for (slot, feature) in self.parser.features.iter().enumerate() {
            if self.seen[slot] == at + 1 {
                continue;
            }
            match &feature.kind {
                Kind::Dense(dense) if !dense.variable => {
                    self.fill_default(slot, dense, at).map_err(|_| {
                        let name = String::from_utf8_lossy(name);
                        status!(InvalidArgument, "Name: {name}, {}", missing(feature))
                    })?
                }
                _ => {
                    let end = self.done.ends[slot].last().copied().unwrap_or(0);
                    self.done.ends[slot].push(end);
                }
            }
        }
        Ok(())
    }

    fn parse_feature(
        &mut self,
        record: &Str,
        at: usize,
        index: usize,
        name: &[u8],
        slot: usize,
        feature: &[u8],
    ) -> Result<()> {
        let wanted = &self.parser.features[slot];
        let place = |text: String| {
            let (name, key) = (String::from_utf8_lossy(name), String::from_utf8_lossy(&wanted.key));
            status!(InvalidArgument, "Name: {name}, Key: {key}, Index: {index}.  {text}")
        };
        let broken = || place("Can't parse serialized Example.".to_owned());
        let typed = typed(feature)?;
        // An entry without a value is none of a dense feature, and ends a sparse one.
        if typed.is_none() && matches!(wanted.kind, Kind::Dense(_)) || self.seen[slot] == at + 1 {
            return Ok(());
        }
        self.seen[slot] = at + 1;
        if let Some((dtype, _)) = typed {
            check_type_of(wanted, dtype).map_err(place)?;
        }
        let list = typed.map(|(_, list)| list);
        if let (Some(out), Some(list), Kind::Dense(dense)) = (&mut self.outs[slot], list, &wanted.kind) {
            let Some((kind, count)) = fill(out, at * dense.stride, dense.stride, record, list) else {
                return Err(broken());
            };
            if count != dense.stride {
                let shape = &dense.shape;
                return Err(place(format!(
                    "Number of {kind} values != expected.  Values size: {count} but output shape: {shape}"
                )));
            }
            return Ok(());
        }
        let column = &mut self.done.columns[slot];
        if list.is_some_and(|list| !column.extend(record, list, false)) {
            return Err(broken());
        }
        let length = column.len();
        if let Kind::Dense(dense) = &wanted.kind
            && length.checked_rem(dense.stride).unwrap_or(length) != 0
        {
            let kind = match column {
                Column::Ints(_) => "int64",
                Column::Floats(_) => "float",
                Column::Texts(_) => "bytes",
            };
            return Err(place(format!(
                "Number of {kind} values is not a multiple of stride length. Saw {length} values but output shape \
                 is: {}",
                dense.shape
            )));
        }
        self.done.ends[slot].push(length);
        Ok(())
    }

    /// Copies the default value of a fixed feature; an error if there is none.
    fn fill_default(&mut self, slot: usize, dense: &Dense, at: usize) -> Result<()> {
        ensure!(dense.default.elements() > 0, InvalidArgument, "no default value");
        let range = at * dense.stride..(at + 1) * dense.stride;
        match &mut self.outs[slot] {
            Some(Out::Ints(out)) => out[range].copy_from_slice(dense.default.flat()?),
            Some(Out::Floats(out)) => out[range].copy_from_slice(dense.default.flat()?),
            Some(Out::Texts(out)) => out[range].clone_from_slice(dense.default.flat()?),
            None => {}
        }
        Ok(())
    }
}

/// Reads a list into `stride` places of an output; returns the kind and number of its values, of which there may be
/// another number. None if it is not such a list.
fn fill(
    out: &mut Out<'_>,
    start: usize,
    stride: usize,
    record: &Str,
    list: &[u8],
) -> Option<(&'static str, usize)> {
    let mut count = 0;
    match out {
        Out::Ints(out) => {
            let out = &mut out[start..start + stride];
            let whole = ints(list, |value| {
                if let Some(place) = out.get_mut(count) {
                    *place = value;
                }
                count += 1;
            });
            whole.then_some(("int64", count))
        }
        Out::Floats(out) => {
            let values = Floats::read(list, false)?;
            out[start..start + stride].iter_mut().zip(values.iter()).for_each(|(out, value)| *out = value);
            Some(("float", values.len()))
        }
        Out::Texts(out) => {
            let out = &mut out[start..start + stride];
            let whole = texts(list, |value| match out.get_mut(count) {
                Some(place) => {
                    *place = shared(record, value);
                    count += 1;
                    true
                }
                None => false,
            });
            whole.then_some(("bytes", count))
        }
    }
}

/// Calls `entry` with name and serialized feature of every entry of a message; false if it cannot be read.
#[inline]
fn walk<'a>(message: &'a [u8], entry: &mut dyn FnMut(&'a [u8], &'a [u8])) -> bool {
    let mut message = Wire(message);
    while !message.is_empty() {
        if !message.expect(delimited(1)) {
            if !message.skip_field() {
                return false;
            }
            continue;
        }
        let Some(mut features) = message.limited() else { return false };
        while !features.is_empty() {
            if !features.expect(delimited(1)) {
                return false;
            }
            let Some((name, feature)) = features.limited().and_then(map_entry) else { return false };
            entry(name, feature);
        }
    }
    true
}

/// The key and the value of an entry of a map, in any order; both have to be there.
#[inline]
fn map_entry(mut fields: Wire<'_>) -> Option<(&[u8], &[u8])> {
    let (mut key, mut value): (&[u8], &[u8]) = (&[], &[]);
    for _ in 0..2 {
        if fields.expect(delimited(1)) {
            key = fields.whole()?;
        } else if fields.expect(delimited(2)) {
            value = fields.whole()?;
        } else {
            return None;
        }
    }
    fields.is_empty().then_some((key, value))
}

/// The complaint about a list of another type, without its place.
fn check_type_of(wanted: &Feature, dtype: DType) -> Result<(), String> {
    let expected = wanted.dtype;
    if dtype == expected {
        return Ok(());
    }
    Err(match &wanted.kind {
        Kind::Dense(_) => {
            format!("Data types don't match. Data type: {dtype} but expected type: {expected}")
        }
        _ => format!("Data types don't match. Expected type: {expected}, Actual type: {dtype}"),
    })
}

fn missing(feature: &Feature) -> String {
    let key = String::from_utf8_lossy(&feature.key);
    format!("Feature: {key} (data type: {}) is required but could not be found.", feature.dtype)
}

fn unreadable(record: &Str) -> Status {
    let text = String::from_utf8_lossy(record);
    status!(InvalidArgument, "Could not parse example input, value: '{text}'")
}

//! Ops that fill static tables: from tensors, from lines of a text file, and from datasets.

use super::table_ops::{check_signature, handle_shape, table};
use crate::data::Dataset;
use crate::data::iterator::OneRun;
use crate::families::string::numbers::Parse;
use crate::state::table::Table;
use crate::support::blocking;
use crate::support::rows;
use crate::support::text::trim;
use bytes::Bytes;
use ferroflow_core::cancel::Cancellation;
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx};
use ferroflow_core::{DType, Result, Shape, Tensor, bail, ensure, kernels, status};
use ferroflow_io::lines::Lines;
use std::sync::Arc;

pub(crate) const OPS: &[&Op] = &[
    &INITIALIZE_TABLE,
    &INITIALIZE_TABLE_V2,
    &INITIALIZE_TABLE_FROM_TEXT_FILE,
    &INITIALIZE_TABLE_FROM_TEXT_FILE_V2,
    &INITIALIZE_TABLE_FROM_DATASET,
];

static INITIALIZE_TABLE_V2: Op = Op {
    name: "InitializeTableV2",
    gradient: Gradient::Stop,
    inputs: &["table_handle: resource", "keys: Tkey", "values: Tval"],
    attrs: &["Tkey: type", "Tval: type"],
    shape: initialize_shape,
    kernels: kernels![any initialize_kernel],
    ..Op::STATEFUL
};

static INITIALIZE_TABLE: Op = Op {
    name: "InitializeTable",
    inputs: &["table_handle: Ref(string)", "keys: Tkey", "values: Tval"],
    stateful: false,
    ..INITIALIZE_TABLE_V2
};

static INITIALIZE_TABLE_FROM_TEXT_FILE_V2: Op = Op {
    name: "InitializeTableFromTextFileV2",
    gradient: Gradient::Stop,
    inputs: &["table_handle: resource", "filename: string"],
    attrs: &[
        "key_index: int >= -2",
        "value_index: int >= -2",
        "vocab_size: int >= -1 = -1",
        "delimiter: string = '\t'",
        "offset: int = 0",
    ],
    shape: from_file_shape,
    kernels: kernels![any from_file_kernel],
    ..Op::STATEFUL
};

static INITIALIZE_TABLE_FROM_TEXT_FILE: Op = Op {
    name: "InitializeTableFromTextFile",
    inputs: &["table_handle: Ref(string)", "filename: string"],
    shape: handle_shape,
    stateful: false,
    ..INITIALIZE_TABLE_FROM_TEXT_FILE_V2
};

static INITIALIZE_TABLE_FROM_DATASET: Op = Op {
    name: "InitializeTableFromDataset",
    inputs: &["table_handle: resource", "dataset: variant"],
    shape: from_dataset_shape,
    kernels: kernels![any from_dataset_kernel],
    ..Op::STATEFUL
};

fn from_dataset_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    Ok(())
}

fn initialize_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let keys = s.rank(1, 1)?;
    s.merge(&keys, &s.input(2))?;
    Ok(())
}

fn from_file_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 0)?;
    s.rank(1, 0)?;
    Ok(())
}

/// The table of a node that fills one.
fn initializable(cx: &KernelCx<'_>) -> Result<Arc<Table>> {
    let table = table(cx)?;
    if !table.is_initializable() {
        let name = match cx.handle(0) {
            Ok(handle) => format!("{} {}", handle.container(), handle.name()),
            Err(_) => String::new(),
        };
        bail!(InvalidArgument, "Table {name} is not initializable");
    }
    Ok(table)
}

fn initialize_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let table = initializable(cx)?;
        check_signature(cx, &[table.key_type, table.value_type], &[], &[])?;
        let (keys, values) = (cx.input(1)?, cx.input(2)?);
        for (what, tensor) in [("Keys", keys), ("Values", values)] {
            let shape = tensor.shape();
            ensure!(
                tensor.rank() == 1,
                InvalidArgument,
                "{what} must be a vector, but received shape{shape}"
            );
        }
        ensure!(
            keys.elements() == values.elements(),
            InvalidArgument,
            "Keys and values must have the same size {} vs {}",
            keys.elements(),
            values.elements()
        );
        table.initialize(keys, values)?;
        Ok(Outputs::None)
    })
}

/// Fills a table with the pairs that a dataset has.
fn from_dataset_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::future(move |mut cx| async move {
        let (table, mut run, device) = {
            let cx = cx.cx();
            let dataset = Dataset::input(&cx, 1)?;
            let table = initializable(&cx)?;
            let types = dataset.types();
            ensure!(types.len() == 2, InvalidArgument, "Dataset should have two output types only");
            ensure!(
                types[0] == table.key_type,
                InvalidArgument,
                "Key dtype expected: {} but obtained: {} from the dataset",
                table.key_type,
                types[0]
            );
            ensure!(
                types[1] == table.value_type,
                InvalidArgument,
                "Value dtype expected: {} but obtained: {} from the dataset",
                table.value_type,
                types[1]
            );
            (table, OneRun::new(&dataset, cx.step(), "InitializeTableFromDataset")?, cx.device().clone())
        };
        let (mut keys, mut values) = (Vec::new(), Vec::new());
        while let Some(element) = run.next().await? {
            cx.step().check_cancelled()?;
            let mut components = element.into_iter();
            keys.extend(components.next());
            values.extend(components.next());
        }
        // Stock takes an empty dataset for one whose end came too early.
        ensure!(!keys.is_empty(), OutOfRange, "the dataset has no elements to fill the table with");
        let joined = |pieces: &[Tensor], dtype: DType| {
            let count = pieces.iter().map(Tensor::elements).sum();
            let pieces: Vec<&Tensor> = pieces.iter().filter(|piece| piece.elements() > 0).collect();
            rows::join(&device, dtype, Shape::vector(count), &pieces)
        };
        let (keys, values) = (joined(&keys, table.key_type)?, joined(&values, table.value_type)?);
        ensure!(
            keys.elements() == values.elements(),
            InvalidArgument,
            "Keys and values must have the same size {} vs {}",
            keys.elements(),
            values.elements()
        );
        table.initialize(&keys, &values)?;
        Ok(Outputs::None)
    })
}

/// The place of keys or values in a line: a column, or one of these.
pub(super) const LINE_NUMBER: i64 = -1;
pub(super) const WHOLE_LINE: i64 = -2;

/// A description of a vocabulary file.
pub(super) struct Layout {
    pub(super) key_index: i64,
    pub(super) value_index: i64,
    /// The number of lines that are read; all of them if it is negative.
    pub(super) size: i64,
    pub(super) delimiter: u8,
    pub(super) offset: i64,
}

fn from_file_kernel(init: &Init<'_>) -> Result<Kernel> {
    let delimiter: Str = init.attr("delimiter")?;
    ensure!(delimiter.len() == 1, InvalidArgument, "delimiter should be only 1 char");
    let layout = Layout {
        key_index: init.attr("key_index")?,
        value_index: init.attr("value_index")?,
        size: init.attr("vocab_size")?,
        delimiter: delimiter[0],
        offset: init.attr("offset")?,
    };
    let layout = Arc::new(layout);
    Kernel::future(move |mut cx| {
        let layout = layout.clone();
        async move {
            let (table, name) = file_inputs(&cx.cx())?;
            layout.check(&table)?;
            let fill = move |cancellation: Cancellation| layout.fill(&table, &name, &cancellation);
            blocking::run("read vocabulary", fill).await?;
            Ok(Outputs::None)
        }
    })
}

/// The table to fill and the name of the file.
fn file_inputs(cx: &KernelCx<'_>) -> Result<(Arc<Table>, String)> {
    let table = initializable(cx)?;
    check_signature(cx, &[DType::String], &[], &[])?;
    let name = cx.input(1)?;
    ensure!(
        name.rank() == 0,
        InvalidArgument,
        "filename should be a single string, but got {}",
        name.shape()
    );
    let name = name.to_scalar::<Str>()?;
    ensure!(!name.is_empty(), InvalidArgument, "filename cannot be empty.");
    let name = String::from_utf8(name.to_vec())
        .map_err(|_| status!(InvalidArgument, "the name of a file must be UTF-8 text"))?;
    Ok((table, name))
}

impl Layout {
    fn check(&self, table: &Table) -> Result<()> {
        let (key, value) = (table.key_type, table.value_type);
        let is_whole = |dtype: DType| dtype.is_integer() || dtype == DType::String;
        ensure!(
            self.key_index != LINE_NUMBER || key == DType::Int64,
            InvalidArgument,
            "Key index for line number requires table key dtype of int64, got {key}"
        );
        ensure!(
            self.key_index != WHOLE_LINE || is_whole(key),
            InvalidArgument,
            "Key index for whole line requires string or integer table key, got {key}"
        );
        ensure!(
            self.value_index != LINE_NUMBER || value == DType::Int64,
            InvalidArgument,
            "Value index for line number requires table value dtype of int64, got {value}"
        );
        ensure!(
            self.value_index != WHOLE_LINE || is_whole(value),
            InvalidArgument,
            "Value index for whole line requires table value dtype of integer or string, got {value}"
        );
        Ok(())
    }

    /// Fills a table from a file. One that is filled stays as it is, but the file must be there and have a first line.
    /// Lines are read before the table is locked: lookups meanwhile say that the table is not there yet.
    pub(super) fn fill(&self, table: &Table, name: &str, cancellation: &Cancellation) -> Result<()> {
        let mut lines = Lines::open(name)?;
        let mut entries = Entries::new(self, table);
        let Some(line) = lines.next()? else {
            self.check_size(name, 0)?;
            bail!(OutOfRange, "Read less bytes than requested");
        };
        ensure!(self.size != 0, OutOfRange, "Finished reading 0 of lines from {name}");
        entries.push(name, &lines, line)?;
        let read =
            if table.is_filled() { Ok(()) } else { self.read(name, &mut lines, &mut entries, cancellation) };
        entries.cut();
        table.fill(entries.next, true, |insert| {
            entries.batches.iter().try_for_each(|(keys, values)| insert(keys, values))?;
            // Mistakes of lines come after those of entries before them.
            read
        })
    }

    /// Reads all lines but the first.
    fn read(
        &self,
        name: &str,
        lines: &mut Lines,
        entries: &mut Entries<'_>,
        cancellation: &Cancellation,
    ) -> Result<()> {
        while self.size < 0 || (entries.next as i64) < self.size {
            let Some(line) = lines.next()? else { return self.check_size(name, entries.next) };
            entries.push(name, lines, line)?;
            if entries.keys.len() == BATCH {
                if let Some(reason) = cancellation.reason() {
                    return Err(reason);
                }
                entries.cut();
            }
        }
        Ok(())
    }

    fn check_size(&self, name: &str, lines: usize) -> Result<()> {
        ensure!(
            self.size < 0 || self.size == lines as i64,
            InvalidArgument,
            "Invalid vocab_size in {name}: expected {} but got {lines}",
            self.size
        );
        Ok(())
    }
}

/// Lines that are kept together.
const BATCH: usize = 4096;

/// Entries that were read.
struct Entries<'a> {
    layout: &'a Layout,
    batches: Vec<(Tensor, Tensor)>,
    /// Those of the next batch.
    keys: Values,
    values: Values,
    /// The number of the next line.
    next: usize,
}

impl<'a> Entries<'a> {
    fn new(layout: &'a Layout, table: &Table) -> Entries<'a> {
        Entries {
            layout,
            batches: Vec::new(),
            keys: Values::new(table.key_type),
            values: Values::new(table.value_type),
            next: 0,
        }
    }

    fn push(&mut self, name: &str, lines: &Lines, line: Bytes) -> Result<()> {
        let layout = self.layout;
        ensure!(
            !line.is_empty(),
            InvalidArgument,
            "Invalid content in {name}: empty line found at position {}.",
            lines.position()
        );
        let columns = layout.key_index.max(layout.value_index) + 1;
        let mut cut: Vec<&[u8]> = Vec::new();
        if columns > 0 {
            cut.extend(line.split(|byte| *byte == layout.delimiter));
            ensure!(
                cut.len() as i64 >= columns,
                InvalidArgument,
                "Invalid number of columns in {name} line {} ({}) : expected at least {columns} got {}",
                self.next,
                String::from_utf8_lossy(&line),
                cut.len()
            );
        }
        let number = self.next as i64;
        for (values, index) in [(&mut self.keys, layout.key_index), (&mut self.values, layout.value_index)] {
            let text = match index {
                LINE_NUMBER => {
                    values.push_number(number + layout.offset);
                    continue;
                }
                WHOLE_LINE => line.clone(),
                column => line.slice_ref(cut[column as usize]),
            };
            values.push(text, number, layout.offset)?;
        }
        self.next += 1;
        Ok(())
    }

    /// Puts what was read so far into a batch.
    fn cut(&mut self) {
        if self.keys.len() > 0 {
            self.batches.push((self.keys.take(), self.values.take()));
        }
    }
}

enum Values {
    Int32(Vec<i32>),
    Int64(Vec<i64>),
    Float(Vec<f32>),
    Double(Vec<f64>),
    Text(Vec<Str>),
    Other(DType),
}

impl Values {
    fn new(dtype: DType) -> Values {
        match dtype {
            DType::Int32 => Values::Int32(Vec::new()),
            DType::Int64 => Values::Int64(Vec::new()),
            DType::Float => Values::Float(Vec::new()),
            DType::Double => Values::Double(Vec::new()),
            DType::String => Values::Text(Vec::new()),
            other => Values::Other(other),
        }
    }

    fn len(&self) -> usize {
        match self {
            Values::Int32(values) => values.len(),
            Values::Int64(values) => values.len(),
            Values::Float(values) => values.len(),
            Values::Double(values) => values.len(),
            Values::Text(values) => values.len(),
            Values::Other(_) => 0,
        }
    }

    fn push_number(&mut self, number: i64) {
        if let Values::Int64(values) = self {
            values.push(number);
        }
    }

    fn push(&mut self, text: Str, line: i64, offset: i64) -> Result<()> {
        fn parsed<T: Parse>(text: &Str, line: i64) -> Result<T> {
            let value = std::str::from_utf8(trim(text)).ok().and_then(T::parse);
            value.ok_or_else(|| {
                let text = String::from_utf8_lossy(text);
                status!(InvalidArgument, "Field {text} in line {line} is not a valid {}.", T::DTYPE)
            })
        }
        match self {
            // Stock adds the offset to these alone.
            Values::Int32(values) => values.push(parsed::<i32>(&text, line)?.wrapping_add(offset as i32)),
            Values::Int64(values) => values.push(parsed(&text, line)?),
            Values::Float(values) => values.push(parsed(&text, line)?),
            Values::Double(values) => values.push(parsed(&text, line)?),
            Values::Text(values) => values.push(text),
            Values::Other(dtype) => bail!(InvalidArgument, "Data type {dtype} not supported."),
        }
        Ok(())
    }

    fn take(&mut self) -> Tensor {
        match self {
            Values::Int32(values) => Tensor::vector(std::mem::take(values)),
            Values::Int64(values) => Tensor::vector(std::mem::take(values)),
            Values::Float(values) => Tensor::vector(std::mem::take(values)),
            Values::Double(values) => Tensor::vector(std::mem::take(values)),
            Values::Text(values) => Tensor::vector(std::mem::take(values)),
            Values::Other(dtype) => Tensor::zeros(*dtype, [0]),
        }
    }
}

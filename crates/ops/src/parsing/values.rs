//! Values of a feature that may have any number of them, collected record by record, and how they become tensors.

use super::wire::{Floats, delimited, ints, texts};
use ferroflow_core::device::Device;
use ferroflow_core::kernel::Str;
use ferroflow_core::{DType, Result, Shape, Tensor, bail};
use std::ops::Range;

/// The types that features have.
pub(super) fn check_type(dtype: DType) -> Result<()> {
    match dtype {
        DType::Float | DType::Int64 | DType::String => Ok(()),
        other => bail!(InvalidArgument, "Invalid config dtype: {other}"),
    }
}

/// The type of a serialized feature, whose first byte says it, and the rest: its list.
#[inline]
pub(super) fn typed(feature: &[u8]) -> Result<Option<(DType, &[u8])>> {
    let Some((tag, list)) = feature.split_first() else { return Ok(None) };
    Ok(Some(match *tag {
        TEXTS => (DType::String, list),
        FLOATS => (DType::Float, list),
        INTS => (DType::Int64, list),
        _ => bail!(InvalidArgument, "Unsupported datatype."),
    }))
}

const TEXTS: u8 = delimited(1);
const FLOATS: u8 = delimited(2);
const INTS: u8 = delimited(3);

/// A string of a record: its memory is shared unless a small value would keep a large record alive.
#[inline]
pub(super) fn shared(record: &Str, value: &[u8]) -> Str {
    if value.is_empty() {
        return Str::new();
    }
    if record.len() <= 512 || value.len() >= record.len() / 4 {
        return record.slice_ref(value);
    }
    Str::copy_from_slice(value)
}

/// Values of one of the three types.
#[derive(Clone)]
pub(crate) enum Column {
    Ints(Vec<i64>),
    Floats(Vec<f32>),
    Texts(Vec<Str>),
}

impl Column {
    /// No values of this type, which is one of the three.
    pub(super) fn new(dtype: DType) -> Column {
        match dtype {
            DType::Int64 => Column::Ints(Vec::new()),
            DType::Float => Column::Floats(Vec::new()),
            _ => Column::Texts(Vec::new()),
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Column::Ints(values) => values.len(),
            Column::Floats(values) => values.len(),
            Column::Texts(values) => values.len(),
        }
    }

    /// Appends a list of this column's type; false if it is none. For `exact` see [`Floats::read`].
    pub(super) fn extend(&mut self, record: &Str, list: &[u8], exact: bool) -> bool {
        match self {
            Column::Ints(values) => ints(list, |value| values.push(value)),
            Column::Floats(values) => match Floats::read(list, exact) {
                Some(list) => {
                    values.extend(list.iter());
                    true
                }
                None => false,
            },
            Column::Texts(values) => texts(list, |value| {
                values.push(shared(record, value));
                true
            }),
        }
    }

    /// Appends a feature of a sequence, whose tag must be that of this column's type; returns the number of its values.
    pub(super) fn extend_typed(&mut self, record: &Str, feature: &[u8]) -> Option<usize> {
        let (tag, list) = feature.split_first()?;
        let expected = match self {
            Column::Ints(_) => INTS,
            Column::Floats(_) => FLOATS,
            Column::Texts(_) => TEXTS,
        };
        let before = self.len();
        (*tag == expected && self.extend(record, list, true)).then(|| self.len() - before)
    }

    /// The values of a tensor of one of the three types.
    pub(super) fn extend_tensor(&mut self, tensor: &Tensor) -> Result<()> {
        match self {
            Column::Ints(values) => values.extend_from_slice(tensor.flat()?),
            Column::Floats(values) => values.extend_from_slice(tensor.flat()?),
            Column::Texts(values) => values.extend_from_slice(tensor.flat()?),
        }
        Ok(())
    }

    /// Appends values of another column of the same type.
    pub(super) fn extend_range(&mut self, other: &Column, range: Range<usize>) {
        match (self, other) {
            (Column::Ints(values), Column::Ints(other)) => values.extend_from_slice(&other[range]),
            (Column::Floats(values), Column::Floats(other)) => values.extend_from_slice(&other[range]),
            (Column::Texts(values), Column::Texts(other)) => values.extend_from_slice(&other[range]),
            _ => {}
        }
    }

    /// Appends default values up to a length.
    pub(super) fn pad(&mut self, length: usize) {
        match self {
            Column::Ints(values) => values.resize(length, 0),
            Column::Floats(values) => values.resize(length, 0.0),
            Column::Texts(values) => values.resize(length, Str::new()),
        }
    }

    /// All values as a tensor.
    pub(super) fn into_tensor(self, shape: Shape) -> Result<Tensor> {
        match self {
            Column::Ints(values) => Tensor::new(shape, values),
            Column::Floats(values) => Tensor::new(shape, values),
            Column::Texts(values) => Tensor::new(shape, values),
        }
    }
}

/// The values of several columns of one type, one after the other, as a vector.
pub(super) fn joined(device: &Device, dtype: DType, columns: &mut [&mut Column]) -> Result<Tensor> {
    let total = columns.iter().map(|column| column.len()).sum();
    let mut tensor = device.allocate(dtype, Shape::vector(total))?;
    let mut start = 0;
    for column in columns {
        let end = start + column.len();
        match column {
            Column::Ints(values) => tensor.flat_mut::<i64>()?[start..end].copy_from_slice(values),
            Column::Floats(values) => tensor.flat_mut::<f32>()?[start..end].copy_from_slice(values),
            Column::Texts(values) => {
                let out = &mut tensor.flat_mut::<Str>()?[start..end];
                out.iter_mut().zip(values).for_each(|(out, value)| *out = std::mem::take(value));
            }
        }
        start = end;
    }
    Ok(tensor)
}

/// A tensor of rows of one width that are filled up with a padding value; rows are runs of columns that end at `ends`.
pub(super) fn padded(
    device: &Device,
    dtype: DType,
    shape: Shape,
    width: usize,
    padding: &Tensor,
    parts: &[(&Column, &[usize])],
) -> Result<Tensor> {
    fn fill<T: Clone>(out: &mut [T], width: usize, padding: &T, parts: &[(&[T], &[usize])]) {
        out.fill(padding.clone());
        if width == 0 {
            return;
        }
        let mut rows = out.chunks_exact_mut(width);
        for (values, ends) in parts {
            let mut start = 0;
            for (row, end) in rows.by_ref().zip(*ends) {
                row[..end - start].clone_from_slice(&values[start..*end]);
                start = *end;
            }
        }
    }
    macro_rules! of {
        ($type:ty, $variant:ident) => {{
            let mut tensor = device.allocate(dtype, shape)?;
            let parts: Vec<(&[$type], &[usize])> = parts
                .iter()
                .map(|(column, ends)| match column {
                    Column::$variant(values) => (values.as_slice(), *ends),
                    _ => (&[][..], &[][..]),
                })
                .collect();
            fill(tensor.flat_mut::<$type>()?, width, &padding.flat::<$type>()?[0], &parts);
            Ok(tensor)
        }};
    }
    match dtype {
        DType::Int64 => of!(i64, Ints),
        DType::Float => of!(f32, Floats),
        _ => of!(Str, Texts),
    }
}

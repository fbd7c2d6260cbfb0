//! Values of a table: rows of one width, which are overwritten, appended and read in any order.

use ferroflow_core::kernel::Str;
use ferroflow_core::resource::ResourceHandle;
use ferroflow_core::variant::Variant;
use ferroflow_core::{DType, Result, Shape, Tensor, bail};

/// Rows of values, by what their elements are made of.
pub(super) enum Column {
    One(Vec<u8>),
    Four(Vec<u32>),
    Eight(Vec<u64>),
    Texts(Vec<Str>),
    Variants(Vec<Variant>),
    Handles(Vec<ResourceHandle>),
}

/// Evaluates a body with the units of a column.
macro_rules! each {
    ($column:expr, $units:ident => $body:expr) => {
        match $column {
            Column::One($units) => $body,
            Column::Four($units) => $body,
            Column::Eight($units) => $body,
            Column::Texts($units) => $body,
            Column::Variants($units) => $body,
            Column::Handles($units) => $body,
        }
    };
}

impl Column {
    pub(super) fn new(dtype: DType) -> Column {
        match (dtype, dtype.size()) {
            (DType::String, _) => Column::Texts(Vec::new()),
            (DType::Variant, _) => Column::Variants(Vec::new()),
            (DType::Resource, _) => Column::Handles(Vec::new()),
            (_, 1) => Column::One(Vec::new()),
            (_, 4) => Column::Four(Vec::new()),
            _ => Column::Eight(Vec::new()),
        }
    }

    /// Appends default rows up to a number of elements.
    pub(super) fn grow(&mut self, elements: usize) {
        each!(self, units => units.resize(elements, Default::default()));
    }

    pub(super) fn clear(&mut self) {
        each!(self, units => units.clear());
    }

    /// Copies row `from` of a tensor to row `to`, which is at most the one after the last.
    pub(super) fn set(&mut self, width: usize, to: usize, values: &Tensor, from: usize) -> Result<()> {
        each!(self, units => {
            let row = &values.units()?[from * width..(from + 1) * width];
            if units.len() <= to * width {
                units.extend_from_slice(row);
            } else {
                units[to * width..(to + 1) * width].clone_from_slice(row);
            }
        });
        Ok(())
    }

    /// Sets a row to defaults, so that nothing keeps memory.
    pub(super) fn clear_row(&mut self, width: usize, row: usize) {
        each!(self, units => units[row * width..(row + 1) * width].fill(Default::default()));
    }

    /// A tensor of rows, by number.
    pub(super) fn rows(
        &self,
        dtype: DType,
        width: usize,
        shape: Shape,
        rows: impl Iterator<Item = usize>,
    ) -> Result<Tensor> {
        each!(self, units => {
            let mut out = Vec::with_capacity(shape.elements());
            rows.for_each(|row| out.extend_from_slice(&units[row * width..(row + 1) * width]));
            Tensor::from_units(dtype, shape, out)
        })
    }

    /// All elements of a tensor.
    pub(super) fn from_tensor(tensor: &Tensor) -> Result<Column> {
        let mut column = Column::new(tensor.dtype());
        each!(&mut column, units => units.extend_from_slice(tensor.units()?));
        Ok(column)
    }
}

/// Fills rows of `out` with the values of keys that `row` finds, and else with the default: the first row of `default`,
/// or the key's if it has one for each.
pub(super) fn gather(
    column: &Column,
    width: usize,
    out: &mut Tensor,
    default: &Tensor,
    one_default: bool,
    row: &dyn Fn(usize) -> Result<Option<usize>>,
) -> Result<()> {
    if width == 0 {
        return Ok(());
    }
    each!(column, units => {
        let defaults = default.units()?;
        if defaults.len() < width {
            bail!(InvalidArgument, "the default value has no elements");
        }
        for (at, out) in out.units_mut()?.chunks_exact_mut(width).enumerate() {
            let value = match row(at)? {
                Some(row) => &units[row * width..(row + 1) * width],
                None if one_default => &defaults[..width],
                None => &defaults[at * width..(at + 1) * width],
            };
            out.clone_from_slice(value);
        }
    });
    Ok(())
}

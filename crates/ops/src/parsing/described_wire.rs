//! Reads and writes fields of messages that are described at run time.

use super::described::{Cell, Field, FieldType};
use bytes::Bytes;
use ferroflow_core::{DType, Result, Tensor, bail, ensure, status};
use prost::encoding::encode_varint;

/// The wire type that ends a group.
const END_GROUP: u32 = 4;
/// Groups within groups; protobuf's own limit.
const DEPTH: usize = 100;

/// A message that is being read.
struct Cursor<'a> {
    message: &'a Bytes,
    at: usize,
}

impl Cursor<'_> {
    fn is_at_end(&self) -> bool {
        self.at == self.message.len()
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.message.get(self.at).copied()?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0u64;
        for shift in (0..70).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 0x7f).checked_shl(shift).unwrap_or(0);
            if byte < 0x80 {
                return Some(value);
            }
        }
        None
    }

    fn fixed<const N: usize>(&mut self) -> Option<[u8; N]> {
        let bytes = self.message.get(self.at..self.at + N)?;
        self.at += N;
        bytes.try_into().ok()
    }

    /// The place of a field with a length, after its tag.
    fn delimited(&mut self) -> Option<std::ops::Range<usize>> {
        let length = u32::try_from(self.varint()?).ok()? as usize;
        let end = self.at.checked_add(length).filter(|end| *end <= self.message.len())?;
        let range = self.at..end;
        self.at = end;
        Some(range)
    }

    /// A tag, or `None` at the end and where there is no tag.
    fn tag(&mut self) -> Option<u32> {
        if self.is_at_end() {
            return None;
        }
        let start = self.at;
        let tag = self.varint().and_then(|tag| u32::try_from(tag).ok()).filter(|tag| *tag != 0);
        if tag.is_none() {
            self.at = start;
        }
        tag
    }

    /// Passes over the content of a field.
    fn skip(&mut self, tag: u32, depth: usize) -> Option<()> {
        if tag >> 3 == 0 {
            return None;
        }
        match tag & 7 {
            0 => self.varint().map(drop),
            1 => self.fixed::<8>().map(drop),
            2 => self.delimited().map(drop),
            3 => self.group(tag >> 3, depth),
            5 => self.fixed::<4>().map(drop),
            _ => None,
        }
    }

    /// Passes over the content of a group and its end.
    fn group(&mut self, number: u32, depth: usize) -> Option<()> {
        if depth == DEPTH {
            return None;
        }
        loop {
            let tag = self.tag()?;
            if tag & 7 == END_GROUP {
                return (tag >> 3 == number).then_some(());
            }
            self.skip(tag, depth + 1)?;
        }
    }

    /// A value of a field whose tag began at `tag`.
    fn value(&mut self, field: &Field, dtype: DType, tag: usize) -> Option<Cell> {
        Some(match field.field_type {
            FieldType::Double | FieldType::Fixed64 | FieldType::Sfixed64 => {
                Cell::Bits(u64::from_le_bytes(self.fixed()?))
            }
            FieldType::Float => Cell::float(f32::from_le_bytes(self.fixed()?), dtype),
            FieldType::Fixed32 => Cell::Bits(u64::from(u32::from_le_bytes(self.fixed()?))),
            FieldType::Sfixed32 => Cell::Bits(i32::from_le_bytes(self.fixed()?) as i64 as u64),
            FieldType::Int64 | FieldType::Uint64 => Cell::Bits(self.varint()?),
            FieldType::Int32 | FieldType::Enum => Cell::Bits(self.varint()? as i32 as i64 as u64),
            FieldType::Uint32 => Cell::Bits(u64::from(self.varint()? as u32)),
            FieldType::Bool => Cell::Bits(u64::from(self.varint()? != 0)),
            FieldType::Sint32 => {
                let coded = self.varint()? as u32;
                Cell::Bits(((coded >> 1) as i32 ^ -((coded & 1) as i32)) as i64 as u64)
            }
            FieldType::Sint64 => {
                let coded = self.varint()?;
                Cell::Bits(((coded >> 1) as i64 ^ -((coded & 1) as i64)) as u64)
            }
            FieldType::String | FieldType::Bytes | FieldType::Message => {
                let range = self.delimited()?;
                Cell::Text(self.message.slice(range))
            }
            FieldType::Group => {
                self.group(field.number, 0)?;
                // With the tags around it, as in stock.
                Cell::Text(self.message.slice(tag..self.at))
            }
        })
    }
}

/// A field that an op wants, and the type of tensor that its values go to.
pub(crate) struct WantedField {
    pub(crate) field: Field,
    pub(crate) dtype: DType,
    /// The value if the field is not there.
    pub(crate) default: Cell,
}

/// The values of every wanted field of a message; of a field that is not repeated, the last one.
pub(crate) fn read_fields(message: &Bytes, wanted: &[WantedField]) -> Result<Vec<Vec<Cell>>> {
    let mut values: Vec<Vec<Cell>> = wanted.iter().map(|_| Vec::new()).collect();
    let mut cursor = Cursor { message, at: 0 };
    let mut start = 0;
    while let Some(tag) = cursor.tag() {
        let tag_start = start;
        ensure!(tag & 7 != END_GROUP, DataLoss, "CountFields: Failed to consume entire buffer");
        let Some(place) = wanted.iter().position(|wanted| wanted.field.number == tag >> 3) else {
            cursor.skip(tag, 0).ok_or_else(|| status!(DataLoss, "Failed skipping unrequested field"))?;
            start = cursor.at;
            continue;
        };
        let (WantedField { field, dtype, default }, values) = (&wanted[place], &mut values[place]);
        let (wire, expected) = (tag & 7, field.field_type.wire_type());
        if wire == 2 && expected != 2 {
            read_packed(&mut cursor, field, *dtype, values)?;
            if !field.is_repeated && !values.is_empty() {
                // Such a field counts as there, but stock gives it the default.
                *values = vec![default.clone()];
            }
        } else if wire != expected {
            cursor
                .skip(tag, 0)
                .ok_or_else(|| status!(DataLoss, "CollectField: Failed skipping malformed field"))?;
        } else {
            let value = cursor.value(field, *dtype, tag_start);
            values.push(
                value.ok_or_else(|| status!(DataLoss, "ReadValue: Failed skipping field when counting"))?,
            );
        }
        if !field.is_repeated && values.len() > 1 {
            values.drain(..values.len() - 1);
        }
        start = cursor.at;
    }
    ensure!(cursor.is_at_end(), DataLoss, "CountFields: Failed to consume entire buffer");
    Ok(values)
}

fn read_packed(cursor: &mut Cursor<'_>, field: &Field, dtype: DType, values: &mut Vec<Cell>) -> Result<()> {
    let range = cursor.delimited();
    let range = range.ok_or_else(|| status!(DataLoss, "ReadPackedValues: Skipping packed field failed"))?;
    let packed = cursor.message.slice(range);
    if packed.is_empty() {
        return Ok(());
    }
    ensure!(field.field_type != FieldType::Group, DataLoss, "TYPE_GROUP encountered as packed");
    let width = match field.field_type.wire_type() {
        1 => 8,
        5 => 4,
        _ => 1,
    };
    ensure!(
        packed.len().is_multiple_of(width),
        DataLoss,
        "Illegal data length for packed fixed-size type: {}",
        packed.len()
    );
    let mut cursor = Cursor { message: &packed, at: 0 };
    while !cursor.is_at_end() {
        let value = cursor.value(field, dtype, 0);
        let value = value.ok_or_else(|| status!(DataLoss, "Corrupt packed varint"))?;
        values.push(match value {
            // Stock does not extend the sign of packed ones.
            Cell::Bits(bits) if field.field_type == FieldType::Int32 && dtype == DType::Int64 => {
                Cell::Bits(u64::from(bits as u32))
            }
            value => value,
        });
    }
    Ok(())
}

/// A tensor's elements as cells of a message that is being written.
pub(crate) fn write_field(
    field: &Field,
    tensor: &Tensor,
    elements: std::ops::Range<usize>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let tag = |wire: u32| u64::from(field.number << 3 | wire);
    if field.is_packed {
        let mut packed = Vec::new();
        for element in elements {
            write_value(field, tensor, element, &mut packed)?;
        }
        encode_varint(tag(2), out);
        encode_varint(packed.len() as u64, out);
        out.extend_from_slice(&packed);
        return Ok(());
    }
    for element in elements {
        encode_varint(tag(field.field_type.wire_type()), out);
        write_value(field, tensor, element, out)?;
        if field.field_type == FieldType::Group {
            encode_varint(tag(4), out);
        }
    }
    Ok(())
}

fn write_value(field: &Field, tensor: &Tensor, element: usize, out: &mut Vec<u8>) -> Result<()> {
    let bits = match tensor.dtype() {
        DType::String => {
            let text = &tensor.flat::<Bytes>()?[element];
            if field.field_type != FieldType::Group {
                encode_varint(text.len() as u64, out);
            }
            out.extend_from_slice(text);
            return Ok(());
        }
        DType::Float => u64::from(tensor.flat::<f32>()?[element].to_bits()),
        DType::Double => tensor.flat::<f64>()?[element].to_bits(),
        DType::Int32 => tensor.flat::<i32>()?[element] as i64 as u64,
        DType::Int64 => tensor.flat::<i64>()?[element] as u64,
        DType::Uint32 => u64::from(tensor.flat::<u32>()?[element]),
        DType::Uint64 => tensor.flat::<u64>()?[element],
        DType::Bool => u64::from(tensor.flat::<bool>()?[element]),
        other => bail!(Internal, "a field cannot be made of {other}"),
    };
    match field.field_type {
        FieldType::Float if tensor.dtype() == DType::Double => {
            out.extend_from_slice(&(f64::from_bits(bits) as f32).to_le_bytes());
        }
        FieldType::Double | FieldType::Fixed64 | FieldType::Sfixed64 => {
            out.extend_from_slice(&bits.to_le_bytes())
        }
        FieldType::Float | FieldType::Fixed32 | FieldType::Sfixed32 => {
            out.extend_from_slice(&(bits as u32).to_le_bytes());
        }
        FieldType::Int32 | FieldType::Enum => encode_varint(bits as i32 as i64 as u64, out),
        FieldType::Uint32 => encode_varint(u64::from(bits as u32), out),
        FieldType::Sint32 => {
            let value = bits as i32;
            encode_varint(u64::from((value << 1 ^ value >> 31) as u32), out);
        }
        FieldType::Sint64 => {
            let value = bits as i64;
            encode_varint((value << 1 ^ value >> 63) as u64, out);
        }
        _ => encode_varint(bits, out),
    }
    Ok(())
}

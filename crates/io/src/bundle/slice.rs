//! Slices of partitioned tensors: their text form, their message, and the key under which a slice is stored.

use ferroflow_core::{Result, Shape, Status, bail, ensure, status};
use ferroflow_proto::tensorflow::TensorSliceProto;
use ferroflow_proto::tensorflow::tensor_slice_proto::{Extent, extent::HasLengthHack};
use std::fmt;

/// A region of a tensor: start and length per dimension, or `None` for the whole dimension.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSlice(Vec<Option<(i64, i64)>>);

/// A parsed `shape_and_slices` string: the full shape and the slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceSpec {
    /// The shape of the whole tensor.
    pub full: Shape,
    /// The slice.
    pub slice: TensorSlice,
    /// The shape of the slice.
    pub shape: Shape,
}

impl SliceSpec {
    /// Parses `"7 3 0,3:-"`: the full shape, then start and length per dimension.
    pub fn parse(text: &str) -> Result<SliceSpec> {
        let mut parts: Vec<&str> = text.split(' ').filter(|part| !part.is_empty()).collect();
        ensure!(
            parts.len() >= 2,
            InvalidArgument,
            "Need least two elements in shape_and_slice specification: {text}"
        );
        let slice = TensorSlice::parse(parts.pop().expect("two parts or more"))?;
        let number = |part: &&str| {
            let bad = || status!(InvalidArgument, "Non numerical dimension in shape_and_slice: {text}");
            part.parse::<i64>().map_err(|_| bad())
        };
        let full = Shape::new(parts.iter().map(number).collect::<Result<Vec<i64>>>()?)?;
        let shape = slice.shape_within(&full)?;
        Ok(SliceSpec { full, slice, shape })
    }
}

impl TensorSlice {
    /// The slice that is a whole tensor of this rank.
    pub fn whole(rank: usize) -> TensorSlice {
        TensorSlice(vec![None; rank])
    }

    /// Parses `"0,3:-"`.
    pub fn parse(text: &str) -> Result<TensorSlice> {
        let bad = || {
            status!(InvalidArgument, "Expected a pair of numbers or '-' but got '{text}': string = {text}")
        };
        let extent = |part: &str| -> Result<Option<(i64, i64)>> {
            if part == "-" {
                return Ok(None);
            }
            let (start, length) = part.split_once(',').ok_or_else(bad)?;
            let start: i64 = start.parse().map_err(|_| bad())?;
            let length: i64 = length.parse().map_err(|_| bad())?;
            ensure!(
                start >= 0 && length > 0,
                InvalidArgument,
                "Expected non-negative start and positive length but got start = {start}, length = {length}: \
                 string = {text}"
            );
            Ok(Some((start, length)))
        };
        Ok(TensorSlice(text.split(':').map(extent).collect::<Result<_>>()?))
    }

    /// The shape of this slice of a tensor of shape `full`.
    pub fn shape_within(&self, full: &Shape) -> Result<Shape> {
        ensure!(self.0.len() == full.rank(), Internal, "Mismatching ranks: shape = {full}, slice = {self}");
        for (dim, (extent, size)) in self.0.iter().zip(full.dims()).enumerate() {
            let inside = extent
                .is_none_or(|(start, length)| start.checked_add(length).is_some_and(|end| end <= *size));
            ensure!(
                inside,
                Internal,
                "Extent in dimension {dim} out of bounds: shape = {full}, slice = {self}"
            );
        }
        Shape::new(self.bounds(full).into_iter().map(|(_, length)| length))
    }

    /// Start and length per dimension.
    pub(crate) fn bounds(&self, full: &Shape) -> Vec<(i64, i64)> {
        self.0.iter().zip(full.dims()).map(|(extent, size)| extent.unwrap_or((0, *size))).collect()
    }

    /// Returns whether every dimension is whole.
    pub(crate) fn is_whole(&self, full: &Shape) -> bool {
        self.bounds(full).iter().zip(full.dims()).all(|((start, length), size)| *start == 0 && length == size)
    }

    pub(crate) fn to_proto(&self) -> TensorSliceProto {
        let extent = |extent: &Option<(i64, i64)>| Extent {
            start: extent.map_or(0, |(start, _)| start),
            has_length_hack: extent.map(|(_, length)| HasLengthHack::Length(length)),
        };
        TensorSliceProto { extent: self.0.iter().map(extent).collect() }
    }

    pub(crate) fn from_proto(proto: &TensorSliceProto) -> Result<TensorSlice> {
        let extent = |extent: &Extent| match extent.has_length_hack {
            Some(HasLengthHack::Length(length)) if extent.start >= 0 && length >= 0 => {
                Ok(Some((extent.start, length)))
            }
            None if extent.start == 0 => Ok(None),
            _ => bail!(DataLoss, "malformed slice in the checkpoint's index"),
        };
        Ok(TensorSlice(proto.extent.iter().map(extent).collect::<Result<_, Status>>()?))
    }

    /// The key under which this slice of a tensor is stored.
    pub(crate) fn key(&self, name: &str) -> Vec<u8> {
        let mut key = Vec::with_capacity(name.len() + 16);
        write_unsigned(&mut key, 0);
        write_string(&mut key, name.as_bytes());
        write_unsigned(&mut key, self.0.len() as u64);
        for extent in &self.0 {
            let (start, length) = extent.unwrap_or((0, -1));
            write_signed(&mut key, start);
            write_signed(&mut key, length);
        }
        key
    }
}

impl fmt::Display for TensorSlice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, extent) in self.0.iter().enumerate() {
            let colon = if i == 0 { "" } else { ":" };
            match extent {
                Some((start, length)) => write!(f, "{colon}{start},{length}")?,
                None => write!(f, "{colon}-")?,
            }
        }
        Ok(())
    }
}

// Ordered code: encodings whose bytes compare like the encoded values.

fn write_unsigned(out: &mut Vec<u8>, value: u64) {
    let bytes = value.to_be_bytes();
    let zeros = value.leading_zeros() as usize / 8;
    out.push((8 - zeros) as u8);
    out.extend_from_slice(&bytes[zeros..]);
}

fn write_string(out: &mut Vec<u8>, text: &[u8]) {
    for byte in text {
        match byte {
            0 => out.extend_from_slice(&[0, 0xff]),
            0xff => out.extend_from_slice(&[0xff, 0]),
            other => out.push(*other),
        }
    }
    out.extend_from_slice(&[0, 1]);
}

/// The number of leading one bits gives the length in bytes; they are inverted for negative values.
fn write_signed(out: &mut Vec<u8>, value: i64) {
    let magnitude = if value < 0 { !value } else { value } as u64;
    if magnitude < 64 {
        out.push(0x80 ^ value as u8);
        return;
    }
    let bits = 64 - magnitude.leading_zeros() as usize;
    let length = (bits + 1).div_ceil(7);
    let mut bytes = [if value < 0 { 0xff } else { 0 }; 10];
    bytes[2..].copy_from_slice(&value.to_be_bytes());
    let header: u16 = !(0xffffu16 >> length);
    let begin = bytes.len() - length;
    bytes[begin] ^= (header >> 8) as u8;
    bytes[begin + 1] ^= header as u8;
    out.extend_from_slice(&bytes[begin..]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn specs_are_read_and_checked() {
        let spec = SliceSpec::parse("7 3 2,4:-").unwrap();
        assert_eq!(spec.shape, Shape::matrix(4, 3));
        assert_eq!(spec.slice.to_string(), "2,4:-");
        for bad in ["", "7", "7 3 0,3", "7 x 0,1:-", "7 0,9", "7 -1,2", "7 1", "7 9223372036854775807,9"] {
            assert!(SliceSpec::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn keys_are_those_that_stock_writes() {
        let key = TensorSlice::parse("0,3:-").unwrap().key("w");
        assert_eq!(key, [0, b'w', 0, 1, 1, 2, 0x80, 0x83, 0x80, 0x7f]);
        let mut out = Vec::new();
        write_signed(&mut out, 64);
        assert_eq!(out, [0xc0, 0x40]);
        let mut texts: Vec<Vec<u8>> = Vec::new();
        for value in [i64::MIN, -70000, -65, -64, -1, 0, 63, 64, 8191, 8192, 70000, i64::MAX] {
            let mut out = Vec::new();
            write_signed(&mut out, value);
            texts.push(out);
        }
        assert!(texts.is_sorted(), "{texts:?}");
    }
}

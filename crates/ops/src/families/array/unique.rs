//! Ops whose result's size depends on the data: Unique, ListDiff, Where.

use crate::linalg::gather::gather;
use crate::support::index::{axis, input_ints, int_tensor};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, DType, Element, Result, Shape, Tensor, bail, bf16, ensure, f16, kernels};
use std::collections::HashMap;

pub(crate) const OPS: &[&Op] =
    &[&UNIQUE, &UNIQUE_V2, &UNIQUE_WITH_COUNTS, &UNIQUE_WITH_COUNTS_V2, &LIST_DIFF, &WHERE];

static UNIQUE: Op = Op {
    name: "Unique",
    inputs: &["x: T"],
    outputs: &["y: T", "idx: out_idx"],
    attrs: &["T: type", "out_idx: {int32, int64} = DT_INT32"],
    shape: unique_shape,
    kernels: kernels![unique_of: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool, Str],
    ..Op::PURE
};

static UNIQUE_V2: Op = Op {
    name: "UniqueV2",
    inputs: &["x: T", "axis: Taxis"],
    outputs: &["y: T", "idx: out_idx"],
    attrs: &["T: type", "Taxis: {int32, int64} = DT_INT64", "out_idx: {int32, int64} = DT_INT32"],
    shape: unique_v2_shape,
    kernels: kernels![unique_of: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool, Str],
    ..Op::PURE
};

static UNIQUE_WITH_COUNTS: Op = Op {
    name: "UniqueWithCounts",
    inputs: &["x: T"],
    outputs: &["y: T", "idx: out_idx", "count: out_idx"],
    attrs: &["T: type", "out_idx: {int32, int64} = DT_INT32"],
    shape: unique_shape,
    kernels: kernels![unique_of: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool, Str],
    ..Op::PURE
};

static UNIQUE_WITH_COUNTS_V2: Op = Op {
    name: "UniqueWithCountsV2",
    inputs: &["x: T", "axis: Taxis"],
    outputs: &["y: T", "idx: out_idx", "count: out_idx"],
    attrs: &["T: type", "Taxis: {int32, int64} = DT_INT64", "out_idx: {int32, int64} = DT_INT32"],
    shape: unique_v2_shape,
    kernels: kernels![unique_of: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, bool, Str],
    ..Op::PURE
};

static LIST_DIFF: Op = Op {
    name: "ListDiff",
    inputs: &["x: T", "y: T"],
    outputs: &["out: T", "idx: out_idx"],
    attrs: &["T: type", "out_idx: {int32, int64} = DT_INT32"],
    shape: list_diff_shape,
    kernels: kernels![list_diff_of: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, Str],
    ..Op::PURE
};

static WHERE: Op = Op {
    name: "Where",
    inputs: &["input: T"],
    outputs: &["index: int64"],
    attrs: &[
        "T: {float, double, int32, uint8, int16, int8, complex64, int64, qint8, quint8, qint32, bfloat16, qint16, quint16, uint16, complex128, half, uint32, uint64, bool} = DT_BOOL",
    ],
    shape: where_shape,
    kernels: kernels![
        where_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128, bool
    ],
    ..Op::PURE
};

fn unique_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    // With counts, stock leaves the rank to the kernel.
    let input = if s.num_outputs() == 3 { s.input(0) } else { s.rank(0, 1)? };
    s.output(0, [UNKNOWN_DIM])?;
    s.set(1, input);
    s.output(2, [UNKNOWN_DIM])
}

fn unique_v2_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    if let Some(rank) = s.input(0).rank() {
        s.output(0, std::iter::repeat_n(UNKNOWN_DIM, rank))?;
    }
    s.output(1, [UNKNOWN_DIM])?;
    s.output(2, [UNKNOWN_DIM])
}

/// Elements as numbers that are equal where elements are: NaNs differ from everything, zeros of both signs are equal
/// except in the 16-bit types, whose zeros stock tells apart by their hashes. Strings of all tensors share their
/// numbering.
fn keys(tensors: &[&Tensor]) -> Result<Vec<u64>> {
    fn float(keys: &mut Vec<u64>, values: impl Iterator<Item = f64>) {
        const NAN: u64 = 0x7ff8 << 48;
        for value in values {
            let next = keys.len() as u64;
            keys.push(if value.is_nan() { NAN + next } else { value.to_bits() });
        }
    }
    let mut keys = Vec::with_capacity(tensors.iter().map(|tensor| tensor.elements()).sum());
    let mut strings: HashMap<&[u8], u64> = HashMap::new();
    for tensor in tensors {
        match tensor.dtype() {
            DType::Half => float(&mut keys, tensor.flat::<f16>()?.iter().map(|v| v.to_f64())),
            DType::Bfloat16 => float(&mut keys, tensor.flat::<bf16>()?.iter().map(|v| v.to_f64())),
            DType::Float => float(&mut keys, tensor.flat::<f32>()?.iter().map(|v| *v as f64 + 0.0)),
            DType::Double => float(&mut keys, tensor.flat::<f64>()?.iter().map(|v| *v + 0.0)),
            DType::String => {
                for value in tensor.flat::<Str>()? {
                    let next = strings.len() as u64;
                    keys.push(*strings.entry(value).or_insert(next));
                }
            }
            dtype if !dtype.is_complex() => match dtype.size() {
                1 => keys.extend(tensor.units::<u8>()?.iter().map(|v| *v as u64)),
                2 => keys.extend(tensor.units::<u16>()?.iter().map(|v| *v as u64)),
                4 => keys.extend(tensor.units::<u32>()?.iter().map(|v| *v as u64)),
                8 => keys.extend_from_slice(tensor.units::<u64>()?),
                _ => bail!(Unimplemented, "finding equal elements of type {dtype}"),
            },
            dtype => bail!(Unimplemented, "finding equal elements of type {dtype}"),
        }
    }
    Ok(keys)
}

/// A hash table of rows of keys, in the order in which they came.
struct RowSet<'a> {
    keys: &'a [u64],
    width: usize,
    /// One more than a member's number; 0 marks a free slot. A power of two in size, at most half full.
    slots: Vec<u32>,
    /// The row where each member was first seen.
    firsts: Vec<usize>,
}

impl<'a> RowSet<'a> {
    fn new(keys: &'a [u64], width: usize, rows: usize) -> Result<RowSet<'a>> {
        ensure!(rows < u32::MAX as usize, InvalidArgument, "{rows} rows are too many to compare");
        let slots = vec![0; (rows * 2).next_power_of_two().max(8)];
        Ok(RowSet { keys, width, slots, firsts: Vec::new() })
    }

    fn row(&self, row: usize) -> &'a [u64] {
        &self.keys[row * self.width..(row + 1) * self.width]
    }

    /// The member equal to this row, or the slot where it would go.
    fn find(&self, row: usize) -> Result<usize, usize> {
        let wanted = self.row(row);
        let hash = wanted
            .iter()
            .fold(0u64, |hash, key| (hash.rotate_left(5) ^ key).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mask = self.slots.len() - 1;
        let mut slot = (hash >> 32 ^ hash) as usize & mask;
        loop {
            match self.slots[slot] {
                0 => return Err(slot),
                member if self.row(self.firsts[member as usize - 1]) == wanted => {
                    return Ok(member as usize - 1);
                }
                _ => slot = (slot + 1) & mask,
            }
        }
    }

    /// The number of the member equal to this row, which is added if new.
    fn insert(&mut self, row: usize) -> usize {
        match self.find(row) {
            Ok(member) => member,
            Err(slot) => {
                self.firsts.push(row);
                self.slots[slot] = self.firsts.len() as u32;
                self.firsts.len() - 1
            }
        }
    }
}

/// The types that stock has; the kernel itself is one for all.
#[expect(clippy::extra_unused_type_parameters, reason = "the table of kernels names a type per row")]
fn unique_of<T: Element>(init: &Init<'_>) -> Result<Kernel> {
    unique_kernel(init)
}

/// Serves all four unique ops: the axis is there if there is a second input, the counts if there is a third output.
fn unique_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_idx")?;
    let counted = init.output_types.len() == 3;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let at = unique_axis(cx)?;
        let dims = input.shape().dims();
        let rows = dims[at] as usize;
        let outer = dims[..at].iter().product::<i64>() as usize;
        let inner = dims[at + 1..].iter().product::<i64>() as usize;
        let mut all = keys(&[input])?;
        if outer > 1 {
            // Bring what belongs to one step of the axis together.
            let mut turned = Vec::with_capacity(all.len());
            for row in 0..rows {
                for block in 0..outer {
                    turned.extend_from_slice(&all[(block * rows + row) * inner..][..inner]);
                }
            }
            all = turned;
        }
        let mut set = RowSet::new(&all, outer * inner, rows)?;
        let members: Vec<usize> = (0..rows).map(|row| set.insert(row)).collect();
        let firsts = Tensor::vector(set.firsts.iter().map(|row| *row as i64).collect::<Vec<i64>>());
        let y = gather(cx.threads(), input, &firsts, at, 0)?;
        let idx = int_tensor(dtype, Shape::vector(rows), members.iter().map(|member| *member as i64))?;
        if !counted {
            return Ok([y, idx].into());
        }
        let mut counts = vec![0i64; set.firsts.len()];
        for member in members.iter() {
            counts[*member] += 1;
        }
        let counts = int_tensor(dtype, Shape::vector(counts.len()), counts.into_iter())?;
        Ok([y, idx, counts].into())
    })
}

fn unique_axis(cx: &KernelCx<'_>) -> Result<usize> {
    let rank = cx.input(0)?.rank();
    if cx.num_inputs() < 2 || cx.input(1)?.elements() == 0 {
        ensure!(rank == 1, InvalidArgument, "unique expects a 1D vector.");
        return Ok(0);
    }
    let axes = cx.input(1)?;
    ensure!(axes.rank() == 1, InvalidArgument, "axis expects a 1D vector.");
    ensure!(
        axes.elements() == 1,
        InvalidArgument,
        "axis does not support input tensors larger than 1 elements"
    );
    match axis(input_ints(cx, 1)?[0], rank) {
        Some(at) => Ok(at),
        None => bail!(InvalidArgument, "axis has to be between [0, {rank})"),
    }
}

fn list_diff_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 1)?;
    s.rank(1, 1)?;
    s.output(0, [UNKNOWN_DIM])?;
    s.output(1, [UNKNOWN_DIM])
}

#[expect(clippy::extra_unused_type_parameters, reason = "the table of kernels names a type per row")]
fn list_diff_of<T: Element>(init: &Init<'_>) -> Result<Kernel> {
    list_diff_kernel(init)
}

fn list_diff_kernel(init: &Init<'_>) -> Result<Kernel> {
    let dtype: DType = init.attr("out_idx")?;
    Kernel::sync(move |cx| {
        let (x, y) = (cx.input(0)?, cx.input(1)?);
        ensure!(x.rank() == 1, InvalidArgument, "x should be a 1D vector.");
        ensure!(y.rank() == 1, InvalidArgument, "y should be a 1D vector.");
        let all = keys(&[y, x])?;
        let mut set = RowSet::new(&all, 1, y.elements())?;
        for row in 0..y.elements() {
            set.insert(row);
        }
        let kept = (0..x.elements()).filter(|row| set.find(y.elements() + row).is_err());
        let kept: Vec<i64> = kept.map(|row| row as i64).collect();
        let idx = int_tensor(dtype, Shape::vector(kept.len()), kept.iter().copied())?;
        let out = gather(cx.threads(), x, &Tensor::vector(kept), 0, 0)?;
        Ok([out, idx].into())
    })
}

fn where_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let rank = s.input(0).rank().map_or(UNKNOWN_DIM, |rank| rank as i64);
    s.output(0, [UNKNOWN_DIM, rank])
}

fn where_kernel<T: Element>(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let input = cx.input(0)?;
        ensure!(
            T::DTYPE != DType::Half,
            Unimplemented,
            "No WhereOp available for float16/half type on CPU; dying in CPU WhereOp to avoid silently creating costly copies from device."
        );
        ensure!(input.rank() > 0, InvalidArgument, "WhereOp : Unhandled input dimensions: 0");
        let (values, zero) = (input.flat::<T>()?, T::default());
        let count = values.iter().filter(|value| **value != zero).count();
        places(cx, count, values.iter().map(|value| *value != zero))
    })
}

/// The coordinates of the elements that are set, of which there are `count`.
fn places(cx: &KernelCx<'_>, count: usize, set: impl Iterator<Item = bool>) -> Result<Outputs> {
    let dims = cx.input(0)?.shape().dims();
    let rank = dims.len();
    let mut out = cx.alloc::<i64>(Shape::matrix(count, rank))?;
    let mut rows = out.flat_mut::<i64>()?.chunks_exact_mut(rank);
    let mut place = vec![0i64; rank];
    let last = dims[rank - 1];
    for set in set {
        if set {
            match rows.next() {
                Some(row) => row.copy_from_slice(&place),
                None => break,
            }
        }
        place[rank - 1] += 1;
        if place[rank - 1] == last {
            // Carry into the outer coordinates.
            for i in (1..rank).rev() {
                if place[i] < dims[i] {
                    break;
                }
                place[i] = 0;
                place[i - 1] += 1;
            }
        }
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer};
    use ferroflow_core::Tensor;

    #[test]
    fn sizes_are_unknown() {
        infer("Unique", "[5]", "[?];[5]");
        infer("Where", "[5,2]", "[?,2]");
    }

    #[test]
    fn many_values_are_told_apart() {
        let values: Vec<i64> = (0..10_000).map(|i| i * i % 7919 * (1 << 32)).collect();
        let out = Node::new("Unique").run([Tensor::vector(values.clone())]).unwrap();
        let (y, idx) = (out[0].flat::<i64>().unwrap(), out[1].flat::<i32>().unwrap());
        assert!(idx.iter().zip(&values).all(|(at, value)| y[*at as usize] == *value));
        let mut sorted = y.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), y.len());
    }
}

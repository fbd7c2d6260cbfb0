//! The orders of an image's dimensions: numbers of dimensions, and values per dimension, from one order to another.

use crate::numeric::Int;
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, ShapeCx, UNKNOWN_DIM, shapes};
use ferroflow_core::{Result, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&DATA_FORMAT_DIM_MAP, &DATA_FORMAT_VEC_PERMUTE];

static DATA_FORMAT_DIM_MAP: Op = Op {
    name: "DataFormatDimMap",
    inputs: &["x: T"],
    outputs: &["y: T"],
    attrs: &["T: {int32, int64} = DT_INT32", "src_format: string = 'NHWC'", "dst_format: string = 'NCHW'"],
    shape: shapes::unchanged,
    kernels: kernels![dim_map_kernel: i32, i64],
    cheap: true,
    ..Op::PURE
};

static DATA_FORMAT_VEC_PERMUTE: Op = Op {
    name: "DataFormatVecPermute",
    shape: permute_shape,
    kernels: kernels![permute_kernel: i32, i64],
    ..DATA_FORMAT_DIM_MAP
};

/// The orders that attributes name, one a permutation of the other.
fn orders(init: &Init<'_>) -> Result<(Vec<u8>, Vec<u8>)> {
    let (from, to): (String, String) = (init.attr("src_format")?, init.attr("dst_format")?);
    ensure!(
        matches!(from.len(), 4 | 5),
        InvalidArgument,
        "Source format must be of length 4 or 5, received src_format = {from}"
    );
    ensure!(
        matches!(to.len(), 4 | 5),
        InvalidArgument,
        "Destination format must be of length 4 or 5, received dst_format = {to}"
    );
    let sorted = |text: &str| {
        let mut letters = text.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    let letters = sorted(&from);
    ensure!(
        letters == sorted(&to) && letters.windows(2).all(|pair| pair[0] != pair[1]),
        InvalidArgument,
        "Destination and source format must determine a permutation, got {from} and {to}"
    );
    Ok((from.into_bytes(), to.into_bytes()))
}

/// The place of each letter of one order in another.
fn places(from: &[u8], to: &[u8]) -> Vec<usize> {
    from.iter().map(|letter| to.iter().position(|other| other == letter).unwrap_or(0)).collect()
}

fn dim_map_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    let (from, to) = orders(init)?;
    let places = places(&from, &to);
    Kernel::sync(move |cx| {
        let mut output = cx.alloc::<T>(cx.input(0)?.shape().clone())?;
        let count = places.len() as i64;
        for (out, x) in output.flat_mut::<T>()?.iter_mut().zip(cx.flat::<T>(0)?) {
            // The sum wraps in its own type, and what is out of range ends at the last dimension, as in stock.
            let place = T::from_i64(x.to_i64().wrapping_add(count)).to_i64() % count;
            let place = usize::try_from(place).unwrap_or(places.len() - 1);
            *out = T::from_i64(places[place] as i64);
        }
        Ok(output.into())
    })
}

fn permute_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.rank_at_least(0, 1)?;
    s.rank_at_most(0, 2)?;
    if let Some([rows, columns]) = shape.dims() {
        let columns = s.merge_dims(*columns, 2)?;
        return s.output(0, [if *rows < 0 { UNKNOWN_DIM } else { *rows }, columns]);
    }
    s.set(0, shape);
    Ok(())
}

fn permute_kernel<T: Int>(init: &Init<'_>) -> Result<Kernel> {
    let (from, to) = orders(init)?;
    let is_space = |letter: &u8| matches!(letter, b'H' | b'W') || (from.len() == 5 && *letter == b'D');
    let spatial = |order: &[u8]| order.iter().copied().filter(is_space).collect::<Vec<u8>>();
    let (from_space, to_space) = (spatial(&from), spatial(&to));
    let (whole, space) = (places(&from, &to), places(&from_space, &to_space));
    let letters = from_space.len();
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let (rank, all, inner) = (input.rank(), whole.len(), whole.len() - 2);
        ensure!(
            matches!(rank, 1 | 2),
            InvalidArgument,
            "input must be a vector or 2D tensor, but got shape {}",
            input.shape()
        );
        let rows = input.shape().dim(0);
        ensure!(
            rows == all || rows == inner,
            InvalidArgument,
            "{} must be of size {inner} or {all}, but got shape {}",
            if rank == 1 { "1D input" } else { "First dimension of 2D input" },
            input.shape()
        );
        ensure!(
            rank == 1 || input.shape().dim(1) == 2,
            InvalidArgument,
            "Second dimension of 2D input must be of size 2, but got shape {}",
            input.shape()
        );
        ensure!(
            rows == all || letters == inner,
            InvalidArgument,
            "Format specifier must contain {} for 2D case",
            if inner == 3 { "D, H and W" } else { "H and W" }
        );
        let mut output = cx.alloc::<T>(input.shape().clone())?;
        let (x, out) = (input.flat::<T>()?, output.flat_mut::<T>()?);
        for (row, place) in (if rows == all { &whole } else { &space }).iter().enumerate() {
            out[place * rank..][..rank].copy_from_slice(&x[row * rank..][..rank]);
        }
        Ok(output.into())
    })
}

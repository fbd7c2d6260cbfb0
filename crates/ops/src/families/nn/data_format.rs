//! Dimensions and sizes, renamed from one order of an image's dimensions to another.

use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Op, shapes};
use ferroflow_core::{Element, Result, ensure, kernels};

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
    kernels: kernels![vec_permute_kernel: i32, i64],
    ..DATA_FORMAT_DIM_MAP
};

/// The two orders, checked: letters, each of which is in both once.
fn formats(init: &Init<'_>) -> Result<[Vec<u8>; 2]> {
    let (from, to): (String, String) = (init.attr("src_format")?, init.attr("dst_format")?);
    for (format, name, attr) in [(&from, "Source", "src_format"), (&to, "Destination", "dst_format")] {
        ensure!(
            matches!(format.len(), 4 | 5),
            InvalidArgument,
            "{name} format must be of length 4 or 5, received {attr} = {format}"
        );
    }
    let sorted = |format: &str| {
        let mut letters = format.as_bytes().to_vec();
        letters.sort_unstable();
        letters
    };
    ensure!(
        sorted(&from) == sorted(&to) && sorted(&from).windows(2).all(|pair| pair[0] != pair[1]),
        InvalidArgument,
        "Destination and source format must determine a permutation, got {from} and {to}"
    );
    Ok([from.into_bytes(), to.into_bytes()])
}

/// For each letter of one order, its place in the other.
fn places(from: &[u8], to: &[u8]) -> Vec<usize> {
    from.iter().filter_map(|letter| to.iter().position(|other| other == letter)).collect()
}

/// An integer that can name a dimension.
trait Dimension: Element + Copy {
    fn to_i64(self) -> i64;
    fn from_usize(value: usize) -> Self;
}

macro_rules! dimensions {
    ($($type:ty),+) => {$(
        impl Dimension for $type {
            fn to_i64(self) -> i64 { self as i64 }
            fn from_usize(value: usize) -> $type { value as $type }
        }
    )+};
}
dimensions!(i32, i64);

fn dim_map_kernel<T: Dimension>(init: &Init<'_>) -> Result<Kernel> {
    let [from, to] = formats(init)?;
    let places = places(&from, &to);
    Kernel::sync(move |cx| {
        let shape = cx.input(0)?.shape().clone();
        let mut out = cx.alloc::<T>(shape)?;
        let rank = places.len() as i64;
        for (slot, dim) in out.flat_mut::<T>()?.iter_mut().zip(cx.flat::<T>(0)?) {
            // Dimensions count from the end if they are negative. Stock takes whatever is left for the last one.
            let dim = dim.to_i64().wrapping_add(rank) % rank;
            *slot = T::from_usize(places[usize::try_from(dim).unwrap_or(places.len() - 1)]);
        }
        Ok(out.into())
    })
}

fn vec_permute_kernel<T: Dimension>(init: &Init<'_>) -> Result<Kernel> {
    let [from, to] = formats(init)?;
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let (shape, all) = (input.shape().clone(), from.len());
        let spatial = all - 2;
        ensure!(
            matches!(input.rank(), 1 | 2),
            InvalidArgument,
            "input must be a vector or 2D tensor, but got shape {shape}"
        );
        let (count, width) = (shape.dim(0), if input.rank() == 2 { shape.dim(1) } else { 1 });
        let what = if input.rank() == 1 {
            "1D input must be of size"
        } else {
            "First dimension of 2D input must be of size"
        };
        ensure!(
            count == spatial || count == all,
            InvalidArgument,
            "{what} {spatial} or {all}, but got shape {shape}"
        );
        ensure!(
            input.rank() == 1 || width == 2,
            InvalidArgument,
            "Second dimension of 2D input must be of size 2, but got shape {shape}"
        );
        let kept = |format: &[u8]| -> Vec<u8> {
            let is_spatial = |letter: &u8| matches!(letter, b'H' | b'W') || (spatial == 3 && *letter == b'D');
            format.iter().copied().filter(|letter| count == all || is_spatial(letter)).collect()
        };
        let (from, to) = (kept(&from), kept(&to));
        ensure!(
            from.len() == count,
            InvalidArgument,
            "Format specifier must contain {} for 2D case",
            if spatial == 3 { "D, H and W" } else { "H and W" }
        );
        let mut out = cx.alloc::<T>(shape)?;
        let (slots, values) = (out.flat_mut::<T>()?, cx.flat::<T>(0)?);
        for (row, place) in places(&from, &to).into_iter().enumerate() {
            slots[place * width..][..width].copy_from_slice(&values[row * width..][..width]);
        }
        Ok(out.into())
    })
}

//! Fourier transforms.

use crate::builders as ops;
use crate::linalg::fourier::{Kind, Sample, Transform};
use crate::support::gradient::{element, part, shape_output};
use ferroflow_core::kernel::{Init, Kernel};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::scope::{Output, Scope};
use ferroflow_core::{DType, Element as _, Result, Shape, Tensor, bail, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[
    &FFT, &FFT_2D, &FFT_3D, &IFFT, &IFFT_2D, &IFFT_3D, &RFFT, &RFFT_2D, &RFFT_3D, &IRFFT, &IRFFT_2D,
    &IRFFT_3D,
];

static FFT: Op = Op {
    name: "FFT",
    inputs: &["input: Tcomplex"],
    outputs: &["output: Tcomplex"],
    attrs: &["Tcomplex: {complex64, complex128} = DT_COMPLEX64"],
    shape: complex_shape::<1>,
    gradient: Gradient::Fn(fft_gradient::<1>),
    kernels: kernels![any fft_kernel],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

static FFT_2D: Op = Op {
    name: "FFT2D",
    shape: complex_shape::<2>,
    gradient: Gradient::Fn(fft_gradient::<2>),
    kernels: kernels![any fft_2d_kernel],
    ..FFT
};

static FFT_3D: Op = Op {
    name: "FFT3D",
    shape: complex_shape::<3>,
    gradient: Gradient::Fn(fft_gradient::<3>),
    kernels: kernels![any fft_3d_kernel],
    ..FFT
};

static IFFT: Op = Op {
    name: "IFFT",
    gradient: Gradient::Fn(ifft_gradient::<1>),
    kernels: kernels![any ifft_kernel],
    ..FFT
};

static IFFT_2D: Op = Op {
    name: "IFFT2D",
    gradient: Gradient::Fn(ifft_gradient::<2>),
    kernels: kernels![any ifft_2d_kernel],
    ..FFT_2D
};

static IFFT_3D: Op = Op {
    name: "IFFT3D",
    gradient: Gradient::Fn(ifft_gradient::<3>),
    kernels: kernels![any ifft_3d_kernel],
    ..FFT_3D
};

static RFFT: Op = Op {
    name: "RFFT",
    inputs: &["input: Treal", "fft_length: int32"],
    outputs: &["output: Tcomplex"],
    attrs: &["Treal: {float, double} = DT_FLOAT", "Tcomplex: {complex64, complex128} = DT_COMPLEX64"],
    shape: rfft_shape::<1>,
    gradient: Gradient::Fn(rfft_gradient::<1>),
    kernels: kernels![any rfft_kernel],
    ..FFT
};

static RFFT_2D: Op = Op {
    name: "RFFT2D",
    shape: rfft_shape::<2>,
    gradient: Gradient::Fn(rfft_gradient::<2>),
    kernels: kernels![any rfft_2d_kernel],
    ..RFFT
};

static RFFT_3D: Op = Op {
    name: "RFFT3D",
    shape: rfft_shape::<3>,
    gradient: Gradient::Undefined,
    kernels: kernels![any rfft_3d_kernel],
    ..RFFT
};

static IRFFT: Op = Op {
    name: "IRFFT",
    inputs: &["input: Tcomplex", "fft_length: int32"],
    outputs: &["output: Treal"],
    shape: irfft_shape::<1>,
    gradient: Gradient::Fn(irfft_gradient::<1>),
    kernels: kernels![any irfft_kernel],
    ..RFFT
};

static IRFFT_2D: Op = Op {
    name: "IRFFT2D",
    shape: irfft_shape::<2>,
    gradient: Gradient::Fn(irfft_gradient::<2>),
    kernels: kernels![any irfft_2d_kernel],
    ..IRFFT
};

static IRFFT_3D: Op = Op {
    name: "IRFFT3D",
    shape: irfft_shape::<3>,
    gradient: Gradient::Undefined,
    kernels: kernels![any irfft_3d_kernel],
    ..IRFFT
};

fn complex_shape<const RANK: usize>(s: &mut ShapeCx<'_>) -> Result<()> {
    let shape = s.rank_at_least(0, RANK)?;
    s.set(0, shape);
    Ok(())
}

fn rfft_shape<const RANK: usize>(s: &mut ShapeCx<'_>) -> Result<()> {
    real_shape(s, RANK, true)
}

fn irfft_shape<const RANK: usize>(s: &mut ShapeCx<'_>) -> Result<()> {
    real_shape(s, RANK, false)
}

fn real_shape(s: &mut ShapeCx<'_>, rank: usize, forward: bool) -> Result<()> {
    let input = s.rank_at_least(0, rank)?;
    if let Some([count]) = s.rank(1, 1)?.dims() {
        s.merge_dims(*count, rank as i64)?;
    }
    let Some(dims) = input.dims() else { return Ok(()) };
    let mut dims = dims.to_vec();
    let first = dims.len() - rank;
    match s.constant_i64s(1)? {
        None => dims[first..].fill(UNKNOWN_DIM),
        Some(lengths) => {
            for (at, length) in lengths.into_iter().take(rank).enumerate() {
                let is_half = forward && at + 1 == rank && length != 0;
                dims[first + at] = if is_half { length / 2 + 1 } else { length };
            }
        }
    }
    s.output(0, dims)
}

macro_rules! complex_kernels {
    ($($name:ident: $rank:literal, $forward:literal;)+) => {$(
        fn $name(init: &Init<'_>) -> Result<Kernel> {
            match init.attr::<DType>("Tcomplex")? {
                DType::Complex64 => complex_kernel::<f32>($rank, $forward),
                _ => complex_kernel::<f64>($rank, $forward),
            }
        }
    )+};
}

complex_kernels! {
    fft_kernel: 1, true;
    fft_2d_kernel: 2, true;
    fft_3d_kernel: 3, true;
    ifft_kernel: 1, false;
    ifft_2d_kernel: 2, false;
    ifft_3d_kernel: 3, false;
}

macro_rules! real_kernels {
    ($($name:ident: $rank:literal, $forward:literal;)+) => {$(
        fn $name(init: &Init<'_>) -> Result<Kernel> {
            let types = (init.attr::<DType>("Treal")?, init.attr::<DType>("Tcomplex")?);
            match (types, $forward) {
                ((DType::Float, DType::Complex64), true) => rfft::<f32>($rank),
                ((DType::Double, DType::Complex128), true) => rfft::<f64>($rank),
                ((DType::Float, DType::Complex64), false) => irfft::<f32>($rank),
                ((DType::Double, DType::Complex128), false) => irfft::<f64>($rank),
                ((real, complex), forward) => wrong_types(real, complex, forward),
            }
        }
    )+};
}

real_kernels! {
    rfft_kernel: 1, true;
    rfft_2d_kernel: 2, true;
    rfft_3d_kernel: 3, true;
    irfft_kernel: 1, false;
    irfft_2d_kernel: 2, false;
    irfft_3d_kernel: 3, false;
}

/// A kernel that refuses when it runs, as stock's does.
fn wrong_types(real: DType, complex: DType, forward: bool) -> Result<Kernel> {
    Kernel::sync(move |_| {
        let (direction, from, to) =
            if forward { ("forward", real, complex) } else { ("backward", complex, real) };
        bail!(InvalidArgument, "Wrong types for {direction} real FFT: in={} out={}", from.name(), to.name())
    })
}

fn check_rank(input: &Tensor, rank: usize) -> Result<()> {
    ensure!(
        input.rank() >= rank,
        InvalidArgument,
        "Input must have rank of at least {rank} but got: {}",
        input.shape()
    );
    Ok(())
}

fn complex_kernel<R: Sample>(rank: usize, forward: bool) -> Result<Kernel> {
    let transform = Transform::<R>::new(Kind::Complex, forward);
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        check_rank(input, rank)?;
        let shape = input.shape().clone();
        let lengths: Vec<usize> =
            shape.dims()[shape.dims().len() - rank..].iter().map(|dim| *dim as usize).collect();
        let elements = shape.elements();
        let mut output = match cx.take_reusable(&[0], R::Complex::DTYPE, elements) {
            Some((_, tensor)) => tensor,
            None => {
                let mut output = cx.alloc::<R::Complex>(shape)?;
                output.flat_mut::<R::Complex>()?.clone_from_slice(cx.flat(0)?);
                output
            }
        };
        if elements > 0 {
            transform.complex(cx.threads(), &lengths, output.flat_mut()?);
        }
        Ok(output.into())
    })
}

/// The lengths of a transform of real numbers, checked against the input, and the output's shape.
fn real_lengths(input: &Tensor, lengths: &Tensor, rank: usize, forward: bool) -> Result<(Vec<usize>, Shape)> {
    check_rank(input, rank)?;
    ensure!(
        lengths.rank() == 1 && lengths.elements() == rank,
        InvalidArgument,
        "fft_length must have shape [{rank}]"
    );
    let mut dims = input.shape().dims().to_vec();
    let first = dims.len() - rank;
    let lengths = lengths.to_i64s()?;
    for (at, length) in lengths.iter().enumerate() {
        ensure!(*length >= 0, InvalidArgument, "fft_length[{at}] must >= 0, but got: {length}");
        let is_last = at + 1 == rank;
        let least = if !forward && is_last { length / 2 + 1 } else { *length };
        let own = &mut dims[first + at];
        ensure!(
            *own == 0 || *own >= least,
            InvalidArgument,
            "Input dimension {} must have length of at least {least} but got: {own}",
            first + at
        );
        *own = if forward && is_last && *length != 0 { length / 2 + 1 } else { *length };
    }
    Ok((lengths.into_iter().map(|length| length as usize).collect(), Shape::new(dims)?))
}

/// Finds rows of a tensor of which only the first `lengths` in the last dimensions count.
fn row_start(dims: &[i64], lengths: &[usize], mut row: usize) -> usize {
    let rank = lengths.len();
    let (mut start, mut step) = (0, dims[dims.len() - 1] as usize);
    for axis in (0..dims.len() - 1).rev() {
        let own = dims[axis] as usize;
        let count = match (axis + rank).checked_sub(dims.len()) {
            Some(at) => lengths[at],
            None => own,
        };
        start += row % count * step;
        row /= count;
        step *= own;
    }
    start
}

fn rfft<R: Sample>(rank: usize) -> Result<Kernel> {
    let transform = Transform::<R>::new(Kind::Real, true);
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let (lengths, shape) = real_lengths(input, cx.input(1)?, rank, true)?;
        let mut output = cx.alloc::<R::Complex>(shape)?;
        if output.elements() == 0 {
            return Ok(output.into());
        }
        if input.elements() == 0 {
            return Ok(cx.zeros(R::Complex::DTYPE, output.shape().clone())?.into());
        }
        let (values, dims) = (input.flat::<R>()?, input.shape().dims());
        let length = lengths[rank - 1];
        let rows = |row: usize| &values[row_start(dims, &lengths, row)..][..length];
        transform.real_to_complex(cx.threads(), &lengths, &rows, output.flat_mut()?)?;
        Ok(output.into())
    })
}

fn irfft<R: Sample>(rank: usize) -> Result<Kernel> {
    let transform = Transform::<R>::new(Kind::Real, false);
    Kernel::sync(move |cx| {
        let input = cx.input(0)?;
        let (lengths, shape) = real_lengths(input, cx.input(1)?, rank, false)?;
        let mut output = cx.alloc::<R>(shape)?;
        if output.elements() == 0 {
            return Ok(output.into());
        }
        if input.elements() == 0 {
            return Ok(cx.zeros(R::DTYPE, output.shape().clone())?.into());
        }
        let (values, dims) = (input.flat::<R::Complex>()?, input.shape().dims());
        let half = lengths[rank - 1] / 2 + 1;
        let rows = output.elements() / lengths[rank - 1];
        let mut data: Vec<R::Complex> = Vec::with_capacity(rows * half);
        for row in 0..rows {
            data.extend_from_slice(&values[row_start(dims, &lengths, row)..][..half]);
        }
        transform.complex_to_real(cx.threads(), &lengths, &mut data, output.flat_mut()?)?;
        Ok(output.into())
    })
}

/// The number of elements of a transform over the last dimensions, in this type.
fn size(s: &Scope, x: &Output, rank: usize, dtype: DType) -> Result<Output> {
    let dims = part(s, &shape_output(s, x)?, -(rank as i32), None)?;
    ops::cast(s, ops::prod(s, dims, [0]), dtype)
}

fn build(s: &Scope, op: &str, inputs: &[&Output]) -> Result<Output> {
    let mut node = s.op(op);
    for input in inputs {
        node = node.input(*input);
    }
    node.build()?.output(0)
}

fn name(prefix: &str, rank: usize) -> String {
    if rank == 1 { prefix.to_owned() } else { format!("{prefix}{rank}D") }
}

fn fft_gradient<const RANK: usize>(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let count = size(s, &dy, RANK, dy.dtype())?;
    Ok([ops::mul(s, build(s, &name("IFFT", RANK), &[&dy])?, count)?].into())
}

fn ifft_gradient<const RANK: usize>(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy) = (g.scope(), g.dy(0)?);
    let part = ops::reciprocal(s, size(s, &dy, RANK, dy.dtype())?)?;
    Ok([ops::mul(s, build(s, &name("FFT", RANK), &[&dy])?, part)?].into())
}

/// Every number takes part in every element: the gradient is the real part of the backward transform, not of half but of
/// the whole, with zeros where nothing arrives.
fn rfft_gradient<const RANK: usize>(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, lengths) = (g.scope(), g.dy(0)?, g.input(1));
    let shape = shape_output(s, &dy)?;
    let missing = ops::sub(s, element(s, lengths, -1)?, element(s, &shape, -1)?)?;
    let rank = ops::rank(s, &dy)?;
    let after = ops::one_hot(s, ops::sub(s, &rank, 1), &rank, missing, 0)?;
    let before = ops::zeros_like(s, &after)?;
    let whole = ops::pad(s, &dy, ops::Pack::new().axis(1).build(s, [&before, &after]))?;
    let back = build(s, &name("IFFT", RANK), &[&whole])?;
    let count = size(s, &whole, RANK, g.input(0).dtype())?;
    let real = ops::Real::new().tout(g.input(0).dtype()).build(s, back)?;
    Ok([Some(ops::mul(s, real, count)?), None].into())
}

/// Elements that stand for two of the whole transform count twice.
fn irfft_gradient<const RANK: usize>(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, dy, lengths) = (g.scope(), g.dy(0)?, g.input(1));
    let (real, complex) = (dy.dtype(), g.input(0).dtype());
    let forward = match RANK {
        1 => ops::RFFT::new().tcomplex(complex).build(s, &dy, lengths)?,
        _ => ops::RFFT2D::new().tcomplex(complex).build(s, &dy, lengths)?,
    };
    let length = element(s, lengths, -1)?;
    let places = ops::range(s, 0, element(s, &shape_output(s, &forward)?, -1)?, 1)?;
    let alone = ops::equal(s, ops::floor_mod(s, ops::mul(s, places, 2), length), 0)?;
    let weights = ops::sub(s, 2, ops::cast(s, alone, DType::Int32))?;
    let weights = ops::div(s, ops::cast(s, weights, real), size(s, &dy, RANK, real)?)?;
    Ok([Some(ops::mul(s, forward, ops::cast(s, weights, complex))?), None].into())
}

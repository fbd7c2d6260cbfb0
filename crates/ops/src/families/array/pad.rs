//! Padding and mirror padding.

use crate::builders as ops;
use crate::linalg::strided_copy::{Layout, copy, row_major};
use crate::numeric::Num;
use crate::support::gradient::shape_as;
use crate::support::index::{Ints, constant_ints, input_ints};
use ferroflow_core::kernel::{Init, Kernel, KernelCx};
use ferroflow_core::op::{Accuracy, GradCx, Gradient, InputGrads, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{C64, C128, Result, Shape, Tensor, bf16, ensure, f16, kernels};

pub(crate) const OPS: &[&Op] = &[&PAD, &PAD_V2, &MIRROR_PAD, &MIRROR_PAD_GRAD];

static PAD: Op = Op {
    name: "Pad",
    gradient: Gradient::Fn(pad_grad),
    inputs: &["input: T", "paddings: Tpaddings"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32"],
    shape: pad_shape,
    kernels: kernels![any pad_kernel],
    ..Op::PURE
};

static PAD_V2: Op = Op {
    name: "PadV2",
    gradient: Gradient::Fn(pad_grad),
    inputs: &["input: T", "paddings: Tpaddings", "constant_values: T"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32"],
    shape: pad_shape,
    kernels: kernels![any pad_kernel],
    ..Op::PURE
};

static MIRROR_PAD: Op = Op {
    name: "MirrorPad",
    gradient: Gradient::Fn(mirror_pad_grad),
    inputs: &["input: T", "paddings: Tpaddings"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32", "mode: {'REFLECT', 'SYMMETRIC'}"],
    shape: pad_shape,
    kernels: kernels![any mirror_pad_kernel],
    ..Op::PURE
};

static MIRROR_PAD_GRAD: Op = Op {
    name: "MirrorPadGrad",
    gradient: Gradient::Fn(mirror_pad_grad_grad),
    inputs: &["input: T", "paddings: Tpaddings"],
    outputs: &["output: T"],
    attrs: &["T: type", "Tpaddings: {int32, int64} = DT_INT32", "mode: {'REFLECT', 'SYMMETRIC'}"],
    shape: mirror_pad_grad_shape,
    kernels: kernels![
        mirror_pad_grad_kernel: bf16, f16, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64, C64, C128
    ],
    accuracy: Accuracy::Rounding,
    ..Op::PURE
};

/// Output dimensions from input dimensions and paddings, each `(before, after)`.
fn padded(s: &mut ShapeCx<'_>, dim: impl Fn(i64, i64, i64) -> i64) -> Result<()> {
    let paddings = s.rank(1, 2)?;
    let paddings = paddings.dims().unwrap_or_default();
    s.merge_dims(paddings[1], 2)?;
    let input = s.input(0);
    let Some(values) = constant_ints(s, 1)? else {
        let rank = input.rank().map(|rank| rank as i64).unwrap_or(paddings[0]);
        s.merge_dims(rank, paddings[0])?;
        if rank != UNKNOWN_DIM {
            s.output(0, std::iter::repeat_n(UNKNOWN_DIM, rank as usize))?;
        }
        return Ok(());
    };
    let dims = s.rank(0, values.len() / 2)?;
    let mut out = Ints::new();
    for (have, pair) in dims.dims().unwrap_or_default().iter().zip(values.chunks_exact(2)) {
        ensure!(
            pair[0] >= 0 && pair[1] >= 0,
            InvalidArgument,
            "Paddings must be non-negative: {} {}",
            pair[0],
            pair[1]
        );
        out.push(if *have == UNKNOWN_DIM { UNKNOWN_DIM } else { dim(*have, pair[0], pair[1]) });
    }
    s.output(0, out)
}

fn pad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    padded(s, |dim, before, after| dim.saturating_add(before).saturating_add(after))
}

fn mirror_pad_grad_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    padded(s, |dim, before, after| (dim.saturating_sub(before).saturating_sub(after)).max(UNKNOWN_DIM))
}

/// The paddings of a node that pads input 0 by input 1.
fn paddings(cx: &KernelCx<'_>) -> Result<Ints> {
    let (shape, given) = (cx.input(0)?.shape(), cx.input(1)?.shape());
    ensure!(
        given.rank() == 2 && given[1] == 2,
        InvalidArgument,
        "paddings must be a matrix with 2 columns: {given}"
    );
    ensure!(
        given[0] == shape.rank() as i64,
        InvalidArgument,
        "The first dimension of paddings must be the rank of inputs{given} {shape}"
    );
    input_ints(cx, 1)
}

fn padded_shape(shape: &Shape, paddings: &[i64]) -> Result<Shape> {
    Shape::new(
        shape
            .iter()
            .zip(paddings.chunks_exact(2))
            .map(|(dim, pair)| dim.saturating_add(pair[0]).saturating_add(pair[1])),
    )
}

/// Refuses what stock's loops do not go to: they count neighbors that are not padded as one dimension.
fn check_rank(shape: &Shape, paddings: &[i64]) -> Result<()> {
    const LARGEST: usize = 6;
    if shape.rank() <= LARGEST {
        return Ok(());
    }
    let mut merged = Ints::new();
    let mut open = false;
    for (dim, pair) in shape.iter().zip(paddings.chunks_exact(2)) {
        let plain = pair == [0, 0];
        match merged.last_mut() {
            Some(last) if plain && open => *last *= dim,
            _ => merged.push(*dim),
        }
        open = plain;
    }
    ensure!(
        merged.len() <= LARGEST,
        InvalidArgument,
        "Only ranks up to {LARGEST} supported: {}",
        Shape::new(merged)?
    );
    Ok(())
}

fn pad_kernel(_: &Init<'_>) -> Result<Kernel> {
    Kernel::sync(|cx| {
        let paddings = paddings(cx)?;
        for pair in paddings.chunks_exact(2) {
            ensure!(
                pair[0] >= 0 && pair[1] >= 0,
                InvalidArgument,
                "Paddings must be non-negative: {} {}",
                pair[0],
                pair[1]
            );
        }
        if cx.num_inputs() > 2 {
            let value = cx.input(2)?;
            ensure!(
                value.rank() == 0,
                InvalidArgument,
                "constant_values must be a scalar. Found: {}",
                value.shape()
            );
        }
        if paddings.iter().all(|padding| *padding == 0) {
            return Ok(cx.take(0)?.into());
        }
        let input = cx.input(0)?;
        let shape = padded_shape(input.shape(), &paddings)?;
        if shape.elements() != input.elements() {
            check_rank(input.shape(), &paddings)?;
        }
        let strides = row_major(&shape);
        let offset =
            strides.iter().zip(paddings.chunks_exact(2)).map(|(stride, pair)| stride * pair[0] as isize);
        let layout =
            Layout::writing(offset.sum(), input.shape().iter().map(|dim| *dim as usize).zip(strides));
        let mut out = if cx.num_inputs() > 2 {
            let mut out = cx.alloc_dtype(input.dtype(), shape)?;
            copy(cx.threads(), &Layout::reading(0, [(out.elements(), 0)]), cx.input(2)?, &mut out)?;
            out
        } else {
            cx.zeros(input.dtype(), shape)?
        };
        copy(cx.threads(), &layout, input, &mut out)?;
        Ok(out.into())
    })
}

/// Whether the edge itself is repeated (`SYMMETRIC`) or not (`REFLECT`): how far the mirror stands from the edge.
fn mirror_gap(init: &Init<'_>) -> Result<i64> {
    Ok((init.attr::<String>("mode")? == "REFLECT") as i64)
}

/// One piece of a mirrored dimension: `count` steps, which begin at `padded` in the padded tensor and go forward, and
/// begin at `plain` in the other and go by `step`.
#[derive(Clone, Copy)]
struct Piece {
    count: usize,
    padded: i64,
    plain: i64,
    step: i64,
}

/// The pieces of one dimension of size `dim`: what is mirrored before it, the dimension, what is mirrored after it.
fn pieces(dim: i64, before: i64, after: i64, gap: i64) -> Vec<Piece> {
    let mut pieces = vec![
        Piece { count: dim as usize, padded: before, plain: 0, step: 1 },
        Piece { count: before as usize, padded: 0, plain: before - 1 + gap, step: -1 },
        Piece { count: after as usize, padded: before + dim, plain: dim - 1 - gap, step: -1 },
    ];
    pieces.retain(|piece| piece.count > 0);
    pieces
}

/// Takes the sizes of a box, and its offset and strides in one tensor and in the other.
type Visit<'a> = dyn FnMut(&[usize], (isize, &[isize]), (isize, &[isize])) -> Result<()> + 'a;

/// Calls `visit` with every box of a mirrored tensor: sizes, then offset and strides in the padded tensor and in the
/// plain one.
fn for_each_box(plain: &[i64], paddings: &[i64], gap: i64, visit: &mut Visit<'_>) -> Result<()> {
    let rank = plain.len();
    let padded: Ints =
        plain.iter().zip(paddings.chunks_exact(2)).map(|(dim, pair)| dim + pair[0] + pair[1]).collect();
    let (plain_strides, padded_strides) = (row_major(plain), row_major(&padded));
    let all: Vec<Vec<Piece>> = plain
        .iter()
        .zip(paddings.chunks_exact(2))
        .map(|(dim, pair)| pieces(*dim, pair[0], pair[1], gap))
        .collect();
    if all.iter().any(Vec::is_empty) {
        return Ok(());
    }
    let mut chosen = vec![0; rank];
    loop {
        let box_pieces: Vec<Piece> = (0..rank).map(|i| all[i][chosen[i]]).collect();
        let counts: Vec<usize> = box_pieces.iter().map(|piece| piece.count).collect();
        let steps: Vec<isize> = box_pieces
            .iter()
            .zip(&plain_strides)
            .map(|(piece, stride)| piece.step as isize * stride)
            .collect();
        let offset = |at: fn(&Piece) -> i64, strides: &[isize]| -> isize {
            box_pieces.iter().zip(strides).map(|(piece, stride)| at(piece) as isize * stride).sum()
        };
        visit(
            &counts,
            (offset(|piece| piece.padded, &padded_strides), &padded_strides),
            (offset(|piece| piece.plain, &plain_strides), &steps),
        )?;
        let Some(next) = (0..rank).rev().find(|i| chosen[*i] + 1 < all[*i].len()) else { return Ok(()) };
        chosen[next] += 1;
        chosen[next + 1..].fill(0);
    }
}

fn mirror_pad_kernel(init: &Init<'_>) -> Result<Kernel> {
    let gap = mirror_gap(init)?;
    Kernel::sync(move |cx| {
        let paddings = paddings(cx)?;
        let input = cx.input(0)?;
        for (dim, pair) in input.shape().iter().zip(paddings.chunks_exact(2)) {
            let (before, after) = (pair[0], pair[1]);
            ensure!(
                before >= 0 && after >= 0,
                InvalidArgument,
                "paddings must be non-negative: {before} {after}"
            );
            ensure!(
                gap == 1 || (before <= *dim && after <= *dim),
                InvalidArgument,
                "paddings must be no greater than the dimension size: {before}, {after} greater than {dim}"
            );
            ensure!(
                gap == 0 || (before < *dim && after < *dim),
                InvalidArgument,
                "paddings must be less than the dimension size: {before}, {after} not less than {dim}"
            );
        }
        if paddings.iter().all(|padding| *padding == 0) {
            return Ok(cx.take(0)?.into());
        }
        let mut out = cx.alloc_dtype(input.dtype(), padded_shape(input.shape(), &paddings)?)?;
        for_each_box(
            input.shape(),
            &paddings,
            gap,
            &mut |counts, (to, to_strides), (from, from_strides)| {
                let mut layout = Layout::at(from, to);
                for i in 0..counts.len() {
                    layout.push(counts[i], from_strides[i], to_strides[i]);
                }
                copy(cx.threads(), &layout, input, &mut out)
            },
        )?;
        Ok(out.into())
    })
}

fn mirror_pad_grad_kernel<T: Num>(init: &Init<'_>) -> Result<Kernel> {
    let gap = mirror_gap(init)?;
    Kernel::sync(move |cx| {
        let paddings = paddings(cx)?;
        let input = cx.input(0)?;
        let dims = unpadded(input.shape(), &paddings, gap)?;
        let mut out: Tensor = cx.zeros(T::DTYPE, Shape::new(dims.iter().copied())?)?;
        let (source, target) = (input.flat::<T>()?, out.flat_mut::<T>()?);
        for_each_box(&dims, &paddings, gap, &mut |counts, (from, from_strides), (to, to_strides)| {
            add_box(counts, (source, from, from_strides), (target, to, to_strides));
            Ok(())
        })?;
        Ok(out.into())
    })
}

/// The dimensions that were mirrored to get a padded shape.
fn unpadded(padded: &Shape, paddings: &[i64], gap: i64) -> Result<Ints> {
    let mut dims = Ints::new();
    for (dim, pair) in padded.iter().zip(paddings.chunks_exact(2)) {
        let (before, after) = (pair[0], pair[1]);
        ensure!(
            before >= 0 && after >= 0,
            InvalidArgument,
            "Paddings must be non-negative: {before}, {after}"
        );
        let total = before.saturating_add(after);
        ensure!(
            total < *dim,
            InvalidArgument,
            "Total paddings must be less than the input dimension size: {total} was not less than {dim}"
        );
        let rest = dim - total;
        ensure!(
            before.max(after) + gap <= rest,
            InvalidArgument,
            "Paddings must be {} the output dimension size: {before}, {after} {} {rest}",
            if gap == 0 { "no greater than" } else { "less than" },
            if gap == 0 { "greater than" } else { "not less than" }
        );
        dims.push(rest);
    }
    Ok(dims)
}

/// Adds a strided box of the source to one of the target.
fn add_box<T: Num>(
    counts: &[usize],
    (source, from, from_strides): (&[T], isize, &[isize]),
    (target, to, to_strides): (&mut [T], isize, &[isize]),
) {
    let Some((&count, inner)) = counts.split_first() else {
        let (from, to) = (from as usize, to as usize);
        target[to] = target[to].add(source[from]);
        return;
    };
    for i in 0..count as isize {
        add_box(
            inner,
            (source, from + i * from_strides[0], &from_strides[1..]),
            (target, to + i * to_strides[0], &to_strides[1..]),
        );
    }
}

/// Cuts the padding off.
fn pad_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let (s, x, paddings) = (g.scope(), g.input(0), g.input(1));
    let before = ops::slice(s, paddings, [0, 0], ops::pack(s, [ops::rank(s, x)?, s.constant(1i32)?]));
    let begin = ops::reshape(s, before, [-1]);
    let dx = ops::slice(s, g.dy(0)?, begin, shape_as(s, x, paddings.dtype())?)?;
    let mut grads = InputGrads::none(g.num_inputs());
    grads.0[0] = Some(dx.into());
    Ok(grads)
}

fn mirror_pad_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let mode: String = g.attr("mode")?;
    Ok([Some(ops::mirror_pad_grad(g.scope(), g.dy(0)?, g.input(1), &mode)?), None].into())
}

fn mirror_pad_grad_grad(g: &GradCx<'_>) -> Result<InputGrads> {
    let mode: String = g.attr("mode")?;
    Ok([Some(ops::mirror_pad(g.scope(), g.dy(0)?, g.input(1), &mode)?), None].into())
}

#[cfg(test)]
mod tests {
    use crate::testing::{Node, infer, infer_err};
    use ferroflow_core::{Code, Shape, Tensor};

    #[test]
    fn shapes_follow_constants() {
        let paddings = Tensor::new(Shape::matrix(2, 2), vec![1i32, 0, 0, 2]).unwrap();
        Node::new("Pad").constant(1, paddings).infer("[2,3];[2,2]", "[3,5]");
        infer("Pad", "[2,3];[2,2]", "[?,?]");
        infer_err("Pad", "[2,3];[2,3]", Code::InvalidArgument);
    }
}

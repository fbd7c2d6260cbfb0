//! Strings cut apart; the pieces form a sparse matrix with a row per string.

use crate::support::text::{is_space, trim_start};
use ferroflow_core::kernel::{Init, Kernel, KernelCx, Outputs, Str};
use ferroflow_core::op::{Gradient, Op, ShapeCx, UNKNOWN_DIM};
use ferroflow_core::{Result, Shape, Tensor, ensure, kernels};

pub(crate) const OPS: &[&Op] = &[&STRING_SPLIT, &STRING_SPLIT_V2];

static STRING_SPLIT: Op = Op {
    name: "StringSplit",
    gradient: Gradient::Stop,
    inputs: &["input: string", "delimiter: string"],
    outputs: &["indices: int64", "values: string", "shape: int64"],
    attrs: &["skip_empty: bool = true"],
    shape: split_shape,
    kernels: kernels![any split_kernel],
    ..Op::PURE
};

static STRING_SPLIT_V2: Op = Op {
    name: "StringSplitV2",
    inputs: &["input: string", "sep: string"],
    outputs: &["indices: int64", "values: string", "shape: int64"],
    attrs: &["maxsplit: int = -1"],
    shape: split_shape,
    kernels: kernels![any split_v2_kernel],
    ..Op::PURE
};

fn split_shape(s: &mut ShapeCx<'_>) -> Result<()> {
    s.rank(0, 1)?;
    s.output(0, [UNKNOWN_DIM, 2])?;
    s.output(1, [UNKNOWN_DIM])?;
    s.output(2, [2])
}

/// The texts to cut and the text to cut at.
fn inputs<'a>(cx: &'a KernelCx<'_>, name: &str) -> Result<(&'a [Str], Str)> {
    let (input, separator) = (cx.input(0)?, cx.input(1)?);
    ensure!(input.rank() == 1, InvalidArgument, "input must be a vector, got shape: {}", input.shape());
    ensure!(
        separator.rank() == 0,
        InvalidArgument,
        "{name} must be scalar, got shape: {}",
        separator.shape()
    );
    Ok((input.flat()?, separator.to_scalar()?))
}

fn sparse(rows: Vec<Vec<Str>>) -> Result<Outputs> {
    let (count, width) = (rows.len(), rows.iter().map(Vec::len).max().unwrap_or(0));
    let total = rows.iter().map(Vec::len).sum();
    let (mut indices, mut values) = (Vec::with_capacity(2 * total), Vec::with_capacity(total));
    for (row, pieces) in rows.into_iter().enumerate() {
        for (column, piece) in pieces.into_iter().enumerate() {
            indices.extend([row as i64, column as i64]);
            values.push(piece);
        }
    }
    let indices = Tensor::new(Shape::matrix(total, 2), indices)?;
    Ok([indices, Tensor::vector(values), Tensor::vector(vec![count as i64, width as i64])].into())
}

/// Cuts at any byte of the delimiter; without one, between all bytes.
fn split_kernel(init: &Init<'_>) -> Result<Kernel> {
    let skip_empty: bool = init.attr("skip_empty")?;
    Kernel::sync(move |cx| {
        let (texts, delimiter) = inputs(cx, "delimiter")?;
        let cut = |text: &Str| -> Vec<Str> {
            if text.is_empty() {
                return Vec::new();
            }
            if delimiter.is_empty() {
                return (0..text.len()).map(|at| text.slice(at..at + 1)).collect();
            }
            let pieces = text.split(|byte| delimiter.contains(byte));
            pieces
                .filter(|piece| !skip_empty || !piece.is_empty())
                .map(|piece| text.slice_ref(piece))
                .collect()
        };
        sparse(texts.iter().map(cut).collect())
    })
}

fn split_v2_kernel(init: &Init<'_>) -> Result<Kernel> {
    let limit = usize::try_from(init.attr::<i64>("maxsplit")?).unwrap_or(usize::MAX);
    Kernel::sync(move |cx| {
        let (texts, separator) = inputs(cx, "sep")?;
        let cut = |text: &Str| {
            if separator.is_empty() { at_spaces(text, limit) } else { at_separator(text, &separator, limit) }
        };
        sparse(texts.iter().map(cut).collect())
    })
}

fn at_separator(text: &Str, separator: &[u8], limit: usize) -> Vec<Str> {
    let (mut pieces, mut start) = (Vec::new(), 0);
    let mut at = 0;
    while pieces.len() < limit && at + separator.len() <= text.len() {
        if text[at..].starts_with(separator) {
            pieces.push(text.slice(start..at));
            at += separator.len();
            start = at;
        } else {
            at += 1;
        }
    }
    pieces.push(text.slice(start..));
    pieces
}

/// Cuts at runs of spaces. Once all cuts are made the rest is a piece, even if nothing is left.
fn at_spaces(text: &Str, limit: usize) -> Vec<Str> {
    if limit == 0 {
        return vec![text.clone()];
    }
    let mut pieces = Vec::new();
    let mut rest = trim_start(text);
    while !rest.is_empty() {
        let end = rest.iter().position(is_space).unwrap_or(rest.len());
        pieces.push(text.slice_ref(&rest[..end]));
        rest = trim_start(&rest[end..]);
        if pieces.len() == limit {
            pieces.push(text.slice_ref(rest));
            break;
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_stays_whole_after_the_last_cut() {
        let text = Str::from_static(b" a b  c ");
        assert_eq!(at_spaces(&text, 1), ["a", "b  c "]);
        assert_eq!(at_spaces(&text, 3), ["a", "b", "c", ""]);
        assert_eq!(at_spaces(&text, usize::MAX), ["a", "b", "c"]);
        assert_eq!(at_separator(&Str::from_static(b"a,b,,c"), b",", 2), ["a", "b", ",c"]);
        assert_eq!(at_separator(&Str::new(), b",", 2), [""]);
    }
}
